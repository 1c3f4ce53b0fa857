//! Records that expire.
//!
//! A record that expires has the time in its header. Beside it, in the same commit, the engine's keyspace has an entry
//! whose key begins with the record's keyspace and that time, so that what is due is found in the order of keys, without
//! reading records. Reads compare the header with the time that the caller gave last, so an expired record is absent at
//! once. Counts subtract the entries that are due. Deletions, a slice at a time, remove the records and their entries.
//! Entries in damaged parts of the file are left out: their records are absent in time, but counted until they are written
//! again.

use alloc::vec::Vec;
use core::ops::Bound;

use crate::error::Error;
use crate::file::File;
use crate::format::system_records::{
    KEY_EXPIRY, expiry_end, expiry_entry, expiry_of, expiry_start, max_expiring_key,
};
use crate::format::{KEYSPACE_ENGINE, LAST_KEYSPACE};
use crate::index::Position;
use crate::index::ordered_index::Key;
use crate::log::ValueLocation;

use super::key_range::KeyBounds;
use super::sorted_keys::ALL_SORTED;
use super::write::Changing;
use super::{IfExpired, Located, Staged, Store};

/// Due records that are deleted at once when the time advances, and by one step of maintenance.
const SLICE: usize = 64;
/// Keys of a range that are looked up together while some of them may be due.
const PAGE: usize = 256;
/// In an index of at most this many entries keys are sorted at once to find what is due.
const SMALL_INDEX: usize = 1 << 14;

/// The state of records that expire.
#[derive(Debug, Default)]
pub(super) struct Expiry {
    /// Whether the store has, or had, records that expire.
    pub is_used: bool,
    /// The time that the caller gave last, in seconds since 1970.
    clock: u32,
    /// Records with an expiry up to this time are absent. 0 while none expires.
    now: u32,
    /// No entry is for an earlier time.
    earliest: u32,
    /// Keyspaces that have or had entries; none if they are not known.
    spaces: Option<Vec<Space>>,
    /// The expiry of the record that is staged next.
    pub next: u32,
    /// The time in the record [`KEY_EXPIRY`], if there is one.
    stored: u32,
    /// Whether the time was given while a savepoint was open, so that nothing could be deleted.
    pub is_late: bool,
    /// Whether what is due is being deleted.
    pub is_deleting: bool,
    /// Whether deletions wait for space.
    is_paused: bool,
    /// What the open batch deletes was due at this time. If the batch is lost, that stays absent.
    deleted_at: u32,
}

/// Called with an entry, its time and its record's key; returns whether to go on.
type Visit<'a> = dyn FnMut(&[u8], u32, &[u8]) -> bool + 'a;

/// A keyspace with entries.
#[derive(Debug)]
struct Space {
    keyspace: u32,
    /// No entry of the keyspace is before this key, so that looking for the first one does not pass those that were
    /// deleted.
    from: Vec<u8>,
}

