//! The lock beside a database file: one holder at a time, and a dead one does not keep it.
//!
//! It is the lock of `js/storage/lock.ts`, which tells its rules and why they are safe, so that a
//! program in Rust and one in Node, Deno or Bun refuse each other: a file, or on a full disk a link, that
//! appears with its whole content at once and says who holds it, which its holder touches every two
//! seconds, and which only a second lock gives the right to break.

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

use super::Error;
use super::processes::{Identity, Life, host_name, life_of, this};
use super::std_file::is_full;

/// How often a holder touches its lock.
const BEAT: Duration = Duration::from_secs(2);
/// A holder that was still for this long looks at its lock before it writes.
const STILL: Duration = Duration::from_secs(5);
/// An unseen holder that has not touched its lock for this long is dead.
const SILENCE: Duration = Duration::from_secs(8);
/// A lock that says nothing is being written on a file system without links, or is a ruin.
const WRITING: Duration = Duration::from_secs(2);
/// How long it may take in all to see through a dead lock.
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
    beats: Option<(Sender<()>, JoinHandle<()>)>,
}

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    content: String,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    beaten: SystemTime,
    held: bool,
}

impl Lock {
    /// Takes the lock beside the file `guarded`.
    pub(super) fn acquire(guarded: &Path) -> Result<Lock, Error> {
        let path = beside(guarded);
        let content = acquire(&path, guarded, 0)?;
        own().get_or_insert_default().insert(content.clone());
        let state = Mutex::new(State { beaten: SystemTime::now(), held: true });
        let shared = Arc::new(Shared { path, content, state });
        let (stop, stopped) = mpsc::channel();
        let beating = Arc::clone(&shared);
        let beat = thread::Builder::new().name("varve lock".into()).spawn(move || {
            while stopped.recv_timeout(BEAT) == Err(RecvTimeoutError::Timeout) {
                beating.beat();
            }
        });
        // Without a thread of its own the lock is looked at before writes, and to those who can see
        // this process it counts all the same.
        Ok(Lock { shared, beats: beat.ok().map(|beat| (stop, beat)) })
    }

    /// Whether it is still held; to be asked before each change of the file.
    pub(super) fn is_held(&self) -> bool {
        let (held, beaten) = {
            let state = self.shared.state();
            (state.held, state.beaten)
        };
        let still = beaten.elapsed().map_or(true, |since| since > STILL);
        if held && still {
            self.shared.beat();
        }
        held && self.shared.state().held
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if let Some((stop, beat)) = self.beats.take() {
            drop(stop);
            // A thread that panicked beats no more, which is all that is wanted.
            drop(beat.join());
        }
        let Shared { path, content, .. } = &*self.shared;
        let was_held = std::mem::replace(&mut self.shared.state().held, false);
        let is_ours = || matches!(look(path), Ok(Some(seen)) if seen.content == *content);
        if was_held && is_ours() {
            remove(path);
        }
        own().get_or_insert_default().remove(content);
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn beat(&self) {
        let now = SystemTime::now();
        // Touched before it is looked at: whoever is about to break it looks once more after that.
        let time = FileTime::from(now);
        let touched = set_symlink_file_times(&self.path, time, time);
        let touched = touched.and_then(|()| look(&self.path));
        let mut state = self.state();
        match touched {
            Ok(Some(seen)) if seen.content == self.content => state.beaten = now,
            Ok(_) => state.held = false,
            Err(error) if error.kind() == ErrorKind::NotFound => state.held = false,
            // A file system that hangs, say, is tried again at the next beat.
            Err(_) => {}
        }
    }
}

fn beside(guarded: &Path) -> PathBuf {
    let mut path = guarded.as_os_str().to_os_string();
    path.push(".lock");
    PathBuf::from(path)
}

/// Returns when nobody holds the lock beside this file, without taking it.
pub(super) fn refuse_held(guarded: &Path) -> Result<(), Error> {
    let path = beside(guarded);
    let mut watch = None;
    loop {
        let Some(seen) = looked(&path)? else { return Ok(()) };
        let (first, since) = watched(&mut watch, &seen);
        let holder = parse(&seen.content);
        match judge(holder.as_ref(), first, &seen, since) {
            Some(Life::Dead) => return Ok(()),
            Some(_) => return Err(busy(guarded, holder, 0)),
            None => pause(50),
        }
    }
}

/// The first look at this very lock, and when that was.
fn watched<'a>(
    watch: &'a mut Option<(Sighting, Instant)>,
    seen: &Sighting,
) -> (&'a Sighting, Instant) {
    let known = watch.take().filter(|(first, _)| first.is_same(seen));
    let (first, since) = watch.insert(known.unwrap_or_else(|| (seen.clone(), Instant::now())));
    (first, *since)
}

