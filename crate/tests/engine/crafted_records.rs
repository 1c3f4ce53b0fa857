//! Maliciously crafted files with valid checksums: records that replay rejects are also rejected
//! before a checkpoint, whenever they are read, and verification reports them.

use varve::Reader;
use varve::engine::format::checkpoint::{self, HEAD};
use varve::engine::format::record::{self, KIND_CHUNKED, KIND_DELETE, KIND_EXTENT, RecordHeader};
use varve::engine::format::{DATA_START, segment};
use varve::engine::{Error, Options, Store};

use crate::repair;
use crate::support::crash_programs::without_checkpoints;
use crate::support::fault_file::FaultFile;
use crate::support::oracle::{problems_of, state_of};
use crate::support::pages::Pages;
use crate::support::rng::bytes_of;

const SEGMENT: usize = 4096;
/// Values in records, in an extent, and in chunks.
const VALUES: [(&[u8], usize); 5] =
    [(b"short", 20), (b"long", 900), (b"extent", 11_000), (b"pieces", 2_000), (b"last", 100)];

fn options(memory: usize) -> Options {
    Options { segment_log2: 12, memory, ..Options::default() }
}

fn value_of(key: &[u8]) -> Vec<u8> {
    let (_, length) = VALUES.iter().find(|(other, _)| *other == key).expect("one of these");
    bytes_of(*length as u64, *length)
}

/// A file with all of these and a tombstone before a checkpoint.
fn sample() -> Vec<u8> {
    let file = FaultFile::default();
    let mut store = Store::open(file.clone(), options(1 << 20)).expect("a new file opens");
    store.set(0, b"gone", &[7; 40]).expect("set");
    for (key, _) in VALUES {
        store.set(0, key, &value_of(key)).expect("set");
        store.set(2, key, b"of another keyspace").expect("set");
        store.commit().expect("commit");
    }
    store.delete(0, b"gone").expect("delete");
    store.commit().expect("commit");
    // Records at the end of the log are always read.
    for i in 0..6 {
        store.set(2, b"behind", &bytes_of(i, 1_000)).expect("set");
        store.commit().expect("commit");
    }
    store.close().map_err(|(_, e)| e).expect("close");
    let mut store = Store::open(file.clone(), options(1 << 20)).expect("it opens");
    assert!(store.recovery().checkpoint && store.recovery().replayed_frames < 2);
    assert_eq!(problems_of(&mut store), []);
    file.image()
}

fn u32_at(image: &[u8], at: usize) -> u32 {
    image[at..at + 4].try_into().map_or(0, u32::from_le_bytes)
}

/// The offsets of the frames and records of the log.
fn records(image: &[u8]) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    for start in (DATA_START as usize..image.len()).step_by(SEGMENT) {
        if u32_at(image, start + 8) != segment::MAGIC || image[start + 12] != segment::KIND_LOG {
            continue;
        }
        let mut frame = start + segment::SIZE;
        while frame + 40 < start + SEGMENT && &image[frame + 8..frame + 12] == b"VFRM" {
            let end = frame + u32_at(image, frame + 12) as usize;
            let mut at = frame + 40;
            while at < end {
                found.push((frame, at));
                let capacity = u32_at(image, at + 16) as usize;
                at += record::size_of_record(usize::from(image[at + 8]), capacity);
            }
            frame = end;
        }
    }
    found
}

/// The offsets of the frame and the record of a key.
fn locate_record(image: &[u8], key: &[u8], kind: Option<u8>) -> (usize, usize) {
    let found = records(image).into_iter().find(|&(_, at)| {
        let is_match = image[at + 8..at + 12] == [key.len() as u8, 0, 0, 0];
        is_match
            && &image[at + 40..at + 40 + key.len()] == key
            && kind.is_none_or(|kind| image[at + 4] == kind)
    });
    found.expect("the record is before the checkpoint")
}

fn put(image: &mut [u8], at: usize, bytes: &[u8]) {
    image[at..at + bytes.len()].copy_from_slice(bytes);
}

/// A change of the record of a key. The arguments are the image and the offsets of the record, of
/// its value, and of its frame.
type Edit = fn(&mut [u8], usize, usize, usize);

const LARGE: [u8; 8] = (16_777_217_u64).to_le_bytes();

