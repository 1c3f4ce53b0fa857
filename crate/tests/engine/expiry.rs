//! Records that expire, compared with a model: a clock that jumps forwards and back, with crashes, reopens,
//! compaction, savepoints, changes in place and large values.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use varve::engine::format::KEYSPACE_ENGINE;
use varve::engine::format::system_records::{expiry_of, max_expiring_key};
use varve::engine::{Error, IoError, MemoryFile, Options, Savepoint, Store};

use crate::support::crash_programs::{Tally, With, on_two_threads, run_generations};
use crate::support::fault_file::{FailureMode, Fault, FaultFile};
use crate::support::rng::{Rng, bytes_of, replayed};

const KEYSPACES: [u32; 3] = [0, 2, 9];
const YEAR: u32 = 365 * 86_400;
const START: u32 = 1_800_000_000;

type KeyId = (u32, Vec<u8>);
/// The value and the expiry of each key.
type Map = BTreeMap<KeyId, (Vec<u8>, u32)>;

struct Model {
    store: Option<Store<FaultFile>>,
    file: FaultFile,
    options: Options,
    rng: Rng,
    clock: u32,
    now: Map,
    committed: Map,
    saved: Vec<(Savepoint, Map)>,
    expired: usize,
}

impl Model {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let options = Options {
            segment_log2: 12 + rng.below(4) as u8,
            entropy: [seed, seed, 3, 1],
            ordered: !seed.is_multiple_of(3),
            memory: if seed.is_multiple_of(2) { 0 } else { 64 << 20 },
            load_at_once: if (seed / 2).is_multiple_of(2) { 0 } else { usize::MAX },
            index_memory: if (seed / 4).is_multiple_of(2) { 0 } else { usize::MAX },
            ..Options::default()
        };
        let file = FaultFile::default();
        let store = Store::open(file.clone(), options).expect("opens");
        let (now, committed, saved) = (Map::new(), Map::new(), vec![]);
        let mut model = Model {
            store: Some(store),
            file,
            options,
            rng,
            clock: START,
            now,
            committed,
            saved,
            expired: 0,
        };
        model.turn();
        model
    }

    fn store(&mut self) -> &mut Store<FaultFile> {
        self.store.as_mut().expect("the store is open")
    }

    /// Begins a turn: what has expired by then is gone for ever.
    fn turn(&mut self) {
        let (clock, before) = (self.clock, self.store().now());
        self.store().set_now(clock).expect("nothing is lost");
        let now = self.store().now();
        assert!(now >= clock && now <= clock.max(before), "{now} at {clock}, after {before}");
        let seen = clock.max(if self.store().expires() { before } else { 0 });
        self.expired += forget(&mut self.now, seen);
        self.saved.iter_mut().for_each(|(_, map)| _ = forget(map, seen));
    }

    /// Commits, in a turn of its own.
    fn commit(&mut self) {
        self.turn();
        self.store().commit().expect("commit");
        self.committed = self.now.clone();
    }

    fn key(&mut self) -> KeyId {
        let keyspace = *self.rng.pick(&KEYSPACES);
        (keyspace, format!("k{:02}", self.rng.below(40)).into_bytes())
    }

    fn value(&mut self) -> Vec<u8> {
        let length = match self.rng.below(12) {
            0 => 1_000 + self.rng.below(9_000),
            1 => 0,
            _ => self.rng.below(60),
        };
        bytes_of(self.rng.next(), length)
    }

    fn expiry(&mut self) -> u32 {
        let now = self.store().now();
        match self.rng.below(8) {
            0 | 1 => 0,
            2 => now - self.rng.below(3) as u32,
            3 => now + YEAR,
            _ => now + 1 + self.rng.below(60) as u32,
        }
    }

    /// Sets a key in the model. A value that has expired already is absent.
    fn put(&mut self, at: KeyId, value: Vec<u8>, expiry: u32) {
        if expiry != 0 && expiry <= self.store().now() {
            self.now.remove(&at);
        } else {
            self.now.insert(at, (value, expiry));
        }
    }

    fn step(&mut self) {
        let at = self.key();
        let (keyspace, key) = (at.0, at.1.clone());
        match self.rng.below(40) {
            0..10 => {
                let (value, expiry) = (self.value(), self.expiry());
                self.store().set_with_expiry(keyspace, &key, &value, expiry).expect("set");
                self.put(at, value, expiry);
            }
            10 | 11 => {
                let value = self.value();
                self.store().set(keyspace, &key, &value).expect("set");
                self.put(at, value, 0);
            }
            12 => {
                // A staged record that is aborted.
                let expiry = self.expiry();
                let length = self.value().len();
                self.store().expire_next(expiry);
                self.store().begin_set(keyspace, &key, length).expect("begin");
                self.store().staged_value().fill(0xEE);
                self.store().abort();
            }
            13..17 => {
                let fill = self.rng.next() as u8;
                let resized = self.rng.one_in(3).then(|| self.value());
                let replacement = resized.clone();
                let changed = self
                    .store()
                    .update_if(
                        keyspace,
                        &key,
                        |_| true,
                        |value| {
                            value.fill(fill);
                            Ok(replacement)
                        },
                    )
                    .expect("update");
                assert_eq!(changed, self.now.contains_key(&at));
                if let Some((value, _)) = self.now.get_mut(&at) {
                    value.fill(fill);
                    *value = resized.unwrap_or(core::mem::take(value));
                }
            }
            17..20 => {
                let expiry = self.expiry();
                let was = self.store().touch(keyspace, &key, expiry).expect("touch");
                let found = self.now.remove(&at);
                assert_eq!(was, found.is_some());
                if let Some((value, _)) = found {
                    self.put(at, value, expiry);
                }
            }
            20..22 => {
                let was = self.store().delete(keyspace, &key).expect("delete");
                assert_eq!(was, self.now.remove(&at).is_some());
            }
            22 if self.rng.one_in(4) => {
                let count = self.now.keys().filter(|(of, _)| *of == keyspace).count();
                self.store().empty(keyspace).expect("empty");
                self.now.retain(|(of, _), _| *of != keyspace);
                assert!(count == 0 || self.store().live_count(keyspace) == Ok(0));
            }
            23 if self.options.ordered && self.rng.one_in(2) => {
                let end = self.key().1;
                let bounds = (Bound::Included(&key[..]), Bound::Excluded(&end[..]));
                let cleared = self.store().clear(keyspace, bounds, false, u64::MAX).expect("clear");
                let before = self.now.len();
                self.now.retain(|(of, one), _| *of != keyspace || *one < key || *one >= end);
                assert_eq!(cleared as usize, before - self.now.len());
            }
            24 | 25 if self.saved.len() < 3 => {
                if self.saved.is_empty() {
                    // Nothing is committed while a savepoint is open, so a crash leaves this.
                    self.commit();
                }
                let savepoint = self.store().savepoint();
                self.saved.push((savepoint, self.now.clone()));
            }
            26 => {
                if let Some((savepoint, _)) = self.saved.pop() {
                    self.store().release(savepoint).expect("release");
                    self.turn();
                }
            }
            27 => {
                if let Some((savepoint, map)) = self.saved.pop() {
                    self.store().rollback(savepoint);
                    self.now = map;
                    self.turn();
                }
            }
            28..31 => {
                self.clock = match self.rng.below(12) {
                    0 => self.clock + YEAR + self.rng.below(1_000) as u32,
                    1 => (self.clock - YEAR).max(START - YEAR),
                    _ => self.clock + self.rng.below(20) as u32,
                };
                self.turn();
            }
            31..34 if self.saved.is_empty() => {
                self.commit();
                if self.rng.one_in(2) {
                    self.store().flush().expect("flush");
                }
                self.store().end_turn();
            }
            34..36 if self.saved.is_empty() => {
                let all = self.rng.one_in(6);
                for _ in 0..self.rng.below(20) {
                    self.store().maintain(all).expect("maintain");
                }
            }
            36 if self.rng.one_in(3) => self.reopen(true),
            37 if self.rng.one_in(3) => self.reopen(false),
            _ => self.check_key(&at),
        }
        self.check_key(&(keyspace, key));
    }

    fn reopen(&mut self, closes: bool) {
        if closes {
            while let Some((savepoint, map)) = self.saved.pop() {
                self.store().rollback(savepoint);
                self.now = map;
            }
        } else if self.saved.is_empty() {
            self.commit();
        }
        self.saved.clear();
        let store = self.store.take().expect("the store is open");
        if closes {
            store.close().map_err(|(_, error)| error).expect("closes");
            self.committed = self.now.clone();
        } else {
            drop(store);
            self.now = self.committed.clone();
        }
        self.file = FaultFile::new(self.file.image());
        // Each session has salts of its own.
        self.options.entropy[1] += 1;
        self.options.ordered = !self.rng.one_in(3);
        let options = self.options;
        self.store = Some(Store::open(self.file.clone(), options).expect("opens"));
        if self.rng.one_in(3) {
            // What was seen as expired stays so, whatever the clock says.
            self.clock = (self.clock - YEAR).max(START - YEAR);
        }
        self.turn();
        self.check();
    }

    fn check_key(&mut self, at: &KeyId) {
        let (keyspace, key) = (at.0, &at.1[..]);
        let wanted = self.now.get(at).cloned();
        let value = wanted.as_ref().map(|(value, _)| value.clone());
        let expiry = wanted.map(|(_, expiry)| expiry);
        let store = self.store();
        assert_eq!(store.expiry(keyspace, key).expect("reads"), expiry, "{at:?}");
        assert_eq!(store.get(keyspace, key).expect("reads").map(<[u8]>::to_vec), value, "{at:?}");
        assert_eq!(store.read(keyspace, key).expect("reads").map(<[u8]>::to_vec), value);
        assert_eq!(store.has(keyspace, key).expect("reads"), value.is_some());
        assert_eq!(store.version(keyspace, key).expect("reads").is_some(), value.is_some());
    }

    fn check(&mut self) {
        for keyspace in KEYSPACES {
            let keys: Vec<Vec<u8>> = self
                .now
                .keys()
                .filter(|(of, _)| *of == keyspace)
                .map(|(_, key)| key.clone())
                .collect();
            let (from, to) = (self.key().1, self.key().1);
            let within = keys.iter().filter(|key| **key >= from && **key <= to).count() as u64;
            let is_ordered = self.options.ordered;
            let store = self.store();
            assert_eq!(store.live_count(keyspace), Ok(keys.len() as u64), "keyspace {keyspace}");
            if is_ordered {
                assert_eq!(store.keys(keyspace).as_ref(), Ok(&keys));
                let bounds = (Bound::Included(&from[..]), Bound::Included(&to[..]));
                let counted = if from <= to { store.count_range(keyspace, bounds) } else { Ok(0) };
                assert_eq!(counted, Ok(within));
                let mut back = vec![];
                let all = (Bound::Unbounded, Bound::Unbounded);
                store
                    .range(keyspace, all, true, |key, _| {
                        back.push(key.to_vec());
                        back.len() < 7
                    })
                    .expect("range");
                let expected: Vec<Vec<u8>> = keys.iter().rev().take(7).cloned().collect();
                assert_eq!(back, expected);
            }
        }
        for at in self.now.keys().cloned().collect::<Vec<_>>() {
            self.check_key(&at);
        }
    }

    /// When all work is done, there is an entry for each record that expires, and nothing else is left.
    fn check_all_done(&mut self) {
        while let Some((savepoint, _)) = self.saved.pop() {
            self.store().release(savepoint).expect("release");
        }
        self.commit();
        let mut steps = 0;
        while self.store().maintain(false).expect("maintain") {
            steps += 1;
            assert!(steps < 100_000, "maintenance has no end");
        }
        assert_eq!(self.store().due(), Ok(0));
        self.check();
        for keyspace in KEYSPACES {
            let count = self.now.keys().filter(|(of, _)| *of == keyspace).count() as u64;
            assert_eq!(self.store().count(keyspace), count);
        }
        if !self.store().expires() {
            return;
        }
        let entries = self.store().keys(KEYSPACE_ENGINE).expect("keys");
        let entries: BTreeSet<(u32, u32, Vec<u8>)> = entries
            .iter()
            .filter_map(|entry| expiry_of(entry))
            .map(|(keyspace, expiry, key)| (keyspace, expiry, key.to_vec()))
            .collect();
        let expiring = self.now.iter().filter(|(_, (_, expiry))| *expiry != 0);
        let expected: BTreeSet<(u32, u32, Vec<u8>)> = expiring
            .map(|((keyspace, key), (_, expiry))| (*keyspace, *expiry, key.clone()))
            .collect();
        assert_eq!(entries, expected);
    }
}

