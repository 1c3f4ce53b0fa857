//! Folders and files of the origin private file system: see `js/storage/opfs.ts`.

use std::io::{self, ErrorKind};
use std::path::PathBuf;

use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::JsFuture;
use web_sys::{
    File, FileSystemDirectoryHandle, FileSystemFileHandle, FileSystemGetDirectoryOptions,
    FileSystemGetFileOptions, FileSystemSyncAccessHandle, StorageManager,
};

use crate::file::IoError;
use crate::native::Error;

use super::js;
use super::opfs_file::{OpfsFile, io_error};

/// Pauses in milliseconds between attempts to open a file that is locked. After a reload the browser takes a moment to
/// end the old page's workers. A lock that is held longer belongs to a worker that uses the file.
const RETRIES_MS: [i32; 3] = [50, 100, 200];

/// How often other workers may remove the file while this one tries to open it.
const MAX_MISSED: u32 = 20;

/// The initial size of a new database.
const SEGMENT: f64 = 1_048_576.0;

const INSECURE: &str =
    "browsers give storage only to secure origins: serve the page over https or from localhost";

const ON_A_PAGE: &str = "a page's main thread has no synchronous files: call Store::open in a dedicated worker, or read \
    the database here with varve::web::load and Reader::from_bytes";

const IN_SHARED_WORKERS: &str =
    "shared and service workers have no synchronous files: call Store::open in a dedicated worker";

const MISSING: &str = "this runtime has no origin private file system with synchronous handles: browsers have it since \
    Chrome 102, Firefox 113 and Safari 16.4, in dedicated workers";

const REFUSED: &str = "the browser denies storage here: private windows of some browsers, blocked cookies and sandboxed \
    or third-party frames have none. Allow it";

const UNKNOWN: &str = "try again; if it persists, the browser's storage needs repair";

/// Where a database lies: its folders, its file in them, and the names for messages.
#[derive(Clone, Debug)]
pub(super) struct Location {
    pub name: String,
    pub folders: Vec<String>,
    pub file: String,
}

/// A file that was opened, and whether this opening has created it.
pub(super) struct OpenedFile {
    pub file: OpfsFile,
    pub is_new: bool,
}

/// Opens a file, and creates it if it is missing and not to be read only.
///
/// # Errors
/// [`Error::Busy`] if another worker has it open, [`Error::NotFound`], [`Error::Unavailable`], and the engine's for a full
/// disk.
pub(super) async fn open_file(location: &Location, read_only: bool) -> Result<OpenedFile, Error> {
    let (mut is_new, mut tries, mut missed) = (false, 0, 0);
    loop {
        let cause = match try_to_open(location, read_only, &mut is_new).await {
            Ok(Some((entry, handle))) => {
                let file = OpfsFile::new(&location.name, entry, handle);
                return Ok(OpenedFile { file, is_new });
            }
            Ok(None) => return Err(Error::NotFound(PathBuf::from(&location.name))),
            Err(cause) => cause,
        };
        let kind = js::name_of(&cause);
        if kind == "NotFoundError" && missed < MAX_MISSED {
            missed += 1;
            continue;
        }
        if kind == "UnknownError" && is_full().await {
            return Err(crate::error::Error::Quota.into());
        }
        if kind != "NoModificationAllowedError" {
            return Err(unavailable(location, "opened", &cause));
        }
        let Some(pause) = RETRIES_MS.get(tries) else {
            return Err(Error::Busy { path: PathBuf::from(&location.name), pid: None });
        };
        tries += 1;
        js::sleep(*pause).await;
    }
}

async fn try_to_open(
    location: &Location,
    read_only: bool,
    is_new: &mut bool,
) -> Result<Option<(FileSystemFileHandle, FileSystemSyncAccessHandle)>, JsValue> {
    let entry = match find_file(location, &location.file, false).await {
        Err(error) if js::name_of(&error) == "NotFoundError" => {
            if read_only {
                return Ok(None);
            }
            *is_new = true;
            find_file(location, &location.file, true).await?
        }
        found => found?,
    };
    let handle = JsFuture::from(access(&entry, read_only)?).await?;
    Ok(Some((entry, handle.unchecked_into())))
}

/// Browsers without the mode for reading ignore it and open the file exclusively.
fn access(entry: &FileSystemFileHandle, read_only: bool) -> Result<js_sys::Promise, JsValue> {
    if !read_only {
        return Ok(entry.create_sync_access_handle());
    }
    let mode = js_sys::Object::new();
    js_sys::Reflect::set(&mode, &"mode".into(), &"read-only".into())?;
    let open: js_sys::Function = js::property(entry, "createSyncAccessHandle").dyn_into()?;
    open.call1(entry, &mode)?.dyn_into()
}

