//! The store: operations on keys, over a log and its index.

use alloc::boxed::Box;
use alloc::vec::Vec;

mod chunked_values;
mod clear;
mod compaction;
mod expiry;
mod history;
mod index_paging;
mod kept_history;
mod key_range;
mod key_run_job;
#[cfg(any(not(target_arch = "wasm32"), feature = "web"))]
pub(crate) mod live_records;
mod log_walk;
mod maintenance;
mod maintenance_jobs;
mod memory_usage;
mod pack;
mod pin;
mod range_changes;
mod replay;
mod salvage;
mod snapshots;
mod sorted_keys;
mod transaction;
mod verify;
mod write;

use crate::error::{Error, damaged};
use crate::file::File;
use crate::format::record::{self, KIND_CHUNKED, KIND_DELETE, KIND_SET, RecordHeader};
use crate::format::system_records::{ChunksRef, KEY_CHUNK};
use crate::format::{DEFAULT_SEGMENT_LOG2, KEYSPACE_ENGINE, LAST_KEYSPACE, MAX_KEY, MAX_VALUE};
use crate::index::Position;
use crate::index::hash_index::{HashIndex, KeyHash};
use crate::index::keyspaces::Keyspaces;
use crate::log::tombstones::UNKNOWN;
use crate::log::{
    Log,
    buffer_pool::{AccessKind, BufferAddr},
    checkpoint_index::CheckpointIndex,
    read::Pin,
    slot_allocator::AllocPriority,
};

pub use crate::log::buffer_pool::ViewCallbacks;
pub use crate::log::recovery::{OnDamage, Recovery};
pub use crate::log::verify::{ProblemKind, Verified, VerifyCursor};
use clear::Clears;
use expiry::Expiry;
use history::Forgotten;
#[cfg(any(not(target_arch = "wasm32"), feature = "web"))]
pub(crate) use history::{MAX_MARK_NAME, Since};
pub use key_range::KeyBounds;
use maintenance_jobs::Job;
use pack::Pack;
pub use pin::PinId;
use range_changes::Change;
use snapshots::Snapshots;
pub use snapshots::{MAX_SNAPSHOTS, SnapshotId, SnapshotStats};
use sorted_keys::SortedKeys;
pub use transaction::Savepoint;
use transaction::{SavepointState, Undo};
pub use write::Set;
use write::{Changing, NewRecord, Staged};

/// The number of keys that are looked up together, so that their cache misses overlap.
pub const LOOKUP_BATCH: usize = 16;

/// The options of opening a store.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Binary logarithm of the segment size of a database that is created.
    pub segment_log2: u8,
    /// Random numbers for the identity and the secret hash seed of a database that is created, and for the
    /// salts of this session. The engine has no randomness of its own.
    pub entropy: [u64; 4],
    /// Whether keys are kept in order. Without it, ranges are refused.
    pub ordered: bool,
    /// Whether the store is read-only: writes are refused, and opening and closing leave the file
    /// unchanged.
    pub read_only: bool,
    /// Whether new frames go to a fresh segment, whose numbers cancel everything that is written behind the
    /// existing frames. Needed for a file taken over from a writer that may resume in the middle of a
    /// write.
    pub fresh_segment: bool,
    /// The reaction to damage in flushed data.
    pub on_damage: OnDamage,
    /// Bytes of memory for segments and cold records between turns. A database may be many times
    /// larger.
    pub memory: usize,
    /// The largest size of the file, in per cent of its live data, from 120 to 300; two checkpoints with their
    /// runs of keys and four segments come on top. Unused space at the ends of segments beyond the factor stays, because
    /// moving records would not gain it. So does that of a value in its own segments which another factor,
    /// or an older build, put there.
    pub factor: u32,
    /// The callbacks about views of the store's memory.
    pub views: ViewCallbacks,
    /// Opening loads the index from the checkpoint at once if it has at most this many keys. A larger one is
    /// loaded when it is needed, and by maintenance. With more than a quarter of this many keys, their
    /// order is written to the file too.
    pub load_at_once: usize,
    /// Bytes of memory for the hash index. Of a larger one it has what changed since the last checkpoint, and
    /// entries that were looked up.
    pub index_memory: usize,
    /// Whether a database that is created keeps its history: nothing that was replaced or deleted is dropped, and
    /// [`at`](Store::at) shows any past commit. It is fixed then: opening refuses a file that differs, unless this is
    /// none.
    pub keeps_history: Option<bool>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            segment_log2: DEFAULT_SEGMENT_LOG2,
            entropy: [0x7661_7276_6500_0001, 0x2D, 0x5EED_0F7A_B1E5, 0x5A17],
            ordered: true,
            read_only: false,
            fresh_segment: false,
            on_damage: OnDamage::Refuse,
            memory: 64 << 20,
            factor: 150,
            views: ViewCallbacks::default(),
            load_at_once: 1 << 14,
            index_memory: 16 << 20,
            keeps_history: None,
        }
    }
}

