//! Collections of records.

use std::cmp::Reverse;

use musli_zerocopy::{Ref, ZeroCopy};
use serde_json::json;
use varve::schema::Record;
use varve::schema::key::KeyKind;
use varve::{Error, KeyRange, Store};

use crate::temp_folder::Folder;

#[derive(Clone, Copy, Debug, ZeroCopy, Record)]
#[repr(C)]
pub struct Product {
    pub stock: u16,
    pub name: Ref<str>,
}

#[derive(Clone, Copy, Debug, ZeroCopy, Record)]
#[repr(C)]
struct Score {
    at: u64,
    points: u8,
}

fn score_keys() -> KeyKind {
    let parts = json!([{ "kind": "u32" }, { "desc": { "kind": "f64" } }, { "kind": "str" }]);
    KeyKind::from_json(&parts).expect("it is known")
}

#[test]
fn record_is_read_and_updated_in_place() {
    let folder = Folder::new();
    let path = folder.file("shop.varve");
    let mut store = Store::open(&path).unwrap();
    let mut products = store.collection::<Product>("products").unwrap();
    let name = "Yeezy Boost 350 V2";
    products.set("yeezy", |parts| Product { stock: 2, name: parts.str(name) }).unwrap();
    assert!(products.update_if("yeezy", |p| p.stock > 1, |p| p.stock -= 1).unwrap());
    assert!(!products.update_if("yeezy", |p| p.stock > 1, |p| p.stock -= 1).unwrap());
    assert!(!products.update_if("other", |_| true, |p| p.stock -= 1).unwrap());
    drop(store);
    let mut store = Store::open(&path).unwrap();
    assert_eq!(store.count(KeyRange::all()).unwrap(), 0, "raw calls see nothing of it");
    assert_eq!(store.collections().unwrap(), ["products"]);
    let mut products = store.collection::<Product>("products").unwrap();
    let yeezy = products.get("yeezy").unwrap().expect("it was set");
    assert_eq!((yeezy.stock, yeezy.load(yeezy.name)), (1, Ok(name)));
    assert!(products.has("yeezy").unwrap());
    assert!(products.delete("yeezy").unwrap());
    assert_eq!(products.count(KeyRange::all()).unwrap(), 0);
}

#[test]
fn mismatched_schema_or_key_type_is_refused() {
    let folder = Folder::new();
    let mut store = Store::open(folder.file("shop.varve")).unwrap();
    store.collection::<Product>("products").unwrap();
    let mismatch = store.collection::<Score>("products").expect_err("it has other fields");
    assert_eq!(mismatch.code(), "VARVE_SCHEMA_MISMATCH");
    let text = mismatch.to_string();
    assert!(text.contains("\"stock\" is unexpected"), "{text}");
    assert!(text.contains("\"points\" is missing"), "{text}");
    let keys = store.keyed_collection::<Product>("products", &score_keys());
    assert_eq!(keys.expect_err("it has other keys").code(), "VARVE_SCHEMA_MISMATCH");
    let mut products = store.collection::<Product>("products").unwrap();
    let key = products.get((1_u32, 2_u32)).expect_err("its keys are texts");
    assert_eq!(key.code(), "VARVE_BAD_ARGUMENT");
    let long = "x".repeat(201);
    assert_eq!(store.collection::<Product>(&long).unwrap_err().code(), "VARVE_BAD_ARGUMENT");
}

