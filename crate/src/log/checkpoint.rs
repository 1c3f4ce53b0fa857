//! Reading and writing checkpoints, which save opening from replaying the whole log.

use alloc::vec;
use alloc::vec::Vec;

use musli_zerocopy::ZeroCopy;

use crate::aligned_buf::AlignedBytes;
use crate::error::Error;
use crate::file::{File, read_full, write_all};
use crate::format::checkpoint::{
    self, BLOCK, CheckpointHead, ExtentRow, HEAD, KeyspaceRow, RunRow, RunSegmentRow, SegmentRow,
};
use crate::format::record;
use crate::format::segment::{self, SegmentHeader};
use crate::format::superblock::Superblock;
use crate::format::{ALIGN, DATA_START, KEYSPACE_ENGINE};
use crate::index::Position;
use crate::index::hash_index::HashIndex;
use crate::index::keyspaces::Keyspaces;

use super::append::WriteError;
use super::checkpoint_index::{CheckpointIndex, index_exceeds_memory};
use super::key_run_writer::KeyRunWriter;
use super::key_runs::KeyRun;
use super::slot_allocator::AllocPriority;
use super::space_accounting::ExtentId;
use super::tombstones::{Tombstones, UNKNOWN};
use super::{Log, NO_BUFFER, RecoveryState, Slot, SlotState};

/// A checkpoint whose head and tables were read and verified.
#[derive(Debug)]
pub struct LoadedCheckpoint {
    /// Its head.
    pub head: CheckpointHead,
    /// The keyspaces and their numbers of keys.
    pub keyspaces: Keyspaces,
    /// The index, with space for all entries. Without those that are left in `unloaded`.
    pub index: HashIndex,
    /// The index in its blocks, if not all entries were read.
    pub unloaded: Option<CheckpointIndex>,
    /// The runs of keys, the oldest first; none if some of them are lost.
    pub runs: Option<Vec<KeyRun>>,
}

/// The head of a checkpoint and its tables, whose checksum is right.
#[derive(Debug)]
pub(super) struct CheckpointTables {
    head: CheckpointHead,
    /// The head and the tables as they are in the file.
    bytes: AlignedBytes,
}

impl CheckpointTables {
    /// Calls `add` with each segment of the log and of runs, until it returns false. Returns whether it
    /// never did.
    #[inline(never)]
    fn each_listed(&self, add: &mut dyn FnMut(u32, Slot) -> bool) -> bool {
        let CheckpointHead { keyspaces, segments, extents, runs, run_segments, .. } = self.head;
        let mut rest = &self.bytes[HEAD + keyspaces as usize * size_of::<KeyspaceRow>()..];
        let rows = checkpoint::take_rows::<SegmentRow>(&mut rest, segments);
        for row in rows.into_iter().flatten() {
            let slot = Slot {
                written: true,
                sequence: row.sequence,
                salt: row.salt,
                first_frame: row.first_frame,
                dirty_tail: row.flags & u32::from(segment::FLAG_REUSED) != 0,
                ..Slot::new(SlotState::Log)
            };
            if !add(row.slot, slot) {
                return false;
            }
        }
        let between =
            extents as usize * size_of::<ExtentRow>() + runs as usize * size_of::<RunRow>();
        rest = &rest[between..];
        let rows = checkpoint::take_rows::<RunSegmentRow>(&mut rest, run_segments);
        // Blank rows are in no run.
        let mut rows = rows.into_iter().flatten().filter(|row| row.sequence != 0);
        rows.all(|RunSegmentRow { slot, sequence, salt }| {
            add(slot, Slot { written: true, sequence, salt, ..Slot::new(SlotState::KeyRun) })
        })
    }

    /// Whether no slot of the first `count` is listed twice, or is the checkpoint's own slot `first`.
    fn lists_slots_once(&self, first: usize, count: usize) -> bool {
        let mut is_listed = vec![false; count];
        is_listed[first] = true;
        self.each_listed(&mut |slot, _| {
            is_listed.get_mut(slot as usize).is_none_or(|it| !core::mem::replace(it, true))
        })
    }
}

