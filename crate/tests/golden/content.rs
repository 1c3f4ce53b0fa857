//! Golden files of undamaged databases with all kinds of records.

use musli_zerocopy::ZeroCopy;
use varve::engine::format::record::{KIND_PAST_CHUNKED, KIND_PAST_SET, KIND_TRANSACTION};
use varve::engine::format::superblock::MODE_KEEP_HISTORY;
use varve::engine::format::system_records::{
    ClientResult, ClientResults, CollectionDescriptor, DESCRIPTOR_DROPPED, DESCRIPTOR_INDEX,
    IndexEntry, KEY_CLIENT, KEY_COLLECTION, KEY_EXPIRY, KEY_INDEX, KEY_MARKS, KEY_PACKED, Mark,
    Transaction, expiry_entry,
};
use varve::engine::format::{DEFAULT_SEGMENT_LOG2, KEYSPACE_ENGINE, LAST_KEYSPACE};

use crate::golden_file::{Content, Expect, Golden, TransactionRecord};
use crate::image::{
    CREATED_MS, Image, LOG2, Record, commit, delete, extent, moved, part, pattern, set, void,
};

fn opens(name: &'static str, about: &'static str, image: Image, content: Content) -> Golden {
    Golden { name, about, bytes: image.bytes, expect: Expect::Opens(content) }
}

pub fn all() -> Vec<Golden> {
    vec![
        empty(),
        one_record(),
        default_segment(),
        set_delete_overwrite(),
        keyspaces(),
        key_lengths(),
        capacity_and_void(),
        commit_across_segments(),
        extents(),
        expiry(),
        transactions(),
        client_results(),
        collection_and_index(),
        kept_history(),
        expiry_entries(),
        marks(),
    ]
}

fn empty() -> Golden {
    let about = "as creation leaves it: two superblocks, no segment";
    opens("empty", about, Image::created(LOG2), Content::closed_at(0))
}

fn one_record() -> Golden {
    let mut image = Image::opened(LOG2);
    let mut segment = image.segment(0, 1, 1);
    image.frame(&mut segment, commit(1, 1), &[set("name", "varve", 1)]);
    image.close(&mut segment, 2, 2);
    let about = "one key, flushed, witnessed, closed";
    opens("one-record", about, image, Content::closed_at(2).live("name", "varve", 1))
}

fn default_segment() -> Golden {
    let mut image = Image::opened(DEFAULT_SEGMENT_LOG2);
    let mut segment = image.segment(0, 1, 1);
    image.frame(&mut segment, commit(1, 1), &[set("name", "varve", 1)]);
    image.close(&mut segment, 2, 2);
    let about = "one key in a segment of 1 MiB, the ordinary size";
    opens("default-segment", about, image, Content::closed_at(2).live("name", "varve", 1))
}

fn set_delete_overwrite() -> Golden {
    let mut image = Image::opened(LOG2);
    let mut segment = image.segment(0, 1, 1);
    let first = [set("apple", "red", 1), set("banana", "yellow", 2), set("cherry", "dark", 3)];
    image.frame(&mut segment, commit(1, 1), &first);
    image.frame(&mut segment, commit(2, 1), &[delete("banana", 4), set("apple", "green", 5)]);
    image.frame(&mut segment, commit(3, 3), &[set("cherry", "", 6), delete("plum", 7)]);
    image.close(&mut segment, 4, 8);
    let about = "an overwritten value, a deleted key, an emptied value, a delete of what never was";
    let content = Content::closed_at(4).live("apple", "green", 5).live("cherry", "", 6);
    opens("set-delete-overwrite", about, image, content)
}