#[test]
fn leaderboard_iterates_in_key_order() {
    let folder = Folder::new();
    let mut store = Store::open(folder.file("shop.varve")).unwrap();
    let mut scores = store.keyed_collection::<Score>("scores", &score_keys()).unwrap();
    for (game, points, name) in [(1_u32, 7.5, "b"), (1, -1.0, "d"), (2, 9.0, "x"), (1, 100.0, "a")]
    {
        let key = (game, Reverse(points), name);
        scores.set(key, |_| Score { at: 5, points: points as u8 }).unwrap();
    }
    type Key = (u32, Reverse<f64>, String);
    let mut names = Vec::new();
    let mut entries = scores.entries(KeyRange::all().prefix(1_u32)).unwrap();
    while let Some(entry) = entries.next_entry().unwrap() {
        let (_, Reverse(points), name) = entry.key::<Key>().unwrap();
        assert_eq!(entry.value.points, points as u8);
        names.push(name);
    }
    assert_eq!(names, ["a", "b", "d"]);
    let range = KeyRange::all().gt((1_u32, Reverse(7.5), "b")).limit(1);
    let mut entries = scores.entries(range).unwrap();
    let next = entries.next_entry().unwrap().expect("there is a next record");
    assert_eq!(next.key::<Key>().unwrap().2, "d");
    assert!(entries.next_entry().unwrap().is_none());
    for (range, count) in [
        (KeyRange::all().lte(1_u32), 3),
        (KeyRange::all().lt(1_u32), 0),
        (KeyRange::all().gt(1_u32), 1),
        (KeyRange::all().gte((1_u32, Reverse(7.5))), 3),
        (KeyRange::all().gt((1_u32, Reverse(7.5))), 2),
    ] {
        let mut entries = scores.entries(range).unwrap();
        let mut seen = 0;
        while entries.next_entry().unwrap().is_some() {
            seen += 1;
        }
        assert_eq!(seen, count);
    }
}

#[test]
fn collection_writes_and_creation_are_transactional() {
    let folder = Folder::new();
    let mut store = Store::open(folder.file("shop.varve")).unwrap();
    let failed: Result<(), Error> = store.transaction(|store| {
        let mut scores = store.keyed_collection::<Score>("scores", &score_keys())?;
        scores.set((1_u32, Reverse(1.0), "a"), |_| Score { at: 1, points: 1 })?;
        store.set("count", "1")?;
        store.set("", "no key").map(drop)
    });
    assert!(failed.is_err());
    assert_eq!(store.collections().unwrap(), [""; 0]);
    let mut products = store.collection::<Product>("scores").expect("the name is free");
    products.set("a", |parts| Product { stock: 1, name: parts.str("") }).unwrap();
    assert_eq!(store.count(KeyRange::all()).unwrap(), 0);
}

#[test]
fn collections_never_share_a_keyspace() {
    let folder = Folder::new();
    let path = folder.file("shop.varve");
    for round in 0..3_u16 {
        let mut store = Store::open(&path).unwrap();
        let name = format!("products {round}");
        let mut products = store.collection::<Product>(&name).unwrap();
        products.set("one", |parts| Product { stock: round, name: parts.str(&name) }).unwrap();
    }
    let mut store = Store::open(&path).unwrap();
    for round in 0..3_u16 {
        let mut products = store.collection::<Product>(&format!("products {round}")).unwrap();
        assert_eq!(products.count(KeyRange::all()).unwrap(), 1);
        assert_eq!(products.get("one").unwrap().expect("it is there").stock, round);
    }
}

#[test]
fn push_assigns_keys_above_existing_ones() {
    let folder = Folder::new();
    let mut store = Store::open(folder.file("shop.varve")).unwrap();
    let auto = KeyKind::from_json(&json!([{ "kind": "u53" }])).expect("it is known");
    let mut scores = store.keyed_collection::<Score>("log", &auto).unwrap();
    let score = Score { at: 1, points: 2 };
    assert_eq!(scores.push(|_| score).unwrap(), 1);
    assert_eq!(scores.push(|_| score).unwrap(), 2);
    scores.set(300_u64, |_| score).unwrap();
    assert_eq!(scores.push(|_| score).unwrap(), 301);
    assert!(scores.delete(301_u64).unwrap());
    assert_eq!(scores.push(|_| score).unwrap(), 302);
    scores.get(302_u64).unwrap().expect("it was pushed").check().expect("it is well");
    let mut products = store.collection::<Product>("products").unwrap();
    products.set("a", |parts| Product { stock: 1, name: parts.str("A") }).unwrap();
    let pushed = products.push(|parts| Product { stock: 1, name: parts.str("A") });
    assert_eq!(pushed.expect_err("its keys are texts").code(), "VARVE_BAD_ARGUMENT");
}

