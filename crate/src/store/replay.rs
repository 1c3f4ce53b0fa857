//! Opening: from the frames that count to the index.

use crate::error::{Damage, Error};
use crate::file::File;
use crate::format::payload::ExtentRef;
use crate::format::record::{KIND_DELETE, KIND_EXTENT, KIND_SET};
use crate::format::{frame, segment};
use crate::index::hash::{KeyHash, Position};
use crate::index::ordered::Key;
use crate::index::spaces::Spaces;
use crate::log::Log;
use crate::log::chain::FrameAt;
use crate::log::live::ExtentName;
use crate::log::recover::{OnDamage, Opened, Way};
use crate::sort;

use super::{Changing, Job, NewRecord, Options, Staged, Store};

/// After an unclean end versions jump by this much, so that a version that somebody saw before the
/// crash is never given to other bytes: a lost tail may leave no trace. Versions stay exact as
/// JavaScript numbers for two million such openings.
const VERSION_JUMP: u64 = 1 << 32;

impl<F: File> Store<F> {
    /// Opens the database in `file`, creating it in an empty file.
    ///
    /// # Errors
    /// [`Error::NotADatabase`], [`Error::UnsupportedFormat`], [`Error::Corruption`] when flushed
    /// data is damaged (nothing is written then), or what the file said.
    pub fn open(file: F, options: Options) -> Result<Self, Error> {
        Store::open_or_return(file, options).map_err(|(_, error)| error)
    }

    /// As [`open`](Store::open), giving the file back when it fails.
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

    /// Opens what the frames below a number hold. With an error comes the number below which it may
    /// go better.
    fn open_below(mut file: F, options: &Options, below: u64) -> Result<Self, (F, Error, u64)> {
        let opened = Log::open(
            &mut file,
            options.segment_log2,
            &options.entropy,
            options.memory,
            options.detach,
            Way { read_only: options.read_only, on_damage: options.on_damage, below },
        );
        let opened = match opened {
            Ok(opened) => opened,
            Err(error) => return Err((file, error, u64::MAX)),
        };
        let Opened { log, checkpoint, frames, extents, recovery, next_version, damage } = opened;
        let (index, spaces) =
            checkpoint.map_or_else(Default::default, |loaded| (loaded.index, loaded.spaces));
        let key_hash = KeyHash::new(log.hash_seed());
        let mut store = Store {
            file,
            log,
            index,
            key_hash,
            last: None,
            spaces,
            ordered: options.ordered,
            sorted: false,
            next_version,
            undo: Vec::new(),
            savepoints: Vec::new(),
            staged: Staged::Nothing,
            new: NewRecord::default(),
            changing: Changing::default(),
            saved: Vec::new(),
            pins: Vec::new(),
            recovery,
            job: Job::Nothing,
            is_tending: false,
            wants_all: None,
            factor: options.factor.clamp(120, 300),
            compact_above: 0,
            read_only: options.read_only,
            poisoned: false,
            trouble: None,
            unflushed: !options.read_only && recovery.replayed_frames > 0 && !recovery.clean,
        };
        let replayed = store.replay(&frames);
        match store.bring_up(replayed, &extents, damage, options) {
            Ok(None) => {
                store.log.lend_views();
                Ok(store)
            }
            Ok(Some((lost, position))) => {
                // The log may be whole before the commit that names this extent.
                let (slot, offset) = store.log.geometry().locate(lost);
                let named = frames.iter().find(|frame| frame.holds(slot, offset));
                let ends = named.filter(|_| options.on_damage == OnDamage::Prefix);
                let end = ends.map_or(u64::MAX, FrameAt::number);
                let error = store.lost(position);
                Err((store.file, error, end))
            }
            Err(error) => Err((store.file, error, u64::MAX)),
        }
    }

    /// Goes from an index to a store that can be used, if that is possible. Answers the position of a
    /// record whose extent is damaged, and that of the damage.
    fn bring_up(
        &mut self,
        replayed: Result<(), Error>,
        extents: &[(Position, ExtentRef)],
        damage: Option<Damage>,
        options: &Options,
    ) -> Result<Option<(Position, u64)>, Error> {
        let way = options.on_damage;
        if let Some(damage) = damage {
            let is_whole = way == OnDamage::Prefix && damage.is_prefix_whole;
            if !is_whole && way != OnDamage::Salvage {
                let (keys, version) = (self.stats().count, self.next_version - 1);
                return Err(Error::Corruption(Damage { keys, version, ..damage }));
            }
        }
        replayed?;
        self.next_version = self.next_version.max(self.log.known_version());
        if way == OnDamage::Salvage {
            self.sweep()?;
        }
        if !self.recovery.damaged || way == OnDamage::Prefix {
            if let Some(lost) = self.find_lost_extent(extents)? {
                return Ok(Some(lost));
            }
            if let Some(position) = self.log.settle_extents() {
                return Err(self.lost(position));
            }
        }
        if let (Some(damage), OnDamage::Prefix) = (damage, way) {
            self.sweep()?;
            if self.recovery.lost_keys > 0 {
                return Err(Error::Corruption(Damage { is_prefix_whole: false, ..damage }));
            }
        }
        if !self.recovery.clean {
            self.next_version += VERSION_JUMP;
        }
        if self.recovery.damaged && !self.read_only {
            self.renew(options)?;
        }
        Ok(None)
    }

