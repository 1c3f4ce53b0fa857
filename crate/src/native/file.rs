//! The file of a database that this process holds.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};

use crate::file::{File, IoError};

use super::lock::{Lock, refuse_held};
use super::{Error, StdFile};

/// A file with the lock beside it, or one that is only read.
#[derive(Debug)]
pub struct HeldFile {
    // Dropped first, so that the file is closed before others may open it.
    file: StdFile,
    lock: Option<Lock>,
}

impl HeldFile {
    /// Opens the file at `path` with its lock, creating it, and its folder, when missing.
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        let failed = |cause| Error::unavailable(path, cause);
        if let Some(folder) = path.parent().filter(|folder| *folder != Path::new("")) {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        let path = behind_links(path)?;
        let lock = Lock::acquire(&path)?;
        let file = StdFile::open(&path).map_err(failed)?;
        Ok(HeldFile { file, lock: Some(lock) })
    }

    /// Opens the file at `path` for reading, without a trace, when nobody has it open for writing.
    pub(super) fn read(path: &Path) -> Result<Self, Error> {
        let failed = |cause| Error::unavailable(path, cause);
        // What cannot be seen may be there.
        if !path.try_exists().map_err(failed)? {
            return Err(Error::NotFound(path.to_path_buf()));
        }
        let path = behind_links(path)?;
        refuse_held(&path)?;
        let file = OpenOptions::new().read(true).open(&path).map_err(failed)?;
        Ok(HeldFile { file: StdFile::from(file), lock: None })
    }

    fn assert_held(&self) -> Result<(), IoError> {
        match &self.lock {
            Some(lock) if !lock.is_held() => Err(IoError::Lost),
            _ => Ok(()),
        }
    }
}

/// The file at the end of the links at `path`: its lock lies beside it, so that whoever opens it meets
/// that one lock, whichever way was taken. A link that leads nowhere is refused.
fn behind_links(path: &Path) -> Result<PathBuf, Error> {
    if !path.is_symlink() {
        return Ok(path.to_path_buf());
    }
    fs::canonicalize(path).map_err(|cause| Error::unavailable(path, cause))
}

impl File for HeldFile {
    fn read(&mut self, buf: &mut [u8], at: u64) -> Result<usize, IoError> {
        self.file.read(buf, at)
    }

    fn write(&mut self, bytes: &[u8], at: u64) -> Result<usize, IoError> {
        self.assert_held()?;
        self.file.write(bytes, at)
    }

    fn truncate(&mut self, size: u64) -> Result<(), IoError> {
        self.assert_held()?;
        self.file.truncate(size)
    }

    fn size(&mut self) -> Result<u64, IoError> {
        self.file.size()
    }

    fn flush(&mut self) -> Result<(), IoError> {
        match self.lock {
            Some(_) => self.file.flush(),
            // Nothing was written, and Windows flushes only what may be written to.
            None => Ok(()),
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_only_read_is_not_flushed_which_some_systems_refuse() {
        // What stands for such a system: no file of which a flush can be asked.
        let mut file = HeldFile::read(Path::new("/dev/null")).expect("everybody may read it");
        assert_eq!(file.file.flush(), Err(IoError::Other));
        assert_eq!(file.flush(), Ok(()));
    }
}
