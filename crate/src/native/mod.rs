//! The engine for native programs: files with locks, collections of Rust structs, and databases in
//! memory. Pages read what it writes, and the reverse.
//!
//! | name | what it is |
//! |---|---|
//! | [`Store`] | a database file that this process has open |
//! | [`Collection`] | records of one type in it, with their indexes |
//! | [`Reader`] | a database in memory, read by any number of threads |
//! | [`KeyRange`] | a range of keys and its order |
//! | [`Log`] | the log as history: a walk over its transactions |
//! | [`Past`] | a past commit of a file that keeps its history |
//! | [`Error`] | the errors, with the codes of TypeScript |

mod catalog;
mod collection;
mod descriptor;
mod error;
mod history;
mod index;
mod lock_file;
mod locked_file;
mod past;
mod process_id;
mod range;
mod reader;
mod schema_diff;
mod std_file;
mod store;

pub use collection::{Collection, Entry, Records};
pub use error::{Error, Loss};
pub use history::{
    ChangeKind, FlatLog, Log, LogDamage, LogItem, LogPoint, LogRange, LogRecord, LogTransaction,
    Transaction,
};
pub use past::Past;
pub use range::KeyRange;
pub use reader::{ReadCollection, Reader};
pub use std_file::StdFile;
pub use store::{Entries, OpenOptions, Pair, Store};