/// A checkpoint that is being written.
#[derive(Debug)]
pub struct CheckpointWriter {
    first: u32,
    head: CheckpointHead,
    /// The head with its tables. It is written last, when the first hash of each block is known.
    bytes: AlignedBytes,
    /// Where the first hash of the next block is put in it.
    next_hash: usize,
    /// The file position of the next block.
    at: u64,
    block: AlignedBytes,
    filled: usize,
    left: u64,
    /// The runs that it refers to, the oldest first.
    runs: Vec<KeyRun>,
    /// Where their rows are put in `bytes`.
    rows_at: usize,
    /// The newest run, while it is being written.
    pub(crate) key_run: Option<KeyRunWriter>,
}

/// The runs of keys that a new checkpoint refers to.
#[derive(Debug, Default)]
pub(crate) struct KeyRunPlan {
    /// Runs that it keeps.
    pub kept: Vec<KeyRun>,
    /// How many segments a new run has at most; none if there is no new one.
    pub new_segments: Option<usize>,
}

impl CheckpointWriter {
    /// Puts the rows of the runs into the head.
    fn put_run_rows(&mut self) {
        let rows = self.runs.iter().map(|run| RunRow {
            entries: run.entries,
            root: run.root.0,
            root_length: run.root.1,
            sequence: run.sequence,
            segments: run.segments.len() as u32,
        });
        for (row, to) in rows.zip(self.bytes[self.rows_at..].chunks_exact_mut(size_of::<RunRow>()))
        {
            to.copy_from_slice(row.to_bytes());
        }
        let segments_at = self.rows_at + self.head.runs as usize * size_of::<RunRow>();
        let to = self.bytes[segments_at..].chunks_exact_mut(size_of::<RunSegmentRow>());
        for (row, to) in self.runs.iter().flat_map(|run| &run.segments).zip(to) {
            to.copy_from_slice(row.to_bytes());
        }
    }

    /// The sequence of the new run while it is being written, or 0.
    pub(crate) fn run_sequence(&self) -> u32 {
        let first = self.key_run.as_ref().and_then(|run| run.segments().first());
        first.map_or(0, |first| first.sequence)
    }

    /// Completes the new run.
    ///
    /// # Errors
    /// An error of the file, or [`Error::Quota`] if the run is larger than planned.
    pub(crate) fn end_key_run(&mut self, log: &mut Log, file: &mut impl File) -> Result<(), Error> {
        let Some(run) = &mut self.key_run else { return Ok(()) };
        let run = run.finish(log, file)?;
        self.key_run = None;
        self.runs.extend(run);
        let segments: usize = self.runs.iter().map(|run| run.segments.len()).sum();
        if segments > self.head.run_segments as usize { Err(Error::Quota) } else { Ok(()) }
    }

    /// The index in the checkpoint, from which entries can be loaded again once they are written: all of them if
    /// `is_limited`.
    pub(crate) fn new_index(&self, log: &Log, is_limited: bool) -> Option<CheckpointIndex> {
        let salt = log.slots[self.first as usize].salt;
        CheckpointIndex::of_next(&self.head, salt, self.at, is_limited, log)
    }

    /// The first hashes of the blocks.
    fn first_hashes(&self) -> Vec<u32> {
        let from = self.next_hash - 4 * self.head.blocks();
        let (hashes, _) = self.bytes[from..self.next_hash].as_chunks();
        hashes.iter().map(|&hash| u32::from_le_bytes(hash)).collect()
    }

    /// Completes the description of the index in a complete checkpoint.
    pub(crate) fn complete(&self, unloaded: &mut CheckpointIndex, is_surveyed: bool) {
        unloaded.complete(self.first_hashes(), is_surveyed);
    }

    /// How many of the announced entries were not added.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// Names no runs: they could not be written.
    pub(crate) fn drop_key_runs(&mut self, log: &mut Log) {
        self.discard_new_run(log);
        self.runs.clear();
    }

    fn discard_new_run(&mut self, log: &mut Log) {
        let unfinished = self.key_run.take();
        let unfinished = unfinished.iter().flat_map(KeyRunWriter::segments);
        // Kept runs are older.
        let finished = self.runs.iter().filter(|run| run.sequence >= self.head.next_sequence);
        for row in finished.flat_map(|run| &run.segments).chain(unfinished) {
            log.discard(row.slot);
        }
        self.runs.retain(|run| run.sequence < self.head.next_sequence);
    }

