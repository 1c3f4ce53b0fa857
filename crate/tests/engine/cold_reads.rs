//! Databases larger than memory: cold records are read one by one, verified, and never confused.

use std::cell::Cell;

use varve::engine::store::ViewCallbacks;
use varve::engine::{Error, IoError, Options, Store};

use crate::support::fault_file::{FailureMode, Fault, FaultFile};
use crate::support::oracle::state_of;
use crate::support::rng::{Rng, bytes_of};

fn options() -> Options {
    Options { segment_log2: 12, memory: 0, ..Options::default() }
}

const KEYS: u32 = 400;

fn key(i: u32) -> Vec<u8> {
    format!("key {i:05}").into_bytes()
}

fn value(i: u32) -> Vec<u8> {
    // Every twentieth value is large enough for an extent.
    let len = if i.is_multiple_of(20) { 3300 + i } else { 40 + i % 300 };
    bytes_of(u64::from(i), len as usize)
}

/// A database of about a hundred kilobytes, sixteen of which are kept in memory.
fn mixed_size_database(file: &FaultFile) -> Store<FaultFile> {
    let mut store = Store::open(file.clone(), options()).expect("open");
    for i in 0..KEYS {
        store.set(0, &key(i), &value(i)).expect("set");
        store.commit().expect("commit");
        store.end_turn();
    }
    drop(store.close().map_err(|(_, e)| e).expect("close"));
    Store::open(file.clone(), options()).expect("open")
}

#[test]
fn database_larger_than_memory_is_readable_in_any_order() {
    let file = FaultFile::default();
    let mut store = mixed_size_database(&file);
    let mut rng = Rng::new(3);
    let calls = file.calls();
    for _ in 0..20_000 {
        let i = rng.below(KEYS as usize + 20) as u32;
        let expected = (i < KEYS).then(|| value(i));
        assert_eq!(store.get(0, &key(i)), Ok(expected.as_deref()));
        if rng.one_in(30) {
            store.end_turn();
        }
    }
    assert!(file.calls() - calls > 5000, "most of it was read from the file");
    let memory = store.stats().memory_bytes;
    assert!(memory < 200 << 10, "{memory} bytes are in memory");
}

/// Records of 200 bytes in 20 segments, four of which are kept in memory; reopened, so that all are
/// cold.
fn cold_database(file: &FaultFile) -> Store<FaultFile> {
    let options = Options { segment_log2: 16, memory: 0, ..Options::default() };
    let mut store = Store::open(file.clone(), options).expect("open");
    for i in 0..5000 {
        store.set(0, &key(i), &bytes_of(u64::from(i), 200)).expect("set");
    }
    drop(store.close().map_err(|(_, e)| e).expect("close"));
    Store::open(file.clone(), options).expect("open")
}

#[test]
fn crash_recovery_reads_the_log_once_within_a_few_segments_memory() {
    let file = FaultFile::default();
    let options = Options { segment_log2: 16, ..Options::default() };
    let mut store = Store::open(file.clone(), options).expect("open");
    for i in 0..2000 {
        store.set(0, &key(i % 1000), &bytes_of(u64::from(i), 200)).expect("set");
        if i % 300 == 0 {
            store.commit().expect("commit");
        }
    }
    store.commit().expect("commit");
    drop(store);
    let (slots, calls) = (file.image().len() as u64 >> 16, file.calls());
    let store = Store::open(file.clone(), options).expect("open");
    assert_eq!(store.count(0), 1000);
    // The size, the superblocks, the headers and trailers, and the segments.
    let calls = file.calls() - calls;
    assert!(calls <= 2 * slots + 6, "{calls} calls for {slots} segments");
    assert!(store.stats().memory_bytes < 3 << 16, "{} bytes", store.stats().memory_bytes);
}

#[test]
fn scan_in_write_order_reads_whole_segments() {
    let file = FaultFile::default();
    let mut store = cold_database(&file);
    let forwards: Vec<u32> = (0..5000).collect();
    let backwards: Vec<u32> = (0..5000).rev().collect();
    for order in [forwards, backwards] {
        let calls = file.calls();
        for i in order {
            assert_eq!(store.get(0, &key(i)), Ok(Some(&*bytes_of(u64::from(i), 200))));
            store.end_turn();
        }
        let reads = file.calls() - calls;
        assert!(reads < 20 * 12, "{reads} reads for 20 segments");
    }
}

