//! Opening reads the head of the checkpoint, and its entries when they are needed.

use std::collections::BTreeMap;
use std::ops::{Bound, Range};

use varve::engine::format::DATA_START;
use varve::engine::format::checkpoint::{self, BLOCK, BLOCK_ENTRIES, HEAD};
use varve::engine::index::hash_index::KeyHash;
use varve::engine::{Error, Options, ProblemKind, Store};

use crate::support::counting_file::CountingFile;
use crate::support::fault_file::FaultFile;
use crate::support::oracle::{problems_of, state_of};
use crate::support::rng::Rng;

const SEGMENT: usize = 1 << 16;

fn options() -> Options {
    Options { segment_log2: 16, load_at_once: 0, ..Options::default() }
}

/// With memory for the whole index, or for a few entries of it.
fn with_memory(is_limited: bool) -> Options {
    Options { index_memory: if is_limited { 0 } else { usize::MAX }, ..options() }
}

fn key(i: u64) -> [u8; 8] {
    i.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()
}

/// A closed database of these keys with a checkpoint of all of them, and their values.
fn database(keys: impl IntoIterator<Item = [u8; 8]>) -> (FaultFile, BTreeMap<[u8; 8], Vec<u8>>) {
    let file = FaultFile::default();
    let mut store = Store::open(file.clone(), options()).expect("open");
    let mut model = BTreeMap::new();
    for (i, key) in keys.into_iter().enumerate() {
        let value = vec![i as u8; 8 + i % 9];
        store.set(0, &key, &value).expect("set");
        model.insert(key, value);
    }
    store.close().map_err(|(_, e)| e).expect("close");
    (file, model)
}

/// Where the head of the newest checkpoint begins in an image, and its blocks.
fn checkpoint_in(image: &[u8]) -> (usize, Range<usize>) {
    let magic = checkpoint::MAGIC.to_le_bytes();
    let mut heads = (DATA_START as usize + 64..image.len() - HEAD).step_by(SEGMENT);
    let head = heads.rfind(|&at| image[at + 8..at + 12] == magic).expect("there is a checkpoint");
    let number = |at: usize| u32::from_le_bytes(image[at..at + 4].try_into().unwrap()) as usize;
    let (from, entries) = (head + number(head + 12), number(head + 40));
    (head, from..from + 8 * (entries + entries.div_ceil(BLOCK_ENTRIES)))
}

#[test]
fn opening_and_first_lookup_read_as_much_at_any_number_of_keys() {
    let bytes = [20_000, 200_000].map(|count| {
        let (file, model) = database((0..count).map(key));
        let pages = file.pages();
        let (counting, counts) = CountingFile::new(file);
        let mut store = Store::open(counting, options()).expect("open");
        assert!(store.recovery().checkpoint && store.recovery().clean);
        let opened = counts.read();
        assert_eq!(store.count(0), count);
        assert_eq!(store.stats().count, count);
        let wanted = key(count / 2);
        assert_eq!(store.get(0, &wanted), Ok(Some(&model[&wanted][..])));
        assert_eq!(store.get(0, b"absent"), Ok(None));
        // A block of the index for each of both, and at most 4 KiB of the record.
        let looked = counts.read() - opened;
        assert!(looked <= 3 * BLOCK as u64 + 8, "{looked} bytes");
        // A header and a trailer for each slot, a row for each segment, and the first hash of each block.
        let per_segment = (pages.len() / SEGMENT) as u64 * (128 + 40);
        opened - per_segment - 4 * count / BLOCK_ENTRIES as u64
    });
    println!("{bytes:?} bytes beside headers and rows");
    assert!(bytes[1] < bytes[0] + 1_000 && bytes[1] < 3 * SEGMENT as u64, "{bytes:?} bytes");
}

