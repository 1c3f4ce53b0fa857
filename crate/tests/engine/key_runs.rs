//! The order of keys is kept in runs in the file.

use std::collections::BTreeMap;
use std::ops::Bound;

use varve::engine::format::key_run::block::HEADER;
use varve::engine::format::{DATA_START, segment};
use varve::engine::{Error, IoError, KeyBounds, Options, Store};

use crate::repair;
use crate::support::counting_file::CountingFile;
use crate::support::fault_file::{FailureMode, FaultFile};
use crate::support::rng::Rng;

const SEGMENT: usize = 1 << 16;
const ALL: KeyBounds<'_> = (Bound::Unbounded, Bound::Unbounded);

type Model = BTreeMap<(u32, Vec<u8>), Vec<u8>>;

fn options() -> Options {
    Options { segment_log2: 16, load_at_once: 0, index_memory: 0, ..Options::default() }
}

fn key(i: u64) -> [u8; 8] {
    i.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()
}

fn maintain(store: &mut Store<FaultFile>) {
    while store.maintain(false).expect("maintain") {}
}

fn close(store: Store<FaultFile>) {
    store.close().map_err(|(_, e)| e).expect("close");
}

/// A closed database of this many keys in keyspace 0, whose order is in runs.
fn database(count: u64) -> FaultFile {
    let file = FaultFile::default();
    let mut store = Store::open(file.clone(), options()).expect("open");
    for i in 0..count {
        store.set(0, &key(i), &i.to_le_bytes()).expect("set");
        if i % 5_000 == 0 {
            maintain(&mut store);
        }
    }
    maintain(&mut store);
    close(store);
    file
}

/// Where the segments of runs begin in an image, and where their blocks end.
fn run_segments(image: &[u8]) -> Vec<(usize, usize)> {
    let starts = (DATA_START as usize..image.len()).step_by(SEGMENT);
    let number = |at: usize| u32::from_le_bytes(image[at..at + 4].try_into().expect("four bytes"));
    let is_run =
        |&at: &usize| number(at + 8) == segment::MAGIC && image[at + 12] == segment::KIND_RUN;
    let end = |at| at + segment::SIZE + number(at + 40) as usize;
    starts.filter(is_run).map(|at| (at, end(at))).collect()
}

/// Where each block of runs begins and ends in an image.
fn blocks(image: &[u8]) -> Vec<(usize, usize)> {
    let mut blocks = Vec::new();
    for (start, end) in run_segments(image) {
        let mut at = start + segment::SIZE;
        while at < end {
            let length = u32::from_le_bytes(image[at + 8..at + 12].try_into().expect("four bytes"));
            blocks.push((at, at + length as usize));
            at += length as usize;
        }
    }
    blocks
}

fn keys_of(model: &Model, keyspace: u32) -> Vec<Vec<u8>> {
    model.keys().filter(|(of, _)| *of == keyspace).map(|(_, key)| key.clone()).collect()
}

#[test]
fn first_range_reads_as_much_at_any_number_of_keys() {
    let bytes = [20_000, 200_000].map(|count| {
        let (counting, counts) = CountingFile::new(database(count));
        let mut store = Store::open(counting, options()).expect("open");
        let opened = counts.read();
        let mut keys = Vec::new();
        let lower = key(7);
        let bounds = (Bound::Included(&lower[..]), Bound::Unbounded);
        let visit = |key: &[u8], _| {
            keys.push(key.to_vec());
            keys.len() < 10
        };
        store.range(0, bounds, false, visit).expect("range");
        let mut expected: Vec<_> = (0..count).map(key).filter(|key| *key >= lower).collect();
        expected.sort_unstable();
        assert!(keys.iter().eq(&expected[..10]));
        counts.read() - opened
    });
    // For each run a root, an inner block and one or two leaves.
    assert!(bytes.iter().all(|&bytes| bytes < 200_000), "{bytes:?} bytes");
}

