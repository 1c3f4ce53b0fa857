//! The runs of keys that the current checkpoint refers to, and reading them block by block.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::ops::Bound;

use crate::error::Error;
use crate::file::{File, read_full};
use crate::format::checkpoint::{self, RunRow, RunSegmentRow};
use crate::format::key_run::KeyRunValue;
use crate::format::key_run::block::DecodedBlock;
use crate::format::segment;
use crate::index::Position;

use super::slot_allocator::AllocPriority;
use super::{Log, SlotState};

/// Memory for decoded blocks, as a part of that for records.
const CACHE_SHARE: usize = 16;
/// Roughly the memory of a decoded block, and its entries at least if keys are short.
const DECODED_BLOCK: usize = 8 << 10;
const ENTRIES_IN_BLOCK: u64 = 64;

/// More runs than any checkpoint refers to.
const MAX_LOADED: usize = 24;

/// A run of keys.
#[derive(Clone, Debug)]
pub struct KeyRun {
    /// The sequence of its first segment: a larger one means a newer run.
    pub sequence: u32,
    /// Entries in its leaf blocks.
    pub entries: u64,
    /// Position and length of its root block.
    pub root: (Position, u32),
    /// Its segments: slots and sequences.
    pub segments: Vec<RunSegmentRow>,
}

/// The runs, and the blocks of them that were read last.
#[derive(Debug, Default)]
pub struct KeyRuns {
    /// The oldest first.
    runs: Vec<KeyRun>,
    /// Blocks by a hash of their positions; the length is a power of two, or 0 without runs.
    cache: Vec<Option<(Position, Arc<DecodedBlock>)>>,
    cached: usize,
    /// The bytes of the block that was read last.
    bytes: Vec<u8>,
}

/// A part of a run is damaged, or cannot be what it says.
#[derive(Debug)]
pub struct DamagedRun;

impl KeyRuns {
    /// Runs whose blocks are cached in a part of `memory`.
    pub(crate) fn new(runs: Vec<KeyRun>, memory: usize) -> Self {
        let entries: u64 = runs.iter().map(|run| run.entries).sum();
        let needed = usize::try_from(entries / ENTRIES_IN_BLOCK).unwrap_or(usize::MAX);
        let most = (memory / CACHE_SHARE / DECODED_BLOCK).clamp(8, 1 << 10);
        let blocks = most.min(needed.max(8)).next_power_of_two();
        let cache = if runs.is_empty() { Vec::new() } else { vec![None; blocks] };
        KeyRuns { runs, cache, cached: 0, bytes: Vec::new() }
    }

    /// The runs, the oldest first.
    #[must_use]
    pub fn all(&self) -> &[KeyRun] {
        &self.runs
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Whether there is one from this sequence on.
    #[must_use]
    pub fn any_from(&self, sequence: u32) -> bool {
        self.runs.last().is_some_and(|run| run.sequence >= sequence)
    }

    /// Bytes of memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.cached * DECODED_BLOCK + self.cache.len() * size_of::<(Position, usize)>()
    }

    /// Bytes of memory that cached blocks may still take.
    #[must_use]
    pub fn bytes_to_grow(&self) -> usize {
        (self.cache.len() - self.cached) * DECODED_BLOCK
    }

    /// Reads a block, unless it is cached.
    fn block(
        &mut self,
        file: &mut impl File,
        log: &Log,
        position: Position,
        length: u32,
    ) -> Result<Result<Arc<DecodedBlock>, DamagedRun>, Error> {
        let hash = position.wrapping_mul(0x9E37_79B9) >> 8;
        let at = hash as usize & (self.cache.len() - 1);
        if let Some((other, block)) = &self.cache[at]
            && *other == position
        {
            return Ok(Ok(block.clone()));
        }
        if !read_block(file, log, position, length, &mut self.bytes)? {
            return Ok(Err(DamagedRun));
        }
        let entry = self.cache[at].take();
        self.cached -= usize::from(entry.is_some());
        // The memory of the block that was here is used again unless a cursor is in it.
        let mut block =
            entry.and_then(|(_, block)| Arc::try_unwrap(block).ok()).unwrap_or_default();
        if !block.decode(&self.bytes) {
            return Ok(Err(DamagedRun));
        }
        let block = Arc::new(block);
        self.cache[at] = Some((position, block.clone()));
        self.cached += 1;
        Ok(Ok(block))
    }

