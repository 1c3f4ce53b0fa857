//! The vectors of `structured()` in `tests/vectors/structured.json`: values that TypeScript has written as CBOR. Here
//! another decoder reads them, and makes the readable form that `docs/structured.md` describes.

use std::fs;
use std::path::PathBuf;

use ciborium_ll::{Decoder, Header};
use serde_json::{Map, Value, json};

const ARRAYS: &[(u64, &str)] = &[
    (68, "Uint8ClampedArray"),
    (69, "Uint16Array"),
    (70, "Uint32Array"),
    (71, "BigUint64Array"),
    (72, "Int8Array"),
    (77, "Int16Array"),
    (78, "Int32Array"),
    (79, "BigInt64Array"),
    (84, "Float16Array"),
    (85, "Float32Array"),
    (86, "Float64Array"),
];

struct Reader<'a> {
    decoder: Decoder<&'a [u8]>,
}

impl Reader<'_> {
    fn header(&mut self) -> Header {
        self.decoder.pull().expect("there is an item")
    }

    fn value(&mut self) -> Value {
        let header = self.header();
        self.value_of(header)
    }

    fn value_of(&mut self, header: Header) -> Value {
        match header {
            Header::Positive(number) => json!(number),
            Header::Negative(number) => json!(-1 - i64::try_from(number).expect("it is safe")),
            Header::Float(number) => float(number),
            Header::Simple(20) => json!(false),
            Header::Simple(21) => json!(true),
            Header::Simple(22) => Value::Null,
            Header::Simple(23) => json!({ "$undefined": true }),
            Header::Bytes(length) => json!({ "$Uint8Array": base64(&self.bytes(length)) }),
            Header::Text(length) => json!(self.text(length)),
            Header::Array(Some(length)) => self.list(length),
            Header::Map(Some(count)) => self.fields(count),
            Header::Tag(tag) => self.tagged(tag),
            other => panic!("varve does not write {other:?}"),
        }
    }

    fn bytes(&mut self, length: Option<usize>) -> Vec<u8> {
        let mut all = Vec::new();
        let mut segments = self.decoder.bytes(length);
        while let Some(mut segment) = segments.pull().expect("there are bytes") {
            let mut buffer = [0; 64];
            while let Some(part) = segment.pull(&mut buffer).expect("there are bytes") {
                all.extend_from_slice(part);
            }
        }
        all
    }

    fn text(&mut self, length: Option<usize>) -> String {
        let mut all = String::new();
        let mut segments = self.decoder.text(length);
        while let Some(mut segment) = segments.pull().expect("there is text") {
            let mut buffer = [0; 64];
            while let Some(part) = segment.pull(&mut buffer).expect("it is UTF-8") {
                all.push_str(part);
            }
        }
        all
    }

    fn raw_bytes(&mut self) -> Vec<u8> {
        let Header::Bytes(length) = self.header() else { panic!("bytes are missing") };
        self.bytes(length)
    }

    fn list(&mut self, length: usize) -> Value {
        Value::Array((0..length).map(|_| self.value()).collect())
    }

    fn list_after_head(&mut self) -> Value {
        let Header::Array(Some(length)) = self.header() else { panic!("a list is missing") };
        self.list(length)
    }

    fn plain_fields(&mut self, count: usize) -> Map<String, Value> {
        let mut fields = Map::new();
        for _ in 0..count {
            let name = match self.value() {
                Value::String(name) => name,
                other => panic!("{other} is no name"),
            };
            let value = self.value();
            fields.insert(name, value);
        }
        fields
    }

    fn fields(&mut self, count: usize) -> Value {
        let fields = self.plain_fields(count);
        let looks_special = count == 1 && fields.keys().all(|name| name.starts_with('$'));
        let fields = Value::Object(fields);
        if looks_special { json!({ "$Object": fields }) } else { fields }
    }

    fn tagged(&mut self, tag: u64) -> Value {
        match tag {
            1 => match self.value() {
                Value::Number(seconds) => date(seconds.as_f64().expect("it is a number") * 1000.0),
                _ => json!({ "$Date": null }),
            },
            2 => json!({ "$BigInt": decimal(&self.raw_bytes(), false) }),
            3 => json!({ "$BigInt": decimal(&self.raw_bytes(), true) }),
            27 => self.made(),
            28 => json!({ "$shared": self.value() }),
            29 => json!({ "$ref": self.value() }),
            258 => json!({ "$Set": self.list_after_head() }),
            259 => {
                let Header::Map(Some(count)) = self.header() else { panic!("a map is missing") };
                let pairs = (0..count).map(|_| json!([self.value(), self.value()]));
                json!({ "$Map": pairs.collect::<Vec<_>>() })
            }
            273 => json!(marked_wtf8(&self.raw_bytes())),
            21_066 => json!({ "$RegExp": self.list_after_head() }),
            _ => {
                let known = ARRAYS.iter().find(|(number, _)| *number == tag);
                let (_, name) = known.expect("the tag is documented");
                special(name, json!(base64(&self.raw_bytes())))
            }
        }
    }

    fn made(&mut self) -> Value {
        let Header::Array(Some(length)) = self.header() else { panic!("a list is missing") };
        let Value::String(name) = self.value() else { panic!("a name is missing") };
        match name.as_str() {
            "ArrayBuffer" | "DataView" => special(&name, json!(base64(&self.raw_bytes()))),
            "Date" => date(self.value().as_f64().expect("it is a number")),
            "Array" => {
                let length = self.value();
                let Header::Map(Some(count)) = self.header() else {
                    panic!("the items are missing")
                };
                json!({ "$Array": [length, self.plain_fields(count)] })
            }
            _ => {
                let parts = self.list(length - 1);
                special(&name, parts)
            }
        }
    }
}

