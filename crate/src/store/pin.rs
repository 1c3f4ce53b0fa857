//! Pins: values that stay in memory, unchanged, until they are released.

use crate::error::Error;
use crate::file::File;

use super::{Staged, Store};

/// Identifies a pin.
pub type PinId = u32;

impl<F: File> Store<F> {
    /// Pins the value of a key, committing the open batch first because written records are never changed
    /// in place. None when the key is absent.
    ///
    /// # Errors
    /// As for [`commit`](Store::commit) and [`get`](Store::get).
    pub fn pin(&mut self, keyspace: u32, key: &[u8]) -> Result<Option<PinId>, Error> {
        if !matches!(self.staging.staged, Staged::Nothing) {
            return Err(Error::Reentrancy);
        }
        self.commit()?;
        let hash = self.hash(keyspace, key);
        let Some(found) = self.find_outlined(hash, keyspace, key)? else { return Ok(None) };
        if self.is_expired(keyspace, found) {
            return Ok(None);
        }
        let pin = match self.log.record_in(found.addr).chunks() {
            Some(chunks) => {
                self.assemble(&chunks)?;
                self.log.pin_assembled(chunks)
            }
            None => self.log.pin(&mut self.file, found.addr)?,
        };
        let free = self.pins.iter().position(Option::is_none).unwrap_or(self.pins.len());
        if free == self.pins.len() {
            self.pins.push(None);
        }
        self.pins[free] = Some(pin);
        Ok(Some(free as PinId))
    }

    /// The pinned value; none when the pin has ended.
    #[must_use]
    pub fn pinned(&mut self, id: PinId) -> Option<&[u8]> {
        let pin = self.pins.get(id as usize)?.as_ref()?;
        Some(self.log.pinned(pin))
    }

    /// Ends a pin. Its memory may be reused from the next turn on.
    pub fn unpin(&mut self, id: PinId) {
        if let Some(pin) = self.pins.get_mut(id as usize).and_then(Option::take) {
            self.log.unpin(pin);
        }
    }
}
