//! The bound on the file's size: the live data times the space factor (1.5 by default), two
//! checkpoints, and four segments, however rarely there is idle time.

use std::collections::BTreeMap;

use varve::engine::format::checkpoint::BLOCK_ENTRIES;
use varve::engine::{File, MemoryFile, Options, Stats, Store};

use crate::support::counting_file::CountingFile;
use crate::support::rng::Rng;

const SEGMENT: u64 = 1 << 16;
const VALUE: usize = 200;

/// How a program uses its store.
#[derive(Clone, Copy, Debug)]
struct Workload {
    factor: u32,
    keys: u64,
    /// Keys written between two turns, and maintenance steps done then.
    writes: u64,
    steps: usize,
    /// Whether some keys are written far more often than others.
    skewed: bool,
}

/// The space that one checkpoint takes, with its runs of keys.
fn checkpoint_size(stats: &Stats, segment: u64) -> u64 {
    // Each block has a checksum, and its first hash in the head; so has each segment a row.
    let blocks = stats.count.div_ceil(BLOCK_ENTRIES as u64);
    let tables = 4096.max(256 + 40 * stats.segments);
    let run = (32 * stats.count).div_ceil(segment) + 1;
    ((8 * stats.count + 12 * blocks + tables).div_ceil(segment) + run) * segment
}

/// The maximum size of the file, how much of that is for one checkpoint, and its actual size.
fn size_limits<F: File>(store: &Store<F>, factor: u32) -> [u64; 3] {
    let stats = store.stats();
    let checkpoint = checkpoint_size(&stats, SEGMENT);
    let bound = 8192 + stats.live_bytes * u64::from(factor) / 100 + 2 * checkpoint + 4 * SEGMENT;
    [bound, checkpoint, stats.file_bytes]
}

fn live(workload: Workload) {
    let options = Options { factor: workload.factor, segment_log2: 16, ..Options::default() };
    let mut store = Store::open(MemoryFile::default(), options).expect("opens");
    let mut rng = Rng::new(workload.keys);
    for i in 0..(workload.keys * 12).max(20_000) {
        let mut key = if i < workload.keys { i } else { rng.below(workload.keys as usize) as u64 };
        if workload.skewed {
            key = rng.below(key as usize + 1) as u64;
        }
        store.set(0, &key.to_be_bytes(), &[i as u8; VALUE]).expect("set");
        if i % workload.writes == 0 {
            store.commit().expect("commit");
            store.end_turn();
            for _ in 0..workload.steps {
                store.maintain(false).expect("maintain");
            }
        }
        if i % 16 == 0 {
            let [bound, checkpoint, file] = size_limits(&store, workload.factor);
            // A checkpoint that does not fit in the slots of the previous ones takes new slots, and
            // the old ones become free.
            assert!(
                file <= bound + 2 * checkpoint,
                "{workload:?}: {file} of {bound} bytes after {i} writes"
            );
        }
    }
    while store.maintain(false).expect("maintain") {}
    let [bound, _, file] = size_limits(&store, workload.factor);
    assert!(file <= bound, "{workload:?}: {file} of {bound} bytes in the end");
}

#[test]
fn file_size_bound_holds_with_rare_idle_time() {
    for factor in [120, 150, 300] {
        for keys in [20, 300, 1000, 3_000, 10_000] {
            for (writes, steps) in [(u64::MAX, 0), (700, 0), (300, 1), (100, 50)] {
                for skewed in [false, true] {
                    live(Workload { factor, keys, writes, steps, skewed });
                }
            }
        }
    }
    live(Workload { factor: 150, keys: 30_000, writes: 900, steps: 1, skewed: true });
    live(Workload { factor: 120, keys: 30_000, writes: u64::MAX, steps: 0, skewed: true });
}