impl Options {
    /// The memory for the hash index beside `memory` bytes for records.
    #[must_use]
    pub const fn index_share(memory: usize) -> usize {
        // Below this even an edge worker gains nothing.
        let least = 1 << 18;
        if memory / 4 < least { least } else { memory / 4 }
    }
}

/// Sizes and states, for display.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Live keys in all keyspaces except the engine's own.
    pub count: u64,
    /// Bytes of live records with their headers and values.
    pub live_bytes: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Bytes of memory held for the log.
    pub memory_bytes: u64,
    /// Segments and extents in use.
    pub segments: u64,
    /// Number of the next frame.
    pub next_frame: u64,
    /// The next version.
    pub next_version: u64,
    /// Whether writes are refused.
    pub poisoned: bool,
    /// Bytes of the open write batch.
    pub pending_bytes: u64,
    /// Bytes of memory for the index: the hash index, and keys in order.
    pub index_bytes: u64,
    /// Bytes of the file for the index: the checkpoint, and runs of keys.
    pub index_file_bytes: u64,
    /// Segment-sized buffers that were evicted since opening.
    pub evictions: u64,
    /// Bytes that segments and cached cold records may take between turns.
    pub budget_bytes: u64,
    /// Records of cleared keyspaces that maintenance has not removed from the index yet. They count in
    /// `live_bytes`.
    pub unswept: u64,
}

/// How a deletion treats a record that has expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IfExpired {
    /// As a key that does not exist.
    Absent,
    /// As any other.
    Delete,
}

/// The record that is being written or changed, until `finish` or `abort`.
#[derive(Debug, Default)]
struct Staging {
    staged: Staged,
    new: NewRecord,
    /// Whether the staged record and the entry of its expiry have a savepoint of their own.
    has_entry: bool,
    /// The chunks that are staged together with a record, since a savepoint of their own; empty if the value is not
    /// chunked.
    new_chunks: Option<ChunksRef>,
    changing: Changing,
    /// The former value of a record that is being changed in place.
    old_value: Vec<u8>,
    /// The reference to its chunks if it is chunked: the value stays in memory until the change has ended.
    old_chunks: Option<ChunksRef>,
}

/// What maintenance is doing and what it waits for.
#[derive(Debug, Default)]
struct Maintenance {
    /// The job in progress.
    job: Job,
    is_running: bool,
    /// Whether the store is being closed.
    is_closing: bool,
    /// What is being packed.
    pack: Option<Pack>,
    /// Set when a full compaction was requested, of the segments below this sequence.
    compact_all_below: Option<u32>,
    /// Compaction is worth trying again from this number of dead bytes on.
    compaction_trigger: u64,
    /// Segments from this sequence on were begun since space ran out, or since the last commit other than those of
    /// maintenance.
    low_space_from: Option<u32>,
    /// Whether there was such a commit since compaction began.
    has_written: bool,
    /// Whether each gap in the frame numbers has a live record.
    knows_gaps: bool,
    /// The failure of maintenance that poisoned the store and that no call has reported yet.
    deferred_error: Option<Error>,
}

