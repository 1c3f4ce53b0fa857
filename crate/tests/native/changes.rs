//! What happened since a cursor: changes, marks, and following.

use std::collections::BTreeMap;

use varve::{ChangeKind, Error, FollowFrom, Follower, KeyRange, OpenOptions, Store};

use crate::collections::Product;
use crate::temp_folder::Folder;

fn set(store: &mut Store, key: &str, value: &str) {
    store.set(key, value).unwrap();
    store.commit().unwrap();
}

/// A line for each change: what it did, the collection, the key, and the length of the value.
fn changes(store: &mut Store, since: u64, collection: Option<&str>) -> Vec<String> {
    let mut changes = store.changes(since, collection).expect("the cursor is good");
    let mut lines = Vec::new();
    while let Some(mut change) = changes.next().expect("it is whole") {
        let (kind, name) = (change.kind, change.collection.map(str::to_string));
        let key = String::from_utf8_lossy(change.key).into_owned();
        let length = change.value().unwrap().map(<[u8]>::len);
        lines.push(format!("{kind:?} {} {key} {length:?}", name.unwrap_or_default()));
    }
    lines
}

#[test]
fn each_key_is_given_once_as_it_is_now_with_deletions() {
    let folder = Folder::new();
    let mut store = Store::open(folder.file("a.varve")).unwrap();
    for key in ["a", "b", "c"] {
        set(&mut store, key, "1");
    }
    let cursor = store.last_commit();
    assert_eq!(changes(&mut store, cursor, None), [""; 0]);
    set(&mut store, "a", "22");
    store.delete("b").unwrap();
    store.delete("c").unwrap();
    set(&mut store, "c", "333");
    store.set("a", "4444").unwrap();
    let large = vec![7; 900_000];
    store.set("large", large).unwrap();
    let mut products = store.collection::<Product>("products").unwrap();
    products.set("yeezy", |parts| Product { stock: 2, name: parts.str("x") }).unwrap();
    let mut found = changes(&mut store, cursor, None);
    let of_products = found.iter().filter(|line| line.starts_with("Set products yeezy")).count();
    assert_eq!((of_products, changes(&mut store, cursor, Some("products")).len()), (1, 1));
    found.retain(|line| !line.contains("products"));
    found.sort();
    assert_eq!(
        found,
        ["Delete  b None", "Set  a Some(4)", "Set  c Some(3)", "Set  large Some(900000)"]
    );
    store.commit().unwrap();
    for n in 0..2_000 {
        store.set(format!("many {n}"), "1").unwrap();
    }
    store.commit().unwrap();
    let cursor = store.last_commit();
    store.clear(KeyRange::all()).unwrap();
    store.set("z", "z").unwrap();
    assert_eq!(changes(&mut store, cursor, None), ["Clear   None", "Set  z Some(1)"]);
    assert_eq!(changes(&mut store, cursor, Some("products")), [""; 0]);
}

#[test]
fn changes_and_marks_that_a_program_applies_make_an_equal_copy() {
    let folder = Folder::new();
    let mut store = Store::open(folder.file("a.varve")).unwrap();
    let mut copy: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let (mut cursor, mut random) = (0, 1_u32);
    let mut next = |below: u32| {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (random >> 8) % below
    };
    store.retain("copy", Some(0)).unwrap();
    for round in 0..40 {
        for _ in 0..next(200) {
            let key = format!("key {}", next(300));
            match next(8) {
                0 => drop(store.delete(&key).unwrap()),
                1 if next(40) == 0 => drop(store.clear(KeyRange::all()).unwrap()),
                _ => {
                    let length = if next(50) == 0 { 700_000 } else { next(3_000) as usize };
                    store.set(&key, vec![round; length]).map(drop).unwrap();
                }
            }
            if next(10) == 0 {
                store.commit().unwrap();
            }
        }
        if next(4) == 0 {
            store.compact().unwrap();
        }
        let mut changes = store.changes(cursor, None).expect("the mark keeps them");
        while let Some(mut change) = changes.next().unwrap() {
            match change.kind {
                ChangeKind::Set => {
                    let key = change.key.to_vec();
                    copy.insert(key, change.value().unwrap().expect("it is current").to_vec());
                }
                ChangeKind::Delete => drop(copy.remove(change.key)),
                _ => copy.clear(),
            }
        }
        cursor = store.last_commit();
        store.retain("copy", Some(cursor)).unwrap();
        let mut entries = store.entries(KeyRange::all()).unwrap();
        let mut all = BTreeMap::new();
        while let Some((key, value)) = entries.next_pair().unwrap() {
            all.insert(key.to_vec(), value.to_vec());
        }
        assert!(all == copy, "round {round}");
    }
}