impl<F: File> Store<F> {
    /// Gives the store the time, in seconds since 1970: a record with an expiry up to it is absent from now on.
    /// Without this call nothing expires. Deletes some of what is due, unless a savepoint is open or a record is
    /// staged; the rest is deleted by maintenance. Returns whether something was written to the open batch.
    ///
    /// A time before the last one counts only when everything that was due then has been deleted. So no record that
    /// was absent comes back, and yet a clock that was wrong for a while can be corrected.
    ///
    /// # Errors
    /// The time counts, but a batch that had become large by that could not be committed: as for
    /// [`commit`](Store::commit). What else fails is tried again later, and reads do not depend on it.
    pub fn set_now(&mut self, seconds: u32) -> Result<bool, Error> {
        self.expiry.clock = seconds;
        if !self.expiry.is_used || seconds == self.expiry.now && !self.may_have_due() {
            return Ok(false);
        }
        let can_write = !self.read_only
            && !self.poisoned
            && self.savepoints.is_empty()
            && matches!(self.staging.staged, Staged::Nothing);
        self.expiry.now = self.expiry.now.max(seconds);
        if !can_write {
            self.expiry.is_late |= self.may_have_due();
            // A savepoint could bring back what was due.
            if !self.seems_due() && self.savepoints.is_empty() {
                self.expiry.now = seconds;
            }
            return Ok(false);
        }
        let (before, commit) = (self.log.batch_bytes(), self.last_commit);
        self.expiry.is_late = false;
        // All of it comes into the file together, with what else the turn wrote.
        let _ = self.savepoint();
        // What fails is tried again later.
        let _ = if self.wants_expiry() { self.delete_due(SLICE) } else { Ok(()) };
        let (is_ahead, is_behind) = match self.may_have_due() {
            true => (false, self.expiry.stored < self.expiry.now),
            false => {
                self.expiry.now = seconds;
                (self.expiry.stored > seconds.max(1), false)
            }
        };
        let _ = if is_ahead || is_behind { self.store_now() } else { Ok(()) };
        let released = self.release_last();
        // The program's writes were in that batch.
        let is_lost = before > 0 && self.last_commit == commit && self.log.batch_bytes() == 0;
        match released {
            Err(error) if self.poisoned || is_lost => Err(error),
            _ => Ok(self.log.batch_bytes() != before),
        }
    }

    /// Sets a key to a value that is absent from a time on, in seconds since 1970; 0 for never. Returns the new version.
    /// The key may have up to 65,522 bytes.
    ///
    /// # Errors
    /// As for [`set`](Store::set).
    pub fn set_with_expiry(
        &mut self,
        keyspace: u32,
        key: &[u8],
        value: &[u8],
        expiry: u32,
    ) -> Result<u64, Error> {
        self.expire_next(expiry);
        self.set(keyspace, key, value)
    }

    /// Gives the record that [`begin_set`](Store::begin_set), [`put`](Store::put) or [`set`](Store::set) stages next an
    /// expiry, in seconds since 1970; 0 for never. If staging it fails, this does not count for a later one.
    pub fn expire_next(&mut self, expiry: u32) {
        self.expiry.next = expiry;
    }

    /// Changes when a key expires, in seconds since 1970, or 0 for never; its value stays. Returns whether the key exists.
    /// The record is written again, with a new version, unless it has this expiry already.
    ///
    /// # Errors
    /// As for [`set`](Store::set).
    pub fn touch(&mut self, keyspace: u32, key: &[u8], expiry: u32) -> Result<bool, Error> {
        self.check_write(keyspace, key)?;
        let found = self.find_outlined(self.hash(keyspace, key), keyspace, key)?;
        let Some(at) = found.filter(|at| !self.is_expired(keyspace, *at)) else { return Ok(false) };
        let old = self.log.record_in(at.addr).header.expiry;
        if old == expiry {
            return Ok(true);
        }
        let _ = self.savepoint();
        match self.write_touched(keyspace, key, old, expiry) {
            Ok(()) => self.release_last().map(|()| true),
            Err(error) => {
                self.rollback_last();
                Err(error)
            }
        }
    }

    fn write_touched(
        &mut self,
        keyspace: u32,
        key: &[u8],
        old: u32,
        expiry: u32,
    ) -> Result<(), Error> {
        self.change_entry(keyspace, key, old, expiry)?;
        // After a savepoint no record is changed in place, so this stages a copy.
        if self.begin_update(keyspace, key)? {
            self.stage_expiry(expiry);
            let length = self.staged_value().len();
            self.finish(length)?;
        }
        Ok(())
    }

    /// When the record of a key expires, in seconds since 1970; 0 for never, none if the key is absent.
    ///
    /// # Errors
    /// As for [`get`](Store::get).
    pub fn expiry(&mut self, keyspace: u32, key: &[u8]) -> Result<Option<u32>, Error> {
        let found = self.find_outlined(self.hash(keyspace, key), keyspace, key)?;
        let found = found.filter(|at| !self.is_expired(keyspace, *at));
        Ok(found.map(|at| self.log.record_in(at.addr).header.expiry))
    }

