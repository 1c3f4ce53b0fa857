//! Opening: from the frames that count to the index.

use std::collections::BTreeMap;

use crate::error::{Damage, Error};
use crate::file::File;
use crate::format::record::{KIND_DELETE, KIND_EXTENT, KIND_SET};
use crate::format::{frame, segment};
use crate::index::hash::{HashIndex, Position};
use crate::index::ordered::Key;
use crate::log::recover::FrameAt;
use crate::log::{Log, recover::Opened};

use super::{Options, Staged, Store};

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
        let opened = match Log::open(&mut file, options.segment_log2, &options.entropy) {
            Ok(opened) => opened,
            Err(error) => return Err((file, error)),
        };
        let Opened { log, frames, recovery, next_version } = opened;
        let mut store = Store {
            file,
            log,
            index: HashIndex::default(),
            order: None,
            ordered: options.ordered,
            counts: BTreeMap::new(),
            live_bytes: 0,
            next_version,
            undo: Vec::new(),
            savepoints: Vec::new(),
            staged: Staged::Nothing,
            saved: Vec::new(),
            recovery,
            poisoned: false,
            unflushed: recovery.replayed_frames > 0 && !recovery.clean,
        };
        for frame in &frames {
            store.replay_frame(frame);
        }
        if !recovery.clean {
            store.next_version += VERSION_JUMP;
        }
        match store.load_extents() {
            Ok(()) => Ok(store),
            Err(error) => Err((store.file, error)),
        }
    }

    fn replay_frame(&mut self, at: &FrameAt) {
        let geometry = self.log.geometry();
        let mut offset = at.offset as usize + frame::SIZE;
        let end = (at.offset + at.length) as usize;
        while offset < end {
            let position = geometry.position(at.slot, offset);
            offset += self.log.header_at(position).size();
            self.replay_record(position);
        }
    }

    fn replay_record(&mut self, position: Position) {
        let (header, key) = self.log.key_at(position);
        let (kind, keyspace, version) = (header.kind, header.keyspace, header.version);
        if !matches!(kind, KIND_SET | KIND_EXTENT | KIND_DELETE) {
            return;
        }
        self.next_version = self.next_version.max(version.saturating_add(1));
        let old = self.find(keyspace, key);
        // A record that was moved keeps its version and may come after a newer one.
        if old.is_some_and(|old| self.log.header_at(old).version > version) {
            return;
        }
        let (hash, key) = (self.hash(keyspace, key), Key::new(key));
        let new = (kind != KIND_DELETE).then_some(position);
        self.move_in_index(keyspace, &key, hash, old, new);
    }

    /// Brings the values of live extents into memory and verifies them.
    fn load_extents(&mut self) -> Result<(), Error> {
        let mut live = vec![false; self.log.slot_count()];
        let extents: Vec<Position> = self.index.positions().collect();
        for position in extents {
            let Some(extent) = self.log.descriptor_at(position) else {
                continue;
            };
            if !self.log.load_extent(&mut self.file, &extent)? {
                return Err(Error::Corruption(Damage {
                    position: self.log.geometry().slot_start(extent.slot) + segment::SIZE as u64,
                    expected_frame: self.log.next_frame(),
                    flushed_frames: self.log.next_frame(),
                    ..Damage::default()
                }));
            }
            live[extent.slot as usize] = true;
        }
        self.log.keep_extents(&live);
        Ok(())
    }

    /// Sorts all keys, once; from then on the order is kept up with each new and deleted key.
    pub(super) fn build_order(&mut self) {
        if self.order.is_some() {
            return;
        }
        let mut keys: BTreeMap<u32, Vec<Key>> = BTreeMap::new();
        for position in self.index.positions() {
            let (header, key) = self.log.key_at(position);
            keys.entry(header.keyspace).or_default().push(Key::new(key));
        }
        let order = self.order.insert(BTreeMap::new());
        for (keyspace, keys) in keys {
            order.insert(keyspace, keys.into_iter().collect());
        }
    }
}
