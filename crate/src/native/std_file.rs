//! A file of the operating system.

use std::fs;
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};

use crate::file::{File, IoError};

/// When the file grows it is filled with zeros, in chunks of this size. A hole would have no space
/// on the disk yet, so the reserve for deletions on a full disk would not exist when it is needed.
static ZEROS: [u8; 65_536] = [0; 65_536];
/// A shorter file has only one segment and no reserve, so it may have holes.
const SMALL: u64 = 1 << 20;

/// A file of the operating system. It takes no lock.
#[derive(Debug)]
pub struct StdFile {
    file: fs::File,
    /// The end of the file, known since the first write: no other process writes to it.
    end: Option<u64>,
}

impl StdFile {
    /// Opens the file at `path` for reading and writing, creating it if it is missing.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn open(path: impl AsRef<std::path::Path>) -> std::io::Result<Self> {
        let file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        Ok(StdFile::from(file))
    }
}

impl From<fs::File> for StdFile {
    fn from(file: fs::File) -> Self {
        StdFile { file, end: None }
    }
}

impl StdFile {
    fn write_at(&mut self, bytes: &[u8], at: u64) -> Result<(), IoError> {
        // A failed write may have extended the file.
        let end = self.end.take();
        self.file.seek(SeekFrom::Start(at)).map_err(io_error)?;
        self.file.write_all(bytes).map_err(io_error)?;
        self.end = end.map(|end| end.max(at + bytes.len() as u64));
        Ok(())
    }
}

/// Reads at an offset. A signal that the program handles may interrupt a read, most likely of a
/// network file. `write_all`, `set_len` and `sync_data` retry by themselves.
fn read_at(file: &mut (impl Read + Seek), buf: &mut [u8], at: u64) -> Result<usize, IoError> {
    file.seek(SeekFrom::Start(at)).map_err(io_error)?;
    loop {
        match file.read(buf) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            read => return read.map_err(io_error),
        }
    }
}

fn io_error(error: std::io::Error) -> IoError {
    if is_full(&error) { IoError::Quota } else { IoError::Other }
}

/// Whether the error means that there is no space left.
pub(super) fn is_full(error: &std::io::Error) -> bool {
    use ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

impl File for StdFile {
    fn read(&mut self, buf: &mut [u8], at: u64) -> Result<usize, IoError> {
        read_at(&mut self.file, buf, at)
    }

    fn write(&mut self, bytes: &[u8], at: u64) -> Result<usize, IoError> {
        if self.end.is_none() {
            self.end = Some(self.size()?);
        }
        let mut end = self.end.unwrap_or(at);
        while (SMALL..at).contains(&end) {
            let count = (at - end).min(ZEROS.len() as u64);
            self.write_at(&ZEROS[..count as usize], end)?;
            end += count;
        }
        self.write_at(bytes, at)?;
        Ok(bytes.len())
    }

    fn truncate(&mut self, size: u64) -> Result<(), IoError> {
        self.end = None;
        self.file.set_len(size).map_err(io_error)
    }

    fn size(&mut self) -> Result<u64, IoError> {
        self.file.metadata().map(|found| found.len()).map_err(io_error)
    }

    fn flush(&mut self) -> Result<(), IoError> {
        self.file.sync_data().map_err(io_error)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Cursor};

    use super::*;

    /// A file whose first reads are interrupted by signals; the number is how many.
    struct Signalled(u32, Cursor<Vec<u8>>);

    impl Read for Signalled {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            if self.0 == 0 {
                return self.1.read(buf);
            }
            self.0 -= 1;
            Err(ErrorKind::Interrupted.into())
        }
    }

    impl Seek for Signalled {
        fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
            self.1.seek(to)
        }
    }

    #[test]
    fn interrupted_read_is_retried() {
        let mut file = Signalled(2, Cursor::new(b"0123456789".to_vec()));
        let mut buf = [0; 4];
        assert_eq!(read_at(&mut file, &mut buf, 3), Ok(4));
        assert_eq!(&buf, b"3456");
        assert_eq!(file.0, 0);
    }
}
