//! The product drop on GrausDB: one record, N cycles of get, read the struct and its name, take one from the
//! stock.
//!
//! `graus-drop --directory D [--cycles N] [--samples N] [--warmup N] [--predicate]` prints one line of JSON.
//! Every sample runs on an empty directory below D, which is then reopened and checked.

use std::error::Error;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::Instant;

use graus_db::GrausDb;
use musli_zerocopy::{Buf, OwnedBuf, Ref, ZeroCopy};

const KEY: &[u8] = b"yeezy";
const NAME: &str = "Yeezy Boost 350 V2";

#[derive(ZeroCopy)]
#[repr(C)]
struct Product {
    stock: u16,
    name: Ref<str>,
}

struct Arguments {
    directory: PathBuf,
    cycles: u32,
    samples: u32,
    warmup: u32,
    predicate: bool,
}

impl Arguments {
    fn parse() -> Result<Self, Box<dyn Error>> {
        let mut parsed = Arguments {
            directory: PathBuf::new(),
            cycles: 20_000,
            samples: 1,
            warmup: 1,
            predicate: false,
        };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(format!("{word} needs a value"));
            match word.as_str() {
                "--directory" => parsed.directory = value()?.into(),
                "--cycles" => parsed.cycles = value()?.parse()?,
                "--samples" => parsed.samples = value()?.parse()?,
                "--warmup" => parsed.warmup = value()?.parse()?,
                "--predicate" => parsed.predicate = true,
                _ => return Err(format!("unknown argument {word}").into()),
            }
        }
        if parsed.directory.as_os_str().is_empty() {
            return Err("--directory is missing".into());
        }
        // The stock is a u16 and starts one above the cycles, so that 1 is left.
        if parsed.cycles >= u32::from(u16::MAX) {
            return Err("--cycles must be below 65,535".into());
        }
        Ok(parsed)
    }
}

fn encode(stock: u16) -> Result<OwnedBuf, Box<dyn Error>> {
    let mut buf = OwnedBuf::new();
    let product = buf.store_uninit::<Product>()?;
    let name = buf.store_unsized(NAME)?;
    buf.load_uninit_mut(product)?.write(&Product { stock, name });
    Ok(buf)
}

fn stock_of(bytes: &[u8]) -> Result<u16, musli_zerocopy::Error> {
    Ok(Buf::new(bytes).load_at::<Product>(0)?.stock)
}

fn name_of(bytes: &[u8]) -> Result<&str, musli_zerocopy::Error> {
    let buf = Buf::new(bytes);
    buf.load(buf.load_at::<Product>(0)?.name)
}

/// Takes one from the stock, in the bytes that GrausDB passes to its callback.
fn take_one(value: &mut [u8]) {
    // SAFETY: only the two bytes of `stock` are written; no padding becomes uninitialized.
    let product =
        unsafe { Buf::new_mut(value) }.load_at_mut::<Product>(0).expect("the record is a product");
    if product.stock > 0 {
        product.stock -= 1;
    }
}

/// One sample: milliseconds of the drop alone, then stock and name as a second open reads them.
fn sample(
    directory: &Path,
    cycles: u32,
    predicate: bool,
) -> Result<(f64, u16, String), Box<dyn Error>> {
    std::fs::create_dir_all(directory)?;
    let store = GrausDb::open(directory)?;
    store.set(KEY.to_vec(), &encode(cycles as u16 + 1)?[..])?;

    let start = Instant::now();
    for _ in 0..cycles {
        let value = store.get(KEY)?.ok_or("the product is gone")?;
        black_box(stock_of(&value)?);
        black_box(name_of(&value)?);
        if predicate {
            let in_stock = |bytes: &[u8]| stock_of(bytes).is_ok_and(|stock| stock > 0);
            store.update_if(KEY.to_vec(), |value| take_one(value), Some(KEY), Some(in_stock))?;
        } else {
            // GrausDB's own predicate costs one more read of the log per update. The check inside the
            // callback is the fastest form, so that is the one measured.
            store.update_if(
                KEY.to_vec(),
                |value| take_one(value),
                None,
                None::<fn(&[u8]) -> bool>,
            )?;
        }
    }
    let ms = start.elapsed().as_secs_f64() * 1e3;

    drop(store);
    let reopened = GrausDb::open(directory)?;
    let value = reopened.get(KEY)?.ok_or("the product is gone after reopening")?;
    let left = (stock_of(&value)?, name_of(&value)?.to_owned());
    drop(reopened);
    std::fs::remove_dir_all(directory)?;
    Ok((ms, left.0, left.1))
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse()?;
    let mut samples = Vec::new();
    for run in 0..arguments.warmup + arguments.samples {
        let directory = arguments.directory.join(format!("drop-{}-{run}", std::process::id()));
        let (ms, stock, name) = sample(&directory, arguments.cycles, arguments.predicate)?;
        if stock != 1 || name != NAME {
            return Err(format!("the drop ended with stock {stock} and name {name:?}").into());
        }
        if run >= arguments.warmup {
            samples.push(ms);
        }
    }
    let list: Vec<String> = samples.iter().map(|ms| format!("{ms:.4}")).collect();
    println!(
        "{{\"cycles\":{},\"predicate\":{},\"stock\":1,\"name\":\"{NAME}\",\"ms\":[{}]}}",
        arguments.cycles,
        arguments.predicate,
        list.join(",")
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_is_the_thirty_bytes_that_varve_writes() {
        let mut expected = vec![0x21, 0x4e, 0, 0, 0x0c, 0, 0, 0, 0x12, 0, 0, 0];
        expected.extend_from_slice(NAME.as_bytes());
        assert_eq!(&encode(20_001).unwrap()[..], expected);
    }
}
