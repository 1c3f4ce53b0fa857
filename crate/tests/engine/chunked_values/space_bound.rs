//! The bound on the file's size, for values of every size.

use std::collections::BTreeMap;

use varve::engine::format::checkpoint::BLOCK_ENTRIES;
use varve::engine::format::{KEYSPACE_ENGINE, record};
use varve::engine::{MemoryFile, Options, Store};

use super::{Storage, options, storage_of};
use crate::support::rng::Rng;

/// The live bytes as the bound of the file counts them: records with their headers, and values
/// stored elsewhere. Below a factor of 150, records that do not fill a segment evenly count with
/// the unused rest.
fn live_bytes(lengths: &BTreeMap<u64, usize>, segment: usize, factor: u32) -> u64 {
    let counts = |key: usize, length: usize| {
        let size = record::size_of_record(key, length.next_multiple_of(8));
        if factor < 150 { segment / ((segment - 168) / size) } else { size }
    };
    let of = |&length: &usize| match storage_of(length, segment, factor) {
        Storage::Record => counts(8, length),
        Storage::Extent => counts(8, 32) + length,
        Storage::Chunks(chunks) => counts(8, 24) + chunks * counts(16, length.div_ceil(chunks)),
    };
    lengths.values().map(of).sum::<usize>() as u64
}

/// Overwrites keys with values of these lengths, over and over.
fn overwrite(segment_log2: u8, factor: u32, lengths: std::ops::Range<usize>) {
    let (keys, writes) = if segment_log2 == 20 { (6, 48) } else { (40, 1_000) };
    let options = Options { factor, memory: 4 << 20, ..options(segment_log2) };
    let segment = 1_usize << segment_log2;
    let what = format!("{lengths:?} in segments of {segment}, {factor}");
    let mut store = Store::open(MemoryFile::default(), options).expect("it opens");
    let mut rng = Rng::new(factor.into());
    let mut live = BTreeMap::new();
    let mut beyond = i64::MIN;
    for i in 0..writes {
        let key = if i < keys { i } else { rng.below(keys as usize) as u64 };
        let length = rng.within(lengths.clone());
        live.insert(key, length);
        store.set(0, &key.to_be_bytes(), &vec![i as u8; length]).expect("set");
        store.commit().expect("commit");
        store.end_turn();
        let entries = store.stats().count + store.count(KEYSPACE_ENGINE);
        let blocks = entries.div_ceil(BLOCK_ENTRIES as u64);
        let tables = 4096.max(256 + 40 * store.stats().segments);
        let checkpoint = (8 * entries + 12 * blocks + tables).next_multiple_of(segment as u64);
        let bytes = live_bytes(&live, segment, factor) * u64::from(factor) / 100;
        let bound = 8192 + bytes + 2 * checkpoint + 4 * segment as u64;
        // Replaced values exist beside the new ones until a flush, and so do a few more.
        let largest = (lengths.end + 128).next_multiple_of(segment) as u64;
        let file = store.stats().file_bytes;
        assert!(file <= bound + 6 * largest, "{what}: {file} of {bound} bytes after {i} writes");
        if i % 8 == 7 {
            store.flush().expect("flush");
            while store.maintain(false).expect("maintain") {}
            let file = store.stats().file_bytes;
            beyond = beyond.max(file as i64 - bound as i64);
            // Free slots before a checkpoint of several slots may not be adjacent.
            let apart = if checkpoint > 3 * segment as u64 { checkpoint } else { 0 };
            let bound = bound + apart;
            assert!(file <= bound, "{what}: {file} of {bound} bytes at rest after {i} writes");
        }
    }
    println!("{what}: {beyond} beyond at most, at rest");
    for (key, length) in live {
        let value = store.get(0, &key.to_be_bytes()).expect("get").map(<[u8]>::len);
        assert_eq!(value, Some(length), "{what}");
    }
}

#[test]
fn file_size_bound_holds_for_values_of_every_size() {
    const MIB: usize = 1 << 20;
    for factor in [120, 150, 300] {
        overwrite(20, factor, 525_000..2_400_000);
        overwrite(12, factor, 1_025..12_000);
        overwrite(12, factor, 0..12_000);
        // The shortest and the longest of each kind.
        for length in [1_025, 2_049, 3_276, 3_277, 3_968, 3_969, 4_096, 6_553, 6_554, 8_065, 8_192]
        {
            overwrite(12, factor, length..length + 1);
        }
        for length in [523_265, 600_000, 838_860, 838_861, MIB, 1_300_000, 2 * MIB] {
            overwrite(20, factor, length..length + 1);
        }
    }
}

#[test]
fn reopen_with_smaller_space_factor_shrinks() {
    for (before, after) in [(150, 120), (120, 300), (300, 120), (300, 150)] {
        for length in [1_300_000, 4 << 20] {
            let with = |factor| Options { factor, memory: 4 << 20, ..options(20) };
            let mut store = Store::open(MemoryFile::default(), with(before)).expect("it opens");
            for key in 0..6_u8 {
                store.set(0, &[key], &vec![key; length]).expect("set");
                store.commit().expect("commit");
            }
            // Enough for a checkpoint.
            for i in 0..24_u8 {
                store.set(0, b"again and again", &vec![i; 500_000]).expect("set");
                store.commit().expect("commit");
            }
            let file = store.close().map_err(|(_, error)| error).expect("close");
            let mut store = Store::open(file, with(after)).expect("it opens again");
            assert!(store.recovery().checkpoint, "it knows of its values from the checkpoint");
            for key in 0..6_u8 {
                assert_eq!(store.delete(0, &[key]), Ok(true));
                store.commit().expect("commit");
            }
            for _ in 0..3 {
                store.flush().expect("flush");
                store.witness().expect("witness");
                while store.maintain(false).expect("maintain") {}
            }
            let file = store.stats().file_bytes;
            assert!(file <= 8192 + (6 << 20), "{before} and then {after}, {length}: {file}");
        }
    }
}
