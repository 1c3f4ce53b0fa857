//! Corrects every checksum of a file, whatever it contains. Otherwise a fuzzer would hardly get
//! past the first of them, while the authors of malicious files can compute checksums too.

use varve::engine::format::checkpoint::{self, BLOCK, BLOCK_ENTRIES, HEAD};
use varve::engine::format::checksum::{checksum, seed_at};
use varve::engine::format::key_run::block::HEADER;
use varve::engine::format::record::{self, KIND_EXTENT, RecordHeader};
use varve::engine::format::superblock::{self, SLOT_STRIDE};
use varve::engine::format::system_records::ExtentRef;
use varve::engine::format::{DATA_START, frame, segment};

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
}

/// Writes the checksum of the other bytes to the first eight.
pub fn seal(bytes: &mut [u8], salt: u64, position: u64) {
    if bytes.len() > 8 {
        let check = checksum(&bytes[8..], seed_at(salt, position)).to_le_bytes();
        bytes[..8].copy_from_slice(&check);
    }
}

/// Corrects both superblocks if they have the magic.
pub fn superblocks(image: &mut [u8]) {
    for slot in 0..2 {
        let at = slot * SLOT_STRIDE as usize;
        let Some(bytes) = image.get_mut(at..at + superblock::SIZE) else { continue };
        if bytes[..8] == superblock::MAGIC {
            let seed = seed_at(u64::from_le_bytes(superblock::MAGIC), at as u64);
            let check = checksum(&bytes[16..], seed).to_le_bytes();
            bytes[8..16].copy_from_slice(&check);
        }
    }
}

/// Segment size and identity, from the superblock with the larger generation.
fn current_superblock(image: &[u8]) -> Option<(u8, u64)> {
    let slots = [0, SLOT_STRIDE as usize].into_iter();
    let valid = slots.filter(|&at| image.get(at..at + 8) == Some(&superblock::MAGIC[..]));
    let newest = valid.max_by_key(|&at| u64_at(image, at + 72))?;
    let log2 = *image.get(newest + 20)?;
    (12..=24).contains(&log2).then(|| (log2, u64_at(image, newest + 40)))
}

/// Corrects all checksums of a file.
pub fn all(image: &mut [u8]) {
    superblocks(image);
    let Some((log2, file_id)) = current_superblock(image) else { return };
    let size = 1_usize << log2;
    let mut extents = Vec::new();
    for start in (DATA_START as usize..image.len()).step_by(size) {
        let end = image.len().min(start + size);
        if u32_at(image, start + 8) != segment::MAGIC || end < start + segment::SIZE {
            continue;
        }
        let salt = u64_at(image, start + 24);
        match image[start + 12] {
            segment::KIND_CHECKPOINT => {
                let span = (u32_at(image, start + 56) as usize).saturating_mul(size);
                let end = image.len().min(start.saturating_add(span));
                checkpoint(&mut image[..end], start + segment::SIZE, salt);
            }
            segment::KIND_RUN => run(&mut image[..end], start + segment::SIZE, salt),
            segment::KIND_EXTENT => {
                let at = start + segment::SIZE;
                let length = u64_at(image, start + 40).min(image.len() as u64) as usize;
                if let Some(value) = image.get(at..at.saturating_add(length)) {
                    let check = checksum(value, seed_at(salt, at as u64)).to_le_bytes();
                    image[start + 48..start + 56].copy_from_slice(&check);
                }
            }
            _ => extents.extend(named_extents(image, start + segment::SIZE, end)),
        }
        seal(&mut image[start..start + segment::SIZE], file_id, start as u64);
        let span = (u32_at(image, start + 56) as usize).max(1);
        let trailer = start.saturating_add(span.saturating_mul(size)) - segment::SIZE;
        if trailer.saturating_add(segment::SIZE) <= image.len() && span < 1 << 16 {
            image.copy_within(start..start + segment::SIZE, trailer);
        }
    }
    // Descriptors repeat the headers of extents; frames can only be sealed after they are
    // corrected.
    for (at, extent) in extents {
        let start = DATA_START as usize + (extent.slot as usize).saturating_mul(size);
        if start.saturating_add(segment::SIZE) <= image.len() {
            image.copy_within(start + 48..start + 56, at + 16);
        }
    }
    for start in (DATA_START as usize..image.len()).step_by(size) {
        let end = image.len().min(start + size);
        let is_whole = u32_at(image, start + 8) == segment::MAGIC && end >= start + segment::SIZE;
        if is_whole && image[start + 12] == segment::KIND_LOG {
            let salt = u64_at(image, start + 24);
            frames(&mut image[..end], start + segment::SIZE, salt);
        }
    }
}

