//! A file that counts the bytes read from it and written to it.

use std::cell::Cell;
use std::rc::Rc;

use varve::engine::{File, IoError};

pub struct CountingFile<F> {
    file: F,
    counts: Rc<ByteCounts>,
}

/// The bytes read and written since the file was created.
#[derive(Default)]
pub struct ByteCounts {
    read: Cell<u64>,
    written: Cell<u64>,
}

impl<F: File> CountingFile<F> {
    /// The file, and its counts, which stay readable while a store owns the file.
    pub fn new(file: F) -> (Self, Rc<ByteCounts>) {
        let counts = Rc::new(ByteCounts::default());
        (CountingFile { file, counts: Rc::clone(&counts) }, counts)
    }
}

impl ByteCounts {
    pub fn read(&self) -> u64 {
        self.read.get()
    }

    pub fn written(&self) -> u64 {
        self.written.get()
    }

    pub fn total(&self) -> u64 {
        self.read() + self.written()
    }
}

impl<F: File> File for CountingFile<F> {
    fn read(&mut self, buf: &mut [u8], at: u64) -> Result<usize, IoError> {
        let read = self.file.read(buf, at)?;
        self.counts.read.set(self.counts.read() + read as u64);
        Ok(read)
    }

    fn write(&mut self, bytes: &[u8], at: u64) -> Result<usize, IoError> {
        self.counts.written.set(self.counts.written() + bytes.len() as u64);
        self.file.write(bytes, at)
    }

    fn truncate(&mut self, size: u64) -> Result<(), IoError> {
        self.file.truncate(size)
    }

    fn size(&mut self) -> Result<u64, IoError> {
        self.file.size()
    }

    fn flush(&mut self) -> Result<(), IoError> {
        self.file.flush()
    }
}
