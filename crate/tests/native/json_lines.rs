//! Collections as JSON lines, compared with those of TypeScript: `tests/vectors/lines.json`.

use std::cmp::Reverse;
use std::fs;
use std::path::PathBuf;

use musli_zerocopy::{Ref, ZeroCopy};
use serde_json::Value;
use varve::schema::key::KeyKind;
use varve::schema::{Opt, Record};
use varve::{CollectionOptions, Error, IndexBy, KeyRange, Store};

use crate::temp_folder::Folder;

#[derive(Clone, Copy, Debug, ZeroCopy, Record)]
#[repr(C)]
struct Row {
    id: u64,
    price: f64,
    rank: Opt<u16>,
    name: Ref<str>,
    raw: Ref<[u8]>,
}

fn vectors() -> Vec<(KeyKind, String)> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/vectors/lines.json");
    let text = fs::read_to_string(path).expect("the vectors are committed");
    let vectors: Vec<Value> = serde_json::from_str(&text).expect("they are a list");
    let lines = |vector: &Value| {
        let lines = vector["lines"].as_array().expect("they are a list").iter();
        lines.map(|line| format!("{}\n", line.as_str().expect("a line is text"))).collect()
    };
    let kind = |vector: &Value| KeyKind::from_json(&vector["key"]).expect("it is known");
    vectors.iter().map(|vector| (kind(vector), lines(vector))).collect()
}

fn written(store: &mut Store, name: &str) -> String {
    let mut rows = store.collection::<Row>(name).unwrap();
    let mut lines = rows.json_lines(..).unwrap();
    let mut text = Vec::new();
    while let Some(line) = lines.next_line().unwrap() {
        text.extend_from_slice(line);
    }
    String::from_utf8(text).expect("JSON is UTF-8")
}

#[test]
fn lines_of_typescript_are_read_and_written_byte_for_byte() {
    let folder = Folder::new();
    let mut store = Store::open(folder.file("a.varve")).unwrap();
    let vectors = vectors();
    assert_eq!(vectors.len(), 6);
    for (at, (kind, lines)) in vectors.iter().enumerate() {
        let name = format!("rows {at}");
        let mut rows = store.keyed_collection::<Row>(&name, kind).unwrap();
        // In reverse, because the order of the keys must be that of the collection, and in parts of any length.
        let reversed: String = lines.split_inclusive('\n').rev().collect();
        let mut reader = rows.read_json_lines();
        for part in reversed.as_bytes().chunks(at + 1) {
            reader.push(part).unwrap();
        }
        assert_eq!(reader.finish().unwrap(), lines.lines().count() as u64);
        assert_eq!(written(&mut store, &name), *lines, "{}", kind.to_json());
    }
    // The keys are those that are encoded from values.
    let mut wide = store.collection::<Row>("rows 4").unwrap();
    let key = (7_u64, Reverse(-7_i64), -1_i64, true, f32::INFINITY);
    let row = wide.get(key).unwrap().expect("it was read");
    assert_eq!(row.load(row.name), Ok("between"));
    let mut parts = store.collection::<Row>("rows 5").unwrap();
    let key = (1_u8, 0_u16, "a\0b", vec![0_u8, 255, 0], None::<u8>, Reverse("ž"));
    assert!(parts.has(key).unwrap());

    let lines = &vectors[0].1;
    let snapshot = store.snapshot().unwrap();
    store.collection::<Row>("rows 0").unwrap().clear(..).unwrap();
    let mut past = store.at(&snapshot).unwrap();
    let mut rows = past.collection::<Row>("rows 0").unwrap().expect("it was there");
    let last = rows.json_lines(KeyRange::all().reverse().limit(1)).unwrap();
    let last: Result<Vec<String>, Error> = last.collect();
    assert_eq!(last.unwrap(), [lines.split_inclusive('\n').next_back().unwrap()]);
}

