//! Verification of the file against the index.

use alloc::vec::Vec;

use crate::error::Error;
use crate::file::File;
use crate::format::KEYSPACE_ENGINE;
use crate::format::record::{KIND_CHUNKED, KIND_SET};
use crate::format::system_records::ChunksRef;
use crate::log::Log;
use crate::log::verify::{ProblemKind, Verified, VerifyCursor};

use super::Store;

/// Added to an offset in a segment, all of which are multiples of 8: this part verifies the chunked values
/// whose records lie from there on.
const CHUNKED_PART: u32 = 2;

impl<F: File> Store<F> {
    /// Verifies the next part of the file, of at most the size of a segment or a value. It begins at
    /// [`VerifyCursor::default`], continues where the last step ended, and is done when that is the beginning
    /// again. The store may be used in between. Nothing is written.
    ///
    /// A header, trailer or superblock that was lost in a crash before it was flushed is not reported if
    /// its other copy exists: opening repairs it.
    ///
    /// # Errors
    /// The file's error. Damage is reported and is no error here.
    pub fn verify(&mut self, cursor: VerifyCursor) -> Result<Verified, Error> {
        self.load_or_survey(usize::MAX)?;
        if cursor.part % 8 == CHUNKED_PART {
            return self.verify_chunked_values(cursor);
        }
        let is_limited = self.is_limited();
        let Store { file, log, index, key_hash, keyspaces, .. } = self;
        let mut first = None;
        let mut found = log.verify(file, cursor, |position, header, key| {
            let is_named = header.can_be_current()
                && match is_limited {
                    true => index.contains_position(position),
                    false => index.contains(key_hash.hash(header.keyspace(), key), position),
                };
            // Until the sweep, the index contains records of cleared keyspaces whose values may be gone.
            let counts = !keyspaces.has_cleared(header.keyspace(), header.version);
            if is_named && counts && header.kind == KIND_CHUNKED {
                first = first.or(Some(position));
            }
            is_named.then_some(counts)
        })?;
        if let Some(first) = first.filter(|_| found.next.unit != cursor.unit) {
            let (_, offset) = log.geometry().locate(first);
            found.next = VerifyCursor { unit: cursor.unit, part: offset as u32 | CHUNKED_PART };
        }
        Ok(found)
    }

    /// Verifies that chunked values whose records lie in a segment have all of their chunks: some of the
    /// values at a time.
    fn verify_chunked_values(
        &mut self,
        VerifyCursor { unit, part }: VerifyCursor,
    ) -> Result<Verified, Error> {
        let mut found = Verified { next: self.log.position_after(unit), ..Verified::default() };
        let geometry = self.log.geometry();
        // The file may have shrunk since the last step.
        let slot = Log::slot_of_unit(unit).filter(|&slot| slot < self.log.slot_count());
        let Some(slot) = slot else { return Ok(found) };
        let mut done = 0;
        for (offset, size, chunks) in self.chunked_values_from(slot, part - CHUNKED_PART)? {
            if done > geometry.segment() as u64 || found.what != ProblemKind::Nothing {
                found.next = VerifyCursor { unit, part: offset | CHUNKED_PART };
                break;
            }
            if !self.has_all_chunks(&chunks)? {
                found.what = ProblemKind::Extent;
                found.at = geometry.slot_start(slot) + u64::from(offset);
                found.length = size;
            }
            done += chunks.length + 64 * u64::from(chunks.count);
        }
        Ok(found)
    }

    /// Returns the chunked values whose records lie in a segment from an offset on: the records' offsets,
    /// bytes, and references. Empty if the segment is damaged, which its frames report.
    fn chunked_values_from(
        &mut self,
        slot: u32,
        from: u32,
    ) -> Result<Vec<(u32, u64, ChunksRef)>, Error> {
        let geometry = self.log.geometry();
        self.log.load_valid_segment(&mut self.file, slot)?;
        let mut all = Vec::new();
        self.log.each_record(slot, |position| {
            let (_, offset) = geometry.locate(position);
            let record = self.log.record_at(position);
            if let Some(chunks) = record.chunks().filter(|_| offset >= from as usize)
                && !self.is_cleared(record.header)
                && self.is_live(self.hash(record.header.keyspace(), record.key), position)
            {
                all.push((offset as u32, record.header.size() as u64, chunks));
            }
        });
        Ok(all)
    }

    /// Whether a value is as long as its chunks together. Damaged chunks are reported by their own
    /// segments.
    fn has_all_chunks(&mut self, chunks: &ChunksRef) -> Result<bool, Error> {
        let mut bytes = 0;
        for index in 0..chunks.count {
            let (key, hash) = self.chunk(chunks, index);
            match self.find_outlined(hash, KEYSPACE_ENGINE, &key) {
                Ok(Some(at)) => match self.log.record_in(at.addr).header {
                    header if header.kind == KIND_SET => bytes += u64::from(header.value_len),
                    _ => return Ok(false),
                },
                Ok(None) => return Ok(false),
                Err(Error::Corruption(_)) => return Ok(true),
                Err(error) => return Err(error),
            }
        }
        Ok(bytes == chunks.length)
    }
}
