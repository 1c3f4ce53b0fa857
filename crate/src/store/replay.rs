//! Opening: from the frames that count to the index.

use crate::error::{Damage, Error};
use crate::file::File;
use crate::format::payload::ExtentRef;
use crate::format::record::{KIND_DELETE, KIND_EXTENT, KIND_SET};
use crate::format::{frame, segment};
use crate::index::hash::{HashIndex, KeyHash, Position};
use crate::index::ordered::Key;
use crate::index::spaces::Spaces;
use crate::log::Log;
use crate::log::recover::{FrameAt, Opened};
use crate::sort;

use super::{Changing, NewRecord, Options, Staged, Store};

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
        let Opened { log, frames, extents, recovery, next_version } = opened;
        let key_hash = KeyHash::new(log.hash_seed());
        let mut store = Store {
            file,
            log,
            index: HashIndex::default(),
            key_hash,
            last: None,
            spaces: Spaces::default(),
            ordered: options.ordered,
            sorted: false,
            live_bytes: 0,
            next_version,
            undo: Vec::new(),
            savepoints: Vec::new(),
            staged: Staged::Nothing,
            new: NewRecord::default(),
            changing: Changing::default(),
            saved: Vec::new(),
            pins: Vec::new(),
            recovery,
            read_only: options.read_only,
            poisoned: false,
            unflushed: !options.read_only && recovery.replayed_frames > 0 && !recovery.clean,
        };
        let replayed = store.replay(&frames).and_then(|()| store.verify_extents(&extents));
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
        let (kind, keyspace, version) =
            (record.header.kind, record.header.keyspace, record.header.version);
        if !matches!(kind, KIND_SET | KIND_EXTENT | KIND_DELETE) {
            return Ok(());
        }
        self.next_version = self.next_version.max(version.saturating_add(1));
        let (key, bytes) = (Key::new(record.key), record.bytes());
        let hash = self.hash(keyspace, &key);
        let old = self.find_hashed(hash, keyspace, &key)?;
        // A record that was moved keeps its version and may come after a newer one.
        if old.is_some_and(|old| self.log.record_in(old.place).header.version > version) {
            return Ok(());
        }
        let old = old.map(|at| self.predecessor(at));
        self.log.load(&mut self.file, self.log.geometry().locate(position).0)?;
        let new = (kind != KIND_DELETE).then_some(position);
        self.live_bytes += new.map_or(0, |_| bytes);
        self.live_bytes -= old.map_or(0, |old| old.bytes);
        self.move_in_index(hash, old.map(|old| old.position), new, position);
        Ok(())
    }

    /// Verifies the extents that the index still names.
    fn verify_extents(&mut self, extents: &[(Position, ExtentRef)]) -> Result<(), Error> {
        for (position, extent) in extents {
            if self.is_live(*position)? && !self.log.verify_extent(&mut self.file, extent)? {
                return Err(Error::Corruption(Damage {
                    position: self.log.geometry().slot_start(extent.slot) + segment::SIZE as u64,
                    expected_frame: self.log.next_frame(),
                    flushed_frames: self.log.next_frame(),
                    ..Damage::default()
                }));
            }
        }
        Ok(())
    }

    /// Whether the index names the record at `position`.
    fn is_live(&mut self, position: Position) -> Result<bool, Error> {
        let place = self.log.place(&mut self.file, position)?;
        let record = self.log.record_in(place);
        let (keyspace, key) = (record.header.keyspace, Key::new(record.key));
        Ok(self.find(keyspace, &key)?.is_some_and(|found| found.position == position))
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
            self.log.load(&mut self.file, slot)?;
            let record = self.log.record_at(position);
            built.entry(record.header.keyspace).keys.insert(record.key);
        }
        self.spaces.take_keys(built);
        self.sorted = true;
        Ok(())
    }
}
