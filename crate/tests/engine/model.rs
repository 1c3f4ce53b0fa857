//! Random programs compared with a `BTreeMap`, with reopens and crashes; failing programs are
//! shrunk.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};

use varve::engine::format::inline_limit;
use varve::engine::store::PinId;
use varve::engine::{Error, MemoryFile, Options, Savepoint, Store};

use crate::support::oracle::{KEYSPACES, chunked_values};
use crate::support::rng::{Rng, bytes_of, replayed};

/// More maintenance steps than are ever needed at once.
const ALL: usize = 5_000;

#[derive(Clone, Debug)]
enum Op {
    Set {
        at: KeyId,
        len: usize,
        fill: u64,
    },
    /// As the wasm boundary does it: first the capacity, then the bytes, then their number.
    Staged {
        at: KeyId,
        capacity: usize,
        len: usize,
        fill: u64,
    },
    /// A staged record that is aborted.
    AbortedSet {
        at: KeyId,
        capacity: usize,
    },
    /// An update that is begun, perhaps resized, and then aborted.
    AbortedUpdate {
        at: KeyId,
        resize: Option<usize>,
    },
    Delete(KeyId),
    /// Clears a keyspace by one record.
    Empty(u32),
    /// Deletes the keys between two bounds, or all.
    Clear {
        keyspace: u32,
        ends: Option<(Vec<u8>, Vec<u8>)>,
        reverse: bool,
        limit: usize,
    },
    FalsePredicate(KeyId),
    FailingUpdate(KeyId),
    InPlace {
        at: KeyId,
        fill: u64,
    },
    Resize {
        at: KeyId,
        len: usize,
        fill: u64,
    },
    Read(KeyId),
    Scan(u32),
    /// Sorts the keys of the records in this many more positions.
    Sort(u32),
    Range {
        keyspace: u32,
        from: Vec<u8>,
        to: Vec<u8>,
        reverse: bool,
        limit: usize,
    },
    /// Pins a value until it is unpinned or the store is reopened.
    Pin(KeyId),
    /// Unpins the value that was pinned first.
    Unpin,
    /// This many maintenance steps, either of a full compaction or of what is worth its cost.
    Maintain {
        steps: usize,
        all: bool,
    },
    EndTurn,
    Savepoint,
    Release,
    Rollback,
    Commit,
    Flush,
    Reopen,
    Crash,
}

/// A keyspace and a key.
type KeyId = (u32, Vec<u8>);
type Map = BTreeMap<KeyId, (Vec<u8>, u64)>;

struct Model {
    store: Option<Store<MemoryFile>>,
    options: Options,
    now: Map,
    committed: Map,
    saved: Vec<(Savepoint, Map)>,
    /// The pinned values.
    pinned: Vec<(PinId, Vec<u8>)>,
    /// The largest version returned since the last opening, and the largest found at an opening.
    /// Versions of uncommitted changes may be assigned again.
    version: u64,
    committed_version: u64,
}

type Checked = Result<(), String>;

fn check(holds: bool, what: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(what()) }
}

fn failed(what: &'static str) -> impl Fn(Error) -> String {
    move |e| format!("{what} failed: {e}")
}

impl Model {
    fn new(options: Options) -> Self {
        let store = Store::open(MemoryFile::default(), options).expect("a new file opens");
        Model {
            store: Some(store),
            options,
            now: Map::new(),
            committed: Map::new(),
            saved: vec![],
            pinned: vec![],
            version: 0,
            committed_version: 0,
        }
    }

    fn store(&mut self) -> &mut Store<MemoryFile> {
        self.store.as_mut().expect("the store is open")
    }

