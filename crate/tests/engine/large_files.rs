//! Files of many gigabytes that use memory only for nonzero blocks: positions above 4 GiB, and the
//! limit of 32 GiB.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Bound;
use std::rc::Rc;

use varve::engine::{Error, File, IoError, Options, Store};

use crate::support::oracle::state_of;
use crate::support::rng::bytes_of;

const BLOCK: usize = 4096;
const GIB: u64 = 1 << 30;

#[derive(Default)]
struct Disk {
    blocks: HashMap<u64, Box<[u8; BLOCK]>>,
    size: u64,
    /// Reads and writes at or above 4 GiB.
    reads_above: u64,
    writes_above: u64,
}

/// A handle of a file in memory that does not store zero blocks.
#[derive(Clone, Default)]
struct SparseFile(Rc<RefCell<Disk>>);

impl Disk {
    /// Calls `each` with the block, the offset in it, and the part of the `len` bytes at `at`.
    fn parts(at: u64, len: usize, mut each: impl FnMut(u64, usize, std::ops::Range<usize>)) {
        let mut done = 0;
        while done < len {
            let offset = at + done as u64;
            let (block, offset) = (offset / BLOCK as u64, (offset % BLOCK as u64) as usize);
            let n = (BLOCK - offset).min(len - done);
            each(block, offset, done..done + n);
            done += n;
        }
    }
}

impl File for SparseFile {
    fn read(&mut self, buf: &mut [u8], at: u64) -> Result<usize, IoError> {
        let mut disk = self.0.borrow_mut();
        let n = disk.size.saturating_sub(at).min(buf.len() as u64) as usize;
        disk.reads_above += u64::from(at >= 4 * GIB && n > 0);
        Disk::parts(at, n, |block, offset, part| {
            let len = part.len();
            match disk.blocks.get(&block) {
                Some(bytes) => buf[part].copy_from_slice(&bytes[offset..offset + len]),
                None => buf[part].fill(0),
            }
        });
        Ok(n)
    }

    fn write(&mut self, bytes: &[u8], at: u64) -> Result<usize, IoError> {
        let mut disk = self.0.borrow_mut();
        disk.writes_above += u64::from(at >= 4 * GIB);
        disk.size = disk.size.max(at + bytes.len() as u64);
        Disk::parts(at, bytes.len(), |block, offset, part| {
            let bytes = &bytes[part];
            let is_zero = bytes == &[0; BLOCK][..bytes.len()];
            if is_zero && !disk.blocks.contains_key(&block) {
                return;
            }
            let kept = disk.blocks.entry(block).or_insert_with(|| Box::new([0; BLOCK]));
            kept[offset..offset + bytes.len()].copy_from_slice(bytes);
        });
        Ok(bytes.len())
    }

    fn truncate(&mut self, size: u64) -> Result<(), IoError> {
        let mut disk = self.0.borrow_mut();
        disk.blocks.retain(|&block, _| block * (BLOCK as u64) < size);
        disk.size = size;
        Ok(())
    }

    fn size(&mut self) -> Result<u64, IoError> {
        Ok(self.0.borrow().size)
    }

    fn flush(&mut self) -> Result<(), IoError> {
        Ok(())
    }
}

impl SparseFile {
    /// How often bytes at or above 4 GiB were read, and written.
    fn calls_above(&self) -> (u64, u64) {
        let disk = self.0.borrow();
        (disk.reads_above, disk.writes_above)
    }
}

/// Adds a value with space for `capacity` bytes and one byte of content: the file grows by all of
/// it, and only that byte is not zero.
fn grow(store: &mut Store<SparseFile>, capacity: usize) -> Result<(), Error> {
    // Each has its own key, because replaced values would be freed.
    let key = format!("filler {}", store.stats().next_version);
    store.begin_set(0, key.as_bytes(), capacity)?;
    store.staged_value()[0] = 7;
    store.finish(1)?;
    store.commit()?;
    store.end_turn();
    Ok(())
}

fn key(i: u32) -> Vec<u8> {
    format!("key {i:05}").into_bytes()
}

fn value(i: u32) -> Vec<u8> {
    // Some are large enough for extents.
    let len = if i.is_multiple_of(7) { 300_000 } else { 1_000 + 37 * i as usize };
    bytes_of(i.into(), len)
}

/// A database of six gigabytes with `count` keys distributed over it.
fn six_gigabyte_database(file: &SparseFile, options: Options, count: u32) -> Store<SparseFile> {
    let mut store = Store::open(file.clone(), options).expect("open");
    for i in 0..count {
        store.set(0, &key(i), &value(i)).expect("set");
        if i.is_multiple_of(2) {
            grow(&mut store, 16 << 20).expect("enough space");
        }
    }
    store
}

fn check_all(store: &mut Store<SparseFile>, count: u32) {
    for i in (0..count).rev() {
        assert_eq!(store.get(0, &key(i)), Ok(Some(&*value(i))), "key {i}");
        store.end_turn();
    }
}

