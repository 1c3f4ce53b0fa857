//! The host's file and its other functions, which are everything that the engine imports.

use core::panic::PanicInfo;

use crate::file::{File, IoError};
use crate::store::ViewCallbacks;
use crate::wasm_allocator::{can_allocate, can_allocate_chunks};

/// Imports of the module `host`.
mod host {
    #[link(wasm_import_module = "host")]
    unsafe extern "C" {
        pub fn read(address: *mut u8, length: usize, at: f64) -> i32;
        pub fn write(address: *const u8, length: usize, at: f64) -> i32;
        pub fn truncate(size: f64) -> i32;
        pub fn size() -> f64;
        pub fn flush() -> i32;
        pub fn detach();
        pub fn views_held() -> u32;
        pub fn start_copying();
        pub fn panicked(file: *const u8, length: usize, line: u32);
    }
}

/// The file that the host provides.
#[derive(Debug)]
pub(super) struct HostFile;

fn host_error(code: i32) -> IoError {
    match code {
        -2 => IoError::Quota,
        -3 => IoError::Lost,
        _ => IoError::Other,
    }
}

impl File for HostFile {
    fn read(&mut self, buf: &mut [u8], at: u64) -> Result<usize, IoError> {
        // SAFETY: the host writes at most `length` bytes at `address`, which belong to `buf`.
        let n = unsafe { host::read(buf.as_mut_ptr(), buf.len(), at as f64) };
        let n = usize::try_from(n).map_err(|_| host_error(n))?;
        if n > buf.len() { Err(IoError::Other) } else { Ok(n) }
    }

    fn write(&mut self, bytes: &[u8], at: u64) -> Result<usize, IoError> {
        // SAFETY: the host reads `length` bytes at `address`.
        let n = unsafe { host::write(bytes.as_ptr(), bytes.len(), at as f64) };
        usize::try_from(n).map_err(|_| host_error(n))
    }

    fn truncate(&mut self, size: u64) -> Result<(), IoError> {
        // SAFETY: no memory is passed.
        match unsafe { host::truncate(size as f64) } {
            0 => Ok(()),
            code => Err(host_error(code)),
        }
    }

    fn size(&mut self) -> Result<u64, IoError> {
        // SAFETY: no memory is passed.
        let size = unsafe { host::size() };
        if size < 0.0 { Err(host_error(size as i32)) } else { Ok(size as u64) }
    }

    fn flush(&mut self) -> Result<(), IoError> {
        // SAFETY: no memory is passed.
        match unsafe { host::flush() } {
            0 => Ok(()),
            code => Err(host_error(code)),
        }
    }
}

/// The callbacks of the host about views.
pub(super) const VIEWS: ViewCallbacks = ViewCallbacks {
    // SAFETY: no memory is passed.
    detach: || unsafe { host::detach() },
    // SAFETY: no memory is passed.
    are_held: || unsafe { host::views_held() } != 0,
    // SAFETY: no memory is passed.
    start_copying: || unsafe { host::start_copying() },
    can_allocate,
    can_allocate_chunks,
};

/// Reports the location of a panic. The message is left out, because formatting it needs too much
/// code.
#[panic_handler]
fn panic(info: &PanicInfo) -> ! {
    if let Some(location) = info.location() {
        let file = location.file();
        // SAFETY: the host reads `length` bytes at `file`.
        unsafe { host::panicked(file.as_ptr(), file.len(), location.line()) }
    }
    core::arch::wasm32::unreachable()
}