    fn run(&mut self, op: &Op) -> Checked {
        match op {
            Op::Set { at, len, fill } => self.set(at, *len, *fill)?,
            Op::Staged { at, capacity, len, fill } => {
                self.staged_set(at, *capacity, *len, *fill)?
            }
            Op::AbortedSet { at, capacity } => {
                self.store().begin_set(at.0, &at.1, *capacity).map_err(failed("begin_set"))?;
                self.store().staged_value().fill(0xEE);
                self.store().abort();
                self.read(at)?;
            }
            Op::AbortedUpdate { at, resize } => self.aborted_update(at, *resize)?,
            Op::Delete(at) => {
                let existed = self.now.remove(at).is_some();
                let found = self.store().delete(at.0, &at.1).map_err(failed("delete"))?;
                check(found == existed, || format!("delete returns {found}"))?;
            }
            Op::Empty(keyspace) => self.empty(*keyspace)?,
            Op::Clear { keyspace, ends, reverse, limit } => {
                self.clear(*keyspace, ends.as_ref(), *reverse, *limit)?;
            }
            Op::FalsePredicate(at) => self.update(at, false, None, 0)?,
            Op::FailingUpdate(at) => self.failing_update(at)?,
            Op::InPlace { at, fill } => self.update(at, true, None, *fill)?,
            Op::Resize { at, len, fill } => self.update(at, true, Some(*len), *fill)?,
            Op::Read(at) => self.read(at)?,
            Op::Scan(keyspace) => self.scan(*keyspace)?,
            Op::Sort(positions) => {
                self.store().sort(*positions).map_err(failed("sort"))?;
            }
            Op::Range { keyspace, from, to, reverse, limit } => {
                self.range(*keyspace, (from, to), *reverse, *limit)?;
            }
            Op::Pin(at) if self.saved.is_empty() && self.pinned.len() < 3 => {
                let pin = self.store().pin(at.0, &at.1).map_err(failed("pin"))?;
                let value = self.now.get(at).map(|(value, _)| value.clone());
                check(pin.is_some() == value.is_some(), || format!("a pin of {at:?}: {pin:?}"))?;
                self.pinned.extend(pin.zip(value));
            }
            Op::Unpin if !self.pinned.is_empty() => {
                let (pin, _) = self.pinned.remove(0);
                self.store().unpin(pin);
            }
            Op::Maintain { steps, all } if self.saved.is_empty() => {
                let mut more = self.store().maintain(*all).map_err(failed("maintain"))?;
                for _ in 1..*steps {
                    more = more && self.store().maintain(false).map_err(failed("maintain"))?;
                }
                check(!more || *steps < ALL, || "maintenance has no end".into())?;
            }
            Op::EndTurn => {
                self.store().end_turn();
                self.check_pins()?;
            }
            Op::Savepoint if self.saved.len() < 4 => {
                let savepoint = self.store().savepoint();
                self.saved.push((savepoint, self.now.clone()));
            }
            Op::Release => {
                if let Some((savepoint, _)) = self.saved.pop() {
                    self.store().release(savepoint).map_err(failed("release"))?;
                }
            }
            Op::Rollback => {
                if let Some((savepoint, map)) = self.saved.pop() {
                    self.store().rollback(savepoint);
                    self.now = map;
                }
            }
            Op::Commit if self.saved.is_empty() => {
                self.store().commit().map_err(failed("commit"))?;
            }
            Op::Flush if self.saved.is_empty() => {
                self.store().flush().map_err(failed("flush"))?;
            }
            Op::Reopen if self.saved.is_empty() => self.reopen()?,
            Op::Crash => self.crash()?,
            Op::Savepoint | Op::Commit | Op::Flush | Op::Reopen => {}
            Op::Pin(_) | Op::Unpin | Op::Maintain { .. } => {}
        }
        if self.saved.is_empty() && self.store().stats().pending_bytes == 0 {
            self.committed.clone_from(&self.now);
        }
        Ok(())
    }

    fn set(&mut self, at: &KeyId, len: usize, fill: u64) -> Checked {
        let value = bytes_of(fill, len);
        let version = self.store().set(at.0, &at.1, &value).map_err(failed("set"))?;
        self.next_version(version)?;
        self.now.insert(at.clone(), (value, version));
        self.read(at)
    }

    fn staged_set(&mut self, at: &KeyId, capacity: usize, len: usize, fill: u64) -> Checked {
        let value = bytes_of(fill, len);
        let store = self.store();
        store.begin_set(at.0, &at.1, capacity).map_err(failed("begin_set"))?;
        store.staged_value().fill(0xCC);
        store.staged_value()[..len].copy_from_slice(&value);
        let version = store.finish(len).map_err(failed("finish"))?;
        self.next_version(version)?;
        self.now.insert(at.clone(), (value, version));
        self.read(at)
    }

