//! What the values of the engine's own records hold.

use musli_zerocopy::ZeroCopy;

use super::{KEYSPACE_ENGINE, LAST_KEYSPACE, MAX_VALUE};

/// Engine keyspace: a client's results, with its number as 8 bytes, big-endian, behind this.
pub const KEY_CLIENT: &[u8] = b"client/";
/// Engine keyspace: a collection's descriptor, with its name in UTF-8 behind this.
pub const KEY_COLLECTION: &[u8] = b"collection/";
/// Engine keyspace: an index's descriptor, with the keyspace of its collection as 4 bytes,
/// big-endian, and its name in UTF-8 behind this.
pub const KEY_INDEX: &[u8] = b"index/";

/// Engine keyspace: what is under way with a collection, with its name in UTF-8 behind this.
pub const KEY_MIGRATION: &[u8] = b"migration/";

/// Engine keyspace: an id up to which a collection gives none out again, as 8 bytes, little-endian; the
/// collection's name in UTF-8 stands behind this.
pub const KEY_IDS: &[u8] = b"ids/";

/// Engine keyspace: with the number of a segment's first frame as 8 bytes, big-endian, behind this,
/// says that the frames before it, from the number in its value on (8 bytes, little-endian), were
/// relocated or superseded, and their segments given back.
pub const KEY_GAP: &[u8] = b"gap/";

/// Engine keyspace: a piece of a value, with the number of the value as 8 bytes and that of the piece as
/// 2, both big-endian, behind this.
pub const KEY_PIECE: &[u8] = b"piece/";
/// Bytes of such a key.
pub const PIECE_KEY: usize = 16;

/// Engine keyspace: a keyspace was emptied, whose number follows as 4 bytes, big-endian. The record is a
/// [`KIND_CLEAR`](super::record::KIND_CLEAR), and only the last one of each keyspace counts.
pub const KEY_CLEAR: &[u8] = b"clear/";
/// Bytes of such a key.
pub const CLEAR_KEY: usize = 10;

/// Flag of a [`CollectionDescriptor`]: it describes an index.
pub const DESCRIPTOR_INDEX: u32 = 1;
/// Flag of a [`CollectionDescriptor`]: it was dropped; its keyspace is never given out again.
pub const DESCRIPTOR_DROPPED: u32 = 2;
/// Flag of a [`CollectionDescriptor`]: it describes an index that has not all entries yet. Whoever
/// writes keeps it, and nobody reads it.
pub const DESCRIPTOR_BUILDING: u32 = 4;

/// More pieces than these no value has.
pub const MAX_PIECES: u32 = u16::MAX as u32;

/// The value of a [`KIND_EXTENT`](super::record::KIND_EXTENT) record: where the bytes are.
#[derive(ZeroCopy, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ExtentRef {
    /// First slot of the extent.
    pub slot: u32,
    /// How many slots it covers.
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

/// The value of a [`KIND_PIECES`](super::record::KIND_PIECES) record: which records hold the bytes, one
/// behind the other.
#[derive(ZeroCopy, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct PiecesRef {
    /// Number of the value in the keys of its pieces: a version that nothing else has.
    pub id: u64,
    /// Bytes of the value.
    pub length: u64,
    /// How many pieces there are.
    pub count: u32,
    /// Zero.
    pub reserved: u32,
}

/// The value of a [`KIND_CLEAR`](super::record::KIND_CLEAR) record.
#[derive(ZeroCopy, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ClearRef {
    /// Sequence of the segment in which the record was written first: no later segment holds a record that it
    /// ended.
    pub newest: u32,
    /// Zero.
    pub reserved: u32,
}

/// The start of a [`KIND_TRANSACTION`](super::record::KIND_TRANSACTION) record's value; the
/// user's note, UTF-8, fills the rest.
#[derive(ZeroCopy, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Transaction {
    /// Number of the transaction, growing.
    pub number: u64,
    /// Milliseconds since 1970.
    pub time_ms: u64,
    /// The client that asked for it, 0 for none.
    pub client: u64,
    /// That client's number for the request.
    pub request: u64,
}

