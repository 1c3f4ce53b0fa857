//! Opening: builds the index from the valid frames.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;

use crate::error::{Damage, Error, damaged};
use crate::file::File;
use crate::format::checkpoint::CheckpointHead;
use crate::format::record::RecordHeader;
use crate::format::record::{self, KIND_CHUNKED, KIND_CLEAR, KIND_DELETE, KIND_EXTENT, KIND_SET};
use crate::format::system_records::ExtentRef;
use crate::format::{frame, segment};
use crate::index::Position;
use crate::index::hash_index::KeyHash;
use crate::index::ordered_index::Key;
use crate::log::Log;
use crate::log::frame_chain::FrameAt;
use crate::log::recovery::{OnDamage, OpenMode, Opened, Recovered, Recovery};
use crate::log::space_accounting::ExtentId;
use crate::log::tombstones::UNKNOWN;

use super::history::Forgotten;
use super::snapshots::Snapshots;
use super::sorted_keys::{ALL_SORTED, SortedKeys};
use super::{Clears, Expiry, Maintenance, Options, Staging, Store};

/// After an unclean end versions skip this many, so that a version that was seen before the crash is never
/// reused for other bytes: a lost tail may leave no trace.
const VERSION_JUMP: u64 = 1 << 32;
/// Above this version, reached after nearly two million such openings, they skip fewer. A program that
/// never closes thus keeps versions that JavaScript's numbers represent exactly, for a billion more
/// openings.
const MANY_VERSIONS: u64 = 7 << 50;
const LATE_JUMP: u64 = 1 << 20;

/// Records whose index entries are prefetched together.
const BATCH: usize = 256;

/// The next records of a segment, which stays in memory meanwhile.
#[derive(Default)]
struct Batch {
    hashes: Vec<u32>,
    records: Vec<(Position, RecordHeader)>,
}

impl<F: File> Store<F> {
    /// Opens the database in `file`, creating it in an empty file.
    ///
    /// # Errors
    /// [`Error::NotADatabase`], [`Error::UnsupportedFormat`], [`Error::Corruption`] if flushed data
    /// is damaged (nothing is written then), or an error of the file.
    pub fn open(file: F, options: Options) -> Result<Self, Error> {
        Store::open_or_return(file, options).map_err(|(_, error)| error)
    }

    /// As [`open`](Store::open); returns the file when it fails.
    ///
    /// # Errors
    /// As for [`open`](Store::open).
    pub fn open_or_return(mut file: F, options: Options) -> Result<Self, (F, Error)> {
        let mut below = u64::MAX;
        loop {
            match Store::open_below(file, &options, below) {
                Ok(store) => return Ok(store),
                Err((back, _, end)) if end < below => (file, below) = (back, end),
                Err((back, error, _)) => return Err((back, error)),
            }
        }
    }

    /// Opens the content of the frames below a number. An error comes with the number below which opening
    /// may succeed.
    fn open_below(mut file: F, options: &Options, below: u64) -> Result<Self, (F, Error, u64)> {
        let Options { read_only, on_damage, fresh_segment, index_memory, keeps_history, .. } =
            *options;
        // A damaged file is read as a whole anyway.
        let at_once = if on_damage == OnDamage::Refuse { options.load_at_once } else { usize::MAX };
        let mode = OpenMode {
            read_only,
            on_damage,
            below,
            fresh_segment,
            load_at_once: Some(at_once),
            index_memory,
            keeps_history,
        };
        let Options { segment_log2, ref entropy, memory, views, .. } = *options;
        let opened = Log::open(&mut file, segment_log2, entropy, memory, views, mode);
        let opened = match opened {
            Ok(opened) => opened,
            Err(error) => return Err((file, error, u64::MAX)),
        };
        let Opened { log, checkpoint, created } = opened;
        let head = checkpoint.as_ref().map(|loaded| loaded.head);
        let mut runs = None;
        let (index, keyspaces, unloaded) = checkpoint.map_or_else(Default::default, |loaded| {
            runs = loaded.runs;
            (loaded.index, loaded.keyspaces, loaded.unloaded)
        });
        let key_hash = KeyHash::new(log.hash_seed());
        let mut store = Store {
            file,
            log,
            index,
            unloaded: unloaded.map(Box::new),
            memory,
            load_at_once: options.load_at_once,
            index_memory,
            key_hash,
            last: None,
            expected: 0,
            keyspaces,
            ordered: options.ordered,
            clears: Clears::default(),
            expiry: Expiry::default(),
            sorted_keys: SortedKeys::default(),
            next_version: head.map_or(1, |head| head.next_version),
            undo: Vec::new(),
            savepoints: Vec::new(),
            staging: Staging::default(),
            pins: Vec::new(),
            snapshots: Snapshots::default(),
            recovery: Recovery { created, ..Recovery::default() },
            maintenance: Maintenance::default(),
            forgotten: Forgotten::default(),
            last_commit: 0,
            read_only: options.read_only,
            poisoned: false,
            unflushed: false,
        };
        store.log.set_factor(options.factor.clamp(120, 300));
        store.load_clears();
        store.load_key_runs(head.is_some(), runs, options);
        match store.recover(head, mode, options) {
            Ok(None) => {
                store.begin_history();
                store.log.expose_views();
                Ok(store)
            }
            Ok(Some((position, end))) => {
                let error = store.lost_extent_error(position);
                Err((store.file, error, end))
            }
            Err(error) => Err((store.file, error, u64::MAX)),
        }
    }