    fn aborted_update(&mut self, at: &KeyId, resize: Option<usize>) -> Checked {
        let there = self.now.contains_key(at);
        let store = self.store();
        let begun = store.begin_update(at.0, &at.1).map_err(failed("begin_update"))?;
        check(begun == there, || format!("begin_update returns {begun}"))?;
        if begun {
            store.staged_value().fill(0xEE);
            if let Some(capacity) = resize {
                store.resize_update(capacity).map_err(failed("resize_update"))?;
                store.staged_value().fill(0xDD);
            }
            store.abort();
        }
        self.read(at)
    }

    fn empty(&mut self, keyspace: u32) -> Checked {
        let before = self.now.len();
        self.now.retain(|(other, _), _| *other != keyspace);
        let deleted = (before - self.now.len()) as u64;
        let returned = self.store().empty(keyspace).map_err(failed("empty"))?;
        check(returned == deleted, || format!("empty returns {returned} keys, not {deleted}"))?;
        check(self.store().count(keyspace) == 0, || "an emptied keyspace has keys".into())
    }

    fn clear(
        &mut self,
        keyspace: u32,
        ends: Option<&(Vec<u8>, Vec<u8>)>,
        reverse: bool,
        limit: usize,
    ) -> Checked {
        let bounds = match ends {
            Some((from, to)) => (Bound::Excluded(&from[..]), Bound::Included(&to[..])),
            None => (Bound::Unbounded, Bound::Unbounded),
        };
        let returned = self.store().clear(keyspace, bounds, reverse, limit as u64);
        let returned = returned.map_err(failed("clear"))?;
        let inside = |key: &Vec<u8>| ends.is_none_or(|(from, to)| from < key && key <= to);
        let all = self.now.keys().filter(|(ks, key)| *ks == keyspace && inside(key));
        let mut deleted: Vec<_> = all.cloned().collect();
        if reverse {
            deleted.reverse();
        }
        deleted.truncate(limit);
        deleted.iter().for_each(|at| drop(self.now.remove(at)));
        check(returned == deleted.len() as u64, || {
            format!("clear returns {returned}, not {}", deleted.len())
        })?;
        let left = self.now.keys().filter(|(other, _)| *other == keyspace).count();
        let returned = self.store().count(keyspace);
        check(returned == left as u64, || format!("{returned} keys are left, not {left}"))
    }

    fn range(
        &mut self,
        keyspace: u32,
        ends: (&[u8], &[u8]),
        reverse: bool,
        limit: usize,
    ) -> Checked {
        let (from, to) = ends;
        let mut keys = vec![];
        let bounds = (Bound::Excluded(from), Bound::Included(to));
        let visit = |key: &[u8], _| {
            keys.push(key.to_vec());
            keys.len() < limit
        };
        let answer = self.store().range(keyspace, bounds, reverse, visit);
        answer.map_err(failed("range"))?;
        keys.truncate(limit);
        let inside = |k: &[u8]| from < k && k <= to;
        let all = self.now.keys().filter(|(ks, k)| *ks == keyspace && inside(k));
        let mut expected: Vec<_> = all.map(|(_, k)| k.clone()).collect();
        if reverse {
            expected.reverse();
        }
        expected.truncate(limit);
        check(keys == expected, || format!("{from:?}..={to:?} gives {keys:?}, not {expected:?}"))
    }

    fn next_version(&mut self, version: u64) -> Checked {
        check(version > self.version, || format!("version {version} after {}", self.version))?;
        self.version = version;
        Ok(())
    }

    fn update(&mut self, at: &KeyId, accept: bool, resize: Option<usize>, fill: u64) -> Checked {
        let before = self.now.get(at).map(|(value, _)| value.clone());
        let value = bytes_of(fill, resize.or(before.as_ref().map(Vec::len)).unwrap_or(0));
        let answer = self.store().update_if(
            at.0,
            &at.1,
            |seen| {
                assert_eq!(Some(seen), before.as_deref(), "the value that the predicate receives");
                accept
            },
            |bytes| {
                assert_eq!(
                    Some(&*bytes),
                    before.as_deref(),
                    "the value that the callback receives"
                );
                if resize.is_some() {
                    // The bytes that were replaced must not matter afterwards.
                    bytes.fill(0xDD);
                    return Ok(Some(value.clone()));
                }
                bytes.copy_from_slice(&value);
                Ok(None)
            },
        );
        let applied = answer.map_err(failed("update"))?;
        check(applied == (accept && before.is_some()), || format!("update returns {applied}"))?;
        if applied {
            let version = self.store().version(at.0, &at.1).unwrap().ok_or("no version")?;
            self.next_version(version)?;
            self.now.insert(at.clone(), (value, version));
        }
        self.read(at)
    }

