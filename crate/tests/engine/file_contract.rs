//! The contract of a file, checked for every file that tests and native programs use.

use varve::StdFile;
use varve::engine::{File, MemoryFile, Options, Store};

use crate::support::fault_file::FaultFile;
use crate::support::oracle::state_of;
use crate::support::rng::bytes_of;

/// A path that is removed when the test ends.
struct Scratch(std::path::PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let name = format!("varve-{}-{name}.varve", std::process::id());
        Scratch(std::env::temp_dir().join(name))
    }

    fn open(&self) -> StdFile {
        StdFile::open(&self.0).expect("the temporary directory can be written to")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A test that failed early has not created the file.
        let _ = std::fs::remove_file(&self.0);
    }
}

fn read_all(file: &mut impl File, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xAA; len];
    let mut done = 0;
    loop {
        match file.read(&mut bytes[done..], at + done as u64).expect("reads work") {
            0 => break,
            n => done += n,
        }
    }
    bytes.truncate(done);
    bytes
}

fn keeps_the_contract(mut file: impl File) {
    assert_eq!(file.size(), Ok(0));
    assert_eq!(read_all(&mut file, 0, 10), b"");
    assert_eq!(file.write(b"tail", 6), Ok(4));
    assert_eq!(file.size(), Ok(10), "a write beyond the end extends the file");
    assert_eq!(read_all(&mut file, 0, 20), b"\0\0\0\0\0\0tail", "the bytes between are zeros");
    assert_eq!(file.write(b"head", 0), Ok(4));
    assert_eq!(read_all(&mut file, 2, 5), b"ad\0\0t");
    assert_eq!(read_all(&mut file, 10, 5), b"", "nothing to read at the end");
    assert_eq!(read_all(&mut file, 1000, 5), b"", "nothing to read after the end");
    assert_eq!(file.truncate(3), Ok(()));
    assert_eq!(read_all(&mut file, 0, 20), b"hea");
    assert_eq!(file.truncate(5), Ok(()));
    assert_eq!(read_all(&mut file, 0, 20), b"hea\0\0", "truncated bytes do not reappear");
    assert_eq!(file.write(b"", 100), Ok(0));
    assert_eq!(file.flush(), Ok(()));
    assert_eq!(file.size(), Ok(5));
}

#[test]
fn every_file_implementation_keeps_the_contract() {
    keeps_the_contract(MemoryFile::default());
    keeps_the_contract(FaultFile::default());
    keeps_the_contract(FaultFile::default().with_short_reads(1));
    let scratch = Scratch::new("contract");
    keeps_the_contract(scratch.open());
}

#[test]
fn database_on_a_real_file_equals_the_one_in_memory() {
    let scratch = Scratch::new("real");
    let options = Options { segment_log2: 13, ..Options::default() };
    let mut real = Store::open(scratch.open(), options).expect("open");
    let mut twin = Store::open(MemoryFile::default(), options).expect("open");
    for i in 0..300_u64 {
        let (key, value) = ([(i % 37) as u8], bytes_of(i, (i * i % 5000) as usize));
        assert_eq!(real.set(0, &key, &value), twin.set(0, &key, &value));
        if i % 7 == 0 {
            real.flush().expect("flush");
            twin.flush().expect("flush");
        }
        if i % 50 == 49 {
            drop(real.close().map_err(|(_, e)| e).expect("close"));
            real = Store::open(scratch.open(), options).expect("open");
            let file = twin.close().map_err(|(_, e)| e).expect("close");
            twin = Store::open(file, options).expect("open");
        }
        if i % 90 == 89 {
            drop(real.into_file());
            real = Store::open(scratch.open(), options).expect("open");
            twin = Store::open(twin.into_file(), options).expect("open");
        }
    }
    assert!(state_of(&mut real) == state_of(&mut twin));
    drop(real.close().map_err(|(_, e)| e).expect("close"));
    let twin = twin.close().map_err(|(_, e)| e).expect("close");
    let bytes = std::fs::read(&scratch.0).expect("the file is there");
    assert!(bytes == twin.bytes, "the same calls leave the same bytes");
}
