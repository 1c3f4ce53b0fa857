//! A store on a fault-injecting disk, beside the oracle that knows what it ought to hold.
//!
//! Every call goes to both. Before a call that may commit, the disk's history is marked with the
//! commit that is being tried; after it, with what became of it. So each crash in that history
//! knows what it may leave visible.

use std::ops::Bound;
use std::rc::Rc;

use varve::format::inline_limit;
use varve::store::PinId;
use varve::{Error, IoError, Options, Store};

use super::fault_file::{Event, FaultFile, Harm};
use super::oracle::{
    Bounds, Commit, Entry, KEYSPACES, Mark, Oracle, State, UNKNOWN, check_pieces, difference,
    state_of,
};
use super::pages::Pages;
use super::phases::Stage;
use super::rng::{Rng, bytes_of};
use super::shapes;

/// How an update ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Update {
    InPlace,
    Resize(usize),
    Refuse,
    Throw,
}

/// One call, or a few that belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Set {
        keyspace: u32,
        key: Vec<u8>,
        len: usize,
        fill: u64,
    },
    Delete {
        keyspace: u32,
        key: Vec<u8>,
    },
    /// Deletes all keys of a keyspace, by one record or one by one.
    Clear {
        keyspace: u32,
        by_one: bool,
    },
    Update {
        keyspace: u32,
        key: Vec<u8>,
        fill: u64,
        end: Update,
    },
    Get {
        keyspace: u32,
        key: Vec<u8>,
    },
    /// As the boundary does it: room first, then the bytes, and then how many of them.
    Staged {
        keyspace: u32,
        key: Vec<u8>,
        room: usize,
        len: usize,
        fill: u64,
    },
    /// A record that is begun and comes to nothing.
    Abandoned {
        keyspace: u32,
        key: Vec<u8>,
        room: usize,
    },
    /// An update that is begun, perhaps resized, and comes to nothing.
    Broken {
        keyspace: u32,
        key: Vec<u8>,
        resize: Option<usize>,
    },
    /// Holds a value until it is let go, or the session ends.
    Pin {
        keyspace: u32,
        key: Vec<u8>,
    },
    /// Lets go of the value that was held first.
    Unpin,
    /// The next opening has these options.
    Become {
        factor: u32,
        memory: usize,
    },
    /// From now on the file can grow by so many bytes; or by as many as it likes.
    Room(Option<usize>),
    /// The end of a task: memory is let go, and what does not fit becomes cold.
    EndTurn,
    Savepoint,
    Release,
    Rollback,
    Commit,
    Flush,
    Witness,
    /// So many slices of maintenance; everything that can be gained, or what is worth it.
    Tend {
        slices: usize,
        all: bool,
    },
    /// Close and open again.
    Reopen,
    /// The process dies between two calls.
    Crash,
    /// The process dies in the write that is this many calls of the disk ahead, at this byte.
    Die {
        ahead: u64,
        byte: usize,
    },
}

/// See the module's comment.
pub struct Session {
    pub disk: FaultFile,
    pub options: Options,
    store: Option<Store<FaultFile>>,
    pub oracle: Oracle,
    /// What the disk held at the beginning of its history.
    pub start: Commit,
    /// The last commit that was acknowledged.
    tip: Commit,
    /// What the store ought to show now, and at each open savepoint.
    state: State,
    saved: Vec<(varve::Savepoint, State)>,
    /// What is pinned, and the value that it has to show.
    pinned: Vec<(PinId, Rc<[u8]>)>,
    /// How long the history was when memory was first given up for something else.
    pub evicted_at: Option<usize>,
}

impl Session {
    /// Opens `disk`, which holds exactly `state`.
    pub fn new(disk: FaultFile, options: Options, state: State) -> Self {
        let mut oracle = Oracle::default();
        let start = oracle.add(None, state.clone());
        Session {
            disk,
            options,
            store: None,
            oracle,
            start,
            tip: start,
            state,
            saved: vec![],
            pinned: vec![],
            evicted_at: None,
        }
    }

    pub fn store(&mut self) -> &mut Store<FaultFile> {
        self.store.as_mut().expect("the session is open")
    }

    pub fn is_open(&self) -> bool {
        self.store.is_some()
    }

