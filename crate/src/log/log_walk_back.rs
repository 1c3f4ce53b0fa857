//! Walking the log from the newest transaction to the oldest.
//!
//! Segments are taken from the newest on. Those that a commit connects are taken together: they are walked forwards once, to
//! learn where their transactions begin, and what was found is then shown from its end.

use alloc::vec::Vec;
use core::mem;

use crate::error::Error;
use crate::file::File;
use crate::format::segment;

use super::log_walk::{Loaded, LogWalk, PartKind, Progress, Reverse, Run, WalkPart};
use super::{Log, SlotState};

impl Log {
    /// As [`begin_log_walk`](Log::begin_log_walk), from the newest to the oldest.
    pub(crate) fn begin_log_walk_back(&self, since: u64, until: u64) -> LogWalk {
        let mut walk = self.begin_log_walk(since, until);
        walk.reverse = Some(Reverse {
            below: u32::MAX,
            last: None,
            end_frame: self.next_frame,
            has_gap: false,
            found: Vec::new(),
        });
        walk
    }

    /// Goes on to the next parts; returns false at the end.
    pub(super) fn walk_back(
        &self,
        file: &mut impl File,
        walk: &mut LogWalk,
        reverse: &mut Reverse,
    ) -> Result<bool, Error> {
        loop {
            if self.show_found(file, walk, reverse)? {
                return Ok(true);
            }
            if !self.find_before(file, walk, reverse)? {
                return Ok(false);
            }
        }
    }

    /// Shows the next parts that were found, as far as they are in one segment; returns false if there are none.
    fn show_found(
        &self,
        file: &mut impl File,
        walk: &mut LogWalk,
        reverse: &mut Reverse,
    ) -> Result<bool, Error> {
        while let Some(&(sequence, _)) = reverse.found.last() {
            let index = self.segment_of(sequence);
            let fits = |loaded: &Loaded| {
                loaded.sequence == sequence
                    && index.is_none_or(|index| loaded.is_whole(self, index))
            };
            if !fits(&walk.current) && fits(&walk.ahead) {
                mem::swap(&mut walk.current, &mut walk.ahead);
            }
            let mut is_there = fits(&walk.current);
            if !is_there && let Some(index) = index {
                self.load_walked(file, &mut walk.current, index, segment::SIZE)?;
                is_there = true;
            }
            reverse.has_gap |= !is_there;
            while let Some((_, part)) = reverse.found.pop_if(|(other, _)| *other == sequence) {
                reverse.has_gap |= part.kind == PartKind::Gap;
                walk.parts.push(part);
            }
            if is_there {
                return Ok(true);
            }
            walk.parts.clear();
        }
        Ok(false)
    }

    /// Finds the parts of the next segment, together with those that a commit connects with it. Returns false if there
    /// are no more.
    fn find_before(
        &self,
        file: &mut impl File,
        walk: &mut LogWalk,
        reverse: &mut Reverse,
    ) -> Result<bool, Error> {
        let (last, begin) = match reverse.last {
            Some(last) => last,
            None => {
                let Some(start) = self.walk_start(file, &mut walk.ahead, walk.since)? else {
                    return Ok(false);
                };
                let mut begin = walk.progress;
                begin.has_begun = true;
                if start.is_exact {
                    (begin.offset, begin.expected) = (start.offset, start.frame);
                }
                *reverse.last.insert((start.sequence, begin))
            }
        };
        let Some(end) = self.segment_before(reverse.below).filter(|&(it, _)| it >= last) else {
            // What was moved since the walk began.
            let from = reverse.end_frame;
            if !reverse.has_gap || from >= self.next_frame {
                return Ok(false);
            }
            self.find_moved(file, walk, reverse, from)?;
            reverse.end_frame = u64::MAX;
            return Ok(true);
        };
        let (mut first, mut before) = (end, self.segment_before(end.0));
        while let Some((sequence, index)) = before {
            let connects =
                self.slots[index as usize].end_frame == self.slots[first.1 as usize].first_frame;
            if first.0 <= last || !connects || !self.ends_in_commit(file, &mut walk.ahead, index)? {
                break;
            }
            first = (sequence, index);
            before = self.segment_before(sequence);
        }
        walk.progress = Progress { sequence: first.0 - 1, offset: segment::SIZE, ..begin };
        if first.0 == last {
            walk.progress.offset = begin.offset;
        } else {
            // A gap begins where the segment before ends.
            let before = before.map_or(1, |(_, index)| self.slots[index as usize].end_frame);
            walk.progress.expected = before;
        }
        let mut found = Vec::new();
        self.find_parts(file, walk, end.0, 0, &mut found)?;
        reverse.found = found;
        reverse.below = first.0;
        Ok(true)
    }

