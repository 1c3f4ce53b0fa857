//! Memory for segments: 8-aligned bytes.
#![allow(unsafe_code)]

/// A zeroed, 8-aligned run of bytes, so that headers and typed values can be read where they lie.
#[derive(Debug)]
pub struct AlignedBytes {
    words: Box<[u64]>,
}

impl AlignedBytes {
    /// `len` zero bytes, rounded up to a multiple of 8.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        AlignedBytes { words: vec![0; len.div_ceil(8)].into_boxed_slice() }
    }

    /// How many bytes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.words.len() * 8
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }
}

impl std::ops::Deref for AlignedBytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: every byte of a u64 is initialised and u8 has no alignment; the length is the
        // same memory counted in bytes, and the borrow is that of `self`.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr().cast(), self.words.len() * 8) }
    }
}

impl std::ops::DerefMut for AlignedBytes {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; every bit pattern is a u64, and the borrow is exclusive.
        unsafe {
            std::slice::from_raw_parts_mut(self.words.as_mut_ptr().cast(), self.words.len() * 8)
        }
    }
}