fn keyspaces() -> Golden {
    let mut image = Image::opened(LOG2);
    let mut segment = image.segment(0, 1, 1);
    let records = [
        set("same", "raw", 1),
        set("same", "collection two", 2).keyspace(2),
        set("same", "collection seven", 3).keyspace(7),
        set("same", "the last keyspace", 4).keyspace(LAST_KEYSPACE),
        delete("same", 5).keyspace(2),
    ];
    image.frame(&mut segment, commit(1, 1), &records);
    image.close(&mut segment, 2, 6);
    let about = "the same key in several keyspaces, deleted in one";
    let content = Content::closed_at(2)
        .live("same", "raw", 1)
        .live_in(7, "same", "collection seven", 3)
        .live_in(LAST_KEYSPACE, "same", "the last keyspace", 4);
    opens("keyspaces", about, image, content)
}

fn key_lengths() -> Golden {
    let mut image = Image::opened(LOG2);
    let mut segment = image.segment(0, 1, 1);
    let keys: [&[u8]; 5] = [&[0], &[0, 0], b"12345678", &[0xFF; 9], &[b'k'; 1000]];
    let mut content = Content::closed_at(2);
    let mut records = Vec::new();
    for (version, key) in (1..).zip(keys) {
        let value = vec![version as u8; version as usize * 3];
        records.push(set(key, &value, version));
        content = content.live(key, value, version);
    }
    image.frame(&mut segment, commit(1, 1), &records);
    image.close(&mut segment, 2, 6);
    let about = "keys of 1, 2, 8, 9 and 1,000 bytes, not all of them text, padded to 8";
    opens("key-lengths", about, image, content)
}

fn capacity_and_void() -> Golden {
    let mut image = Image::opened(LOG2);
    let mut segment = image.segment(0, 1, 1);
    let records = [
        set("roomy", "ten bytes.", 1).capacity(64),
        void(&pattern(21, 3)),
        set("after", "the void", 2),
    ];
    image.frame(&mut segment, commit(1, 1), &records);
    image.close(&mut segment, 2, 3);
    let about = "a value with room to grow, and space that a rolled-back call left";
    let content = Content::closed_at(2).live("roomy", "ten bytes.", 1).live("after", "the void", 2);
    opens("capacity-and-void", about, image, content)
}

fn commit_across_segments() -> Golden {
    let mut image = Image::opened(LOG2);
    let value = |seed| pattern(900, seed);
    let mut first = image.segment(0, 1, 1);
    image.frame(&mut first, commit(1, 1), &[set("a", "before", 1), set("b", "before", 2)]);
    let records = [set("a", value(3), 3), set("c", value(4), 4), set("d", value(5), 5)];
    image.frame(&mut first, part(2, 1), &records);
    let mut second = image.segment(1, 2, 3);
    let records = [
        set("e", value(6), 6).oldest(2),
        set("d", value(7), 7),
        set("f", value(8), 8).oldest(2),
        delete("b", 9),
    ];
    image.frame(&mut second, part(3, 1), &records);
    let mut third = image.segment(2, 3, 4);
    image.frame(&mut third, commit(4, 1), &[set("f", "small", 10).oldest(2)]);
    image.close(&mut third, 5, 11);
    let about = "one commit of three frames in three segments; the mark is on the last";
    let content = Content::closed_at(5)
        .live("a", value(3), 3)
        .live("c", value(4), 4)
        .live("d", value(7), 7)
        .live("e", value(6), 6)
        .live("f", "small", 10);
    opens("commit-across-segments", about, image, content)
}

fn extents() -> Golden {
    let mut image = Image::opened(LOG2);
    let (big, odd) = (pattern(5000, 1), pattern(1025, 9));
    let mut segment = image.segment(0, 1, 1);
    let big_at = image.extent(1, 2, &big);
    let gone_at = image.extent(3, 3, &pattern(2000, 2));
    let odd_at = image.extent(4, 4, &odd);
    let records = [extent("big", big_at, 1), extent("gone", gone_at, 2), extent("odd", odd_at, 3)];
    image.frame(&mut segment, commit(1, 1), &records);
    image.frame(&mut segment, commit(2, 1), &[set("gone", "small now", 4)]);
    image.close(&mut segment, 3, 5);
    image.superblock.next_sequence = 5;
    image.write_superblock();
    let about = "values in extents of two slots and of one, and one that was superseded";
    let content =
        Content::closed_at(3).live("big", big, 1).live("gone", "small now", 4).live("odd", odd, 3);
    opens("extents", about, image, content)
}

