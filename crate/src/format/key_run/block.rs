//! Blocks of entries in key order. Each key lacks the bytes that it shares with the one before it, as in
//! LevelDB's tables (`doc/table_format.md` there). A block is decoded as a whole.

use alloc::vec::Vec;

use super::super::{ALIGN, align_up};
use super::{KeyRunValue, MAX_RUN_KEY};

/// Bytes of a block's header: checksum (u64), bytes of the block (u32), number of entries (u32).
pub const HEADER: usize = 16;
/// The number of an entry that says what it is, unless that is the length of a block in units of 8 bytes.
const DELETED: u32 = 0;
const RECORD: u32 = 1;
/// The longest number of an entry: 21 bits, seven in a byte.
const MAX_VARINT: usize = 3;

/// A block that is being written.
#[derive(Debug)]
pub struct BlockWriter {
    bytes: Vec<u8>,
    /// The key that was added last.
    last: Vec<u8>,
    entries: u32,
}

impl Default for BlockWriter {
    fn default() -> Self {
        BlockWriter { bytes: alloc::vec![0; HEADER], last: Vec::new(), entries: 0 }
    }
}

impl BlockWriter {
    /// Whether it has no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// The key that was added last, also to the block before.
    #[must_use]
    pub fn last_key(&self) -> &[u8] {
        &self.last
    }

    /// The largest size that the block can have after one more entry with a key of this length.
    #[must_use]
    pub fn length_with(&self, key: usize) -> usize {
        align_up(self.bytes.len() + 3 * MAX_VARINT + size_of::<u32>() + key)
    }

    /// Adds an entry. Its key is above all keys that were added before.
    pub fn add(&mut self, key: &[u8], value: KeyRunValue) {
        debug_assert!(self.is_empty() || key > &self.last[..], "keys are added in order");
        debug_assert!(key.len() <= MAX_RUN_KEY, "the engine accepts no longer key");
        let shared = if self.is_empty() { 0 } else { common_prefix(key, &self.last) };
        let (kind, position) = match value {
            KeyRunValue::Deleted => (DELETED, None),
            KeyRunValue::Record(position) => (RECORD, Some(position)),
            KeyRunValue::Block { position, length } => (length / ALIGN as u32, Some(position)),
        };
        put_varint(&mut self.bytes, shared as u32);
        put_varint(&mut self.bytes, (key.len() - shared) as u32);
        put_varint(&mut self.bytes, kind);
        if let Some(position) = position {
            self.bytes.extend_from_slice(&position.to_le_bytes());
        }
        self.bytes.extend_from_slice(&key[shared..]);
        self.last.truncate(common_prefix(key, &self.last));
        let kept = self.last.len();
        self.last.extend_from_slice(&key[kept..]);
        self.entries += 1;
    }

    /// Completes the block. Returns its bytes, without the checksum.
    pub fn finish(&mut self) -> &mut [u8] {
        let length = align_up(self.bytes.len());
        self.bytes.resize(length, 0);
        self.bytes[8..12].copy_from_slice(&(length as u32).to_le_bytes());
        self.bytes[12..16].copy_from_slice(&self.entries.to_le_bytes());
        &mut self.bytes
    }

    /// Empties the block for the next entries; the key that was added last stays known.
    pub fn clear(&mut self) {
        self.bytes.truncate(HEADER);
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
    value: KeyRunValue,
}

/// Splits an entry off the front of `bytes`.
#[inline(always)]
fn take_entry<'a>(bytes: &mut &'a [u8]) -> Option<RawEntry<'a>> {
    let shared = take_varint(bytes)? as usize;
    let suffix = take_varint(bytes)? as usize;
    let kind = take_varint(bytes)?;
    let mut value = KeyRunValue::Deleted;
    if kind != DELETED {
        let (position, rest) = bytes.split_first_chunk::<4>()?;
        *bytes = rest;
        let position = u32::from_le_bytes(*position);
        value = match kind {
            RECORD => KeyRunValue::Record(position),
            words => KeyRunValue::Block { position, length: words * ALIGN as u32 },
        };
    }
    let (suffix, rest) = bytes.split_at_checked(suffix)?;
    *bytes = rest;
    Some(RawEntry { shared, suffix, value })
}

/// The length that a block states in its header.
#[must_use]
pub fn length_of(header: &[u8]) -> Option<usize> {
    Some(u32::from_le_bytes(header.get(8..12)?.try_into().ok()?) as usize)
}

/// The entries of a block, with complete keys.
#[derive(Clone, Debug, Default)]
pub struct DecodedBlock {
    keys: Vec<u8>,
    /// For each entry where its key begins, and its value.
    rows: Vec<(u32, KeyRunValue)>,
}

