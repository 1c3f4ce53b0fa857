//! Records: the value of a key, its deletion, or a record of the engine itself.

use musli_zerocopy::ZeroCopy;

use super::checksum::{checksum, seed_at};
use super::system_records::{ChunksRef, ExtentRef, clear_of};
use super::{ALIGN, align_up};

/// Bytes of a record header.
pub const SIZE: usize = 40;

/// A reader that does not know a kind with this bit may skip it; without it, it must refuse.
pub const KIND_SKIPPABLE: u8 = 0x80;
/// A key and its value.
pub const KIND_SET: u8 = 1;
/// The deletion of a key.
pub const KIND_DELETE: u8 = 2;
/// A key whose value is in an extent; the value here is a [`super::system_records::ExtentRef`].
pub const KIND_EXTENT: u8 = 3;
/// A key whose value is chunked; the value here is a [`super::system_records::ChunksRef`].
pub const KIND_CHUNKED: u8 = 4;
/// The clearing of a keyspace: its records with smaller versions are dead, wherever they are. The
/// key is a [`super::system_records::clear_key`], the value a [`super::system_records::ClearRef`].
pub const KIND_CLEAR: u8 = 5;
/// Unused space that a rolled-back call left.
pub const KIND_VOID: u8 = 0x81;
/// The author of the records after it, with time and reason; see
/// [`super::system_records::Transaction`].
pub const KIND_TRANSACTION: u8 = 0x82;

/// Copies of a [`KIND_SET`] and a [`KIND_CHUNKED`] that were replaced since, and are kept for the past alone.
pub const KIND_PAST_SET: u8 = KIND_PAST | KIND_SET;
/// See [`KIND_PAST_SET`].
pub const KIND_PAST_CHUNKED: u8 = KIND_PAST | KIND_CHUNKED;
/// What makes a record one that only the past has.
pub const KIND_PAST: u8 = KIND_SKIPPABLE | 0x10;

/// The header of a record. The key follows, padded with zeros to 8; then `capacity` bytes, of
/// which the first `value_len` are the value.
#[derive(ZeroCopy, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct RecordHeader {
    /// Low half of the XXH3-64 of bytes 4 to the end, seeded with salt and position, so that a cold
    /// record can be verified on its own.
    pub check: u32,
    /// One of the kinds.
    pub kind: u8,
    /// Bytes of the record at `previous`, divided by 8, little-endian: replay does the space
    /// accounting without reading that record.
    pub replaced: [u8; 3],
    /// Bytes of the key.
    pub key_len: u16,
    /// The keyspace of the key.
    pub keyspace: u16,
    /// Bytes of the value.
    pub value_len: u32,
    /// Bytes reserved for the value; a multiple of 8.
    pub capacity: u32,
    /// Sequence of the oldest segment that may still contain an earlier version of the key.
    pub oldest: u32,
    /// Grows with every change of any record; survives relocation.
    pub version: u64,
    /// Seconds since 1970 after which the record is absent; 0 for never.
    pub expiry: u32,
    /// Position of the record that this one replaces, in units of 8 bytes from the first segment; 0
    /// for none. Replay updates the index with it and need not read the key of the old record.
    pub previous: u32,
}

const _: () = assert!(size_of::<RecordHeader>() == SIZE);

/// The size of a record as stored in the header of its successor.
#[must_use]
pub fn size_in_words(size: u32) -> [u8; 3] {
    let [a, b, c, _] = (size / ALIGN as u32).to_le_bytes();
    [a, b, c]
}

/// Bytes of a record with this key and capacity.
#[must_use]
pub const fn size_of_record(key_len: usize, capacity: usize) -> usize {
    SIZE + align_up(key_len) + capacity
}

impl RecordHeader {
    /// The header at the start of `bytes`, which must be 8-aligned.
    #[must_use]
    #[inline]
    pub fn at(bytes: &[u8]) -> Option<&RecordHeader> {
        RecordHeader::from_bytes(bytes.get(..SIZE)?).ok()
    }

    /// The same, for changes in place.
    #[inline]
    pub fn at_mut(bytes: &mut [u8]) -> Option<&mut RecordHeader> {
        RecordHeader::from_bytes_mut(bytes.get_mut(..SIZE)?).ok()
    }

    /// The keyspace of the key.
    #[must_use]
    #[inline]
    pub fn keyspace(&self) -> u32 {
        u32::from(self.keyspace)
    }