#[test]
fn wrong_line_is_named_and_the_records_before_it_stay() {
    const GOOD: &str =
        r#"{"value":{"id":"1","price":1,"name":"A","rank":null,"raw":""},"key":"a"}"#;
    let folder = Folder::new();
    let mut store = Store::open(folder.file("a.varve")).unwrap();
    let options = CollectionOptions::new().index("byId", IndexBy::field("id").unique());
    let value = |id: u32| format!(r#"{{"id":"{id}","price":1,"rank":null,"name":"A","raw":""}}"#);
    let wrong = [
        ("{}", "VARVE_MALFORMED_VALUE", "Line 3: it has no \"key\" or no \"value\""),
        ("[]", "VARVE_MALFORMED_VALUE", "Line 3: expected {"),
        (r#"{"key":"b","key":"c"}"#, "VARVE_MALFORMED_VALUE", "Line 3: it must have one"),
        (r#"{"key":"b","more":1}"#, "VARVE_MALFORMED_VALUE", "Line 3: it must have one"),
        (&format!(r#"{{"key":7,"value":{}}}"#, value(2)), "VARVE_MALFORMED_VALUE", "must be text"),
        (&format!(r#"{{"key":"b","value":{}}} x"#, value(2)), "VARVE_MALFORMED_VALUE", "Line 3"),
        (&format!(r#"{{"key":"","value":{}}}"#, value(2)), "VARVE_BAD_ARGUMENT", ""),
        (&format!(r#"{{"key":"b","value":{}}}"#, value(1)), "VARVE_UNIQUE_VIOLATION", "byId"),
        (r#"{"key":"b","value":{"id":"2"}}"#, "VARVE_MALFORMED_VALUE", "Line 3: $"),
    ];
    for (line, code, part) in wrong {
        let mut rows = store.collection_with::<Row>("rows", &options).unwrap();
        rows.clear(..).unwrap();
        let mut reader = rows.read_json_lines();
        let text = format!("\u{FEFF}{GOOD}\r\n \t\r\n{line}\n{GOOD}\n");
        let error = reader.push(text.as_bytes()).unwrap_err();
        assert_eq!(reader.line(), 3);
        assert_eq!(error.code(), code, "{line}: {error}");
        let malformed = "a stored value is malformed: ";
        assert!(!error.to_string().contains(malformed), "{error}");
        assert!(error.to_string().contains(part), "{line}: {error}");
        assert_eq!(rows.count(..).unwrap(), 1);
    }
    let mut rows = store.collection_with::<Row>("rows", &options).unwrap();
    let no_text = rows.read_json_lines().push(b"{\"key\":\"\xFF\"}\n").unwrap_err();
    assert!(no_text.to_string().contains("Line 1: UTF-8"), "{no_text}");
    let more = format!(r#"{{"key":"z","value":{{"added":[{{}}],{}}}"#, &value(9)[1..]);
    let mut strict = rows.read_json_lines();
    strict.push(more.as_bytes()).expect("the line is not over");
    assert_eq!(strict.finish().unwrap_err().code(), "VARVE_MALFORMED_VALUE");
    let mut lenient = rows.read_json_lines().ignore_unknown();
    lenient.push(more.as_bytes()).unwrap();
    assert_eq!(lenient.finish().unwrap(), 1);
    assert_eq!(rows.get("z").unwrap().expect("it was read").id, 9);
}

#[test]
fn key_parts_out_of_range_or_of_another_type_are_refused() {
    let folder = Folder::new();
    let mut store = Store::open(folder.file("a.varve")).unwrap();
    let kinds = [
        (r#"{"kind":"u8"}"#, "256 -1 1.5 \"1\" null true 1e999"),
        (r#"{"kind":"i64"}"#, "\"9223372036854775808\" \"1.0\" 1.5 \"\" []"),
        (r#"{"kind":"u53"}"#, "9007199254740992 -1"),
        (r#"{"kind":"f64"}"#, "\"NaN\" \"1\" null"),
        (r#"{"kind":"bool"}"#, "0 \"true\""),
        (r#"{"kind":"enum8","variants":["A"]}"#, "\"B\" 0"),
        (r#"{"kind":"blob"}"#, "\"A\" \"A===\" \"-A==\" 1"),
        (r#"{"kind":"option","of":{"kind":"u8"}}"#, "\"x\" -1"),
        (r#"{"desc":{"kind":"str"}}"#, "1 null"),
    ];
    let value = r#"{"id":"1","price":1,"rank":null,"name":"A","raw":""}"#;
    for (kind, keys) in kinds {
        let kind: Value = serde_json::from_str(&format!("[{kind}]")).unwrap();
        let kind = KeyKind::from_json(&kind).unwrap();
        let name = kind.to_json().to_string();
        let mut rows = store.keyed_collection::<Row>(&name, &kind).unwrap();
        for key in keys.split(' ') {
            let line = format!("{{\"key\":{key},\"value\":{value}}}\n");
            let error = rows.read_json_lines().push(line.as_bytes()).expect_err(key);
            assert_eq!(error.code(), "VARVE_MALFORMED_VALUE", "{name} {key}: {error}");
        }
        assert_eq!(rows.count(..).unwrap(), 0);
    }
    let whole = KeyKind::from_json(&serde_json::json!([{ "kind": "u32" }])).unwrap();
    let mut rows = store.keyed_collection::<Row>("whole", &whole).unwrap();
    for key in ["100", "1e2", "100.0"] {
        let line = format!("{{\"key\":{key},\"value\":{value}}}\n");
        rows.read_json_lines().push(line.as_bytes()).expect(key);
    }
    assert_eq!((rows.count(..).unwrap(), rows.has(100_u32).unwrap()), (1, true));
}
