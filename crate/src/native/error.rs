//! The errors of the native API, with the codes of the TypeScript package.

use std::path::{Path, PathBuf};
use std::{fmt, io};

use crate::schema::Malformed;

/// How an open database lost its file, so that the next opening finds another one or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The file was removed or moved away.
    Removed,
    /// Another file replaced it.
    Replaced,
    /// The lock was removed, or taken over by another process while this one was suspended.
    TakenOver,
}

/// Why a call failed. [`code`](Error::code) is the same as in TypeScript and never changes.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// An error of the engine.
    Engine(crate::error::Error),
    /// The database is already open, in another process or in this one.
    Busy {
        /// The path of the database.
        path: PathBuf,
        /// The process that has it open, if known.
        pid: Option<u32>,
    },
    /// The file or its lock cannot be used.
    Unavailable {
        /// The path of the file.
        path: PathBuf,
        /// The error of the system.
        cause: io::Error,
    },
    /// The open file is not at its path any more. What was written since will not be found, and
    /// further writes are refused; reads still work. Calls of collections report
    /// [`crate::error::Error::Lost`] instead.
    FileLost {
        /// The path of the database.
        path: PathBuf,
        /// How it was lost.
        reason: Loss,
    },
    /// The file was opened for reading only, which keeps no writer out, and another program has changed it since: the data
    /// to be read is gone. It is not damaged. Close the store and open it again.
    FileChanged(PathBuf),
    /// The file does not exist and was not to be created.
    NotFound(PathBuf),
    /// The stored collection has another schema than the program.
    SchemaMismatch {
        /// The collection.
        collection: String,
        /// The stored schema and the expected one.
        reason: String,
    },
    /// A key or a value does not match the collection.
    BadArgument(Malformed),
    /// A stored value does not match its schema.
    MalformedValue(Malformed),
    /// A line of JSON lines is no record of the collection.
    MalformedLine {
        /// Its number, from 1 on.
        line: u64,
        /// What is wrong with it, with the path of the field.
        cause: Malformed,
    },
    /// Another record has the same entry in a unique index.
    NotUnique {
        /// The collection.
        collection: String,
        /// The index.
        index: String,
    },
    /// The key has another version than [`SetOptions::if_version`](super::SetOptions::if_version) expected. Nothing was
    /// written.
    Conflict {
        /// The expected version; 0 for a missing key.
        expected: u64,
        /// The version that the key has; 0 if it is missing.
        found: u64,
    },
    /// A transaction cannot be undone, because of what has happened since. Nothing was changed.
    CannotUndo {
        /// The number of the transaction.
        number: u64,
        /// What has happened, with the names of at most ten keys.
        reason: String,
    },
    /// The snapshot is of another store, or of one that was opened again since.
    SnapshotClosed,
    /// The database has the maximum number of collections and indexes. Nothing was written.
    TooManyCollections,
}

impl Error {
    /// The stable code, the same as in TypeScript.
    #[must_use]
    pub fn code(&self) -> &'static str {
        use crate::error::Error as Engine;
        match self {
            Error::Engine(error) => match error {
                Engine::EmptyKey
                | Engine::KeyTooLong
                | Engine::ValueTooLong
                | Engine::ExpiringKeyTooLong
                | Engine::TooManyMarks
                | Engine::CursorInFuture
                | Engine::NoHistory
                | Engine::PointsOnly => "VARVE_BAD_ARGUMENT",
                Engine::OtherHistory => "VARVE_OPTIONS_MISMATCH",
                Engine::Quota | Engine::Full | Engine::TooManySnapshots => "VARVE_QUOTA_EXCEEDED",
                Engine::CursorExpired => "VARVE_CURSOR_EXPIRED",
                Engine::Io => "VARVE_STORAGE",
                Engine::Lost => "VARVE_FILE_LOST",
                Engine::Poisoned => "VARVE_DATABASE_POISONED",
                Engine::Corruption(_) => "VARVE_CORRUPTION",
                Engine::NotADatabase | Engine::UnsupportedFormat { .. } => {
                    "VARVE_UNSUPPORTED_FORMAT"
                }
                Engine::Reentrancy => "VARVE_REENTRANCY",
                Engine::ViewsHeld => "VARVE_OUT_OF_MEMORY",
                Engine::NotOpen => "VARVE_DATABASE_CLOSED",
                Engine::ReadOnly => "VARVE_READ_ONLY",
                Engine::Aborted | Engine::Misuse => "VARVE_INTERNAL",
            },
            Error::Busy { .. } => "VARVE_DATABASE_BUSY",
            Error::Unavailable { .. } => "VARVE_STORAGE_UNAVAILABLE",
            Error::FileLost { .. } => "VARVE_FILE_LOST",
            Error::FileChanged(_) => "VARVE_STORAGE",
            Error::NotFound(_) => "VARVE_DATABASE_NOT_FOUND",
            Error::SchemaMismatch { .. } => "VARVE_SCHEMA_MISMATCH",
            Error::BadArgument(_) => "VARVE_BAD_ARGUMENT",
            Error::MalformedValue(_) | Error::MalformedLine { .. } => "VARVE_MALFORMED_VALUE",
            Error::NotUnique { .. } => "VARVE_UNIQUE_VIOLATION",
            Error::Conflict { .. } | Error::CannotUndo { .. } => "VARVE_CONFLICT",
            Error::SnapshotClosed => "VARVE_SNAPSHOT_CLOSED",
            Error::TooManyCollections => "VARVE_QUOTA_EXCEEDED",
        }
    }

    #[cfg(not(target_arch = "wasm32"))]
    pub(super) fn unavailable(path: &Path, cause: io::Error) -> Error {
        Error::Unavailable { path: path.to_path_buf(), cause }
    }
}

