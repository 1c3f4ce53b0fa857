//! The lock file next to a database file: it has one holder at a time, and a dead holder does not
//! keep it.
//!
//! This is the lock of `js/storage/node/lock-file.ts`, which explains its rules and why they are
//! safe, so a program in Rust and one in Node, Deno or Bun exclude each other. The lock is a file,
//! or on a full disk a symlink, that is created atomically with its whole content and names the
//! process that holds it. Its holder changes its modification time every two seconds, and only the
//! holder of a second lock may break it. Where the system locks files as well, `locked_file.rs` takes
//! that lock first.

use std::collections::HashSet;
use std::fs::{self, File, Metadata, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use filetime::{FileTime, set_symlink_file_times};

use super::process_id::{Identity, ProcessState, current, host_name, state_of};
use super::std_file::is_full;
use super::{Error, Loss};

/// How often a holder sends a heartbeat.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(2);
/// How much each heartbeat increases the modification time: the resolution of the coarsest file
/// system.
const HEARTBEAT_STEP_SECONDS: i64 = 2;
/// A holder that has sent no heartbeat for this long sends one before it writes, and checks the
/// lock again before the write counts.
const FRESH_FOR: Duration = Duration::from_secs(3);
/// A holder that cannot be checked and has sent no heartbeat for this long is considered dead.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(8);
/// A lock without content is still being written on a file system without hard links, or was torn
/// by a power failure: after this long it is the latter.
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);
/// A missing lock may have been moved by a process that puts it back, within at most this time.
const MOVE_TIMEOUT: Duration = Duration::from_millis(100);
/// How long acquiring a lock may take in all.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(20);
/// Temporary files that were not linked are removed after this long.
const TEMPORARY_FILE_AGE: Duration = Duration::from_secs(60);
/// A breaker that died leaves a lock of its own, and so on; at most this many in a row are broken.
const MAX_BREAKER_DEPTH: u32 = 3;

/// A random number from the random keys of the standard library's hash tables.
pub(super) fn random() -> u64 {
    RandomState::new().hash_one((current().pid, SystemTime::now()))
}

/// The state of a lock file when it was read.
#[derive(Clone, Debug)]
struct LockSnapshot {
    content: String,
    inode: u64,
    touched: SystemTime,
}

impl LockSnapshot {
    fn is_same(&self, other: &LockSnapshot) -> bool {
        self.content == other.content && self.inode == other.inode
    }
}

/// The contents of the locks that this process holds.
static HELD_LOCKS: Mutex<Option<HashSet<String>>> = Mutex::new(None);

fn held_locks() -> MutexGuard<'static, Option<HashSet<String>>> {
    HELD_LOCKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An acquired lock.
#[derive(Debug)]
pub(super) struct Lock {
    shared: Arc<Shared>,
    /// Whether it was taken over from a holder that may still be alive and complete an interrupted
    /// write.
    pub(super) taken_over: bool,
    heartbeat: Option<(Sender<()>, JoinHandle<()>)>,
}

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    guarded: PathBuf,
    content: String,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The guarded file, once it is open.
    file: Option<FileIdentity>,
    /// The modification time that was last written to the lock, in seconds.
    stamp: i64,
    /// When that was, by both clocks: the monotonic one may stop while the machine sleeps.
    last_heartbeat: Option<(Instant, SystemTime)>,
    loss: Option<Loss>,
}

impl Lock {
    /// Acquires the lock of the file `guarded`.
    pub(super) fn acquire(guarded: &Path) -> Result<Lock, Error> {
        let path = lock_path(guarded);
        let CreatedLock { content, taken_over } = acquire(&path, guarded, 0)?;
        held_locks().get_or_insert_default().insert(content.clone());
        let now = FileTime::now().unix_seconds();
        let stamp = now - now % HEARTBEAT_STEP_SECONDS;
        let state = Mutex::new(State { file: None, stamp, last_heartbeat: None, loss: None });
        let shared = Arc::new(Shared { path, guarded: guarded.to_path_buf(), content, state });
        shared.send_heartbeat();
        let (stop, stopped) = mpsc::channel();
        let for_thread = Arc::clone(&shared);
        let spawned = thread::Builder::new().name("varve lock".into()).spawn(move || {
            while stopped.recv_timeout(HEARTBEAT_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                for_thread.send_heartbeat();
            }
        });
        // If no thread can be started, the lock is checked before writes, and processes on this
        // machine still see that the holder is alive.
        Ok(Lock { shared, taken_over, heartbeat: spawned.ok().map(|thread| (stop, thread)) })
    }

