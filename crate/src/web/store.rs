//! Opening and closing a database in a browser.

use std::io;
use std::path::PathBuf;

use wasm_bindgen::JsCast;
use wasm_bindgen_futures::JsFuture;
use web_sys::Blob;

use crate::aligned_buf::AlignedBytes;
use crate::file::File;
use crate::native::{Error, OpenOptions, Store};
use crate::store::{OnDamage, Options, Store as Engine};

use super::file_names::{SHADOW_SUFFIX, file_name, folder_names};
use super::js;
use super::opfs::{self, Location, OpenedFile};
use super::opfs_file::OpfsFile;
use super::system::ReadOnlyFile;
use super::turns::OpenEngine;

/// What the package writes instead of the first superblock while it fills a file, and while it replaces a database
/// (FORMAT.md, 10a).
const FILLING: &[u8; 16] = b"filling varve\r\n\x1a";
const CHANGES: &[u8; 16] = b"changes varve\r\n\x1a";

impl Store {
    /// Opens the database of this name in the origin's private file system, creating it if it is missing: the same one
    /// that the npm package opens by this name. It works in dedicated workers, which alone have synchronous files.
    ///
    /// One worker at a time can have a database open, in whatever language it is written. What a turn has written is
    /// committed at its end, by a microtask, and survives power loss within about a second, or when
    /// [`flush`](Store::flush) is called.
    ///
    /// # Errors
    /// [`Error::Busy`] if another worker or tab has it open, or this program; [`Error::Unavailable`] where there is no such
    /// storage, which says what to do; [`Error::BadArgument`] for a name that is empty, longer than 200 bytes once it is
    /// escaped, or looks like a path or a file; and the engine's errors for damage, for files that are not databases, and
    /// for a full disk.
    pub async fn open(name: &str) -> Result<Self, Error> {
        Store::open_with(name, OpenOptions::default()).await
    }

    /// As [`open`](Store::open), with options. With `read_only` several workers can have it open if the browser supports
    /// that (Chrome 121 or newer); no worker can write meanwhile.
    ///
    /// # Errors
    /// As for [`open`](Store::open), and [`Error::NotFound`] for a missing database that is opened read-only.
    pub async fn open_with(name: &str, options: OpenOptions) -> Result<Self, Error> {
        Store::open_in("", name, options).await
    }

    /// As [`open_with`](Store::open_with), in folders inside the origin's own, separated by "/": those that the package's
    /// `opfs(folder)` takes.
    ///
    /// # Errors
    /// As for [`open_with`](Store::open_with); [`Error::BadArgument`] for a bad folder.
    pub async fn open_in(folder: &str, name: &str, options: OpenOptions) -> Result<Self, Error> {
        let location = location(folder, name)?;
        opfs::require_sync_access(&location)?;
        let OpenedFile { file, is_new } = opfs::open_file(&location, options.read_only).await?;
        let opened = open_engine(&location, &file, options);
        let Err(error) = opened else {
            if !options.read_only {
                // What a crash left of a replacement is not needed beside a complete database.
                drop(opfs::remove(&location, &format!("{}{SHADOW_SUFFIX}", location.file)).await);
            }
            return opened;
        };
        let is_empty = file.clone().size().is_ok_and(|size| size == 0);
        file.close();
        if is_new && is_empty {
            drop(opfs::remove(&location, &location.file).await);
        }
        Err(error)
    }

    /// Commits, flushes, looks whether the file is still there, and closes it, so that others may open it.
    ///
    /// # Errors
    /// An error of the file, [`Error::FileLost`] if it was removed or replaced. Everything that was committed before
    /// remains.
    pub async fn close(mut self) -> Result<(), Error> {
        let done = self.shut();
        let file = self.engine.look().file().clone();
        file.check().await;
        done?;
        self.refuse_lost(&file)
    }

    /// Commits and flushes as [`flush`](Store::flush) does, and then waits until the browser has said whether the file is
    /// still there.
    ///
    /// # Errors
    /// As for [`flush`](Store::flush).
    pub async fn flushed(&mut self) -> Result<(), Error> {
        self.flush()?;
        let file = self.engine.look().file().clone();
        file.check().await;
        self.refuse_lost(&file)
    }

