//! Commits, savepoints and rollback.

use alloc::vec::Vec;

use crate::error::Error;
use crate::file::File;
use crate::format::record::size_of_record;
use crate::format::system_records::Transaction;
use crate::format::{MAX_NOTE, align_up, commit_size_limit};
use crate::index::Position;
use crate::log::append::WriteError;
use crate::log::slot_allocator::AllocPriority;
use crate::log::write_batch::BatchMark;

use super::{Staged, Store};

/// A rollback of more changes than this checks that there is memory for it.
const MANY_CHANGES: usize = 1 << 10;
/// Bytes by which the order of the keys grows at most for a change that is undone, beside the key. A record has its
/// key, so a key that is not long has at most as many bytes.
const ORDER_BYTES: usize = 64;
const LONG_KEY: u32 = 512;

/// Entries of the undo list, and bytes of a saved value, whose memory is kept between turns.
const KEPT_UNDO: usize = 4096;
const KEPT_VALUE: usize = 64 << 10;

/// The undo entry of one change of the index.
#[derive(Clone, Copy, Debug)]
pub(super) struct Undo {
    pub hash: u32,
    pub old: Option<Position>,
    pub new: Option<Position>,
    /// The record that made the change. It has the key, and is resident while its batch is open.
    pub appended: Position,
    /// Bytes of the added and of the superseded record.
    pub added_size: u32,
    pub superseded_size: u32,
    /// Whether the record was only moved.
    pub moved: bool,
}

#[derive(Debug)]
pub(super) struct SavepointState {
    undo: usize,
    mark: BatchMark,
    /// Where the log ended after the note of the transaction, if it has one.
    note_at: Option<(Option<u32>, usize)>,
}

/// A point in the open batch to roll back to. Savepoints nest: the last one made ends first.
#[derive(Debug)]
#[must_use = "end a savepoint with release or rollback"]
pub struct Savepoint {
    depth: usize,
}

impl<F: File> Store<F> {
    /// Makes a savepoint. Until it is released, no batch is written to the file.
    pub fn savepoint(&mut self) -> Savepoint {
        let mark = self.log.mark();
        self.savepoints.push(SavepointState { undo: self.undo.len(), mark, note_at: None });
        Savepoint { depth: self.savepoints.len() }
    }

