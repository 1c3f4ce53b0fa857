//! A filter of hashes: most keys that are not in the file are known to be absent without reading it.
//!
//! A blocked Bloom filter (Putze, Sanders, Singler, WEA 2007): the bits of a hash are in one line of the
//! processor's cache.

use alloc::boxed::Box;
use alloc::vec;

/// Bits for each hash that is expected. With [`bits_of`] some 3.5 % of absent hashes pass.
const BITS_PER_HASH: usize = 8;
/// Words of 64 bits in a block.
const WORDS: usize = 8;

/// The filter.
#[derive(Debug)]
pub struct HashFilter {
    blocks: Box<[[u64; WORDS]]>,
}

impl HashFilter {
    /// An empty filter for so many hashes.
    #[must_use]
    pub fn new(hashes: usize) -> Self {
        let blocks = HashFilter::bytes_for(hashes) / (8 * WORDS);
        HashFilter { blocks: vec![[0; WORDS]; blocks].into_boxed_slice() }
    }

    /// Bytes of a filter for so many hashes.
    #[must_use]
    pub const fn bytes_for(hashes: usize) -> usize {
        let bytes = (hashes * BITS_PER_HASH).div_ceil(8).next_multiple_of(8 * WORDS);
        if bytes == 0 { 8 * WORDS } else { bytes }
    }

    /// Bytes of the filter.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.blocks)
    }

    /// Adds a hash.
    #[inline]
    pub fn add(&mut self, hash: u32) {
        let (block, bits) = self.locate(hash);
        for bit in bits {
            self.blocks[block][bit / 64] |= 1 << (bit % 64);
        }
    }

    /// Whether a hash may have been added.
    #[inline]
    #[must_use]
    pub fn may_contain(&self, hash: u32) -> bool {
        let (block, bits) = self.locate(hash);
        bits.iter().all(|bit| self.blocks[block][bit / 64] & 1 << (bit % 64) != 0)
    }

    /// The block of a hash, by its upper bits, and its bits in there, by the others.
    #[inline]
    fn locate(&self, hash: u32) -> (usize, [usize; 3]) {
        let product = u64::from(hash) * self.blocks.len() as u64;
        ((product >> 32) as usize, bits_of(product as u32))
    }
}

/// Three bits of a block.
#[inline]
const fn bits_of(fraction: u32) -> [usize; 3] {
    // Fibonacci hashing (Knuth, TAOCP 6.4) moves the differences to the upper bits.
    let mixed = fraction.wrapping_mul(0x9E37_79B1) as usize;
    [mixed >> 23 & 511, mixed >> 14 & 511, mixed >> 5 & 511]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filter_passes_all_added_hashes_and_few_others() {
        for count in [1_u32, 100, 200_000] {
            let mut filter = HashFilter::new(count as usize);
            let mut x = 1_u64;
            let mut random = || {
                x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (x >> 32) as u32
            };
            let added: Vec<u32> = (0..count).map(|_| random()).collect();
            added.iter().for_each(|&hash| filter.add(hash));
            assert!(added.iter().all(|&hash| filter.may_contain(hash)));
            let passing = (0..100_000).filter(|_| filter.may_contain(random())).count();
            assert!(passing < 5_000, "{passing} of 100,000 others with {count}");
        }
    }
}
