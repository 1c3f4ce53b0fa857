//! Creating values as bytes, and reading them in place.

use std::marker::PhantomData;
use std::ops::Deref;

use musli_zerocopy::Ref;
use musli_zerocopy::buf::{Buf, Load};

use super::descriptor::aligned;
use super::upgrade::{earlier_root_size, put_root, root_with_defaults};
use super::{Kind, Malformed, Record};
use crate::format::MAX_VALUE;

/// A record that is read in place: it dereferences to its root, and loads the parts after that.
#[derive(Clone, Copy, Debug)]
pub struct View<'a, T> {
    root: Root<'a, T>,
    bytes: &'a [u8],
}

#[derive(Clone, Copy, Debug)]
enum Root<'a, T> {
    There(&'a T),
    /// The root with defaults, of a record of an earlier version.
    Completed(T),
}

impl<'a, T: Record> View<'a, T> {
    /// Reads the record in `bytes`, which must start at a multiple of the record's alignment. Its
    /// root is validated now; its parts are validated when they are loaded.
    ///
    /// # Errors
    /// If they are too short, misaligned, or not such a record.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let root = match earlier_root_size::<T>(bytes)? {
            None => Root::There(Buf::new(bytes).load_at::<T>(0)?),
            Some(root_size) => Root::Completed(root_with_defaults::<T>(bytes, root_size)?),
        };
        Ok(View { root, bytes })
    }

    /// The root: a copy if an earlier version of a `versioned` struct wrote it.
    #[must_use]
    pub fn root(&self) -> &T {
        self
    }

    /// The root in place, valid as long as the bytes and not only as long as this view. None if an
    /// earlier version of a `versioned` struct wrote it.
    #[must_use]
    pub fn in_place(&self) -> Option<&'a T> {
        match self.root {
            Root::There(root) => Some(root),
            Root::Completed(_) => None,
        }
    }

    /// All bytes of the record.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Checks that the whole record matches its layout, including its parts and the constraints
    /// that only TypeScript has, such as those of dates and fixed-length text.
    ///
    /// # Errors
    /// The field and what is wrong with it.
    pub fn check(&self) -> Result<(), Malformed> {
        Kind::from(T::LAYOUT).check(self.bytes)
    }

    /// Loads what a reference of the root refers to, in place: text, bytes, or a slice.
    ///
    /// # Errors
    /// If it points outside the record, is misaligned, or refers to something invalid.
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

/// A value under construction: the parts that its root will refer to.
///
/// Add parts in the order of the fields that refer to them; the bytes are then the same as in
/// TypeScript.
#[derive(Debug)]
pub struct Parts<T> {
    bytes: Vec<u8>,
    too_long: bool,
    root: PhantomData<T>,
}

impl Parts<()> {
    /// Starts a value of type `T`.
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

    /// Adds a slice.
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

    /// Completes the value with its root.
    ///
    /// # Errors
    /// If it is longer than 16 MiB.
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