    fn failing_update(&mut self, at: &KeyId) -> Checked {
        let answer = self.store().update_if(
            at.0,
            &at.1,
            |_| true,
            |bytes| {
                bytes.fill(0xEE);
                Err(())
            },
        );
        let expected = if self.now.contains_key(at) { Err(Error::Aborted) } else { Ok(false) };
        check(answer == expected, || format!("a failing update returns {answer:?}"))?;
        self.read(at)
    }

    fn read(&mut self, at: &KeyId) -> Checked {
        let store = self.store.as_mut().expect("the store is open");
        let version = store.version(at.0, &at.1).unwrap();
        let value = store.get(at.0, &at.1).unwrap();
        let expected = self.now.get(at);
        check(value == expected.map(|(v, _)| v.as_slice()), || {
            let lengths = (value.map(<[u8]>::len), expected.map(|(v, _)| v.len()));
            format!("{at:?} has another value; lengths {lengths:?}")
        })?;
        check(version == expected.map(|&(_, v)| v), || format!("{at:?} has version {version:?}"))?;
        check(store.has(at.0, &at.1).unwrap() == expected.is_some(), || {
            format!("has({at:?}) is wrong")
        })
    }

    fn scan(&mut self, keyspace: u32) -> Checked {
        let keys: Vec<_> = self.store().keys(keyspace).unwrap();
        let expected: Vec<_> =
            self.now.keys().filter(|(ks, _)| *ks == keyspace).map(|(_, k)| k.clone()).collect();
        check(keys == expected, || {
            format!("the keys of {keyspace}: {} found, {} expected", keys.len(), expected.len())
        })?;
        let count = self.store().count(keyspace);
        check(count == keys.len() as u64, || format!("the count of {keyspace} is {count}"))?;
        self.walk(keyspace)
    }

    /// Reads values as scans do: at the position of the record as of the previous scan if the index
    /// still contains that, and otherwise by hash.
    fn walk(&mut self, keyspace: u32) -> Checked {
        let store = self.store.as_mut().expect("the store is open");
        let mut keys = Vec::new();
        let all = (Bound::Unbounded, Bound::Unbounded);
        let visit = |key: &[u8], position| {
            keys.push((key.to_vec(), position));
            true
        };
        store.range(keyspace, all, false, visit).unwrap();
        keys.iter().try_for_each(|(key, was)| {
            let mut positions = [*was];
            if !store.is_current(*was) {
                positions = [store.hash(keyspace, key)];
                store.positions_of(&mut positions);
            }
            let mut key_ids = [None];
            store.prefetch_records(&positions, &mut key_ids);
            let value =
                key_ids[0].and_then(|key_id| store.get_resident(key_id, keyspace, key, false));
            if value.is_none() {
                return Ok(());
            }
            store.index_record(keyspace, key, positions[0]);
            let found = store.get(keyspace, key).unwrap().map(std::ptr::from_ref);
            // Reading a record that is not current any more may have moved it.
            let may_have_moved = store.stats().unswept > 0;
            check(found == value || may_have_moved, || {
                format!("a walk shows another record of {key:?}")
            })
        })
    }

    fn check_pins(&mut self) -> Checked {
        let store = self.store.as_mut().expect("the store is open");
        self.pinned.iter().try_for_each(|(pin, value)| {
            let shown = store.pinned(*pin);
            check(shown == Some(value), || format!("a pinned value of {} bytes", value.len()))
        })
    }

    fn whole(&mut self) -> Checked {
        self.check_pins()?;
        // Chunks of cleared keyspaces are removed by the sweep.
        let is_swept = self.store().stats().unswept == 0;
        let chunked = chunked_values(self.store());
        let is_known = |value| self.now.values().any(|(known, _)| known == value);
        check(!is_swept || chunked.values().all(is_known), || "chunks without a value".into())?;
        for keyspace in KEYSPACES {
            self.scan(keyspace)?;
        }
        let key_ids: Vec<_> = self.now.keys().cloned().collect();
        key_ids.iter().try_for_each(|at| self.read(at))
    }