    /// What it ought to show after its uncommitted group is gone.
    pub fn committed(&self) -> &State {
        self.oracle.state(self.tip)
    }

    /// The history of the disk and what it allowed at its beginning.
    pub fn history(&self) -> (Pages, Vec<Event>, Bounds) {
        let (base, events) = self.disk.history();
        (base, events, Bounds::only(self.start))
    }

    /// Opens the store and checks that it shows one of the commits it may show.
    pub fn open(&mut self, bounds: Bounds) -> Result<(), Error> {
        self.saved.clear();
        self.pinned.clear();
        self.disk.enter(Stage::Opening);
        let opened = Store::open(self.disk.clone(), self.options);
        self.disk.enter(Stage::Working);
        // Salts are new in each session, as everywhere: slots that are used again are not erased.
        self.options.entropy[3] += 1;
        let mut store = opened?;
        let seen = self.disk.paused(|| state_of(&mut store));
        let commit = self.oracle.identify(&seen, bounds).unwrap_or_else(|e| panic!("{e}"));
        self.oracle.fix(commit, seen.clone());
        (self.tip, self.state) = (commit, seen);
        self.disk.mark(Mark::Recovered(commit));
        self.store = Some(store);
        Ok(())
    }

    pub fn is_poisoned(&self) -> bool {
        self.store.as_ref().is_some_and(|s| s.stats().poisoned)
    }

    /// Ends whatever is open and commits.
    pub fn finish(&mut self) {
        while !self.saved.is_empty() {
            self.step(&Step::Release).expect("release");
        }
        self.step(&Step::Commit).expect("commit");
    }

    /// What is allowed after the process died now.
    pub fn bounds(&self, trying: Option<Commit>) -> Bounds {
        Bounds { trying, ..Bounds::only(self.tip) }
    }

    /// Checks that the store shows what it ought to.
    pub fn check(&mut self) {
        let seen = self.seen();
        let wanted = &self.state;
        assert!(&seen == wanted, "the store shows {}", difference(&seen, wanted));
        let store = self.store.as_mut().expect("the session is open");
        for (pin, value) in &self.pinned {
            assert!(store.pinned(*pin) == Some(value), "what is pinned has changed");
        }
    }

    /// What the store shows, faults aside.
    pub fn seen(&mut self) -> State {
        let disk = self.disk.clone();
        disk.paused(|| {
            let seen = state_of(self.store());
            check_pieces(self.store(), &seen);
            seen
        })
    }

    /// Does what the session does when its process has died: opens again until that succeeds.
    pub fn revive(&mut self, trying: Option<Commit>) {
        drop(self.store.take().map(Store::into_file));
        self.disk.heal();
        self.open(self.bounds(trying)).unwrap_or_else(|e| panic!("after a crash: {e}"));
    }

    /// Runs one call that may commit, `after` being the state that it leads to.
    ///
    /// On an error the group is gone, as the store promises.
    fn call<T>(
        &mut self,
        after: State,
        run: impl FnOnce(&mut Store<FaultFile>) -> Result<T, Error>,
        versions: impl FnOnce(&mut State, &mut Store<FaultFile>, &T),
    ) -> Result<T, (Error, Commit)> {
        let trying = self.oracle.add(Some(self.tip), after.clone());
        // Inside a savepoint nothing may become visible, so nothing is tried.
        if self.saved.is_empty() {
            self.disk.mark(Mark::Trying(trying));
        }
        match run(self.store()) {
            Ok(value) => {
                self.state = after;
                let store = self.store.as_mut().expect("open");
                self.disk.paused(|| versions(&mut self.state, store, &value));
                if self.saved.is_empty() && store.stats().pending_bytes == 0 {
                    self.oracle.fix(trying, self.state.clone());
                    self.disk.mark(Mark::Committed(trying));
                    self.tip = trying;
                } else {
                    self.disk.mark(Mark::Settled);
                }
                Ok(value)
            }
            Err(error) => {
                // Poisoned means that it is not known how much of the group got to the file; so does a death, which
                // may come behind the commit that a pin begins with.
                if !self.is_poisoned() && !self.disk.is_dead() {
                    self.disk.mark(Mark::Settled);
                }
                Err((error, trying))
            }
        }
    }

