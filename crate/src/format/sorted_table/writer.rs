//! Writing a table.

use alloc::vec::Vec;

use super::super::{align_up, segment};
use super::block::{self, BlockWriter, HEADER, common_prefix};
use super::filter;
use super::{MAX_TABLE_KEY, TableValue};
use crate::aligned_buf::AlignedBytes;

/// A block with more bytes than this takes no further entry, in segments that hold several such blocks.
const BLOCK_BYTES: usize = 4096;
/// A segment holds at least this many blocks, unless keys are long.
const MIN_BLOCKS: usize = 8;

/// A table that is being written, in memory.
#[derive(Debug)]
pub struct TableWriter {
    bytes: AlignedBytes,
    /// Bytes of the blocks that are complete, with the header of the segment.
    at: usize,
    block: BlockWriter,
    index: BlockWriter,
    /// Where the complete blocks begin.
    blocks: Vec<u32>,
    hashes: Vec<u32>,
    /// The start key of the current block.
    start: Vec<u8>,
}

/// Where the parts of a complete table are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableLayout {
    /// How many entries it has.
    pub entries: u32,
    /// Offset of its index in the segment: the end of its blocks.
    pub index_at: u32,
    /// Bytes of its index.
    pub index_length: u32,
    /// Bytes of its filter with a checksum, which follows the index; 0 if there is none.
    pub filter_length: u32,
}

impl TableLayout {
    /// Where the table ends in its segment.
    #[must_use]
    pub const fn end(&self) -> usize {
        self.index_at as usize + self.index_length as usize + self.filter_length as usize
    }
}

impl TableWriter {
    /// An empty table for a segment of this many bytes.
    #[must_use]
    pub fn new(segment: usize) -> Self {
        TableWriter {
            bytes: AlignedBytes::zeroed(segment),
            at: segment::SIZE,
            block: BlockWriter::default(),
            index: BlockWriter::default(),
            blocks: Vec::new(),
            hashes: Vec::new(),
            start: Vec::new(),
        }
    }

    /// Whether it has no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// Adds an entry whose key is above all others, with the hash of the key. Returns whether the table had
    /// space for it; an empty table has space for any key that fits a record.
    pub fn add(&mut self, key: &[u8], hash: u32, value: TableValue) -> bool {
        debug_assert!(key.len() <= MAX_TABLE_KEY, "the engine accepts no longer key");
        let limit = BLOCK_BYTES.min(self.bytes.len() / MIN_BLOCKS);
        let ends_block = !self.block.is_empty()
            && (self.block.length_with(key.len()) > limit || !self.block.has_capacity());
        let block = if ends_block { BlockWriter::default().length_with(key.len()) } else { 0 };
        let blocks = self.block.length_with(if ends_block { 0 } else { key.len() }) + block;
        // The index gets the current block and, if this entry begins one, that too; the filter all keys.
        let index =
            self.index.length_with(self.start.len().max(1) + key.len() * usize::from(ends_block))
                + HEADER * 2 * usize::from(ends_block);
        let rest = filter_length(self.hashes.len() + 1);
        let is_first = self.is_empty();
        if !is_first && self.at + blocks + index + rest > self.end() {
            return false;
        }
        if ends_block {
            self.end_block();
            let before = common_prefix(key, self.block.last_key());
            self.start.clear();
            self.start.extend_from_slice(&key[..before + 1]);
        }
        self.block.add(key, value);
        self.hashes.push(hash);
        true
    }

    /// Where the trailer of the segment begins.
    fn end(&self) -> usize {
        self.bytes.len() - segment::SIZE
    }

    fn end_block(&mut self) {
        let bytes = self.block.finish();
        let (at, length) = (self.at, bytes.len());
        self.bytes[at..at + length].copy_from_slice(bytes);
        self.block.clear();
        self.blocks.push(at as u32);
        self.at += length;
        let value = TableValue::Record { position: (at / 8) as u32, size: length as u32 };
        self.index.add(&self.start, value);
    }

