//! Segment-sized buffers under a budget: which are in use for what, and which may be taken again.
//!
//! A buffer that a view may show must not be used again before all views are detached, and those that a
//! turn was given are promised to live until it ends. So when views may show every buffer of the budget,
//! and the program has some that must live, a few more buffers are taken, and from then on, until the turn
//! ends, the pool is crowded: whoever reads is given a copy, and no further buffer counts as shown. Those
//! few are then used again and again, however much the turn reads. What was taken above the budget is
//! given back when the turn ends. Where not even that is enough, the call fails, and no view ends. If no
//! view has to live, as between the steps of an iteration, all are detached instead.
//! Buffers that no view shows, such as segments that were only written, are taken again at any time:
//! detaching is not free, V8 collects garbage after each of a memory of 64 MiB and more.

use alloc::vec::Vec;

use crate::aligned_buf::AlignedBytes;
use crate::error::Error;

/// Which buffer of the pool.
pub type BufferId = u32;

/// What a buffer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BufferContent {
    /// Nothing.
    Nothing,
    /// Nothing that counts, but views may show it until the turn ends.
    Zombie,
    /// A segment of the log.
    Segment(u32),
    /// Copies of cold records.
    RecordCache,
}

/// What a record is looked up for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessKind {
    /// The engine's own.
    Own,
    /// A view may be given out.
    View,
}

/// What a store asks of whoever hands out views of its memory.
#[derive(Clone, Copy, Debug)]
pub struct Views {
    /// Called before memory is used again within a turn that views may show: detaches all of them.
    pub detach: fn(),
    /// Whether views were given in this turn that are promised to live until it ends.
    pub are_held: fn() -> bool,
    /// Called when, from the call that runs on until the turn ends, values are to be given as copies.
    pub crowded: fn(),
    /// Whether so many bytes can be had in one piece without growing the memory, which detaches all views.
    pub has_room: fn(usize) -> bool,
}

impl Default for Views {
    fn default() -> Self {
        Views { detach: || (), are_held: || false, crowded: || (), has_room: |_| true }
    }
}

/// Buffers that may be taken above the budget at least.
const LEAST_ABOVE: usize = 16;

/// Bytes that a segment full of small records may take of memory elsewhere: in the order of keys, and
/// what is noted to take it all back.
pub(super) const BESIDE_SEGMENT: usize = 2 << 20;

/// Aligned to its size in wasm: a lookup then shifts, and does not multiply.
#[derive(Debug)]
#[repr(align(32))]
struct Buffer {
    bytes: AlignedBytes,
    holds: BufferContent,
    /// When it was looked at last.
    touched: u32,
    /// Whether a view may show it.
    shown: bool,
    /// How many pins hold it.
    pins: u32,
}

/// The segment that is read, and the one before it, whose last commit may end in it. Copies of cold
/// records may take one more.
const WHILE_OPENING: usize = 2;

/// Takes the content of a buffer, and says whether it may go.
pub type Evict<'a> = &'a mut dyn FnMut(BufferId, BufferContent, &[u8]) -> bool;

/// The buffers.
#[derive(Debug)]
pub struct Pool {
    buffers: Vec<Buffer>,
    budget: usize,
    size: usize,
    /// Counts up with each buffer that is taken or turned to, and each turn.
    clock: u32,
    /// Whether values are given as copies until the turn ends.
    crowded: bool,
    /// How many buffers were given up for something else since the database is open.
    evictions: u64,
    /// Whether a callback runs on a view, which must not die.
    pub callback_open: bool,
    /// Whether there may be views at all: not while the database is being opened.
    pub lends_views: bool,
    /// Who hands out views.
    views: Views,
}

impl Pool {
    /// A pool of buffers of `size` bytes that holds `memory` bytes between turns.
    #[must_use]
    pub fn new(size: usize, memory: usize, views: Views) -> Self {
        // The tail, a segment that is read, copies of cold records, and one to spare.
        let budget = (memory / size).max(4);
        Pool {
            buffers: Vec::new(),
            budget,
            size,
            clock: 1,
            crowded: false,
            evictions: 0,
            callback_open: false,
            lends_views: false,
            views,
        }
    }

    /// The bytes of a buffer.
    #[inline]
    #[must_use]
    pub fn bytes(&self, id: BufferId) -> &[u8] {
        &self.buffers[id as usize].bytes
    }

    /// The bytes of a buffer, to be written.
    pub fn bytes_mut(&mut self, id: BufferId) -> &mut [u8] {
        &mut self.buffers[id as usize].bytes
    }

    /// Notes that a buffer was looked at.
    #[inline]
    pub fn touch(&mut self, id: BufferId) {
        self.buffers[id as usize].touched = self.clock;
    }

