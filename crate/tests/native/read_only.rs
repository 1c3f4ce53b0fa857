//! Stores that are open for reading only, beside writers that come later.

use std::fs;
use std::path::Path;

use varve::schema::Plain;
use varve::schema::key::{KeyKind, Part};
use varve::{Error, KeyRange, LogRange, OpenOptions, Store};

use crate::collections::Product;
use crate::temp_folder::Folder;

const KEYS: u32 = 8_000;

fn number_keys() -> KeyKind {
    KeyKind::Tuple(vec![Part::Plain(Plain::U32)])
}

fn id_keys() -> KeyKind {
    KeyKind::Tuple(vec![Part::Plain(Plain::U53)])
}

fn key(n: u32) -> String {
    format!("key {n:05}")
}

fn fill(store: &mut Store, round: u8) {
    for n in 0..KEYS {
        store.set(key(n), vec![round; 4_096]).expect("enough space");
        if n % 500 == 0 {
            store.commit().expect("enough space");
        }
    }
    store.flush().expect("enough space");
}

fn reader_of(path: &Path) -> Result<Store, Error> {
    Store::open_with(path, OpenOptions { read_only: true, memory: 4 << 20, ..Default::default() })
}

/// Whether an error says that another program changed the file.
fn is_change(error: &Error) -> bool {
    let found = (error.code(), error.to_string().contains("changed by another program"));
    assert_eq!(found, ("VARVE_STORAGE", true), "{error}");
    true
}

#[test]
fn what_a_writer_overwrites_beside_a_reader_is_a_change_and_no_damage() {
    let folder = Folder::new();
    let path = folder.file("shop.varve");
    let mut store = Store::open(&path).unwrap();
    fill(&mut store, 0);
    let mut numbered = store.keyed_collection::<Product>("numbered", &number_keys()).unwrap();
    for n in 0..2_000_u32 {
        numbered.set(n, |parts| Product { stock: 1, name: parts.str(&"n".repeat(500)) }).unwrap();
    }
    store.close().unwrap();

    let mut reader = reader_of(&path).expect("no writer has it open");
    let mut writer = Store::open(&path).expect("a reader keeps no writer out");
    assert_eq!(reader.get(key(7)).unwrap(), Some(&vec![0; 4_096][..]), "nothing is lost yet");
    for round in 1..=4 {
        fill(&mut writer, round);
        let mut numbered = writer.collection::<Product>("numbered").unwrap();
        for n in 0..2_000_u32 {
            let name = "m".repeat(500);
            numbered.set(n, |parts| Product { stock: 2, name: parts.str(&name) }).unwrap();
        }
    }
    writer.compact().unwrap();
    writer.close().unwrap();

    let mut lost = 0;
    for n in (0..KEYS).step_by(2) {
        match reader.get(key(n)) {
            Ok(found) => assert_eq!(found.map(|value| value[0]), Some(0), "{n}: as it was"),
            Err(error) => lost += u32::from(is_change(&error)),
        }
    }
    assert!(lost > 1_000, "{lost}");
    assert!((0..KEYS).any(|n| reader.has(key(n)).is_err_and(|error| is_change(&error))));
    for reverse in [false, true] {
        let range = if reverse { KeyRange::all().reverse() } else { KeyRange::all() };
        let mut entries = reader.entries(range).unwrap();
        let failed = std::iter::from_fn(|| match entries.next_pair() {
            Ok(None) => None,
            found => Some(found.map(drop)),
        })
        .find_map(Result::err);
        assert!(failed.is_some_and(|error| is_change(&error)));
    }
    let mut log = reader.log(LogRange::all());
    let walked = std::iter::from_fn(|| log.next().map(|found| found.map(drop)).transpose());
    let failed: Vec<Error> = walked.filter_map(Result::err).collect();
    assert!(!failed.is_empty() && failed.iter().all(is_change));
    let mut flat = reader.log(LogRange::all()).flat();
    let walked = std::iter::from_fn(|| flat.next().map(|found| found.map(drop)).transpose());
    let failed: Vec<Error> = walked.filter_map(Result::err).collect();
    assert!(!failed.is_empty() && failed.iter().all(is_change));
    match reader.collection::<Product>("numbered") {
        Err(error) => assert!(is_change(&error)),
        Ok(mut numbered) => {
            let failed = (0..2_000_u32).filter_map(|n| numbered.get(n).err());
            assert!(failed.filter(is_change).count() > 0);
            assert!((0..2_000_u32).any(|n| numbered.has(n).is_err_and(|error| is_change(&error))));
            let mut records = numbered.entries(KeyRange::all()).unwrap();
            let walked =
                std::iter::from_fn(|| records.next_entry().map(|it| it.map(drop)).transpose());
            assert!(walked.filter_map(Result::err).take(1).all(|error| is_change(&error)));
        }
    }
    drop(reader);
    let mut again = reader_of(&path).unwrap();
    let found = (0..KEYS).filter(|n| again.get(key(*n)).unwrap().is_some_and(|it| it[0] == 4));
    assert_eq!(found.count() as u32, KEYS);
}

#[test]
fn damage_that_no_writer_explains_stays_damage() {
    let folder = Folder::new();
    let path = folder.file("shop.varve");
    let mut store = Store::open(&path).unwrap();
    fill(&mut store, 0);
    store.close().unwrap();
    let mut bytes = fs::read(&path).unwrap();
    for at in (5 << 20..6 << 20).step_by(1_000) {
        bytes[at] ^= 1;
    }
    fs::write(&path, bytes).unwrap();
    let mut reader = reader_of(&path).expect("its checkpoint is whole");
    let failed: Vec<Error> = (0..KEYS).filter_map(|n| reader.get(key(n)).err()).collect();
    assert!(failed.len() > 100);
    assert!(failed.iter().all(|error| error.code() == "VARVE_CORRUPTION"));
}

#[test]
fn write_to_a_read_only_store_is_refused_before_anything_is_read() {
    let folder = Folder::new();
    let path = folder.file("shop.varve");
    let mut store = Store::open(&path).unwrap();
    store.set("a", "1").unwrap();
    let mut products = store.keyed_collection::<Product>("products", &id_keys()).unwrap();
    products.push(|parts| Product { stock: 1, name: parts.str("a") }).unwrap();
    store.close().unwrap();
    let mut reader = reader_of(&path).unwrap();
    let is_refused = |error: Error| assert_eq!(error.code(), "VARVE_READ_ONLY");
    is_refused(reader.set("a", "2").unwrap_err());
    is_refused(reader.delete("missing").unwrap_err());
    is_refused(reader.update_if("missing", |_| true, |_| ()).unwrap_err());
    is_refused(reader.clear(KeyRange::all()).unwrap_err());
    let mut products = reader.collection::<Product>("products").unwrap();
    is_refused(products.push(|parts| Product { stock: 1, name: parts.str("a") }).unwrap_err());
    is_refused(products.update_if(7_u64, |_| true, |_| ()).unwrap_err());
    is_refused(products.delete(7_u64).unwrap_err());
}
