//! Values created in Rust: they have the bytes that TypeScript creates, and are read in place.

use musli_zerocopy::{OwnedBuf, Ref, ZeroCopy};
use varve::schema::{FixedStr, FixedStrError, Kind, Opt, Parts, Record, View};

use crate::layouts::{bytes_of, committed};

#[derive(Clone, Copy, Debug, ZeroCopy, Record)]
#[repr(C)]
struct Product {
    stock: u32,
    name: Ref<str>,
}

fn aligned(bytes: &[u8]) -> OwnedBuf {
    let mut buf = OwnedBuf::with_alignment::<u64>();
    buf.extend_from_slice(bytes).expect("enough space");
    buf.align_in_place().expect("enough space");
    buf
}

#[test]
fn encoded_values_match_the_vectors() {
    let vector = committed("structs.json").remove(0);
    assert_eq!(format!("{:016x}", Product::FINGERPRINT), vector["fingerprint"].as_str().unwrap());
    for (at, (stock, name)) in [(20_001, "Yeezy Boost 350 V2"), (0, "")].into_iter().enumerate() {
        let mut parts = Parts::of::<Product>();
        let name = parts.str(name);
        let value = parts.finish(Product { stock, name }).expect("it is short");
        assert_eq!(value, bytes_of(&vector["values"][at]["bytes"]));
    }
}

#[derive(Clone, Copy, Debug, ZeroCopy, Record)]
#[repr(u8)]
enum Shape {
    Empty,
    Small(u8),
    Wide([u32; 3]),
}

#[derive(Clone, Copy, Debug, ZeroCopy, Record)]
#[repr(C)]
struct Holes {
    a: u8,
    maybe: Opt<u64>,
    shape: Shape,
    all: [Opt<u32>; 2],
    tail: u8,
    list: Ref<[Opt<u16>]>,
    text: Ref<str>,
}

#[test]
fn padding_is_always_zero() {
    for shape in [Shape::Empty, Shape::Small(7), Shape::Wide([1, 2, 3])] {
        let mut parts = Parts::of::<Holes>();
        let list = parts.slice(&[Opt::None, Opt::Some(0x1234), Opt::None]);
        let text = parts.str("x");
        let all = [Opt::None, Opt::Some(1)];
        let root = Holes { a: 1, maybe: Opt::None, shape, all, tail: 9, list, text };
        let value = parts.finish(root).expect("it is short");
        let sum: u32 = value[..size_of::<Holes>()].iter().map(|byte| u32::from(*byte)).sum();
        // Everything that is not zero: a, the shape, all[1] with its tag, tail, and both
        // references.
        let shape = match shape {
            Shape::Empty => 0,
            Shape::Small(_) => 1 + 7,
            Shape::Wide(_) => 2 + 6,
        };
        let list_at = size_of::<Holes>() as u32;
        assert_eq!(sum, 1 + shape + 2 + 9 + list_at + 3 + list_at + 12 + 1);
        Kind::from(Holes::LAYOUT).check(&value).expect("it is well");
    }
}

#[test]
fn view_reads_out_of_line_data_within_bounds() {
    let mut parts = Parts::of::<Holes>();
    let list = parts.slice(&[Opt::Some(5)]);
    let text = parts.str("hello");
    let all = [Opt::None; 2];
    let root = Holes { a: 1, maybe: Opt::Some(3), shape: Shape::Empty, all, tail: 0, list, text };
    let value = aligned(&parts.finish(root).expect("it is short"));
    let view = View::<Holes>::new(value.as_slice()).expect("it is one");
    assert_eq!((view.a, view.maybe), (1, Opt::Some(3)));
    assert_eq!(view.load(view.text), Ok("hello"));
    assert_eq!(view.load(view.list), Ok(&[Opt::Some(5)][..]));
    let beyond: Ref<str> = Ref::with_metadata(view.text.offset() as u32, 6);
    assert!(view.load(beyond).is_err());
    assert!(View::<Holes>::new(&value.as_slice()[8..]).is_err(), "too short");
}