/// The start of a client's result record (engine keyspace, key by [`KEY_CLIENT`]); `count` entries
/// of [`ClientResult`] with their bytes follow, by growing request number.
#[derive(ZeroCopy, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ClientResults {
    /// Requests up to here were acknowledged by the client and are forgotten.
    pub acknowledged: u64,
    /// Milliseconds since 1970 after which the client has expired.
    pub lease_ms: u64,
    /// How many results follow.
    pub count: u32,
    /// Zero.
    pub reserved: u32,
}

/// One kept answer; `length` bytes follow, padded with zeros to 8.
#[derive(ZeroCopy, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ClientResult {
    /// The request that it answers.
    pub request: u64,
    /// 0 for success, else an error code.
    pub status: u32,
    /// Bytes of the answer.
    pub length: u32,
}

/// The start of the descriptor of a collection or an index (engine keyspace, key by
/// [`KEY_COLLECTION`] or [`KEY_INDEX`]); the schema as JSON, UTF-8, follows.
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

/// The value of an index entry: its key is the encoded index tuple and then the record's key.
#[derive(ZeroCopy, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct IndexEntry {
    /// Where the record's key starts within the entry's key.
    pub key_offset: u32,
    /// Zero.
    pub reserved: u32,
}

const _: () = assert!(size_of::<ExtentRef>() == 32);
const _: () = assert!(size_of::<PiecesRef>() == 24);
const _: () = assert!(size_of::<ClearRef>() == 8);
const _: () = assert!(size_of::<Transaction>() == 32);
const _: () = assert!(size_of::<ClientResults>() == 24);
const _: () = assert!(size_of::<ClientResult>() == 16);
const _: () = assert!(size_of::<CollectionDescriptor>() == 24);
const _: () = assert!(size_of::<IndexEntry>() == 8);

impl ExtentRef {
    /// The descriptor in `value`, at any address, if it can be one.
    #[must_use]
    pub fn decode(value: &[u8]) -> Option<ExtentRef> {
        let mut aligned = Aligned([0; 32]);
        aligned.0.copy_from_slice(value.get(..32)?);
        let extent = ExtentRef::from_bytes(&aligned.0).ok().copied();
        extent.filter(|extent| extent.length <= MAX_VALUE as u64)
    }
}

impl PiecesRef {
    /// The descriptor in `value`, at any address, if it can be one.
    #[must_use]
    #[inline(never)]
    pub fn decode(value: &[u8]) -> Option<PiecesRef> {
        let mut aligned = Aligned([0; 32]);
        aligned.0[..24].copy_from_slice(value.get(..24)?);
        let pieces = PiecesRef::from_bytes(&aligned.0[..24]).ok().copied();
        pieces.filter(|pieces| {
            pieces.length <= MAX_VALUE as u64 && (1..=MAX_PIECES).contains(&pieces.count)
        })
    }

    /// The key of one of the pieces.
    #[must_use]
    #[inline(never)]
    pub fn key(&self, piece: u32) -> [u8; PIECE_KEY] {
        let mut key = [0; PIECE_KEY];
        key[..6].copy_from_slice(KEY_PIECE);
        key[6..14].copy_from_slice(&self.id.to_be_bytes());
        key[14..].copy_from_slice(&(piece as u16).to_be_bytes());
        key
    }
}

/// The key of the record that says when a keyspace was emptied.
#[must_use]
pub fn clear_key(keyspace: u32) -> [u8; CLEAR_KEY] {
    let mut key = [0; CLEAR_KEY];
    key[..6].copy_from_slice(KEY_CLEAR);
    key[6..].copy_from_slice(&keyspace.to_be_bytes());
    key
}

/// The keyspace that a [`KIND_CLEAR`](super::record::KIND_CLEAR) record empties, and what its value says; none
/// if it is no such record. The engine's own keyspace is never emptied.
#[must_use]
pub fn clear_of(keyspace: u32, key: &[u8], value: &[u8]) -> Option<(u32, ClearRef)> {
    let cleared = u32::from_be_bytes(key.strip_prefix(KEY_CLEAR)?.try_into().ok()?);
    let newest = u32::from_le_bytes(value.get(..8)?[..4].try_into().ok()?);
    let is_one = keyspace == KEYSPACE_ENGINE && cleared != KEYSPACE_ENGINE;
    (is_one && cleared <= LAST_KEYSPACE).then_some((cleared, ClearRef { newest, reserved: 0 }))
}

#[repr(C, align(8))]
struct Aligned([u8; 32]);
