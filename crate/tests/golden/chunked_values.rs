//! Golden files with chunked values, intact and not.

use musli_zerocopy::ZeroCopy;
use varve::engine::error::{Damage, Error};
use varve::engine::format::record::{KIND_CHUNKED, KIND_EXTENT};
use varve::engine::format::superblock::INCOMPATIBLE_CHUNKS;
use varve::engine::format::system_records::ChunksRef;
use varve::engine::format::{KEYSPACE_ENGINE, MAJOR, MAX_VALUE};

use crate::golden_file::{Content, Expect, Golden};
use crate::image::{Image, LOG2, Record, Row, commit, delete, pattern, set};

pub fn all() -> Vec<Golden> {
    vec![
        chunks(),
        before_a_checkpoint(),
        invalid_frame(),
        malformed(),
        malformed_before_a_checkpoint(),
        another_feature(),
    ]
}

/// A chunked value.
struct Value {
    key: &'static str,
    bytes: Vec<u8>,
    /// Bytes of each chunk except the last.
    size: usize,
    /// Its id. Its chunks have the versions after it, and then its own record.
    id: u64,
    /// The oldest segment that may contain records of its key, and of its chunks.
    oldest: [u32; 2],
}

impl Value {
    fn new(key: &'static str, length: usize, size: usize, id: u64, oldest: [u32; 2]) -> Self {
        Value { key, bytes: pattern(length, id as u8), size, id, oldest }
    }

    fn named(&self) -> ChunksRef {
        let (length, count) = (self.bytes.len() as u64, self.bytes.len().div_ceil(self.size));
        ChunksRef { id: self.id, length, count: count as u32, reserved: 0 }
    }

    fn version(&self) -> u64 {
        self.id + 1 + u64::from(self.named().count)
    }

    fn key_of(&self, chunk: u32) -> String {
        String::from_utf8(self.named().key(chunk).to_vec()).expect("its numbers are small")
    }

    /// All chunks.
    fn chunks(&self) -> Vec<Record> {
        let parts = self.bytes.chunks(self.size).zip(0..);
        let chunk = |(bytes, i): (&[u8], u32)| {
            let record = set(self.key_of(i), bytes, self.id + 1 + u64::from(i));
            record.keyspace(KEYSPACE_ENGINE).oldest(self.oldest[1])
        };
        parts.map(chunk).collect()
    }

    /// The record of the key with a descriptor.
    fn record(&self, named: ChunksRef) -> Record {
        let record = set(self.key, named.to_bytes(), self.version());
        record.kind(KIND_CHUNKED).oldest(self.oldest[0])
    }

    /// All records of the value.
    fn records(&self) -> Vec<Record> {
        let mut records = self.chunks();
        records.push(self.record(self.named()));
        records
    }

    /// The deletions of all chunks, the first of them with this version.
    fn tombstones(&self, image: &Image, version: u64) -> Vec<Record> {
        let tombstones = |(i, version): (u32, u64)| {
            let record = delete(self.key_of(i), version).keyspace(KEYSPACE_ENGINE);
            image.replacing(record.oldest(self.oldest[1]))
        };
        (0..self.named().count).zip(version..).map(tombstones).collect()
    }
}

/// Adds the value and its chunks.
fn with(content: Content, value: &Value) -> Content {
    let content = content.live(value.key, &value.bytes, value.version());
    with_chunks(content, value)
}

fn with_chunks(content: Content, value: &Value) -> Content {
    let chunks = value.chunks().into_iter();
    chunks.fold(content, |content, chunk| {
        content.live_in(KEYSPACE_ENGINE, chunk.key, chunk.value, chunk.header.version)
    })
}

/// A database whose superblock says that it has chunked values.
fn opened() -> Image {
    let mut image = Image::opened(LOG2);
    image.superblock.incompatible = INCOMPATIBLE_CHUNKS;
    image.write_superblocks();
    image
}