#[test]
fn records_above_4_gib_are_read_changed_and_recovered() {
    const KEYS: u32 = 800;
    let options = Options { memory: 4 << 20, ..Options::default() };
    let file = SparseFile::default();
    let mut store = six_gigabyte_database(&file, options, KEYS);
    assert!(store.stats().file_bytes > 6 * GIB, "{} bytes", store.stats().file_bytes);
    check_all(&mut store, KEYS);
    // Closed properly once, killed once, and opened once more to check that nothing was left.
    drop(store.close().map_err(|(_, e)| e).expect("close"));
    let mut store = Store::open(file.clone(), options).expect("open");
    assert!(store.recovery().clean);
    let (reads, writes) = file.calls_above();
    check_all(&mut store, KEYS);
    assert!(file.calls_above().0 > reads + u64::from(KEYS) / 8);
    let last = KEYS - 1;
    let update = |bytes: &mut [u8]| {
        bytes.fill(1);
        Ok(None)
    };
    assert_eq!(store.update_if(0, &key(last), |_| true, update), Ok(true));
    assert_eq!(store.delete(0, &key(last - 1)), Ok(true));
    store.set(0, b"new", &value(7)).expect("set");
    store.commit().expect("commit");
    assert!(file.calls_above().1 > writes);
    for round in 0..2 {
        store = Store::open(store.into_file(), options).expect("open");
        assert_eq!(store.get(0, &key(last)), Ok(Some(&*vec![1; value(last).len()])), "{round}");
        assert_eq!(store.get(0, &key(last - 1)), Ok(None));
        assert_eq!(store.get(0, b"new"), Ok(Some(&*value(7))));
        check_all(&mut store, KEYS - 2);
    }
    let mut seen = 0;
    let (from, to) = (key(10), key(KEYS));
    let bounds = (Bound::Included(&*from), Bound::Excluded(&*to));
    store
        .range(0, bounds, false, |found, _| {
            let i = 10 + seen + u32::from(seen + 10 > KEYS - 3);
            assert_eq!(found, key(i));
            seen += 1;
            true
        })
        .expect("range");
    assert_eq!(seen, KEYS - 11);
}

#[test]
fn full_32_gib_database_refuses_writes_and_loses_nothing() {
    // The largest segments, and values that fill one each, so that few are enough.
    let options = Options { segment_log2: 24, ..Options::default() };
    let file = SparseFile::default();
    let mut store = Store::open(file.clone(), options).expect("open");
    for i in 0..40 {
        store.set(0, &key(i), &value(i)).expect("set");
    }
    store.commit().expect("commit");
    let mut fillers = 0;
    let full = loop {
        match grow(&mut store, 13 << 20) {
            Ok(()) => fillers += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(full, Error::Full);
    assert!(store.stats().file_bytes > 31 * GIB, "{} bytes", store.stats().file_bytes);
    // What fits in the last segment of the log is still accepted until that is full too.
    let refused = (0..).find_map(|i| {
        let outcome = store.set(0, &key(1_000 + i), &[3; 1 << 20]);
        outcome.err().map(|error| (i, error))
    });
    let (last, error) = refused.expect("it ends");
    assert_eq!(error, Error::Full);
    store.flush().expect("everything written before is still there");
    let expected = state_of(&mut store);
    assert_eq!(expected.len(), 40 + fillers + last as usize);
    for round in 0..3 {
        let file = store.close().map_err(|(_, e)| e).expect("close");
        store = Store::open(file, options).unwrap_or_else(|e| panic!("round {round}: {e}"));
        assert!(state_of(&mut store) == expected, "round {round}");
        // Maintenance may have freed space; then this write is undone.
        match store.set(0, b"one more", &[3; 1 << 20]) {
            Ok(_) => assert_eq!(store.delete(0, b"one more"), Ok(true)),
            Err(error) => assert_eq!(error, Error::Full),
        }
        check_all(&mut store, 40);
    }
}

#[test]
fn full_32_gib_database_reuses_deleted_space() {
    let options = Options { segment_log2: 24, ..Options::default() };
    let mut store = Store::open(SparseFile::default(), options).expect("open");
    // Most of the file is values that stay; records use the rest.
    while store.stats().file_bytes < 31 * GIB {
        grow(&mut store, 13 << 20).expect("enough space");
    }
    let value = vec![3; 1 << 20];
    let refused = (0..).find_map(|i| {
        let outcome = store.set(0, &key(i), &value);
        outcome.err().map(|error| (i, error))
    });
    let (mut count, error) = refused.expect("it ends");
    assert_eq!(error, Error::Full);
    for round in 0..3 {
        // All of them, or all except a few in each segment.
        for i in (0..count).filter(|i| round != 1 || !i.is_multiple_of(5)) {
            assert_eq!(store.delete(0, &key(i)), Ok(true), "round {round}, key {i}");
        }
        let mut all = true;
        while store.maintain(all).unwrap_or_else(|e| panic!("round {round}: {e}")) {
            all = false;
            store.end_turn();
        }
        count -= count / 4;
        for i in 0..count {
            store.set(0, &key(i), &value).unwrap_or_else(|e| panic!("round {round}, {i}: {e}"));
        }
        let file = store.close().map_err(|(_, e)| e).expect("close");
        store = Store::open(file, options).unwrap_or_else(|e| panic!("round {round}: {e}"));
    }
    for i in 0..count {
        assert_eq!(store.get(0, &key(i)), Ok(Some(&*value)));
        store.end_turn();
    }
}
