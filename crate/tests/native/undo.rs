//! Taking back transactions, and forgetting history.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, SystemTime};

use musli_zerocopy::ZeroCopy;
use serde_json::json;
use varve::StdFile;
use varve::engine::Options;
use varve::engine::format::system_records::{CollectionDescriptor, DESCRIPTOR_INDEX};
use varve::schema::key::KeyKind;
use varve::schema::{Kind, Parts, Record};
use varve::{Error, KeyRange, LogRange, OpenOptions, SetOptions, Store};

use crate::collections::Product;
use crate::temp_folder::Folder;

const HOUR: Duration = Duration::from_secs(3_600);

fn open(path: &Path) -> Store {
    let options = OpenOptions { keep_history: Some(true), ..OpenOptions::default() };
    Store::open_with(path, options).unwrap()
}

fn code<T: std::fmt::Debug>(done: Result<T, Error>) -> &'static str {
    done.expect_err("it is refused").code()
}

/// Commits, and returns the number of the last transaction.
fn last(store: &mut Store) -> u64 {
    store.commit().unwrap();
    let mut log = store.log(LogRange::all());
    let mut number = 0;
    while let Some(transaction) = log.next().unwrap() {
        number = transaction.number;
    }
    number
}

fn content(store: &mut Store) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut entries = store.entries(KeyRange::all()).unwrap();
    let mut all = vec![];
    while let Some((key, value)) = entries.next_pair().unwrap() {
        all.push((key.to_vec(), value.to_vec()));
    }
    all
}

fn product(stock: u16) -> impl Fn(&mut Parts<Product>) -> Product {
    move |parts| Product { stock, name: parts.str("x") }
}

#[test]
fn undo_gives_each_key_back_what_it_had_and_can_be_undone() {
    let folder = Folder::new();
    let path = folder.file("a.varve");
    let mut store = open(&path);
    store.set("changed", "1").unwrap();
    store.set("deleted", vec![7; 900_000]).unwrap();
    store.set_with("expires", "1", SetOptions::new().expire_in(HOUR)).unwrap();
    store.collection::<Product>("products").unwrap().set("yeezy", product(2)).unwrap();
    store.commit().unwrap();
    let before = content(&mut store);
    let expires = store.get_entry("expires").unwrap().unwrap().expires;
    assert!(expires > Some(SystemTime::now()));
    store
        .transaction_with_note::<_, Error>("a mistake", |store| {
            store.set("changed", "2")?;
            store.set("changed", "3")?;
            store.delete("deleted")?;
            store.set("expires", "2")?;
            store.set("new", "2")?;
            store.collection::<Product>("products")?.set("yeezy", product(9))
        })
        .unwrap();
    let number = last(&mut store);
    let after = content(&mut store);
    store.set("other", "stays").unwrap();
    store.undo(number, Some("it was one")).unwrap();
    let undoing = last(&mut store);
    assert_eq!(store.get("other").unwrap(), Some(&b"stays"[..]));
    store.delete("other").unwrap();
    store.commit().unwrap();
    assert_eq!(content(&mut store), before);
    assert_eq!(store.get_entry("expires").unwrap().unwrap().expires, expires);
    let mut products = store.collection::<Product>("products").unwrap();
    assert_eq!(products.get("yeezy").unwrap().unwrap().stock, 2);
    let mut log = store.log(LogRange::all().since(undoing - 1).until(undoing));
    assert_eq!(log.next().unwrap().unwrap().note.as_deref(), Some("it was one"));
    store.undo(undoing, None).unwrap();
    assert_eq!(content(&mut store), after);
    assert_eq!(store.get_entry("expires").unwrap().unwrap().expires, None);
    store.close().unwrap();
    assert_eq!(content(&mut open(&path)), after);
}

#[test]
fn undo_is_refused_if_a_later_transaction_has_written_what_it_wrote() {
    let folder = Folder::new();
    let mut store = open(&folder.file("a.varve"));
    store.set("a", "1").unwrap();
    store.set("gone", "1").unwrap();
    store.commit().unwrap();
    store.set("a", "2").unwrap();
    store.delete("gone").unwrap();
    store.collection::<Product>("products").unwrap().set("yeezy", product(2)).unwrap();
    let number = last(&mut store);
    store.set("a", "3").unwrap();
    store.collection::<Product>("products").unwrap().set("yeezy", product(3)).unwrap();
    // It was set and deleted again.
    store.set("gone", "2").unwrap();
    store.commit().unwrap();
    store.delete("gone").unwrap();
    store.commit().unwrap();
    let before = content(&mut store);
    let error = store.undo(number, None).expect_err("it was changed");
    assert_eq!(error.code(), "VARVE_CONFLICT");
    let text = error.to_string();
    for part in
        [&number.to_string(), "\"a\"", "\"gone\"", "products: \"yeezy\"", "nothing was changed"]
    {
        assert!(text.contains(part), "{text} has {part}");
    }
    assert_eq!(content(&mut store), before);
    for key in 0..30_u8 {
        store.set([b'k', key + b'a'], "1").unwrap();
    }
    let many = last(&mut store);
    for key in 0..30_u8 {
        store.set([b'k', key + b'a'], "2").unwrap();
    }
    let text = store.undo(many, None).expect_err("they were changed").to_string();
    assert!(text.contains("and 20 more"), "{text}");
}

