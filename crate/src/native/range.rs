//! Ranges of keys.

use std::fmt;
use std::ops::{Bound, Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

use crate::schema::Malformed;
use crate::schema::key::{Key, KeyKind};

use super::Error;

/// A range of keys and the order of iteration. All given conditions apply together.
///
/// The ranges of Rust are ranges of keys too: `..`, `"a".."b"`, `"a"..="b"`, `"a"..`, and pairs of [`Bound`]s. One that ends
/// before it begins has no keys.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = std::env::temp_dir().join(format!("varve-doc-range-{}", std::process::id()));
/// # let mut store = varve::Store::open(folder.join("shop.varve"))?;
/// use varve::KeyRange;
///
/// for user in ["user/1", "user/2", "user/3"] {
///     store.set(user, "")?;
/// }
/// let last_two = KeyRange::all().prefix("user/").reverse().limit(2);
/// let keys: Vec<_> = store.keys(last_two)?.collect::<Result<_, _>>()?;
/// assert_eq!(keys, ["user/3", "user/2"]);
/// assert_eq!(store.count("user/1".."user/3")?, 2);
/// assert_eq!(store.clear(..="user/1")?, 1);
/// assert_eq!(store.count(KeyRange::from("user/2"..).limit(1))?, 1);
/// # store.close()?;
/// # std::fs::remove_dir_all(folder)?;
/// # Ok(())
/// # }
/// ```
#[derive(Default)]
pub struct KeyRange<'a> {
    bounds: Vec<(Side, Box<dyn Key + 'a>)>,
    pub(super) reverse: bool,
    pub(super) limit: Option<usize>,
}

#[derive(Clone, Copy, Debug)]
enum Side {
    Above,
    From,
    Below,
    To,
    Prefix,
}

impl fmt::Debug for KeyRange<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sides: Vec<Side> = self.bounds.iter().map(|(side, _)| *side).collect();
        let KeyRange { reverse, limit, .. } = self;
        write!(f, "KeyRange {{ bounds: {sides:?}, reverse: {reverse}, limit: {limit:?} }}")
    }
}

impl<'a> KeyRange<'a> {
    /// All keys.
    #[must_use]
    pub fn all() -> Self {
        KeyRange::default()
    }

    /// Only keys after this one. Here and below, a bound may consist of the first parts of a tuple:
    /// all keys with this prefix are then on the same side of it.
    #[must_use]
    pub fn gt(self, key: impl Key + 'a) -> Self {
        self.and(Side::Above, key)
    }

    /// Only this key and those after it.
    #[must_use]
    pub fn gte(self, key: impl Key + 'a) -> Self {
        self.and(Side::From, key)
    }

    /// Only keys before this one.
    #[must_use]
    pub fn lt(self, key: impl Key + 'a) -> Self {
        self.and(Side::Below, key)
    }

    /// Only this key and those before it.
    #[must_use]
    pub fn lte(self, key: impl Key + 'a) -> Self {
        self.and(Side::To, key)
    }

    /// Only keys with this prefix: text or bytes, or the first parts of a tuple.
    #[must_use]
    pub fn prefix(self, key: impl Key + 'a) -> Self {
        self.and(Side::Prefix, key)
    }

    /// From the last key to the first.
    #[must_use]
    pub fn reverse(mut self) -> Self {
        self.reverse = true;
        self
    }

    /// At most this many keys: the first ones, or in reverse the last ones.
    #[must_use]
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = Some(limit);
        self
    }

    fn and(mut self, side: Side, key: impl Key + 'a) -> Self {
        self.bounds.push((side, Box::new(key)));
        self
    }

    /// Encodes the bounds. Without `kind` the keys are raw text or bytes. The first parts of a
    /// tuple are a bound too, and all keys with this prefix are on the same side of it; likewise
    /// the fields of an index, whose entries continue after them.
    pub(super) fn encode(&self, kind: Option<&KeyKind>) -> Result<Bounds, Error> {
        let whole = !matches!(kind, Some(KeyKind::Tuple(_)));
        let mut bounds = Bounds::default();
        for (side, key) in &self.bounds {
            let is_prefix = !whole || matches!(side, Side::Prefix);
            let bytes = encode(&**key, kind, is_prefix).map_err(Error::BadArgument)?;
            let behind = successor(&bytes).map_or(Bound::Unbounded, Bound::Excluded);
            match side {
                Side::From => bounds.raise(Bound::Included(bytes)),
                Side::Above if whole => bounds.raise(Bound::Excluded(bytes)),
                // After all keys with this prefix.
                Side::Above => match successor(&bytes) {
                    Some(next) => bounds.raise(Bound::Included(next)),
                    None => bounds.is_empty = true,
                },
                Side::Below => bounds.lower_to(Bound::Excluded(bytes)),
                Side::To if whole => bounds.lower_to(Bound::Included(bytes)),
                Side::To => bounds.lower_to(behind),
                Side::Prefix => {
                    bounds.lower_to(behind);
                    bounds.raise(Bound::Included(bytes));
                }
            }
        }
        Ok(bounds)
    }
}

