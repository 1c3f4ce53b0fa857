//! Chunked values. Where an extent would waste much space, a value is split into chunks: records of the
//! engine's keyspace of an eighth of a segment each, which fill segments without waste and are compacted
//! one by one.
//!
//! The record of the key refers to them by a number that is never reused. They are committed with it and
//! deleted with its replacement. To be read they are assembled in memory.

use crate::error::{Error, damaged};
use crate::file::File;
use crate::format::record::{KIND_CLEAR, KIND_EXTENT, KIND_PAST_SET, KIND_SET};
use crate::format::system_records::{CHUNK_KEY, ChunksRef};
use crate::format::{KEYSPACE_ENGINE, align_up, chunk_limit};
use crate::index::Position;
use crate::log::ValueLocation;
use crate::log::buffer_pool::BufferAddr;

use super::{IfExpired, Store};

/// The operation on each chunk of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChunkOp {
    /// Copies it into the memory of the value.
    Read,
    /// Writes its part of the value into it.
    Write,
    /// Deletes it.
    Delete,
}

impl<F: File> Store<F> {
    /// Returns the value of the record at an address, wherever it is stored. The address may be
    /// invalid afterwards.
    ///
    /// # Errors
    /// As for [`get`](Store::get).
    #[inline(always)]
    pub(super) fn value(&mut self, addr: BufferAddr) -> Result<&[u8], Error> {
        if self.log.record_in(addr).header.kind != KIND_SET {
            return self.chunked_value(addr);
        }
        Ok(self.log.record_in(addr).value)
    }

    #[cold]
    #[inline(never)]
    fn chunked_value(&mut self, addr: BufferAddr) -> Result<&[u8], Error> {
        let kind = self.log.record_in(addr).header.kind;
        if kind == KIND_PAST_SET {
            return Ok(self.log.record_in(addr).value);
        }
        let record = self.log.record_in(addr);
        if matches!(kind, KIND_EXTENT | KIND_CLEAR) {
            return self.log.value(&mut self.file, addr);
        }
        // Only a malformed checkpoint leads to a record of a kind without a value.
        let chunks = record.chunks().ok_or(damaged(0))?;
        self.assemble(&chunks)?;
        Ok(self.log.assembled_for_view(&chunks, false))
    }

    /// Assembles a value in memory, unless it is there already.
    ///
    /// # Errors
    /// As for [`get`](Store::get); [`Error::Corruption`] when a chunk is damaged.
    pub(super) fn assemble(&mut self, chunks: &ChunksRef) -> Result<(), Error> {
        if self.log.has_assembled(chunks) {
            return Ok(());
        }
        // A malformed length allocates no memory. Slots that are lost may be many more than the file has.
        if chunks.length > self.log.log_bytes() {
            return Err(damaged(0));
        }
        self.log.begin_assembly(chunks)?;
        let outcome = self.for_each_chunk(chunks, ChunkOp::Read);
        self.log.end_assembly(chunks, outcome.is_ok().then_some(chunks.length));
        outcome
    }

    /// The key of a chunk, and its hash.
    #[inline(never)]
    pub(super) fn chunk(&self, chunks: &ChunksRef, index: u32) -> ([u8; CHUNK_KEY], u32) {
        let key = chunks.key(index);
        (key, self.hash(KEYSPACE_ENGINE, &key))
    }

    #[inline(never)]
    fn for_each_chunk(&mut self, chunks: &ChunksRef, op: ChunkOp) -> Result<(), Error> {
        let mut done = 0;
        let whole = chunks.length as usize;
        let size = align_up(whole.div_ceil(chunks.count as usize));
        for index in 0..chunks.count {
            let (key, hash) = self.chunk(chunks, index);
            // A chunk that is not in memory is read directly into the value.
            let length = size.min(whole.saturating_sub(done));
            if op == ChunkOp::Read
                && let Some(position) = self.index.find(hash, |_| true)
                && self.log.resident_addr(position).is_none()
                && self.log.read_chunk(&mut self.file, position, &key, chunks, done, length)
            {
                done += length;
                continue;
            }
            if op == ChunkOp::Delete {
                match self.append_tombstone(KEYSPACE_ENGINE, &key, IfExpired::Delete) {
                    // A damaged chunk stays: its content is unknown, and nothing refers to it any more.
                    Ok(_) | Err(Error::Corruption(_)) => continue,
                    Err(error) => return Err(error),
                }
            }
            let mut found = self.find_outlined(hash, KEYSPACE_ENGINE, &key)?;
            if found.is_none() && !self.snapshots.is_empty() {
                found = self.find_replaced(KEYSPACE_ENGINE, &key)?;
            }
            let writes = op == ChunkOp::Write;
            let copied = found.and_then(|at| self.log.copy_chunk(at.addr, chunks, done, writes));
            done += copied.ok_or(damaged(0))?;
        }
        if op == ChunkOp::Delete || done as u64 == chunks.length { Ok(()) } else { Err(damaged(0)) }
    }