    /// Has this function called with each error of a commit or a flush that the program did not call itself: the writes
    /// of that turn are lost then, and the next call that writes returns the error too. Without it, such errors are
    /// printed to the console.
    pub fn on_error(&mut self, listener: impl FnMut(&Error) + 'static) {
        self.engine.set_listener(Box::new(listener));
    }

    fn refuse_lost(&self, file: &OpfsFile) -> Result<(), Error> {
        match file.loss() {
            Some((path, reason)) if file.is_written() => {
                Err(Error::FileLost { path: path.to_path_buf(), reason })
            }
            _ => Ok(()),
        }
    }
}

/// The bytes of a database as they are now, for [`Reader::from_bytes`](crate::Reader::from_bytes): on a page's main thread
/// too, and while a worker has it open. None if it is missing.
///
/// What a worker writes meanwhile may make them unreadable, which [`Reader::from_bytes`](crate::Reader::from_bytes) says:
/// load them again then.
///
/// # Errors
/// [`Error::Unavailable`] where there is no such storage, or it cannot be read.
pub async fn load(name: &str) -> Result<Option<AlignedBytes>, Error> {
    load_in("", name).await
}

/// As [`load`], in folders as [`Store::open_in`] takes them.
///
/// # Errors
/// As for [`load`]; [`Error::BadArgument`] for a bad folder.
pub async fn load_in(folder: &str, name: &str) -> Result<Option<AlignedBytes>, Error> {
    let location = location(folder, name)?;
    let Some(file) = opfs::snapshot(&location).await? else { return Ok(None) };
    let file: &Blob = file.unchecked_ref();
    let read = JsFuture::from(file.array_buffer()).await;
    let found = read.map_err(|cause| opfs::unavailable(&location, "read", &cause))?;
    let found = js_sys::Uint8Array::new(&found);
    let mut bytes = AlignedBytes::zeroed(found.length() as usize);
    let length = found.length() as usize;
    found.copy_to(&mut bytes[..length]);
    Ok(Some(bytes))
}

fn location(folder: &str, name: &str) -> Result<Location, Error> {
    let (folders, file) = (folder_names(folder)?, file_name(name)?);
    Ok(Location { name: name.to_string(), folders, file })
}

fn open_engine(location: &Location, file: &OpfsFile, options: OpenOptions) -> Result<Store, Error> {
    use crate::error::Error as Failure;
    let OpenOptions { read_only, memory, on_damage, keep_history } = options;
    let entropy = js::random().map_err(|cause| opfs::unavailable(location, "opened", &cause))?;
    let size = file.clone().size().map_err(Failure::from)?;
    let mark = mark_of(file)?;
    let options = Options {
        read_only,
        memory,
        index_memory: Options::index_share(memory),
        // A file that is not complete is no damaged database.
        on_damage: if mark.is_some() { OnDamage::Refuse } else { on_damage },
        keeps_history: keep_history,
        entropy,
        ..Options::default()
    };
    match Engine::open(file.clone(), options) {
        Ok(engine) => Ok(Store::of(OpenEngine::new(engine), read_only.then_some(ReadOnlyFile))),
        Err(error @ (Failure::NotADatabase | Failure::Corruption(_))) => Err(match mark {
            _ if size == 0 => Error::NotFound(PathBuf::from(&location.name)),
            Some(FILLING) => incomplete(
                location,
                "it was being filled when its program ended, and is incomplete: fill it again with the package's \
                 open(name, { from }), or remove it with destroy()",
            ),
            Some(_) => incomplete(
                location,
                "it was being replaced when its program ended: open it once with the package's open(), which completes \
                 that",
            ),
            None => error.into(),
        }),
        Err(error) => Err(error.into()),
    }
}

/// What the package has written at the start of a file that is not a complete database, if it has. What a crash has cut
/// off counts, too.
fn mark_of(file: &OpfsFile) -> Result<Option<&'static [u8; 16]>, Error> {
    let mut found = [0; 16];
    let count = file.clone().read(&mut found, 0).map_err(crate::error::Error::from)?;
    let is_start = |mark: &[u8; 16]| count > 0 && mark.starts_with(&found[..count]);
    Ok([FILLING, CHANGES].into_iter().find(|mark| is_start(mark)))
}

fn incomplete(location: &Location, why: &str) -> Error {
    Error::Unavailable { path: PathBuf::from(&location.name), cause: io::Error::other(why) }
}