    /// Takes the runs out.
    pub(crate) fn take_runs(&mut self) -> Vec<KeyRun> {
        core::mem::take(&mut self.runs)
    }
}

impl Log {
    /// Takes the uses of the checkpoint's own slots, and of those that its tables list, from it instead of
    /// from their headers: it is newer, and one read takes the place of one for each segment. Returns
    /// none, and leaves slots that are not to be used, if that does not succeed.
    pub(super) fn occupy_listed(
        &mut self,
        file: &mut impl File,
    ) -> Result<Option<CheckpointTables>, Error> {
        let Superblock { checkpoint_sequence, checkpoint_slot, .. } = self.superblock;
        let Some(first) = usize::try_from(checkpoint_slot).ok().filter(|&i| i < self.slots.len())
        else {
            return Ok(None);
        };
        if checkpoint_sequence == 0 || !self.occupy_checkpoint(file, first as u32)? {
            return Ok(None);
        }
        let Some(tables) = self.read_tables(file, first)? else { return Ok(None) };
        let Log { slots, next_sequence, .. } = self;
        let is_complete = tables.each_listed(&mut |index, slot| {
            let to = slots.get_mut(index as usize).filter(|to| to.state == SlotState::Unknown);
            let Some(to) = to else { return false };
            *next_sequence = (*next_sequence).max(slot.sequence.saturating_add(1));
            *to = slot;
            true
        });
        Ok(is_complete.then_some(tables))
    }

    /// Loads the checkpoint that the superblock refers to, of which `tables` were read if its slots were taken from
    /// them. Returns none if there is none or if anything
    /// about it is invalid: the log contains the same information, only slower to read. Its entries
    /// are read too if there are at most `at_once` of them, and later if there are more. They are not to be
    /// loaded if the index would take more than `index_memory` bytes.
    pub(super) fn load_checkpoint(
        &mut self,
        file: &mut impl File,
        tables: Option<CheckpointTables>,
        at_once: usize,
        index_memory: usize,
    ) -> Result<Option<LoadedCheckpoint>, Error> {
        let wanted = self.superblock.checkpoint_sequence;
        let is_wanted =
            |s: &Slot| s.state == SlotState::Checkpoint && u64::from(s.sequence) == wanted;
        let Some(first) = self.slots.iter().position(is_wanted).filter(|_| wanted != 0) else {
            return Ok(None);
        };
        let tables = match tables {
            Some(tables) => Some(tables),
            None => self.read_tables(file, first)?,
        };
        let Some(CheckpointTables { head, bytes }) = tables else { return Ok(None) };
        let salt = self.slots[first].salt;
        let mut tables = &bytes[HEAD..];
        let Some(keyspaces) = self.load_tables(&head, &mut tables) else { return Ok(None) };
        let rows = checkpoint::take_rows::<RunRow>(&mut tables, head.runs);
        let run_segments = checkpoint::take_rows::<RunSegmentRow>(&mut tables, head.run_segments);
        let runs =
            rows.zip(run_segments).and_then(|(rows, segments)| self.load_runs(rows, segments));
        let first_hashes = checkpoint::take_rows::<u32>(&mut tables, head.blocks() as u32);
        let first_hashes = first_hashes.map(Iterator::collect).unwrap_or_default();
        let entries = head.entries as usize;
        let loads = entries <= at_once;
        // It would be limited again at a slightly larger number of keys.
        let is_limited = !loads && index_exceeds_memory(entries, true, index_memory);
        let blocks_at =
            self.geometry.slot_start(first as u32) + (segment::SIZE + head.length as usize) as u64;
        let unloaded = CheckpointIndex::new(&head, first_hashes, salt, blocks_at, is_limited);
        let Some(mut unloaded) = unloaded else { return Ok(None) };
        let mut index = match is_limited {
            true => HashIndex::with_bytes(index_memory),
            false => HashIndex::with_capacity(entries),
        };
        if loads {
            if unloaded.load_next(file, self, &mut index, None, usize::MAX)?.is_none() {
                return Ok(None);
            }
            self.recovery.lost_keys += unloaded.lost();
            self.count_live_records(&index);
        } else {
            unloaded.prepare(self);
        }
        if !self.is_end_segment_valid(file, &head)? {
            return Ok(None);
        }
        self.checkpoint.slot = Some(first as u32);
        self.space.live_is_estimate = !loads;
        let unloaded = (!loads).then_some(unloaded);
        Ok(Some(LoadedCheckpoint { head, keyspaces, index, unloaded, runs }))
    }