/// The offsets and lengths of the frames of a segment, as far as their lengths are plausible.
fn frames_of(image: &[u8], from: usize, end: usize) -> Vec<(usize, usize)> {
    let (mut at, mut found) = (from, Vec::new());
    while at + frame::SIZE <= end {
        let length = u32_at(image, at + 12) as usize;
        let is_one = u32_at(image, at + 8) == frame::MAGIC;
        if !is_one || length < frame::SIZE || !length.is_multiple_of(8) || at + length > end {
            at += 8;
            continue;
        }
        found.push((at, length));
        at += length;
    }
    found
}

fn key_length(image: &[u8], record: usize) -> usize {
    (u32_at(image, record + 8) & 0xFFFF) as usize
}

/// The offsets and lengths of the records of a frame.
fn records_of(image: &[u8], at: usize, length: usize) -> Vec<(usize, usize)> {
    let (mut offset, mut found) = (frame::SIZE, Vec::new());
    while offset + record::SIZE <= length {
        let key = key_length(image, at + offset);
        let capacity = u32_at(image, at + offset + 16) as usize;
        let size = record::size_of_record(key, capacity.min(1 << 25));
        if !size.is_multiple_of(8) || offset + size > length {
            break;
        }
        found.push((at + offset, size));
        offset += size;
    }
    found
}

fn named_extents(image: &[u8], from: usize, end: usize) -> Vec<(usize, ExtentRef)> {
    let frames = frames_of(image, from, end).into_iter();
    let records = frames.flat_map(|(at, length)| records_of(image, at, length));
    let extents = records.filter(|&(at, _)| image[at + 4] == KIND_EXTENT);
    extents
        .filter_map(|(at, size)| {
            let value = at + record::size_of_record(key_length(image, at), 0);
            let bytes = image.get(value..value + 32).filter(|_| value + 32 <= at + size)?;
            Some((value, ExtentRef::decode(bytes)?))
        })
        .collect()
}

/// Seals records and frames from an offset on.
pub fn frames(image: &mut [u8], from: usize, salt: u64) {
    for (at, length) in frames_of(image, from, image.len()) {
        for (at, size) in records_of(image, at, length) {
            RecordHeader::seal(&mut image[at..at + size], salt, at as u64);
        }
        seal(&mut image[at..at + length], salt, at as u64);
    }
}

/// Seals a checkpoint whose head is at an offset.
pub fn checkpoint(image: &mut [u8], at: usize, salt: u64) {
    if at + HEAD > image.len() || u32_at(image, at + 8) != checkpoint::MAGIC {
        return;
    }
    let length = u32_at(image, at + 12) as usize;
    let mut left = u64_at(image, at + 40).min(1 << 20) as usize;
    let mut start = at.saturating_add(length);
    if length < HEAD || start > image.len() {
        return;
    }
    seal(&mut image[at..start], salt, at as u64);
    while left > 0 && start < image.len() {
        let count = left.min(BLOCK_ENTRIES);
        let end = image.len().min(start + (8 * (count + 1)).min(BLOCK));
        seal(&mut image[start..end], salt, start as u64);
        (start, left) = (end, left - count);
    }
}

/// Corrects the checksums of the blocks in a segment of a run, as far as their lengths are plausible.
pub fn run(image: &mut [u8], mut at: usize, salt: u64) {
    while at + HEADER <= image.len() {
        let length = u32_at(image, at + 8) as usize;
        if length < HEADER || !length.is_multiple_of(8) || at + length > image.len() {
            return;
        }
        seal(&mut image[at..at + length], salt, at as u64);
        at += length;
    }
}
