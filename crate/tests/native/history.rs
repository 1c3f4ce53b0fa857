//! Notes of transactions, and walks over the log.

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::time::{Duration, SystemTime};

use musli_zerocopy::OwnedBuf;
use varve::schema::key::KeyKind;
use varve::{ChangeKind, Error, Log, LogItem, LogRange, OpenOptions, Reader, Store};

use crate::collections::Product;
use crate::temp_folder::Folder;

/// A line for each transaction and each record.
fn lines(mut log: Log<'_>) -> Vec<String> {
    let mut lines = vec![];
    while let Some(mut transaction) = log.next().expect("it is whole") {
        let (moved, gap) = (transaction.moved, transaction.after_gap);
        lines.push(format!("{} {:?} {moved} {gap}", transaction.number, transaction.note));
        while let Some(mut record) = transaction.next().expect("it is whole") {
            let key = String::from_utf8_lossy(record.key).into_owned();
            let (kind, name, version) = (record.kind, record.collection, record.version);
            let line = format!("  {kind:?} {name:?} {key} {version}");
            let value = record.value().expect("it can be read").map(<[u8]>::len);
            lines.push(format!("{line} {value:?}"));
        }
    }
    lines
}

fn bytes_of(path: &std::path::Path) -> OwnedBuf {
    let mut buf = OwnedBuf::with_alignment::<u64>();
    buf.extend_from_slice(&fs::read(path).expect("it is there")).expect("there is memory");
    buf.align_in_place().expect("there is memory");
    buf
}

#[test]
fn walk_shows_transactions_with_notes_and_their_records() {
    let folder = Folder::new();
    let path = folder.file("shop.varve");
    let before = SystemTime::now() - Duration::from_millis(1);
    let mut store = Store::open(&path).unwrap();
    store.set("a", b"1").unwrap();
    store.commit().unwrap();
    let noted = |store: &mut Store| {
        let mut products = store.collection::<Product>("products")?;
        products.set("yeezy", |parts| Product { stock: 2, name: parts.str("Yeezy") })?;
        store.set("large", vec![7; 900_001])
    };
    store.transaction_with_note::<_, Error>("first delivery", noted).unwrap();
    store.set("b", b"2").unwrap();
    store.commit().unwrap();
    store
        .transaction_with_note::<_, Error>("sold out", |store| {
            store.collection::<Product>("products")?.delete("yeezy")?;
            store.delete("a")
        })
        .unwrap();
    store.commit().unwrap();
    let found = lines(store.log(LogRange::all()));
    let numbers: Vec<&str> =
        found.iter().filter(|line| !line.starts_with(' ')).map(|line| &**line).collect();
    assert_eq!(numbers.len(), 4, "{found:#?}");
    let expected = [
        "None false false",
        "Some(\"first delivery\") false false",
        "None false false",
        "Some(\"sold out\") false false",
    ];
    for (found, expected) in numbers.iter().zip(expected) {
        assert!(found.ends_with(expected), "{found}");
    }
    let records: Vec<&str> = found.iter().filter_map(|line| line.strip_prefix("  ")).collect();
    let with_versions = [
        "Set None a ",
        "Set Some(\"products\") yeezy ",
        "Set None large ",
        "Set None b ",
        "Delete Some(\"products\") yeezy ",
        "Delete None a ",
    ];
    assert_eq!(records.len(), with_versions.len(), "{records:#?}");
    for (record, start) in records.iter().zip(with_versions) {
        assert!(record.starts_with(start), "{record}");
    }
    assert!(records[2].ends_with("Some(900001)"), "{}", records[2]);
    let mut log = store.log(LogRange::all().since(before).limit(1));
    let transaction = log.next().unwrap().expect("it has a time");
    assert_eq!(transaction.note.as_deref(), Some("first delivery"));
    assert!(transaction.time.expect("it has a time") > before);
    assert!(log.next().unwrap().is_none(), "one was asked for");
    store.close().unwrap();

    let mut store =
        Store::open_with(&path, OpenOptions { read_only: true, ..Default::default() }).unwrap();
    assert_eq!(lines(store.log(LogRange::all())), found, "another process finds the same");
    let bytes = bytes_of(&path);
    let reader = Reader::from_bytes(bytes.as_slice()).unwrap();
    assert_eq!(lines(reader.log(LogRange::all()).unwrap()), found, "so does a reader");
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| assert_eq!(lines(reader.log(LogRange::all()).unwrap()), found));
        }
    });
}

