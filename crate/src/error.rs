//! The errors of the engine, with the codes that are passed to TypeScript.

use alloc::boxed::Box;
use core::fmt;

use crate::file::IoError;

/// An error of the engine. The numeric [`code`](Error::code) is stable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// A key without bytes.
    EmptyKey,
    /// A key above 65,535 bytes, or one that fits in no segment of this file.
    KeyTooLong,
    /// A value above 16 MiB.
    ValueTooLong,
    /// The storage is full; the refused call changed nothing.
    Quota,
    /// The file could not be read or written.
    Io,
    /// The file handle was lost.
    Lost,
    /// An earlier flush or rollback failed: reads work, writes are refused.
    Poisoned,
    /// Flushed data is damaged.
    Corruption(Box<Damage>),
    /// The file is not a varve database.
    NotADatabase,
    /// A newer format, or a feature that is unknown to this build.
    UnsupportedFormat {
        /// Major version found.
        major: u16,
        /// Incompatible feature bits that are unknown to this build.
        features: Box<u64>,
    },
    /// A write while a staged record is open.
    Reentrancy,
    /// A read inside a callback needs memory that views of this turn use.
    ViewsHeld,
    /// No store is open in this instance.
    NotOpen,
    /// The caller's callback failed; every byte was restored.
    Aborted,
    /// The store was opened without order, so ranges are not available.
    PointsOnly,
    /// A call in the wrong order.
    Misuse,
    /// A write to a store that was opened read-only.
    ReadOnly,
    /// The file has as many segments as positions can address.
    Full,
    /// What happened since a version is not known any more.
    CursorExpired,
    /// A version that no commit has reached.
    CursorInFuture,
    /// As many snapshots are open as can be.
    TooManySnapshots,
    /// The marks have reached their limit of bytes.
    TooManyMarks,
    /// The key is too long for an entry in the order of expiry.
    ExpiringKeyTooLong,
    /// The file keeps its history and was to be opened as one that does not, or the other way round.
    OtherHistory,
    /// The file does not keep its history.
    NoHistory,
}

/// The location of damaged flushed data, and what is intact after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// File position of the first damaged frame, or 0 if it is unknown.
    pub position: u64,
    /// Number of the frame expected there.
    pub expected_frame: u64,
    /// Frames below this number are known to have been flushed.
    pub flushed_frames: u64,
    /// Valid frames found after the damage.
    pub intact_frames: u64,
    /// Their bytes.
    pub intact_bytes: u64,
    /// Whether the commits before the damage can be kept as they were. Compacted records may exist
    /// only after the damage.
    pub is_prefix_whole: bool,
    /// The number of keys in the commits before the damage.
    pub keys: u64,
    /// The last version in the commits before the damage.
    pub version: u64,
}

impl Error {
    /// The stable number of this error.
    #[must_use]
    pub fn code(&self) -> u32 {
        match self {
            Error::EmptyKey => 1,
            Error::KeyTooLong => 2,
            Error::ValueTooLong => 3,
            Error::Quota => 4,
            Error::Io => 5,
            Error::Lost => 6,
            Error::Poisoned => 7,
            Error::Corruption(_) => 8,
            Error::NotADatabase => 9,
            Error::UnsupportedFormat { .. } => 10,
            Error::Reentrancy => 11,
            Error::ViewsHeld => 12,
            Error::NotOpen => 13,
            Error::Aborted => 14,
            Error::PointsOnly => 15,
            Error::Misuse => 17,
            Error::ReadOnly => 18,
            Error::Full => 19,
            Error::CursorExpired => 20,
            Error::CursorInFuture => 21,
            Error::TooManySnapshots => 22,
            Error::TooManyMarks => 23,
            Error::ExpiringKeyTooLong => 24,
            Error::OtherHistory => 25,
            Error::NoHistory => 26,
        }
    }
}

// Boxed like other large variants, because results are passed everywhere and rarely contain this
// error.
impl From<Damage> for Error {
    fn from(damage: Damage) -> Self {
        Error::Corruption(Box::new(damage))
    }
}

impl From<IoError> for Error {
    fn from(error: IoError) -> Self {
        match error {
            IoError::Quota => Error::Quota,
            IoError::Lost => Error::Lost,
            IoError::Other => Error::Io,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::EmptyKey => f.write_str("a key must have at least one byte"),
            Error::KeyTooLong => f.write_str(
                "a key may have at most 65,535 bytes; store what is longer in the value, or use its hash as \
                 the key",
            ),
            Error::ValueTooLong => f.write_str(
                "a value may have at most 16,777,216 bytes (16 MiB); divide it into parts under keys of \
                 their own, written in one transaction",
            ),
            Error::Quota => f.write_str("the storage is full; nothing of this call was written"),
            Error::Io => f.write_str("the file could not be read or written"),
            Error::Lost => f.write_str(
                "the file was removed or replaced, or its lock or handle taken away, while it was open, so nothing \
                 more can be written to it; reopen the database",
            ),
            Error::Poisoned => f.write_str(
                "an earlier flush or rollback failed; reads work, writes are refused: reopen the database",
            ),
            Error::Corruption(d) => write!(
                f,
                "flushed data is damaged at byte {}: frame {} is unreadable although frames below {} \
                 were flushed; {} frames ({} bytes) are intact beyond it; nothing was changed",
                d.position, d.expected_frame, d.flushed_frames, d.intact_frames, d.intact_bytes
            ),
            Error::NotADatabase => f.write_str("the file is not a varve database; it was not changed"),
            Error::UnsupportedFormat { major, features } => write!(
                f,
                "the file has format {major} with unknown features {:#x}; update varve to open it",
                **features
            ),
            Error::Reentrancy => {
                f.write_str("the database was written to from inside an update; write after it returns")
            }
            Error::ViewsHeld => f.write_str(
                "the views of this turn use all memory, so nothing can be read inside a callback: \
                 read before the update, yield, or open the database with more memory",
            ),
            Error::NotOpen => f.write_str("no database, or no such snapshot, is open in this instance"),
            Error::Aborted => f.write_str("the update failed; every byte was restored"),
            Error::PointsOnly => {
                f.write_str("the database was opened without order; open it with ordered: true")
            }
            Error::ReadOnly => {
                f.write_str("the database was opened for reading only; open it without readOnly to write")
            }
            Error::Full => {
                f.write_str("the file is as large as it can be; nothing of this call was written")
            }
            Error::CursorExpired => f.write_str(
                "compaction has removed a part of what happened since this cursor; begin again with the whole content",
            ),
            Error::CursorInFuture => f.write_str(
                "this cursor is above the last commit: it is of another database, or of another copy of this one",
            ),
            Error::TooManySnapshots => {
                f.write_str("16,383 snapshots are open, the most that can be; drop those that are not needed")
            }
            Error::TooManyMarks => f.write_str(
                "the names of all marks may have about 16 KiB together; drop marks that are not needed",
            ),
            Error::ExpiringKeyTooLong => {
                f.write_str("a key that expires may have at most 65,522 bytes; nothing was written")
            }
            Error::OtherHistory => f.write_str(
                "whether a database keeps its history is decided when it is created: open it without the option",
            ),
            Error::NoHistory => f.write_str(
                "the database does not keep its history; that is decided when it is created",
            ),
            Error::Misuse => f.write_str("calls were made in the wrong order"),
        }
    }
}

impl core::error::Error for Error {}

/// The error for one record or one value that does not match its checksum.
pub(crate) fn damaged(position: u64) -> Error {
    Error::from(Damage { position, ..Damage::default() })
}