fn expiry() -> Golden {
    let (past, future) = (978_307_200, 4_102_444_800);
    let mut image = Image::opened(LOG2);
    let mut segment = image.segment(0, 1, 1);
    let records = [
        set("past", "expired in 2001", 1).expiry(past),
        set("future", "expires in 2100", 2).expiry(future),
        set("never", "stays", 3),
    ];
    image.frame(&mut segment, commit(1, 1), &records);
    image.close(&mut segment, 2, 4);
    let about = "records with an expiry, kept here; a reader with a clock hides those of the past";
    let content = Content::closed_at(2)
        .live("past", "expired in 2001", 1)
        .expiring(past)
        .live("future", "expires in 2100", 2)
        .expiring(future)
        .live("never", "stays", 3);
    opens("expiry", about, image, content)
}

fn expiry_entries() -> Golden {
    let (past, future, stored) = (978_307_200, 4_102_444_800, 1_u64);
    let mut image = Image::opened(LOG2);
    let mut segment = image.segment(0, 1, 1);
    let entry = |keyspace: u32, expiry: u32, key: &str, version: u64| {
        let key = expiry_entry(keyspace, expiry, key.as_bytes());
        set(key, "", version).keyspace(KEYSPACE_ENGINE)
    };
    let first = [
        set(KEY_EXPIRY, stored.to_le_bytes(), 1).keyspace(KEYSPACE_ENGINE),
        entry(0, past, "past", 2),
        set("past", "expired in 2001", 3).expiry(past),
        entry(2, future, "future", 4),
        set("future", "expires in 2100", 5).keyspace(2).expiry(future),
        set("never", "stays", 6),
        entry(2, past, "without a record", 7),
    ];
    image.frame(&mut segment, commit(1, 1), &first);
    let touched = [
        delete(expiry_entry(2, future, b"future"), 8).keyspace(KEYSPACE_ENGINE),
        entry(2, future + 1, "future", 9),
        set("future", "expires in 2100", 10).keyspace(2).expiry(future + 1),
    ];
    image.frame(&mut segment, commit(2, 1), &touched);
    image.close(&mut segment, 3, 11);
    let about = "records that expire, with their entries and the time that the file goes on from: it is before their expiry";
    let own = |content: Content, keyspace: u32, expiry: u32, key: &str, version: u64| {
        let key = expiry_entry(keyspace, expiry, key.as_bytes());
        content.live_in(KEYSPACE_ENGINE, key, "", version)
    };
    let content = Content::closed_at(3)
        .live_in(KEYSPACE_ENGINE, KEY_EXPIRY, stored.to_le_bytes(), 1)
        .live("past", "expired in 2001", 3)
        .expiring(past)
        .live_in(2, "future", "expires in 2100", 10)
        .expiring(future + 1)
        .live("never", "stays", 6);
    let content = own(content, 0, past, "past", 2);
    let content = own(content, 2, future + 1, "future", 9);
    let content = own(content, 2, past, "without a record", 7);
    opens("expiry-entries", about, image, content)
}

fn marks() -> Golden {
    let mut image = Image::opened(LOG2);
    let mut segment = image.segment(0, 1, 1);
    let mut value = Vec::new();
    for (name, cursor, frame) in [("backup", 1, 2), ("b", 3, 3)] {
        let mark = Mark { cursor, frame, name_len: name.len() as u32, reserved: 0 };
        value.extend_from_slice(mark.to_bytes());
        value.extend_from_slice(name.as_bytes());
        value.resize(value.len().next_multiple_of(8), 0);
    }
    image.frame(&mut segment, commit(1, 1), &[set("a", "before the marks", 1)]);
    image.frame(&mut segment, commit(2, 1), &[set("a", "after one", 2), delete("b", 3)]);
    let records = [set("c", "after both", 4), set(KEY_MARKS, &value, 5).keyspace(KEYSPACE_ENGINE)];
    image.frame(&mut segment, commit(3, 1), &records);
    image.close(&mut segment, 4, 6);
    let about = "two marks, which keep what followed their cursors";
    let content = Content::closed_at(4)
        .live("a", "after one", 2)
        .live("c", "after both", 4)
        .live_in(KEYSPACE_ENGINE, KEY_MARKS, value, 5);
    opens("marks", about, image, content)
}

