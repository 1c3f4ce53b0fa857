//! Ranges of keys: a walk that merges the changed keys in memory with the runs in the file.

use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::ops::Bound;

use crate::error::Error;
use crate::file::File;
use crate::format::LAST_KEYSPACE;
use crate::format::key_run::{KeyRunValue, run_key};
use crate::index::Position;
use crate::index::ordered_index::{Key, Range};
use crate::log::Log;
use crate::log::key_runs::{KeyRuns, RunCursor};

use super::Store;
use super::sorted_keys::ALL_SORTED;

/// The lower and the upper bound of a range of keys.
pub type KeyBounds<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// How a walk through the keys ended.
pub(super) enum Walked {
    /// After all keys, or when the visitor had enough.
    Done,
    /// At a part of a run that is damaged.
    Damaged,
}

/// Keys in memory, and the next one of them.
struct MemoryCursor<'a> {
    keys: Range<'a>,
    current: Option<&'a Key>,
}

impl MemoryCursor<'_> {
    fn advance(&mut self, reverse: bool) {
        self.current = if reverse { self.keys.next_back() } else { self.keys.next() };
    }
}

/// What a walk needs of a store, and which runs count.
pub(super) struct Walk<'a, F> {
    pub file: &'a mut F,
    pub log: &'a Log,
    pub runs: &'a mut KeyRuns,
    /// Runs from this sequence on count, of those that the range of numbers selects.
    pub first_run: u32,
    pub numbers: core::ops::Range<usize>,
}

impl<F: File> Walk<'_, F> {
    /// Calls `visit` with the keys between two bounds in order, and with the position of each one's record or,
    /// if it was deleted, none; until it returns false. Of several entries the newest counts: those in
    /// memory, the newest first, come before those of runs.
    pub(super) fn each(
        self,
        keyspace: u32,
        memory: &[Range<'_>],
        (lower, upper): KeyBounds<'_>,
        reverse: bool,
        visit: &mut dyn FnMut(&[u8], Option<Position>) -> bool,
    ) -> Result<Walked, Error> {
        let Walk { file, log, runs, first_run, numbers } = self;
        let mut memory: Vec<MemoryCursor<'_>> =
            memory.iter().map(|keys| MemoryCursor { keys: keys.clone(), current: None }).collect();
        memory.iter_mut().for_each(|cursor| cursor.advance(reverse));
        let prefix = (keyspace as u16).to_be_bytes();
        let (near, far) = if reverse { (upper, lower) } else { (lower, upper) };
        let (mut start, mut next) = (Vec::new(), Vec::new());
        run_key(keyspace, bound_key(near), &mut start);
        run_key(keyspace + 1, &[], &mut next);
        let start = match near {
            Bound::Included(_) => Bound::Included(&start[..]),
            Bound::Excluded(_) => Bound::Excluded(&start[..]),
            Bound::Unbounded if !reverse => Bound::Included(&start[..]),
            Bound::Unbounded if keyspace < LAST_KEYSPACE => Bound::Excluded(&next[..]),
            Bound::Unbounded => Bound::Unbounded,
        };
        let mut cursors: Vec<RunCursor> = Vec::new();
        for number in numbers.rev() {
            if runs.all()[number].sequence < first_run {
                break;
            }
            match runs.seek(file, log, number, start, reverse)? {
                Ok(cursor) => cursors.push(cursor),
                Err(_) => return Ok(Walked::Damaged),
            }
        }
        let is_inside = |key: &[u8]| match far {
            Bound::Unbounded => true,
            Bound::Included(end) => {
                if reverse {
                    key >= end
                } else {
                    key <= end
                }
            }
            Bound::Excluded(end) => {
                if reverse {
                    key > end
                } else {
                    key < end
                }
            }
        };
        // The cursors at the best key have the number of the turn in which it was found.
        let (mut at_best, mut turn) = (vec![0_u64; memory.len() + cursors.len()], 0);
        loop {
            let mut best: Option<(&[u8], Option<Position>)> = None;
            let in_memory = memory.iter().map(|cursor| {
                cursor.current.map(|key| (&**key, Some(key.position).filter(|&at| at != 0)))
            });
            let in_runs = cursors.iter().map(|cursor| {
                let (key, value) = cursor.current()?;
                let position = match value {
                    KeyRunValue::Record(position) => Some(position),
                    _ => None,
                };
                Some((key.strip_prefix(&prefix)?, position)).filter(|(key, _)| is_inside(key))
            });
            for (i, one) in in_memory.chain(in_runs).enumerate() {
                let Some((key, position)) = one else { continue };
                let order = best.map_or(Ordering::Less, |(other, _)| key.cmp(other));
                let is_before = order == if reverse { Ordering::Greater } else { Ordering::Less };
                if best.is_none() || is_before {
                    best = Some((key, position));
                    turn += 1;
                    at_best[i] = turn;
                } else if order == Ordering::Equal {
                    at_best[i] = turn;
                }
            }
            let Some((key, position)) = best else { return Ok(Walked::Done) };
            if !visit(key, position) {
                return Ok(Walked::Done);
            }
            for (i, cursor) in memory.iter_mut().enumerate() {
                if at_best[i] == turn {
                    cursor.advance(reverse);
                }
            }
            for (i, cursor) in (memory.len()..).zip(&mut cursors) {
                if at_best[i] == turn && cursor.advance(runs, file, log)?.is_err() {
                    return Ok(Walked::Damaged);
                }
            }
        }
    }
}