#[test]
fn since_until_and_limit_select_transactions() {
    let folder = Folder::new();
    let mut store = Store::open(folder.file("shop.varve")).unwrap();
    let mut numbers = vec![];
    for number in 0..20_u8 {
        numbers.push(store.set([number], [number]).unwrap());
        store.commit().unwrap();
    }
    let mut walked = |range| {
        let (mut log, mut found) = (store.log(range), vec![]);
        while let Some(transaction) = log.next().unwrap() {
            found.push(transaction.number);
        }
        found
    };
    assert_eq!(walked(LogRange::all()), numbers);
    assert_eq!(walked(LogRange::all().since(numbers[4])), numbers[5..]);
    assert_eq!(walked(LogRange::all().until(numbers[4])), numbers[..5]);
    assert_eq!(walked(LogRange::all().since(numbers[4]).limit(3)), numbers[5..8]);
    assert_eq!(walked(LogRange::all().limit(0)), vec![0_u64; 0]);
    let past = SystemTime::UNIX_EPOCH;
    assert_eq!(walked(LogRange::all().since(past)), vec![0_u64; 0], "none has a time");
    assert_eq!(walked(LogRange::all().until(past)), numbers, "none is later");
}

#[test]
fn typed_keys_and_clears_are_shown() {
    let folder = Folder::new();
    let mut store = Store::open(folder.file("shop.varve")).unwrap();
    let numbers = KeyKind::from_json(&serde_json::json!([{ "kind": "u32" }])).expect("it is known");
    let mut products = store.keyed_collection::<Product>("numbered", &numbers).unwrap();
    products.set(77_u32, |parts| Product { stock: 1, name: parts.str("x") }).unwrap();
    store.commit().unwrap();
    for number in 0..20_000 {
        store.set(format!("{number}"), b"1").unwrap();
    }
    store.commit().unwrap();
    store.clear(varve::KeyRange::all()).unwrap();
    store.commit().unwrap();
    let (mut log, mut clears) = (store.log(LogRange::all()), 0);
    while let Some(mut transaction) = log.next().unwrap() {
        while let Some(mut record) = transaction.next().unwrap() {
            match record.kind {
                ChangeKind::Clear => {
                    clears += 1;
                    assert_eq!(
                        (record.keyspace, record.collection, record.key),
                        (0, None, &b""[..])
                    );
                    assert_eq!(record.value().unwrap(), None);
                }
                _ if record.collection == Some("numbered") => {
                    assert_eq!(record.typed_key::<u32>().unwrap(), 77);
                    assert_eq!(
                        record.typed_key::<String>().unwrap_err().code(),
                        "VARVE_MALFORMED_VALUE"
                    );
                }
                _ => assert!(record.typed_key::<String>().unwrap().parse::<u32>().is_ok()),
            }
        }
    }
    assert_eq!(clears, 1);
}

#[test]
fn bad_notes_are_refused_and_failed_transactions_leave_none() {
    let folder = Folder::new();
    let path = folder.file("shop.varve");
    let mut store = Store::open(&path).unwrap();
    let long = "x".repeat(65_537);
    let refused = store.transaction_with_note::<_, Error>(&long, |store| store.set("a", b"1"));
    assert_eq!(refused.unwrap_err().code(), "VARVE_BAD_ARGUMENT");
    let nested = store.transaction::<(), Error>(|store| {
        store.transaction_with_note::<_, Error>("inner", |store| store.set("a", b"1"))?;
        Ok(())
    });
    assert_eq!(nested.unwrap_err().code(), "VARVE_BAD_ARGUMENT");
    let failed = store.transaction_with_note::<(), Error>("failed", |store| {
        store.set("a", b"1")?;
        Err(Error::TooManyCollections)
    });
    assert_eq!(failed.unwrap_err().code(), "VARVE_QUOTA_EXCEEDED");
    store.transaction_with_note::<_, Error>("empty", |_| Ok(())).unwrap();
    store.commit().unwrap();
    assert!(store.log(LogRange::all()).next().unwrap().is_none());
    store.transaction_with_note::<_, Error>(&long[1..], |store| store.set("a", b"1")).unwrap();
    store.commit().unwrap();
    let mut log = store.log(LogRange::all());
    let transaction = log.next().unwrap().expect("it was written");
    assert_eq!(transaction.note.as_deref().map(str::len), Some(65_536));
    store.close().unwrap();
    let mut store =
        Store::open_with(&path, OpenOptions { read_only: true, ..Default::default() }).unwrap();
    let refused = store.transaction_with_note::<_, Error>("note", |_| Ok(()));
    assert_eq!(refused.unwrap_err().code(), "VARVE_READ_ONLY");
}

