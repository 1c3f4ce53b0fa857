//! Tombstones: how long they are kept, and that no record outlives its deletion.

use std::collections::BTreeMap;

use varve::engine::format::frame::{self, FrameHeader};
use varve::engine::format::record::{self, KIND_DELETE};
use varve::engine::format::segment::{self, KIND_LOG, SegmentHeader};
use varve::engine::format::superblock::{Slot, Superblock};
use varve::engine::format::{DATA_START, superblock};
use varve::engine::{MemoryFile, Options, Store};

use crate::support::counting_file::CountingFile;
use crate::support::fault_file::FaultFile;
use crate::support::rng::{Rng, bytes_of};

#[test]
fn transient_keys_beside_stable_ones_do_not_cause_endless_moves() {
    const STABLE_KEYS: u64 = 20_000;
    const TRANSIENT_KEYS: u64 = 800;
    let (file, counts) = CountingFile::new(MemoryFile::default());
    let options = Options { segment_log2: 15, ..Options::default() };
    let mut store = Store::open(file, options).expect("opens");
    let mut rng = Rng::new(1);
    let set = |store: &mut Store<CountingFile<MemoryFile>>, key: u64| {
        store.set(0, &key.to_be_bytes(), &[7; 100]).expect("set");
        if key.is_multiple_of(16) {
            store.commit().expect("commit");
            store.end_turn();
        }
    };
    (0..STABLE_KEYS).for_each(|key| set(&mut store, key));
    // Until the file has its maximum size.
    (0..STABLE_KEYS).for_each(|_| set(&mut store, rng.below(STABLE_KEYS as usize) as u64));
    let mut rounds = Vec::new();
    for _ in 0..200 {
        let before = counts.written();
        let first = STABLE_KEYS + rng.below(1 << 30) as u64;
        let mut keys: Vec<u64> = (first..first + TRANSIENT_KEYS).collect();
        keys.iter().for_each(|&key| set(&mut store, key));
        while !keys.is_empty() {
            let key = keys.swap_remove(rng.below(keys.len()));
            assert_eq!(store.delete(0, &key.to_be_bytes()), Ok(true));
            if keys.len().is_multiple_of(16) {
                store.commit().expect("commit");
                store.end_turn();
            }
        }
        store.maintain(false).expect("maintain");
        rounds.push((counts.written() - before) / (2 * TRANSIENT_KEYS));
    }
    assert_eq!(store.count(0), STABLE_KEYS);
    let of_last = rounds[150..].iter().sum::<u64>() / 50;
    // A record and its tombstone take 104 bytes each, including their frames.
    assert!(of_last <= 250, "{of_last} bytes for each set or deleted key: {rounds:?}");
}

/// Whether each key in any existing segment is set, by its newest record there.
fn keys_in_segments(image: &[u8], segment_log2: u8) -> BTreeMap<Vec<u8>, bool> {
    let length = 1 << segment_log2;
    let Slot::Valid(superblock) = Superblock::decode(&image[..superblock::SIZE], 0) else {
        panic!("the first superblock is whole");
    };
    let mut newest: BTreeMap<Vec<u8>, (u64, bool)> = BTreeMap::new();
    for start in (DATA_START as usize..image.len()).step_by(length) {
        let bytes = image.get(start..start + segment::SIZE).unwrap_or_default();
        let header = SegmentHeader::decode(bytes, superblock.file_id[0], start as u64);
        let Some(header) = header.filter(|header| header.kind == KIND_LOG) else { continue };
        let (mut at, end) = (start + segment::SIZE, start + length - segment::SIZE);
        while let Some(frame) = FrameHeader::open(&image[at..end], header.salt, at as u64) {
            let mut records = &image[at + frame::SIZE..at + frame.length as usize];
            while let Some((header, key, _)) = record::parts(records) {
                if header.keyspace() == 0 && !key.is_empty() {
                    let one = (header.version, header.kind != KIND_DELETE);
                    let before = newest.entry(key.to_vec()).or_insert(one);
                    *before = one.max(*before);
                }
                records = &records[header.size()..];
            }
            at += frame.length as usize;
        }
    }
    newest.into_iter().map(|(key, (_, is_set))| (key, is_set)).collect()
}

#[test]
fn tombstone_outlives_every_segment_with_its_key() {
    let (mut went, mut left) = (0, 0);
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let segment_log2 = 12;
        let options = |session| Options {
            segment_log2,
            factor: [120, 150, 200][seed as usize % 3],
            entropy: [seed, session, 1, 2],
            ..Options::default()
        };
        let mut file = FaultFile::default();
        let mut store = Store::open(file.clone(), options(0)).expect("opens");
        let mut existing = BTreeMap::new();
        for step in 0..600_u64 {
            // Some keys stay, some are overwritten, some are set and deleted at once.
            let key = match rng.below(3) {
                0 => rng.below(60) as u64,
                1 => 100 + rng.below(12) as u64,
                _ => 200 + step / 8,
            };
            let bytes = key.to_be_bytes();
            match rng.below(5) {
                0 | 1 => {
                    store.set(0, &bytes, &bytes_of(step, rng.below(200))).expect("set");
                    existing.insert(key, step);
                }
                2 | 3 => {
                    let was = store.delete(0, &bytes).expect("delete");
                    assert_eq!(was, existing.remove(&key).is_some());
                }
                _ => {
                    // A deletion that is rolled back.
                    let savepoint = store.savepoint();
                    store.delete(0, &bytes).expect("delete");
                    store.rollback(savepoint);
                }
            }
            match rng.below(12) {
                0 => store.flush().expect("flush"),
                1..4 => store.commit().expect("commit"),
                4..8 => _ = store.maintain(rng.one_in(60)).expect("maintain"),
                8 if rng.one_in(12) => {
                    // Killed or closed: only segments of this session have exact accounting.
                    if rng.one_in(2) {
                        store.commit().expect("commit");
                    } else {
                        store.close().map_err(|(_, error)| error).expect("closes");
                    }
                    file = FaultFile::new(file.image());
                    store = Store::open(file.clone(), options(step)).expect("opens");
                }
                _ => continue,
            }
            store.commit().expect("commit");
            let keys_in_segments = keys_in_segments(&file.image(), segment_log2);
            for (bytes, &is_set) in &keys_in_segments {
                let key = u64::from_be_bytes(bytes[..].try_into().expect("eight bytes"));
                assert_eq!(
                    is_set,
                    existing.contains_key(&key),
                    "seed {seed}, step {step}, key {key}"
                );
                left += u32::from(!is_set);
            }
            went += (200..=200 + step / 8)
                .filter(|key| !keys_in_segments.contains_key(&key.to_be_bytes()[..]))
                .count();
        }
    }
    assert!(went > 100_000 && left > 100_000, "{went} were removed, {left} were checked");
}
