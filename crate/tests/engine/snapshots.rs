//! Snapshots show the content when they were taken, whatever happens afterwards, and change nothing for others.

use std::collections::BTreeMap;
use std::ops::Bound;

use varve::engine::store::SnapshotId;
use varve::engine::{Error, Options, Store};

use crate::support::crash_programs::{
    Tally, With, on_two_threads, run_generations, run_with_snapshots, with_replay_hint,
};
use crate::support::fault_file::FaultFile;
use crate::support::rng::{Rng, bytes_of, replayed};
use crate::support::snapshots::range_of;

const ALL: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Unbounded, Bound::Unbounded);

const WITH: With = With { snapshots: true, expiry: false, history: false };

#[test]
fn crash_with_open_snapshots_leaves_an_exact_prefix_of_commits() {
    let tally = Tally::default();
    if let Some(seed) = replayed("VARVE_SNAPSHOT_SEED") {
        return run_generations(seed, &tally, WITH);
    }
    // Beyond these seeds the kinds of programs are drawn.
    let seeds = replayed("VARVE_SNAPSHOT_SEEDS").unwrap_or(4);
    on_two_threads(5000..5000 + seeds, |seed| run_generations(seed, &tally, WITH));
    println!("{} crash states", tally.total());
    assert!(tally.total() > 10_000, "{}", tally.total());
}

#[test]
fn open_snapshots_are_unchanged_after_each_step_of_random_programs() {
    if let Some(seed) = replayed("VARVE_SNAPSHOT_SEED") {
        return run_with_snapshots(seed, 150);
    }
    on_two_threads(5000..5160, |seed| {
        with_replay_hint(
            seed,
            || "if it is given as VARVE_SNAPSHOT_SEED".into(),
            || run_with_snapshots(seed, 150),
        );
    });
}

type Content = BTreeMap<(u32, Vec<u8>), Vec<u8>>;

/// A store, what it contains, and open snapshots with what it contained.
struct Program {
    store: Store<FaultFile>,
    ordered: bool,
    now: Content,
    snapshots: Vec<(SnapshotId, Content)>,
    keys: usize,
}

const KEYSPACES: [u32; 3] = [0, 7, 65_535];

