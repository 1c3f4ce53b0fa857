//! Segment-sized buffers under a budget: their use and their eviction.
//!
//! A buffer that a view may show must not be reused before all views are detached, and views that
//! were given to the program in a turn must stay valid until that turn ends. If views may show
//! every buffer of the budget and some of them must stay valid, a few more buffers are allocated,
//! and until the turn ends readers get copies, and no further buffer counts as shown. The
//! additional buffers are reused over and over, however much the turn reads, and are freed when it
//! ends. If even they do not suffice, the call fails, and all views stay valid. If no view must stay
//! valid, as between the steps of an iteration, all are detached instead.
//! Buffers that no view shows, such as segments that were only written, may be evicted at any time.
//! Detaching is not free: V8 collects garbage after each detached memory of 64 MiB or more.

use alloc::vec::Vec;

use crate::aligned_buf::AlignedBytes;
use crate::error::Error;

/// The index of a buffer in the pool.
pub type BufferId = u32;

/// The address of a record in memory. It is valid until the pool hands out another buffer.
#[derive(Clone, Copy, Debug, Default)]
pub struct BufferAddr {
    pub(super) buffer: BufferId,
    pub(super) offset: u32,
}

/// What a buffer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BufferContent {
    /// Nothing.
    Nothing,
    /// Nothing that is needed, but views may show it until the turn ends or their pins do.
    ViewsOnly,
    /// A segment of the log.
    Segment(u32),
    /// Cached cold records.
    RecordCache,
}

/// What a record is looked up for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessKind {
    /// The engine's own use.
    Own,
    /// A view that is given to the program.
    View,
}

/// Callbacks into the embedder, which gives out views of the memory.
#[derive(Clone, Copy, Debug)]
pub struct ViewCallbacks {
    /// Detaches all views. Called before memory that they may show is reused within a turn.
    pub detach: fn(),
    /// Whether views were given out in this turn that must stay valid until it ends.
    pub are_held: fn() -> bool,
    /// Called when values must be returned as copies, from the current call until the turn ends.
    pub start_copying: fn(),
    /// Whether this many bytes can be allocated in one piece without growing the memory, which
    /// would detach all views.
    pub can_allocate: fn(usize) -> bool,
    /// The same for many chunks, of less than 1 MiB each.
    pub can_allocate_chunks: fn(usize) -> bool,
}

impl Default for ViewCallbacks {
    fn default() -> Self {
        ViewCallbacks {
            detach: || (),
            are_held: || false,
            start_copying: || (),
            can_allocate: |_| true,
            can_allocate_chunks: |_| true,
        }
    }
}

/// The smallest budget: the tail, a segment being read, cached cold records, and one spare.
const MIN_BUFFERS: usize = 4;

/// The minimum of buffers that may be allocated above the budget.
const MIN_EXTRA_BUFFERS: usize = 16;

/// Bytes that a segment full of small records may need on the heap: for ordered keys, for the undo list,
/// and for what a checkpoint in progress notes of each.
pub(super) const HEAP_PER_SEGMENT: usize = 2 << 20;

/// In wasm it is aligned to its own size, so that a lookup shifts instead of multiplying.
#[derive(Debug)]
#[repr(align(32))]
struct Buffer {
    /// Empty if the buffer was freed and later ones are in use: their numbers must not change.
    bytes: AlignedBytes,
    content: BufferContent,
    /// When it was accessed last.
    touched: u32,
    /// Whether a view may show it.
    shown: bool,
    /// How many pins hold it.
    pins: u32,
}

impl Buffer {
    /// Whether it has no content.
    fn is_unused(&self) -> bool {
        self.content == BufferContent::Nothing
    }
}

/// While opening: the segment that is read, and the one before it, which may contain the end of the
/// last commit. The record cache may take one more.
const OPENING_BUFFERS: usize = 2;

/// Drops the content of a buffer, and returns whether that was allowed.
pub type Evict<'a> = &'a mut dyn FnMut(BufferId, BufferContent, &[u8]) -> bool;