    /// Runs a step. An error is the store's; the oracle then expects the group to be gone, except
    /// when the callback of an update failed.
    pub fn step(&mut self, step: &Step) -> Result<(), (Error, Commit)> {
        let done = self.run(step);
        if self.evicted_at.is_none() && self.store.as_ref().is_some_and(|s| s.stats().evictions > 0)
        {
            self.evicted_at = Some(self.disk.event_count());
        }
        done
    }

    fn run(&mut self, step: &Step) -> Result<(), (Error, Commit)> {
        match step {
            Step::Set { keyspace, key, len, fill } => self.set(*keyspace, key, *len, *fill),
            Step::Delete { keyspace, key } => self.delete(*keyspace, key),
            Step::Clear { keyspace, by_one } => self.clear(*keyspace, *by_one),
            Step::Update { keyspace, key, fill, end } => self.update(*keyspace, key, *fill, *end),
            Step::Get { keyspace, key } => {
                let expected = self.state.get(&(*keyspace, key.clone())).cloned();
                let tip = self.tip;
                let value = self.store().get(*keyspace, key).map_err(|e| (e, tip))?;
                assert_eq!(value, expected.as_ref().map(|e| &*e.value), "getting {key:?}");
                Ok(())
            }
            Step::Staged { keyspace, key, room, len, fill } => {
                self.staged(*keyspace, key, *room, *len, *fill)
            }
            Step::Abandoned { keyspace, key, room } => self.come_to_nothing(|store| {
                store.begin_set(*keyspace, key, *room)?;
                store.staged_value().fill(0xEE);
                Ok(())
            }),
            Step::Broken { keyspace, key, resize } => self.come_to_nothing(|store| {
                if store.begin_update(*keyspace, key)? {
                    store.staged_value().fill(0xEE);
                    if let Some(room) = resize {
                        store.resize_update(*room)?;
                        store.staged_value().fill(0xDD);
                    }
                }
                Ok(())
            }),
            Step::Pin { keyspace, key } if self.saved.is_empty() && self.pinned.len() < 3 => {
                let after = self.state.clone();
                let pin = self.call(after, |s| s.pin(*keyspace, key), |_, _, _| ())?;
                let value = self.state.get(&(*keyspace, key.clone())).map(|e| e.value.clone());
                assert_eq!(pin.is_some(), value.is_some(), "pinning {key:?}");
                self.pinned.extend(pin.zip(value));
                Ok(())
            }
            Step::Unpin => {
                if !self.pinned.is_empty() {
                    let (pin, _) = self.pinned.remove(0);
                    self.store().unpin(pin);
                }
                Ok(())
            }
            Step::Become { factor, memory } => {
                (self.options.factor, self.options.memory) = (*factor, *memory);
                Ok(())
            }
            Step::Room(room) => {
                let size = self.disk.pages().len();
                let limit = room.map(|room| ((size + room) as u64, Harm::Fail(IoError::Quota)));
                self.disk.limit(limit);
                Ok(())
            }
            Step::EndTurn => {
                self.store().end_turn();
                Ok(())
            }
            Step::Savepoint => {
                let savepoint = self.store().savepoint();
                self.saved.push((savepoint, self.state.clone()));
                Ok(())
            }
            Step::Release => {
                let Some((savepoint, _)) = self.saved.pop() else {
                    return Ok(());
                };
                let after = self.state.clone();
                self.call(after, |s| s.release(savepoint), |_, _, ()| ())
            }
            Step::Rollback => {
                let Some((savepoint, state)) = self.saved.pop() else {
                    return Ok(());
                };
                self.store().rollback(savepoint);
                self.state = state;
                Ok(())
            }
            Step::Commit if self.saved.is_empty() => {
                let after = self.state.clone();
                self.call(after, Store::commit, |_, _, ()| ())
            }
            Step::Flush if self.saved.is_empty() => {
                let after = self.state.clone();
                self.call(after, Store::flush, |_, _, ()| ())?;
                self.disk.mark(Mark::Flushed(self.tip));
                Ok(())
            }
            Step::Witness if self.saved.is_empty() => {
                // As below.
                self.step(&Step::Commit)?;
                let after = self.state.clone();
                self.call(after, Store::witness, |_, _, ()| ())
            }
            Step::Tend { slices, all } if self.saved.is_empty() => {
                // Maintenance that fails takes back no commit, so the group goes first.
                self.step(&Step::Commit)?;
                let after = self.state.clone();
                let tend = |s: &mut Store<FaultFile>| {
                    for i in 0..*slices {
                        if !s.maintain(*all && i == 0)? {
                            break;
                        }
                    }
                    Ok(())
                };
                self.disk.enter(Stage::Maintenance);
                let tended = self.call(after, tend, |_, _, ()| ());
                self.disk.enter(Stage::Working);
                tended
            }
            Step::Reopen if self.saved.is_empty() => self.reopen(),
            Step::Crash => {
                self.revive(None);
                Ok(())
            }
            Step::Die { .. }
            | Step::Pin { .. }
            | Step::Commit
            | Step::Flush
            | Step::Witness
            | Step::Tend { .. }
            | Step::Reopen => Ok(()),
        }
    }

