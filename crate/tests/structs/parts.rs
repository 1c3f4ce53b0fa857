//! Builds a value like encoders do: the root first, followed by its parts in order.

use std::mem::size_of;

use musli_zerocopy::{Buf, OwnedBuf, Ref, ZeroCopy};

/// The bytes of one value while its parts are added after its root.
pub struct Parts(OwnedBuf);

impl Parts {
    /// Encodes the root that `make` returns after adding its parts.
    pub fn encode<T: ZeroCopy>(make: impl FnOnce(&mut Parts) -> T) -> Vec<u8> {
        let mut parts = Parts(OwnedBuf::with_alignment::<u64>());
        parts.0.store_uninit::<T>().expect("there is room for the root");
        let root = make(&mut parts);
        parts.put(0, &root);
        parts.0.as_slice().to_vec()
    }

    pub fn str(&mut self, text: &str) -> Ref<str> {
        self.0.store_unsized(text).expect("there is room for a string")
    }

    pub fn slice<T: ZeroCopy>(&mut self, items: &[T]) -> Ref<[T]> {
        self.0.store_slice(items).expect("there is room for a slice")
    }

    /// A slice whose items refer to parts that follow it, item by item.
    pub fn items<T: ZeroCopy, U: Copy>(
        &mut self,
        sources: &[U],
        blank: impl Fn() -> T,
        make: impl Fn(&mut Parts, U) -> T,
    ) -> Ref<[T]> {
        let blanks: Vec<T> = sources.iter().map(|_| blank()).collect();
        let slice = self.slice(&blanks);
        for (index, source) in sources.iter().enumerate() {
            let item = make(self, *source);
            self.put(slice.offset() + index * size_of::<T>(), &item);
        }
        slice
    }

    /// Overwrites reserved space.
    fn put<T: ZeroCopy>(&mut self, at: usize, value: &T) {
        let mut alone = OwnedBuf::with_alignment::<u64>();
        alone.store(value).expect("there is room for a value");
        let bytes = alone.as_slice();
        self.0.as_mut_slice()[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

/// A reference to nothing, as a placeholder.
pub fn null_ref() -> Ref<str> {
    Ref::with_metadata(0_u32, 0)
}

/// A copy of the bytes, aligned for every type.
pub fn aligned(bytes: &[u8]) -> OwnedBuf {
    let mut buf = OwnedBuf::with_alignment::<u64>();
    buf.extend_from_slice(bytes).expect("there is room for the bytes");
    buf.align_in_place().expect("there is room for the bytes");
    buf
}

/// As a `Buf`, from which musli loads.
pub fn as_buf(owned: &OwnedBuf) -> &Buf {
    owned
}
