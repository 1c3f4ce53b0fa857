//! The values of the engine's own records.

use alloc::vec::Vec;
use musli_zerocopy::ZeroCopy;

use super::{KEYSPACE_ENGINE, LAST_KEYSPACE, MAX_KEY, MAX_VALUE};

/// Engine keyspace: the results of a client. The client's number follows as 8 bytes, big-endian.
pub const KEY_CLIENT: &[u8] = b"client/";
/// Engine keyspace: the descriptor of a collection. Its name follows in UTF-8.
pub const KEY_COLLECTION: &[u8] = b"collection/";
/// Engine keyspace: the descriptor of an index. The keyspace of its collection follows as 4 bytes,
/// big-endian, and then the name of the index in UTF-8.
pub const KEY_INDEX: &[u8] = b"index/";

/// Engine keyspace: the state of a migration of a collection. The collection's name follows in
/// UTF-8.
pub const KEY_MIGRATION: &[u8] = b"migration/";

/// Engine keyspace: the largest id that a collection must not assign again, as 8 bytes,
/// little-endian. The collection's name follows in UTF-8.
pub const KEY_IDS: &[u8] = b"ids/";

/// Engine keyspace: a gap record. The number of the first frame of a segment follows as 8 bytes,
/// big-endian. The frames before it, from the number in the value on (8 bytes, little-endian), were
/// relocated or superseded, and their segments were freed.
pub const KEY_GAP: &[u8] = b"gap/";

/// Engine keyspace: a [`History`].
pub const KEY_HISTORY: &[u8] = b"history";
/// Engine keyspace: the marks that keep compaction away from what is newer, each a [`Mark`], its name, and zeros up to
/// a multiple of 8.
pub const KEY_MARKS: &[u8] = b"marks";
/// Engine keyspace, in a file that keeps its history: 8 bytes, little-endian, the version up to which the history was
/// packed. Earlier commits cannot be shown any more.
pub const KEY_PACKED: &[u8] = b"packed";
/// Engine keyspace: the keyspaces of indexes, 4 bytes each, little-endian.
pub const KEY_INDEX_KEYSPACES: &[u8] = b"index-keyspaces";

/// Engine keyspace: a chunk of a value. The number of the value follows as 8 bytes and that of the
/// chunk as 2, both big-endian.
pub const KEY_CHUNK: &[u8] = b"piece/";
/// Bytes of the key of a chunk.
pub const CHUNK_KEY: usize = 16;

/// Engine keyspace: the clearing of a keyspace, whose number follows as 4 bytes, big-endian. The
/// record is a [`KIND_CLEAR`](super::record::KIND_CLEAR), and only the last one of each keyspace
/// counts.
pub const KEY_CLEAR: &[u8] = b"clear/";
/// Bytes of the key of a clear record.
pub const CLEAR_KEY: usize = 10;

/// Engine keyspace: the time from which expiry goes on, in seconds since 1970, as 8 bytes, little-endian. It
/// exists if the file has, or had, records that expire.
pub const KEY_EXPIRY: &[u8] = b"expiry";
/// Engine keyspace: the entry of a record that expires. The record's keyspace follows as 2 bytes and its expiry
/// as 4, both big-endian, and then its key.
pub const KEY_EXPIRES: &[u8] = b"expiry/";

/// The longest key of a record that expires.
#[must_use]
pub const fn max_expiring_key() -> usize {
    MAX_KEY - KEY_EXPIRES.len() - 6
}

/// The key of the entry of a record that expires.
#[must_use]
pub fn expiry_entry(keyspace: u32, expiry: u32, key: &[u8]) -> Vec<u8> {
    let mut entry = Vec::with_capacity(KEY_EXPIRES.len() + 6 + key.len());
    entry.extend_from_slice(&expiry_start(keyspace));
    entry.extend_from_slice(&expiry.to_be_bytes());
    entry.extend_from_slice(key);
    entry
}

/// The beginning of the keys of a keyspace's entries.
#[must_use]
pub fn expiry_start(keyspace: u32) -> [u8; 9] {
    let mut start = [0; 9];
    start[..7].copy_from_slice(KEY_EXPIRES);
    start[7..].copy_from_slice(&(keyspace as u16).to_be_bytes());
    start
}

/// A key after those of all entries.
#[must_use]
pub const fn expiry_end() -> &'static [u8] {
    b"expiry0"
}