    fn reopen(&mut self) -> Checked {
        let store = self.store.take().expect("the store is open");
        let file = store.close().map_err(|(_, e)| format!("close failed: {e}"))?;
        self.forget_uncommitted_versions();
        self.open(file)?;
        let clean = self.store().recovery().clean;
        check(clean, || "a close was not noticed".into())?;
        self.whole()
    }

    fn forget_uncommitted_versions(&mut self) {
        let committed = self.now.values().map(|&(_, v)| v).max();
        self.committed_version = self.committed_version.max(committed.unwrap_or(0));
        self.version = self.committed_version;
    }

    fn crash(&mut self) -> Checked {
        self.saved.clear();
        let file = self.store.take().expect("the store is open").into_file();
        self.now.clone_from(&self.committed);
        self.forget_uncommitted_versions();
        self.open(file)?;
        self.whole()
    }

    fn open(&mut self, file: MemoryFile) -> Checked {
        self.pinned.clear();
        self.store = Some(Store::open(file, self.options).map_err(failed("open"))?);
        Ok(())
    }
}

/// The parameters of a program: some have few keys and many collisions, some grow the index.
struct Profile {
    keys: usize,
    alphabet: usize,
    largest: usize,
    rare: usize,
}

fn profile_for(seed: u64, segment: usize) -> Profile {
    match seed % 4 {
        0 => Profile { keys: 8, alphabet: 2, largest: segment, rare: 30 },
        1 => Profile { keys: 300, alphabet: 3, largest: 100, rare: 60 },
        2 => Profile { keys: 20_000, alphabet: 250, largest: 30, rare: 1500 },
        _ => Profile { keys: 40, alphabet: 7, largest: segment / 2, rare: 80 },
    }
}

/// A key is determined by its number; with a small alphabet, keys are prefixes of each other.
fn key_of(number: usize, alphabet: usize) -> Vec<u8> {
    let mut rest = number + 1;
    let mut key = vec![];
    while rest > 0 {
        key.push((rest % alphabet) as u8);
        rest /= alphabet;
    }
    if number % 97 == 13 {
        key.extend_from_slice(&bytes_of(number as u64, 300));
    }
    key
}

fn next_op(rng: &mut Rng, profile: &Profile, segment: usize) -> Op {
    let keyspace = *rng.pick(&KEYSPACES);
    let at = (keyspace, key_of(rng.below(profile.keys), profile.alphabet));
    let fill = rng.next();
    let len = match rng.below(profile.rare) {
        0 => rng.below(segment * 3),
        1 => inline_limit(segment.trailing_zeros() as u8) - 4 + rng.below(9),
        n if n % 5 == 0 => rng.below(profile.largest),
        n if n % 5 == 1 => 0,
        _ => rng.below(24),
    };
    if rng.one_in(profile.rare) {
        return match rng.below(11) {
            8 | 9 => Op::Maintain { steps: rng.within(1..20), all: rng.one_in(3) },
            10 => Op::Maintain { steps: ALL, all: rng.one_in(2) },
            0 | 1 => Op::Reopen,
            2 | 3 => Op::Crash,
            4 => Op::Flush,
            5 => {
                let to = key_of(rng.below(profile.keys), profile.alphabet);
                let (reverse, limit) = (rng.one_in(2), rng.below(profile.keys * 2));
                Op::Range { keyspace, from: at.1, to, reverse, limit }
            }
            _ => Op::Scan(keyspace),
        };
    }
    if rng.one_in(2 * profile.rare) {
        let number = rng.below(profile.keys);
        return match rng.below(5) {
            0 | 1 => Op::Empty(keyspace),
            2 => Op::Clear { keyspace, ends: None, reverse: false, limit: usize::MAX },
            which => Op::Clear {
                keyspace,
                ends: (which == 3).then(|| (at.1, key_of(number, profile.alphabet))),
                reverse: rng.one_in(2),
                limit: if rng.one_in(2) { rng.below(profile.keys) } else { usize::MAX },
            },
        };
    }
    let resize = rng.one_in(2).then_some(len);
    match rng.below(54) {
        53 => Op::Sort(1 << rng.below(12)),
        50 | 51 => Op::Pin(at),
        52 => Op::Unpin,
        40..43 => Op::Staged { at, capacity: len + rng.below(60) * rng.below(60), len, fill },
        43 => Op::AbortedSet { at, capacity: len },
        44 | 45 => Op::AbortedUpdate { at, resize },
        46..48 => Op::EndTurn,
        0..14 => Op::Set { at, len, fill },
        14..18 => Op::Delete(at),
        18..20 => Op::FalsePredicate(at),
        20..22 => Op::FailingUpdate(at),
        22..27 => Op::InPlace { at, fill },
        27..30 => Op::Resize { at, len, fill },
        30..34 => Op::Read(at),
        34 => Op::Savepoint,
        35 => Op::Release,
        36 => Op::Rollback,
        _ => Op::Commit,
    }
}