    /// Reads the head and the tables of the checkpoint that starts in slot `first`. Returns none if they are
    /// damaged, or list a slot twice.
    #[inline(never)]
    fn read_tables(
        &self,
        file: &mut impl File,
        first: usize,
    ) -> Result<Option<CheckpointTables>, Error> {
        let salt = self.slots[first].salt;
        let start = self.geometry.slot_start(first as u32);
        let end = self.geometry.slot_start(first as u32 + self.slots[first].span);
        let (at, end) = (start + segment::SIZE as u64, end - segment::SIZE as u64);

        let mut bytes = AlignedBytes::zeroed(HEAD);
        read_full(file, &mut bytes, at)?;
        let Some(head) = CheckpointHead::from_bytes(&bytes).ok().copied() else { return Ok(None) };
        // The file limits the number of entries, so a malicious number allocates no more than the
        // file's size.
        let length = head.full_length().filter(|&n| {
            head.magic == checkpoint::MAGIC
                && (head.frame | head.next_version) >> 56 == 0
                && head.next_version != 0
                && n == head.length as usize
                && (n as u64).saturating_add(head.block_bytes()) <= end - at
        });
        let Some(length) = length else { return Ok(None) };
        let mut bytes = AlignedBytes::zeroed(length);
        read_full(file, &mut bytes, at)?;
        if !checkpoint::verify(&bytes, salt, at) || head.frame != self.superblock.checkpoint_frame {
            return Ok(None);
        }
        let tables = CheckpointTables { head, bytes };
        Ok(tables.lists_slots_once(first, self.slots.len()).then_some(tables))
    }

    /// The number of live records in each segment is counted from the entries if all of them are known,
    /// whatever the rows say.
    fn count_live_records(&mut self, index: &HashIndex) {
        self.slots.iter_mut().for_each(|slot| slot.live = 0);
        for position in index.positions() {
            let (slot, _) = self.geometry.locate(position);
            self.slots[slot as usize].live += 1;
        }
    }

    /// Whether all frames before the end of the log are intact in the segment where it continues.
    /// That segment stays in memory and is not verified again.
    fn is_end_segment_valid(
        &mut self,
        file: &mut impl File,
        head: &CheckpointHead,
    ) -> Result<bool, Error> {
        let is_end = |s: &Slot| s.state == SlotState::Log && s.sequence == head.end_sequence;
        let Some(slot) = self.slots.iter().position(is_end) else { return Ok(false) };
        self.load_valid_segment(file, slot as u32)?;
        Ok(!core::mem::take(&mut self.slots[slot].pinned_by_damage))
    }

    /// Whether a record could be at `position` of a segment that the checkpoint knows.
    pub(super) fn may_hold_record(&self, position: Position) -> bool {
        let (slot, offset) = self.geometry.locate(position);
        let end = self.slots.get(slot as usize).map_or(0, |s| s.end as usize);
        offset >= segment::SIZE && offset + record::SIZE <= end
    }