/// The keyspace, the expiry and the key of the record that an entry is of.
#[must_use]
pub fn expiry_of(entry: &[u8]) -> Option<(u32, u32, &[u8])> {
    let (&[high, low, a, b, c, d], key) = entry.strip_prefix(KEY_EXPIRES)?.split_first_chunk()?;
    let keyspace = u16::from_be_bytes([high, low]);
    Some((keyspace.into(), u32::from_be_bytes([a, b, c, d]), key)).filter(|_| !key.is_empty())
}

/// Flag of a [`CollectionDescriptor`]: it describes an index.
pub const DESCRIPTOR_INDEX: u32 = 1;
/// Flag of a [`CollectionDescriptor`]: it was dropped; its keyspace is never assigned again.
pub const DESCRIPTOR_DROPPED: u32 = 2;
/// Flag of a [`CollectionDescriptor`]: it describes an index that does not have all entries yet.
/// Writers maintain it, and readers do not use it.
pub const DESCRIPTOR_BUILDING: u32 = 4;

/// The maximum number of chunks of a value.
pub const MAX_CHUNKS: u32 = u16::MAX as u32;

/// The value of a [`KIND_EXTENT`](super::record::KIND_EXTENT) record: the location of the bytes.
#[derive(ZeroCopy, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ExtentRef {
    /// First slot of the extent.
    pub slot: u32,
    /// The number of slots that it covers.
    pub span: u32,
    /// Bytes of the value.
    pub length: u64,
    /// XXH3-64 of the value, seeded with the extent's salt and the value's position.
    pub check: u64,
    /// Sequence of the extent's segment header.
    pub sequence: u32,
    /// Zero.
    pub reserved: u32,
}

/// The value of a [`KIND_CHUNKED`](super::record::KIND_CHUNKED) record: it identifies the records
/// that contain the chunks of the value in order.
#[derive(ZeroCopy, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ChunksRef {
    /// Number of the value in the keys of its chunks: a version that is not used otherwise.
    pub id: u64,
    /// Bytes of the value.
    pub length: u64,
    /// The number of chunks.
    pub count: u32,
    /// Zero.
    pub reserved: u32,
}

/// What compaction has forgotten.
#[derive(ZeroCopy, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct History {
    /// No deletion or clear with a version above this was dropped, unless its key or keyspace was deleted again.
    pub forgotten: u64,
    /// Frames from this one on say whether maintenance wrote them.
    pub marked_from: u64,
}

/// The head of a mark.
#[derive(ZeroCopy, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Mark {
    /// What has a greater version is kept.
    pub cursor: u64,
    /// The number of a frame. No earlier one has anything newer.
    pub frame: u64,
    /// Bytes of the name.
    pub name_len: u32,
    /// Zero.
    pub reserved: u32,
}

/// The value of a [`KIND_CLEAR`](super::record::KIND_CLEAR) record.
#[derive(ZeroCopy, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ClearRef {
    /// Sequence of the segment in which the record was first written: no later segment contains a
    /// record that it cleared.
    pub newest: u32,
    /// Zero.
    pub reserved: u32,
}

/// The start of the value of a [`KIND_TRANSACTION`](super::record::KIND_TRANSACTION) record; the
/// note follows in UTF-8.
#[derive(ZeroCopy, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Transaction {
    /// Number of the transaction, increasing.
    pub number: u64,
    /// Milliseconds since 1970.
    pub time_ms: u64,
    /// The client that requested it; 0 for none.
    pub client: u64,
    /// The client's number of the request.
    pub request: u64,
}

/// The start of a client's result record (engine keyspace, key by [`KEY_CLIENT`]). `count` entries
/// of [`ClientResult`] with their bytes follow, by increasing request number.
#[derive(ZeroCopy, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ClientResults {
    /// Requests up to this number were acknowledged by the client, and their results removed.
    pub acknowledged: u64,
    /// Milliseconds since 1970 after which the client has expired.
    pub lease_ms: u64,
    /// The number of results that follow.
    pub count: u32,
    /// Zero.
    pub reserved: u32,
}

/// A stored response; `length` bytes follow, padded with zeros to 8.
#[derive(ZeroCopy, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ClientResult {
    /// The request that it responds to.
    pub request: u64,
    /// 0 for success, else an error code.
    pub status: u32,
    /// Bytes of the response.
    pub length: u32,
}

