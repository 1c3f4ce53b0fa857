//! Snapshots: the content as it was at some moment, to be read while the store goes on.
//!
//! A snapshot copies nothing. Before it is taken the open batch is committed, and records of commits are never
//! changed in place. So it only has to know, for each key that was changed since, where the key's record was
//! before the first change: that is its overlay. A change goes to the overlay of the newest snapshot alone; an
//! older one looks through its own, then through those of the later ones, and then through the index. While any
//! is open, compaction waits, and extents without a reference are kept, so each such position stays readable.

use alloc::vec::Vec;
use core::ops::Bound;

use crate::error::{Error, damaged};
use crate::file::File;
use crate::format::LAST_KEYSPACE;
use crate::format::record::RecordHeader;
use crate::index::Position;
use crate::index::ordered_index::{Key, OrderedKeys, Range};
use crate::index::sorted_vec_map::SmallMap;
use crate::log::buffer_pool::{AccessKind, BufferAddr};

use super::kept_history::PastCommit;
use super::key_range::KeyBounds;
use super::maintenance_jobs::Job;
use super::pack::Copied;
use super::{Located, Store, same_bytes};

/// How many snapshots can be open: their numbers and those of 2^16 keyspaces fit together in 30 bits, the small integers
/// of JavaScript's engines.
pub const MAX_SNAPSHOTS: usize = (1 << 14) - 1;

/// While a keyspace is cleared, the positions of so many keys are noted at a time.
const KEYS_TOGETHER: usize = 4096;

/// The number of the first snapshot.
const FIRST: u32 = LAST_KEYSPACE + 1;

/// An open snapshot. Its number in the upper 16 bits of a keyspace's number selects it for any read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotId(u32);

impl SnapshotId {
    /// The number that selects a keyspace as this snapshot shows it.
    #[must_use]
    pub const fn keyspace(self, keyspace: u32) -> u32 {
        self.0 | keyspace
    }
}

impl From<u32> for SnapshotId {
    fn from(keyspace: u32) -> Self {
        SnapshotId(keyspace & !LAST_KEYSPACE)
    }
}

/// What the open snapshots take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotStats {
    /// How many are open.
    pub count: u64,
    /// Bytes of the file that have been replaced or deleted since the oldest was taken, and that are kept for
    /// them.
    pub held_bytes: u64,
    /// Bytes of memory, roughly.
    pub memory_bytes: u64,
}

#[derive(Debug)]
struct Snapshot {
    id: u32,
    /// The number of keys in each keyspace.
    counts: Vec<(u32, u64)>,
    /// By keyspace, the keys that changed after it and before the next snapshot was taken, each with the position
    /// of its record before, or 0 if it was absent.
    overlay: SmallMap<OrderedKeys>,
    /// The same for what had changed between a past commit and then, if it shows that: nothing as long as this is not known.
    past: Option<SmallMap<OrderedKeys>>,
    /// The past commit, as long as it is not known what has changed since.
    unwalked: Option<PastCommit>,
    /// Records with an expiry up to this time are absent: the store could not delete them when it was taken. 0 for none.
    hides_until: u32,
    /// Bytes of the file that were not live when it was taken.
    dead_bytes: u64,
}

/// The open snapshots, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Snapshots {
    open: Vec<Snapshot>,
    last_id: u32,
}

impl Snapshots {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// The snapshot that a keyspace's number selects, and those after it.
    fn from(&self, keyspace: u32) -> &[Snapshot] {
        let id = keyspace & !LAST_KEYSPACE;
        let at = self.open.iter().position(|snapshot| snapshot.id == id);
        self.open.get(at.unwrap_or(usize::MAX)..).unwrap_or_default()
    }

