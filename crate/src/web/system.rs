//! What differs between the files of an operating system and those of a browser, for the latter; for the former see
//! `native/system.rs`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::native::Error;

pub(crate) use super::turns::{InUse, OpenEngine};

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
