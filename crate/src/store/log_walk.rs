//! The log as history.

use crate::error::Error;
use crate::file::File;
use crate::format::record::{KIND_CHUNKED, KIND_EXTENT, RecordHeader};
use crate::format::system_records::{ChunksRef, ExtentRef};
use crate::log::log_walk::LogWalk;

use super::Store;

impl<F: File> Store<F> {
    /// Starts a walk over the log, transaction by transaction, the oldest first: those whose numbers are above
    /// `since` and at most `until`. It shows what was committed until now, as far as compaction left it. A number is
    /// a version: that of the transaction's first change.
    #[must_use]
    pub fn begin_log_walk(&self, since: u64, until: u64) -> LogWalk {
        self.log.begin_log_walk(since, until)
    }

    /// As [`begin_log_walk`](Store::begin_log_walk), from the newest transaction to the oldest. The records of each come
    /// in the order in which they were written, and a gap between the transactions around it. What compaction moves
    /// meanwhile is shown at the end.
    #[must_use]
    pub fn begin_log_walk_back(&self, since: u64, until: u64) -> LogWalk {
        self.log.begin_log_walk_back(since, until)
    }

    /// Goes on to what the next segment has: [`LogWalk::parts`]. Returns false at the end. The store may be used, and
    /// written to, between the steps.
    ///
    /// # Errors
    /// The file's error, after which the step can be repeated. Damage is reported as a part and is no error.
    pub fn walk_log(&mut self, walk: &mut LogWalk) -> Result<bool, Error> {
        self.load_history(false);
        self.log.walk_next(&mut self.file, walk)
    }

    /// The value of a record of the log, by its header, its key and its own value bytes, if these only describe where the
    /// value is. None if it is not there any more, because the key was written again, or if it is damaged.
    ///
    /// # Errors
    /// As for [`get`](Store::get), except for damage.
    pub fn walked_value(
        &mut self,
        header: &RecordHeader,
        key: &[u8],
        described: &[u8],
    ) -> Result<Option<&[u8]>, Error> {
        let is_there = self.described_value(header.kind, described)?.is_some();
        if is_there {
            return self.described_value(header.kind, described);
        }
        // The value may have been moved, and a later record of the same version says where to.
        let hash = self.hash(header.keyspace(), key);
        let Some(at) = self.find_outlined(hash, header.keyspace(), key)? else { return Ok(None) };
        let found = self.log.record_in(at.addr);
        if found.header.version != header.version {
            return Ok(None);
        }
        let (kind, described) = (found.header.kind, found.value.to_vec());
        self.described_value(kind, &described)
    }

    fn described_value(&mut self, kind: u8, described: &[u8]) -> Result<Option<&[u8]>, Error> {
        if kind == KIND_EXTENT {
            let Some(extent) = ExtentRef::decode(described) else { return Ok(None) };
            return self.log.shown_extent(&mut self.file, &extent);
        }
        let chunks = ChunksRef::decode(described).filter(|_| kind == KIND_CHUNKED);
        let Some(chunks) = chunks else { return Ok(None) };
        match self.assemble(&chunks) {
            Err(Error::Corruption(_)) => return Ok(None),
            assembled => assembled?,
        }
        Ok(Some(self.log.assembled_for_view(&chunks, false)))
    }
}