    /// What has changed in a keyspace since the snapshot that its number selects, the oldest changes first.
    fn overlays(&self, keyspace: u32) -> impl Iterator<Item = &OrderedKeys> {
        let (number, from) = (keyspace & LAST_KEYSPACE, self.from(keyspace));
        let past = from.first().and_then(|snapshot| snapshot.past.as_ref());
        let past = past.and_then(|past| past.get(number)).into_iter();
        past.chain(from.iter().filter_map(move |snapshot| snapshot.overlay.get(number)))
    }

    /// The time up to which the snapshot that a keyspace's number selects hides what has expired; 0 for none.
    pub(super) fn hides_until(&self, keyspace: u32) -> u32 {
        self.from(keyspace).first().map_or(0, |snapshot| snapshot.hides_until)
    }

    /// Makes the newest snapshot one of a past commit, which had what it had.
    pub(super) fn show_past(&mut self, past: PastCommit) {
        let Some(newest) = self.open.last_mut() else { return };
        newest.hides_until = 0;
        (newest.past, newest.unwalked) = (Some(SmallMap::default()), Some(past));
    }

    /// The past commit that a snapshot shows, if it is not known yet what has changed since.
    pub(super) fn unwalked(&mut self, keyspace: u32) -> Option<&mut PastCommit> {
        self.selected(keyspace)?.unwalked.as_mut()
    }

    /// The number of the first snapshot of which that is not known.
    pub(super) fn first_unwalked(&self) -> Option<u32> {
        let snapshot = self.open.iter().find(|snapshot| snapshot.unwalked.is_some());
        snapshot.map(|snapshot| snapshot.id)
    }

    /// Sets the numbers of keys that a snapshot shows at its past commit, and where the records were then of all keys that had
    /// changed before it was taken.
    pub(super) fn set_walked(
        &mut self,
        keyspace: u32,
        counts: Vec<(u32, u64)>,
        past: SmallMap<OrderedKeys>,
    ) {
        if let Some(snapshot) = self.selected(keyspace) {
            (snapshot.counts, snapshot.past, snapshot.unwalked) = (counts, Some(past), None);
        }
    }

    fn selected(&mut self, keyspace: u32) -> Option<&mut Snapshot> {
        self.open.iter_mut().find(|snapshot| snapshot.id == keyspace & !LAST_KEYSPACE)
    }

    /// The number of keys in each keyspace.
    pub(super) fn counts(&self, keyspace: u32) -> &[(u32, u64)] {
        self.from(keyspace).first().map_or(&[], |snapshot| &snapshot.counts)
    }

    /// The position of a key's record at the snapshot that the keyspace's number selects: 0 if the key was absent then,
    /// `None` if it has not changed since.
    pub(super) fn position(&self, keyspace: u32, key: &[u8]) -> Option<Position> {
        self.overlays(keyspace).find_map(|keys| keys.position_of(key))
    }

    /// Whether any key of a keyspace has changed since the snapshot that its number selects.
    pub(super) fn has_changed(&self, keyspace: u32) -> bool {
        self.overlays(keyspace).next().is_some()
    }