    /// Loads the tables of segments and extents; returns none if one of them does not exist.
    fn load_tables(&mut self, head: &CheckpointHead, tables: &mut &[u8]) -> Option<Keyspaces> {
        let frames_end = self.geometry.frames_end();
        let keyspace_rows = checkpoint::take_rows::<KeyspaceRow>(tables, head.keyspaces)?;
        let segments = checkpoint::take_rows::<SegmentRow>(tables, head.segments)?;
        let extents = checkpoint::take_rows::<ExtentRow>(tables, head.extents)?;
        let mut ends_there = false;
        for row in segments {
            let is_match =
                |slot: &&mut Slot| slot.state == SlotState::Log && slot.sequence == row.sequence;
            let Some(slot) = self.slots.get_mut(row.slot as usize).filter(is_match) else {
                if !self.recovery.salvages {
                    return None;
                }
                // The records in that segment are lost; all others are not.
                self.recovery.damaged = true;
                continue;
            };
            let is_frame = row.first_frame >> 56 == 0;
            if row.end as usize > frames_end || row.sequence >= head.next_sequence || !is_frame {
                return None;
            }
            (slot.end, slot.end_frame) = (row.end, row.end_frame);
            // Limited to the size of the segment, so that sums of malicious numbers cannot
            // overflow.
            let at_most = |n: u32| n.min(row.end);
            slot.live_bytes = at_most(row.live_bytes);
            slot.live = at_most(row.live);
            if row.tombstone_bytes > 0 {
                slot.tombstones.add(at_most(row.tombstone_bytes), row.oldest_tombstone, UNKNOWN);
            }
            self.space.live += u64::from(slot.live_bytes);
            ends_there |= row.sequence == head.end_sequence && row.end == head.end_offset;
        }
        for row in extents {
            // The extent may have been dropped since. After replay, those that a record still refers to must
            // exist.
            if self.may_hold_record(row.record) {
                let id = ExtentId { slot: row.slot, sequence: row.sequence };
                self.add_extent_reference(row.record, id);
            } else if !self.recovery.salvages {
                return None;
            }
        }
        let (mut keyspaces, mut keys) = (Keyspaces::default(), 0);
        for row in keyspace_rows {
            keys += u64::from(row.count);
            let keyspace = u32::from(row.keyspace);
            if row.cleared > head.next_version || keyspace == KEYSPACE_ENGINE && row.cleared > 0 {
                return None;
            }
            let space = keyspaces.entry(keyspace);
            (space.count, space.cleared) = (u64::from(row.count).min(head.entries), row.cleared);
            space.first_run = row.first_run;
        }
        // Entries beyond the keys are records of cleared keyspaces. A salvaged file may lack some.
        let is_counted = match keyspaces.any_cleared() {
            true => keys <= head.entries,
            false => keys == head.entries,
        };
        if !is_counted && !self.recovery.salvages {
            return None;
        }
        let offset = head.end_offset as usize;
        // Segments that are begun from now on must not count as those of the checkpoint.
        let is_past = u64::from(head.next_sequence) <= self.superblock.checkpoint_sequence;
        let sane = is_past && ends_there && offset >= segment::SIZE && offset.is_multiple_of(ALIGN);
        sane.then_some(keyspaces)
    }

    /// Undoes what was loaded from a checkpoint that turned out to be unusable.
    pub(super) fn reset_tables(&mut self) {
        self.recovery =
            RecoveryState { salvages: self.recovery.salvages, ..RecoveryState::default() };
        self.extents.by_record.clear();
        self.space.live = 0;
        for slot in &mut self.slots {
            (slot.end, slot.end_frame, slot.live, slot.live_bytes) = (0, 0, 0, 0);
            slot.tombstones = Tombstones::default();
        }
    }

    /// Bytes that opening would have to replay.
    pub(crate) fn replay_bytes(&self) -> u64 {
        self.checkpoint.frame_bytes_since
    }

    /// A part of the checkpoint was found damaged: opening may have to replay the whole log.
    pub(crate) fn mark_checkpoint_damaged(&mut self) {
        self.checkpoint.is_damaged = true;
    }

    /// Whether the checkpoint is to be replaced because a part of it is damaged.
    pub(crate) fn checkpoint_is_damaged(&self) -> bool {
        self.checkpoint.is_damaged
    }

    /// Bytes of values in extents that opening would have to verify.
    pub(crate) fn replay_value_bytes(&self) -> u64 {
        self.checkpoint.value_bytes_since
    }

    /// Opening is finished and has verified this many bytes.
    pub(crate) fn set_replay_value_bytes(&mut self, bytes: u64) {
        self.checkpoint.value_bytes_since = bytes;
    }

