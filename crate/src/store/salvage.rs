//! Salvage of damaged files: determines which records are intact and rewrites them.

use alloc::vec::Vec;

use crate::error::{Error, damaged};
use crate::file::File;
use crate::format::KEYSPACE_ENGINE;
use crate::format::record::{KIND_CHUNKED, KIND_CLEAR, KIND_EXTENT, KIND_SET};
use crate::format::system_records::{
    KEY_CHUNK, KEY_CLEAR, KEY_EXPIRY, KEY_GAP, KEY_HISTORY, KEY_MARKS, KEY_PACKED,
};
use crate::index::Position;
use crate::index::hash_index::HashIndex;
use crate::index::keyspaces::Keyspaces;
use crate::index::ordered_index::Key;
use crate::log::Log;
use crate::log::buffer_pool::Pool;
use crate::radix_sort;

use super::clear::Clears;
use super::{Options, Store};

/// Keys of the engine's own records that the new log does not get: it has other frame numbers, no gaps, no deletions, no
/// marks and no past; chunks are written again with their values, and clears are not needed.
const NOT_SALVAGED: [&[u8]; 7] =
    [KEY_GAP, KEY_CHUNK, KEY_CLEAR, KEY_EXPIRY, KEY_HISTORY, KEY_MARKS, KEY_PACKED];

impl<F: File> Store<F> {
    /// Reads all records in the index and removes those that are not intact. Their keys are absent then,
    /// because an older value is not the last one.
    pub(super) fn remove_damaged(&mut self) -> Result<(), Error> {
        let state = self.log.recovery_state();
        self.recovery.damaged |= state.damaged;
        self.recovery.lost_keys += state.lost_keys;
        let (mut counts, mut dead) = (Keyspaces::default(), 0);
        for (keyspace, space) in self.keyspaces.iter() {
            let cleared = space.cleared;
            counts.entry(keyspace).cleared = cleared;
        }
        for (position, hash) in self.entries() {
            match self.examine(position, hash) {
                // A dead record of a cleared keyspace, which stays in the index until the sweep.
                Ok(None) => dead += 1,
                Ok(Some((keyspace, uncertain))) => {
                    counts.entry(keyspace).count += 1;
                    let counts_for_users = uncertain && keyspace != KEYSPACE_ENGINE;
                    self.recovery.uncertain_keys += u64::from(counts_for_users);
                }
                Err(Error::Corruption(_)) => {
                    self.index.remove(hash, position);
                    self.recovery.damaged = true;
                    self.recovery.lost_keys += 1;
                }
                Err(error) => return Err(error),
            }
        }
        self.keyspaces = counts;
        self.clears.dead = dead;
        self.last = None;
        self.recovery.clean &= !self.recovery.damaged;
        Ok(())
    }

    /// Removes damaged records under a hash: one of them, or none, is the predecessor of a record that is
    /// replayed.
    pub(super) fn drop_damaged(&mut self, hash: u32) -> Result<(), Error> {
        let mut entries = Vec::new();
        self.index.collect(hash, hash, &mut entries);
        for (_, position) in entries {
            let found = self.log.scan_record(&mut self.file, position);
            if matches!(found, Err(Error::Corruption(_))) {
                self.index.remove(hash, position);
                self.recovery.damaged = true;
                self.recovery.lost_keys += 1;
            }
        }
        Ok(())
    }

    /// Positions and hashes of the index, in the order of the file.
    pub(super) fn entries(&self) -> Vec<(Position, u32)> {
        let mut entries = Vec::with_capacity(self.index.len());
        self.index.collect(0, u32::MAX, &mut entries);
        radix_sort::by_number(
            entries.into_iter().map(|(hash, position)| (position, hash)).collect(),
        )
    }

