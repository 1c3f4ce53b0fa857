//! What differs between the files of an operating system and those of a browser, for the latter; for the former see
//! `native/system.rs`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::native::Error;

pub(crate) use super::opfs_file::OpfsFile as DatabaseFile;
pub(crate) use super::turns::OpenEngine;

/// A file that is open for reading only. No writer can have it open meanwhile.
#[derive(Debug)]
pub(crate) struct ReadOnlyFile;

impl ReadOnlyFile {
    /// The error that says so, if another program has written to it since: none can.
    #[allow(clippy::unused_self, reason = "the file of an operating system looks at itself")]
    pub(crate) fn change(&self) -> Option<Error> {
        None
    }
}

/// The time by the clock.
pub(crate) fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(js_sys::Date::now().max(0.0) as u64)
}

/// Schedules the commit of what this turn writes.
pub(crate) fn commit_later(engine: &OpenEngine) {
    engine.commit_later();
}

/// Whether a turn has ended since the last call. It is said once.
pub(crate) fn has_turn_ended(engine: &OpenEngine) -> bool {
    engine.has_turn_ended()
}

/// Why a commit or a flush failed that the program did not call. It is returned once.
pub(crate) fn take_failure(engine: &OpenEngine) -> Option<crate::error::Error> {
    engine.take_failure()
}
