//! A database whose index is larger than the memory for it.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Bound;

use varve::engine::store::ViewCallbacks;
use varve::engine::{Error, Options, Store};

use crate::support::counting_file::CountingFile;
use crate::support::fault_file::FaultFile;
use crate::support::rng::Rng;

const KEYS: u64 = 100_000;
/// Bytes of a table for a tenth of these keys.
const INDEX_MEMORY: usize = 128 << 10;

fn options() -> Options {
    Options {
        segment_log2: 16,
        memory: 1 << 20,
        load_at_once: 0,
        index_memory: INDEX_MEMORY,
        ..Options::default()
    }
}

fn key(i: u64) -> [u8; 8] {
    i.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()
}

fn value(i: u64, round: u64) -> [u8; 16] {
    let mut value = [0; 16];
    value[..8].copy_from_slice(&i.to_le_bytes());
    value[8..].copy_from_slice(&round.to_le_bytes());
    value
}

/// A closed database of `KEYS` keys, written by commits of 500 without maintenance between them.
fn database() -> FaultFile {
    let file = FaultFile::default();
    let mut store = Store::open(file.clone(), options()).expect("open");
    let mut most = 0;
    for i in 0..KEYS {
        store.set(0, &key(i), &value(i, 0)).expect("set");
        if i % 500 == 499 {
            store.commit().expect("commit");
            most = most.max(store.stats().index_bytes);
        }
    }
    // The whole hash index would take 2 MiB.
    println!("at most {most} bytes of index");
    assert!(most < 800_000, "{most} bytes");
    while store.maintain(false).expect("maintain") {}
    let rest = store.stats().index_bytes;
    println!("{rest} bytes after maintenance");
    assert!(rest < 550_000, "{rest} bytes after maintenance");
    assert!(store.verify_all(), "it is intact");
    store.close().map_err(|(_, e)| e).expect("close");
    file
}

/// Bytes of the hash table, and of the set of positions.
fn bytes_of_table(store: &Store<FaultFile>) -> u64 {
    store.memory_usage()[0] as u64 - store.stats().memory_bytes
}

trait VerifyAll {
    fn verify_all(&mut self) -> bool;
}

impl VerifyAll for Store<FaultFile> {
    fn verify_all(&mut self) -> bool {
        let mut cursor = Default::default();
        loop {
            let found = self.verify(cursor).expect("verify");
            if found.what != varve::engine::ProblemKind::Nothing {
                return false;
            }
            cursor = found.next;
            if cursor == Default::default() {
                return true;
            }
        }
    }
}

#[test]
fn index_stays_within_its_memory_and_all_keys_are_found() {
    let file = database();
    let mut store = Store::open(file.clone(), options()).expect("open");
    let mut rng = Rng::new(1);
    let mut rounds = BTreeMap::new();
    for round in 1..6 {
        for _ in 0..20_000 {
            let i = rng.below(2 * KEYS as usize) as u64;
            match rng.below(10) {
                0 => {
                    let existed = rounds.get(&i).copied().unwrap_or(Some(0).filter(|_| i < KEYS));
                    assert_eq!(store.delete(0, &key(i)), Ok(existed.is_some()));
                    rounds.insert(i, None);
                }
                1..4 => {
                    store.set(0, &key(i), &value(i, round)).expect("set");
                    rounds.insert(i, Some(round));
                }
                _ => {
                    let wanted = rounds.get(&i).copied().unwrap_or(Some(0).filter(|_| i < KEYS));
                    let wanted = wanted.map(|round| value(i, round));
                    assert_eq!(store.get(0, &key(i)), Ok(wanted.as_ref().map(|v| &v[..])));
                }
            }
        }
        if round % 2 == 0 {
            store.commit().expect("commit");
        } else {
            while store.maintain(false).expect("maintain") {}
            assert!(store.stats().index_bytes < 700_000, "{} bytes", store.stats().index_bytes);
        }
    }
    let all: Vec<u64> = (0..2 * KEYS)
        .filter(|i| rounds.get(i).copied().unwrap_or(Some(0).filter(|_| *i < KEYS)).is_some())
        .collect();
    assert_eq!(store.count(0), all.len() as u64);
    assert_eq!(store.stats().count, all.len() as u64);
    for &i in &all {
        assert!(store.has(0, &key(i)).expect("has"));
    }
    let mut sorted: Vec<_> = all.iter().map(|&i| key(i).to_vec()).collect();
    sorted.sort();
    assert_eq!(store.keys(0).expect("keys"), sorted);
    assert!(store.verify_all(), "it is intact");
    // A full compaction moves every record.
    store.maintain(true).expect("maintain");
    while store.maintain(false).expect("maintain") {}
    assert!(store.verify_all(), "it is intact after compaction");
    assert!(store.stats().index_bytes < 900_000, "{} bytes", store.stats().index_bytes);
    store.close().map_err(|(_, e)| e).expect("close");
    let mut store = Store::open(file, options()).expect("open");
    for &i in &all {
        let round = rounds.get(&i).copied().flatten().unwrap_or(0);
        assert_eq!(store.get(0, &key(i)), Ok(Some(&value(i, round)[..])));
    }
}