/// Removes a file beside that of a database, if it is there.
pub(super) async fn remove(location: &Location, file: &str) -> Result<(), Error> {
    let removed = async {
        let folder = find_folder(location, false).await?;
        // Usually there is no file. Chromium finds that out faster here than in removeEntry.
        JsFuture::from(folder.get_file_handle(file)).await?;
        JsFuture::from(folder.remove_entry(file)).await
    };
    match removed.await {
        Err(error) if js::name_of(&error) != "NotFoundError" => {
            Err(unavailable(location, "cleaned up", &error))
        }
        _ => Ok(()),
    }
}

/// The bytes of a file as they are now, even if it is open elsewhere; none if it is missing.
pub(super) async fn snapshot(location: &Location) -> Result<Option<File>, Error> {
    if !has_folders() {
        return Err(absent(location, if is_insecure() { INSECURE } else { MISSING }));
    }
    let found = async {
        let entry = find_file(location, &location.file, false).await?;
        JsFuture::from(entry.get_file()).await
    };
    match found.await {
        Ok(file) => Ok(Some(file.unchecked_into())),
        Err(error) if js::name_of(&error) == "NotFoundError" => Ok(None),
        Err(error) => Err(unavailable(location, "read", &error)),
    }
}

async fn find_folder(
    location: &Location,
    create: bool,
) -> Result<FileSystemDirectoryHandle, JsValue> {
    let root = JsFuture::from(storage().get_directory()).await?;
    let mut folder: FileSystemDirectoryHandle = root.unchecked_into();
    let options = FileSystemGetDirectoryOptions::new();
    options.set_create(create);
    for part in &location.folders {
        let found =
            JsFuture::from(folder.get_directory_handle_with_options(part, &options)).await?;
        folder = found.unchecked_into();
    }
    Ok(folder)
}

async fn find_file(
    location: &Location,
    file: &str,
    create: bool,
) -> Result<FileSystemFileHandle, JsValue> {
    let folder = find_folder(location, create).await?;
    let options = FileSystemGetFileOptions::new();
    options.set_create(create);
    let found = JsFuture::from(folder.get_file_handle_with_options(file, &options)).await?;
    Ok(found.unchecked_into())
}

fn storage() -> StorageManager {
    js::property(&js::global("navigator"), "storage").unchecked_into()
}

/// Whether this realm can list and remove files. Pages can, although they have no synchronous access.
fn has_folders() -> bool {
    js::property(&storage(), "getDirectory").is_function()
}

fn is_insecure() -> bool {
    js::global("isSecureContext") == JsValue::FALSE
}

/// Fails unless this realm has synchronous file access: dedicated workers of secure origins have.
pub(super) fn require_sync_access(location: &Location) -> Result<(), Error> {
    let prototype = js::property(&js::global("FileSystemFileHandle"), "prototype");
    if js::property(&prototype, "createSyncAccessHandle").is_function() && has_folders() {
        return Ok(());
    }
    let is_shared =
        js::has_global("SharedWorkerGlobalScope") || js::has_global("ServiceWorkerGlobalScope");
    Err(absent(
        location,
        match () {
            () if is_insecure() => INSECURE,
            () if js::has_global("document") => ON_A_PAGE,
            () if is_shared => IN_SHARED_WORKERS,
            () => MISSING,
        },
    ))
}

fn absent(location: &Location, why: &str) -> Error {
    failed(location, ErrorKind::Unsupported, why.to_string())
}

fn failed(location: &Location, kind: ErrorKind, why: String) -> Error {
    Error::Unavailable { path: PathBuf::from(&location.name), cause: io::Error::new(kind, why) }
}

/// Whether the origin has no space left for a database, by the browser's estimate. Firefox reports only an
/// "UnknownError" if its own list of files has to grow for a new file and cannot.
async fn is_full() -> bool {
    let Ok(estimate) = storage().estimate() else { return false };
    let Ok(estimate) = JsFuture::from(estimate).await else { return false };
    let number = |name| js::property(&estimate, name).as_f64();
    matches!((number("quota"), number("usage")), (Some(quota), Some(usage)) if quota - usage < SEGMENT)
}

/// The error for a file that cannot be opened, read or removed, which `task` says.
pub(super) fn unavailable(location: &Location, task: &str, cause: &JsValue) -> Error {
    if io_error(cause) == IoError::Quota {
        return crate::error::Error::Quota.into();
    }
    let (kind, advice) = match js::name_of(cause).as_str() {
        "SecurityError" | "NotAllowedError" => (ErrorKind::PermissionDenied, REFUSED),
        "TypeMismatchError" => {
            (ErrorKind::IsADirectory, "there is a folder of that name: choose another name")
        }
        "UnknownError" => (
            ErrorKind::Other,
            "some browsers report only this in private windows, which have no storage, or on a full disk",
        ),
        _ => (ErrorKind::Other, UNKNOWN),
    };
    let reason = js::reason_of(cause);
    failed(
        location,
        kind,
        format!("it cannot be {task} in the origin private file system ({reason}); {advice}"),
    )
}
