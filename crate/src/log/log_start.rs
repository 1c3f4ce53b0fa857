//! Where in the log a walk over what is newer than a version begins.
//!
//! Versions grow along the log, except in frames that maintenance wrote. So if the first record of a segment
//! that maintenance did not move there has a version up to the given one, everything in the segments before it is older still.

use crate::aligned_buf::AlignedBytes;
use crate::error::Error;
use crate::file::{File, read_full};
use crate::format::frame::{self, FrameHeader, MAGIC};
use crate::format::record::{KIND_TRANSACTION, RecordHeader};
use crate::format::segment;
use crate::format::superblock::COMPATIBLE_HISTORY;
use musli_zerocopy::ZeroCopy;

use super::log_walk::Loaded;
use super::{Log, Slot, SlotState};

/// Bytes that are read of the beginning of a segment, and how often, to find a record that was not moved there.
const HEAD: usize = 4 << 10;
const MAX_READS: usize = 32;
/// So many known starts are kept, the latest ones.
const MAX_STARTS: usize = 64;

/// Where a walk begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WalkStart {
    /// The segment, and an offset in it.
    pub sequence: u32,
    pub offset: usize,
    /// The number of the frame there.
    pub frame: u64,
    /// Whether nothing newer lies before it, or ever did. If not, this is the beginning of what is left of the log.
    pub is_exact: bool,
}

/// Where a commit of this session ended.
#[derive(Clone, Copy, Debug, Default)]
struct CommitEnd {
    /// All versions behind it are at least this one, all before it are smaller. 0 for no commit.
    next_version: u64,
    slot: u32,
    sequence: u32,
    offset: u32,
    /// The number of the next frame.
    frame: u64,
}

/// The last commits: with them, a follower of the log reads only what is new.
#[derive(Debug, Default)]
pub(super) struct RecentCommits {
    ends: [CommitEnd; 32],
    /// How many there were.
    count: usize,
}

/// The header of the frame at the start of `bytes`, which is not verified.
fn header_of(bytes: &[u8]) -> Option<FrameHeader> {
    let header = *FrameHeader::from_bytes(bytes.get(..frame::SIZE)?).ok()?;
    let length = header.length as usize;
    (header.magic == MAGIC && length >= frame::SIZE && length.is_multiple_of(8)).then_some(header)
}

/// A lower bound of the versions of some records that is above all versions before them.
fn first_version(mut records: &[u8]) -> Option<u64> {
    loop {
        let header = RecordHeader::at(records)?;
        if header.kind == KIND_TRANSACTION {
            let number = records.get(header.value_offset()..)?.first_chunk()?;
            if *number != [0; 8] {
                return Some(u64::from_le_bytes(*number));
            }
        } else if header.version != 0 {
            return Some(header.version);
        }
        if !header.fits(records.len()) {
            return None;
        }
        records = &records[header.size()..];
    }
}

impl Log {
    /// Remembers where the commit ended that was written last.
    pub(super) fn note_commit_end(&mut self, next_version: u64) {
        let Some(slot) = self.open_frame.slot else { return };
        let &Slot { sequence, end, .. } = &self.slots[slot as usize];
        let frame = self.next_frame;
        // A segment in which nothing is written yet has no end.
        let offset = end.max(segment::SIZE as u32);
        let recent = &mut self.recent_commits;
        let at = recent.count % recent.ends.len();
        recent.ends[at] = CommitEnd { next_version, slot, sequence, offset, frame };
        recent.count += 1;
    }

    /// Where a walk over what is newer than `since` begins, if that is after one of the last commits.
    fn recent_start(&self, since: u64) -> Option<WalkStart> {
        let &RecentCommits { ref ends, count } = &self.recent_commits;
        let newest_first = (count.saturating_sub(ends.len())..count).rev();
        let end = newest_first
            .map(|index| &ends[index % ends.len()])
            .find(|end| end.next_version <= since.saturating_add(1))?;
        let &CommitEnd { slot, sequence, offset, frame, .. } = end;
        let is_there = self.is_segment(slot, sequence) && self.slots[slot as usize].written;
        is_there.then_some(WalkStart { sequence, offset: offset as usize, frame, is_exact: true })
    }

