//! Iterators over keys and records, and the bytes that they give to the program.

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::ops::Bound;

use musli_zerocopy::{Ref, ZeroCopy};
use varve::schema::Record;
use varve::{Entries, KeyRange, Keys, OpenOptions, Owned, Reader, Records, Slice, Store};

use crate::temp_folder::Folder;

#[derive(Clone, Copy, Debug, ZeroCopy, Record)]
#[repr(C)]
struct Item {
    number: u32,
    name: Ref<str>,
}

fn numbered(n: u32) -> String {
    format!("{n:04}")
}

/// Keys "0000", "0002", and so on, with equal values.
fn even_store(folder: &Folder, count: u32) -> Store {
    let mut store = Store::open(folder.file("a.varve")).expect("it opens");
    for n in (0..count).rev() {
        store.set(numbered(2 * n), numbered(2 * n)).expect("enough space");
    }
    store
}

#[test]
fn both_ends_of_any_range_give_each_key_once_and_in_order() {
    let folder = Folder::new();
    let mut store = even_store(&folder, 700);
    let ranges: [fn() -> KeyRange<'static>; 8] = [
        KeyRange::all,
        || KeyRange::all().reverse(),
        || KeyRange::all().gt("0100").lte("1100"),
        || KeyRange::all().limit(300),
        || KeyRange::all().limit(300).reverse(),
        || KeyRange::all().prefix("01").limit(3),
        || KeyRange::all().gt("0100").lt("0102"),
        || KeyRange::all().limit(0),
    ];
    for (number, range) in ranges.into_iter().enumerate() {
        let mut expected: VecDeque<String> = (0..700).map(|n| numbered(2 * n)).collect();
        match number {
            1 => expected.make_contiguous().reverse(),
            2 => expected.retain(|key| key.as_str() > "0100" && key.as_str() <= "1100"),
            3 => expected.truncate(300),
            4 => {
                expected.make_contiguous().reverse();
                expected.truncate(300);
            }
            5 => expected = ["0100", "0102", "0104"].map(str::to_string).into(),
            6 | 7 => expected.clear(),
            _ => {}
        }
        // How many steps are taken from the front and then from the back, again and again.
        for (front, back) in [(1, 0), (0, 1), (1, 1), (5, 1), (1, 70), (200, 3)] {
            let mut expected = expected.clone();
            let mut entries = store.entries(range()).expect("the range is one");
            let mut step = 0;
            while !expected.is_empty() {
                let is_front = step % (front + back) < front;
                step += 1;
                let (found, wanted) = match is_front {
                    true => (entries.next(), expected.pop_front()),
                    false => (entries.next_back(), expected.pop_back()),
                };
                let (key, value) = found.expect("there are more").expect("it can be read");
                assert_eq!(Some(String::from_utf8(key.to_vec()).unwrap()), wanted, "{number}");
                assert_eq!(key, value);
            }
            for _ in 0..2 {
                assert!(entries.next().is_none() && entries.next_back().is_none(), "{number}");
            }
        }
        let keys = store.keys(range()).expect("the range is one");
        let keys: Result<Vec<Slice>, _> = keys.collect();
        assert_eq!(keys.expect("they can be read"), expected.make_contiguous());
    }
}

#[test]
fn ranges_of_rust_are_ranges_of_keys() {
    let folder = Folder::new();
    let mut store = even_store(&folder, 6);
    let mut keys = |range: KeyRange<'_>| -> Vec<Slice> {
        store.keys(range).expect("the range is one").collect::<Result<_, _>>().expect("readable")
    };
    assert_eq!(keys((..).into()).len(), 6);
    assert_eq!(keys(("0002".."0006").into()), ["0002", "0004"]);
    assert_eq!(keys(("0002"..="0006").into()), ["0002", "0004", "0006"]);
    assert_eq!(keys(("0008"..).into()), ["0008", "0010"]);
    assert_eq!(keys((.."0002").into()), ["0000"]);
    assert_eq!(keys((..="0002").into()), ["0000", "0002"]);
    assert_eq!(keys((Bound::Excluded("0006"), Bound::Unbounded).into()), ["0008", "0010"]);
    assert_eq!(keys((b"0002"..b"0004").into()), ["0002"]);
    assert_eq!(keys((Slice::from("0008")..).into()), ["0008", "0010"]);
    #[allow(clippy::reversed_empty_ranges)]
    let reversed = "0006".."0002";
    assert_eq!(keys(reversed.into()), [""; 0]);
    assert_eq!(store.count(.."0004").unwrap(), 2);
    assert_eq!(store.count("0004".."0004").unwrap(), 0);
    assert_eq!(store.clear("0002"..="0004").unwrap(), 2);
    assert_eq!(store.count(..).unwrap(), 4);
    let snapshot = store.snapshot().unwrap();
    store.clear(..).unwrap();
    let mut past = store.at(&snapshot).unwrap();
    assert_eq!(past.count("0006"..).unwrap(), 3);
    assert_eq!(past.keys("0006"..).unwrap().next_back().unwrap().unwrap(), "0010");
    assert_eq!(past.get_slice("0000").unwrap().unwrap(), "0000");
    assert_eq!(past.entries(..).unwrap().count(), 4);
}

