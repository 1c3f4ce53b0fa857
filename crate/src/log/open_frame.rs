//! The frame under construction, at the end of the log.

use crate::format::frame;

/// Where the frame under construction begins and ends.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenFrame {
    /// Its slot; none before the first append and after a recovery that dropped a tail.
    pub slot: Option<u32>,
    /// Its offset in the slot.
    pub start: usize,
    /// The offset of the next record.
    pub tail: usize,
    /// Its records so far.
    pub records: u32,
    /// Those that are not void.
    pub live: u32,
}

impl OpenFrame {
    /// An empty frame that starts at `start`.
    #[must_use]
    pub fn at(slot: u32, start: usize) -> Self {
        OpenFrame { slot: Some(slot), start, tail: start + frame::SIZE, records: 0, live: 0 }
    }
}
