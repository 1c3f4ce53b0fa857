//! Bytes that a program keeps: keys and values apart from the store that they were read from.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::{Bound, Deref, RangeBounds};

use byteview::ByteView;

use crate::schema::Malformed;
use crate::schema::key::{Key, KeyKind};

/// A key or a value that belongs to the program, and stays when the store goes on.
///
/// It dereferences to its bytes. Up to 20 of them (16 in a browser) are in it, without an allocation; more are allocated
/// once, and shared by its clones and its [parts](Slice::part). It may be sent to other threads. It is sorted, compared and
/// hashed as its bytes are, so that a map with such keys is searched by `&[u8]`.
///
/// [`Entries`](super::Entries) and [`Keys`](super::Keys) give these, and [`Store::get_slice`](super::Store::get_slice).
/// Borrowed bytes, as of [`Store::get`](super::Store::get), need no copy, and are the quicker choice where they suffice.
///
/// ```
/// use std::collections::BTreeMap;
/// use varve::Slice;
///
/// let key = Slice::from("user/1");
/// assert_eq!(key, b"user/1");
/// assert!(key.starts_with(b"user/"));
/// let copy = key.clone(); // copies no bytes of a long one
/// let names = BTreeMap::from([(key, "Ann")]);
/// assert_eq!(names.get(&b"user/1"[..]), Some(&"Ann"));
/// let elsewhere = std::thread::spawn(move || copy.part(5..));
/// assert_eq!(elsewhere.join().expect("it ends"), "1");
/// ```
#[derive(Clone, Default)]
pub struct Slice(ByteView);

impl Slice {
    /// A copy of these bytes.
    ///
    /// ```
    /// assert_eq!(varve::Slice::new(b"ab").len(), 2);
    /// ```
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        Slice(ByteView::new(bytes))
    }

    /// A part of the bytes, which shares their memory if it is long.
    ///
    /// ```
    /// let key = varve::Slice::from("user/1");
    /// assert_eq!(key.part(..4), "user");
    /// ```
    ///
    /// # Panics
    /// If the range is not within the bytes, as for other slices.
    #[must_use]
    pub fn part(&self, range: impl RangeBounds<usize>) -> Self {
        let bounds = (range.start_bound().cloned(), range.end_bound().cloned());
        // The same check, with the same message, as for any slice.
        let length = self[bounds].len();
        let start = match bounds.0 {
            Bound::Included(at) => at,
            Bound::Excluded(before) => before + 1,
            Bound::Unbounded => 0,
        };
        Slice(self.0.slice(start..start + length))
    }
}

impl Deref for Slice {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Slice {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Borrow<[u8]> for Slice {
    fn borrow(&self) -> &[u8] {
        self
    }
}

// By their bytes, since the comparison of byteview 0.10.2 reads a u64 where 32-bit systems have aligned for a u32.
impl PartialEq for Slice {
    fn eq(&self, other: &Self) -> bool {
        self[..] == other[..]
    }
}

impl Eq for Slice {}

impl PartialOrd for Slice {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Slice {
    fn cmp(&self, other: &Self) -> Ordering {
        self[..].cmp(&other[..])
    }
}

impl Hash for Slice {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self[..].hash(state);
    }
}

/// As a byte string: `b"user/1"`.
impl fmt::Debug for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.escape_ascii())
    }
}

macro_rules! conversions {
    ($([$($generic:tt)*] $from:ty, |$given:ident| $bytes:expr;)*) => {
        $(impl<$($generic)*> From<$from> for Slice {
            fn from($given: $from) -> Self {
                Slice::new($bytes)
            }
        }

        impl<$($generic)*> PartialEq<$from> for Slice {
            fn eq(&self, other: &$from) -> bool {
                let $given = other;
                let bytes: &[u8] = $bytes;
                self[..] == *bytes
            }
        })*
    };
}

conversions! {
    [] &[u8], |bytes| bytes;
    [] &str, |text| text.as_bytes();
    [] Vec<u8>, |bytes| bytes.as_slice();
    [] String, |text| text.as_bytes();
    [const N: usize] [u8; N], |bytes| bytes.as_slice();
    [const N: usize] &[u8; N], |bytes| bytes.as_slice();
}

impl PartialEq<[u8]> for Slice {
    fn eq(&self, other: &[u8]) -> bool {
        self[..] == *other
    }
}

impl PartialEq<str> for Slice {
    fn eq(&self, other: &str) -> bool {
        self[..] == *other.as_bytes()
    }
}

impl From<Slice> for Vec<u8> {
    fn from(slice: Slice) -> Self {
        slice.to_vec()
    }
}

impl FromIterator<u8> for Slice {
    fn from_iter<I: IntoIterator<Item = u8>>(bytes: I) -> Self {
        Slice::from(bytes.into_iter().collect::<Vec<u8>>())
    }
}

/// A key of bytes, or of text if it is text.
impl Key for Slice {
    fn encode(&self, kind: &KeyKind, is_prefix: bool, out: &mut Vec<u8>) -> Result<(), Malformed> {
        match str::from_utf8(self) {
            Ok(text) if text.encode(kind, is_prefix, out).is_ok() => Ok(()),
            _ => (&self[..]).encode(kind, is_prefix, out),
        }
    }
}

impl Key for &Slice {
    fn encode(&self, kind: &KeyKind, is_prefix: bool, out: &mut Vec<u8>) -> Result<(), Malformed> {
        Slice::encode(self, kind, is_prefix, out)
    }
}
