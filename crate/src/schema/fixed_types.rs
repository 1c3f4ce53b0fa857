//! Types of fixed size that Rust's own types cannot represent: `Opt` and `FixedStr`.

use std::fmt;

use musli_zerocopy::ZeroCopy;

/// An optional value with a fixed layout, since the layout of `Option` is not specified. It is a
/// tag of 0 or 1, followed by the value at its alignment, or zeros if there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, ZeroCopy)]
#[repr(u8)]
#[zero_copy(bounds = {T: ZeroCopy})]
pub enum Opt<T> {
    /// None.
    #[default]
    None,
    /// A value.
    Some(T),
}

impl<T> Opt<T> {
    /// Converts to an `Option`.
    pub fn get(self) -> Option<T> {
        match self {
            Opt::None => None,
            Opt::Some(value) => Some(value),
        }
    }

    /// Converts to an `Option` of a reference.
    pub fn as_ref(&self) -> Option<&T> {
        match self {
            Opt::None => None,
            Opt::Some(value) => Some(value),
        }
    }
}

impl<T> From<Option<T>> for Opt<T> {
    fn from(option: Option<T>) -> Self {
        option.map_or(Opt::None, Opt::Some)
    }
}

impl<T> From<Opt<T>> for Option<T> {
    fn from(opt: Opt<T>) -> Self {
        opt.get()
    }
}

/// Text in `N` bytes of UTF-8, padded with zeros. It contains no NUL.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, ZeroCopy)]
#[repr(transparent)]
pub struct FixedStr<const N: usize> {
    bytes: [u8; N],
}

/// Why a text is not a valid [`FixedStr`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FixedStrError {
    /// It is longer than the field.
    TooLong,
    /// It contains a NUL, which would be indistinguishable from padding.
    Nul,
}

impl fmt::Display for FixedStrError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FixedStrError::TooLong => "the text is too long for its field",
            FixedStrError::Nul => "fixed-length text must not contain NUL",
        })
    }
}

impl std::error::Error for FixedStrError {}

impl<const N: usize> FixedStr<N> {
    /// Creates text for a field of `N` bytes.
    ///
    /// # Errors
    /// If it is too long or contains a NUL.
    pub const fn new(text: &str) -> Result<Self, FixedStrError> {
        let from = text.as_bytes();
        if from.len() > N {
            return Err(FixedStrError::TooLong);
        }
        let mut bytes = [0; N];
        let mut at = 0;
        while at < from.len() {
            if from[at] == 0 {
                return Err(FixedStrError::Nul);
            }
            bytes[at] = from[at];
            at += 1;
        }
        Ok(FixedStr { bytes })
    }

    /// The text; none if the bytes are not UTF-8 or have anything after the first zero, which no
    /// varve program writes.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        let end = self.bytes.iter().position(|&byte| byte == 0).unwrap_or(N);
        let (text, padding) = self.bytes.split_at(end);
        let is_padded = padding.iter().all(|&byte| byte == 0);
        std::str::from_utf8(text).ok().filter(|_| is_padded)
    }

    /// The bytes, including the padding.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; N] {
        &self.bytes
    }
}

impl<const N: usize> Default for FixedStr<N> {
    fn default() -> Self {
        FixedStr { bytes: [0; N] }
    }
}

impl<const N: usize> TryFrom<&str> for FixedStr<N> {
    type Error = FixedStrError;

    fn try_from(text: &str) -> Result<Self, FixedStrError> {
        FixedStr::new(text)
    }
}

impl<const N: usize> fmt::Debug for FixedStr<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.as_str() {
            Some(text) => fmt::Debug::fmt(text, f),
            None => fmt::Debug::fmt(&self.bytes, f),
        }
    }
}