    /// Notes that a buffer is looked at from now on, later than all others.
    pub fn turn_to(&mut self, id: BufferId) {
        self.clock += 1;
        self.touch(id);
    }

    /// The bytes of a buffer, of which a view may be given out, and whether that counts as looked at.
    #[inline]
    pub fn borrow(&mut self, id: BufferId, counts: bool) -> &[u8] {
        let buffer = &mut self.buffers[id as usize];
        buffer.shown |= !self.crowded;
        if counts {
            buffer.touched = self.clock;
        }
        &buffer.bytes
    }

    /// Whether a view may show a buffer.
    #[must_use]
    pub fn is_shown(&self, id: BufferId) -> bool {
        self.buffers[id as usize].shown
    }

    /// Notes that a buffer was looked at, and for what.
    #[inline(always)]
    pub fn touch_for(&mut self, id: BufferId, purpose: AccessKind) {
        let buffer = &mut self.buffers[id as usize];
        buffer.touched = self.clock;
        if purpose == AccessKind::View && !self.crowded {
            buffer.shown = true;
        }
    }

    /// Notes that a view shows a buffer, also where values are given as copies.
    pub fn show(&mut self, id: BufferId) {
        self.touch(id);
        self.buffers[id as usize].shown = true;
    }

    /// Whether values are given as copies, so that no view comes to show a buffer.
    #[inline(always)]
    #[must_use]
    pub fn is_crowded(&self) -> bool {
        self.crowded
    }

    /// Has values be given as copies until the turn ends.
    #[cold]
    pub fn crowd(&mut self) {
        if !self.crowded {
            self.crowded = true;
            (self.views.crowded)();
        }
    }

    /// Whether so many bytes can be taken in one piece without ending a view that has to live.
    #[inline(never)]
    pub fn may_take(&self, bytes: usize) -> bool {
        !self.lends_views || (self.views.has_room)(bytes) || !self.views_must_live()
    }

    /// Whether a view has to live: one that the program was promised, or that of a running callback.
    pub fn views_must_live(&self) -> bool {
        self.callback_open || (self.views.are_held)()
    }

    /// Opening is over: from here on there may be views, and what is given up is counted.
    pub fn expose_views(&mut self) {
        (self.lends_views, self.evictions) = (true, 0);
    }

    /// Notes that all views have died.
    pub fn views_died(&mut self) {
        self.buffers.iter_mut().for_each(|buffer| buffer.shown = false);
    }

    /// Keeps a buffer's content until [`unpin`](Pool::unpin).
    pub fn pin(&mut self, id: BufferId) {
        self.buffers[id as usize].pins += 1;
    }

    /// Ends one pin.
    pub fn unpin(&mut self, id: BufferId) {
        self.buffers[id as usize].pins -= 1;
    }

    /// The time, for telling what was looked at least recently.
    #[must_use]
    pub fn now(&self) -> u32 {
        self.clock
    }

    /// Bytes that buffers may hold between turns.
    #[must_use]
    pub fn budget(&self) -> usize {
        self.budget * self.size
    }

    /// How many buffers with something that counts were given up for something else since opening.
    #[must_use]
    pub fn evictions(&self) -> u64 {
        self.evictions
    }

