//! Indexes that a stored descriptor declares, as TypeScript stores them.

use std::cmp::Reverse;
use std::path::Path;
use std::time::{Duration, SystemTime};

use musli_zerocopy::{Ref, ZeroCopy};
use serde_json::{Value, json};
use varve::StdFile;
use varve::engine::Options;
use varve::engine::format::system_records::{
    CollectionDescriptor, DESCRIPTOR_BUILDING, DESCRIPTOR_INDEX,
};
use varve::schema::key::KeyKind;
use varve::schema::{Kind, Opt, Record};
use varve::{
    Collection, CollectionOptions, Error, Expiry, IndexBy, KeyRange, OpenOptions, SetOptions, Store,
};

use crate::temp_folder::Folder;

#[derive(Clone, Copy, Debug, ZeroCopy, Record)]
#[repr(C)]
struct Page {
    number: u16,
}

#[derive(Clone, Copy, Debug, ZeroCopy, Record)]
#[repr(C)]
struct Item {
    code: Ref<str>,
    price: Opt<f64>,
    stock: i16,
    #[varve(flatten)]
    page: Page,
    other: Page,
    marks: Ref<[u16]>,
}

const COLLECTION: u32 = 2;
const OWN: u32 = 1;

fn descriptor(keyspace: u32, parent: u32, json: &Value) -> Vec<u8> {
    let text = json.to_string();
    let head = CollectionDescriptor {
        fingerprint: Item::FINGERPRINT,
        keyspace,
        flags: if parent == 0 { 0 } else { DESCRIPTOR_INDEX },
        parent,
        json_len: text.len() as u32,
    };
    [head.to_bytes(), text.as_bytes()].concat()
}

/// Creates the collection "items" with these indexes, by calls of the engine.
fn declare(path: &Path, indexes: &[(&str, Value)]) {
    declare_with_state(path, indexes, "indexes", 0);
}

/// The same, with indexes in another state.
fn declare_with_state(path: &Path, indexes: &[(&str, Value)], under: &str, flags: u32) {
    let file = StdFile::open(path).unwrap();
    let mut engine = varve::engine::Store::open(file, Options::default()).unwrap();
    let names: Vec<&str> = indexes.iter().map(|(name, _)| *name).collect();
    let value = Kind::from(Item::LAYOUT).to_json();
    let json = json!({ "value": value, "key": "string", under: names });
    engine.set(OWN, b"collection/items", &descriptor(COLLECTION, 0, &json)).unwrap();
    for (keyspace, (name, json)) in (COLLECTION + 1..).zip(indexes) {
        let key = [b"index/".as_slice(), &COLLECTION.to_be_bytes(), name.as_bytes()].concat();
        let mut bytes = descriptor(keyspace, COLLECTION, json);
        bytes[12] |= flags as u8;
        engine.set(OWN, &key, &bytes).unwrap();
    }
    engine.close().map_err(|(_, error)| error).unwrap();
}

fn set(items: &mut Collection<'_, Item>, key: &str, code: &str, price: Option<f64>, stock: i16) {
    try_set(items, key, code, price, stock).expect("it is unique");
}

fn try_set(
    items: &mut Collection<'_, Item>,
    key: &str,
    code: &str,
    price: Option<f64>,
    stock: i16,
) -> Result<u64, Error> {
    let (page, other) = (Page { number: 1 }, Page { number: stock.unsigned_abs() });
    items.set(key, |parts| Item {
        code: parts.str(code),
        price: price.into(),
        stock,
        page,
        other,
        marks: parts.slice(&[1, 2]),
    })
}

fn by(items: &mut Collection<'_, Item>, index: &str, range: KeyRange<'_>) -> Vec<String> {
    let mut records = items.entries_by(index, range).unwrap();
    let mut keys = Vec::new();
    while let Some(entry) = records.next_entry().unwrap() {
        keys.push(entry.key::<String>().unwrap());
    }
    keys
}