    /// Returns the keyspace of a record and whether it is uncertain, if it and its value are intact; none
    /// if its keyspace was cleared since.
    fn examine(&mut self, position: Position, hash: u32) -> Result<Option<(u32, bool)>, Error> {
        let (addr, record) = self.log.scan_record(&mut self.file, position)?;
        let header = *record.header;
        let is_match = self.key_hash.hash(header.keyspace(), record.key) == hash;
        let can_have_value =
            matches!(header.kind, KIND_SET | KIND_EXTENT | KIND_CHUNKED | KIND_CLEAR);
        if is_match && can_have_value && self.is_cleared(&header) {
            return Ok(None);
        }
        self.value(addr)?;
        self.log.trim_values();
        // As in replay: a checksum does not prove that the record is well-formed.
        let is_sane = header.version >> 56 == 0;
        match is_match && can_have_value && is_sane {
            true => Ok(Some((header.keyspace(), self.log.is_uncertain(&header)))),
            false => Err(damaged(0)),
        }
    }

    /// Writes all live records into a log that replaces the damaged one. Until that is complete and flushed
    /// the file is unchanged, except for its size.
    pub(super) fn rewrite(&mut self, options: &Options) -> Result<(), Error> {
        let pool = Pool::new(self.log.geometry().segment(), options.memory, options.views);
        let successor = self.log.successor(pool, self.next_version)?;
        let size = self.file.size()?;
        let entries = self.entries();
        let old = core::mem::replace(&mut self.log, successor);
        let index = core::mem::take(&mut self.index);
        let keyspaces = core::mem::take(&mut self.keyspaces);
        self.clears = Clears::default();
        self.last = None;
        // No maintenance yet, because it writes superblocks.
        self.maintenance.is_running = true;
        let copied = self.copy_all(old, index, entries, &keyspaces);
        self.maintenance.is_running = false;
        if let Err(error) = copied {
            // An unreachable new log at the end of the file is ignored.
            let _ = self.file.truncate(size);
            return Err(error);
        }
        self.unflushed = false;
        self.log.activate(&mut self.file, self.next_version)
    }

    /// Exchanges the log and its index for others.
    #[inline(never)]
    fn swap_log(&mut self, log: &mut Log, index: &mut HashIndex) {
        core::mem::swap(&mut self.log, log);
        core::mem::swap(&mut self.index, index);
    }

    fn copy_all(
        &mut self,
        mut old: Log,
        mut index: HashIndex,
        entries: Vec<(Position, u32)>,
        keyspaces: &Keyspaces,
    ) -> Result<(), Error> {
        let mut stored = Vec::new();
        for (position, _) in entries {
            let (addr, record) = old.scan_record(&mut self.file, position)?;
            let (header, key) = (*record.header, Key::new(record.key));
            let (is_engine, chunks) = (header.keyspace() == KEYSPACE_ENGINE, record.chunks());
            if is_engine && *key == *KEY_EXPIRY {
                stored = old.value(&mut self.file, addr)?.to_vec();
            }
            let is_skipped = NOT_SALVAGED.iter().any(|start| key.starts_with(start));
            if is_engine && is_skipped || keyspaces.has_cleared(header.keyspace(), header.version) {
                continue;
            }
            let value = match chunks {
                Some(chunks) => {
                    self.swap_log(&mut old, &mut index);
                    let assembled = self.assemble(&chunks);
                    self.swap_log(&mut old, &mut index);
                    assembled?;
                    old.assembled_for_view(&chunks, false)
                }
                None => old.value(&mut self.file, addr)?,
            };
            self.expire_next(header.expiry);
            self.begin_set(header.keyspace(), &key, value.len())?;
            self.staged_value().copy_from_slice(value);
            // The copy gets chunks of its own; it keeps its version.
            let next = core::mem::replace(&mut self.next_version, header.version);
            self.finish(value.len())?;
            self.next_version = next;
            if self.pending() == 0 {
                // A batch was committed, so its records may be evicted.
                old.end_turn();
                self.log.end_turn();
            }
        }
        if !stored.is_empty() {
            self.continue_expiry(&stored)?;
        }
        self.forget_all()?;
        self.commit_batch()?;
        self.log.flush(&mut self.file)
    }
}