    /// The changed keys between two bounds, the oldest changes first.
    pub(super) fn ranges(&self, keyspace: u32, (lower, upper): KeyBounds<'_>) -> Vec<Range<'_>> {
        self.overlays(keyspace).map(|keys| keys.range(lower, upper)).collect()
    }

    /// All overlays of open snapshots in a keyspace.
    fn all_overlays(&mut self, keyspace: u32) -> impl Iterator<Item = &mut OrderedKeys> {
        let overlays =
            self.open.iter_mut().flat_map(|it| [Some(&mut it.overlay), it.past.as_mut()]);
        let has_keyspace =
            move |overlay: &&mut SmallMap<OrderedKeys>| overlay.get(keyspace).is_some();
        overlays.flatten().filter(has_keyspace).map(move |overlay| overlay.entry(keyspace))
    }

    /// Whether any open snapshot needs the record of a key at a position.
    pub(super) fn refer_to(&mut self, keyspace: u32, key: &[u8], position: Position) -> bool {
        self.all_overlays(keyspace).any(|keys| keys.position_of(key) == Some(position))
    }

    /// Follows records that were copied elsewhere.
    pub(super) fn follow(&mut self, copied: &[Copied]) {
        for Copied { keyspace, key, from, to } in copied {
            for keys in self.all_overlays(*keyspace) {
                if keys.position_of(key) == Some(*from) {
                    keys.set_position(key, *to);
                }
            }
        }
    }

    /// A key is about to change; its record is at a position, or it is absent if that is 0.
    #[inline(never)]
    fn note(&mut self, keyspace: u32, key: &[u8], position: Position) {
        let Some(newest) = self.open.last_mut() else { return };
        newest.overlay.entry(keyspace).insert_missing(key, position);
    }

    /// Bytes of memory, without walking through all keys.
    pub(super) fn bytes(&self) -> usize {
        let overlays = self
            .open
            .iter()
            .flat_map(|it| it.overlay.iter().chain(it.past.iter().flat_map(SmallMap::iter)));
        // Blocks of keys are filled to two thirds or so.
        overlays.map(|(_, keys)| keys.len() * size_of::<Key>() * 3 / 2 + keys.key_bytes()).sum()
    }
}

impl<F: File> Store<F> {
    /// Takes a snapshot, committing the open batch first: until [`end_snapshot`](Store::end_snapshot), everything can
    /// be read as it is now, by the numbers of keyspaces that [`SnapshotId::keyspace`] returns. It takes memory by
    /// the number of keys that change, and none of the space that they took in the file is reused meanwhile.
    ///
    /// # Errors
    /// [`Error::Reentrancy`] inside a savepoint or an update; as for [`commit`](Store::commit);
    /// [`Error::TooManySnapshots`] with [`MAX_SNAPSHOTS`] open snapshots.
    pub fn snapshot(&mut self) -> Result<SnapshotId, Error> {
        self.delete_due_now()?;
        self.commit()?;
        if self.snapshots.open.len() >= MAX_SNAPSHOTS {
            return Err(Error::TooManySnapshots);
        }
        if matches!(self.maintenance.job, Job::Compacting(_))
            && let Job::Compacting(compacting) = core::mem::take(&mut self.maintenance.job)
        {
            self.abandon(&compacting);
        }
        self.log.keep_dead_extents(true);
        let mut id = self.snapshots.last_id;
        loop {
            id = (id + FIRST) % (FIRST * (MAX_SNAPSHOTS as u32 + 1));
            if id != 0 && self.snapshots.from(id).is_empty() {
                break;
            }
        }
        self.snapshots.last_id = id;
        let counts = self.keyspaces.counts().collect();
        let dead_bytes = self.log.dead_bytes();
        let overlay = SmallMap::default();
        let (past, unwalked) = (None, None);
        let hides_until = if self.read_only || self.poisoned { self.now() } else { 0 };
        let newest = Snapshot { id, counts, overlay, past, unwalked, hides_until, dead_bytes };
        self.snapshots.open.push(newest);
        Ok(SnapshotId(id))
    }

    /// Ends a snapshot; nothing if it has ended before. What it kept of the file is then freed by maintenance.
    pub fn end_snapshot(&mut self, snapshot: SnapshotId) {
        let open = &mut self.snapshots.open;
        let Some(at) = open.iter().position(|it| it.id == snapshot.0) else { return };
        let ended = open.remove(at);
        if let Some(before) = at.checked_sub(1).and_then(|before| open.get_mut(before)) {
            for (keyspace, keys) in ended.overlay.iter() {
                let overlay = before.overlay.entry(*keyspace);
                for key in keys.range(Bound::Unbounded, Bound::Unbounded) {
                    overlay.insert_missing(key, key.position);
                }
            }
        }
        let past = ended.past.unwrap_or_default().into_values();
        let overlays = ended.overlay.into_values().chain(past);
        self.free_later(overlays);
        if self.snapshots.open.is_empty() {
            self.log.keep_dead_extents(false);
        }
    }

