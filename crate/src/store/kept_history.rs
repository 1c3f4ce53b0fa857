//! Past commits of a file that keeps its history.
//!
//! In such a file nothing is compacted, keyspaces are cleared key by key, and large values are chunked. So each record
//! stays where it is, and one that replaced or deleted another states where that was. A past commit is shown by a
//! [snapshot](super::snapshots). A key is looked up by going back from its record to the one that it replaced, and so on.
//! That finds no key that was deleted since. So for one that seems to have been absent, for a range or a count, and when
//! lookups have gone back many times, the snapshot learns of each key that has changed since where its record was, by one
//! walk over the log since that commit. Packing drops what no commit from some point on needs. What it has to keep
//! although it was replaced since, it copies to the end of the log as records that only the past has.

use alloc::vec::Vec;

use crate::error::{Error, damaged};
use crate::file::File;
use crate::format::record::{KIND_CLEAR, KIND_DELETE, KIND_TRANSACTION};
use crate::format::system_records::{KEY_EXPIRY, KEY_GAP, KEY_HISTORY, KEY_MARKS, KEY_PACKED};
use crate::format::{KEYSPACE_ENGINE, LAST_KEYSPACE};
use crate::index::Position;
use crate::index::keyspaces::Keyspaces;
use crate::index::ordered_index::{Key, OrderedKeys};
use crate::index::sorted_vec_map::SmallMap;
use crate::log::buffer_pool::AccessKind;
use crate::log::log_start::WalkStart;
use crate::log::records_since::WalkMemory;

use super::maintenance_jobs::Job;
use super::{Located, SnapshotId, Store};

/// In place of the position of a record that packing has moved.
const MOVED: Position = Position::MAX;

/// Whether there is memory for more changed keys is asked after so many.
const KEYS_TOGETHER: usize = 4096;

/// How many records lookups may go back for each segment that a walk would read, which takes some times as long as that.
const STEPS_PER_SEGMENT: u32 = 64;

/// A past commit that a snapshot shows.
#[derive(Clone, Copy, Debug)]
pub(super) struct PastCommit {
    /// The largest version up to it.
    version: u64,
    /// The largest version when the snapshot was taken.
    until: u64,
    /// Where the log since then begins; none if there is nothing.
    start: Option<WalkStart>,
    /// The sequence of the segment and the position of the first record of the transaction after it, if there is one.
    next: Option<(u32, Position)>,
    /// Whether a key may have been deleted since.
    has_deletions: bool,
    /// How many more records lookups may go back.
    pub steps: u32,
}

/// The versions of the records of a transaction.
struct Versions {
    least: u64,
    most: u64,
}

/// Whether a record of the engine's own describes the file and not its content. A past commit has such records as they are
/// now: maintenance writes some of them, so earlier ones may be in segments that packing has freed.
fn describes_file(key: &[u8]) -> bool {
    [KEY_EXPIRY, KEY_HISTORY, KEY_MARKS, KEY_PACKED].contains(&key) || key.starts_with(KEY_GAP)
}

impl<F: File> Store<F> {
    /// Whether nothing that was replaced or deleted is dropped: see [`Options::keeps_history`](super::Options).
    #[inline]
    #[must_use]
    pub fn keeps_history(&self) -> bool {
        self.log.keeps_history()
    }

    /// Takes a snapshot that shows the content as it was after a past transaction: that with the number or any version
    /// of `cursor`, or the last one before. Looking up a key then costs by how often it has changed since. The first
    /// range or count, or the first key that may have been deleted since, costs a walk over the log since then, and memory by
    /// the number of keys that have changed. A record that expired is there until the transaction that deleted it.
    ///
    /// # Errors
    /// [`Error::NoHistory`] if the file does not keep its history, [`Error::CursorInFuture`] if no commit has reached
    /// the cursor, [`Error::CursorExpired`] if the history was packed or salvaged since; otherwise as for
    /// [`snapshot`](Store::snapshot).
    pub fn at(&mut self, cursor: u64) -> Result<SnapshotId, Error> {
        Ok(self.at_with_start(cursor, false)?.0)
    }

    /// As [`at`](Store::at), but as the content was before the transaction with this number.
    ///
    /// # Errors
    /// As for [`at`](Store::at).
    pub fn before(&mut self, number: u64) -> Result<SnapshotId, Error> {
        Ok(self.at_with_start(number, true)?.0)
    }

    /// As [`at`](Store::at), with the last version of that commit, and where the log since then begins.
    pub(super) fn at_with_start(
        &mut self,
        cursor: u64,
        is_before: bool,
    ) -> Result<(SnapshotId, u64, Option<WalkStart>), Error> {
        if !self.keeps_history() {
            return Err(Error::NoHistory);
        }
        let snapshot = self.snapshot()?;
        // A segment that is being emptied is gone through again, for what this snapshot needs of it.
        if matches!(self.maintenance.job, Job::Packing(_)) {
            self.maintenance.job = Job::Nothing;
        }
        let shown = self.past_commit(cursor, is_before).and_then(|past| {
            self.snapshots.show_past(past);
            // Where the log begins must stay until it is walked over.
            if self.is_packing() || self.log.retired_bytes() > 0 {
                self.walk_past(snapshot.keyspace(0))?;
            }
            Ok((past.version, past.start))
        });
        match shown {
            Ok((version, start)) => Ok((snapshot, version, start)),
            Err(error) => {
                self.end_snapshot(snapshot);
                Err(error)
            }
        }
    }