#[test]
fn undo_refuses_numbers_files_and_calls_that_it_cannot_work_with() {
    let folder = Folder::new();
    let path = folder.file("a.varve");
    let mut store = open(&path);
    store.set("a", "1").unwrap();
    let first = last(&mut store);
    let second = store.set("a", "2").unwrap();
    let third = store.set("b", "2").unwrap();
    assert_eq!(last(&mut store), second);
    assert_eq!(code(store.undo(0, None)), "VARVE_BAD_ARGUMENT");
    assert_eq!(
        code(store.undo(third, None)),
        "VARVE_BAD_ARGUMENT",
        "it is no transaction's number"
    );
    assert_eq!(code(store.undo(third + 1, None)), "VARVE_BAD_ARGUMENT");
    assert_eq!(code(store.undo(u64::MAX, None)), "VARVE_BAD_ARGUMENT");
    let long = "n".repeat(65_537);
    assert_eq!(code(store.undo(second, Some(&long))), "VARVE_BAD_ARGUMENT");
    assert_eq!(store.get("a").unwrap(), Some(&b"2"[..]));
    let inside = store.transaction(|store| store.undo(second, None));
    assert_eq!(code(inside), "VARVE_REENTRANCY");
    store.pack(second).unwrap();
    assert_eq!(code(store.undo(first, None)), "VARVE_CURSOR_EXPIRED");
    store.close().unwrap();
    let read_only = OpenOptions { read_only: true, ..OpenOptions::default() };
    let mut store = Store::open_with(&path, read_only).unwrap();
    assert_eq!(code(store.undo(second, None)), "VARVE_READ_ONLY");
    assert_eq!(code(store.pack(second)), "VARVE_READ_ONLY");
    let mut store = Store::open(folder.file("b.varve")).unwrap();
    let number = store.set("a", "1").unwrap();
    assert_eq!(code(store.undo(number, None)), "VARVE_BAD_ARGUMENT", "it keeps no history");
    assert_eq!(code(store.pack(number)), "VARVE_BAD_ARGUMENT");
}

#[test]
fn undone_push_never_assigns_its_id_again() {
    let folder = Folder::new();
    let mut store = open(&folder.file("a.varve"));
    let ids = KeyKind::from_json(&json!([{ "kind": "u53" }])).unwrap();
    store.keyed_collection::<Product>("queue", &ids).unwrap().push(product(1)).unwrap();
    store.commit().unwrap();
    store.collection::<Product>("queue").unwrap().push(product(2)).unwrap();
    let number = last(&mut store);
    store.undo(number, None).unwrap();
    let mut queue = store.collection::<Product>("queue").unwrap();
    assert_eq!(queue.count(KeyRange::all()).unwrap(), 1);
    assert_eq!(queue.push(product(3)).unwrap(), 3);
}

/// Creates a file with the collection "products" and a unique index of their stock, by calls of the engine.
fn with_unique_index(path: &Path) {
    let file = StdFile::open(path).unwrap();
    let options = Options { keeps_history: Some(true), ..Options::default() };
    let mut engine = varve::engine::Store::open(file, options).unwrap();
    let descriptor = |keyspace: u32, flags: u32, parent: u32, json: &serde_json::Value| {
        let text = json.to_string();
        let json_len = text.len() as u32;
        let fingerprint = Product::FINGERPRINT;
        let head = CollectionDescriptor { fingerprint, keyspace, flags, parent, json_len };
        [head.to_bytes(), text.as_bytes()].concat()
    };
    let value = Kind::from(Product::LAYOUT).to_json();
    let json = json!({ "value": value, "key": "string", "indexes": ["byStock"] });
    engine.set(1, b"collection/products", &descriptor(2, 0, 0, &json)).unwrap();
    let key = [b"index/".as_slice(), &2_u32.to_be_bytes(), b"byStock"].concat();
    let json = json!({ "fields": ["stock"], "unique": true });
    engine.set(1, &key, &descriptor(3, DESCRIPTOR_INDEX, 2, &json)).unwrap();
    engine.set(1, b"index-keyspaces", &3_u32.to_le_bytes()).unwrap();
    engine.set(1, b"keyspaces", &4_u32.to_le_bytes()).unwrap();
    engine.close().map_err(|(_, error)| error).unwrap();
}

