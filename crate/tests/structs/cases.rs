//! The values of the vectors, each encoded by musli.

use std::num::{
    NonZeroI8, NonZeroI16, NonZeroI32, NonZeroI64, NonZeroU8, NonZeroU16, NonZeroU32, NonZeroU64,
};

use crate::kinds::{Array, Blob, Flat, Opt, Timestamp, U53};
use crate::parts::{Parts, null_ref};
use crate::types::*;
use crate::vector::Vector;

pub fn all() -> Vec<Vector> {
    vec![
        product(),
        numbers(),
        safe(),
        enums(),
        fixed(),
        texts(),
        arrays(),
        vecs(),
        deep(),
        nested(),
        paged(),
        search(),
        options(),
        non_zeros(),
        unions(),
        old(),
        new(),
        wide(),
        ragged(),
        hard(),
        row(),
    ]
}

fn product() -> Vector {
    Vector::of::<Product>("a number and a string: the 30 bytes that everything began with")
        .value(|parts| Product { stock: 20_001, name: parts.str("Yeezy Boost 350 V2") })
        .value(|parts| Product { stock: 0, name: parts.str("") })
}

fn numbers() -> Vector {
    let zero = Numbers {
        a: 0,
        b: 0,
        c: 0,
        d: 0,
        e: false,
        f: 0,
        g: 0,
        h: 0,
        i: 0,
        j: 0,
        k: 0.0,
        l: false,
        m: 0.0,
        n: false,
    };
    let floats = |k, m| move |_: &mut Parts| Numbers { k, m, ..zero };
    Vector::of::<Numbers>("every number at its limits, with holes between them")
        .value(move |_| zero)
        .value(|_| Numbers {
            a: u8::MAX,
            b: u16::MAX,
            c: i8::MAX,
            d: u32::MAX,
            e: true,
            f: u64::MAX,
            g: i16::MAX,
            h: i32::MAX,
            i: 1,
            j: i64::MAX,
            k: f32::MAX,
            l: true,
            m: f64::MAX,
            n: true,
        })
        .value(move |_| Numbers {
            c: i8::MIN,
            f: (1 << 53) + 1,
            g: i16::MIN,
            h: i32::MIN,
            j: i64::MIN,
            k: f32::MIN,
            m: f64::MIN,
            ..zero
        })
        .value(floats(f32::MIN_POSITIVE / 4.0, f64::MIN_POSITIVE / 4.0))
        .value(floats(-0.0, -0.0))
        .value(floats(f32::INFINITY, f64::NEG_INFINITY))
        .value(floats(f32::NAN, f64::NAN))
        .value(floats(0.1, 0.1))
        .value(floats(1e20, 5e-324))
}

fn safe() -> Vector {
    let at = |count, at| move |_: &mut Parts| Safe { a: true, count: U53(count), at, b: 7 };
    Vector::of::<Safe>("64 bits as numbers of JavaScript")
        .value(at(0, Timestamp(0)))
        .value(at((1 << 53) - 1, Timestamp(1_790_000_000_123)))
        .value(at(1 << 32, Timestamp(-1)))
        .value(at(u64::from(u32::MAX), Timestamp(-8_640_000_000_000_000)))
        .value(at(1, Timestamp(8_640_000_000_000_000)))
}

fn enums() -> Vector {
    Vector::of::<Enums>("enums of one byte and of two")
        .value(|_| Enums {
            color: Color::Red,
            level: Level::low,
            other: Color::Red,
            last: Level::low,
        })
        .value(|_| Enums {
            color: Color::Blue,
            level: Level::high,
            other: Color::Green,
            last: Level::middle,
        })
}

fn fixed() -> Vector {
    let fixed = |tag, code: &'static str, one: &'static str, raw| {
        move |_: &mut Parts| Fixed { tag, code: code.into(), n: 258, one: one.into(), raw: [raw] }
    };
    Vector::of::<Fixed>("bytes and strings in place")
        .value(fixed([0; 5], "", "", 0))
        .value(fixed([1, 2, 253, 254, 255], "abcdefgh", "x", 255))
        .value(fixed([255; 5], "äöüß", "y", 1))
        .value(fixed(*b"\0a\0b\0", "日本", "\u{7f}", 2))
        .value(fixed(*b"hello", "ab😀", " ", 3))
}

