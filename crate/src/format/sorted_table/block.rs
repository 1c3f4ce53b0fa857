//! Blocks of entries in key order.
//!
//! A header, entries, and the offsets of every 16th entry, which has its key in full. All other keys
//! lack the bytes that they share with the key before them.

use alloc::vec::Vec;
use core::cmp::Ordering;

use super::super::{ALIGN, align_up};
use super::{MAX_TABLE_KEY, TableValue};

/// The checksum in the first eight bytes of each part of a table is that of a checkpoint's parts.
pub use super::super::checkpoint::{seal, verify};

/// Bytes of a block's header: checksum (u64), bytes of the block (u32), entries (u16), restarts (u16).
pub const HEADER: usize = 16;
/// Every so many entries the key is complete.
const RESTART_INTERVAL: usize = 16;
/// Most entries of a block.
const MAX_ENTRIES: usize = u16::MAX as usize;
/// The longest number of an entry: 21 bits, seven in a byte.
const MAX_VARINT: usize = 3;

/// A block that is being written.
#[derive(Debug)]
pub struct BlockWriter {
    bytes: Vec<u8>,
    restarts: Vec<u32>,
    /// The key that was added last.
    last: Vec<u8>,
    entries: usize,
}

impl Default for BlockWriter {
    fn default() -> Self {
        BlockWriter {
            bytes: alloc::vec![0; HEADER],
            restarts: Vec::new(),
            last: Vec::new(),
            entries: 0,
        }
    }
}

impl BlockWriter {
    /// How many entries it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries
    }

    /// Whether it has no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// The key that was added last.
    #[must_use]
    pub fn last_key(&self) -> &[u8] {
        &self.last
    }

    /// The largest size that the block can have after one more entry with a key of this length.
    #[must_use]
    pub fn length_with(&self, key: usize) -> usize {
        let entry = 3 * MAX_VARINT + 4 + key;
        align_up(self.bytes.len() + entry + 4 * (self.restarts.len() + 1))
    }

    /// Whether the block can take another entry at all.
    #[must_use]
    pub fn has_capacity(&self) -> bool {
        self.entries < MAX_ENTRIES
    }

    /// Adds an entry. Its key is above all keys that were added before.
    pub fn add(&mut self, key: &[u8], value: TableValue) {
        debug_assert!(self.is_empty() || key > &self.last[..], "keys are added in order");
        debug_assert!(key.len() <= MAX_TABLE_KEY, "the engine accepts no longer key");
        let mut shared = 0;
        if self.entries.is_multiple_of(RESTART_INTERVAL) {
            self.restarts.push(self.bytes.len() as u32);
        } else {
            shared = common_prefix(key, &self.last);
        }
        let (position, size) = match value {
            TableValue::Deleted => (None, 0),
            TableValue::Record { position, size } => (Some(position), size / ALIGN as u32),
        };
        put_varint(&mut self.bytes, shared as u32);
        put_varint(&mut self.bytes, (key.len() - shared) as u32);
        put_varint(&mut self.bytes, size);
        if let Some(position) = position {
            self.bytes.extend_from_slice(&position.to_le_bytes());
        }
        self.bytes.extend_from_slice(&key[shared..]);
        self.last.truncate(shared);
        self.last.extend_from_slice(&key[shared..]);
        self.entries += 1;
    }

    /// Ends the block and starts a new one. Returns the bytes of the ended block, without its checksum.
    pub fn finish(&mut self) -> &[u8] {
        let length = align_up(self.bytes.len() + 4 * self.restarts.len());
        self.bytes.resize(length - 4 * self.restarts.len(), 0);
        for restart in &self.restarts {
            self.bytes.extend_from_slice(&restart.to_le_bytes());
        }
        self.bytes[8..12].copy_from_slice(&(length as u32).to_le_bytes());
        self.bytes[12..14].copy_from_slice(&(self.entries as u16).to_le_bytes());
        self.bytes[14..16].copy_from_slice(&(self.restarts.len() as u16).to_le_bytes());
        &self.bytes
    }

    /// Empties the block for the next entries; the key that was added last stays known.
    pub fn clear(&mut self) {
        self.bytes.truncate(HEADER);
        self.restarts.clear();
        self.entries = 0;
    }
}

