//! Checks that the tables of FORMAT.md match the structs of `varve::engine::format`, field by field.

use std::mem::{offset_of, size_of};

use varve::engine::format::frame::FrameHeader;
use varve::engine::format::record::RecordHeader;
use varve::engine::format::segment::SegmentHeader;
use varve::engine::format::superblock::Superblock;
use varve::engine::format::system_records::{
    ChunksRef, ClientResult, ClientResults, CollectionDescriptor, ExtentRef, IndexEntry,
    Transaction,
};

const DOCUMENT: &str = include_str!("../../FORMAT.md");

/// The fields of a struct with their offsets, and its size.
macro_rules! layout {
    ($name:ident: $($field:ident)*) => {
        (vec![$((stringify!($field), offset_of!($name, $field))),*], size_of::<$name>())
    };
}

/// The fields in the first table of offsets after `marker`, with offsets, and the end of the last
/// field.
fn table(marker: &str) -> (Vec<(&'static str, usize)>, usize) {
    let (_, behind) = DOCUMENT.split_once(marker).unwrap_or_else(|| panic!("no {marker}"));
    let (_, rows) = behind.split_once("| offset | type | field | |\n").expect("a table follows");
    let rows = rows.lines().skip(1).take_while(|line| line.starts_with('|'));
    let mut fields = Vec::new();
    let mut end = 0;
    for row in rows {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let offset = cells[1].parse().expect("an offset");
        assert_eq!(offset, end, "{marker}: {row}");
        let name = cells[3].trim_matches('`');
        if !name.is_empty() {
            fields.push((name, offset));
            end = offset + size_of_type(cells[2]);
        }
    }
    (fields, end)
}

fn size_of_type(name: &str) -> usize {
    let (item, count) = match name.trim_end_matches(']').split_once('[') {
        Some((item, count)) => (item, count.parse().expect("a count")),
        None => (name, 1),
    };
    let bits: usize = item.trim_start_matches('u').parse().expect("an unsigned type");
    bits / 8 * count
}

#[test]
fn specification_tables_match_format_structs() {
    assert_eq!(
        table("## 3 Superblock"),
        layout!(Superblock: magic check major minor segment_log2 mode flags incompatible compatible
            file_id hash_seed generation created_ms next_version next_frame end_sequence
            end_position next_sequence first_sequence first_frame checkpoint_sequence
            checkpoint_frame uncertain_below checkpoint_slot reserved)
    );
    assert_eq!(
        table("## 4 Segments"),
        layout!(SegmentHeader: check magic kind flags reserved sequence slot salt first_frame
            payload payload_check span reserved2)
    );
    assert_eq!(
        table("## 5 Frames"),
        layout!(FrameHeader: check magic length number watermark records flags)
    );
    assert_eq!(
        table("## 6 Records"),
        layout!(RecordHeader: check kind replaced key_len keyspace value_len capacity oldest version
            expiry previous)
    );
    assert_eq!(table("## 7 Extents"), layout!(ExtentRef: slot span length check sequence reserved));
    assert_eq!(table("## 7a Chunks"), layout!(ChunksRef: id length count reserved));
    assert_eq!(
        table("**TRANSACTION record**"),
        layout!(Transaction: number time_ms client request)
    );
    assert_eq!(
        table("**Client results**"),
        layout!(ClientResults: acknowledged lease_ms count reserved)
    );
    assert_eq!(table("Then `count` times"), layout!(ClientResult: request status length));
    assert_eq!(
        table("**Descriptors**"),
        layout!(CollectionDescriptor: fingerprint keyspace flags parent json_len)
    );
    assert_eq!(table("**Index entries**"), layout!(IndexEntry: key_offset reserved));
}