#[test]
fn operations_before_the_index_is_loaded_match_a_map() {
    for seed in 0..20 {
        let mut rng = Rng::new(seed);
        let (file, mut model) = database((0..3_000).map(key));
        for round in 0..6 {
            let options = with_memory((seed + round) % 3 > 0);
            let mut store = Store::open(file.clone(), options).expect("open");
            for _ in 0..rng.within(1..400) {
                let key = key(rng.below(4_000) as u64);
                match rng.below(8) {
                    0 => {
                        let existed = store.delete(0, &key).expect("delete");
                        assert_eq!(existed, model.remove(&key).is_some());
                    }
                    1 | 2 => {
                        let value = vec![rng.below(256) as u8; rng.below(40)];
                        store.set(0, &key, &value).expect("set");
                        model.insert(key, value);
                    }
                    3 => {
                        let savepoint = store.savepoint();
                        store.set(0, &key, b"not kept").expect("set");
                        store.delete(0, &key).expect("delete");
                        store.rollback(savepoint);
                    }
                    4 => {
                        let update = |value: &mut [u8]| {
                            value.fill(7);
                            Ok(None)
                        };
                        let updated = store.update_if(0, &key, |_| true, update).expect("update");
                        let value = model.get_mut(&key).map(|value| value.fill(7));
                        assert_eq!(updated, value.is_some());
                    }
                    5 if rng.one_in(20) => {
                        store.maintain(false).expect("maintain");
                    }
                    6 if rng.one_in(50) => store.commit().expect("commit"),
                    _ => {
                        assert_eq!(store.get(0, &key), Ok(model.get(&key).map(|v| &v[..])));
                    }
                }
                assert_eq!(store.count(0), model.len() as u64);
                assert_eq!(store.stats().count, model.len() as u64);
            }
            if rng.one_in(2) {
                store.flush().expect("flush");
                drop(store.into_file());
            } else {
                store.close().map_err(|(_, e)| e).expect("close");
            }
        }
        let mut store = Store::open(file, options()).expect("open");
        for (key, value) in &model {
            assert_eq!(store.get(0, key), Ok(Some(&value[..])));
        }
        assert!(store.keys(0).expect("keys").iter().eq(model.keys()));
    }
}

#[test]
fn keys_that_were_added_since_the_checkpoint_have_space_in_the_index() {
    let (file, _) = database((0..6_000).map(key));
    let mut store = Store::open(file.clone(), options()).expect("open");
    for i in 6_000..8_000 {
        store.set(0, &key(i), b"").expect("set");
    }
    store.flush().expect("flush");
    drop(store.into_file());
    let mut store = Store::open(file, options()).expect("open");
    assert_eq!(store.stats().count, 8_000);
    while store.maintain(false).expect("maintain") {}
    for i in 0..8_000 {
        assert!(store.has(0, &key(i)).expect("has"), "key {i}");
    }
}

/// Two keys with the same hash, of which one ends a block and the other begins the next.
#[test]
fn equal_hashes_in_two_blocks_are_both_found() {
    let (file, _) = database([key(0)]);
    let image = file.image();
    let word = |at: usize| u64::from_le_bytes(image[at..at + 8].try_into().unwrap());
    let hashes = KeyHash::new([word(56), word(64)]);
    let mut keys: Vec<_> = (0..400_000).map(|i| (hashes.hash(0, &key(i)), key(i))).collect();
    keys.sort_unstable();
    let at = keys.windows(2).position(|two| two[0].0 == two[1].0 && two[0].1 != two[1].1);
    let at = at.expect("some of so many hashes are equal");
    let first = at + 1 - BLOCK_ENTRIES;
    let chosen = &keys[first..first + 3 * BLOCK_ENTRIES];
    let (file, model) = database(chosen.iter().map(|&(_, key)| key));
    for order in [[at, at + 1], [at + 1, at]] {
        for steps in 0..6 {
            let copy = FaultFile::new(file.pages());
            let mut store = Store::open(copy, with_memory(steps % 2 == 0)).expect("open");
            for _ in 0..steps / 2 {
                store.maintain(false).expect("maintain");
            }
            for i in order {
                let key = keys[i].1;
                assert_eq!(store.get(0, &key), Ok(Some(&model[&key][..])));
            }
            assert!(store.delete(0, &keys[order[0]].1).expect("delete"));
            while store.maintain(false).expect("maintain") {}
            assert_eq!(store.get(0, &keys[order[0]].1), Ok(None));
            assert!(store.has(0, &keys[order[1]].1).expect("has"));
            assert_eq!(store.keys(0).expect("keys").len(), model.len() - 1);
        }
    }
}

/// Zeros the header and the trailer of each log segment in an image except for the last one. Returns how
/// many segments these are.
fn without_headers(image: &mut [u8]) -> usize {
    let starts = (DATA_START as usize..image.len() - 64).step_by(SEGMENT);
    let is_log = |at: &usize| image[at + 8..at + 12] == *b"VSEG" && image[at + 12] == 1;
    let mut starts: Vec<usize> = starts.filter(is_log).collect();
    starts.sort_by_key(|at| u32::from_le_bytes(image[at + 16..at + 20].try_into().unwrap()));
    starts.pop();
    for &at in &starts {
        image[at..at + 64].fill(0);
        image[at + SEGMENT - 64..at + SEGMENT].fill(0);
    }
    starts.len()
}

