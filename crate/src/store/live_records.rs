//! Locations of live records in the file, for callers that have the whole file in memory.

use alloc::vec::Vec;
use core::ops::Range;

use crate::error::{Error, damaged};
use crate::file::File;
use crate::format::record::{KIND_CLEAR, KIND_SET, SIZE};
use crate::format::segment;
use crate::log::buffer_pool::AccessKind;

use super::Store;

/// The locations of a record's key and value in the file.
#[derive(Clone, Debug)]
pub(crate) struct InFile {
    pub key: Range<u64>,
    pub value: Value,
}

/// A value in the file.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    /// Stored as one range of the file.
    At(Range<u64>),
    /// Assembled from chunks.
    Assembled(Vec<u8>),
}

impl<F: File> Store<F> {
    /// The keyspaces with keys.
    pub(crate) fn keyspaces(&self) -> Vec<u32> {
        self.keyspaces.counts().filter(|(_, count)| *count > 0).map(|(id, _)| id).collect()
    }

    /// Returns the locations of all records of a keyspace that have not expired, in the order of keys. Each record is
    /// verified, and so is the value of an extent. Nothing may have been written since opening.
    ///
    /// # Errors
    /// As for [`get`](Store::get), and [`Error::Corruption`] for a value that is damaged.
    pub(crate) fn all_in_file(&mut self, keyspace: u32) -> Result<Vec<InFile>, Error> {
        let keys: Vec<Vec<u8>> = self.keys(keyspace)?;
        // A malicious file may list other keys in order than it has.
        if keys.len() as u64 != self.live_count(keyspace)? {
            return Err(damaged(0));
        }
        keys.iter().map(|key| self.in_file(keyspace, key)).collect()
    }

    fn in_file(&mut self, keyspace: u32, key: &[u8]) -> Result<InFile, Error> {
        let found = self.find_for(keyspace, key, AccessKind::Own)?.ok_or(damaged(0))?;
        let geometry = self.log.geometry();
        let (slot, offset) = geometry.locate(found.position);
        let at = geometry.slot_start(slot) + offset as u64;
        let record = self.log.record_in(found.addr);
        let value = match (record.header.kind, record.extent()) {
            (KIND_SET | KIND_CLEAR, _) => {
                let from = at + record.header.value_offset() as u64;
                Value::At(from..from + u64::from(record.header.value_len))
            }
            (_, None) => Value::Assembled(self.value(found.addr)?.to_vec()),
            (_, Some(extent)) => {
                let from = geometry.slot_start(extent.slot) + segment::SIZE as u64;
                if !self.log.verify_extent(&mut self.file, &extent)? {
                    return Err(damaged(from));
                }
                Value::At(from..from + extent.length)
            }
        };
        let from = at + SIZE as u64;
        Ok(InFile { key: from..from + key.len() as u64, value })
    }
}
