//! Malicious files with correct checksums, which prove that the bytes are as written but not that
//! the writer was honest. Whatever they contain, nothing panics, and no more memory is allocated or
//! data searched than the file's size justifies.

use std::panic::{AssertUnwindSafe, catch_unwind};

use varve::engine::format::checksum::{checksum, seed_at};
use varve::engine::format::frame::{self, FrameHeader};
use varve::engine::format::segment::{self, SegmentHeader};
use varve::engine::format::superblock::{self, SLOT_STRIDE, Superblock};
use varve::engine::{OnDamage, Options, Store, VerifyCursor};

use crate::support::fault_file::FaultFile;
use crate::support::oracle::KEYSPACES;
use crate::support::rng::{Rng, bytes_of, replayed};

const SEGMENT: usize = 4096;

fn options() -> Options {
    Options { segment_log2: 12, ..Options::default() }
}

/// A file with all kinds of content: segments, an extent, chunks, several frames per commit, two
/// closes.
fn sample() -> Vec<u8> {
    let file = FaultFile::default();
    let mut store = Store::open(file.clone(), options()).expect("a new file opens");
    for i in 0..12_u8 {
        let savepoint = store.savepoint();
        let length = if i == 7 { 3_700 } else { 130 * usize::from(i) };
        store.set(0, &[b'k', i], &bytes_of(i.into(), length)).expect("set");
        store.set(2, b"the same", &[i; 12]).expect("set");
        if i % 3 == 2 {
            store.delete(0, &[b'k', i - 1]).expect("delete");
        }
        store.release(savepoint).expect("release");
        store.flush().expect("flush");
        if i == 5 {
            store = Store::open(store.close().map_err(|(_, e)| e).expect("close"), options())
                .expect("open");
        }
    }
    drop(store.close().map_err(|(_, e)| e).expect("close"));
    file.image()
}

/// A part of the file with a checksum over its bytes from 8 (or 16) to its end, stored before them.
#[derive(Clone, Debug)]
struct Part {
    at: usize,
    len: usize,
    /// The offset of its checksum, and of the first byte covered, relative to its start.
    check: usize,
    from: usize,
    seed: u64,
    /// The offset of an identical copy.
    copy: Option<usize>,
}

impl Part {
    fn seal(&self, image: &mut [u8]) {
        let part = &mut image[self.at..self.at + self.len];
        let check = checksum(&part[self.from..], self.seed).to_le_bytes();
        part[self.check..self.check + 8].copy_from_slice(&check);
        if let Some(copy) = self.copy {
            image.copy_within(self.at..self.at + self.len, copy);
        }
    }
}

fn superblock_part(slot: usize) -> Part {
    let at = slot * SLOT_STRIDE as usize;
    let seed = seed_at(u64::from_le_bytes(superblock::MAGIC), at as u64);
    Part { at, len: superblock::SIZE, check: 8, from: 16, seed, copy: None }
}

/// All parts of a file that have checksums.
fn parts_of(image: &[u8]) -> Vec<Part> {
    let mut parts = vec![superblock_part(0), superblock_part(1)];
    let superblock::Slot::Valid(superblock) = Superblock::decode(&image[..superblock::SIZE], 0)
    else {
        panic!("the sample is whole")
    };
    let file_id = superblock.file_id[0];
    for start in (2 * SLOT_STRIDE as usize..image.len()).step_by(SEGMENT) {
        let position = start as u64;
        let Some(header) = SegmentHeader::decode(&image[start..], file_id, position) else {
            continue;
        };
        let end = start + SEGMENT * header.span as usize - segment::SIZE;
        let seed = seed_at(file_id, position);
        let part = Part { at: start, len: segment::SIZE, check: 0, from: 8, seed, copy: Some(end) };
        parts.push(part);
        let mut at = start + segment::SIZE;
        while let Some(frame) = FrameHeader::open(&image[at..end], header.salt, at as u64) {
            let (len, seed) = (frame.length as usize, seed_at(header.salt, at as u64));
            parts.push(Part { at, len, check: 0, from: 8, seed, copy: None });
            at += len;
        }
    }
    parts
}

/// Overwrites a random field of a part with a number that parsers may mishandle.
fn corrupt_number(image: &mut [u8], part: &Part, rng: &mut Rng) {
    // Headers, including those of records, are at multiples of 4; most changes are made there.
    let end = if rng.one_in(3) { part.len } else { part.len.min(frame::SIZE * 3) };
    let at = part.at + rng.within(part.from / 4..end / 4) * 4;
    let old = u32::from_le_bytes(image[at..at + 4].try_into().expect("four bytes"));
    let new = match rng.below(8) {
        0 => 0,
        1 => u32::MAX,
        2 => 1 << rng.below(32),
        3 => old.wrapping_add(1 << rng.below(12)),
        4 => old.wrapping_sub(1 << rng.below(12)),
        5 => old ^ (1 << rng.below(32)),
        6 => rng.below(20) as u32,
        _ => rng.next() as u32,
    };
    image[at..at + 4].copy_from_slice(&new.to_le_bytes());
    part.seal(image);
}

/// Reads everything. Damage may be detected only now, which must not panic.
fn read_everything(store: &mut Store<FaultFile>) {
    for keyspace in KEYSPACES {
        let Ok(keys) = store.keys(keyspace) else { continue };
        for key in keys {
            if let Ok(Some(value)) = store.get(keyspace, &key) {
                assert!(value.len() <= 16 << 20);
            }
        }
        store.end_turn();
    }
}