#[rustfmt::skip]
const EDITS: &[(&str, &[u8], Edit)] = &[
    ("a kind that does not exist", b"long", |image, at, _, _| image[at + 4] = 0),
    ("a kind that must be understood", b"long", |image, at, _, _| image[at + 4] = 100),
    ("a kind that may be skipped", b"long", |image, at, _, _| image[at + 4] = 0x99),
    ("space that means nothing", b"short", |image, at, _, _| image[at + 4] = 0x81),
    ("a transaction record", b"long", |image, at, _, _| image[at + 4] = 0x82),
    ("a deletion", b"short", |image, at, _, _| image[at + 4] = KIND_DELETE),
    ("a version above all", b"long", |image, at, _, _| image[at + 31] = 1),
    ("a version of many bits", b"short", |image, at, _, _| put(image, at + 24, &[255; 8])),
    ("a capacity that is no multiple of 8", b"short", |image, at, _, _| image[at + 16] += 4),
    ("a value longer than its capacity", b"short", |image, at, _, _| image[at + 12] = 80),
    ("a value that reaches beyond its frame", b"last", |image, at, _, _| put(image, at + 12, &[0, 9])),
    ("a record that reaches beyond its frame", b"last", |image, at, _, _| put(image, at + 16, &[0, 2])),
    ("no key", b"long", |image, at, _, _| image[at + 8] = 0),
    ("a key that reaches beyond its frame", b"last", |image, at, _, _| put(image, at + 8, &[255, 255])),
    ("an extent without its description", b"extent", |image, at, _, _| image[at + 12] = 31),
    ("an extent longer than values can be", b"extent", |image, _, value, _| put(image, value + 8, &LARGE)),
    ("an extent one byte longer", b"extent", |image, _, value, _| image[value + 8] += 1),
    ("an extent one byte shorter", b"extent", |image, _, value, _| image[value + 8] -= 1),
    ("an extent elsewhere", b"extent", |image, _, value, _| image[value] += 1),
    ("an extent after the end of the file", b"extent", |image, _, value, _| put(image, value, &[0, 0, 1])),
    ("an extent of another sequence", b"extent", |image, _, value, _| image[value + 24] += 9),
    ("a value called an extent", b"long", |image, at, _, _| image[at + 4] = KIND_EXTENT),
    ("chunks without a descriptor", b"pieces", |image, at, _, _| image[at + 12] = 23),
    ("no chunks", b"pieces", |image, _, value, _| put(image, value + 16, &[0, 0, 0, 0])),
    ("more chunks than the maximum", b"pieces", |image, _, value, _| put(image, value + 16, &[0, 0, 1])),
    ("the maximum number of chunks", b"pieces", |image, _, value, _| put(image, value + 16, &[255, 255, 0])),
    ("one chunk more", b"pieces", |image, _, value, _| image[value + 16] += 1),
    ("one chunk less", b"pieces", |image, _, value, _| image[value + 16] -= 1),
    ("chunks longer than the longest value", b"pieces", |image, _, value, _| put(image, value + 8, &LARGE)),
    ("chunks one byte longer", b"pieces", |image, _, value, _| image[value + 8] += 1),
    ("chunks one byte shorter", b"pieces", |image, _, value, _| image[value + 8] -= 1),
    ("chunks of another value", b"pieces", |image, _, value, _| image[value] += 1),
    ("a short value with the kind of chunked ones", b"long", |image, at, _, _| image[at + 4] = KIND_CHUNKED),
    ("a frame of more records", b"long", |image, _, _, frame| image[frame + 32] += 1),
    ("a frame of fewer records", b"long", |image, _, _, frame| image[frame + 32] -= 1),
];

/// Reads everything in a file: no value may differ from the original.
fn reads_original_values(file: &FaultFile, options: Options, what: &str) -> bool {
    let mut store = Store::open(file.clone(), options).unwrap_or_else(|e| panic!("{what}: {e}"));
    assert!(store.recovery().checkpoint, "{what}: the checkpoint was not used");
    let mut is_whole = true;
    for (key, _) in VALUES {
        match store.get(0, key) {
            Ok(value) => {
                assert!(value == Some(&value_of(key)[..]), "{what}: {key:?} has another value")
            }
            Err(Error::Corruption(_)) => is_whole = false,
            Err(error) => panic!("{what}: {error:?}"),
        }
        let found =
            store.has(0, key).and_then(|found| Ok(found && store.version(0, key)?.is_some()));
        assert!(matches!(found, Ok(true) | Err(Error::Corruption(_))), "{what}: {found:?}");
        assert_eq!(store.get(2, key).expect("get"), Some(&b"of another keyspace"[..]), "{what}");
        store.end_turn();
    }
    is_whole
}

