//! Changes that insert or change lengths, and batches.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, SystemTime};

use musli_zerocopy::{Ref, ZeroCopy};
use varve::schema::Record;
use varve::{Batch, CollectionOptions, Error, IndexBy, SetOptions, Slice, Store};

use crate::temp_folder::Folder;

#[derive(Clone, Copy, Debug, ZeroCopy, Record)]
#[repr(C)]
struct Product {
    stock: u16,
    name: Ref<str>,
}

fn products() -> CollectionOptions {
    CollectionOptions::new()
        .index("byStock", IndexBy::field("stock"))
        .index("byName", IndexBy::field("name").unique())
}

#[test]
fn missing_key_gets_the_given_value_first_unless_it_is_refused() {
    let folder = Folder::new();
    let mut store = Store::open(folder.file("a.varve")).unwrap();
    assert!(!store.upsert_if("n", [5], |n| n[0] > 5, |n| n[0] -= 1).unwrap());
    assert!(!store.has("n").unwrap());
    assert!(store.upsert_if("n", [5], |n| n[0] > 4, |n| n[0] -= 1).unwrap());
    assert!(!store.upsert_if("n", [5], |n| n[0] > 4, |n| n[0] -= 1).unwrap(), "it has 4 now");
    assert_eq!(store.get("n").unwrap(), Some(&[4][..]));
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        store.upsert_if("m", [5], |_| true, |_| panic!("on the way"))
    }));
    assert!(panicked.is_err() && !store.has("m").unwrap());

    let mut products = store.collection_with::<Product>("products", &products()).unwrap();
    let mut buy = |key: &str, least: u16| {
        products.upsert_if(
            key,
            |parts| Product { stock: 3, name: parts.str(key) },
            |product| product.stock >= least,
            |product| product.stock -= 1,
        )
    };
    assert!(!buy("air", 4).unwrap());
    assert!(buy("air", 3).unwrap());
    assert!(!buy("air", 3).unwrap());
    assert!(buy("yeezy", 1).unwrap());
    assert!(buy("yeezy", 1).unwrap());
    let stocks: Vec<(String, u16)> = products
        .entries_by("byStock", ..)
        .unwrap()
        .map(|entry| entry.map(|entry| (entry.key().unwrap(), entry.value.view().stock)).unwrap())
        .collect();
    assert_eq!(stocks, [("yeezy".to_string(), 1), ("air".to_string(), 2)]);
    let bad = products.upsert_if(
        "bad",
        |_| Product { stock: 1, name: Ref::with_metadata(1_000_u32, 5) },
        |_| true,
        |_| (),
    );
    assert_eq!(bad.unwrap_err().code(), "VARVE_BAD_ARGUMENT");
    assert!(!products.has("bad").unwrap());
}

#[test]
fn replaced_value_has_its_own_length_and_keeps_its_expiry() {
    let folder = Folder::new();
    let path = folder.file("a.varve");
    let mut store = Store::open(&path).unwrap();
    let until = SystemTime::now() + Duration::from_secs(3_600);
    store.set_with("a", "1", SetOptions::new().expire_at(until)).unwrap();
    let expires = store.get_entry("a").unwrap().unwrap().expires;
    assert!(expires.is_some());
    for length in [1, 5_000, 3, 2 << 20, 0, 9] {
        assert!(store.replace_if("a", |_| true, |_| vec![7; length]).unwrap());
        assert_eq!(store.get("a").unwrap(), Some(&vec![7; length][..]));
        assert_eq!(store.get_entry("a").unwrap().unwrap().expires, expires);
    }
    assert!(!store.replace_if("a", |a| a.len() > 9, |_| Vec::new()).unwrap());
    assert!(!store.replace_if("b", |_| true, |_| vec![1]).unwrap());
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        store.replace_if("a", |_| true, |_| panic!("on the way"))
    }));
    assert!(panicked.is_err());
    let long = store.replace_if("a", |_| true, |_| vec![0; (16 << 20) + 1]).unwrap_err();
    assert_eq!(long.code(), "VARVE_BAD_ARGUMENT");
    assert_eq!(store.get("a").unwrap(), Some(&[7; 9][..]));

    let mut products = store.collection_with::<Product>("products", &products()).unwrap();
    for key in ["air", "yeezy"] {
        let options = SetOptions::new().expire_at(until);
        products
            .set_with(key, options, |parts| Product { stock: 3, name: parts.str(key) })
            .unwrap();
    }
    let longer = "Yeezy Boost 350 V2";
    let mut rename = |key: &str, name: &str| {
        products.replace_if(
            key,
            |product| product.stock == 3,
            |product, parts| Product { name: parts.str(name), ..*product },
        )
    };
    assert!(rename("yeezy", longer).unwrap());
    assert!(!rename("missing", longer).unwrap());
    assert_eq!(rename("air", longer).unwrap_err().code(), "VARVE_UNIQUE_VIOLATION");
    let entry = products.get_entry("yeezy").unwrap().unwrap();
    assert_eq!((entry.expires, entry.value.load(entry.value.name).unwrap()), (expires, longer));
    let mut by_name = |name: &str| products.entries_by("byName", name..=name).unwrap().count();
    assert_eq!((by_name("yeezy"), by_name(longer), by_name("air")), (0, 1, 1));
    store.close().unwrap();
    let mut store = Store::open(&path).unwrap();
    assert_eq!(store.get("a").unwrap(), Some(&[7; 9][..]));
}

#[test]
fn batch_is_written_in_order_and_as_a_whole() {
    let folder = Folder::new();
    let path = folder.file("a.varve");
    let mut store = Store::open(&path).unwrap();
    store.set("b", "1").unwrap();
    let batch = std::thread::spawn(|| {
        let mut batch = Batch::new();
        batch.set("a", "1").set(b"a", vec![2; 300_000]).delete("b").set(Slice::from("c"), "3");
        batch
    });
    let mut batch = batch.join().unwrap();
    assert_eq!((batch.len(), batch.is_empty()), (4, false));
    let before = store.stats().next_frame;
    store.write(&batch).unwrap();
    store.commit().unwrap();
    assert_eq!(store.stats().next_frame, before + 1, "it is one commit");
    assert_eq!(store.get("a").unwrap().map(<[u8]>::len), Some(300_000));
    batch.set("d", "4").set("", "the empty key is none");
    store.delete("a").unwrap();
    assert_eq!(store.write(&batch).unwrap_err().code(), "VARVE_BAD_ARGUMENT");
    let keys: Result<Vec<Slice>, Error> = store.keys(..).unwrap().collect();
    assert_eq!(keys.unwrap(), ["c"]);
    batch.clear();
    store.write(&batch).unwrap();
    store.close().unwrap();
    assert_eq!(Store::open(&path).unwrap().count(..).unwrap(), 1);
}
