//! Paging the index: loading entries from the checkpoint when they are needed, and evicting those that the memory for
//! the index cannot hold.

use alloc::vec::Vec;

use crate::error::Error;
use crate::file::File;
use crate::format::checkpoint::BLOCK_ENTRIES;
use crate::index::Position;
use crate::index::hash_index::HashIndex;
use crate::index::keyspaces::Keyspaces;
use crate::log::Log;
use crate::log::buffer_pool::{AccessKind, ViewCallbacks};
use crate::log::checkpoint_index::{CheckpointIndex, index_exceeds_memory};
use crate::log::recovery::{OnDamage, OpenMode};

use super::clear::Clears;
use super::maintenance_jobs::Job;
use super::sorted_keys::SortedKeys;
use super::{Located, Store, same_bytes};

impl<F: File> Store<F> {
    /// How many entries the index has when it is complete.
    #[must_use]
    pub(super) fn index_len(&self) -> usize {
        self.index.len() + self.unloaded.as_ref().map_or(0, |unloaded| unloaded.unloaded_len())
    }

    /// Looks up a key that is not in what is loaded of the index.
    #[cold]
    #[inline(never)]
    pub(super) fn probe_unloaded(
        &mut self,
        hash: u32,
        keyspace: u32,
        key: &[u8],
        access: AccessKind,
    ) -> Result<Option<Located>, Error> {
        let expected = core::mem::take(&mut self.expected);
        // Whatever fails here is tried again. The position may have become one within another record.
        if self.is_current(expected)
            && let Ok(addr) = self.log.load_record(&mut self.file, expected, access)
            && let Some(record) = self.log.get(addr)
            && same_bytes(record.key, key)
            && record.header.keyspace() == keyspace
            && !self.is_cleared(record.header)
        {
            return Ok(Some(Located { position: expected, addr }));
        }
        let may_contain = self.unloaded.as_ref().is_some_and(|unloaded| unloaded.may_contain(hash));
        match may_contain && self.load_hash(hash)? {
            true => self.probe_loaded(hash, keyspace, key, access),
            false => Ok(None),
        }
    }

    /// Loads the entries with a hash. Returns whether there may be some.
    ///
    /// # Errors
    /// As for [`load_blocks`](Store::load_blocks).
    pub(super) fn load_hash(&mut self, hash: u32) -> Result<bool, Error> {
        let Store { file, log, unloaded, .. } = self;
        let Some(unloaded) = unloaded else { return Ok(false) };
        let Some(found) = unloaded.find(file, log, hash)? else {
            self.rebuild_index()?;
            return Ok(true);
        };
        if found > 0 {
            self.make_space(found, hash)?;
            let Store { index, unloaded, maintenance, .. } = self;
            if let Some(unloaded) = unloaded {
                unloaded.move_found(index, maintenance.job.next_checkpoint_index(), hash);
            }
        }
        self.load_ahead();
        Ok(found > 0)
    }

    /// Loads further blocks if many were read for one lookup each: a caller that looks up many keys will need most
    /// blocks.
    fn load_ahead(&mut self) {
        let Store { file, log, index, unloaded, maintenance, .. } = self;
        let Some(unloaded) = unloaded else { return };
        if unloaded.reads() <= READS_BEFORE_LOADING {
            return;
        }
        let is_limited = unloaded.is_limited();
        if is_limited && unloaded.is_surveyed() {
            return;
        }
        let growth = match is_limited {
            true => unloaded.bytes_to_survey(log),
            false => index.growth_bytes(BLOCKS_PER_READ * BLOCK_ENTRIES),
        };
        if growth > 0 && !log.can_allocate(growth) {
            return;
        }
        let checkpoint = maintenance.job.next_checkpoint_index();
        let done = match is_limited {
            true => unloaded.survey(file, log, index, BLOCKS_PER_READ),
            false => unloaded.load_next(file, log, index, checkpoint, BLOCKS_PER_READ),
        };
        match done {
            Ok(Some(false)) if !is_limited => self.unloaded = None,
            Ok(Some(_)) => {}
            // Lookups in other blocks go on.
            Ok(None) | Err(_) => unloaded.forget_reads(),
        }
    }

