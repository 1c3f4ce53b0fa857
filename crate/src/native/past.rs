//! Past commits of a file that keeps its history.

use crate::format::KEYSPACE_RAW;
use crate::store::SnapshotId;

use super::store::Entries;
use super::{Error, KeyRange, Store};

/// The keys outside of collections as they were after a past commit: see [`Store::at`].
#[derive(Debug)]
pub struct Past<'s> {
    store: &'s mut Store,
    snapshot: SnapshotId,
}

impl Store {
    /// The content as it was after a past transaction: that with this number, or that which gave a key this version, or the
    /// last one before. The file has to keep its history: [`OpenOptions::keep_history`](super::OpenOptions). It walks over the
    /// log since then.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = std::env::temp_dir().join(format!("varve-doc-past-{}", std::process::id()));
    /// # let path = folder.join("shop.varve");
    /// use varve::native::{OpenOptions, Store};
    ///
    /// let options = OpenOptions { keep_history: Some(true), ..OpenOptions::default() };
    /// let mut store = Store::open_with(&path, options)?;
    /// let version = store.set("price", b"12")?;
    /// store.commit()?;
    /// store.set("price", b"13")?;
    /// assert_eq!(store.at(version)?.get("price")?, Some(&b"12"[..]));
    /// # store.close()?;
    /// # std::fs::remove_dir_all(folder)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// With the code `VARVE_BAD_ARGUMENT` if the file does not keep its history, or for a number that no commit has reached;
    /// `VARVE_CURSOR_EXPIRED` if the history was packed or salvaged since; damage, or an error of the file.
    pub fn at(&mut self, number: u64) -> Result<Past<'_>, Error> {
        let snapshot = self.engine_at(number)?;
        Ok(Past { store: self, snapshot })
    }
}

impl Past<'_> {
    /// The value that a key had.
    ///
    /// # Errors
    /// As for [`Store::get`].
    pub fn get(&mut self, key: impl AsRef<[u8]>) -> Result<Option<&[u8]>, Error> {
        let keyspace = self.snapshot.keyspace(KEYSPACE_RAW);
        Ok(self.store.engine_mut().get(keyspace, key.as_ref())?)
    }

    /// The number of keys that there were.
    #[must_use]
    pub fn count(&mut self) -> u64 {
        let keyspace = self.snapshot.keyspace(KEYSPACE_RAW);
        self.store.engine_mut().count(keyspace)
    }

    /// Iterates over the keys that there were and their values, in order.
    ///
    /// # Errors
    /// As for [`Store::entries`].
    pub fn entries(&mut self, range: KeyRange<'_>) -> Result<Entries<'_>, Error> {
        let bounds = range.encode(None)?;
        Ok(self.store.walk(self.snapshot.keyspace(KEYSPACE_RAW), bounds, &range))
    }
}

impl Drop for Past<'_> {
    fn drop(&mut self) {
        self.store.engine_mut().end_snapshot(self.snapshot);
    }
}
