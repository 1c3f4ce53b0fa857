//! The Rust version of the README's records: opens the file that the page's program wrote, in the
//! current folder. `cargo run --example records`

use musli_zerocopy::{Ref, ZeroCopy};
use varve::{Store, schema::Record};

#[derive(Clone, Copy, ZeroCopy, Record)]
#[repr(C)]
struct Product {
    stock: u16,
    name: Ref<str>,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut store = Store::open("shop.varve")?;
    let mut products = store.collection::<Product>("products")?;
    products.update_if("yeezy", |p| p.stock > 0, |p| p.stock -= 1)?;
    let yeezy = products.get("yeezy")?.expect("it was set");
    println!("{} of {}", yeezy.stock, yeezy.load(yeezy.name)?);
    Ok(())
}