/// Removes what has expired, and returns how many keys that were.
fn forget(map: &mut Map, now: u32) -> usize {
    let before = map.len();
    map.retain(|_, (_, expiry)| *expiry == 0 || *expiry > now);
    before - map.len()
}

#[test]
fn random_programs_with_a_jumping_clock_match_a_model() {
    let one = crate::support::rng::replayed("VARVE_EXPIRY_SEED");
    let seeds = one.map_or(0..300, |seed| seed..seed + 1);
    let mut expired = 0;
    for seed in seeds {
        let run = || {
            let mut model = Model::new(seed);
            for step in 0..400 {
                model.step();
                if step % 20 == 0 {
                    model.check();
                }
                if step % 133 == 0 {
                    model.check_all_done();
                }
            }
            model.check_all_done();
            model.expired
        };
        let ran = std::panic::catch_unwind(run);
        expired += ran.unwrap_or_else(|_| panic!("VARVE_EXPIRY_SEED={seed} fails"));
    }
    assert!(one.is_some() || expired > 5_000, "only {expired} keys expired");
}

#[test]
fn crash_with_records_that_expire_and_marks_leaves_an_exact_prefix_of_commits() {
    const WITH: With = With { snapshots: false, expiry: true, history: false };
    let tally = Tally::default();
    if let Some(seed) = replayed("VARVE_EXPIRY_CRASH_SEED") {
        return run_generations(seed, &tally, WITH);
    }
    // Beyond these seeds the kinds of programs are drawn.
    let seeds = replayed("VARVE_EXPIRY_CRASH_SEEDS").unwrap_or(6);
    on_two_threads(7000..7000 + seeds, |seed| run_generations(seed, &tally, WITH));
    println!("{} crash states", tally.total());
    assert!(tally.total() > 10_000, "{}", tally.total());
}

