//! Collections of versioned structs.

use musli_zerocopy::{OwnedBuf, Ref, ZeroCopy};
use serde_json::{Value, json};
use varve::StdFile;
use varve::engine::Options;
use varve::engine::format::system_records::{CollectionDescriptor, DESCRIPTOR_INDEX};
use varve::schema::{Kind, Parts, Record, View};
use varve::{KeyRange, Reader, Store};

use crate::temp_folder::Folder;

#[derive(Clone, Copy, Debug, ZeroCopy, Record)]
#[repr(C)]
#[varve(versioned)]
struct First {
    root_size: u16,
    small: u8,
    name: Ref<str>,
    words: Ref<[Word]>,
    longs: Ref<[u64]>,
}

#[derive(Clone, Copy, Debug, ZeroCopy, Record)]
#[repr(C)]
struct Word {
    text: Ref<str>,
    times: u8,
}

#[derive(Clone, Copy, Debug, ZeroCopy, Record)]
#[repr(C)]
#[varve(versioned)]
struct Second {
    root_size: u16,
    small: u8,
    name: Ref<str>,
    words: Ref<[Word]>,
    longs: Ref<[u64]>,
    #[varve(added = 7)]
    price: u16,
    #[varve(added)]
    note: Ref<str>,
}

fn first(parts: &mut Parts<First>, name: &str) -> First {
    let name = parts.str(name);
    let word = |text: &str| Word { text: parts.str(text), times: text.len() as u8 };
    let words = ["one", "three"].map(word);
    let words = parts.slice(&words);
    let longs = parts.slice(&[1_u64 << 40, 2]);
    First { root_size: 0, small: 3, name, words, longs }
}

/// All fields of a record, for comparison.
#[derive(Debug, PartialEq)]
struct Fields {
    small: u8,
    name: String,
    words: Vec<(String, u8)>,
    longs: Vec<u64>,
    price: u16,
    note: String,
}

fn fields_of(view: View<'_, Second>) -> Fields {
    view.check().expect("it is well");
    let text = |text: Ref<str>| view.load(text).unwrap().to_string();
    let words = view.load(view.words).unwrap().iter();
    Fields {
        small: view.small,
        name: text(view.name),
        words: words.map(|word| (text(word.text), word.times)).collect(),
        longs: view.load(view.longs).unwrap().to_vec(),
        price: view.price,
        note: text(view.note),
    }
}

#[test]
fn later_version_reads_and_upgrades_earlier_records() {
    let folder = Folder::new();
    let path = folder.file("shop.varve");
    let mut store = Store::open(&path).unwrap();
    let mut fields = store.collection::<First>("things").unwrap();
    fields.set("a", |parts| first(parts, "A")).unwrap();
    fields.set("b", |parts| first(parts, "größe")).unwrap();
    drop(store);

    let mut store = Store::open(&path).unwrap();
    let mut fields = store.collection::<Second>("things").unwrap();
    let before = Fields {
        small: 3,
        name: "größe".to_string(),
        words: vec![("one".to_string(), 3), ("three".to_string(), 5)],
        longs: vec![1 << 40, 2],
        price: 7,
        note: String::new(),
    };
    assert_eq!(fields_of(fields.get("b").unwrap().unwrap()), before);
    assert!(fields.update_if("b", |b| b.price == 7, |b| b.price += 1).unwrap());
    let view = fields.get("b").unwrap().unwrap();
    assert!(view.in_place().is_some(), "it is of this version now");
    assert_eq!(fields_of(view), Fields { price: 8, ..before });
    assert!(fields.update_if("b", |b| b.price == 8, |b| b.note = b.name).unwrap());
    assert_eq!(fields_of(fields.get("b").unwrap().unwrap()).note, "größe");
    assert!(!fields.update_if("a", |a| a.price != 7, |_| ()).unwrap());
    store.close().unwrap();

    // A program with the earlier version continues, and loses none of the later fields.
    let mut store = Store::open(&path).unwrap();
    let mut fields = store.collection::<First>("things").unwrap();
    assert_eq!(fields.get("b").unwrap().unwrap().small, 3);
    assert!(fields.update_if("b", |_| true, |b| b.small = 4).unwrap());
    fields.set("c", |parts| first(parts, "C")).unwrap();
    store.close().unwrap();

    let bytes = std::fs::read(&path).unwrap();
    let mut aligned = OwnedBuf::with_alignment::<u64>();
    aligned.extend_from_slice(&bytes).unwrap();
    aligned.align_in_place().unwrap();
    let reader = Reader::from_bytes(aligned.as_slice()).unwrap();
    let fields = reader.collection::<Second>("things").unwrap().expect("it is there");
    let all = fields.entries(KeyRange::all()).unwrap().map(|entry| fields_of(entry.unwrap().value));
    let all: Vec<_> = all.map(|all| (all.small, all.name, all.price, all.note)).collect();
    let line = |small, name: &str, price, note: &str| (small, name.into(), price, note.into());
    assert_eq!(all, [line(3, "A", 7, ""), line(4, "größe", 8, "größe"), line(3, "C", 7, "")]);
}

const COLLECTION: u32 = 2;
const OWN: u32 = 1;