/// Runs a program; returns the step that failed, and how.
fn run(options: &Options, program: &[Op]) -> Result<(), (usize, String)> {
    let mut model = Model::new(*options);
    for (i, op) in program.iter().enumerate() {
        let outcome = catch_unwind(AssertUnwindSafe(|| model.run(op)));
        let outcome = outcome.unwrap_or_else(|cause| {
            let text = cause.downcast_ref::<String>().cloned();
            let text = text.or(cause.downcast_ref::<&str>().map(|s| (*s).to_string()));
            Err(format!("it panics: {}", text.unwrap_or_default()))
        });
        outcome.map_err(|e| (i, e))?;
    }
    let end = program.len();
    model.whole().and_then(|()| model.crash()).map_err(|e| (end, e))
}

/// Removes parts of a failing program as long as it still fails.
fn shrink(options: &Options, mut program: Vec<Op>) -> Vec<Op> {
    let mut part = program.len() / 2;
    let mut tries = 4000;
    while part > 0 && tries > 0 {
        let mut from = 0;
        while from < program.len() && tries > 0 {
            tries -= 1;
            let mut shorter = program.clone();
            shorter.drain(from..program.len().min(from + part));
            if let Err((step, _)) = run(options, &shorter) {
                shorter.truncate(step + 1);
                program = shorter;
            } else {
                from += part;
            }
        }
        part /= 2;
    }
    program
}

fn run_seed(seed: u64, steps: usize) {
    let mut rng = Rng::new(seed);
    let options = Options {
        segment_log2: 12 + (rng.below(5) as u8),
        entropy: [seed, seed, 0, 1],
        // Four buffers for every other program, so that most records are cold; all in memory for
        // the rest.
        memory: if seed.is_multiple_of(2) { 0 } else { 64 << 20 },
        // The index is loaded at opening, or when it is needed.
        load_at_once: if (seed / 2).is_multiple_of(2) { 0 } else { usize::MAX },
        // In memory it is limited to a few entries, or not.
        index_memory: if (seed / 4).is_multiple_of(2) { 0 } else { usize::MAX },
        ..Options::default()
    };
    let segment = 1 << options.segment_log2;
    let profile = profile_for(seed, segment);
    let program: Vec<_> = (0..steps).map(|_| next_op(&mut rng, &profile, segment)).collect();
    if let Err((step, what)) = run(&options, &program) {
        eprintln!("VARVE_MODEL_SEED={seed}: step {step}: {what}; shrinking");
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let short = shrink(&options, program[..steps.min(step + 1)].to_vec());
        std::panic::set_hook(hook);
        let why = run(&options, &short);
        panic!("VARVE_MODEL_SEED={seed}: step {step}: {what}\nshrunk to {why:?}:\n{short:#?}");
    }
}

#[test]
fn random_programs_match_a_map() {
    const STEPS: usize = 6_000;
    if let Some(seed) = replayed("VARVE_MODEL_SEED") {
        return run_seed(seed, STEPS);
    }
    let seeds = replayed("VARVE_MODEL_SEEDS").unwrap_or(100);
    (0..seeds).for_each(|seed| run_seed(seed, STEPS));
    println!("{} operations", STEPS as u64 * seeds);
}