    /// Where a walk over what is newer than `since` begins; none if the log is empty. The segment may be loaded then.
    pub(super) fn walk_start(
        &self,
        file: &mut impl File,
        loaded: &mut Loaded,
        since: u64,
    ) -> Result<Option<WalkStart>, Error> {
        let order = self.by_sequence();
        let known = self.known_start(&order, since);
        if let Some(recent) = self.recent_start(since) {
            // Segments between the two may be missing: nothing in them was newer.
            let later = known.filter(|known| known.sequence > recent.sequence);
            return Ok(later.or(Some(recent)));
        }
        let mut head = AlignedBytes::zeroed(0);
        for &(sequence, index) in order.iter().rev() {
            // The first segment needs no search, and older builds did not say what they moved.
            if since == 0 || self.slots[index as usize].first_frame < self.moves_marked_from {
                break;
            }
            if head.is_empty() {
                head = AlignedBytes::zeroed(HEAD);
            }
            let version = self.head_version(file, &mut head, index)?;
            if version.is_some_and(|version| version <= since) {
                self.load_walked(file, loaded, index, segment::SIZE)?;
                // If what was read is damaged, an earlier segment is one to begin with too.
                if let Some((offset, frame)) = self.last_old_commit(loaded, index, since) {
                    return Ok(Some(WalkStart { sequence, offset, frame, is_exact: true }));
                }
            }
            // Segments before it may be missing.
            if known.is_some_and(|known| known.sequence == sequence) {
                break;
            }
        }
        if let Some(known) = known {
            return Ok(Some(known));
        }
        let first = order.first().map(|&(sequence, index)| {
            let frame = self.slots[index as usize].first_frame;
            WalkStart { sequence, offset: segment::SIZE, frame, is_exact: frame == 1 }
        });
        Ok(first)
    }

    /// The segment of the last frame that is known to begin what is newer: where maintenance has moved all that is older,
    /// versions say nothing.
    fn known_start(&self, order: &[(u32, u32)], since: u64) -> Option<WalkStart> {
        let known = self.known_starts.iter().filter(|known| known.0 <= since);
        let from = known.map(|known| known.1).max()?;
        let slot_of = |index: u32| &self.slots[index as usize];
        // Without such a segment, nothing newer is there.
        let holds = |&&(_, index): &&(u32, u32)| slot_of(index).end_frame > from;
        let &(sequence, index) = order.iter().find(holds).or(order.last())?;
        let frame = slot_of(index).first_frame;
        let offset = segment::SIZE;
        (frame <= from).then_some(WalkStart { sequence, offset, frame, is_exact: true })
    }

    /// The version of the first record of a segment that was not moved there, if it is found near the beginning.
    fn head_version(
        &self,
        file: &mut impl File,
        head: &mut AlignedBytes,
        index: u32,
    ) -> Result<Option<u64>, Error> {
        let (start, end) =
            (self.geometry.slot_start(index), self.slots[index as usize].end as usize);
        let (mut at, mut from, mut to, mut reads) = (segment::SIZE, 0, 0, 0);
        while at + frame::SIZE <= end {
            // A frame's header and the beginning of its first record.
            if to < end && at + 2 * frame::SIZE > to {
                if reads == MAX_READS {
                    break;
                }
                reads += 1;
                let length = HEAD.min(end - at);
                let read = read_full(file, &mut head[..length], start + at as u64)?;
                (from, to) = (at, at + read);
            }
            let bytes = head.get(at - from..to.saturating_sub(from)).unwrap_or_default();
            let Some(header) = header_of(bytes) else { break };
            let records = &bytes[frame::SIZE..bytes.len().min(header.length as usize)];
            if !header.is_moved()
                && let Some(version) = first_version(records)
            {
                return Ok(Some(version));
            }
            at += header.length as usize;
        }
        Ok(None)
    }