#[test]
fn absent_keys_are_mostly_known_without_reading() {
    let (counting, counts) = CountingFile::new(database());
    let mut store = Store::open(counting, options()).expect("open");
    while store.maintain(false).expect("maintain") {}
    let before = counts.read();
    for i in 0..10_000 {
        assert_eq!(store.get(0, &key(KEYS + i)), Ok(None));
    }
    let blocks = (counts.read() - before) / 4096;
    println!("{blocks} blocks read for 10,000 absent keys");
    assert!(blocks < 600, "{blocks} blocks");
}

#[test]
fn close_after_few_writes_leaves_the_index_as_it_is() {
    let (counting, counts) = CountingFile::new(database());
    let mut store = Store::open(counting, options()).expect("open");
    store.set(0, &key(7), &value(7, 1)).expect("set");
    store.set(0, b"new", b"value").expect("set");
    let before = counts.written();
    let file = store.close().map_err(|(_, e)| e).expect("close");
    let written = counts.written() - before;
    assert!(written < 4096, "{written} bytes");
    let mut store = Store::open(file, options()).expect("open");
    assert_eq!(store.get(0, &key(7)), Ok(Some(&value(7, 1)[..])));
    assert_eq!(store.get(0, b"new"), Ok(Some(&b"value"[..])));
    assert_eq!(store.count(0), KEYS + 1);
}

#[test]
fn transaction_of_more_keys_than_the_index_holds_commits_or_leaves_nothing() {
    let file = database();
    let mut store = Store::open(file.clone(), options()).expect("open");
    for keeps in [false, true] {
        let savepoint = store.savepoint();
        for i in KEYS / 2..KEYS * 3 / 2 {
            store.set(0, &key(i), &value(i, 9)).expect("set");
        }
        for i in 0..KEYS / 4 {
            assert!(store.delete(0, &key(i)).expect("delete"));
        }
        if keeps {
            store.release(savepoint).expect("release");
        } else {
            store.rollback(savepoint);
        }
        let most = bytes_of_table(&store);
        while store.maintain(false).expect("maintain") {}
        // The table has grown for the transaction, and shrinks after it.
        let rest = bytes_of_table(&store);
        println!("{most} bytes in the transaction, {rest} after it");
        assert!(keeps || most > 1 << 20, "{most} bytes");
        assert!(rest < 300_000, "{rest} bytes");
        let count = if keeps { KEYS * 5 / 4 } else { KEYS };
        assert_eq!(store.count(0), count);
        for i in (0..KEYS * 2).step_by(7) {
            let wanted = match i {
                _ if keeps && i < KEYS / 4 => None,
                _ if keeps && (KEYS / 2..KEYS * 3 / 2).contains(&i) => Some(value(i, 9)),
                _ => (i < KEYS).then(|| value(i, 0)),
            };
            assert_eq!(store.get(0, &key(i)), Ok(wanted.as_ref().map(|v| &v[..])), "key {i}");
        }
    }
    store.close().map_err(|(_, e)| e).expect("close");
    let mut store = Store::open(file, options()).expect("open");
    let bounds = (Bound::Unbounded, Bound::Unbounded);
    assert_eq!(store.count_range(0, bounds), Ok(KEYS * 5 / 4));
}