    /// Walks the frames and replays the valid ones. Returns the position of a damaged extent, and the
    /// number of a frame before which the log may be complete.
    fn recover(
        &mut self,
        head: Option<CheckpointHead>,
        mode: OpenMode,
        options: &Options,
    ) -> Result<Option<(u64, u64)>, Error> {
        let mut walk = self.log.begin_walk(head);
        let (mut replayed, mut done) = (Ok(()), 0);
        while self.log.walk_segment(&mut self.file, &mut walk)? {
            // Replayed while the segment is in memory.
            let end = walk.certain_frames(done, mode);
            if replayed.is_ok() {
                replayed = self.replay(&walk.frames()[done..end]);
            }
            done = end;
        }
        let recovered = self.log.end_walk(&mut self.file, walk, mode)?;
        let Recovered { frames, extents, recovery, damage } = recovered;
        self.recovery = Recovery { created: self.recovery.created, ..recovery };
        self.unflushed = !mode.read_only && !recovery.clean;
        if replayed.is_ok() {
            replayed = self.replay(&frames[done..]);
        }
        let lost = self.complete(replayed, &extents, damage, options)?;
        Ok(lost.map(|(record, position)| {
            // The log may be complete before the commit that refers to this extent.
            let (slot, offset) = self.log.geometry().locate(record);
            let found = frames.iter().find(|frame| frame.contains(slot, offset));
            let ends = found.filter(|_| mode.on_damage == OnDamage::Prefix);
            (position, ends.map_or(u64::MAX, FrameAt::number))
        }))
    }

    /// Completes a store after replay, if possible. Returns the position of a record whose extent is
    /// damaged, and that of the damage.
    fn complete(
        &mut self,
        replayed: Result<(), Error>,
        extents: &[(Position, ExtentRef)],
        damage: Option<Damage>,
        options: &Options,
    ) -> Result<Option<(Position, u64)>, Error> {
        let mode = options.on_damage;
        if let Some(damage) = damage {
            let is_whole = mode == OnDamage::Prefix && damage.is_prefix_whole;
            if !is_whole && mode != OnDamage::Salvage {
                let (keys, version) = (self.stats().count, self.next_version - 1);
                return Err(Damage { keys, version, ..damage }.into());
            }
        }
        replayed?;
        self.recount()?;
        self.drop_cleared_extents()?;
        self.sweep_small()?;
        self.next_version = self.next_version.max(self.log.known_version());
        if mode == OnDamage::Salvage {
            self.remove_damaged()?;
        }
        if !self.recovery.damaged || mode == OnDamage::Prefix {
            if let Some(lost) = self.find_lost_extent(extents)? {
                return Ok(Some(lost));
            }
            if let Some(position) = self.log.discard_unreferenced_extents() {
                return Err(self.lost_extent_error(position));
            }
        }
        if let (Some(damage), OnDamage::Prefix) = (damage, mode) {
            self.remove_damaged()?;
            if self.recovery.lost_keys > 0 {
                return Err(Damage { is_prefix_whole: false, ..damage }.into());
            }
        }
        if !self.recovery.clean {
            let is_early = self.next_version <= MANY_VERSIONS;
            self.next_version += if is_early { VERSION_JUMP } else { LATE_JUMP };
        }
        if self.recovery.damaged && !self.read_only {
            self.rewrite(options)?;
        }
        self.load_expiry()?;
        Ok(None)
    }