    /// Records the opened file, so that from now on it is compared with the file at its path.
    pub(super) fn set_file(&self, file: &File) {
        self.shared.state().file = FileIdentity::of(file, &self.shared.guarded);
    }

    /// Called before each change of the file, and again before a write counts. An error without a
    /// loss is a temporary one.
    pub(super) fn assert_held(&self) -> Result<(), Option<Loss>> {
        let state = self.shared.state();
        if state.loss.is_none() && !state.is_recent() {
            drop(state);
            self.shared.send_heartbeat();
            return self.shared.state().status();
        }
        state.status()
    }

    /// Whether the lock is still held, and the open file is still the one at its path.
    pub(super) fn assert_current(&self) -> Result<(), Option<Loss>> {
        drop(self.shared.check_file());
        let Shared { path, content, .. } = &*self.shared;
        if !matches!(read_lock(path), Ok(Some(snapshot)) if snapshot.content == *content) {
            self.shared.send_heartbeat();
        }
        self.assert_held()
    }

    /// How the file or its lock was lost, if it was.
    pub(super) fn loss(&self) -> Option<Loss> {
        self.shared.state().loss
    }

    /// The path of the file that it protects.
    pub(super) fn guarded(&self) -> &Path {
        &self.shared.guarded
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.heartbeat.take() {
            drop(stop);
            // If the thread panicked, it sends no more heartbeats either.
            drop(thread.join());
        }
        let Shared { path, content, .. } = &*self.shared;
        // This also releases the system's lock, before others may open the file.
        self.shared.state().file = None;
        if matches!(read_lock(path), Ok(Some(snapshot)) if snapshot.content == *content) {
            remove(path);
        }
        held_locks().get_or_insert_default().remove(content);
    }
}

impl State {
    fn is_recent(&self) -> bool {
        self.last_heartbeat.is_some_and(|(since, wall)| {
            // If the wall clock was changed in either direction, this only costs one more
            // heartbeat.
            since.elapsed() < FRESH_FOR && wall.elapsed().is_ok_and(|elapsed| elapsed < FRESH_FOR)
        })
    }

    fn status(&self) -> Result<(), Option<Loss>> {
        match self.loss {
            None if self.is_recent() => Ok(()),
            loss => Err(loss),
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks whether the open file is still the one at its path.
    fn check_file(&self) -> MutexGuard<'_, State> {
        let mut state = self.state();
        state.loss = state.loss.or_else(|| state.file.as_ref()?.loss(&self.guarded));
        state
    }

    fn send_heartbeat(&self) {
        let mut state = self.check_file();
        if state.loss.is_some() {
            return;
        }
        let last_heartbeat = (Instant::now(), SystemTime::now());
        state.stamp += HEARTBEAT_STEP_SECONDS;
        let time = FileTime::from_unix_time(state.stamp, 0);
        loop {
            // The time is changed before the lock is read: a process that moves the lock away to
            // break it sees the change and puts the lock back.
            let touched = set_symlink_file_times(&self.path, time, time);
            match touched.and_then(|()| read_lock(&self.path)) {
                Ok(Some(snapshot)) if snapshot.content == self.content => {
                    state.last_heartbeat = Some(last_heartbeat);
                    return;
                }
                Ok(Some(_)) => break,
                Ok(None) => {}
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                // Other errors, as of a hanging file system: the next heartbeat tries again.
                Err(_) => return,
            }
            if last_heartbeat.0.elapsed() > MOVE_TIMEOUT {
                break;
            }
            thread::sleep(Duration::from_millis(5));
        }
        state.loss = Some(Loss::TakenOver);
    }
}

/// The identity of a file while it is open.
#[derive(Debug)]
struct FileIdentity {
    file: File,
    /// None where the numbers are meaningless: the system returns different ones for the path and
    /// for the open file.
    numbers: Option<(u64, u64)>,
}

impl FileIdentity {
    /// None where the system has no such numbers.
    fn of(file: &File, path: &Path) -> Option<FileIdentity> {
        let file = file.try_clone().ok()?;
        let numbers = file.metadata().ok().and_then(|found| numbers_of(&found));
        let at_path = fs::metadata(path).ok().and_then(|found| numbers_of(&found));
        Some(FileIdentity {
            file,
            numbers: numbers.filter(|_| at_path.is_none() || at_path == numbers),
        })
    }

