//! Packing: forgets the history of a file before some commit, so that its space can be used again.
//!
//! It goes through the segments before that commit, the oldest first, and copies to the end of the log what is current, and what was
//! replaced only since then: the latter as records that only the past has. Which these are is known from a snapshot that
//! shows that commit, and from all other open ones. Emptied segments are freed as those that compaction has emptied. Before
//! any is, the file says up to where it is packed. So a crash leaves a part of the work, and nothing that is shown then
//! needs what is gone.

use alloc::vec::Vec;

use crate::error::Error;
use crate::file::File;
use crate::format::KEYSPACE_ENGINE;
use crate::format::frame::{self, FrameHeader};
use crate::format::record::{self, KIND_CHUNKED, KIND_DELETE, KIND_SKIPPABLE};
use crate::format::record::{KIND_PAST_CHUNKED, KIND_PAST_SET, KIND_SET};
use crate::format::record::{KIND_TRANSACTION, KIND_VOID, RecordHeader};
use crate::format::system_records::KEY_PACKED;
use crate::index::Position;
use crate::index::ordered_index::Key;
use crate::log::append::WriteError;
use crate::log::slot_allocator::AllocPriority;
use crate::log::tombstones::covers_any;

use super::maintenance_jobs::{Job, Packing, SegmentScan};
use super::{SnapshotId, Store};

/// Bytes of a segment that one step goes through.
const STEP_BYTES: usize = 64 << 10;

/// What is being packed.
#[derive(Debug)]
pub(super) struct Pack {
    /// Shows the first commit that stays.
    snapshot: SnapshotId,
    /// Segments with sequences below this one are emptied.
    below: u32,
}

/// A record that was copied, and that snapshots refer to.
pub(super) struct Copied {
    pub keyspace: u32,
    pub key: Key,
    pub from: Position,
    pub to: Position,
}

/// How a step ended.
enum Emptied {
    Some,
    All,
    /// Something in the segment is damaged, or unknown to this build.
    Stuck,
}

impl<F: File> Store<F> {
    /// Forgets the history before the transaction with the number or any version of `cursor`, or the last one before,
    /// and not what a mark keeps. [`maintain`](Store::maintain) does it in steps, until [`is_packing`](Store::is_packing)
    /// returns false. Returns the version up to which nothing but the outcome is left.
    ///
    /// # Errors
    /// [`Error::NoHistory`] if the file does not keep its history, [`Error::CursorInFuture`] if no commit has reached
    /// the cursor, [`Error::Reentrancy`] while the file is being packed; otherwise as for [`at`](Store::at) and
    /// [`commit`](Store::commit).
    pub fn pack(&mut self, cursor: u64) -> Result<u64, Error> {
        if !self.keeps_history() {
            return Err(Error::NoHistory);
        }
        self.check_writable()?;
        if self.maintenance.pack.is_some() {
            return Err(Error::Reentrancy);
        }
        let cursor = cursor.min(self.oldest_mark()?);
        let (snapshot, version, start) = match self.at_with_start(cursor, false) {
            // It was packed up to a later commit, or salvaged.
            Err(Error::CursorExpired) => return self.packed_up_to(),
            taken => taken?,
        };
        // What they need must be known before any of it moves.
        let walked = self.walk_pasts();
        let frame = start.map_or(0, |start| start.frame);
        if let Err(error) = walked.and_then(|_| self.note_packed(version, frame)) {
            self.end_snapshot(snapshot);
            return Err(error);
        }
        let below = start.map_or(0, |start| start.sequence);
        self.maintenance.pack = Some(Pack { snapshot, below });
        Ok(version)
    }

    /// Records up to which version the history is forgotten, and from which frame on anything newer is.
    fn note_packed(&mut self, version: u64, frame: u64) -> Result<(), Error> {
        let packed = [version.to_le_bytes(), frame.to_le_bytes()].concat();
        if self.read(KEYSPACE_ENGINE, KEY_PACKED)? == Some(&packed[..]) {
            return Ok(());
        }
        self.maintenance.is_running = true;
        let noted = self.set(KEYSPACE_ENGINE, KEY_PACKED, &packed);
        let noted = noted.and_then(|_| self.commit_batch());
        self.maintenance.is_running = false;
        noted
    }

    /// Whether the file is being packed.
    #[must_use]
    pub fn is_packing(&self) -> bool {
        self.maintenance.pack.is_some()
    }

    /// Ends packing; what was done until then stays done.
    pub fn end_packing(&mut self) {
        if let Some(Pack { snapshot, .. }) = self.maintenance.pack.take() {
            self.end_snapshot(snapshot);
        }
    }

    pub(super) fn wants_packing(&self) -> bool {
        self.maintenance.pack.is_some()
    }

    pub(super) fn begin_packing(&mut self) -> Job {
        self.load_history(true);
        Job::Packing(Packing::default())
    }

