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
use crate::log::live::ExtentName;
use crate::log::read::damaged;
use crate::log::recover::{FrameAt, Opened};
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
        let opened = match Log::open(
            &mut file,
            options.segment_log2,
            &options.entropy,
            options.memory,
            options.detach,
            options.read_only,
        ) {
            Ok(opened) => opened,
            Err(error) => return Err((file, error)),
        };
        let Opened { log, checkpoint, frames, extents, recovery, next_version } = opened;
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
        let replayed = store
            .replay(&frames)
            .and_then(|()| store.verify_extents(&extents))
            .and_then(|()| store.log.settle_extents().map_or(Ok(()), |at| Err(store.lost(at))));
        if !recovery.clean {
            store.next_version += VERSION_JUMP;
        }
        match replayed {
            Ok(()) => {
                store.log.lend_views();
                Ok(store)
            }
            Err(error) => Err((store.file, error)),
        }
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
                let found = self.find_hashed(hash, header.space(), &key)?;
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

    /// Verifies the extents that live records of the replayed part name.
    fn verify_extents(&mut self, extents: &[(Position, ExtentRef)]) -> Result<(), Error> {
        for (position, extent) in extents {
            let is_live = self.log.names_extent(*position);
            if is_live && !self.log.verify_extent(&mut self.file, extent)? {
                let start = self.log.geometry().slot_start(extent.slot);
                return Err(self.lost(start + segment::SIZE as u64));
            }
        }
        Ok(())
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
            let slot = self.log.geometry().locate(position).0;
            self.log.load_whole(&mut self.file, slot)?;
            let place = self.log.place(&mut self.file, position)?;
            let Some(record) = self.log.peek(place) else { return Err(damaged(0)) };
            built.entry(record.header.space()).keys.insert(record.key);
        }
        self.spaces.take_keys(built);
        self.sorted = true;
        Ok(())
    }
}