/// Sets and deletes values of all sizes, so that the remaining ones are scattered between free
/// slots; then compacts. Returns how many steps that took.
fn compact_scattered(seed: u64) -> usize {
    let options = Options { segment_log2: 12, entropy: [seed, 1, 2, 3], ..Options::default() };
    let mut store = Store::open(MemoryFile::default(), options).expect("opens");
    let mut rng = Rng::new(seed);
    for _ in 0..rng.within(20..200) {
        let key = [rng.below(24) as u8];
        if rng.one_in(3) {
            store.delete(0, &key).expect("delete");
        } else {
            let length = *rng.pick(&[20, 700, 2_000, 3_800, 7_000, 15_000]);
            store.set(0, &key, &vec![key[0]; length]).expect("set");
        }
        store.flush().expect("flush");
        if rng.one_in(8) {
            store.maintain(false).expect("maintain");
        }
    }
    let mut steps = 1;
    let mut goes_on = store.maintain(true).expect("maintain");
    while goes_on {
        steps += 1;
        assert!(steps < 500, "seed {seed}: compaction does not come to an end");
        goes_on = store.maintain(false).expect("maintain");
    }
    steps
}

#[test]
fn compaction_terminates_despite_obstacles() {
    let most = (0..400).map(compact_scattered).max();
    println!("at most {most:?} slices");
}

/// The bytes that each maintenance step reads and writes, in order, with segments of the default
/// size.
fn bytes_per_step(memory: usize, lengths: &[usize], keys: u64, writes: u64) -> Vec<u64> {
    let options = Options { memory, ..Options::default() };
    let (file, counts) = CountingFile::new(MemoryFile::default());
    let mut store = Store::open(file, options).expect("opens");
    let mut rng = Rng::new(keys);
    let mut steps = Vec::new();
    for i in 0..writes {
        let key = if i < keys { i } else { rng.below(keys as usize) as u64 };
        store.set(0, &key.to_be_bytes(), &vec![i as u8; *rng.pick(lengths)]).expect("set");
        if i % (keys / 8) == 0 {
            store.flush().expect("flush");
            store.end_turn();
            for _ in 0..20 {
                let before = counts.total();
                store.maintain(false).expect("maintain");
                steps.push(counts.total() - before);
            }
        }
    }
    steps.retain(|&bytes| bytes > 0);
    steps.sort_unstable();
    steps
}

#[test]
fn maintenance_step_moves_few_chunks_and_reads_one_segment() {
    const MIB: u64 = 1 << 20;
    for (what, lengths, keys, writes, warm) in [
        ("small values", &[100][..], 40_000, 400_000, MIB / 2),
        ("large values", &[300_000, 1_900_000, 3_000_000], 16, 160, MIB / 2),
        // If the log continues before the end of the file, remains of earlier uses are zeroed.
        ("chunked values", &[300_000, 600_000, 1_500_000], 16, 160, MIB),
    ] {
        for memory in [0, 256 * MIB] {
            let steps = bytes_per_step(memory as usize, lengths, keys, writes);
            let [half, most] = [steps[steps.len() / 2], steps[steps.len() - 1]];
            println!("{what}, {} steps: {half} bytes, at most {most}", steps.len());
            assert!(steps.len() > 20 && half <= MIB / 4, "{what}: {half} bytes in most steps");
            // A segment that is not in memory is read once, in a step of its own.
            let limit = if memory == 0 { MIB + 4096 } else { warm };
            assert!(most <= limit, "{what}: {most} bytes in a step");
        }
    }
}

#[test]
fn write_once_records_survive_overwrites_around_them() {
    // Few keys in segments of the default size: each compacted segment has few live records.
    let mut store = Store::open(MemoryFile::default(), Options::default()).expect("opens");
    let mut rng = Rng::new(9);
    let mut model = BTreeMap::new();
    for round in 0..120_u64 {
        for i in 0..1000 {
            let key = rng.below(1000) as u64;
            model.insert(key, vec![i as u8; 100]);
            store.set(0, &key.to_be_bytes(), &model[&key]).expect("set");
        }
        let once = 1000 + round;
        model.insert(once, vec![round as u8; if round % 10 == 0 { 300_000 } else { 10 }]);
        store.set(0, &once.to_be_bytes(), &model[&once]).expect("set");
        if round % 7 == 0 {
            let deleted = rng.below(once as usize) as u64;
            let existed = store.delete(0, &deleted.to_be_bytes()).expect("delete");
            assert_eq!(existed, model.remove(&deleted).is_some());
        }
        store.commit().expect("commit");
        let _ = store.end_turn();
    }
    let file = store.close().map_err(|(_, error)| error).expect("closes");
    let mut store = Store::open(file, Options::default()).expect("opens");
    assert_eq!(store.count(0), model.len() as u64);
    for (key, value) in &model {
        assert_eq!(store.get(0, &key.to_be_bytes()), Ok(Some(&value[..])), "key {key}");
    }
}

