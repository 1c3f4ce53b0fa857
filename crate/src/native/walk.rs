//! Iteration over keys from both ends, a page of them at a time.

use crate::format::{LAST_KEYSPACE, MAX_KEY};
use crate::index::Position;
use crate::store::LOOKUP_BATCH;

use super::range::Bounds;
use super::read_errors::read;
use super::{Error, KeyRange, Store};

/// Keys of the largest page. The first one has a single key, since many callers need no more.
const MAX_PAGE: usize = 128;

/// From which end of the range a step takes its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Front,
    Back,
}

/// Keys that were read and not yet given, in one buffer; with each, where its record was.
#[derive(Debug, Default)]
struct Page {
    bytes: Vec<u8>,
    /// Where each key ends, and its record.
    keys: Vec<(usize, Position)>,
    /// The keys that are left.
    from: usize,
    to: usize,
}

impl Page {
    fn len(&self) -> usize {
        self.to - self.from
    }

    fn push(&mut self, key: &[u8], position: Position) {
        debug_assert!(key.len() <= MAX_KEY);
        self.bytes.extend_from_slice(key);
        self.keys.push((self.bytes.len(), position));
        self.to += 1;
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.keys.clear();
        (self.from, self.to) = (0, 0);
    }

    /// Loads the index entries and the records of these keys into the caches of the processor, many at once.
    fn prefetch(&self, store: &mut Store, keyspace: u32, first: usize) {
        let engine = store.engine();
        let (mut positions, mut records) = ([0; LOOKUP_BATCH], [None; LOOKUP_BATCH]);
        for from in (first..self.to).step_by(LOOKUP_BATCH) {
            let batch = from..self.to.min(from + LOOKUP_BATCH);
            let positions = &mut positions[..batch.len()];
            for (hash, at) in positions.iter_mut().zip(batch) {
                *hash = engine.hash(keyspace, self.key(at));
            }
            engine.positions_of(positions);
            engine.prefetch_records(positions, &mut records);
        }
    }

    fn key(&self, at: usize) -> &[u8] {
        let start = if at == 0 { 0 } else { self.keys[at - 1].0 };
        &self.bytes[start..self.keys[at].0]
    }
}

/// The state of an iteration over keys.
#[derive(Debug)]
pub(super) struct Walk {
    pub keyspace: u32,
    /// What was not read yet, between the keys of both pages.
    bounds: Bounds,
    reverse: bool,
    /// How many keys are still to be read at most.
    limit: usize,
    /// The next keys from the front, and from the back, each in the order in which they were read.
    front: Page,
    back: Page,
    /// Nothing is left between the pages.
    is_read: bool,
    /// How many keys the next page has at most.
    page_size: usize,
    /// Whether values are read, so that it is worth having them ready.
    has_values: bool,
    /// The page and the place there of the last key.
    current: (End, usize),
}

impl Walk {
    pub(super) fn new(
        keyspace: u32,
        bounds: Bounds,
        range: &KeyRange<'_>,
        has_values: bool,
    ) -> Self {
        let KeyRange { reverse, limit, .. } = *range;
        Walk {
            keyspace,
            is_read: bounds.is_empty() || limit == Some(0),
            bounds,
            reverse,
            limit: limit.unwrap_or(usize::MAX),
            front: Page::default(),
            back: Page::default(),
            page_size: 1,
            has_values,
            current: (End::Front, 0),
        }
    }

    /// The last key.
    pub(super) fn key(&self) -> &[u8] {
        let (page, at) = self.current;
        match page {
            End::Front => self.front.key(at),
            End::Back => self.back.key(at),
        }
    }

    /// The value of the last key, unless it is gone.
    pub(super) fn value<'s>(&self, store: &'s mut Store) -> Result<Option<&'s [u8]>, Error> {
        let (page, at) = self.current;
        let page = if page == End::Front { &self.front } else { &self.back };
        let Store { engine, found, .. } = store;
        read(found.as_ref(), engine.walked(self.keyspace, page.key(at), page.keys[at].1))
    }

    /// Advances to the next key from an end; false if there is none.
    pub(super) fn step(&mut self, store: &mut Store, end: End) -> Result<bool, Error> {
        store.begin_step();
        let own = if end == End::Front { &self.front } else { &self.back };
        if own.len() == 0 && !self.is_read {
            let filled = self.fill(store, end);
            // After an error it is unknown what follows, so nothing does: a loop that skips errors ends.
            self.is_read |= filled.is_err();
            filled?;
        }
        let (own, other, other_end) = match end {
            End::Front => (&mut self.front, &mut self.back, End::Back),
            End::Back => (&mut self.back, &mut self.front, End::Front),
        };
        if own.len() > 0 {
            self.current = (end, own.from);
            own.from += 1;
        } else if other.len() > 0 {
            // The last one that was read from the other end.
            other.to -= 1;
            self.current = (other_end, other.to);
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    /// Reads the next keys from an end.
    fn fill(&mut self, store: &mut Store, end: End) -> Result<(), Error> {
        // Which key is the last one within a limit is known once all before it are.
        let (end, wanted) = match end {
            End::Back if self.limit != usize::MAX => (End::Front, self.limit),
            _ => (end, self.page_size.min(self.limit)),
        };
        let backwards = self.reverse != (end == End::Back);
        let page = if end == End::Front { &mut self.front } else { &mut self.back };
        if page.len() == 0 {
            page.clear();
        }
        let first = page.to;
        let bounds = self.bounds.slices();
        let paged = store.engine().range(self.keyspace, bounds, backwards, |key, position| {
            page.push(key, position);
            page.to - first < wanted
        });
        read(store.found.as_ref(), paged)?;
        let count = page.to - first;
        self.limit -= if self.limit == usize::MAX { 0 } else { count };
        self.page_size = MAX_PAGE.min(4 * self.page_size);
        if count < wanted || self.limit == 0 {
            self.is_read = true;
        } else {
            self.bounds.continue_after(page.key(page.to - 1), backwards);
            self.is_read = self.bounds.is_empty();
        }
        if self.has_values && count > 1 {
            page.prefetch(store, self.keyspace & LAST_KEYSPACE, first);
        }
        Ok(())
    }
}
