//! What differs between the files of an operating system and those of a browser, for the former; for the latter see
//! `web/system.rs`.

use std::path::Path;
use std::time::SystemTime;

use crate::error::Error as Failure;
use crate::format::record::RecordHeader;
use crate::index::hash_index::Position;
use crate::store::{Options, Recovery, Store as Engine};

use super::lock_file::random;
pub(super) use super::locked_file::LockedFile as DatabaseFile;
use super::read_errors::read;
pub(super) use super::read_only_file::ReadOnlyFile;
use super::{Error, OpenOptions, Store, Versioned};

/// The engine of an open file, which only its store uses.
#[derive(Debug)]
pub(crate) struct OpenEngine(Engine<DatabaseFile>);

/// The engine during a call.
pub(super) type InUse<'a> = &'a mut Engine<DatabaseFile>;

impl OpenEngine {
    /// The engine, for one call.
    #[inline]
    pub(super) fn lock(&mut self) -> InUse<'_> {
        &mut self.0
    }

    /// The engine, to look at.
    #[inline]
    pub(super) fn look(&self) -> &Engine<DatabaseFile> {
        &self.0
    }

    /// The result of opening.
    pub(super) fn recovery(&self) -> &Recovery {
        self.0.recovery()
    }

    /// The value of a key, for the program.
    #[inline]
    pub(super) fn get(&mut self, keyspace: u32, key: &[u8]) -> Result<Option<&[u8]>, Failure> {
        self.0.get(keyspace, key)
    }

    /// The value of a key that a walk has found, whose record was at a position. It does not count as an access: what is
    /// read once should not replace in memory what is read often.
    #[inline]
    pub(super) fn walked(
        &mut self,
        keyspace: u32,
        key: &[u8],
        position: Position,
    ) -> Result<Option<&[u8]>, Failure> {
        self.0.expect_at(position);
        self.0.read(keyspace, key)
    }

    /// The same with its version and its expiry.
    pub(super) fn get_entry(
        &mut self,
        keyspace: u32,
        key: &[u8],
    ) -> Result<Option<Versioned<&[u8]>>, Failure> {
        Versioned::of(&mut self.0, keyspace, key)
    }

    /// A value of the log that lies outside of its record, for the program.
    pub(super) fn walked_value(
        &mut self,
        header: &RecordHeader,
        key: &[u8],
        described: &[u8],
    ) -> Result<Option<&[u8]>, Failure> {
        self.0.walked_value(header, key, described)
    }

    /// Has the program change a value, if its `predicate` holds.
    pub(super) fn update_if(
        &mut self,
        keyspace: u32,
        key: &[u8],
        predicate: impl FnOnce(&[u8]) -> bool,
        change: impl FnOnce(&mut [u8]),
    ) -> Result<bool, Failure> {
        let change = |value: &mut [u8]| {
            change(value);
            Ok(None)
        };
        self.0.update_if(keyspace, key, predicate, change)
    }

    /// Nothing: the program says when it commits.
    #[allow(clippy::unused_self, reason = "that of a browser schedules the commit")]
    pub(super) fn commit_later(&self) {}

    /// Why a commit failed that the program did not call: there is none.
    #[allow(clippy::unused_self, reason = "that of a browser commits by itself")]
    pub(super) fn take_failure(&self) -> Option<Failure> {
        None
    }
}

/// The time by the clock.
pub(super) fn now() -> SystemTime {
    SystemTime::now()
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
        Ok(Store::of(OpenEngine(engine), found))
    }

    /// Commits, flushes, and releases the lock.
    ///
    /// # Errors
    /// An error of the file. Everything that was committed before remains.
    pub fn close(mut self) -> Result<(), Error> {
        self.shut()
    }
}
