//! What committed golden files say about time: records expire, and marks keep the log.

use std::fs;

use varve::engine::format::KEYSPACE_ENGINE;
use varve::engine::format::system_records::expiry_of;

use crate::{folder, open};

fn committed(name: &str) -> Vec<u8> {
    fs::read(folder().join(format!("{name}.varve"))).expect("the golden file is committed")
}

#[test]
fn records_of_a_golden_file_expire_when_their_time_comes() {
    let mut store = open(&committed("expiry-entries")).map_err(|(_, error)| error).expect("opens");
    assert!(store.expires());
    assert_eq!((store.now(), store.live_count(0), store.live_count(2)), (1, Ok(2), Ok(1)));
    store.set_now(978_307_199).expect("nothing is lost");
    assert_eq!(store.get(0, b"past"), Ok(Some(&b"expired in 2001"[..])));
    store.set_now(978_307_200).expect("nothing is lost");
    assert_eq!(store.get(0, b"past"), Ok(None));
    assert_eq!((store.live_count(0), store.live_count(2)), (Ok(1), Ok(1)));
    store.set_now(4_102_444_800).expect("nothing is lost");
    assert_eq!(store.expiry(2, b"future"), Ok(Some(4_102_444_801)), "it was moved by a second");
    store.set_now(4_102_444_801).expect("nothing is lost");
    assert_eq!(store.get(2, b"future"), Ok(None));
    assert_eq!(store.live_count(2), Ok(0));
    store.commit().expect("commit");
    while store.maintain(false).expect("maintain") {}
    let own = store.keys(KEYSPACE_ENGINE).expect("readable");
    assert!(own.iter().all(|key| expiry_of(key).is_none()), "no entry is left");
    assert_eq!(store.keys(0), Ok(vec![b"never".to_vec()]));
}

#[test]
fn marks_of_a_golden_file_keep_what_followed_them() {
    let mut store = open(&committed("marks")).map_err(|(_, error)| error).expect("opens");
    let mut marks = vec![];
    store.each_mark(|name, cursor| marks.push((name.to_vec(), cursor))).expect("readable");
    assert_eq!(marks, [(b"backup".to_vec(), 1), (b"b".to_vec(), 3)]);
    assert!(store.retained_bytes() > 0);
    for round in 0..200_u32 {
        store.set(0, b"a", &round.to_le_bytes().repeat(40)).expect("set");
        store.commit().expect("commit");
        while store.maintain(round % 50 == 0).expect("maintain") {}
    }
    assert!([1, 3].into_iter().all(|cursor| store.since(cursor).expect("readable").is_whole));
    store.retain(b"backup", None).expect("dropped");
    store.retain(b"b", None).expect("dropped");
    store.commit().expect("commit");
    let mut more = store.maintain(true).expect("maintain");
    while more {
        more = store.maintain(false).expect("maintain");
    }
    assert!(!store.since(1).expect("readable").is_whole, "without marks compaction takes it");
}