/// A key-value store in one file.
///
/// Writes since the last [`commit`](Store::commit) form the open write batch, which becomes one atomic
/// commit.
#[derive(Debug)]
pub struct Store<F> {
    file: F,
    log: Log,
    index: HashIndex,
    /// The index in the checkpoint, with the entries that `index` lacks; none if it is complete.
    unloaded: Option<Box<CheckpointIndex>>,
    /// As in [`Options`].
    memory: usize,
    load_at_once: usize,
    index_memory: usize,
    key_hash: KeyHash,
    /// The position that the index returned, or was given, last. Invariant: the index contains it.
    last: Option<Position>,
    /// Where the record of the next key that is looked up may be, so that no block of the checkpoint is read for it; or 0.
    expected: Position,
    keyspaces: Keyspaces,
    /// Whether keys are kept in order.
    ordered: bool,
    sorted_keys: SortedKeys,
    clears: Clears,
    expiry: Expiry,
    next_version: u64,
    undo: Vec<Undo>,
    savepoints: Vec<SavepointState>,
    staging: Staging,
    pins: Vec<Option<Pin>>,
    snapshots: Snapshots,
    recovery: Recovery,
    maintenance: Maintenance,
    forgotten: Forgotten,
    /// The last version of the newest commit other than those of maintenance.
    last_commit: u64,
    read_only: bool,
    poisoned: bool,
    unflushed: bool,
}

impl<F: File> Store<F> {
    /// Returns the value of a key. The slice shows the engine's own memory.
    ///
    /// # Errors
    /// For a cold record: the file's error, [`Error::Corruption`], or [`Error::ViewsHeld`] inside a
    /// callback.
    #[inline]
    pub fn get(&mut self, keyspace: u32, key: &[u8]) -> Result<Option<&[u8]>, Error> {
        match self.find_for(keyspace, key, AccessKind::View)? {
            Some(found) if self.is_expired(keyspace, found) => Ok(None),
            Some(found) => self.value(found.addr).map(Some),
            None => Ok(None),
        }
    }

    /// As [`get`](Store::get), for a caller that copies the value before its next call. The access
    /// does not count for eviction.
    ///
    /// # Errors
    /// As for [`get`](Store::get).
    pub fn read(&mut self, keyspace: u32, key: &[u8]) -> Result<Option<&[u8]>, Error> {
        match self.find_outlined(self.hash(keyspace, key), keyspace, key)? {
            Some(found) if !self.is_expired(keyspace, found) => self.value(found.addr).map(Some),
            _ => Ok(None),
        }
    }

    /// Replaces each hash by the position of the first record with it, or 0. The cache misses of all index
    /// entries overlap.
    #[inline]
    pub fn positions_of(&self, hashes: &mut [u32]) {
        self.index.prefetch(hashes);
        for hash in hashes {
            *hash = self.index.find(*hash, |_| true).unwrap_or(0);
        }
    }

    /// Whether the index still contains a position.
    #[inline]
    #[must_use]
    pub fn is_current(&self, position: Position) -> bool {
        self.index.contains_position(position)
    }

    /// Prefetches the records at these positions together. Sets the address of each that is in
    /// memory, for [`get_resident`](Store::get_resident).
    #[inline]
    pub fn prefetch_records(&self, positions: &[Position], addrs: &mut [Option<BufferAddr>]) {
        let mut all = 0;
        if self.clears.may_have_dead {
            // Whether each of them is live is known only from its header.
            return addrs.fill(None);
        }
        for (addr, &position) in addrs.iter_mut().zip(positions) {
            *addr = if position == 0 { None } else { self.log.resident_addr(position) };
            all ^= addr.map_or(0, |addr| self.log.prefetch(addr));
        }
        core::hint::black_box(all);
    }

