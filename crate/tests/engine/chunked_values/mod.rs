//! Chunked values: if an extent would waste too much space, several records contain a value. It
//! exists completely or not at all, leaves no chunks behind, and the file stays within its bound
//! for values of every size.

mod damage;
mod faults;
mod memory;
mod space_bound;
mod transitions;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use varve::engine::format::superblock::{INCOMPATIBLE_CHUNKS, SLOT_STRIDE, Slot, Superblock};
use varve::engine::format::system_records::KEY_CHUNK;
use varve::engine::format::{KEYSPACE_ENGINE, record};
use varve::engine::{
    File, IoError, MemoryFile, OnDamage, Options, ProblemKind, Store, VerifyCursor,
};

use crate::support::crash_programs::without_checkpoints;
use crate::support::fault_file::{Event, FaultFile};
use crate::support::oracle::chunked_values;
use crate::support::raw_file::RawFile;
use crate::support::rng::{Rng, bytes_of};

/// A file in memory. Clones share it.
#[derive(Clone, Default)]
struct Shared(Rc<RefCell<MemoryFile>>);

impl Shared {
    fn of(bytes: Vec<u8>) -> Self {
        Shared(Rc::new(RefCell::new(MemoryFile { bytes })))
    }

    /// The image that a crash leaves.
    fn image(&self) -> Vec<u8> {
        self.0.borrow().bytes.clone()
    }
}

impl File for Shared {
    fn read(&mut self, buf: &mut [u8], at: u64) -> Result<usize, IoError> {
        self.0.borrow_mut().read(buf, at)
    }

    fn write(&mut self, bytes: &[u8], at: u64) -> Result<usize, IoError> {
        self.0.borrow_mut().write(bytes, at)
    }

    fn truncate(&mut self, size: u64) -> Result<(), IoError> {
        self.0.borrow_mut().truncate(size)
    }

    fn size(&mut self) -> Result<u64, IoError> {
        self.0.borrow_mut().size()
    }

    fn flush(&mut self) -> Result<(), IoError> {
        Ok(())
    }
}

fn options(segment_log2: u8) -> Options {
    Options { segment_log2, ..Options::default() }
}

fn open(file: &Shared, options: Options) -> Store<Shared> {
    Store::open(file.clone(), options).unwrap_or_else(|error| panic!("it opens: {error:?}"))
}

fn close(store: Store<Shared>) {
    drop(store.close().map_err(|(_, error)| error).expect("it closes"));
}

fn run_all_maintenance<F: File>(store: &mut Store<F>) {
    let mut more = store.maintain(true).expect("maintain");
    let mut slices = 0;
    while more {
        more = store.maintain(false).expect("maintain");
        slices += 1;
        assert!(slices < 20_000, "maintenance comes to an end");
    }
}

/// Where FORMAT.md says that a value is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Storage {
    Record,
    Extent,
    /// In this many chunks.
    Chunks(usize),
}

fn storage_of(length: usize, segment: usize, factor: u32) -> Storage {
    let slots = (length + 128).div_ceil(segment);
    if length <= segment / 2 - 1024 {
        Storage::Record
    } else if slots * segment * 200 <= length * (100 + factor as usize) {
        Storage::Extent
    } else {
        Storage::Chunks(length.div_ceil(segment / 8 - 128))
    }
}

/// Lengths around every limit for segments of this size.
fn lengths_at_limits(segment: usize) -> Vec<usize> {
    let limit = segment / 2 - 1024;
    let mut lengths = vec![limit - 1, limit, limit + 1];
    for slots in 1..=4 {
        let least = slots * segment * 4 / 5;
        let most = slots * segment - 128;
        let exact = slots * segment;
        lengths.extend([least - 1, least, least + 1, least + 2, most - 1, most, most + 1]);
        lengths.extend([exact - 1, exact, exact + 1]);
    }
    lengths
}

type Content = BTreeMap<Vec<u8>, Vec<u8>>;

fn content(lengths: &[usize], seed: u64) -> Content {
    let value = |&length: &usize| {
        (format!("{length} bytes").into(), bytes_of(seed + length as u64, length))
    };
    lengths.iter().map(value).collect()
}

/// Checks that the store has these values, and exactly the chunks that FORMAT.md requires.
fn check<F: File>(store: &mut Store<F>, content: &Content, segment: usize, what: &str) {
    for (key, value) in content {
        assert!(store.get(0, key) == Ok(Some(value)), "{what}: {} bytes", value.len());
        store.end_turn();
    }
    assert_eq!(store.count(0), content.len() as u64, "{what}");
    let chunked =
        |value: &&Vec<u8>| matches!(storage_of(value.len(), segment, 150), Storage::Chunks(_));
    let mut expected: Vec<_> = content.values().filter(chunked).cloned().collect();
    let mut found: Vec<_> = chunked_values(store).into_values().collect();
    expected.sort();
    found.sort();
    assert!(found == expected, "{what}: {} chunks, not {}", found.len(), expected.len());
    let count = |value: &Vec<u8>| match storage_of(value.len(), segment, 150) {
        Storage::Chunks(count) => count,
        _ => 0,
    };
    assert_eq!(count_chunks(store), content.values().map(count).sum::<usize>(), "{what}");
}