fn open() -> Store<MemoryFile> {
    Store::open(MemoryFile::default(), Options::default()).expect("opens")
}

#[test]
fn many_keys_that_are_due_at_once_are_absent_at_once_and_deleted_in_slices() {
    const KEYS: u32 = 20_000;
    let mut store = open();
    store.set_now(START).expect("nothing is lost");
    for key in 0..KEYS {
        let expiry = START + 1 + key % 50;
        store.set_with_expiry(2, &key.to_be_bytes(), b"value", expiry).expect("set");
        store.set(3, &key.to_be_bytes(), b"stays").expect("set");
    }
    store.commit().expect("commit");
    while store.maintain(false).expect("maintain") {}
    store.set_now(START + 100).expect("nothing is lost");
    assert_eq!(store.live_count(2), Ok(0));
    assert!(store.due().expect("counts") > u64::from(KEYS) - 100, "the rest waits");
    assert_eq!(store.keys(2), Ok(vec![]));
    assert_eq!(store.keys(3).map(|keys| keys.len()), Ok(KEYS as usize));
    assert_eq!(store.get(2, &7_u32.to_be_bytes()), Ok(None));
    let mut steps = 0;
    let mut waiting = store.due().expect("counts");
    while store.maintain(false).expect("maintain") {
        steps += 1;
        let left = store.due().expect("counts");
        assert!(waiting - left <= 64, "a step deleted {}", waiting - left);
        waiting = left;
    }
    assert!(steps >= KEYS / 64 - 2, "{steps} steps");
    assert_eq!((store.due(), store.count(2)), (Ok(0), 0));
    let left = store.keys(KEYSPACE_ENGINE).expect("keys");
    assert!(left.iter().all(|key| expiry_of(key).is_none()), "no entries are left");
}

