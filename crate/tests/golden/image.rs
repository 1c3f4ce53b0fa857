//! Builds database files byte by byte from `varve::engine::format` alone, without the engine's log, so that
//! a mistake there cannot hide in the files that test it. Only the hash of the index is used,
//! because checkpoints contain hashes.

use std::collections::BTreeMap;
use std::ops::Range;

use musli_zerocopy::ZeroCopy;
use varve::engine::format::checkpoint::{
    self, CheckpointHead, ExtentRow, HEAD, KeyspaceRow, RunRow, RunSegmentRow, SegmentRow,
};
use varve::engine::format::checksum::{checksum, seed_at};
use varve::engine::format::frame::{self, FrameHeader};
use varve::engine::format::key_run::block::BlockWriter;
use varve::engine::format::key_run::{KeyRunValue, run_key};
use varve::engine::format::record::{self, RecordHeader};
use varve::engine::format::segment::{self, SegmentHeader};
use varve::engine::format::superblock::{FLAG_CLEAN, SLOT_STRIDE, Superblock};
use varve::engine::format::system_records::{ExtentRef, clear_key, clear_of};
use varve::engine::format::{DATA_START, KEYSPACE_ENGINE, MAJOR, MINOR, align_up};
use varve::engine::index::hash_index::KeyHash;

/// The identity of every golden file.
pub const FILE_ID: [u64; 2] = [0x0123_4567_89AB_CDEF, 0xFEDC_BA98_7654_3210];
/// 2026-01-01T00:00:00Z.
pub const CREATED_MS: u64 = 1_767_225_600_000;
/// Segments of 4 KiB keep the files small.
pub const LOG2: u8 = 12;

/// A record for a frame.
#[derive(Clone, Debug, Default)]
pub struct Record {
    pub header: RecordHeader,
    pub key: Vec<u8>,
    pub value: Vec<u8>,
}

/// A key and its value.
pub fn set(key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, version: u64) -> Record {
    Record {
        header: RecordHeader { kind: record::KIND_SET, version, oldest: 1, ..Default::default() },
        key: key.as_ref().to_vec(),
        value: value.as_ref().to_vec(),
    }
}

/// Unused space that a rolled-back call left, with its remaining bytes.
pub fn void(left: &[u8]) -> Record {
    Record { value: left.to_vec(), ..Record::default() }.kind(record::KIND_VOID)
}

/// The deletion of a key.
pub fn delete(key: impl AsRef<[u8]>, version: u64) -> Record {
    set(key, [], version).kind(record::KIND_DELETE)
}

/// The clearing of a keyspace, first written in the segment with the sequence `newest`.
pub fn clear(keyspace: u32, version: u64, newest: u32) -> Record {
    let record = set(clear_key(keyspace), u64::from(newest).to_le_bytes(), version);
    record.kind(record::KIND_CLEAR).keyspace(KEYSPACE_ENGINE)
}

/// A key with its value in an extent.
pub fn extent(key: impl AsRef<[u8]>, descriptor: ExtentRef, version: u64) -> Record {
    set(key, descriptor.to_bytes(), version).kind(record::KIND_EXTENT)
}

impl Record {
    pub fn kind(mut self, kind: u8) -> Self {
        self.header.kind = kind;
        self
    }

    pub fn keyspace(mut self, keyspace: u32) -> Self {
        self.header.keyspace = keyspace as u16;
        self
    }

    /// Sets the capacity for the value.
    pub fn capacity(mut self, capacity: u32) -> Self {
        self.header.capacity = capacity;
        self
    }

    pub fn oldest(mut self, sequence: u32) -> Self {
        self.header.oldest = sequence;
        self
    }

    pub fn expiry(mut self, seconds: u32) -> Self {
        self.header.expiry = seconds;
        self
    }

    /// The bytes of the record without checksums.
    fn encode(&self) -> Vec<u8> {
        let mut header = self.header;
        header.key_len = self.key.len() as u16;
        if header.kind != record::KIND_VOID {
            header.value_len = self.value.len() as u32;
        }
        header.capacity = header.capacity.max(align_up(self.value.len()) as u32);
        let mut bytes = header.to_bytes().to_vec();
        bytes.extend(&self.key);
        bytes.resize(header.value_offset(), 0);
        bytes.extend(&self.value);
        bytes.resize(header.size(), 0);
        bytes
    }
}