    fn replay(&mut self, frames: &[FrameAt]) -> Result<(), Error> {
        for frame in frames {
            self.log.load(&mut self.file, frame.slot)?;
            self.replay_frame(frame)?;
        }
        Ok(())
    }

    fn replay_frame(&mut self, at: &FrameAt) -> Result<(), Error> {
        let geometry = self.log.geometry();
        let mut offset = at.offset as usize + frame::SIZE;
        let end = (at.offset + at.length) as usize;
        while offset < end {
            // A cold record that was looked at may have taken the segment's memory.
            self.log.load(&mut self.file, at.slot)?;
            let position = geometry.position(at.slot, offset);
            offset += self.log.header_at(position).size();
            self.replay_record(position)?;
        }
        Ok(())
    }

    fn replay_record(&mut self, position: Position) -> Result<(), Error> {
        let record = self.log.record_at(position);
        let header = *record.header;
        if !matches!(header.kind, KIND_SET | KIND_EXTENT | KIND_DELETE) {
            return Ok(());
        }
        let hash = self.hash(header.space(), record.key);
        let extent = record.extent().map(|extent| ExtentName::from(&extent));
        self.next_version = self.next_version.max(header.version.saturating_add(1));
        // The index goes through the states that it had when this was written, so a record that is
        // where the writer found its predecessor is that one, and need not be read.
        let is_known = header.previous != 0 && self.index.holds(hash, header.previous);
        let old = match is_known {
            true => Some((header.previous, header.replaced_size())),
            false => {
                let key = Key::new(record.key);
                let mut found = self.find_shared(hash, header.space(), &key);
                if self.log.mending().salvages && matches!(found, Err(Error::Corruption(_))) {
                    self.drop_damaged(hash)?;
                    found = self.find_shared(hash, header.space(), &key);
                }
                let found = found?;
                let found = found.map(|at| (at, *self.log.record_in(at.place).header));
                self.log.load(&mut self.file, self.log.geometry().locate(position).0)?;
                match found {
                    // One that was moved keeps its version and may come after a newer one.
                    Some((_, old)) if old.version > header.version => return Ok(()),
                    found => found.map(|(at, old)| (at.position, old.size() as u32)),
                }
            }
        };
        let size = header.size() as u32;
        if let Some((old, size)) = old {
            self.log.died(old, size);
            // A record that was moved names the same extent.
            if self.log.extent_of(old) == extent {
                self.log.forget_name(old);
            } else {
                self.log.drop_name(old);
            }
        }
        let new = (header.kind != KIND_DELETE).then_some(position);
        match new {
            Some(_) => self.log.born(position, size),
            None => self.log.buried(position, size, header.oldest),
        }
        if let Some(extent) = extent {
            self.log.name_extent(position, extent);
        }
        self.move_in_index(hash, old.map(|(position, _)| position), new, position);
        Ok(())
    }

    /// Verifies the extents that live records of the replayed part name. Answers the position of a
    /// record whose extent is damaged, and that of its value.
    fn find_lost_extent(
        &mut self,
        extents: &[(Position, ExtentRef)],
    ) -> Result<Option<(Position, u64)>, Error> {
        for (position, extent) in extents {
            let is_live = self.log.names_extent(*position);
            if is_live && !self.log.verify_extent(&mut self.file, extent)? {
                let start = self.log.geometry().slot_start(extent.slot);
                return Ok(Some((*position, start + segment::SIZE as u64)));
            }
        }
        Ok(None)
    }

    /// A live record's extent is not what it has to be.
    fn lost(&self, position: u64) -> Error {
        Error::Corruption(Damage {
            position,
            expected_frame: self.log.next_frame(),
            flushed_frames: self.log.next_frame(),
            ..Damage::default()
        })
    }

    /// Sorts all keys, once; from then on the order is kept up with each new and deleted key.
    /// Goes through the file in order, so that a database larger than memory is read once.
    pub(super) fn build_order(&mut self) -> Result<(), Error> {
        if self.sorted {
            return Ok(());
        }
        let mut built = Spaces::default();
        for position in sort::by_number(self.index.positions().collect()) {
            let (_, record) = self.log.find_intact(&mut self.file, position)?;
            built.entry(record.header.space()).keys.insert(record.key);
        }
        self.spaces.take_keys(built);
        self.sorted = true;
        Ok(())
    }
}