    /// Prefetches what replacing the keys with these hashes touches: their records, the index entries, and
    /// the bits of the set of positions.
    fn prefetch_buckets(&self, hashes: &[u32]) {
        let (mut positions, mut addrs) = ([0; LOOKUP_BATCH], [None; LOOKUP_BATCH]);
        let positions = &mut positions[..hashes.len()];
        positions.copy_from_slice(hashes);
        self.positions_of(positions);
        self.prefetch_records(positions, &mut addrs);
        let are_named = positions.iter().filter(|&&position| self.is_current(position));
        core::hint::black_box(are_named.count());
    }

    /// The record of the key that is looked up next may be at a position, for example that which a
    /// [range](Store::range) passed with the key.
    pub fn expect_at(&mut self, position: Position) {
        self.expected = position;
    }

    /// Stores the position of a key's record in the ordered keys, for later scans.
    pub fn index_record(&mut self, keyspace: u32, key: &[u8], position: Position) {
        self.keyspaces.entry(keyspace).keys.set_position(key, position);
    }

    /// Returns the value of a key whose record was [prefetched](Store::prefetch_records) at an
    /// address. None if the record is another key's with the same hash, or if its value is stored
    /// elsewhere. The value does not move until all views are detached. The access `counts` for
    /// eviction unless it is part of a scan.
    #[inline]
    pub fn get_resident(
        &mut self,
        addr: BufferAddr,
        keyspace: u32,
        key: &[u8],
        counts: bool,
    ) -> Option<*const [u8]> {
        let now = self.expired_until();
        let record = self.log.get_resident(addr, counts)?;
        let is_match = same_bytes(record.key, key)
            && record.header.keyspace() == keyspace
            && record.header.kind == KIND_SET
            && record.header.expiry.wrapping_sub(1) >= now;
        is_match.then_some(core::ptr::from_ref(record.value))
    }

    /// Returns the version of a key's record, which grows with every change.
    ///
    /// # Errors
    /// As for [`get`](Store::get).
    pub fn version(&mut self, keyspace: u32, key: &[u8]) -> Result<Option<u64>, Error> {
        Ok(self.version_and_certainty(keyspace, key)?.map(|(version, _)| version))
    }

    /// Returns the version of a key's record, and whether it is uncertain: salvaged from a damaged file
    /// whose lost frames may have changed or deleted the key. The next write to the key makes it certain.
    ///
    /// # Errors
    /// As for [`get`](Store::get).
    pub fn version_and_certainty(
        &mut self,
        keyspace: u32,
        key: &[u8],
    ) -> Result<Option<(u64, bool)>, Error> {
        let found = self.find_outlined(self.hash(keyspace, key), keyspace, key)?;
        Ok(found.filter(|at| !self.is_expired(keyspace, *at)).map(|found| {
            let header = self.log.record_in(found.addr).header;
            (header.version, self.log.is_uncertain(header))
        }))
    }

    /// Whether a key exists.
    ///
    /// # Errors
    /// As for [`get`](Store::get).
    pub fn has(&mut self, keyspace: u32, key: &[u8]) -> Result<bool, Error> {
        let found = self.find_outlined(self.hash(keyspace, key), keyspace, key)?;
        Ok(found.is_some_and(|at| !self.is_expired(keyspace, at)))
    }

    /// The number of keys in a keyspace, with those that have expired and wait to be deleted: see
    /// [`live_count`](Store::live_count). That also counts those of a past commit, which this may not know.
    #[must_use]
    pub fn count(&self, keyspace: u32) -> u64 {
        if keyspace > LAST_KEYSPACE {
            return self.count_then(keyspace);
        }
        self.keyspaces.get(keyspace).map_or(0, |space| space.count)
    }

