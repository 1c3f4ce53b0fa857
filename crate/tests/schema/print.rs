//! What the TypeScript package prints as Rust: it compiles, and means the same.

use varve::schema::Kind;

use crate::layouts::committed;
use crate::printed::ALL;

#[test]
fn every_struct_that_typescript_prints_has_the_layout_that_it_was_printed_from() {
    let vectors = committed("structs.json");
    assert_eq!(ALL.len(), vectors.len());
    for (vector, (name, layout, fingerprint)) in vectors.iter().zip(ALL) {
        assert_eq!(*name, vector["name"].as_str().unwrap());
        assert_eq!(Kind::from(*layout).layout(), vector["layout"].as_str().unwrap());
        assert_eq!(format!("{fingerprint:016x}"), vector["fingerprint"].as_str().unwrap());
    }
}
