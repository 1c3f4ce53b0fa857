//! The lock beside a database file: one holder at a time, and a dead one does not keep it.
//!
//! It is the lock of `js/storage/node/lock-file.ts`, which tells its rules and why they are safe, so that a
//! program in Rust and one in Node, Deno or Bun refuse each other: a file, or on a full disk a link, that
//! appears with its whole content at once and says who holds it, whose time stamp its holder changes every two
//! seconds, and which only a second lock gives the right to break. Where the system locks files as well,
//! `locked_file.rs` takes that lock first.

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

use super::process_id::{Identity, Life, host_name, life_of, this};
use super::std_file::is_full;
use super::{Error, Loss};

/// How often a holder sends a heartbeat.
const BEAT: Duration = Duration::from_secs(2);
/// By so much each heartbeat raises the time stamp: as much as the coarsest file system tells apart.
const BEAT_SECONDS: i64 = 2;
/// A holder that could not send one for this long sends one before it writes, and before what it wrote counts.
const STILL: Duration = Duration::from_secs(3);
/// An unseen holder that has sent none for this long is taken for dead.
const SILENCE: Duration = Duration::from_secs(8);
/// A lock that says nothing is being written on a file system without links, or was torn by a power failure.
const WRITING: Duration = Duration::from_secs(2);
/// A lock that is not at its place may have been moved by somebody who puts it back: for no longer than this.
const MOVED: Duration = Duration::from_millis(100);
/// How long it may take in all to find out about a lock that was left behind.
const PATIENCE: Duration = Duration::from_secs(20);
/// What was written and never linked is removed after this long.
const DRAFT: Duration = Duration::from_secs(60);
/// A breaker that died leaves a lock of its own, and so on; so many in a row are not believed.
const DEEPEST: u32 = 3;

/// Random numbers, by the keys that the standard library draws for its hash tables.
pub(super) fn random() -> u64 {
    RandomState::new().hash_one((this().pid, SystemTime::now()))
}

/// One look at a lock file.
#[derive(Clone, Debug)]
struct Sighting {
    content: String,
    inode: u64,
    touched: SystemTime,
}

impl Sighting {
    fn is_same(&self, other: &Sighting) -> bool {
        self.content == other.content && self.inode == other.inode
    }
}

/// The contents of the locks that this process holds.
static OWN: Mutex<Option<HashSet<String>>> = Mutex::new(None);

fn own() -> MutexGuard<'static, Option<HashSet<String>>> {
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A lock that is held.
#[derive(Debug)]
pub(super) struct Lock {
    shared: Arc<Shared>,
    /// Whether it was taken from a holder that may still live, and finish the write that it was in the middle of.
    pub(super) taken_over: bool,
    beats: Option<(Sender<()>, JoinHandle<()>)>,
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
    /// The time stamp that the lock was given last, in seconds.
    stamp: i64,
    /// When that was, by both clocks: the monotonic one may stand still while the machine sleeps.
    beaten: Option<(Instant, SystemTime)>,
    loss: Option<Loss>,
}

impl Lock {
    /// Takes the lock beside the file `guarded`.
    pub(super) fn acquire(guarded: &Path) -> Result<Lock, Error> {
        let path = beside(guarded);
        let Placed { content, taken_over } = acquire(&path, guarded, 0)?;
        own().get_or_insert_default().insert(content.clone());
        let now = FileTime::now().unix_seconds();
        let stamp = now - now % BEAT_SECONDS;
        let state = Mutex::new(State { file: None, stamp, beaten: None, loss: None });
        let shared = Arc::new(Shared { path, guarded: guarded.to_path_buf(), content, state });
        shared.beat();
        let (stop, stopped) = mpsc::channel();
        let beating = Arc::clone(&shared);
        let beat = thread::Builder::new().name("varve lock".into()).spawn(move || {
            while stopped.recv_timeout(BEAT) == Err(RecvTimeoutError::Timeout) {
                beating.beat();
            }
        });
        // Without a thread of its own the lock is looked at before writes, and to those who can see
        // this process it counts all the same.
        Ok(Lock { shared, taken_over, beats: beat.ok().map(|beat| (stop, beat)) })
    }

    /// The file that the lock guards was opened: from now on it is looked at whether it is the one at its path.
    pub(super) fn guard(&self, file: &File) {
        self.shared.state().file = FileIdentity::of(file, &self.shared.guarded);
    }

    /// To be asked before each change of the file, and again before what was written counts. An error without a loss
    /// is one that may pass.
    pub(super) fn assert_held(&self) -> Result<(), Option<Loss>> {
        let state = self.shared.state();
        if state.loss.is_none() && !state.is_fresh() {
            drop(state);
            self.shared.beat();
            return self.shared.state().verdict();
        }
        state.verdict()
    }

