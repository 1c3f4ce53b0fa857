//! Records of versioned structs that another version wrote: read with what stands for the fields that
//! they do not have, and brought to this version when they are changed.

use musli_zerocopy::buf::Buf;

use super::descriptor::aligned;
use super::{Kind, Layout, Malformed, Record};

/// The bytes of the root of a record that an earlier version of its struct wrote; none if this one did,
/// or a later one.
///
/// # Errors
/// When it does not have a field that all versions have.
pub(crate) fn earlier<T: Record>(bytes: &[u8]) -> Result<Option<usize>, Malformed> {
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

/// What a versioned record says of the size of its root.
fn length_of(bytes: &[u8]) -> usize {
    bytes.first_chunk().map_or(0, |size| usize::from(u16::from_le_bytes(*size)))
}

fn is_versioned<T: Record>() -> bool {
    matches!(T::LAYOUT, Layout::Struct(shape) if shape.versioned)
}

/// The root of a record of an earlier version, with what stands for what it does not have. What it
/// refers to lies where it lay.
pub(crate) fn completed<T: Record>(bytes: &[u8], root_size: usize) -> Result<T, Malformed> {
    let whole = T::whole_fields(root_size).unwrap_or(0);
    let Some(there) = bytes.get(..whole) else {
        let reason = format!("size: {} bytes, but its root has {root_size}", bytes.len());
        return Err(Malformed::new("", reason));
    };
    let mut padded = vec![0; size_of::<T>()];
    padded[..whole].copy_from_slice(there);
    let mut root = load::<T>(&padded)?;
    root.complete(root_size);
    Ok(root)
}

/// Loads a root from wherever it lies.
fn load<T: Record>(bytes: &[u8]) -> Result<T, Malformed> {
    let mut copy = vec![0; size_of::<T>() + align_of::<T>()];
    let skip = copy.as_ptr().align_offset(align_of::<T>());
    copy[skip..][..size_of::<T>()].copy_from_slice(&bytes[..size_of::<T>()]);
    Ok(*Buf::new(&copy[skip..]).load_at::<T>(0)?)
}

/// What stands for each added field in records without them: a value that consists of it.
pub(crate) fn defaults<T: Record>() -> Vec<Vec<u8>> {
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
        // Records may end before it.
        if T::whole_fields(end - 1).is_some() {
            found.push(bytes[at..end].to_vec());
        }
    });
    found
}

/// A record of an earlier version as this one has it: its root is longer, so that all parts move.
/// None if it needs no change.
pub(crate) fn renewed<T: Record>(old: &[u8]) -> Result<Option<(Vec<u8>, T)>, Malformed> {
    let Some(root_size) = earlier::<T>(old)? else { return Ok(None) };
    let references = Kind::from(T::LAYOUT).references(old)?;
    let most = references.values().copied().max().unwrap_or(1);
    let by = aligned(size_of::<T>() - root_size, most);
    let mut bytes = vec![0; by];
    bytes.extend_from_slice(old);
    bytes[..by + root_size].fill(0);
    put_root(&mut bytes, &mut completed::<T>(old, root_size)?);
    for &at in references.keys() {
        // Those of the root stay with it.
        let at = if at < root_size { at } else { at + by };
        let Some(offset) = bytes.get_mut(at..).and_then(<[u8]>::first_chunk_mut) else { continue };
        *offset = u32::from_le_bytes(*offset).wrapping_add(by as u32).to_le_bytes();
    }
    // Parts may have lain over the root, or over one another: all is looked at again.
    for (at, align) in Kind::from(T::LAYOUT).references(&bytes)? {
        if (root_size..size_of::<T>()).contains(&at) {
            // Nothing was there before: an empty part behind the others.
            let end = aligned(bytes.len(), align);
            bytes.resize(end, 0);
            bytes[at..at + 4].copy_from_slice(&(end as u32).to_le_bytes());
        }
    }
    let root = load::<T>(&bytes)?;
    Ok(Some((bytes, root)))
}

/// Puts a root before what it refers to. A versioned one says its size, and leaves what a later
/// version has behind it.
///
/// # Panics
/// When the bytes are too short for it.
pub(crate) fn put_root<T: Record>(bytes: &mut [u8], root: &mut T) {
    let root = root.to_bytes_padded();
    let size = size_of::<T>();
    if !is_versioned::<T>() {
        bytes[..size].copy_from_slice(root);
    } else if length_of(bytes) > size {
        // Its next field may lie in what is padding here.
        let end = T::whole_fields(size).unwrap_or(size);
        bytes[2..end].copy_from_slice(&root[2..end]);
    } else {
        bytes[..size].copy_from_slice(root);
        bytes[..2].copy_from_slice(&(size as u16).to_le_bytes());
    }
}
