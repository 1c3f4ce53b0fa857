//! A database file with its lock.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use crate::file::{self, IoError};

use super::lock_file::{Lock, check_not_held, holder_of};
use super::read_only_file::ReadOnlyFile;
use super::{Error, Loss, StdFile};

/// A file with its lock, or a read-only one without.
#[derive(Debug)]
pub struct LockedFile {
    // Dropped first, so that the file is closed before others may open it.
    file: StdFile,
    lock: Option<Lock>,
}

impl LockedFile {
    /// Opens and locks the file at `path`, creating it and its folder if they are missing.
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        let failed = |cause| Error::unavailable(path, cause);
        if let Some(folder) = path.parent().filter(|folder| *folder != Path::new("")) {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        let path = resolve_links(path)?;
        // The system's own lock is taken first, if the file exists: a lock file is not broken while
        // the system's lock is held.
        let found = match open_locked(&path, false) {
            Err(Error::Unavailable { cause, .. }) if cause.kind() == ErrorKind::NotFound => None,
            found => Some(found?),
        };
        let lock = Lock::acquire(&path)?;
        let file = match found {
            Some(file) => file,
            None => open_locked(&path, true)?,
        };
        lock.set_file(&file);
        Ok(LockedFile { file: StdFile::from(file), lock: Some(lock) })
    }

    /// Whether the last holder may still be alive and complete an interrupted write.
    pub(super) fn is_taken_over(&self) -> bool {
        self.lock.as_ref().is_some_and(|lock| lock.taken_over)
    }

    /// The path of the file and how it was lost, if it was.
    pub(super) fn loss(&self) -> Option<(&Path, Loss)> {
        let lock = self.lock.as_ref()?;
        Some((lock.guarded(), lock.loss()?))
    }

    /// Checks that the file is still the one at its path and that its lock is still held.
    pub(super) fn assert_current(&self) -> Result<(), IoError> {
        lock_result(self.lock.as_ref().map(Lock::assert_current))
    }

    /// Opens the file at `path` read-only, without changing anything, if no process has it open for
    /// writing.
    pub(super) fn read(path: &Path) -> Result<(Self, ReadOnlyFile), Error> {
        let failed = |cause| Error::unavailable(path, cause);
        // A file that cannot be checked may exist.
        if !path.try_exists().map_err(failed)? {
            return Err(Error::NotFound(path.to_path_buf()));
        }
        let path = resolve_links(path)?;
        check_not_held(&path)?;
        let file = OpenOptions::new().read(true).open(&path).map_err(failed)?;
        let found = ReadOnlyFile::new(&path, &file).map_err(failed)?;
        Ok((LockedFile { file: StdFile::from(file), lock: None }, found))
    }

    fn assert_held(&self) -> Result<(), IoError> {
        lock_result(self.lock.as_ref().map(Lock::assert_held))
    }
}

fn lock_result(held: Option<Result<(), Option<Loss>>>) -> Result<(), IoError> {
    held.unwrap_or(Ok(())).map_err(|loss| loss.map_or(IoError::Other, |_| IoError::Lost))
}

/// Opens a file for writing with the system's lock, which is held until the file is closed, however
/// this program ends. If the system cannot lock the file, it is opened anyway: the lock file works
/// everywhere.
fn open_locked(path: &Path, create: bool) -> Result<File, Error> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(create).truncate(false);
    let busy = || Error::Busy { path: path.to_path_buf(), pid: holder_of(path) };
    // On Windows a lock would also exclude readers, so the share mode excludes other writers
    // instead.
    #[cfg(windows)]
    std::os::windows::fs::OpenOptionsExt::share_mode(&mut options, 1);
    let opened = options.open(path);
    if cfg!(windows) && opened.as_ref().is_err_and(|error| error.raw_os_error() == Some(32)) {
        return Err(busy());
    }
    let file = opened.map_err(|cause| Error::unavailable(path, cause))?;
    refuse_hard_links(&file).map_err(|cause| Error::unavailable(path, cause))?;
    if cfg!(unix) && matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
        return Err(busy());
    }
    Ok(file)
}

/// Refuses a file with more than one name: lock files go by names, so another program could have it open under
/// another one.
#[cfg(unix)]
fn refuse_hard_links(file: &File) -> io::Result<()> {
    let names = std::os::unix::fs::MetadataExt::nlink(&file.metadata()?);
    if names <= 1 {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "it has {names} names (hard links): remove the others, or copy the file and open the copy"
    )))
}

#[cfg(not(unix))]
fn refuse_hard_links(_: &File) -> io::Result<()> {
    Ok(())
}

/// Resolves the symlinks at `path`: the lock file is next to the actual file, so that all paths
/// lead to the same lock. A broken symlink is an error.
fn resolve_links(path: &Path) -> Result<PathBuf, Error> {
    if !path.is_symlink() {
        return Ok(path.to_path_buf());
    }
    fs::canonicalize(path).map_err(|cause| Error::unavailable(path, cause))
}

impl file::File for LockedFile {
    fn read(&mut self, buf: &mut [u8], at: u64) -> Result<usize, IoError> {
        self.file.read(buf, at)
    }

    fn write(&mut self, bytes: &[u8], at: u64) -> Result<usize, IoError> {
        self.assert_held()?;
        let count = self.file.write(bytes, at)?;
        // The write counts only if no other process could take over the file meanwhile.
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
            Some(_) => self.file.flush().and_then(|()| self.assert_current()),
            // Nothing was written, and Windows flushes only writable files.
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
        // A substitute for such a system: a file that cannot be flushed.
        let (mut file, _) = LockedFile::read(Path::new("/dev/null")).expect("it is readable");
        assert_eq!(file.file.flush(), Err(IoError::Other));
        assert_eq!(file.flush(), Ok(()));
    }
}
