//! What the log still says about the past: cursors, marks that keep it, and what compaction has forgotten.
//!
//! A cursor is a version. What changed since one follows from the log as long as no deletion with a greater
//! version was dropped. So the greatest version of any that was dropped is recorded, in the commit that precedes the
//! freeing of its segment. A mark keeps compaction away from everything since a cursor.

use alloc::vec::Vec;

use musli_zerocopy::ZeroCopy;

use crate::error::Error;
use crate::file::File;
use crate::format::record::{KIND_CLEAR, KIND_DELETE, RecordHeader};
use crate::format::system_records::{
    History, KEY_HISTORY, KEY_INDEX_KEYSPACES, KEY_MARKS, KEY_PACKED, Mark,
};
use crate::format::{KEYSPACE_ENGINE, align_up};
use crate::log::log_walk::LogWalk;

use super::Store;

/// The longest name of a mark.
pub const MAX_MARK_NAME: usize = 255;
/// Bytes of all marks together.
const MAX_MARKS: usize = 16 << 10;

/// What was forgotten, as far as this session knows.
#[derive(Debug, Default)]
pub(super) struct Forgotten {
    /// Whether the record in the file was read.
    is_loaded: bool,
    /// No deletion with a version above this was dropped.
    version: u64,
    /// What the record in the file says.
    written: Option<History>,
    /// The last version before this session.
    opened: u64,
}

/// What the log says about the time since a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Since {
    /// Whether each key that was set or deleted since is known.
    pub changes_are_known: bool,
    /// Whether each transaction since is there.
    pub is_whole: bool,
}

/// The marks in the record's value.
fn marks(mut bytes: &[u8]) -> impl Iterator<Item = (Mark, &[u8])> {
    core::iter::from_fn(move || {
        let (head, rest) = bytes.split_at_checked(size_of::<Mark>())?;
        let mark = *Mark::from_bytes(head).ok()?;
        let name = rest.get(..mark.name_len as usize)?;
        bytes = rest.get(align_up(name.len())..).unwrap_or_default();
        Some((mark, name))
    })
}

impl<F: File> Store<F> {
    /// The number of the newest commit, as a cursor: all that was committed has versions up to it, and all that will be
    /// has greater ones.
    #[must_use]
    pub fn last_commit(&self) -> u64 {
        self.last_commit
    }

    /// Opening is finished.
    pub(super) fn begin_history(&mut self) {
        self.last_commit = self.next_version - 1;
        self.forgotten.opened = self.last_commit;
        if self.log.moves_marked_from() > 0 {
            self.log.set_moves_marked_from(self.log.next_frame());
        }
    }

    /// Reads what the file says about the past, once; `again`, which keyspaces are those of indexes.
    pub(super) fn load_history(&mut self, again: bool) {
        if again || !self.forgotten.is_loaded {
            self.log.hidden_keyspaces.clear();
            self.log.hidden_keyspaces.push(KEYSPACE_ENGINE);
            if let Ok(Some(keyspaces)) = self.read(KEYSPACE_ENGINE, KEY_INDEX_KEYSPACES) {
                let numbers = keyspaces.as_chunks().0.iter().map(|it| u32::from_le_bytes(*it));
                let numbers: Vec<u32> = numbers.collect();
                self.log.hidden_keyspaces.extend(numbers);
            }
        }
        if self.forgotten.is_loaded {
            return;
        }
        let Ok(found) = self.read(KEYSPACE_ENGINE, KEY_HISTORY) else { return };
        let record = found.and_then(|bytes| History::from_bytes(bytes.get(..16)?).ok().copied());
        let opened = self.forgotten.opened;
        let version = match record {
            Some(record) => {
                let from = record.marked_from.min(self.log.moves_marked_from());
                self.log.set_moves_marked_from(from);
                record.forgotten
            }
            // An older build may have dropped anything.
            None if !self.log.accounts_for_history() && self.log.has_gaps() => opened,
            None => 0,
        };
        if let Ok(Some(found)) = self.read(KEYSPACE_ENGINE, KEY_MARKS) {
            let starts: Vec<_> = marks(found).map(|(mark, _)| (mark.cursor, mark.frame)).collect();
            starts.into_iter().for_each(|(cursor, frame)| self.log.note_start(cursor, frame));
        }
        let packed = self.read(KEYSPACE_ENGINE, KEY_PACKED).ok().flatten();
        if let Some(&[version, frame]) = packed.and_then(|it| it.as_chunks::<8>().0.first_chunk()) {
            self.log.note_start(u64::from_le_bytes(version), u64::from_le_bytes(frame));
        }
        self.forgotten.written = record;
        self.forgotten.version = self.forgotten.version.max(version);
        self.forgotten.is_loaded = true;
    }