fn kept_history() -> Golden {
    let mut image = Image::opened(LOG2);
    image.superblock.mode = MODE_KEEP_HISTORY;
    image.write_superblocks();
    let mut segment = image.segment(0, 1, 1);
    let records = [set("a", "first", 1), set("b", "deleted", 2)];
    image.frame(&mut segment, commit(1, 1), &records);
    image.frame(&mut segment, commit(2, 1), &[set("a", "second", 3), delete("b", 4)]);
    let packed = set(KEY_PACKED, 2_u64.to_le_bytes(), 5).keyspace(KEYSPACE_ENGINE);
    image.frame(&mut segment, moved(3, 1), core::slice::from_ref(&packed));
    let copies = [
        set("a", "first", 1).kind(KIND_PAST_SET),
        set("b", "deleted", 2).kind(KIND_PAST_SET),
        set("c", pattern(24, 5), 2).kind(KIND_PAST_CHUNKED),
    ];
    image.frame(&mut segment, moved(4, 1), &copies);
    image.close(&mut segment, 5, 6);
    let about =
        "a database that keeps its history, packed: copies of what was replaced bring back nothing";
    let content = Content::closed_at(5).live("a", "second", 3);
    let content = content.live_in(KEYSPACE_ENGINE, KEY_PACKED, 2_u64.to_le_bytes(), 5);
    opens("kept-history", about, image, content)
}

fn transaction(transaction_record: &TransactionRecord) -> Record {
    let fixed = Transaction {
        number: transaction_record.number,
        time_ms: transaction_record.time_ms,
        client: transaction_record.client,
        request: transaction_record.request,
    };
    let mut value = fixed.to_bytes().to_vec();
    value.extend(transaction_record.note.bytes());
    Record { value, ..Record::default() }.kind(KIND_TRANSACTION).keyspace(KEYSPACE_ENGINE)
}

fn transactions() -> Golden {
    let mut image = Image::opened(LOG2);
    let mut segment = image.segment(0, 1, 1);
    let notes = [
        TransactionRecord {
            number: 1,
            time_ms: CREATED_MS,
            client: 0,
            request: 0,
            note: "first stock",
        },
        TransactionRecord {
            number: 2,
            time_ms: CREATED_MS + 1500,
            client: 77,
            request: 5,
            note: "",
        },
        TransactionRecord {
            number: 3,
            time_ms: CREATED_MS + 1500,
            client: 77,
            request: 6,
            note: "größer",
        },
    ];
    let records = [transaction(&notes[0]), set("stock", "3", 1)];
    image.frame(&mut segment, commit(1, 1), &records);
    let records = [
        transaction(&notes[1]),
        set("stock", "2", 2),
        transaction(&notes[2]),
        set("stock", "9", 3),
        set("order", "7", 4),
    ];
    image.frame(&mut segment, commit(2, 1), &records);
    image.close(&mut segment, 3, 5);
    let about = "transactions with number, time, note, and the request of a client";
    let content = Content::closed_at(3).live("stock", "9", 3).live("order", "7", 4);
    opens(
        "transactions",
        about,
        image,
        notes.into_iter().fold(content, Content::transaction_record),
    )
}

fn results(acknowledged: u64, answers: &[(u64, u32, &[u8])]) -> Vec<u8> {
    let count = answers.len() as u32;
    let lease_ms = CREATED_MS + 60_000;
    let mut value =
        ClientResults { acknowledged, lease_ms, count, reserved: 0 }.to_bytes().to_vec();
    for &(request, status, answer) in answers {
        let length = answer.len() as u32;
        value.extend(ClientResult { request, status, length }.to_bytes());
        value.extend(answer);
        value.resize(value.len().next_multiple_of(8), 0);
    }
    value
}