#[test]
fn every_write_updates_all_indexes() {
    let folder = Folder::new();
    let path = folder.file("a.varve");
    declare(
        &path,
        &[
            ("byPrice", json!({ "fields": ["price"] })),
            ("byStock", json!({ "fields": [{ "desc": "stock" }, "other.number", "number"] })),
        ],
    );
    let mut store = Store::open(&path).unwrap();
    let mut items = store.collection::<Item>("items").unwrap();
    assert_eq!(items.indexes().collect::<Vec<_>>(), ["byPrice", "byStock"]);
    set(&mut items, "a", "A", Some(2.5), 5);
    set(&mut items, "b", "B", None, -7);
    set(&mut items, "c", "C", Some(-1.0), 5);
    let all = KeyRange::all;
    assert_eq!(by(&mut items, "byPrice", all()), ["b", "c", "a"]);
    assert_eq!(by(&mut items, "byStock", all()), ["a", "c", "b"]);
    assert!(items.update_if("a", |_| true, |item| item.stock = -9).unwrap());
    assert!(!items.update_if("a", |item| item.stock > 0, |item| item.stock = 0).unwrap());
    assert_eq!(by(&mut items, "byStock", all()), ["c", "b", "a"]);
    assert_eq!(by(&mut items, "byStock", all().reverse().limit(1)), ["a"]);
    set(&mut items, "c", "C", Some(9.0), 5);
    assert_eq!(by(&mut items, "byPrice", all().gt((Some(0.0),))), ["a", "c"]);
    assert_eq!(by(&mut items, "byPrice", all().lte((None::<f64>,))), ["b"]);
    assert_eq!(by(&mut items, "byStock", all().prefix((Reverse(5_i16), 5_u16))), ["c"]);
    assert!(items.delete("b").unwrap());
    assert_eq!(by(&mut items, "byPrice", all()), ["a", "c"]);
    assert!(items.entries_by("byName", all()).is_err());
    drop(store);
    let mut store = Store::open(&path).unwrap();
    let mut items = store.collection::<Item>("items").unwrap();
    assert_eq!(by(&mut items, "byStock", all()), ["c", "a"]);
}

#[test]
fn unique_index_violation_is_refused_without_change() {
    let folder = Folder::new();
    let path = folder.file("a.varve");
    declare(&path, &[("byCode", json!({ "fields": ["code"], "unique": true }))]);
    let mut store = Store::open(&path).unwrap();
    let mut items = store.collection::<Item>("items").unwrap();
    set(&mut items, "a", "one", None, 1);
    set(&mut items, "b", "one\0two", None, 2);
    let error = try_set(&mut items, "c", "one", None, 3).expect_err("the entry exists");
    assert_eq!(error.code(), "VARVE_UNIQUE_VIOLATION");
    let error = try_set(&mut items, "b", "one", None, 3).expect_err("the entry exists");
    assert!(matches!(error, Error::NotUnique { index, .. } if index == "byCode"));
    assert_eq!(items.get("b").unwrap().unwrap().stock, 2);
    assert_eq!(items.count(KeyRange::all()).unwrap(), 2);
    set(&mut items, "a", "one", None, 4);
    set(&mut items, "a", "free", None, 4);
    set(&mut items, "c", "one", None, 3);
    assert_eq!(by(&mut items, "byCode", KeyRange::all()), ["a", "c", "b"]);
    assert_eq!(by(&mut items, "byCode", KeyRange::all().prefix(("one",))), ["c"]);
}

#[test]
fn collection_with_an_unknown_index_is_read_only() {
    let many = json!({ "fields": ["marks"], "multiEntry": true });
    for index in [json!({ "words": "code" }), many] {
        let folder = Folder::new();
        let path = folder.file("a.varve");
        declare(&path, &[("byWhat", index)]);
        let mut store = Store::open(&path).unwrap();
        let mut items = store.collection::<Item>("items").unwrap();
        assert!(items.get("a").unwrap().is_none());
        let error =
            try_set(&mut items, "a", "A", None, 1).expect_err("the index would become stale");
        assert_eq!(error.code(), "VARVE_SCHEMA_MISMATCH");
        assert_eq!(items.delete("a").expect_err("the same").code(), "VARVE_SCHEMA_MISMATCH");
    }
}

