//! Databases in memory.

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, SystemTime};

use musli_zerocopy::OwnedBuf;
use varve::{Error, KeyRange, Reader, SetOptions, Store};

use crate::collections::Product;
use crate::temp_folder::Folder;

fn shop() -> OwnedBuf {
    let folder = Folder::new();
    let path = folder.file("shop.varve");
    let mut store = Store::open(&path).unwrap();
    for number in 0..100_u8 {
        store.set([number], vec![number; usize::from(number)]).unwrap();
    }
    store.set([200], vec![9; 900_001]).expect("a value in an extent");
    store.set([201], vec![8; 600_001]).expect("a chunked value");
    store.delete([50]).unwrap();
    let mut products = store.collection::<Product>("products").unwrap();
    for stock in 0..50 {
        let name = format!("product {stock}");
        products.set(&name, |parts| Product { stock, name: parts.str(&name) }).unwrap();
    }
    store.close().unwrap();
    aligned(&path)
}

fn aligned(path: &Path) -> OwnedBuf {
    let mut buf = OwnedBuf::with_alignment::<u64>();
    buf.extend_from_slice(&fs::read(path).unwrap()).unwrap();
    buf.align_in_place().unwrap();
    buf
}

#[test]
fn reader_reads_in_place_from_many_threads() {
    let bytes = shop();
    let bytes = bytes.as_slice();
    let reader = Reader::from_bytes(bytes).expect("it is whole");
    assert_eq!(reader.count(), 101);
    let large = reader.get([200]).expect("it was set");
    assert!(bytes.as_ptr_range().contains(&large.as_ptr()), "nothing was copied");
    assert!(large.len() == 900_001 && large.iter().all(|&byte| byte == 9));
    let chunked = reader.get([201]).expect("it was set");
    assert!(chunked.len() == 600_001 && chunked.iter().all(|&byte| byte == 8));
    assert_eq!(reader.get([50]), None);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let products =
                    reader.collection::<Product>("products").unwrap().expect("it is there");
                for stock in 0..50 {
                    let name = format!("product {stock}");
                    let product = products.get(&name).unwrap().expect("it was set");
                    assert_eq!((product.stock, product.load(product.name)), (stock, Ok(&*name)));
                    assert!(bytes.as_ptr_range().contains(&product.bytes().as_ptr()));
                }
            });
        }
    });
}

#[test]
fn reader_ranges_are_ordered() {
    let bytes = shop();
    let reader = Reader::from_bytes(bytes.as_slice()).unwrap();
    let range = KeyRange::all().gt(vec![48]).lte(vec![53]).reverse();
    let keys: Vec<u8> = reader.entries(range).unwrap().map(|(key, _)| key[0]).collect();
    assert_eq!(keys, [53, 52, 51, 49]);
    let products = reader.collection::<Product>("products").unwrap().expect("it is there");
    assert_eq!(products.count(), 50);
    let range = KeyRange::all().prefix("product 1").limit(3);
    let names: Vec<String> =
        products.entries(range).unwrap().map(|entry| entry.unwrap().key().unwrap()).collect();
    assert_eq!(names, ["product 1", "product 10", "product 11"]);
    assert!(reader.collection::<Product>("none").unwrap().is_none());
    assert_eq!(reader.collections().collect::<Vec<_>>(), ["products"]);
}

#[test]
fn reader_refuses_misaligned_damaged_or_foreign_bytes() {
    let mut bytes = shop();
    let shifted = [&[0], bytes.as_slice()].concat();
    let mut buf = OwnedBuf::with_alignment::<u64>();
    buf.extend_from_slice(&shifted).unwrap();
    buf.align_in_place().unwrap();
    let code = |bytes: &[u8]| Reader::from_bytes(bytes).expect_err("it is wrong").code();
    assert_eq!(code(&buf.as_slice()[1..]), "VARVE_BAD_ARGUMENT");
    assert_eq!(code(&[]), "VARVE_UNSUPPORTED_FORMAT");
    assert_eq!(code(buf.as_slice()), "VARVE_UNSUPPORTED_FORMAT");
    let at = bytes.as_slice().windows(10).position(|bytes| bytes == b"product 17").expect("in it");
    bytes.as_mut_slice()[at] ^= 1;
    assert_eq!(code(bytes.as_slice()), "VARVE_CORRUPTION");
}

#[test]
fn reader_refuses_bit_flips_or_is_unaffected() {
    let mut bytes = shop();
    let good: Vec<(Vec<u8>, Vec<u8>)> = {
        let reader = Reader::from_bytes(bytes.as_slice()).unwrap();
        let entries = reader.entries(KeyRange::all()).unwrap();
        entries.map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
    };
    let mut random = 0x5EED_u64;
    for _ in 0..150 {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let length = bytes.as_slice().len() as u64;
        let (at, bit) = (((random >> 20) % length) as usize, 1 << (random >> 61));
        bytes.as_mut_slice()[at] ^= bit;
        if let Ok(reader) = Reader::from_bytes(bytes.as_slice()) {
            let found = reader.entries(KeyRange::all()).unwrap();
            assert!(found.eq(good.iter().map(|(key, value)| (&**key, &**value))), "byte {at}");
            if let Some(products) = reader.collection::<Product>("products").unwrap() {
                for entry in products.entries(KeyRange::all()).unwrap() {
                    let product = entry.unwrap().value;
                    assert_eq!(
                        product.load(product.name),
                        Ok(&*format!("product {}", product.stock))
                    );
                }
            }
        }
        bytes.as_mut_slice()[at] ^= bit;
    }
}

#[test]
fn expired_records_are_absent() {
    let folder = Folder::new();
    let path = folder.file("shop.varve");
    let mut store = Store::open(&path).expect("it opens");
    let past = SetOptions::new().expire_at(SystemTime::now() - Duration::from_secs(60));
    let soon = SetOptions::new().expire_in(Duration::from_millis(1));
    store.set("stays", "1").unwrap();
    store.set_with("soon", "1", soon).unwrap();
    // So many that closing does not delete all of them.
    let done: Result<(), Error> = store.transaction(|store| {
        for n in 0..500 {
            store.set_with(format!("past {n}"), "1", past)?;
        }
        Ok(())
    });
    done.unwrap();
    store.close().unwrap();
    sleep(Duration::from_millis(2_100));
    let bytes = aligned(&path);
    let reader = Reader::from_bytes(bytes.as_slice()).expect("it is whole");
    assert_eq!((reader.count(), reader.get("stays")), (1, Some(&b"1"[..])));
    assert_eq!((reader.get("soon"), reader.get("past 400")), (None, None));
}