    /// Makes space in the hash index for so many entries that are loaded, with a hash that none may be evicted of.
    ///
    /// # Errors
    /// [`Error::ViewsHeld`] if memory would have to grow although views must stay.
    fn make_space(&mut self, entries: usize, hash: u32) -> Result<(), Error> {
        let free = self.free_entries();
        if free >= entries {
            return Ok(());
        }
        if self.is_limited() {
            let growth = self.index_growth(entries);
            if growth > 0 && self.log.can_allocate(growth) {
                self.grow_limited(entries);
                return Ok(());
            }
            self.evict(entries - free + EVICTED_AHEAD, hash);
        }
        let growth = self.index.growth_bytes(entries);
        if growth > 0 && !self.log.can_allocate(growth) {
            return Err(Error::ViewsHeld);
        }
        self.index.reserve(entries);
        Ok(())
    }

    /// How many entries the table has space for.
    fn free_entries(&self) -> usize {
        self.index.capacity().saturating_sub(self.index.len())
    }

    /// Makes space for one entry in a limited table, which grows if so few can be evicted that the search would be
    /// long.
    fn make_space_for_one(&mut self, hash: u32) {
        if self.index_growth(1) > 0 {
            self.grow_limited(1);
        } else if self.free_entries() == 0 {
            self.evict(EVICTED_AHEAD, hash);
        }
    }

    /// Doubles a limited table at least once, for so many entries more.
    fn grow_limited(&mut self, entries: usize) {
        self.index.reserve(entries.max(self.free_entries() + 1));
    }

    /// Checks that so many entries can be loaded without growing memory under views that must stay.
    ///
    /// # Errors
    /// [`Error::ViewsHeld`].
    pub(super) fn check_limited_growth(&self, entries: usize) -> Result<(), Error> {
        let growth = if self.is_limited() { self.index_growth(entries) } else { 0 };
        if growth > 0 && !self.log.can_allocate(growth) { Err(Error::ViewsHeld) } else { Ok(()) }
    }

    /// Evicts entries other than those with a hash, if the index is limited.
    fn evict(&mut self, wanted: usize, hash: u32) {
        let Store { log, index, unloaded, maintenance, .. } = self;
        if let Some(unloaded) = unloaded.as_mut().filter(|unloaded| unloaded.is_limited()) {
            unloaded.evict(log, index, maintenance.job.next_checkpoint_index(), wanted, Some(hash));
        }
    }

    /// Bytes of the larger hash index that so many new entries would allocate, together with those that lookups
    /// load; 0 if its space suffices.
    #[inline]
    pub(super) fn index_growth(&self, entries: usize) -> usize {
        match &self.unloaded {
            None => self.index.growth_bytes(entries),
            Some(unloaded) if unloaded.is_limited() => {
                let capacity = self.index.capacity();
                let is_short = unloaded.recent() + entries + evictable(capacity) > capacity;
                if is_short { self.index.slot_bytes() * 2 } else { 0 }
            }
            Some(unloaded) => self.index.growth_bytes(entries + unloaded.unloaded_len()),
        }
    }

    /// Whether the hash index may soon grow.
    pub(super) fn nears_growth(&self) -> bool {
        match &self.unloaded {
            Some(unloaded) if unloaded.is_limited() => self.index_growth(unloaded.recent() / 8) > 0,
            _ => self.index.nears_growth(),
        }
    }

    /// Before an entry changes, while the index lacks some: the old one must be there, and space for a new one.
    #[cold]
    #[inline(never)]
    pub(super) fn prepare_change(
        &mut self,
        hash: u32,
        old: Option<Position>,
        new: Option<Position>,
    ) {
        if let Some(old) = old {
            self.take_entry(hash, old);
        } else if new.is_some() {
            match &self.unloaded {
                Some(unloaded) if unloaded.is_limited() => self.make_space_for_one(hash),
                // Lookups that load entries must not grow the table.
                Some(unloaded) => _ = self.index.reserve(1 + unloaded.unloaded_len()),
                None => {}
            }
        }
        let Store { log, unloaded, .. } = self;
        if let Some(unloaded) = unloaded {
            unloaded.entry_changed(log, old, new);
        }
    }