#[test]
fn unfinished_index_is_maintained_and_not_read() {
    let folder = Folder::new();
    let path = folder.file("a.varve");
    let indexes = [("byStock", json!({ "fields": ["stock"] }))];
    declare_with_state(&path, &indexes, "building", DESCRIPTOR_BUILDING);
    let mut store = Store::open(&path).unwrap();
    let mut items = store.collection::<Item>("items").unwrap();
    set(&mut items, "a", "A", None, 1);
    set(&mut items, "a", "A", None, 2);
    assert_eq!(items.indexes().count(), 0);
    assert!(items.entries_by("byStock", KeyRange::all()).is_err());
    drop(store);
    let engine =
        varve::engine::Store::open(StdFile::open(&path).unwrap(), Options::default()).unwrap();
    assert_eq!(engine.count(COLLECTION + 1), 1);
}

#[test]
fn write_reverts_an_interrupted_migration_and_read_does_not() {
    let folder = Folder::new();
    let path = folder.file("a.varve");
    declare(&path, &[]);
    let migration = json!({
        "to": { "fingerprint": "00", "keyspace": 7, "indexes": [["byStock", {}, 8]], "after": "61" },
        "clear": [5],
    });
    let open =
        || varve::engine::Store::open(StdFile::open(&path).unwrap(), Options::default()).unwrap();
    let mut engine = open();
    engine.set(OWN, b"migration/items", migration.to_string().as_bytes()).unwrap();
    engine.close().map_err(|(_, error)| error).unwrap();
    let migration_now = || {
        let mut engine = open();
        let bytes =
            engine.get(OWN, b"migration/items").unwrap().expect("the migration is recorded");
        serde_json::from_slice::<Value>(bytes).expect("it is JSON")
    };
    let mut store = Store::open(&path).unwrap();
    assert!(store.collection::<Item>("items").unwrap().get("a").unwrap().is_none());
    drop(store);
    assert_eq!(migration_now(), migration);
    let mut store = Store::open(&path).unwrap();
    set(&mut store.collection::<Item>("items").unwrap(), "a", "A", None, 1);
    drop(store);
    assert_eq!(migration_now(), json!({ "clear": [5, 7, 8] }));
}

#[test]
fn index_entries_expire_with_their_records_and_free_unique_values() {
    let folder = Folder::new();
    let path = folder.file("a.varve");
    declare(
        &path,
        &[
            ("byCode", json!({ "fields": ["code"], "unique": true })),
            ("byStock", json!({ "fields": ["stock"] })),
        ],
    );
    let mut store = Store::open(&path).unwrap();
    let mut items = store.collection::<Item>("items").unwrap();
    let hour = Duration::from_secs(3_600);
    let past = SystemTime::now() - hour;
    set(&mut items, "a", "A", None, 1);
    set(&mut items, "b", "B", None, 2);
    set(&mut items, "c", "C", None, 3);
    // The entry of one field moves, the other's stays: both expire with the record.
    assert!(items.touch("a", hour).unwrap());
    assert!(items.update_if("a", |_| true, |item| item.stock = 9).unwrap());
    let expires = items.get_entry("a").unwrap().unwrap().expires;
    assert!(expires.is_some_and(|at| at > SystemTime::now()), "an update keeps it");
    assert!(items.touch("a", past).unwrap());
    for index in ["byCode", "byStock"] {
        assert_eq!(by(&mut items, index, KeyRange::all()), ["b", "c"]);
    }
    set(&mut items, "d", "A", None, 4);
    let page = Page { number: 1 };
    items
        .set_with("c", SetOptions::new().expire_at(past), |parts| Item {
            code: parts.str("C"),
            price: None.into(),
            stock: 7,
            page,
            other: page,
            marks: parts.slice(&[]),
        })
        .unwrap();
    assert_eq!(by(&mut items, "byStock", KeyRange::all()), ["b", "d"]);
    set(&mut items, "e", "C", None, 5);
    assert!(items.touch("e", Expiry::Never).unwrap());
    store.close().unwrap();
    let mut store = Store::open(&path).unwrap();
    let mut items = store.collection::<Item>("items").unwrap();
    assert_eq!(by(&mut items, "byCode", KeyRange::all()), ["d", "b", "e"]);
    assert_eq!(items.count(KeyRange::all()).unwrap(), 3);
}

