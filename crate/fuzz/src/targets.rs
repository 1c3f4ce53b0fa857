//! The parsers, and opening and using a whole file. Whatever the bytes are, nothing panics, nothing
//! outside them is read, and the allocated memory is proportional to them.

use std::ops::Bound;

use musli_zerocopy::ZeroCopy;
use varve::engine::aligned_buf::AlignedBytes;
use varve::engine::format::checkpoint::{
    self, CheckpointHead, ExtentRow, HEAD, KeyspaceRow, SegmentRow, take_rows,
};
use varve::engine::format::frame::{self, FrameHeader};
use varve::engine::format::record::{self, RecordHeader};
use varve::engine::format::segment::SegmentHeader;
use varve::engine::format::superblock::{SLOT_STRIDE, Slot, Superblock};
use varve::engine::format::system_records::{ChunksRef, ExtentRef, clear_of};
use varve::engine::format::{DATA_START, MAX_VALUE};
use varve::engine::{Error, MemoryFile, OnDamage, Options, Store, VerifyCursor};

use super::allocations::most_held;
use super::repair;

/// A target for arbitrary bytes.
pub type Target = fn(&[u8]);

/// All targets, by name.
pub const TARGETS: [(&str, Target); 6] = [
    ("superblock", superblock),
    ("segment", segment),
    ("frame", frame),
    ("record", record),
    ("checkpoint", checkpoint),
    ("open", open),
];

const SALT: u64 = 0x5A17;
const POSITION: u64 = 8192 + 64;

fn aligned(data: &[u8]) -> AlignedBytes {
    let mut bytes = AlignedBytes::zeroed(data.len());
    bytes[..data.len()].copy_from_slice(data);
    bytes
}

/// Superblocks, unchanged and with a correct checksum.
pub fn superblock(data: &[u8]) {
    for slot in 0..2 {
        let _ = Superblock::decode(data, slot);
    }
    let mut image = data.to_vec();
    repair::superblocks(&mut image);
    if let Slot::Valid(superblock) = Superblock::decode(&image, 0) {
        assert_eq!(superblock.encode(0)[..], image[..256], "it is read as it was written");
    }
    let mut image = vec![0; SLOT_STRIDE as usize];
    image.extend_from_slice(data);
    repair::superblocks(&mut image);
    let _ = Superblock::decode(&image[SLOT_STRIDE as usize..], 1);
}

/// Segment headers.
pub fn segment(data: &[u8]) {
    let _ = SegmentHeader::decode(data, SALT, POSITION);
    let mut header = data.to_vec();
    header.resize(64, 0);
    repair::seal(&mut header, SALT, POSITION);
    if let Some(read) = SegmentHeader::decode(&header, SALT, POSITION) {
        assert_eq!(read.encode(SALT, POSITION)[..], header[..], "it is read as it was written");
    }
}

/// Frames and their records.
pub fn frame(data: &[u8]) {
    let mut bytes = aligned(data);
    let _ = FrameHeader::open(&bytes, SALT, POSITION);
    if data.len() >= frame::SIZE {
        bytes[8..12].copy_from_slice(&frame::MAGIC.to_le_bytes());
        let length = u32::from_le_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]) as usize;
        let length = if length <= bytes.len() { length } else { bytes.len() };
        if length >= frame::SIZE {
            repair::seal(&mut bytes[..length], SALT, POSITION);
        }
    }
    if let Some(header) = FrameHeader::open(&bytes, SALT, POSITION) {
        assert!(header.length as usize <= bytes.len());
        let mut at = frame::SIZE;
        while at < header.length as usize {
            let rest = &bytes[at..header.length as usize];
            match record::parts(rest) {
                Some((record, ..)) if record.fits(rest.len()) => at += record.size(),
                _ => break,
            }
        }
    }
}

/// One record.
pub fn record(data: &[u8]) {
    let mut bytes = aligned(data);
    if let Some((header, key, value)) = record::parts(&bytes) {
        assert!(key.len() + value.len() <= bytes.len());
        let _ = ExtentRef::decode(value);
        let _ = ChunksRef::decode(value).map(|chunks| chunks.key(chunks.count - 1));
        let _ = clear_of(header.keyspace(), key, value);
        let (size, fits) = (header.size(), header.fits(bytes.len()));
        assert!(!fits || size <= bytes.len());
        if fits {
            let _ = RecordHeader::verify(&bytes[..size], SALT, POSITION);
            RecordHeader::seal(&mut bytes[..size], SALT, POSITION);
            assert!(RecordHeader::verify(&bytes[..size], SALT, POSITION));
        }
    }
}

