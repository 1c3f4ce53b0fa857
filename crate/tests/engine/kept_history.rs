//! A file that keeps its history shows each past commit exactly as it was.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};

use varve::engine::store::SnapshotId;
use varve::engine::{Error, IoError, Options, Stats, Store};

use crate::support::crash_images::{Limits, walk};
use crate::support::crash_programs::{Tally, With, on_two_threads, run_generations};
use crate::support::fault_file::{FailureMode, FaultFile};
use crate::support::oracle::Bounds;
use crate::support::rng::{Rng, bytes_of, replayed};
use crate::support::snapshots::range_of;

const ALL: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Unbounded, Bound::Unbounded);
const KEYSPACES: [u32; 3] = [0, 7, 65_535];
/// Its records expire.
const EXPIRING: u32 = 9;

type Content = BTreeMap<(u32, Vec<u8>), Vec<u8>>;

/// A commit, and all that the store contained after it.
struct State {
    cursor: u64,
    content: Content,
}

struct Program {
    file: FaultFile,
    store: Option<Store<FaultFile>>,
    options: Options,
    now: Content,
    states: Vec<State>,
    /// Past commits that are shown, by the numbers of their states.
    shown: Vec<(SnapshotId, usize)>,
    keys: usize,
    clock: u32,
    packs: usize,
    /// Without deletions, a key that is absent was absent before, too.
    deletes: bool,
}

