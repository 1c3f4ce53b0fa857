//! Descriptors compared with the committed vectors, and derived types with descriptors.

use std::fs;
use std::num::{NonZeroI64, NonZeroU8};
use std::path::PathBuf;

use musli_zerocopy::{Ref, ZeroCopy};
use serde_json::Value;
use varve::schema::{FixedStr, Kind, Opt, Record};

pub fn committed(name: &str) -> Vec<Value> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/vectors").join(name);
    let text = fs::read_to_string(path).expect("the vectors are committed");
    serde_json::from_str(&text).expect("they are a list")
}

pub fn bytes_of(hex: &Value) -> Vec<u8> {
    let hex = hex.as_str().expect("bytes are text");
    let digits = (0..hex.len()).step_by(2);
    digits.map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("in hexadecimal")).collect()
}

fn vectors() -> impl Iterator<Item = (String, Kind, Value)> {
    committed("structs.json").into_iter().map(|vector| {
        let name = vector["name"].as_str().expect("it has a name").to_string();
        let kind = Kind::from_json(&vector["schema"]).expect("it is known");
        (name, kind, vector)
    })
}

#[test]
fn stored_descriptor_layout_and_fingerprint_match_typescript() {
    for (name, kind, vector) in vectors() {
        assert_eq!(kind.layout(), vector["layout"].as_str().unwrap(), "{name}");
        let fingerprint = format!("{:016x}", kind.fingerprint());
        assert_eq!(fingerprint, vector["fingerprint"].as_str().unwrap(), "{name}");
        assert_eq!(Kind::from_json(&kind.to_json()), Some(kind), "{name}");
    }
}

#[test]
fn stored_descriptor_locates_every_field() {
    for (name, kind, vector) in vectors() {
        let (size, align) = kind.size_and_align();
        assert_eq!(size as u64, vector["size"], "{name}");
        assert_eq!(align as u64, vector["align"], "{name}");
        for field in vector["fields"].as_array().unwrap() {
            let field_name = field[0].as_str().unwrap();
            let (kind, at) = kind.field(field_name).expect(field_name);
            assert_eq!(at as u64, field[1], "{name}.{field_name}");
            assert_eq!(kind.size_and_align().0 as u64, field[2], "{name}.{field_name}");
        }
    }
}

#[test]
fn validation_names_field_and_reason_of_malformed_values() {
    for (name, kind, vector) in vectors() {
        for value in vector["values"].as_array().unwrap() {
            assert_eq!(kind.check(&bytes_of(&value["bytes"])), Ok(()), "{name}");
        }
        for bad in vector["malformed"].as_array().unwrap() {
            let about = format!("{name}: {}", bad["about"]);
            let error = kind.check(&bytes_of(&bad["bytes"])).expect_err(&about);
            // In a variant, more than the name of the field may be given.
            assert!(error.field.starts_with(bad["at"].as_str().unwrap()), "{about}: {error}");
            assert!(error.reason.starts_with(bad["why"].as_str().unwrap()), "{about}: {error}");
        }
    }
}

#[test]
fn validation_of_overlapping_lists_terminates() {
    let byte = serde_json::json!({ "kind": "u8" });
    let list = (0..4).fold(byte, |of, _| serde_json::json!({ "kind": "vec", "of": of }));
    let deep = serde_json::json!({ "kind": "struct", "name": "Deep", "fields": [["lists", list]] });
    // Each of 8,192 lists claims to contain all of them.
    let reference = [0, 8_192_u32].map(u32::to_le_bytes).concat();
    let error = Kind::from_json(&deep).unwrap().check(&reference.repeat(8_192)).unwrap_err();
    assert_eq!(error.reason, "range: parts overlap too often");
}