/// How many bytes two keys share at their start.
#[must_use]
pub fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

fn put_varint(out: &mut Vec<u8>, mut n: u32) {
    debug_assert!(n < 1 << (7 * MAX_VARINT), "numbers of entries have at most 21 bits");
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

/// Splits a number off the front of `bytes`.
#[inline(always)]
fn take_varint(bytes: &mut &[u8]) -> Option<u32> {
    let (mut n, mut shift) = (0, 0);
    for _ in 0..MAX_VARINT {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        n |= u32::from(byte & 0x7F) << shift;
        if byte < 0x80 {
            return Some(n);
        }
        shift += 7;
    }
    None
}

/// One entry as it is stored.
struct RawEntry<'a> {
    shared: usize,
    suffix: &'a [u8],
    value: TableValue,
}

/// Splits an entry off the front of `bytes`.
#[inline(always)]
fn take_entry<'a>(bytes: &mut &'a [u8]) -> Option<RawEntry<'a>> {
    let shared = take_varint(bytes)? as usize;
    let suffix = take_varint(bytes)? as usize;
    let value = match take_varint(bytes)? {
        0 => TableValue::Deleted,
        words => {
            let (position, rest) = bytes.split_first_chunk::<4>()?;
            *bytes = rest;
            TableValue::Record {
                position: u32::from_le_bytes(*position),
                size: words * ALIGN as u32,
            }
        }
    };
    let (suffix, rest) = bytes.split_at_checked(suffix)?;
    *bytes = rest;
    Some(RawEntry { shared, suffix, value })
}

/// A block that was read.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    bytes: &'a [u8],
    entries: usize,
    restarts: &'a [[u8; 4]],
}

/// What a search in a block found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The value of the key.
    pub equal: Option<TableValue>,
    /// The value of the last key that is not above the key.
    pub floor: Option<TableValue>,
}

impl<'a> Block<'a> {
    /// A block whose bytes were verified and [validated](Block::is_valid) before. None if there cannot
    /// be one.
    #[inline]
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        let number = |at: usize| Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
        let length = u32::from_le_bytes(bytes.get(8..12)?.try_into().ok()?);
        let (entries, restarts) = (usize::from(number(12)?), usize::from(number(14)?));
        let is_sane = length as usize == bytes.len()
            && bytes.len().is_multiple_of(ALIGN)
            && entries > 0
            && restarts == entries.div_ceil(RESTART_INTERVAL);
        let end = bytes.len().checked_sub(4 * restarts).filter(|&end| is_sane && end >= HEADER)?;
        let (offsets, _) = bytes[end..].as_chunks();
        Some(Block { bytes: &bytes[..end], entries, restarts: offsets })
    }

    /// How many entries it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries
    }

    /// It has at least one entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Checks everything that searches rely on: each entry is within the block, each restart is where it
    /// should be, and each key is above the one before it. A malicious file may have a valid
    /// checksum, so this is checked when a block is loaded.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        let (mut rest, mut key) = (self.bytes.get(HEADER..).unwrap_or_default(), Vec::new());
        for i in 0..self.entries {
            let at = self.bytes.len() - rest.len();
            let restart = i.is_multiple_of(RESTART_INTERVAL);
            if restart
                && self.restarts.get(i / RESTART_INTERVAL) != Some(&(at as u32).to_le_bytes())
            {
                return false;
            }
            let Some(entry) = take_entry(&mut rest) else { return false };
            let RawEntry { shared, suffix, .. } = entry;
            let is_sane = shared <= key.len()
                && !(restart && shared > 0)
                && shared + suffix.len() <= MAX_TABLE_KEY;
            // Searches rely on it that a key shares no more bytes with the one before it than it says.
            let is_above =
                |left: &[u8]| suffix > left && (restart || suffix.first() != left.first());
            if !is_sane || i > 0 && !is_above(&key[shared..]) {
                return false;
            }
            key.truncate(shared);
            key.extend_from_slice(suffix);
        }
        rest.len() < ALIGN && rest.iter().all(|&byte| byte == 0)
    }

    /// The bytes from an entry with a complete key on.
    fn entries_from(&self, restart: usize) -> &'a [u8] {
        let offset =
            self.restarts.get(restart).map_or(usize::MAX, |at| u32::from_le_bytes(*at) as usize);
        self.bytes.get(offset..).unwrap_or_default()
    }

    /// Searches for a key: a binary search over the complete keys, then up to 15 entries, of which no key
    /// is put together.
    #[must_use]
    pub fn search(&self, key: &[u8]) -> Found {
        let is_above = |restart: usize| {
            let entry = take_entry(&mut self.entries_from(restart));
            entry.is_none_or(|entry| entry.suffix > key)
        };
        let (mut low, mut high) = (0, self.restarts.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if is_above(middle) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        let mut found = Found::default();
        let Some(restart) = low.checked_sub(1) else { return found };
        let mut rest = self.entries_from(restart);
        // How many bytes the previous key, which is below the searched one, shares with it.
        let mut matched = 0;
        let last = self.entries.min((restart + 1) * RESTART_INTERVAL);
        for _ in restart * RESTART_INTERVAL..last {
            let Some(entry) = take_entry(&mut rest) else { return found };
            match entry.shared.cmp(&matched) {
                // It differs from the previous key before that differs from the searched one.
                Ordering::Less => return found,
                // It differs from the searched key where the previous one did.
                Ordering::Greater => found.floor = Some(entry.value),
                Ordering::Equal => {
                    let left = &key[matched..];
                    let common = common_prefix(entry.suffix, left);
                    match entry.suffix[common..].cmp(&left[common..]) {
                        Ordering::Less => matched += common,
                        Ordering::Equal => {
                            found.equal = Some(entry.value);
                            found.floor = found.equal;
                            return found;
                        }
                        Ordering::Greater => return found,
                    }
                    found.floor = Some(entry.value);
                }
            }
        }
        found
    }

    /// Decodes all entries.
    pub fn decode(&self, out: &mut DecodedBlock) {
        out.keys.clear();
        out.rows.clear();
        let mut rest = self.bytes.get(HEADER..).unwrap_or_default();
        let mut before = 0..0;
        for _ in 0..self.entries {
            let Some(entry) = take_entry(&mut rest) else { return };
            let start = out.keys.len();
            out.keys.extend_from_within(before.start..before.end.min(before.start + entry.shared));
            out.keys.extend_from_slice(entry.suffix);
            before = start..out.keys.len();
            out.rows.push((start as u32, entry.value));
        }
    }
}