    /// Finds the records that were moved to frames from this one on.
    fn find_moved(
        &self,
        file: &mut impl File,
        walk: &mut LogWalk,
        reverse: &mut Reverse,
        from: u64,
    ) -> Result<(), Error> {
        let later = self.by_sequence().into_iter();
        let mut later = later.filter(|&(_, index)| self.slots[index as usize].end_frame > from);
        let Some((sequence, index)) = later.next() else { return Ok(()) };
        let expected = self.slots[index as usize].first_frame;
        walk.progress = Progress {
            sequence: sequence - 1,
            offset: segment::SIZE,
            expected,
            in_commit: false,
            is_lost: false,
            run: Run::Awaited,
            has_gap: true,
            ..walk.progress
        };
        let mut found = Vec::new();
        self.find_parts(file, walk, u32::MAX, from, &mut found)?;
        reverse.found = found;
        Ok(())
    }

    /// Walks forwards up to a segment, and collects the parts so that the last transaction comes last, and each in its
    /// order when they are taken from the end. With `moved_from` only those moved to frames from that one on.
    fn find_parts(
        &self,
        file: &mut impl File,
        walk: &mut LogWalk,
        end: u32,
        moved_from: u64,
        found: &mut Vec<(u32, WalkPart)>,
    ) -> Result<(), Error> {
        let mut begins = 0;
        let mut is_wanted = false;
        while walk.progress.sequence < end
            && self
                .segment_before(end.saturating_add(1))
                .is_some_and(|(it, _)| it > walk.progress.sequence)
        {
            walk.parts.clear();
            if !self.walk_parts(file, walk)? {
                break;
            }
            let sequence = walk.progress.sequence;
            for part in mem::take(&mut walk.parts) {
                if part.kind != PartKind::Continuation {
                    found[begins..].reverse();
                    begins = found.len();
                    is_wanted = moved_from == 0
                        || part.kind == PartKind::Moved && self.frame_of(walk, &part) >= moved_from;
                }
                if is_wanted {
                    found.push((sequence, part));
                }
            }
        }
        found[begins..].reverse();
        walk.parts.clear();
        Ok(())
    }

    /// The number of the frame in which a part of the current segment begins.
    fn frame_of(&self, walk: &LogWalk, part: &WalkPart) -> u64 {
        let (mut at, mut number) = (segment::SIZE, 0);
        while at <= part.from as usize
            && let Some(header) = walk.current.any_frame(self, at)
        {
            (number, at) = (header.number, at + header.length as usize);
        }
        number
    }

    /// Whether the last commit of a segment goes on in the next one.
    fn ends_in_commit(
        &self,
        file: &mut impl File,
        loaded: &mut Loaded,
        index: u32,
    ) -> Result<bool, Error> {
        let slot = &self.slots[index as usize];
        if !loaded.is_whole(self, index) {
            self.load_walked(file, loaded, index, segment::SIZE)?;
        }
        let (mut at, mut goes_on) = (segment::SIZE, false);
        while at < slot.end as usize {
            match loaded.any_frame(self, at) {
                Some(header) => {
                    goes_on = !header.commits();
                    at += header.length as usize;
                }
                // Behind damage, the next frame that is intact.
                None => at += 8,
            }
        }
        Ok(goes_on)
    }

    /// The segment with the largest sequence below this one, and its slot.
    fn segment_before(&self, sequence: u32) -> Option<(u32, u32)> {
        let order = self.by_sequence();
        let below = order.partition_point(|&(other, _)| other < sequence);
        order[..below].last().copied()
    }

    fn segment_of(&self, sequence: u32) -> Option<u32> {
        let is_it =
            |it: &super::Slot| it.state == SlotState::Log && it.written && it.sequence == sequence;
        self.slots.iter().position(is_it).map(|index| index as u32)
    }
}