    /// How the file was lost; none if it is the one at its path, or if that cannot be checked now.
    fn loss(&self, path: &Path) -> Option<Loss> {
        match fs::metadata(path) {
            Ok(at_path) => {
                let replaced = match self.numbers {
                    Some(_) => numbers_of(&at_path) != self.numbers,
                    None => self.file.metadata().is_ok_and(|found| has_no_name(&found)),
                };
                replaced.then_some(Loss::Replaced)
            }
            Err(error) => {
                use ErrorKind::{NotADirectory, NotFound};
                matches!(error.kind(), NotFound | NotADirectory).then_some(Loss::Removed)
            }
        }
    }
}

#[cfg(unix)]
fn numbers_of(found: &Metadata) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    Some((found.dev(), found.ino()))
}

#[cfg(not(unix))]
fn numbers_of(_: &Metadata) -> Option<(u64, u64)> {
    None
}

#[cfg(unix)]
fn has_no_name(found: &Metadata) -> bool {
    std::os::unix::fs::MetadataExt::nlink(found) == 0
}

#[cfg(not(unix))]
fn has_no_name(_: &Metadata) -> bool {
    false
}

fn lock_path(guarded: &Path) -> PathBuf {
    let mut path = guarded.as_os_str().to_os_string();
    path.push(".lock");
    PathBuf::from(path)
}

/// Returns successfully if no process holds the lock of this file, without acquiring it.
pub(super) fn check_not_held(guarded: &Path) -> Result<(), Error> {
    let path = lock_path(guarded);
    let mut watch = Watch::default();
    loop {
        let Some(snapshot) = read_or_unavailable(&path)? else { return Ok(()) };
        let holder = parse(&snapshot.content);
        match watch.classify_holder(&snapshot, holder.as_ref()) {
            HolderState::Dead | HolderState::TimedOut => return Ok(()),
            HolderState::Alive => return Err(busy(guarded, holder, 0)),
            HolderState::Unknown => pause(50),
        }
    }
}

/// The process that holds the lock of this file, according to the lock.
pub(super) fn holder_of(guarded: &Path) -> Option<u32> {
    let snapshot = read_lock(&lock_path(guarded)).ok().flatten()?;
    parse(&snapshot.content).map(|holder| holder.pid)
}

/// The state of a lock's holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HolderState {
    Alive,
    /// It is certainly dead.
    Dead,
    /// It may be alive as far as can be checked, but it has sent no heartbeat for long enough.
    TimedOut,
    /// Undecided: its heartbeats must be observed for longer.
    Unknown,
}

/// The observations of a lock while waiting for it: the first one, and its time by this process's
/// monotonic clock. The wall clock decides nothing.
#[derive(Debug, Default)]
struct Watch(Option<(LockSnapshot, Instant)>);

impl Watch {
    fn classify_holder(
        &mut self,
        snapshot: &LockSnapshot,
        holder: Option<&Identity>,
    ) -> HolderState {
        let known = self.0.take().filter(|(first, _)| first.is_same(snapshot));
        let (first, since) =
            self.0.insert(known.unwrap_or_else(|| (snapshot.clone(), Instant::now())));
        let watched = since.elapsed();
        // A power failure can leave zeros instead of text.
        if snapshot.content.chars().all(|c| c == '\0' || c.is_whitespace()) {
            return if watched > WRITE_TIMEOUT { HolderState::Dead } else { HolderState::Unknown };
        }
        if held_locks().as_ref().is_some_and(|held_locks| held_locks.contains(&snapshot.content)) {
            return HolderState::Alive;
        }
        // Unknown content of another build is treated like a holder that cannot be checked.
        match holder.map_or(ProcessState::Unknown, state_of) {
            ProcessState::Alive => HolderState::Alive,
            ProcessState::Dead => HolderState::Dead,
            ProcessState::Unknown if snapshot.touched != first.touched => HolderState::Alive,
            ProcessState::Unknown if watched > HEARTBEAT_TIMEOUT => HolderState::TimedOut,
            ProcessState::Unknown => HolderState::Unknown,
        }
    }
}

/// A created lock.
struct CreatedLock {
    content: String,
    /// Whether a lock was broken for it whose holder may still be alive.
    taken_over: bool,
}