    /// Reads the child of an inner block or of the root.
    fn child(
        &mut self,
        file: &mut impl File,
        log: &Log,
        parent: &DecodedBlock,
        at: usize,
    ) -> Result<Result<Arc<DecodedBlock>, DamagedRun>, Error> {
        match parent.value(at) {
            KeyRunValue::Block { position, length } => self.block(file, log, position, length),
            _ => Ok(Err(DamagedRun)),
        }
    }

    /// A cursor at the first key of a run within a bound: the lower one, or in `reverse` the upper one.
    pub(crate) fn seek(
        &mut self,
        file: &mut impl File,
        log: &Log,
        run: usize,
        bound: Bound<&[u8]>,
        reverse: bool,
    ) -> Result<Result<RunCursor, DamagedRun>, Error> {
        let (position, length) = self.runs[run].root;
        let mut blocks = Vec::with_capacity(2);
        let mut indexes = [0; 3];
        let mut block = match self.block(file, log, position, length)? {
            Ok(root) => root,
            Err(damaged) => return Ok(Err(damaged)),
        };
        for index in &mut indexes[..2] {
            let below = match bound {
                Bound::Included(key) | Bound::Excluded(key) => block.count_below(key, true),
                Bound::Unbounded if reverse => block.len(),
                Bound::Unbounded => 0,
            };
            *index = below.saturating_sub(1);
            let child = match self.child(file, log, &block, *index)? {
                Ok(child) => child,
                Err(damaged) => return Ok(Err(damaged)),
            };
            blocks.push(core::mem::replace(&mut block, child));
        }
        let at = match (bound, reverse) {
            (Bound::Unbounded, false) => Some(0),
            (Bound::Unbounded, true) => block.len().checked_sub(1),
            (Bound::Included(key), false) => Some(block.count_below(key, false)),
            (Bound::Excluded(key), false) => Some(block.count_below(key, true)),
            (Bound::Included(key), true) => block.count_below(key, true).checked_sub(1),
            (Bound::Excluded(key), true) => block.count_below(key, false).checked_sub(1),
        };
        indexes[2] = at.unwrap_or(0);
        let mut cursor = RunCursor { inner: blocks, leaf: Some(block), indexes, reverse };
        let is_outside =
            at.is_none_or(|at| cursor.leaf.as_ref().is_some_and(|leaf| at >= leaf.len()));
        if is_outside && cursor.next_leaf(self, file, log)?.is_err() {
            return Ok(Err(DamagedRun));
        }
        Ok(Ok(cursor))
    }
}

/// Reads a block of a run and verifies its checksum. Returns false if there is none.
fn read_block(
    file: &mut impl File,
    log: &Log,
    position: Position,
    length: u32,
    bytes: &mut Vec<u8>,
) -> Result<bool, Error> {
    let (slot, offset) = log.geometry.locate(position);
    let length = length as usize;
    let Some(slot) = log.slots.get(slot as usize).filter(|s| s.state == SlotState::KeyRun) else {
        return Ok(false);
    };
    // No more than a segment is allocated, whatever the length is.
    if offset < segment::SIZE || offset + length > log.geometry.frames_end() {
        return Ok(false);
    }
    bytes.resize(length, 0);
    let at = log.geometry.slot_start(log.geometry.locate(position).0) + offset as u64;
    let is_whole = read_full(file, bytes, at)? == length;
    Ok(is_whole && checkpoint::verify(bytes, slot.salt, at))
}

/// A cursor in a run, which moves in one direction.
#[derive(Debug)]
pub struct RunCursor {
    /// The root and an inner block.
    inner: Vec<Arc<DecodedBlock>>,
    /// None at the end.
    leaf: Option<Arc<DecodedBlock>>,
    /// Places in the root, in the inner block and in the leaf.
    indexes: [usize; 3],
    reverse: bool,
}

impl RunCursor {
    /// The current key, with its keyspace, and what the run says of it; none at the end.
    #[inline]
    #[must_use]
    pub fn current(&self) -> Option<(&[u8], KeyRunValue)> {
        let leaf = self.leaf.as_ref()?;
        Some((leaf.key(self.indexes[2]), leaf.value(self.indexes[2])))
    }

    /// Goes to the next key.
    #[inline]
    pub(crate) fn advance(
        &mut self,
        runs: &mut KeyRuns,
        file: &mut impl File,
        log: &Log,
    ) -> Result<Result<(), DamagedRun>, Error> {
        let length = self.leaf.as_ref().map_or(0, |leaf| leaf.len());
        if step(&mut self.indexes[2], length, self.reverse) {
            return Ok(Ok(()));
        }
        self.next_leaf(runs, file, log)
    }