fn texts() -> Vector {
    let texts = |a: &'static str, b: &'static str, c: &'static [u8]| {
        move |parts: &mut Parts| Texts {
            a: parts.str(a),
            n: 9,
            b: parts.str(b),
            c: Blob(parts.slice(c)),
        }
    };
    Vector::of::<Texts>("strings and bytes behind the root")
        .value(texts("", "", b""))
        .value(texts("a", "", b"\0"))
        .value(texts("", "b", &[255, 0, 128]))
        .value(texts("grüße", "日本語 😀 \u{10ffff}", b"blob"))
        .value(texts("\"quoted\" \\ and\n\t\u{1}\u{7f}\u{2028}", "\0zero\0", &[7; 33]))
        .value(texts("0123456789012345678901234567890123456789", "exactly18characters", b"12"))
        .value(texts(LONG, "ä", &[1; 200]))
}

const LONG: &str = "A string that is longer than what is decoded by hand, so that it takes the way of long ones; \
    it ends with letters that take two, three and four bytes: ä € 😀.";

fn arrays() -> Vector {
    let point = |x, y| Point { x, y };
    Vector::of::<Arrays>("arrays of what has a fixed size")
        .value(move |parts| Arrays {
            n: 1,
            numbers: Array([0, 1, u32::MAX]),
            flags: Array([true, false, true]),
            points: Array([point(1, -2), point(i16::MIN, i16::MAX)]),
            codes: Array(["abc".into(), "é".into()]),
            raws: Array([[1, 2], [3, 4]]),
            grid: Array([Array([1, 2]), Array([3, 4])]),
            colors: Array([Color::Blue, Color::Red]),
            names: Array([parts.str("first"), parts.str("")]),
        })
        .value(move |parts| Arrays {
            n: 255,
            numbers: Array([7; 3]),
            flags: Array([false; 3]),
            points: Array([point(0, 0); 2]),
            codes: Array(["".into(), "xyz".into()]),
            raws: Array([[0, 0], [255, 255]]),
            grid: Array([Array([0, 65_535]), Array([256, 1])]),
            colors: Array([Color::Green, Color::Green]),
            names: Array([parts.str("ä"), parts.str("zwei")]),
        })
}

fn vecs() -> Vector {
    Vector::of::<Vecs>("vectors of what has a fixed size, each at its alignment")
        .value(|parts| Vecs {
            title: parts.str("odd"),
            longs: parts.slice(&[]),
            bytes: parts.slice(&[]),
            halves: parts.slice(&[]),
            flags: parts.slice(&[]),
            points: parts.slice(&[]),
            colors: parts.slice(&[]),
            codes: parts.slice(&[]),
            grid: parts.slice(&[]),
            maybe: parts.slice(&[]),
            times: parts.slice(&[]),
        })
        .value(|parts| Vecs {
            title: parts.str("title"),
            longs: parts.slice(&[0, 1, u64::MAX]),
            bytes: parts.slice(&[1, 2, 3]),
            halves: parts.slice(&[1.5, f32::NAN, -0.0]),
            flags: parts.slice(&[true, false, true]),
            points: parts.slice(&[Point { x: 1, y: 2 }, Point { x: -3, y: 4 }]),
            colors: parts.slice(&[Color::Green]),
            codes: parts.slice(&["a".into(), "abc".into()]),
            grid: parts.slice(&[Array([1, 2]), Array([3, 4]), Array([5, 6])]),
            maybe: parts.slice(&[Opt::None, Opt::Some(513), Opt::Some(0)]),
            times: parts.slice(&[Timestamp(-5), Timestamp(1 << 41)]),
        })
}