    /// Starts a checkpoint of an index with `entries` entries, and runs of keys, as of the end of the log.
    /// There is no open batch.
    ///
    /// # Errors
    /// An error of the file; nothing has changed then.
    pub(crate) fn begin_checkpoint(
        &mut self,
        file: &mut impl File,
        entries: usize,
        keyspaces: &Keyspaces,
        next_version: u64,
        plan: KeyRunPlan,
    ) -> Result<CheckpointWriter, Error> {
        let end_slot = self.open_frame.slot.ok_or(Error::Misuse)?;
        let (end_frame, end) = (self.next_frame, self.open_frame.start as u32);
        {
            let slot = &mut self.slots[end_slot as usize];
            (slot.end, slot.end_frame) = (end, end_frame);
        }
        let kept = |s: &Slot| s.state == SlotState::Log && s.written && !s.retired;
        let segments = self.slots.iter().filter(|s| kept(s)).count();
        let run_segments: usize = plan.kept.iter().map(|run| run.segments.len()).sum();
        let mut head = CheckpointHead {
            magic: checkpoint::MAGIC,
            frame: end_frame,
            end_sequence: self.slots[end_slot as usize].sequence,
            end_offset: end,
            next_version,
            entries: entries as u64,
            keyspaces: keyspaces.counts().count() as u32,
            segments: segments as u32,
            extents: self.extents.by_record.len() as u32,
            next_sequence: self.next_sequence,
            runs: (plan.kept.len() + usize::from(plan.new_segments.is_some())) as u32,
            run_segments: (run_segments + plan.new_segments.unwrap_or(0)) as u32,
            ..Default::default()
        };
        let length = head.full_length().ok_or(Error::Quota)?;
        head.length = length as u32;
        let total = length + head.block_bytes() as usize;
        let span = self.geometry.extent_span(total);
        let first =
            self.allocate_span(file, SlotState::Checkpoint, span, AllocPriority::Checkpoint)?;
        // The checkpoint's own slot is not among those that its head lists.
        let mut bytes = AlignedBytes::zeroed(length);
        bytes[..HEAD].copy_from_slice(head.to_bytes());
        let mut at = HEAD;
        let mut put = |row: &[u8]| {
            bytes[at..at + row.len()].copy_from_slice(row);
            at += row.len();
        };
        for (keyspace, space) in keyspaces.iter() {
            let count = space.count.min(u64::from(u32::MAX)) as u32;
            let (cleared, first_run) = (space.cleared, space.first_run);
            let keyspace = keyspace as u16;
            let row = KeyspaceRow { keyspace, count, cleared, first_run, ..Default::default() };
            put(row.to_bytes());
        }
        for (slot, s) in (0..).zip(&self.slots).filter(|(_, s)| kept(s)) {
            let row = SegmentRow {
                slot,
                sequence: s.sequence,
                salt: s.salt,
                first_frame: s.first_frame,
                end_frame: s.end_frame,
                end: s.end,
                live: s.live,
                live_bytes: s.live_bytes,
                tombstone_bytes: s.tombstones.bytes(),
                oldest_tombstone: s.tombstones.oldest(),
                flags: if s.dirty_tail { u32::from(segment::FLAG_REUSED) } else { 0 },
            };
            put(row.to_bytes());
        }
        for &(record, ExtentId { slot, sequence }) in self.extents.by_record.iter() {
            put(ExtentRow { slot, sequence, record, reserved: 0 }.to_bytes());
        }
        let rows = head.runs as usize * size_of::<RunRow>()
            + head.run_segments as usize * size_of::<RunSegmentRow>();
        let start = self.geometry.slot_start(first) + segment::SIZE as u64;
        let mut writing = CheckpointWriter {
            first,
            head,
            rows_at: at,
            next_hash: at + rows,
            bytes,
            at: start + length as u64,
            block: AlignedBytes::zeroed(BLOCK),
            filled: 8,
            left: entries as u64,
            runs: plan.kept,
            key_run: plan.new_segments.map(|_| KeyRunWriter::default()),
        };
        if let Some(run) = &mut writing.key_run
            && let Err(error) = run.begin(self, file)
        {
            self.abandon_checkpoint(writing);
            return Err(error);
        }
        Ok(writing)
    }