#[test]
fn undo_brings_index_entries_back_unless_another_record_has_the_values_now() {
    let folder = Folder::new();
    let path = folder.file("a.varve");
    with_unique_index(&path);
    let mut store = open(&path);
    let mut products = store.collection::<Product>("products").unwrap();
    products.set("a", product(1)).unwrap();
    store.commit().unwrap();
    store.collection::<Product>("products").unwrap().set("a", product(2)).unwrap();
    let number = last(&mut store);
    store.undo(number, None).unwrap();
    store.commit().unwrap();
    let mut products = store.collection::<Product>("products").unwrap();
    let mut found = products.entries_by("byStock", KeyRange::all()).unwrap();
    assert_eq!(found.next_entry().unwrap().unwrap().value.stock, 1);
    assert!(found.next_entry().unwrap().is_none());
    drop(found);
    products.set("a", product(2)).unwrap();
    let number = last(&mut store);
    store.collection::<Product>("products").unwrap().set("b", product(1)).unwrap();
    store.commit().unwrap();
    let error = store.undo(number, None).expect_err("b has it now");
    assert!(matches!(&error, Error::NotUnique { collection, index }
        if collection == "products" && index == "byStock"));
    let mut products = store.collection::<Product>("products").unwrap();
    assert_eq!(products.get("a").unwrap().unwrap().stock, 2, "nothing was changed");
    assert_eq!(products.count(KeyRange::all()).unwrap(), 2);
}

#[test]
fn undo_is_refused_if_a_collection_has_another_index_now() {
    let folder = Folder::new();
    let path = folder.file("a.varve");
    let mut store = open(&path);
    store.collection::<Product>("products").unwrap().set("a", product(1)).unwrap();
    let number = last(&mut store);
    store.close().unwrap();
    with_unique_index(&path);
    let mut store = open(&path);
    let error = store.undo(number, None).expect_err("its entry would be missing");
    assert_eq!(error.code(), "VARVE_CONFLICT");
    assert!(error.to_string().contains("migrated during or after it: products"), "{error}");
}

#[test]
fn pack_forgets_what_was_before_a_commit_and_frees_its_space() {
    let folder = Folder::new();
    let path = folder.file("a.varve");
    let mut store = open(&path);
    let mut versions = vec![];
    for round in 0..8_u8 {
        for key in 0..8_u8 {
            store.set([key], vec![round; 400_000]).unwrap();
        }
        versions.push(store.set("round", [round]).unwrap());
        store.commit().unwrap();
    }
    assert_eq!(code(store.pack(store.last_commit() + 1)), "VARVE_BAD_ARGUMENT");
    let inside = store.transaction(|store| store.pack(versions[6]));
    assert_eq!(code(inside), "VARVE_REENTRANCY");
    let open = store.snapshot_at(versions[1]).unwrap();
    // Ended after a step, it is forgotten already, and the next call goes on.
    let mut steps = 0;
    let up_to = store.pack_with(versions[4], |stats| {
        assert!(stats.file_bytes > 0);
        steps += 1;
        ControlFlow::Break(())
    });
    assert_eq!((up_to.unwrap(), steps), (versions[4], 1));
    assert_eq!(code(store.snapshot_at(versions[3])), "VARVE_CURSOR_EXPIRED");
    assert_eq!(store.at(&open).unwrap().get("round").unwrap(), Some(&[1][..]));
    drop(open);
    // A mark keeps what follows it.
    store.retain("backup", Some(versions[5])).unwrap();
    assert_eq!(store.pack(versions[7]).unwrap(), versions[5]);
    let then = store.snapshot_at(versions[5]).unwrap();
    assert_eq!(store.at(&then).unwrap().get("round").unwrap(), Some(&[5][..]));
    drop(then);
    store.retain("backup", None).unwrap();
    assert_eq!(store.pack(versions[7]).unwrap(), versions[7]);
    assert_eq!(store.pack(versions[0]).unwrap(), versions[7], "more was forgotten before");
    assert_eq!(store.get("round").unwrap(), Some(&[7][..]));
    // What was freed is used again.
    let size = store.stats().file_bytes;
    for round in 8..11_u8 {
        for key in 0..8_u8 {
            store.set([key], vec![round; 400_000]).unwrap();
        }
        store.commit().unwrap();
    }
    assert_eq!(store.stats().file_bytes, size);
}