    /// Ends the table, which has an entry, for a segment with this salt at this position of the file.
    /// Returns its layout; [`bytes`](TableWriter::bytes) are those of the segment without header and
    /// trailer.
    pub fn finish(&mut self, salt: u64, start: u64) -> TableLayout {
        self.end_block();
        let (index_at, end) = (self.at, self.end());
        let index = self.index.finish();
        self.bytes[index_at..index_at + index.len()].copy_from_slice(index);
        let index_length = index.len();
        let mut filter_length = filter_length(self.hashes.len());
        let filter_at = index_at + index_length;
        if filter_at + filter_length > end {
            // Only a key that fills the segment leaves no space for it.
            filter_length = 0;
        }
        if filter_length > 0 {
            let bytes = &mut self.bytes[filter_at..filter_at + filter_length];
            bytes.fill(0);
            self.hashes.iter().for_each(|&hash| filter::add(&mut bytes[8..], hash));
            block::seal(bytes, salt, start + filter_at as u64);
        }
        let ends = self.blocks.iter().skip(1).copied().chain([index_at as u32]);
        for (&from, to) in self.blocks.iter().zip(ends) {
            let bytes = &mut self.bytes[from as usize..to as usize];
            block::seal(bytes, salt, start + u64::from(from));
        }
        block::seal(&mut self.bytes[index_at..filter_at], salt, start + index_at as u64);
        TableLayout {
            entries: self.hashes.len() as u32,
            index_at: index_at as u32,
            index_length: index_length as u32,
            filter_length: filter_length as u32,
        }
    }

    /// The bytes of the segment.
    #[must_use]
    pub fn bytes(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// Starts the next table of the run.
    pub fn clear(&mut self) {
        self.at = segment::SIZE;
        self.block.clear();
        self.index.clear();
        self.blocks.clear();
        self.hashes.clear();
        self.start.clear();
    }
}

/// Bytes of a filter of this many keys with its checksum.
const fn filter_length(entries: usize) -> usize {
    align_up(8 + filter::filter_bytes(entries))
}

#[cfg(test)]
mod tests {
    use super::super::block::{Block, DecodedBlock};
    use super::*;
    use std::collections::BTreeMap;

    const SALT: u64 = 77;

    fn hash(key: &[u8]) -> u32 {
        crate::format::checksum::checksum(key, 9) as u32
    }

    /// A table as a reader finds it.
    struct Table {
        bytes: Vec<u8>,
        layout: TableLayout,
        start: u64,
    }

    impl Table {
        fn part(&self, from: usize, length: usize) -> &[u8] {
            let bytes = &self.bytes[from..from + length];
            assert!(block::verify(bytes, SALT, self.start + from as u64));
            bytes
        }

        fn block(&self, from: usize, length: usize) -> Block<'_> {
            let block = Block::new(self.part(from, length)).expect("a block");
            assert!(block.is_valid());
            block
        }

        fn index(&self) -> Block<'_> {
            self.block(self.layout.index_at as usize, self.layout.index_length as usize)
        }

