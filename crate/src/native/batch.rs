//! Writes that are gathered first, and then made together.

use crate::format::KEYSPACE_RAW;

use super::{Error, Slice, Store};

/// Writes that [`Store::write`] makes in this order, all of them or none.
///
/// It borrows nothing, so that it may be gathered in another thread. Where a write depends on what is there, use a
/// [`transaction`](Store::transaction), which may also write to collections.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = std::env::temp_dir().join(format!("varve-doc-batch-{}", std::process::id()));
/// # let mut store = varve::Store::open(folder.join("shop.varve"))?;
/// use varve::Batch;
///
/// let mut batch = Batch::new();
/// batch.set("a", "1");
/// batch.set("b", "2");
/// batch.delete("a");
/// store.write(&batch)?;
/// assert_eq!(store.get("a")?, None);
/// assert_eq!(store.get("b")?, Some(&b"2"[..]));
/// # store.close()?;
/// # std::fs::remove_dir_all(folder)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Keys with their values; none to delete them.
    writes: Vec<(Slice, Option<Slice>)>,
}

impl Batch {
    /// No writes.
    #[must_use]
    pub fn new() -> Self {
        Batch::default()
    }

    /// Adds the setting of a key. A [`Slice`] is taken as it is, and anything else is copied.
    pub fn set(&mut self, key: impl Into<Slice>, value: impl Into<Slice>) -> &mut Self {
        self.writes.push((key.into(), Some(value.into())));
        self
    }

    /// Adds the deletion of a key.
    pub fn delete(&mut self, key: impl Into<Slice>) -> &mut Self {
        self.writes.push((key.into(), None));
        self
    }

    /// The number of writes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.writes.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// Removes the writes, to gather others.
    pub fn clear(&mut self) {
        self.writes.clear();
    }
}

impl Store {
    /// Makes the writes of a batch in their order: all of them, or none after an error.
    ///
    /// # Errors
    /// As for [`set`](Store::set).
    pub fn write(&mut self, batch: &Batch) -> Result<(), Error> {
        self.begin_write()?;
        self.atomically(|store| {
            for (key, value) in &batch.writes {
                let done = match value {
                    Some(value) => store.engine().set(KEYSPACE_RAW, key, value).map(drop),
                    None => store.engine().delete(KEYSPACE_RAW, key).map(drop),
                };
                store.with_loss_reason(done)?;
            }
            Ok(())
        })
    }
}
