//! The append-only log: slots of the file and their memory, the open write batch, and commits.
//!
//! Three regions, as in FASTER's hybrid log (Chandramouli et al., SIGMOD 2018): the frame under
//! construction is *mutable* in memory; what has been handed to the file is *read-only*; what is
//! not in memory is *cold* (a slot without a buffer, or without a value).

use alloc::vec::Vec;

pub mod append;
pub mod buffer_pool;
pub mod checkpoint;
pub mod checkpoint_index;
pub mod frame_chain;
pub mod key_run_writer;
pub mod key_runs;
mod large_values;
pub(crate) mod log_start;
pub mod log_walk;
mod log_walk_back;
mod open_frame;
pub mod read;
mod reclaim;
mod record_cache;
pub(crate) mod records_since;
pub mod recovery;
pub(crate) mod relocate_extent;
pub(crate) mod rewrite;
pub(crate) mod slot_allocator;
mod slot_scan;
pub(crate) mod space_accounting;
mod superblocks;
pub(crate) mod tombstones;
pub mod verify;
pub mod write_batch;

use crate::aligned_buf::AlignedBytes;
use crate::error::Error;
use crate::file::{File, write_all};
use crate::format::DATA_START;
use crate::format::frame;
use crate::format::record::{self, RecordHeader};
use crate::format::segment;
use crate::format::superblock::{FLAG_CLEAN, INCOMPATIBLE_CHUNKS, SLOT_STRIDE, Superblock};
use crate::format::system_records::{ChunksRef, ClearRef, ExtentRef, clear_of};
use crate::index::Position;
use crate::index::sorted_vec_map::SmallMap;

use append::WriteError;
use buffer_pool::{BufferId, Pool};
use large_values::{Assembled, CachedValue};
use open_frame::OpenFrame;
use record_cache::RecordCache;
use slot_allocator::AllocPriority;
use space_accounting::{DeadExtent, ExtentId};
use tombstones::Tombstones;
use write_batch::FrameSpan;

/// The use of a slot of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SlotState {
    /// Free to be taken.
    Free,
    /// A segment of the log.
    Log,
    /// The first slot of an extent.
    Extent,
    /// The first slot of a checkpoint.
    Checkpoint,
    /// A segment of a run of keys.
    KeyRun,
    /// A later slot of an extent or checkpoint.
    Continuation,
    /// No header states its use.
    Unknown,
    /// Not needed any more, but its headers are still in the file: see [`reclaim`].
    Reclaimable,
    /// Of a kind that this build does not know: never changed.
    UnknownKind,
}

impl SlotState {
    /// Whether a header and a trailer state this use.
    fn has_headers(self) -> bool {
        matches!(
            self,
            SlotState::Log | SlotState::Extent | SlotState::Checkpoint | SlotState::KeyRun
        )
    }
}

/// The buffer of a segment that is not in memory.
const NO_BUFFER: BufferId = BufferId::MAX;

/// One segment-sized slot of the file. In wasm it is aligned to its own size, so that a lookup
/// shifts instead of multiplying.
#[derive(Debug)]
#[repr(align(128))]
struct Slot {
    state: SlotState,
    /// Whether the header has been written to the file.
    written: bool,
    sequence: u32,
    salt: u64,
    /// The number of the first frame, once written.
    first_frame: u64,
    /// How many slots it covers.
    span: u32,
    /// Extent: bytes of the value, and their checksum.
    length: u64,
    length_check: u64,
    /// The buffer that holds a log segment, its bytes at their own offsets; [`NO_BUFFER`] when cold.
    buffer: BufferId,
    /// The value of an extent.
    cached: CachedValue,
    /// Log: where its frames end, and the number after that of the last one.
    end: u32,
    end_frame: u64,
    /// Log: live records and their bytes.
    live: u32,
    live_bytes: u32,
    /// Log: the accounting of its tombstones.
    tombstones: Tombstones,
    /// Log: the newest version of a tombstone in it of which programs can see the key, if this session wrote it.
    newest_deletion: u64,
    /// Log: its live records were moved elsewhere. The next checkpoint, which does not include it, makes it
    /// reclaimable.
    retired: bool,
    /// Log: damaged, so it is never moved or freed.
    pinned_by_damage: bool,
    /// Whether this session created it, and so knows its whole content.
    from_this_session: bool,
    /// Whether earlier uses of the slot may have left bytes in it. In a log segment these follow
    /// its frames.
    dirty_tail: bool,
}