    /// The version up to which the history was packed: earlier commits cannot be shown. 0 if it was not.
    ///
    /// # Errors
    /// As for [`get`](Store::get).
    pub fn packed_up_to(&mut self) -> Result<u64, Error> {
        let found = self.read(KEYSPACE_ENGINE, KEY_PACKED)?;
        let bytes = found.and_then(|bytes| bytes.first_chunk().copied());
        Ok(bytes.map_or(0, u64::from_le_bytes))
    }

    /// Finds the transaction with the number or any version of `cursor`, or the last one before. With `is_before` that
    /// before the one of that number.
    fn past_commit(&mut self, cursor: u64, is_before: bool) -> Result<PastCommit, Error> {
        let since = cursor.saturating_sub(is_before.into());
        if is_before && cursor > self.last_commit {
            return Err(Error::CursorInFuture);
        }
        if !self.since_and_frame(since)?.0.is_whole {
            return Err(Error::CursorExpired);
        }
        let mut memory = WalkMemory::new();
        let start = self.log.start_in(&mut self.file, &mut memory, since)?;
        let (mut version, mut transaction, mut next) = (0, None, None);
        // Of the first transaction that is none of the past.
        let mut least_after = u64::MAX;
        // Returns whether a transaction is one of the past.
        let mut end = |versions: Option<Versions>| match versions {
            Some(Versions { least, most }) if least > cursor || is_before && most >= cursor => {
                least_after = least;
                false
            }
            Some(Versions { most, .. }) => {
                version = most.max(version);
                true
            }
            None => true,
        };
        if let Some(start) = start {
            let (mut goes_on, mut begun) = (true, None);
            self.log.records_since(&mut self.file, &mut memory, start, &mut |found| {
                if found.is_moved {
                    return true;
                }
                if found.begins || found.header.kind == KIND_TRANSACTION {
                    goes_on = end(transaction.take());
                    if !goes_on {
                        next = begun;
                        return false;
                    }
                    begun = Some((found.sequence, found.position));
                }
                // The first change may have been overwritten in place or rolled back; the number of a note was not.
                let at = match found.header.kind {
                    KIND_TRANSACTION => {
                        found.value.first_chunk().map_or(0, |number| u64::from_le_bytes(*number))
                    }
                    _ => found.header.version,
                };
                if at != 0 {
                    let versions = transaction.get_or_insert(Versions { least: at, most: at });
                    (versions.least, versions.most) =
                        (versions.least.min(at), versions.most.max(at));
                }
                true
            })?;
            if goes_on && !end(transaction.take()) {
                next = begun;
            }
        }
        // What is before the start of the walk has versions up to `since`.
        version = version.max(since.min(least_after.saturating_sub(1)));
        if least_after <= self.packed_up_to()? {
            return Err(Error::CursorExpired);
        }
        let from = start.map_or(u32::MAX, |start| start.sequence);
        let (segments, has_deletions) = self.log.segments_from(from);
        let steps = segments * STEPS_PER_SEGMENT;
        let until = self.next_version - 1;
        Ok(PastCommit { version, until, start, next, has_deletions, steps })
    }

    /// Goes back from the record that a key had when a snapshot was taken to that of the past commit that it shows.
    pub(super) fn find_past(
        &mut self,
        keyspace: u32,
        key: &[u8],
        access: AccessKind,
        mut found: Option<Located>,
    ) -> Result<Option<Located>, Error> {
        let plain = keyspace & LAST_KEYSPACE;
        let mut loaded_for = access;
        while let Some(past) = self.snapshots.unwalked(keyspace) {
            let record = found.map(|at| (at, self.log.record_in(at.addr).header));
            if record.is_some_and(|(_, header)| header.version <= past.version)
                || plain == KEYSPACE_ENGINE && describes_file(key)
            {
                break;
            }
            let previous = record.map_or(0, |(_, header)| header.previous);
            if previous == 0 && !past.has_deletions {
                return Ok(None);
            }
            let is_kept = |(at, _): (Located, _)| {
                self.log.kept_in(previous, self.log.sequence_of(at.position)).is_some()
            };
            if previous == 0 || past.steps == 0 || !record.is_some_and(is_kept) {
                self.walk_past(keyspace)?;
                return self.find_then(keyspace, key, access);
            }
            past.steps -= 1;
            loaded_for = AccessKind::Own;
            found = self.find_at(previous, plain, key, loaded_for)?;
        }
        match found {
            Some(at) if loaded_for != access => self.find_at(at.position, plain, key, access),
            found => Ok(found),
        }
    }