    /// The number of open savepoints.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.savepoints.len()
    }

    /// Ends a savepoint and keeps the changes since.
    ///
    /// # Errors
    /// Whatever failed when a batch that had become large was committed.
    ///
    /// # Panics
    /// When a later savepoint is still open.
    pub fn release(&mut self, savepoint: Savepoint) -> Result<(), Error> {
        assert_eq!(savepoint.depth, self.savepoints.len(), "savepoints end in reverse order");
        self.release_last()
    }

    /// Ends a savepoint and reverts all changes since.
    ///
    /// # Panics
    /// When a later savepoint is still open.
    pub fn rollback(&mut self, savepoint: Savepoint) {
        assert_eq!(savepoint.depth, self.savepoints.len(), "savepoints end in reverse order");
        self.rollback_last();
    }

    pub(crate) fn release_last(&mut self) -> Result<(), Error> {
        let state = self.savepoints.pop().ok_or(Error::Misuse)?;
        match state.note_at {
            None => self.log.release(&state.mark),
            Some(at) if at == self.log.tail() => self.log.rollback(&state.mark),
            Some(_) if self.log.end_note() => {}
            Some(_) => return self.commit(),
        }
        if self.expiry.is_late && self.savepoints.is_empty() {
            self.catch_up_expiry()?;
        }
        self.commit_large_batch()
    }

    /// Gives the transaction that the outermost savepoint began a time, in milliseconds since 1970, and a note.
    /// Nothing was written since. If nothing is, the note is dropped.
    ///
    /// # Errors
    /// [`Error::Misuse`] without a savepoint or inside another, [`Error::ValueTooLong`] for a note of more than
    /// [`MAX_NOTE`] bytes; otherwise as for [`set`](Store::set).
    pub fn note(&mut self, time_ms: u64, note: &[u8]) -> Result<(), Error> {
        self.note_for(0, time_ms, note)
    }

    /// As [`note`](Store::note), for a client that asked for the transaction: its number, 0 for none.
    ///
    /// # Errors
    /// As for [`note`](Store::note).
    pub fn note_for(&mut self, client: u64, time_ms: u64, note: &[u8]) -> Result<(), Error> {
        self.check_writable()?;
        if self.savepoints.len() != 1 {
            return Err(Error::Misuse);
        }
        if note.len() > MAX_NOTE {
            return Err(Error::ValueTooLong);
        }
        let size = size_of_record(0, align_up(size_of::<Transaction>() + note.len()));
        self.log.reserve_record(&mut self.file, size, AllocPriority::Write)?;
        let transaction = Transaction { number: self.next_version, time_ms, client, request: 0 };
        self.log.append_note(&transaction, note);
        if let Some(state) = self.savepoints.last_mut() {
            state.note_at = Some(self.log.tail());
        }
        Ok(())
    }

    pub(crate) fn rollback_last(&mut self) {
        self.abort();
        self.undo_last();
    }

    #[inline(never)]
    pub(super) fn undo_last(&mut self) {
        let Some(state) = self.savepoints.pop() else {
            return;
        };
        self.undo_to(state.undo);
        self.log.rollback(&state.mark);
        // With an open batch, its commit does it, which can say that it failed.
        if self.expiry.is_late && self.savepoints.is_empty() && self.log.batch_bytes() == 0 {
            let _ = self.catch_up_expiry();
        }
    }

    /// Writes the open batch to the file as one commit. After an error nothing of the batch remains,
    /// neither in memory nor in the file.
    ///
    /// # Errors
    /// The file's error; [`Error::Misuse`] inside a savepoint.
    pub fn commit(&mut self) -> Result<(), Error> {
        if !matches!(self.staging.staged, Staged::Nothing) {
            return Err(Error::Reentrancy);
        }
        if !self.savepoints.is_empty() {
            return Err(Error::Misuse);
        }
        if self.expiry.is_late {
            self.catch_up_expiry()?;
        }
        let bytes = self.log.batch_bytes();
        self.commit_batch()?;
        self.catch_up(bytes);
        Ok(())
    }

    pub(super) fn commit_batch(&mut self) -> Result<(), Error> {
        match self.log.commit(&mut self.file, self.next_version, self.maintenance.is_running) {
            Ok(wrote) => {
                self.undo.clear();
                self.keep_clears();
                self.unflushed |= wrote;
                if wrote && !self.maintenance.is_running {
                    self.maintenance.has_written = true;
                    self.last_commit = self.next_version - 1;
                }
                self.resume_expiry();
                Ok(())
            }
            Err(failure) => Err(self.fail(failure)),
        }
    }

    /// Commits, and makes all commits survive power loss.
    ///
    /// # Errors
    /// As for [`commit`](Store::commit). A failed flush poisons the store: the content of the file is then
    /// unknown, so reads work and writes are refused.
    pub fn flush(&mut self) -> Result<(), Error> {
        self.commit()?;
        if !self.unflushed && self.maintenance.deferred_error.is_none() {
            return Ok(());
        }
        if self.poisoned {
            return Err(self.refusal());
        }
        if let Err(error) = self.log.flush(&mut self.file) {
            self.poisoned = true;
            return Err(error);
        }
        self.unflushed = false;
        Ok(())
    }

    /// Writes a witness if the last flush has none: an empty frame whose watermark states which frames were
    /// flushed. Without it, damage to the last flushed frames could pass for a torn tail. If a full disk
    /// has no space for it, the next commit or the close carries the watermark. The open batch is committed
    /// first.
    ///
    /// # Errors
    /// As for [`commit`](Store::commit); after that, the file's error, and the batch stays committed.
    pub fn witness(&mut self) -> Result<(), Error> {
        self.commit()?;
        if self.poisoned || self.read_only || !self.log.is_unwitnessed() {
            return Ok(());
        }
        let Err(failure) =
            self.log.write_witness(&mut self.file, AllocPriority::Write, self.next_version)
        else {
            return Ok(());
        };
        match self.fail(failure) {
            Error::Quota | Error::Full if !self.poisoned => Ok(()),
            error => Err(error),
        }
    }

    /// Commits, flushes and records the clean end of the log; returns the file.
    ///
    /// # Errors
    /// The file's error, with the file. Everything committed before remains.
    pub fn close(mut self) -> Result<F, (F, Error)> {
        match self.shut() {
            Ok(()) => Ok(self.file),
            Err(error) => Err((self.file, error)),
        }
    }

    pub(crate) fn shut(&mut self) -> Result<(), Error> {
        while !self.savepoints.is_empty() {
            self.rollback_last();
        }
        self.abort();
        self.end_snapshots();
        self.catch_up_expiry()?;
        self.commit()?;
        // A close after a crash writes a clean end, even if nothing else was written.
        let is_untouched = |store: &Self| {
            let log = &store.log;
            store.recovery.clean && !log.has_written() && !log.checkpoint_is_damaged()
        };
        if self.poisoned || self.read_only || is_untouched(self) {
            self.flush()?;
            // Maintenance may have written in between.
            if self.poisoned || self.read_only || is_untouched(self) {
                return Ok(());
            }
        }
        // The checkpoint, if any, is flushed together with the log before it.
        self.checkpoint_at_close()?;
        self.flush()?;
        self.log.close(&mut self.file, self.next_version)
    }

    /// The open file.
    #[must_use]
    pub fn file(&self) -> &F {
        &self.file
    }

    /// Returns the file as it is, without a commit: the state that a crash leaves.
    #[must_use]
    pub fn into_file(self) -> F {
        self.file
    }

    /// Ends a turn: releases memory that views of the turn may have shown. Returns whether they must be
    /// detached before the next call.
    pub fn end_turn(&mut self) -> bool {
        self.share_memory();
        if !self.savepoints.is_empty() || !matches!(self.staging.staged, Staged::Nothing) {
            return false;
        }
        // What a long transaction or a large value needed is not kept for the next one.
        if self.undo.is_empty() && self.undo.capacity() > KEPT_UNDO {
            self.undo = Vec::new();
        }
        if self.staging.old_value.capacity() > KEPT_VALUE {
            self.staging.old_value = Vec::new();
        }
        self.log.end_turn()
    }

    /// Bytes of the open batch.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.log.batch_bytes()
    }

    /// Whether there are commits that are not flushed.
    #[must_use]
    pub fn is_unflushed(&self) -> bool {
        self.unflushed
    }

    /// Whether the last flush has no witness yet.
    #[must_use]
    pub fn is_unwitnessed(&self) -> bool {
        !self.poisoned && !self.read_only && self.log.is_unwitnessed()
    }

    /// Commits a batch that has become large, so that memory and single writes stay bounded.
    pub(super) fn commit_large_batch(&mut self) -> Result<(), Error> {
        let limit = commit_size_limit(self.log.geometry().segment_log2);
        if self.savepoints.is_empty() && self.log.batch_bytes() >= limit {
            self.commit()?;
        }
        Ok(())
    }

    pub(super) fn fail(&mut self, failure: WriteError) -> Error {
        self.poisoned |= matches!(failure, WriteError::Unclear(_));
        self.undo_to(0);
        self.log.discard_batch();
        failure.into_error()
    }

    /// Undoing changes the order of the keys, which takes memory. Views that must stay are worth more than the order.
    #[cold]
    #[inline(never)]
    fn prepare_undo(&mut self, length: usize) {
        let bytes = |undo: &Undo| ORDER_BYTES + undo.added_size.min(LONG_KEY) as usize;
        if !self.log.can_allocate(self.undo[length..].iter().map(bytes).sum()) {
            self.forget_sorted_keys();
        }
    }

    pub(super) fn undo_to(&mut self, length: usize) {
        if self.undo.len() > length && self.expires() {
            self.undo_expiry(length == 0);
        }
        if self.undo.len() > length + MANY_CHANGES {
            self.prepare_undo(length);
        }
        while self.undo.len() > length {
            let Some(undo) = self.undo.pop() else { return };
            self.undo_accounting(&undo);
            self.move_in_index(undo.hash, undo.new, undo.old, undo.appended);
            self.undo_clears();
        }
    }
}