#[test]
fn segments_that_a_checkpoint_lists_need_no_header_to_be_read() {
    let (file, model) = database((0..20_000).map(key));
    let mut image = file.image();
    let count = without_headers(&mut image);
    assert!(count > 10, "{count} segments");
    for is_limited in [false, true] {
        let mut store =
            Store::open(FaultFile::new(image.clone()), with_memory(is_limited)).expect("open");
        assert!(store.recovery().checkpoint);
        for (key, value) in &model {
            assert_eq!(store.get(0, key), Ok(Some(&value[..])));
        }
        let headers = problems_of(&mut store);
        assert!(headers.iter().all(|it| it.what == ProblemKind::Header), "{headers:?}");
        assert_eq!(headers.len(), 2 * count);
        // A later session, with a checkpoint of its own.
        store.set(0, b"one more", b"value").expect("set");
        store.flush().expect("flush");
        let file = store.close().map_err(|(_, e)| e).expect("close");
        let store = Store::open(file, with_memory(is_limited)).expect("open");
        assert!(store.recovery().checkpoint);
        assert_eq!(store.count(0), 20_001);
    }
}

/// A lost superblock may have named a later checkpoint, and slots that this one lists may have been reused.
#[test]
fn headers_decide_which_segments_exist_if_a_superblock_is_damaged() {
    let (file, model) = database((0..20_000).map(key));
    let image = file.image();
    for superblock in [0, 4096] {
        let mut image = image.clone();
        image[superblock + 100] ^= 1;
        let mut store = Store::open(FaultFile::new(image.clone()), options()).expect("open");
        assert!(store.recovery().checkpoint, "all headers are there");
        for (key, value) in &model {
            assert_eq!(store.get(0, key), Ok(Some(&value[..])));
        }
        without_headers(&mut image);
        let error = Store::open(FaultFile::new(image), options()).err();
        assert!(matches!(error, Some(Error::Corruption(_))), "{error:?}");
    }
}

/// The checksum of the tables is right, but they list a slot twice, the checkpoint's own, or one beyond the file.
#[test]
fn checkpoint_that_lists_a_slot_wrongly_is_ignored_in_favour_of_the_log() {
    let (file, model) = database((0..3_000).map(key));
    let image = file.image();
    let (head, blocks) = checkpoint_in(&image);
    let number = |at: usize| u32::from_le_bytes(image[at..at + 4].try_into().unwrap());
    let salt = u64::from_le_bytes(image[head - 40..head - 32].try_into().unwrap());
    let row = head + HEAD + 24 * number(head + 48) as usize;
    assert!(number(head + 52) >= 2, "there are two segments");
    let own = ((head - 64 - DATA_START as usize) / SEGMENT) as u32;
    for slot in [number(row + 56), own, 1_000, u32::MAX] {
        let mut lying = image.clone();
        lying[row..row + 4].copy_from_slice(&slot.to_le_bytes());
        checkpoint::seal(&mut lying[head..blocks.start], salt, head as u64);
        let mut store = Store::open(FaultFile::new(lying), options()).expect("open");
        assert!(!store.recovery().checkpoint, "{slot}");
        for (key, value) in &model {
            assert_eq!(store.get(0, key), Ok(Some(&value[..])));
        }
    }
}