#[test]
fn clock_that_was_wrong_can_be_corrected_once_all_that_was_due_is_deleted() {
    let mut store = open();
    store.set_now(START).expect("nothing is lost");
    store.set_with_expiry(0, b"gone", b"", START + 10).expect("set");
    store.set_with_expiry(0, b"later", b"", START + 3 * YEAR).expect("set");
    store.set_now(START + YEAR).expect("nothing is lost");
    assert_eq!(store.has(0, b"gone"), Ok(false));
    store.set_now(START).expect("nothing is lost");
    assert_eq!((store.now(), store.has(0, b"gone")), (START, Ok(false)));
    store.set_with_expiry(0, b"new", b"", START + 10).expect("set");
    let file = store.close().map_err(|(_, error)| error).expect("closes");
    let mut store = Store::open(file, Options::default()).expect("opens");
    store.set_now(START).expect("nothing is lost");
    assert_eq!((store.now(), store.has(0, b"new")), (START, Ok(true)));
    // While something waits to be deleted, time does not go back.
    let savepoint = store.savepoint();
    store.set_now(START + YEAR).expect("nothing is lost");
    store.set_now(START).expect("nothing is lost");
    assert_eq!((store.now(), store.has(0, b"new")), (START + YEAR, Ok(false)));
    store.release(savepoint).expect("release");
    assert_eq!(store.has(0, b"later"), Ok(true));
}