fn key_of(i: usize) -> Vec<u8> {
    let mut key = (i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes().to_vec();
    // Some are too long to be stored inline.
    key.resize(8 + i % 5 * 7, b'.');
    key
}

impl Program {
    fn step(&mut self, rng: &mut Rng) -> Result<(), Error> {
        let keyspace = *rng.pick(&KEYSPACES);
        let key = key_of(rng.below(self.keys));
        let at = (keyspace, key.clone());
        match rng.below(100) {
            0..50 => {
                let length = match rng.below(60) {
                    0 => rng.within(1000..9000),
                    _ => rng.below(60),
                };
                let value = bytes_of(rng.next(), length);
                self.store.set(keyspace, &key, &value)?;
                self.now.insert(at, value);
            }
            50..60 => {
                let existed = self.now.remove(&at).is_some();
                assert_eq!(self.store.delete(keyspace, &key)?, existed);
            }
            60..66 => {
                let fill = rng.next();
                let change = |bytes: &mut [u8]| {
                    bytes.copy_from_slice(&bytes_of(fill, bytes.len()));
                    Ok(None)
                };
                let exists = self.store.update_if(keyspace, &key, |_| true, change)?;
                if let Some(value) = self.now.get_mut(&at) {
                    *value = bytes_of(fill, value.len());
                }
                assert_eq!(exists, self.now.contains_key(&at));
            }
            66..72 => {
                let savepoint = self.store.savepoint();
                let before = self.now.clone();
                for _ in 0..rng.below(12) {
                    let key = key_of(rng.below(self.keys));
                    self.store.set(keyspace, &key, b"tried")?;
                    self.now.insert((keyspace, key), b"tried".to_vec());
                }
                if rng.one_in(8) {
                    self.store.empty(keyspace)?;
                    self.now.retain(|(other, _), _| *other != keyspace);
                    self.store.set(keyspace, &key, b"after")?;
                    self.now.insert(at, b"after".to_vec());
                }
                if rng.one_in(2) {
                    self.store.rollback(savepoint);
                    self.now = before;
                } else {
                    self.store.release(savepoint)?;
                }
            }
            72..74 if self.ordered => {
                let lower = key_of(rng.below(self.keys));
                let bounds = (Bound::Included(&lower[..]), Bound::Unbounded);
                let limit = rng.below(20);
                self.store.clear(keyspace, bounds, false, limit as u64)?;
                let gone = self.now.range(&(keyspace, lower.clone())..);
                let gone = gone.map(|(key, _)| key).filter(|key| key.0 == keyspace).take(limit);
                for key in gone.cloned().collect::<Vec<_>>() {
                    self.now.remove(&key);
                }
            }
            74 if rng.one_in(5) => {
                self.store.empty(keyspace)?;
                self.now.retain(|(other, _), _| *other != keyspace);
            }
            75..79 => {
                if self.snapshots.len() < 5 {
                    let snapshot = self.store.snapshot()?;
                    self.snapshots.push((snapshot, self.now.clone()));
                }
            }
            79..82 => {
                if !self.snapshots.is_empty() {
                    let (snapshot, _) = self.snapshots.remove(rng.below(self.snapshots.len()));
                    self.store.end_snapshot(snapshot);
                    assert_eq!(self.store.get(snapshot.keyspace(0), b"x"), Err(Error::NotOpen));
                }
            }
            82..86 => self.store.commit()?,
            86 => self.store.flush()?,
            87..89 => _ = self.store.end_turn(),
            89..97 => {
                let mut more = self.store.maintain(rng.one_in(3))?;
                for _ in 0..rng.below(30) {
                    more = more && self.store.maintain(false)?;
                }
            }
            97 => {
                let mut steps = 0;
                while self.store.maintain(false)? {
                    steps += 1;
                    assert!(steps < 100_000, "maintenance does not end");
                }
            }
            _ => self.check(rng, 20),
        }
        Ok(())
    }

    /// Compares the store and each snapshot with what they must show; so many keys are read.
    fn check(&mut self, rng: &mut Rng, reads: usize) {
        let Program { store, now, snapshots, keys, ordered } = self;
        let shown = snapshots.iter().map(|(snapshot, content)| (Some(*snapshot), content));
        for (snapshot, content) in shown.chain([(None, &*now)]) {
            for plain in KEYSPACES {
                let keyspace = snapshot.map_or(plain, |snapshot| snapshot.keyspace(plain));
                let all: Vec<_> = content.iter().filter(|(key, _)| key.0 == plain).collect();
                assert_eq!(store.count(keyspace), all.len() as u64);
                for _ in 0..reads {
                    let key = key_of(rng.below(*keys));
                    let wanted = content.get(&(plain, key.clone())).map(|value| &value[..]);
                    assert_eq!(store.get(keyspace, &key), Ok(wanted), "{key:?} of {snapshot:?}");
                }
                if !*ordered || rng.one_in(3) {
                    continue;
                }
                let (one, other) = (key_of(rng.below(*keys)), key_of(rng.below(*keys)));
                let (low, high) = (one.clone().min(other.clone()), one.max(other));
                let bounds = [ALL, (Bound::Included(&low[..]), Bound::Excluded(&high[..]))];
                for bounds in bounds {
                    let wanted: Vec<_> = all
                        .iter()
                        .map(|((_, key), _)| key.clone())
                        .filter(|key| bounds == ALL || low <= *key && *key < high)
                        .collect();
                    assert_eq!(store.count_range(keyspace, bounds), Ok(wanted.len() as u64));
                    let seen = range_of(store, keyspace, bounds, false);
                    assert!(seen == wanted, "{} keys and not {}", seen.len(), wanted.len());
                    let mut back = range_of(store, keyspace, bounds, true);
                    back.reverse();
                    assert!(back == wanted, "backwards");
                }
            }
        }
    }
}

fn run(seed: u64, options: Options, keys: usize, steps: usize) {
    let mut rng = Rng::new(seed);
    let file = FaultFile::default();
    let store = Store::open(file.clone(), options).expect("open");
    let ordered = options.ordered;
    let mut program = Program { store, ordered, now: Content::new(), snapshots: vec![], keys };
    for i in 0..keys {
        let (key, value) = (key_of(i), bytes_of(i as u64, 12));
        program.store.set(0, &key, &value).expect("set");
        program.now.insert((0, key), value);
    }
    while program.store.maintain(false).expect("maintain") {}
    for _ in 0..steps {
        program.step(&mut rng).expect("nothing fails");
    }
    program.check(&mut rng, 200);
    for (snapshot, _) in program.snapshots.drain(..) {
        program.store.end_snapshot(snapshot);
    }
    assert_eq!(program.store.snapshot_stats(), Default::default());
    let mut more = program.store.maintain(true).expect("maintain");
    while more {
        more = program.store.maintain(false).expect("maintain");
    }
    program.check(&mut rng, 200);
    program.store.close().map_err(|(_, error)| error).expect("close");
    program.store = Store::open(file, options).expect("open");
    program.check(&mut rng, 200);
}

#[test]
fn snapshots_match_a_list_of_states() {
    let small = Options { segment_log2: 13, memory: 1 << 16, ..Options::default() };
    for seed in 0..replayed("VARVE_MODEL_SEEDS").unwrap_or(12) {
        run(seed, small, 40, 1500);
        // With runs of keys, and loaded block by block.
        run(seed, Options { load_at_once: 0, ..small }, 600, 1500);
        // With a limited hash index.
        run(seed, Options { load_at_once: 0, index_memory: 4 << 10, ..small }, 3000, 1500);
        run(seed, Options { ordered: false, ..small }, 300, 1500);
        let limited = Options { load_at_once: 0, index_memory: 4 << 10, ordered: false, ..small };
        run(seed, limited, 3000, 1500);
    }
}