/// A relocated deletion states the last segment that may contain what it deletes.
pub fn relocated_tombstone(key: impl AsRef<[u8]>, version: u64, newest: u32) -> Record {
    set(key, u64::from(newest).to_le_bytes(), version).kind(record::KIND_DELETE)
}

/// `len` bytes in which no two neighbors are equal and the last is not zero.
pub fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(37).wrapping_add(seed) | 1 << (i % 8)).collect()
}

/// A log segment under construction.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    pub start: u64,
    pub sequence: u32,
    pub salt: u64,
    /// File position of the next frame.
    pub at: u64,
}

/// A database file under construction.
#[derive(Clone, Debug)]
pub struct Image {
    pub bytes: Vec<u8>,
    pub log2: u8,
    pub superblock: Superblock,
    salts: u64,
    /// All records in frames, in order.
    placed: Vec<PlacedRecord>,
    /// The runs of keys that the next checkpoint lists.
    runs: Vec<(RunRow, Vec<RunSegmentRow>)>,
}

#[derive(Clone, Debug)]
struct PlacedRecord {
    sequence: u32,
    /// In units of 8 bytes from the first segment.
    position: u32,
    record: Record,
}

/// A segment that a checkpoint lists.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub segment: Segment,
    /// Number after its last frame.
    pub end_frame: u64,
}

/// The fields of a frame header.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    pub number: u64,
    pub watermark: u64,
    pub flags: u32,
}

/// A frame that completes its commit.
pub fn commit(number: u64, watermark: u64) -> Mark {
    Mark { number, watermark, flags: frame::FLAG_COMMIT }
}

/// A frame that maintenance wrote, which completes its commit.
pub fn moved(number: u64, watermark: u64) -> Mark {
    Mark { number, watermark, flags: frame::FLAG_COMMIT | frame::FLAG_MOVED }
}

/// A frame whose commit continues in the next one.
pub fn part(number: u64, watermark: u64) -> Mark {
    Mark { number, watermark, flags: 0 }
}

impl Image {
    /// A newly created file: generation 1 in slot 0 and generation 2 in slot 1.
    pub fn created(log2: u8) -> Self {
        let superblock = Superblock {
            magic: [0; 8],
            check: 0,
            major: MAJOR,
            minor: MINOR,
            segment_log2: log2,
            mode: 0,
            flags: FLAG_CLEAN,
            incompatible: 0,
            compatible: 0,
            file_id: FILE_ID,
            hash_seed: [0x5EED_0000_0000_0001, 0x5EED_0000_0000_0002],
            generation: 0,
            created_ms: CREATED_MS,
            next_version: 1,
            next_frame: 1,
            end_sequence: 0,
            end_position: DATA_START,
            next_sequence: 1,
            first_sequence: 1,
            first_frame: 1,
            checkpoint_sequence: 0,
            checkpoint_frame: 0,
            uncertain_below: 0,
            checkpoint_slot: 0,
            reserved: [0; 10],
        };
        let mut image = Image {
            bytes: Vec::new(),
            log2,
            superblock,
            salts: 0,
            placed: Vec::new(),
            runs: Vec::new(),
        };
        image.write_superblock();
        image.write_superblock();
        image
    }

    /// The same after the superblock that a session writes before its first append.
    pub fn opened(log2: u8) -> Self {
        let mut image = Image::created(log2);
        image.superblock.flags = 0;
        image.write_superblock();
        image
    }

    /// Writes the superblock of the next generation to the other slot.
    pub fn write_superblock(&mut self) {
        self.superblock.generation += 1;
        let slot = (self.superblock.generation - 1) % 2;
        let bytes = self.superblock.encode(slot);
        self.put(slot * SLOT_STRIDE, &bytes);
    }

    /// Writes both superblocks, for a change that both must contain.
    pub fn write_superblocks(&mut self) {
        self.write_superblock();
        self.write_superblock();
    }