#[test]
fn number_keys_and_records_come_from_both_ends_in_ranges() {
    let folder = Folder::new();
    let path = folder.file("a.varve");
    let mut store = Store::open(&path).expect("it opens");
    let keys = varve::schema::key::KeyKind::from_json(&serde_json::json!([{ "kind": "u32" }]));
    let keys = keys.expect("it is known");
    let mut items = store.keyed_collection::<Item>("items", &keys).unwrap();
    for number in 0..200 {
        let name = format!("item {number}, whose name is longer than a short slice");
        items.set(number, |parts| Item { number, name: parts.str(&name) }).unwrap();
    }
    assert_eq!(items.count(10_u32..20).unwrap(), 10);
    let found: Vec<u32> = items
        .entries(10_u32..=13)
        .unwrap()
        .rev()
        .map(|entry| entry.unwrap().key().unwrap())
        .collect();
    assert_eq!(found, [13, 12, 11, 10]);
    let kept = items.get_owned(7_u32).unwrap().expect("it was set");
    let entry = items.entries(199_u32..).unwrap().next().expect("it is there").unwrap();
    assert_eq!(items.clear(..100_u32).unwrap(), 100);
    assert!(items.get_owned(7_u32).unwrap().is_none());
    let mut records = items.entries(..).unwrap();
    assert_eq!(records.next_entry_back().unwrap().unwrap().value.number, 199);
    assert_eq!(records.next_entry().unwrap().unwrap().key::<u32>().unwrap(), 100);
    store.close().unwrap();
    // They outlive the store, and go to other threads.
    let name = std::thread::spawn(move || {
        let view = kept.view();
        view.load(view.name).unwrap().to_string()
    });
    assert!(name.join().unwrap().starts_with("item 7,"));
    assert_eq!(entry.value.view().number, 199);
    assert_eq!(entry.key_bytes(), &199_u32.to_be_bytes()[..]);

    let bytes = std::fs::read(&path).unwrap();
    let mut aligned = varve::AlignedBytes::zeroed(bytes.len());
    aligned[..bytes.len()].copy_from_slice(&bytes);
    let reader = Reader::from_bytes(&aligned).unwrap();
    let items = reader.collection::<Item>("items").unwrap().expect("it is there");
    let mut found = items.entries(110_u32..120).unwrap();
    assert_eq!(found.len(), 10);
    assert_eq!(found.next_back().unwrap().unwrap().value.number, 119);
    assert_eq!(found.next().unwrap().unwrap().value.number, 110);
    assert_eq!(found.len(), 8);
    assert_eq!(reader.entries(..).unwrap().len(), 0, "raw calls see nothing of collections");
}

/// The iterator ends behind what cannot be read, however often it is asked.
#[test]
fn unreadable_values_are_errors_of_the_iterator_and_it_ends() {
    let folder = Folder::new();
    let path = folder.file("a.varve");
    let mut store = Store::open(&path).unwrap();
    for key in 0..2_000_u32 {
        store.set(key.to_be_bytes(), vec![key as u8; 4_096]).unwrap();
    }
    store.close().unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let options = OpenOptions { memory: 4 << 20, ..OpenOptions::default() };
    let mut store = Store::open_with(&path, options).unwrap();
    let mut entries = store.entries(..).unwrap();
    let failed = entries
        .by_ref()
        .filter(|entry| entry.as_ref().is_err_and(|error| error.code() == "VARVE_CORRUPTION"));
    let failed = failed.count();
    assert!((1..=2_000).contains(&failed), "{failed} errors");
    assert!(entries.next().is_none());
}

#[test]
fn slices_are_compared_hashed_and_shown_as_their_bytes() {
    fn shared<T: Send + Sync + 'static>() {}
    shared::<Slice>();
    shared::<Owned<Item>>();
    fn movable<T: Send>() {}
    movable::<Entries<'_>>();
    movable::<Keys<'_>>();
    movable::<Records<'_, Item>>();

    let hashes = RandomState::new();
    for length in [0, 1, 4, 5, 19, 20, 21, 64, 70_000] {
        let bytes: Vec<u8> = (0..length).map(|at| at as u8).collect();
        let slice = Slice::new(&bytes);
        assert_eq!(slice, bytes);
        assert_eq!(slice.clone(), slice);
        assert_eq!(hashes.hash_one(&slice), hashes.hash_one(&bytes[..]), "{length}");
        let mut greater = bytes.clone();
        greater.push(0);
        let greater = Slice::from(greater);
        assert!(greater > slice);
        assert_eq!(Vec::from(slice.part(length / 2..)), bytes[length / 2..]);
        assert_eq!(slice.part(..), slice);
        assert_eq!(bytes.iter().copied().collect::<Slice>(), slice);
    }
    let mut sorted =
        ["b", "a", "", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "ab", "\u{ff}"].map(Slice::from);
    sorted.sort();
    assert_eq!(sorted, ["", "a", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "ab", "b", "\u{ff}"]);
    let set = HashSet::from([Slice::from("a long name that does not fit into the slice")]);
    assert!(set.contains(&b"a long name that does not fit into the slice"[..]));
    assert_eq!(format!("{:?}", Slice::new(b"a\n\xFF")), r#"b"a\n\xff""#);
    assert_eq!(Slice::default(), "");
    let whole = Slice::from("0123456789012345678901234567890");
    let part = whole.part(3..=25);
    drop(whole);
    assert_eq!(part, "34567890123456789012345");
    assert!(std::panic::catch_unwind(|| Slice::from("abc").part(2..5)).is_err());
}
