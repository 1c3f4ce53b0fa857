//! What differs between the files of an operating system and those of a browser, for the former; for the latter see
//! `web/system.rs`.

use std::time::SystemTime;

use crate::error::Error as Failure;
use crate::format::record::RecordHeader;
use crate::index::Position;
use crate::store::{Recovery, Store as Engine};

use super::Versioned;
pub(super) use super::locked_file::LockedFile as DatabaseFile;
pub(super) use super::read_only_file::ReadOnlyFile;

/// The engine of an open file, which only its store uses.
#[derive(Debug)]
pub(crate) struct OpenEngine(Engine<DatabaseFile>);

/// The engine during a call.
pub(super) type InUse<'a> = &'a mut Engine<DatabaseFile>;

impl OpenEngine {
    pub(super) fn new(engine: Engine<DatabaseFile>) -> Self {
        OpenEngine(engine)
    }

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