    pub fn put(&mut self, at: u64, bytes: &[u8]) {
        let at = at as usize;
        if self.bytes.len() < at + bytes.len() {
            self.bytes.resize(at + bytes.len(), 0);
        }
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Zeros bytes, as if their write never reached the disk.
    pub fn zero(&mut self, range: Range<u64>) {
        self.bytes[range.start as usize..range.end as usize].fill(0);
    }

    /// The length of a range without trailing zeros.
    pub fn used(&self, range: Range<u64>) -> u64 {
        let bytes = &self.bytes[range.start as usize..range.end as usize];
        bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last as u64 + 1)
    }

    /// Flips one bit of the byte at `at`.
    pub fn flip(&mut self, at: u64) {
        self.bytes[at as usize] ^= 0x10;
    }

    pub fn slot_start(&self, slot: u32) -> u64 {
        DATA_START + (u64::from(slot) << self.log2)
    }

    fn salt(&mut self) -> u64 {
        self.salts += 1;
        checksum(b"golden salt", self.salts)
    }

    fn put_headers(&mut self, header: SegmentHeader) {
        let start = self.slot_start(header.slot);
        let end = self.slot_start(header.slot + header.span);
        let bytes = header.encode(FILE_ID[0], start);
        self.put(end - segment::SIZE as u64, &bytes);
        self.put(start, &bytes);
    }

    /// Writes the header and the trailer of a log segment to `slot`.
    pub fn segment(&mut self, slot: u32, sequence: u32, first_frame: u64) -> Segment {
        self.segment_with(slot, sequence, first_frame, 0)
    }

    /// The same in a slot that is not blank.
    pub fn segment_in_reused_slot(
        &mut self,
        slot: u32,
        sequence: u32,
        first_frame: u64,
    ) -> Segment {
        self.segment_with(slot, sequence, first_frame, segment::FLAG_REUSED)
    }

    fn segment_with(&mut self, slot: u32, sequence: u32, first_frame: u64, flags: u8) -> Segment {
        let salt = self.salt();
        self.put_headers(SegmentHeader {
            kind: segment::KIND_LOG,
            flags,
            sequence,
            slot,
            salt,
            first_frame,
            span: 1,
            ..Default::default()
        });
        let start = self.slot_start(slot);
        Segment { start, sequence, salt, at: start + segment::SIZE as u64 }
    }

    /// Writes only the trailer of a log segment to `slot`, as before its first frame.
    pub fn trailer(&mut self, slot: u32, sequence: u32, first_frame: u64) {
        let start = self.slot_start(slot);
        let before = self.bytes.get(start as usize..start as usize + segment::SIZE);
        let before = before.map_or(vec![0; segment::SIZE], <[u8]>::to_vec);
        self.segment(slot, sequence, first_frame);
        self.put(start, &before);
    }