fn deep() -> Vector {
    let text = |parts: &mut Parts, text: &str| parts.str(text);
    Vector::of::<Deep>("vectors of what refers to parts itself: items first, then their parts")
        .value(move |parts| Deep {
            n: 1,
            names: parts.items(&["one", "", "drei"], null_ref, text),
            words: parts.items(
                &[("five", 5), ("", 0)],
                || Word { text: null_ref(), n: 0 },
                |parts, (text, n)| Word { text: parts.str(text), n },
            ),
            lists: parts.items(
                &[&[1_u16, 2][..], &[], &[65_535]],
                || musli_zerocopy::Ref::with_metadata(0_u32, 0),
                |parts, list| parts.slice(list),
            ),
            blobs: parts.items(
                &[&b"abc"[..], b""],
                || Blob(musli_zerocopy::Ref::with_metadata(0_u32, 0)),
                |parts, blob| Blob(parts.slice(blob)),
            ),
            shapes: parts.items(
                &["", "named", "x"],
                || Shape::Empty,
                |parts, name| match name {
                    "" => Shape::Circle(2.5),
                    "x" => Shape::Empty,
                    name => Shape::Named(parts.str(name)),
                },
            ),
            last: parts.str("last"),
        })
        .value(move |parts| Deep {
            n: 2,
            names: parts.slice(&[]),
            words: parts.slice(&[]),
            lists: parts.slice(&[]),
            blobs: parts.slice(&[]),
            shapes: parts.slice(&[]),
            last: parts.str(""),
        })
}

fn inner(parts: &mut Parts, label: &str) -> Inner {
    Inner { flag: true, size: u64::MAX - 1, label: parts.str(label), end: 3 }
}

fn nested() -> Vector {
    Vector::of::<Nested>("structs within structs")
        .value(|parts| Nested {
            head: 1,
            middle: Middle { a: 2, inner: inner(parts, "inside"), b: 4 },
            point: Point { x: -1, y: 1 },
            tail: 515,
        })
        .value(|parts| Nested {
            head: 0,
            middle: Middle { a: 0, inner: inner(parts, ""), b: 0 },
            point: Point { x: 0, y: 0 },
            tail: 0,
        })
}

fn page(offset: u32, limit: u8) -> Page {
    Page { offset, limit }
}

fn paged() -> Vector {
    Vector::of::<Paged>("a flattened struct keeps its layout: tail lies at 12")
        .value(|_| Paged { head: 1, params: Flat(page(2, 3)), tail: 4 })
        .value(|_| Paged { head: 255, params: Flat(page(u32::MAX, 255)), tail: 255 })
}

fn search() -> Vector {
    Vector::of::<Search>("flattened within flattened, with strings before and behind").value(
        |parts| Search {
            first: 1,
            filter: Flat(Filter {
                query: parts.str("what"),
                paged: Flat(Paged { head: 2, params: Flat(page(3, 4)), tail: 5 }),
                exact: true,
            }),
            page: page(6, 7),
            last: parts.str("end"),
        },
    )
}

fn options() -> Vector {
    Vector::of::<Options>("options of every width, there and not there")
        .value(|_| Options {
            a: Opt::None,
            b: Opt::None,
            c: Opt::None,
            d: Opt::None,
            e: Opt::None,
            f: Opt::None,
            g: Opt::None,
            h: Opt::None,
            i: Opt::None,
            color: Opt::None,
            level: Opt::None,
            at: Opt::None,
            count: Opt::None,
            tag: Opt::None,
            code: Opt::None,
            name: Opt::None,
            blob: Opt::None,
            list: Opt::None,
            pair: Opt::None,
            point: Opt::None,
            inner: Opt::None,
            shape: Opt::None,
            end: 1,
        })
        .value(|parts| Options {
            a: Opt::Some(255),
            b: Opt::Some(65_535),
            c: Opt::Some(u32::MAX),
            d: Opt::Some(u64::MAX),
            e: Opt::Some(1.5),
            f: Opt::Some(-2.25),
            g: Opt::Some(true),
            h: Opt::Some(-128),
            i: Opt::Some(i64::MIN),
            color: Opt::Some(Color::Blue),
            level: Opt::Some(Level::high),
            at: Opt::Some(Timestamp(1_000)),
            count: Opt::Some(U53(1 << 40)),
            tag: Opt::Some([1, 2, 3]),
            code: Opt::Some("code".into()),
            name: Opt::Some(parts.str("name")),
            blob: Opt::Some(Blob(parts.slice(b"blob!"))),
            list: Opt::Some(parts.slice(&[1, 2])),
            pair: Opt::Some(Array([3, 4])),
            point: Opt::Some(Point { x: 5, y: -6 }),
            inner: Opt::Some(inner(parts, "deep")),
            shape: Opt::Some(Shape::Named(parts.str("shape"))),
            end: 2,
        })
        .value(|parts| Options {
            a: Opt::Some(0),
            b: Opt::None,
            c: Opt::Some(0),
            d: Opt::None,
            e: Opt::Some(0.0),
            f: Opt::None,
            g: Opt::Some(false),
            h: Opt::None,
            i: Opt::Some(0),
            color: Opt::None,
            level: Opt::Some(Level::low),
            at: Opt::None,
            count: Opt::Some(U53(0)),
            tag: Opt::None,
            code: Opt::Some("".into()),
            name: Opt::None,
            blob: Opt::Some(Blob(parts.slice(b""))),
            list: Opt::None,
            pair: Opt::Some(Array([0, 0])),
            point: Opt::None,
            inner: Opt::Some(inner(parts, "")),
            shape: Opt::Some(Shape::Empty),
            end: 3,
        })
}

