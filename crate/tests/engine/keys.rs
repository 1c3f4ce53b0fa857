//! Limits of keys and values, and how keys are distinguished and ordered.

use std::collections::BTreeSet;
use std::ops::Bound;

use varve::engine::index::hash_index::KeyHash;
use varve::engine::{Error, MemoryFile, Options, Store};

use crate::support::oracle::KEYSPACES;

fn numbered(n: u32) -> Vec<u8> {
    format!("the key with the number {n}").into_bytes()
}

/// Pairs of keys with equal hashes, found by trying.
fn colliding_pairs(options: &Options, keyspace: u32) -> Vec<[Vec<u8>; 2]> {
    let hash = KeyHash::new([options.entropy[2], options.entropy[3]]);
    let mut hashes: Vec<(u32, u32)> =
        (0..300_000_u32).map(|n| (hash.hash(keyspace, &numbered(n)), n)).collect();
    hashes.sort_unstable();
    let equal = hashes.windows(2).filter(|pair| pair[0].0 == pair[1].0);
    equal.map(|pair| [pair[0].1, pair[1].1].map(numbered)).collect()
}

#[test]
fn scan_remembers_record_positions_until_they_move() {
    let key = |n: u32| n.to_be_bytes();
    let mut store = Store::open(MemoryFile::default(), Options::default()).expect("open");
    let (mut positions, mut addrs) = ([store.hash(0, &key(0))], [None]);
    store.positions_of(&mut positions);
    store.prefetch_records(&positions, &mut addrs);
    assert!(matches!((positions, addrs), ([0], [None])), "a missing key has no position");
    (0..1000).for_each(|n| assert!(store.set(0, &key(n), &[7; 50]).is_ok()));
    store.commit().expect("commit");
    let all = (Bound::Unbounded, Bound::Unbounded);
    let positions = |store: &mut Store<MemoryFile>| {
        let mut positions = Vec::new();
        let visit = |_: &[u8], position| {
            positions.push(position);
            true
        };
        store.range(0, all, false, visit).expect("keys");
        positions.iter().filter(|&&position| store.is_current(position)).count()
    };
    assert_eq!(positions(&mut store), 1000);
    (1000..1100).for_each(|n| assert!(store.set(0, &key(n), b"new").is_ok()));
    assert_eq!(positions(&mut store), 1100, "a new key has a position");
    let savepoint = store.savepoint();
    (0..300).for_each(|n| assert!(store.set(0, &key(n), &[8; 60]).is_ok()));
    (300..400).for_each(|n| assert_eq!(store.delete(0, &key(n)), Ok(true)));
    assert_eq!(positions(&mut store), 700);
    store.rollback(savepoint);
    assert_eq!(positions(&mut store), 1100, "all are where they were");
    (0..300).for_each(|n| assert!(store.set(0, &key(n), &[9; 60]).is_ok()));
    store.commit().expect("commit");
    assert_eq!(positions(&mut store), 800);
    for n in 0..300 {
        let mut positions = [store.hash(0, &key(n))];
        store.positions_of(&mut positions);
        store.index_record(0, &key(n), positions[0]);
    }
    assert_eq!(positions(&mut store), 1100, "and these were looked up");
}

#[test]
fn keys_with_equal_hashes_are_distinct() {
    let options = Options { segment_log2: 12, ..Options::default() };
    for keyspace in KEYSPACES {
        let pairs = colliding_pairs(&options, keyspace);
        assert!(pairs.len() > 3, "300,000 keys have about ten equal hashes of 32 bits");
        let mut store = Store::open(MemoryFile::default(), options).expect("open");
        for [a, b] in &pairs {
            store.set(keyspace, a, b"a").expect("set");
            assert_eq!(store.get(keyspace, b), Ok(None));
            assert_eq!(store.has(keyspace, b), Ok(false));
            assert_eq!(store.delete(keyspace, b), Ok(false));
            assert_eq!(store.update_if(keyspace, b, |_| true, |_| Ok(None)), Ok(false));
            store.set(keyspace, b, b"b").expect("set");
            assert_eq!(store.get(keyspace, a), Ok(Some(&b"a"[..])));
            store.set(keyspace, a, b"again").expect("set");
            assert_eq!(store.get(keyspace, b), Ok(Some(&b"b"[..])));
            // One of them is prefetched, and its value is not confused with the other's.
            let (mut positions, mut addrs) = ([store.hash(keyspace, a)], [None]);
            store.positions_of(&mut positions);
            store.prefetch_records(&positions, &mut addrs);
            let addr = addrs[0].expect("all is in memory");
            let mut length = |key| {
                let value = store.get_resident(addr, keyspace, key, false);
                value.map(|value| value.len())
            };
            assert!(matches!((length(a), length(b)), (Some(5), None) | (None, Some(1))));
        }
        store.commit().expect("commit");
        let mut store = Store::open(store.into_file(), options).expect("open");
        for [a, b] in &pairs {
            assert_eq!(store.get(keyspace, a), Ok(Some(&b"again"[..])));
            assert_eq!(store.get(keyspace, b), Ok(Some(&b"b"[..])));
            assert_eq!(store.delete(keyspace, a), Ok(true));
            assert_eq!(store.get(keyspace, a), Ok(None));
            assert_eq!(store.get(keyspace, b), Ok(Some(&b"b"[..])));
        }
        assert_eq!(store.count(keyspace), pairs.len() as u64);
    }
}

/// The keys of a store, in order.
fn walk<F: varve::engine::File>(store: &mut Store<F>) -> Result<Vec<Vec<u8>>, Error> {
    store.keys(0)
}

