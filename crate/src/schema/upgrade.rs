//! Records of versioned structs that another version wrote: missing fields are read as their
//! defaults, and the record is converted to this version when it is changed.

use musli_zerocopy::buf::Buf;

use super::descriptor::aligned;
use super::{Kind, Layout, Malformed, Record};

/// The root size of a record that an earlier version of its struct wrote; none if this version or a
/// later one did.
///
/// # Errors
/// If it lacks a field that all versions have.
pub(crate) fn earlier_root_size<T: Record>(bytes: &[u8]) -> Result<Option<usize>, Malformed> {
    let root_size = length_of(bytes);
    if !is_versioned::<T>() || root_size >= size_of::<T>() {
        return Ok(None);
    }
    if T::whole_fields(root_size).is_none() {
        let reason = format!(
            "size: an earlier version of the struct wrote it, with a root of {root_size} bytes and not {}; \
             are all later fields marked #[varve(added)]?",
            size_of::<T>()
        );
        return Err(Malformed::new("", reason));
    }
    Ok(Some(root_size))
}

/// The root size that a versioned record states.
fn length_of(bytes: &[u8]) -> usize {
    bytes.first_chunk().map_or(0, |size| usize::from(u16::from_le_bytes(*size)))
}

fn is_versioned<T: Record>() -> bool {
    matches!(T::LAYOUT, Layout::Struct(shape) if shape.versioned)
}

/// The root of a record of an earlier version, with defaults for the missing fields. The positions
/// of its parts do not change.
pub(crate) fn root_with_defaults<T: Record>(
    bytes: &[u8],
    root_size: usize,
) -> Result<T, Malformed> {
    let whole = T::whole_fields(root_size).unwrap_or(0);
    let Some(old) = bytes.get(..whole) else {
        let reason = format!("size: {} bytes, but its root has {root_size}", bytes.len());
        return Err(Malformed::new("", reason));
    };
    let mut padded = vec![0; size_of::<T>()];
    padded[..whole].copy_from_slice(old);
    let mut root = load::<T>(&padded)?;
    root.complete(root_size);
    Ok(root)
}

/// Loads a root, which may be unaligned.
fn load<T: Record>(bytes: &[u8]) -> Result<T, Malformed> {
    let mut copy = vec![0; size_of::<T>() + align_of::<T>()];
    let skip = copy.as_ptr().align_offset(align_of::<T>());
    copy[skip..][..size_of::<T>()].copy_from_slice(&bytes[..size_of::<T>()]);
    Ok(*Buf::new(&copy[skip..]).load_at::<T>(0)?)
}

/// The default of each added field in records without it, as a value that consists of the default
/// alone.
pub(crate) fn defaults<T: Record>() -> Vec<Vec<u8>> {
    placed_defaults::<T>().into_iter().map(|(_, default)| default).collect()
}

/// The same, each with the offset of its field.
pub(crate) fn placed_defaults<T: Record>() -> Vec<(usize, Vec<u8>)> {
    let kind = Kind::from(T::LAYOUT);
    if !is_versioned::<T>() {
        return Vec::new();
    }
    let Ok(mut root) = load::<T>(&vec![0; size_of::<T>()]) else { return Vec::new() };
    root.complete(0);
    let bytes = root.to_bytes_padded();
    let mut found = Vec::new();
    kind.each_field(|_, field, at| {
        let end = at + field.size_and_align().0;
        // The record may end before this field.
        if T::whole_fields(end - 1).is_some() {
            found.push((at, bytes[at..end].to_vec()));
        }
    });
    found
}

/// Converts a record of an earlier version to this one: its root becomes longer, so all parts move.
/// None if it needs no change.
pub(crate) fn upgraded<T: Record>(old: &[u8]) -> Result<Option<(Vec<u8>, T)>, Malformed> {
    let Some(root_size) = earlier_root_size::<T>(old)? else { return Ok(None) };
    let references = Kind::from(T::LAYOUT).references(old)?;
    let most = references.values().copied().max().unwrap_or(1);
    let by = aligned(size_of::<T>() - root_size, most);
    let mut bytes = vec![0; by];
    bytes.extend_from_slice(old);
    bytes[..by + root_size].fill(0);
    put_root(&mut bytes, &mut root_with_defaults::<T>(old, root_size)?);
    for &at in references.keys() {
        // Parts that lie in the root do not move.
        let at = if at < root_size { at } else { at + by };
        let Some(offset) = bytes.get_mut(at..).and_then(<[u8]>::first_chunk_mut) else { continue };
        *offset = u32::from_le_bytes(*offset).wrapping_add(by as u32).to_le_bytes();
    }
    // Parts may have overlapped the root or each other, so everything is validated again.
    for (at, align) in Kind::from(T::LAYOUT).references(&bytes)? {
        if (root_size..size_of::<T>()).contains(&at) {
            // A field that did not exist refers to an empty part at the end.
            let end = aligned(bytes.len(), align);
            bytes.resize(end, 0);
            bytes[at..at + 4].copy_from_slice(&(end as u32).to_le_bytes());
        }
    }
    let root = load::<T>(&bytes)?;
    Ok(Some((bytes, root)))
}

/// Writes a root to the start of its record. A versioned one states its size, and fields that a
/// later version added after it are kept.
///
/// # Panics
/// If the bytes are too short for it.
pub(crate) fn put_root<T: Record>(bytes: &mut [u8], root: &mut T) {
    let root = root.to_bytes_padded();
    let size = size_of::<T>();
    if !is_versioned::<T>() {
        bytes[..size].copy_from_slice(root);
    } else if length_of(bytes) > size {
        // The next version may use what is padding here.
        let end = T::whole_fields(size).unwrap_or(size);
        bytes[2..end].copy_from_slice(&root[2..end]);
    } else {
        bytes[..size].copy_from_slice(root);
        bytes[..2].copy_from_slice(&(size as u16).to_le_bytes());
    }
}
