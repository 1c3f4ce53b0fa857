//! Segment-sized buffers under a budget: which are in use for what, and which may be taken again.
//!
//! A buffer that a view may show must not be used again before all views are detached. Detaching
//! kills the views of the running turn too, and those are promised to live as long as they hold no
//! more than the budget. So within a turn a buffer is taken again only when the turn has used up
//! the budget by itself; else more memory is taken, and given back when the turn ends.

use crate::error::Error;
use crate::index::small::sort;
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

#[derive(Debug)]
struct Buffer {
    bytes: AlignedBytes,
    holds: Holds,
    /// The last turn that looked at it.
    touched: u32,
    /// How many pins hold it.
    pins: u32,
}

/// The buffers.
#[derive(Debug)]
pub struct Pool {
    buffers: Vec<Buffer>,
    budget: usize,
    size: usize,
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

    /// Notes that this turn looked at a buffer.
    #[inline]
    pub fn touch(&mut self, id: BufferId) {
        self.buffers[id as usize].touched = self.turn;
    }

    /// Keeps a buffer's content until [`unpin`](Pool::unpin).
    pub fn pin(&mut self, id: BufferId) {
        self.buffers[id as usize].pins += 1;
    }

    /// Ends one pin.
    pub fn unpin(&mut self, id: BufferId) {
        self.buffers[id as usize].pins -= 1;
    }

    /// The turn that is running.
    #[must_use]
    pub fn turn(&self) -> u32 {
        self.turn
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
    /// `evict` takes a candidate's content and says whether it may go; what may go least recently
    /// touched goes first.
    ///
    /// # Errors
    /// [`Error::ViewsHeld`] when views would have to die and one of them is a running callback's.
    pub fn take(
        &mut self,
        holds: Holds,
        evict: impl FnMut(BufferId, Holds, &[u8]) -> bool,
    ) -> Result<BufferId, Error> {
        let free = self.buffers.iter().position(|buffer| buffer.holds == Holds::Nothing);
        let id = match free {
            Some(id) => id as BufferId,
            // Up to the budget memory is reserved, so a callback's view outlives this.
            None if self.buffers.len() < self.budget => self.grow(),
            None if !self.callback_open && self.turn_has_room() => self.grow(),
            None => {
                self.kill_views()?;
                match self.evict(1, evict) {
                    Some(id) => id,
                    None => self.grow(),
                }
            }
        };
        let turn = self.turn;
        let buffer = &mut self.buffers[id as usize];
        (buffer.holds, buffer.touched) = (holds, turn);
        Ok(id)
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
        self.turn += 1;
        self.release_remains();
        Ok(())
    }

    /// Says that nothing counts any more of what a buffer holds. Views may show it until the turn
    /// ends.
    pub fn leave(&mut self, id: BufferId) {
        self.buffers[id as usize].holds = Holds::Remains;
    }

    /// Ends a turn: gives back what it took above the budget, and frees some buffers for the next
    /// one. Returns whether views must be detached before the next call.
    pub fn end_turn(&mut self, evict: impl FnMut(BufferId, Holds, &[u8]) -> bool) -> bool {
        self.turn += 1;
        let remains = self.buffers.iter().any(|buffer| buffer.holds == Holds::Remains);
        self.release_remains();
        let in_use = self.buffers.iter().filter(|buffer| buffer.holds != Holds::Nothing).count();
        // An eighth is freed at once, so that views are detached once in many turns.
        let spare = (self.budget / 8).max(1);
        let evicted = in_use > self.budget - 1 && {
            self.evict(in_use - (self.budget - spare), evict);
            true
        };
        while self.buffers.len() > self.budget
            && self.buffers.last().is_some_and(|buffer| buffer.holds == Holds::Nothing)
        {
            self.buffers.pop();
        }
        remains || evicted
    }

    /// Whether this turn itself has not used the budget up. What is above the budget is bounded by
    /// as much again, however many times views die within a turn.
    fn turn_has_room(&self) -> bool {
        let touched = self.buffers.iter().filter(|buffer| buffer.touched == self.turn).count();
        self.lends_views && touched < self.budget && self.buffers.len() < 2 * self.budget
    }

    fn grow(&mut self) -> BufferId {
        let bytes = AlignedBytes::zeroed(self.size);
        self.buffers.push(Buffer { bytes, holds: Holds::Nothing, touched: 0, pins: 0 });
        (self.buffers.len() - 1) as BufferId
    }

    fn release_remains(&mut self) {
        let remains = |buffer: &&mut Buffer| buffer.holds == Holds::Remains && buffer.pins == 0;
        for buffer in self.buffers.iter_mut().filter(remains) {
            buffer.holds = Holds::Nothing;
        }
    }

    /// Frees up to `count` buffers, the least recently touched first; gives one of them.
    fn evict(
        &mut self,
        count: usize,
        mut evict: impl FnMut(BufferId, Holds, &[u8]) -> bool,
    ) -> Option<BufferId> {
        let may_go = |buffer: &Buffer| buffer.holds != Holds::Nothing && buffer.pins == 0;
        let used = self.buffers.iter().zip(0..).filter(|(buffer, _)| may_go(buffer));
        // What is above the budget goes first, so that its memory can be given back.
        let age = |touched, id| if id as usize >= self.budget { 0 } else { touched };
        let mut order: Vec<(u32, u32)> =
            used.map(|(buffer, id)| (age(buffer.touched, id), id)).collect();
        sort(&mut order);
        let mut last = None;
        let mut left = count;
        for (_, id) in order {
            if left == 0 {
                break;
            }
            let buffer = &mut self.buffers[id as usize];
            if evict(id, buffer.holds, &buffer.bytes) {
                buffer.holds = Holds::Nothing;
                self.evictions += u64::from(self.lends_views);
                last = Some(id);
                left -= 1;
            }
        }
        last.or_else(|| {
            let free = self.buffers.iter().position(|buffer| buffer.holds == Holds::Nothing);
            free.map(|id| id as BufferId)
        })
    }
}