    /// A deletion or a clear is being dropped.
    pub(super) fn forget(&mut self, version: u64) {
        self.forgotten.version = self.forgotten.version.max(version);
    }

    /// Records in the open batch what was forgotten, before its segments are freed.
    pub(super) fn record_forgotten(&mut self) -> Result<(), Error> {
        self.load_history(false);
        if !self.forgotten.is_loaded {
            // The record cannot be read.
            self.forget(self.forgotten.opened);
        }
        let marked_from = self.log.moves_marked_from();
        let history = History { forgotten: self.forgotten.version, marked_from };
        let is_known = history == History::default() && self.log.accounts_for_history();
        if is_known || self.forgotten.written == Some(history) {
            return Ok(());
        }
        self.set(KEYSPACE_ENGINE, KEY_HISTORY, history.to_bytes())?;
        self.forgotten.written = Some(history);
        Ok(())
    }

    /// A salvaged log has no deletions.
    pub(super) fn forget_all(&mut self) -> Result<(), Error> {
        self.forgotten.is_loaded = true;
        self.forget(self.next_version - 1);
        self.record_forgotten()
    }

    /// Passes to compaction what the marks keep from it. If they cannot be read it takes nothing.
    pub(super) fn update_retained(&mut self) {
        let frame = match self.read(KEYSPACE_ENGINE, KEY_MARKS) {
            Ok(found) => marks(found.unwrap_or_default()).map(|(mark, _)| mark.frame).min(),
            Err(_) => Some(0),
        };
        self.log.retain_from(frame.unwrap_or(u64::MAX));
    }

    /// Calls `see` with the name and the cursor of each mark, in the order in which they were set.
    ///
    /// # Errors
    /// As for [`get`](Store::get).
    pub fn each_mark(&mut self, mut see: impl FnMut(&[u8], u64)) -> Result<(), Error> {
        let found = self.read(KEYSPACE_ENGINE, KEY_MARKS)?.unwrap_or_default();
        marks(found).for_each(|(mark, name)| see(name, mark.cursor));
        Ok(())
    }

    /// The smallest cursor of a mark.
    pub(super) fn oldest_mark(&mut self) -> Result<u64, Error> {
        let found = self.read(KEYSPACE_ENGINE, KEY_MARKS)?.unwrap_or_default();
        Ok(marks(found).map(|(mark, _)| mark.cursor).min().unwrap_or(u64::MAX))
    }

    /// Bytes of the segments that marks keep from compaction.
    pub fn retained_bytes(&mut self) -> u64 {
        self.update_retained();
        self.log.retained_bytes()
    }

    /// What the log says about the time since a cursor. A mark at or before it keeps that.
    ///
    /// # Errors
    /// [`Error::CursorInFuture`] if no commit has reached it; the file's error.
    pub fn since(&mut self, cursor: u64) -> Result<Since, Error> {
        Ok(self.since_and_frame(cursor)?.0)
    }

    pub(super) fn since_and_frame(&mut self, cursor: u64) -> Result<(Since, u64), Error> {
        if cursor > self.last_commit {
            return Err(Error::CursorInFuture);
        }
        self.load_history(false);
        if cursor == self.last_commit {
            // Nothing is newer but the open batch, whose frames get numbers when it is committed.
            let frame = self.log.next_frame();
            self.log.note_start(cursor, frame);
            return Ok((Since { changes_are_known: true, is_whole: true }, frame));
        }
        self.note_mark(cursor);
        let start = self.log.start_of(&mut self.file, cursor)?;
        // Salvage begins a log with the records of an earlier one.
        let forgotten = match self.forgotten.is_loaded {
            true => self.forgotten.version.max(self.log.uncertain_below().saturating_sub(1)),
            false => u64::MAX,
        };
        let is_whole = start.is_none_or(|start| {
            start.is_exact
                && self.log.is_whole_from(start.sequence)
                && (start.frame > 1 || self.log.uncertain_below() <= cursor + 1)
        });
        let changes_are_known = is_whole || forgotten <= cursor;
        let frame = start.map_or(self.log.next_frame(), |start| start.frame);
        Ok((Since { changes_are_known, is_whole }, frame))
    }