    /// Deletes a key; returns whether it existed.
    ///
    /// # Errors
    /// As for [`set`](Store::set).
    pub fn delete(&mut self, keyspace: u32, key: &[u8]) -> Result<bool, Error> {
        let is_first = self.savepoints.is_empty() && self.log.batch_bytes() == 0;
        match self.append_tombstone(keyspace, key, IfExpired::Absent) {
            // Maintenance after a commit can free space. A refusal leaves the open batch unchanged.
            Err(Error::Quota | Error::Full) if is_first => {
                self.catch_up(0);
                self.append_tombstone(keyspace, key, IfExpired::Absent)
            }
            done => done,
        }
    }

    /// Deletes a key.
    #[inline(never)]
    fn append_tombstone(
        &mut self,
        keyspace: u32,
        key: &[u8],
        if_expired: IfExpired,
    ) -> Result<bool, Error> {
        self.check_write(keyspace, key)?;
        let hash = self.hash(keyspace, key);
        let Some(at) = self.find_outlined(hash, keyspace, key)? else { return Ok(false) };
        if if_expired == IfExpired::Absent && self.is_expired(keyspace, at) {
            return Ok(false);
        }
        self.check_undo_growth()?;
        let old = self.predecessor(at);
        if self.log.hidden_keyspaces.is_empty() {
            self.load_history(true);
        }
        let size = record::size_of_record(key.len(), 0);
        let need = if self.maintenance.is_running {
            AllocPriority::Bookkeeping
        } else {
            AllocPriority::Delete
        };
        // Only in a malicious file a chunk is itself a chunked value.
        let is_chunk = keyspace == KEYSPACE_ENGINE && key.starts_with(KEY_CHUNK);
        let is_chunked = old.is_chunked && !is_chunk;
        let has_parts = is_chunked || old.expiry != 0;
        if has_parts {
            let _ = self.savepoint();
        }
        let mut deleted = if is_chunked { self.delete_chunks(hash, keyspace, key) } else { Ok(()) };
        if deleted.is_ok() && old.expiry != 0 {
            deleted = self.remove_entry_of(keyspace, key, old.expiry);
        }
        let reserved = deleted.and_then(|()| self.log.reserve_record(&mut self.file, size, need));
        if reserved.is_err() {
            if has_parts {
                self.undo_last();
            }
            return reserved.map(|()| false);
        }
        let header = RecordHeader {
            kind: KIND_DELETE,
            key_len: key.len() as u16,
            keyspace: keyspace as u16,
            oldest: old.oldest,
            previous: old.position,
            replaced: record::size_in_words(old.size),
            version: self.take_version(),
            ..Default::default()
        };
        let (position, _) = self.log.stage(header, key);
        self.log.advance(size, false);
        self.reindex(hash, Some(old), position, size as u32, None);
        if has_parts { self.release_last() } else { self.commit_large_batch() }?;
        Ok(true)
    }

    /// Changes a key's value if `predicate` holds for it; returns whether it did.
    ///
    /// `update` changes the bytes in place, or returns others to replace them; its error restores every
    /// byte. The result is `false` for a key that does not exist.
    ///
    /// # Errors
    /// [`Error::Aborted`] when `update` fails, else as for [`set`](Store::set).
    pub fn update_if(
        &mut self,
        keyspace: u32,
        key: &[u8],
        predicate: impl FnOnce(&[u8]) -> bool,
        update: impl FnOnce(&mut [u8]) -> Result<Option<Vec<u8>>, ()>,
    ) -> Result<bool, Error> {
        match self.get(keyspace, key)? {
            Some(value) if predicate(value) => {}
            _ => return Ok(false),
        }
        if !self.begin_update(keyspace, key)? {
            return Ok(false);
        }
        // A panic in the callback is handled like an error.
        let staged = AbortOnDrop(self);
        let store = &mut *staged.0;
        let length = store.staged_value().len();
        match update(store.staged_value()) {
            Ok(None) => store.finish(length)?,
            Ok(Some(bytes)) => {
                store.resize_update(bytes.len())?;
                store.staged_value().copy_from_slice(&bytes);
                store.finish(bytes.len())?
            }
            Err(()) => return Err(Error::Aborted),
        };
        Ok(true)
    }

