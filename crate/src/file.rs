//! The file that the engine works on, the only thing outside that it depends on: five methods.

use alloc::vec::Vec;

/// Why a file operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoError {
    /// The storage is full. A write that takes fewer bytes than it was given means the same.
    Quota,
    /// The handle was taken away.
    Lost,
    /// Anything else.
    Other,
}

/// One database file. The interface follows the browser's `FileSystemSyncAccessHandle`.
///
/// Short counts are ordinary results: a short read is continued or means the end of the file, and a
/// short write means a full disk.
pub trait File {
    /// Reads into `buf` from position `at`; returns how many bytes were read.
    fn read(&mut self, buf: &mut [u8], at: u64) -> Result<usize, IoError>;
    /// Writes `bytes` at position `at`, extending the file with zeros where needed.
    fn write(&mut self, bytes: &[u8], at: u64) -> Result<usize, IoError>;
    /// Sets the size of the file.
    fn truncate(&mut self, size: u64) -> Result<(), IoError>;
    /// The size in bytes.
    fn size(&mut self) -> Result<u64, IoError>;
    /// Makes all writes so far survive power loss.
    fn flush(&mut self) -> Result<(), IoError>;
    /// Whether the file can never be written to again. Refused writes then fail with
    /// [`Lost`](crate::error::Error::Lost).
    fn is_lost(&self) -> bool {
        false
    }
}

/// Writes all of `bytes`, or fails: a short count means a full disk.
pub(crate) fn write_all(file: &mut impl File, bytes: &[u8], at: u64) -> Result<(), IoError> {
    match file.write(bytes, at)? {
        n if n == bytes.len() => Ok(()),
        _ => Err(IoError::Quota),
    }
}

/// Fills `buf` from `at`, continuing after short counts; returns how many bytes the file had.
pub(crate) fn read_full(file: &mut impl File, buf: &mut [u8], at: u64) -> Result<usize, IoError> {
    let mut done = 0;
    while done < buf.len() {
        match file.read(&mut buf[done..], at + done as u64)? {
            0 => break,
            n => done += n,
        }
    }
    Ok(done)
}

/// A file in memory.
#[derive(Clone, Debug, Default)]
pub struct MemoryFile {
    /// The bytes of the file.
    pub bytes: Vec<u8>,
}

impl File for MemoryFile {
    fn read(&mut self, buf: &mut [u8], at: u64) -> Result<usize, IoError> {
        let at = usize::try_from(at).map_err(|_| IoError::Other)?;
        let from = self.bytes.get(at..).unwrap_or(&[]);
        let n = from.len().min(buf.len());
        buf[..n].copy_from_slice(&from[..n]);
        Ok(n)
    }

    fn write(&mut self, bytes: &[u8], at: u64) -> Result<usize, IoError> {
        let at = usize::try_from(at).map_err(|_| IoError::Other)?;
        let end = at.checked_add(bytes.len()).ok_or(IoError::Quota)?;
        if bytes.is_empty() {
            return Ok(0);
        }
        if end > self.bytes.len() {
            self.bytes.resize(end, 0);
        }
        self.bytes[at..end].copy_from_slice(bytes);
        Ok(bytes.len())
    }

    fn truncate(&mut self, size: u64) -> Result<(), IoError> {
        self.bytes.resize(usize::try_from(size).map_err(|_| IoError::Quota)?, 0);
        Ok(())
    }

    fn size(&mut self) -> Result<u64, IoError> {
        Ok(self.bytes.len() as u64)
    }

    fn flush(&mut self) -> Result<(), IoError> {
        Ok(())
    }
}