impl From<RangeFull> for KeyRange<'_> {
    fn from(_: RangeFull) -> Self {
        KeyRange::all()
    }
}

/// A pair of bounds is a range of keys, and so is everything that is one.
impl<'a, K: Key + 'a> From<(Bound<K>, Bound<K>)> for KeyRange<'a> {
    fn from((lower, upper): (Bound<K>, Bound<K>)) -> Self {
        let range = match lower {
            Bound::Included(key) => KeyRange::all().gte(key),
            Bound::Excluded(key) => KeyRange::all().gt(key),
            Bound::Unbounded => KeyRange::all(),
        };
        match upper {
            Bound::Included(key) => range.lte(key),
            Bound::Excluded(key) => range.lt(key),
            Bound::Unbounded => range,
        }
    }
}

macro_rules! ranges {
    ($($of:ident: |$range:ident| $bounds:expr;)*) => {
        $(impl<'a, K: Key + 'a> From<$of<K>> for KeyRange<'a> {
            fn from($range: $of<K>) -> Self {
                KeyRange::from($bounds)
            }
        })*
    };
}

ranges! {
    Range: |range| (Bound::Included(range.start), Bound::Excluded(range.end));
    RangeFrom: |range| (Bound::Included(range.start), Bound::Unbounded);
    RangeTo: |range| (Bound::Unbounded, Bound::Excluded(range.end));
    RangeToInclusive: |range| (Bound::Unbounded, Bound::Included(range.end));
}

impl<'a, K: Key + 'a> From<RangeInclusive<K>> for KeyRange<'a> {
    fn from(range: RangeInclusive<K>) -> Self {
        let (first, last) = range.into_inner();
        KeyRange::from((Bound::Included(first), Bound::Included(last)))
    }
}

fn encode(key: &dyn Key, kind: Option<&KeyKind>, is_prefix: bool) -> Result<Vec<u8>, Malformed> {
    let mut out = Vec::new();
    match kind {
        Some(kind) => key.encode(kind, is_prefix, &mut out)?,
        None => key
            .encode(&KeyKind::Text, is_prefix, &mut out)
            .or_else(|_| key.encode(&KeyKind::Bytes, is_prefix, &mut out))?,
    }
    Ok(out)
}

/// The first key after all keys with this prefix.
fn successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte < 0xFF)?;
    let mut next = prefix[..=last].to_vec();
    next[last] += 1;
    Some(next)
}

/// The keys between two bounds.
#[derive(Clone, Debug)]
pub(super) struct Bounds {
    pub lower: Bound<Vec<u8>>,
    pub upper: Bound<Vec<u8>>,
    is_empty: bool,
}

impl Default for Bounds {
    fn default() -> Self {
        Bounds { lower: Bound::Unbounded, upper: Bound::Unbounded, is_empty: false }
    }
}

impl Bounds {
    pub(super) fn slices(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        fn slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
            bound.as_ref().map(Vec::as_slice)
        }
        (slice(&self.lower), slice(&self.upper))
    }

    /// Whether no key can be between the bounds.
    pub(super) fn is_empty(&self) -> bool {
        let crossed = match self.slices() {
            (Bound::Included(lower), Bound::Included(upper)) => lower > upper,
            (
                Bound::Included(lower) | Bound::Excluded(lower),
                Bound::Included(upper) | Bound::Excluded(upper),
            ) => lower >= upper,
            _ => false,
        };
        self.is_empty || crossed
    }

    /// Excludes everything up to a key that an iteration has reached.
    pub(super) fn continue_after(&mut self, key: &[u8], reverse: bool) {
        let behind = Bound::Excluded(key.to_vec());
        if reverse {
            self.upper = behind;
        } else {
            self.lower = behind;
        }
    }

    fn raise(&mut self, bound: Bound<Vec<u8>>) {
        let is_tighter = match (&bound, &self.lower) {
            (_, Bound::Unbounded) => true,
            (Bound::Unbounded, _) => false,
            (Bound::Included(new), Bound::Included(old) | Bound::Excluded(old)) => new > old,
            (Bound::Excluded(new), Bound::Included(old) | Bound::Excluded(old)) => new >= old,
        };
        if is_tighter {
            self.lower = bound;
        }
    }

    fn lower_to(&mut self, bound: Bound<Vec<u8>>) {
        let is_tighter = match (&bound, &self.upper) {
            (_, Bound::Unbounded) => true,
            (Bound::Unbounded, _) => false,
            (Bound::Included(new), Bound::Included(old) | Bound::Excluded(old)) => new < old,
            (Bound::Excluded(new), Bound::Included(old) | Bound::Excluded(old)) => new <= old,
        };
        if is_tighter {
            self.upper = bound;
        }
    }
}