    /// Whether the lock is still held, and the guarded file still the one at its path.
    pub(super) fn assert_there(&self) -> Result<(), Option<Loss>> {
        drop(self.shared.look_at_file());
        let Shared { path, content, .. } = &*self.shared;
        if !matches!(read_lock(path), Ok(Some(seen)) if seen.content == *content) {
            self.shared.beat();
        }
        self.assert_held()
    }

    /// What the file and its lock were lost by, if they were.
    pub(super) fn loss(&self) -> Option<Loss> {
        self.shared.state().loss
    }

    /// The file that it guards.
    pub(super) fn guarded(&self) -> &Path {
        &self.shared.guarded
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if let Some((stop, beat)) = self.beats.take() {
            drop(stop);
            // A thread that panicked sends no more heartbeats, which is all that is wanted.
            drop(beat.join());
        }
        let Shared { path, content, .. } = &*self.shared;
        // With it goes the system's lock, before others may open the file.
        self.shared.state().file = None;
        if matches!(read_lock(path), Ok(Some(seen)) if seen.content == *content) {
            remove(path);
        }
        own().get_or_insert_default().remove(content);
    }
}

impl State {
    fn is_fresh(&self) -> bool {
        self.beaten.is_some_and(|(since, wall)| {
            // A wall clock that was set either way costs a heartbeat more.
            since.elapsed() < STILL && wall.elapsed().is_ok_and(|elapsed| elapsed < STILL)
        })
    }

    fn verdict(&self) -> Result<(), Option<Loss>> {
        match self.loss {
            None if self.is_fresh() => Ok(()),
            loss => Err(loss),
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks whether the guarded file is still the one at its path.
    fn look_at_file(&self) -> MutexGuard<'_, State> {
        let mut state = self.state();
        state.loss = state.loss.or_else(|| state.file.as_ref()?.loss(&self.guarded));
        state
    }

    fn beat(&self) {
        let mut state = self.look_at_file();
        if state.loss.is_some() {
            return;
        }
        let beaten = (Instant::now(), SystemTime::now());
        state.stamp += BEAT_SECONDS;
        let time = FileTime::from_unix_time(state.stamp, 0);
        loop {
            // Touched before it is looked at: whoever moves it away to break it sees that, and puts it back.
            let touched = set_symlink_file_times(&self.path, time, time);
            match touched.and_then(|()| read_lock(&self.path)) {
                Ok(Some(seen)) if seen.content == self.content => {
                    state.beaten = Some(beaten);
                    return;
                }
                Ok(Some(_)) => break,
                Ok(None) => {}
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                // A file system that hangs, say, is tried again at the next heartbeat.
                Err(_) => return,
            }
            if beaten.0.elapsed() > MOVED {
                break;
            }
            thread::sleep(Duration::from_millis(5));
        }
        state.loss = Some(Loss::TakenOver);
    }
}

/// What tells a file from every other for as long as it is open.
#[derive(Debug)]
struct FileIdentity {
    file: File,
    /// None where numbers mean nothing: the system gives another one by the path than by the open file.
    numbers: Option<(u64, u64)>,
}

impl FileIdentity {
    /// None where the system has no such things.
    fn of(file: &File, path: &Path) -> Option<FileIdentity> {
        let file = file.try_clone().ok()?;
        let numbers = file.metadata().ok().and_then(|found| numbers_of(&found));
        let there = fs::metadata(path).ok().and_then(|found| numbers_of(&found));
        Some(FileIdentity {
            file,
            numbers: numbers.filter(|_| there.is_none() || there == numbers),
        })
    }

