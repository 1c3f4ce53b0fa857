//! A counting allocator: a file must not make the engine request more memory than a small multiple
//! of its size.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Larger requests are refused, because otherwise only the machine would fail.
const LARGEST: usize = 1 << 30;

thread_local! {
    static HELD: Cell<usize> = const { Cell::new(0) };
    static MOST: Cell<usize> = const { Cell::new(0) };
}

/// Counts the bytes that each thread has allocated, and their maximum.
pub struct Counting;

fn allocated(bytes: usize) {
    // A thread that is ending has no counters any more.
    let _ = HELD.try_with(|held| {
        held.set(held.get().wrapping_add(bytes));
        MOST.with(|most| most.set(most.get().max(held.get())));
    });
}

fn freed(bytes: usize) {
    // One thread may free what another one allocated.
    let _ = HELD.try_with(|held| held.set(held.get().saturating_sub(bytes)));
}

// SAFETY: everything is passed to the system's allocator unchanged, or refused.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() > LARGEST {
            return std::ptr::null_mut();
        }
        allocated(layout.size());
        // SAFETY: the caller's guarantees are those that `System` requires.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.size() > LARGEST {
            return std::ptr::null_mut();
        }
        allocated(layout.size());
        // SAFETY: as in `alloc`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        freed(layout.size());
        // SAFETY: as in `alloc`.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if size > LARGEST {
            return std::ptr::null_mut();
        }
        allocated(size);
        freed(layout.size());
        // SAFETY: as in `alloc`.
        unsafe { System.realloc(memory, layout, size) }
    }
}

/// Runs `run`; returns its result, and how many bytes more than before were allocated at most.
pub fn most_held<T>(run: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.with(Cell::get);
    MOST.with(|most| most.set(before));
    let done = run();
    (done, MOST.with(Cell::get) - before)
}