#[test]
fn ranges_and_counts_match_a_map_across_openings_and_checkpoints() {
    for seed in 0..12 {
        let (mut rng, mut model, file) = (Rng::new(seed), Model::new(), FaultFile::default());
        let mut store = Store::open(file.clone(), options()).expect("open");
        for step in 0..400 {
            let keyspace = *rng.pick(&[0, 2, 0xFFFF]);
            for _ in 0..rng.below(60) {
                let key = key(rng.below(2_000) as u64).to_vec();
                if rng.below(3) == 0 {
                    let existed = model.remove(&(keyspace, key.clone())).is_some();
                    assert_eq!(store.delete(keyspace, &key), Ok(existed));
                } else {
                    let value = vec![step as u8; rng.below(200)];
                    store.set(keyspace, &key, &value).expect("set");
                    model.insert((keyspace, key), value);
                }
            }
            match rng.below(40) {
                0 => {
                    store.empty(keyspace).expect("empty");
                    model.retain(|(of, _), _| *of != keyspace);
                }
                1 => {
                    let undone = store.savepoint();
                    store.empty(keyspace).expect("empty");
                    store.set(keyspace, b"undone", b"").expect("set");
                    store.rollback(undone);
                }
                2 | 3 => {
                    close(store);
                    store = Store::open(file.clone(), options()).expect("open");
                }
                4 => {
                    // As a crash leaves it, with a tail to replay.
                    store.flush().expect("flush");
                    drop(store.into_file());
                    store = Store::open(file.clone(), options()).expect("open");
                }
                5..10 => maintain(&mut store),
                10..20 => drop(store.maintain(false).expect("maintain")),
                _ => {}
            }
            let ends = [key(rng.below(2_000) as u64), key(rng.below(2_000) as u64)];
            let bounds =
                [Bound::Unbounded, Bound::Included(&ends[0][..]), Bound::Excluded(&ends[0])];
            let lower = bounds[rng.below(3)];
            let bounds =
                [Bound::Unbounded, Bound::Included(&ends[1][..]), Bound::Excluded(&ends[1])];
            let upper = bounds[rng.below(3)];
            let reverse = rng.below(2) == 0;
            let inside = |key: &Vec<u8>| std::ops::RangeBounds::contains(&(lower, upper), &key[..]);
            let mut expected = keys_of(&model, keyspace);
            expected.retain(inside);
            if reverse {
                expected.reverse();
            }
            let mut keys = Vec::new();
            let visit = |key: &[u8], _| {
                keys.push(key.to_vec());
                true
            };
            store.range(keyspace, (lower, upper), reverse, visit).expect("range");
            assert_eq!(keys, expected, "seed {seed}, step {step}");
            assert_eq!(store.count_range(keyspace, (lower, upper)), Ok(keys.len() as u64));
        }
    }
}

#[test]
fn damaged_block_of_a_run_loses_no_key() {
    let file = database(6_000);
    let image = file.image();
    let blocks = blocks(&image);
    assert!(blocks.len() > 20, "{} blocks", blocks.len());
    let mut expected: Vec<Vec<u8>> = (0..6_000).map(|i| key(i).to_vec()).collect();
    expected.sort_unstable();
    let mut rng = Rng::new(3);
    for (from, end) in blocks {
        let mut image = image.clone();
        image[rng.within(from..end)] ^= 1 << rng.below(8);
        let file = FaultFile::new(image);
        let mut store = Store::open(file.clone(), options()).expect("open");
        // Some keys change before the damage is met, and it may be met in the middle of a range.
        store.set(0, b"new", b"").expect("set");
        store.delete(0, &expected[17]).expect("delete");
        let mut now = expected.clone();
        now.remove(17);
        now.push(b"new".to_vec());
        now.sort_unstable();
        assert_eq!(store.keys(0).expect("keys"), now, "block at {from}");
        let mut last = Vec::new();
        let visit = |key: &[u8], _| {
            last.push(key.to_vec());
            last.len() < 5
        };
        store.range(0, ALL, true, visit).expect("range");
        assert!(last.iter().eq(now.iter().rev().take(5)));
        maintain(&mut store);
        close(store);
        let mut store = Store::open(file.clone(), options()).expect("open");
        assert_eq!(store.keys(0).expect("keys"), now, "after the run was replaced");
        close(store);
    }
}

/// Runs whose checksums hold but that lie: no walk reads beyond a block or goes on for ever.
#[test]
fn malicious_blocks_of_runs_are_survived() {
    let image = database(3_000).image();
    let blocks = blocks(&image);
    let segments = run_segments(&image);
    let mut rng = Rng::new(8);
    for round in 0..1_500 {
        let mut image = image.clone();
        let (from, end) = blocks[rng.below(blocks.len())];
        let (to, to_end) = blocks[rng.below(blocks.len())];
        match round % 4 {
            // Another block in its place, of the same length if possible.
            0 if end - from == to_end - to => image.copy_within(from..end, to),
            1 => image[rng.within(from + HEADER..end)] = rng.next() as u8,
            2 => image[from + 12..from + 16]
                .copy_from_slice(&(rng.below(4_000) as u32).to_le_bytes()),
            // Positions in inner blocks lead elsewhere.
            _ => {
                for _ in 0..6 {
                    image[rng.within(from + HEADER..end)] ^= 1 << rng.below(8);
                }
            }
        }
        for &(start, _) in &segments {
            let salt = u64::from_le_bytes(image[start + 24..start + 32].try_into().expect("salt"));
            let end = start + SEGMENT - segment::SIZE;
            repair::run(&mut image[..end], start + segment::SIZE, salt);
        }
        let mut store = Store::open(FaultFile::new(image), options()).expect("open");
        for reverse in [false, true] {
            let (mut seen, mut last) = (0, Vec::new());
            let walked = store.range(0, ALL, reverse, |key, _| {
                let goes_on =
                    last.is_empty() || if reverse { *key < last[..] } else { *key > last[..] };
                assert!(goes_on, "round {round}: keys are in order");
                last = key.to_vec();
                seen += 1;
                true
            });
            assert_eq!(walked, Ok(()), "round {round}");
            assert!(seen <= 20_000, "round {round}: {seen} keys");
        }
        for i in 0..20 {
            assert!(store.has(0, &key(i)).expect("has"), "round {round}: lookups need no run");
        }
    }
}

