//! A store on a fault-injecting disk, and the oracle with its expected content.
//!
//! Every call goes to both. Before a call that may commit, the attempted commit is marked in the
//! disk's history, and after it the result. So for each crash in that history the visible commits
//! are known.

use std::ops::Bound;
use std::rc::Rc;

use varve::engine::format::inline_limit;
use varve::engine::store::{PinId, SnapshotId};
use varve::engine::{Error, IoError, Options, Store};

use super::expiry::{START, expiry_step};
use super::fault_file::{Event, FailureMode, FaultFile};
use super::oracle::{
    Bounds, Commit, Entry, KEYSPACES, Mark, Oracle, PastCommit, State, UNKNOWN, check_chunks,
    difference, state_of,
};
use super::pages::Pages;
use super::past_commits::{check_past, history_step};
use super::phases::Stage;
use super::rng::{Rng, bytes_of};
use super::shapes;
use super::snapshots::{check_snapshot, snapshot_step};

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
    /// Sets a record that expires this many seconds after the present.
    SetExpiring {
        keyspace: u32,
        key: Vec<u8>,
        len: usize,
        fill: u64,
        after: i64,
    },
    /// Changes when a record expires, likewise; without a time it never does.
    Touch {
        keyspace: u32,
        key: Vec<u8>,
        after: Option<i64>,
    },
    /// The clock goes on, or jumps, by this many seconds, and a turn begins.
    SetNow {
        by: i64,
    },
    /// Sets a mark, or moves it to the newest commit, or drops it.
    Retain {
        drops: bool,
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
    /// As the wasm boundary does it: first the capacity, then the bytes, then their number.
    Staged {
        keyspace: u32,
        key: Vec<u8>,
        capacity: usize,
        len: usize,
        fill: u64,
    },
    /// A staged record that is aborted.
    AbortedSet {
        keyspace: u32,
        key: Vec<u8>,
        capacity: usize,
    },
    /// An update that is begun, perhaps resized, and then aborted.
    AbortedUpdate {
        keyspace: u32,
        key: Vec<u8>,
        resize: Option<usize>,
    },
    /// Pins a value until it is unpinned or the session ends.
    Pin {
        keyspace: u32,
        key: Vec<u8>,
    },
    /// Unpins the value that was pinned first.
    Unpin,
    /// Takes a snapshot, or is refused one in a savepoint.
    Snapshot,
    /// Ends one of the open snapshots.
    EndSnapshot(usize),
    /// Shows one of the past commits.
    At(usize),
    /// Forgets the history before one of the past commits.
    Pack(usize),
    /// Ends packing before all is done.
    EndPacking,
    /// Changes the options for the next opening.
    ChangeOptions {
        factor: u32,
        memory: usize,
    },
    /// Limits how many bytes the file can still grow by, or removes the limit.
    LimitGrowth(Option<usize>),
    /// Ends a task: memory is freed, and what exceeds the budget becomes cold.
    EndTurn,
    Savepoint,
    Release,
    Rollback,
    Commit,
    Flush,
    Witness,
    /// This many maintenance steps, either of a full compaction or of what is worth its cost.
    Maintain {
        steps: usize,
        all: bool,
    },
    /// Close and open again.
    Reopen,
    /// The process dies between two calls.
    Crash,
    /// The process dies this many calls of the disk later, in a write, at this byte.
    Die {
        ahead: u64,
        byte: usize,
    },
}

/// See the module documentation.
pub struct Session {
    pub disk: FaultFile,
    pub options: Options,
    store: Option<Store<FaultFile>>,
    pub oracle: Oracle,
    /// The commit that the disk contained at the beginning of its history.
    pub start: Commit,
    /// The last commit that was acknowledged.
    tip: Commit,
    /// The expected content of the store now, and at each open savepoint.
    state: State,
    saved: Vec<(varve::engine::Savepoint, State)>,
    /// The pinned values.
    pinned: Vec<(PinId, Rc<[u8]>)>,
    /// The open snapshots, each with the content when it was taken.
    snapshots: Vec<(SnapshotId, State)>,
    /// Past commits that are shown.
    past: Vec<(SnapshotId, State)>,
    clock: u32,
    /// What the store called the last commit when it was opened after a crash. Power loss may remove the trace of that crash,
    /// and with it the number.
    opened: Option<u64>,
    /// Whether deleting what has expired may fail.
    pub may_keep_due: bool,
    /// The length of the history at the first eviction.
    pub evicted_at: Option<usize>,
}

