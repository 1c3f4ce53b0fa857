//! The filter of a table: says of most keys that the table does not have that it does not have them,
//! without a look at its blocks.
//!
//! A blocked Bloom filter (Putze, Sanders, Singler, 2007): the hash of a key selects one line of 64 bytes and
//! six bits in it, so that a look touches one line of the processor's cache, or reads 64 bytes of the file.

/// Bytes of a line.
pub const LINE: usize = 64;
/// Bits for each key. About 1 % of other keys pass then.
const BITS_PER_KEY: usize = 10;
/// Bits that are set for each key.
const PROBES: u32 = 6;

/// Bytes of the filter of a table with this many entries.
#[must_use]
pub const fn filter_bytes(entries: usize) -> usize {
    (entries * BITS_PER_KEY).div_ceil(8 * LINE) * LINE
}

/// The line of a key among `lines` lines, by the hash of the key.
#[must_use]
pub const fn line_of(hash: u32, lines: usize) -> usize {
    ((hash as u64 * lines as u64) >> 32) as usize
}

/// The bits of a key within its line. The line depends on the upper bits of the hash, so all bits are mixed
/// here.
fn bits_of(hash: u32) -> impl Iterator<Item = (usize, u8)> {
    let mixed = u64::from(hash).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (0..PROBES).map(move |i| {
        let bit = (mixed >> (10 + 9 * i)) as usize % (8 * LINE);
        (bit / 8, 1 << (bit % 8))
    })
}

/// Adds a key to a filter, which has at least one line.
pub fn add(filter: &mut [u8], hash: u32) {
    let at = line_of(hash, filter.len() / LINE) * LINE;
    for (byte, bit) in bits_of(hash) {
        filter[at + byte] |= bit;
    }
}

/// Whether a table may have a key, by the key's line of the filter.
#[must_use]
pub fn may_contain(line: &[u8], hash: u32) -> bool {
    bits_of(hash).all(|(byte, bit)| line.get(byte).is_none_or(|bits| bits & bit != 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filter_passes_all_keys_and_few_others() {
        for count in [1_usize, 50, 51, 52, 1_000, 47_000] {
            let mut filter = vec![0; filter_bytes(count)];
            let mut x = 3_u32;
            let mut random = move || {
                x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                crate::format::checksum::checksum(&x.to_le_bytes(), 1) as u32
            };
            let keys: Vec<u32> = (0..count).map(|_| random()).collect();
            keys.iter().for_each(|&hash| add(&mut filter, hash));
            let look = |hash: u32| {
                let at = line_of(hash, filter.len() / LINE) * LINE;
                may_contain(&filter[at..at + LINE], hash)
            };
            assert!(keys.iter().all(|&hash| look(hash)));
            let wrong = (0..100_000).filter(|_| look(random())).count();
            assert!(wrong < 2_500, "{wrong} of 100000 others pass with {count} keys");
        }
    }
}
