//! Records that expire, and writes that expect a version.

use std::thread::sleep;
use std::time::{Duration, SystemTime};

use serde_json::json;
use varve::schema::key::KeyKind;
use varve::{ChangeKind, Error, Expiry, KeyRange, OpenOptions, SetOptions, Store};

use crate::collections::Product;
use crate::temp_folder::Folder;

const HOUR: Duration = Duration::from_secs(3_600);

fn past() -> SetOptions {
    SetOptions::new().expire_at(SystemTime::now() - HOUR)
}

fn code<T: std::fmt::Debug>(done: Result<T, Error>) -> &'static str {
    done.expect_err("it is refused").code()
}

#[test]
fn expired_record_is_absent_at_once_everywhere() {
    let folder = Folder::new();
    let path = folder.file("a.varve");
    let mut store = Store::open(&path).unwrap();
    store.set("stays", "1").unwrap();
    let version = store.set_with("gone", "1", past()).unwrap();
    assert!(version > 0);
    for _ in 0..2 {
        assert_eq!(store.get("gone").unwrap(), None);
        assert!(!store.has("gone").unwrap() && store.get_entry("gone").unwrap().is_none());
        assert!(!store.touch("gone", HOUR).unwrap());
        assert!(!store.delete("gone").unwrap());
        assert_eq!(store.count(KeyRange::all()).unwrap(), 1);
        assert_eq!(store.count(KeyRange::all().gte("a").lt("s")).unwrap(), 0);
        assert_eq!(store.entries(KeyRange::all()).unwrap().next().unwrap().unwrap().0, b"stays");
        store.close().unwrap();
        store = Store::open(&path).unwrap();
    }
    let missing = SetOptions::new().if_version(0);
    store.set_with("gone", "2", missing).expect("it is missing");
    assert_eq!(store.get("gone").unwrap(), Some(&b"2"[..]));
}

#[test]
fn changes_show_everything_that_has_expired_as_deleted() {
    let folder = Folder::new();
    let mut store = Store::open(folder.file("a.varve")).unwrap();
    let soon = SetOptions::new().expire_in(Duration::from_millis(1));
    for key in 0..300_u32 {
        store.set(key.to_be_bytes(), "1").unwrap();
    }
    store.commit().unwrap();
    let cursor = store.last_commit();
    for key in 0..300_u32 {
        store.set_with(key.to_be_bytes(), "2", soon).unwrap();
    }
    store.commit().unwrap();
    sleep(Duration::from_millis(2_100));
    let mut changes = store.changes(cursor, None).unwrap();
    let mut deleted = 0;
    while let Some(change) = changes.next().unwrap() {
        assert_eq!(change.kind, ChangeKind::Delete);
        deleted += 1;
    }
    assert_eq!(deleted, 300);
}

#[test]
fn record_expires_when_its_time_comes_and_touch_moves_it() {
    let folder = Folder::new();
    let path = folder.file("a.varve");
    let mut store = Store::open(&path).unwrap();
    let soon = SetOptions::new().expire_in(Duration::from_millis(1));
    let begin = SystemTime::now();
    for key in ["expires", "touched", "kept", "overwritten", "updated"] {
        store.set_with(key, "1", soon).unwrap();
    }
    let expires = store.get_entry("expires").unwrap().expect("not yet").expires.unwrap();
    assert!(expires > begin && expires < begin + Duration::from_secs(3));
    assert!(store.touch("touched", HOUR).unwrap());
    assert!(store.touch("kept", Expiry::Never).unwrap());
    store.set("overwritten", "2").unwrap();
    assert!(store.update_if("updated", |_| true, |value| value[0] += 1).unwrap());
    let mut keys = Vec::new();
    let then = store.snapshot().unwrap();
    let mut entries = store.entries(KeyRange::all()).unwrap();
    keys.extend(entries.next_pair().unwrap().map(|(key, _)| key.to_vec()));
    sleep(Duration::from_millis(2_100));
    // An iteration goes on with the time at which it began.
    while let Some((key, _)) = entries.next_pair().unwrap() {
        keys.push(key.to_vec());
    }
    assert_eq!(keys.len(), 5);
    assert_eq!(store.count(KeyRange::all()).unwrap(), 3);
    assert_eq!(store.get("expires").unwrap(), None);
    assert_eq!(store.get("updated").unwrap(), None, "its expiry stayed");
    let touched = store.get_entry("touched").unwrap().unwrap().expires.unwrap();
    assert!(touched > begin + HOUR);
    assert_eq!(store.get_entry("kept").unwrap().unwrap().expires, None);
    assert_eq!(store.get("overwritten").unwrap(), Some(&b"2"[..]));
    assert_eq!(store.at(&then).unwrap().get("expires").unwrap(), Some(&b"1"[..]));
    drop(then);
    store.close().unwrap();
    let read_only = OpenOptions { read_only: true, ..OpenOptions::default() };
    let mut reader = Store::open_with(&path, read_only).unwrap();
    assert_eq!(reader.count(KeyRange::all()).unwrap(), 3);
}