/// The number of live chunks.
fn count_chunks<F: File>(store: &mut Store<F>) -> usize {
    let own = store.keys(KEYSPACE_ENGINE).expect("keys");
    own.iter().filter(|key| key.starts_with(KEY_CHUNK)).count()
}

/// Checks that verification reports nothing.
fn check_verified<F: File>(store: &mut Store<F>) {
    let mut cursor = VerifyCursor::default();
    loop {
        let found = store.verify(cursor).expect("readable");
        assert_eq!(found.what, ProblemKind::Nothing, "{found:?}");
        cursor = found.next;
        if cursor == VerifyCursor::default() {
            break;
        }
    }
}

/// Takes values of these lengths through all operations and events of a file.
fn check_life_cycle(lengths: &[usize], segment_log2: u8, memory: usize) {
    let segment = 1 << segment_log2;
    let options = Options { memory, ..options(segment_log2) };
    let file = Shared::default();
    let mut store = open(&file, options);
    store.set(0, b"victim", &bytes_of(1, 200)).expect("set");
    store.commit().expect("commit");
    let mut content = content(lengths, 0);
    content.insert(b"victim".to_vec(), bytes_of(1, 200));
    for (key, value) in &content {
        store.set(0, key, value).expect("set");
        assert!(store.get(0, key) == Ok(Some(value)), "{} bytes, just set", value.len());
    }
    let after = |store: &mut Store<Shared>, content: &Content, what: &str| {
        check(store, content, segment, what);
        let mut left = open(&Shared::of(file.image()), options);
        check(&mut left, content, segment, &format!("{what}, after a crash"));
    };
    store.commit().expect("commit");
    after(&mut store, &content, "committed");
    run_all_maintenance(&mut store);
    after(&mut store, &content, "compacted");
    // Every second value is replaced, so that there is something to compact.
    for (key, value) in content.iter_mut().step_by(2) {
        *value = bytes_of(77 + value.len() as u64, value.len());
        store.set(0, key, value).expect("set");
        store.commit().expect("commit");
    }
    after(&mut store, &content, "replaced");
    run_all_maintenance(&mut store);
    after(&mut store, &content, "replaced and compacted");
    check_verified(&mut store);
    close(store);
    let mut store = open(&file, options);
    assert!(store.recovery().clean && store.recovery().checkpoint, "{:?}", store.recovery());
    after(&mut store, &content, "opened from a checkpoint");
    drop(store.into_file());
    let mut store = open(&Shared::of(without_checkpoints(&file.image().into()).to_vec()), options);
    assert!(!store.recovery().checkpoint);
    check(&mut store, &content, segment, "opened without a checkpoint");
    salvage_without(b"victim", &mut content, &file.image(), options);
}

/// Checks that with one damaged value everything else is salvaged.
fn salvage_without(victim: &[u8], content: &mut Content, image: &[u8], options: Options) {
    let segment = 1 << options.segment_log2;
    let value = content.remove(victim).expect("the value exists");
    let at = image.windows(value.len()).rposition(|bytes| bytes == value).expect("it is there");
    let mut image = image.to_vec();
    image[at + 3] ^= 1;
    let file = Shared::of(image);
    let mut store = open(&file, Options { on_damage: OnDamage::Salvage, ..options });
    let recovery = *store.recovery();
    assert!(recovery.damaged && recovery.lost_keys + recovery.lost_frames > 0, "{recovery:?}");
    check(&mut store, content, segment, "salvaged");
    drop(store.into_file());
    let mut store = open(&file, options);
    assert!(!store.recovery().damaged);
    check(&mut store, content, segment, "salvaged and opened");
    run_all_maintenance(&mut store);
    check(&mut store, content, segment, "salvaged and compacted");
    close(store);
}

/// A store with a chunked value and others.
fn store_with_chunked_value(file: &Shared, options: Options) -> Store<Shared> {
    let mut store = open(file, options);
    store.set(0, b"small", b"beside it").expect("set");
    store.set(0, b"large", &bytes_of(7, 1_500)).expect("set");
    store.set(0, b"other", &bytes_of(8, 2_100)).expect("set");
    store.commit().expect("commit");
    store
}

#[test]
fn values_around_every_length_limit_survive_all_operations() {
    for memory in [0, 64 << 20] {
        check_life_cycle(&lengths_at_limits(1 << 12), 12, memory);
    }
    check_life_cycle(&lengths_at_limits(1 << 16), 16, 0);
    const MIB: usize = 1 << 20;
    let some = [523_264, 523_265, 838_860, 838_861, MIB - 127, MIB, 2 * MIB - 128, 2 * MIB];
    check_life_cycle(&some, 20, 4 << 20);
}

