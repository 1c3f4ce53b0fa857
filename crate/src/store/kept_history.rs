//! Past commits of a file that keeps its history.
//!
//! In such a file nothing is compacted, keyspaces are cleared key by key, and large values are chunked. So each record
//! stays where it is, and one that replaced or deleted another states where that was. A past commit is shown by a
//! [snapshot](super::snapshots) that knows, for each key that has changed since, where its record was: this is found by
//! one walk over the log since that commit. Packing drops what no commit from some point on needs. What it has to keep
//! although it was replaced since, it copies to the end of the log as records that only the past has.

use alloc::vec::Vec;

use crate::error::{Error, damaged};
use crate::file::File;
use crate::format::KEYSPACE_ENGINE;
use crate::format::record::{KIND_CLEAR, KIND_DELETE, KIND_TRANSACTION};
use crate::format::system_records::{KEY_EXPIRY, KEY_GAP, KEY_HISTORY, KEY_MARKS, KEY_PACKED};
use crate::index::hash_index::Position;
use crate::index::keyspaces::Keyspaces;
use crate::index::ordered_index::{Key, OrderedKeys};
use crate::index::sorted_vec_map::SmallMap;
use crate::log::log_start::WalkStart;
use crate::log::records_since::WalkMemory;

use super::maintenance_jobs::Job;
use super::{SnapshotId, Store};

/// In place of the position of a record that packing has moved.
const MOVED: Position = Position::MAX;

/// A past commit.
pub(super) struct PastCommit {
    /// The largest version up to it.
    pub version: u64,
    /// Where the log since then begins; none if there is nothing.
    pub start: Option<WalkStart>,
    /// The sequence of the segment and the position of the first record of the transaction after it, if there is one.
    next: Option<(u32, Position)>,
    memory: WalkMemory,
}

/// The versions of the records of a transaction.
struct Versions {
    least: u64,
    most: u64,
}

/// Whether a record of the engine's own describes the file and not its content. A past commit has such records as they are
/// now: maintenance writes some of them, so earlier ones may be in segments that packing has freed.
fn is_of_the_file(key: &[u8]) -> bool {
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
    /// of `cursor`, or the last one before. It costs a walk over the log since then, and memory by the number of keys
    /// that have changed since. A record that expired is there until the transaction that deleted it.
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
            let (version, start) = (past.version, past.start);
            self.show(past).map(|()| (version, start))
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
        Ok(PastCommit { version, start, next, memory })
    }

    /// Makes the newest snapshot show a past commit.
    fn show(&mut self, past: PastCommit) -> Result<(), Error> {
        let PastCommit { version, start, next, mut memory } = past;
        let is_packed = self.packed_up_to()? > 0;
        let mut overlay: SmallMap<OrderedKeys> = SmallMap::default();
        // By key, the number of the newest copy in the list of copies.
        let mut moved: SmallMap<OrderedKeys> = SmallMap::default();
        let mut copies: Vec<(u64, Position)> = Vec::new();
        let (mut moved_keys, mut is_unknown) = (Vec::new(), false);
        let mut counts = Keyspaces::default();
        for (keyspace, count) in self.keyspaces.counts() {
            counts.entry(keyspace).count = count;
        }
        let Store { file, log, .. } = self;
        if let Some(start) = start {
            log.records_since(file, &mut memory, start, &mut |found| {
                let (header, keyspace) = (found.header, found.header.keyspace());
                if keyspace == KEYSPACE_ENGINE && is_of_the_file(found.key) {
                    return true;
                }
                if header.version <= version {
                    if found.is_moved && is_packed && header.has_value() {
                        let keys = moved.entry(keyspace);
                        let before = keys.position_of(found.key);
                        let before = before.and_then(|number| copies.get(number as usize));
                        // What an open snapshot needed may have been copied later than what replaced it.
                        if before.is_none_or(|&(version, _)| version <= header.version) {
                            keys.insert(found.key, copies.len() as Position);
                            copies.push((header.version, found.position));
                        }
                    }
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
                overlay.entry(keyspace).insert_missing(found.key, position);
                true
            })?;
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
        self.snapshots.show_past(counts.counts().collect(), overlay);
        Ok(())
    }
}
