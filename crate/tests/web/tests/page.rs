//! On the main thread of a page.
#![cfg(target_arch = "wasm32")]

use varve::web::{Error, OpenOptions, Store, load};
use wasm_bindgen_test::{wasm_bindgen_test, wasm_bindgen_test_configure};

wasm_bindgen_test_configure!(run_in_browser);

#[wasm_bindgen_test]
async fn opening_says_that_it_needs_a_dedicated_worker() {
    for read_only in [false, true] {
        let options = OpenOptions { read_only, ..OpenOptions::default() };
        let error = Store::open_with("shop", options).await.expect_err("pages have no such files");
        assert_eq!(error.code(), "VARVE_STORAGE_UNAVAILABLE");
        let text = error.to_string();
        assert!(text.contains("call Store::open in a dedicated worker"), "{text}");
    }
}

#[wasm_bindgen_test]
async fn loading_a_missing_database_gives_none() -> Result<(), Error> {
    assert!(load("missing").await?.is_none());
    Ok(())
}

#[wasm_bindgen_test]
async fn loading_refuses_a_path() {
    let error = load("./data/shop").await.expect_err("it is no name");
    assert_eq!(error.code(), "VARVE_BAD_ARGUMENT");
    let text = error.to_string();
    assert!(text.contains("give the name \"shop\" and the folder \"data\" to open_in"), "{text}");
}