    /// Ends all snapshots.
    pub(super) fn end_snapshots(&mut self) {
        self.snapshots.open = Vec::new();
        self.maintenance.pack = None;
        self.log.keep_dead_extents(false);
    }

    /// What the open snapshots take.
    #[must_use]
    pub fn snapshot_stats(&self) -> SnapshotStats {
        let Some(oldest) = self.snapshots.open.first() else { return SnapshotStats::default() };
        SnapshotStats {
            count: self.snapshots.open.len() as u64,
            held_bytes: self.log.dead_bytes().saturating_sub(oldest.dead_bytes),
            memory_bytes: self.snapshots.bytes() as u64,
        }
    }

    /// Where the record of a key was when a snapshot was taken, or 0 if the key was absent, or has to be looked up to know
    /// that; none if it has not changed since, or if the keyspace's number selects no snapshot.
    #[must_use]
    pub fn position_then(&self, keyspace: u32, key: &[u8]) -> Option<Position> {
        match self.snapshots.from(keyspace).first()?.unwalked {
            Some(_) => Some(0),
            None => self.snapshots.position(keyspace, key),
        }
    }

    /// The number of keys that a keyspace had when the snapshot was taken that its number selects.
    #[cold]
    pub(super) fn count_then(&self, keyspace: u32) -> u64 {
        let mut counts = self.snapshots.counts(keyspace).iter();
        let found = counts.find(|(number, _)| *number == keyspace & LAST_KEYSPACE);
        found.map_or(0, |(_, count)| *count)
    }

    /// Checks that a keyspace's number selects an open snapshot, if any.
    ///
    /// # Errors
    /// [`Error::NotOpen`].
    pub(super) fn check_snapshot(&self, keyspace: u32) -> Result<(), Error> {
        let is_open = keyspace <= LAST_KEYSPACE || !self.snapshots.from(keyspace).is_empty();
        if is_open { Ok(()) } else { Err(Error::NotOpen) }
    }

    /// Looks up a key as it was when the snapshot was taken that the keyspace's number selects.
    #[cold]
    #[inline(never)]
    pub(super) fn find_then(
        &mut self,
        keyspace: u32,
        key: &[u8],
        access: AccessKind,
    ) -> Result<Option<Located>, Error> {
        self.check_snapshot(keyspace)?;
        let position = self.snapshots.position(keyspace, key);
        let plain = keyspace & LAST_KEYSPACE;
        let found = match position {
            Some(position) => self.find_at(position, plain, key, access)?,
            None => self.find_now(plain, key, access)?,
        };
        self.find_past(keyspace, key, access, found)
    }

    /// Looks up a key that has not changed since any snapshot that counts was taken.
    fn find_now(
        &mut self,
        keyspace: u32,
        key: &[u8],
        access: AccessKind,
    ) -> Result<Option<Located>, Error> {
        let hash = self.hash(keyspace, key);
        let mut found = self.probe_loaded(hash, keyspace, key, access);
        if self.unloaded.is_some()
            && !matches!(found, Ok(Some(_)))
            && let Some(unloaded) = self.probe_unloaded(hash, keyspace, key, access)?
        {
            found = Ok(Some(unloaded));
        }
        self.check_kind(found?)
    }

    /// Loads the record of a key at a position; none if that is 0.
    pub(super) fn find_at(
        &mut self,
        position: Position,
        keyspace: u32,
        key: &[u8],
        access: AccessKind,
    ) -> Result<Option<Located>, Error> {
        if position == 0 {
            return Ok(None);
        }
        // A malicious file may name any position as that of an earlier record.
        if self.log.geometry().locate(position).0 >= self.log.slot_count() {
            return Err(damaged(0));
        }
        let addr = self.log.load_record(&mut self.file, position, access)?;
        let is_match = |header: &RecordHeader, other: &[u8]| {
            same_bytes(other, key) && header.keyspace() == keyspace && header.has_value()
        };
        match self.log.get(addr).filter(|record| is_match(record.header, record.key)) {
            Some(_) => Ok(Some(Located { position, addr })),
            None => Err(damaged(0)),
        }
    }