/// Puts the lock file in place, when nobody has or a dead one had, and gives its content.
fn acquire(path: &Path, guarded: &Path, depth: u32) -> Result<String, Error> {
    let token = format!("{:08x}", random() as u32);
    let start = Instant::now();
    let mut watch = None;
    loop {
        let created = create(path, &token).map_err(|error| Error::unavailable(guarded, error))?;
        if let Some(content) = created {
            return Ok(content);
        }
        let mut holder = None;
        if let Some(seen) = looked(path)? {
            let (first, since) = watched(&mut watch, &seen);
            holder = parse(&seen.content);
            match judge(holder.as_ref(), first, &seen, since) {
                Some(Life::Dead) => break_lock(path, guarded, &seen, depth)?,
                Some(_) => return Err(busy(guarded, holder, depth)),
                None => {}
            }
        }
        if start.elapsed() > PATIENCE {
            return Err(busy(guarded, holder, depth));
        }
        pause(if holder.is_some_and(|holder| life_of(&holder) == Life::Unseen) { 100 } else { 2 });
    }
}

/// Whether the holder lives; none for as long as only time can tell.
fn judge(
    holder: Option<&Identity>,
    first: &Sighting,
    seen: &Sighting,
    since: Instant,
) -> Option<Life> {
    // Zeros are what a power failure can leave of a text.
    if seen.content.chars().all(|c| c == '\0' || c.is_whitespace()) {
        let now = SystemTime::now();
        let age = now.duration_since(seen.touched).unwrap_or_else(|ahead| ahead.duration());
        return (age > WRITING).then_some(Life::Dead);
    }
    if own().as_ref().is_some_and(|own| own.contains(&seen.content)) {
        return Some(Life::Alive);
    }
    // What another build wrote in a way of its own is respected as what cannot be seen.
    match holder.map_or(Life::Unseen, life_of) {
        Life::Unseen => {}
        known => return Some(known),
    }
    // Its clock may not be ours: what counts is a change that was watched, or none for long enough.
    if seen.touched != first.touched {
        return Some(Life::Alive);
    }
    (since.elapsed() > SILENCE).then_some(Life::Dead)
}

/// Removes a lock that was seen to be dead, unless somebody else was faster.
fn break_lock(path: &Path, guarded: &Path, dead: &Sighting, depth: u32) -> Result<(), Error> {
    if depth >= DEEPEST {
        return Err(busy(guarded, None, depth));
    }
    let mut breaker = path.as_os_str().to_os_string();
    breaker.push(".break");
    let breaker = PathBuf::from(breaker);
    let content = match acquire(&breaker, guarded, depth + 1) {
        Ok(content) => content,
        // Somebody else is at it, which is as good.
        Err(Error::Busy { .. }) if depth == 0 => return Ok(()),
        Err(error) => return Err(error),
    };
    let now = looked(path);
    if let Ok(Some(now)) = &now
        && now.is_same(dead)
        && now.touched == dead.touched
    {
        remove(path);
    }
    remove_drafts(path);
    if matches!(look(&breaker), Ok(Some(seen)) if seen.content == content) {
        remove(&breaker);
    }
    now.map(|_| ())
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

fn look(path: &Path) -> io::Result<Option<Sighting>> {
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
    look(path).map_err(|error| Error::unavailable(path, error))
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