    /// What has become of the file: none if it is the one at its path, or that cannot be told just now.
    fn loss(&self, path: &Path) -> Option<Loss> {
        match fs::metadata(path) {
            Ok(there) => {
                let replaced = match self.numbers {
                    Some(_) => numbers_of(&there) != self.numbers,
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

fn beside(guarded: &Path) -> PathBuf {
    let mut path = guarded.as_os_str().to_os_string();
    path.push(".lock");
    PathBuf::from(path)
}

/// Returns when nobody holds the lock beside this file, without taking it.
pub(super) fn refuse_held(guarded: &Path) -> Result<(), Error> {
    let path = beside(guarded);
    let mut watch = Watch::default();
    loop {
        let Some(seen) = looked(&path)? else { return Ok(()) };
        let holder = parse(&seen.content);
        match watch.classify_holder(&seen, holder.as_ref()) {
            Judgement::Dead | Judgement::Silent => return Ok(()),
            Judgement::Alive => return Err(busy(guarded, holder, 0)),
            Judgement::Unknown => pause(50),
        }
    }
}

/// The process that holds the lock beside this file, as far as the lock says.
pub(super) fn holder_of(guarded: &Path) -> Option<u32> {
    let seen = read_lock(&beside(guarded)).ok().flatten()?;
    parse(&seen.content).map(|holder| holder.pid)
}

/// Whether a holder lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Judgement {
    Alive,
    /// For certain.
    Dead,
    /// For all that can be seen from here it may live, but it has sent no heartbeat for long enough.
    Silent,
    /// Only time can tell.
    Unknown,
}

/// What one starter has seen of a lock that it waits for: its first look at it, and when that was by its own
/// monotonic clock. The wall clock decides nothing.
#[derive(Debug, Default)]
struct Watch(Option<(Sighting, Instant)>);

impl Watch {
    fn classify_holder(&mut self, seen: &Sighting, holder: Option<&Identity>) -> Judgement {
        let known = self.0.take().filter(|(first, _)| first.is_same(seen));
        let (first, since) = self.0.insert(known.unwrap_or_else(|| (seen.clone(), Instant::now())));
        let watched = since.elapsed();
        // Zeros are what a power failure can leave of a text.
        if seen.content.chars().all(|c| c == '\0' || c.is_whitespace()) {
            return if watched > WRITING { Judgement::Dead } else { Judgement::Unknown };
        }
        if own().as_ref().is_some_and(|own| own.contains(&seen.content)) {
            return Judgement::Alive;
        }
        // What another build wrote in a way of its own is respected as what cannot be seen.
        match holder.map_or(Life::Unseen, life_of) {
            Life::Alive => Judgement::Alive,
            Life::Dead => Judgement::Dead,
            Life::Unseen if seen.touched != first.touched => Judgement::Alive,
            Life::Unseen if watched > SILENCE => Judgement::Silent,
            Life::Unseen => Judgement::Unknown,
        }
    }
}

/// A lock that was put in place.
struct Placed {
    content: String,
    /// Whether one was broken for it whose holder may still live.
    taken_over: bool,
}

/// Puts the lock file in place, when nobody has or what is there was left behind.
fn acquire(path: &Path, guarded: &Path, depth: u32) -> Result<Placed, Error> {
    let token = format!("{:08x}", random() as u32);
    let start = Instant::now();
    let (mut watch, mut taken_over) = (Watch::default(), false);
    loop {
        let created = create(path, &token).map_err(|error| Error::unavailable(guarded, error))?;
        if let Some(content) = created {
            // Somebody may have moved a living lock away, and is about to put it back over this one.
            until_none_is_broken(path, guarded, depth)?;
            if looked(path)?.is_some_and(|seen| seen.content == content) {
                return Ok(Placed { content, taken_over });
            }
        }
        let mut holder = None;
        if let Some(seen) = looked(path)? {
            holder = parse(&seen.content);
            match watch.classify_holder(&seen, holder.as_ref()) {
                Judgement::Dead => drop(break_lock(path, guarded, &seen, depth)?),
                Judgement::Silent => taken_over |= break_lock(path, guarded, &seen, depth)?,
                Judgement::Alive => return Err(busy(guarded, holder, depth)),
                Judgement::Unknown => {}
            }
        }
        if start.elapsed() > PATIENCE {
            return Err(busy(guarded, holder, depth));
        }
        pause(if holder.is_some_and(|holder| life_of(&holder) == Life::Unseen) { 100 } else { 2 });
    }
}

/// The second lock, which gives the right to break this one.
fn breaker_of(path: &Path) -> PathBuf {
    let mut breaker = path.as_os_str().to_os_string();
    breaker.push(".break");
    PathBuf::from(breaker)
}

/// Gives a breaker's lock back.
fn leave(breaker: &Path, content: &str) {
    if matches!(read_lock(breaker), Ok(Some(seen)) if seen.content == content) {
        remove(breaker);
    }
}

/// Waits for whoever breaks this lock just now, and clears away what one that died in the middle of it has left.
fn until_none_is_broken(path: &Path, guarded: &Path, depth: u32) -> Result<(), Error> {
    let (breaker, start) = (breaker_of(path), Instant::now());
    while looked(&breaker)?.is_some() {
        match acquire(&breaker, guarded, depth + 1) {
            Ok(Placed { content, .. }) => leave(&breaker, &content),
            Err(Error::Busy { .. }) if depth == 0 && start.elapsed() < PATIENCE => pause(2),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Removes a lock that was left behind, unless somebody else was faster or it was not. Answers whether it did.
fn break_lock(path: &Path, guarded: &Path, dead: &Sighting, depth: u32) -> Result<bool, Error> {
    if depth >= DEEPEST {
        return Err(busy(guarded, None, depth));
    }
    let breaker = breaker_of(path);
    let Placed { content, .. } = match acquire(&breaker, guarded, depth + 1) {
        // Somebody else is at it, which is as good.
        Err(Error::Busy { .. }) if depth == 0 => return Ok(false),
        placed => placed?,
    };
    remove_drafts(path);
    let moved = move_away(path, dead, &content[..8]);
    leave(&breaker, &content);
    moved.map_err(|error| Error::unavailable(path, error))
}

/// Removes a lock if it is what was seen. A heartbeat that comes at the last moment is seen in what was moved.
fn move_away(path: &Path, dead: &Sighting, token: &str) -> io::Result<bool> {
    let is = |seen: Option<Sighting>| {
        seen.is_some_and(|seen| seen.is_same(dead) && seen.touched == dead.touched)
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

/// What was written and never linked, by processes that died in between.
fn remove_drafts(path: &Path) {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return };
    let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let other = entry.file_name();
        let token = other.to_str().and_then(|other| other.strip_prefix(name)?.strip_prefix('.'));
        let is_draft = token.is_some_and(|token| {
            token.len() == 8 && token.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        });
        let touched = entry.metadata().and_then(|found| found.modified());
        let age = touched.ok().and_then(|touched| touched.elapsed().ok());
        if is_draft && age.is_some_and(|age| age > DRAFT) {
            remove(&entry.path());
        }
    }
}

/// Puts the lock in place with its whole content at once, and gives that; none when there is one already.
fn create(path: &Path, token: &str) -> io::Result<Option<String>> {
    let told = format!("{token} {}", this().to_text());
    let content = format!("{told} {}\n", host_name().unwrap_or_default());
    let mut draft = path.as_os_str().to_os_string();
    draft.push(".");
    draft.push(token);
    let draft = PathBuf::from(draft);
    // A file system without links: less than atomic, see WRITING.
    let placed = write_new(&draft, &content).and_then(|()| match fs::hard_link(&draft, path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => write_new(path, &content),
        linked => linked,
    });
    remove(&draft);
    match placed {
        Ok(()) => Ok(Some(content)),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(None),
        Err(error) if is_full(&error) => create_as_link(path, told, error),
        Err(error) => Err(error),
    }
}

fn write_new(path: &Path, content: &str) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).open(path)?.write_all(content.as_bytes())
}

/// Where there is no room for a file. What keeps a link from being made is no news: that there is no room is.
#[cfg(unix)]
fn create_as_link(path: &Path, told: String, full: io::Error) -> io::Result<Option<String>> {
    match std::os::unix::fs::symlink(&told, path) {
        Ok(()) => Ok(Some(told)),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(None),
        Err(_) => Err(full),
    }
}

#[cfg(not(unix))]
fn create_as_link(_: &Path, _: String, full: io::Error) -> io::Result<Option<String>> {
    Err(full)
}

fn read_lock(path: &Path) -> io::Result<Option<Sighting>> {
    match seen_at(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        seen => seen.map(Some),
    }
}

fn seen_at(path: &Path) -> io::Result<Sighting> {
    let sighting = |content, found: &Metadata| {
        Ok(Sighting { content, inode: inode_of(found), touched: found.modified()? })
    };
    match fs::read_link(path) {
        Ok(target) => sighting(target.to_string_lossy().into_owned(), &path.symlink_metadata()?),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(error),
        Err(_) => {
            let mut file = File::open(path)?;
            let found = file.metadata()?;
            let mut content = Vec::new();
            file.read_to_end(&mut content)?;
            sighting(String::from_utf8_lossy(&content).into_owned(), &found)
        }
    }
}

fn looked(path: &Path) -> Result<Option<Sighting>, Error> {
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

/// One that is gone already is as good as removed, and one that stays is found dead by the next.
fn remove(path: &Path) {
    drop(fs::remove_file(path));
}

/// None for what no lock of this build says. The name of the host, which ends that of a file, is for people.
fn parse(content: &str) -> Option<Identity> {
    let (token, told) = content.split_once(' ')?;
    if token.len() != 8 || !token.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let told = match told.strip_suffix('\n') {
        Some(line) => line.splitn(7, ' ').take(6).collect::<Vec<_>>().join(" "),
        None => told.to_string(),
    };
    Identity::from_text(&told)
}

fn busy(guarded: &Path, holder: Option<Identity>, depth: u32) -> Error {
    let pid = holder.filter(|_| depth == 0).map(|holder| holder.pid);
    Error::Busy { path: guarded.to_path_buf(), pid }
}

/// That long and a little more, different for each waiter so that they do not meet again.
fn pause(ms: u64) {
    thread::sleep(Duration::from_millis(ms + random() % 10));
}