        fn block_of(&self, value: TableValue) -> Block<'_> {
            let TableValue::Record { position, size } = value else { panic!("a block's place") };
            self.block(8 * position as usize, size as usize)
        }

        fn find(&self, key: &[u8]) -> Option<TableValue> {
            let found =
                self.index().search(key).floor.expect("the first block begins before all keys");
            self.block_of(found).search(key).equal
        }

        fn passes_filter(&self, key: &[u8]) -> bool {
            let at = (self.layout.index_at + self.layout.index_length) as usize;
            let lines = match self.layout.filter_length as usize {
                0 => return true,
                length => &self.part(at, length)[8..],
            };
            let line = filter::line_of(hash(key), lines.len() / filter::LINE) * filter::LINE;
            filter::may_contain(&lines[line..line + filter::LINE], hash(key))
        }
    }

    fn tables_of(entries: &BTreeMap<Vec<u8>, TableValue>, segment: usize) -> Vec<Table> {
        let (mut writer, mut tables) = (TableWriter::new(segment), Vec::new());
        let mut end = |writer: &mut TableWriter| {
            let start = 8192 + (tables.len() * segment) as u64;
            let layout = writer.finish(SALT, start);
            assert!(layout.end() <= segment - segment::SIZE, "{layout:?}");
            tables.push(Table { bytes: writer.bytes().to_vec(), layout, start });
            writer.clear();
        };
        for (key, &value) in entries {
            if !writer.add(key, hash(key), value) {
                end(&mut writer);
                assert!(writer.add(key, hash(key), value), "an empty table takes any key");
            }
        }
        end(&mut writer);
        tables
    }

    fn random(x: &mut u64) -> u64 {
        *x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        *x >> 33
    }

    /// Mostly short keys, some that nearly fill a segment.
    fn some_entries(x: &mut u64, count: usize, longest: usize) -> BTreeMap<Vec<u8>, TableValue> {
        let mut entries = BTreeMap::new();
        while entries.len() < count {
            let length = match random(x) % 40 {
                0 => longest,
                1 => random(x) as usize % longest,
                _ => random(x) as usize % 20,
            };
            let letters = [2, 256][random(x) as usize % 2];
            let key = (0..length + 3).map(|_| (random(x) % letters) as u8).collect();
            let (position, size) = (random(x) as u32 | 1, 8 * (random(x) as u32 % 500 + 5));
            let value = match random(x) % 9 {
                0 => TableValue::Deleted,
                _ => TableValue::Record { position, size },
            };
            entries.insert(key, value);
        }
        entries
    }

    #[test]
    fn tables_of_a_run_contain_all_keys_in_order() {
        let mut x = 5;
        for (segment_log2, count) in [(12, 400), (13, 300), (16, 3_000), (20, 60_000)] {
            let segment = 1 << segment_log2;
            // The longest key whose record fits a segment, with its keyspace, less three letters.
            let longest = (segment - 128 - 40 - 40).min(crate::format::MAX_KEY) + 2 - 3;
            let longest = if segment_log2 == 20 { 2_000 } else { longest };
            let entries = some_entries(&mut x, count, longest);
            let tables = tables_of(&entries, segment);
            assert!(tables.len() > 1);
            let mut all = Vec::new();
            for table in &tables {
                let (mut index, mut decoded) = (DecodedBlock::default(), DecodedBlock::default());
                table.index().decode(&mut index);
                for at in 0..index.len() {
                    table.block_of(index.value(at)).decode(&mut decoded);
                    assert!(index.key(at) <= decoded.key(0));
                    all.extend(
                        (0..decoded.len()).map(|i| (decoded.key(i).to_vec(), decoded.value(i))),
                    );
                }
            }
            assert_eq!(all.len(), entries.len());
            assert!(all.iter().map(|(key, value)| (key, value)).eq(&entries));
            let owners: Vec<usize> = tables
                .iter()
                .enumerate()
                .flat_map(|(i, table)| std::iter::repeat_n(i, table.layout.entries as usize))
                .collect();
            let others = some_entries(&mut x, 2_000, 30);
            for ((key, &value), &owner) in entries.iter().zip(&owners) {
                assert!(tables[owner].passes_filter(key));
                assert_eq!(tables[owner].find(key), Some(value));
            }
            for key in others.keys().filter(|key| !entries.contains_key(*key)) {
                assert!(tables.iter().all(|table| table.find(key).is_none()));
            }
        }
    }

    #[test]
    fn long_keys_take_a_table_each_and_few_take_one() {
        let key = |n: u8| [vec![1; 3_889], vec![n]].concat();
        let value = TableValue::Record { position: 5, size: 3_928 };
        let entries = (0..5).map(|n| (key(n), value)).collect();
        let tables = tables_of(&entries, 4096);
        assert_eq!(tables.len(), 5);
        assert!(tables.iter().all(|table| table.layout.filter_length == 0));
        let few = (0..5_u8).map(|n| (vec![0, 2, n], value)).collect();
        assert_eq!(tables_of(&few, 4096).len(), 1);
    }

    /// Ten million keys of 16 random bytes take at most 25 bytes each.
    #[test]
    fn tables_are_compact() {
        let mut x = 8;
        let mut key = || {
            let mut key = vec![0, 0];
            (0..4).for_each(|_| key.extend((random(&mut x) as u32).to_le_bytes()));
            key
        };
        let value = TableValue::Record { position: 5, size: 80 };
        let entries: BTreeMap<_, _> = (0..200_000).map(|_| (key(), value)).collect();
        let tables = tables_of(&entries, 1 << 20);
        let bytes: usize = tables.iter().map(|table| table.layout.end()).sum();
        assert!(bytes < 26 * entries.len(), "{} bytes a key", bytes as f64 / entries.len() as f64);
    }
}