    /// Finds out where all records were that a past commit had, if the number of a keyspace selects a snapshot that shows
    /// one, and that is not known yet.
    ///
    /// # Errors
    /// As for [`at`](Store::at); [`Error::ViewsHeld`] if there is no memory for it beside views that must stay valid.
    pub(super) fn walk_past(&mut self, keyspace: u32) -> Result<(), Error> {
        match self.snapshots.unwalked(keyspace) {
            Some(&mut past) => self.show(past, keyspace),
            None => Ok(()),
        }
    }

    /// The same for all snapshots. Returns whether there were any to do this for.
    pub(super) fn walk_pasts(&mut self) -> Result<bool, Error> {
        let mut has_walked = false;
        while let Some(snapshot) = self.snapshots.first_unwalked() {
            self.walk_past(snapshot)?;
            has_walked = true;
        }
        Ok(has_walked)
    }

    fn show(&mut self, past: PastCommit, keyspace: u32) -> Result<(), Error> {
        let PastCommit { version, until, start, next, .. } = past;
        let mut memory = WalkMemory::new();
        let is_packed = self.packed_up_to()? > 0;
        let mut overlay: SmallMap<OrderedKeys> = SmallMap::default();
        // By key, the number of the newest copy in the list of copies.
        let mut moved: SmallMap<OrderedKeys> = SmallMap::default();
        let mut copies: Vec<(u64, Position)> = Vec::new();
        let (mut moved_keys, mut is_unknown, mut is_full) = (Vec::new(), false, false);
        let mut counts = Keyspaces::default();
        for &(number, count) in self.snapshots.counts(keyspace) {
            counts.entry(number).count = count;
        }
        let Store { file, log, .. } = self;
        let needed = OrderedKeys::bytes_to_insert(usize::MAX);
        let asks_at = |count: usize| count.is_multiple_of(KEYS_TOGETHER);
        if let Some(start) = start {
            log.records_since(file, &mut memory, start, &mut |found| {
                let (header, keyspace) = (found.header, found.header.keyspace());
                if keyspace == KEYSPACE_ENGINE && describes_file(found.key) {
                    return true;
                }
                if header.version <= version {
                    if found.is_moved && is_packed && header.has_value() {
                        let keys = moved.entry(keyspace);
                        let before = keys.position_of(found.key);
                        let before = before.and_then(|number| copies.get(number as usize));
                        // What an open snapshot needed may have been copied later than what replaced it.
                        if before.is_none_or(|&(version, _)| version <= header.version) {
                            let bytes = size_of_val(&copies[..]) * 2;
                            is_full = asks_at(copies.len()) && !log.can_allocate(needed + bytes);
                            keys.insert(found.key, copies.len() as Position);
                            copies.push((header.version, found.position));
                        }
                    }
                    return !is_full;
                }
                // The snapshot knows of what came after it.
                if header.version > until {
                    return true;
                }
                is_unknown |= header.kind == KIND_CLEAR;
                if !header.can_be_current() && header.kind != KIND_DELETE {
                    return true;
                }
                let mut position = header.previous;
                if header.kind == KIND_DELETE {
                    let count = &mut counts.entry(keyspace).count;
                    *count = count.wrapping_add(1);
                } else if position == 0 {
                    let count = &mut counts.entry(keyspace).count;
                    *count = count.wrapping_sub(1);
                }
                if position != 0 {
                    match log.kept_in(position, found.sequence) {
                        // It replaced a record that is later than the past commit itself.
                        Some(sequence)
                            if !is_packed
                                && next.is_some_and(|next| (sequence, position) >= next) =>
                        {
                            return true;
                        }
                        Some(_) => {}
                        None => {
                            position = MOVED;
                            moved_keys.push((keyspace, Key::new(found.key)));
                        }
                    }
                }
                let keys = overlay.entry(keyspace);
                is_full = asks_at(keys.deferred()) && !log.can_allocate_chunks(needed);
                keys.keeps_first = true;
                keys.defer_insert(found.key, position);
                !is_full
            })?;
        }
        let numbers: Vec<u32> = overlay.iter().map(|(number, _)| *number).collect();
        for number in numbers {
            is_full |= !log.can_allocate_chunks(needed);
            if !is_full {
                overlay.entry(number).apply_deferred(true);
            }
        }
        if is_full {
            return Err(Error::ViewsHeld);
        }
        for (keyspace, key) in moved_keys {
            let keys = overlay.entry(keyspace);
            if keys.position_of(&key) == Some(MOVED) {
                let number = moved.get(keyspace).and_then(|keys| keys.position_of(&key));
                let copy = number.and_then(|number| copies.get(number as usize));
                keys.set_position(&key, copy.ok_or(damaged(0))?.1);
            }
        }
        if is_unknown {
            return Err(Error::CursorExpired);
        }
        self.snapshots.set_walked(keyspace, counts.counts().collect(), overlay);
        Ok(())
    }
}