impl DecodedBlock {
    /// Decodes a block, whose checksum was verified, in place of the current entries. Returns false if it is
    /// malformed: a malicious file may have a valid checksum. Each key is above the one before it.
    #[must_use]
    pub fn decode(&mut self, bytes: &[u8]) -> bool {
        self.keys.clear();
        self.rows.clear();
        let entries = bytes.get(12..HEADER).and_then(|bytes| bytes.try_into().ok());
        let entries = entries.map_or(0, u32::from_le_bytes) as usize;
        let is_sane = length_of(bytes) == Some(bytes.len()) && bytes.len().is_multiple_of(ALIGN);
        // An entry takes at least three bytes.
        if !is_sane || entries == 0 || entries > bytes.len() / 3 {
            return false;
        }
        self.rows.reserve(entries);
        let mut rest = &bytes[HEADER..];
        let mut before = 0..0;
        for i in 0..entries {
            let Some(RawEntry { shared, suffix, value }) = take_entry(&mut rest) else {
                return false;
            };
            if shared > before.len() || shared + suffix.len() > MAX_RUN_KEY {
                return false;
            }
            // Where the keys first differ, this one is above.
            let left = self.keys.get(before.start + shared..before.end).unwrap_or_default();
            if i > 0 && suffix <= left {
                return false;
            }
            let start = self.keys.len();
            self.keys.extend_from_within(before.start..before.start + shared);
            self.keys.extend_from_slice(suffix);
            before = start..self.keys.len();
            self.rows.push((start as u32, value));
        }
        rest.len() < ALIGN && rest.iter().all(|&byte| byte == 0)
    }

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
    #[inline]
    #[must_use]
    pub fn key(&self, at: usize) -> &[u8] {
        let end = self.rows.get(at + 1).map_or(self.keys.len(), |next| next.0 as usize);
        &self.keys[self.rows[at].0 as usize..end]
    }

    /// The value of an entry.
    ///
    /// # Panics
    /// If there is no such entry.
    #[inline]
    #[must_use]
    pub fn value(&self, at: usize) -> KeyRunValue {
        self.rows[at].1
    }

    /// Adds an entry.
    pub fn push(&mut self, keyspace: u32, key: &[u8], value: KeyRunValue) {
        self.rows.push((self.keys.len() as u32, value));
        self.keys.extend_from_slice(&(keyspace as u16).to_be_bytes());
        self.keys.extend_from_slice(key);
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        self.keys.clear();
        self.rows.clear();
    }

    /// How many keys are below `key`, or with `after` not above it.
    #[must_use]
    pub fn count_below(&self, key: &[u8], after: bool) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            let other = self.key(middle);
            if other < key || after && other == key {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Bytes of memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.keys.capacity() + self.rows.capacity() * size_of::<(u32, KeyRunValue)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn block_of(entries: &BTreeMap<Vec<u8>, KeyRunValue>) -> Vec<u8> {
        let mut writer = BlockWriter::default();
        for (key, &value) in entries {
            let most = writer.length_with(key.len());
            writer.add(key, value);
            assert!(align_up(writer.bytes.len()) <= most);
        }
        writer.finish().to_vec()
    }

    fn value_of(n: u64) -> KeyRunValue {
        match n % 5 {
            0 => KeyRunValue::Deleted,
            1 => KeyRunValue::Block { position: n as u32, length: 8 * (n as u32 % 0x1F_FFFD + 2) },
            _ => KeyRunValue::Record(n as u32),
        }
    }

    /// Keys of one to three alphabets of few letters, so that many are prefixes of others.
    fn some_entries(seed: u64, count: usize) -> BTreeMap<Vec<u8>, KeyRunValue> {
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
    fn decoded_block_matches_a_map() {
        for (seed, count) in [(1, 1), (2, 2), (3, 15), (4, 16), (5, 17), (6, 33), (7, 300)] {
            let entries = some_entries(seed, count);
            let mut decoded = DecodedBlock::default();
            assert!(decoded.decode(&block_of(&entries)));
            let all = (0..decoded.len()).map(|at| (decoded.key(at), decoded.value(at)));
            assert!(all.eq(entries.iter().map(|(key, &value)| (&key[..], value))));
            for key in some_entries(seed + 50, 500).keys().chain(entries.keys()) {
                assert_eq!(decoded.count_below(key, false), entries.range(..key.clone()).count());
                assert_eq!(decoded.count_below(key, true), entries.range(..=key.clone()).count());
            }
        }
    }

    #[test]
    fn longest_keys_and_blocks_are_kept() {
        let long = [vec![7; MAX_RUN_KEY - 1], vec![8]].concat();
        let value = KeyRunValue::Block { position: u32::MAX, length: (1 << 24) - 8 };
        let entries = BTreeMap::from([(vec![], KeyRunValue::Deleted), (long.clone(), value)]);
        let mut decoded = DecodedBlock::default();
        assert!(decoded.decode(&block_of(&entries)));
        assert_eq!((decoded.key(1), decoded.value(1)), (&long[..], value));
    }

    /// Every byte of a block changed to every value, or the block cut: it is refused, or its keys are in order.
    #[test]
    fn malformed_blocks_are_refused_or_in_order() {
        let bytes = block_of(&some_entries(9, 40));
        let check = |bytes: &[u8]| {
            let mut decoded = DecodedBlock::default();
            decoded.decode(bytes) && {
                assert_eq!(decoded.len(), 40);
                (1..40).for_each(|at| assert!(decoded.key(at - 1) < decoded.key(at)));
                true
            }
        };
        let mut accepted = 0;
        for at in 8..bytes.len() {
            for change in 1..=255 {
                let mut bytes = bytes.clone();
                bytes[at] ^= change;
                accepted += usize::from(check(&bytes));
            }
        }
        // Positions, lengths and last bytes of keys may be others.
        assert!(accepted > 0 && accepted < 255 * (bytes.len() - 8), "{accepted}");
        for length in 0..bytes.len() {
            assert!(!check(&bytes[..length]));
        }
    }
}