#[test]
fn read_only_store_hides_what_has_expired_and_counts_without_it() {
    let mut store = open();
    store.set_now(START).expect("nothing is lost");
    store.set_with_expiry(0, b"a", b"1", START + 10).expect("set");
    store.set(0, b"b", b"2").expect("set");
    let file = store.close().map_err(|(_, error)| error).expect("closes");
    let bytes = file.bytes.clone();
    let options = Options { read_only: true, ..Options::default() };
    let mut store = Store::open(MemoryFile { bytes: bytes.clone() }, options).expect("opens");
    store.set_now(START + 10).expect("nothing is lost");
    assert_eq!(store.get(0, b"a"), Ok(None));
    assert_eq!(store.live_count(0), Ok(1));
    assert_eq!(store.keys(0), Ok(vec![b"b".to_vec()]));
    let file = store.close().map_err(|(_, error)| error).expect("closes");
    assert_eq!(file.bytes, bytes);
}

#[test]
fn key_that_is_too_long_to_expire_is_refused_and_stored_otherwise() {
    let mut store = open();
    let key = vec![b'k'; max_expiring_key() + 1];
    assert_eq!(store.set_with_expiry(0, &key, b"", START), Err(Error::ExpiringKeyTooLong));
    assert_eq!(store.set(0, &key, b""), Ok(store.stats().next_version - 1));
    assert_eq!(store.touch(0, &key, START), Err(Error::ExpiringKeyTooLong));
    assert!(store.set_with_expiry(0, &key[1..], b"", START).is_ok());
    assert_eq!(store.has(0, &key), Ok(true));
}

#[test]
fn records_keep_their_expiry_when_a_damaged_file_is_salvaged() {
    use varve::engine::OnDamage;
    let options = Options { segment_log2: 12, ..Options::default() };
    let mut store = Store::open(MemoryFile::default(), options).expect("opens");
    store.set_now(START).expect("nothing is lost");
    for key in 0..200_u32 {
        let expiry = if key % 2 == 0 { 0 } else { START + key };
        store.set_with_expiry(0, &key.to_be_bytes(), &[7; 40], expiry).expect("set");
        store.commit().expect("commit");
    }
    let mut bytes = store.close().map_err(|(_, error)| error).expect("closes").bytes;
    bytes[8192 + 3 * 4096 + 1000] ^= 1;
    let options = Options { on_damage: OnDamage::Salvage, ..options };
    let mut store = Store::open(MemoryFile { bytes }, options).expect("opens");
    assert!(store.recovery().damaged);
    let (mut kept, mut expiring) = (0, 0);
    for key in 0..200_u32 {
        let expected = if key % 2 == 0 { 0 } else { START + key };
        if let Some(expiry) = store.expiry(0, &key.to_be_bytes()).expect("reads") {
            assert_eq!(expiry, expected);
            kept += 1;
            expiring += u64::from(expiry != 0);
        }
    }
    assert!(kept > 150, "{kept} are kept");
    // Beside the entries there are the time, and what is known of deletions.
    assert_eq!(store.count(KEYSPACE_ENGINE), expiring + 2);
    store.set_now(START + 1_000).expect("nothing is lost");
    assert_eq!(store.live_count(0), Ok(kept - expiring));
}

