//! Walking the log as history: its transactions, oldest first, each with its records.
//!
//! A walk reads each segment once, into memory of its own, and verifies each frame once. It describes what it
//! found in a segment by [parts](WalkPart), which refer to that memory, so that no record is copied.

use alloc::vec::Vec;
use core::mem;

use musli_zerocopy::ZeroCopy;

use crate::aligned_buf::AlignedBytes;
use crate::error::Error;
use crate::file::{File, read_full};
use crate::format::KEYSPACE_ENGINE;
use crate::format::frame::{self, FrameHeader};
use crate::format::record::{self, KIND_CHUNKED, KIND_CLEAR, KIND_TRANSACTION, RecordHeader};
use crate::format::segment;
use crate::format::system_records::Transaction;

use super::{Log, RecordRef, SlotState};

/// What a part of a walk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum PartKind {
    /// A transaction begins.
    Transaction,
    /// Records begin that compaction moved here. Their versions say when they were set; which transactions they
    /// belonged to is not known any more.
    Moved,
    /// The transaction or the moved records go on.
    Continuation,
    /// Compaction removed what was here.
    Gap,
    /// Bytes of the file are damaged. The transactions that they belong to are left out.
    Damage,
}

/// A part of a walk. Offsets are those of [`LogWalk::bytes`].
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct WalkPart {
    /// What it is.
    pub kind: PartKind,
    /// The offset of the first record.
    pub from: u32,
    /// The offset after the last record. Damage: how many bytes are damaged.
    pub to: u32,
    /// The offset of the transaction's own record, 0 if it has none.
    pub note: u32,
    /// The transaction's number. Damage: the position in the file.
    pub number: u64,
}

/// A segment in the memory of a walk.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) slot: u32,
    pub(super) sequence: u32,
    /// What was read of it: from this offset on, to where its frames ended then.
    pub(super) from: usize,
    pub(super) end: u32,
    /// Frames before this offset were verified.
    verified: usize,
    pub(super) bytes: AlignedBytes,
}

impl Loaded {
    pub(super) fn empty() -> Self {
        Loaded {
            slot: 0,
            sequence: 0,
            from: 0,
            end: 0,
            verified: 0,
            bytes: AlignedBytes::zeroed(0),
        }
    }

    /// Whether this is all that a segment has now: the last one grows.
    pub(super) fn is_whole(&self, log: &Log, index: u32) -> bool {
        let slot = &log.slots[index as usize];
        let all = (index, slot.sequence, segment::SIZE, slot.end);
        (self.slot, self.sequence, self.from, self.end) == all
    }

    /// The frame of a number at an offset, if it is valid.
    pub(super) fn frame(&mut self, log: &Log, at: usize, number: u64) -> Option<FrameHeader> {
        let header = self.any_frame(log, at).filter(|header| header.number == number)?;
        self.verified = self.verified.max(at + header.length as usize);
        Some(header)
    }

    pub(super) fn any_frame(&self, log: &Log, at: usize) -> Option<FrameHeader> {
        let bytes = self.bytes.get(at..log.geometry.frames_end()).filter(|_| at >= self.from)?;
        if at < self.verified {
            return FrameHeader::from_bytes(bytes.get(..frame::SIZE)?).ok().copied();
        }
        let slot = &log.slots[self.slot as usize];
        FrameHeader::open(bytes, slot.salt, log.geometry.slot_start(self.slot) + at as u64)
    }

    /// Whether the damaged frame at an offset completed its commit, as far as that can be said.
    fn damaged_frame_commits(&self, log: &Log, at: usize) -> bool {
        let bytes = self.bytes.get(at..log.geometry.frames_end()).unwrap_or_default();
        let header = bytes.get(..frame::SIZE).and_then(|bytes| FrameHeader::from_bytes(bytes).ok());
        let Some(header) = header else { return false };
        // The flag itself may be what is damaged.
        let slot = &log.slots[self.slot as usize];
        let position = log.geometry.slot_start(self.slot) + at as u64;
        header.commits() != header.is_valid_with_other_flag(bytes, slot.salt, position)
    }
}