#[test]
fn marks_are_kept_listed_moved_and_dropped() {
    let folder = Folder::new();
    let path = folder.file("a.varve");
    let mut store = Store::open(&path).unwrap();
    set(&mut store, "a", "1");
    let cursor = store.last_commit();
    store.retain("backup", Some(cursor)).unwrap();
    store.retain("sync", Some(0)).unwrap();
    store.close().unwrap();
    let mut store = Store::open(&path).unwrap();
    let marks = [("backup".to_string(), cursor), ("sync".to_string(), 0)];
    assert_eq!(store.retained().unwrap(), marks);
    store.retain("sync", None).unwrap();
    assert_eq!(store.retained().unwrap(), &marks[..1]);
    let code = |error: Error| error.code();
    for name in ["", &"n".repeat(256)] {
        assert_eq!(store.retain(name, Some(0)).map_err(code), Err("VARVE_BAD_ARGUMENT"));
    }
    let future = store.last_commit() + 1_000;
    assert_eq!(store.retain("x", Some(future)).map_err(code), Err("VARVE_BAD_ARGUMENT"));
    assert_eq!(store.changes(future, None).map(drop).map_err(code), Err("VARVE_BAD_ARGUMENT"));
    let from = FollowFrom::cursor(future);
    assert_eq!(store.follow(from).map(drop).map_err(code), Err("VARVE_BAD_ARGUMENT"));
}

/// The keys of each transaction that a poll gives.
fn poll(follower: &mut Follower, store: &mut Store) -> Vec<String> {
    let mut news = follower.poll(store).expect("nothing is gone");
    let mut lines = Vec::new();
    while let Some(mut transaction) = news.next().expect("it is whole") {
        let mut line = transaction.note.clone().unwrap_or_default();
        while let Some(record) = transaction.next().unwrap() {
            line = format!("{line} {}", String::from_utf8_lossy(record.key));
        }
        lines.push(line);
    }
    lines
}

#[test]
fn follower_gives_each_transaction_once_across_restarts() {
    let folder = Folder::new();
    let path = folder.file("a.varve");
    let mut store = Store::open(&path).unwrap();
    set(&mut store, "a", "1");
    let mut follower = store.follow(FollowFrom::cursor(0)).unwrap();
    let mut late = store.follow(FollowFrom::now()).unwrap();
    assert_eq!(poll(&mut follower, &mut store), [" a"]);
    assert_eq!(poll(&mut follower, &mut store), [""; 0]);
    store
        .transaction_with_note::<_, Error>("two", |store| {
            store.set("b", "1")?;
            store.set("c", "1")
        })
        .unwrap();
    assert_eq!(poll(&mut follower, &mut store), [""; 0], "it is not committed yet");
    store.commit().unwrap();
    set(&mut store, "d", "1");
    assert_eq!(poll(&mut late, &mut store), ["two b c", " d"]);

    // One is taken, and the program is killed while it handles the next.
    let mut news = follower.poll(&mut store).unwrap();
    assert_eq!(news.next().unwrap().unwrap().note.as_deref(), Some("two"));
    assert!(news.next().unwrap().is_some());
    drop(news);
    let cursor = follower.cursor();
    store.close().unwrap();
    let mut store = Store::open(&path).unwrap();
    let mut follower = store.follow(FollowFrom::cursor(cursor)).unwrap();
    set(&mut store, "e", "1");
    assert_eq!(poll(&mut follower, &mut store), [" d", " e"]);
    assert_eq!(poll(&mut late, &mut store), [" e"], "a follower borrows no store");
}

#[test]
fn compaction_takes_nothing_from_a_follower_with_a_mark_and_fails_one_without() {
    let folder = Folder::new();
    let path = folder.file("a.varve");
    let mut store = Store::open(&path).unwrap();
    set(&mut store, "first", "1");
    let mut marked = store.follow(FollowFrom::now().retain("replica")).unwrap();
    let mut unmarked = store.follow(FollowFrom::now()).unwrap();
    let fill = |store: &mut Store| {
        for n in 0..400_u32 {
            store.set(format!("{}", n % 20), vec![n as u8; 50_000]).unwrap();
            store.commit().unwrap();
        }
        store.flush().unwrap();
        store.compact().unwrap();
    };
    fill(&mut store);
    assert_eq!(poll(&mut marked, &mut store).len(), 400);
    assert_eq!(store.retained().unwrap(), [("replica".to_string(), marked.cursor())]);
    store.commit().unwrap();
    store.compact().unwrap();
    let expired = unmarked.poll(&mut store).map(drop).expect_err("its past is gone");
    assert_eq!(expired.code(), "VARVE_CURSOR_EXPIRED");
    let begun = store.follow(FollowFrom::now().retain("replica")).unwrap();
    assert_eq!(begun.cursor(), marked.cursor());
    assert_eq!(store.retain("old", Some(1)).unwrap_err().code(), "VARVE_CURSOR_EXPIRED");
    store.close().unwrap();

    let read_only = OpenOptions { read_only: true, ..OpenOptions::default() };
    let mut reader = Store::open_with(&path, read_only).unwrap();
    let cursor = reader.last_commit();
    assert_eq!(changes(&mut reader, cursor, None), [""; 0]);
    assert_eq!(changes(&mut reader, 0, None).len(), 21);
    let mut follower = reader.follow(FollowFrom::now()).unwrap();
    assert_eq!(poll(&mut follower, &mut reader), [""; 0]);
}
