//! The lower bound of what opening does with the tail of a log after reading it: the checksum of its bytes,
//! and for each record one read from a table as large as the index. No frame, no record, no key, no hash, and
//! no change; the reads do not depend on each other.

use std::cell::RefCell;

use varve::engine::format::checksum::checksum;

#[derive(Default)]
struct Ground {
    segment: Vec<u8>,
    /// The length is a power of two.
    places: Vec<u64>,
    looks: u32,
}

thread_local! {
    static GROUND: RefCell<Ground> = RefCell::default();
}

/// Allocates a segment and a table of `1 << slots_log2` slots. Returns the segment's address.
#[unsafe(no_mangle)]
extern "C" fn tail_prepare(segment: usize, places_log2: u32) -> *const u8 {
    GROUND.with_borrow_mut(|ground| {
        // Touches the pages, so that the system allocates them.
        ground.segment = vec![1; segment];
        ground.places = vec![1; 1 << places_log2];
        ground.segment.as_ptr()
    })
}

/// The checksum of the segment's first bytes, folded into 32 bits.
#[unsafe(no_mangle)]
extern "C" fn tail_checksum(length: usize) -> u32 {
    GROUND.with_borrow(|ground| {
        let sum = checksum(&ground.segment[..length], 7);
        (sum ^ (sum >> 32)) as u32
    })
}

/// Reads so many scattered slots. Returns the sum of their values.
#[unsafe(no_mangle)]
extern "C" fn tail_look(count: u32) -> u32 {
    GROUND.with_borrow_mut(|ground| {
        let shift = 32 - ground.places.len().trailing_zeros();
        let looks = ground.looks..ground.looks.wrapping_add(count);
        ground.looks = looks.end;
        looks.fold(0_u32, |sum, look| {
            let place = u32::wrapping_mul(look, 0x9E37_79B1) >> shift;
            sum.wrapping_add(ground.places[place as usize] as u32)
        })
    })
}