/// The head and the tables of a checkpoint.
pub fn checkpoint(data: &[u8]) {
    let mut bytes = aligned(data);
    let _ = checkpoint::verify(&bytes, SALT, POSITION);
    if bytes.len() < HEAD {
        return;
    }
    let Some(head) = CheckpointHead::from_bytes(&bytes[..HEAD]).ok().copied() else { return };
    let _ = head.block_bytes();
    let Some(length) = head.full_length().filter(|&length| length <= bytes.len()) else { return };
    checkpoint::seal(&mut bytes[..length], SALT, POSITION);
    assert!(checkpoint::verify(&bytes[..length], SALT, POSITION));
    let mut tables = &bytes[HEAD..length];
    let rows = take_rows::<KeyspaceRow>(&mut tables, head.keyspaces).map(Iterator::count);
    assert_eq!(rows, Some(head.keyspaces as usize));
    let rows = take_rows::<SegmentRow>(&mut tables, head.segments).map(Iterator::count);
    assert_eq!(rows, Some(head.segments as usize));
    let rows = take_rows::<ExtentRow>(&mut tables, head.extents).map(Iterator::count);
    assert_eq!(rows, Some(head.extents as usize));
}

fn superblock_at(image: &[u8], slot: usize) -> Option<Slot> {
    let at = slot * SLOT_STRIDE as usize;
    Some(Superblock::decode(image.get(at..(at + 256).min(image.len()))?, slot as u64))
}

/// The segment size according to the superblocks; buffers have this size.
fn segment_of(image: &[u8]) -> usize {
    let says = |slot: usize| match superblock_at(image, slot)? {
        Slot::Valid(superblock) => Some(1 << superblock.segment_log2.min(24)),
        _ => None,
    };
    (0..2).filter_map(says).max().unwrap_or(4096)
}

/// Bytes after the end of the file that a large value in it may claim because power loss removed
/// them: they are not given to anything else, and new data is written after them.
fn lost_bytes(image: &[u8]) -> usize {
    let segment = segment_of(image);
    let ids = (0..2).filter_map(|slot| match superblock_at(image, slot)? {
        Slot::Valid(superblock) => Some(superblock.file_id[0]),
        _ => None,
    });
    let ids: Vec<u64> = ids.collect();
    // A header counts if its checksum is correct for its position: at its first slot, or at its
    // end.
    let heads = (0..image.len()).step_by(64).filter_map(|at| {
        let head = SegmentHeader::unverified(&image[at..])?;
        let start = DATA_START + u64::from(head.slot) * segment as u64;
        let holds = |&id: &u64| SegmentHeader::decode(&image[at..], id, start).is_some();
        ids.iter().any(holds).then_some(head)
    });
    let ends = heads.map(|head| (head.slot as usize).saturating_add(head.span as usize));
    let claimed = ends.max().unwrap_or(0).saturating_mul(segment);
    claimed.saturating_sub(image.len()).min(MAX_VALUE + 2 * segment)
}

/// What the table of slots takes for each segment.
const SLOT_BYTES: usize = 256;

/// The maximum memory for using a file, apart from what is written to it.
fn memory_bound(image: &[u8]) -> usize {
    let segment = segment_of(image);
    // A slot takes 128 bytes. The list of slots doubles when it grows, and then both copies exist.
    let slots = 3 * 128 * lost_bytes(image) / segment;
    12 * segment + 8 * image.len() + slots + (256 << 10)
}