impl Slot {
    fn new(used: SlotState) -> Self {
        Slot {
            state: used,
            written: false,
            sequence: 0,
            salt: 0,
            first_frame: 0,
            span: 1,
            length: 0,
            length_check: 0,
            buffer: NO_BUFFER,
            cached: CachedValue::default(),
            end: 0,
            end_frame: 0,
            live: 0,
            live_bytes: 0,
            tombstones: Tombstones::default(),
            newest_deletion: 0,
            retired: false,
            pinned_by_damage: false,
            from_this_session: false,
            // Unknown slots have not been read.
            dirty_tail: matches!(used, SlotState::Unknown),
        }
    }

    /// Whether nothing in the slot is needed, so that it can be allocated at once.
    fn is_free(&self) -> bool {
        matches!(self.state, SlotState::Free | SlotState::Unknown)
    }
}

/// The layout of a file with segments of one size.
#[derive(Clone, Copy, Debug)]
pub struct Geometry {
    /// Binary logarithm of the segment size.
    pub segment_log2: u8,
}

impl Geometry {
    /// Bytes of a segment.
    #[must_use]
    pub fn segment(self) -> usize {
        1 << self.segment_log2
    }

    /// Offset in a segment that no frame may extend beyond.
    #[must_use]
    pub fn frames_end(self) -> usize {
        self.segment() - segment::SIZE
    }

    /// File position at which a slot starts.
    #[must_use]
    pub fn slot_start(self, slot: u32) -> u64 {
        DATA_START + (u64::from(slot) << self.segment_log2)
    }

    /// The index's representation of an offset in a slot.
    #[must_use]
    pub fn position(self, slot: u32, offset: usize) -> Position {
        (slot << (self.segment_log2 - 3)) | (offset >> 3) as u32
    }

    /// How many positions a slot has.
    #[must_use]
    pub fn positions(self) -> u32 {
        1 << (self.segment_log2 - 3)
    }

    /// Slot and offset of a position.
    #[inline]
    #[must_use]
    pub fn locate(self, position: Position) -> (u32, usize) {
        let shift = self.segment_log2 - 3;
        (position >> shift, ((position & ((1 << shift) - 1)) as usize) << 3)
    }

    /// The largest number of slots that positions can address.
    #[must_use]
    pub fn max_slots(self) -> u32 {
        u32::MAX >> (self.segment_log2 - 3)
    }

    /// Bytes between the header and the trailer of something that covers `span` slots.
    fn payload_capacity(self, span: u32) -> u64 {
        (u64::from(span) << self.segment_log2).saturating_sub(2 * segment::SIZE as u64)
    }

    /// Slots that an extent with a value of `length` bytes covers.
    #[must_use]
    pub fn extent_span(self, length: usize) -> u32 {
        (length + 2 * segment::SIZE).div_ceil(self.segment()) as u32
    }
}

/// A record in memory.
#[derive(Clone, Copy, Debug)]
pub struct RecordRef<'a> {
    /// Its header.
    pub header: &'a RecordHeader,
    /// Its key.
    pub key: &'a [u8],
    /// The value bytes of the record itself: a descriptor if the value is stored elsewhere.
    pub value: &'a [u8],
}

