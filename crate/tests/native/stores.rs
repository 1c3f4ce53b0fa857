//! Stores with byte keys and values.

use std::panic::{AssertUnwindSafe, catch_unwind};

use varve::{Error, KeyRange, OpenOptions, Store};

use crate::temp_folder::Folder;

fn keys(store: &mut Store, range: KeyRange<'_>) -> Vec<String> {
    let mut entries = store.entries(range).expect("the range is one");
    let mut keys = Vec::new();
    while let Some((key, value)) = entries.next_pair().expect("all can be read") {
        assert_eq!(key, value);
        keys.push(String::from_utf8_lossy(key).into_owned());
    }
    keys
}

#[test]
fn writes_survive_reopening() {
    let folder = Folder::new();
    let path = folder.file("deep/er/shop.varve");
    let mut store = Store::open(&path).expect("its folders are made");
    store.set("a", "1").expect("enough space");
    store.set("b", vec![7; 1 << 20]).expect("enough space");
    assert!(store.delete("a").expect("enough space"));
    assert!(!store.delete("a").expect("enough space"));
    store.set("c", b"dropped").expect("enough space");
    drop(store);
    let mut store = Store::open(&path).expect("it was closed");
    assert!(store.recovery().clean);
    assert_eq!(store.get("a").unwrap(), None);
    assert_eq!(store.get("b").unwrap(), Some(&vec![7; 1 << 20][..]));
    assert_eq!(store.get("c").unwrap(), Some(&b"dropped"[..]));
    assert!(store.has("c").unwrap());
    assert_eq!(store.count(KeyRange::all()).unwrap(), 2);
    store.close().expect("it can be closed");
}

#[test]
fn update_if_changes_bytes_in_place() {
    let folder = Folder::new();
    let mut store = Store::open(folder.file("a.varve")).expect("it opens");
    store.set("n", [5]).unwrap();
    assert!(store.update_if("n", |n| n[0] > 4, |n| n[0] -= 1).unwrap());
    assert!(!store.update_if("n", |n| n[0] > 4, |n| n[0] -= 1).unwrap());
    assert!(!store.update_if("missing", |_| true, |_| ()).unwrap());
    assert_eq!(store.get("n").unwrap(), Some(&[4][..]));
}

#[test]
fn failing_or_panicking_transaction_is_rolled_back() {
    let folder = Folder::new();
    let mut store = Store::open(folder.file("a.varve")).expect("it opens");
    store.set("a", "a").unwrap();
    let failed = store.transaction(|store| {
        store.set("b", "b")?;
        store.delete("a")?;
        store.transaction(|store| store.set("c", "c"))?;
        store.set("", "the empty key is none")
    });
    assert_eq!(failed.expect_err("it has no key").code(), "VARVE_BAD_ARGUMENT");
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        store.transaction(|store| -> Result<(), Error> {
            store.set("d", "d")?;
            panic!("on the way")
        })
    }));
    assert!(panicked.is_err());
    assert_eq!(keys(&mut store, KeyRange::all()), ["a"]);
    let committed = store.transaction(Store::commit).expect_err("it is not over");
    assert_eq!(committed.code(), "VARVE_REENTRANCY");
    store.transaction(|store| store.set("e", "e")).expect("it is well");
    assert_eq!(keys(&mut store, KeyRange::all()), ["a", "e"]);
    store.flush().expect("enough space");
}