    /// Whether the store has, or had, records that expire, so that [`set_now`](Store::set_now) has to be called.
    #[must_use]
    pub fn expires(&self) -> bool {
        self.expiry.is_used
    }

    /// The time up to which records are absent; see [`set_now`](Store::set_now).
    #[must_use]
    pub fn now(&self) -> u32 {
        self.expiry.now.max(if self.expiry.is_used { 0 } else { self.expiry.clock })
    }

    /// The number of keys in a keyspace that have not expired.
    ///
    /// # Errors
    /// While expired records wait to be deleted, and for a past commit: as for [`range`](Store::range).
    pub fn live_count(&mut self, keyspace: u32) -> Result<u64, Error> {
        self.walk_past(keyspace)?;
        let due = self.count_due(keyspace, (Bound::Unbounded, Bound::Unbounded))?;
        Ok(self.count(keyspace).saturating_sub(due))
    }

    /// The number of records that have expired and wait to be deleted.
    ///
    /// # Errors
    /// As for [`range`](Store::range).
    pub fn due(&mut self) -> Result<u64, Error> {
        let mut due = 0;
        if self.seems_due() {
            for keyspace in self.listed_spaces()? {
                due += self.count_due(keyspace, (Bound::Unbounded, Bound::Unbounded))?;
            }
        }
        Ok(due)
    }

    // ---------------------------------------------------------------- reading

    /// Whether a record of a keyspace has expired. 0, for never, counts as later than any time. A snapshot shows what
    /// had not expired when it was taken.
    #[inline(always)]
    pub(super) fn is_expired(&self, keyspace: u32, at: Located) -> bool {
        let now = self.expiry.now;
        let expiry = self.log.expiry_in(at.addr);
        now != 0
            && expiry.wrapping_sub(1) < now
            && (keyspace <= LAST_KEYSPACE || expiry <= self.snapshots.hides_until(keyspace))
    }

    /// The time up to which records of a keyspace, live or of a snapshot, may be there and due; 0 for none. Taking a snapshot
    /// deletes what is due, so none of its records are, unless the store could not be written to. A past commit had what it had.
    fn due_until(&self, keyspace: u32) -> u32 {
        match keyspace <= LAST_KEYSPACE {
            true => self.expiry.now,
            false => self.snapshots.hides_until(keyspace),
        }
    }

    /// Deletes all that is due, so that the log shows it. A read-only store deletes nothing.
    ///
    /// # Errors
    /// [`Error::Reentrancy`] inside a savepoint or an update; otherwise as for [`delete`](Store::delete).
    pub fn delete_due_now(&mut self) -> Result<(), Error> {
        if !matches!(self.staging.staged, Staged::Nothing) || !self.savepoints.is_empty() {
            return Err(Error::Reentrancy);
        }
        while !self.read_only && !self.poisoned && self.may_have_due() {
            self.sort_readable(ALL_SORTED)?;
            let version = self.next_version;
            self.delete_due(SLICE)?;
            // A malicious file may list what cannot be deleted.
            if self.next_version == version {
                break;
            }
        }
        Ok(())
    }

    /// Records with an expiry up to this time are absent; 0 if none expires.
    #[inline(always)]
    pub(super) fn expired_until(&self) -> u32 {
        self.expiry.now
    }

    /// Whether there may be entries that are due. Looks for the earliest one if that takes no time.
    fn may_have_due(&mut self) -> bool {
        if self.seems_due() && self.is_sorted() {
            let _ = self.find_earliest();
        }
        self.seems_due()
    }

    /// Whether keys are in order, or so few that they are sorted at once.
    fn is_sorted(&self) -> bool {
        self.sorted_keys.sorted_below == ALL_SORTED || self.index_len() <= SMALL_INDEX
    }

    #[inline]
    fn seems_due(&self) -> bool {
        self.expiry.earliest <= self.expiry.now && self.expiry.is_used
    }

    fn find_earliest(&mut self) -> Result<(), Error> {
        let mut earliest = u32::MAX;
        for keyspace in self.listed_spaces()? {
            self.each_entry(keyspace, &mut |_, expiry, _| {
                earliest = earliest.min(expiry);
                false
            })?;
        }
        self.expiry.earliest = earliest;
        Ok(())
    }