    /// Ensures that the hash index has an entry that is known to count.
    pub(super) fn take_entry(&mut self, hash: u32, position: Position) {
        if self.unloaded.is_none() || self.index.contains(hash, position) {
            return;
        }
        if self.is_limited() && self.free_entries() == 0 {
            self.make_space_for_one(hash);
        }
        let Store { index, unloaded, maintenance, .. } = self;
        if let Some(unloaded) = unloaded {
            unloaded.take(position);
            index.insert(hash, position);
            if let Some(next) = maintenance.job.next_checkpoint_index() {
                next.take(position);
            }
        }
    }

    /// Removes an entry that counts from the index.
    pub(super) fn remove_entry(&mut self, hash: u32, position: Position) {
        self.take_entry(hash, position);
        self.index.remove(hash, position);
        // Another record may lie there later.
        self.sorted_keys.forget_unreadable(position);
        let Store { log, unloaded, .. } = self;
        if let Some(unloaded) = unloaded {
            unloaded.entry_changed(log, Some(position), None);
        }
    }

    /// Whether a record is that of a key. The [positions](Store::load_or_survey) are known.
    #[inline]
    pub(super) fn is_live(&self, hash: u32, position: Position) -> bool {
        match self.is_limited() {
            true => self.index.contains_position(position),
            false => self.index.contains(hash, position),
        }
    }

    /// Whether the hash index is limited and lacks entries.
    #[inline]
    pub(super) fn is_limited(&self) -> bool {
        self.unloaded.as_ref().is_some_and(|unloaded| unloaded.is_limited())
    }

    /// Whether maintenance has to load or survey blocks of the checkpoint.
    pub(super) fn wants_index_loading(&self) -> bool {
        let unloaded = self.unloaded.as_ref();
        unloaded.is_some_and(|unloaded| !unloaded.is_limited() || !unloaded.is_surveyed())
    }

    /// Whether so many entries changed since the checkpoint that the memory for the index cannot hold them.
    pub(super) fn has_many_recent(&self) -> bool {
        let most = self.index_memory / 16;
        let most = most.max(self.index_len() / 16).max(MIN_RECENT);
        let has_many = match &self.unloaded {
            Some(unloaded) if unloaded.is_limited() => unloaded.recent() > most,
            Some(_) => false,
            None => self.index_exceeds_memory(),
        };
        has_many && !self.read_only && !self.log.is_full()
    }

    /// Whether the whole index takes more than the memory for it.
    pub(super) fn index_exceeds_memory(&self) -> bool {
        let entries = self.index_len();
        entries > self.load_at_once
            && index_exceeds_memory(entries, self.is_limited(), self.index_memory)
    }

    /// Whether the table of a limited index takes more than the memory for it, and needs not.
    pub(super) fn wants_smaller_table(&self) -> bool {
        let unloaded = self.unloaded.as_ref().filter(|unloaded| unloaded.is_limited());
        unloaded.is_some_and(|unloaded| {
            let capacity = HashIndex::capacity_of(self.index_memory);
            self.index.exceeds(self.index_memory) && unloaded.recent() <= capacity / 2
        })
    }

    /// Evicts some of what a smaller table has no space for, or moves the rest to it.
    pub(super) fn shrink_table(&mut self) {
        let capacity = HashIndex::capacity_of(self.index_memory);
        let excess = self.index.len().saturating_sub(capacity - evictable(capacity));
        if excess == 0 {
            return self.index.shrink_to(self.index_memory);
        }
        let Store { log, index, unloaded, .. } = self;
        let Some(unloaded) = unloaded else { return };
        let wanted = excess.min(EVICTED_PER_STEP);
        if unloaded.evict(log, index, None, wanted, None) < wanted {
            unloaded.mark_all_recent(index);
        }
    }