#[test]
fn validation_time_is_bounded_for_overlapping_parts() {
    use serde_json::json;
    let vec = |of: &Value| json!({ "kind": "vec", "of": of });
    let bytes = vec(&json!({ "kind": "u8" }));
    let text = json!({ "kind": "str" });
    let option = json!({ "kind": "option", "of": vec(&json!({ "kind": "option", "of": bytes })) });
    let inner = json!({ "kind": "union", "variants": [["No", null], ["Of", bytes]] });
    let union = json!({ "kind": "union", "variants": [["None", null], ["Some", vec(&inner)]] });
    let row = json!({ "kind": "struct", "name": "Row", "fields": [["texts", vec(&text)]] });
    let array = json!({ "kind": "array", "of": bytes, "length": 2 });
    let deep = |of: &Value| {
        let fields = [json!(["lists", vec(of)])];
        Kind::from_json(&json!({ "kind": "struct", "name": "Deep", "fields": fields })).unwrap()
    };
    let refused = |kind: &Kind, bytes: &[u8]| {
        let error = kind.check(bytes).expect_err("it has no end");
        assert_eq!(error.reason, "range: parts overlap too often", "{kind:?}");
    };
    let reference = [0, 256_u32].map(u32::to_le_bytes).concat().repeat(512);
    for of in [vec(&bytes), vec(&text), vec(&json!({ "kind": "blob" })), vec(&row), vec(&array)] {
        refused(&deep(&of), &reference);
    }
    // After the root, items with a tag of 1 and a reference to all of them.
    let mut tagged = [24, 300, 0, 0, 0, 0_u32].map(u32::to_le_bytes).concat();
    tagged.extend([1, 24, 300_u32].map(u32::to_le_bytes).concat().repeat(680));
    refused(&deep(&option), &tagged);
    refused(&deep(&union), &tagged);
    // 64 times these bytes would be a gigabyte.
    let long = [0, 65_536_u32].map(u32::to_le_bytes).concat().repeat(2 << 20);
    refused(&deep(&bytes), &long);
    // A text that a thousand items share.
    let mut shared = [8, 1000_u32].map(u32::to_le_bytes).concat();
    shared.extend([8008, 400_u32].map(u32::to_le_bytes).concat().repeat(1000));
    shared.extend([b'x'; 400]);
    assert_eq!(deep(&text).check(&shared), Ok(()));
}

#[derive(Clone, Copy, ZeroCopy, Record)]
#[repr(u8)]
enum Color {
    Red,
    Green,
    Blue,
}

#[derive(Clone, Copy, ZeroCopy, Record)]
#[repr(u16)]
#[varve(rename_all = "camelCase")]
enum Level {
    #[varve(rename = "low")]
    Low,
    #[varve(rename = "a,b")]
    Middle,
}

#[derive(Clone, Copy, ZeroCopy, Record)]
#[repr(C)]
struct Page {
    offset: u32,
    limit: u8,
}

#[derive(Clone, Copy, ZeroCopy, Record)]
#[repr(u8)]
enum Shape {
    Empty,
    Circle(f64),
    Named(Ref<str>),
}

#[derive(Clone, Copy, ZeroCopy, Record)]
#[repr(transparent)]
struct Price(u32);

#[derive(Clone, Copy, ZeroCopy, Record)]
#[repr(C)]
#[varve(rename_all = "camelCase")]
struct All<T: Record> {
    small: u8,
    #[varve(flatten)]
    page: Page,
    #[varve(timestamp)]
    created_at: i64,
    #[varve(u53)]
    r#type: u64,
    color: Color,
    level: Level,
    code: FixedStr<4>,
    raw: [u8; 3],
    pair: [u16; 2],
    name: Ref<str>,
    blob: Ref<[u8]>,
    list: Ref<[Page]>,
    maybe: Opt<T>,
    some: Option<NonZeroU8>,
    last: Option<NonZeroI64>,
    shape: Shape,
    price: Price,
}

const ALL: &str = "{small:u8,..page:{offset:u32,limit:u8},createdAt:i64,type:u64,color:e8(Red,Green,Blue),\
    level:e16(low,a\\,b),code:str;4,raw:[u8;3],pair:[u16;2],name:&str,blob:&[u8],\
    list:&[{offset:u32,limit:u8}],maybe:opt({offset:u32,limit:u8}),some:nz(u8),last:nz(i64),\
    shape:{|Empty,Circle:f64,Named:&str|},price:u32}";