#[test]
fn maintenance_terminates_where_segments_cannot_be_full() {
    // Three records fit in a segment and leave a quarter of it unused; or other ratios.
    for (factor, length) in
        [120, 150, 300].into_iter().flat_map(|f| [60, 640, 945, 1000].map(|l| (f, l)))
    {
        for seed in 0..20 {
            let options = Options { segment_log2: 12, factor, ..Options::default() };
            let mut store = Store::open(MemoryFile::default(), options).expect("opens");
            let mut rng = Rng::new(seed);
            let keys = rng.within(20..120);
            for i in 0..keys * 4 {
                let key = if i < keys { i } else { rng.below(keys) } as u64;
                match i < keys * 3 || rng.one_in(3) {
                    true => drop(store.set(0, &key.to_be_bytes(), &vec![1; length]).expect("set")),
                    false => drop(store.delete(0, &key.to_be_bytes()).expect("delete")),
                }
                store.commit().expect("commit");
                if seed % 2 == 0 && i % 16 == 0 {
                    store.maintain(false).expect("maintain");
                }
            }
            let mut steps = 0;
            while store.maintain(false).expect("maintain") {
                steps += 1;
                assert!(steps < 3_000, "{factor}, {length} bytes, seed {seed}: without an end");
            }
        }
    }
}

/// Replaces values of one length at random, with all maintenance done between two turns. Returns
/// how many bytes were written per byte given, and by how much the file exceeded its bound at most.
fn replace_at_random(factor: u32, length: usize, keys: usize) -> (f64, u64) {
    let options = Options { segment_log2: 16, factor, ..Options::default() };
    let (file, counts) = CountingFile::new(MemoryFile::default());
    let mut store = Store::open(file, options).expect("opens");
    let mut rng = Rng::new(length as u64);
    let (mut filled, mut beyond) = (0, 0);
    for i in 0..keys * 4 {
        let key = if i < keys { i } else { rng.below(keys) };
        if i == keys {
            filled = counts.total();
        }
        store.set(0, &key.to_be_bytes(), &vec![i as u8; length]).expect("set");
        store.commit().expect("commit");
        store.end_turn();
        while store.maintain(false).expect("maintain") {}
        let [bound, _, file] = size_limits(&store, factor);
        beyond = beyond.max(file.saturating_sub(bound));
    }
    ((counts.total() - filled) as f64 / (3 * keys * length) as f64, beyond)
}

#[test]
fn maintenance_cost_is_bounded_where_segments_cannot_be_full() {
    // Two to nine of these fit in a segment and leave up to a third of it unused. With a factor of
    // 120 that is more than allowed, so there is always a reason to compact and nothing to gain.
    let lengths = [7_200, 10_400, 12_500, 13_300, 16_000, 17_000, 21_000, 22_500, 25_000, 31_000];
    for (factor, length) in [120, 150, 300].into_iter().flat_map(|f| lengths.map(|l| (f, l))) {
        let (times, beyond) = replace_at_random(factor, length, 150);
        println!("{factor}, {length} bytes: {times:.1}, {beyond} beyond");
        assert!(times < 30.0, "{factor}, {length} bytes: each is read or written {times:.1} times");
        let could = factor >= 150;
        assert!(!could || beyond == 0, "{factor}, {length} bytes: {beyond} bytes beyond the bound");
    }
}