fn special(name: &str, value: Value) -> Value {
    Value::Object(Map::from_iter([(format!("${name}"), value)]))
}

fn float(number: f64) -> Value {
    if number.is_nan() {
        json!({ "$float": "NaN" })
    } else if number.is_infinite() {
        json!({ "$float": if number > 0.0 { "Infinity" } else { "-Infinity" } })
    } else if number == 0.0 && number.is_sign_negative() {
        json!({ "$float": "-0" })
    } else {
        json!(number)
    }
}

/// The date of so many milliseconds since 1970, in the Gregorian calendar.
fn date(ms: f64) -> Value {
    #[expect(clippy::cast_possible_truncation)]
    let ms = ms.round() as i64;
    let (day, in_day) = (ms.div_euclid(86_400_000), ms.rem_euclid(86_400_000));
    // Years of 400 repeat; they are counted from 1 March, so that leap days come last.
    let day = day + 719_468;
    let (era, day) = (day.div_euclid(146_097), day.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (year, month) = (year + era * 400 + i64::from(month >= 10), (month + 2) % 12 + 1);
    let year = if (0..10_000).contains(&year) {
        format!("{year:04}")
    } else {
        format!("{}{:06}", if year < 0 { '-' } else { '+' }, year.abs())
    };
    let (hours, minutes) = (in_day / 3_600_000, in_day / 60_000 % 60);
    let (seconds, ms) = (in_day / 1000 % 60, in_day % 1000);
    json!({ "$Date": format!("{year}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}.{ms:03}Z") })
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let mut bits = 0;
        for i in 0..3 {
            bits = bits << 8 | usize::from(three.get(i).copied().unwrap_or(0));
        }
        for i in 0..4 {
            let digit = DIGITS[bits >> (18 - 6 * i) & 63];
            text.push(if i > three.len() { '=' } else { digit.into() });
        }
    }
    text
}

/// The digits of a number of big-endian bytes, or of minus one minus that number.
fn decimal(bytes: &[u8], is_negative: bool) -> String {
    let mut digits = vec![0];
    let mut add = |factor: u32, more: u32| {
        let mut carry = more;
        for digit in &mut digits {
            let sum = *digit * factor + carry;
            *digit = sum % 10;
            carry = sum / 10;
        }
        while carry > 0 {
            digits.push(carry % 10);
            carry /= 10;
        }
    };
    for byte in bytes {
        add(256, u32::from(*byte));
    }
    add(1, u32::from(is_negative));
    let text: String = digits.iter().rev().map(u32::to_string).collect();
    if is_negative { format!("-{text}") } else { text }
}

/// Text in WTF-8, with `<d800>` for a lone surrogate.
fn marked_wtf8(bytes: &[u8]) -> String {
    let mut text = String::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let at = rest.windows(2).position(|two| two[0] == 0xed && two[1] >= 0xa0);
        let end = at.unwrap_or(rest.len());
        text.push_str(std::str::from_utf8(&rest[..end]).expect("it is UTF-8"));
        rest = &rest[end..];
        if at.is_some() {
            let unit = 0xd000 | (u32::from(rest[1]) & 0x3f) << 6 | u32::from(rest[2]) & 0x3f;
            text.push_str(&format!("<{unit:04x}>"));
            rest = &rest[3..];
        }
    }
    text
}

/// JSON text with `<d800>` for a lone surrogate, which serde_json would refuse.
fn marked_json(text: &str) -> String {
    let mut marked = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("\\ud") {
        marked.push_str(&rest[..at]);
        marked.push_str(&format!("<{}>", &rest[at + 2..at + 6]));
        rest = &rest[at + 6..];
    }
    marked + rest
}

/// Whether two values are the same. serde_json reads some numbers with another last bit.
fn is_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(a), Value::Number(b)) => {
            let (a, b) = (a.as_f64().unwrap_or(0.0), b.as_f64().unwrap_or(1.0));
            (a - b).abs() <= a.abs() * f64::EPSILON
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len()
                && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| is_same(a, b)))
        }
        _ => one == other,
    }
}

#[test]
fn another_decoder_reads_the_values_of_structured_as_documented() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/vectors/structured.json");
    let text = fs::read_to_string(path).expect("the vectors are there");
    let vectors: Vec<Value> = serde_json::from_str(&text).expect("they are JSON");
    assert!(vectors.len() > 15, "{} vectors", vectors.len());
    for vector in &vectors {
        let about = vector["about"].as_str().expect("it has a name");
        let hex = vector["bytes"].as_str().expect("it has bytes");
        let bytes: Vec<u8> = (0..hex.len() / 2)
            .map(|i| u8::from_str_radix(&hex[i * 2..i * 2 + 2], 16).expect("they are digits"))
            .collect();
        let mut reader = Reader { decoder: Decoder::from(&bytes[..]) };
        let found = reader.value();
        assert_eq!(reader.decoder.offset(), bytes.len(), "{about}: all bytes are read");
        let json = marked_json(vector["json"].as_str().expect("it has a readable form"));
        let expected: Value = serde_json::from_str(&json).expect("it is JSON");
        assert!(is_same(&found, &expected), "{about}: {found}, not {expected}");
    }
}