/// A store with 60 keys that are due at `START + 10`, in which `write` fills the open batch, on a disk that is full then.
fn full_while_due(write: impl FnOnce(&mut Store<FaultFile>) -> Result<(), Error>) -> bool {
    let file = FaultFile::default();
    let options = Options { segment_log2: 16, ..Options::default() };
    let mut store = Store::open(file.clone(), options).expect("opens");
    store.set_now(START).expect("nothing is lost");
    for key in 0..60_u8 {
        store.set_with_expiry(2, &[key], b"value", START + 10).expect("set");
    }
    store.commit().expect("commit");
    while store.maintain(false).expect("maintain") {}
    file.arm(Fault { nth: 0, lasting: true, failure: FailureMode::Fail(IoError::Quota) });
    let written = write(&mut store).and_then(|()| store.commit());
    assert!(matches!(written, Ok(()) | Err(Error::Quota)), "{written:?}");
    file.heal();
    let is_there = store.get(2, b"written") == Ok(Some(&b"value"[..]));
    assert_eq!(is_there, written.is_ok(), "a write is lost if and only if a call says so");
    store.set_now(START + 10).expect("there is space");
    assert_eq!(store.live_count(2), Ok(u64::from(is_there)));
    is_there
}

#[test]
fn deleting_what_is_due_on_a_full_disk_loses_no_write_without_an_error() {
    let mut lost = 0;
    let batch = |store: &mut Store<FaultFile>, bytes: usize| {
        store.set(2, b"written", b"value")?;
        // In another keyspace, so that only the one key is looked for.
        store.set(4, b"filler", &vec![7; bytes]).map(|_| ())
    };
    for bytes in (12_000..16_500).step_by(100) {
        // The time comes while the batch is open,
        lost += u32::from(!full_while_due(|store| {
            batch(store, bytes)?;
            store.set_now(START + 10).map(|_| ())
        }));
        // inside of a transaction that succeeds,
        lost += u32::from(!full_while_due(|store| {
            let savepoint = store.savepoint();
            batch(store, bytes)?;
            store.set_now(START + 10)?;
            store.release(savepoint)
        }));
        // inside of one that is rolled back,
        lost += u32::from(!full_while_due(|store| {
            batch(store, bytes)?;
            let savepoint = store.savepoint();
            store.set_now(START + 10)?;
            store.rollback(savepoint);
            Ok(())
        }));
    }
    assert!(lost > 20, "{lost}");
}

#[test]
fn clock_that_was_corrected_brings_nothing_back_although_the_deletions_were_lost_on_a_full_disk() {
    let file = FaultFile::default();
    let options = Options { segment_log2: 16, ..Options::default() };
    let mut store = Store::open(file.clone(), options).expect("opens");
    store.set_now(START).expect("nothing is lost");
    store.set_with_expiry(2, b"gone", b"value", START + 10).expect("set");
    store.set_with_expiry(2, b"later", b"value", START + 2 * YEAR).expect("set");
    store.commit().expect("commit");
    while store.maintain(false).expect("maintain") {}
    store.set_now(START + YEAR).expect("nothing is lost");
    store.set_now(START).expect("nothing is lost");
    assert_eq!((store.now(), store.has(2, b"gone")), (START, Ok(false)));
    file.arm(Fault { nth: 0, lasting: true, failure: FailureMode::Fail(IoError::Quota) });
    let filled = store.set(4, b"filler", &[7; 16_000]).and_then(|_| store.commit());
    assert_eq!(filled, Err(Error::Quota));
    assert_eq!(store.has(2, b"gone"), Ok(false), "it was absent before");
    file.heal();
    assert_eq!(store.has(2, b"later"), Ok(true));
    store.set_now(START).expect("there is space");
    assert_eq!((store.now(), store.has(2, b"gone")), (START, Ok(false)));
    store.commit().expect("there is space");
    store.set_now(START).expect("there is space");
    assert_eq!((store.now(), store.has(2, b"gone")), (START, Ok(false)));
}

