//! Changes of values that depend on what they are, beside those in place.

use crate::aligned_buf::AlignedBytes;
use crate::format::KEYSPACE_RAW;
use crate::schema::key::Key;
use crate::schema::upgrade::put_root;
use crate::schema::{Parts, Record, View};

use super::collection::{Collection, reindex};
use super::{Error, SetOptions, Store};

impl Store {
    /// As [`update_if`](Store::update_if), with the value that a missing key gets first. It is then changed like any other;
    /// if `predicate` refuses it, the key stays missing.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = std::env::temp_dir().join(format!("varve-doc-upsert-{}", std::process::id()));
    /// # let mut store = varve::Store::open(folder.join("shop.varve"))?;
    /// for _ in 0..2 {
    ///     store.upsert_if("visits", [0], |visits| visits[0] < 9, |visits| visits[0] += 1)?;
    /// }
    /// assert_eq!(store.get("visits")?, Some(&[2][..]));
    /// # store.close()?;
    /// # std::fs::remove_dir_all(folder)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`set`](Store::set).
    pub fn upsert_if(
        &mut self,
        key: impl AsRef<[u8]>,
        value_if_missing: impl AsRef<[u8]>,
        predicate: impl FnOnce(&[u8]) -> bool,
        change: impl FnOnce(&mut [u8]),
    ) -> Result<bool, Error> {
        let key = key.as_ref();
        self.begin_write()?;
        let is_there = self.engine().has(KEYSPACE_RAW, key);
        if self.with_loss_reason(is_there)? {
            return self.update_if(key, predicate, change);
        }
        let mut value = value_if_missing.as_ref().to_vec();
        if !predicate(&value) {
            return Ok(false);
        }
        change(&mut value);
        self.set(key, value)?;
        Ok(true)
    }

    /// Replaces a value by one that is made of it, of any length, if `predicate` holds for it; returns whether it did, which
    /// is `false` for a missing key. When the key expires stays as it is. Nothing is written if `make` panics.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = std::env::temp_dir().join(format!("varve-doc-replace-{}", std::process::id()));
    /// # let mut store = varve::Store::open(folder.join("shop.varve"))?;
    /// store.set("log", "opened")?;
    /// assert!(store.replace_if("log", |log| log.len() < 1_000, |log| [log, b", closed"].concat())?);
    /// assert_eq!(store.get("log")?, Some(&b"opened, closed"[..]));
    /// # store.close()?;
    /// # std::fs::remove_dir_all(folder)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`set`](Store::set).
    pub fn replace_if(
        &mut self,
        key: impl AsRef<[u8]>,
        predicate: impl FnOnce(&[u8]) -> bool,
        make: impl FnOnce(&[u8]) -> Vec<u8>,
    ) -> Result<bool, Error> {
        let key = key.as_ref();
        self.begin_write()?;
        let Some(value) = self.engine.get(KEYSPACE_RAW, key)? else { return Ok(false) };
        if !predicate(value) {
            return Ok(false);
        }
        let made = make(value);
        let done = self.engine().update_if(KEYSPACE_RAW, key, |_| true, |_| Ok(Some(made)));
        self.with_loss_reason(done)
    }
}