    /// Stages a record whose value `is_long`, or which replaces one with a chunked value. Either
    /// everything that belongs to it is appended before it, or nothing is.
    #[cold]
    #[inline(never)]
    pub(super) fn stage_chunked(
        &mut self,
        hash: u32,
        keyspace: u32,
        key: &[u8],
        capacity: usize,
        viewed: bool,
        is_long: bool,
    ) -> Result<(), Error> {
        let _ = self.savepoint();
        let old = self.staging.new.old;
        let mut chunks = ChunksRef::default();
        let deleted = match old {
            Some(old) if old.is_chunked => self.delete_chunks(hash, keyspace, key),
            _ => Ok(()),
        };
        let staged =
            match deleted.and_then(|()| self.allocate_value(capacity, is_long, &mut chunks)) {
                Ok(location) => {
                    self.staging.new.old = old;
                    self.stage(Some(location), hash, keyspace, key, capacity, viewed)
                }
                Err(error) => Err(error),
            };
        self.staging.new_chunks = Some(chunks);
        if staged.is_err() {
            self.drop_chunked();
        }
        staged
    }

    /// Allocates space for a value.
    fn allocate_value(
        &mut self,
        capacity: usize,
        is_long: bool,
        chunks: &mut ChunksRef,
    ) -> Result<ValueLocation, Error> {
        if !is_long {
            return Ok(ValueLocation::Record);
        }
        let geometry = self.log.geometry();
        if !self.log.exceeds_space_factor(geometry.extent_span(capacity), capacity as u64) {
            return self.log.allocate_extent(&mut self.file, capacity).map(ValueLocation::Extent);
        }
        self.log.mark_chunked_values();
        let count = capacity.div_ceil(chunk_limit(geometry.segment_log2)).max(1);
        let size = align_up(capacity.div_ceil(count));
        let (id, length) = (self.take_version(), capacity as u64);
        *chunks = ChunksRef { id, length, count: count as u32, reserved: 0 };
        self.log.begin_assembly(chunks)?;
        for index in 0..count {
            let (key, hash) = self.chunk(chunks, index as u32);
            let length = size.min(capacity.saturating_sub(index * size));
            self.staging.new.old = None;
            self.stage(Some(ValueLocation::Record), hash, KEYSPACE_ENGINE, &key, length, false)?;
            self.finish(length)?;
        }
        Ok(ValueLocation::Chunks)
    }

    /// The memory of the staged chunked value.
    pub(super) fn staged_chunks(&mut self) -> &mut [u8] {
        let chunks = self.staging.new_chunks.as_ref().expect("chunks are staged");
        self.log.assembled_mut(chunks)
    }

    /// Ends the staged chunked value at `length`: writes its bytes to the chunks, and their reference to
    /// the record at `position`.
    #[cold]
    #[inline(never)]
    pub(super) fn end_chunks(&mut self, position: Position, length: usize) {
        let Some(staged) = self.staging.new_chunks else { return };
        let length = length as u64;
        self.log.end_assembly(&staged, Some(length));
        let chunks = ChunksRef { length, ..staged };
        let written = self.for_each_chunk(&chunks, ChunkOp::Write);
        debug_assert!(written.is_ok(), "the open batch is in memory: {written:?}");
        self.write_descriptor(position, &chunks);
    }

    /// Adds the staged record and its chunks to the batch.
    ///
    /// # Errors
    /// As for [`finish`](Store::finish).
    #[cold]
    #[inline(never)]
    pub(super) fn end_chunked(&mut self) -> Result<(), Error> {
        self.staging.new_chunks = None;
        self.release_last()
    }

    /// Rolls back the staged record and its chunks.
    #[cold]
    #[inline(never)]
    pub(super) fn drop_chunked(&mut self) {
        if let Some(chunks) = self.staging.new_chunks.take() {
            self.undo_last();
            self.log.end_assembly(&chunks, None);
        }
    }

    /// Deletes the chunks of a value.
    pub(super) fn delete_chunks_of(&mut self, chunks: &ChunksRef) -> Result<(), Error> {
        self.for_each_chunk(chunks, ChunkOp::Delete)
    }

    /// Deletes the chunks of a key's value.
    #[cold]
    #[inline(never)]
    pub(super) fn delete_chunks(
        &mut self,
        hash: u32,
        keyspace: u32,
        key: &[u8],
    ) -> Result<(), Error> {
        let Some(at) = self.find_outlined(hash, keyspace, key)? else { return Ok(()) };
        let chunks = self.log.record_in(at.addr).chunks();
        chunks.map_or(Ok(()), |chunks| self.for_each_chunk(&chunks, ChunkOp::Delete))
    }
}