    /// Continues with a segment, or takes the next; ends with the checkpoint that frees those that were emptied.
    pub(super) fn packing_step(&mut self, mut job: Packing) -> Result<Job, WriteError> {
        let Some(&Pack { below, .. }) = self.maintenance.pack.as_ref() else {
            return Ok(Job::Nothing);
        };
        let Some(mut scan) = job.victim.take() else {
            self.update_retained();
            let retired = self.log.retired_bytes();
            let most = (self.log.file_space() / 16).max(2 << self.log.geometry().segment_log2);
            let next = if retired >= most { None } else { self.log.oldest_below(below) };
            let Some(slot) = next else {
                if retired > 0 {
                    return self.begin_checkpoint();
                }
                self.end_packing();
                return Ok(Job::Nothing);
            };
            let scan = self.start_scan(slot, job.spare.take()).map_err(WriteError::RolledBack)?;
            job.victim =
                scan.map(|scan| SegmentScan { segments: self.log.kept_sequences(slot), ..scan });
            return Ok(Job::Packing(job));
        };
        let mut copied = Vec::new();
        let emptied = match self.empty_part(&mut scan, &mut copied) {
            Err(Error::Quota | Error::Full) if self.log.retired_bytes() > 0 => {
                // Freeing what was emptied before makes space for the rest.
                self.undo_to(0);
                self.log.discard_batch();
                return self.begin_checkpoint();
            }
            // A tombstone whose key fills its segment has no space for the range that it covers.
            Err(Error::KeyTooLong) => Emptied::Stuck,
            emptied => emptied.map_err(WriteError::RolledBack)?,
        };
        self.commit_batch().map_err(WriteError::RolledBack)?;
        self.snapshots.follow(&copied);
        match emptied {
            Emptied::Some => job.victim = Some(scan),
            Emptied::All => {
                // A mark may have been set while it was being emptied.
                self.update_retained();
                if !self.log.is_retained(scan.slot) {
                    self.log.retire(scan.slot);
                }
                job.spare = Some(scan.bytes);
            }
            Emptied::Stuck => self.log.pin_damaged(scan.slot),
        }
        Ok(Job::Packing(job))
    }

    /// Goes through some records of a segment and copies those that are needed.
    fn empty_part(
        &mut self,
        scan: &mut SegmentScan,
        copied: &mut Vec<Copied>,
    ) -> Result<Emptied, Error> {
        let geometry = self.log.geometry();
        let until = scan.at + STEP_BYTES;
        self.check_limited_growth(STEP_BYTES / record::SIZE)?;
        while scan.at < until {
            if scan.at >= scan.end {
                return Ok(Emptied::All);
            }
            if scan.at == scan.frame_end {
                let position = geometry.slot_start(scan.slot) + scan.at as u64;
                let bytes = &scan.bytes[scan.at..geometry.frames_end()];
                let header = FrameHeader::open(bytes, self.log.salt(scan.slot), position);
                let Some(header) = header else { return Ok(Emptied::Stuck) };
                scan.frame_end = scan.at + header.length as usize;
                scan.at += frame::SIZE;
                continue;
            }
            let bytes = &scan.bytes[scan.at..scan.frame_end];
            let Ok((header, key, value)) = record::validate(bytes) else {
                return Ok(Emptied::Stuck);
            };
            let from = geometry.position(scan.slot, scan.at);
            let bytes = &bytes[..header.size()];
            match header.kind {
                KIND_SET | KIND_CHUNKED | KIND_PAST_SET | KIND_PAST_CHUNKED => {
                    let hash = self.hash(header.keyspace(), key);
                    let is_live = header.kind & KIND_SKIPPABLE == 0 && self.is_live(hash, from);
                    let is_named = self.snapshots.refer_to(header.keyspace(), key, from);
                    if is_live {
                        self.move_record(hash, from, bytes, None)?;
                    } else if is_named {
                        self.log.reserve_record(
                            &mut self.file,
                            bytes.len(),
                            AllocPriority::Move,
                        )?;
                        let to = self.log.append_copy(bytes, from);
                        self.log.make_past(to);
                    }
                    if is_named {
                        let (keyspace, key) = (header.keyspace(), Key::new(key));
                        let to = self.log.last_appended(bytes.len());
                        copied.push(Copied { keyspace, key, from, to });
                    }
                }
                KIND_DELETE => self.keep_tombstone(scan, header, key, value)?,
                KIND_VOID | KIND_TRANSACTION => {}
                _ => return Ok(Emptied::Stuck),
            }
            scan.at += bytes.len();
        }
        Ok(Emptied::Some)
    }

    /// Copies a tombstone as long as a segment is left that may hold an older record of its key.
    fn keep_tombstone(
        &mut self,
        scan: &SegmentScan,
        header: &RecordHeader,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), Error> {
        let newest = value.first_chunk().map_or(scan.sequence, |bytes| u32::from_le_bytes(*bytes));
        let newest = newest.min(self.log.newest_covered(scan.slot, header.oldest));
        if covers_any(&scan.segments, header.oldest, newest, scan.sequence) {
            self.move_tombstone(*header, key, newest)?;
        } else if !self.log.hidden_keyspaces.contains(&header.keyspace()) {
            self.forget(header.version);
        }
        Ok(())
    }
}
