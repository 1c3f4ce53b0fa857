//! The structs of the vectors: every type of a schema at least once, alone and nested.

// Names that are special in JavaScript, and variants as TypeScript writes them.
#![allow(non_snake_case, dead_code)]

use std::num::{
    NonZeroI8, NonZeroI16, NonZeroI32, NonZeroI64, NonZeroU8, NonZeroU16, NonZeroU32, NonZeroU64,
};

use musli_zerocopy::{Ref, ZeroCopy};

use crate::kinds::{Array, Blob, FixedStr, Flat, Opt, Timestamp, U53};
use crate::{enumeration, structure, variants};

structure!(Product { stock: u32, name: Ref<str> });

// In an order that requires padding everywhere.
structure!(Numbers {
    a: u8,
    b: u16,
    c: i8,
    d: u32,
    e: bool,
    f: u64,
    g: i16,
    h: i32,
    i: u8,
    j: i64,
    k: f32,
    l: bool,
    m: f64,
    n: bool,
});
structure!(Safe { a: bool, count: U53, at: Timestamp, b: u8 });

enumeration!(Color: u8, "enum8", "e8" { Red, Green, Blue });
enumeration!(Level: u16, "enum16", "e16" { low, middle, high });
structure!(Enums { color: Color, level: Level, other: Color, last: Level });

structure!(Fixed { tag: [u8; 5], code: FixedStr<8>, n: u16, one: FixedStr<1>, raw: [u8; 1] });

structure!(Texts { a: Ref<str>, n: u8, b: Ref<str>, c: Blob });
structure!(Point { x: i16, y: i16 });
structure!(Word { text: Ref<str>, n: u8 });
structure!(Arrays {
    n: u8,
    numbers: Array<u32, 3>,
    flags: Array<bool, 3>,
    points: Array<Point, 2>,
    codes: Array<FixedStr<3>, 2>,
    raws: Array<[u8; 2], 2>,
    grid: Array<Array<u16, 2>, 2>,
    colors: Array<Color, 2>,
    names: Array<Ref<str>, 2>,
});
structure!(Vecs {
    title: Ref<str>,
    longs: Ref<[u64]>,
    bytes: Ref<[u8]>,
    halves: Ref<[f32]>,
    flags: Ref<[bool]>,
    points: Ref<[Point]>,
    colors: Ref<[Color]>,
    codes: Ref<[FixedStr<3>]>,
    grid: Ref<[Array<u16, 2>]>,
    maybe: Ref<[Opt<u16>]>,
    times: Ref<[Timestamp]>,
});
structure!(Deep {
    n: u8,
    names: Ref<[Ref<str>]>,
    words: Ref<[Word]>,
    lists: Ref<[Ref<[u16]>]>,
    blobs: Ref<[Blob]>,
    shapes: Ref<[Shape]>,
    last: Ref<str>,
});

structure!(Inner { flag: bool, size: u64, label: Ref<str>, end: u8 });
structure!(Middle { a: u8, inner: Inner, b: u8 });
structure!(Nested { head: u8, middle: Middle, point: Point, tail: u16 });

structure!(Page { offset: u32, limit: u8 });
structure!(Paged { head: u8, params: Flat<Page>, tail: u8 });
structure!(Filter { query: Ref<str>, paged: Flat<Paged>, exact: bool });
structure!(Search { first: u16, filter: Flat<Filter>, page: Page, last: Ref<str> });

structure!(Options {
    a: Opt<u8>,
    b: Opt<u16>,
    c: Opt<u32>,
    d: Opt<u64>,
    e: Opt<f32>,
    f: Opt<f64>,
    g: Opt<bool>,
    h: Opt<i8>,
    i: Opt<i64>,
    color: Opt<Color>,
    level: Opt<Level>,
    at: Opt<Timestamp>,
    count: Opt<U53>,
    tag: Opt<[u8; 3]>,
    code: Opt<FixedStr<4>>,
    name: Opt<Ref<str>>,
    blob: Opt<Blob>,
    list: Opt<Ref<[u32]>>,
    pair: Opt<Array<u16, 2>>,
    point: Opt<Point>,
    inner: Opt<Inner>,
    shape: Opt<Shape>,
    end: u8,
});
structure!(NonZeros {
    a: Option<NonZeroU8>,
    b: Option<NonZeroU16>,
    c: Option<NonZeroU32>,
    d: Option<NonZeroU64>,
    e: Option<NonZeroI8>,
    f: Option<NonZeroI16>,
    g: Option<NonZeroI32>,
    h: Option<NonZeroI64>,
});

variants!(Bare { Open, Shut, Ajar });
variants!(Shape {
    Empty,
    Tiny(u8),
    Circle(f64),
    Named(Ref<str>),
    Corner(Point),
    Half(u16),
    Boxed(Inner),
});
structure!(Unions { n: u8, shape: Shape, bare: Bare, other: Shape, m: u8 });

structure!(versioned Old { stock: u16, name: Ref<str> });
structure!(versioned New { stock: u16, name: Ref<str>, price: u32, note: Ref<str> });
structure!(versioned Wide { n: u64 });
// Its fields end at 9; it states its size including the padding.
structure!(versioned Ragged { n: u32, last: u8 });

enumeration!(Words: u8, "enum8", "e8" { __proto__, constructor, toString });
variants!(Forms { __proto__(u8), constructor, valueOf(Point) });
structure!(Hard {
    __proto__: u8,
    constructor: u16,
    toString: Ref<str>,
    hasOwnProperty: bool,
    words: Words,
    forms: Forms,
    valueOf: u8,
    then: u8,
    length: u32,
    prototype: Point,
});

// A row of 291 bytes of VeryLightSQL, which has no alignment.
structure!(Row { id: u32, username: FixedStr<32>, email: FixedStr<255> });
