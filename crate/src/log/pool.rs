//! Segment-sized buffers under a budget: which are in use for what, and which may be taken again.
//!
//! A buffer that a view may show must not be used again before all views are detached. Detaching
//! kills the views of the running turn too, and those are promised to live as long as they hold no
//! more than the budget. So within a turn such a buffer is taken again only when the turn has used
//! up the budget by itself; else more memory is taken, and given back when the turn ends. Buffers
//! that no view shows, such as segments that were only written, are taken again at any time:
//! detaching is not free, V8 collects garbage after each of a memory of 64 MiB and more.

use alloc::vec::Vec;

use crate::error::Error;
use crate::memory::AlignedBytes;

/// Which buffer of the pool.
pub type BufferId = u32;

/// What a buffer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// Nothing.
    Nothing,
    /// Nothing that counts, but views may show it until the turn ends.
    Remains,
    /// A segment of the log.
    Segment(u32),
    /// Copies of cold records.
    Copies,
}

/// What a record is looked up for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The engine's own.
    Own,
    /// A view may be given out.
    View,
}

/// Aligned to its size in wasm: a lookup then shifts, and does not multiply.
#[derive(Debug)]
#[repr(align(32))]
struct Buffer {
    bytes: AlignedBytes,
    holds: Holds,
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
pub type Evict<'a> = &'a mut dyn FnMut(BufferId, Holds, &[u8]) -> bool;

/// The buffers.
#[derive(Debug)]
pub struct Pool {
    buffers: Vec<Buffer>,
    budget: usize,
    size: usize,
    /// Counts up with each buffer that is taken or turned to, and each turn.
    clock: u32,
    /// When the running turn began.
    turn: u32,
    /// How many buffers were given up for something else since the database is open.
    evictions: u64,
    /// Whether a callback runs on a view, which must not die.
    pub callback_open: bool,
    /// Whether there may be views at all: not while the database is being opened.
    pub lends_views: bool,
    /// Called before memory is used again that views may show.
    detach: fn(),
}

impl Pool {
    /// A pool of buffers of `size` bytes that holds `memory` bytes between turns.
    #[must_use]
    pub fn new(size: usize, memory: usize, detach: fn()) -> Self {
        // The tail, a segment that is read, copies of cold records, and one to spare.
        let budget = (memory / size).max(4);
        Pool {
            buffers: Vec::new(),
            budget,
            size,
            clock: 1,
            turn: 1,
            evictions: 0,
            callback_open: false,
            lends_views: false,
            detach,
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
    pub fn lend(&mut self, id: BufferId, counts: bool) -> &[u8] {
        let buffer = &mut self.buffers[id as usize];
        buffer.shown = true;
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
    pub fn touch_for(&mut self, id: BufferId, purpose: Purpose) {
        let buffer = &mut self.buffers[id as usize];
        buffer.touched = self.clock;
        if purpose == Purpose::View {
            buffer.shown = true;
        }
    }

    /// Opening is over: from here on there may be views, and what is given up is counted.
    pub fn lend_views(&mut self) {
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
    /// [`Error::ViewsHeld`] when views would have to die and one of them is a running callback's.
    pub fn take(&mut self, holds: Holds, evict: Evict<'_>) -> Result<BufferId, Error> {
        self.clock += 1;
        let id = match self.free() {
            Some(id) => id,
            // Up to the budget memory is reserved, so a callback's view outlives this.
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
    fn allowed(&self, holds: Holds) -> usize {
        let while_opening = WHILE_OPENING + usize::from(holds == Holds::Copies);
        if self.lends_views { self.budget } else { while_opening }
    }

    fn free(&self) -> Option<BufferId> {
        let free = self.buffers.iter().position(|buffer| buffer.holds == Holds::Nothing);
        free.map(|id| id as BufferId)
    }

    /// A buffer that held something, or one above the budget.
    fn take_back(&mut self, evict: Evict<'_>) -> Result<BufferId, Error> {
        if let (Some(id), _) = self.evict(1, false, evict) {
            return Ok(id);
        }
        if !self.callback_open && self.turn_has_room() {
            return Ok(self.grow());
        }
        self.kill_views()?;
        let free = self.evict(self.spare(), true, evict).0.or_else(|| self.free());
        Ok(free.unwrap_or_else(|| self.grow()))
    }

    /// A quarter is freed at once, so that views are detached once in many buffers.
    fn spare(&self) -> usize {
        (self.budget / 4).max(1)
    }

    /// Has all views die within a turn, so that what they show may be let go.
    ///
    /// # Errors
    /// [`Error::ViewsHeld`] when one of them is a running callback's.
    pub fn kill_views(&mut self) -> Result<(), Error> {
        if self.callback_open {
            return Err(Error::ViewsHeld);
        }
        if self.lends_views {
            (self.detach)();
        }
        self.views_died();
        self.turn = self.clock;
        self.release_remains();
        Ok(())
    }

    /// Says that nothing counts any more of what a buffer holds. Views may show it until the turn
    /// ends, and pins until they do.
    pub fn leave(&mut self, id: BufferId) {
        let buffer = &mut self.buffers[id as usize];
        let is_seen = buffer.shown || buffer.pins > 0;
        buffer.holds = if is_seen { Holds::Remains } else { Holds::Nothing };
    }

    /// Ends a turn: gives back what it took above the budget, and frees some buffers for the next
    /// one. Returns whether views must be detached before the next call.
    pub fn end_turn(&mut self, evict: Evict<'_>) -> bool {
        self.clock += 1;
        self.turn = self.clock;
        let mut all = self.buffers.iter();
        let remains = all.any(|buffer| buffer.holds == Holds::Remains && buffer.pins == 0);
        self.release_remains();
        let in_use = self.buffers.iter().filter(|buffer| buffer.holds != Holds::Nothing).count();
        let mut shown = false;
        if in_use > self.budget - 1 {
            shown = self.evict(in_use - (self.budget - self.spare()), true, evict).1;
        }
        while self.buffers.len() > self.budget
            && self.buffers.last().is_some_and(|buffer| buffer.holds == Holds::Nothing)
        {
            self.buffers.pop();
        }
        remains || shown
    }

    /// Whether this turn itself has not used the budget up. What is above the budget is bounded by
    /// as much again, however many times views die within a turn.
    fn turn_has_room(&self) -> bool {
        let touched = self.buffers.iter().filter(|buffer| buffer.touched >= self.turn).count();
        self.lends_views && touched < self.budget && self.buffers.len() < 2 * self.budget
    }

    fn grow(&mut self) -> BufferId {
        let bytes = AlignedBytes::zeroed(self.size);
        self.buffers.push(Buffer {
            bytes,
            holds: Holds::Nothing,
            touched: 0,
            shown: false,
            pins: 0,
        });
        (self.buffers.len() - 1) as BufferId
    }

    fn release_remains(&mut self) {
        let remains = |buffer: &&mut Buffer| buffer.holds == Holds::Remains && buffer.pins == 0;
        for buffer in self.buffers.iter_mut().filter(remains) {
            buffer.holds = Holds::Nothing;
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
            buffer.holds != Holds::Nothing && buffer.pins == 0 && (may_be_shown || !buffer.shown)
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
                buffer.holds = Holds::Nothing;
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
    }

    /// A pool of four buffers that has been filled.
    fn full() -> Pool {
        DETACHED.set(0);
        let mut pool = Pool::new(64, 0, || DETACHED.set(DETACHED.get() + 1));
        pool.lends_views = true;
        (0..4).for_each(|slot| assert_eq!(take(&mut pool, slot), Ok(slot)));
        pool
    }

    fn take(pool: &mut Pool, slot: u32) -> Result<BufferId, Error> {
        pool.take(Holds::Segment(slot), &mut |_, _, _| true)
    }

    #[test]
    fn what_no_view_shows_is_used_again_at_any_time() {
        let mut pool = full();
        pool.callback_open = true;
        for slot in 4..40 {
            assert_eq!(take(&mut pool, slot), Ok(slot % 4), "the oldest goes first");
        }
        assert!(!pool.end_turn(&mut |_, _, _| true));
        assert_eq!((pool.memory(), DETACHED.get()), (4 * 64, 0));
    }

    #[test]
    fn what_a_view_shows_is_used_again_only_after_its_turn_or_beyond_the_budget() {
        let mut pool = full();
        (0..4).for_each(|id| pool.touch_for(id, Purpose::View));
        pool.callback_open = true;
        assert_eq!(take(&mut pool, 4), Err(Error::ViewsHeld));
        pool.callback_open = false;
        assert!(pool.end_turn(&mut |_, _, _| true), "one was freed that a view shows");
        pool.views_died();
        assert_eq!((take(&mut pool, 4), DETACHED.get()), (Ok(0), 0));
        // A turn that shows four buffers by itself has used up the budget.
        (0..4).for_each(|id| pool.touch_for(id, Purpose::View));
        assert_eq!((take(&mut pool, 5), DETACHED.get()), (Ok(0), 1));
    }

    #[test]
    fn a_turn_that_looks_at_everything_again_and_again_detaches_once_in_a_quarter() {
        DETACHED.set(0);
        let mut pool = Pool::new(64, 16 * 64, || DETACHED.set(DETACHED.get() + 1));
        pool.lends_views = true;
        for slot in 0..16 + 12 {
            assert!(take(&mut pool, slot).is_ok());
            // What it still has it looks at again before it takes the next.
            let held = pool.buffers.iter().zip(0..).filter(|(one, _)| one.holds != Holds::Nothing);
            let held: Vec<BufferId> = held.map(|(_, id)| id).collect();
            held.into_iter().for_each(|id| pool.touch_for(id, Purpose::View));
        }
        assert_eq!((pool.memory(), DETACHED.get()), (16 * 64, 3));
    }

    #[test]
    fn what_is_pinned_or_must_stay_is_passed_over() {
        let mut pool = full();
        pool.pin(0);
        let taken = pool.take(Holds::Segment(4), &mut |id, _, _| id != 1);
        assert_eq!(taken, Ok(2));
    }

    #[test]
    fn remains_that_a_view_shows_wait_for_the_end_of_the_turn() {
        let mut pool = full();
        pool.touch_for(3, Purpose::View);
        pool.leave(2);
        pool.leave(3);
        assert_eq!(take(&mut pool, 4), Ok(2));
        assert!(pool.end_turn(&mut |_, _, _| true));
        assert_eq!(take(&mut pool, 5), Ok(3));
    }
}