/// The keys of damaged records are missing in the order of keys, in which what is due is found.
#[test]
fn damage_beside_records_that_expire_hides_and_stops_nothing_else() {
    let file = FaultFile::default();
    let options = Options { segment_log2: 12, memory: 0, load_at_once: 4000, ..Options::default() };
    let key = |i: u64| format!("key {i}").into_bytes();
    let value = |i: u64| format!("the value of {i}").into_bytes();
    let mut store = Store::open(file.clone(), options).expect("opens");
    store.set_now(START).expect("nothing is lost");
    store.set_with_expiry(0, b"late", b"1", START + YEAR).expect("set");
    for i in 0..900 {
        store.set(0, &key(i), &value(i)).expect("set");
        if i % 9 == 0 {
            store.commit().expect("committed");
        }
    }
    store.set_with_expiry(0, b"soon", b"1", START + 10).expect("set");
    store.close().map_err(|(_, error)| error).expect("closes");
    let open = || Store::open(file.clone(), options).expect("opens");
    let names = |store: &mut Store<FaultFile>| {
        store.keys(0).map(|keys| keys.into_iter().collect::<BTreeSet<_>>())
    };
    let damaged = value(450);
    let at = file.image().windows(damaged.len()).position(|part| part == damaged).expect("written");
    file.damage(at, 1);
    let mut store = open();
    assert!(matches!(store.get(0, &key(450)), Err(Error::Corruption(_))));

    store.set_now(START + 5).expect("nothing is lost");
    assert_eq!((store.due(), store.live_count(0)), (Ok(0), Ok(902)));
    let then = store.snapshot().expect("taken");
    assert_eq!(store.live_count(then.keyspace(0)), Ok(902));
    assert_eq!(store.get(then.keyspace(0), b"soon"), Ok(Some(&b"1"[..])));
    store.end_snapshot(then);
    store.delete_due_now().expect("nothing is due");
    while store.maintain(false).expect("maintained") {}

    store.set_now(START + 20).expect("nothing is lost");
    assert_eq!((store.has(0, b"soon"), store.live_count(0)), (Ok(false), Ok(901)));
    while store.maintain(false).expect("maintained") {}
    assert_eq!((store.due(), store.count(0)), (Ok(0), 901), "it was deleted");
    assert!(matches!(names(&mut store), Err(Error::Corruption(_))), "a key is missing");
    store.set(0, b"another", b"1").expect("set");
    store.commit().expect("committed");
    while store.maintain(false).expect("maintained") {}
    store.close().map_err(|(_, error)| error).expect("closes");

    let mut store = open();
    assert!(matches!(names(&mut store), Err(Error::Corruption(_))), "no order without it was kept");
    assert_eq!(store.live_count(0), Ok(902));
    // The damage was in the reading: all is there again.
    file.damage(at, 1);
    let mut all: BTreeSet<_> = (0..900).map(key).collect();
    all.extend([b"late".to_vec(), b"another".to_vec()]);
    assert_eq!(names(&mut store), Ok(all.clone()));
    store.close().map_err(|(_, error)| error).expect("closes");

    // A record is not listed twice, nor forgotten, after it could not be read.
    file.damage(
        file.image().windows(damaged.len()).position(|part| part == damaged).expect("there"),
        1,
    );
    let mut store = open();
    store.set_now(START + 30).expect("nothing is lost");
    assert_eq!(store.due(), Ok(0));
    let _ = names(&mut store);
    store.close().map_err(|(_, error)| error).expect("closes");
}

