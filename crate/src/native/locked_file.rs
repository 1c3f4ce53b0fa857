//! The file of a database that this process holds.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::file::{self, IoError};

use super::lock_file::{Lock, holder_of, refuse_held};
use super::{Error, Loss, StdFile};

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
        // The system's own lock first, of a file that is there: nothing is broken that it keeps.
        let found = match open_locked(&path, false) {
            Err(Error::Unavailable { cause, .. }) if cause.kind() == ErrorKind::NotFound => None,
            found => Some(found?),
        };
        let lock = Lock::acquire(&path)?;
        let file = match found {
            Some(file) => file,
            None => open_locked(&path, true)?,
        };
        lock.guard(&file);
        Ok(HeldFile { file: StdFile::from(file), lock: Some(lock) })
    }

    /// Whether its last holder may still live, and finish the write that it was in the middle of.
    pub(super) fn is_taken_over(&self) -> bool {
        self.lock.as_ref().is_some_and(|lock| lock.taken_over)
    }

    /// The file and how it was lost, if it was.
    pub(super) fn loss(&self) -> Option<(&Path, Loss)> {
        let lock = self.lock.as_ref()?;
        Some((lock.guarded(), lock.loss()?))
    }

    /// Looks whether the file is still the one at its path, and this program's.
    pub(super) fn assert_there(&self) -> Result<(), IoError> {
        lock_result(self.lock.as_ref().map(Lock::assert_there))
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
        lock_result(self.lock.as_ref().map(Lock::assert_held))
    }
}

fn lock_result(held: Option<Result<(), Option<Loss>>>) -> Result<(), IoError> {
    held.unwrap_or(Ok(())).map_err(|loss| loss.map_or(IoError::Other, |_| IoError::Lost))
}

/// Opens a file to write to it, with the lock that the system keeps on it until it is closed, however this program
/// ends. What the system cannot lock is open all the same: the lock beside it counts everywhere.
fn open_locked(path: &Path, create: bool) -> Result<File, Error> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(create).truncate(false);
    let busy = || Error::Busy { path: path.to_path_buf(), pid: holder_of(path) };
    // On Windows a lock would keep others from reading as well: there nobody else may open it to write.
    #[cfg(windows)]
    std::os::windows::fs::OpenOptionsExt::share_mode(&mut options, 1);
    let opened = options.open(path);
    if cfg!(windows) && opened.as_ref().is_err_and(|error| error.raw_os_error() == Some(32)) {
        return Err(busy());
    }
    let file = opened.map_err(|cause| Error::unavailable(path, cause))?;
    if cfg!(unix) && matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
        return Err(busy());
    }
    Ok(file)
}

/// The file at the end of the links at `path`: its lock lies beside it, so that whoever opens it meets
/// that one lock, whichever way was taken. A link that leads nowhere is refused.
fn behind_links(path: &Path) -> Result<PathBuf, Error> {
    if !path.is_symlink() {
        return Ok(path.to_path_buf());
    }
    fs::canonicalize(path).map_err(|cause| Error::unavailable(path, cause))
}

impl file::File for HeldFile {
    fn read(&mut self, buf: &mut [u8], at: u64) -> Result<usize, IoError> {
        self.file.read(buf, at)
    }

    fn write(&mut self, bytes: &[u8], at: u64) -> Result<usize, IoError> {
        self.assert_held()?;
        let count = self.file.write(bytes, at)?;
        // It counts only if nobody else could take the file in the meantime.
        self.assert_held()?;
        Ok(count)
    }

    fn truncate(&mut self, size: u64) -> Result<(), IoError> {
        self.assert_held()?;
        self.file.truncate(size)?;
        self.assert_held()
    }

    fn size(&mut self) -> Result<u64, IoError> {
        self.file.size()
    }

    fn flush(&mut self) -> Result<(), IoError> {
        match self.lock {
            Some(_) => self.file.flush().and_then(|()| self.assert_there()),
            // Nothing was written, and Windows flushes only what may be written to.
            None => Ok(()),
        }
    }

    fn is_lost(&self) -> bool {
        self.loss().is_some()
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::file::File;

    #[test]
    fn read_only_file_is_not_flushed() {
        // What stands for such a system: no file of which a flush can be asked.
        let mut file = HeldFile::read(Path::new("/dev/null")).expect("everybody may read it");
        assert_eq!(file.file.flush(), Err(IoError::Other));
        assert_eq!(file.flush(), Ok(()));
    }
}