impl RecordRef<'_> {
    /// The extent that holds the value, if one does.
    #[must_use]
    pub fn extent(&self) -> Option<ExtentRef> {
        let is_extent = self.header.kind == record::KIND_EXTENT;
        is_extent.then(|| ExtentRef::decode(self.value)).flatten()
    }

    /// The chunks that hold the value, if it is chunked.
    #[must_use]
    pub fn chunks(&self) -> Option<ChunksRef> {
        let kind = self.header.kind;
        let is_chunked = matches!(kind, record::KIND_CHUNKED | record::KIND_PAST_CHUNKED);
        is_chunked.then(|| ChunksRef::decode(self.value)).flatten()
    }

    /// The keyspace that the record cleared, and the record's value.
    #[must_use]
    pub fn clear(&self) -> Option<(u32, ClearRef)> {
        let is_clear = self.header.kind == record::KIND_CLEAR;
        is_clear.then(|| clear_of(self.header.keyspace(), self.key, self.value)).flatten()
    }

    /// Bytes of the record, including the value of its extent.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.header.size() as u64 + self.extent().map_or(0, |extent| extent.length)
    }
}

/// Where the value of a record is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ValueLocation {
    /// In the record itself.
    #[default]
    Record,
    /// In the extent that starts at this slot.
    Extent(u32),
    /// In chunks.
    Chunks,
}

/// Frames after the end of the log that opening dropped. A fresh segment reuses their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DiscardedTail {
    /// There are none, or a segment that cancels them has been flushed.
    Nothing,
    /// There are none, but earlier uses of the slot left bytes. These are overwritten with zeros
    /// and flushed before anything is appended.
    NeedsZeroing,
    /// There are some, and no segment that cancels them has been written.
    Present,
    /// A segment that cancels them was written but is not flushed.
    Superseded,
}

/// A missing header or trailer whose counterpart exists.
#[derive(Clone, Copy, Debug)]
struct MissingHeader {
    slot: u32,
    sequence: u32,
    is_trailer: bool,
    /// Whether a crash may explain it: it had not necessarily been flushed, or was being erased.
    by_crash: bool,
}

/// The state of salvage of a damaged log.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RecoveryState {
    /// Whether to keep everything that can be verified, whatever is damaged.
    pub salvages: bool,
    /// Whether anything is damaged.
    pub damaged: bool,
    /// Keys that only the checkpoint lists and whose records are lost.
    pub lost_keys: u64,
    /// Lost frames may have changed or deleted keys whose records have versions below this.
    pub uncertain_below: u64,
}

/// The writes since the last commit.
#[derive(Debug, Default)]
struct OpenBatch {
    /// The frame under construction when the batch began.
    start: OpenFrame,
    /// Frames that are complete except for their checksums.
    frames: Vec<FrameSpan>,
    /// First slots of the batch's extents.
    extents: Vec<u32>,
    /// The end of the record after a transaction with a note, which ends what the note is about.
    note_end: Option<(u32, usize)>,
}

/// What is known of how much of the log is flushed. Each field is a number of frames: those below it are. A watermark
/// is a frame's statement of such a number. An empty frame that is written only for its watermark is called a witness.
#[derive(Debug)]
struct Watermarks {
    /// Frames below this number are flushed.
    flushed: u64,
    /// The largest watermark in the file.
    written: u64,
    /// The largest watermark that is flushed itself: after a crash, frames below it are known to have been flushed.
    confirmed: u64,
    /// Segments below this sequence were flushed with the remains of a failed batch, although no watermark says so.
    segments_flushed_below: u32,
}

/// How the superblocks in the file differ from the current one.
#[derive(Debug)]
struct SuperblockState {
    /// Whether this session has written a superblock without the clean mark, as it must before appending.
    marked_open: bool,
    /// Whether the newest superblock is written but not flushed.
    unflushed: bool,
    /// Whether one of the two copies was invalid when the file was opened and has not been written since.
    lost_copy: bool,
}