#[test]
fn damage_is_one_item_and_the_walk_goes_on_behind_it() {
    let folder = Folder::new();
    let path = folder.file("shop.varve");
    let mut store = Store::open(&path).unwrap();
    for number in 0..10_u8 {
        let write = |store: &mut Store| store.set([number], format!("value {number}"));
        store.transaction_with_note::<_, Error>(&format!("{number}"), write).unwrap();
        store.commit().unwrap();
    }
    let flat = |store: &mut Store| {
        let (mut log, mut found) = (store.log(LogRange::all()).flat(), vec![]);
        while let Some(item) = log.next().expect("it can be read") {
            found.push(match item {
                LogItem::Transaction(transaction) => format!("{:?}", transaction.note),
                LogItem::Record(mut record) => {
                    let value = record.value().unwrap().unwrap_or_default();
                    String::from_utf8_lossy(value).into_owned()
                }
                LogItem::Damage(damage) => format!("damage of {} bytes", damage.length > 0),
                item => format!("{item:?}"),
            });
        }
        found
    };
    let whole = flat(&mut store);
    assert_eq!(whole.len(), 20, "{whole:#?}");
    let bytes = fs::read(&path).unwrap();
    let at = bytes.windows(7).position(|bytes| bytes == b"value 4").expect("it is in it");
    let mut file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.seek(SeekFrom::Start(at as u64)).unwrap();
    file.write_all(b"V").unwrap();
    let damaged = flat(&mut store);
    let mut expected = whole.clone();
    expected.splice(8..10, ["damage of true bytes".to_string()]);
    assert_eq!(damaged, expected);
    let (mut log, mut errors, mut notes) = (store.log(LogRange::all()), 0, vec![]);
    loop {
        match log.next() {
            Ok(None) => break,
            Ok(Some(transaction)) => notes.push(transaction.note.clone().unwrap()),
            Err(error) => {
                assert_eq!(error.code(), "VARVE_CORRUPTION");
                errors += 1;
            }
        }
    }
    assert_eq!((errors, notes.join(" ")), (1, "0 1 2 3 5 6 7 8 9".to_string()));
}

#[test]
fn records_that_compaction_moved_are_still_shown() {
    let folder = Folder::new();
    let mut store = Store::open(folder.file("shop.varve")).unwrap();
    let mut versions = std::collections::BTreeMap::new();
    for number in 0..4_000_u32 {
        let key = if number % 10 == 0 { number } else { number % 100 * 10_000 + 1 };
        let key = key.to_be_bytes();
        versions.insert(key.to_vec(), store.set(key, vec![number as u8; 1_500]).unwrap());
        store.commit().unwrap();
    }
    store.compact().unwrap();
    let (mut log, mut moved, mut newest) =
        (store.log(LogRange::all()), 0, std::collections::BTreeMap::new());
    while let Some(mut transaction) = log.next().unwrap() {
        moved += usize::from(transaction.moved);
        while let Some(mut record) = transaction.next().unwrap() {
            assert_eq!(record.value().unwrap().map(<[u8]>::len), Some(1_500));
            let version = newest.entry(record.key.to_vec()).or_default();
            *version = record.version.max(*version);
        }
    }
    assert!(moved > 0, "compaction moved records");
    assert_eq!(newest, versions, "the content follows from the walk");
}
