//! Keys compared with the committed vectors, and their order with that of the values.

use std::cmp::Reverse;

use serde_json::json;
use varve::schema::key::{Key, KeyKind, OwnedKey};

use crate::layouts::{bytes_of, committed};

fn encode(kind: &KeyKind, key: &impl Key) -> Vec<u8> {
    let mut out = Vec::new();
    key.encode(kind, false, &mut out).expect("it is a key");
    out
}

fn kind(parts: &serde_json::Value) -> KeyKind {
    KeyKind::from_json(parts).expect("it is known")
}

/// Checks that a key has the bytes of the vector with this name, and is decoded from them.
fn is_vector<K: OwnedKey + PartialEq + std::fmt::Debug>(name: &str, key: &K) {
    let vectors = committed("keys.json");
    let vector = vectors.iter().find(|one| one["name"] == name).expect(name);
    let kind = kind(&vector["key"]);
    assert_eq!(encode(&kind, key), bytes_of(&vector["bytes"]), "{name}");
    assert_eq!(K::decode(&kind, &bytes_of(&vector["bytes"])).as_ref(), Some(key), "{name}");
    assert_eq!(KeyKind::from_json(&kind.to_json()), Some(kind), "{name}");
}

#[test]
fn key_encoding_matches_typescript() {
    is_vector("a string", &"grün".to_string());
    is_vector("a number", &258_u32);
    is_vector("small numbers", &(1_u8, -1_i8, 513_u16, -2_i16));
    is_vector("large numbers", &(-3_i32, u64::MAX, i64::MIN, 5_u64));
    is_vector("a date", &(1_790_000_000_123_i64,));
    is_vector("positive floats", &(1.5_f32, 1.5_f64));
    is_vector("negative floats", &(-1.5_f32, -1.5_f64));
    is_vector("infinities", &(f64::NEG_INFINITY, f64::INFINITY));
    is_vector("truth", &(true, false));
    is_vector("enums", &(2_u8, 1_u16));
    is_vector("strings", &("a\0b".to_string(), String::new(), "ü".to_string()));
    is_vector("bytes", &(vec![0_u8, 1, 255, 0],));
    is_vector("options", &(None::<u32>, Some(7_u32), Some("x".to_string())));
    is_vector("a leaderboard", &(7_u32, Reverse(1234.5_f64), "ann".to_string()));
    is_vector("all the other way round", &(Reverse(String::from("a\0")), Reverse(Some(1_u8))));
}

#[test]
fn signed_zeros_share_a_key_and_nan_has_none() {
    let kind = kind(&json!([{ "kind": "f64" }]));
    assert_eq!(encode(&kind, &-0.0_f64), encode(&kind, &0.0_f64));
    assert!(f64::NAN.encode(&kind, false, &mut Vec::new()).is_err());
}

#[test]
fn encoded_keys_sort_like_their_values() {
    let floats = kind(&json!([{ "kind": "f64" }, { "desc": { "kind": "str" } }]));
    let numbers =
        [f64::NEG_INFINITY, -1e300, -1.5, -5e-324, 0.0, 5e-324, 1.5, 1e300, f64::INFINITY];
    let texts = ["zz", "z", "b\u{1}", "b\0\0", "b\0", "b", "a", ""];
    let keys: Vec<Vec<u8>> = numbers
        .iter()
        .flat_map(|number| texts.iter().map(|text| encode(&floats, &(*number, Reverse(*text)))))
        .collect();
    assert!(keys.is_sorted_by(|a, b| a < b));

    let whole = kind(&json!([{ "kind": "i64" }, { "kind": "option", "of": { "kind": "i8" } }]));
    let numbers = [i64::MIN, -256, -255, -1, 0, 1, 255, 256, i64::MAX];
    let options = [None, Some(i8::MIN), Some(-1), Some(0), Some(i8::MAX)];
    let keys: Vec<Vec<u8>> = numbers
        .iter()
        .flat_map(|number| options.iter().map(|option| encode(&whole, &(*number, *option))))
        .collect();
    assert!(keys.is_sorted_by(|a, b| a < b));
}

#[test]
fn key_of_another_type_or_part_of_one_is_refused() {
    let kind = kind(&json!([{ "kind": "u32" }, { "kind": "u53" }]));
    let refuse = |key: &dyn Fn(&mut Vec<u8>) -> bool| assert!(!key(&mut Vec::new()));
    refuse(&|out| "text".encode(&kind, false, out).is_ok());
    refuse(&|out| 1_u32.encode(&kind, false, out).is_ok());
    refuse(&|out| (1_u32, 1_u32).encode(&kind, false, out).is_ok());
    refuse(&|out| (1_u32, 1_u64 << 53).encode(&kind, false, out).is_ok());
    refuse(&|out| (1_u32, 1_u64, 1_u8).encode(&kind, true, out).is_ok());
    let mut prefix = Vec::new();
    1_u32.encode(&kind, true, &mut prefix).expect("a part is a prefix");
    assert!(encode(&kind, &(1_u32, 9_u64)).starts_with(&prefix));
}

#[test]
fn malformed_key_bytes_decode_to_none() {
    let kind = kind(&json!([{ "kind": "str" }, { "kind": "bool" }]));
    let good = encode(&kind, &("a", true));
    type Pair = (String, bool);
    assert_eq!(Pair::decode(&kind, &good), Some(("a".to_string(), true)));
    for length in 0..good.len() {
        assert_eq!(Pair::decode(&kind, &good[..length]), None);
    }
    assert_eq!(Pair::decode(&kind, b"a\0\x01\x02"), None, "neither true nor false");
    assert_eq!(Pair::decode(&kind, b"a\0\x02\x01"), None, "zero followed by neither");
    assert_eq!(Pair::decode(&kind, b"\xFF\0\x01\x01"), None, "no UTF-8");
    assert_eq!(Pair::decode(&kind, b"a\0\x01\x01\0"), None, "more than it");
}
