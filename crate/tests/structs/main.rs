//! The struct vectors in `tests/vectors/structs.json`: values that musli-zerocopy encodes, the
//! offsets of their fields, and invalid bytes. TypeScript reads and writes the same values.
//!
//! `UPDATE_VECTORS=1 cargo test --test structs` writes the file; a change of the committed file is
//! a change of the format.

#![cfg(target_endian = "little")]

mod cases;
mod define;
mod kinds;
mod malformed;
mod parts;
mod types;
mod vector;

use std::fs;
use std::path::PathBuf;

use vector::Vector;

fn all() -> Vec<Vector> {
    let mut vectors = cases::all();
    malformed::add_malformed(&mut vectors);
    vectors
}

fn file() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/vectors/structs.json")
}

#[test]
fn musli_reproduces_committed_vectors_byte_for_byte() {
    let vectors: Vec<String> = all().iter().map(Vector::json).collect();
    let text = format!("[\n{}\n]\n", vectors.join(",\n"));
    if std::env::var_os("UPDATE_VECTORS").is_some() {
        fs::write(file(), &text).expect("the file can be written");
    }
    let committed = fs::read_to_string(file()).expect("the vectors are committed");
    for (line, (made, found)) in text.lines().zip(committed.lines()).enumerate() {
        assert_eq!(made, found, "line {} differs from what is committed", line + 1);
    }
    assert_eq!(text.len(), committed.len());
}

#[test]
fn first_product_keeps_its_thirty_bytes() {
    let first = &all()[0].values[0];
    let name = vector::hex(b"Yeezy Boost 350 V2");
    assert_eq!(vector::hex(&first.bytes), format!("214e00000c00000012000000{name}"));
}

/// musli checks a root as a whole and does not know fields; its parts are loaded field by field.
#[test]
fn malformed_values_are_refused_with_their_reason() {
    for vector in all() {
        for one in &vector.malformed {
            let offset = format!("{}, {}", vector.name, one.about);
            let wrong = (vector.load)(&one.bytes).expect_err(&offset);
            let why = if one.wrong.why == "size" { "range" } else { &one.wrong.why };
            assert_eq!(wrong.why, why, "{offset}");
            let (made, found) = (&one.wrong.at, &wrong.at);
            assert!(made.starts_with(found) || found.starts_with(made), "{offset}: at {found}");
        }
    }
}

/// TypeScript created them from JSON with its fields in reverse order, so their parts are in that
/// order.
#[test]
fn values_with_reordered_parts_load_alike() {
    let text = include_str!("../../../tests/vectors/structs-reversed.json");
    let vectors = all();
    let mut lines = text.lines().filter(|line| line.len() > 1);
    for vector in &vectors {
        for (index, value) in vector.values.iter().enumerate() {
            let line = lines.next().expect("a line for each value");
            let parts: Vec<&str> = line.split('"').collect();
            assert_eq!(parts[1], format!("{} {index}", vector.name));
            let loaded = (vector.load)(&vector::unhex(parts[3]));
            assert_eq!(loaded.as_ref(), Ok(&value.json), "{} {index}", vector.name);
        }
    }
    assert_eq!(lines.next(), None);
}