#[test]
fn pushed_keys_are_never_reused() {
    let score = Score { at: 1, points: 2 };
    for (kind, is_auto) in [("u53", true), ("u64", false)] {
        let folder = Folder::new();
        let path = folder.file("shop.varve");
        let keys = KeyKind::from_json(&json!([{ "kind": kind }])).expect("it is known");
        let mut store = Store::open(&path).unwrap();
        let mut log = store.keyed_collection::<Score>("log", &keys).unwrap();
        for id in 1..=3 {
            assert_eq!(log.push(|_| score).unwrap(), id);
        }
        for id in [3_u64, 1, 2] {
            assert!(log.delete(id).unwrap());
        }
        assert!(!log.delete(9_000_u64).unwrap(), "the id was never used");
        assert_eq!(log.push(|_| score).unwrap(), 4);
        assert!(log.delete(4_u64).unwrap());
        store.close().unwrap();
        let mut store = Store::open(&path).unwrap();
        let mut log = store.keyed_collection::<Score>("log", &keys).unwrap();
        assert_eq!(log.push(|_| score).unwrap(), 5);
        let undone: Result<(), Error> = store.transaction(|store| {
            let mut log = store.keyed_collection::<Score>("log", &keys)?;
            log.delete(5_u64)?;
            assert_eq!(log.push(|_| score)?, 6);
            Err(Error::NotFound("undone".into()))
        });
        assert!(undone.is_err());
        let mut log = store.keyed_collection::<Score>("log", &keys).unwrap();
        assert_eq!(log.push(|_| score).unwrap(), 6);
        // If no record was ever pushed, only `auto()` keys are recorded.
        let mut set = store.keyed_collection::<Score>("set", &keys).unwrap();
        set.set(1_u64, |_| score).unwrap();
        assert!(set.delete(1_u64).unwrap());
        assert_eq!(set.push(|_| score).unwrap(), if is_auto { 2 } else { 1 });
    }
}

#[test]
fn exceeding_the_collection_limit_is_a_harmless_error() {
    const LIMIT: usize = 65_534;
    let folder = Folder::new();
    let path = folder.file("shop.varve");
    let mut store = Store::open(&path).unwrap();
    store.collection::<Score>("last").unwrap().set("a", |_| Score { at: 1, points: 1 }).unwrap();
    for i in 1..LIMIT {
        store.collection::<Score>(&format!("{i}")).unwrap();
    }
    for _ in 0..2 {
        let error = store.collection::<Score>("one too many").expect_err("no keyspace is left");
        assert_eq!(error.code(), "VARVE_QUOTA_EXCEEDED");
        assert!(error.to_string().contains("65,534 collections"), "{error}");
    }
    store.set("raw", "goes on").unwrap();
    store.collection::<Score>("7").unwrap().set("b", |_| Score { at: 1, points: 7 }).unwrap();
    store.close().unwrap();
    let mut store = Store::open(&path).unwrap();
    assert_eq!(store.collections().unwrap().len(), LIMIT);
    assert_eq!(store.collection::<Score>("last").unwrap().count(KeyRange::all()).unwrap(), 1);
    let b = store.collection::<Score>("7").unwrap().get("b").unwrap().expect("it is there").points;
    assert_eq!(b, 7);
}

#[derive(Clone, Copy, Debug, ZeroCopy, Record)]
#[repr(C)]
struct Event {
    #[varve(timestamp)]
    at: i64,
    #[varve(u53)]
    count: u64,
    name: Ref<str>,
}

#[test]
fn unreadable_record_is_not_written() {
    let folder = Folder::new();
    let mut store = Store::open(folder.file("shop.varve")).unwrap();
    let mut events = store.collection::<Event>("events").unwrap();
    events.set("a", |parts| Event { at: 1, count: 2, name: parts.str("A") }).unwrap();
    let beyond = Ref::with_metadata(1_000_u32, 5);
    type Damage = (&'static str, fn(&mut Event));
    let wrong: [Damage; 3] = [
        ("at", |event| event.at = i64::MAX),
        ("count", |event| event.count = 1 << 53),
        ("name", |event| event.name = Ref::with_metadata(1_000_u32, 5)),
    ];
    for (field, damage) in wrong {
        let error = events.update_if("a", |_| true, damage).expect_err(field);
        assert_eq!(error.code(), "VARVE_BAD_ARGUMENT");
        assert!(error.to_string().starts_with(field), "{error}");
        let a = events.get("a").unwrap().expect("it is there");
        assert_eq!((a.at, a.count, a.load(a.name)), (1, 2, Ok("A")));
    }
    let error = events.set("b", |_| Event { at: 1, count: 2, name: beyond }).unwrap_err();
    assert_eq!(error.code(), "VARVE_BAD_ARGUMENT");
    assert_eq!(events.count(KeyRange::all()).unwrap(), 1);
}
