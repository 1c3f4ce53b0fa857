//! An open file of the origin private file system that notices its own removal: see `js/storage/opfs-file.ts`.
//!
//! When the user clears the site's data, a browser removes files that are open: Chromium keeps accepting writes to them,
//! Firefox closes them. Looking a file up is asynchronous, so a flush returns before its check has ended.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use js_sys::Uint8Array;
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::{JsFuture, spawn_local};
use web_sys::{Blob, FileSystemFileHandle, FileSystemReadWriteOptions, FileSystemSyncAccessHandle};

use crate::file::{File, IoError};
use crate::native::Loss;

use super::js;

/// The bytes of a file that hold the identity of its database, which never changes (FORMAT.md, 3).
const IDENTITY: std::ops::Range<u32> = 40..56;
const IDENTITY_BYTES: usize = (IDENTITY.end - IDENTITY.start) as usize;

/// A file that this worker alone has open. All clones are one file.
#[derive(Clone, Debug)]
pub(crate) struct OpfsFile(Rc<Opened>);

#[derive(Debug)]
struct Opened {
    name: PathBuf,
    entry: FileSystemFileHandle,
    handle: FileSystemSyncAccessHandle,
    /// The position of the next call.
    position: FileSystemReadWriteOptions,
    loss: Cell<Option<Loss>>,
    is_written: Cell<bool>,
    is_closed: Cell<bool>,
    /// Whether a check runs, and whether another one has to follow it, because it may have missed a removal.
    is_checking: Cell<bool>,
    checks_again: Cell<bool>,
}

impl OpfsFile {
    pub(super) fn new(
        name: &str,
        entry: FileSystemFileHandle,
        handle: FileSystemSyncAccessHandle,
    ) -> Self {
        OpfsFile(Rc::new(Opened {
            name: PathBuf::from(name),
            entry,
            handle,
            position: FileSystemReadWriteOptions::new(),
            loss: Cell::new(None),
            is_written: Cell::new(false),
            is_closed: Cell::new(false),
            is_checking: Cell::new(false),
            checks_again: Cell::new(false),
        }))
    }

    /// The name of the database and how its file was lost, if it was.
    pub(crate) fn loss(&self) -> Option<(&Path, Loss)> {
        Some((&self.0.name, self.0.loss.get()?))
    }

    /// Checks that the file was not lost, as far as is known, and begins to look again.
    pub(crate) fn assert_current(&self) -> Result<(), IoError> {
        self.0.refuse_lost()?;
        self.check_later();
        Ok(())
    }

    /// Looks whether the file is still there.
    pub(super) async fn check(&self) {
        self.0.compare().await;
    }

    /// Whether something was written to it.
    pub(super) fn is_written(&self) -> bool {
        self.0.is_written.get()
    }

    /// Closes the file, so that others may open it.
    pub(super) fn close(&self) {
        // In Chromium, closing the handle of a removed file never returns. It is closed when it is garbage-collected.
        if !self.0.is_closed.replace(true) && self.0.loss.get().is_none() {
            self.0.handle.close();
        }
    }

    fn check_later(&self) {
        let opened = &self.0;
        if opened.is_checking.replace(true) {
            opened.checks_again.set(true);
            return;
        }
        let opened = Rc::clone(opened);
        spawn_local(async move {
            loop {
                opened.checks_again.set(false);
                opened.compare().await;
                if !opened.checks_again.get() {
                    break;
                }
            }
            opened.is_checking.set(false);
        });
    }
}

impl Opened {
    fn at(&self, at: u64) -> &FileSystemReadWriteOptions {
        self.position.set_at(at as f64);
        &self.position
    }

    fn refuse_lost(&self) -> Result<(), IoError> {
        self.loss.get().map_or(Ok(()), |_| Err(IoError::Lost))
    }

    fn begin_change(&self) -> Result<(), IoError> {
        self.refuse_lost()?;
        self.is_written.set(true);
        Ok(())
    }

    /// The result of a call, or the kind of its error.
    fn done<T>(&self, done: Result<T, JsValue>) -> Result<T, IoError> {
        done.map_err(|error| {
            if self.is_closed_by_browser(&error) {
                self.lose(Loss::Removed);
            }
            io_error(&error)
        })
    }

    /// Whether the error says that the file was closed, although this program did not close it.
    fn is_closed_by_browser(&self, error: &JsValue) -> bool {
        js::name_of(error) == "InvalidStateError" && !self.is_closed.get()
    }

    fn lose(&self, loss: Loss) {
        self.loss.set(self.loss.get().or(Some(loss)));
    }

    /// Compares the file with the one that goes by its name now.
    async fn compare(&self) {
        // After closing, other workers may replace the file.
        if self.is_closed.get() || self.loss.get().is_some() {
            return;
        }
        match self.is_same().await {
            Ok(true) => {}
            Ok(false) => self.lose(Loss::Replaced),
            // A browser that closes the file has removed it.
            Err(error) => {
                if js::name_of(&error) == "NotFoundError" || self.is_closed_by_browser(&error) {
                    self.lose(Loss::Removed);
                }
            }
        }
    }

    /// A replaced file has the same name, so identities are compared. Twice, because an import sets the identity.
    async fn is_same(&self) -> Result<bool, JsValue> {
        for _ in 0..2 {
            let before = self.identity()?;
            let file: Blob = JsFuture::from(self.entry.get_file()).await?.unchecked_into();
            let part = file.slice_with_i32_and_i32(IDENTITY.start as i32, IDENTITY.end as i32)?;
            let there = Uint8Array::new(&JsFuture::from(part.array_buffer()).await?).to_vec();
            if self.is_closed.get() || there == before || there == self.identity()? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn identity(&self) -> Result<Vec<u8>, JsValue> {
        let mut bytes = [0; IDENTITY_BYTES];
        let position = self.at(IDENTITY.start.into());
        let count = self.handle.read_with_u8_array_and_options(&mut bytes, position)?;
        Ok(bytes[..count as usize].to_vec())
    }
}

/// Classifies the error of a file call, as `ioCode` does in the package.
pub(super) fn io_error(error: &JsValue) -> IoError {
    match js::name_of(error).as_str() {
        "QuotaExceededError" => IoError::Quota,
        "InvalidStateError" => IoError::Lost,
        _ => IoError::Other,
    }
}

impl File for OpfsFile {
    fn read(&mut self, buf: &mut [u8], at: u64) -> Result<usize, IoError> {
        let opened = &self.0;
        let done = opened.handle.read_with_u8_array_and_options(buf, opened.at(at));
        Ok(opened.done(done)? as usize)
    }

    fn write(&mut self, bytes: &[u8], at: u64) -> Result<usize, IoError> {
        let opened = &self.0;
        opened.begin_change()?;
        let done = opened.handle.write_with_u8_array_and_options(bytes, opened.at(at));
        Ok(opened.done(done)? as usize)
    }

    fn truncate(&mut self, size: u64) -> Result<(), IoError> {
        self.0.begin_change()?;
        self.0.done(self.0.handle.truncate_with_f64(size as f64))
    }

    fn size(&mut self) -> Result<u64, IoError> {
        Ok(self.0.done(self.0.handle.get_size())? as u64)
    }

    fn flush(&mut self) -> Result<(), IoError> {
        self.0.begin_change()?;
        self.0.done(self.0.handle.flush())?;
        self.check_later();
        Ok(())
    }

    fn is_lost(&self) -> bool {
        self.0.loss.get().is_some()
    }
}