fn chunks() -> Golden {
    let kept_content = Value::new("kept", 1500, 376, 1, [1, 1]);
    let replaced = Value::new("replaced", 1100, 368, 7, [1, 1]);
    let deleted = Value::new("deleted", 1025, 344, 12, [2, 2]);
    let later = Value::new("replaced", 1200, 304, 17, [1, 2]);
    let mut image = opened();
    let mut first = image.segment(0, 1, 1);
    image.frame(&mut first, commit(1, 1), &kept_content.records());
    image.frame(&mut first, commit(2, 1), &replaced.records());
    let mut second = image.segment(1, 2, 3);
    image.frame(&mut second, commit(3, 1), &deleted.records());
    let mut records = later.chunks();
    records.push(image.replacing(later.record(later.named())));
    records.extend(replaced.tombstones(&image, 23));
    image.frame(&mut second, commit(4, 1), &records);
    let mut records = vec![image.replacing(delete("deleted", 26).oldest(2))];
    records.extend(deleted.tombstones(&image, 27));
    image.frame(&mut second, commit(5, 4), &records);
    let mut third = image.segment(2, 3, 6);
    let moved =
        [image.relocated(KEYSPACE_ENGINE, &kept_content.key_of(2)), image.relocated(0, "kept")];
    image.frame(&mut third, commit(6, 4), &moved);
    image.frame(&mut third, commit(7, 4), &[set("small", "in its record", 30).oldest(3)]);
    image.close(&mut third, 8, 31);
    let about = "values in chunks: one of which a chunk was moved, one replaced, one deleted";
    let content = with(with(Content::closed_at(8), &kept_content), &later);
    let content = content.live("small", "in its record", 30);
    Golden { name: "pieces", about, bytes: image.bytes, expect: Expect::Opens(content) }
}

fn before_a_checkpoint() -> Golden {
    let kept_content = Value::new("kept", 1300, 328, 1, [1, 1]);
    let damaged = Value::new("damaged", 1100, 368, 7, [1, 1]);
    let behind = Value::new("behind", 1025, 344, 13, [2, 2]);
    let mut image = opened();
    let mut first = image.segment(0, 1, 1);
    image.frame(&mut first, commit(1, 1), &kept_content.records());
    let at = image.frame(&mut first, commit(2, 1), &damaged.records());
    // The log ends in another segment: all frames before the end of the checkpoint are intact in
    // its own.
    let mut second = image.segment(1, 2, 3);
    image.frame(&mut second, commit(3, 1), &[set("small", "in its record", 12).oldest(2)]);
    let rows = [(first, 3), (second, 4)].map(|(segment, end_frame)| Row { segment, end_frame });
    image.checkpoint(2, 3, 4, &rows);
    image.superblock.next_frame = 4;
    image.write_superblocks();
    image.frame(&mut second, commit(4, 4), &behind.records());
    image.close(&mut second, 5, 18);
    // In the second chunk: after the frame's header, the first chunk, and the second one's header
    // and key.
    image.flip(at + 40 + (40 + 16 + 368) + 40 + 16 + 100);
    let about =
        "values in chunks before a checkpoint and behind it, and a damaged chunk of one of them";
    let content = with(with(Content::closed_at(5).checkpoint(4), &kept_content), &behind);
    let content = content.live("small", "in its record", 12);
    let mut content = with_chunks(content, &damaged);
    content.live.retain(|live| live.key != damaged.key_of(1).as_bytes());
    let content = content
        .unreadable(0, "damaged")
        .unreadable(KEYSPACE_ENGINE, "piece/\0\0\0\0\0\0\0\x07\0\x01");
    let (name, bytes) = ("pieces-before-checkpoint", image.bytes);
    Golden { name, about, bytes, expect: Expect::Opens(content) }
}

