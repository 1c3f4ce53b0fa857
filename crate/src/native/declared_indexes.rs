//! Collections with what a program declares of them: the type of their keys, and indexes.

use std::ops::Bound;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::schema::Record;
use crate::schema::key::KeyKind;

use super::catalog::{self, StoredCollection};
use super::collection::{Collection, index_record};
use super::{Error, Store};

/// Records that get their entries of a new index together.
const PAGE: usize = 1_024;

/// What a program declares of a collection, for [`Store::collection_with`].
#[derive(Clone, Debug, Default)]
pub struct CollectionOptions {
    pub(super) key: Option<KeyKind>,
    indexes: Vec<(String, IndexBy)>,
}

impl CollectionOptions {
    /// A collection as it is stored, or one with text keys and without indexes if it is missing.
    #[must_use]
    pub fn new() -> Self {
        CollectionOptions::default()
    }

    /// It has keys of this type.
    #[must_use]
    pub fn keys(mut self, key: KeyKind) -> Self {
        self.key = Some(key);
        self
    }

    /// It has an index of this name, beside those that are stored.
    #[must_use]
    pub fn index(mut self, name: &str, by: IndexBy) -> Self {
        self.indexes.push((name.to_string(), by));
        self
    }
}

/// The fields by which an index sorts: the same as in TypeScript, where a field of a struct within the record is named by
/// its path, such as `"size.width"`.
///
/// ```
/// use varve::IndexBy;
///
/// let by_stock = IndexBy::desc("stock").then("name");
/// let by_code = IndexBy::field("code").unique();
/// # drop((by_stock, by_code));
/// ```
#[derive(Clone, Debug)]
pub struct IndexBy {
    fields: Vec<Value>,
    unique: bool,
}

impl IndexBy {
    /// By this field first: a number, a date, a boolean, an enum without data, text or bytes, or an option of one.
    #[must_use]
    pub fn field(name: &str) -> Self {
        IndexBy { fields: vec![json!(name)], unique: false }
    }

    /// By this field first, in descending order.
    #[must_use]
    pub fn desc(name: &str) -> Self {
        IndexBy { fields: vec![json!({ "desc": name })], unique: false }
    }

    /// By this field next, where the others are equal.
    #[must_use]
    pub fn then(mut self, name: &str) -> Self {
        self.fields.push(json!(name));
        self
    }

    /// The same, in descending order.
    #[must_use]
    pub fn then_desc(mut self, name: &str) -> Self {
        self.fields.push(json!({ "desc": name }));
        self
    }

    /// No two records may have the same values of these fields: a write that would is refused with [`Error::NotUnique`].
    #[must_use]
    pub fn unique(mut self) -> Self {
        self.unique = true;
        self
    }

    /// As its descriptor has it.
    fn to_json(&self) -> Value {
        let mut shape = json!({ "fields": self.fields });
        if self.unique {
            shape["unique"] = json!(true);
        }
        shape
    }
}

impl Store {
    /// Opens a collection with what is declared of it, creating it if it is missing. An index that it does not have yet is
    /// built from its records now, in one transaction, which takes time and memory by their number.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = std::env::temp_dir().join(format!("varve-doc-index-{}", std::process::id()));
    /// # let mut store = varve::Store::open(folder.join("shop.varve"))?;
    /// use musli_zerocopy::{Ref, ZeroCopy};
    /// use varve::schema::Record;
    /// use varve::{CollectionOptions, IndexBy};
    ///
    /// #[derive(Clone, Copy, ZeroCopy, Record)]
    /// #[repr(C)]
    /// struct Product {
    ///     stock: u16,
    ///     name: Ref<str>,
    /// }
    ///
    /// let options = CollectionOptions::new()
    ///     .index("byStock", IndexBy::field("stock"))
    ///     .index("byName", IndexBy::field("name").unique());
    /// let mut products = store.collection_with::<Product>("products", &options)?;
    /// products.set("yeezy", |parts| Product { stock: 9, name: parts.str("Yeezy") })?;
    /// products.set("air", |parts| Product { stock: 2, name: parts.str("Air") })?;
    /// let few = products.entries_by("byStock", ..5_u16)?.next().expect("it is there")?;
    /// assert_eq!(few.key::<String>()?, "air");
    /// let same_name = products.set("new", |parts| Product { stock: 1, name: parts.str("Air") });
    /// assert_eq!(same_name.unwrap_err().code(), "VARVE_UNIQUE_VIOLATION");
    /// # store.close()?;
    /// # std::fs::remove_dir_all(folder)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::SchemaMismatch`] if the stored collection has another schema, or an index of this name by other fields;
    /// [`Error::BadArgument`] for a field that the record does not have, or that has no order; [`Error::NotUnique`] if
    /// records have the same entry of a new unique index. Nothing is written then. As for [`set`](Store::set).
    pub fn collection_with<T: Record>(
        &mut self,
        name: &str,
        options: &CollectionOptions,
    ) -> Result<Collection<'_, T>, Error> {
        let CollectionOptions { key, indexes } = options;
        let declared = |collection: &Collection<'_, T>| -> Result<bool, Error> {
            let mut are_there = true;
            for (index, by) in indexes {
                are_there &= has_index(&collection.stored, index, &by.to_json())?;
            }
            Ok(are_there)
        };
        if !declared(&self.collection_by::<T>(name, key.as_ref())?)? {
            self.begin_write()?;
            self.atomically(|store| {
                for (index, by) in indexes {
                    let mut collection = store.collection_by::<T>(name, key.as_ref())?;
                    let stored = collection.writable()?;
                    if !has_index(&stored, index, &by.to_json())? {
                        store.add_index::<T>(&stored, index, by.to_json())?;
                    }
                }
                Ok::<_, Error>(())
            })?;
        }
        self.collection_by(name, key.as_ref())
    }

    /// Adds an index to a collection, with the entries of all its records.
    fn add_index<T: Record>(
        &mut self,
        before: &StoredCollection,
        index: &str,
        shape: Value,
    ) -> Result<(), Error> {
        catalog::create_index(&mut self.engine(), before, index, shape)?;
        self.forget_collection(&before.name);
        let stored = Arc::clone(&self.collection_by::<T>(&before.name, None)?.stored);
        let mut lower = Bound::Unbounded;
        loop {
            let mut keys = Vec::new();
            let bounds = (lower.as_ref().map(Vec::as_slice), Bound::Unbounded);
            self.engine().range(stored.keyspace, bounds, false, |key, _| {
                keys.push(key.to_vec());
                keys.len() < PAGE
            })?;
            for key in &keys {
                index_record::<T>(self, &stored, index, key)?;
            }
            match keys.pop() {
                Some(last) => lower = Bound::Excluded(last),
                None => return Ok(()),
            }
        }
    }
}

/// Whether a collection has an index of this name, which must sort as declared.
fn has_index(stored: &StoredCollection, name: &str, shape: &Value) -> Result<bool, Error> {
    let refused =
        |reason: String| Error::SchemaMismatch { collection: stored.name.clone(), reason };
    match stored.indexes.iter().find(|index| index.name == name) {
        None => Ok(false),
        Some(index) if !index.built => {
            Err(refused(format!("its index {name:?} is being built by migrate() of the package")))
        }
        Some(index) if index.shape == *shape => Ok(true),
        Some(index) => Err(refused(format!("its index {name:?} is {}, not {shape}", index.shape))),
    }
}
