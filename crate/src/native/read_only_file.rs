//! A file that is open for reading only, as it was when it was opened.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::Error;

/// A reader takes no lock, so a writer may come later and use the space again that compaction freed. What it overwrites
/// fails its checksum then, which is no damage.
#[derive(Debug)]
pub(super) struct ReadOnlyFile {
    path: PathBuf,
    file: File,
    modified: Option<SystemTime>,
    size: u64,
}

impl ReadOnlyFile {
    pub(super) fn new(path: &Path, file: &File) -> io::Result<Self> {
        let found = file.metadata()?;
        Ok(ReadOnlyFile {
            path: path.to_path_buf(),
            file: file.try_clone()?,
            modified: found.modified().ok(),
            size: found.len(),
        })
    }

    /// Whether another program has written to it since. Also if that cannot be found out.
    fn is_changed(&self) -> bool {
        self.file
            .metadata()
            .map_or(true, |now| now.len() != self.size || now.modified().ok() != self.modified)
    }
}

/// The error that says so, if another program has written to a file since it was opened for reading only.
pub(super) fn change_of(file: Option<&ReadOnlyFile>) -> Option<Error> {
    file.filter(|file| file.is_changed()).map(|file| Error::FileChanged(file.path.clone()))
}

/// What was read, or its error. What looks like damage is none if another program has changed the file.
pub(super) fn read<T, E: Into<Error>>(
    file: Option<&ReadOnlyFile>,
    done: Result<T, E>,
) -> Result<T, Error> {
    use crate::error::Error as Engine;
    done.map_err(|error| {
        let error = error.into();
        let seems_damaged = matches!(
            error,
            Error::Engine(
                Engine::Corruption(_) | Engine::NotADatabase | Engine::UnsupportedFormat { .. }
            )
        );
        let change = if seems_damaged { change_of(file) } else { None };
        change.unwrap_or(error)
    })
}
