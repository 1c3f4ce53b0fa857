//! A set of record positions, with a bit for each place where a record may begin.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use super::Position;

/// Words of a chunk of [`PositionSet`], which covers 1 MiB of the file.
const CHUNK: usize = 512;

/// Bytes that an allocator takes beside a chunk.
const ALLOCATION: usize = 16;

/// A set of record positions. Records are longer than 32 bytes, so one bit covers 32 bytes. Parts
/// of the file without records have no chunk.
#[derive(Debug, Default)]
pub struct PositionSet {
    /// Empty as long as the set is not used.
    chunks: Vec<Option<Box<[u64; CHUNK]>>>,
    /// How many chunks are allocated.
    allocated: usize,
}

impl PositionSet {
    /// The chunk, word and bit of a position.
    #[inline(always)]
    const fn locate(position: Position) -> (usize, usize, u64) {
        let word = position as usize >> 8;
        (word / CHUNK, word % CHUNK, 1 << (position >> 2 & 63))
    }

    /// Whether a position is in the set.
    #[inline(always)]
    #[must_use]
    pub fn contains(&self, position: Position) -> bool {
        let (chunk, word, bit) = PositionSet::locate(position);
        matches!(self.chunks.get(chunk), Some(Some(chunk)) if chunk[word] & bit != 0)
    }

    /// Whether the set is used: it has or had positions, or [`start`](PositionSet::start) was called.
    #[must_use]
    pub fn is_used(&self) -> bool {
        !self.chunks.is_empty()
    }

    /// Lets [`track`](PositionSet::track) add positions from now on.
    pub fn start(&mut self) {
        if self.chunks.is_empty() {
            self.chunks.push(None);
        }
    }

    /// How many positions of the set are among the `positions` from `first` on, both multiples of 256.
    #[must_use]
    pub fn count(&self, first: Position, positions: u32) -> usize {
        let word = first as usize >> 8;
        let words = word..word + (positions >> 8) as usize;
        let ones = words.map(|word| match self.chunks.get(word / CHUNK) {
            Some(Some(chunk)) => chunk[word % CHUNK].count_ones() as usize,
            _ => 0,
        });
        ones.sum()
    }

    /// Adds a position if the set is used.
    #[inline(never)]
    pub fn track(&mut self, position: Position) {
        if !self.chunks.is_empty() {
            let (chunk, word, bit) = PositionSet::locate(position);
            self.chunk_mut(chunk)[word] |= bit;
        }
    }

    /// Removes a position. Returns whether it was in the set.
    #[inline(never)]
    pub fn remove(&mut self, position: Position) -> bool {
        let (chunk, word, bit) = PositionSet::locate(position);
        let Some(Some(chunk)) = self.chunks.get_mut(chunk) else { return false };
        let was_in = chunk[word] & bit != 0;
        chunk[word] &= !bit;
        was_in
    }

    /// Bytes of memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.allocated * CHUNK * 8
    }

    /// Bytes of memory of a set with all positions up to this one.
    #[must_use]
    pub fn bytes_for(last: Position) -> usize {
        (PositionSet::locate(last).0 + 1) * CHUNK * 8
    }

    /// Adds a position. Returns whether it was not in the set.
    pub fn insert(&mut self, position: Position) -> bool {
        let is_new = !self.contains(position);
        if is_new {
            let (chunk, word, bit) = PositionSet::locate(position);
            self.chunk_mut(chunk)[word] |= bit;
        }
        is_new
    }

    /// Allocates all that positions up to this one need.
    pub fn reserve(&mut self, last: Position) {
        for chunk in 0..=PositionSet::locate(last).0 {
            self.chunk_mut(chunk);
        }
    }

    /// Prepares for positions up to this one. What they need is allocated with the first position of each chunk:
    /// memory that is not touched costs an opening nothing.
    pub fn prepare_up_to(&mut self, last: Position) {
        let chunks = PositionSet::locate(last).0 + 1;
        if self.chunks.len() < chunks {
            self.chunks.resize_with(chunks, || None);
        }
    }

    /// Bytes that the positions which are [prepared for](PositionSet::prepare_up_to) may still allocate, in small pieces.
    #[must_use]
    pub fn bytes_to_grow(&self) -> usize {
        (self.chunks.len() - self.allocated) * (CHUNK * 8 + ALLOCATION)
    }

    fn chunk_mut(&mut self, chunk: usize) -> &mut [u64; CHUNK] {
        while self.chunks.len() <= chunk {
            self.chunks.push(None);
        }
        self.chunks[chunk].get_or_insert_with(|| {
            self.allocated += 1;
            // Unlike an array that is moved into a box, this touches no memory that is zero already.
            let words = vec![0; CHUNK].into_boxed_slice();
            words.try_into().unwrap_or_else(|_| Box::new([0; CHUNK]))
        })
    }
}
