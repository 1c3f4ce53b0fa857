//! A product drop in a browser: 20,000 times a product is read, and its stock is taken down by one.
//!
//! ```text
//! wasm-pack build --target web
//! python3 -m http.server
//! ```
//!
//! The database is the one that the npm package opens as `open("shop")`. `worker.js` runs this in a dedicated worker,
//! where synchronous files are, and `index.html` shows the result.

use musli_zerocopy::{Ref, ZeroCopy};
use varve::schema::Record;
use varve::web::{Collection, Error, Store};
use wasm_bindgen::JsError;
use wasm_bindgen::prelude::wasm_bindgen;

/// The same in TypeScript: `struct("Product", { stock: u16, name: str })`.
#[derive(Clone, Copy, ZeroCopy, Record)]
#[repr(C)]
struct Product {
    stock: u16,
    name: Ref<str>,
}

const SALES: u32 = 20_000;

/// What was sold, and what is left.
#[wasm_bindgen]
pub struct Sale {
    /// How many products were sold.
    pub sold: u32,
    /// How many are left.
    pub left: u16,
}

/// Opens the shop, sells, and closes it.
///
/// # Errors
/// Those of the database, such as that another worker has it open.
#[wasm_bindgen]
pub async fn product_drop() -> Result<Sale, JsError> {
    let mut store = Store::open("shop").await?;
    let sale = sell(store.collection("products")?)?;
    store.close().await?;
    Ok(sale)
}

fn sell(mut products: Collection<'_, Product>) -> Result<Sale, Error> {
    let stock = products.get("yeezy")?.map_or(0, |yeezy| yeezy.stock);
    if u32::from(stock) <= SALES {
        products.set("yeezy", |parts| Product {
            stock: 20_001,
            name: parts.str("Yeezy Boost 350 V2"),
        })?;
    }
    let mut sold = 0;
    for _ in 0..SALES {
        let Some(yeezy) = products.get("yeezy")? else { break };
        if yeezy.stock == 0 {
            break;
        }
        let is_sold =
            products.update_if("yeezy", |yeezy| yeezy.stock > 0, |yeezy| yeezy.stock -= 1)?;
        sold += u32::from(is_sold);
    }
    let left = products.get("yeezy")?.map_or(0, |yeezy| yeezy.stock);
    Ok(Sale { sold, left })
}