    fn set(
        &mut self,
        keyspace: u32,
        key: &[u8],
        len: usize,
        fill: u64,
    ) -> Result<(), (Error, Commit)> {
        let value: Rc<[u8]> = bytes_of(fill, len).into();
        let mut after = self.state.clone();
        let at = (keyspace, key.to_vec());
        let before = after.insert(at.clone(), Entry { value: value.clone(), version: UNKNOWN });
        let note = |state: &mut State, _: &mut Store<FaultFile>, &version: &u64| {
            assert!(before.is_none_or(|e| e.version < version), "version {version} did not grow");
            state.insert(at, Entry { value: value.clone(), version });
        };
        self.call(after, |s| s.set(keyspace, key, &value), note).map(|_| ())
    }

    fn staged(
        &mut self,
        keyspace: u32,
        key: &[u8],
        room: usize,
        len: usize,
        fill: u64,
    ) -> Result<(), (Error, Commit)> {
        let value: Rc<[u8]> = bytes_of(fill, len).into();
        let mut after = self.state.clone();
        let at = (keyspace, key.to_vec());
        after.insert(at.clone(), Entry { value: value.clone(), version: UNKNOWN });
        let run = |store: &mut Store<FaultFile>| {
            store.begin_set(keyspace, key, room)?;
            store.staged_value().fill(0xCC);
            store.staged_value()[..len].copy_from_slice(&value);
            store.finish(len)
        };
        let note = |state: &mut State, _: &mut Store<FaultFile>, &version: &u64| {
            state.insert(at, Entry { value: value.clone(), version });
        };
        self.call(after, run, note).map(|_| ())
    }

    /// Begins something that is aborted, however far it gets.
    fn come_to_nothing(
        &mut self,
        begin: impl FnOnce(&mut Store<FaultFile>) -> Result<(), Error>,
    ) -> Result<(), (Error, Commit)> {
        let tip = self.tip;
        let begun = begin(self.store());
        self.store().abort();
        begun.map_err(|error| (error, tip))
    }

    fn delete(&mut self, keyspace: u32, key: &[u8]) -> Result<(), (Error, Commit)> {
        let mut after = self.state.clone();
        let was_there = after.remove(&(keyspace, key.to_vec())).is_some();
        let found = self.call(after, |s| s.delete(keyspace, key), |_, _, _| ())?;
        assert_eq!(found, was_there, "deleting {key:?}");
        Ok(())
    }

    fn clear(&mut self, keyspace: u32, by_one: bool) -> Result<(), (Error, Commit)> {
        let before = self.state.len();
        let mut after = self.state.clone();
        after.retain(|(other, _), _| *other != keyspace);
        let gone = (before - after.len()) as u64;
        let all = (Bound::Unbounded, Bound::Unbounded);
        let run = |store: &mut Store<FaultFile>| match by_one {
            true => store.empty(keyspace),
            false => store.clear(keyspace, all, false, u64::MAX),
        };
        let told = self.call(after, run, |_, _, _| ())?;
        assert_eq!(told, gone, "emptying {keyspace}");
        Ok(())
    }

