//! A shop whose database pages and Node use too.
//!
//! ```text
//! cargo run --example shop -- shop.varve add yeezy 20001 "Yeezy Boost 350 V2"
//! cargo run --example shop -- shop.varve buy yeezy
//! cargo run --example shop -- shop.varve list
//! ```
//!
//! In TypeScript:
//!
//! ```ts
//! const Product = struct("Product", { stock: u16, name: str });
//! const db = await open("shop", { storage: file(".") });
//! const products = db.collection("products", Product);
//! products.updateIf("yeezy", (p) => { p.stock -= 1 }, { predicate: (p) => p.stock > 0 });
//! ```

use std::error::Error;
use std::io::Read;
use std::process::ExitCode;
use std::time::UNIX_EPOCH;
use std::{env, fs, io};

use musli_zerocopy::{Ref, ZeroCopy};
use varve::schema::Record;
use varve::{AlignedBytes, KeyRange, Log, LogRange, Reader, Store};

/// Printed by `Product.toRust()`.
#[derive(Clone, Copy, Debug, ZeroCopy, Record)]
#[repr(C)]
struct Product {
    stock: u16,
    name: Ref<str>,
}

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let code = error.downcast_ref::<varve::Error>().map_or("", |error| error.code());
            eprintln!("shop: {code} {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[&str]) -> Result<(), Box<dyn Error>> {
    let [path, command, rest @ ..] = words else { return Err("which file, and what then?".into()) };
    match (*command, rest) {
        ("look", []) => return read_in_memory(path),
        ("hold", []) => return hold_open(path),
        _ => {}
    }
    let mut store = Store::open(path)?;
    match (*command, rest) {
        ("add", [key, stock, name]) => {
            let stock = stock.parse()?;
            let mut products = store.collection::<Product>("products")?;
            products.set(*key, |parts| Product { stock, name: parts.str(name) })?;
        }
        ("buy", [key]) => {
            let mut products = store.collection::<Product>("products")?;
            let bought = products.update_if(*key, |p| p.stock > 0, |p| p.stock -= 1)?;
            println!("{}", if bought { "bought" } else { "sold out" });
        }
        ("deliver", [key, note]) => {
            store.transaction_with_note::<_, varve::Error>(note, |store| {
                let mut products = store.collection::<Product>("products")?;
                products.update_if(*key, |_| true, |p| p.stock += 100)
            })?;
        }
        ("log", []) => print_log(store.log(LogRange::all()))?,
        ("drop", [key]) => {
            println!("{}", store.collection::<Product>("products")?.delete(*key)?);
        }
        ("list", []) => {
            let mut products = store.collection::<Product>("products")?;
            let mut entries = products.entries(KeyRange::all())?;
            while let Some(entry) = entries.next_entry()? {
                let name = entry.value.load(entry.value.name)?;
                println!("{} {} {name}", entry.key::<String>()?, entry.value.stock);
            }
        }
        ("by", [index]) => {
            let mut products = store.collection::<Product>("products")?;
            let mut entries = products.entries_by(index, KeyRange::all())?;
            while let Some(entry) = entries.next_entry()? {
                println!("{}", entry.key::<String>()?);
            }
        }
        _ => return Err(format!("what is {command}?").into()),
    }
    Ok(store.close()?)
}

/// Reads the file in memory, in place, without changing it.
fn read_in_memory(path: &str) -> Result<(), Box<dyn Error>> {
    let file = fs::read(path)?;
    let mut bytes = AlignedBytes::zeroed(file.len());
    bytes[..file.len()].copy_from_slice(&file);
    let reader = Reader::from_bytes(&bytes[..file.len()])?;
    let products = reader.collection::<Product>("products")?.ok_or("there are no products")?;
    for entry in products.entries(KeyRange::all())? {
        let entry = entry?;
        let name = entry.value.load(entry.value.name)?;
        println!("{} {} {name}", entry.key::<String>()?, entry.value.stock);
    }
    Ok(())
}

/// Prints a line for each transaction, and one for each of its records.
fn print_log(mut log: Log<'_>) -> Result<(), varve::Error> {
    while let Some(mut transaction) = log.next()? {
        let time = transaction.time.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let time = time.map_or(0, |time| time.as_millis());
        let note = transaction.note.as_deref().unwrap_or_default();
        println!("{} {time} {note}", transaction.number);
        while let Some(mut record) = transaction.next()? {
            let name = record.collection.unwrap_or_default();
            let (key, version) = (String::from_utf8_lossy(record.key), record.version);
            print!("  {:?} {name} {key} {version} ", record.kind);
            println!("{}", record.value()?.map_or(0, <[u8]>::len));
        }
    }
    Ok(())
}

/// Keeps the file open until its input ends.
fn hold_open(path: &str) -> Result<(), Box<dyn Error>> {
    let store = Store::open(path)?;
    println!("held");
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(store.close()?)
}