    /// Writes a run of keys to two segments: leaves of two keys each in the first, all other blocks in the second.
    /// Each key is given with its keyspace, and whether it exists.
    pub fn run(&mut self, slots: [u32; 2], sequence: u32, keys: &[(u32, &str, bool)]) {
        let salts = [self.salt(), self.salt()];
        let mut ends = slots.map(|slot| self.slot_start(slot) + segment::SIZE as u64);
        let mut append = |image: &mut Image, part: usize, block: &mut BlockWriter| {
            let (at, bytes) = (ends[part], block.finish());
            checkpoint::seal(bytes, salts[part], at);
            image.put(at, bytes);
            ends[part] += bytes.len() as u64;
            let position = ((at - DATA_START) / 8) as u32;
            KeyRunValue::Block { position, length: bytes.len() as u32 }
        };
        let (mut key, mut inner, mut root) =
            (Vec::new(), BlockWriter::default(), BlockWriter::default());
        for (i, pair) in keys.chunks(2).enumerate() {
            let mut leaf = BlockWriter::default();
            for &(keyspace, name, exists) in pair {
                let live = self.placed.iter().rev().find(|placed| {
                    let of = placed.record.header.keyspace();
                    of == keyspace && placed.record.key == name.as_bytes()
                });
                let position = live.map_or(0, |placed| placed.position);
                let value =
                    if exists { KeyRunValue::Record(position) } else { KeyRunValue::Deleted };
                run_key(keyspace, name.as_bytes(), &mut key);
                leaf.add(&key, value);
            }
            run_key(pair[0].0, pair[0].1.as_bytes(), &mut key);
            let start: &[u8] = if i == 0 { &[] } else { &key };
            let block = append(self, 0, &mut leaf);
            inner.add(start, block);
        }
        let block = append(self, 1, &mut inner);
        root.add(&[], block);
        let KeyRunValue::Block { position, length } = append(self, 1, &mut root) else {
            unreachable!()
        };
        let segments = [0, 1].map(|part| {
            let sequence = sequence + part as u32;
            let slot = slots[part];
            self.put_headers(SegmentHeader {
                kind: segment::KIND_RUN,
                sequence,
                slot,
                salt: salts[part],
                payload: ends[part] - self.slot_start(slot) - segment::SIZE as u64,
                span: 1,
                ..Default::default()
            });
            RunSegmentRow { slot, sequence, salt: salts[part] }
        });
        let entries = keys.len() as u64;
        let row = RunRow { entries, root: position, root_length: length, sequence, segments: 2 };
        self.runs.push((row, segments.to_vec()));
    }

    /// Writes a value to an extent that starts at `slot`.
    pub fn extent(&mut self, slot: u32, sequence: u32, value: &[u8]) -> ExtentRef {
        let salt = self.salt();
        let at = self.slot_start(slot) + segment::SIZE as u64;
        let check = checksum(value, seed_at(salt, at));
        let span = (value.len() + 2 * segment::SIZE).div_ceil(1 << self.log2) as u32;
        self.put_headers(SegmentHeader {
            kind: segment::KIND_EXTENT,
            sequence,
            slot,
            salt,
            payload: value.len() as u64,
            payload_check: check,
            span,
            ..Default::default()
        });
        self.put(at, value);
        ExtentRef { slot, span, length: value.len() as u64, check, sequence, reserved: 0 }
    }

    /// Appends a frame and returns its file position.
    pub fn frame(&mut self, segment: &mut Segment, mark: Mark, records: &[Record]) -> u64 {
        self.frame_with_count(segment, mark, records, records.len() as u32)
    }

    /// Appends a frame whose header states `count` records.
    pub fn frame_with_count(
        &mut self,
        segment: &mut Segment,
        mark: Mark,
        records: &[Record],
        count: u32,
    ) -> u64 {
        let at = segment.at;
        let mut bytes = vec![0; frame::SIZE];
        for record in records {
            let from = bytes.len();
            bytes.extend(record.encode());
            RecordHeader::seal(&mut bytes[from..], segment.salt, at + from as u64);
            self.placed.push(PlacedRecord {
                sequence: segment.sequence,
                position: ((at + from as u64 - DATA_START) / 8) as u32,
                record: record.clone(),
            });
        }
        let header = FrameHeader {
            length: bytes.len() as u32,
            number: mark.number,
            watermark: mark.watermark,
            records: count,
            flags: mark.flags,
            ..Default::default()
        };
        header.seal(&mut bytes, segment.salt, at);
        let span = segment.start + (1 << self.log2) - segment::SIZE as u64;
        assert!(at + bytes.len() as u64 <= span, "the frame does not fit its segment");
        self.put(at, &bytes);
        segment.at += bytes.len() as u64;
        at
    }

    /// The current records by keyspace and key, including deletions.
    fn newest(&self) -> BTreeMap<(u32, &[u8]), &PlacedRecord> {
        let mut newest: BTreeMap<(u32, &[u8]), &PlacedRecord> = BTreeMap::new();
        for placed in &self.placed {
            let header = placed.record.header;
            if header.kind & record::KIND_SKIPPABLE != 0 {
                continue;
            }
            let entry = newest.entry((header.keyspace(), &placed.record.key)).or_insert(placed);
            if entry.record.header.version <= header.version {
                *entry = placed;
            }
        }
        newest
    }