/// The transaction that a walk is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Run {
    /// None: the next record begins one.
    Awaited,
    /// One that is shown.
    Shown,
    /// One that is left out.
    Hidden,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    /// Whether the segment was found with which it begins.
    pub(super) has_begun: bool,
    /// The offset in the next segment where it goes on.
    pub(super) offset: usize,
    /// The sequence of the segment that was walked last.
    pub(super) sequence: u32,
    /// The number of the next frame.
    pub(super) expected: u64,
    /// Whether the next frame continues a commit.
    pub(super) in_commit: bool,
    /// Whether that commit is left out because a part of it is damaged.
    pub(super) is_lost: bool,
    pub(super) run: Run,
    /// Whether a gap was found, so that records may have been moved while the walk was under way.
    pub(super) has_gap: bool,
    /// The largest version of a record that was not moved.
    pub(super) newest: u64,
}

/// A walk over the log. It shows what was committed when it began. What compaction moves meanwhile is shown where
/// it was moved to.
#[derive(Debug)]
pub struct LogWalk {
    pub(super) since: u64,
    pub(super) until: u64,
    /// The number of the first frame that was written after the walk began.
    pub(super) end_frame: u64,
    pub(super) progress: Progress,
    pub(super) current: Loaded,
    /// The segment in which the last commit of the current one goes on.
    pub(super) ahead: Loaded,
    pub(super) parts: Vec<WalkPart>,
    /// What a walk from the newest to the oldest has left.
    pub(super) reverse: Option<Reverse>,
}

impl LogWalk {
    /// What was found in the current segment.
    #[must_use]
    pub fn parts(&self) -> &[WalkPart] {
        &self.parts
    }

    /// The slot and the sequence of the current segment.
    pub(crate) fn segment(&self) -> (u32, u32) {
        (self.current.slot, self.current.sequence)
    }

    /// The bytes of the current segment.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.current.bytes
    }

    /// The sequence of the current segment. Those of later segments are larger.
    #[must_use]
    pub fn sequence(&self) -> u32 {
        self.progress.sequence
    }

    /// The records of a part that programs can see. Those of the engine's own keyspace are left out, except for
    /// clears.
    pub fn records(&self, part: &WalkPart) -> impl Iterator<Item = RecordRef<'_>> {
        let (mut at, end) = (part.from as usize, part.to as usize);
        if !matches!(part.kind, PartKind::Transaction | PartKind::Moved | PartKind::Continuation) {
            at = end;
        }
        core::iter::from_fn(move || {
            while at < end {
                let (header, key, value) = record::parts(self.current.bytes.get(at..end)?)?;
                at += header.size();
                if is_visible(header) {
                    return Some(RecordRef { header, key, value });
                }
            }
            None
        })
    }

    /// The record of its own that a transaction has, and its note.
    #[must_use]
    pub fn transaction(&self, part: &WalkPart) -> Option<(Transaction, &[u8])> {
        let at = Some(part.note as usize).filter(|&at| at > 0)?;
        let (_, _, value) = record::parts(self.current.bytes.get(at..)?)?;
        transaction_of(value)
    }

    /// Adds the parts of a frame; returns false if a record is malformed.
    fn push_frame(&mut self, header: &FrameHeader, at: usize) -> bool {
        let LogWalk { since, until, end_frame, progress, current, parts, .. } = self;
        let end = at + header.length as usize;
        let (mut record, mut records, mut is_open) = (at + frame::SIZE, 0, false);
        let begin = |progress: &mut Progress, number, from: usize, note: usize| {
            // Files from before the flag existed show only by versions what was moved.
            let is_moved = header.is_moved() || number < progress.newest;
            let is_wanted =
                number > *since && number <= *until && header.number < *end_frame || is_moved;
            progress.run = if is_wanted { Run::Shown } else { Run::Hidden };
            let kind = if is_moved { PartKind::Moved } else { PartKind::Transaction };
            let (from, note) = (from as u32, note as u32);
            WalkPart { kind, from, to: from, note, number }
        };
        while record < end {
            let Ok((found, _, value)) = record::validate(&current.bytes[record..end]) else {
                return false;
            };
            let next = record + found.size();
            records += 1;
            if found.kind == KIND_TRANSACTION {
                (progress.run, is_open) = (Run::Awaited, false);
                if let Some((it, _)) = transaction_of(value).filter(|(it, _)| it.number != 0) {
                    let part = begin(progress, it.number, next, record);
                    is_open = progress.run == Run::Shown;
                    if is_open {
                        parts.push(part);
                    }
                }
            } else if is_visible(found) {
                if !header.is_moved() {
                    progress.newest = progress.newest.max(found.version);
                }
                if progress.run == Run::Awaited {
                    let part = begin(progress, found.version, record, 0);
                    is_open = progress.run == Run::Shown;
                    if is_open {
                        parts.push(part);
                    }
                } else if progress.run == Run::Shown && !is_open {
                    let (kind, from) = (PartKind::Continuation, record as u32);
                    parts.push(WalkPart { kind, from, to: from, note: 0, number: 0 });
                    is_open = true;
                }
                if let Some(part) = parts.last_mut().filter(|_| is_open) {
                    part.to = next as u32;
                }
            }
            record = next;
        }
        records == header.records
    }

    fn push_damage(&mut self, position: u64, length: usize) {
        let (kind, to) = (PartKind::Damage, length as u32);
        self.parts.push(WalkPart { kind, from: 0, to, note: 0, number: position });
    }
}