/// Creates the lock file if there is none, or after breaking one that was left behind.
fn acquire(path: &Path, guarded: &Path, depth: u32) -> Result<CreatedLock, Error> {
    let token = format!("{:08x}", random() as u32);
    let start = Instant::now();
    let (mut watch, mut taken_over) = (Watch::default(), false);
    loop {
        let created = create(path, &token).map_err(|error| Error::unavailable(guarded, error))?;
        if let Some(content) = created {
            // Another process may have moved a valid lock away, and may be about to put it back
            // over this one.
            wait_for_breakers(path, guarded, depth)?;
            if read_or_unavailable(path)?.is_some_and(|snapshot| snapshot.content == content) {
                return Ok(CreatedLock { content, taken_over });
            }
        }
        let mut holder = None;
        if let Some(snapshot) = read_or_unavailable(path)? {
            holder = parse(&snapshot.content);
            match watch.classify_holder(&snapshot, holder.as_ref()) {
                HolderState::Dead => drop(break_lock(path, guarded, &snapshot, depth)?),
                HolderState::TimedOut => taken_over |= break_lock(path, guarded, &snapshot, depth)?,
                HolderState::Alive => return Err(busy(guarded, holder, depth)),
                HolderState::Unknown => {}
            }
        }
        if start.elapsed() > ACQUIRE_TIMEOUT {
            return Err(busy(guarded, holder, depth));
        }
        pause(if holder.is_some_and(|holder| state_of(&holder) == ProcessState::Unknown) {
            100
        } else {
            2
        });
    }
}

/// The second lock, which gives the right to break this one.
fn breaker_of(path: &Path) -> PathBuf {
    let mut breaker = path.as_os_str().to_os_string();
    breaker.push(".break");
    PathBuf::from(breaker)
}

/// Releases a breaker's lock.
fn release_breaker(breaker: &Path, content: &str) {
    if matches!(read_lock(breaker), Ok(Some(snapshot)) if snapshot.content == content) {
        remove(breaker);
    }
}

/// Waits until no process is breaking this lock, and removes the lock of a breaker that died.
fn wait_for_breakers(path: &Path, guarded: &Path, depth: u32) -> Result<(), Error> {
    let (breaker, start) = (breaker_of(path), Instant::now());
    while read_or_unavailable(&breaker)?.is_some() {
        match acquire(&breaker, guarded, depth + 1) {
            Ok(CreatedLock { content, .. }) => release_breaker(&breaker, &content),
            Err(Error::Busy { .. }) if depth == 0 && start.elapsed() < ACQUIRE_TIMEOUT => pause(2),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Removes a lock that was left behind. Returns false if another process was faster or the lock is
/// valid.
fn break_lock(
    path: &Path,
    guarded: &Path,
    expected: &LockSnapshot,
    depth: u32,
) -> Result<bool, Error> {
    if depth >= MAX_BREAKER_DEPTH {
        return Err(busy(guarded, None, depth));
    }
    let breaker = breaker_of(path);
    let CreatedLock { content, .. } = match acquire(&breaker, guarded, depth + 1) {
        // Another process is breaking it.
        Err(Error::Busy { .. }) if depth == 0 => return Ok(false),
        created => created?,
    };
    remove_temporary_files(path);
    let moved = move_away(path, expected, &content[..8]);
    release_breaker(&breaker, &content);
    moved.map_err(|error| Error::unavailable(path, error))
}

/// Removes a lock if it is unchanged. A heartbeat at the last moment is detected after the lock was
/// moved.
fn move_away(path: &Path, expected: &LockSnapshot, token: &str) -> io::Result<bool> {
    let is = |snapshot: Option<LockSnapshot>| {
        snapshot.is_some_and(|snapshot| {
            snapshot.is_same(expected) && snapshot.touched == expected.touched
        })
    };
    if !is(read_lock(path)?) {
        return Ok(false);
    }
    let mut moved = path.as_os_str().to_os_string();
    moved.push(format!(".{token}"));
    let moved = PathBuf::from(moved);
    match fs::rename(path, &moved) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        renamed => renamed?,
    }
    if !is(read_lock(&moved)?) {
        fs::rename(&moved, path)?;
        return Ok(false);
    }
    remove(&moved);
    Ok(true)
}

/// Removes temporary files of processes that died before they linked them.
fn remove_temporary_files(path: &Path) {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return };
    let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let other = entry.file_name();
        let token = other.to_str().and_then(|other| other.strip_prefix(name)?.strip_prefix('.'));
        let is_temporary = token.is_some_and(|token| {
            token.len() == 8 && token.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        });
        let touched = entry.metadata().and_then(|found| found.modified());
        let age = touched.ok().and_then(|touched| touched.elapsed().ok());
        if is_temporary && age.is_some_and(|age| age > TEMPORARY_FILE_AGE) {
            remove(&entry.path());
        }
    }
}