/// Overwrites and deletes values of up to `most` segments each at random, in records, extents and
/// chunks. Whenever all maintenance is done the file is within its bound: live data times 1.5, two
/// checkpoints and four segments.
fn check_large_values(seed: u64, keys: usize, most: usize, turns: usize, segment_log2: u8) {
    let segment = 1_usize << segment_log2;
    let options = Options { segment_log2, ..Options::default() };
    let mut store = Store::open(MemoryFile::default(), options).expect("opens");
    let mut rng = Rng::new(seed);
    let mut lengths = vec![0; keys];
    let value = |length: usize, key: usize| vec![(length ^ key) as u8; length];
    // Headers, including those of chunks, add at most a hundredth and 120 bytes.
    let size = |length: usize| (length + length / 100 + 120) as u64 * u64::from(length > 0);
    let mut live_bound = 0;
    for turn in 0..turns {
        for _ in 0..=rng.below(3) {
            let key = rng.below(keys);
            if rng.below(4) == 0 {
                store.delete(0, &key.to_le_bytes()).expect("delete");
                lengths[key] = 0;
            } else {
                // Phases of small values and of large ones.
                let most =
                    if turn / 60 % 3 == 0 { most } else { 1 + most / (1 + turn / 60 % 3 * 2) };
                let length = segment / 3 + rng.below(most * segment - segment / 3 - 128);
                store.set(0, &key.to_le_bytes(), &value(length, key)).expect("set");
                lengths[key] = length;
            }
        }
        store.commit().expect("commit");
        store.end_turn();
        let at_rest = turn % 10 == 9;
        if at_rest {
            store.flush().expect("flush");
            store.witness().expect("witness");
            let mut steps = 0;
            while store.maintain(false).expect("maintain") {
                steps += 1;
                assert!(steps < 20_000, "seed {seed}, turn {turn}: maintenance comes to an end");
            }
        } else {
            for _ in 0..rng.below(40) {
                store.maintain(false).expect("maintain");
            }
        }
        let capacity = |slots: u64| slots << segment_log2;
        let live = lengths.iter().map(|&length| size(length)).sum();
        let file = store.stats().file_bytes;
        // Data that a turn replaces exists twice until a flush, and deleted data is freed by
        // maintenance.
        live_bound = live_bound.max(live);
        let beside = 2 * checkpoint_size(&store.stats(), segment as u64) + capacity(4);
        let bound = match at_rest {
            true => 8192 + live * 3 / 2 + beside,
            false => 8192 + live_bound * 3 / 2 + beside + capacity(6 * most as u64),
        };
        live_bound = if at_rest { live } else { live_bound };
        assert!(
            file <= bound,
            "seed {seed}, turn {turn}: {file} of {bound} bytes, {live} live, {at_rest}"
        );
        let key = rng.below(keys);
        let expected = (lengths[key] > 0).then(|| value(lengths[key], key));
        assert_eq!(store.get(0, &key.to_le_bytes()).expect("get"), expected.as_deref());
    }
    let mut again = Store::open(store.into_file(), options).expect("opens again");
    for (key, &length) in lengths.iter().enumerate() {
        let expected = (length > 0).then(|| value(length, key));
        assert_eq!(again.get(0, &key.to_le_bytes()).expect("get"), expected.as_deref());
    }
}

#[test]
fn large_values_of_any_size_leave_no_holes() {
    for (seed, keys, most) in [(1, 6, 16), (2, 20, 16), (3, 60, 4), (4, 40, 16), (5, 12, 5)] {
        check_large_values(seed, keys, most, 300, 16);
    }
    // The default sizes: segments of 1 MiB, values of up to four.
    check_large_values(6, 16, 4, 120, 20);
}

#[test]
fn tombstone_of_a_segment_sized_key_does_not_block_maintenance() {
    let options = Options { segment_log2: 12, ..Options::default() };
    let mut store = Store::open(MemoryFile::default(), options).expect("opens");
    // Keys whose records fill a segment completely, beside header, trailer and frame.
    let [deleted, kept] = [7, 8].map(|byte| vec![byte; 4096 - 2 * 64 - 40 - 40]);
    for key in [&deleted, &kept] {
        store.set(0, key, b"").expect("set");
        store.commit().expect("commit");
    }
    store.delete(0, &deleted).expect("delete");
    store.set(0, b"small", b"value").expect("set");
    store.commit().expect("commit");
    let mut more = store.maintain(true);
    for _ in 0..100 {
        if more == Ok(true) {
            more = store.maintain(false);
        }
    }
    assert_eq!(more, Ok(false), "compaction comes to an end");
    let mut store = Store::open(store.into_file(), options).expect("opens again");
    assert_eq!(store.get(0, &deleted), Ok(None));
    assert_eq!(store.get(0, &kept), Ok(Some(&b""[..])));
    assert_eq!(store.get(0, b"small"), Ok(Some(&b"value"[..])));
}
