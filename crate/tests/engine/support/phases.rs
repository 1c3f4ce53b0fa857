//! The purpose of each call of the file. A test suite that never failed or crashed in some phase
//! would prove nothing about it, so the phases are counted.

use std::collections::BTreeMap;

use varve::engine::format::{DATA_START, checkpoint, segment};

/// What the test asked the store to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stage {
    #[default]
    Working,
    Opening,
    Maintenance,
    Closing,
}

/// A call of the file.
#[derive(Clone, Copy, Debug)]
pub enum Op<'a> {
    Read,
    Write(u64, &'a [u8]),
    Truncate,
    Flush,
}

/// The purpose of a call of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Between two calls: marks of the test.
    Between,
    Creation,
    Recovery,
    /// The superblock before the first append of a session.
    OpenMark,
    /// The end of a new segment, extent or checkpoint; or an erased header.
    Reservation,
    Commit,
    Extent,
    Flush,
    ColdRead,
    /// Erasing what a failed batch left.
    Rollback,
    Compaction,
    /// The headers of a relocated large value.
    Relocation,
    Checkpoint,
    /// A superblock, in maintenance or at a close.
    SuperblockSwitch,
    MaintenanceFlush,
    Erasure,
}

/// Phases that change the file, so that a crash may tear a write.
pub const CHANGING: [Phase; 12] = [
    Phase::Creation,
    Phase::OpenMark,
    Phase::Reservation,
    Phase::Commit,
    Phase::Extent,
    Phase::Flush,
    Phase::Compaction,
    Phase::Relocation,
    Phase::Checkpoint,
    Phase::SuperblockSwitch,
    Phase::MaintenanceFlush,
    Phase::Erasure,
];

/// Phases in which a call may fail. Cold reads have tests of their own.
pub const FAILING: [Phase; 13] = [
    Phase::Creation,
    Phase::Recovery,
    Phase::OpenMark,
    Phase::Reservation,
    Phase::Commit,
    Phase::Extent,
    Phase::Flush,
    Phase::Compaction,
    Phase::Relocation,
    Phase::Checkpoint,
    Phase::SuperblockSwitch,
    Phase::MaintenanceFlush,
    Phase::Erasure,
];

/// The purpose of a call, determined from the current stage and what it writes.
pub fn phase_of(stage: Stage, op: Op<'_>) -> Phase {
    let is_maintenance = matches!(stage, Stage::Maintenance | Stage::Closing);
    match op {
        Op::Read if stage == Stage::Opening => Phase::Recovery,
        Op::Read if is_maintenance => Phase::Compaction,
        Op::Read => Phase::ColdRead,
        Op::Truncate => Phase::Erasure,
        Op::Flush | Op::Write(..) if stage == Stage::Opening => Phase::Creation,
        Op::Flush if is_maintenance => Phase::MaintenanceFlush,
        Op::Flush => Phase::Flush,
        Op::Write(at, _) if at < DATA_START && is_maintenance => Phase::SuperblockSwitch,
        Op::Write(at, _) if at < DATA_START => Phase::OpenMark,
        Op::Write(_, bytes) => phase_of_write(stage, bytes),
    }
}

fn phase_of_write(stage: Stage, bytes: &[u8]) -> Phase {
    let is_maintenance = matches!(stage, Stage::Maintenance | Stage::Closing);
    let magic = bytes.get(8..12).and_then(|word| word.try_into().ok()).map(u32::from_le_bytes);
    let kind = bytes.get(12).filter(|_| magic == Some(segment::MAGIC)).copied();
    let is_frame =
        magic == Some(varve::engine::format::frame::MAGIC) || kind == Some(segment::KIND_LOG);
    if bytes.iter().all(|&byte| byte == 0) && bytes.len() >= segment::SIZE {
        return match (bytes.len(), is_maintenance) {
            (segment::SIZE, _) => Phase::Reservation,
            (_, true) => Phase::Erasure,
            (_, false) => Phase::Rollback,
        };
    }
    match is_maintenance {
        true if is_frame && stage == Stage::Closing => Phase::Commit,
        true if is_frame => Phase::Compaction,
        true if kind == Some(segment::KIND_EXTENT) => Phase::Relocation,
        true if kind == Some(segment::KIND_CHECKPOINT) => Phase::Checkpoint,
        true if magic == Some(checkpoint::MAGIC) || kind.is_none() => Phase::Checkpoint,
        false if !is_frame => Phase::Extent,
        _ => Phase::Commit,
    }
}

/// How often each phase occurred.
#[derive(Clone, Debug, Default)]
pub struct PhaseCounts(BTreeMap<Phase, u64>);

impl PhaseCounts {
    pub fn record(&mut self, phase: Phase) {
        *self.0.entry(phase).or_default() += 1;
    }

    pub fn add(&mut self, other: &PhaseCounts) {
        other.0.iter().for_each(|(&phase, count)| *self.0.entry(phase).or_default() += count);
    }

    /// The phases that occurred fewer than `least` times.
    pub fn missing(&self, wanted: &[Phase], least: u64) -> Vec<Phase> {
        let count = |phase: &Phase| self.0.get(phase).copied().unwrap_or_default();
        wanted.iter().filter(|phase| count(phase) < least).copied().collect()
    }
}