impl<T: Record> Collection<'_, T> {
    /// As [`update_if`](Collection::update_if), with the record that a missing key gets first, made as for
    /// [`set`](Collection::set). It is then changed like any other; if `predicate` refuses it, the key stays missing.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = std::env::temp_dir().join(format!("varve-doc-upserted-{}", std::process::id()));
    /// # let mut store = varve::Store::open(folder.join("shop.varve"))?;
    /// use musli_zerocopy::ZeroCopy;
    /// use varve::schema::Record;
    ///
    /// #[derive(Clone, Copy, ZeroCopy, Record)]
    /// #[repr(C)]
    /// struct Visits {
    ///     count: u32,
    /// }
    ///
    /// let mut visits = store.collection::<Visits>("visits")?;
    /// for _ in 0..2 {
    ///     visits.upsert_if("ann", |_| Visits { count: 0 }, |_| true, |visits| visits.count += 1)?;
    /// }
    /// assert_eq!(visits.get("ann")?.expect("it was set").count, 2);
    /// # store.close()?;
    /// # std::fs::remove_dir_all(folder)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`set`](Collection::set).
    pub fn upsert_if(
        &mut self,
        key: impl Key,
        if_missing: impl FnOnce(&mut Parts<T>) -> T,
        predicate: impl FnOnce(View<'_, T>) -> bool,
        change: impl FnOnce(&mut T),
    ) -> Result<bool, Error> {
        let encoded = self.encode(&key)?;
        self.store.begin_write()?;
        if self.store.engine().has(self.stored.keyspace, &encoded)? {
            return self.update_if(key, predicate, change);
        }
        let mut parts = Parts::of::<T>();
        let root = if_missing(&mut parts);
        let mut value = parts.finish(root).map_err(Error::BadArgument)?;
        self.check_value(&value)?;
        let mut aligned = AlignedBytes::zeroed(value.len());
        aligned[..value.len()].copy_from_slice(&value);
        let view = View::<T>::new(&aligned[..value.len()]).map_err(Error::BadArgument)?;
        if !predicate(view) {
            return Ok(false);
        }
        let mut root = *view.root();
        change(&mut root);
        put_root(&mut value, &mut root);
        self.set_bytes(key, SetOptions::new(), &value)?;
        Ok(true)
    }

    /// Replaces a record by one that is made of it, with other texts and slices too, if `predicate` holds for it; returns
    /// whether it did, which is `false` for a missing key. When the record expires stays as it is.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = std::env::temp_dir().join(format!("varve-doc-replaced-{}", std::process::id()));
    /// # let mut store = varve::Store::open(folder.join("shop.varve"))?;
    /// use musli_zerocopy::{Ref, ZeroCopy};
    /// use varve::schema::Record;
    ///
    /// #[derive(Clone, Copy, ZeroCopy, Record)]
    /// #[repr(C)]
    /// struct Product {
    ///     stock: u16,
    ///     name: Ref<str>,
    /// }
    ///
    /// let mut products = store.collection::<Product>("products")?;
    /// products.set("yeezy", |parts| Product { stock: 1, name: parts.str("Yeezy") })?;
    /// products.replace_if(
    ///     "yeezy",
    ///     |product| product.stock > 0,
    ///     |product, parts| Product { name: parts.str("Yeezy Boost 350 V2"), ..*product },
    /// )?;
    /// let yeezy = products.get("yeezy")?.expect("it was set");
    /// assert_eq!(yeezy.load(yeezy.name)?, "Yeezy Boost 350 V2");
    /// # store.close()?;
    /// # std::fs::remove_dir_all(folder)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`set`](Collection::set). Nothing is written then.
    pub fn replace_if(
        &mut self,
        key: impl Key,
        predicate: impl FnOnce(View<'_, T>) -> bool,
        make: impl FnOnce(View<'_, T>, &mut Parts<T>) -> T,
    ) -> Result<bool, Error> {
        let key = self.encode(&key)?;
        self.store.begin_write()?;
        let stored = self.writable()?;
        let Some(old) = self.store.engine.get(stored.keyspace, &key)? else { return Ok(false) };
        let view = View::<T>::new(old).map_err(Error::MalformedValue)?;
        if !predicate(view) {
            return Ok(false);
        }
        let mut parts = Parts::of::<T>();
        let root = make(view, &mut parts);
        let value = parts.finish(root).map_err(Error::BadArgument)?;
        stored.check(&value)?;
        let old = old.to_vec();
        let expiry = self.store.engine().expiry(stored.keyspace, &key)?.unwrap_or(0);
        self.store.atomically(|store| {
            store.engine().set_with_expiry(stored.keyspace, &key, &value, expiry)?;
            reindex::<T>(store, &stored, &key, Some(&old), Some(&value), expiry)?;
            Ok(true)
        })
    }
}