#[test]
fn ranges_iterate_both_ways_between_any_bounds() {
    let folder = Folder::new();
    let mut store = Store::open(folder.file("a.varve")).expect("it opens");
    for key in ["a", "b", "ba", "bb", "c", "d"] {
        store.set(key, key).unwrap();
    }
    let all = KeyRange::all;
    assert_eq!(keys(&mut store, all().gt("a").lte("c")), ["b", "ba", "bb", "c"]);
    assert_eq!(keys(&mut store, all().gte("b").lt("c").reverse()), ["bb", "ba", "b"]);
    assert_eq!(keys(&mut store, all().prefix("b").limit(2)), ["b", "ba"]);
    assert_eq!(keys(&mut store, all().prefix("b").gt("ba")), ["bb"]);
    assert_eq!(keys(&mut store, all().prefix("b").reverse().limit(1)), ["bb"]);
    assert_eq!(keys(&mut store, all().gt("c").lt("b")), [""; 0]);
    assert_eq!(keys(&mut store, all().gt("b").lt("b")), [""; 0]);
    assert_eq!(keys(&mut store, all().prefix(vec![0xFF]).gte("a")), [""; 0]);
    let tuple = store.entries(all().gt((1_u8, 2_u8))).expect_err("raw keys are no tuples");
    assert_eq!(tuple.code(), "VARVE_BAD_ARGUMENT");
}

#[test]
fn missing_file_error_names_the_path_and_a_likely_one() {
    let folder = Folder::new();
    let path = folder.file("shop");
    let read_only = OpenOptions { read_only: true, ..OpenOptions::default() };
    let missing = Store::open_with(&path, read_only).expect_err("it is missing");
    assert!(missing.to_string().ends_with("shop"), "{missing}");
    Store::open(folder.file("shop.varve")).and_then(Store::close).expect("it is made");
    let missing = Store::open_with(&path, read_only).expect_err("it is missing");
    assert!(missing.to_string().ends_with("shop.varve?"), "{missing}");
}

#[test]
fn oversized_keys_and_values_are_refused_with_advice() {
    let folder = Folder::new();
    let mut store = Store::open(folder.file("shop.varve")).expect("it opens");
    let long = store.set("a", vec![0; 16_777_217]).expect_err("it is too long");
    assert!(long.to_string().contains("divide it"), "{long}");
    let key = store.set("k".repeat(65_536), "").expect_err("it is too long");
    assert!(key.to_string().contains("hash"), "{key}");
}

#[test]
fn read_only_open_leaves_no_trace() {
    let folder = Folder::new();
    let path = folder.file("a.varve");
    let read_only = OpenOptions { read_only: true, ..OpenOptions::default() };
    let missing = Store::open_with(&path, read_only).expect_err("it is missing");
    assert_eq!(missing.code(), "VARVE_DATABASE_NOT_FOUND");
    assert_eq!(folder.names(), [""; 0]);
    let mut store = Store::open(&path).expect("it opens");
    store.set("a", "a").unwrap();
    assert_eq!(folder.names(), ["a.varve", "a.varve.lock"]);
    let busy = Store::open_with(&path, read_only).expect_err("it is being written");
    assert_eq!(busy.code(), "VARVE_DATABASE_BUSY");
    drop(store);
    let before = std::fs::read(&path).unwrap();
    let mut one = Store::open_with(&path, read_only).expect("it opens");
    let mut two = Store::open_with(&path, read_only).expect("it opens twice");
    assert_eq!(one.get("a").unwrap(), two.get("a").unwrap());
    assert_eq!(one.set("b", "b").expect_err("it is only read").code(), "VARVE_READ_ONLY");
    drop((one, two));
    assert_eq!(std::fs::read(&path).unwrap(), before);
    assert_eq!(folder.names(), ["a.varve"]);
}

#[test]
fn foreign_file_is_refused_and_unchanged() {
    let folder = Folder::new();
    let path = folder.file("a.varve");
    std::fs::write(&path, "no database").unwrap();
    let error = Store::open(&path).expect_err("it is none");
    assert_eq!(error.code(), "VARVE_UNSUPPORTED_FORMAT");
    assert_eq!(std::fs::read(&path).unwrap(), b"no database");
    assert_eq!(folder.names(), ["a.varve"], "the lock is released");
}