/// The entries of a block with complete keys, for walks in both directions.
#[derive(Clone, Debug, Default)]
pub struct DecodedBlock {
    keys: Vec<u8>,
    /// For each entry where its key begins, and its value.
    rows: Vec<(u32, TableValue)>,
}

impl DecodedBlock {
    /// How many entries it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The key of an entry.
    ///
    /// # Panics
    /// If there is no such entry.
    #[must_use]
    pub fn key(&self, at: usize) -> &[u8] {
        let end = self.rows.get(at + 1).map_or(self.keys.len(), |next| next.0 as usize);
        &self.keys[self.rows[at].0 as usize..end]
    }

    /// The value of an entry.
    ///
    /// # Panics
    /// If there is no such entry.
    #[must_use]
    pub fn value(&self, at: usize) -> TableValue {
        self.rows[at].1
    }

    /// How many keys are below `key`, or with `after` not above it.
    #[must_use]
    pub fn count_below(&self, key: &[u8], after: bool) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            let is_below = match self.key(middle).cmp(key) {
                Ordering::Less => true,
                Ordering::Equal => after,
                Ordering::Greater => false,
            };
            if is_below {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn block_of(entries: &BTreeMap<Vec<u8>, TableValue>) -> Vec<u8> {
        let mut writer = BlockWriter::default();
        for (key, &value) in entries {
            let most = writer.length_with(key.len());
            writer.add(key, value);
            assert!(align_up(writer.bytes.len() + 4 * writer.restarts.len()) <= most);
        }
        writer.finish().to_vec()
    }

    fn value_of(n: u64) -> TableValue {
        match n % 5 {
            0 => TableValue::Deleted,
            _ => {
                TableValue::Record { position: n as u32 | 1, size: 8 * (n as u32 % 0x1F_FFFF + 1) }
            }
        }
    }

    /// Keys of one to three alphabets of few letters, so that many are prefixes of others.
    fn some_entries(seed: u64, count: usize) -> BTreeMap<Vec<u8>, TableValue> {
        let mut x = seed;
        let mut random = move || {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            x >> 33
        };
        let mut entries = BTreeMap::new();
        while entries.len() < count {
            let length = random() % 12 + u64::from(random() % 50 == 0) * 300;
            let letters = [2, 3, 250][(random() % 3) as usize];
            let key = (0..length).map(|_| (random() % letters) as u8).collect();
            entries.insert(key, value_of(random()));
        }
        entries
    }

    #[test]
    fn search_and_decoding_match_a_map() {
        for (seed, count) in [(1, 1), (2, 2), (3, 15), (4, 16), (5, 17), (6, 33), (7, 300)] {
            let entries = some_entries(seed, count);
            let bytes = block_of(&entries);
            let block = Block::new(&bytes).expect("a block");
            assert!(block.is_valid());
            assert_eq!(block.len(), count);
            let mut decoded = DecodedBlock::default();
            block.decode(&mut decoded);
            let all = (0..decoded.len()).map(|at| (decoded.key(at), decoded.value(at)));
            assert!(all.eq(entries.iter().map(|(key, &value)| (&key[..], value))));
            for key in some_entries(seed + 50, 500).keys().chain(entries.keys()) {
                let floor = entries.range(..=key.clone()).next_back().map(|(_, &value)| value);
                let equal = entries.get(key).copied();
                assert_eq!(block.search(key), Found { equal, floor });
                assert_eq!(decoded.count_below(key, false), entries.range(..key.clone()).count());
                assert_eq!(decoded.count_below(key, true), entries.range(..=key.clone()).count());
            }
        }
    }

    #[test]
    fn longest_keys_and_sizes_are_kept() {
        let long = [vec![7; MAX_TABLE_KEY - 1], vec![8]].concat();
        let value = TableValue::Record { position: u32::MAX, size: (1 << 24) - 8 };
        let entries = BTreeMap::from([(vec![], TableValue::Deleted), (long.clone(), value)]);
        let bytes = block_of(&entries);
        let block = Block::new(&bytes).expect("a block");
        assert!(block.is_valid());
        assert_eq!(block.search(&long).equal, Some(value));
        assert_eq!(block.search(&long[..9]).floor, Some(TableValue::Deleted));
    }

    /// Every byte of a block changed to every value, or the block cut: it is refused, or searches and
    /// decoding end and agree with each other.
    #[test]
    fn malformed_blocks_are_refused_or_consistent() {
        let bytes = block_of(&some_entries(9, 40));
        let keys: Vec<Vec<u8>> = some_entries(9, 40).into_keys().collect();
        let check = |bytes: &[u8]| {
            let Some(block) = Block::new(bytes).filter(Block::is_valid) else { return false };
            let mut decoded = DecodedBlock::default();
            block.decode(&mut decoded);
            assert_eq!(decoded.len(), block.len());
            for at in 0..decoded.len() {
                assert_eq!(block.search(decoded.key(at)).equal, Some(decoded.value(at)));
                assert!(at == 0 || decoded.key(at - 1) < decoded.key(at));
            }
            keys.iter()
                .for_each(|key| assert!(block.search(key).floor.is_some() || !key.is_empty()));
            true
        };
        let mut accepted = 0;
        for at in 8..bytes.len() {
            for change in 1..=255 {
                let mut bytes = bytes.clone();
                bytes[at] ^= change;
                accepted += usize::from(check(&bytes));
            }
        }
        // Positions, sizes and last bytes of keys may be others.
        assert!(accepted > 0 && accepted < 255 * (bytes.len() - 8), "{accepted}");
        for length in 0..bytes.len() {
            assert!(!check(&bytes[..length]));
        }
    }

    #[test]
    fn seal_binds_a_block_to_its_position() {
        let mut bytes = block_of(&some_entries(3, 20));
        seal(&mut bytes, 5, 4096);
        assert!(verify(&bytes, 5, 4096));
        assert!(!verify(&bytes, 6, 4096) && !verify(&bytes, 5, 8192) && !verify(&bytes[..7], 5, 0));
        bytes[20] ^= 1;
        assert!(!verify(&bytes, 5, 4096));
    }
}
