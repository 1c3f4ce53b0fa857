//! Verifying the file against the index.

use crate::error::Error;
use crate::file::File;
use crate::format::record::{KIND_CLEAR, KIND_EXTENT, KIND_PIECES, KIND_SET};
use crate::log::verify::{Spot, Verified};

use super::Store;

impl<F: File> Store<F> {
    /// Verifies the next piece of the file, of the size of a segment or a value at most. It begins at
    /// [`Spot::default`], goes on where the last step says, and has ended when that is where it began.
    /// In between the store may be used. Nothing is written.
    ///
    /// # Errors
    /// What the file said. Damage is no error here: it is reported.
    pub fn verify(&mut self, spot: Spot) -> Result<Verified, Error> {
        let Store { file, log, index, key_hash, .. } = self;
        log.verify(file, spot, |position, header, key| {
            let lives = matches!(header.kind, KIND_SET | KIND_EXTENT | KIND_PIECES | KIND_CLEAR);
            lives && index.holds(key_hash.hash(header.space(), key), position)
        })
    }
}