    /// Notes where what is newer than a cursor begins, by the mark up to it with the latest frame: later notes may have
    /// displaced that one.
    pub(super) fn note_mark(&mut self, cursor: u64) {
        let Ok(Some(found)) = self.read(KEYSPACE_ENGINE, KEY_MARKS) else { return };
        let earlier = marks(found).map(|(mark, _)| mark).filter(|mark| mark.cursor <= cursor);
        if let Some(mark) = earlier.max_by_key(|mark| mark.frame) {
            self.log.note_start(mark.cursor, mark.frame);
        }
    }

    /// Sets the mark of this name to a cursor, or moves it there; `None` drops it. As long as it is there, nothing that
    /// was written after the cursor is compacted. It is written like a record, with the open batch.
    ///
    /// # Errors
    /// [`Error::CursorExpired`] if a part of what followed the cursor is gone already, [`Error::CursorInFuture`] if no
    /// commit has reached it, [`Error::EmptyKey`] and [`Error::KeyTooLong`] for the name, [`Error::TooManyMarks`] if all marks
    /// take too much space; otherwise as for [`set`](Store::set).
    pub fn retain(&mut self, name: &[u8], cursor: Option<u64>) -> Result<(), Error> {
        self.check_write(KEYSPACE_ENGINE, name)?;
        if name.len() > MAX_MARK_NAME {
            return Err(Error::KeyTooLong);
        }
        let mark = match cursor {
            None => None,
            Some(cursor) => match self.since_and_frame(cursor)? {
                (Since { is_whole: false, .. }, _) => return Err(Error::CursorExpired),
                (_, frame) => {
                    Some(Mark { cursor, frame, name_len: name.len() as u32, reserved: 0 })
                }
            },
        };
        let before = self.read(KEYSPACE_ENGINE, KEY_MARKS)?.unwrap_or_default();
        let mut after = Vec::with_capacity(before.len() + 512);
        let mut push = |mark: &Mark, name: &[u8]| {
            after.extend_from_slice(mark.to_bytes());
            after.extend_from_slice(name);
            after.resize(align_up(after.len()), 0);
        };
        for (mark, other) in marks(before).filter(|(_, other)| *other != name) {
            push(&mark, other);
        }
        if let Some(mark) = &mark {
            push(mark, name);
        }
        if after == before {
            return Ok(());
        }
        // What compaction found too little to gain from may be worth it now.
        self.maintenance.compaction_trigger = 0;
        if after.is_empty() {
            return self.delete(KEYSPACE_ENGINE, KEY_MARKS).map(|_| ());
        }
        if after.len() > MAX_MARKS {
            return Err(Error::TooManyMarks);
        }
        self.set(KEYSPACE_ENGINE, KEY_MARKS, &after).map(|_| ())
    }

    /// Whether a record that a walk shows says what its key is now: it is the record of the key and has not expired or, if
    /// it is a deletion, the key is absent. A clear is current, wherever it was moved, until its keyspace is cleared again.
    ///
    /// # Errors
    /// As for [`get`](Store::get).
    pub fn walked_is_current(
        &mut self,
        walk: &LogWalk,
        at: usize,
        header: &RecordHeader,
        key: &[u8],
    ) -> Result<bool, Error> {
        let hash = self.hash(header.keyspace(), key);
        if header.kind == KIND_DELETE {
            return Ok(self.find_outlined(hash, header.keyspace(), key)?.is_none());
        }
        if header.kind == KIND_CLEAR {
            let found = self.find_outlined(hash, header.keyspace(), key)?;
            return Ok(found.is_some_and(|found| {
                self.log.record_in(found.addr).header.version == header.version
            }));
        }
        if header.expiry != 0 && header.expiry <= self.expired_until() {
            return Ok(false);
        }
        let (slot, sequence) = walk.segment();
        let position = self.log.geometry().position(slot, at);
        // The slot may have been used again since.
        if !self.log.is_segment(slot, sequence) || self.is_cleared(header) {
            return Ok(false);
        }
        if self.index.contains(hash, position) || self.unloaded.is_none() {
            return Ok(self.index.contains(hash, position));
        }
        let found = self.find_outlined(hash, header.keyspace(), key)?;
        Ok(found.is_some_and(|found| found.position == position))
    }
}