#[test]
fn derived_type_has_canonical_layout_and_fingerprint() {
    const FINGERPRINT: u64 = All::<Page>::FINGERPRINT;
    let kind = Kind::from(All::<Page>::LAYOUT);
    assert_eq!(kind.layout(), ALL);
    assert_eq!(kind.fingerprint(), FINGERPRINT);
    assert_eq!(Kind::from_json(&kind.to_json()), Some(kind));
}

#[test]
fn derived_type_layout_matches_its_descriptor() {
    let kind = Kind::from(All::<Page>::LAYOUT);
    assert_eq!(kind.size_and_align(), (size_of::<All<Page>>(), align_of::<All<Page>>()));
    let at = |name: &str| kind.field(name).expect(name).1;
    assert_eq!(at("offset"), std::mem::offset_of!(All<Page>, page));
    assert_eq!(at("createdAt"), std::mem::offset_of!(All<Page>, created_at));
    assert_eq!(at("maybe"), std::mem::offset_of!(All<Page>, maybe));
    assert_eq!(at("shape"), std::mem::offset_of!(All<Page>, shape));
    assert_eq!(at("price"), std::mem::offset_of!(All<Page>, price));
}

#[derive(Clone, Copy, ZeroCopy, Record)]
#[repr(C)]
#[varve(versioned, rename = "Old")]
struct OldProduct {
    root_size: u16,
    stock: u16,
    name: Ref<str>,
}

#[test]
fn versioned_struct_starts_with_its_size() {
    let (_, old, vector) = vectors().find(|(name, ..)| name == "Old").expect("it is there");
    assert_eq!(Kind::from(OldProduct::LAYOUT), old);
    assert_eq!(
        format!("{:016x}", OldProduct::FINGERPRINT),
        vector["fingerprint"].as_str().unwrap()
    );
    assert_eq!(std::mem::offset_of!(OldProduct, stock), 2);
    assert_eq!(std::mem::offset_of!(OldProduct, root_size), 0);
    assert_eq!(std::mem::offset_of!(OldProduct, name), old.field("name").expect("it has one").1);
}

#[test]
fn endless_or_unknown_descriptor_is_rejected() {
    let mut deep = serde_json::json!({ "kind": "u8" });
    for _ in 0..100 {
        deep = serde_json::json!({ "kind": "option", "of": deep });
    }
    assert_eq!(Kind::from_json(&deep), None);
    for unknown in ["null", "{}", r#"{"kind":"u128"}"#, r#"{"kind":"array","of":{"kind":"u8"}}"#] {
        assert_eq!(Kind::from_json(&serde_json::from_str(unknown).unwrap()), None, "{unknown}");
    }
    let huge = r#"{"kind":"array","of":{"kind":"u64"},"length":18446744073709551615}"#;
    let huge = Kind::from_json(&serde_json::from_str(huge).unwrap()).expect("it is one");
    assert!(huge.check(&[0; 64]).is_err());
}

#[test]
fn random_bytes_are_validated_within_bounds() {
    let mut random = 0x5EED_u64;
    let mut next = || {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        random >> 33
    };
    for (_, kind, vector) in vectors() {
        let good = bytes_of(&vector["values"][0]["bytes"]);
        for _ in 0..300 {
            let mut bytes = good.clone();
            for _ in 0..=next() % 4 {
                let at = next() as usize % bytes.len();
                bytes[at] = [0, 1, 0x7F, 0x80, 0xFF, next() as u8][next() as usize % 6];
            }
            bytes.truncate(next() as usize % (bytes.len() + 1));
            // Any result is acceptable except a panic, which out-of-bounds accesses would cause.
            drop(kind.check(&bytes));
        }
        assert_eq!(kind.check(&good), Ok(()));
    }
}