fn superblocks(image: &[u8]) -> [Superblock; 2] {
    [0, 1].map(|slot| {
        match Superblock::decode(&image[(slot * SLOT_STRIDE) as usize..][..256], slot) {
            Slot::Valid(superblock) => *superblock,
            other => panic!("superblock {slot}: {other:?}"),
        }
    })
}

#[test]
fn chunk_feature_is_set_by_the_first_chunked_value() {
    let file = Shared::default();
    let mut store = open(&file, options(12));
    for length in [0, 1_024, 3_500, 7_000] {
        store.set(0, &[1], &bytes_of(1, length)).expect("set");
        store.flush().expect("flush");
    }
    run_all_maintenance(&mut store);
    close(store);
    assert_eq!(superblocks(&file.image()).map(|superblock| superblock.incompatible), [0, 0]);
    let mut store = open(&file, options(12));
    store.set(0, &[1], &bytes_of(1, 1_025)).expect("set");
    close(store);
    // Bit 0 of the byte at 24 in the current superblock; the other one was written later.
    let image = file.image();
    let [a, b] = superblocks(&image);
    let newest = if a.generation > b.generation { 0 } else { SLOT_STRIDE as usize };
    assert_eq!(image[newest + 24..newest + 32], [1, 0, 0, 0, 0, 0, 0, 0]);
    for _ in 0..2 {
        let mut store = open(&file, options(12));
        store.set(0, &[2], b"written later").expect("set");
        close(store);
    }
    let reported = superblocks(&file.image()).map(|superblock| superblock.incompatible);
    assert_eq!(reported, [INCOMPATIBLE_CHUNKS; 2]);
}

/// What a build without chunked values does with a file: it refuses it by the superblock, or by a
/// record in the replayed part of the log, or there are no chunked values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Refusal {
    BySuperblock,
    ByRecord,
    No,
}

fn refusal_without_chunks(image: &[u8]) -> Refusal {
    let medium = RawFile::new(image, 12);
    let Some(superblock) = medium.superblock() else { return Refusal::No };
    if superblock.incompatible != 0 {
        return Refusal::BySuperblock;
    }
    let first = superblock.first_frame.max(superblock.checkpoint_frame);
    match medium.has_kind(record::KIND_CHUNKED, first) {
        true => Refusal::ByRecord,
        false => Refusal::No,
    }
}

#[test]
fn build_without_chunks_refuses_files_with_chunks_after_any_crash() {
    let mut outcomes = BTreeMap::new();
    for seed in 0..30 {
        let mut rng = Rng::new(seed);
        let file = FaultFile::default();
        let mut options = options(12);
        let mut store = Store::open(file.clone(), options).expect("it opens");
        for _ in 0..40 {
            options.entropy[3] += 1;
            let key = [rng.below(6) as u8];
            let done = match rng.below(10) {
                n @ 0..5 => {
                    let length = if n == 4 { rng.within(1_025..3_000) } else { rng.below(900) };
                    store.set(0, &key, &bytes_of(rng.next(), length)).map(drop)
                }
                5 => store.delete(0, &key).map(drop),
                6 => store.flush(),
                7 => store.maintain(true).map(drop),
                8 => (0..10).try_for_each(|_| store.maintain(false).map(drop)),
                _ => {
                    let file = store.close().map_err(|(_, error)| error).expect("close");
                    store = Store::open(file, options).expect("it opens");
                    Ok(())
                }
            };
            done.expect("nothing fails here");
            store.commit().expect("commit");
        }
        drop(store.into_file());
        let (mut image, events) = file.history();
        for event in events {
            match event {
                Event::Write { at, bytes } => image.write(&bytes, at),
                Event::Truncate(size) => image.resize(size as usize),
                Event::Flush | Event::Mark(_) => continue,
            }
            let bytes = image.to_vec();
            let refused = refusal_without_chunks(&bytes);
            let mut left = Store::open(MemoryFile { bytes }, options).expect("it opens");
            let has_some = count_chunks(&mut left) > 0;
            assert!(
                !has_some || refused != Refusal::No,
                "seed {seed}: there are chunks without the feature bit"
            );
            *outcomes.entry((refused, has_some)).or_insert(0) += 1;
        }
    }
    println!("{outcomes:?}");
    for outcome in [(Refusal::BySuperblock, true), (Refusal::ByRecord, true), (Refusal::No, false)]
    {
        assert!(outcomes.get(&outcome) > Some(&50), "{outcomes:?}");
    }
}

#[test]
fn deleting_a_value_of_the_engines_keyspace_deletes_its_chunks() {
    let mut store = open(&Shared::default(), options(12));
    // As the result of a client's request may be.
    store.set(KEYSPACE_ENGINE, b"client/1", &bytes_of(1, 2600)).expect("set");
    assert_eq!(chunked_values(&mut store).len(), 1, "it is chunked");
    assert_eq!(store.delete(KEYSPACE_ENGINE, b"client/1"), Ok(true));
    assert_eq!(chunked_values(&mut store).len(), 0);
    assert_eq!(store.count(KEYSPACE_ENGINE), 0);
}
