//! Regression tests for the defects that were found in GrausDB, the engine that varve comes from.

use std::panic::{AssertUnwindSafe, catch_unwind};

use varve::engine::{Error, File, MemoryFile, Options, Store};

use crate::support::rng::{Rng, bytes_of};

fn options() -> Options {
    Options { segment_log2: 12, ..Options::default() }
}

fn open(file: MemoryFile) -> Store<MemoryFile> {
    Store::open(file, options()).expect("the file opens")
}

fn closed(store: Store<MemoryFile>) -> MemoryFile {
    store.close().map_err(|(_, e)| e).expect("the store closes")
}

fn filled(keys: u8) -> Store<MemoryFile> {
    let mut store = open(MemoryFile::default());
    for i in 0..keys {
        store.set(0, &[b'k', i], &[i; 100]).expect("set");
        store.commit().expect("commit");
    }
    store
}

#[test]
fn file_with_a_torn_tail_opens() {
    let mut store = filled(4);
    store.flush().expect("flush");
    let before = store.into_file().bytes;
    let mut store = open(MemoryFile { bytes: before.clone() });
    store.set(0, b"torn", &[7; 300]).expect("set");
    store.commit().expect("commit");
    let after = store.into_file().bytes;
    let end = after.iter().rposition(|&b| b == 7).expect("the value is in the file");
    for cut in end - 300..end {
        let mut torn = after.clone();
        torn[cut..=end].fill(0);
        let mut store = open(MemoryFile { bytes: torn });
        assert_eq!(store.count(0), 4, "torn at {cut}");
        assert_eq!(store.get(0, b"torn").unwrap(), None);
        assert!(store.recovery().torn_bytes > 0, "the torn tail is reported");
    }
}

#[test]
fn file_with_trailing_zeros_or_garbage_opens() {
    for (len, fill) in [(1, 0), (700, 0), (4096, 0), (100_000, 0), (1, 0xA5), (9000, 0xA5)] {
        for clean in [true, false] {
            let store = filled(5);
            let mut file = if clean { closed(store) } else { store.into_file() };
            let size = file.bytes.len();
            file.bytes.resize(size + len, fill);
            let mut store = open(file);
            assert_eq!(store.count(0), 5, "{len} bytes of {fill:#x} after the end, clean: {clean}");
            store.set(0, b"new", b"value").expect("set");
            let mut store = open(closed(store));
            assert_eq!(store.get(0, b"new").unwrap(), Some(&b"value"[..]));
            assert_eq!(store.get(0, &[b'k', 4]).unwrap(), Some(&[4; 100][..]));
        }
    }
}

#[test]
fn flipped_byte_is_never_served() {
    let mut store = open(MemoryFile::default());
    let value = bytes_of(1, 600);
    store.set(0, b"key", &value).expect("set");
    let file = closed(store);
    let at = file.bytes.windows(600).position(|w| w == value).expect("the value is in the file");
    for i in 0..600 {
        let mut damaged = file.clone();
        damaged.bytes[at + i] ^= 0xFF;
        assert!(matches!(Store::open(damaged, options()), Err(Error::Corruption(_))), "byte {i}");
    }
}

#[test]
fn overwritten_and_deleted_values_never_reappear() {
    let mut store = open(MemoryFile::default());
    // With this seed, twenty rounds reach every function that more rounds reach: enough for Miri.
    let (mut rng, rounds) = (Rng::new(1), if cfg!(miri) { 20 } else { 60 });
    for round in 0..rounds {
        store.set(0, b"overwritten", &bytes_of(round, rng.below(900))).expect("set");
        store.set(0, b"deleted", &bytes_of(round, rng.below(1500))).expect("set");
        store.commit().expect("commit");
        store.set(0, b"overwritten", &round.to_le_bytes()).expect("set");
        assert!(store.delete(0, b"deleted").expect("delete"));
        if rng.one_in(2) {
            store.commit().expect("commit");
            store = open(store.into_file());
        } else {
            store = open(closed(store));
        }
        assert_eq!(store.get(0, b"overwritten").unwrap(), Some(&round.to_le_bytes()[..]));
        assert_eq!(store.get(0, b"deleted").unwrap(), None);
        assert!(!store.has(0, b"deleted").unwrap());
        assert_eq!(store.count(0), 1);
    }
}

#[test]
fn compaction_does_not_grow_the_file_or_revive_keys() {
    // 25 kB of live data, and far more dead bytes than trigger compaction.
    let mut store = filled(250);
    let deleted: Vec<[u8; 2]> = (200..250).map(|i| [b'k', i]).collect();
    for round in 0..600_u32 {
        for i in 0..200_u8 {
            store.set(0, &[b'k', i], &[round.to_le_bytes(); 25].concat()).expect("set");
        }
        if round == 300 {
            deleted.iter().for_each(|key| assert!(store.delete(0, key).expect("delete")));
        }
        store.commit().expect("commit");
        store.end_turn();
        for _ in 0..round % 40 {
            store.maintain(round % 100 == 0).expect("maintain");
        }
        if round % 50 == 49 {
            store = open(if round % 100 == 49 { store.into_file() } else { closed(store) });
        }
        let file = store.stats().file_bytes;
        assert!(file < 4 * 25_000, "{file} bytes in round {round}");
        let value = [round.to_le_bytes(); 25].concat();
        for i in 0..200_u8 {
            assert_eq!(store.get(0, &[b'k', i]).unwrap(), Some(&*value), "key {i}, {round}");
        }
        for key in &deleted {
            assert_eq!(store.has(0, key).unwrap(), round < 300, "{key:?} in round {round}");
        }
    }
}