    #[inline(never)]
    fn next_leaf(
        &mut self,
        runs: &mut KeyRuns,
        file: &mut impl File,
        log: &Log,
    ) -> Result<Result<(), DamagedRun>, Error> {
        let Some(before) = self.leaf.take() else { return Ok(Ok(())) };
        if !step(&mut self.indexes[1], self.inner[1].len(), self.reverse) {
            if !step(&mut self.indexes[0], self.inner[0].len(), self.reverse) {
                return Ok(Ok(()));
            }
            let inner = runs.child(file, log, &self.inner[0].clone(), self.indexes[0])?;
            let Ok(inner) = inner else { return Ok(Err(DamagedRun)) };
            self.indexes[1] = if self.reverse { inner.len() - 1 } else { 0 };
            self.inner[1] = inner;
        }
        let leaf = runs.child(file, log, &self.inner[1].clone(), self.indexes[1])?;
        let Ok(leaf) = leaf else { return Ok(Err(DamagedRun)) };
        let last = leaf.len() - 1;
        // Blocks that repeat or go back could be followed for ever.
        let (order, first) = match self.reverse {
            false => (before.key(before.len() - 1).cmp(leaf.key(0)), 0),
            true => (leaf.key(last).cmp(before.key(0)), last),
        };
        if order != Ordering::Less {
            return Ok(Err(DamagedRun));
        }
        self.indexes[2] = first;
        self.leaf = Some(leaf);
        Ok(Ok(()))
    }
}

/// Advances an index; false at the end.
#[inline(always)]
fn step(index: &mut usize, count: usize, reverse: bool) -> bool {
    match reverse {
        false if *index + 1 < count => *index += 1,
        true if *index > 0 => *index -= 1,
        _ => return false,
    }
    true
}

impl Log {
    /// The runs that a checkpoint refers to; none if one of their segments does not exist.
    pub(super) fn load_runs(
        &self,
        rows: impl Iterator<Item = RunRow>,
        mut segments: impl Iterator<Item = RunSegmentRow>,
    ) -> Option<Vec<KeyRun>> {
        let mut runs: Vec<KeyRun> = Vec::new();
        for row in rows.take_while(|row| row.segments > 0) {
            let own: Vec<RunSegmentRow> = segments.by_ref().take(row.segments as usize).collect();
            let exists = |row: &RunSegmentRow| {
                self.slots.get(row.slot as usize).is_some_and(|slot| {
                    slot.state == SlotState::KeyRun && slot.sequence == row.sequence
                })
            };
            let is_newer = runs.last().is_none_or(|run| run.sequence < row.sequence);
            let starts = own.first().is_some_and(|first| first.sequence == row.sequence);
            let is_complete = own.len() == row.segments as usize && own.iter().all(exists);
            if runs.len() == MAX_LOADED || !is_complete || !is_newer || !starts {
                return None;
            }
            let root = (row.root, row.root_length);
            runs.push(KeyRun { sequence: row.sequence, entries: row.entries, root, segments: own });
        }
        Some(runs)
    }

    /// Allocates the first free slot of the file for a run, so that runs move towards its front.
    pub(super) fn allocate_key_run_segment(&mut self, file: &mut impl File) -> Result<u32, Error> {
        let need = AllocPriority::Checkpoint;
        let slot = match (1..).zip(&self.slots).find(|(_, slot)| slot.is_free()) {
            Some((before, _)) => self.find_slots_before(file, 1, need, Some(before))?,
            None => self.find_slots(file, 1, need)?,
        };
        let used = self.fresh_slot(SlotState::KeyRun, 1);
        self.occupy_span(slot, used);
        Ok(slot)
    }

    /// Opening is finished: runs that the checkpoint does not refer to become reclaimable.
    pub(crate) fn discard_unreferenced_key_runs(&mut self, runs: &[KeyRun]) {
        let may_exist = self.reclaimable.may_exist;
        self.discard_key_runs(runs);
        self.reclaimable.may_exist = may_exist;
    }

    /// Makes all runs reclaimable except for those that are given.
    pub(super) fn discard_key_runs(&mut self, kept: &[KeyRun]) {
        let mut is_kept = vec![false; self.slots.len()];
        for row in kept.iter().flat_map(|run| &run.segments) {
            is_kept[row.slot as usize] = true;
        }
        for (slot, is_kept) in (0..).zip(is_kept) {
            if self.slots[slot as usize].state == SlotState::KeyRun && !is_kept {
                self.discard(slot);
            }
        }
    }
}
