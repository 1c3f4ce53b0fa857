//! Writing a run of keys, block by block.

use alloc::vec::Vec;

use crate::error::Error;
use crate::file::{File, write_all};
use crate::format::checkpoint::{self, RunSegmentRow};
use crate::format::key_run::KeyRunValue;
use crate::format::key_run::block::{BlockWriter, common_prefix};
use crate::format::segment::{self, SegmentHeader};
use crate::index::Position;

use super::key_runs::KeyRun;
use super::{Log, Slot};

/// A block with more bytes than this takes no further entry, in segments that hold several such blocks.
const BLOCK_BYTES: usize = 4096;
/// A segment holds at least this many blocks, unless keys are long.
const MIN_BLOCKS: usize = 8;
/// Blocks are written together up to this many bytes.
const WRITE_BYTES: usize = 64 << 10;

/// A run that is being written.
#[derive(Debug, Default)]
pub struct KeyRunWriter {
    leaf: BlockWriter,
    inner: BlockWriter,
    root: BlockWriter,
    /// A key above all before the current leaf, and not above its own.
    leaf_start: Vec<u8>,
    /// The same for the current inner block.
    inner_start: Vec<u8>,
    entries: u64,
    blocks: BlockAppender,
}

/// The segments of a run that is being written, and the end of its blocks in the last one.
#[derive(Debug, Default)]
struct BlockAppender {
    segments: Vec<RunSegmentRow>,
    /// Offset in the last segment at which the next block begins.
    offset: usize,
    /// Complete blocks that are not written yet: the last ones before `offset`.
    pending: Vec<u8>,
}

impl KeyRunWriter {
    /// The segments so far.
    #[must_use]
    pub fn segments(&self) -> &[RunSegmentRow] {
        &self.blocks.segments
    }

    /// Adds an entry, whose key is above all others.
    ///
    /// # Errors
    /// An error of the file; the run must be abandoned then.
    pub(crate) fn add(
        &mut self,
        log: &mut Log,
        file: &mut impl File,
        key: &[u8],
        value: KeyRunValue,
    ) -> Result<(), Error> {
        if !self.leaf.is_empty() && self.leaf.length_with(key.len()) > limit(log) {
            self.end_leaf(log, file)?;
            let shared = common_prefix(key, self.leaf.last_key());
            self.leaf_start.clear();
            self.leaf_start.extend_from_slice(&key[..shared + 1]);
        }
        self.leaf.add(key, value);
        self.entries += 1;
        Ok(())
    }

    fn end_leaf(&mut self, log: &mut Log, file: &mut impl File) -> Result<(), Error> {
        let block = self.blocks.append(log, file, self.leaf.finish())?;
        self.leaf.clear();
        if !self.inner.is_empty() && self.inner.length_with(self.leaf_start.len()) > limit(log) {
            self.end_inner(log, file)?;
        }
        if self.inner.is_empty() {
            self.inner_start.clone_from(&self.leaf_start);
        }
        self.inner.add(&self.leaf_start, block);
        Ok(())
    }

    fn end_inner(&mut self, log: &mut Log, file: &mut impl File) -> Result<(), Error> {
        let block = self.blocks.append(log, file, self.inner.finish())?;
        self.inner.clear();
        self.root.add(&self.inner_start, block);
        Ok(())
    }

    /// Completes the run; none if it has no entries.
    ///
    /// # Errors
    /// As for [`add`](KeyRunWriter::add).
    pub(crate) fn finish(
        &mut self,
        log: &mut Log,
        file: &mut impl File,
    ) -> Result<Option<KeyRun>, Error> {
        if self.entries == 0 {
            self.blocks.segments.drain(..).for_each(|row| log.discard(row.slot));
            return Ok(None);
        }
        self.end_leaf(log, file)?;
        self.end_inner(log, file)?;
        let KeyRunValue::Block { position, length } =
            self.blocks.append(log, file, self.root.finish())?
        else {
            return Err(Error::Misuse);
        };
        self.blocks.end_segment(log, file)?;
        let segments = core::mem::take(&mut self.blocks.segments);
        let sequence = segments.first().map_or(0, |first| first.sequence);
        let entries = self.entries;
        Ok(Some(KeyRun { sequence, entries, root: (position, length), segments }))
    }

    /// Takes the first segment, before anything is added: it gives the run its sequence.
    ///
    /// # Errors
    /// As for [`add`](KeyRunWriter::add).
    pub(super) fn begin(&mut self, log: &mut Log, file: &mut impl File) -> Result<(), Error> {
        self.blocks.begin_segment(log, file)
    }
}

impl BlockAppender {
    /// Appends a block to a segment. The error is [`Error::Quota`] if it fits none: only so many long
    /// keys lead to such a root.
    fn append(
        &mut self,
        log: &mut Log,
        file: &mut impl File,
        bytes: &mut [u8],
    ) -> Result<KeyRunValue, Error> {
        if self.offset + bytes.len() > log.geometry.frames_end() {
            self.begin_segment(log, file)?;
            if self.offset + bytes.len() > log.geometry.frames_end() {
                return Err(Error::Quota);
            }
        }
        let slot = self.segments[self.segments.len() - 1].slot;
        let at = log.geometry.slot_start(slot) + self.offset as u64;
        checkpoint::seal(bytes, log.slots[slot as usize].salt, at);
        let position: Position = log.geometry.position(slot, self.offset);
        self.pending.extend_from_slice(bytes);
        self.offset += bytes.len();
        if self.pending.len() >= WRITE_BYTES {
            self.write_pending(log, file)?;
        }
        Ok(KeyRunValue::Block { position, length: bytes.len() as u32 })
    }

    fn begin_segment(&mut self, log: &mut Log, file: &mut impl File) -> Result<(), Error> {
        self.end_segment(log, file)?;
        let slot = log.allocate_key_run_segment(file)?;
        let Slot { sequence, salt, .. } = log.slots[slot as usize];
        self.segments.push(RunSegmentRow { slot, sequence, salt });
        self.offset = segment::SIZE;
        Ok(())
    }

    fn write_pending(&mut self, log: &mut Log, file: &mut impl File) -> Result<(), Error> {
        let Some(RunSegmentRow { slot, .. }) = self.segments.last() else { return Ok(()) };
        let at = log.geometry.slot_start(*slot) + (self.offset - self.pending.len()) as u64;
        write_all(file, &self.pending, at)?;
        self.pending.clear();
        Ok(())
    }

    fn end_segment(&mut self, log: &mut Log, file: &mut impl File) -> Result<(), Error> {
        self.write_pending(log, file)?;
        let Some(&RunSegmentRow { slot, .. }) = self.segments.last() else { return Ok(()) };
        let start = log.geometry.slot_start(slot);
        let payload = (self.offset - segment::SIZE) as u64;
        let header = SegmentHeader { kind: segment::KIND_RUN, payload, ..log.header_of(slot) };
        let header = header.encode(log.superblock.file_id[0], start);
        write_all(file, &header, start + log.geometry.frames_end() as u64)?;
        write_all(file, &header, start)?;
        let slot = &mut log.slots[slot as usize];
        (slot.written, slot.length) = (true, payload);
        Ok(())
    }
}

/// A block with more bytes takes no further entry.
fn limit(log: &Log) -> usize {
    BLOCK_BYTES.min(log.geometry.segment() / MIN_BLOCKS)
}