    /// Bytes of all buffers.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.buffers.len() * self.size
    }

    /// A buffer for something new, its bytes undefined.
    ///
    /// What may go and was touched least recently goes first.
    ///
    /// # Errors
    /// [`Error::ViewsHeld`] when views would have to die and one of them has to live.
    pub fn take(&mut self, holds: BufferContent, evict: Evict<'_>) -> Result<BufferId, Error> {
        self.clock += 1;
        let id = match self.free() {
            Some(id) => id,
            None if self.buffers.len() < self.allowed(holds) => self.grow(),
            None => self.take_back(evict)?,
        };
        let touched = self.clock;
        let buffer = &mut self.buffers[id as usize];
        (buffer.holds, buffer.touched, buffer.shown) = (holds, touched, false);
        Ok(id)
    }

    /// How many buffers there may be before one is taken back. While the database is being opened what
    /// is read is looked at once, and memory that is new to the process costs more than the reading.
    fn allowed(&self, holds: BufferContent) -> usize {
        let while_opening = WHILE_OPENING + usize::from(holds == BufferContent::RecordCache);
        if self.lends_views { self.budget } else { while_opening }
    }

    fn free(&self) -> Option<BufferId> {
        let free = self.buffers.iter().position(|buffer| buffer.holds == BufferContent::Nothing);
        free.map(|id| id as BufferId)
    }

    /// A buffer that held something, or one above the budget.
    fn take_back(&mut self, evict: Evict<'_>) -> Result<BufferId, Error> {
        if let (Some(id), _) = self.evict(1, false, evict) {
            return Ok(id);
        }
        // Views may show all that could go.
        if self.lends_views && self.views_must_live() {
            let has_room = self.buffers.len() < self.budget + self.above();
            if !(has_room && self.may_take(self.size)) {
                return Err(Error::ViewsHeld);
            }
            self.crowd();
            return Ok(self.grow());
        }
        self.kill_views()?;
        let free = self.evict(self.spare(), true, evict).0.or_else(|| self.free());
        Ok(free.unwrap_or_else(|| self.grow()))
    }

    /// So many buffers may be taken above the budget until the turn ends, if there is memory for them. A few
    /// are enough to read with; a transaction needs all that it writes.
    fn above(&self) -> usize {
        self.budget.max(LEAST_ABOVE)
    }

    /// A quarter is freed at once, so that views are detached once in many buffers.
    fn spare(&self) -> usize {
        (self.budget / 4).max(1)
    }

    /// Has all views die within a turn, so that what they show may be let go.
    ///
    /// # Errors
    /// [`Error::ViewsHeld`] when one of them has to live.
    pub fn kill_views(&mut self) -> Result<(), Error> {
        if self.lends_views {
            if self.views_must_live() {
                return Err(Error::ViewsHeld);
            }
            (self.views.detach)();
        }
        self.views_died();
        self.free_zombies();
        Ok(())
    }

    /// Says that nothing counts any more of what a buffer holds. Views may show it until the turn
    /// ends, and pins until they do.
    pub fn leave(&mut self, id: BufferId) {
        let buffer = &mut self.buffers[id as usize];
        let is_seen = buffer.shown || buffer.pins > 0;
        buffer.holds = if is_seen { BufferContent::Zombie } else { BufferContent::Nothing };
    }

    /// Ends a turn: gives back what it took above the budget, and frees some buffers for the next
    /// one. Returns whether views must be detached before the next call.
    pub fn end_turn(&mut self, evict: Evict<'_>) -> bool {
        self.clock += 1;
        self.crowded = false;
        let mut all = self.buffers.iter();
        let zombies = all.any(|buffer| buffer.holds == BufferContent::Zombie && buffer.pins == 0);
        self.free_zombies();
        let in_use =
            self.buffers.iter().filter(|buffer| buffer.holds != BufferContent::Nothing).count();
        let mut shown = false;
        if in_use > self.budget - 1 {
            shown = self.evict(in_use - (self.budget - self.spare()), true, evict).1;
        }
        while self.buffers.len() > self.budget
            && self.buffers.last().is_some_and(|buffer| buffer.holds == BufferContent::Nothing)
        {
            self.buffers.pop();
        }
        zombies || shown
    }

    fn grow(&mut self) -> BufferId {
        let bytes = AlignedBytes::zeroed(self.size);
        self.buffers.push(Buffer {
            bytes,
            holds: BufferContent::Nothing,
            touched: 0,
            shown: false,
            pins: 0,
        });
        (self.buffers.len() - 1) as BufferId
    }

    fn free_zombies(&mut self) {
        let remains =
            |buffer: &&mut Buffer| buffer.holds == BufferContent::Zombie && buffer.pins == 0;
        for buffer in self.buffers.iter_mut().filter(remains) {
            buffer.holds = BufferContent::Nothing;
        }
    }

    /// Frees up to `count` buffers, the least recently touched first, those that views may show
    /// only if they `may_be_shown`. Gives one of them, and whether a view may show any.
    fn evict(
        &mut self,
        count: usize,
        may_be_shown: bool,
        evict: Evict<'_>,
    ) -> (Option<BufferId>, bool) {
        let budget = self.budget;
        // What is above the budget goes first, so that its memory can be given back.
        let age = |touched, id| if id as usize >= budget { 0 } else { touched };
        let may_go = |buffer: &Buffer| {
            buffer.holds != BufferContent::Nothing
                && buffer.pins == 0
                && (may_be_shown || !buffer.shown)
        };
        let (mut last, mut shown, mut left) = (None, false, count);
        let mut tried = None;
        while left > 0 {
            let candidates = self.buffers.iter().zip(0..).filter(|(buffer, _)| may_go(buffer));
            let ages = candidates.map(|(buffer, id)| Some((age(buffer.touched, id), id)));
            let Some((touched, id)) = ages.filter(|&next| next > tried).min().flatten() else {
                break;
            };
            tried = Some((touched, id));
            let buffer = &mut self.buffers[id as usize];
            if evict(id, buffer.holds, &buffer.bytes) {
                shown |= buffer.shown;
                buffer.holds = BufferContent::Nothing;
                self.evictions += u64::from(self.lends_views);
                last = Some(id);
                left -= 1;
            }
        }
        (last, shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    thread_local! {
        static DETACHED: Cell<u32> = const { Cell::new(0) };
        static HELD: Cell<bool> = const { Cell::new(false) };
    }

    const VIEWS: Views = Views {
        detach: || DETACHED.set(DETACHED.get() + 1),
        are_held: || HELD.get(),
        crowded: || (),
        has_room: |_| true,
    };

    /// A pool of four buffers that has been filled.
    fn full() -> Pool {
        DETACHED.set(0);
        HELD.set(false);
        let mut pool = Pool::new(64, 0, VIEWS);
        pool.lends_views = true;
        (0..4).for_each(|slot| assert_eq!(take(&mut pool, slot), Ok(slot)));
        pool
    }

    fn take(pool: &mut Pool, slot: u32) -> Result<BufferId, Error> {
        pool.take(BufferContent::Segment(slot), &mut |_, _, _| true)
    }

    #[test]
    fn unviewed_buffer_is_reused_at_any_time() {
        let mut pool = full();
        pool.callback_open = true;
        for slot in 4..40 {
            assert_eq!(take(&mut pool, slot), Ok(slot % 4), "the oldest goes first");
        }
        assert!(!pool.end_turn(&mut |_, _, _| true));
        assert_eq!((pool.memory(), DETACHED.get()), (4 * 64, 0));
    }

    #[test]
    fn viewed_buffer_is_not_reused_while_views_are_held() {
        for is_callback in [false, true] {
            let mut pool = full();
            (0..4).for_each(|id| pool.touch_for(id, AccessKind::View));
            HELD.set(!is_callback);
            pool.callback_open = is_callback;
            // Four more, of which none comes to be shown, are used for whatever else is read.
            for slot in 4..40 {
                let id = take(&mut pool, slot).expect("there is one");
                assert!(id >= 4, "{id} is shown");
                pool.touch_for(id, AccessKind::View);
                assert!(pool.is_crowded() && !pool.is_shown(id));
            }
            assert_eq!((pool.memory(), DETACHED.get()), (5 * 64, 0));
            for slot in 40..40 + LEAST_ABOVE as u32 - 1 {
                let all = pool.take(BufferContent::Segment(slot), &mut |_, _, _| false);
                assert!(all.is_ok(), "what cannot go takes the rest");
            }
            let beyond = pool.take(BufferContent::Segment(99), &mut |_, _, _| false);
            assert_eq!(beyond, Err(Error::ViewsHeld));
            HELD.set(false);
            pool.callback_open = false;
            assert!(pool.end_turn(&mut |_, _, _| true), "some were freed that a view shows");
            assert_eq!((pool.memory(), pool.is_crowded()), (4 * 64, false));
        }
    }

    #[test]
    fn viewed_buffer_is_reused_after_views_are_detached() {
        let mut pool = full();
        (0..4).for_each(|id| pool.touch_for(id, AccessKind::View));
        assert_eq!((take(&mut pool, 5), DETACHED.get()), (Ok(0), 1));
        assert_eq!((pool.memory(), pool.is_crowded()), (4 * 64, false));
    }

    #[test]
    fn rescanning_turn_detaches_views_once_per_quarter() {
        DETACHED.set(0);
        let mut pool = Pool::new(64, 16 * 64, VIEWS);
        pool.lends_views = true;
        for slot in 0..16 + 12 {
            assert!(take(&mut pool, slot).is_ok());
            // What it still has it looks at again before it takes the next.
            let held =
                pool.buffers.iter().zip(0..).filter(|(one, _)| one.holds != BufferContent::Nothing);
            let held: Vec<BufferId> = held.map(|(_, id)| id).collect();
            held.into_iter().for_each(|id| pool.touch_for(id, AccessKind::View));
        }
        assert_eq!((pool.memory(), DETACHED.get()), (16 * 64, 3));
    }

    #[test]
    fn eviction_skips_pinned_and_required_buffers() {
        let mut pool = full();
        pool.pin(0);
        let taken = pool.take(BufferContent::Segment(4), &mut |id, _, _| id != 1);
        assert_eq!(taken, Ok(2));
    }

    #[test]
    fn viewed_remains_are_freed_at_end_of_turn() {
        let mut pool = full();
        pool.touch_for(3, AccessKind::View);
        pool.leave(2);
        pool.leave(3);
        assert_eq!(take(&mut pool, 4), Ok(2));
        assert!(pool.end_turn(&mut |_, _, _| true));
        assert_eq!(take(&mut pool, 5), Ok(3));
    }
}
