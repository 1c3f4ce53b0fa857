//! The engine for native programs: files with locks, collections of Rust structs, and databases in
//! memory. Pages read what it writes, and the reverse.
//!
//! | name | what it is |
//! |---|---|
//! | [`Store`] | a database file that this process has open |
//! | [`Collection`] | records of one type in it, with their indexes |
//! | [`Reader`] | a database in memory, read by any number of threads |
//! | [`CollectionOptions`], [`IndexBy`] | the keys and the indexes of a collection |
//! | [`Batch`] | writes that are made together |
//! | [`KeyRange`] | a range of keys and its order |
//! | [`Slice`] | a key or a value that belongs to the program |
//! | [`Snapshot`] | everything as it was, while the store goes on |
//! | [`Log`] | the log as history: a walk over its transactions |
//! | [`Changes`], [`Follower`] | what happened since a cursor, and from then on |
//! | [`SetOptions`], [`Expiry`] | when a record expires, and which version a write expects |
//! | [`Error`] | the errors, with the codes of TypeScript |
//!
//! Beside the package of TypeScript:
//!
//! | there | here |
//! |---|---|
//! | `getMany` | a [`get`](Store::get) for each key |
//! | `updateIf`: `valueIfMissing`, a returned value | [`upsert_if`](Store::upsert_if), [`replace_if`](Store::replace_if) |
//! | `updateIf`: `predicateKey` | a `get` before it: nothing happens in between |
//! | `batch` of a collection | a [`transaction`](Store::transaction) |
//! | `migrate`, `watch`, `live`, `pin`, `export`, `blobs` and other codecs than structs | not yet |
//!
//! Two things differ from redb and fjall: reading needs `&mut` of the store, since it may load what is not in memory (a
//! [`Reader`] reads by `&`), and a [`Snapshot`], which may be kept anywhere, is read through its store.

// In browsers the engine during a call is a guard, and passed as `&mut` of it; here it is a reference.
#![cfg_attr(not(target_arch = "wasm32"), allow(clippy::needless_borrow))]

mod batch;
mod catalog;
mod changes;
mod collection;
mod declared_indexes;
mod descriptor;
mod error;
mod expiry;
mod history;
mod index;
#[cfg(feature = "json")]
mod json_lines;
#[cfg(not(target_arch = "wasm32"))]
mod lock_file;
#[cfg(not(target_arch = "wasm32"))]
mod locked_file;
#[cfg(not(target_arch = "wasm32"))]
mod open;
mod pack;
#[cfg(not(target_arch = "wasm32"))]
mod process_id;
mod range;
mod read_errors;
#[cfg(not(target_arch = "wasm32"))]
mod read_only_file;
mod reader;
mod schema_diff;
mod slice;
mod snapshots;
#[cfg(not(target_arch = "wasm32"))]
mod std_file;
mod store;
#[cfg(not(target_arch = "wasm32"))]
mod system;
mod undo;
mod updates;
mod walk;

// What differs between files of an operating system and those of a browser.
#[cfg(target_arch = "wasm32")]
use crate::web::system;

pub use batch::Batch;
pub use changes::{Changes, FollowFrom, Follower, News};
pub use collection::{Collection, Entry, Owned, OwnedEntry, Records};
pub use declared_indexes::{CollectionOptions, IndexBy};
pub use error::{Error, Loss};
pub use expiry::{Expiry, SetOptions, Versioned};
pub use history::{
    ChangeKind, FlatLog, Log, LogDamage, LogItem, LogPoint, LogRange, LogRecord, LogTransaction,
    Transaction,
};
#[cfg(feature = "json")]
pub use json_lines::{JsonLines, JsonLinesReader};
pub use range::KeyRange;
pub use reader::{ReadCollection, ReadEntries, ReadRecords, Reader};
pub use slice::Slice;
pub use snapshots::{Snapshot, SnapshotCollection, SnapshotReader};
#[cfg(not(target_arch = "wasm32"))]
pub use std_file::StdFile;
pub use store::{Entries, Keys, OpenOptions, Pair, Store};