/// The buffer pool.
#[derive(Debug)]
pub struct Pool {
    buffers: Vec<Buffer>,
    budget: usize,
    size: usize,
    /// Increases with each buffer that is acquired or touched as the newest, and with each turn.
    clock: u32,
    /// Whether values are returned as copies until the turn ends.
    must_copy: bool,
    /// How many buffers were evicted since the database was opened.
    evictions: u64,
    /// Whether a callback runs on a view, which must stay valid.
    pub callback_open: bool,
    /// Whether there may be views at all: not while the database is being opened.
    pub exposes_views: bool,
    /// The embedder's callbacks.
    views: ViewCallbacks,
}

impl Pool {
    /// A pool of buffers of `size` bytes that uses up to `memory` bytes between turns.
    #[must_use]
    pub fn new(size: usize, memory: usize, views: ViewCallbacks) -> Self {
        let budget = (memory / size).max(MIN_BUFFERS);
        Pool {
            buffers: Vec::new(),
            budget,
            size,
            clock: 1,
            must_copy: false,
            evictions: 0,
            callback_open: false,
            exposes_views: false,
            views,
        }
    }

    /// The bytes of a buffer.
    #[inline]
    #[must_use]
    pub fn bytes(&self, id: BufferId) -> &[u8] {
        &self.buffers[id as usize].bytes
    }

    /// The bytes of a buffer, for writing.
    pub fn bytes_mut(&mut self, id: BufferId) -> &mut [u8] {
        &mut self.buffers[id as usize].bytes
    }

    /// Records an access to a buffer.
    #[inline]
    pub fn touch(&mut self, id: BufferId) {
        self.buffers[id as usize].touched = self.clock;
    }

    /// Records an access to a buffer that is later than all others.
    pub fn touch_as_newest(&mut self, id: BufferId) {
        self.clock += 1;
        self.touch(id);
    }

    /// The bytes of a buffer, for a view; `counts` says whether this is an access for eviction.
    #[inline]
    pub fn borrow(&mut self, id: BufferId, counts: bool) -> &[u8] {
        let buffer = &mut self.buffers[id as usize];
        buffer.shown |= !self.must_copy;
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

    /// Records an access to a buffer and its kind.
    #[inline(always)]
    pub fn touch_for(&mut self, id: BufferId, access: AccessKind) {
        let buffer = &mut self.buffers[id as usize];
        buffer.touched = self.clock;
        if access == AccessKind::View && !self.must_copy {
            buffer.shown = true;
        }
    }

    /// Records that a view shows a buffer, even while other values are copied.
    pub fn show(&mut self, id: BufferId) {
        self.touch(id);
        self.buffers[id as usize].shown = true;
    }

    /// Whether values are returned as copies, so that no new view shows a buffer.
    #[inline(always)]
    #[must_use]
    pub fn must_copy(&self) -> bool {
        self.must_copy
    }

    /// Switches to returning values as copies until the turn ends.
    #[cold]
    pub fn start_copying(&mut self) {
        if !self.must_copy {
            self.must_copy = true;
            (self.views.start_copying)();
        }
    }

    /// Whether this many bytes can be allocated in one piece without detaching a view that must
    /// stay valid.
    #[inline(never)]
    pub fn can_allocate(&self, bytes: usize) -> bool {
        !self.exposes_views || (self.views.can_allocate)(bytes) || !self.must_keep_views()
    }

    /// The same for many chunks, of less than 1 MiB each.
    #[inline(never)]
    pub fn can_allocate_chunks(&self, bytes: usize) -> bool {
        !self.exposes_views || (self.views.can_allocate_chunks)(bytes) || !self.must_keep_views()
    }

    /// Whether a view must stay valid: one that the program holds, or that of a running callback.
    pub fn must_keep_views(&self) -> bool {
        self.callback_open || (self.views.are_held)()
    }

    /// Opening is finished: from here on there may be views, and evictions are counted.
    pub fn expose_views(&mut self) {
        (self.exposes_views, self.evictions) = (true, 0);
    }

    /// Records that all views are detached.
    pub fn clear_views(&mut self) {
        self.buffers.iter_mut().for_each(|buffer| buffer.shown = false);
    }

    /// Keeps the content of a buffer until [`unpin`](Pool::unpin).
    pub fn pin(&mut self, id: BufferId) {
        self.buffers[id as usize].pins += 1;
    }

    /// Ends one pin.
    pub fn unpin(&mut self, id: BufferId) {
        self.buffers[id as usize].pins -= 1;
    }

    /// The current time of the eviction order.
    #[must_use]
    pub fn now(&self) -> u32 {
        self.clock
    }

    /// Bytes that buffers may use between turns.
    #[must_use]
    pub fn budget(&self) -> usize {
        self.budget * self.size
    }

    /// How many buffers with needed content were evicted since opening.
    #[must_use]
    pub fn evictions(&self) -> u64 {
        self.evictions
    }

    /// Bytes of all buffers.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.allocated() * self.size
    }