/// Values in memory that have a buffer of their own: those of extents, and assembled chunked values.
#[derive(Debug, Default)]
struct LargeValues {
    /// Chunked values in memory.
    assembled: Vec<Assembled>,
    /// Bytes in memory of the values of extents and of assembled chunked values.
    bytes: usize,
    /// The buffer of the large value that was released last, for reuse.
    spare: Option<AlignedBytes>,
    /// Values of dropped extents that views may still show, kept until the turn ends.
    kept_for_views: Vec<AlignedBytes>,
}

/// The views that JavaScript holds.
#[derive(Debug)]
struct ViewState {
    /// The current generation of views.
    generation: u32,
    /// Whether a view may show memory that is about to be reused.
    stale: bool,
}

/// The newest checkpoint, and what was written since, which opening would have to read beside it.
#[derive(Debug, Default)]
struct CheckpointState {
    /// The first slot of the checkpoint that the superblocks refer to.
    slot: Option<u32>,
    /// Whether a part of it was found damaged.
    is_damaged: bool,
    /// Bytes of the frames written since that checkpoint.
    frame_bytes_since: u64,
    /// Bytes of the extent values that these frames refer to: opening would have to read them too.
    value_bytes_since: u64,
}

/// What opening found in the file that does not count.
#[derive(Debug)]
struct Leftovers {
    dropped_tail: DiscardedTail,
    /// Ranges of the file that contain what a recovery dropped.
    discarded_ranges: Vec<(u64, usize)>,
    /// Headers and trailers that are missing although their counterparts exist.
    missing_headers: Vec<MissingHeader>,
}

/// Extents, and the records that refer to them.
#[derive(Debug, Default)]
struct Extents {
    /// The extent that each record with a value in an extent refers to, by the record's position.
    by_record: SmallMap<ExtentId>,
    /// Extents that no record refers to any more but that are still in the file.
    dead: Vec<DeadExtent>,
    /// Whether these are kept, because snapshots are open.
    are_kept: bool,
}

/// Slots that nothing refers to any more: see [`reclaim`].
#[derive(Debug, Default)]
pub(crate) struct Reclaimable {
    /// Whether there may be some.
    may_exist: bool,
    /// Whether extents were freed since a compaction began, so that others might move to their slots.
    pub(crate) extents_freed: bool,
    /// Those that opening found may be reclaimed once this many frames are confirmed as flushed.
    from_frame: u64,
}

/// How the space of the file is used.
#[derive(Debug)]
struct SpaceUsage {
    /// Bytes of live records, and of the slots that live extents cover.
    live: u64,
    /// Whether the live records of older segments were not counted.
    live_is_estimate: bool,
    /// Slots that are free or will be after the next checkpoint.
    spare_slots: u32,
    /// Slots that are free now.
    free_slots: u32,
    /// Slots of log segments.
    log_slots: u32,
    /// Slots of checkpoints and runs.
    checkpoint_slots: u32,
    /// The largest size of the file, in percent of its live data.
    factor: u32,
    /// Whether the file could not grow when this was last tried.
    full: bool,
}

/// The log of one database.
#[derive(Debug)]
pub struct Log {
    geometry: Geometry,
    superblock: Superblock,
    superblock_state: SuperblockState,
    slots: Vec<Slot>,
    space: SpaceUsage,
    extents: Extents,
    pub(crate) reclaimable: Reclaimable,
    checkpoint: CheckpointState,
    open_frame: OpenFrame,
    batch: OpenBatch,
    /// Records at or above this offset of the slot of the open frame may be changed in place.
    mutable_from: usize,
    next_frame: u64,
    next_sequence: u32,
    /// Mixed into salts; fresh in each session.
    entropy: u64,
    watermarks: Watermarks,
    /// Memory for segments and for cached cold records.
    pool: Pool,
    record_cache: RecordCache,
    /// Invariant: if set, every segment is in memory.
    all_resident: bool,
    large: LargeValues,
    views: ViewState,
    leftovers: Leftovers,
    recovery: RecoveryState,
    /// Frames from this one on say whether maintenance wrote them.
    moves_marked_from: u64,
    /// Versions, and for each the number of a frame before which nothing is newer.
    known_starts: Vec<(u64, u64)>,
    /// Compaction must leave the segments of the frames from this one on alone.
    retained_from: u64,
    /// Where the last commits of this session ended.
    recent_commits: log_start::RecentCommits,
    /// Keyspaces whose keys no program sees.
    pub(crate) hidden_keyspaces: Vec<u32>,
}

