//! Builds database files byte by byte from `varve::format` alone: the engine's log is not asked, so
//! that a mistake in it cannot hide in the files that it is tested with. Of the index only the hash
//! is used, which checkpoints hold.

use std::collections::BTreeMap;
use std::ops::Range;

use musli_zerocopy::ZeroCopy;
use varve::format::checkpoint::{self, CheckpointHead, ExtentRow, HEAD, KeyspaceRow, SegmentRow};
use varve::format::checksum::{checksum, seed_at};
use varve::format::frame::{self, FrameHeader};
use varve::format::record::{self, RecordHeader};
use varve::format::segment::{self, SegmentHeader};
use varve::format::superblock::{FLAG_CLEAN, SLOT_STRIDE, Superblock};
use varve::format::system_records::{ExtentRef, clear_key, clear_of};
use varve::format::{DATA_START, KEYSPACE_ENGINE, MAJOR, MINOR, align_up};
use varve::index::hash_index::KeyHash;

/// Identity of every golden file.
pub const FILE_ID: [u64; 2] = [0x0123_4567_89AB_CDEF, 0xFEDC_BA98_7654_3210];
/// 2026-01-01T00:00:00Z.
pub const CREATED_MS: u64 = 1_767_225_600_000;
/// Segments of 4 KiB keep the files small.
pub const LOG2: u8 = 12;

/// A record to be put into a frame.
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

/// Space that a rolled-back call left, with what it had written there.
pub fn void(left: &[u8]) -> Record {
    Record { value: left.to_vec(), ..Record::default() }.kind(record::KIND_VOID)
}

/// A key is gone.
pub fn delete(key: impl AsRef<[u8]>, version: u64) -> Record {
    set(key, [], version).kind(record::KIND_DELETE)
}

/// A keyspace is emptied; the record was written first in the segment with that sequence.
pub fn clear(keyspace: u32, version: u64, newest: u32) -> Record {
    let record = set(clear_key(keyspace), u64::from(newest).to_le_bytes(), version);
    record.kind(record::KIND_CLEAR).keyspace(KEYSPACE_ENGINE)
}

/// A key whose value lies in an extent.
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

    /// Room for `capacity` bytes of value.
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

    /// The record's bytes, unsealed.
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

/// A deletion that was moved tells the last segment that may hold what it deletes.
pub fn moved_deletion(key: impl AsRef<[u8]>, version: u64, newest: u32) -> Record {
    set(key, u64::from(newest).to_le_bytes(), version).kind(record::KIND_DELETE)
}

/// `len` bytes in which no two neighbours are alike and the last is not zero.
pub fn fill(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(37).wrapping_add(seed) | 1 << (i % 8)).collect()
}

/// A segment of the log that is being filled.
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
    /// Every record that was put into a frame, in order.
    placed: Vec<Placed>,
}

#[derive(Clone, Debug)]
struct Placed {
    sequence: u32,
    /// In units of 8 bytes from the first segment.
    position: u32,
    record: Record,
}

/// A segment that a checkpoint names.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub segment: Segment,
    /// Number behind its last frame.
    pub end_frame: u64,
}

/// What a frame says beside its records.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    pub number: u64,
    pub watermark: u64,
    pub commit: bool,
}

/// A frame that completes its commit.
pub fn commit(number: u64, watermark: u64) -> Mark {
    Mark { number, watermark, commit: true }
}

/// A frame whose commit goes on in the next one.
pub fn part(number: u64, watermark: u64) -> Mark {
    Mark { number, watermark, commit: false }
}