    /// Adds entries, in the order of their hashes, and writes each block that is full.
    ///
    /// # Errors
    /// An error of the file, or [`Error::Misuse`] if there are more entries than announced. The
    /// checkpoint must be abandoned then.
    pub(crate) fn add_entries(
        &mut self,
        file: &mut impl File,
        writing: &mut CheckpointWriter,
        mut entries: &[(u32, Position)],
    ) -> Result<(), Error> {
        writing.left = writing.left.checked_sub(entries.len() as u64).ok_or(Error::Misuse)?;
        while !entries.is_empty() {
            let space = &mut writing.block[writing.filled..];
            let (now, later) = entries.split_at(entries.len().min(space.len() / 8));
            for (space, (hash, position)) in space.chunks_exact_mut(8).zip(now) {
                let word = u64::from(*hash) | u64::from(*position) << 32;
                space.copy_from_slice(&word.to_le_bytes());
            }
            writing.filled += 8 * now.len();
            if writing.filled == BLOCK {
                self.write_block(file, writing)?;
            }
            entries = later;
        }
        Ok(())
    }

    fn write_block(
        &mut self,
        file: &mut impl File,
        writing: &mut CheckpointWriter,
    ) -> Result<(), Error> {
        let bytes = &mut writing.block[..writing.filled];
        writing.bytes[writing.next_hash..][..4].copy_from_slice(&bytes[8..12]);
        writing.next_hash += 4;
        checkpoint::seal(bytes, self.slots[writing.first as usize].salt, writing.at);
        write_all(file, bytes, writing.at)?;
        writing.at += writing.filled as u64;
        writing.filled = 8;
        Ok(())
    }

    /// Makes a complete checkpoint the current one: both superblocks refer to it before anything is
    /// freed that only the previous one needs.
    ///
    /// # Errors
    /// [`WriteError::RolledBack`]: the previous one is still current, and this one must be
    /// abandoned. [`WriteError::Unclear`]: a flush failed.
    pub(crate) fn end_checkpoint(
        &mut self,
        file: &mut impl File,
        writing: &mut CheckpointWriter,
        next_version: u64,
    ) -> Result<(), WriteError> {
        if writing.left > 0 || writing.key_run.is_some() {
            return Err(WriteError::RolledBack(Error::Misuse));
        }
        if writing.filled > 8 {
            self.write_block(file, writing).map_err(WriteError::RolledBack)?;
        }
        writing.put_run_rows();
        let first = writing.first;
        let start = self.geometry.slot_start(first);
        let head_at = start + segment::SIZE as u64;
        checkpoint::seal(&mut writing.bytes, self.slots[first as usize].salt, head_at);
        write_all(file, &writing.bytes, head_at)?;
        let end = self.geometry.slot_start(first + self.slots[first as usize].span);
        let payload = writing.at - start - segment::SIZE as u64;
        let header =
            SegmentHeader { kind: segment::KIND_CHECKPOINT, payload, ..self.header_of(first) };
        let header = header.encode(self.superblock.file_id[0], start);
        write_all(file, &header, end - segment::SIZE as u64)?;
        write_all(file, &header, start)?;
        self.flush(file).map_err(WriteError::Unclear)?;

        let to = Some((first, writing.head.frame));
        self.switch_checkpoint(file, to, &writing.runs, next_version)?;
        self.slots[first as usize].written = true;
        self.slots[first as usize].length = payload;
        self.checkpoint.frame_bytes_since = self.bytes_since(&writing.head);
        self.checkpoint.value_bytes_since = self.values_since(writing.head.next_sequence);
        Ok(())
    }

    /// Frees retired segments without writing a checkpoint, and drops the existing checkpoint,
    /// because there is no space for another. The gap records of the segments are committed. From
    /// here on opening replays the whole log.
    ///
    /// # Errors
    /// As for [`end_checkpoint`](Log::end_checkpoint).
    pub(crate) fn free_retired_without_checkpoint(
        &mut self,
        file: &mut impl File,
        next_version: u64,
    ) -> Result<(), WriteError> {
        self.flush(file).map_err(WriteError::Unclear)?;
        self.switch_checkpoint(file, None, &[], next_version)?;
        let logs = self.slots.iter().filter(|s| s.state == SlotState::Log && s.written);
        self.checkpoint.frame_bytes_since = logs.map(|s| u64::from(s.end)).sum();
        self.checkpoint.value_bytes_since = self.values_since(0);
        Ok(())
    }