    /// How many buffers have memory.
    fn allocated(&self) -> usize {
        self.buffers.iter().filter(|buffer| !buffer.bytes.is_empty()).count()
    }

    /// Acquires a buffer for new content; its bytes are undefined. Evicts the buffer that was
    /// accessed least recently if there is no free one.
    ///
    /// # Errors
    /// [`Error::ViewsHeld`] if views would have to be detached and one of them must stay valid.
    pub fn acquire(&mut self, content: BufferContent, evict: Evict<'_>) -> Result<BufferId, Error> {
        self.clock += 1;
        let id = match self.find_free() {
            Some(id) => id,
            None if self.allocated() < self.buffer_limit(content) => self.grow(),
            None => self.evict_or_grow(evict)?,
        };
        let touched = self.clock;
        let buffer = &mut self.buffers[id as usize];
        (buffer.content, buffer.touched, buffer.shown) = (content, touched, false);
        Ok(id)
    }

    /// How many buffers may exist before one is evicted. While the database is being opened,
    /// everything is read once, and memory that is new to the process costs more than reading does.
    fn buffer_limit(&self, content: BufferContent) -> usize {
        let while_opening = OPENING_BUFFERS + usize::from(content == BufferContent::RecordCache);
        if self.exposes_views { self.budget } else { while_opening }
    }

    /// Whether a buffer can be had without an eviction, and without detaching views.
    pub fn has_unused(&self) -> bool {
        let may_grow = self.allocated() < self.budget && self.can_allocate(self.size);
        self.exposes_views && (may_grow || self.find_free().is_some())
    }

    fn find_free(&self) -> Option<BufferId> {
        let mut buffers = self.buffers.iter();
        let free = buffers.position(|buffer| buffer.is_unused() && !buffer.bytes.is_empty());
        free.map(|id| id as BufferId)
    }

    /// Evicts a buffer, or allocates one above the budget.
    fn evict_or_grow(&mut self, evict: Evict<'_>) -> Result<BufferId, Error> {
        if let (Some(id), _) = self.evict(1, false, evict) {
            return Ok(id);
        }
        // Views may show all buffers that could be evicted.
        if self.exposes_views && self.must_keep_views() {
            let is_below_limit = self.allocated() < self.budget + self.extra_limit();
            if !(is_below_limit && self.can_allocate(self.size)) {
                return Err(Error::ViewsHeld);
            }
            self.start_copying();
            return Ok(self.grow());
        }
        self.detach_views()?;
        let free = self.evict(self.eviction_batch(), true, evict).0.or_else(|| self.find_free());
        Ok(free.unwrap_or_else(|| self.grow()))
    }

    /// How many buffers may be allocated above the budget until the turn ends, if there is memory
    /// for them. A few are enough for reading; a transaction needs as many as it writes.
    fn extra_limit(&self) -> usize {
        self.budget.max(MIN_EXTRA_BUFFERS)
    }

    /// A quarter is freed at once, so that views are detached rarely.
    fn eviction_batch(&self) -> usize {
        (self.budget / 4).max(1)
    }