#[test]
fn random_programs_beside_damage_that_comes_and_goes_list_each_key_once() {
    let mut noticed = 0;
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let file = FaultFile::default();
        let memory = if seed.is_multiple_of(2) { 0 } else { 64 << 20 };
        let index_memory = if seed.is_multiple_of(4) { 0 } else { usize::MAX };
        let options = Options {
            segment_log2: 12,
            memory,
            index_memory,
            load_at_once: 4000,
            ..Options::default()
        };
        let mut store = Store::open(file.clone(), options).expect("opens");
        let mut model = BTreeMap::<Vec<u8>, Vec<u8>>::new();
        let value = |write: usize| format!("the value of write {write:06}").into_bytes();
        let mut clock = START;
        store.set_now(clock).expect("nothing is lost");
        let mut met = Vec::new();
        // What was read while it was damaged may still be in memory.
        let mut may_fail = false;
        for write in 0..1600 {
            // The first writes fill the store; later ones often concern what was damaged last.
            let key = match rng.below(4) {
                0 if !met.is_empty() => met.clone(),
                _ => format!("key {}", rng.below(700)).into_bytes(),
            };
            let step = if write < 700 { 40 } else { rng.below(40) };
            match step {
                0 => {
                    store.close().map_err(|(_, error)| error).expect("closes");
                    store = Store::open(file.clone(), options).expect("opens");
                    store.set_now(clock).expect("nothing is lost");
                    may_fail = false;
                }
                1 => while store.maintain(false).expect("maintained") {},
                2 if rng.below(10) == 0 => {
                    store
                        .clear(0, (Bound::Unbounded, Bound::Unbounded), false, u64::MAX)
                        .expect("cleared");
                    model.clear();
                }
                3 => {
                    let Some(damaged) = model.get(&key) else { continue };
                    // Keys are in no order yet after this, and records not in memory.
                    store.close().map_err(|(_, error)| error).expect("closes");
                    store = Store::open(file.clone(), options).expect("opens");
                    store.set_now(clock).expect("nothing is lost");
                    let (image, bytes) = (file.image(), damaged.len());
                    let at = image.windows(bytes).position(|part| part == damaged);
                    let at = at.expect("written");
                    file.damage(at, 1);
                    (met, may_fail) = (key.clone(), true);
                    let during = file.image()[at];
                    store.set_with_expiry(3, b"soon", b"1", clock + 10).expect("set");
                    store.commit().expect("committed");
                    clock += 5;
                    store.set_now(clock).expect("nothing is lost");
                    assert_eq!(store.live_count(3), Ok(1), "seed {seed}, write {write}");
                    clock += 20;
                    store.set_now(clock).expect("nothing is lost");
                    assert_eq!(store.live_count(3), Ok(0), "seed {seed}, write {write}");
                    let listed =
                        store.keys(0).map(|keys| keys.into_iter().collect::<BTreeSet<_>>());
                    match listed {
                        Ok(listed) => {
                            assert!(listed.iter().eq(model.keys()), "seed {seed}, write {write}");
                        }
                        Err(_) => noticed += 1,
                    }
                    // Other data may lie there since.
                    let there = [during, damaged[1], damaged[2]];
                    if file.image().get(at..).is_some_and(|part| part.starts_with(&there)) {
                        file.damage(at, 1);
                    }
                }
                4..9 => match store.delete(0, &key) {
                    Ok(_) => _ = model.remove(&key),
                    Err(error) => assert!(may_fail, "seed {seed}, write {write}: {error}"),
                },
                _ => match store.set(0, &key, &value(write)) {
                    Ok(_) => _ = model.insert(key, value(write)),
                    Err(error) => assert!(may_fail, "seed {seed}, write {write}: {error}"),
                },
            }
            if rng.below(9) == 0 {
                store.commit().expect("committed");
            }
            if rng.below(30) == 0 {
                match store.keys(0) {
                    Ok(listed) => {
                        assert!(listed.iter().eq(model.keys()), "seed {seed}, write {write}")
                    }
                    Err(error) => assert!(may_fail, "seed {seed}, write {write}: {error}"),
                }
            }
        }
    }
    assert!(noticed > 30, "{noticed} listings met damage");
}