    /// Writes both superblocks so that they refer to a checkpoint, given by its slot and frame, or
    /// none. What only the previous one refers to becomes reclaimable, such as runs other than those of the new
    /// one, and so do retired segments.
    #[inline(never)]
    fn switch_checkpoint(
        &mut self,
        file: &mut impl File,
        to: Option<(u32, u64)>,
        runs: &[KeyRun],
        next_version: u64,
    ) -> Result<(), WriteError> {
        let oldest =
            self.slots.iter().filter(|s| s.state == SlotState::Log && s.written && !s.retired);
        let oldest = oldest.min_by_key(|s| s.sequence);
        let mut next = self.superblock;
        if let Some(oldest) = oldest {
            next.first_sequence = u64::from(oldest.sequence);
            next.first_frame = oldest.first_frame;
        }
        let sequence = to.map_or(0, |(first, _)| self.slots[first as usize].sequence);
        next.checkpoint_sequence = u64::from(sequence);
        next.checkpoint_slot = to.map_or(0, |(first, _)| u64::from(first));
        // Everything that was removed is live again before this frame, whether or not there is a
        // checkpoint.
        next.checkpoint_frame = to.map_or(self.next_frame, |(_, frame)| frame);
        // From here on a failure may leave one superblock with each: nothing may be freed.
        self.superblock = next;
        self.write_superblock(file, None, next_version).map_err(WriteError::Unclear)?;
        self.flush(file).map_err(WriteError::Unclear)?;
        // The second superblock is flushed together with the erasing of what only it refers to: by
        // then the first one is the current one.
        self.write_superblock(file, None, next_version).map_err(WriteError::Unclear)?;
        self.superblock_state.marked_open = true;
        self.watermarks.confirmed = self.watermarks.flushed;
        self.discard_dead_extents();
        let before = core::mem::replace(&mut self.checkpoint.slot, to.map(|(first, _)| first));
        self.checkpoint.is_damaged = false;
        if let Some(before) = before {
            self.discard(before);
        }
        self.discard_key_runs(runs);
        for index in 0..self.slots.len() {
            if self.slots[index].retired {
                self.discard(index as u32);
            }
        }
        Ok(())
    }

    /// Abandons a checkpoint that was not completed, with its new run.
    pub(crate) fn abandon_checkpoint(&mut self, mut writing: CheckpointWriter) {
        writing.discard_new_run(self);
        self.discard(writing.first);
    }

    /// Bytes that opening would read from after the start of a checkpoint: of frames, and of the
    /// values that they refer to.
    pub(crate) fn replay_bytes_after(&self, writing: &CheckpointWriter) -> u64 {
        self.bytes_since(&writing.head) + self.values_since(writing.head.next_sequence)
    }

    /// Bytes of extent values from this sequence on, which later records refer to.
    fn values_since(&self, sequence: u32) -> u64 {
        let extents = self.slots.iter().filter(|s| s.state == SlotState::Extent && s.written);
        extents.filter(|s| s.sequence >= sequence).map(|s| s.length).sum()
    }

    /// Bytes of the log after the position that a checkpoint refers to.
    fn bytes_since(&self, head: &CheckpointHead) -> u64 {
        let later = self.slots.iter().filter(|s| s.state == SlotState::Log && s.written);
        let later = later.filter(|s| s.sequence >= head.end_sequence);
        let bytes = later.map(|s| {
            let from = if s.sequence == head.end_sequence { head.end_offset } else { 0 };
            u64::from(s.end.saturating_sub(from))
        });
        bytes.sum()
    }

    /// Copies a whole segment, whether or not it is in memory.
    ///
    /// # Errors
    /// An error of the file.
    pub(crate) fn copy_segment(
        &mut self,
        file: &mut impl File,
        slot: u32,
        into: &mut AlignedBytes,
    ) -> Result<(), Error> {
        let buffer = self.slots[slot as usize].buffer;
        if buffer != NO_BUFFER {
            into.copy_from_slice(self.pool.bytes(buffer));
            return Ok(());
        }
        let read_len = read_full(file, into, self.geometry.slot_start(slot))?;
        into[read_len..].fill(0);
        Ok(())
    }
}

const _: () = assert!(DATA_START.is_multiple_of(ALIGN as u64));