    /// Detaches all views within a turn, so that the buffers that they show can be reused.
    ///
    /// # Errors
    /// [`Error::ViewsHeld`] if one of them must stay valid.
    pub fn detach_views(&mut self) -> Result<(), Error> {
        if self.exposes_views {
            if self.must_keep_views() {
                return Err(Error::ViewsHeld);
            }
            (self.views.detach)();
        }
        self.clear_views();
        self.free_views_only();
        Ok(())
    }

    /// Releases the content of a buffer. Views may show it until the turn ends, and pins until they
    /// end.
    pub fn release(&mut self, id: BufferId) {
        let buffer = &mut self.buffers[id as usize];
        let is_seen = buffer.shown || buffer.pins > 0;
        buffer.content = if is_seen { BufferContent::ViewsOnly } else { BufferContent::Nothing };
    }

    /// Changes the memory that it uses between turns.
    pub fn set_budget(&mut self, memory: usize) {
        self.budget = (memory / self.size).max(MIN_BUFFERS);
    }

    /// Ends a turn: frees what is above the budget, and some buffers for the next turn. Returns
    /// whether views must be detached before the next call.
    pub fn end_turn(&mut self, evict: Evict<'_>) -> bool {
        self.clock += 1;
        self.must_copy = false;
        let mut all = self.buffers.iter();
        let views_only =
            all.any(|buffer| buffer.content == BufferContent::ViewsOnly && buffer.pins == 0);
        self.free_views_only();
        let in_use = self.buffers.iter().filter(|buffer| !buffer.is_unused()).count();
        let mut shown = false;
        if in_use > self.budget - 1 {
            shown = self.evict(in_use - (self.budget - self.eviction_batch()), true, evict).1;
        }
        let excess = self.allocated().saturating_sub(self.budget);
        let unused = |buffer: &&mut Buffer| buffer.is_unused() && !buffer.bytes.is_empty();
        for buffer in self.buffers.iter_mut().rev().filter(unused).take(excess) {
            buffer.bytes = AlignedBytes::zeroed(0);
        }
        while self.buffers.last().is_some_and(|buffer| buffer.bytes.is_empty()) {
            self.buffers.pop();
        }
        views_only || shown
    }

    fn grow(&mut self) -> BufferId {
        let buffer = Buffer {
            bytes: AlignedBytes::zeroed(self.size),
            content: BufferContent::Nothing,
            touched: 0,
            shown: false,
            pins: 0,
        };
        let freed = self.buffers.iter().position(|buffer| buffer.bytes.is_empty());
        let id = freed.unwrap_or(self.buffers.len());
        match freed {
            Some(id) => self.buffers[id] = buffer,
            None => self.buffers.push(buffer),
        }
        id as BufferId
    }

    fn free_views_only(&mut self) {
        let remains =
            |buffer: &&mut Buffer| buffer.content == BufferContent::ViewsOnly && buffer.pins == 0;
        for buffer in self.buffers.iter_mut().filter(remains) {
            buffer.content = BufferContent::Nothing;
        }
    }