#[test]
fn malformed_records_behind_a_checkpoint_are_refused_and_verified() {
    let image = sample();
    let mut refused = 0;
    for (what, key, edit) in EDITS {
        let mut image = image.clone();
        let (frame, at) = locate_record(&image, key, None);
        let value =
            at + RecordHeader { key_len: key.len() as u16, ..Default::default() }.value_offset();
        let check = image[value + 16..value + 24].to_vec();
        edit(&mut image, at, value, frame);
        repair::all(&mut image);
        if *key == b"extent" {
            // The header now disagrees with the content of the extent.
            put(&mut image, value + 16, &check);
            let salt = DATA_START as usize + (frame - DATA_START as usize) / SEGMENT * SEGMENT;
            let salt = image[salt + 24..salt + 32].try_into().map_or(0, u64::from_le_bytes);
            let end =
                DATA_START as usize + (frame - DATA_START as usize) / SEGMENT * SEGMENT + SEGMENT;
            repair::frames(&mut image[..end], frame, salt);
        }
        let bare = FaultFile::new(without_checkpoints(&Pages::from(image.clone())));
        refused += usize::from(Store::open(bare, options(1 << 20)).is_err());
        for memory in [0, 1 << 20] {
            let file = FaultFile::new(image.clone());
            let mut store = Store::open(file.clone(), options(memory))
                .unwrap_or_else(|e| panic!("{what}: {e}"));
            let problems = problems_of(&mut store);
            assert!(!problems.is_empty(), "{what}: verification reports nothing");
            drop(store.into_file());
            reads_original_values(&file, options(memory), what);
            // Nor is it replayed.
            let mut store = Store::open(file.clone(), options(memory)).expect("it opens");
            store.set(0, b"new", b"value").expect("set");
            let mut more = store.maintain(true).expect("maintain");
            while more {
                more = store.maintain(false).expect("maintain");
            }
            store.close().map_err(|(_, e)| e).expect("close");
            reads_original_values(&file, options(memory), what);
        }
        // A reader that verifies everything rejects it, except for a count that nothing depends on.
        let mut aligned = vec![0; image.len() + 8];
        let skip = aligned.as_ptr().align_offset(8);
        put(&mut aligned, skip, &image);
        let bytes = &aligned[skip..][..image.len()];
        let reader = Reader::from_bytes(bytes);
        assert!(reader.is_err() || what.starts_with("a frame of"), "{what}: a reader accepts it");
    }
    println!("{} crafted records, of which replay refuses {refused}", EDITS.len());
    assert!(refused > 20);
}

#[test]
fn verification_finds_checkpoint_entries_without_matching_record() {
    let image = sample();
    let magic = checkpoint::MAGIC.to_le_bytes();
    let mut offsets = (DATA_START as usize..image.len() - HEAD).step_by(8);
    let head = offsets.find(|&at| image[at + 8..at + 12] == magic);
    let head = head.expect("there is a checkpoint");
    let block = head + u32_at(&image, head + 12) as usize;
    let count = u32_at(&image, head + 40) as usize;
    assert!(count >= 10 && HEAD == 72, "{count} entries");
    let entry = |i: usize| block + 8 + 8 * i;
    let position = |at: usize| ((at - DATA_START as usize) / 8) as u32;
    let (_, deletion) = locate_record(&image, b"gone", Some(KIND_DELETE));
    let (_, long) = locate_record(&image, b"long", None);
    for i in 0..count {
        let old = u32_at(&image, entry(i) + 4);
        for (what, hash, to) in [
            ("another hash", 1, old),
            ("a deletion", 0, position(deletion)),
            ("the middle of a value", 0, position(long + 160)),
            ("the record after it", 0, old + 1),
            ("another key's record", 0, u32_at(&image, entry((i + 1) % count) + 4)),
        ] {
            let mut image = image.clone();
            image[entry(i)] ^= hash;
            put(&mut image, entry(i) + 4, &to.to_le_bytes());
            repair::all(&mut image);
            let file = FaultFile::new(image);
            let mut store = Store::open(file, options(1 << 20)).expect("it opens");
            if !store.recovery().checkpoint {
                // Its hashes are not in order any more, so the log was replayed.
                assert_eq!((what, state_of(&mut store).len()), ("another hash", 11));
                continue;
            }
            assert!(!problems_of(&mut store).is_empty(), "entry {i}: {what}");
        }
    }
    let mut store = Store::open(FaultFile::new(image), options(0)).expect("it opens");
    assert_eq!(state_of(&mut store).len(), 11);
}

#[test]
fn two_records_sharing_an_extent_read_within_its_bounds() {
    let mut image = sample();
    let (_, extent) = locate_record(&image, b"extent", None);
    let (frame, long) = locate_record(&image, b"long", None);
    // The record of 900 bytes becomes one that names an extent, with another length.
    let described = image[extent + 48..extent + 80].to_vec();
    put(&mut image, long + 48, &described);
    image[long + 4] = KIND_EXTENT;
    put(&mut image, long + 56, &[0, 0, 16]);
    let start = DATA_START as usize + (frame - DATA_START as usize) / SEGMENT * SEGMENT;
    let salt = image[start + 24..start + 32].try_into().map_or(0, u64::from_le_bytes);
    repair::frames(&mut image[..start + SEGMENT], start + segment::SIZE, salt);
    let mut store = Store::open(FaultFile::new(image), options(1 << 20)).expect("it opens");
    assert_eq!(store.get(0, b"extent").expect("get"), Some(&value_of(b"extent")[..]));
    assert!(matches!(store.get(0, b"long"), Err(Error::Corruption(_))));
    assert!(!problems_of(&mut store).is_empty());
}
