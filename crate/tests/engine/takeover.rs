//! A file that was taken over from a writer that may resume in the middle of one write: the commits
//! of the new writer survive that write.

use std::cell::RefCell;
use std::rc::Rc;

use varve::engine::{File, IoError, MemoryFile, Options, Store};

/// A file that its writer shares with the test, which records each write.
#[derive(Clone, Debug, Default)]
struct Shared(Rc<RefCell<(MemoryFile, Vec<Write>)>>);

/// The position and the bytes of a write.
type Write = (u64, Vec<u8>);

impl File for Shared {
    fn read(&mut self, buf: &mut [u8], at: u64) -> Result<usize, IoError> {
        self.0.borrow_mut().0.read(buf, at)
    }

    fn write(&mut self, bytes: &[u8], at: u64) -> Result<usize, IoError> {
        let (file, written) = &mut *self.0.borrow_mut();
        written.push((at, bytes.to_vec()));
        file.write(bytes, at)
    }

    fn truncate(&mut self, size: u64) -> Result<(), IoError> {
        self.0.borrow_mut().0.truncate(size)
    }

    fn size(&mut self) -> Result<u64, IoError> {
        self.0.borrow_mut().0.size()
    }

    fn flush(&mut self) -> Result<(), IoError> {
        Ok(())
    }
}

fn options(session: u64, fresh: bool) -> Options {
    Options {
        segment_log2: 14,
        entropy: [session, 1, 2, 3],
        fresh_segment: fresh,
        ..Options::default()
    }
}

fn set(store: &mut Store<impl File>, key: u64) {
    store.set(0, &key.to_be_bytes(), &[7; 100]).expect("enough space");
    store.commit().expect("it commits");
}

/// One writer commits key by key. At each commit another writer takes over the file as it was
/// before the write of that commit, and commits some keys; then the late write happens. Returns
/// what is missing after that.
fn late_writes(fresh: bool) -> Option<String> {
    let file = Shared::default();
    let mut old = Store::open(file.clone(), options(1, false)).expect("it is made");
    for key in 0..120 {
        let image = file.0.borrow().0.clone();
        file.0.borrow_mut().1.clear();
        set(&mut old, key);
        let (at, bytes) = match &file.0.borrow().1[..] {
            [(at, bytes)] => (*at, bytes.clone()),
            // Starting a segment takes several writes; each but the last is checked before the
            // next.
            _ => continue,
        };
        if key % 3 == 0 {
            old.flush().expect("it is flushed");
        }
        for after in [1, 2, 30, 200] {
            let mut new = Store::open(image.clone(), options(2, fresh)).expect("it opens");
            (1_000..1_000 + after).for_each(|key| set(&mut new, key));
            new.flush().expect("it is flushed");
            let mut file = new.into_file();
            file.write(&bytes, at).expect("a file in memory has no limit");
            let mut store = match Store::open(file, options(3, false)) {
                Ok(store) => store,
                Err(error) => return Some(format!("{key}, {after}: {error}")),
            };
            let mut exists = |key: u64| matches!(store.get(0, &key.to_be_bytes()), Ok(Some(_)));
            let missing = (0..key).chain(1_000..1_000 + after).find(|&key| !exists(key));
            if let Some(missing) = missing {
                return Some(format!("{key}, {after}: {missing} is missing"));
            }
        }
    }
    None
}

#[test]
fn late_write_of_the_previous_writer_loses_no_commit() {
    assert_eq!(late_writes(true), None, "a fresh segment cancels it");
}

#[test]
fn late_write_without_a_fresh_segment_overwrites_commits() {
    assert_ne!(late_writes(false), None, "both write after the same frame");
}