    /// The versions at which keyspaces were cleared.
    fn cleared(&self) -> BTreeMap<u32, u64> {
        let mut cleared = BTreeMap::new();
        for PlacedRecord { record: Record { header, key, value }, .. } in &self.placed {
            if let Some((keyspace, _)) = clear_of(header.keyspace(), key, value)
                .filter(|_| header.kind == record::KIND_CLEAR)
            {
                let version: &mut u64 = cleared.entry(keyspace).or_default();
                *version = header.version.max(*version);
            }
        }
        cleared
    }

    /// Makes a record the successor of the current record of its key.
    pub fn replacing(&self, mut record: Record) -> Record {
        let before = self.newest();
        let placed = before[&(record.header.keyspace(), &record.key[..])];
        record.header.previous = placed.position;
        record.header.replaced = record::size_in_words(placed.record.encode().len() as u32);
        record
    }

    /// A copy of the current record of a key, as compaction makes it.
    pub fn relocated(&self, keyspace: u32, key: &str) -> Record {
        let found = self.newest()[&(keyspace, key.as_bytes())].record.clone();
        self.replacing(found)
    }

    /// Writes a checkpoint of everything so far to `slot`, as of just before `frame`; the next
    /// superblock will name it. The log ends in the last of `rows`.
    pub fn checkpoint(&mut self, slot: u32, sequence: u32, frame: u64, rows: &[Row]) {
        let salt = self.salt();
        let start = self.slot_start(slot) + segment::SIZE as u64;
        let hashes = KeyHash::new(self.superblock.hash_seed);
        let newest = self.newest();
        let is_live = |placed: &&&PlacedRecord| placed.record.header.kind != record::KIND_DELETE;
        let live: Vec<&PlacedRecord> = newest.values().filter(is_live).copied().collect();
        let cleared = self.cleared();
        let is_cleared = |header: &RecordHeader| {
            cleared.get(&header.keyspace()).is_some_and(|v| header.version < *v)
        };

        let mut counts: BTreeMap<u32, u64> = BTreeMap::new();
        for placed in &live {
            let header = placed.record.header;
            *counts.entry(header.keyspace()).or_default() += u64::from(!is_cleared(&header));
        }
        let mut tables = Vec::new();
        for (&keyspace, &count) in &counts {
            // A clear need not be recorded once no cleared record is left.
            let is_swept = !live.iter().any(|p| {
                let header = p.record.header;
                header.keyspace() == keyspace && is_cleared(&header)
            });
            let cleared = cleared.get(&keyspace).copied().filter(|_| !is_swept).unwrap_or(0);
            tables.extend(
                KeyspaceRow {
                    keyspace: keyspace as u16,
                    count: count as u32,
                    cleared,
                    ..Default::default()
                }
                .to_bytes(),
            );
        }
        for row in rows {
            let live = live.iter().filter(|p| p.sequence == row.segment.sequence);
            let sizes: Vec<usize> = live.map(|p| p.record.encode().len()).collect();
            let tombstones = self.placed.iter().filter(|p| p.sequence == row.segment.sequence);
            let tombstones = tombstones.filter(|p| p.record.header.kind == record::KIND_DELETE);
            let start = row.segment.start as usize;
            let header = SegmentHeader::unverified(&self.bytes[start..start + segment::SIZE]);
            let SegmentHeader { first_frame, flags, .. } = header.expect("the segment was begun");
            let row = SegmentRow {
                slot: ((row.segment.start - DATA_START) >> self.log2) as u32,
                sequence: row.segment.sequence,
                salt: row.segment.salt,
                first_frame,
                end_frame: row.end_frame,
                end: (row.segment.at - row.segment.start) as u32,
                live: sizes.len() as u32,
                live_bytes: sizes.iter().sum::<usize>() as u32,
                tombstone_bytes: tombstones.clone().map(|p| p.record.encode().len()).sum::<usize>()
                    as u32,
                oldest_tombstone: tombstones
                    .map(|p| p.record.header.oldest)
                    .min()
                    .unwrap_or(u32::MAX),
                flags: flags.into(),
            };
            tables.extend(row.to_bytes());
        }
        let extents = live.iter().filter(|p| p.record.header.kind == record::KIND_EXTENT);
        let extents: Vec<_> =
            extents.filter(|p| ExtentRef::decode(&p.record.value).is_some()).collect();
        for placed in &extents {
            let named = ExtentRef::decode(&placed.record.value).expect("an extent is named");
            let (slot, sequence) = (named.slot, named.sequence);
            let row = ExtentRow { slot, sequence, record: placed.position, reserved: 0 };
            tables.extend(row.to_bytes());
        }
        let runs = self.runs.clone();
        runs.iter().for_each(|(row, _)| tables.extend(row.to_bytes()));
        let run_segments: Vec<_> = runs.iter().flat_map(|(_, segments)| segments).collect();
        run_segments.iter().for_each(|row| tables.extend(row.to_bytes()));
        let hash_of = |p: &&PlacedRecord| hashes.hash(p.record.header.keyspace(), &p.record.key);
        let mut entries: Vec<_> = live.iter().map(|p| (hash_of(p), p.position)).collect();
        entries.sort_by_key(|&(hash, _)| hash);
        // They fit one block, so the last table has one row, padded to eight bytes.
        assert!((1..checkpoint::BLOCK_ENTRIES).contains(&entries.len()), "one block");
        tables.extend(u64::from(entries[0].0).to_le_bytes());
        let end = rows.last().expect("the log ends somewhere");
        let versions = self.placed.iter().map(|p| p.record.header.version);
        let head = CheckpointHead {
            check: 0,
            magic: checkpoint::MAGIC,
            length: (HEAD + tables.len()) as u32,
            frame,
            end_sequence: end.segment.sequence,
            end_offset: (end.segment.at - end.segment.start) as u32,
            next_version: versions.max().unwrap_or(0) + 1,
            entries: live.len() as u64,
            keyspaces: counts.len() as u32,
            segments: rows.len() as u32,
            extents: extents.len() as u32,
            next_sequence: sequence,
            runs: runs.len() as u32,
            run_segments: run_segments.len() as u32,
        };
        let mut bytes = [head.to_bytes(), &tables].concat();
        checkpoint::seal(&mut bytes, salt, start);
        let mut block = vec![0; 8];
        for (hash, position) in entries {
            block.extend(hash.to_le_bytes());
            block.extend(position.to_le_bytes());
        }
        checkpoint::seal(&mut block, salt, start + bytes.len() as u64);
        bytes.extend(block);
        let header = SegmentHeader {
            kind: segment::KIND_CHECKPOINT,
            sequence,
            slot,
            salt,
            payload: bytes.len() as u64,
            span: 1,
            ..Default::default()
        };
        assert!(bytes.len() + 2 * segment::SIZE <= 1 << self.log2, "it fits its slot");
        self.put_headers(header);
        self.put(start, &bytes);
        self.superblock.checkpoint_sequence = u64::from(sequence);
        self.superblock.checkpoint_slot = u64::from(slot);
        self.superblock.checkpoint_frame = frame;
        self.superblock.next_sequence = u64::from(sequence) + 1;
    }

    /// Zeros the headers of a slot, as removing a segment does.
    pub fn erase(&mut self, slot: u32) {
        self.zero(self.slot_start(slot)..self.slot_start(slot + 1));
    }

    /// Ends the file like a close: frames below `next` were flushed, then a witness and a
    /// superblock with the clean mark follow.
    pub fn close(&mut self, segment: &mut Segment, next: u64, next_version: u64) {
        let end = segment.at;
        self.frame(segment, commit(next, next), &[]);
        self.mark_clean(segment, next, end, next_version);
    }

    fn mark_clean(&mut self, segment: &Segment, next: u64, end: u64, next_version: u64) {
        self.superblock.flags = FLAG_CLEAN;
        self.superblock.next_frame = next;
        self.superblock.next_version = next_version;
        self.superblock.next_sequence =
            self.superblock.next_sequence.max(u64::from(segment.sequence) + 1);
        self.superblock.end_sequence = u64::from(segment.sequence);
        self.superblock.end_position = end;
        self.write_superblock();
    }
}