    /// The result of opening.
    #[must_use]
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// Sizes and states.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats {
            count: (self.index_len() as u64)
                .saturating_sub(self.count(KEYSPACE_ENGINE) + self.clears.dead),
            live_bytes: self.log.live_bytes(),
            file_bytes: self.log.file_bytes(),
            memory_bytes: self.log.memory_bytes(),
            segments: self.log.segments() as u64,
            next_frame: self.log.next_frame(),
            next_version: self.next_version,
            poisoned: self.poisoned,
            pending_bytes: self.log.batch_bytes() as u64,
            index_bytes: self.index_bytes() as u64,
            index_file_bytes: self.log.index_bytes(),
            evictions: self.log.evictions(),
            budget_bytes: self.log.budget() as u64,
            unswept: self.clears.dead,
        }
    }

    /// The hash of a key.
    #[inline]
    #[must_use]
    pub fn hash(&self, keyspace: u32, key: &[u8]) -> u32 {
        self.key_hash.hash(keyspace, key)
    }

    /// Looks up a key. Programs read a key and then write it, so the record found last is tried first,
    /// without hash or probe.
    #[inline(always)]
    fn find(&mut self, keyspace: u32, key: &[u8]) -> Result<Option<Located>, Error> {
        self.find_for(keyspace, key, AccessKind::Own)
    }

    #[inline(always)]
    fn find_for(
        &mut self,
        keyspace: u32,
        key: &[u8],
        access: AccessKind,
    ) -> Result<Option<Located>, Error> {
        // The record is marked as seen by a view only if its key is the requested one: a marked record
        // cannot be changed in place for the rest of the turn.
        if let Some(addr) = self.last.and_then(|last| self.log.resident_addr(last)) {
            let record = self.log.record_in(addr);
            if same_bytes(record.key, key) && record.header.keyspace() == keyspace {
                self.log.touch_for(addr, access);
                return Ok(self.last.map(|position| Located { position, addr }));
            }
        }
        if keyspace > LAST_KEYSPACE {
            return self.find_then(keyspace, key, access);
        }
        let found = self.probe(self.hash(keyspace, key), keyspace, key, access)?;
        self.last = found.map(|at| at.position);
        Ok(found)
    }

    /// Looks up a key for callers that do not need an inlined copy of the lookup.
    #[inline(never)]
    fn find_outlined(
        &mut self,
        hash: u32,
        keyspace: u32,
        key: &[u8],
    ) -> Result<Option<Located>, Error> {
        if keyspace > LAST_KEYSPACE {
            return self.find_then(keyspace, key, AccessKind::Own);
        }
        let found = self.probe(hash, keyspace, key, AccessKind::Own)?;
        self.check_kind(found)
    }

    /// As [`find_outlined`](Store::find_outlined), only in what is loaded of the index.
    fn find_loaded(
        &mut self,
        hash: u32,
        keyspace: u32,
        key: &[u8],
    ) -> Result<Option<Located>, Error> {
        let found = self.probe_loaded(hash, keyspace, key, AccessKind::Own)?;
        self.check_kind(found)
    }

    /// Looks up a key in what is loaded of the index.
    #[inline(never)]
    fn probe_loaded(
        &mut self,
        hash: u32,
        keyspace: u32,
        key: &[u8],
        access: AccessKind,
    ) -> Result<Option<Located>, Error> {
        self.probe_index::<false>(hash, keyspace, key, access)
    }

    fn check_kind(&self, found: Option<Located>) -> Result<Option<Located>, Error> {
        // Only a malformed checkpoint leads to a record of a kind that no key can have.
        let is_dead = |at: &Located| !self.log.record_in(at.addr).header.can_be_current();
        if found.as_ref().is_some_and(is_dead) { Err(damaged(0)) } else { Ok(found) }
    }

    #[inline(always)]
    fn probe(
        &mut self,
        hash: u32,
        keyspace: u32,
        key: &[u8],
        access: AccessKind,
    ) -> Result<Option<Located>, Error> {
        self.probe_index::<true>(hash, keyspace, key, access)
    }

    /// Looks up a key in the index; what is not loaded of it `LOADS` when it is needed.
    #[inline(always)]
    fn probe_index<const LOADS: bool>(
        &mut self,
        hash: u32,
        keyspace: u32,
        key: &[u8],
        access: AccessKind,
    ) -> Result<Option<Located>, Error> {
        let mut probe = self.index.probe(hash);
        let mut failed = Ok(None);
        while let Some(position) = self.index.next(&mut probe) {
            let addr = match self.log.load_record(&mut self.file, position, access) {
                Ok(addr) => addr,
                // It may be a dead record of a cleared keyspace in front of the live one.
                Err(error @ Error::Corruption(_)) if self.clears.may_have_dead => {
                    failed = Err(error);
                    continue;
                }
                Err(error) => return Err(error),
            };
            if access == AccessKind::View {
                // Its value is prefetched together with its header.
                core::hint::black_box(self.log.prefetch(addr));
            }
            let Some(record) = self.log.get(addr) else { return Err(damaged(0)) };
            if same_bytes(record.key, key)
                && record.header.keyspace() == keyspace
                && !self.is_cleared(record.header)
            {
                return Ok(Some(Located { position, addr }));
            }
        }
        if LOADS
            && self.unloaded.is_some()
            && let Some(found) = self.probe_unloaded(hash, keyspace, key, access)?
        {
            return Ok(Some(found));
        }
        failed
    }

    /// The fields of a record that its successor needs.
    #[inline]
    fn predecessor(&self, at: Located) -> Predecessor {
        let record = self.log.record_in(at.addr);
        let (oldest, size) = (record.header.oldest, record.header.size() as u32);
        let is_chunked = record.header.kind == KIND_CHUNKED;
        let expiry = record.header.expiry;
        Predecessor { position: at.position, oldest, size, expiry, is_chunked }
    }

    fn take_version(&mut self) -> u64 {
        let version = self.next_version;
        self.next_version += 1;
        version
    }

    fn check_write(&self, keyspace: u32, key: &[u8]) -> Result<(), Error> {
        self.check_writable()?;
        match key.len() {
            _ if keyspace > LAST_KEYSPACE => Err(Error::Misuse),
            0 => Err(Error::EmptyKey),
            n if n > MAX_KEY => Err(Error::KeyTooLong),
            _ => Ok(()),
        }
    }

    #[inline]
    fn check_writable(&self) -> Result<(), Error> {
        if self.poisoned {
            return Err(if self.file.is_lost() { Error::Lost } else { Error::Poisoned });
        }
        if self.read_only {
            return Err(Error::ReadOnly);
        }
        if !matches!(self.staging.staged, Staged::Nothing) {
            return Err(Error::Reentrancy);
        }
        Ok(())
    }

    /// Values above [`MAX_VALUE`] are refused. Large ones below it lie in an extent or in chunks.
    fn check_value(length: usize) -> Result<(), Error> {
        if length > MAX_VALUE { Err(Error::ValueTooLong) } else { Ok(()) }
    }

    /// Moves the index entry of a key from `old` to `new`, for the `size` bytes that were appended at
    /// `appended`, and stores how to undo that.
    #[inline]
    fn reindex(
        &mut self,
        hash: u32,
        old: Option<Predecessor>,
        appended: Position,
        size: u32,
        new: Option<Position>,
    ) {
        let (mut oldest, mut superseded_size) = (0, 0);
        if let Some(old) = old {
            (oldest, superseded_size) = (old.oldest, old.size);
            self.log.record_superseded(old.position, superseded_size);
            self.log.remove_extent_reference(old.position);
        }
        match new {
            Some(new) => self.log.record_added(new, size),
            None => {
                let newest = old.map_or(UNKNOWN, |old| self.log.sequence_of(old.position));
                self.log.tombstone_added(appended, size, oldest, newest);
                self.log.deletion_added(appended);
            }
        }
        let old = old.map(|old| old.position);
        if !self.snapshots.is_empty() {
            self.note_change(appended, old);
        }
        self.undo.push(Undo {
            hash,
            old,
            new,
            appended,
            added_size: size,
            superseded_size,
            moved: false,
        });
        self.move_in_index(hash, old, new, appended);
    }

    /// Reverts the live accounting of one change.
    fn undo_accounting(&mut self, undo: &Undo) {
        match (undo.new, undo.old) {
            (Some(new), Some(old)) if undo.moved => self.log.move_extent_reference(new, old),
            (Some(new), _) => self.log.undo_extent_reference(new),
            _ => {}
        }
        match undo.new {
            Some(new) => self.log.record_superseded(new, undo.added_size),
            None => self.log.tombstone_removed(undo.appended, undo.added_size),
        }
        if let Some(old) = undo.old {
            self.log.record_added(old, undo.superseded_size);
            if !undo.moved {
                self.log.restore_extent_reference(old);
            }
        }
    }

    /// Moves a key in the index. `record` is resident and contains the key.
    fn move_in_index(
        &mut self,
        hash: u32,
        old: Option<Position>,
        new: Option<Position>,
        record: Position,
    ) {
        self.last = new;
        if self.unloaded.is_some() {
            self.prepare_change(hash, old, new);
        }
        if let Job::Checkpointing(job) = &mut self.maintenance.job {
            job.record_change(&self.log, Change { hash, old, new });
        }
        let is_sorted =
            |at: Option<Position>| at.is_some_and(|at| at < self.sorted_keys.sorted_below);
        let (mut was, is) = (is_sorted(old), is_sorted(new));
        if let Some(old) = old
            && !self.sorted_keys.unreadable.is_empty()
        {
            was &= !self.sorted_keys.forget_unreadable(old);
        }
        if let (Some(old), Some(new)) = (old, new) {
            self.index.replace(hash, old, new);
            if was == is {
                return;
            }
        }
        let record = self.log.record_at(record);
        let (keyspace, key) = (record.header.keyspace(), record.key);
        let space = self.keyspaces.entry(keyspace);
        match (old, new) {
            (None, Some(new)) => {
                self.index.insert(hash, new);
                space.count += 1;
            }
            (Some(old), None) => {
                self.index.remove(hash, old);
                // A malformed checkpoint may have given a smaller count.
                space.count = space.count.saturating_sub(1);
            }
            _ => {}
        }
        if let Some(new) = new.filter(|_| is && !was) {
            self.sorted_keys.key_changed(space, key, Some(new));
        } else if was && !is {
            self.sorted_keys.key_changed(space, key, None);
        }
    }
}

/// A record that was looked up. Its address is valid until the pool hands out another buffer.
#[derive(Clone, Copy, Debug, Default)]
struct Located {
    position: Position,
    addr: BufferAddr,
}

/// A record that is being replaced, with the fields that its successor needs.
#[derive(Clone, Copy, Debug)]
struct Predecessor {
    position: Position,
    oldest: u32,
    /// Bytes of the record.
    size: u32,
    expiry: u32,
    is_chunked: bool,
}

/// Compares short keys without a call: `memcmp` costs more than the comparison. Keys are compared from
/// their ends because most share a prefix.
#[inline(always)]
fn same_bytes(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let (mut x, mut y) = (a.rchunks_exact(4), b.rchunks_exact(4));
    let word = |bytes: &[u8]| bytes.try_into().map_or(0, u32::from_le_bytes);
    x.by_ref().zip(y.by_ref()).all(|(x, y)| word(x) == word(y))
        && x.remainder().iter().zip(y.remainder()).all(|(x, y)| x == y)
}

/// Aborts a staged record that was not finished, restoring every byte.
struct AbortOnDrop<'a, F: File>(&'a mut Store<F>);

impl<F: File> Drop for AbortOnDrop<'_, F> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
