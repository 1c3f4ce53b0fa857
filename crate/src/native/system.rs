//! What differs between the files of an operating system and those of a browser, for the former; for the latter see
//! `web/system.rs`.

use std::path::Path;
use std::time::SystemTime;

use crate::store::{Options, Store as Engine};

use super::lock_file::random;
pub(super) use super::locked_file::LockedFile as DatabaseFile;
use super::read_errors::read;
pub(super) use super::read_only_file::ReadOnlyFile;
use super::{Error, OpenOptions, Store};

/// The engine of an open file, which only its store uses.
pub(super) type OpenEngine = Engine<DatabaseFile>;

/// The time by the clock.
pub(super) fn now() -> SystemTime {
    SystemTime::now()
}

/// Nothing: the program says when it commits.
pub(super) fn commit_later(_: &OpenEngine) {}

/// Whether the program may have let other code run since the last call: there is none.
pub(super) fn has_turn_ended(_: &OpenEngine) -> bool {
    false
}

/// Why a commit failed that the program did not call: there is none.
pub(super) fn take_failure(_: &OpenEngine) -> Option<crate::error::Error> {
    None
}

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
            let (file, found) = DatabaseFile::read(path)?;
            (file, Some(found))
        } else {
            (DatabaseFile::open(path)?, None)
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
        Ok(Store::of(engine, found))
    }

    /// Commits, flushes, and releases the lock.
    ///
    /// # Errors
    /// An error of the file. Everything that was committed before remains.
    pub fn close(mut self) -> Result<(), Error> {
        self.shut()
    }
}