    /// The keyspaces that have or had entries.
    fn listed_spaces(&mut self) -> Result<Vec<u32>, Error> {
        self.list_spaces()?;
        let spaces = self.expiry.spaces.as_deref().unwrap_or_default();
        Ok(spaces.iter().map(|space| space.keyspace).collect())
    }

    /// Lists the keyspaces that have entries, unless they are known.
    fn list_spaces(&mut self) -> Result<(), Error> {
        if self.expiry.spaces.is_some() {
            return Ok(());
        }
        let (mut spaces, mut next) = (Vec::new(), 0);
        while next <= LAST_KEYSPACE {
            let start = expiry_start(next);
            let bounds = (Bound::Included(&start[..]), Bound::Excluded(expiry_end()));
            let mut first = None;
            self.visit_readable(KEYSPACE_ENGINE, bounds, &mut |entry, _| {
                first = expiry_of(entry).map(|(keyspace, ..)| (keyspace, entry.to_vec()));
                first.is_none()
            })?;
            let Some((keyspace, from)) = first else { break };
            spaces.push(Space { keyspace, from });
            next = keyspace + 1;
        }
        self.expiry.spaces = Some(spaces);
        Ok(())
    }

    /// Passes the entries of a keyspace to `visit`, with their times and keys, in the order of time, until it returns
    /// false.
    fn each_entry(&mut self, keyspace: u32, visit: &mut Visit<'_>) -> Result<(), Error> {
        self.list_spaces()?;
        let spaces = self.expiry.spaces.as_deref().unwrap_or_default();
        let Some(space) = spaces.iter().find(|space| space.keyspace == keyspace) else {
            return Ok(());
        };
        let from = space.from.clone();
        let bounds = (Bound::Included(&from[..]), Bound::Excluded(expiry_end()));
        self.visit_readable(KEYSPACE_ENGINE, bounds, &mut |entry, _| match expiry_of(entry) {
            Some((of, expiry, key)) => of == keyspace && visit(entry, expiry, key),
            None => true,
        })
    }

    /// An entry is added.
    fn note_entry(&mut self, keyspace: u32, entry: &[u8]) {
        let Some(spaces) = &mut self.expiry.spaces else { return };
        match spaces.iter_mut().find(|space| space.keyspace == keyspace) {
            Some(space) if entry < &space.from[..] => space.from = entry.to_vec(),
            Some(_) => {}
            None => spaces.push(Space { keyspace, from: entry.to_vec() }),
        }
    }

    /// The number of due records of a keyspace between two bounds.
    pub(super) fn count_due(&mut self, keyspace: u32, bounds: KeyBounds<'_>) -> Result<u64, Error> {
        let until = self.due_until(keyspace);
        if keyspace == KEYSPACE_ENGINE || !self.seems_due() || until == 0 {
            return Ok(0);
        }
        let mut count = 0;
        self.each_due(keyspace & LAST_KEYSPACE, until, &mut |key| {
            count += u64::from(is_between(key, bounds));
            true
        })?;
        Ok(count)
    }