/// Its numbers of keys have a valid checksum, but not as many as it has entries.
#[test]
fn checkpoint_that_counts_other_keys_is_ignored_in_favour_of_the_log() {
    let (file, model) = database((0..3_000).map(key));
    let image = file.image();
    let (head, blocks) = checkpoint_in(&image);
    let number = |at: usize| u32::from_le_bytes(image[at..at + 4].try_into().unwrap());
    let salt_at = head - 64 + 24;
    let salt = u64::from_le_bytes(image[salt_at..salt_at + 8].try_into().unwrap());
    let row = (0..number(head + 48) as usize).map(|i| head + HEAD + 24 * i);
    let row = row.into_iter().find(|&row| image[row..row + 2] == [0; 2]).expect("keyspace 0");
    assert_eq!(number(row + 4), 3_000);
    for count in [0, 1, 2_371, 2_999, 3_001, u32::MAX] {
        for is_limited in [false, true] {
            let mut lying = image.clone();
            lying[row + 4..row + 8].copy_from_slice(&count.to_le_bytes());
            checkpoint::seal(&mut lying[head..blocks.start], salt, head as u64);
            let file = FaultFile::new(lying);
            let mut store = Store::open(file, with_memory(is_limited)).expect("open");
            assert!(!store.recovery().checkpoint, "{count}");
            assert_eq!(store.count(0), 3_000);
            let bounds = (Bound::Unbounded, Bound::Unbounded);
            assert_eq!(store.count_range(0, bounds), Ok(3_000));
            for (key, value) in &model {
                assert_eq!(store.get(0, key), Ok(Some(&value[..])));
            }
            assert_eq!(store.clear(0, bounds, false, u64::MAX), Ok(3_000));
            store.commit().expect("commit");
            let steps = (0..10_000).take_while(|_| store.maintain(false).expect("maintain"));
            assert!(steps.count() < 10_000, "maintenance ends");
            assert_eq!(store.get(0, &key(1)), Ok(None));
        }
    }
}

/// A damaged block costs a replay, whenever it is read, and the next checkpoint mends the file.
#[test]
fn damaged_block_is_replaced_by_a_replay() {
    let (file, mut model) = database((0..3_000).map(key));
    let mut store = Store::open(file.clone(), options()).expect("open");
    // Changes after the checkpoint, some of keys that it has.
    for i in 2_900..3_100 {
        store.set(0, &key(i), b"changed").expect("set");
        model.insert(key(i), b"changed".to_vec());
    }
    for i in 0..50 {
        store.delete(0, &key(i)).expect("delete");
        model.remove(&key(i));
    }
    store.flush().expect("flush");
    drop(store.into_file());
    let (image, original) = (file.image(), model);
    let (_, blocks) = checkpoint_in(&image);
    let mut rng = Rng::new(4);
    for round in 0..60 {
        let (mut image, mut model) = (image.clone(), original.clone());
        image[rng.within(blocks.clone())] ^= 1 << rng.below(8);
        let file = FaultFile::new(image);
        let mut store = Store::open(file.clone(), with_memory(round % 2 == 0)).expect("open");
        // Some of it is loaded, changed or deleted before the damage is met.
        for i in 0..round {
            let key = key(rng.below(3_200) as u64);
            match i % 3 {
                0 => assert_eq!(store.get(0, &key), Ok(model.get(&key).map(|v| &v[..]))),
                1 => {
                    store.set(0, &key, b"changed").expect("set");
                    model.insert(key, b"changed".to_vec());
                }
                _ => {
                    let existed = model.remove(&key).is_some();
                    assert_eq!(store.delete(0, &key), Ok(existed));
                }
            }
            if i % 7 == 6 {
                store.maintain(false).expect("maintain");
            }
        }
        for i in 0..3_200 {
            let key = key(i);
            assert_eq!(store.get(0, &key), Ok(model.get(&key).map(|v| &v[..])), "round {round}");
        }
        assert_eq!(store.stats().count, model.len() as u64);
        while store.maintain(false).expect("maintain") {}
        let state = state_of(&mut store);
        assert_eq!(state.len(), model.len());
        store.close().map_err(|(_, e)| e).expect("close");
        let (counting, counts) = CountingFile::new(file);
        let mut store = Store::open(counting, options()).expect("open");
        while store.maintain(false).expect("maintain") {}
        let read = counts.read();
        assert_eq!(state_of(&mut store), state);
        assert!(read < 8 * SEGMENT as u64, "the damaged checkpoint was replaced: {read} bytes");
    }
}

/// If the log is damaged too, lookups in the damaged block say so, and all others work.
#[test]
fn damaged_block_of_a_damaged_log_is_corruption() {
    let (file, model) = database((0..3_000).map(key));
    let mut image = file.image();
    let (_, blocks) = checkpoint_in(&image);
    image[blocks.start + BLOCK + 100] ^= 1;
    // In the first frame of the log.
    image[DATA_START as usize + 200] ^= 1;
    let mut store = Store::open(FaultFile::new(image), options()).expect("open");
    let (mut found, mut refused) = (0, 0);
    for (key, value) in &model {
        match store.get(0, key) {
            Ok(got) => {
                assert_eq!(got, Some(&value[..]));
                found += 1;
            }
            Err(Error::Corruption(_)) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(found > 1_500 && refused >= BLOCK_ENTRIES, "{found} found, {refused} refused");
}