#[test]
fn fixed_text_is_zero_padded_and_refuses_nul() {
    let text = FixedStr::<8>::new("grün").expect("it fits");
    assert_eq!(text.as_str(), Some("grün"));
    assert_eq!(text.as_bytes(), b"gr\xC3\xBCn\0\0\0");
    assert_eq!(FixedStr::<3>::new("grün"), Err(FixedStrError::TooLong));
    assert_eq!(FixedStr::<8>::new("a\0b"), Err(FixedStrError::Nul));
    assert_eq!(FixedStr::<4>::from_bytes(b"\xFFabc").expect("any bytes").as_str(), None);
    assert_eq!(FixedStr::<4>::from_bytes(b"a\0b\0").expect("any bytes").as_str(), None);
}

#[test]
fn oversized_value_is_refused_and_not_truncated() {
    let mut parts = Parts::of::<Product>();
    let name = parts.str(&"x".repeat(16 << 20));
    assert!(parts.finish(Product { stock: 1, name }).is_err());
}

#[derive(Clone, Copy, Debug, ZeroCopy, Record)]
#[repr(C)]
#[varve(versioned, rename = "Old")]
struct Old {
    root_size: u16,
    stock: u16,
    name: Ref<str>,
}

#[derive(Clone, Copy, Debug, ZeroCopy, Record)]
#[repr(C)]
#[varve(versioned, rename = "New")]
struct New {
    root_size: u16,
    stock: u16,
    name: Ref<str>,
    price: u32,
    note: Ref<str>,
}

#[test]
fn versioned_record_shorter_than_its_first_version_is_refused() {
    let vectors = committed("structs.json");
    let vector = vectors.iter().find(|one| one["name"] == "Old").expect("it is there");
    let mut parts = Parts::of::<Old>();
    let name = parts.str("Yeezy Boost 350 V2");
    let bytes = parts.finish(Old { root_size: 0, stock: 20_001, name }).expect("it is short");
    assert_eq!(bytes, bytes_of(&vector["values"][0]["bytes"]));
    let bytes = aligned(&bytes);
    let old = View::<Old>::new(bytes.as_slice()).expect("it is one");
    assert_eq!((old.root_size, old.stock), (12, 20_001));
    assert_eq!(old.load(old.name), Ok("Yeezy Boost 350 V2"));
    let error =
        View::<New>::new(bytes.as_slice()).expect_err("its name is stored where the price is");
    assert!(error.reason.starts_with("size: an earlier version"), "{error}");
    let new = New { root_size: 24, stock: 1, name: old.name, price: 2, note: old.name };
    assert_eq!((new.root_size, new.stock, new.price), (24, 1, 2));
    assert_eq!(new.name.len() + new.note.len(), 36);
}

#[derive(Clone, Copy, Debug, ZeroCopy, Record)]
#[repr(C)]
#[varve(versioned)]
struct Grown {
    root_size: u16,
    stock: u16,
    name: Ref<str>,
    #[varve(added = 5)]
    price: u32,
    #[varve(added)]
    note: Ref<str>,
}

#[test]
fn earlier_record_is_read_with_defaults_for_added_fields() {
    let vectors = committed("structs.json");
    let vector = vectors.iter().find(|one| one["name"] == "Old").expect("it is there");
    for value in vector["values"].as_array().expect("some") {
        let bytes = aligned(&bytes_of(&value["bytes"]));
        let view = View::<Grown>::new(bytes.as_slice()).expect("it is one");
        assert_eq!(
            (u64::from(view.stock), view.price),
            (value["value"]["stock"].as_u64().unwrap(), 5)
        );
        assert_eq!(view.load(view.name), Ok(value["value"]["name"].as_str().unwrap()));
        assert_eq!(view.load(view.note), Ok(""));
        assert_eq!(usize::from(view.root_size), size_of::<Grown>());
        assert!(view.in_place().is_none(), "its root is no such one");
        view.check().expect("it is well");
        for reported in [0_u8, 1, 2, 11] {
            let mut bytes = bytes_of(&value["bytes"]);
            bytes[0] = reported;
            let bytes = aligned(&bytes);
            let error = View::<Grown>::new(bytes.as_slice()).expect_err("it has no name");
            assert!(error.reason.starts_with("size: "), "{error}");
        }
    }
    // A root that ends inside a field does not contain that field.
    let mut half = vec![0xEE; 16];
    half[..12].copy_from_slice(&[14, 0, 1, 0, 16, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(View::<Grown>::new(aligned(&half).as_slice()).expect("it is one").price, 5);
}
