//! The engine for programs that are compiled to wasm and run in browsers: databases in the origin's private file system,
//! which the npm package opens too, with the API of native programs. It needs the feature `web` and the target
//! wasm32-unknown-unknown.
//!
//! [`Store`] runs in dedicated workers. [`load`] gives the bytes of a database to a [`Reader`], anywhere.
//!
//! ```ignore
//! use varve::web::Store;
//!
//! async fn visit() -> Result<(), varve::Error> {
//!     let mut store = Store::open("shop").await?;
//!     store.set("greeting", "hello")?; // committed at the end of this turn
//!     assert_eq!(store.get("greeting")?, Some(&b"hello"[..]));
//!     store.close().await
//! }
//! ```

mod file_names;
mod js;
mod opfs;
mod opfs_file;
mod store;
pub(crate) mod system;
mod turns;

pub use crate::native::*;
pub use store::{load, load_in};