/// Verifies everything; this must terminate.
fn verify(store: &mut Store<FaultFile>) {
    let mut cursor = VerifyCursor::default();
    for _ in 0..100_000 {
        match store.verify(cursor) {
            Ok(found) if found.next == VerifyCursor::default() => return,
            Ok(found) => cursor = found.next,
            Err(_) => return,
        }
    }
    panic!("the verification does not terminate");
}

/// Opens a malicious file and uses it as far as possible. Returns whether it opened.
fn use_database(image: Vec<u8>, options: Options) -> bool {
    let file = FaultFile::new(image);
    let Ok(mut store) = Store::open(file.clone(), options) else {
        // A salvage may fail after it has begun to write.
        let reads = options.on_damage == OnDamage::Refuse;
        assert!(!reads || file.event_count() == 0, "a refused file is not changed");
        return false;
    };
    read_everything(&mut store);
    verify(&mut store);
    let large = vec![1; 3 * SEGMENT];
    let wrote = store
        .set(0, b"new", b"value")
        .and_then(|_| store.set(0, b"larger", &large[..SEGMENT / 5]))
        .and_then(|_| store.set(0, b"large", &large))
        .and_then(|_| store.flush());
    let closed = store.close();
    if wrote.is_ok()
        && closed.is_ok()
        && let Ok(mut store) = Store::open(file, options)
    {
        read_everything(&mut store);
    }
    true
}

/// A file that keeps its history, and the last versions of its commits.
fn sample_with_history() -> (Vec<u8>, Vec<u64>) {
    let file = FaultFile::default();
    let options = Options { keeps_history: Some(true), ..options() };
    let mut store = Store::open(file.clone(), options).expect("a new file opens");
    let mut cursors = vec![];
    for i in 0..24_u8 {
        let length = if i == 7 { 3_700 } else { 40 * usize::from(i) };
        store.set(0, &[b'k', i % 5], &bytes_of(i.into(), length)).expect("set");
        if i % 7 == 2 {
            store.delete(0, &[b'k', (i + 1) % 5]).expect("delete");
        }
        store.flush().expect("flush");
        cursors.push(store.last_commit());
    }
    drop(store.close().map_err(|(_, e)| e).expect("close"));
    (file.image(), cursors)
}

/// Reads all past commits.
fn read_history(image: Vec<u8>, options: Options, cursors: &[u64]) -> usize {
    let Ok(mut store) = Store::open(FaultFile::new(image), options) else { return 0 };
    let mut shown = 0;
    for &cursor in cursors {
        let Ok(past) = store.at(cursor) else { continue };
        shown += 1;
        for i in 0..5 {
            let _ = store.get(past.keyspace(0), &[b'k', i]).map(|value| value.map(<[u8]>::len));
        }
        let _ = store.keys(past.keyspace(0)).map(|keys| keys.len());
        store.end_snapshot(past);
    }
    shown
}

#[test]
fn malicious_positions_of_earlier_records_are_damage_and_never_panic() {
    let (image, cursors) = sample_with_history();
    let parts = parts_of(&image);
    assert_eq!(read_history(image.clone(), options(), &cursors), cursors.len());
    let wrong = [1, 512, 1 << 20, 1 << 28, u32::MAX / 2, u32::MAX - 1, u32::MAX];
    let (mut shown, mut changed) = (0, 0);
    // The position of the record before is in each record's header.
    for part in
        parts.iter().filter(|part| part.copy.is_none() && part.at >= 2 * SLOT_STRIDE as usize)
    {
        for at in (part.at + frame::SIZE..part.at + part.len).step_by(4) {
            let word = u32::from_le_bytes(image[at..at + 4].try_into().expect("four bytes"));
            // In units of eight bytes.
            if word < 1 << 10 || word as usize >= image.len() / 8 {
                continue;
            }
            for wrong in wrong {
                let mut lying = image.clone();
                lying[at..at + 4].copy_from_slice(&wrong.to_le_bytes());
                part.seal(&mut lying);
                changed += 1;
                shown += read_history(lying, options(), &cursors);
            }
        }
    }
    println!("{changed} files showed {shown} commits");
    assert!(changed > 50 && shown > 500, "{changed} files showed {shown} commits");
}

fn run_seed(image: &[u8], parts: &[Part], seed: u64) -> bool {
    let mut rng = Rng::new(seed);
    let memory = if rng.one_in(2) { 0 } else { 64 << 20 };
    let on_damage = *rng.pick(&[OnDamage::Refuse, OnDamage::Prefix, OnDamage::Salvage]);
    let options = Options { memory, on_damage, ..options() };
    let mut lying = image.to_vec();
    for _ in 0..rng.within(1..4) {
        corrupt_number(&mut lying, rng.pick(parts), &mut rng);
    }
    catch_unwind(AssertUnwindSafe(|| use_database(lying, options))).unwrap_or_else(|cause| {
        eprintln!("VARVE_LIAR_SEED={seed} replays it");
        std::panic::resume_unwind(cause)
    })
}

#[test]
fn malicious_file_with_valid_checksums_never_panics() {
    let image = sample();
    let parts = parts_of(&image);
    assert!(parts.len() > 20, "the sample has {} parts", parts.len());
    let seeds = match replayed("VARVE_LIAR_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..replayed("VARVE_LIAR_SEEDS").unwrap_or(20_000),
    };
    let count = seeds.end - seeds.start;
    let opened = seeds.filter(|&seed| run_seed(&image, &parts, seed)).count();
    println!("{count} lying files, {opened} opened");
}
