//! [`Store::pack`]: forgets the history before a commit.

use std::ops::ControlFlow;

use crate::store::Stats;

use super::{Error, Store};

impl Store {
    /// Forgets the history before a commit, which is given as for [`snapshot_at`](Store::snapshot_at); its space is used
    /// again. It commits first. Returns the number of the first commit that can still be shown: an earlier one if a mark of
    /// [`retain`](Store::retain) keeps more, a later one if more was forgotten before. Open snapshots stay as they are.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = std::env::temp_dir().join(format!("varve-doc-pack-{}", std::process::id()));
    /// # let path = folder.join("shop.varve");
    /// use varve::native::{OpenOptions, Store};
    ///
    /// let options = OpenOptions { keep_history: Some(true), ..OpenOptions::default() };
    /// let mut store = Store::open_with(&path, options)?;
    /// let first = store.set("price", b"12")?;
    /// store.commit()?;
    /// let second = store.set("price", b"13")?;
    /// store.commit()?;
    /// store.pack(second)?;
    /// assert_eq!(store.snapshot_at(first).unwrap_err().code(), "VARVE_CURSOR_EXPIRED");
    /// let then = store.snapshot_at(second)?;
    /// assert_eq!(store.at(&then)?.get("price")?, Some(&b"13"[..]));
    /// # drop(then);
    /// # store.close()?;
    /// # std::fs::remove_dir_all(folder)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// With the code `VARVE_BAD_ARGUMENT` if the file does not keep its history, or for a number that no commit has reached;
    /// `VARVE_REENTRANCY` in a transaction; otherwise as for [`commit`](Store::commit).
    pub fn pack(&mut self, before: u64) -> Result<u64, Error> {
        self.pack_with(before, |_| ControlFlow::Continue(()))
    }

    /// As [`pack`](Store::pack), and calls `progress` after each step with the sizes. If it breaks, packing ends: the history
    /// before that commit cannot be shown any more, and the rest of its space is freed by the next call.
    ///
    /// # Errors
    /// As for [`pack`](Store::pack).
    pub fn pack_with(
        &mut self,
        before: u64,
        mut progress: impl FnMut(&Stats) -> ControlFlow<()>,
    ) -> Result<u64, Error> {
        self.begin_write()?;
        let begun = self.engine.lock().pack(before);
        let up_to = self.with_loss_reason(begun)?;
        let packing = Packing(self);
        loop {
            let more = packing.0.engine.lock().maintain(false);
            let more = packing.0.with_loss_reason(more)?;
            packing.0.engine.lock().end_turn();
            if progress(&packing.0.engine.look().stats()).is_break() || !more {
                return Ok(up_to);
            }
        }
    }
}

/// Ends packing when dropped, also by an error or a panic of `progress`.
struct Packing<'s>(&'s mut Store);

impl Drop for Packing<'_> {
    fn drop(&mut self) {
        self.0.engine.lock().end_packing();
    }
}