fn write_record(
    engine: &mut varve::engine::Store<StdFile>,
    key: &[u8],
    keyspace: u32,
    parent: u32,
    json: &Value,
) {
    let text = json.to_string();
    let flags = if parent == 0 { 0 } else { DESCRIPTOR_INDEX };
    let fingerprint = First::FINGERPRINT;
    let json_len = text.len() as u32;
    let head = CollectionDescriptor { fingerprint, keyspace, flags, parent, json_len };
    engine.set(OWN, key, &[head.to_bytes(), text.as_bytes()].concat()).unwrap();
}

/// A file whose collection has an index by price, with a record whose entry has this price.
fn with_index(folder: &Folder, name: &str, price: u16) -> std::path::PathBuf {
    let path = folder.file(name);
    let mut engine =
        varve::engine::Store::open(StdFile::open(&path).unwrap(), Options::default()).unwrap();
    let value = Kind::from(Second::LAYOUT).to_json();
    let json = json!({ "value": value, "key": "string", "indexes": ["byPrice"] });
    write_record(&mut engine, b"collection/things", COLLECTION, 0, &json);
    let key = [b"index/".as_slice(), &COLLECTION.to_be_bytes(), b"byPrice"].concat();
    write_record(&mut engine, &key, COLLECTION + 1, COLLECTION, &json!({ "fields": ["price"] }));
    let mut parts = Parts::of::<First>();
    let root = first(&mut parts, "A");
    engine.set(COLLECTION, b"a", &parts.finish(root).unwrap()).unwrap();
    let entry = [&price.to_be_bytes()[..], b"a"].concat();
    engine.set(COLLECTION + 1, &entry, &[2, 0, 0, 0, 0, 0, 0, 0]).unwrap();
    engine.close().map_err(|(_, error)| error).unwrap();
    path
}

#[test]
fn index_of_an_added_field_covers_earlier_records_by_default() {
    let folder = Folder::new();
    let mut store = Store::open(with_index(&folder, "1.varve", 7)).unwrap();
    let mut fields = store.collection::<Second>("things").unwrap();
    let by = |fields: &mut varve::Collection<'_, Second>| {
        let mut records = fields.entries_by("byPrice", KeyRange::all()).unwrap();
        let mut prices = Vec::new();
        while let Some(entry) = records.next_entry().unwrap() {
            prices.push(entry.value.price);
        }
        prices
    };
    assert_eq!(by(&mut fields), [7]);
    assert!(fields.update_if("a", |_| true, |a| a.price = 9).unwrap());
    assert_eq!(by(&mut fields), [9]);

    let mut store = Store::open(with_index(&folder, "2.varve", 7)).unwrap();
    let mut fields = store.collection::<Second>("things").unwrap();
    assert!(fields.delete("a").unwrap());
    assert_eq!(by(&mut fields), [0; 0]);

    // TypeScript declared another default: the entry would become stale.
    let mut store = Store::open(with_index(&folder, "3.varve", 8)).unwrap();
    let mut fields = store.collection::<Second>("things").unwrap();
    let error = fields.delete("a").expect_err("its entry has another value");
    assert_eq!(error.code(), "VARVE_MALFORMED_VALUE");
    assert!(fields.has("a").unwrap());
}

#[derive(Clone, Copy, Debug, ZeroCopy, Record)]
#[repr(C)]
#[varve(versioned, rename = "New")]
struct Old {
    root_size: u16,
    stock: u16,
    name: Ref<str>,
}

#[derive(Clone, Copy, Debug, ZeroCopy, Record)]
#[repr(C)]
#[varve(versioned)]
struct New {
    root_size: u16,
    stock: u16,
    name: Ref<str>,
    #[varve(added = 5)]
    price: u32,
    #[varve(added)]
    note: Ref<str>,
}

#[test]
fn upgraded_record_has_the_bytes_of_a_new_one() {
    let folder = Folder::new();
    let path = folder.file("shop.varve");
    let mut store = Store::open(&path).unwrap();
    let mut old = store.collection::<Old>("products").unwrap();
    old.set("a", |parts| Old { root_size: 0, stock: 2, name: parts.str("größe") }).unwrap();
    store.close().unwrap();
    let mut store = Store::open(&path).unwrap();
    let mut new = store.collection::<New>("products").unwrap();
    assert!(new.update_if("a", |_| true, |a| a.stock -= 1).unwrap());
    // The vectors prove that these bytes equal those of TypeScript.
    let mut parts = Parts::of::<New>();
    let (name, note) = (parts.str("größe"), parts.str(""));
    let upgraded = parts.finish(New { root_size: 0, stock: 1, name, price: 5, note }).unwrap();
    assert_eq!(new.get("a").unwrap().expect("it is there").bytes(), upgraded);
    let descriptor = |store: &mut varve::engine::Store<StdFile>| {
        let bytes = store.get(OWN, b"collection/products").unwrap().expect("it was written");
        serde_json::from_slice::<Value>(&bytes[24..]).unwrap()["value"]["added"].clone()
    };
    store.close().unwrap();
    let mut engine =
        varve::engine::Store::open(StdFile::open(&path).unwrap(), Options::default()).unwrap();
    // The default 5 in four bytes, and an empty text: its offset and its length.
    assert_eq!(descriptor(&mut engine), json!(["BQAAAA==", "AAAAAAAAAAA="]));
}