impl Image {
    /// A file as creation leaves it: generation 1 in slot 0 and generation 2 in slot 1.
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
            reserved: [0; 12],
        };
        let mut image = Image { bytes: Vec::new(), log2, superblock, salts: 0, placed: Vec::new() };
        image.write_superblock();
        image.write_superblock();
        image
    }

    /// The same after the mark that a session makes before its first append.
    pub fn opened(log2: u8) -> Self {
        let mut image = Image::created(log2);
        image.superblock.flags = 0;
        image.write_superblock();
        image
    }

    /// Writes the next generation of the superblock into the slot whose turn it is.
    pub fn write_superblock(&mut self) {
        self.superblock.generation += 1;
        let slot = (self.superblock.generation - 1) % 2;
        let bytes = self.superblock.encode(slot);
        self.put(slot * SLOT_STRIDE, &bytes);
    }

    /// Writes both superblocks as they are now, as a change that both must carry.
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

    /// Makes bytes zero, as a write that never reached the medium leaves them.
    pub fn zero(&mut self, range: Range<u64>) {
        self.bytes[range.start as usize..range.end as usize].fill(0);
    }

    /// How many bytes of a range there are up to its last one that is not zero.
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

    /// Puts header and trailer of a log segment into `slot`.
    pub fn segment(&mut self, slot: u32, sequence: u32, first_frame: u64) -> Segment {
        self.segment_with(slot, sequence, first_frame, 0)
    }

    /// The same in a slot that was not blank.
    pub fn segment_in_a_used_slot(
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

    /// Puts only the trailer of a log segment into `slot`, as before its first frame.
    pub fn trailer(&mut self, slot: u32, sequence: u32, first_frame: u64) {
        let start = self.slot_start(slot);
        let before = self.bytes.get(start as usize..start as usize + segment::SIZE);
        let before = before.map_or(vec![0; segment::SIZE], <[u8]>::to_vec);
        self.segment(slot, sequence, first_frame);
        self.put(start, &before);
    }

    /// Puts a value into an extent that starts at `slot`.
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

    /// Appends a frame and gives its file position.
    pub fn frame(&mut self, segment: &mut Segment, mark: Mark, records: &[Record]) -> u64 {
        self.frame_that_counts(segment, mark, records, records.len() as u32)
    }

    /// Appends a frame that says that it holds `count` records.
    pub fn frame_that_counts(
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
            self.placed.push(Placed {
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
            flags: if mark.commit { frame::FLAG_COMMIT } else { 0 },
            ..Default::default()
        };
        header.seal(&mut bytes, segment.salt, at);
        let room = segment.start + (1 << self.log2) - segment::SIZE as u64;
        assert!(at + bytes.len() as u64 <= room, "the frame does not fit its segment");
        self.put(at, &bytes);
        segment.at += bytes.len() as u64;
        at
    }

    /// The records that count, by keyspace and key, deletions among them.
    fn newest(&self) -> BTreeMap<(u32, &[u8]), &Placed> {
        let mut newest: BTreeMap<(u32, &[u8]), &Placed> = BTreeMap::new();
        for placed in &self.placed {
            let header = placed.record.header;
            if header.kind & record::KIND_SKIPPABLE != 0 {
                continue;
            }
            let entry = newest.entry((header.space(), &placed.record.key)).or_insert(placed);
            if entry.record.header.version <= header.version {
                *entry = placed;
            }
        }
        newest
    }

    /// The versions at which keyspaces were emptied.
    fn cleared(&self) -> BTreeMap<u32, u64> {
        let mut cleared = BTreeMap::new();
        for Placed { record: Record { header, key, value }, .. } in &self.placed {
            if let Some((keyspace, _)) =
                clear_of(header.space(), key, value).filter(|_| header.kind == record::KIND_CLEAR)
            {
                let version: &mut u64 = cleared.entry(keyspace).or_default();
                *version = header.version.max(*version);
            }
        }
        cleared
    }

    /// The record as one that takes the place of the one that counts for its key.
    pub fn over(&self, mut record: Record) -> Record {
        let before = self.newest();
        let placed = before[&(record.header.space(), &record.key[..])];
        record.header.previous = placed.position;
        record.header.replaced = record::size_in_words(placed.record.encode().len() as u32);
        record
    }

    /// A copy of the record that counts for a key, as compaction makes it.
    pub fn moved(&self, keyspace: u32, key: &str) -> Record {
        let found = self.newest()[&(keyspace, key.as_bytes())].record.clone();
        self.over(found)
    }

    /// Puts a checkpoint of what was written so far into `slot`, as of just before `frame`, and
    /// names it in the superblock that is written next. The log ends in the last of `rows`.
    pub fn checkpoint(&mut self, slot: u32, sequence: u32, frame: u64, rows: &[Row]) {
        let salt = self.salt();
        let start = self.slot_start(slot) + segment::SIZE as u64;
        let hashes = KeyHash::new(self.superblock.hash_seed);
        let newest = self.newest();
        let is_live = |placed: &&&Placed| placed.record.header.kind != record::KIND_DELETE;
        let live: Vec<&Placed> = newest.values().filter(is_live).copied().collect();
        let cleared = self.cleared();
        let is_cleared = |header: &RecordHeader| {
            cleared.get(&header.space()).is_some_and(|v| header.version < *v)
        };

        let mut counts: BTreeMap<u32, u64> = BTreeMap::new();
        for placed in &live {
            let header = placed.record.header;
            *counts.entry(header.space()).or_default() += u64::from(!is_cleared(&header));
        }
        let mut tables = Vec::new();
        for (&keyspace, &count) in &counts {
            // It need not be told once nothing is left that it ended.
            let is_swept = !live.iter().any(|p| {
                let header = p.record.header;
                header.space() == keyspace && is_cleared(&header)
            });
            let cleared = cleared.get(&keyspace).copied().filter(|_| !is_swept).unwrap_or(0);
            tables.extend(
                KeyspaceRow {
                    keyspace: keyspace as u16,
                    reserved: 0,
                    count: count as u32,
                    cleared,
                }
                .to_bytes(),
            );
        }
        for row in rows {
            let live = live.iter().filter(|p| p.sequence == row.segment.sequence);
            let sizes: Vec<usize> = live.map(|p| p.record.encode().len()).collect();
            let tombstones = self.placed.iter().filter(|p| p.sequence == row.segment.sequence);
            let tombstones = tombstones.filter(|p| p.record.header.kind == record::KIND_DELETE);
            let row = SegmentRow {
                slot: ((row.segment.start - DATA_START) >> self.log2) as u32,
                sequence: row.segment.sequence,
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
                reserved: 0,
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
        };
        let mut bytes = [head.to_bytes(), &tables].concat();
        checkpoint::seal(&mut bytes, salt, start);
        let mut block = vec![0; 8];
        for placed in live {
            let hash = hashes.hash(placed.record.header.space(), &placed.record.key);
            block.extend(hash.to_le_bytes());
            block.extend(placed.position.to_le_bytes());
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
        self.superblock.checkpoint_frame = frame;
        self.superblock.next_sequence = u64::from(sequence) + 1;
    }

    /// Zeroes a slot, as giving back a segment does.
    pub fn erase(&mut self, slot: u32) {
        self.zero(self.slot_start(slot)..self.slot_start(slot + 1));
    }

    /// Ends the file as `close` does: frames below `next` were flushed, then a witness frame, then
    /// the clean mark.
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