/// Whether a program can see a record.
fn is_visible(header: &RecordHeader) -> bool {
    let is_record = (1..=KIND_CHUNKED).contains(&header.kind);
    is_record && header.keyspace() != KEYSPACE_ENGINE || header.kind == KIND_CLEAR
}

fn transaction_of(value: &[u8]) -> Option<(Transaction, &[u8])> {
    let (fixed, note) = value.split_at_checked(size_of::<Transaction>())?;
    Some((*Transaction::from_bytes(fixed).ok()?, note))
}

/// What a walk from the newest to the oldest has left.
#[derive(Debug)]
pub(super) struct Reverse {
    /// Segments below this sequence are left.
    pub(super) below: u32,
    /// The segment at which the walk ends, and what is known of where its part begins.
    pub(super) last: Option<(u32, Progress)>,
    /// The frames from this one on were written after the walk began.
    pub(super) end_frame: u64,
    /// Whether compaction took a part of the log, so that records may have been moved meanwhile.
    pub(super) has_gap: bool,
    /// Parts that were found and not shown yet, each with the sequence of its segment, the next one last.
    pub(super) found: Vec<(u32, WalkPart)>,
}

impl Log {
    /// Starts a walk over the transactions whose numbers are above `since` and at most `until`.
    pub(crate) fn begin_log_walk(&self, since: u64, until: u64) -> LogWalk {
        LogWalk {
            since,
            until,
            end_frame: self.next_frame,
            progress: Progress {
                has_begun: false,
                offset: segment::SIZE,
                sequence: 0,
                expected: 1,
                in_commit: false,
                is_lost: false,
                run: Run::Awaited,
                has_gap: false,
                newest: 0,
            },
            current: Loaded::empty(),
            ahead: Loaded::empty(),
            parts: Vec::new(),
            reverse: None,
        }
    }

    /// Goes to the next segment; returns false if there is none. The parts of the one before end.
    ///
    /// # Errors
    /// An error of the file, after which the same segment can be tried again. Damage is a part, not an error.
    pub(crate) fn walk_next(
        &self,
        file: &mut impl File,
        walk: &mut LogWalk,
    ) -> Result<bool, Error> {
        let before = walk.progress;
        walk.parts.clear();
        let walked = match walk.reverse.take() {
            None => self.walk_parts(file, walk),
            Some(mut reverse) => {
                let walked = self.walk_back(file, walk, &mut reverse);
                walk.reverse = Some(reverse);
                walked
            }
        };
        if walked.is_err() {
            walk.progress = before;
            walk.parts.clear();
        }
        walked
    }