impl From<crate::error::Error> for Error {
    fn from(error: crate::error::Error) -> Self {
        Error::Engine(error)
    }
}

/// A part of a record that was read is malformed.
impl From<Malformed> for Error {
    fn from(malformed: Malformed) -> Self {
        Error::MalformedValue(malformed)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Engine(error) => error.fmt(f),
            #[cfg(target_arch = "wasm32")]
            Error::Busy { path, .. } => write!(
                f,
                "the database {} is open in another worker or tab, or in this one; only one may have it open: close it \
                 there first",
                path.display()
            ),
            #[cfg(not(target_arch = "wasm32"))]
            Error::Busy { path, pid } => {
                write!(f, "the database {} is open in ", path.display())?;
                match pid {
                    Some(pid) if *pid == std::process::id() => write!(f, "this process ({pid})")?,
                    Some(pid) => write!(f, "process {pid}")?,
                    None => f.write_str("another program, or is being opened")?,
                }
                f.write_str("; only one process may have it open: close it there first")
            }
            Error::Unavailable { path, cause } => {
                write!(f, "{} cannot be used: {cause}", path.display())
            }
            Error::FileLost { path, reason } => {
                let path = path.display();
                match reason {
                    Loss::Removed => write!(f, "the file {path} was removed or moved away")?,
                    Loss::Replaced => write!(f, "another file replaced {path}")?,
                    Loss::TakenOver => write!(
                        f,
                        "the lock of {path} was removed, or taken over by another process"
                    )?,
                }
                f.write_str(
                    " while this program had it open, so nothing more can be written to it; reads still work: \
                     save what is needed, then open the database again",
                )
            }
            Error::FileChanged(path) => write!(
                f,
                "the file {} was changed by another program after this one opened it read-only, and the data to be \
                 read is gone; close the store and open it again",
                path.display()
            ),
            Error::NotFound(path) => {
                write!(f, "there is no database {}", path.display())?;
                let mut named = path.clone().into_os_string();
                named.push(".varve");
                // TypeScript opens it by this name and adds the extension itself.
                if Path::new(&named).exists() {
                    write!(f, "; did you mean {}?", Path::new(&named).display())?;
                }
                Ok(())
            }
            Error::SchemaMismatch { collection, reason } => {
                write!(f, "the collection {collection:?} has another schema: {reason}")
            }
            Error::BadArgument(malformed) => malformed.fmt(f),
            Error::MalformedValue(malformed) => {
                write!(f, "a stored value is malformed: {malformed}")
            }
            Error::MalformedLine { line, cause } => write!(f, "Line {line}: {cause}"),
            Error::TooManyCollections => f.write_str(
                "the database has reached its limit of 65,534 collections and indexes; nothing was \
                 written. Put records that differ in a name into one collection, whose keys are tuples \
                 that begin with that name",
            ),
            Error::Conflict { expected, found } => {
                f.write_str("nothing was written: ")?;
                match found {
                    0 => f.write_str("the key is missing")?,
                    found => write!(f, "the key has version {found}")?,
                }
                match expected {
                    0 => f.write_str(", but it should be missing")?,
                    expected => write!(f, ", but version {expected} was expected")?,
                }
                f.write_str("; get the entry again and decide again")
            }
            Error::CannotUndo { number, reason } => write!(
                f,
                "the transaction {number} cannot be undone, because {reason}; nothing was changed"
            ),
            Error::SnapshotClosed => f.write_str(
                "the snapshot is of another store, or of one that was opened again since; take another",
            ),
            Error::NotUnique { collection, index } => write!(
                f,
                "another record of {collection:?} already has this entry in its unique index {index:?}; nothing was written"
            ),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Engine(error) => Some(error),
            Error::Unavailable { cause, .. } => Some(cause),
            Error::BadArgument(malformed) | Error::MalformedValue(malformed) => Some(malformed),
            Error::MalformedLine { cause, .. } => Some(cause),
            _ => None,
        }
    }
}
