//! A file of the operating system.

use std::fs;
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};

use crate::file::{File, IoError};

/// A file of the operating system. It takes no lock.
#[derive(Debug)]
pub struct StdFile {
    file: fs::File,
}

impl StdFile {
    /// Opens the file at `path` for reading and writing, creating it when missing.
    ///
    /// # Errors
    /// Whatever the operating system says.
    pub fn open(path: impl AsRef<std::path::Path>) -> std::io::Result<Self> {
        let file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        Ok(StdFile { file })
    }
}

impl From<fs::File> for StdFile {
    fn from(file: fs::File) -> Self {
        StdFile { file }
    }
}

fn io_error(error: std::io::Error) -> IoError {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
            IoError::Quota
        }
        _ => IoError::Other,
    }
}

impl File for StdFile {
    fn read(&mut self, buf: &mut [u8], at: u64) -> Result<usize, IoError> {
        self.file.seek(SeekFrom::Start(at)).map_err(io_error)?;
        self.file.read(buf).map_err(io_error)
    }

    fn write(&mut self, bytes: &[u8], at: u64) -> Result<usize, IoError> {
        self.file.seek(SeekFrom::Start(at)).map_err(io_error)?;
        self.file.write_all(bytes).map_err(io_error)?;
        Ok(bytes.len())
    }

    fn truncate(&mut self, size: u64) -> Result<(), IoError> {
        self.file.set_len(size).map_err(io_error)
    }

    fn size(&mut self) -> Result<u64, IoError> {
        self.file.metadata().map(|m| m.len()).map_err(io_error)
    }

    fn flush(&mut self) -> Result<(), IoError> {
        self.file.sync_data().map_err(io_error)
    }
}