#[test]
fn dead_records_do_not_change_updates() {
    let mut store = open(MemoryFile::default());
    store.set(0, b"product", &20_001_u64.to_le_bytes()).expect("set");
    for _ in 0..20_000 {
        let sold = store.update_if(
            0,
            b"product",
            |bytes| bytes.iter().any(|&b| b != 0),
            |bytes| {
                let stock = u64::from_le_bytes(bytes.try_into().map_err(|_| ())?);
                bytes.copy_from_slice(&(stock - 1).to_le_bytes());
                Ok(None)
            },
        );
        assert_eq!(sold, Ok(true));
        store.commit().expect("every update by a write of its own");
    }
    let mut store = open(closed(store));
    assert_eq!(store.get(0, b"product").unwrap(), Some(&1_u64.to_le_bytes()[..]));
}

#[test]
fn false_predicate_is_not_an_error() {
    let mut store = filled(1);
    assert_eq!(store.update_if(0, b"k\0", |_| false, |_| Ok(Some(vec![1]))), Ok(false));
    assert_eq!(store.update_if(0, b"absent", |_| true, |_| Ok(Some(vec![1]))), Ok(false));
    assert_eq!(store.get(0, b"k\0").unwrap(), Some(&[0; 100][..]));
}

#[test]
fn failing_callback_changes_nothing() {
    for committed in [true, false] {
        let mut store = filled(3);
        store.set(0, b"key", &[1; 50]).expect("set");
        if committed {
            store.commit().expect("commit");
        }
        let version = store.version(0, b"key").unwrap();
        let answer = store.update_if(
            0,
            b"key",
            |_| true,
            |bytes| {
                bytes.fill(9);
                Err(())
            },
        );
        assert_eq!(answer, Err(Error::Aborted));
        assert_eq!(store.get(0, b"key").unwrap(), Some(&[1; 50][..]));
        assert_eq!(store.version(0, b"key").unwrap(), version);
        store.set(0, b"other", b"goes on").expect("set");
        let mut store = open(closed(store));
        assert_eq!(store.get(0, b"key").unwrap(), Some(&[1; 50][..]));
        assert_eq!(store.version(0, b"key").unwrap(), version);
        assert_eq!(store.count(0), 5);
    }
}

#[test]
fn panicking_callback_changes_nothing() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    for in_predicate in [true, false] {
        let mut store = filled(3);
        store.set(0, b"key", &[1; 50]).expect("set");
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            store.update_if(
                0,
                b"key",
                |_| !in_predicate || panic!("in the predicate"),
                |bytes| {
                    bytes.fill(9);
                    panic!("in the callback")
                },
            )
        }));
        assert!(panicked.is_err());
        assert_eq!(store.get(0, b"key").unwrap(), Some(&[1; 50][..]));
        store.set(0, b"other", b"goes on").expect("a panic poisons nothing");
        let mut store = open(closed(store));
        assert_eq!(store.get(0, b"key").unwrap(), Some(&[1; 50][..]));
        assert_eq!(store.get(0, b"other").unwrap(), Some(&b"goes on"[..]));
    }
    std::panic::set_hook(hook);
}

#[test]
fn reads_during_overwrites_always_find_the_key() {
    let mut store = filled(10);
    let mut rng = Rng::new(9);
    let mut reads = 0_u64;
    for i in 0..60_000_u64 {
        let key = [b'k', rng.below(10) as u8];
        store.set(0, &key, &bytes_of(i, 8 + rng.below(60))).expect("set");
        for k in 0..10 {
            assert!(
                store.get(0, &[b'k', k]).unwrap().is_some_and(|v| v.len() >= 8),
                "write {i}, key {k}"
            );
            reads += 1;
        }
        if rng.one_in(50) {
            store.commit().expect("commit");
        }
    }
    assert_eq!((reads, store.count(0)), (600_000, 10));
}

#[test]
fn foreign_file_is_refused_unchanged() {
    let foreign = [b"SQLite format 3\0".repeat(600), vec![0xFF; 5000], b"vacuum".to_vec()];
    for bytes in foreign {
        let file = crate::support::fault_file::FaultFile::new(bytes.clone());
        assert!(matches!(Store::open(file.clone(), options()), Err(Error::NotADatabase)));
        assert_eq!(file.image(), bytes);
    }
    assert_eq!(MemoryFile::default().size(), Ok(0));
}