/// Creates the lock atomically and returns its content; none if there is one already.
fn create(path: &Path, token: &str) -> io::Result<Option<String>> {
    let identity = format!("{token} {}", current().to_text());
    let content = format!("{identity} {}\n", host_name().unwrap_or_default());
    let mut draft = path.as_os_str().to_os_string();
    draft.push(".");
    draft.push(token);
    let draft = PathBuf::from(draft);
    // A file system without hard links: not atomic, see WRITE_TIMEOUT.
    let created = write_new(&draft, &content).and_then(|()| match fs::hard_link(&draft, path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => write_new(path, &content),
        linked => linked,
    });
    remove(&draft);
    match created {
        Ok(()) => Ok(Some(content)),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(None),
        Err(error) if is_full(&error) => create_as_link(path, identity, error),
        Err(error) => Err(error),
    }
}

fn write_new(path: &Path, content: &str) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).open(path)?.write_all(content.as_bytes())
}

/// Used when the disk is too full for a file. If creating the symlink fails, the error to report is
/// still the full disk.
#[cfg(unix)]
fn create_as_link(path: &Path, identity: String, full: io::Error) -> io::Result<Option<String>> {
    match std::os::unix::fs::symlink(&identity, path) {
        Ok(()) => Ok(Some(identity)),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(None),
        Err(_) => Err(full),
    }
}

#[cfg(not(unix))]
fn create_as_link(_: &Path, _: String, full: io::Error) -> io::Result<Option<String>> {
    Err(full)
}

fn read_lock(path: &Path) -> io::Result<Option<LockSnapshot>> {
    match read_snapshot(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        snapshot => snapshot.map(Some),
    }
}

fn read_snapshot(path: &Path) -> io::Result<LockSnapshot> {
    let snapshot = |content, found: &Metadata| {
        Ok(LockSnapshot { content, inode: inode_of(found), touched: found.modified()? })
    };
    match fs::read_link(path) {
        Ok(target) => snapshot(target.to_string_lossy().into_owned(), &path.symlink_metadata()?),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(error),
        Err(_) => {
            let mut file = File::open(path)?;
            let found = file.metadata()?;
            let mut content = Vec::new();
            file.read_to_end(&mut content)?;
            snapshot(String::from_utf8_lossy(&content).into_owned(), &found)
        }
    }
}

fn read_or_unavailable(path: &Path) -> Result<Option<LockSnapshot>, Error> {
    read_lock(path).map_err(|error| Error::unavailable(path, error))
}

#[cfg(unix)]
fn inode_of(found: &fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(found)
}

#[cfg(not(unix))]
fn inode_of(_: &fs::Metadata) -> u64 {
    0
}

/// Errors are ignored: the file may be gone already, and a lock that stays is found dead by the
/// next process.
fn remove(path: &Path) {
    drop(fs::remove_file(path));
}

/// Parses a lock; none if it is not one of this build. The host name at the end of a lock file is
/// only informative.
fn parse(content: &str) -> Option<Identity> {
    let (token, identity) = content.split_once(' ')?;
    if token.len() != 8 || !token.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let identity = match identity.strip_suffix('\n') {
        Some(line) => line.splitn(7, ' ').take(6).collect::<Vec<_>>().join(" "),
        None => identity.to_string(),
    };
    Identity::from_text(&identity)
}

fn busy(guarded: &Path, holder: Option<Identity>, depth: u32) -> Error {
    let pid = holder.filter(|_| depth == 0).map(|holder| holder.pid);
    Error::Busy { path: guarded.to_path_buf(), pid }
}

/// Waits `ms` milliseconds and a little more, randomly, so that several waiters do not collide
/// again.
fn pause(ms: u64) {
    thread::sleep(Duration::from_millis(ms + random() % 10));
}