    pub(super) fn walk_parts(
        &self,
        file: &mut impl File,
        walk: &mut LogWalk,
    ) -> Result<bool, Error> {
        if !walk.progress.has_begun {
            walk.progress.has_begun = true;
            let start = self.walk_start(file, &mut walk.ahead, walk.since)?;
            if let Some(start) = start.filter(|start| start.is_exact) {
                walk.progress.sequence = start.sequence - 1;
                (walk.progress.offset, walk.progress.expected) = (start.offset, start.frame);
            }
        }
        let Some(index) = self.segment_after(walk.progress.sequence) else { return Ok(false) };
        let slot = &self.slots[index as usize];
        if walk.progress.expected >= walk.end_frame && !walk.progress.has_gap {
            return Ok(false);
        }
        if walk.ahead.is_whole(self, index) {
            mem::swap(&mut walk.current, &mut walk.ahead);
        } else {
            self.load_walked(file, &mut walk.current, index, walk.progress.offset)?;
        }
        walk.progress.sequence = slot.sequence;
        if slot.first_frame > walk.progress.expected {
            let kind = PartKind::Gap;
            walk.parts.push(WalkPart { kind, from: 0, to: 0, note: 0, number: 0 });
            let Progress { expected, in_commit, is_lost, run, has_gap, .. } = &mut walk.progress;
            (*expected, *in_commit, *is_lost) = (slot.first_frame, false, false);
            (*run, *has_gap) = (Run::Awaited, true);
        }
        let (start, end) = (self.geometry.slot_start(index), slot.end as usize);
        let mut at = mem::replace(&mut walk.progress.offset, segment::SIZE);
        while at < end && (walk.progress.expected < walk.end_frame || walk.progress.has_gap) {
            let number = walk.progress.expected;
            let header = walk.current.frame(self, at, number);
            let Some(header) = header.filter(|header| at + header.length as usize <= end) else {
                let found = (at + 8..end).step_by(8).find_map(|next| {
                    let frame = walk.current.any_frame(self, next)?;
                    (frame.number > number).then_some((next, frame.number))
                });
                let (next, expected) = found.unwrap_or((end, slot.end_frame));
                let is_complete = walk.current.damaged_frame_commits(self, at);
                walk.push_damage(start + at as u64, next - at);
                let progress = &mut walk.progress;
                (progress.in_commit, progress.is_lost) = (!is_complete, !is_complete);
                (progress.run, progress.expected) = (Run::Awaited, expected);
                at = next;
                continue;
            };
            let length = header.length as usize;
            if !walk.progress.in_commit {
                walk.progress.run = Run::Awaited;
                walk.progress.is_lost = !header.commits()
                    && !self.commit_is_whole(file, walk, index, at + length, number + 1)?;
            }
            let parts = walk.parts.len();
            if !walk.progress.is_lost && !walk.push_frame(&header, at) {
                // Its checksum rules out an accident, so the writer was malicious.
                walk.parts.truncate(parts);
                walk.push_damage(start + at as u64, length);
            }
            walk.progress.in_commit = !header.commits();
            walk.progress.expected = number + 1;
            at += length;
        }
        Ok(true)
    }

    /// Whether all frames of a commit after the first one are intact, as far as compaction left them. The next one
    /// is expected at an offset of the current segment.
    fn commit_is_whole(
        &self,
        file: &mut impl File,
        walk: &mut LogWalk,
        mut index: u32,
        mut at: usize,
        mut number: u64,
    ) -> Result<bool, Error> {
        let mut is_ahead = false;
        loop {
            if at >= self.slots[index as usize].end as usize {
                let next = self.segment_after(self.slots[index as usize].sequence);
                let goes_on = |&next: &u32| self.slots[next as usize].first_frame == number;
                let Some(next) = next.filter(goes_on) else { return Ok(true) };
                self.load_walked(file, &mut walk.ahead, next, segment::SIZE)?;
                (index, at, is_ahead) = (next, segment::SIZE, true);
            }
            let loaded = if is_ahead { &mut walk.ahead } else { &mut walk.current };
            let Some(header) = loaded.frame(self, at, number) else { return Ok(false) };
            if header.commits() {
                return Ok(true);
            }
            (at, number) = (at + header.length as usize, number + 1);
        }
    }

    /// The slot of the oldest segment of the log that is younger than a sequence.
    fn segment_after(&self, sequence: u32) -> Option<u32> {
        let is_later =
            |it: &super::Slot| it.state == SlotState::Log && it.written && it.sequence > sequence;
        let later = self.slots.iter().zip(0..).filter(|&(slot, _)| is_later(slot));
        later.min_by_key(|(slot, _)| slot.sequence).map(|(_, index)| index)
    }

    /// Reads the frames of a segment from an offset on.
    pub(super) fn load_walked(
        &self,
        file: &mut impl File,
        loaded: &mut Loaded,
        index: u32,
        from: usize,
    ) -> Result<(), Error> {
        let segment = self.geometry.segment();
        if loaded.bytes.is_empty() {
            if !self.can_allocate(segment) {
                return Err(Error::ViewsHeld);
            }
            loaded.bytes = AlignedBytes::uninitialized(segment);
        }
        (loaded.sequence, loaded.verified) = (0, 0);
        // What follows the frames is not looked at.
        let end = (self.slots[index as usize].end as usize).min(segment);
        let from = from.min(end);
        let start = self.geometry.slot_start(index) + from as u64;
        let read_len = read_full(file, &mut loaded.bytes[from..end], start)?;
        loaded.bytes[from + read_len..].fill(0);
        let slot = &self.slots[index as usize];
        (loaded.slot, loaded.sequence) = (index, slot.sequence);
        (loaded.from, loaded.end) = (from, slot.end);
        Ok(())
    }
}
