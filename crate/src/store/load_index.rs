//! Loading the index from the checkpoint, after opening.

use alloc::vec::Vec;

use crate::error::Error;
use crate::file::File;
use crate::index::hash_index::{HashIndex, Position};
use crate::index::keyspaces::Spaces;
use crate::log::Log;
use crate::log::buffer_pool::{AccessKind, Views};
use crate::log::recovery::{OnDamage, OpenMode};
use crate::log::unloaded_index::UnloadedIndex;

use super::clear::Clears;
use super::key_order::KeyOrder;
use super::{Located, Store};

impl<F: File> Store<F> {
    /// How many entries the index has when it is complete.
    #[must_use]
    pub(super) fn index_len(&self) -> usize {
        self.index.len() + self.unloaded.as_ref().map_or(0, |unloaded| unloaded.left())
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
        match self.load_hash(hash)? {
            true => self.probe_loaded(hash, keyspace, key, access),
            false => Ok(None),
        }
    }

    /// Loads the entries with a hash. Returns whether there may be some.
    ///
    /// # Errors
    /// As for [`load_blocks`](Store::load_blocks).
    pub(super) fn load_hash(&mut self, hash: u32) -> Result<bool, Error> {
        let Store { file, log, index, unloaded, .. } = self;
        let Some(unloaded) = unloaded else { return Ok(false) };
        let moved = unloaded.load_hash(file, log, index, hash)?;
        if moved.is_some() && unloaded.reads() > READS_BEFORE_LOADING {
            // A caller that looks up many keys will need most blocks.
            match unloaded.load_next(file, log, index, BLOCKS_PER_READ) {
                Ok(Some(true)) => {}
                Ok(Some(false)) => self.unloaded = None,
                // Lookups in other blocks go on.
                Ok(None) | Err(_) => unloaded.forget_reads(),
            }
        }
        match moved {
            Some(moved) => return Ok(moved > 0),
            None => self.rebuild_index()?,
        }
        Ok(true)
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
    /// An error of the file, or of a replay if a block is damaged.
    #[inline(never)]
    pub(super) fn load_blocks(&mut self, blocks: usize) -> Result<bool, Error> {
        let Store { file, log, index, unloaded, .. } = self;
        let Some(unloaded) = unloaded else { return Ok(false) };
        match unloaded.load_next(file, log, index, blocks)? {
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
    fn rebuild_index(&mut self) -> Result<(), Error> {
        // A replay takes memory, which grows between turns and not under views that are held.
        let bytes = REPLAY_SEGMENTS * self.log.geometry().segment() + 32 * self.index_len();
        if !self.log.can_allocate(bytes) {
            return Err(Error::ViewsHeld);
        }
        let Some(unloaded) = self.unloaded.take() else { return Ok(()) };
        let rebuilt = self.take_from_log(&unloaded);
        if rebuilt.is_err() {
            self.unloaded = Some(unloaded);
        }
        rebuilt
    }

    fn take_from_log(&mut self, unloaded: &UnloadedIndex) -> Result<(), Error> {
        let mode = OpenMode {
            read_only: true,
            on_damage: OnDamage::Refuse,
            below: unloaded.frame(),
            fresh: false,
            load_at_once: None,
        };
        let geometry = self.log.geometry();
        let (log2, memory) = (geometry.segment_log2, REPLAY_SEGMENTS * geometry.segment());
        let views = Views::default();
        let opened = Log::open(&mut self.file, log2, &[0; 4], memory, views, mode)?;
        let mut replayed = Replayed {
            log: opened.log,
            index: HashIndex::default(),
            spaces: Spaces::default(),
            order: KeyOrder::default(),
            clears: Clears::default(),
            next_version: 1,
        };
        self.swap(&mut replayed);
        let done = self.replay_below(mode);
        self.swap(&mut replayed);
        done?;
        let mut entries = Vec::with_capacity(replayed.index.len());
        replayed.index.collect(0, u32::MAX, &mut entries);
        for (hash, position) in entries {
            if unloaded.counts(hash, position)
                && !(replayed.clears.any && self.was_swept(position, &replayed.spaces)?)
            {
                self.index.insert(hash, position);
            }
        }
        self.log.mark_checkpoint_damaged();
        Ok(())
    }

    /// Exchanges what a replay changes.
    fn swap(&mut self, other: &mut Replayed) {
        core::mem::swap(&mut self.log, &mut other.log);
        core::mem::swap(&mut self.index, &mut other.index);
        core::mem::swap(&mut self.spaces, &mut other.spaces);
        core::mem::swap(&mut self.order, &mut other.order);
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
    fn was_swept(&mut self, position: Position, cleared: &Spaces) -> Result<bool, Error> {
        let (_, record) = self.log.scan_record(&mut self.file, position)?;
        let (keyspace, version) = (record.header.space(), record.header.version);
        let is_cleared = cleared.has_cleared(keyspace, version);
        Ok(is_cleared && !self.spaces.has_cleared(keyspace, version))
    }
}

/// After so many blocks were read for one lookup each,
const READS_BEFORE_LOADING: usize = 64;
/// each further one is followed by so many others in order, until all are loaded.
const BLOCKS_PER_READ: usize = 4;
/// Segments that may be in memory for a replay while the store is open.
const REPLAY_SEGMENTS: usize = 4;

/// What a replay changes.
struct Replayed {
    log: Log,
    index: HashIndex,
    spaces: Spaces,
    order: KeyOrder,
    clears: Clears,
    next_version: u64,
}