#[test]
fn cold_records_of_any_size_take_one_read_each() {
    let file = FaultFile::default();
    let options = Options { segment_log2: 16, memory: 0, ..Options::default() };
    let length = |i: u32| 100 + (i as usize * 769) % 3000;
    let mut store = Store::open(file.clone(), options).expect("open");
    for i in 0..1000 {
        store.set(0, &key(i), &bytes_of(u64::from(i), length(i))).expect("set");
    }
    drop(store.close().map_err(|(_, e)| e).expect("close"));
    let mut store = Store::open(file.clone(), options).expect("open");
    let (calls, mut rng) = (file.calls(), Rng::new(7));
    for _ in 0..3000 {
        let i = rng.below(1000) as u32;
        assert_eq!(store.get(0, &key(i)), Ok(Some(&*bytes_of(u64::from(i), length(i)))));
        store.end_turn();
    }
    // A tenth is in memory, and some larger records need a second read.
    let reads = file.calls() - calls;
    assert!((2400..3100).contains(&reads), "{reads} reads of 3000 records");
}

#[test]
fn viewed_records_stay_in_memory_if_the_access_counts() {
    for counts in [true, false] {
        let file = FaultFile::default();
        let mut store = cold_database(&file);
        // A scan loads its segment.
        (2000..2100)
            .for_each(|i| assert!(store.get(0, &key(i)).is_ok_and(|value| value.is_some())));
        let hot = key(2050);
        let hash = store.hash(0, &hot);
        let at_hand = |store: &mut Store<FaultFile>, keyspace| {
            let (mut positions, mut offsets) = ([hash], [None]);
            store.positions_of(&mut positions);
            store.prefetch_records(&positions, &mut offsets);
            let [offset] = offsets;
            offset.and_then(|offset| store.get_resident(offset, keyspace, &hot, counts)).is_some()
        };
        assert!(!at_hand(&mut store, 1), "another keyspace");
        let mut rng = Rng::new(5);
        let stayed = (0..1000).all(|_| {
            store.end_turn();
            let exists = at_hand(&mut store, 0);
            let cold = key(rng.below(1900) as u32);
            assert!(store.get(0, &cold).is_ok_and(|value| value.is_some()));
            exists
        });
        assert_eq!(stayed, counts);
    }
}

#[test]
fn damage_during_a_scan_is_reported_for_its_record_only() {
    let file = FaultFile::default();
    let mut store = cold_database(&file);
    let value = bytes_of(2500, 200);
    let at = file.image().windows(200).position(|w| w == value).expect("it is in the file");
    file.damage(at + 77, 4);
    for i in 0..5000 {
        match store.get(0, &key(i)) {
            Ok(seen) => assert_eq!(seen, Some(&*bytes_of(u64::from(i), 200))),
            Err(error) => assert!(i == 2500 && matches!(error, Error::Corruption(_)), "key {i}"),
        }
        store.end_turn();
    }
    assert!(matches!(store.get(0, &key(2500)), Err(Error::Corruption(_))));
}

#[test]
fn bit_flip_under_an_open_store_is_never_served() {
    let file = FaultFile::default();
    let mut store = mixed_size_database(&file);
    let mut rng = Rng::new(4);
    let (mut noticed, mut resident) = (0, 0);
    for _ in 0..4000 {
        let i = rng.below(KEYS as usize) as u32;
        let value = value(i);
        let image = file.image();
        let at = image.windows(value.len()).position(|w| w == value).expect("it is in the file");
        // Somewhere in the value, or in the key and the header before it.
        let at = at - 48 + rng.below(value.len() + 48);
        let flips = 1 << rng.below(8);
        file.damage(at, flips);
        match store.get(0, &key(i)) {
            Ok(seen) => {
                assert_eq!(seen, Some(value.as_slice()), "byte {at}");
                resident += 1;
            }
            Err(Error::Corruption(damage)) => {
                assert!(damage.position <= at as u64, "byte {at}, but {damage:?}");
                noticed += 1;
            }
            Err(error) => panic!("{error:?} is not an error for damage"),
        }
        file.damage(at, flips);
        store.end_turn();
        let seen = store.get(0, &key(i));
        assert_eq!(
            seen,
            Ok(Some(value.as_slice())),
            "the damage was undone, so reads succeed again"
        );
    }
    assert!(noticed > 2000, "{noticed} flips noticed, {resident} values in memory");
}

#[test]
fn failed_read_is_reported_and_the_next_one_works() {
    let file = FaultFile::default();
    let mut store = mixed_size_database(&file);
    let mut rng = Rng::new(5);
    let mut failures = 0;
    for round in 0..3000_u32 {
        let i = rng.below(KEYS as usize) as u32;
        let error = *rng.pick(&[IoError::Lost, IoError::Other]);
        file.arm(Fault { nth: 0, lasting: false, failure: FailureMode::Fail(error) });
        let outcome = match round % 4 {
            0 => store.get(0, &key(i)).map(|seen| assert_eq!(seen, Some(&*value(i)))),
            1 => store.version(0, &key(i)).map(|seen| assert!(seen.is_some())),
            2 => store.has(0, &key(i)).map(|seen| assert!(seen)),
            _ => store.update_if(0, &key(i), |_| false, |_| Err(())).map(|done| assert!(!done)),
        };
        failures += u32::from(file.struck());
        assert_eq!(outcome, if file.struck() { Err(error.into()) } else { Ok(()) });
        file.heal();
        assert_eq!(store.get(0, &key(i)), Ok(Some(&*value(i))));
        store.end_turn();
    }
    assert!(failures > 1000, "{failures} reads failed");
    assert_eq!(store.set(0, b"still", b"writes").map(|_| ()), Ok(()));
}