    /// Loads the next blocks of the checkpoint, or learns their positions if the index is limited. Returns whether
    /// there are more.
    ///
    /// # Errors
    /// As for [`load_blocks`](Store::load_blocks).
    pub(super) fn load_or_survey(&mut self, blocks: usize) -> Result<bool, Error> {
        let Store { file, log, index, unloaded, .. } = self;
        let Some(unloaded) = unloaded else { return Ok(false) };
        if !unloaded.is_limited() {
            return self.load_blocks(blocks);
        }
        if !unloaded.is_surveyed() && !log.can_allocate(unloaded.bytes_to_survey(log)) {
            return Err(Error::ViewsHeld);
        }
        match unloaded.survey(file, log, index, blocks)? {
            Some(more) => Ok(more),
            None => self.rebuild_index().map(|()| false),
        }
    }

    /// Takes over the entry of the record that a replayed one replaced, without reading the checkpoint: the log
    /// says where that was.
    #[inline]
    pub(super) fn load_predecessor(&mut self, hash: u32, previous: Position) {
        if previous != 0
            && let Some(unloaded) = &mut self.unloaded
            && unloaded.must_contain(&self.log, previous)
        {
            unloaded.take(previous);
            self.index.insert(hash, previous);
        }
    }

    /// Loads the next blocks of the checkpoint. Returns whether there are more.
    ///
    /// # Errors
    /// An error of the file, or of a replay if a block is damaged; [`Error::ViewsHeld`] if memory would have to grow
    /// although views must stay.
    #[inline(never)]
    pub(super) fn load_blocks(&mut self, blocks: usize) -> Result<bool, Error> {
        let bytes = HashIndex::bytes_for(self.index_len());
        let Store { file, log, index, unloaded, maintenance, .. } = self;
        let Some(unloaded) = unloaded else { return Ok(false) };
        if bytes > index.slot_bytes() && !log.can_allocate(2 * bytes) {
            return Err(Error::ViewsHeld);
        }
        let checkpoint = maintenance.job.next_checkpoint_index();
        match unloaded.load_next(file, log, index, checkpoint, blocks)? {
            Some(true) => return Ok(true),
            Some(false) => self.unloaded = None,
            None => self.rebuild_index()?,
        }
        Ok(false)
    }

    /// Completes the index.
    ///
    /// # Errors
    /// As for [`load_blocks`](Store::load_blocks).
    pub(super) fn load_all(&mut self) -> Result<(), Error> {
        self.load_blocks(usize::MAX).map(|_| ())
    }

    /// Completes the index without the checkpoint, of which a part is damaged: replays the log up to where the
    /// checkpoint was taken.
    #[cold]
    #[inline(never)]
    pub(super) fn rebuild_index(&mut self) -> Result<(), Error> {
        // A replay takes memory, which grows between turns and not under views that are held.
        let bytes = REPLAY_SEGMENTS * self.log.geometry().segment() + 32 * self.index_len();
        if !self.log.can_allocate(bytes) {
            return Err(Error::ViewsHeld);
        }
        let Some(unloaded) = self.unloaded.take() else { return Ok(()) };
        // What is replayed is no change of the index.
        let mut job = core::mem::take(&mut self.maintenance.job);
        let rebuilt = self.take_from_log(&unloaded);
        if rebuilt.is_err() {
            self.unloaded = Some(unloaded);
        } else if let Job::Checkpointing(job) = &mut job {
            job.unloaded = None;
        }
        self.maintenance.job = job;
        rebuilt
    }