    /// Looks up a key of the engine's own that any open snapshot may need: the number of a chunked value is never used
    /// again, so it does not matter which.
    pub(super) fn find_replaced(
        &mut self,
        keyspace: u32,
        key: &[u8],
    ) -> Result<Option<Located>, Error> {
        let position = loop {
            let open = self.snapshots.open.iter();
            let overlays = open.flat_map(|it| [Some(&it.overlay), it.past.as_ref()]);
            let overlays = overlays.flatten().filter_map(|overlay| overlay.get(keyspace));
            let position = overlays.filter_map(|keys| keys.position_of(key)).find(|&at| at != 0);
            // Chunks of a value that was replaced since are known from a walk only.
            if position.is_some() || !self.walk_pasts()? {
                break position;
            }
        };
        self.find_at(position.unwrap_or(0), keyspace, key, AccessKind::Own)
    }

    /// The key of a record that was just appended is about to change, or changes back; its record before is at `old`.
    #[cold]
    #[inline(never)]
    pub(super) fn note_change(&mut self, appended: Position, old: Option<Position>) {
        let record = self.log.record_at(appended);
        self.snapshots.note(record.header.keyspace(), record.key, old.unwrap_or(0));
    }

    /// All keys of a keyspace are about to be cleared: notes where their records are.
    ///
    /// # Errors
    /// As for [`sort`](Store::sort). Nothing has changed then.
    #[cold]
    #[inline(never)]
    pub(super) fn note_all(&mut self, keyspace: u32) -> Result<(), Error> {
        let bytes = self.count(keyspace) as usize * 2 * size_of::<Key>();
        if !self.log.can_allocate(bytes) {
            return Err(Error::ViewsHeld);
        }
        while self.wants_index_loading() && self.load_or_survey(usize::MAX)? {}
        if self.ordered && self.unloaded.is_none() {
            return self.note_in_order(keyspace);
        }
        self.index.track_positions();
        for slot in 0..self.log.slot_count() {
            for position in self.live_records_in(slot)? {
                let (addr, _) = self.log.scan_record(&mut self.file, position)?;
                self.note_record(addr, position, keyspace);
            }
        }
        Ok(())
    }

    /// The same with the keys in order, while the whole hash index is in memory: hardly any record is read.
    fn note_in_order(&mut self, keyspace: u32) -> Result<(), Error> {
        let mut keys: Vec<Key> = Vec::new();
        loop {
            let last = keys.last().cloned();
            let after = last.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            keys.clear();
            self.visit_all(keyspace, (after, Bound::Unbounded), false, &mut |key, _| {
                keys.push(Key::new(key));
                keys.len() < KEYS_TOGETHER
            })?;
            if keys.is_empty() {
                return Ok(());
            }
            for key in &keys {
                let hash = self.hash(keyspace, key);
                let mut probe = self.index.probe(hash);
                let found = (self.index.next(&mut probe), self.index.next(&mut probe));
                let position = match found {
                    // The only entry with the hash of a key that is there is its own.
                    (Some(position), None) => position,
                    _ => self.find_outlined(hash, keyspace, key)?.map_or(0, |at| at.position),
                };
                self.snapshots.note(keyspace, key, position);
            }
        }
    }

    fn note_record(&mut self, addr: BufferAddr, position: Position, keyspace: u32) {
        let record = self.log.record_in(addr);
        if record.header.keyspace() == keyspace && !self.is_cleared(record.header) {
            self.snapshots.note(keyspace, record.key, position);
        }
    }
}