impl Log {
    /// The layout of the file.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// The seed of the hash index.
    #[must_use]
    pub fn hash_seed(&self) -> [u64; 2] {
        self.superblock.hash_seed
    }

    /// The superblock's bound on versions: those below it may have been used.
    pub(crate) fn known_version(&self) -> u64 {
        self.superblock.next_version
    }

    /// The number that the next frame gets.
    #[must_use]
    pub fn next_frame(&self) -> u64 {
        self.next_frame
    }

    /// The record at `position`, which belongs to the open batch or to a loaded segment.
    ///
    /// # Panics
    /// If it is not resident.
    #[inline]
    #[must_use]
    pub fn record_at(&self, position: Position) -> RecordRef<'_> {
        let (slot, offset) = self.geometry.locate(position);
        let bytes = &self.pool.bytes(self.slots[slot as usize].buffer)[offset..];
        let (header, key, value) = record::parts(bytes).expect("a resident record is valid");
        RecordRef { header, key, value }
    }

    /// The bytes of a loaded segment.
    pub(crate) fn segment_bytes(&self, slot: u32) -> &[u8] {
        self.pool.bytes(self.slots[slot as usize].buffer)
    }

    /// Header of the record at `position`; see [`record_at`](Log::record_at).
    #[must_use]
    pub fn header_at(&self, position: Position) -> &RecordHeader {
        self.record_at(position).header
    }

    /// The extent that holds the value of the record at `position`, if one does; see
    /// [`record_at`](Log::record_at).
    #[must_use]
    pub(crate) fn descriptor_at(&self, position: Position) -> Option<ExtentRef> {
        self.record_at(position).extent()
    }

    /// The record's memory from its header to the end of its segment.
    pub(crate) fn record_mut(&mut self, position: Position) -> &mut [u8] {
        let (slot, offset) = self.geometry.locate(position);
        &mut self.pool.bytes_mut(self.slots[slot as usize].buffer)[offset..]
    }

    /// The memory of an extent's value.
    pub(crate) fn extent_mut(&mut self, slot: u32) -> &mut [u8] {
        self.slots[slot as usize].cached.value.as_mut().expect("a staged extent is resident")
    }

    /// Whether the record at `position` may be changed in place.
    #[inline]
    #[must_use]
    pub fn is_mutable(&self, position: Position) -> bool {
        let (slot, offset) = self.geometry.locate(position);
        self.open_frame.slot == Some(slot) && offset >= self.mutable_from
    }

    /// The sequence of the segment that contains a record.
    #[must_use]
    pub fn sequence_of(&self, position: Position) -> u32 {
        self.slots[self.geometry.locate(position).0 as usize].sequence
    }

    /// Marks the file as possibly containing chunked values, from the next superblock on.
    pub(crate) fn mark_chunked_values(&mut self) {
        self.superblock.incompatible |= INCOMPATIBLE_CHUNKS;
    }

    /// Writes the next superblock; `clean` records the end of the log at an orderly close. The
    /// previous superblock is flushed first: power loss may garble the one being written, and one
    /// of the two must stay intact.
    fn write_superblock(
        &mut self,
        file: &mut impl File,
        clean: Option<(u32, u64)>,
        next_version: u64,
    ) -> Result<(), Error> {
        if self.superblock_state.unflushed {
            file.flush()?;
        }
        self.superblock_state.unflushed = true;
        let mut sb = self.superblock;
        sb.generation += 1;
        sb.flags = if clean.is_some() { FLAG_CLEAN } else { 0 };
        sb.next_version = next_version;
        sb.next_frame = self.watermarks.flushed;
        sb.next_sequence = u64::from(self.next_sequence);
        if let Some((sequence, position)) = clean {
            sb.end_sequence = u64::from(sequence);
            sb.end_position = position;
        }
        let slot = (sb.generation - 1) % 2;
        write_all(file, &sb.encode(slot), slot * SLOT_STRIDE)?;
        // Superblocks alternate, so this one replaced the slot that was not current.
        self.superblock_state.lost_copy = false;
        self.superblock = sb;
        Ok(())
    }

    /// Flushes what was written. Everything committed so far is durable then.
    pub(crate) fn flush(&mut self, file: &mut impl File) -> Result<(), Error> {
        self.rewrite_missing_headers(file);
        file.flush()?;
        self.superblock_state.unflushed = false;
        self.watermarks.flushed = self.next_frame;
        self.watermarks.confirmed = self.watermarks.written;
        self.discard_dead_extents();
        self.cancelled_tail_is_flushed();
        Ok(())
    }

    /// Whether no witness has been written for the last flush.
    #[must_use]
    pub fn is_unwitnessed(&self) -> bool {
        self.watermarks.written < self.watermarks.flushed
    }

    /// Writes the superblock with the clean mark. The log has been committed and flushed.
    pub(crate) fn close(&mut self, file: &mut impl File, next_version: u64) -> Result<(), Error> {
        // No view shows aborted records any more, so the witness need not include them.
        self.open_frame = self.batch.start;
        self.mutable_from = self.open_frame.tail;
        let sequence = self.open_frame.slot.map_or(0, |slot| self.slots[slot as usize].sequence);
        let end = self.open_frame.slot.map_or(DATA_START, |slot| {
            self.geometry.slot_start(slot) + self.open_frame.start as u64
        });
        let mut clean = Some((sequence, end));
        // After a torn tail the witness opens a fresh segment. Without one, the tail would be
        // reported at every opening.
        if self.is_unwitnessed() || self.open_frame.slot.is_none() {
            let need = if self.open_frame.slot.is_some() {
                AllocPriority::Write
            } else {
                AllocPriority::Bookkeeping
            };
            match self.write_witness(file, need, next_version) {
                Ok(()) => {}
                // There is no space to repeat what the superblock already says about flushed
                // frames, and nothing is lost by that. Nor is it by a torn tail that no segment can
                // cancel: the next opening finds and drops it again.
                Err(WriteError::RolledBack(Error::Quota | Error::Full)) => {
                    clean = clean.filter(|_| self.leftovers.dropped_tail != DiscardedTail::Present);
                }
                Err(failure) => return Err(failure.into_error()),
            }
        }
        self.zero_log_tail(file)?;
        self.write_superblock(file, clean, next_version)?;
        file.flush()?;
        Ok(())
    }

    /// Whether this session has written anything to the file.
    #[must_use]
    pub fn has_written(&self) -> bool {
        self.superblock_state.marked_open
    }

    /// The number of slots.
    pub(crate) fn slot_count(&self) -> u32 {
        self.slots.len() as u32
    }

    /// The position at the end of the last slot.
    pub(crate) fn end_position(&self) -> Position {
        self.geometry.position(self.slot_count(), 0)
    }

    /// Bytes of the file that slots cover, including the superblocks.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        self.geometry.slot_start(self.slot_count())
    }

    /// Bytes of the segments that have records.
    pub(crate) fn log_bytes(&self) -> u64 {
        let segments = self.slots.iter().filter(|slot| slot.state == SlotState::Log).count();
        (segments as u64) << self.geometry.segment_log2
    }

    /// Bytes of memory used for segments, cached cold records, and values of extents.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        let held = self.large.kept_for_views.iter().chain(&self.large.spare);
        let held: usize = held.map(|bytes| bytes.len()).sum();
        (self.pool.memory() + self.record_cache.bytes() + self.large.bytes + held) as u64
    }

    /// Whether this many bytes can be allocated in one piece without detaching a view that must
    /// stay valid.
    #[inline(never)]
    pub(crate) fn can_allocate(&self, bytes: usize) -> bool {
        self.pool.can_allocate(bytes)
    }

    /// The same for many chunks, of less than 1 MiB each.
    #[inline(never)]
    pub(crate) fn can_allocate_chunks(&self, bytes: usize) -> bool {
        self.pool.can_allocate_chunks(bytes)
    }

    /// Bytes that buffers may use between turns.
    #[must_use]
    pub fn budget(&self) -> usize {
        self.pool.budget()
    }

    /// Bytes that buffers use above the budget because the last turn needed them.
    #[must_use]
    pub fn above_budget(&self) -> usize {
        self.pool.memory().saturating_sub(self.pool.budget())
    }

    /// How many buffers were evicted since opening.
    #[must_use]
    pub fn evictions(&self) -> u64 {
        self.pool.evictions()
    }

    /// Opening is finished: from here on views may be exposed.
    pub(crate) fn expose_views(&mut self) {
        self.pool.expose_views();
        self.update_all_resident();
    }

    /// Records whether every segment is in memory.
    fn update_all_resident(&mut self) {
        let mut logs = self.slots.iter().filter(|slot| slot.state == SlotState::Log);
        self.all_resident = logs.all(|slot| slot.buffer != NO_BUFFER);
    }

    /// Protects the view of the staged value while a callback runs on it.
    pub(crate) fn expose_staged(&mut self, location: ValueLocation) {
        self.pool.callback_open = true;
        // The callback gets a copy in that case.
        if self.pool.must_copy() {
            return;
        }
        match (location, self.open_frame.slot) {
            (ValueLocation::Extent(first), _) => {
                self.slots[first as usize].cached.shown = self.views.generation
            }
            // The chunked value that was started last.
            (ValueLocation::Chunks, _) => {
                if let Some(value) = self.large.assembled.last_mut() {
                    value.cached.shown = self.views.generation;
                }
            }
            (ValueLocation::Record, Some(slot)) => {
                self.pool.show(self.slots[slot as usize].buffer);
            }
            (ValueLocation::Record, None) => {}
        }
    }

    /// Ends the protection that [`expose_staged`](Log::expose_staged) began.
    pub(crate) fn unexpose_staged(&mut self) {
        self.pool.callback_open = false;
    }

    /// How many segments and extents the log uses.
    #[must_use]
    pub fn segments(&self) -> usize {
        self.slots.iter().filter(|s| matches!(s.state, SlotState::Log | SlotState::Extent)).count()
    }

    /// Changes the bytes that buffers and large values may use between turns.
    pub(crate) fn set_budget(&mut self, memory: usize) {
        self.pool.set_budget(memory);
    }

    /// Ends a turn: frees memory above the budget and what was kept only for views. Returns whether
    /// the caller must detach all views before the next call.
    pub fn end_turn(&mut self) -> bool {
        let only_voids = self.batch.frames.is_empty() && self.open_frame.live == 0;
        let mut stale = self.views.stale || !self.large.kept_for_views.is_empty();
        if only_voids && self.open_frame.records > 0 && self.batch.extents.is_empty() {
            self.discard_batch();
            stale = true;
        }
        // A quarter is freed at once, so that many turns pass before views must be detached again.
        let budget = self.value_budget();
        stale |= self.large.bytes > budget && self.trim_to(budget - budget / 4);
        stale |= self.trim_pool();
        self.large.kept_for_views = Vec::new();
        let values = self.large.bytes;
        self.large.spare.take_if(|spare| values + spare.len() > budget);
        self.record_cache.shrink_to(self.pool.budget() / 4);
        self.views.stale = false;
        if stale {
            self.pool.clear_views();
            self.views.generation += 1;
        }
        stale
    }
}

const _: () = assert!(frame::SIZE.is_multiple_of(8) && record::SIZE.is_multiple_of(8));
