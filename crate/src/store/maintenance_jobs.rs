//! The jobs of maintenance.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::aligned_buf::AlignedBytes;
use crate::log::Log;
use crate::log::checkpoint::CheckpointWriter;
use crate::log::checkpoint_index::CheckpointIndex;
use crate::log::relocate_extent::Relocation;

use super::key_run_job::KeyRunJob;
use super::range_changes::{Change, RangeChanges};

/// The job in progress.
#[derive(Debug, Default)]
pub(super) enum Job {
    #[default]
    Nothing,
    /// Moving records out of segments.
    Compacting(Compacting),
    /// Moving what is needed out of segments whose history is to be forgotten.
    Packing(Packing),
    /// Removing the records of cleared keyspaces from the index.
    Sweeping(Sweeping),
    /// Writing the index.
    Checkpointing(Box<Checkpointing>),
}

impl Job {
    /// Bytes that the index of a checkpoint in progress may allocate, in small pieces.
    pub(super) fn bytes_to_grow(&self) -> usize {
        match self {
            Job::Checkpointing(job) => job.unloaded.as_ref().map_or(0, |next| next.bytes_to_grow()),
            _ => 0,
        }
    }

    /// The index in a checkpoint in progress, if some of its entries will not be in memory.
    pub(super) fn next_checkpoint_index(&mut self) -> Option<&mut CheckpointIndex> {
        match self {
            Job::Checkpointing(job) => job.unloaded.as_deref_mut(),
            _ => None,
        }
    }
}

/// The segment whose history is being forgotten.
#[derive(Debug, Default)]
pub(super) struct Packing {
    pub victim: Option<SegmentScan>,
    /// The buffer of the one before.
    pub spare: Option<AlignedBytes>,
}

/// A compaction in progress.
#[derive(Debug)]
pub(super) struct Compacting {
    pub victim: Option<SegmentScan>,
    /// The buffer of the previous victim: fresh pages cost more than reading into them.
    pub spare: Option<AlignedBytes>,
    /// A large value that is being moved.
    pub relocation: Option<Box<Relocation>>,
    /// Whether a large value was moved.
    pub has_relocated: bool,
    /// Segments from this sequence on were begun after the start.
    pub below: u32,
    /// Whether this is a full compaction.
    pub all: bool,
}

/// A segment that is being emptied.
#[derive(Debug)]
pub(super) struct SegmentScan {
    pub slot: u32,
    pub sequence: u32,
    pub bytes: AlignedBytes,
    /// Offset of the next record, and where its frame ends.
    pub at: usize,
    pub frame_end: usize,
    /// Offset behind its last frame.
    pub end: usize,
    /// Sequences of all existing segments, in order.
    pub segments: Vec<u32>,
}

/// A sweep in progress.
#[derive(Debug)]
pub(super) struct Sweeping {
    /// Segments to scan, the next one last.
    pub slots: Vec<u32>,
    pub at: Option<SegmentScan>,
    /// The buffer of the previous segment.
    pub spare: Option<AlignedBytes>,
    /// Whether a segment could not be scanned.
    pub is_stuck: bool,
}

/// A checkpoint in progress. It stores the index as it was when it began, so changes to ranges that are not
/// written yet are kept.
#[derive(Debug)]
pub(super) struct Checkpointing {
    pub writing: CheckpointWriter,
    /// Ranges are distinguished by this many upper bits of the hash.
    pub bits: u32,
    /// The next range.
    pub next: usize,
    pub changed: RangeChanges,
    /// The index in it, with the entries that the hash index will lack; none if that is to be complete.
    pub unloaded: Option<Box<CheckpointIndex>>,
    /// The run that it writes, after the index.
    pub key_run: Option<KeyRunJob>,
    /// The generation of the sorted keys that its runs have.
    pub generation: u32,
}

impl Checkpointing {
    pub(super) fn record_change(&mut self, log: &Log, change: Change) {
        if let Some(unloaded) = &mut self.unloaded {
            unloaded.entry_changed(log, change.old, change.new);
            unloaded.take_all(log, change.old);
        }
        let range = (u64::from(change.hash) >> (32 - self.bits)) as usize;
        if range >= self.next {
            self.changed.add(range, change);
        }
    }
}