    fn update(
        &mut self,
        keyspace: u32,
        key: &[u8],
        fill: u64,
        end: Update,
    ) -> Result<(), (Error, Commit)> {
        let at = (keyspace, key.to_vec());
        let before = self.state.get(&at).cloned();
        let mut after = self.state.clone();
        let value = before.as_ref().map(|b| match end {
            Update::InPlace => bytes_of(fill, b.value.len()),
            Update::Resize(len) => bytes_of(fill, len),
            Update::Refuse | Update::Throw => b.value.to_vec(),
        });
        let applies = before.is_some() && !matches!(end, Update::Refuse | Update::Throw);
        if let Some(entry) = after.get_mut(&at).filter(|_| applies) {
            let value = value.clone().expect("the key is there").into();
            *entry = Entry { value, version: UNKNOWN };
        }
        let run = |s: &mut Store<FaultFile>| {
            let seen = |bytes: &[u8]| {
                assert_eq!(
                    Some(bytes),
                    before.as_ref().map(|b| &*b.value),
                    "what an update is shown"
                );
                end != Update::Refuse
            };
            let change = |bytes: &mut [u8]| match end {
                Update::Resize(len) => {
                    bytes.fill(0xDD);
                    Ok(Some(bytes_of(fill, len)))
                }
                Update::Throw => {
                    bytes.fill(0xEE);
                    Err(())
                }
                _ => {
                    bytes.copy_from_slice(value.as_ref().expect("the key is there"));
                    Ok(None)
                }
            };
            match s.update_if(keyspace, key, seen, change) {
                Err(Error::Aborted) if end == Update::Throw && before.is_some() => Ok(false),
                other => other,
            }
        };
        let note = |state: &mut State, store: &mut Store<FaultFile>, &applied: &bool| {
            assert_eq!(applied, applies, "the answer of an update that was to {end:?}");
            if let Some(entry) = state.get_mut(&at).filter(|_| applied) {
                let version = store.version(keyspace, key).unwrap().expect("the key is there");
                let before = before.as_ref().map(|entry| entry.version);
                assert!(Some(version) > before, "version {version} did not grow");
                entry.version = version;
            }
        };
        self.call(after, run, note).map(|_| ())
    }

    fn reopen(&mut self) -> Result<(), (Error, Commit)> {
        let store = self.store.take().expect("the session is open");
        let was = *store.recovery();
        let trying = self.oracle.add(Some(self.tip), self.state.clone());
        self.disk.mark(Mark::Trying(trying));
        self.disk.enter(Stage::Closing);
        let closed = store.close();
        self.disk.enter(Stage::Working);
        if let Err((_, error)) = closed {
            return Err((error, trying));
        }
        self.disk.mark(Mark::Committed(trying));
        self.disk.mark(Mark::Flushed(trying));
        self.tip = trying;
        self.open(Bounds::only(trying)).map_err(|e| (e, trying))?;
        let recovery = *self.store().recovery();
        // A superblock that was torn by a fault may be whole all the same, and say "in use".
        let clean = recovery.clean || self.disk.struck();
        // What an opening found behind the end of the log stays for as long as there is no room for what ends
        // it: a torn tail, or a segment that was begun behind what an earlier use of a slot had left.
        let is_same = (was.torn_bytes > 0) == (recovery.torn_bytes > 0);
        let stays = !was.clean && is_same && self.disk.is_limited();
        assert!(stays || clean && recovery.torn_bytes == 0, "closed in order: {recovery:?}");
        Ok(())
    }

    /// A call failed: either it was refused and the open batch stands, or the group could not be
    /// handed to the file and is gone.
    pub fn note_failure(&mut self) {
        if self.saved.is_empty() && self.store().stats().pending_bytes == 0 {
            self.state = self.committed().clone();
        }
    }
}

/// Sizes and chances of a random program.
#[derive(Clone, Debug)]
pub struct Taste {
    pub keys: usize,
    pub segment: usize,
    pub crashes: bool,
    /// Whether most values are large and most groups are: commits of several frames, and more data
    /// than next to no memory holds.
    pub bulk: bool,
    /// Whether it is about maintenance: much is overwritten, and compaction, checkpoints and giving
    /// back go on nearly all the time.
    pub maintenance: bool,
    /// Whether it is of the shapes that others seldom have.
    pub shapes: bool,
    /// Whether keyspaces are emptied in it.
    pub clears: bool,
}

