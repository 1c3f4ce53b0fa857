//! Snapshots: everything as it was, while the store goes on.

use std::thread;

use varve::{Error, KeyRange, OpenOptions, Store};

use crate::collections::Product;
use crate::temp_folder::Folder;

fn name(n: u32) -> String {
    format!("{n:04}")
}

fn put(store: &mut Store, key: &str, stock: u16) {
    let mut products = store.collection::<Product>("products").unwrap();
    products.set(key, |parts| Product { stock, name: parts.str(key) }).unwrap();
}

#[test]
fn snapshot_stays_as_it_was_while_everything_changes() {
    let folder = Folder::new();
    let mut store = Store::open(folder.file("a.varve")).unwrap();
    for n in 0..1_000 {
        store.set(name(n), "old").unwrap();
    }
    store.set("large", vec![1; 900_000]).unwrap();
    put(&mut store, "yeezy", 2);
    let then = store.snapshot().unwrap();
    assert_eq!(then.last_commit(), store.last_commit());
    let version = store.get_entry("0001").unwrap().unwrap().version;

    store.clear(KeyRange::all()).unwrap();
    store.set("new", "new").unwrap();
    put(&mut store, "yeezy", 9);
    put(&mut store, "other", 9);
    store.commit().unwrap();
    let later = store.snapshot().unwrap();
    store.set("0001", "again").unwrap();
    store.compact().unwrap();

    let mut past = store.at(&then).unwrap();
    assert_eq!(past.get("0001").unwrap(), Some(&b"old"[..]));
    assert_eq!(past.get("large").unwrap().map(<[u8]>::len), Some(900_000));
    assert_eq!(past.get("new").unwrap(), None);
    assert!(past.has("0999").unwrap() && !past.has("new").unwrap());
    assert_eq!(past.get_entry("0001").unwrap().unwrap().version, version);
    assert_eq!(past.count(KeyRange::all()).unwrap(), 1_001);
    assert_eq!(past.count(KeyRange::all().prefix("00").limit(7)).unwrap(), 7);
    assert_eq!(past.count(KeyRange::all().gte("0100").lt("0200")).unwrap(), 100);
    let mut entries = past.entries(KeyRange::all().reverse().gte("0990").lt("1")).unwrap();
    let mut found = Vec::new();
    while let Some((key, value)) = entries.next_pair().unwrap() {
        assert_eq!(value, b"old");
        found.push(String::from_utf8_lossy(key).into_owned());
    }
    assert_eq!(found, (990..1_000).rev().map(name).collect::<Vec<_>>());
    assert_eq!(past.collections().unwrap(), ["products"]);
    let mut products = past.collection::<Product>("products").unwrap().expect("it was there");
    assert_eq!(products.get("yeezy").unwrap().unwrap().stock, 2);
    assert!(products.get("other").unwrap().is_none() && !products.has("other").unwrap());
    assert_eq!(products.count(KeyRange::all()).unwrap(), 1);
    assert_eq!(products.get_entry("yeezy").unwrap().unwrap().value.stock, 2);
    let mut records = products.entries(KeyRange::all()).unwrap();
    assert_eq!(records.next_entry().unwrap().unwrap().value.stock, 2);
    assert!(records.next_entry().unwrap().is_none());

    assert_eq!(store.at(&later).unwrap().count(KeyRange::all()).unwrap(), 1);
    assert_eq!(store.count(KeyRange::all()).unwrap(), 2);
    store.close().unwrap();
}

#[test]
fn collection_that_was_made_later_is_not_in_a_snapshot() {
    let folder = Folder::new();
    let mut store = Store::open(folder.file("a.varve")).unwrap();
    let then = store.snapshot().unwrap();
    put(&mut store, "yeezy", 2);
    assert!(store.at(&then).unwrap().collection::<Product>("products").unwrap().is_none());
}

#[test]
fn dropped_snapshot_frees_what_it_kept_from_whatever_thread() {
    let folder = Folder::new();
    let mut store = Store::open(folder.file("a.varve")).unwrap();
    let fill = |store: &mut Store, byte: u8| {
        for key in 0..64_u8 {
            store.set([key], vec![byte; 128 << 10]).unwrap();
        }
        store.flush().unwrap();
    };
    fill(&mut store, 0);
    let then = store.snapshot().unwrap();
    for byte in 1..4 {
        fill(&mut store, byte);
    }
    store.compact().unwrap();
    let held = store.stats().file_bytes;
    assert!(held > 30 << 20, "{held}");
    assert_eq!(store.at(&then).unwrap().get([7]).unwrap().unwrap()[0], 0);
    thread::spawn(move || drop(then)).join().unwrap();
    store.compact().unwrap();
    assert!(store.stats().file_bytes < held / 2, "{}", store.stats().file_bytes);
}

#[test]
fn snapshot_is_refused_inside_a_transaction_and_can_be_read_there() {
    let folder = Folder::new();
    let path = folder.file("a.varve");
    let mut store = Store::open(&path).unwrap();
    store.set("a", "1").unwrap();
    let then = store.snapshot().unwrap();
    let done: Result<(), Error> = store.transaction(|store| {
        assert_eq!(store.snapshot().expect_err("it is not over").code(), "VARVE_REENTRANCY");
        store.set("a", "2")?;
        assert_eq!(store.at(&then)?.get("a")?, Some(&b"1"[..]));
        Ok(())
    });
    done.unwrap();
    let mut other = Store::open(folder.file("b.varve")).unwrap();
    assert_eq!(other.at(&then).expect_err("not its own").code(), "VARVE_SNAPSHOT_CLOSED");
    store.close().unwrap();
    let mut again = Store::open(&path).unwrap();
    assert_eq!(again.at(&then).expect_err("it was closed").code(), "VARVE_SNAPSHOT_CLOSED");
    again.close().unwrap();
    let read_only = OpenOptions { read_only: true, ..OpenOptions::default() };
    let mut reader = Store::open_with(&path, read_only).unwrap();
    let then = reader.snapshot().expect("nothing is written for it");
    assert_eq!(reader.at(&then).unwrap().get("a").unwrap(), Some(&b"2"[..]));
}