fn invalid_frame() -> Golden {
    let fine = Value::new("fine", 700, 352, 1, [1, 1]);
    let values = [("longer", 5), ("shorter", 9), ("lacking", 13), ("unnamed", 17), ("huge", 21)];
    let [longer, shorter, lacking, unnamed, huge] =
        values.map(|(key, id)| Value::new(key, 300, 152, id, [1, 1]));
    // No feature bit is set: builds that know chunked values need not check it.
    let mut image = Image::opened(LOG2);
    let mut segment = image.segment(0, 1, 1);
    let named = |value: &Value, length| ChunksRef { length, ..value.named() };
    let mut records = [fine.records(), longer.chunks(), shorter.chunks()].concat();
    records.push(longer.record(named(&longer, 299)));
    records.push(shorter.record(named(&shorter, 301)));
    image.frame(&mut segment, commit(1, 1), &records);
    let mut records = [lacking.records(), unnamed.chunks(), huge.chunks()].concat();
    records.push(huge.record(named(&huge, MAX_VALUE as u64)));
    image.frame(&mut segment, commit(2, 1), &records);
    let tombstones = lacking.tombstones(&image, 25);
    image.frame(&mut segment, commit(3, 1), &tombstones[1..]);
    image.close(&mut segment, 4, 27);
    let about = "values whose chunks have more bytes than they should, fewer, or are not all there; \
                 chunks that nothing names";
    let mut content = with(Content::closed_at(4), &fine);
    for value in [&longer, &shorter, &lacking, &unnamed, &huge] {
        content = with_chunks(content, value);
    }
    content.live.retain(|live| live.key != lacking.key_of(1).as_bytes());
    let content = content.unreadable(0, "longer").unreadable(0, "shorter");
    let content = content.unreadable(0, "lacking").unreadable(0, "huge");
    let (name, bytes) = ("pieces-not-whole", image.bytes);
    Golden { name, about, bytes, expect: Expect::Opens(content) }
}

fn malformed() -> Golden {
    let mut image = opened();
    let mut segment = image.segment(0, 1, 1);
    image.frame(&mut segment, commit(1, 1), &[set("kept", "flushed", 1)]);
    let none = ChunksRef { id: 2, length: 0, count: 0, reserved: 0 };
    let record = set("bad", none.to_bytes(), 3).kind(KIND_CHUNKED);
    let position = image.frame(&mut segment, commit(2, 1), &[record]);
    image.close(&mut segment, 3, 4);
    let damage = Damage { position, expected_frame: 2, flushed_frames: 3, ..Damage::default() };
    let about = "a valid, flushed frame with a value that consists of no chunks";
    let (name, bytes) = ("malformed-pieces", image.bytes);
    Golden { name, about, bytes, expect: Expect::Refused(Error::from(damage)) }
}

fn malformed_before_a_checkpoint() -> Golden {
    let mut image = opened();
    let mut first = image.segment(0, 1, 1);
    let none = ChunksRef { id: 2, length: 24, count: 0, reserved: 0 };
    let many = ChunksRef { count: 65_536, ..none };
    let huge = ChunksRef { count: 1, length: MAX_VALUE as u64 + 1, ..none };
    let records = [
        set("kept", "beside them", 1),
        set("none", none.to_bytes(), 3).kind(KIND_CHUNKED),
        set("many", many.to_bytes(), 4).kind(KIND_CHUNKED),
        set("huge", huge.to_bytes(), 5).kind(KIND_CHUNKED),
        set("short", "not what an extent has", 6).kind(KIND_EXTENT),
        set("unknown", "of a newer format", 7).kind(100),
    ];
    image.frame(&mut first, commit(1, 1), &records);
    let mut second = image.segment(1, 2, 2);
    image.frame(&mut second, commit(2, 1), &[set("last", "behind them", 9)]);
    // None of these names an extent, which its table would have to list.
    image.checkpoint(
        2,
        3,
        3,
        &[Row { segment: first, end_frame: 2 }, Row { segment: second, end_frame: 3 }],
    );
    image.superblock.next_frame = 3;
    image.write_superblocks();
    image.close(&mut second, 3, 10);
    let about =
        "records before a checkpoint, with valid checksums, that replay would refuse: so do reads";
    let content = Content::closed_at(3).checkpoint(3).live("kept", "beside them", 1);
    let content = content.live("last", "behind them", 9);
    let bad = ["none", "many", "huge", "short", "unknown"];
    let content = bad.into_iter().fold(content, |content, key| content.unreadable(0, key));
    let (name, bytes) = ("malformed-before-checkpoint", image.bytes);
    Golden { name, about, bytes, expect: Expect::Opens(content) }
}

fn another_feature() -> Golden {
    let mut image = Image::opened(LOG2);
    image.superblock.incompatible = INCOMPATIBLE_CHUNKS | 2;
    image.write_superblocks();
    let about = "an unknown incompatible feature beside that of values in chunks";
    let error = Error::UnsupportedFormat { major: MAJOR, features: 2.into() };
    let (name, bytes) = ("incompatible-bit-beside-pieces", image.bytes);
    Golden { name, about, bytes, expect: Expect::Refused(error) }
}