/// A key of the small universe that programs use: short ones, and one that is long.
pub fn key_of(index: usize) -> Vec<u8> {
    match index {
        0 => vec![0],
        5 => bytes_of(5, 130),
        i => format!("key/{i}").into_bytes(),
    }
}

fn size_of_value(rng: &mut Rng, segment: usize) -> usize {
    let limit = inline_limit(segment.trailing_zeros() as u8);
    match rng.below(40) {
        0..4 => 0,
        4..24 => rng.below(40),
        24..34 => rng.below(200),
        34..38 => rng.below(limit),
        38 => limit - 2 + rng.below(6),
        _ => shapes::chunked_length(rng.within(limit + 1..segment * 2), segment),
    }
}

/// The next step of a random program.
pub fn next_step(rng: &mut Rng, taste: &Taste) -> Step {
    if taste.clears && rng.one_in(9) {
        return Step::Clear { keyspace: *rng.pick(&KEYSPACES), by_one: !rng.one_in(4) };
    }
    if taste.shapes {
        return shapes::next_step(rng, taste.segment);
    }
    if taste.bulk && !rng.one_in(4) {
        return next_bulky_step(rng, taste);
    }
    if taste.maintenance && !rng.one_in(6) {
        return next_step_of_a_long_life(rng, taste);
    }
    let keyspace = *rng.pick(&KEYSPACES);
    let key = key_of(rng.below(taste.keys));
    let fill = rng.next();
    match rng.below(120) {
        112..120 => Step::Tend { slices: rng.within(1..20), all: rng.one_in(3) },
        100..106 => Step::Get { keyspace, key },
        106..112 => Step::EndTurn,
        0..34 => Step::Set { keyspace, key, len: size_of_value(rng, taste.segment), fill },
        34..42 => Step::Delete { keyspace, key },
        42..60 => {
            let end = match rng.below(9) {
                0..4 => Update::InPlace,
                4..7 => Update::Resize(size_of_value(rng, taste.segment)),
                7 => Update::Refuse,
                _ => Update::Throw,
            };
            Step::Update { keyspace, key, fill, end }
        }
        60..68 => Step::Savepoint,
        68..73 => Step::Release,
        73..76 => Step::Rollback,
        76..86 => Step::Commit,
        86..92 => Step::Flush,
        92..94 => Step::Witness,
        94..96 => Step::Reopen,
        96..98 if taste.crashes => Step::Crash,
        98..100 if taste.crashes => Step::Die { ahead: rng.next() % 8, byte: rng.below(600) },
        _ => Step::Commit,
    }
}

fn next_bulky_step(rng: &mut Rng, taste: &Taste) -> Step {
    let keyspace = *rng.pick(&KEYSPACES);
    let key = key_of(rng.below(taste.keys));
    let fill = rng.next();
    let len = rng.within(taste.segment / 16..taste.segment / 4);
    match rng.below(24) {
        0..14 => Step::Set { keyspace, key, len, fill },
        14..16 => Step::Update { keyspace, key, fill, end: Update::Resize(len) },
        16..18 => Step::Get { keyspace, key },
        18..21 => Step::Savepoint,
        21..23 => Step::Release,
        _ => Step::EndTurn,
    }
}

fn next_step_of_a_long_life(rng: &mut Rng, taste: &Taste) -> Step {
    let keyspace = *rng.pick(&KEYSPACES);
    let key = key_of(rng.below(taste.keys));
    let fill = rng.next();
    let len = match rng.one_in(12) {
        false => rng.within(taste.segment / 16..taste.segment / 4),
        // In slots of its own, which leave holes behind; or in pieces.
        true => shapes::chunked_length(
            rng.within(taste.segment / 4 + 1..taste.segment * 2),
            taste.segment,
        ),
    };
    match rng.below(28) {
        0..12 => Step::Set { keyspace, key, len, fill },
        12 => Step::Update { keyspace, key, fill, end: Update::InPlace },
        13..15 => Step::Delete { keyspace, key },
        15..17 => Step::Commit,
        17 => Step::Flush,
        18 => Step::Witness,
        19 => Step::EndTurn,
        20 => Step::Reopen,
        21..27 => Step::Tend { slices: rng.within(1..12), all: rng.one_in(3) },
        _ => Step::Tend { slices: 1000, all: true },
    }
}
