//! The functions and properties of a JavaScript realm that this crate needs.
// The macro of wasm-bindgen writes unsafe code.
#![allow(unsafe_code)]

use js_sys::{Function, Promise, Reflect, Uint8Array};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(js_name = setTimeout)]
    fn set_timeout(task: &Function, ms: i32) -> JsValue;

    #[wasm_bindgen(js_namespace = crypto, js_name = getRandomValues, catch)]
    fn fill_with_random(bytes: &Uint8Array) -> Result<JsValue, JsValue>;
}

/// Lets other tasks run for so many milliseconds.
pub(super) async fn sleep(ms: i32) {
    let timer = Promise::new(&mut |resolve, _| drop(set_timeout(&resolve, ms)));
    // It is never rejected.
    drop(JsFuture::from(timer).await);
}

/// Random numbers.
pub(super) fn random() -> Result<[u64; 4], JsValue> {
    let bytes = Uint8Array::new_with_length(32);
    fill_with_random(&bytes)?;
    let mut numbers = [0; 32];
    bytes.copy_to(&mut numbers);
    let (words, _) = numbers.as_chunks::<8>();
    Ok(std::array::from_fn(|at| u64::from_le_bytes(words[at])))
}

/// A property of a value; `undefined` if it cannot be read.
pub(super) fn property(of: &JsValue, name: &str) -> JsValue {
    Reflect::get(of, &name.into()).unwrap_or_default()
}

/// A global of this realm.
pub(super) fn global(name: &str) -> JsValue {
    property(&js_sys::global(), name)
}

/// Whether this realm has such a global.
pub(super) fn has_global(name: &str) -> bool {
    Reflect::has(&js_sys::global(), &name.into()).unwrap_or(false)
}

/// The name of an error, such as `"NotFoundError"`.
pub(super) fn name_of(error: &JsValue) -> String {
    property(error, "name").as_string().unwrap_or_default()
}

/// The text of a thrown value, for a message.
pub(super) fn reason_of(error: &JsValue) -> String {
    property(error, "message").as_string().unwrap_or_else(|| format!("{error:?}"))
}