    /// Bytes of the record that this one replaces.
    #[must_use]
    pub fn replaced_size(&self) -> u32 {
        let [a, b, c] = self.replaced;
        u32::from_le_bytes([a, b, c, 0]) * ALIGN as u32
    }

    /// Whether a record of this kind can be the current one of a key.
    #[must_use]
    #[inline]
    pub fn can_be_current(&self) -> bool {
        matches!(self.kind, KIND_SET | KIND_EXTENT | KIND_CHUNKED | KIND_CLEAR)
    }

    /// Whether a record of this kind gives its key a value, now or in the past.
    #[must_use]
    #[inline]
    pub fn has_value(&self) -> bool {
        self.can_be_current() || matches!(self.kind, KIND_PAST_SET | KIND_PAST_CHUNKED)
    }

    /// Bytes of the whole record.
    #[must_use]
    #[inline]
    pub fn size(&self) -> usize {
        size_of_record(self.key_len as usize, self.capacity as usize)
    }

    /// Offset of the value from the start of the record.
    #[must_use]
    #[inline]
    pub fn value_offset(&self) -> usize {
        SIZE + align_up(self.key_len as usize)
    }

    /// Whether the lengths are consistent and the record fits in `available` bytes, which extend to the
    /// end of the frame.
    #[must_use]
    #[inline]
    pub fn fits(&self, available: usize) -> bool {
        let capacity = self.capacity as usize;
        capacity.is_multiple_of(ALIGN)
            && self.value_len <= self.capacity
            && SIZE
                .checked_add(align_up(self.key_len as usize))
                .and_then(|n| n.checked_add(capacity))
                .is_some_and(|n| n <= available)
    }

    /// Writes the checksum of the record in `bytes`, which are the whole record.
    pub fn seal(bytes: &mut [u8], salt: u64, position: u64) {
        let check = checksum(&bytes[4..], seed_at(salt, position));
        bytes[..4].copy_from_slice(&low_half(check).to_le_bytes());
    }

    /// Whether the record in `bytes`, which are the whole record, is intact.
    #[must_use]
    pub fn verify(bytes: &[u8], salt: u64, position: u64) -> bool {
        bytes.len() >= SIZE
            && bytes[..4] == low_half(checksum(&bytes[4..], seed_at(salt, position))).to_le_bytes()
    }
}

fn low_half(check: u64) -> u32 {
    (check & 0xFFFF_FFFF) as u32
}

/// Why a record is rejected although its checksum is correct, which does not prove that the writer
/// was honest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordError {
    /// It is not a valid record.
    Malformed,
    /// Its kind is unknown and must not be skipped.
    Unknown,
}

/// The record at the start of `bytes`, which end with its frame, and its key and value.
///
/// # Errors
/// If it must be rejected wherever it is found: in a frame that is replayed, or before a
/// checkpoint.
#[inline(never)]
pub fn validate(bytes: &[u8]) -> Result<(&RecordHeader, &[u8], &[u8]), RecordError> {
    let (header, key, value) = parts(bytes).ok_or(RecordError::Malformed)?;
    let skippable = header.kind & KIND_SKIPPABLE != 0;
    let sane = header.kind != 0 && header.version >> 56 == 0;
    if !header.fits(bytes.len()) || !sane || (key.is_empty() && !skippable) {
        return Err(RecordError::Malformed);
    }
    let names_value = match header.kind {
        KIND_EXTENT => ExtentRef::decode(value).is_some(),
        KIND_CHUNKED => ChunksRef::decode(value).is_some(),
        KIND_CLEAR => clear_of(header.keyspace(), key, value).is_some(),
        _ => true,
    };
    match header.kind {
        kind if kind > KIND_CLEAR && !skippable => Err(RecordError::Unknown),
        _ if !names_value => Err(RecordError::Malformed),
        _ => Ok((header, key, value)),
    }
}

/// Header, key and value of the record at the start of `bytes`.
#[must_use]
#[inline]
pub fn parts(bytes: &[u8]) -> Option<(&RecordHeader, &[u8], &[u8])> {
    let header = RecordHeader::at(bytes)?;
    let key = bytes.get(SIZE..SIZE + header.key_len as usize)?;
    let from = header.value_offset();
    let value = bytes.get(from..from + header.value_len as usize)?;
    Some((header, key, value))
}