fn bound_key(bound: Bound<&[u8]>) -> &[u8] {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) => key,
        Bound::Unbounded => &[],
    }
}

impl<F: File> Store<F> {
    /// Returns the keys of a keyspace in byte order.
    ///
    /// # Errors
    /// As for [`range`](Store::range).
    pub fn keys(&mut self, keyspace: u32) -> Result<Vec<Vec<u8>>, Error> {
        let mut keys = Vec::new();
        self.range(keyspace, (Bound::Unbounded, Bound::Unbounded), false, |key, _| {
            keys.push(key.to_vec());
            true
        })?;
        Ok(keys)
    }

    /// Passes the keys between two bounds to `visit`, in order, until it returns false; with each key where its
    /// record was when this was last known, or 0. No record is read, unless keys have to be sorted first.
    ///
    /// # Errors
    /// [`Error::PointsOnly`] when the store was opened without order; an error of the file; as for
    /// [`get`](Store::get) when keys have to be sorted.
    pub fn range(
        &mut self,
        keyspace: u32,
        bounds: KeyBounds<'_>,
        reverse: bool,
        mut visit: impl FnMut(&[u8], Position) -> bool,
    ) -> Result<(), Error> {
        self.visit_range(keyspace, bounds, reverse, &mut visit)
    }

    #[inline(never)]
    fn visit_range(
        &mut self,
        keyspace: u32,
        bounds: KeyBounds<'_>,
        reverse: bool,
        visit: &mut dyn FnMut(&[u8], Position) -> bool,
    ) -> Result<(), Error> {
        if self.has_due(keyspace)? {
            return self.visit_unexpired(keyspace, bounds, reverse, visit);
        }
        self.visit_all(keyspace, bounds, reverse, visit)
    }

    /// Passes all keys between two bounds to `visit`, with those of expired records.
    pub(super) fn visit_all(
        &mut self,
        keyspace: u32,
        bounds: KeyBounds<'_>,
        reverse: bool,
        visit: &mut dyn FnMut(&[u8], Position) -> bool,
    ) -> Result<(), Error> {
        if !self.ordered {
            return Err(Error::PointsOnly);
        }
        self.check_snapshot(keyspace)?;
        self.walk_past(keyspace)?;
        self.sort(ALL_SORTED)?;
        self.visit_sorted(keyspace, bounds, reverse, Store::sort, visit)
    }

    /// Passes the keys between two bounds to `visit`, without those that cannot be read because of damage.
    pub(super) fn visit_readable(
        &mut self,
        keyspace: u32,
        bounds: KeyBounds<'_>,
        visit: &mut dyn FnMut(&[u8], Position) -> bool,
    ) -> Result<(), Error> {
        self.sort_readable(ALL_SORTED)?;
        self.visit_sorted(keyspace, bounds, false, Store::sort_readable, visit)
    }

