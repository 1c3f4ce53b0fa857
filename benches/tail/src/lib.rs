//! The lower bound of what opening does with the tail of a log after reading it: the checksum of its bytes,
//! and for each record one read from a table as large as the index. No frame, no record, no key, no hash, and
//! no change; the reads do not depend on each other.

use std::cell::RefCell;

use varve::engine::format::checksum::checksum;

#[derive(Default)]
struct State {
    segment: Vec<u8>,
    /// The length is a power of two.
    slots: Vec<u64>,
    lookups: u32,
}

thread_local! {
    static STATE: RefCell<State> = RefCell::default();
}

/// Allocates a segment and a table of `1 << slots_log2` slots. Returns the segment's address.
#[unsafe(no_mangle)]
extern "C" fn tail_prepare(segment: usize, slots_log2: u32) -> *const u8 {
    STATE.with_borrow_mut(|state| {
        // Touches the pages, so that the system allocates them.
        state.segment = vec![1; segment];
        state.slots = vec![1; 1 << slots_log2];
        state.segment.as_ptr()
    })
}

/// The checksum of the segment's first bytes, folded into 32 bits.
#[unsafe(no_mangle)]
extern "C" fn tail_checksum(length: usize) -> u32 {
    STATE.with_borrow(|state| {
        let sum = checksum(&state.segment[..length], 7);
        (sum ^ (sum >> 32)) as u32
    })
}

/// Reads so many scattered slots. Returns the sum of their values.
#[unsafe(no_mangle)]
extern "C" fn tail_look_up(count: u32) -> u32 {
    STATE.with_borrow_mut(|state| {
        let shift = 32 - state.slots.len().trailing_zeros();
        let lookups = state.lookups..state.lookups.wrapping_add(count);
        state.lookups = lookups.end;
        lookups.fold(0_u32, |sum, lookup| {
            let slot = u32::wrapping_mul(lookup, 0x9E37_79B1) >> shift;
            sum.wrapping_add(state.slots[slot as usize] as u32)
        })
    })
}
