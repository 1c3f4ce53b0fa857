//! 8-aligned memory for segments.
#![allow(unsafe_code)]

use alloc::boxed::Box;

#[cfg(target_arch = "wasm32")]
use core::mem::MaybeUninit;

/// An 8-aligned buffer, so that headers and typed values can be read in place.
#[derive(Debug)]
pub struct AlignedBytes {
    words: Box<[u64]>,
}

impl AlignedBytes {
    /// `len` zero bytes, rounded up to a multiple of 8.
    #[must_use]
    #[inline(never)]
    pub fn zeroed(len: usize) -> Self {
        AlignedBytes { words: alloc::vec![0; len.div_ceil(8)].into_boxed_slice() }
    }

    /// The same, but zeroed only if that is free, for callers that write each byte before reading
    /// it: in wasm, zeroing takes as long as a checksum.
    #[must_use]
    pub fn uninitialized(len: usize) -> Self {
        #[cfg(target_arch = "wasm32")]
        // SAFETY: every bit pattern is a valid u64, all memory in wasm is initialized, and callers
        // write each byte before they read it.
        let words = unsafe {
            let mut words = alloc::vec::Vec::<MaybeUninit<u64>>::with_capacity(len.div_ceil(8));
            words.set_len(words.capacity());
            words.into_boxed_slice().assume_init()
        };
        #[cfg(not(target_arch = "wasm32"))]
        let words = alloc::vec![0; len.div_ceil(8)].into_boxed_slice();
        AlignedBytes { words }
    }

    /// The length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.words.len() * 8
    }

    /// Whether the length is zero.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }
}

/// The length of `bytes` without trailing zeros.
#[must_use]
pub fn used_length(bytes: &[u8]) -> usize {
    const CHUNK: usize = 64;
    let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
    let is_blank = |chunk: &&[u8]| chunk.chunks_exact(8).fold(0, |all, next| all | word(next)) == 0;
    let blank = bytes.rchunks_exact(CHUNK).take_while(is_blank).count() * CHUNK;
    let rest = &bytes[..bytes.len() - blank];
    rest.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1)
}

/// Copies like `copy_from_slice`. In wasm that is a call out of the module unless the length is
/// known, which costs more than copying a short key as two overlapping parts.
#[inline(always)]
pub fn copy_short(to: &mut [u8], from: &[u8]) {
    match from.len() {
        8..=16 => copy_ends::<8>(to, from),
        17..=32 => copy_ends::<16>(to, from),
        33..=64 => copy_ends::<32>(to, from),
        _ => to.copy_from_slice(from),
    }
}

/// The same for longer values.
#[inline(never)]
pub fn copy_value(to: &mut [u8], from: &[u8]) {
    match from.len() {
        65..=128 => copy_ends::<64>(to, from),
        _ => copy_short(to, from),
    }
}

/// Copies the first and the last `N` bytes, which overlap or touch.
#[inline(always)]
fn copy_ends<const N: usize>(to: &mut [u8], from: &[u8]) {
    if let (Some(to), Some(from)) = (to.first_chunk_mut::<N>(), from.first_chunk()) {
        *to = *from;
    }
    if let (Some(to), Some(from)) = (to.last_chunk_mut::<N>(), from.last_chunk()) {
        *to = *from;
    }
}

impl core::ops::Deref for AlignedBytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: every byte of a u64 is initialized and u8 has no alignment; the length is that of
        // the same memory in bytes, and the borrow is that of `self`.
        unsafe { core::slice::from_raw_parts(self.words.as_ptr().cast(), self.words.len() * 8) }
    }
}

impl core::ops::DerefMut for AlignedBytes {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; every bit pattern is a valid u64, and the borrow is exclusive.
        unsafe {
            core::slice::from_raw_parts_mut(self.words.as_mut_ptr().cast(), self.words.len() * 8)
        }
    }
}

/// Loads a vector of 16 bytes by one instruction; safe code compiles to two, which take twice the
/// time.
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
#[inline(always)]
#[must_use]
pub fn vector(bytes: &[u8; 16]) -> core::arch::wasm32::v128 {
    // SAFETY: there are 16 bytes, and they need not be aligned.
    unsafe { core::arch::wasm32::v128_load(bytes.as_ptr().cast()) }
}

#[cfg(test)]
mod tests {
    use super::used_length;

    #[test]
    fn last_nonzero_byte_is_found_at_any_position() {
        for length in [0, 1, 8, 63, 64, 65, 128, 200] {
            let mut bytes = vec![0; length];
            assert_eq!(used_length(&bytes), 0);
            for at in (0..length).rev() {
                bytes[at] = 1;
                assert_eq!(used_length(&bytes), at + 1);
                bytes[at] = 0;
            }
            bytes.fill(0x80);
            assert_eq!(used_length(&bytes), length);
        }
    }
}
