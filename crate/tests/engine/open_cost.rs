//! How much of the file opening reads.

use varve::engine::{Options, Store};

use crate::support::counting_file::CountingFile;
use crate::support::fault_file::FaultFile;
use crate::support::rng::bytes_of;

const VALUES: u8 = 100;
/// An extent of eight segments.
const VALUE: usize = 30_000;
const SEGMENT: u64 = 4096;

fn options(entropy: u64) -> Options {
    Options { segment_log2: 12, entropy: [1, 2, 3, entropy], memory: 1 << 20, ..Options::default() }
}

/// A store with large values, one commit each, and maintenance between them.
fn filled(file: &FaultFile) -> Store<FaultFile> {
    let mut store = Store::open(file.clone(), options(4)).expect("a new file opens");
    for i in 0..VALUES {
        store.set(0, &[i], &bytes_of(i.into(), VALUE)).expect("set");
        store.flush().expect("flush");
        while store.wants_maintenance() {
            store.maintain(false).expect("maintain");
        }
    }
    store
}

/// Opens the file. Returns how many bytes that read, and checks that all values exist.
fn bytes_to_open(file: &FaultFile, read_only: bool) -> u64 {
    let (counting, counts) = CountingFile::new(FaultFile::new(file.pages()));
    let options = Options { read_only, ..options(5) };
    let mut store = Store::open(counting, options).expect("it opens");
    let bytes = counts.read();
    for i in 0..VALUES {
        let value = store.get(0, &[i]).expect("get");
        assert!(value == Some(&bytes_of(i.into(), VALUE)[..]), "value {i} is there");
        store.end_turn();
    }
    bytes
}

#[test]
fn opening_after_a_clean_close_reads_no_large_value() {
    let file = FaultFile::default();
    filled(&file).close().map_err(|(_, e)| e).expect("close");
    for read_only in [false, true] {
        let bytes = bytes_to_open(&file, read_only);
        println!("{bytes} of {} bytes read", file.pages().len());
        // The superblocks, a header and a trailer per slot, and a few segments of records.
        assert!(bytes < 200_000, "{bytes} bytes");
    }
    // Nor after another session that only stored one more value.
    let mut store = Store::open(file.clone(), options(6)).expect("open");
    store.set(0, &[0], &bytes_of(0, VALUE)).expect("set");
    store.close().map_err(|(_, e)| e).expect("close");
    let bytes = bytes_to_open(&file, false);
    assert!(bytes < 200_000, "{bytes} bytes");
}

#[test]
fn opening_after_a_crash_reads_only_the_last_large_values() {
    let file = FaultFile::default();
    drop(filled(&file).into_file());
    let bytes = bytes_to_open(&file, false);
    println!("{bytes} of {} bytes read after a crash", file.pages().len());
    // The values since the last checkpoint: 64 segments, and the one that exceeded them.
    assert!(bytes < 200_000 + 64 * SEGMENT + 2 * VALUE as u64, "{bytes} bytes");
}

#[test]
fn opening_after_a_crash_reads_moved_large_values() {
    let file = FaultFile::default();
    let mut store = filled(&file);
    for i in 0..VALUES / 2 {
        store.delete(0, &[i]).expect("delete");
    }
    store.flush().expect("flush");
    let mut more = store.maintain(true).expect("maintain");
    while more {
        more = store.maintain(false).expect("maintain");
    }
    for i in 0..VALUES / 2 {
        store.set(0, &[i], &bytes_of(i.into(), VALUE)).expect("set");
    }
    store.close().map_err(|(_, e)| e).expect("close");
    let bytes = bytes_to_open(&file, false);
    assert!(bytes < 200_000, "{bytes} bytes");
}