    pub(super) fn replay(&mut self, frames: &[FrameAt]) -> Result<(), Error> {
        let mut batch = Batch::default();
        for frames in frames.chunk_by(|one, next| one.slot == next.slot) {
            for &FrameAt { slot, offset, length, .. } in frames {
                self.log.load(&mut self.file, slot)?;
                let (mut offset, end) = (offset as usize + frame::SIZE, (offset + length) as usize);
                while offset < end {
                    offset = self.collect_records(slot, offset..end, &mut batch);
                    if batch.hashes.len() == BATCH {
                        self.replay_records(&mut batch)?;
                    }
                }
            }
            self.replay_records(&mut batch)?;
        }
        Ok(())
    }

    /// Collects the next records of a segment in memory, and returns the offset after them.
    fn collect_records(&self, slot: u32, range: Range<usize>, batch: &mut Batch) -> usize {
        let mut rest = &self.log.segment_bytes(slot)[range.clone()];
        while let Some((header, key, _)) = record::parts(rest)
            && batch.hashes.len() < BATCH
        {
            let position = self.log.geometry().position(slot, range.end - rest.len());
            batch.hashes.push(self.hash(header.keyspace(), key));
            batch.records.push((position, *header));
            rest = &rest[header.size()..];
        }
        range.end - rest.len()
    }

    /// Replays collected records, and clears them.
    fn replay_records(&mut self, batch: &mut Batch) -> Result<(), Error> {
        self.index.prefetch(&batch.hashes);
        for (&hash, &(position, ref header)) in batch.hashes.iter().zip(&batch.records) {
            self.replay_record(position, hash, header)?;
        }
        batch.hashes.clear();
        batch.records.clear();
        Ok(())
    }

    fn replay_record(
        &mut self,
        position: Position,
        hash: u32,
        header: &RecordHeader,
    ) -> Result<(), Error> {
        let size = header.size();
        if !matches!(header.kind, KIND_SET | KIND_EXTENT | KIND_CHUNKED | KIND_CLEAR | KIND_DELETE)
        {
            return Ok(());
        }
        self.next_version = self.next_version.max(header.version.saturating_add(1));
        // The index passes through the same states as when the log was written. So a record at the position
        // of the predecessor is the predecessor, and need not be read.
        let previous = header.previous;
        self.load_predecessor(hash, previous);
        if header.kind == KIND_SET
            && previous != 0
            && self.index.replace_if_present(hash, previous, position)
        {
            if let Some(unloaded) = &mut self.unloaded {
                unloaded.entry_changed(&self.log, Some(previous), Some(position));
            }
            self.log.record_superseded(previous, header.replaced_size());
            self.log.remove_extent_reference(previous);
            self.log.record_added(position, size as u32);
            self.last = Some(position);
            return Ok(());
        }
        if header.kind == KIND_CHUNKED {
            self.log.mark_chunked_values();
        }
        if header.kind != KIND_DELETE && self.is_cleared(header) {
            return Ok(());
        }
        let record = self.log.record_at(position);
        let extent = record.extent().map(|extent| ExtentId::from(&extent));
        let is_known = previous != 0 && self.index.contains(hash, previous);
        // A clear record takes effect once, and not again where it was moved.
        let clear = record.clear();
        let sequence = self.log.sequence_of(position);
        let was_moved = clear.is_some_and(|(_, clear)| clear.newest < sequence);
        let mut is_new = !(is_known && was_moved);
        let old = match is_known {
            true => Some((previous, header.replaced_size())),
            false => {
                let key = Key::new(record.key);
                let is_tombstone = header.kind == KIND_DELETE;
                if previous == 0 && is_tombstone && self.unloaded.is_some() {
                    self.remove_older(hash, header, &key, position)?;
                }
                // A key without a predecessor was absent, or its deletion was moved behind it. Clear records are dropped
                // without a deletion: the checkpoint may have an older one.
                let was_absent = previous == 0 && !is_tombstone && clear.is_none();
                let mut found = match was_absent {
                    true => self.find_loaded(hash, header.keyspace(), &key),
                    false => self.find_outlined(hash, header.keyspace(), &key),
                };
                if self.log.recovery_state().salvages && matches!(found, Err(Error::Corruption(_)))
                {
                    self.drop_damaged(hash)?;
                    found = self.find_outlined(hash, header.keyspace(), &key);
                }
                // The writer found no record, so the damaged one here was dead before.
                if self.clears.may_have_dead
                    && previous == 0
                    && matches!(found, Err(Error::Corruption(_)))
                {
                    found = Ok(None);
                }
                let found = found?;
                let found = found.map(|at| (at, *self.log.record_in(at.addr).header));
                self.log.load(&mut self.file, self.log.geometry().locate(position).0)?;
                match found {
                    // A moved record keeps its version and may come after a newer one.
                    Some((_, old)) if old.version > header.version => return Ok(()),
                    found => {
                        is_new = found.is_none_or(|(_, old)| old.version < header.version);
                        found.map(|(at, old)| (at.position, old.size() as u32))
                    }
                }
            }
        };
        if let Some((old, size)) = old {
            self.log.record_superseded(old, size);
            // A moved record refers to the same extent.
            if self.log.extent_of(old) == extent {
                self.log.undo_extent_reference(old);
            } else {
                self.log.remove_extent_reference(old);
            }
        }
        let new = (header.kind != KIND_DELETE).then_some(position);
        match new {
            Some(_) => self.log.record_added(position, size as u32),
            None => self.log.tombstone_added(position, size as u32, header.oldest, UNKNOWN),
        }
        if let Some(extent) = extent {
            self.log.add_extent_reference(position, extent);
        }
        self.move_in_index(hash, old.map(|(position, _)| position), new, position);
        if let Some((keyspace, _)) = clear.filter(|_| is_new) {
            self.replay_clear(header.version, keyspace, was_moved);
        }
        Ok(())
    }