/// A whole file: it is opened, read, written, compacted and closed.
pub fn open(data: &[u8]) {
    let salt = data.iter().fold(7_u64, |sum, &byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    let modes = [OnDamage::Refuse, OnDamage::Prefix, OnDamage::Salvage];
    for (read_only, on_damage) in
        [(true, modes[0]), (false, modes[0]), (false, modes[1 + salt as usize % 2])]
    {
        let options = Options {
            segment_log2: 12,
            memory: if salt.is_multiple_of(3) { 64 << 20 } else { 0 },
            // The index is loaded at once, when it is needed, or only for lookups.
            load_at_once: if salt / 8 % 3 == 0 { 1 << 14 } else { 0 },
            index_memory: if salt / 8 % 3 == 1 { 1 << 20 } else { 0 },
            entropy: [salt, 2, 3, 4],
            read_only,
            on_damage,
            ..Options::default()
        };
        live(data, options);
    }
}

fn live(data: &[u8], options: Options) {
    let file = MemoryFile { bytes: data.to_vec() };
    // The file in memory and the table of slots double when they grow, and then both copies exist.
    let lost = lost_bytes(data);
    let grown = 3 * (lost + lost / segment_of(data) * SLOT_BYTES);
    let (opened, most) = most_held(|| Store::open_or_return(file, options));
    let salvages = options.on_damage != OnDamage::Refuse;
    assert!(
        most <= memory_bound(data) + if salvages { grown } else { 0 },
        "opening {} bytes took {most}",
        data.len()
    );
    let mut store = match opened {
        Ok(store) => store,
        Err((file, _)) => {
            return assert!(
                salvages || file.bytes == data,
                "a refused change leaves the value unchanged"
            );
        }
    };
    let ((), most) = most_held(|| read_some(&mut store));
    assert!(most <= memory_bound(data), "reading {} bytes took {most}", data.len());
    let segment = segment_of(data);
    if options.read_only {
        drop(store.close());
        return;
    }
    // Some written values are longer than a segment.
    let large = vec![7; segment.min(1 << 16) + 100];
    let (closed, most) = most_held(|| use_database(store, &large));
    let limit = 2 * memory_bound(data) + grown + 64 * large.len() + 24 * segment;
    assert!(most <= limit, "using {} bytes took {most} of {limit}", data.len());
    let Ok(file) = closed else { return };
    let written = file.bytes.len();
    let (opened, most) = most_held(|| Store::open(file, options));
    assert!(most <= 12 * segment + 8 * written + (256 << 10), "{most} for {written} bytes");
    if let Ok(mut store) = opened {
        read_some(&mut store);
    }
}

/// Reads some records of each kind.
fn read_some(store: &mut Store<MemoryFile>) {
    let _ = (store.stats(), store.memory_usage(), store.recovery());
    for keyspace in [0, 1, 2, 65_535] {
        let _ = store.count(keyspace);
        let Ok(keys) = store.keys(keyspace) else { continue };
        for key in keys.iter().take(40) {
            let _ = store.get(keyspace, key).map(|value| value.map(<[u8]>::len));
            let _ = store.version(keyspace, key);
        }
        let bounds = (Bound::Included(&b"a"[..]), Bound::Unbounded);
        let _ = store.range(keyspace, bounds, true, |key, _| key.len() > 1);
        let _ = store.has(keyspace, b"no such key");
        store.end_turn();
    }
    let mut cursor = VerifyCursor::default();
    // In steps, of which there are no more than the file has parts.
    for checked in 0.. {
        assert!(checked < 1 << 16, "verification does not terminate");
        match store.verify(cursor) {
            Ok(found) if found.next != VerifyCursor::default() => cursor = found.next,
            _ => break,
        }
    }
}

fn use_database(mut store: Store<MemoryFile>, large: &[u8]) -> Result<MemoryFile, Error> {
    let mut keys = store.keys(0).unwrap_or_default();
    keys.truncate(3);
    let _ = store.set(0, b"new", b"value");
    for key in &keys {
        let _ = store.update_if(
            0,
            key,
            |_| true,
            |bytes| {
                bytes.fill(1);
                Ok(None)
            },
        );
    }
    let _ = store.commit();
    let savepoint = store.savepoint();
    let _ = store.set(2, b"larger", &large[..large.len() / 8]);
    let _ = store.release(savepoint);
    if let Some(key) = keys.first() {
        let _ = store.delete(0, key);
    }
    // A chunked value, and one in an extent.
    let _ = store.set(0, b"large", large);
    let _ = store.set(0, b"apart", &large[..large.len().saturating_sub(300)]);
    let _ = store.flush();
    let _ = store.witness();
    for i in 0..60 {
        if !matches!(store.maintain(i == 0), Ok(true)) {
            break;
        }
    }
    // Clearing a keyspace leaves none of its keys, whatever the file is; then a key is set again.
    if store.empty(2).is_ok() {
        assert_eq!(store.count(2), 0, "nothing is left of it");
    }
    let _ = store.set(2, b"larger", b"again");
    let _ = store.clear(0, (Bound::Unbounded, Bound::Excluded(&b"b"[..])), true, 2);
    let _ = store.commit();
    for _ in 0..20 {
        if !matches!(store.maintain(false), Ok(true)) {
            break;
        }
    }
    // The file may have this key too, and there may be no space for another value.
    let before = store.get(0, b"new").map(|value| value.map(<[u8]>::to_vec));
    let _ = store.set(0, b"new", b"another value");
    read_some(&mut store);
    if let (Ok(before), Ok(value)) = (before, store.get(0, b"new")) {
        let kept = value == before.as_deref();
        assert!(
            kept || value == Some(b"another value"),
            "a key has the value it was set to, or the previous one"
        );
    }
    store.close().map_err(|(_, error)| error)
}