#[test]
fn compact_shrinks_the_file() {
    let folder = Folder::new();
    let mut store = Store::open(folder.file("a.varve")).expect("it opens");
    // So much that maintenance leaves some of it for later; few reclaimable slots are freed at once.
    for round in 0..10_u8 {
        for key in 0..64_u8 {
            store.set([key], vec![round; 128 << 10]).unwrap();
        }
        store.commit().unwrap();
    }
    store.flush().unwrap();
    let before = store.stats().file_bytes;
    store.compact().expect("enough space");
    assert!(store.stats().file_bytes < before, "{before} to {}", store.stats().file_bytes);
    assert_eq!(store.get([63]).unwrap(), Some(&[9; 128 << 10][..]));
}

/// On a full disk, simulated by starting this test again with a limit on file sizes.
#[test]
#[cfg(target_os = "linux")]
fn commit_succeeds_when_only_maintenance_lacks_space() {
    use std::process::Command;
    const HERE: &str = "VARVE_TEST_COMMITS";
    const NAME: &str = "stores::commit_succeeds_when_only_maintenance_lacks_space";
    let Ok(path) = std::env::var(HERE) else {
        let folder = Folder::new();
        let status = Command::new("sh")
            .args(["-c", "trap '' XFSZ; ulimit -f 30000; exec \"$@\"", "sh"])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", NAME])
            .env(HERE, folder.file("shop.varve"))
            .status();
        assert!(status.unwrap().success());
        return;
    };
    let mut store = Store::open(path).expect("enough space");
    let filled = (0..).find(|i| store.set(format!("filler {i}"), [7; 100_000]).is_err());
    assert!(filled.is_some_and(|filled| filled > 80), "{filled:?}");
    let mut count = 0_u32;
    for next in 1..200_u32 {
        if store.set("count", next.to_le_bytes()).is_err() {
            continue;
        }
        let committed = store.commit();
        count = if committed.is_ok() { next } else { count };
        let found = store.get("count").unwrap().map(|bytes| bytes.try_into().unwrap());
        assert_eq!(found.map_or(0, u32::from_le_bytes), count, "{committed:?}");
    }
    assert!(count > 100, "small values still fit");
    store.close().expect("it can be closed");
}

#[test]
fn clear_removes_a_range_or_all_keys() {
    let folder = Folder::new();
    let path = folder.file("a.varve");
    let mut store = Store::open(&path).expect("it opens");
    let name = |n: u32| format!("{n:04}");
    for n in 0..2_000 {
        store.set(name(n), name(n)).unwrap();
    }
    assert_eq!(store.clear(KeyRange::all().gte("0100").lt("0110")).unwrap(), 10);
    assert_eq!(store.clear(KeyRange::all().limit(3).reverse()).unwrap(), 3);
    assert_eq!(store.clear(KeyRange::all().gt("b").lt("a")).unwrap(), 0);
    assert_eq!((store.count(KeyRange::all()).unwrap(), store.has("1996").unwrap()), (1_987, true));
    store.commit().unwrap();
    let undone: Result<(), Error> = store.transaction(|store| {
        assert_eq!(store.clear(KeyRange::all())?, 1_987);
        store.set("0000", "again")?;
        assert_eq!(store.count(KeyRange::all()).unwrap(), 1);
        store.set("", "the empty key is none")?;
        Ok(())
    });
    assert!(undone.is_err());
    assert_eq!(
        (store.count(KeyRange::all()).unwrap(), keys(&mut store, KeyRange::all()).len()),
        (1_987, 1_987)
    );
    assert_eq!(store.clear(KeyRange::all()).unwrap(), 1_987);
    store.set("0001", "0001").unwrap();
    store.close().unwrap();
    let mut store = Store::open(&path).expect("it was closed");
    assert_eq!(keys(&mut store, KeyRange::all()), ["0001"]);
    store.compact().unwrap();
    assert_eq!(store.stats().unswept, 0);
    assert_eq!(keys(&mut store, KeyRange::all()), ["0001"]);
}
