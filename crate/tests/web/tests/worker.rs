//! In a dedicated worker.
#![cfg(target_arch = "wasm32")]

use varve::web::{Error, Store};
use wasm_bindgen_test::{wasm_bindgen_test, wasm_bindgen_test_configure};

wasm_bindgen_test_configure!(run_in_dedicated_worker);

#[wasm_bindgen_test]
async fn what_was_set_is_there_after_closing_and_opening() -> Result<(), Error> {
    let mut store = Store::open("first").await?;
    store.set("greeting", "hello")?;
    assert_eq!(store.get("greeting")?, Some(&b"hello"[..]));
    store.close().await?;
    let mut store = Store::open("first").await?;
    assert_eq!(store.get("greeting")?, Some(&b"hello"[..]));
    store.close().await
}
