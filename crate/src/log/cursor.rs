//! Where the log ends.

use crate::format::frame;

/// The position of the frame under construction.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor {
    /// The slot of the frame; none before the first append and after a recovery that dropped a
    /// tail.
    pub slot: Option<u32>,
    /// Offset of the frame.
    pub start: usize,
    /// Offset of the next record.
    pub tail: usize,
    /// Records so far.
    pub records: u32,
    /// Records that are not void.
    pub live: u32,
}

impl Cursor {
    /// An empty frame that starts at `start`.
    #[must_use]
    pub fn at(slot: u32, start: usize) -> Self {
        Cursor { slot: Some(slot), start, tail: start + frame::SIZE, records: 0, live: 0 }
    }
}