thread_local! {
    static DETACHED: Cell<u32> = const { Cell::new(0) };
}

#[test]
fn turn_reading_more_than_the_budget_detaches_its_views() {
    let views =
        ViewCallbacks { detach: || DETACHED.set(DETACHED.get() + 1), ..ViewCallbacks::default() };
    let options = Options { views, ..options() };
    let file = FaultFile::default();
    drop(mixed_size_database(&file).into_file());
    let mut store = Store::open(file, options).expect("open");
    assert_eq!(DETACHED.get(), 0, "there are no views while it opens");
    store.end_turn();
    assert_eq!(store.get(0, &key(7)), Ok(Some(&*value(7))));
    assert_eq!(DETACHED.get(), 0, "one value fits");
    for i in 0..KEYS {
        store.get(0, &key(i)).expect("get");
    }
    assert!(DETACHED.get() > 0, "a hundred kilobytes do not fit in sixteen");
    assert_eq!(state_of(&mut store).len(), KEYS as usize);
}

/// Bytes of memory in per cent of what they may be between turns.
fn used_memory(store: &Store<FaultFile>) -> u64 {
    store.stats().memory_bytes * 100 / store.stats().budget_bytes
}

#[test]
fn memory_of_a_long_transaction_is_freed_when_its_turn_ends() {
    let mut store = Store::open(FaultFile::default(), options()).expect("open");
    for round in 1..4_u32 {
        let savepoint = store.savepoint();
        // Three times as much as memory holds, so that the last segment is in a buffer above the budget.
        for i in 0..40 * 3 * round {
            store.set(0, &key(i), &bytes_of(u64::from(i), 300)).expect("set");
        }
        store.release(savepoint).expect("release");
        store.commit().expect("commit");
        assert!(used_memory(&store) > 200, "{}%", used_memory(&store));
        store.end_turn();
        assert!(used_memory(&store) <= 101, "{}%", used_memory(&store));
    }
    assert_eq!(state_of(&mut store).len(), 360);
}

#[test]
fn memory_of_many_pinned_records_is_freed_with_them() {
    let file = FaultFile::default();
    let options = Options { segment_log2: 16, memory: 0, ..Options::default() };
    let mut store = Store::open(file.clone(), options).expect("open");
    (0..30_000).for_each(|i| assert!(store.set(0, &key(i), b"tiny").is_ok()));
    drop(store.close().map_err(|(_, e)| e).expect("close"));
    let mut store = Store::open(file, options).expect("open");
    let mut pins = Vec::new();
    // In no order, so that the records are cached one by one.
    for i in 0..20_000_u32 {
        let key = key(i * 7919 % 30_000);
        assert_eq!(store.get(0, &key), Ok(Some(&b"tiny"[..])));
        if i % 500 == 0 {
            pins.push(store.pin(0, &key).expect("pin").expect("it exists"));
        }
    }
    store.end_turn();
    assert!(used_memory(&store) > 300, "{}%", used_memory(&store));
    pins.into_iter().for_each(|pin| store.unpin(pin));
    store.end_turn();
    assert!(used_memory(&store) <= 125, "{}%", used_memory(&store));
}

#[test]
fn memory_of_large_values_is_at_most_a_quarter_beside_full_buffers() {
    let file = FaultFile::default();
    let options = Options { segment_log2: 16, memory: 0, ..Options::default() };
    let mut store = Store::open(file.clone(), options).expect("open");
    for i in 0..2000 {
        let length = if i % 50 == 0 { 34_000 + 200 * i as usize % 24_000 } else { 200 };
        store.set(0, &key(i), &bytes_of(u64::from(i), length)).expect("set");
    }
    drop(store.close().map_err(|(_, e)| e).expect("close"));
    let mut store = Store::open(file, options).expect("open");
    for i in 0..2000_u32 {
        assert!(store.get(0, &key(i * 7 % 2000)).is_ok_and(|value| value.is_some()));
        assert!(store.get(0, &key(i * 50 % 2000)).is_ok_and(|value| value.is_some()));
        if i % 3 == 0 {
            store.end_turn();
            assert!(used_memory(&store) <= 128, "{}% in turn {i}", used_memory(&store));
        }
    }
}
