//! Errors of reading a file that is open for reading only.

use super::Error;
use super::system::ReadOnlyFile;

/// The error that says so, if another program has written to a file since it was opened for reading only.
pub(super) fn change_of(file: Option<&ReadOnlyFile>) -> Option<Error> {
    file.and_then(ReadOnlyFile::change)
}

/// What was read, or its error. What looks like damage is none if another program has changed the file.
pub(super) fn read<T, E: Into<Error>>(
    file: Option<&ReadOnlyFile>,
    done: Result<T, E>,
) -> Result<T, Error> {
    use crate::error::Error as Engine;
    done.map_err(|error| {
        let error = error.into();
        let seems_damaged = matches!(
            error,
            Error::Engine(
                Engine::Corruption(_) | Engine::NotADatabase | Engine::UnsupportedFormat { .. }
            )
        );
        let change = if seems_damaged { change_of(file) } else { None };
        change.unwrap_or(error)
    })
}