    fn take_from_log(&mut self, unloaded: &CheckpointIndex) -> Result<(), Error> {
        let mode = OpenMode {
            read_only: true,
            on_damage: OnDamage::Refuse,
            below: unloaded.frame(),
            fresh_segment: false,
            load_at_once: None,
            index_memory: self.index_memory,
            keeps_history: None,
        };
        let geometry = self.log.geometry();
        let (log2, memory) = (geometry.segment_log2, REPLAY_SEGMENTS * geometry.segment());
        let views = ViewCallbacks::default();
        let opened = Log::open(&mut self.file, log2, &[0; 4], memory, views, mode)?;
        let mut replayed = Replayed {
            log: opened.log,
            index: HashIndex::default(),
            keyspaces: Keyspaces::default(),
            sorted_keys: SortedKeys::default(),
            clears: Clears::default(),
            next_version: 1,
        };
        self.swap(&mut replayed);
        let done = self.replay_below(mode);
        self.swap(&mut replayed);
        done?;
        let mut entries = Vec::with_capacity(replayed.index.len());
        replayed.index.collect(0, u32::MAX, &mut entries);
        // Nothing is inserted before all of it is known: after an error the entries are still unloaded.
        let mut missing = Vec::with_capacity(unloaded.unloaded_len());
        for (hash, position) in entries {
            if unloaded.is_unloaded(hash, position)
                && !(replayed.clears.may_have_dead
                    && self.was_swept(position, &replayed.keyspaces)?)
            {
                missing.push((hash, position));
            }
        }
        for (hash, position) in missing {
            self.index.insert(hash, position);
        }
        self.log.mark_checkpoint_damaged();
        Ok(())
    }

    /// Exchanges what a replay changes.
    fn swap(&mut self, other: &mut Replayed) {
        core::mem::swap(&mut self.log, &mut other.log);
        core::mem::swap(&mut self.index, &mut other.index);
        core::mem::swap(&mut self.keyspaces, &mut other.keyspaces);
        core::mem::swap(&mut self.sorted_keys, &mut other.sorted_keys);
        core::mem::swap(&mut self.clears, &mut other.clears);
        core::mem::swap(&mut self.next_version, &mut other.next_version);
        self.last = None;
    }

    /// Replays the frames below a number into an empty index.
    fn replay_below(&mut self, mode: OpenMode) -> Result<(), Error> {
        let mut walk = self.log.begin_walk(None);
        while self.log.walk_segment(&mut self.file, &mut walk)? {}
        let recovered = self.log.end_walk(&mut self.file, walk, mode)?;
        match recovered.damage {
            Some(damage) if damage.expected_frame < mode.below => Err(damage.into()),
            // All frames are there, and those after them were left out.
            _ => self.replay(&recovered.frames),
        }
    }

    /// Whether a record belonged to a keyspace that was cleared, and was removed from the index by a sweep
    /// that the log does not record.
    fn was_swept(&mut self, position: Position, cleared: &Keyspaces) -> Result<bool, Error> {
        let (_, record) = self.log.scan_record(&mut self.file, position)?;
        let (keyspace, version) = (record.header.keyspace(), record.header.version);
        let is_cleared = cleared.has_cleared(keyspace, version);
        Ok(is_cleared && !self.keyspaces.has_cleared(keyspace, version))
    }
}

/// Lookups read this many blocks, one each, before any others are loaded.
const READS_BEFORE_LOADING: usize = 64;
/// After that, each lookup that reads a block also loads so many of the rest, until all are loaded.
const BLOCKS_PER_READ: usize = 4;
/// Entries that are evicted beyond those needed, so that the next lookups need not evict.
const EVICTED_AHEAD: usize = 8;
/// Entries that one maintenance step evicts for a smaller table.
const EVICTED_PER_STEP: usize = 4096;
/// A checkpoint is not worth its flushes for fewer recent entries than these.
const MIN_RECENT: usize = 64;

/// How many entries of a limited table may be evicted at least, so that the search for one is short.
const fn evictable(capacity: usize) -> usize {
    capacity / 8 + 1
}

/// Segments that may be in memory for a replay while the store is open.
const REPLAY_SEGMENTS: usize = 4;

/// What a replay changes.
struct Replayed {
    log: Log,
    index: HashIndex,
    keyspaces: Keyspaces,
    sorted_keys: SortedKeys,
    clears: Clears,
    next_version: u64,
}