    /// Passes the keys of a keyspace whose records were due at a time to `visit`, in the order of time, until it returns
    /// false.
    fn each_due(
        &mut self,
        keyspace: u32,
        until: u32,
        visit: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<(), Error> {
        self.each_entry(keyspace, &mut |_, expiry, key| expiry <= until && visit(key))
    }

    /// Whether some record of a keyspace may be due, so that its keys have to be looked up.
    pub(super) fn has_due(&mut self, keyspace: u32) -> Result<bool, Error> {
        let mut has_due = false;
        let until = self.due_until(keyspace);
        if keyspace != KEYSPACE_ENGINE && self.seems_due() && until > 0 {
            self.each_due(keyspace & LAST_KEYSPACE, until, &mut |_| {
                has_due = true;
                false
            })?;
        }
        Ok(has_due)
    }

    /// Passes the keys between two bounds whose records have not expired to `visit`.
    pub(super) fn visit_unexpired(
        &mut self,
        keyspace: u32,
        bounds: KeyBounds<'_>,
        reverse: bool,
        visit: &mut dyn FnMut(&[u8], Position) -> bool,
    ) -> Result<(), Error> {
        let mut last: Option<Key> = None;
        loop {
            let mut page: Vec<(Key, Position)> = Vec::new();
            let behind = last.as_ref().map(|key| Bound::Excluded(&key[..]));
            let part = match (behind, reverse) {
                (None, _) => bounds,
                (Some(behind), false) => (behind, bounds.1),
                (Some(behind), true) => (bounds.0, behind),
            };
            self.visit_all(keyspace, part, reverse, &mut |key, position| {
                page.push((Key::new(key), position));
                page.len() < PAGE
            })?;
            let is_last = page.len() < PAGE;
            for (key, position) in page {
                let found = match self.find_outlined(self.hash(keyspace, &key), keyspace, &key) {
                    // Reading that record reports the damage.
                    Err(Error::Corruption(_)) => None,
                    found => found?,
                };
                if !found.is_some_and(|at| self.is_expired(keyspace, at)) && !visit(&key, position)
                {
                    return Ok(());
                }
                last = Some(key);
            }
            if is_last {
                return Ok(());
            }
        }
    }

    // ---------------------------------------------------------------- writing

    /// As `begin`, for a record that expires or replaces one that does.
    #[cold]
    #[inline(never)]
    pub(super) fn begin_expiring(
        &mut self,
        hash: u32,
        keyspace: u32,
        key: &[u8],
        capacity: usize,
        may_fail: bool,
        expiry: u32,
    ) -> Result<(), Error> {
        let found = self.find_outlined(hash, keyspace, key)?;
        let old = found.map_or(0, |at| self.log.record_in(at.addr).header.expiry);
        if old == expiry {
            return self.stage_expiring(found, hash, keyspace, key, capacity, may_fail, expiry);
        }
        let _ = self.savepoint();
        let staged = self.change_entry(keyspace, key, old, expiry).and_then(|()| {
            // The record that is replaced may have been evicted.
            let found = self.find_outlined(hash, keyspace, key)?;
            self.stage_expiring(found, hash, keyspace, key, capacity, may_fail, expiry)
        });
        self.staging.has_entry = staged.is_ok();
        if staged.is_err() {
            self.undo_last();
        }
        staged
    }

    #[allow(clippy::too_many_arguments, reason = "those of `begin`, and what it found")]
    fn stage_expiring(
        &mut self,
        found: Option<Located>,
        hash: u32,
        keyspace: u32,
        key: &[u8],
        capacity: usize,
        may_fail: bool,
        expiry: u32,
    ) -> Result<(), Error> {
        if let Some(at) = found
            && self.log.can_overwrite(at.position, at.addr, capacity)
        {
            if may_fail {
                self.save_value(at)?;
            }
            self.staging.changing = Changing { at, location: ValueLocation::Record };
            self.staging.staged = Staged::InPlace;
            return Ok(());
        }
        self.staging.new.old = found.map(|at| self.predecessor(at));
        self.stage(None, hash, keyspace, key, capacity, false)?;
        self.stage_expiry(expiry);
        Ok(())
    }

    /// Ends the savepoint of a staged record and its entry.
    #[cold]
    #[inline(never)]
    pub(super) fn end_with_entry(&mut self, keeps: bool) -> Result<(), Error> {
        self.staging.has_entry = false;
        if keeps {
            return self.release_last();
        }
        self.undo_last();
        Ok(())
    }

    /// Removes the entry of a record that expired at `old`, unless that is 0, and adds one for `new`, likewise.
    fn change_entry(&mut self, keyspace: u32, key: &[u8], old: u32, new: u32) -> Result<(), Error> {
        let next = core::mem::take(&mut self.expiry.next);
        if old != 0 {
            self.remove_entry_of(keyspace, key, old)?;
        }
        if new != 0 {
            if key.len() > max_expiring_key() {
                return Err(Error::ExpiringKeyTooLong);
            }
            self.begin_expiry()?;
            let entry = expiry_entry(keyspace, new, key);
            self.set(KEYSPACE_ENGINE, &entry, &[])?;
            self.note_entry(keyspace, &entry);
            self.expiry.earliest = self.expiry.earliest.min(new);
            if new <= self.expiry.now && self.expiry.stored < self.expiry.now {
                // It is absent at once, and stays so.
                self.store_now()?;
            }
        }
        self.expiry.next = next;
        Ok(())
    }

    /// Removes the entry of a record that is being replaced or deleted.
    pub(super) fn remove_entry_of(
        &mut self,
        keyspace: u32,
        key: &[u8],
        expiry: u32,
    ) -> Result<(), Error> {
        self.append_tombstone(
            KEYSPACE_ENGINE,
            &expiry_entry(keyspace, expiry, key),
            IfExpired::Delete,
        )?;
        Ok(())
    }

    /// Makes sure that the next opening knows of records that expire.
    fn begin_expiry(&mut self) -> Result<(), Error> {
        if self.expiry.stored != 0 {
            return Ok(());
        }
        if !self.expiry.is_used {
            self.expiry.is_used = true;
            (self.expiry.now, self.expiry.earliest) = (self.expiry.clock, u32::MAX);
            // What is due is found in the order of keys.
            self.ordered = true;
        }
        self.store_now()
    }

    /// Stores the time, from which the next opening goes on.
    fn store_now(&mut self) -> Result<(), Error> {
        let now = self.expiry.now.max(1);
        self.set(KEYSPACE_ENGINE, KEY_EXPIRY, &u64::from(now).to_le_bytes())?;
        self.expiry.stored = now;
        Ok(())
    }

    /// Goes on from a time that was stored before.
    pub(super) fn continue_expiry(&mut self, stored: &[u8]) -> Result<(), Error> {
        let stored = stored.try_into().map_or(0, u64::from_le_bytes);
        self.expiry.now = self.expiry.now.max(u32::try_from(stored).unwrap_or(u32::MAX));
        self.store_now()
    }

    /// Loads the state at the end of opening.
    pub(super) fn load_expiry(&mut self) -> Result<(), Error> {
        let stored = self.read(KEYSPACE_ENGINE, KEY_EXPIRY)?;
        let stored = stored.and_then(|value| value.try_into().ok()).map_or(0, u64::from_le_bytes);
        if stored != 0 {
            let now = u32::try_from(stored).unwrap_or(u32::MAX);
            self.expiry = Expiry { is_used: true, now, stored: now, ..Expiry::default() };
            self.ordered = true;
        }
        Ok(())
    }

    /// After the last savepoint has ended: what was absent while it was open stays so.
    #[cold]
    #[inline(never)]
    pub(super) fn catch_up_expiry(&mut self) -> Result<(), Error> {
        self.expiry.is_late = false;
        self.set_now(self.expiry.clock).map(drop)
    }

    /// Changes were undone, perhaps deletions of what was due. With `all`, those of the whole batch.
    pub(super) fn undo_expiry(&mut self, all: bool) {
        if all {
            self.expiry.now = self.expiry.now.max(self.expiry.deleted_at);
        }
        (self.expiry.stored, self.expiry.earliest) = (0, 0);
        self.expiry.spaces = None;
    }

    // ---------------------------------------------------------------- deleting what is due

    /// Whether maintenance should delete what is due.
    pub(super) fn wants_expiry(&self) -> bool {
        self.seems_due() && !self.expiry.is_paused && self.is_sorted()
    }

    /// One step of maintenance. Returns whether there was one.
    pub(super) fn expiry_step(&mut self) -> Result<bool, Error> {
        if !self.wants_expiry() {
            return Ok(false);
        }
        let version = self.next_version;
        match self.delete_due(SLICE) {
            // Compaction may free space.
            Err(Error::Quota | Error::Full) if !self.poisoned => {
                self.expiry.is_paused = true;
                Ok(false)
            }
            // A malicious file may list what cannot be deleted.
            Ok(()) if self.next_version == version => {
                self.expiry.is_paused = true;
                Ok(false)
            }
            deleted => deleted.map(|()| true),
        }
    }

    /// The batch was committed: lets deletions that ran out of space try again.
    #[inline]
    pub(super) fn resume_expiry(&mut self) {
        (self.expiry.is_paused, self.expiry.deleted_at) = (false, 0);
    }

    /// Deletes records that are due, at most `limit` of them. Commits in between do no maintenance, which would come
    /// back here.
    fn delete_due(&mut self, limit: usize) -> Result<(), Error> {
        let was_deleting = core::mem::replace(&mut self.expiry.is_deleting, true);
        let deleted = if was_deleting { Ok(()) } else { self.delete_slice(limit) };
        self.expiry.is_deleting = was_deleting;
        deleted
    }

    fn delete_slice(&mut self, limit: usize) -> Result<(), Error> {
        let mut due: Vec<Key> = Vec::new();
        let (mut earliest, now) = (u32::MAX, self.expiry.now);
        for keyspace in self.listed_spaces()? {
            let before = due.len();
            self.each_entry(keyspace, &mut |entry, expiry, _| {
                if expiry > now {
                    earliest = earliest.min(expiry);
                } else if due.len() < limit {
                    due.push(Key::new(entry));
                }
                expiry <= now && due.len() < limit
            })?;
            for entry in &due[before..] {
                let Some((_, expiry, key)) = expiry_of(entry) else { continue };
                self.delete_expired(keyspace, key, expiry)?;
            }
            let spaces = self.expiry.spaces.iter_mut().flatten();
            if let Some(last) = due[before..].last() {
                spaces.filter(|space| space.keyspace == keyspace).for_each(|space| {
                    space.from = last.to_vec();
                });
            }
            if due.len() >= limit {
                break;
            }
        }
        if due.len() < limit {
            self.expiry.earliest = earliest;
        }
        Ok(())
    }

    fn delete_expired(&mut self, keyspace: u32, key: &[u8], expiry: u32) -> Result<(), Error> {
        let found = match self.find_outlined(self.hash(keyspace, key), keyspace, key) {
            // The damaged record stays, as after other deletions.
            Err(Error::Corruption(_)) => None,
            found => found?,
        };
        self.expiry.deleted_at = self.expiry.deleted_at.max(self.expiry.now);
        let is_due = |at: Located| self.log.record_in(at.addr).header.expiry == expiry;
        if found.is_some_and(is_due) {
            self.append_tombstone(keyspace, key, IfExpired::Delete)?;
            return Ok(());
        }
        self.remove_entry_of(keyspace, key, expiry)
    }

    /// Deletes the entries of a keyspace that is being cleared. A savepoint is open.
    pub(super) fn clear_entries(&mut self, keyspace: u32) -> Result<(), Error> {
        let (start, next) = (expiry_start(keyspace), expiry_start(keyspace + 1));
        let end = if keyspace == LAST_KEYSPACE { expiry_end() } else { &next[..] };
        let bounds = (Bound::Included(&start[..]), Bound::Excluded(end));
        self.delete_range(KEYSPACE_ENGINE, bounds, false, u64::MAX).map(drop)
    }

    /// Whether a keyspace has records that expire.
    pub(super) fn has_entries(&mut self, keyspace: u32) -> Result<bool, Error> {
        let mut has_entries = false;
        if self.expiry.is_used && keyspace != KEYSPACE_ENGINE {
            self.each_entry(keyspace, &mut |_, _, _| {
                has_entries = true;
                false
            })?;
        }
        Ok(has_entries)
    }
}

fn is_between(key: &[u8], (lower, upper): KeyBounds<'_>) -> bool {
    let is_above = match lower {
        Bound::Included(lower) => key >= lower,
        Bound::Excluded(lower) => key > lower,
        Bound::Unbounded => true,
    };
    is_above
        && match upper {
            Bound::Included(upper) => key <= upper,
            Bound::Excluded(upper) => key < upper,
            Bound::Unbounded => true,
        }
}