    /// Passes the keys between two bounds to `visit`. They are sorted, and by `sort` again if a run is damaged.
    fn visit_sorted(
        &mut self,
        keyspace: u32,
        bounds: KeyBounds<'_>,
        reverse: bool,
        sort: fn(&mut Self, Position) -> Result<bool, Error>,
        visit: &mut dyn FnMut(&[u8], Position) -> bool,
    ) -> Result<(), Error> {
        let has_changed = keyspace > LAST_KEYSPACE && self.snapshots.has_changed(keyspace);
        let keyspace = if has_changed { keyspace } else { keyspace & LAST_KEYSPACE };
        if let Some(mut keys) = self.keys_in_memory(keyspace, bounds) {
            while let Some(key) = if reverse { keys.next_back() } else { keys.next() } {
                if key.position != 0 && !visit(key, key.position) {
                    break;
                }
            }
            return Ok(());
        }
        let mut last = Vec::new();
        loop {
            // After a run was found damaged, this goes on behind the last key.
            let from: Vec<u8> = last.clone();
            let behind = Bound::Excluded(&from[..]);
            let bounds = match (from.is_empty(), reverse) {
                (true, _) => bounds,
                (_, false) => (behind, bounds.1),
                (_, true) => (bounds.0, behind),
            };
            let walked = self.walk(keyspace, bounds, reverse, &mut |key, position| {
                last.clear();
                last.extend_from_slice(key);
                position.is_none_or(|position| visit(key, position))
            })?;
            if let Walked::Done = walked {
                return Ok(());
            }
            self.drop_damaged_key_runs();
            sort(self, ALL_SORTED)?;
        }
    }

    /// The number of keys between two bounds. No record is read, unless keys have to be sorted first.
    ///
    /// # Errors
    /// As for [`range`](Store::range).
    pub fn count_range(&mut self, keyspace: u32, bounds: KeyBounds<'_>) -> Result<u64, Error> {
        if !self.ordered {
            return Err(Error::PointsOnly);
        }
        if bounds == (Bound::Unbounded, Bound::Unbounded) {
            return self.live_count(keyspace);
        }
        self.check_snapshot(keyspace)?;
        self.walk_past(keyspace)?;
        self.sort(ALL_SORTED)?;
        let due = self.count_due(keyspace, bounds)?;
        let has_changed = keyspace > LAST_KEYSPACE && self.snapshots.has_changed(keyspace);
        let keyspace = if has_changed { keyspace } else { keyspace & LAST_KEYSPACE };
        let has_deleted =
            self.keyspaces.get(keyspace).is_some_and(|space| space.keys.deleted() > 0);
        match self.keys_in_memory(keyspace, bounds) {
            Some(keys) if !has_deleted => Ok((keys.remaining() as u64).saturating_sub(due)),
            _ => {
                let mut count = 0_u64;
                self.visit_all(keyspace, bounds, false, &mut |_, _| {
                    count += 1;
                    true
                })?;
                Ok(count.saturating_sub(due))
            }
        }
    }

    /// The keys between two bounds if they are all in memory, with entries of deleted ones.
    fn keys_in_memory(&self, keyspace: u32, (lower, upper): KeyBounds<'_>) -> Option<Range<'_>> {
        match self.keyspaces.get(keyspace) {
            Some(space) if self.sorted_keys.has_older_keys(space) => None,
            Some(space) => Some(space.keys.range(lower, upper)),
            None if keyspace > LAST_KEYSPACE => None,
            None => Some(Range::default()),
        }
    }

    fn walk(
        &mut self,
        keyspace: u32,
        (lower, upper): KeyBounds<'_>,
        reverse: bool,
        visit: &mut dyn FnMut(&[u8], Option<Position>) -> bool,
    ) -> Result<Walked, Error> {
        let Store { file, log, keyspaces, sorted_keys, snapshots, .. } = self;
        let mut memory = snapshots.ranges(keyspace, (lower, upper));
        let keyspace = keyspace & LAST_KEYSPACE;
        let Some(space) = keyspaces.get(keyspace) else { return Ok(Walked::Done) };
        memory.push(space.keys.range(lower, upper));
        // A keyspace that was cleared since the keys were frozen has none of them any more.
        if sorted_keys.writing_run >= space.first_run {
            memory.push(space.frozen_keys.range(lower, upper));
        }
        let numbers = 0..sorted_keys.runs.all().len();
        let runs = &mut sorted_keys.runs;
        let walk = Walk { file, log, runs, first_run: space.first_run, numbers };
        walk.each(keyspace, &memory, (lower, upper), reverse, visit)
    }
}