fn key_of(i: usize) -> Vec<u8> {
    let mut key = (i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes().to_vec();
    key.resize(8 + i % 5 * 7, b'.');
    key
}

fn small() -> Options {
    Options { segment_log2: 13, memory: 1 << 16, keeps_history: Some(true), ..Options::default() }
}

impl Program {
    fn new(options: Options, keys: usize) -> Self {
        let file = FaultFile::default();
        let store = Some(Store::open(file.clone(), options).expect("open"));
        let (now, states, shown) = (Content::new(), vec![], vec![]);
        Program {
            file,
            store,
            options,
            now,
            states,
            shown,
            keys,
            clock: 1000,
            packs: 0,
            deletes: true,
        }
    }

    fn store(&mut self) -> &mut Store<FaultFile> {
        self.store.as_mut().expect("it is open")
    }

    fn step(&mut self, rng: &mut Rng) -> Result<(), Error> {
        let keyspace = *rng.pick(&KEYSPACES);
        let key = key_of(rng.below(self.keys));
        let at = (keyspace, key.clone());
        let keys = self.keys;
        let ordered = self.options.ordered;
        let clock = self.clock;
        match rng.below(100) {
            46..58 | 70..77 if !self.deletes => {}
            0..46 => {
                let length = match rng.below(80) {
                    0 if self.deletes => rng.within(5000..40_000),
                    _ => rng.below(60),
                };
                let value = bytes_of(rng.next(), length);
                self.store().set(keyspace, &key, &value)?;
                self.now.insert(at, value);
            }
            46..58 => {
                let existed = self.now.remove(&at).is_some();
                assert_eq!(self.store().delete(keyspace, &key)?, existed);
            }
            58..64 => {
                let fill = rng.next();
                let change = |bytes: &mut [u8]| {
                    bytes.copy_from_slice(&bytes_of(fill, bytes.len()));
                    Ok(None)
                };
                self.store().update_if(keyspace, &key, |_| true, change)?;
                if let Some(value) = self.now.get_mut(&at) {
                    *value = bytes_of(fill, value.len());
                }
            }
            64..70 => {
                let before = self.now.clone();
                let savepoint = self.store().savepoint();
                for _ in 0..rng.below(12) {
                    let key = key_of(rng.below(keys));
                    self.store().set(keyspace, &key, b"tried")?;
                    self.now.insert((keyspace, key), b"tried".to_vec());
                }
                if self.deletes && rng.one_in(8) {
                    self.store().empty(keyspace)?;
                    self.now.retain(|(other, _), _| *other != keyspace);
                    self.store().set(keyspace, &key, b"after")?;
                    self.now.insert(at, b"after".to_vec());
                }
                if rng.one_in(2) {
                    self.store().rollback(savepoint);
                    self.now = before;
                } else {
                    self.store().release(savepoint)?;
                }
            }
            70..72 if ordered => {
                let lower = key_of(rng.below(keys));
                let bounds = (Bound::Included(&lower[..]), Bound::Unbounded);
                let limit = rng.below(20);
                self.store().clear(keyspace, bounds, false, limit as u64)?;
                let gone = self.now.range(&(keyspace, lower.clone())..);
                let gone = gone.map(|(key, _)| key).filter(|key| key.0 == keyspace).take(limit);
                for key in gone.cloned().collect::<Vec<_>>() {
                    self.now.remove(&key);
                }
            }
            72 if rng.one_in(4) => {
                self.store().clear(keyspace, ALL, false, u64::MAX)?;
                self.now.retain(|(other, _), _| *other != keyspace);
            }
            73..76 => {
                let value = bytes_of(rng.next(), rng.below(30));
                let expiry = clock + 1 + rng.below(40) as u32;
                self.store().set_with_expiry(EXPIRING, &key, &value, expiry)?;
            }
            76 => {
                // A clock that jumps.
                self.clock = (self.clock + rng.below(60) as u32).saturating_sub(20);
                let clock = self.clock;
                self.store().set_now(clock)?;
            }
            77..90 => self.note()?,
            90 => self.store().flush()?,
            91 => _ = self.store().end_turn(),
            92..96 => {
                let all = rng.one_in(3);
                let mut more = self.store().maintain(all)?;
                for _ in 0..rng.below(30) {
                    more = more && self.store().maintain(false)?;
                }
            }
            96 => {
                let mut steps = 0;
                while self.store().maintain(false)? {
                    steps += 1;
                    assert!(steps < 100_000, "maintenance does not end");
                }
            }
            97 if rng.one_in(4) => self.reopen(rng)?,
            98 if !self.states.is_empty() => {
                let at = rng.below(self.states.len());
                let cursor = self.states[at].cursor;
                if rng.one_in(4) {
                    match self.store().pack(cursor) {
                        Ok(_) => self.packs += 1,
                        Err(error) => assert_eq!(error, Error::Reentrancy),
                    }
                } else if rng.one_in(6) {
                    self.store().end_packing();
                } else if self.shown.len() < 4 {
                    match self.store().at(cursor) {
                        Ok(past) => self.shown.push((past, at)),
                        Err(error) => assert_eq!(error, Error::CursorExpired),
                    }
                } else {
                    let (past, _) = self.shown.remove(rng.below(4));
                    self.store().end_snapshot(past);
                }
            }
            _ => {
                self.check(rng, 2);
                for &(past, at) in &self.shown {
                    let store = self.store.as_mut().expect("it is open");
                    check_some(rng, store, past, &self.states[at], keys);
                    if rng.one_in(3) {
                        check_past(store, past, &self.states[at], keys, ordered);
                    }
                }
            }
        }
        Ok(())
    }

    /// Commits, and remembers what the store contains.
    fn note(&mut self) -> Result<(), Error> {
        let store = self.store.as_mut().expect("it is open");
        let snapshot = store.snapshot()?;
        let cursor = store.last_commit();
        let mut content = self.now.clone();
        for i in 0..self.keys {
            let key = key_of(i);
            let found = store.get(snapshot.keyspace(EXPIRING), &key)?.map(<[u8]>::to_vec);
            if let Some(value) = found {
                content.insert((EXPIRING, key), value);
            }
        }
        store.end_snapshot(snapshot);
        self.states.push(State { cursor, content });
        Ok(())
    }

    /// Closes the store, or crashes, and opens it again.
    fn reopen(&mut self, rng: &mut Rng) -> Result<(), Error> {
        self.note()?;
        self.shown.clear();
        let store = self.store.take().expect("it is open");
        if rng.one_in(2) {
            store.close().map_err(|(_, error)| error)?;
        } else {
            drop(store.into_file());
        }
        // Without the option it stays what it is.
        let keeps_history = if rng.one_in(2) { None } else { Some(true) };
        let options = Options { keeps_history, ..self.options };
        self.store = Some(Store::open(self.file.clone(), options)?);
        let clock = self.clock;
        self.store().set_now(clock)?;
        Ok(())
    }

    /// Compares some past commits with what the store contained after them.
    fn check(&mut self, rng: &mut Rng, count: usize) {
        let Program { store, states, keys, options, .. } = self;
        let Some(store) = store else { return };
        let packed = store.packed_up_to().expect("read");
        for _ in 0..count.min(states.len()) {
            let at = rng.below(states.len());
            let State { cursor, .. } = &states[at];
            let taken = store.at(*cursor);
            if *cursor < packed {
                assert_eq!(taken, Err(Error::CursorExpired));
                continue;
            }
            let past = taken.expect("a past commit");
            check_some(rng, store, past, &states[at], *keys);
            check_past(store, past, &states[at], *keys, options.ordered);
            store.end_snapshot(past);
        }
    }
}

/// Compares some keys of a past commit with what they were then: looking them up may not need a walk over the log.
fn check_some(
    rng: &mut Rng,
    store: &mut Store<FaultFile>,
    past: SnapshotId,
    State { cursor, content }: &State,
    keys: usize,
) {
    for _ in 0..rng.below(12) {
        let (keyspace, key) = (*rng.pick(&KEYSPACES), key_of(rng.below(keys)));
        let wanted = content.get(&(keyspace, key.clone())).map(|value| &value[..]);
        let found = store.get(past.keyspace(keyspace), &key);
        assert_eq!(found, Ok(wanted), "{keyspace} {key:?} at {cursor}");
    }
}

/// Compares a past commit with what the store contained then.
fn check_past(
    store: &mut Store<FaultFile>,
    past: SnapshotId,
    State { cursor, content }: &State,
    keys: usize,
    ordered: bool,
) {
    for plain in KEYSPACES.into_iter().chain([EXPIRING]) {
        let keyspace = past.keyspace(plain);
        let all: Vec<_> = content.iter().filter(|(key, _)| key.0 == plain).collect();
        assert_eq!(store.live_count(keyspace), Ok(all.len() as u64), "keys of {plain} at {cursor}");
        for i in 0..keys {
            let key = key_of(i);
            let wanted = content.get(&(plain, key.clone())).map(|value| &value[..]);
            assert_eq!(store.get(keyspace, &key), Ok(wanted), "{plain} {i} at {cursor}");
        }
        if ordered {
            let seen = range_of(store, keyspace, ALL, false);
            let wanted: Vec<_> = all.iter().map(|((_, key), _)| key.clone()).collect();
            assert!(seen == wanted, "{} keys and not {}", seen.len(), wanted.len());
        }
    }
}

fn run(seed: u64, options: Options, keys: usize, steps: usize) {
    let mut rng = Rng::new(seed);
    let mut program = Program { deletes: !seed.is_multiple_of(3), ..Program::new(options, keys) };
    for _ in 0..steps {
        program.step(&mut rng).expect("nothing fails");
    }
    program.note().expect("commit");
    program.check(&mut rng, 20);
    program.reopen(&mut rng).expect("reopen");
    program.check(&mut rng, 20);
    program.store().end_packing();
    assert_eq!(program.store().snapshot_stats(), Default::default());
    let last = program.states.last().expect("a state").cursor;
    let before = program.store().stats().file_bytes;
    program.store().pack(last).expect("pack");
    let mut steps = 0;
    while program.store().maintain(false).expect("maintain") {
        steps += 1;
        assert!(steps < 100_000, "packing does not end");
    }
    assert!(!program.store().is_packing());
    program.check(&mut rng, 20);
    program.reopen(&mut rng).expect("reopen");
    program.check(&mut rng, 20);
    let Stats { live_bytes, segments, .. } = program.store().stats();
    let used = segments << 13;
    assert!(used < 2 * live_bytes + (12 << 13), "{used} of {before} for {live_bytes}");
}

#[test]
fn past_commits_match_a_list_of_states() {
    if let Some(seed) = replayed("VARVE_MODEL_SEED") {
        return run(seed, small(), 60, 1000);
    }
    for seed in 0..replayed("VARVE_MODEL_SEEDS").unwrap_or(12) {
        run(seed, small(), 60, 1000);
        run(seed, Options { load_at_once: 0, ..small() }, 300, 1000);
        run(seed, Options { load_at_once: 0, index_memory: 4 << 10, ..small() }, 1500, 1000);
        run(seed, Options { ordered: false, ..small() }, 100, 1000);
    }
}

/// The bytes of memory that the changes since past commits take; 0 if none was walked to.
fn memory_of(store: &Store<FaultFile>) -> u64 {
    store.snapshot_stats().memory_bytes
}

#[test]
fn keys_of_a_past_commit_are_looked_up_without_a_walk_unless_one_may_have_been_deleted_since() {
    let mut store = Store::open(FaultFile::default(), small()).expect("open");
    let set = |store: &mut Store<FaultFile>, key: &[u8], value: u32| {
        store.set(0, key, &value.to_le_bytes()).expect("set");
        store.commit().expect("commit");
        store.last_commit()
    };
    let first = set(&mut store, b"a", 1);
    for i in 2..20 {
        set(&mut store, b"a", i);
        set(&mut store, b"b", i);
    }
    let value = |i: u32| i.to_le_bytes();
    let past = store.at(first).expect("a past commit");
    // What changes later does not count.
    set(&mut store, b"a", 100);
    store.delete(0, b"b").expect("delete");
    let number = past.keyspace(0);
    let own = memory_of(&store);
    assert_eq!(store.get(number, b"a"), Ok(Some(&value(1)[..])));
    assert_eq!(store.get(number, b"b"), Ok(None));
    assert_eq!(store.get(number, b"never there"), Ok(None));
    assert_eq!(memory_of(&store), own);
    assert_eq!(store.live_count(number), Ok(1));
    assert!(memory_of(&store) > own);
    store.end_snapshot(past);

    store.commit().expect("commit");
    let past = store.at(first).expect("a past commit");
    assert_eq!(store.get(past.keyspace(0), b"a"), Ok(Some(&value(1)[..])));
    assert_eq!(memory_of(&store), 0);
    assert_eq!(store.get(past.keyspace(0), b"b"), Ok(None));
    assert!(memory_of(&store) > 0, "it may have been deleted since, and was");
}

#[test]
fn lookups_that_go_back_often_end_with_a_walk() {
    let mut store = Store::open(FaultFile::default(), small()).expect("open");
    let mut first = 0;
    for i in 0..1000_u32 {
        store.set(0, b"a", &i.to_le_bytes()).expect("set");
        store.commit().expect("commit");
        first = if i == 0 { store.last_commit() } else { first };
    }
    let past = store.at(first).expect("a past commit");
    for round in 0..3 {
        assert_eq!(store.get(past.keyspace(0), b"a"), Ok(Some(&[0; 4][..])), "{round}");
    }
    assert!(memory_of(&store) > 0);
}

/// All keys of the keyspaces without expiry.
fn content_of(store: &mut Store<FaultFile>, keys: usize) -> Content {
    let mut content = Content::new();
    for keyspace in KEYSPACES {
        for i in 0..keys {
            let key = key_of(i);
            if let Some(value) = store.get(keyspace, &key).expect("get") {
                content.insert((keyspace, key), value.to_vec());
            }
        }
    }
    content
}

/// Crashes while the history is packed: each commit from the first that stays on is shown as it was, and the present
/// is that of some commit.
fn crash_while_packing(seed: u64) -> u64 {
    let (mut rng, keys) = (Rng::new(seed), 12);
    let options = Options { segment_log2: 12, memory: 1 << 16, ..small() };
    let mut program = Program::new(options, keys);
    let write = |program: &mut Program, rng: &mut Rng| {
        // All or nothing, however large.
        let savepoint = program.store().savepoint();
        for _ in 0..rng.within(1..5) {
            let at = (*rng.pick(&KEYSPACES), key_of(rng.below(keys)));
            if rng.one_in(4) {
                program.store().delete(at.0, &at.1).expect("delete");
                program.now.remove(&at);
            } else {
                let length = if rng.one_in(12) { 5000 } else { rng.below(300) };
                let value = bytes_of(rng.next(), length);
                program.store().set(at.0, &at.1, &value).expect("set");
                program.now.insert(at, value);
            }
        }
        program.store().release(savepoint).expect("release");
        program.note().expect("commit");
    };
    for _ in 0..30 {
        write(&mut program, &mut rng);
    }
    if rng.one_in(2) {
        // It was packed before.
        let cursor = program.states[8].cursor;
        program.store().pack(cursor).expect("pack");
        while program.store().maintain(false).expect("maintain") {}
    }
    let store = program.store.take().expect("it is open");
    let file = store.close().map_err(|(_, error)| error).expect("close");
    let file = FaultFile::new(file.pages());
    program.store = Some(Store::open(file.clone(), options).expect("open"));
    let flushed = program.states.len();
    let first = rng.within(9..flushed);
    let cursor = program.states[first].cursor;
    program.store().pack(cursor).expect("pack");
    while program.store().maintain(false).expect("maintain") {
        if rng.one_in(6) {
            write(&mut program, &mut rng);
        }
    }
    let (base, events) = file.history();
    let limits = Limits {
        exhaustive: 3,
        drawn: 2,
        randomized: 1,
        patterns: 2,
        flushes_lie_from: usize::MAX,
        tear_step: 0,
    };
    let (states, mut crashes) = (&program.states, 0);
    let start = Bounds::only(0);
    walk(&base, start, &events, limits, &mut rng, |crash| {
        crashes += 1;
        let file = FaultFile::new(crash.image.clone());
        let mut store = Store::open(file, options).expect("a crash damages nothing");
        for state in &states[first..flushed] {
            let past = store.at(state.cursor).expect("it stays");
            check_past(&mut store, past, state, keys, true);
            store.end_snapshot(past);
        }
        let before = &states[first - 1];
        match store.at(before.cursor) {
            Ok(past) => {
                check_past(&mut store, past, before, keys, true);
                store.end_snapshot(past);
            }
            Err(error) => assert_eq!(error, Error::CursorExpired),
        }
        let present = content_of(&mut store, keys);
        let is_known = states[flushed - 1..].iter().any(|state| state.content == present);
        assert!(is_known, "event {} of seed {seed}", crash.event);
    });
    crashes
}

#[test]
fn crash_while_packing_loses_no_commit_that_stays() {
    let crashes = AtomicU64::new(0);
    let seeds = replayed("VARVE_CRASH_SEEDS").unwrap_or(8);
    on_two_threads(0..seeds, |seed| {
        crashes.fetch_add(crash_while_packing(seed), Ordering::Relaxed);
    });
    println!("{} crash states", crashes.load(Ordering::Relaxed));
    assert!(crashes.into_inner() > 1000);
}

#[test]
fn crash_with_kept_history_leaves_an_exact_prefix_of_commits_and_shows_each_of_them() {
    const WITH: With = With { snapshots: true, expiry: true, history: true };
    let tally = Tally::default();
    if let Some(seed) = replayed("VARVE_HISTORY_CRASH_SEED") {
        return run_generations(seed, &tally, WITH);
    }
    // Beyond these seeds the kinds of programs are drawn.
    let seeds = replayed("VARVE_HISTORY_CRASH_SEEDS").unwrap_or(6);
    on_two_threads(9000..9000 + seeds, |seed| run_generations(seed, &tally, WITH));
    println!("{} crash states", tally.total());
    assert!(tally.total() > 10_000, "{}", tally.total());
}

#[test]
fn history_mode_is_fixed_and_wrong_cursors_are_refused() {
    let file = FaultFile::default();
    let keep = Options { keeps_history: Some(true), ..Options::default() };
    let none = Options { keeps_history: Some(false), ..Options::default() };
    let mut store = Store::open(file.clone(), keep).expect("open");
    assert_eq!(store.at(1), Err(Error::CursorInFuture));
    store.set(0, b"a", b"1").expect("set");
    store.commit().expect("commit");
    let last = store.last_commit();
    assert_eq!(store.at(last + 1), Err(Error::CursorInFuture));
    assert_eq!(store.before(last + 1), Err(Error::CursorInFuture));
    assert_eq!(store.pack(last + 1), Err(Error::CursorInFuture));
    let savepoint = store.savepoint();
    assert_eq!(store.at(last), Err(Error::Reentrancy));
    store.rollback(savepoint);
    store.close().map_err(|(_, error)| error).expect("close");
    assert!(matches!(Store::open(file.clone(), none), Err(Error::OtherHistory)));
    let store = Store::open(file, Options::default()).expect("open");
    assert!(store.keeps_history());
    let file = FaultFile::default();
    let mut store = Store::open(file.clone(), none).expect("open");
    assert_eq!(store.at(0), Err(Error::NoHistory));
    assert_eq!(store.pack(0), Err(Error::NoHistory));
    store.close().map_err(|(_, error)| error).expect("close");
    assert!(matches!(Store::open(file, keep), Err(Error::OtherHistory)));
}

#[test]
fn transaction_with_a_note_is_shown_also_if_its_first_change_was_overwritten_or_rolled_back() {
    let keep = Options { keeps_history: Some(true), ..Options::default() };
    let mut store = Store::open(FaultFile::default(), keep).expect("open");
    store.set(0, b"a", b"0").expect("set");
    store.commit().expect("commit");
    for is_rolled_back in [false, true] {
        let outer = store.savepoint();
        store.note(1, b"why").expect("note");
        let number = store.last_commit() + 1;
        if is_rolled_back {
            let inner = store.savepoint();
            store.set(0, b"a", b"1").expect("set");
            store.rollback(inner);
        } else {
            store.set(0, b"a", b"1").expect("set");
        }
        store.set(0, b"a", b"2").expect("set");
        store.release(outer).expect("release");
        store.commit().expect("commit");
        store.set(0, b"a", b"3").expect("set");
        store.commit().expect("commit");
        let past = store.at(number).expect("it is there");
        assert_eq!(store.get(past.keyspace(0), b"a"), Ok(Some(&b"2"[..])), "{is_rolled_back}");
        store.end_snapshot(past);
    }
}

#[test]
fn commit_up_to_which_the_history_was_packed_is_shown_after_opening_again() {
    let file = FaultFile::default();
    let options = || Options { keeps_history: Some(true), ..small() };
    let mut store = Store::open(file.clone(), options()).expect("open");
    for i in 0..900_u32 {
        store.set(0, &(i % 150).to_be_bytes(), &i.to_be_bytes().repeat(60)).expect("set");
        store.commit().expect("commit");
    }
    let last = store.last_commit();
    for _ in 0..3 {
        assert_eq!(store.pack(last), Ok(last));
        while store.is_packing() || store.wants_maintenance() {
            store.maintain(false).expect("maintain");
        }
    }
    store.close().map_err(|(_, error)| error).expect("close");
    let mut store = Store::open(file, options()).expect("open");
    let past = store.at(last).expect("it is there");
    assert_eq!(store.live_count(past.keyspace(0)), Ok(150));
    assert!(store.since(last).expect("readable").is_whole);
}

#[test]
fn mark_that_is_set_while_packing_keeps_what_follows_it() {
    for steps in 1..40 {
        let options = Options { keeps_history: Some(true), ..small() };
        let mut store = Store::open(FaultFile::default(), options).expect("open");
        let mut cursors = Vec::new();
        for i in 0..300_u32 {
            store.set(0, &(i % 50).to_be_bytes(), &i.to_be_bytes().repeat(60)).expect("set");
            store.commit().expect("commit");
            cursors.push(store.last_commit());
        }
        store.pack(cursors[250]).expect("pack");
        for _ in 0..steps {
            store.maintain(false).expect("maintain");
        }
        let marked = cursors.iter().find(|&&it| store.retain(b"mark", Some(it)).is_ok());
        let marked = *marked.expect("the last commits are there");
        store.commit().expect("commit");
        while store.is_packing() {
            store.maintain(false).expect("maintain");
        }
        assert!(store.since(marked).expect("readable").is_whole, "{steps} steps, {marked}");
    }
}

#[test]
fn pack_frees_space_on_a_full_disk() {
    let (mut rng, keys) = (Rng::new(5), 40);
    let mut program = Program::new(small(), keys);
    let write = |program: &mut Program, rng: &mut Rng| {
        let at = (0, key_of(rng.below(keys)));
        let value = bytes_of(rng.next(), 600);
        program.store().set(at.0, &at.1, &value)?;
        program.store().commit()?;
        program.now.insert(at, value);
        program.note()
    };
    for _ in 0..200 {
        write(&mut program, &mut rng).expect("there is space");
    }
    let size = program.store().stats().file_bytes;
    program.file.limit(Some((size, FailureMode::Fail(IoError::Quota))));
    let refused = (0..1000).find_map(|_| write(&mut program, &mut rng).err());
    assert_eq!(refused, Some(Error::Quota));
    program.check(&mut rng, 10);
    let cursor = program.states[180].cursor;
    assert_eq!(program.store().pack(cursor), Ok(cursor));
    while program.store().maintain(false).expect("maintain") {}
    assert!(!program.store().is_packing());
    program.check(&mut rng, 10);
    for _ in 0..50 {
        write(&mut program, &mut rng).expect("there is space again");
    }
    program.check(&mut rng, 30);
}

#[test]
fn past_commit_is_shown_after_a_commit_with_which_a_segment_begins() {
    // The commit wrote nothing, and its segment was empty when a walk over what is newer began behind it.
    let with = With { snapshots: true, expiry: true, history: true };
    run_generations(669_931_974_904_892, &Tally::default(), with);
}