fn non_zeros() -> Vector {
    Vector::of::<NonZeros>("options for which zero is nothing")
        .value(|_| NonZeros {
            a: None,
            b: None,
            c: None,
            d: None,
            e: None,
            f: None,
            g: None,
            h: None,
        })
        .value(|_| NonZeros {
            a: NonZeroU8::new(255),
            b: NonZeroU16::new(1),
            c: NonZeroU32::new(u32::MAX),
            d: NonZeroU64::new(u64::MAX),
            e: NonZeroI8::new(-128),
            f: NonZeroI16::new(-1),
            g: NonZeroI32::new(i32::MAX),
            h: NonZeroI64::new(i64::MIN),
        })
        .value(|_| NonZeros {
            a: None,
            b: NonZeroU16::new(256),
            c: None,
            d: NonZeroU64::new(1 << 56),
            e: None,
            f: NonZeroI16::new(256),
            g: None,
            h: NonZeroI64::new(1),
        })
}

fn unions() -> Vector {
    let unions = |shape, bare, other| Unions { n: 1, shape, bare, other, m: 2 };
    Vector::of::<Unions>("variants with a payload and without")
        .value(move |_| unions(Shape::Empty, Bare::Open, Shape::Empty))
        .value(move |_| unions(Shape::Tiny(255), Bare::Shut, Shape::Circle(-0.5)))
        .value(move |parts| {
            unions(Shape::Named(parts.str("first")), Bare::Ajar, Shape::Named(parts.str("second")))
        })
        .value(move |parts| {
            let corner = Shape::Corner(Point { x: 7, y: -7 });
            unions(corner, Bare::Open, Shape::Boxed(inner(parts, "boxed")))
        })
        .value(move |_| unions(Shape::Half(65_535), Bare::Ajar, Shape::Tiny(0)))
}

fn old() -> Vector {
    Vector::of::<Old>("a versioned struct, as it began")
        .value(|parts| Old { root_size: 12, stock: 20_001, name: parts.str("Yeezy Boost 350 V2") })
        .value(|parts| Old { root_size: 12, stock: 1, name: parts.str("") })
}

fn new() -> Vector {
    Vector::of::<New>("the same, grown by two fields").value(|parts| New {
        root_size: 24,
        stock: 20_001,
        name: parts.str("Yeezy Boost 350 V2"),
        price: 22_000,
        note: parts.str("sold out"),
    })
}

fn wide() -> Vector {
    Vector::of::<Wide>("versioned, with a hole behind the size")
        .value(|_| Wide { root_size: 16, n: u64::MAX })
}

fn ragged() -> Vector {
    Vector::of::<Ragged>("versioned, with filling behind its last field").value(|_| Ragged {
        root_size: 12,
        n: 1 << 24,
        last: 255,
    })
}

fn hard() -> Vector {
    let hard = |words, forms, text: &'static str| {
        move |parts: &mut Parts| Hard {
            __proto__: 1,
            constructor: 2,
            toString: parts.str(text),
            hasOwnProperty: true,
            words,
            forms,
            valueOf: 3,
            then: 4,
            length: 5,
            prototype: Point { x: 6, y: 7 },
        }
    };
    Vector::of::<Hard>("names that mean something to JavaScript")
        .value(hard(Words::__proto__, Forms::__proto__(9), "__proto__"))
        .value(hard(Words::constructor, Forms::constructor, ""))
        .value(hard(Words::toString, Forms::valueOf(Point { x: 1, y: 2 }), "x"))
}

fn row() -> Vector {
    Vector::of::<Row>("a row of 291 bytes and one of filling, all in place").value(|_| Row {
        id: 17,
        username: "user17".into(),
        email: "person17@example.com".into(),
    })
}
