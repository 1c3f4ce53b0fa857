//! Values as bytes: making them, and reading them where they lie.

use std::marker::PhantomData;
use std::ops::Deref;

use musli_zerocopy::Ref;
use musli_zerocopy::buf::{Buf, Load};

use super::descriptor::aligned;
use super::upgrade::{completed, earlier, put_root};
use super::{Kind, Malformed, Record};
use crate::format::MAX_VALUE;

/// A record where it lies: it is its root, and reads what lies behind it.
#[derive(Clone, Copy, Debug)]
pub struct View<'a, T> {
    root: Root<'a, T>,
    bytes: &'a [u8],
}

#[derive(Clone, Copy, Debug)]
enum Root<'a, T> {
    There(&'a T),
    /// The record is of an earlier version, and does not have all of its root.
    Completed(T),
}

impl<'a, T: Record> View<'a, T> {
    /// The record in these bytes, which have to begin at a multiple of the record's alignment.
    /// Its root is validated; what lies behind it is when it is read.
    ///
    /// # Errors
    /// When they are too short, misaligned, or no such record.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let root = match earlier::<T>(bytes)? {
            None => Root::There(Buf::new(bytes).load_at::<T>(0)?),
            Some(root_size) => Root::Completed(completed::<T>(bytes, root_size)?),
        };
        Ok(View { root, bytes })
    }

    /// Its root: a copy, if an earlier version of a `versioned` struct wrote it.
    #[must_use]
    pub fn root(&self) -> &T {
        self
    }

    /// Its root where it lies, which lives as long as the bytes do and not only as long as this. None
    /// if an earlier version of a `versioned` struct wrote it.
    #[must_use]
    pub fn in_place(&self) -> Option<&'a T> {
        match self.root {
            Root::There(root) => Some(root),
            Root::Completed(_) => None,
        }
    }

    /// All its bytes.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Whether all of it is as its layout says: also what it refers to, and what only TypeScript asks for,
    /// such as dates and texts of fixed length.
    ///
    /// # Errors
    /// Names the field and what is wrong with it.
    pub fn check(&self) -> Result<(), Malformed> {
        Kind::from(T::LAYOUT).check(self.bytes)
    }

    /// What a reference of the root leads to, as it leads there: text, bytes, or a slice.
    ///
    /// # Errors
    /// When it leads out of the record, is misaligned, or leads to what is no such thing.
    pub fn load<R: Load>(&self, reference: R) -> Result<&'a R::Target, Malformed> {
        Ok(Buf::new(self.bytes).load(reference)?)
    }
}

impl<T> Deref for View<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        match &self.root {
            Root::There(root) => root,
            Root::Completed(root) => root,
        }
    }
}

/// A value in the making: what its root refers to, one part behind the other.
///
/// Parts are to be added in the order of the fields that refer to them; then the bytes are those that
/// TypeScript makes.
#[derive(Debug)]
pub struct Parts<T> {
    bytes: Vec<u8>,
    too_long: bool,
    root: PhantomData<T>,
}

impl Parts<()> {
    /// Begins a value of type `T`.
    #[must_use]
    pub fn of<T: Record>() -> Parts<T> {
        Parts { bytes: vec![0; size_of::<T>()], too_long: false, root: PhantomData }
    }
}

impl<T: Record> Parts<T> {
    /// Adds text.
    pub fn str(&mut self, text: &str) -> Ref<str> {
        match self.add(1, text.len(), |bytes| bytes.extend_from_slice(text.as_bytes())) {
            Some(at) => Ref::with_metadata(at, text.len()),
            None => Ref::with_metadata(0u32, 0),
        }
    }

    /// Adds bytes.
    pub fn blob(&mut self, blob: &[u8]) -> Ref<[u8]> {
        self.slice(blob)
    }

    /// Adds any number of the same.
    pub fn slice<E: Record>(&mut self, elements: &[E]) -> Ref<[E]> {
        let added = self.add(align_of::<E>(), size_of_val(elements), |bytes| {
            for element in elements {
                let mut element = *element;
                bytes.extend_from_slice(element.to_bytes_padded());
            }
        });
        match added {
            Some(at) => Ref::with_metadata(at, elements.len()),
            None => Ref::with_metadata(0u32, 0),
        }
    }

    /// Ends the value with its root.
    ///
    /// # Errors
    /// When it is longer than 16 MiB.
    pub fn finish(mut self, mut root: T) -> Result<Vec<u8>, Malformed> {
        if self.too_long {
            return Err(Malformed::new("", "a value may have at most 16,777,216 bytes"));
        }
        put_root(&mut self.bytes, &mut root);
        Ok(self.bytes)
    }

    fn add(&mut self, align: usize, size: usize, fill: impl FnOnce(&mut Vec<u8>)) -> Option<u32> {
        let at = aligned(self.bytes.len(), align);
        self.too_long |= at.saturating_add(size) > MAX_VALUE;
        if self.too_long {
            return None;
        }
        self.bytes.resize(at, 0);
        fill(&mut self.bytes);
        u32::try_from(at).ok()
    }
}