fn client_results() -> Golden {
    let key = [KEY_CLIENT, &77_u64.to_be_bytes()].concat();
    let before = results(3, &[(4, 0, b"true")]);
    let after = results(4, &[(5, 0, b"hello"), (6, 16, b"")]);
    let mut image = Image::opened(LOG2);
    let mut segment = image.segment(0, 1, 1);
    let records = [set("order", "6", 1), set(&key, &before, 2).keyspace(KEYSPACE_ENGINE)];
    image.frame(&mut segment, commit(1, 1), &records);
    let records = [set("order", "7", 3), set(&key, &after, 4).keyspace(KEYSPACE_ENGINE)];
    image.frame(&mut segment, commit(2, 1), &records);
    image.close(&mut segment, 3, 5);
    let about = "client 77 acknowledged request 4; the answers to 5 and 6 are kept with the writes";
    let content =
        Content::closed_at(3).live("order", "7", 3).live_in(KEYSPACE_ENGINE, key, after, 4);
    opens("client-results", about, image, content)
}

fn descriptor(fingerprint: u64, keyspace: u32, flags: u32, parent: u32, json: &str) -> Vec<u8> {
    let json_len = json.len() as u32;
    let fixed = CollectionDescriptor { fingerprint, keyspace, flags, parent, json_len };
    [fixed.to_bytes(), json.as_bytes()].concat()
}

fn collection_and_index() -> Golden {
    let json = r#"{"name":"Product","fields":[["stock","u16"],["name","str"]]}"#;
    let products = descriptor(0x1111_2222_3333_4444, 2, 0, 0, json);
    let by_stock = descriptor(0x5555, 3, DESCRIPTOR_INDEX, 2, r#"["stock"]"#);
    let old = descriptor(0x6666, 4, DESCRIPTOR_DROPPED, 0, "{}");
    let products_key = [KEY_COLLECTION, b"products"].concat();
    let index_key = [KEY_INDEX, &2_u32.to_be_bytes(), b"byStock"].concat();
    let old_key = [KEY_COLLECTION, b"old"].concat();
    // In the layout of musli-zerocopy for { stock: u16, name: Ref<str> }: 20,001 and the name after
    // it.
    let value = [&[0x21, 0x4E, 0, 0, 12, 0, 0, 0, 5, 0, 0, 0], &b"Yeezy"[..]].concat();
    let entry_key = [&20_001_u16.to_be_bytes()[..], b"yeezy"].concat();
    let entry = IndexEntry { key_offset: 2, reserved: 0 };
    let mut image = Image::opened(LOG2);
    let mut segment = image.segment(0, 1, 1);
    let records = [
        set(&products_key, &products, 1).keyspace(KEYSPACE_ENGINE),
        set(&index_key, &by_stock, 2).keyspace(KEYSPACE_ENGINE),
        set(&old_key, &old, 3).keyspace(KEYSPACE_ENGINE),
    ];
    image.frame(&mut segment, commit(1, 1), &records);
    let records =
        [set("yeezy", &value, 4).keyspace(2), set(&entry_key, entry.to_bytes(), 5).keyspace(3)];
    image.frame(&mut segment, commit(2, 1), &records);
    image.close(&mut segment, 3, 6);
    let about = "a collection, its index, a dropped collection; one record and its index entry";
    let content = Content::closed_at(3)
        .live_in(KEYSPACE_ENGINE, products_key, products, 1)
        .live_in(KEYSPACE_ENGINE, index_key, by_stock, 2)
        .live_in(KEYSPACE_ENGINE, old_key, old, 3)
        .live_in(2, "yeezy", value, 4)
        .live_in(3, entry_key, entry.to_bytes(), 5);
    opens("collection-and-index", about, image, content)
}