    /// Removes the records of a key that a moved tombstone, at `position`, deletes: the one of the checkpoint, in
    /// place of which a later record may already be in the index.
    fn remove_older(
        &mut self,
        hash: u32,
        tombstone: &RecordHeader,
        key: &[u8],
        position: Position,
    ) -> Result<(), Error> {
        self.load_hash(hash)?;
        let mut entries = Vec::new();
        self.index.collect(hash, hash, &mut entries);
        for (_, old) in entries {
            let addr = self.log.fetch(&mut self.file, old)?;
            let Some(record) = self.log.get(addr) else { return Err(damaged(0)) };
            let (header, is_key) = (*record.header, record.key == key);
            let is_older = header.version < tombstone.version && !self.is_cleared(&header);
            if is_key && is_older && header.keyspace() == tombstone.keyspace() {
                self.log.record_superseded(old, header.size() as u32);
                self.log.remove_extent_reference(old);
                self.log.load(&mut self.file, self.log.geometry().locate(position).0)?;
                self.move_in_index(hash, Some(old), None, position);
            }
        }
        // The later record of the key is in the order, not deleted.
        if self.sorted_keys.sorted_below == ALL_SORTED
            && let Some(found) = self.find_loaded(hash, tombstone.keyspace(), key)?
        {
            let space = self.keyspaces.entry(tombstone.keyspace());
            self.sorted_keys.key_changed(space, key, Some(found.position));
        }
        self.log.load(&mut self.file, self.log.geometry().locate(position).0)
    }

    /// Verifies the extents that live records of the replayed part refer to. Returns the position of a record
    /// whose extent is damaged, and that of its value.
    fn find_lost_extent(
        &mut self,
        extents: &[(Position, ExtentRef)],
    ) -> Result<Option<(Position, u64)>, Error> {
        let referenced =
            extents.iter().filter(|(position, _)| self.log.has_extent_reference(*position));
        let bytes = referenced.map(|(_, extent)| extent.length).sum();
        self.log.set_replay_value_bytes(bytes);
        for (position, extent) in extents {
            let is_live = self.log.has_extent_reference(*position);
            if is_live && !self.log.verify_extent(&mut self.file, extent)? {
                let start = self.log.geometry().slot_start(extent.slot);
                return Ok(Some((*position, start + segment::SIZE as u64)));
            }
        }
        Ok(None)
    }

    /// The error for a live record whose extent is damaged.
    fn lost_extent_error(&self, position: u64) -> Error {
        Error::from(Damage {
            position,
            expected_frame: self.log.next_frame(),
            flushed_frames: self.log.next_frame(),
            ..Damage::default()
        })
    }
}
