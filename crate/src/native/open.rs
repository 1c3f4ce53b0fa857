//! Opening and closing a database in a file of an operating system.

use std::path::Path;

use crate::store::{Options, Store as Engine};

use super::lock_file::random;
use super::locked_file::LockedFile;
use super::read_errors::read;
use super::system::OpenEngine;
use super::{Error, OpenOptions, Store};

impl Store {
    /// Opens the database in the file at `path`, creating it if it is missing. While it is open,
    /// there is a lock file next to it that Node, Deno and Bun respect as well.
    ///
    /// # Errors
    /// [`Error::Busy`] if another process, or this one, has it open; errors of the file system; and
    /// the engine's errors for damage and for files that are not databases.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        Store::open_with(path, OpenOptions::default())
    }

    /// As [`open`](Store::open), with options.
    ///
    /// # Errors
    /// As for [`open`](Store::open), and [`Error::NotFound`] for a missing file that is opened
    /// read-only.
    pub fn open_with(path: impl AsRef<Path>, options: OpenOptions) -> Result<Self, Error> {
        let OpenOptions { read_only, memory, on_damage, keep_history } = options;
        let path = path.as_ref();
        let (file, found) = if read_only {
            let (file, found) = LockedFile::read(path)?;
            (file, Some(found))
        } else {
            (LockedFile::open(path)?, None)
        };
        let entropy = std::array::from_fn(|_| random());
        let fresh_segment = file.is_taken_over();
        let options = Options {
            read_only,
            fresh_segment,
            memory,
            index_memory: Options::index_share(memory),
            on_damage,
            keeps_history: keep_history,
            entropy,
            ..Options::default()
        };
        let engine = read(found.as_ref(), Engine::open(file, options))?;
        Ok(Store::of(OpenEngine::new(engine), found))
    }

    /// Commits, flushes, and releases the lock.
    ///
    /// # Errors
    /// An error of the file. Everything that was committed before remains.
    pub fn close(mut self) -> Result<(), Error> {
        self.shut()
    }
}