#[test]
fn transaction_sees_one_time_and_undoes_expiries() {
    let folder = Folder::new();
    let mut store = Store::open(folder.file("a.varve")).unwrap();
    store.set("a", "1").unwrap();
    let undone: Result<(), Error> = store.transaction(|store| {
        store.set_with("a", "2", past())?;
        assert_eq!(store.get("a")?, None);
        store.set_with("b", "2", SetOptions::new().expire_in(HOUR))?;
        store.set("", "the empty key is none").map(drop)
    });
    assert!(undone.is_err());
    assert_eq!(store.get("a").unwrap(), Some(&b"1"[..]));
    assert_eq!(store.get_entry("a").unwrap().unwrap().expires, None);
    assert_eq!(store.get("b").unwrap(), None);
}

#[test]
fn bad_expiries_are_refused_with_nothing_written() {
    let folder = Folder::new();
    let mut store = Store::open(folder.file("a.varve")).unwrap();
    store.set("a", "1").unwrap();
    let zero = SetOptions::new().expire_in(Duration::ZERO);
    let late = SetOptions::new().expire_in(HOUR * 24 * 365 * 100);
    let last = SetOptions::new().expire_in(Duration::MAX);
    for options in [zero, late, last] {
        assert_eq!(code(store.set_with("a", "2", options)), "VARVE_BAD_ARGUMENT");
    }
    assert_eq!(code(store.touch("a", Duration::ZERO)), "VARVE_BAD_ARGUMENT");
    let long = "k".repeat(65_530);
    let hour = SetOptions::new().expire_in(HOUR);
    assert_eq!(code(store.set_with(&long, "", hour)), "VARVE_BAD_ARGUMENT");
    store.set(&long, "").expect("a key that stays may be longer");
    assert_eq!(store.get("a").unwrap(), Some(&b"1"[..]));
    let of_1960 = SystemTime::UNIX_EPOCH - HOUR * 24 * 365 * 10;
    store.set_with("a", "2", SetOptions::new().expire_at(of_1960)).unwrap();
    assert_eq!(store.get("a").unwrap(), None);
}

#[test]
fn write_that_expects_another_version_is_refused() {
    let folder = Folder::new();
    let mut store = Store::open(folder.file("a.varve")).unwrap();
    let missing = SetOptions::new().if_version(0);
    let first = store.set_with("a", "1", missing).unwrap();
    assert_eq!(store.get_entry("a").unwrap().unwrap().version, first);
    let again = store.set_with("a", "2", missing).expect_err("it is there");
    assert_eq!(again.code(), "VARVE_CONFLICT");
    assert!(again.to_string().contains("should be missing"), "{again}");
    let second = store.set_with("a", "2", SetOptions::new().if_version(first)).unwrap();
    assert!(second > first);
    let stale = store.set_with("a", "3", SetOptions::new().if_version(first));
    assert!(matches!(stale, Err(Error::Conflict { expected, found })
        if (expected, found) == (first, second)));
    let mut products = store.collection::<Product>("products").unwrap();
    let make =
        |parts: &mut varve::schema::Parts<Product>| Product { stock: 1, name: parts.str("x") };
    let version = products.set_with("y", missing, make).unwrap();
    assert_eq!(code(products.set_with("y", missing, make)), "VARVE_CONFLICT");
    assert_eq!(products.get_entry("y").unwrap().unwrap().version, version);
    products.set_with("y", SetOptions::new().if_version(version), make).unwrap();
}

#[test]
fn collection_has_a_default_expiry_and_never_assigns_an_expired_id_again() {
    let folder = Folder::new();
    let path = folder.file("a.varve");
    let ids = KeyKind::from_json(&json!([{ "kind": "u53" }])).unwrap();
    let mut store = Store::open(&path).unwrap();
    let make =
        |parts: &mut varve::schema::Parts<Product>| Product { stock: 1, name: parts.str("x") };
    let mut queue = store.keyed_collection::<Product>("queue", &ids).unwrap();
    let stays = queue.push(make).unwrap();
    let mut queue = store.collection::<Product>("queue").unwrap().expire_in(HOUR);
    let expiring = queue.push(make).unwrap();
    assert!(queue.get_entry(expiring).unwrap().unwrap().expires.is_some());
    assert!(queue.get_entry(stays).unwrap().unwrap().expires.is_none());
    let never = SetOptions::new().expire(Expiry::Never);
    queue.set_with(expiring, never, make).unwrap();
    assert!(queue.get_entry(expiring).unwrap().unwrap().expires.is_none());
    assert!(queue.touch(expiring, SystemTime::now() - HOUR).unwrap());
    assert!(!queue.has(expiring).unwrap());
    assert_eq!(queue.count(KeyRange::all()).unwrap(), 1);
    store.close().unwrap();
    let mut store = Store::open(&path).unwrap();
    let mut queue = store.collection::<Product>("queue").unwrap();
    assert_eq!(queue.push(make).unwrap(), expiring + 1);
    assert_eq!(queue.clear(KeyRange::all()).unwrap(), 2);
    assert_eq!(queue.push(make).unwrap(), expiring + 2);
}
