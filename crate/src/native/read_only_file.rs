//! A file that is open for reading only, as it was when it was opened.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::Error;

/// A reader takes no lock, so a writer may come later and use the space again that compaction freed. What it overwrites
/// fails its checksum then, which is no damage.
#[derive(Debug)]
pub(crate) struct ReadOnlyFile {
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

    /// The error that says so, if another program has written to it since.
    pub(super) fn change(&self) -> Option<Error> {
        self.is_changed().then(|| Error::FileChanged(self.path.clone()))
    }

    /// Whether another program has written to it since. Also if that cannot be found out.
    fn is_changed(&self) -> bool {
        self.file
            .metadata()
            .map_or(true, |now| now.len() != self.size || now.modified().ok() != self.modified)
    }
}