    /// Evicts up to `count` buffers, the least recently accessed first; those that views may show
    /// only if they `may_be_shown`. Returns one of them, and whether a view may show any.
    fn evict(
        &mut self,
        count: usize,
        may_be_shown: bool,
        evict: Evict<'_>,
    ) -> (Option<BufferId>, bool) {
        let may_go = |buffer: &Buffer| {
            !buffer.is_unused() && buffer.pins == 0 && (may_be_shown || !buffer.shown)
        };
        let (mut last, mut shown, mut left) = (None, false, count);
        let mut tried = None;
        while left > 0 {
            let candidates = self.buffers.iter().zip(0..).filter(|(buffer, _)| may_go(buffer));
            let ages = candidates.map(|(buffer, id)| Some((buffer.touched, id)));
            let Some((touched, id)) = ages.filter(|&next| next > tried).min().flatten() else {
                break;
            };
            tried = Some((touched, id));
            let buffer = &mut self.buffers[id as usize];
            if evict(id, buffer.content, &buffer.bytes) {
                shown |= buffer.shown;
                buffer.content = BufferContent::Nothing;
                self.evictions += u64::from(self.exposes_views);
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

    const VIEWS: ViewCallbacks = ViewCallbacks {
        detach: || DETACHED.set(DETACHED.get() + 1),
        are_held: || HELD.get(),
        start_copying: || (),
        can_allocate: |_| true,
        can_allocate_chunks: |_| true,
    };

    /// A pool of four buffers that has been filled.
    fn full() -> Pool {
        DETACHED.set(0);
        HELD.set(false);
        let mut pool = Pool::new(64, 0, VIEWS);
        pool.exposes_views = true;
        (0..4).for_each(|slot| assert_eq!(take(&mut pool, slot), Ok(slot)));
        pool
    }

    fn take(pool: &mut Pool, slot: u32) -> Result<BufferId, Error> {
        pool.acquire(BufferContent::Segment(slot), &mut |_, _, _| true)
    }

    #[test]
    fn unviewed_buffer_is_reused_at_any_time() {
        let mut pool = full();
        pool.callback_open = true;
        for slot in 4..40 {
            assert_eq!(take(&mut pool, slot), Ok(slot % 4), "the oldest is evicted first");
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
            // Four more buffers, none of which becomes shown, serve all further reads.
            for slot in 4..40 {
                let id = take(&mut pool, slot).expect("a buffer is available");
                assert!(id >= 4, "{id} is shown");
                pool.touch_for(id, AccessKind::View);
                assert!(pool.must_copy() && !pool.is_shown(id));
            }
            assert_eq!((pool.memory(), DETACHED.get()), (5 * 64, 0));
            for slot in 40..40 + MIN_EXTRA_BUFFERS as u32 - 1 {
                let all = pool.acquire(BufferContent::Segment(slot), &mut |_, _, _| false);
                assert!(all.is_ok(), "buffers that cannot be evicted use up the rest");
            }
            let beyond = pool.acquire(BufferContent::Segment(99), &mut |_, _, _| false);
            assert_eq!(beyond, Err(Error::ViewsHeld));
            HELD.set(false);
            pool.callback_open = false;
            assert!(pool.end_turn(&mut |_, _, _| true), "views show some of the freed buffers");
            assert_eq!((pool.memory(), pool.must_copy()), (4 * 64, false));
        }
    }

    #[test]
    fn viewed_buffer_is_reused_after_views_are_detached() {
        let mut pool = full();
        (0..4).for_each(|id| pool.touch_for(id, AccessKind::View));
        assert_eq!((take(&mut pool, 5), DETACHED.get()), (Ok(0), 1));
        assert_eq!((pool.memory(), pool.must_copy()), (4 * 64, false));
    }

    #[test]
    fn rescanning_turn_detaches_views_once_per_quarter() {
        DETACHED.set(0);
        let mut pool = Pool::new(64, 16 * 64, VIEWS);
        pool.exposes_views = true;
        for slot in 0..16 + 12 {
            assert!(take(&mut pool, slot).is_ok());
            // Everything that is still resident is read again before the next segment is loaded.
            let held = pool
                .buffers
                .iter()
                .zip(0..)
                .filter(|(one, _)| one.content != BufferContent::Nothing);
            let held: Vec<BufferId> = held.map(|(_, id)| id).collect();
            held.into_iter().for_each(|id| pool.touch_for(id, AccessKind::View));
        }
        assert_eq!((pool.memory(), DETACHED.get()), (16 * 64, 3));
    }

    #[test]
    fn eviction_skips_pinned_and_required_buffers() {
        let mut pool = full();
        pool.pin(0);
        let acquired = pool.acquire(BufferContent::Segment(4), &mut |id, _, _| id != 1);
        assert_eq!(acquired, Ok(2));
    }

    #[test]
    fn viewed_remains_are_freed_at_end_of_turn() {
        let mut pool = full();
        pool.touch_for(3, AccessKind::View);
        pool.release(2);
        pool.release(3);
        assert_eq!(take(&mut pool, 4), Ok(2));
        assert!(pool.end_turn(&mut |_, _, _| true));
        assert_eq!(take(&mut pool, 5), Ok(3));
    }
}