#[test]
fn clear_removes_records_with_their_entries() {
    let folder = Folder::new();
    let path = folder.file("a.varve");
    declare(&path, &[("byCode", json!({ "fields": ["code"], "unique": true }))]);
    let mut store = Store::open(&path).unwrap();
    let mut items = store.collection::<Item>("items").unwrap();
    for n in 0..20_i16 {
        set(&mut items, &format!("{n:02}"), &format!("{}", 99 - n), None, n);
    }
    assert_eq!(items.clear(KeyRange::all().gte("05").lt("10").limit(3)).unwrap(), 3);
    assert_eq!(items.clear(KeyRange::all().gte("05").limit(1).reverse()).unwrap(), 1);
    assert_eq!(items.clear(KeyRange::all().lt("00")).unwrap(), 0);
    assert_eq!(items.clear(KeyRange::all().limit(0)).unwrap(), 0);
    assert_eq!(items.count(KeyRange::all()).unwrap(), 16);
    assert_eq!(by(&mut items, "byCode", KeyRange::all()).len(), 16);
    set(&mut items, "again", "80", None, 1);
    assert_eq!(items.clear(KeyRange::all()).unwrap(), 17);
    assert_eq!(by(&mut items, "byCode", KeyRange::all()), [""; 0]);
    set(&mut items, "a", "99", None, 1);
    store.close().unwrap();
}

fn declared(options: &[(&str, IndexBy)]) -> CollectionOptions {
    options
        .iter()
        .fold(CollectionOptions::new(), |options, (name, by)| options.index(name, by.clone()))
}

#[test]
fn declared_indexes_are_stored_as_typescript_stores_them_and_have_all_records() {
    let folder = Folder::new();
    let path = folder.file("a.varve");
    let mut store = Store::open(&path).unwrap();
    let mut items = store.collection::<Item>("items").unwrap();
    for n in 0..3_000_i16 {
        set(&mut items, &format!("{n:04}"), &format!("code {n}"), Some(f64::from(-n)), n % 7);
    }
    let options = declared(&[
        ("byPrice", IndexBy::field("price")),
        ("byStock", IndexBy::desc("stock").then("other.number").then_desc("number")),
        ("byCode", IndexBy::field("code").unique()),
    ]);
    let mut items = store.collection_with::<Item>("items", &options).unwrap();
    assert_eq!(items.indexes().collect::<Vec<_>>(), ["byPrice", "byStock", "byCode"]);
    let by_price = by(&mut items, "byPrice", KeyRange::all());
    assert_eq!((by_price.len(), &by_price[..2]), (3_000, &["2999".into(), "2998".into()][..]));
    assert_eq!(by(&mut items, "byStock", KeyRange::all().limit(1)), ["0006"]);
    set(&mut items, "new", "new", None, 9);
    assert_eq!(by(&mut items, "byStock", KeyRange::all().limit(1)), ["new"]);
    let same = try_set(&mut items, "other", "code 7", None, 1).unwrap_err();
    assert_eq!(same.code(), "VARVE_UNIQUE_VIOLATION");
    store.close().unwrap();

    let mut engine =
        varve::engine::Store::open(StdFile::open(&path).unwrap(), Options::default()).unwrap();
    let value = Kind::from(Item::LAYOUT).to_json();
    let names = ["byPrice", "byStock", "byCode"];
    let of = json!({ "value": value, "key": "string", "indexes": names });
    let found = engine.get(OWN, b"collection/items").unwrap();
    assert_eq!(found, Some(&descriptor(COLLECTION, 0, &of)[..]));
    let shapes = [
        r#"{"fields":["price"]}"#,
        r#"{"fields":[{"desc":"stock"},"other.number",{"desc":"number"}]}"#,
        r#"{"fields":["code"],"unique":true}"#,
    ];
    for ((keyspace, name), shape) in (COLLECTION + 1..).zip(names).zip(shapes) {
        let key = [b"index/".as_slice(), &COLLECTION.to_be_bytes(), name.as_bytes()].concat();
        let shape = serde_json::from_str(shape).unwrap();
        let found = engine.get(OWN, &key).unwrap();
        assert_eq!(found, Some(&descriptor(keyspace, COLLECTION, &shape)[..]), "{name}");
    }
    assert_eq!(engine.get(OWN, b"keyspaces").unwrap(), Some(&6_u32.to_le_bytes()[..]));
    let of_indexes: Vec<u8> = (3..6_u32).flat_map(u32::to_le_bytes).collect();
    assert_eq!(engine.get(OWN, b"index-keyspaces").unwrap(), Some(&of_indexes[..]));
}