/// The start of the descriptor of a collection or an index (engine keyspace, key by
/// [`KEY_COLLECTION`] or [`KEY_INDEX`]). The schema follows as JSON in UTF-8.
#[derive(ZeroCopy, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct CollectionDescriptor {
    /// FNV-1a-64 of the schema's canonical layout string.
    pub fingerprint: u64,
    /// The keyspace of its records.
    pub keyspace: u32,
    /// [`DESCRIPTOR_INDEX`], [`DESCRIPTOR_DROPPED`].
    pub flags: u32,
    /// Keyspace of the indexed collection, 0 for a collection.
    pub parent: u32,
    /// Bytes of JSON that follow.
    pub json_len: u32,
}

/// The value of an index entry. The key of the entry is the encoded index tuple followed by the
/// record's key.
#[derive(ZeroCopy, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct IndexEntry {
    /// Offset of the record's key in the entry's key.
    pub key_offset: u32,
    /// Zero.
    pub reserved: u32,
}

const _: () = assert!(size_of::<ExtentRef>() == 32);
const _: () = assert!(size_of::<ChunksRef>() == 24);
const _: () = assert!(size_of::<ClearRef>() == 8);
const _: () = assert!(size_of::<Transaction>() == 32);
const _: () = assert!(size_of::<ClientResults>() == 24);
const _: () = assert!(size_of::<ClientResult>() == 16);
const _: () = assert!(size_of::<CollectionDescriptor>() == 24);
const _: () = assert!(size_of::<IndexEntry>() == 8);

impl ExtentRef {
    /// The descriptor in `value`, which may be unaligned, if it is valid.
    #[must_use]
    pub fn decode(value: &[u8]) -> Option<ExtentRef> {
        let mut aligned = Aligned([0; 32]);
        aligned.0.copy_from_slice(value.get(..32)?);
        let extent = ExtentRef::from_bytes(&aligned.0).ok().copied();
        extent.filter(|extent| extent.length <= MAX_VALUE as u64)
    }
}

impl ChunksRef {
    /// The descriptor in `value`, which may be unaligned, if it is valid.
    #[must_use]
    #[inline(never)]
    pub fn decode(value: &[u8]) -> Option<ChunksRef> {
        let mut aligned = Aligned([0; 32]);
        aligned.0[..24].copy_from_slice(value.get(..24)?);
        let chunks = ChunksRef::from_bytes(&aligned.0[..24]).ok().copied();
        chunks.filter(|chunks| {
            chunks.length <= MAX_VALUE as u64 && (1..=MAX_CHUNKS).contains(&chunks.count)
        })
    }

    /// The key of one of the chunks.
    #[must_use]
    #[inline(never)]
    pub fn key(&self, chunk: u32) -> [u8; CHUNK_KEY] {
        let mut key = [0; CHUNK_KEY];
        key[..6].copy_from_slice(KEY_CHUNK);
        key[6..14].copy_from_slice(&self.id.to_be_bytes());
        key[14..].copy_from_slice(&(chunk as u16).to_be_bytes());
        key
    }
}

/// The key of the record that cleared a keyspace.
#[must_use]
pub fn clear_key(keyspace: u32) -> [u8; CLEAR_KEY] {
    let mut key = [0; CLEAR_KEY];
    key[..6].copy_from_slice(KEY_CLEAR);
    key[6..].copy_from_slice(&keyspace.to_be_bytes());
    key
}

/// The keyspace that a [`KIND_CLEAR`](super::record::KIND_CLEAR) record clears, and its value; none
/// if it is not a valid one. The engine's own keyspace is never cleared.
#[must_use]
pub fn clear_of(keyspace: u32, key: &[u8], value: &[u8]) -> Option<(u32, ClearRef)> {
    let cleared = u32::from_be_bytes(key.strip_prefix(KEY_CLEAR)?.try_into().ok()?);
    let newest = u32::from_le_bytes(value.get(..8)?[..4].try_into().ok()?);
    let is_one = keyspace == KEYSPACE_ENGINE && cleared != KEYSPACE_ENGINE;
    (is_one && cleared <= LAST_KEYSPACE).then_some((cleared, ClearRef { newest, reserved: 0 }))
}

#[repr(C, align(8))]
struct Aligned([u8; 32]);
