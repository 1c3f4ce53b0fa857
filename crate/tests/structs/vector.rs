//! A vector: a type, values of it with their bytes, and invalid bytes.

use std::fmt::Write as _;
use std::mem::{align_of, size_of};

use crate::kinds::{Fields, Json, Wrong, fingerprint, load, quoted};
use crate::parts::{Parts, aligned, as_buf};

pub struct Value {
    pub bytes: Vec<u8>,
    pub json: String,
}

/// Bytes that every reader must reject.
pub struct Malformed {
    pub about: &'static str,
    pub bytes: Vec<u8>,
    pub wrong: Wrong,
}

pub struct Vector {
    about: &'static str,
    kind: String,
    layout: String,
    size: usize,
    align: usize,
    offsets: Vec<String>,
    pub load: fn(&[u8]) -> Json,
    pub values: Vec<Value>,
    pub malformed: Vec<Malformed>,
    pub name: &'static str,
}

impl Vector {
    pub fn of<T: Fields>(about: &'static str) -> Vector {
        let mut offsets = Vec::new();
        T::all_offsets(0, &mut offsets);
        Vector {
            about,
            kind: T::kind(),
            layout: T::layout(),
            size: size_of::<T>(),
            align: align_of::<T>(),
            offsets,
            load: |bytes| load::<T>(as_buf(&aligned(bytes))),
            values: Vec::new(),
            malformed: Vec::new(),
            name: T::NAME,
        }
    }

    pub fn value<T: Fields>(mut self, make: impl FnOnce(&mut Parts) -> T) -> Vector {
        assert_eq!(T::kind(), self.kind, "a value of another type");
        let bytes = Parts::encode(make);
        let json = (self.load)(&bytes).expect("musli loads what it stored");
        self.values.push(Value { bytes, json });
        self
    }

    pub fn json(&self) -> String {
        let mut out = String::new();
        let values = self.values.iter().map(|Value { bytes, json }| {
            format!("{{ \"bytes\": \"{}\",\n        \"value\": {json} }}", hex(bytes))
        });
        let malformed = self.malformed.iter().map(|one| {
            format!(
                "{{ \"about\": \"{}\", \"at\": \"{}\", \"why\": \"{}\",\n        \"bytes\": \"{}\" }}",
                one.about,
                one.wrong.at,
                one.wrong.why,
                hex(&one.bytes),
            )
        });
        let _ = write!(
            out,
            "  {{\n    \"name\": \"{}\",\n    \"about\": \"{}\",\n    \"size\": {},\n    \"align\": {},\n    \"fields\": [{}],\n    \"layout\": {},\n    \"fingerprint\": \"{}\",\n    \"schema\": {},\n    \"values\": [{}],\n    \"malformed\": [{}]\n  }}",
            self.name,
            self.about,
            self.size,
            self.align,
            self.offsets.join(", "),
            quoted(&self.layout),
            fingerprint(&self.layout),
            self.kind,
            lines(values),
            lines(malformed),
        );
        out
    }
}

fn lines(items: impl Iterator<Item = String>) -> String {
    let items: Vec<String> = items.collect();
    if items.is_empty() {
        return String::new();
    }
    format!("\n      {}\n    ", items.join(",\n      "))
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

pub fn unhex(digits: &str) -> Vec<u8> {
    let pairs = digits.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).expect("digits"));
    pairs.map(|pair| u8::from_str_radix(pair, 16).expect("two digits")).collect()
}