#[test]
fn clearing_a_keyspace_empties_an_index_that_is_not_loaded() {
    let file = database();
    let mut store = Store::open(file.clone(), options()).expect("open");
    store.set(2, b"stays", b"value").expect("set");
    let budget = store.budget();
    store.end_turn();
    assert!(store.budget() < budget, "the filter and the positions take some of the memory");
    assert_eq!(store.empty(0), Ok(KEYS));
    while store.maintain(false).expect("maintain") {}
    // The next checkpoint has one key, so the index is not limited any more.
    store.maintain(true).expect("maintain");
    while store.maintain(false).expect("maintain") {}
    store.end_turn();
    assert_eq!(store.budget(), budget);
    let stats = store.stats();
    assert_eq!((stats.count, stats.unswept), (1, 0));
    assert!(stats.file_bytes < 2 << 20, "{} bytes", stats.file_bytes);
    assert_eq!(store.get(0, &key(5)), Ok(None));
    assert_eq!(store.get(2, b"stays"), Ok(Some(&b"value"[..])));
    store.close().map_err(|(_, e)| e).expect("close");
}

thread_local! {
    static VIEWS_ARE_HELD: Cell<bool> = const { Cell::new(false) };
}

/// While they are held, hardly any memory is left.
fn views() -> ViewCallbacks {
    ViewCallbacks {
        are_held: || VIEWS_ARE_HELD.get(),
        can_allocate: |bytes| bytes < 4096,
        ..ViewCallbacks::default()
    }
}

