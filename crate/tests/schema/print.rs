//! Structs that the TypeScript package prints as Rust compile, and mean the same.

use varve::schema::Kind;

use crate::layouts::committed;
use crate::printed::ALL;

#[test]
fn generated_structs_keep_the_layout_of_their_source() {
    let vectors = committed("structs.json");
    assert_eq!(ALL.len(), vectors.len());
    for (vector, (name, layout, fingerprint)) in vectors.iter().zip(ALL) {
        assert_eq!(*name, vector["name"].as_str().unwrap());
        assert_eq!(Kind::from(*layout).layout(), vector["layout"].as_str().unwrap());
        assert_eq!(format!("{fingerprint:016x}"), vector["fingerprint"].as_str().unwrap());
    }
}