impl Session {
    /// Opens `disk`, whose content is exactly `state`.
    pub fn new(disk: FaultFile, options: Options, state: State) -> Self {
        Session::after(disk, options, state, vec![], 0)
    }

    /// The same after earlier commits, and after packing up to one of them.
    pub fn after(
        disk: FaultFile,
        options: Options,
        state: State,
        past: Vec<PastCommit>,
        packed: u64,
    ) -> Self {
        let mut oracle = Oracle::default();
        oracle.packed = packed;
        oracle.prefers_oldest = options.keeps_history == Some(true);
        let mut before = None;
        for PastCommit { cursor, state } in past {
            let commit = oracle.add(before, state);
            oracle.name(commit, cursor);
            before = Some(commit);
        }
        let start = oracle.add(before, state.clone());
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
            snapshots: vec![],
            past: vec![],
            clock: START,
            opened: None,
            may_keep_due: false,
            evicted_at: None,
        }
    }

    pub fn store(&mut self) -> &mut Store<FaultFile> {
        self.store.as_mut().expect("the session is open")
    }

    pub fn is_open(&self) -> bool {
        self.store.is_some()
    }

    /// The expected content after its uncommitted batch is gone.
    pub fn committed(&self) -> &State {
        self.oracle.state(self.tip)
    }

    /// The history of the disk, and the bounds at its beginning.
    pub fn history(&self) -> (Pages, Vec<Event>, Bounds) {
        let (base, events) = self.disk.history();
        (base, events, Bounds::only(self.start))
    }

    /// Opens the store and checks that it shows one of the permitted commits.
    pub fn open(&mut self, bounds: Bounds) -> Result<(), Error> {
        self.saved.clear();
        self.pinned.clear();
        self.snapshots.clear();
        self.past.clear();
        self.disk.enter(Stage::Opening);
        let opened = Store::open(self.disk.clone(), self.options);
        self.disk.enter(Stage::Working);
        // Salts are new in each session: reused slots are not erased.
        self.options.entropy[3] += 1;
        let mut store = opened?;
        let seen = self.disk.paused(|| state_of(&mut store));
        let commit = self.oracle.identify(&seen, bounds).unwrap_or_else(|e| panic!("{e}"));
        self.oracle.fix(commit, seen.clone());
        self.opened = (!store.recovery().clean).then(|| store.last_commit());
        if self.opened.is_none() {
            self.oracle.name(commit, store.last_commit());
        }
        (self.tip, self.state) = (commit, seen);
        self.disk.mark(Mark::Recovered(commit));
        self.store = Some(store);
        Ok(())
    }

    pub fn is_poisoned(&self) -> bool {
        self.store.as_ref().is_some_and(|s| s.stats().poisoned)
    }

    /// Ends everything that is open, and commits.
    pub fn finish(&mut self) {
        while !self.saved.is_empty() {
            self.step(&Step::Release).expect("release");
        }
        self.step(&Step::Commit).expect("commit");
    }

    /// The permitted commits after a crash now.
    pub fn bounds(&self, trying: Option<Commit>) -> Bounds {
        Bounds { trying, ..Bounds::only(self.tip) }
    }

    /// Checks that the store has the expected content.
    pub fn check(&mut self) {
        let seen = self.seen();
        let wanted = &self.state;
        assert!(&seen == wanted, "the store shows {}", difference(&seen, wanted));
        let store = self.store.as_mut().expect("the session is open");
        for (pin, value) in &self.pinned {
            assert!(store.pinned(*pin) == Some(value), "a pinned value has changed");
        }
        let (disk, snapshots, past) = (self.disk.clone(), &self.snapshots, &self.past);
        disk.paused(|| {
            for (snapshot, state) in snapshots {
                check_snapshot(store, *snapshot, state);
            }
            for (snapshot, state) in past {
                check_past(store, *snapshot, state);
            }
        });
    }

    /// The content of the store, with faults disabled.
    pub fn seen(&mut self) -> State {
        let disk = self.disk.clone();
        disk.paused(|| {
            let seen = state_of(self.store());
            check_chunks(self.store(), &seen);
            seen
        })
    }

    /// Continues after a crash: reopens until that succeeds.
    pub fn revive(&mut self, trying: Option<Commit>) {
        drop(self.store.take().map(Store::into_file));
        self.disk.heal();
        self.open(self.bounds(trying)).unwrap_or_else(|e| panic!("after a crash: {e}"));
    }

    /// Runs one call that may commit; `after` is the state that it leads to.
    ///
    /// After an error the batch is gone, as the store promises.
    fn call<T>(
        &mut self,
        after: State,
        run: impl FnOnce(&mut Store<FaultFile>) -> Result<T, Error>,
        versions: impl FnOnce(&mut State, &mut Store<FaultFile>, &T),
    ) -> Result<T, (Error, Commit)> {
        let trying = self.oracle.add(Some(self.tip), after.clone());
        // In a savepoint nothing may become visible, so no commit is attempted.
        if self.saved.is_empty() {
            self.disk.mark(Mark::Trying(trying));
        }
        let before = self.store().last_commit();
        match run(self.store()) {
            Ok(value) => {
                self.state = after;
                let store = self.store.as_mut().expect("open");
                self.disk.paused(|| versions(&mut self.state, store, &value));
                // After a commit, maintenance may have deleted what is due.
                let is_committed =
                    store.stats().pending_bytes == 0 || store.last_commit() != before;
                if self.saved.is_empty() && is_committed {
                    self.oracle.fix(trying, self.state.clone());
                    let cursor = store.last_commit();
                    if self.opened != Some(cursor) {
                        self.oracle.name(trying, cursor);
                    }
                    self.disk.mark(Mark::Committed(trying));
                    self.tip = trying;
                } else {
                    self.disk.mark(Mark::Settled);
                }
                Ok(value)
            }
            Err(error) => {
                // After poisoning it is unknown how much of the batch was written; likewise after a
                // crash, which may follow the commit that a pin begins with.
                if !self.is_poisoned() && !self.disk.is_dead() {
                    self.disk.mark(Mark::Settled);
                }
                Err((error, trying))
            }
        }
    }

    /// Runs a step. An error is the store's; the oracle then expects the batch to be gone, unless
    /// only the callback of an update failed.
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
            Step::SetExpiring { keyspace, key, len, fill, after } => {
                let expiry = self.expiry_after(*after);
                self.set_with_expiry(*keyspace, key, *len, *fill, expiry)
            }
            Step::Touch { keyspace, key, after } => {
                let expiry = after.map_or(0, |after| self.expiry_after(after));
                self.touch(*keyspace, key, expiry)
            }
            Step::SetNow { by } if self.saved.is_empty() => self.set_now(*by),
            Step::Retain { drops } if self.saved.is_empty() => {
                let after = self.state.clone();
                let retain = |store: &mut Store<FaultFile>| {
                    let cursor = store.last_commit();
                    store.retain(b"mark", (!drops).then_some(cursor))
                };
                self.call(after, retain, |_, _, ()| ())
            }
            Step::Clear { keyspace, by_one } => self.clear(*keyspace, *by_one),
            Step::Update { keyspace, key, fill, end } => self.update(*keyspace, key, *fill, *end),
            Step::Get { keyspace, key } => {
                let expected = self.state.get(&(*keyspace, key.clone())).cloned();
                let tip = self.tip;
                let value = self.store().get(*keyspace, key).map_err(|e| (e, tip))?;
                assert_eq!(value, expected.as_ref().map(|e| &*e.value), "getting {key:?}");
                Ok(())
            }
            Step::Staged { keyspace, key, capacity, len, fill } => {
                self.staged(*keyspace, key, *capacity, *len, *fill)
            }
            Step::AbortedSet { keyspace, key, capacity } => self.abort_staged(|store| {
                store.begin_set(*keyspace, key, *capacity)?;
                store.staged_value().fill(0xEE);
                Ok(())
            }),
            Step::AbortedUpdate { keyspace, key, resize } => self.abort_staged(|store| {
                if store.begin_update(*keyspace, key)? {
                    store.staged_value().fill(0xEE);
                    if let Some(capacity) = resize {
                        store.resize_update(*capacity)?;
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
            Step::Snapshot if self.saved.is_empty() && self.snapshots.len() < 4 => {
                let after = self.state.clone();
                let snapshot = self.call(after, Store::snapshot, |_, _, _| ())?;
                self.snapshots.push((snapshot, self.state.clone()));
                Ok(())
            }
            Step::Snapshot if !self.saved.is_empty() => {
                assert_eq!(self.store().snapshot(), Err(Error::Reentrancy));
                Ok(())
            }
            Step::EndSnapshot(which) if !self.snapshots.is_empty() => {
                let (snapshot, _) = self.snapshots.remove(which % self.snapshots.len());
                self.store().end_snapshot(snapshot);
                Ok(())
            }
            Step::At(which) if self.saved.is_empty() && self.past.len() < 3 => {
                let Some((cursor, state)) = self.past_commit(*which)? else { return Ok(()) };
                let after = self.state.clone();
                let shown = |store: &mut Store<FaultFile>| match store.at(cursor) {
                    Err(Error::CursorExpired) => {
                        assert!(cursor < store.packed_up_to()?, "{cursor} was not packed");
                        Ok(None)
                    }
                    shown => shown.map(Some),
                };
                let shown = self.call(after, shown, |_, _, _| ())?;
                self.past.extend(shown.map(|snapshot| (snapshot, state)));
                Ok(())
            }
            Step::At(_) if !self.past.is_empty() => {
                let (snapshot, _) = self.past.remove(0);
                self.store().end_snapshot(snapshot);
                Ok(())
            }
            Step::Pack(which) if self.saved.is_empty() => {
                let Some((cursor, _)) = self.past_commit(*which)? else { return Ok(()) };
                self.oracle.packed = self.oracle.packed.max(cursor);
                let after = self.state.clone();
                let pack = |store: &mut Store<FaultFile>| match store.pack(cursor) {
                    Err(Error::Reentrancy) => {
                        assert!(store.is_packing(), "it is not packed yet");
                        Ok(())
                    }
                    packed => packed.map(|_| ()),
                };
                self.disk.enter(Stage::Maintenance);
                let packed = self.call(after, pack, |_, _, ()| ());
                self.disk.enter(Stage::Working);
                packed
            }
            Step::EndPacking => {
                self.store().end_packing();
                Ok(())
            }
            Step::ChangeOptions { factor, memory } => {
                (self.options.factor, self.options.memory) = (*factor, *memory);
                Ok(())
            }
            Step::LimitGrowth(capacity) => {
                let size = self.disk.pages().len();
                let limit = capacity
                    .map(|capacity| ((size + capacity) as u64, FailureMode::Fail(IoError::Quota)));
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
                // Likewise.
                self.step(&Step::Commit)?;
                let after = self.state.clone();
                self.call(after, Store::witness, |_, _, ()| ())
            }
            Step::Maintain { steps, all } if self.saved.is_empty() => {
                // Failed maintenance rolls back no commit, so the batch is committed first.
                self.step(&Step::Commit)?;
                let after = self.state.clone();
                let maintain = |s: &mut Store<FaultFile>| {
                    for i in 0..*steps {
                        if !s.maintain(*all && i == 0)? {
                            break;
                        }
                    }
                    Ok(())
                };
                self.disk.enter(Stage::Maintenance);
                let maintained = self.call(after, maintain, |_, _, ()| ());
                self.disk.enter(Stage::Working);
                maintained
            }
            Step::Reopen if self.saved.is_empty() => self.reopen(),
            Step::Crash => {
                self.revive(None);
                Ok(())
            }
            Step::Die { .. }
            | Step::SetNow { .. }
            | Step::Retain { .. }
            | Step::Pin { .. }
            | Step::Commit
            | Step::Flush
            | Step::Witness
            | Step::Maintain { .. }
            | Step::Reopen
            | Step::Snapshot
            | Step::EndSnapshot(_)
            | Step::At(_)
            | Step::Pack(_) => Ok(()),
        }
    }

    /// One of the commits so far, if the file keeps its history. What is shown of it may begin with a commit, so the open
    /// batch is committed first.
    fn past_commit(&mut self, which: usize) -> Result<Option<(u64, State)>, (Error, Commit)> {
        if self.options.keeps_history != Some(true) {
            return Ok(None);
        }
        self.step(&Step::Commit)?;
        let mut past = self.oracle.past(self.tip);
        let at = which % past.len().max(1);
        Ok((at < past.len()).then(|| past.swap_remove(at)).map(|it| (it.cursor, it.state)))
    }

    fn set(
        &mut self,
        keyspace: u32,
        key: &[u8],
        len: usize,
        fill: u64,
    ) -> Result<(), (Error, Commit)> {
        self.set_with_expiry(keyspace, key, len, fill, 0)
    }

    fn set_with_expiry(
        &mut self,
        keyspace: u32,
        key: &[u8],
        len: usize,
        fill: u64,
        expiry: u32,
    ) -> Result<(), (Error, Commit)> {
        let value: Rc<[u8]> = bytes_of(fill, len).into();
        let is_absent = self.is_past(expiry);
        let mut after = self.state.clone();
        let at = (keyspace, key.to_vec());
        let entry = Entry { value: value.clone(), version: UNKNOWN, expiry };
        let before = match is_absent {
            true => after.remove(&at),
            false => after.insert(at.clone(), entry.clone()),
        };
        let record = |state: &mut State, _: &mut Store<FaultFile>, &version: &u64| {
            assert!(before.is_none_or(|e| e.version < version), "version {version} did not grow");
            if !is_absent {
                state.insert(at, Entry { version, ..entry });
            }
        };
        self.call(after, |s| s.set_with_expiry(keyspace, key, &value, expiry), record).map(|_| ())
    }

    fn touch(&mut self, keyspace: u32, key: &[u8], expiry: u32) -> Result<(), (Error, Commit)> {
        let is_absent = self.is_past(expiry);
        let mut after = self.state.clone();
        let at = (keyspace, key.to_vec());
        let before = after.remove(&at);
        if let Some(before) = before.as_ref().filter(|_| !is_absent) {
            let version = if before.expiry == expiry { before.version } else { UNKNOWN };
            after.insert(at.clone(), Entry { version, expiry, ..before.clone() });
        }
        let record = |state: &mut State, store: &mut Store<FaultFile>, &touched: &bool| {
            assert_eq!(touched, before.is_some(), "touching {key:?}");
            if let Some(entry) = state.get_mut(&at) {
                entry.version = store.version(keyspace, key).unwrap().expect("the key is there");
            }
        };
        self.call(after, |s| s.touch(keyspace, key, expiry), record).map(|_| ())
    }

    /// A time this many seconds after that of the clock or, if that was set back, of the store.
    fn expiry_after(&mut self, after: i64) -> u32 {
        let now = self.clock.max(self.store().now());
        u32::try_from(i64::from(now) + after).expect("a time")
    }

    fn is_past(&mut self, expiry: u32) -> bool {
        expiry != 0 && expiry <= self.store().now()
    }

    fn set_now(&mut self, by: i64) -> Result<(), (Error, Commit)> {
        self.clock = u32::try_from(i64::from(self.clock) + by).expect("a time");
        let clock = self.clock;
        if self.may_keep_due || self.disk.is_limited() {
            self.oracle.due_until = self.oracle.due_until.max(clock);
        }
        let mut after = self.state.clone();
        after.retain(|_, entry| entry.expiry == 0 || entry.expiry > clock);
        let disk = self.disk.clone();
        let run = |store: &mut Store<FaultFile>| {
            store.set_now(clock)?;
            // What it did not write is tried again, by a process that lives.
            if disk.is_dead() { Err(Error::Lost) } else { Ok(()) }
        };
        self.call(after, run, |_, _, ()| ())
    }

    fn staged(
        &mut self,
        keyspace: u32,
        key: &[u8],
        capacity: usize,
        len: usize,
        fill: u64,
    ) -> Result<(), (Error, Commit)> {
        let value: Rc<[u8]> = bytes_of(fill, len).into();
        let mut after = self.state.clone();
        let at = (keyspace, key.to_vec());
        let entry = Entry { value: value.clone(), version: UNKNOWN, expiry: 0 };
        after.insert(at.clone(), entry.clone());
        let run = |store: &mut Store<FaultFile>| {
            store.begin_set(keyspace, key, capacity)?;
            store.staged_value().fill(0xCC);
            store.staged_value()[..len].copy_from_slice(&value);
            store.finish(len)
        };
        let record = |state: &mut State, _: &mut Store<FaultFile>, &version: &u64| {
            state.insert(at, Entry { version, ..entry });
        };
        self.call(after, run, record).map(|_| ())
    }

    /// Begins something and aborts it, however far it gets.
    fn abort_staged(
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
        let existed = after.remove(&(keyspace, key.to_vec())).is_some();
        let found = self.call(after, |s| s.delete(keyspace, key), |_, _, _| ())?;
        assert_eq!(found, existed, "deleting {key:?}");
        Ok(())
    }

    fn clear(&mut self, keyspace: u32, by_one: bool) -> Result<(), (Error, Commit)> {
        let before = self.state.len();
        let mut after = self.state.clone();
        after.retain(|(other, _), _| *other != keyspace);
        let deleted = (before - after.len()) as u64;
        let all = (Bound::Unbounded, Bound::Unbounded);
        let run = |store: &mut Store<FaultFile>| match by_one {
            true => store.empty(keyspace),
            false => store.clear(keyspace, all, false, u64::MAX),
        };
        let reported = self.call(after, run, |_, _, _| ())?;
        assert_eq!(reported, deleted, "emptying {keyspace}");
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
            *entry = Entry { value, version: UNKNOWN, ..*entry };
        }
        let run = |s: &mut Store<FaultFile>| {
            let seen = |bytes: &[u8]| {
                assert_eq!(
                    Some(bytes),
                    before.as_ref().map(|b| &*b.value),
                    "the value that an update receives"
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
        let record = |state: &mut State, store: &mut Store<FaultFile>, &applied: &bool| {
            assert_eq!(applied, applies, "the result of an update with {end:?}");
            if let Some(entry) = state.get_mut(&at).filter(|_| applied) {
                let version = store.version(keyspace, key).unwrap().expect("the key is there");
                let before = before.as_ref().map(|entry| entry.version);
                assert!(Some(version) > before, "version {version} did not grow");
                entry.version = version;
            }
        };
        self.call(after, run, record).map(|_| ())
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
        // A superblock that a fault tore may be intact nevertheless, and lack the clean mark.
        let clean = recovery.clean || self.disk.struck();
        // What opening found after the end of the log stays as long as there is no space for the
        // segment that cancels it: a torn tail, or a segment that was begun after remains of an
        // earlier use of a slot.
        let is_same = (was.torn_bytes > 0) == (recovery.torn_bytes > 0);
        let remains = !was.clean && is_same && self.disk.is_limited();
        assert!(remains || clean && recovery.torn_bytes == 0, "closed in order: {recovery:?}");
        Ok(())
    }

    /// A call failed: either it was refused and the open batch remains, or the batch could not be
    /// written and is gone.
    pub fn handle_failure(&mut self) {
        if self.saved.is_empty() && self.store().stats().pending_bytes == 0 {
            self.state = self.committed().clone();
        }
        // The time counts although what it made due could not be deleted.
        let now = self.store().now();
        self.state.retain(|_, entry| entry.expiry == 0 || entry.expiry > now);
    }
}

/// The sizes and probabilities of a random program.
#[derive(Clone, Debug)]
pub struct Profile {
    pub keys: usize,
    pub segment: usize,
    pub crashes: bool,
    /// Whether most values and batches are large: commits of several frames, and more data than
    /// minimal memory can hold.
    pub bulk: bool,
    /// Whether it concerns maintenance: much is overwritten, and compaction, checkpoints and
    /// reclaiming are in progress most of the time.
    pub maintenance: bool,
    /// Whether it has unusual shapes of keys and values.
    pub shapes: bool,
    /// Whether it clears keyspaces.
    pub clears: bool,
    pub with: With,
}

/// What programs do besides.
#[derive(Clone, Copy, Debug, Default)]
pub struct With {
    /// They take snapshots.
    pub snapshots: bool,
    /// Records expire, under a clock that jumps, and marks keep the log.
    pub expiry: bool,
    /// The file keeps its history, which is shown and packed.
    pub history: bool,
}

/// A key of the small set that programs use: short ones, and a long one.
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
pub fn next_step(rng: &mut Rng, profile: &Profile) -> Step {
    let With { snapshots, expiry, history } = profile.with;
    if snapshots && rng.one_in(5) {
        return snapshot_step(rng);
    }
    if history && rng.one_in(6) {
        return history_step(rng);
    }
    if expiry && !rng.one_in(3) {
        return expiry_step(rng, profile.keys, profile.segment);
    }
    if profile.clears && rng.one_in(9) {
        return Step::Clear { keyspace: *rng.pick(&KEYSPACES), by_one: !rng.one_in(4) };
    }
    if profile.shapes {
        return shapes::next_step(rng, profile.segment);
    }
    if profile.bulk && !rng.one_in(4) {
        return next_bulky_step(rng, profile);
    }
    if profile.maintenance && !rng.one_in(6) {
        return next_maintenance_step(rng, profile);
    }
    let keyspace = *rng.pick(&KEYSPACES);
    let key = key_of(rng.below(profile.keys));
    let fill = rng.next();
    match rng.below(120) {
        112..120 => Step::Maintain { steps: rng.within(1..20), all: rng.one_in(3) },
        100..106 => Step::Get { keyspace, key },
        106..112 => Step::EndTurn,
        0..34 => Step::Set { keyspace, key, len: size_of_value(rng, profile.segment), fill },
        34..42 => Step::Delete { keyspace, key },
        42..60 => {
            let end = match rng.below(9) {
                0..4 => Update::InPlace,
                4..7 => Update::Resize(size_of_value(rng, profile.segment)),
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
        96..98 if profile.crashes => Step::Crash,
        98..100 if profile.crashes => Step::Die { ahead: rng.next() % 8, byte: rng.below(600) },
        _ => Step::Commit,
    }
}

fn next_bulky_step(rng: &mut Rng, profile: &Profile) -> Step {
    let keyspace = *rng.pick(&KEYSPACES);
    let key = key_of(rng.below(profile.keys));
    let fill = rng.next();
    let len = rng.within(profile.segment / 16..profile.segment / 4);
    match rng.below(24) {
        0..14 => Step::Set { keyspace, key, len, fill },
        14..16 => Step::Update { keyspace, key, fill, end: Update::Resize(len) },
        16..18 => Step::Get { keyspace, key },
        18..21 => Step::Savepoint,
        21..23 => Step::Release,
        _ => Step::EndTurn,
    }
}

fn next_maintenance_step(rng: &mut Rng, profile: &Profile) -> Step {
    let keyspace = *rng.pick(&KEYSPACES);
    let key = key_of(rng.below(profile.keys));
    let fill = rng.next();
    let len = match rng.one_in(12) {
        false => rng.within(profile.segment / 16..profile.segment / 4),
        // In an extent, which leaves gaps between segments, or in chunks.
        true => shapes::chunked_length(
            rng.within(profile.segment / 4 + 1..profile.segment * 2),
            profile.segment,
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
        21..27 => Step::Maintain { steps: rng.within(1..12), all: rng.one_in(3) },
        _ => Step::Maintain { steps: 1000, all: true },
    }
}