#[test]
fn wrong_or_violated_index_declaration_changes_nothing() {
    let folder = Folder::new();
    let path = folder.file("a.varve");
    let mut store = Store::open(&path).unwrap();
    let by_price = [("byPrice", IndexBy::field("price"))];
    let mut items = store.collection_with::<Item>("items", &declared(&by_price)).unwrap();
    set(&mut items, "a", "same", Some(1.0), 1);
    set(&mut items, "b", "same", Some(2.0), 2);
    let long = "x".repeat(201);
    let wrong: [(&str, IndexBy, &str); 7] = [
        ("byPrice", IndexBy::desc("price"), "VARVE_SCHEMA_MISMATCH"),
        ("byPrice", IndexBy::field("price").unique(), "VARVE_SCHEMA_MISMATCH"),
        ("byName", IndexBy::field("name"), "VARVE_BAD_ARGUMENT"),
        ("byOther", IndexBy::field("other"), "VARVE_BAD_ARGUMENT"),
        ("", IndexBy::field("code"), "VARVE_BAD_ARGUMENT"),
        (&long, IndexBy::field("code"), "VARVE_BAD_ARGUMENT"),
        ("byCode", IndexBy::field("code").unique(), "VARVE_UNIQUE_VIOLATION"),
    ];
    for (name, by, code) in wrong {
        // One that is right comes first, and is not added either.
        let options = declared(&[("byStock", IndexBy::field("stock")), (name, by)]);
        let error = store.collection_with::<Item>("items", &options).unwrap_err();
        assert_eq!(error.code(), code, "{name}: {error}");
        let items = store.collection::<Item>("items").unwrap();
        assert_eq!(items.indexes().collect::<Vec<_>>(), ["byPrice"], "{name}");
    }
    let keys = KeyKind::from_json(&json!([{ "kind": "u32" }])).unwrap();
    let keyed = CollectionOptions::new().keys(keys.clone());
    let error = store.collection_with::<Item>("items", &keyed).unwrap_err();
    assert_eq!(error.code(), "VARVE_SCHEMA_MISMATCH");
    let mut numbered = store.collection_with::<Item>("numbered", &keyed).unwrap();
    assert_eq!(numbered.key_kind().unwrap(), &keys);
    assert_eq!(numbered.count(..).unwrap(), 0);
    store.close().unwrap();
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    let mut store = Store::open_with(&path, options).unwrap();
    store.collection_with::<Item>("items", &declared(&by_price)).expect("it has this index");
    let by_stock = declared(&[("byStock", IndexBy::field("stock"))]);
    let error = store.collection_with::<Item>("items", &by_stock).unwrap_err();
    assert_eq!(error.code(), "VARVE_READ_ONLY");
}