    /// The offset and the number of the last frame that begins a commit of which the first record is not newer than
    /// `since`; that of the segment's first frame if it continues one. None if that frame is damaged.
    fn last_old_commit(&self, loaded: &Loaded, index: u32, since: u64) -> Option<(usize, u64)> {
        let slot = &self.slots[index as usize];
        let (mut at, mut number, mut begins) = (segment::SIZE, slot.first_frame, true);
        let mut found = None;
        while let Some(bytes) = loaded.bytes.get(at..slot.end as usize)
            && let Some(header) = header_of(bytes)
            && header.number == number
            && let Some(frame) = bytes.get(..header.length as usize)
        {
            if begins && !header.is_moved() {
                match first_version(&frame[frame::SIZE..]) {
                    Some(version) if version > since => break,
                    Some(_) => found = Some((at, number)),
                    None => {}
                }
            }
            begins = header.commits();
            (at, number) = (at + frame.len(), number + 1);
        }
        let is_valid = |at| loaded.any_frame(self, at).is_some_and(|header| !header.is_moved());
        found.filter(|&(at, _)| is_valid(at))
    }

    /// Notes that no frame before this one has anything newer than a version.
    pub(crate) fn note_start(&mut self, version: u64, frame: u64) {
        if !self.known_starts.contains(&(version, frame)) {
            let first = self.known_starts.len().saturating_sub(MAX_STARTS - 1);
            self.known_starts.drain(..first);
            self.known_starts.push((version, frame));
        }
    }

    /// Where a walk over what is newer than `since` begins.
    pub(crate) fn start_of(
        &self,
        file: &mut impl File,
        since: u64,
    ) -> Result<Option<WalkStart>, Error> {
        self.walk_start(file, &mut Loaded::empty(), since)
    }

    /// Whether a slot has the segment of this sequence.
    pub(crate) fn is_segment(&self, slot: u32, sequence: u32) -> bool {
        let slot = self.slots.get(slot as usize);
        slot.is_some_and(|it| it.state == SlotState::Log && it.sequence == sequence)
    }

    /// Whether no frame is missing from a segment on, or about to be removed.
    pub(crate) fn is_whole_from(&self, sequence: u32) -> bool {
        let mut expected = None;
        for (at, index) in self.by_sequence() {
            let slot = &self.slots[index as usize];
            if at < sequence {
                continue;
            }
            if slot.retired || expected.is_some_and(|expected| expected != slot.first_frame) {
                return false;
            }
            expected = Some(slot.end_frame);
        }
        true
    }

    /// Keeps compaction away from all frames from this one on.
    pub(crate) fn retain_from(&mut self, frame: u64) {
        self.retained_from = frame;
    }

    /// Whether compaction must leave a segment alone.
    pub(crate) fn is_retained(&self, slot: u32) -> bool {
        self.slots[slot as usize].end_frame > self.retained_from
    }

    /// Bytes of the segments that compaction must leave alone.
    pub(crate) fn retained_bytes(&self) -> u64 {
        let is_retained = |index: &u32| {
            let slot = &self.slots[*index as usize];
            slot.state == SlotState::Log && slot.written && self.is_retained(*index)
        };
        let count = (0..self.slot_count()).filter(is_retained).count();
        (count as u64) << self.geometry.segment_log2
    }

    /// Frames from this one on say which records maintenance moved.
    pub(crate) fn set_moves_marked_from(&mut self, frame: u64) {
        self.moves_marked_from = frame;
    }

    pub(crate) fn moves_marked_from(&self) -> u64 {
        self.moves_marked_from
    }

    /// Whether the file was created by a build that has a record of what was forgotten.
    pub(crate) fn accounts_for_history(&self) -> bool {
        self.superblock.compatible & COMPATIBLE_HISTORY != 0
    }

    /// Whether there is a gap in the frame numbers, or one before the first segment.
    pub(crate) fn has_gaps(&self) -> bool {
        let first = self.by_sequence().first().copied();
        first.is_some_and(|(sequence, index)| {
            self.slots[index as usize].first_frame != 1 || !self.is_whole_from(sequence)
        })
    }

    /// Remembers the version of a tombstone that was appended, unless no program can see its key.
    pub(crate) fn deletion_added(&mut self, position: u32) {
        let header = self.record_at(position).header;
        let (keyspace, version) = (header.keyspace(), header.version);
        if !self.hidden_keyspaces.contains(&keyspace) {
            let slot = &mut self.slots[self.geometry.locate(position).0 as usize];
            slot.newest_deletion = slot.newest_deletion.max(version);
        }
    }

    /// The newest version of a tombstone in a segment that this session wrote.
    pub(crate) fn newest_deletion(&self, slot: u32) -> u64 {
        self.slots[slot as usize].newest_deletion
    }
}