#[test]
fn full_disk_leaves_out_runs_and_keeps_all_keys() {
    for spare in 0..12 {
        let file = database(4_000);
        let mut store = Store::open(file.clone(), options()).expect("open");
        let mut expected: Vec<Vec<u8>> = (0..4_000).map(|i| key(i).to_vec()).collect();
        let limit = (file.image().len() + spare * SEGMENT) as u64;
        file.limit(Some((limit, FailureMode::Fail(IoError::Quota))));
        for i in 4_000..9_000 {
            let key = key(i);
            match store.set(0, &key, b"value") {
                Ok(_) => expected.push(key.to_vec()),
                Err(Error::Quota | Error::Full) => break,
                Err(error) => panic!("{error:?}"),
            }
            let _ = store.maintain(false);
        }
        expected.sort_unstable();
        assert_eq!(store.keys(0).expect("keys"), expected, "{spare} spare segments");
        for _ in 0..2_000 {
            match store.maintain(false) {
                Ok(true) => {}
                Ok(false) | Err(Error::Quota | Error::Full) => break,
                Err(error) => panic!("{error:?}"),
            }
        }
        assert_eq!(store.keys(0).expect("keys"), expected, "{spare} spare segments");
        let _ = store.close();
        let mut store = Store::open(file.clone(), options()).expect("open");
        assert_eq!(store.keys(0).expect("keys"), expected, "{spare} spare segments");
    }
}

#[test]
fn overwriting_keys_writes_no_keys_and_runs_stay_few() {
    let file = database(20_000);
    let bytes = |image: &[u8]| -> usize {
        run_segments(image).iter().map(|(start, end)| end - start).sum()
    };
    let before = bytes(&file.image());
    let mut store = Store::open(file.clone(), options()).expect("open");
    for round in 0..60_000_u64 {
        store.set(0, &key(round * 7 % 20_000), &round.to_le_bytes()).expect("set");
        if round % 1_000 == 0 {
            maintain(&mut store);
        }
    }
    maintain(&mut store);
    let after = bytes(&file.image());
    assert!(after < before + before / 2 + 16 * SEGMENT / 4, "{before} bytes, then {after}");
    assert!(run_segments(&file.image()).len() < 40);
    assert_eq!(store.count(0), 20_000);
    assert_eq!(store.keys(0).expect("keys").len(), 20_000);
}

#[test]
fn commit_survives_a_crash_of_a_session_that_does_not_use_the_runs() {
    use varve::engine::OnDamage;
    // Without order, or after damage was to be expected, runs are not used, and their slots stay those of the checkpoint.
    let without = [
        Options { ordered: false, ..Options::default() },
        Options { on_damage: OnDamage::Prefix, ..Options::default() },
    ];
    for without in without {
        let options = |options| Options { segment_log2: 12, load_at_once: 0, ..options };
        let file = FaultFile::default();
        let mut store = Store::open(file.clone(), options(Options::default())).expect("opens");
        for key in 0..300_u32 {
            store.set(0, &key.to_be_bytes(), &[1; 40]).expect("set");
        }
        store.close().map_err(|(_, error)| error).expect("closes");
        let mut store = Store::open(file.clone(), options(without)).expect("opens");
        for key in 0..300_u32 {
            // The slots that become free are reused.
            store.set(0, &(1_000 + key).to_be_bytes(), &[2; 40]).expect("set");
            store.flush().expect("flush");
            store.maintain(false).expect("maintain");
            store.end_turn();
            let image = FaultFile::new(file.image());
            let mut after = Store::open(image, options(Options::default())).expect("opens");
            assert_eq!(after.count(0), u64::from(301 + key), "after {key} commits");
            assert_eq!(after.keys(0).map(|keys| keys.len() as u32), Ok(301 + key));
        }
    }
}