/// A closed file of some thirty segments with keys below `below`: replaced, deleted and rolled back
/// records among live ones, values in extents and in chunks, and segments without live records.
fn many_segments(below: u32) -> Vec<u8> {
    let options = Options { segment_log2: 12, ..Options::default() };
    let mut store = Store::open(MemoryFile::default(), options).expect("open");
    for n in 0..2 * below {
        let value = vec![7; [20, 90, 300, 2900, 4000][n as usize % 5]];
        store.set(0, &numbered(n / 2 * 7 % below), &value).expect("set");
        let savepoint = store.savepoint();
        store.set(0, &numbered(n + below), &value[..20]).expect("set");
        store.rollback(savepoint);
        if n % 9 == 0 {
            store.delete(0, &numbered(n / 3 * 7 % below)).expect("delete");
        }
        store.commit().expect("commit");
    }
    store.close().map_err(|(_, error)| error).expect("close").bytes
}

#[test]
fn keys_sorted_in_parts_between_writes_are_ordered() {
    let bytes = many_segments(120);
    let open = || {
        let options = Options { segment_log2: 12, memory: 0, ..Options::default() };
        Store::open(MemoryFile { bytes: bytes.clone() }, options).expect("open")
    };
    let model: BTreeSet<Vec<u8>> = walk(&mut open()).expect("walk").into_iter().collect();
    assert_eq!(model.len() as u64, open().count(0));
    for part in [1, 512, 700, 5000] {
        let (mut store, mut parts) = (open(), 0);
        let mut model = model.clone();
        while !store.sort(part).expect("sort") {
            let (new, old) = (numbered(1000 + parts), model.pop_first().expect("a key"));
            store.set(0, &new, b"set within a group that is open").expect("set");
            assert_eq!(store.delete(0, &old), Ok(true));
            let moved = model.last().expect("a key");
            store.set(0, moved, b"elsewhere").expect("set");
            model.insert(new);
            parts += 1;
        }
        assert!(part == 5000 || parts > 20, "{parts} parts of {part} positions");
        assert!(walk(&mut store).expect("walk").iter().eq(&model), "by {part} positions");
    }
    // No frame is complete yet.
    let mut store = Store::open(MemoryFile::default(), Options::default()).expect("open");
    model.iter().for_each(|key| assert!(store.set(0, key, b"value").is_ok()));
    assert!(walk(&mut store).expect("walk").iter().eq(&model));
}

#[test]
fn first_range_reports_a_damaged_record() {
    let bytes = many_segments(120);
    let options = Options { segment_log2: 12, memory: 0, ..Options::default() };
    let mut store = Store::open(MemoryFile { bytes: bytes.clone() }, options).expect("open");
    let keys = walk(&mut store).expect("walk");
    let (mut reported, mut damaged) = (0, 0);
    for key in &keys {
        let mut bytes = bytes.clone();
        // Each copy of the key, whether it is the current one or not.
        let addrs: Vec<usize> =
            (0..bytes.len() - key.len()).filter(|&at| bytes[at..].starts_with(key)).collect();
        addrs.iter().for_each(|&at| bytes[at] ^= 1);
        let file = MemoryFile { bytes };
        // Records after the checkpoint are reported by opening.
        let Ok(mut store) = Store::open(file, options) else { continue };
        damaged += 1;
        for _ in 0..2 {
            match walk(&mut store) {
                Err(Error::Corruption(_)) => reported += 1,
                other => panic!("{other:?}"),
            }
        }
    }
    assert!(damaged > 20 && reported == 2 * damaged, "{reported} of {damaged} reported");
}

#[test]
fn unordered_store_refuses_only_ranges() {
    let options = Options { ordered: false, ..Options::default() };
    let mut store = Store::open(MemoryFile::default(), options).expect("open");
    store.set(0, b"key", b"value").expect("set");
    let all = (Bound::Unbounded, Bound::Unbounded);
    assert_eq!(store.range(0, all, false, |_, _| true), Err(Error::PointsOnly));
    assert_eq!(store.get(0, b"key"), Ok(Some(&b"value"[..])));
    assert_eq!(store.count(0), 1);
}

#[test]
fn oversized_keys_and_values_are_refused_without_change() {
    let mut store = Store::open(MemoryFile::default(), Options::default()).expect("open");
    store.set(0, b"key", b"value").expect("set");
    assert_eq!(store.set(0, b"", b"value"), Err(Error::EmptyKey));
    assert_eq!(store.delete(0, b""), Err(Error::EmptyKey));
    assert_eq!(store.set(0, &[1; 65_536], b"value"), Err(Error::KeyTooLong));
    assert_eq!(store.set(0, b"key", &vec![1; (16 << 20) + 1]), Err(Error::ValueTooLong));
    let grow = store.update_if(0, b"key", |_| true, |_| Ok(Some(vec![1; (16 << 20) + 1])));
    assert_eq!(grow, Err(Error::ValueTooLong));
    assert_eq!(store.get(0, b"key"), Ok(Some(&b"value"[..])));
    assert_eq!(store.count(0), 1);
    store.set(0, &[1; 65_535], b"longest key").expect("set");
    store.set(0, b"key", &vec![7; 16 << 20]).expect("set the longest value");
    let file = store.close().map_err(|(_, e)| e).expect("close");
    let mut store = Store::open(file, Options::default()).expect("open");
    assert_eq!(store.get(0, &[1; 65_535]), Ok(Some(&b"longest key"[..])));
    assert!(
        store
            .get(0, b"key")
            .unwrap()
            .is_some_and(|v| v.len() == 16 << 20 && v.iter().all(|&b| b == 7))
    );
}