#[test]
fn index_takes_no_further_memory_while_views_are_held() {
    let held = Options { views: views(), ..options() };
    let file = database();
    let mut store = Store::open(file.clone(), held).expect("open");
    VIEWS_ARE_HELD.set(true);
    // Before the positions are known, and after it.
    for is_known in [false, true] {
        let before = store.stats();
        let mut set = 0;
        let refused = loop {
            match store.set(0, &key(KEYS + set), &value(set, 2)).and_then(|_| store.commit()) {
                Ok(_) => set += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(refused, Error::ViewsHeld, "after {set} keys");
        let after = store.stats();
        // The order of the new keys is in small pieces.
        let order = 100 * set + (64 << 10);
        assert!(after.index_bytes <= before.index_bytes + order, "{before:?} {after:?}");
        assert_eq!(after.count, before.count + if is_known { 0 } else { set });
        for i in (0..KEYS).step_by(97) {
            assert_eq!(store.has(0, &key(i)), Ok(true), "key {i}");
        }
        if is_known {
            break;
        }
        VIEWS_ARE_HELD.set(false);
        while store.maintain(false).expect("maintain") {}
        VIEWS_ARE_HELD.set(true);
    }
    VIEWS_ARE_HELD.set(false);
    assert!(store.verify_all(), "it is intact");
    store.close().map_err(|(_, e)| e).expect("close");
}

#[test]
fn damaged_records_of_a_cleared_keyspace_hide_no_live_ones() {
    // So many that closing does not sweep them.
    const SOME: u64 = 20_000;
    // A table of twelve entries, so that most lookups evict one.
    let options = Options { index_memory: 0, factor: 300, views: views(), ..options() };
    let file = FaultFile::default();
    let mut store = Store::open(file.clone(), options).expect("open");
    // So much that compaction need not free what is cleared.
    for i in 0..100 {
        store.set(2, &key(i), &[1; 60_000]).expect("set");
    }
    for i in 0..SOME {
        store.set(0, &key(i), &[0xAA; 300]).expect("set");
    }
    store.close().map_err(|(_, e)| e).expect("close");
    let mut store = Store::open(file.clone(), options).expect("open");
    let savepoint = store.savepoint();
    assert_eq!(store.empty(0), Ok(SOME));
    for i in 0..SOME {
        store.set(0, &key(i), &value(i, 1)).expect("set");
    }
    // Without memory for the positions of all records, they are not swept.
    VIEWS_ARE_HELD.set(true);
    store.release(savepoint).expect("release");
    store.flush().expect("flush");
    assert_eq!(store.stats().unswept, SOME);
    VIEWS_ARE_HELD.set(false);
    // The checkpoint has the cleared records too, and both of a key can be evicted.
    store.close().map_err(|(_, e)| e).expect("close");
    let mut image = file.image();
    let is_old = |&at: &usize| image[at..at + 300] == [0xAA; 300];
    let old: Vec<usize> = (0..image.len() - 300).step_by(4).filter(is_old).collect();
    // The next segment has records of both.
    let end = old.last().expect("there are records") - (2 << 16);
    old.iter().filter(|&&at| at < end).for_each(|&at| image[at + 150] ^= 1);
    let options = Options { read_only: true, ..options };
    let mut store = Store::open(FaultFile::new(image), options).expect("open");
    assert!(store.stats().unswept > SOME / 2, "{} are not swept", store.stats().unswept);
    for i in 0..SOME {
        // When the first one is looked up again, one of its two records may be evicted and the other not.
        for i in [i, i * 7 % SOME, i] {
            assert_eq!(store.get(0, &key(i)), Ok(Some(&value(i, 1)[..])), "key {i}");
        }
    }
}

#[test]
fn range_of_cold_records_reads_each_of_them_once() {
    let file = database();
    let mut store = Store::open(file.clone(), options()).expect("open");
    while store.maintain(false).expect("maintain") {}
    let mut passed = Vec::new();
    let visit = |key: &[u8], position: u32| {
        passed.push((key.to_vec(), position));
        passed.len() < 10_000
    };
    store.range(0, (Bound::Unbounded, Bound::Unbounded), false, visit).expect("range");
    let (with, without) = passed.split_at(5000);
    for (expects, keys) in [(true, with), (false, without)] {
        let calls = file.calls();
        for (key, position) in keys {
            store.expect_at(if expects { *position } else { 0 });
            assert!(store.get(0, key).is_ok_and(|value| value.is_some()));
            store.end_turn();
        }
        let reads = file.calls() - calls;
        // Without the positions, a block of the checkpoint is read for most keys too.
        assert_eq!(reads <= 5000, expects, "{reads} reads of 5000 records");
    }
}

#[test]
fn record_at_an_old_position_is_not_taken_for_a_key() {
    let file = database();
    let mut store = Store::open(file.clone(), options()).expect("open");
    let mut rng = Rng::new(9);
    let mut rounds = vec![Some(0); KEYS as usize];
    let mut positions = Vec::new();
    for round in 1..8 {
        let visit = |key: &[u8], position: u32| {
            positions.push((key.to_vec(), position));
            true
        };
        store.range(0, (Bound::Unbounded, Bound::Unbounded), false, visit).expect("range");
        for _ in 0..20_000 {
            let i = rng.below(KEYS as usize);
            if rng.one_in(8) {
                store.delete(0, &key(i as u64)).expect("delete");
                rounds[i] = None;
            } else {
                // Of different lengths, so that records in reused segments begin elsewhere.
                let value = [value(i as u64, round); 2].concat();
                store.set(0, &key(i as u64), &value[..16 + i % 17]).expect("set");
                rounds[i] = Some(round);
            }
        }
        store.commit().expect("commit");
        // Compaction moves records, and the segments that it empties are used again.
        store.maintain(round % 2 == 0).expect("maintain");
        while store.maintain(false).expect("maintain") {}
        for _ in 0..20_000 {
            let (known, position) = rng.pick(&positions).clone();
            let i = (0..8).fold(0_u64, |word, at| word << 8 | u64::from(known[at]));
            let i = i.wrapping_mul(INVERSE);
            assert_eq!(key(i).to_vec(), known);
            // Its own position, as of some round, or that of another key.
            store.expect_at(if rng.one_in(3) { rng.pick(&positions).1 } else { position });
            let found = store.get(0, &known).expect("get");
            let wanted = rounds[i as usize].map(|round| value(i, round));
            assert_eq!(found.map(|found| &found[..16]), wanted.as_ref().map(|v| &v[..]), "key {i}");
        }
        store.end_turn();
    }
}

/// The inverse of the factor of [`key`].
const INVERSE: u64 = 0xF1DE_83E1_9937_733D;
