// Made by toRust: UPDATE_PRINTED=1 writes it again.

use varve::schema::{Layout, Record};

pub const ALL: &[(&str, &Layout, u64)] = &[
    ("Product", <product::Product as Record>::LAYOUT, <product::Product as Record>::FINGERPRINT),
    ("Numbers", <numbers::Numbers as Record>::LAYOUT, <numbers::Numbers as Record>::FINGERPRINT),
    ("Safe", <safe::Safe as Record>::LAYOUT, <safe::Safe as Record>::FINGERPRINT),
    ("Enums", <enums::Enums as Record>::LAYOUT, <enums::Enums as Record>::FINGERPRINT),
    ("Fixed", <fixed::Fixed as Record>::LAYOUT, <fixed::Fixed as Record>::FINGERPRINT),
    ("Texts", <texts::Texts as Record>::LAYOUT, <texts::Texts as Record>::FINGERPRINT),
    ("Arrays", <arrays::Arrays as Record>::LAYOUT, <arrays::Arrays as Record>::FINGERPRINT),
    ("Vecs", <vecs::Vecs as Record>::LAYOUT, <vecs::Vecs as Record>::FINGERPRINT),
    ("Deep", <deep::Deep as Record>::LAYOUT, <deep::Deep as Record>::FINGERPRINT),
    ("Nested", <nested::Nested as Record>::LAYOUT, <nested::Nested as Record>::FINGERPRINT),
    ("Paged", <paged::Paged as Record>::LAYOUT, <paged::Paged as Record>::FINGERPRINT),
    ("Search", <search::Search as Record>::LAYOUT, <search::Search as Record>::FINGERPRINT),
    ("Options", <options::Options as Record>::LAYOUT, <options::Options as Record>::FINGERPRINT),
    ("NonZeros", <non_zeros::NonZeros as Record>::LAYOUT, <non_zeros::NonZeros as Record>::FINGERPRINT),
    ("Unions", <unions::Unions as Record>::LAYOUT, <unions::Unions as Record>::FINGERPRINT),
    ("Old", <old::Old as Record>::LAYOUT, <old::Old as Record>::FINGERPRINT),
    ("New", <new::New as Record>::LAYOUT, <new::New as Record>::FINGERPRINT),
    ("Wide", <wide::Wide as Record>::LAYOUT, <wide::Wide as Record>::FINGERPRINT),
    ("Ragged", <ragged::Ragged as Record>::LAYOUT, <ragged::Ragged as Record>::FINGERPRINT),
    ("Hard", <hard::Hard as Record>::LAYOUT, <hard::Hard as Record>::FINGERPRINT),
    ("Row", <row::Row as Record>::LAYOUT, <row::Row as Record>::FINGERPRINT),
];

pub mod product {
    use musli_zerocopy::{Ref, ZeroCopy};
    use varve::schema::Record;

    #[derive(Clone, Copy, Debug, ZeroCopy, Record)]
    #[repr(C)]
    pub struct Product {
        pub stock: u32,
        pub name: Ref<str>,
    }
}

pub mod numbers {
    use musli_zerocopy::ZeroCopy;
    use varve::schema::Record;

    #[derive(Clone, Copy, Debug, ZeroCopy, Record)]
    #[repr(C)]
    pub struct Numbers {
        pub a: u8,
        pub b: u16,
        pub c: i8,
        pub d: u32,
        pub e: bool,
        pub f: u64,
        pub g: i16,
        pub h: i32,
        pub i: u8,
        pub j: i64,
        pub k: f32,
        pub l: bool,
        pub m: f64,
        pub n: bool,
    }
}

pub mod safe {
    use musli_zerocopy::ZeroCopy;
    use varve::schema::Record;

    #[derive(Clone, Copy, Debug, ZeroCopy, Record)]
    #[repr(C)]
    pub struct Safe {
        pub a: bool,
        #[varve(u53)]
        pub count: u64,
        #[varve(timestamp)]
        pub at: i64,
        pub b: u8,
    }
}

pub mod enums {
    use musli_zerocopy::ZeroCopy;
    use varve::schema::Record;

    #[derive(Clone, Copy, Debug, ZeroCopy, Record)]
    #[repr(u8)]
    pub enum Color {
        Red,
        Green,
        Blue,
    }

    #[derive(Clone, Copy, Debug, ZeroCopy, Record)]
    #[repr(u16)]
    pub enum Level {
        #[varve(rename = "low")]
        Low,
        #[varve(rename = "middle")]
        Middle,
        #[varve(rename = "high")]
        High,
    }

    #[derive(Clone, Copy, Debug, ZeroCopy, Record)]
    #[repr(C)]
    pub struct Enums {
        pub color: Color,
        pub level: Level,
        pub other: Color,
        pub last: Level,
    }
}

pub mod fixed {
    use musli_zerocopy::ZeroCopy;
    use varve::schema::{FixedStr, Record};

    #[derive(Clone, Copy, Debug, ZeroCopy, Record)]
    #[repr(C)]
    pub struct Fixed {
        pub tag: [u8; 5],
        pub code: FixedStr<8>,
        pub n: u16,
        pub one: FixedStr<1>,
        pub raw: [u8; 1],
    }
}

pub mod texts {
    use musli_zerocopy::{Ref, ZeroCopy};
    use varve::schema::Record;

    #[derive(Clone, Copy, Debug, ZeroCopy, Record)]
    #[repr(C)]
    pub struct Texts {
        pub a: Ref<str>,
        pub n: u8,
        pub b: Ref<str>,
        pub c: Ref<[u8]>,
    }
}

pub mod arrays {
    use musli_zerocopy::{Ref, ZeroCopy};
    use varve::schema::{FixedStr, Record};

    #[derive(Clone, Copy, Debug, ZeroCopy, Record)]
    #[repr(C)]
    pub struct Point {
        pub x: i16,
        pub y: i16,
    }

    #[derive(Clone, Copy, Debug, ZeroCopy, Record)]
    #[repr(u8)]
    pub enum Colors {
        Red,
        Green,
        Blue,
    }

    #[derive(Clone, Copy, Debug, ZeroCopy, Record)]
    #[repr(C)]
    pub struct Arrays {
        pub n: u8,
        pub numbers: [u32; 3],
        pub flags: [bool; 3],
        pub points: [Point; 2],
        pub codes: [FixedStr<3>; 2],
        pub raws: [[u8; 2]; 2],
        pub grid: [[u16; 2]; 2],
        pub colors: [Colors; 2],
        pub names: [Ref<str>; 2],
    }
}

pub mod vecs {
    use musli_zerocopy::{Ref, ZeroCopy};
    use varve::schema::{FixedStr, Opt, Record};

    #[derive(Clone, Copy, Debug, ZeroCopy, Record)]
    #[repr(C)]
    pub struct Point {
        pub x: i16,
        pub y: i16,
    }

    #[derive(Clone, Copy, Debug, ZeroCopy, Record)]
    #[repr(u8)]
    pub enum Colors {
        Red,
        Green,
        Blue,
    }

    #[derive(Clone, Copy, Debug, ZeroCopy, Record)]
    #[repr(C)]
    pub struct Vecs {
        pub title: Ref<str>,
        pub longs: Ref<[u64]>,
        pub bytes: Ref<[u8]>,
        pub halves: Ref<[f32]>,
        pub flags: Ref<[bool]>,
        pub points: Ref<[Point]>,
        pub colors: Ref<[Colors]>,
        pub codes: Ref<[FixedStr<3>]>,
        pub grid: Ref<[[u16; 2]]>,
        pub maybe: Ref<[Opt<u16>]>,
        pub times: Ref<[i64]>,
    }
}

pub mod deep {
    use musli_zerocopy::{Ref, ZeroCopy};
    use varve::schema::Record;

    #[derive(Clone, Copy, Debug, ZeroCopy, Record)]
    #[repr(C)]
    pub struct Word {
        pub text: Ref<str>,
        pub n: u8,
    }

    #[derive(Clone, Copy, Debug, ZeroCopy, Record)]
    #[repr(C)]
    pub struct Point {
        pub x: i16,
        pub y: i16,
    }

    #[derive(Clone, Copy, Debug, ZeroCopy, Record)]
    #[repr(C)]
    pub struct Inner {
        pub flag: bool,
        pub size: u64,
        pub label: Ref<str>,
        pub end: u8,
    }

    #[derive(Clone, Copy, Debug, ZeroCopy, Record)]
    #[repr(u8)]
    pub enum Shapes {
        Empty,
        Tiny(u8),
        Circle(f64),
        Named(Ref<str>),
        Corner(Point),
        Half(u16),
        Boxed(Inner),
    }

    #[derive(Clone, Copy, Debug, ZeroCopy, Record)]
    #[repr(C)]
    pub struct Deep {
        pub n: u8,
        pub names: Ref<[Ref<str>]>,
        pub words: Ref<[Word]>,
        pub lists: Ref<[Ref<[u16]>]>,
        pub blobs: Ref<[Ref<[u8]>]>,
        pub shapes: Ref<[Shapes]>,
        pub last: Ref<str>,
    }
}

pub mod nested {
    use musli_zerocopy::{Ref, ZeroCopy};
    use varve::schema::Record;

    #[derive(Clone, Copy, Debug, ZeroCopy, Record)]
    #[repr(C)]
    pub struct Inner {
        pub flag: bool,
        pub size: u64,
        pub label: Ref<str>,
        pub end: u8,
    }

    #[derive(Clone, Copy, Debug, ZeroCopy, Record)]
    #[repr(C)]
    pub struct Middle {
        pub a: u8,
        pub inner: Inner,
        pub b: u8,
    }

    #[derive(Clone, Copy, Debug, ZeroCopy, Record)]
    #[repr(C)]
    pub struct Point {
        pub x: i16,
        pub y: i16,
    }

    #[derive(Clone, Copy, Debug, ZeroCopy, Record)]
    #[repr(C)]
    pub struct Nested {
        pub head: u8,
        pub middle: Middle,
        pub point: Point,
        pub tail: u16,
    }
}

pub mod paged {
    use musli_zerocopy::ZeroCopy;
    use varve::schema::Record;

    #[derive(Clone, Copy, Debug, ZeroCopy, Record)]
    #[repr(C)]
    pub struct Page {
        pub offset: u32,
        pub limit: u8,
    }

    #[derive(Clone, Copy, Debug, ZeroCopy, Record)]
    #[repr(C)]
    pub struct Paged {
        pub head: u8,
        #[varve(flatten)]
        pub params: Page,
        pub tail: u8,
    }
}

pub mod search {
    use musli_zerocopy::{Ref, ZeroCopy};
    use varve::schema::Record;

    #[derive(Clone, Copy, Debug, ZeroCopy, Record)]
    #[repr(C)]
    pub struct Page {
        pub offset: u32,
        pub limit: u8,
    }

    #[derive(Clone, Copy, Debug, ZeroCopy, Record)]
    #[repr(C)]
    pub struct Paged {
        pub head: u8,
        #[varve(flatten)]
        pub params: Page,
        pub tail: u8,
    }

    #[derive(Clone, Copy, Debug, ZeroCopy, Record)]
    #[repr(C)]
    pub struct Filter {
        pub query: Ref<str>,
        #[varve(flatten)]
        pub paged: Paged,
        pub exact: bool,
    }

    #[derive(Clone, Copy, Debug, ZeroCopy, Record)]
    #[repr(C)]
    pub struct Search {
        pub first: u16,
        #[varve(flatten)]
        pub filter: Filter,
        pub page: Page,
        pub last: Ref<str>,
    }
}

pub mod options {
    use musli_zerocopy::{Ref, ZeroCopy};
    use varve::schema::{FixedStr, Opt, Record};

    #[derive(Clone, Copy, Debug, ZeroCopy, Record)]
    #[repr(u8)]
    pub enum Color {
        Red,
        Green,
        Blue,
    }

    #[derive(Clone, Copy, Debug, ZeroCopy, Record)]
    #[repr(u16)]
    pub enum Level {
        #[varve(rename = "low")]
        Low,
        #[varve(rename = "middle")]
        Middle,
        #[varve(rename = "high")]
        High,
    }

    #[derive(Clone, Copy, Debug, ZeroCopy, Record)]
    #[repr(C)]
    pub struct Point {
        pub x: i16,
        pub y: i16,
    }

    #[derive(Clone, Copy, Debug, ZeroCopy, Record)]
    #[repr(C)]
    pub struct Inner {
        pub flag: bool,
        pub size: u64,
        pub label: Ref<str>,
        pub end: u8,
    }

    #[derive(Clone, Copy, Debug, ZeroCopy, Record)]
    #[repr(u8)]
    pub enum Shape {
        Empty,
        Tiny(u8),
        Circle(f64),
        Named(Ref<str>),
        Corner(Point),
        Half(u16),
        Boxed(Inner),
    }

    #[derive(Clone, Copy, Debug, ZeroCopy, Record)]
    #[repr(C)]
    pub struct Options {
        pub a: Opt<u8>,
        pub b: Opt<u16>,
        pub c: Opt<u32>,
        pub d: Opt<u64>,
        pub e: Opt<f32>,
        pub f: Opt<f64>,
        pub g: Opt<bool>,
        pub h: Opt<i8>,
        pub i: Opt<i64>,
        pub color: Opt<Color>,
        pub level: Opt<Level>,
        pub at: Opt<i64>,
        pub count: Opt<u64>,
        pub tag: Opt<[u8; 3]>,
        pub code: Opt<FixedStr<4>>,
        pub name: Opt<Ref<str>>,
        pub blob: Opt<Ref<[u8]>>,
        pub list: Opt<Ref<[u32]>>,
        pub pair: Opt<[u16; 2]>,
        pub point: Opt<Point>,
        pub inner: Opt<Inner>,
        pub shape: Opt<Shape>,
        pub end: u8,
    }
}

pub mod non_zeros {
    use musli_zerocopy::ZeroCopy;
    use std::num::{NonZeroI16, NonZeroI32, NonZeroI64, NonZeroI8, NonZeroU16, NonZeroU32, NonZeroU64, NonZeroU8};
    use varve::schema::Record;

    #[derive(Clone, Copy, Debug, ZeroCopy, Record)]
    #[repr(C)]
    pub struct NonZeros {
        pub a: Option<NonZeroU8>,
        pub b: Option<NonZeroU16>,
        pub c: Option<NonZeroU32>,
        pub d: Option<NonZeroU64>,
        pub e: Option<NonZeroI8>,
        pub f: Option<NonZeroI16>,
        pub g: Option<NonZeroI32>,
        pub h: Option<NonZeroI64>,
    }
}

pub mod unions {
    use musli_zerocopy::{Ref, ZeroCopy};
    use varve::schema::Record;

    #[derive(Clone, Copy, Debug, ZeroCopy, Record)]
    #[repr(C)]
    pub struct Point {
        pub x: i16,
        pub y: i16,
    }

    #[derive(Clone, Copy, Debug, ZeroCopy, Record)]
    #[repr(C)]
    pub struct Inner {
        pub flag: bool,
        pub size: u64,
        pub label: Ref<str>,
        pub end: u8,
    }

    #[derive(Clone, Copy, Debug, ZeroCopy, Record)]
    #[repr(u8)]
    pub enum Shape {
        Empty,
        Tiny(u8),
        Circle(f64),
        Named(Ref<str>),
        Corner(Point),
        Half(u16),
        Boxed(Inner),
    }

    #[derive(Clone, Copy, Debug, ZeroCopy, Record)]
    #[repr(u8)]
    #[varve(union)]
    pub enum Bare {
        Open,
        Shut,
        Ajar,
    }

    #[derive(Clone, Copy, Debug, ZeroCopy, Record)]
    #[repr(C)]
    pub struct Unions {
        pub n: u8,
        pub shape: Shape,
        pub bare: Bare,
        pub other: Shape,
        pub m: u8,
    }
}

pub mod old {
    use musli_zerocopy::{Ref, ZeroCopy};
    use varve::schema::Record;

    #[derive(Clone, Copy, Debug, ZeroCopy, Record)]
    #[repr(C)]
    #[varve(versioned)]
    pub struct Old {
        pub root_size: u16,
        pub stock: u16,
        pub name: Ref<str>,
    }
}

pub mod new {
    use musli_zerocopy::{Ref, ZeroCopy};
    use varve::schema::Record;

    #[derive(Clone, Copy, Debug, ZeroCopy, Record)]
    #[repr(C)]
    #[varve(versioned)]
    pub struct New {
        pub root_size: u16,
        pub stock: u16,
        pub name: Ref<str>,
        pub price: u32,
        pub note: Ref<str>,
    }
}

pub mod wide {
    use musli_zerocopy::ZeroCopy;
    use varve::schema::Record;

    #[derive(Clone, Copy, Debug, ZeroCopy, Record)]
    #[repr(C)]
    #[varve(versioned)]
    pub struct Wide {
        pub root_size: u16,
        pub n: u64,
    }
}

pub mod ragged {
    use musli_zerocopy::ZeroCopy;
    use varve::schema::Record;

    #[derive(Clone, Copy, Debug, ZeroCopy, Record)]
    #[repr(C)]
    #[varve(versioned)]
    pub struct Ragged {
        pub root_size: u16,
        pub n: u32,
        pub last: u8,
    }
}

pub mod hard {
    use musli_zerocopy::{Ref, ZeroCopy};
    use varve::schema::Record;

    #[derive(Clone, Copy, Debug, ZeroCopy, Record)]
    #[repr(u8)]
    pub enum Words {
        #[varve(rename = "__proto__")]
        Proto,
        #[varve(rename = "constructor")]
        Constructor,
        #[varve(rename = "toString")]
        ToString,
    }

    #[derive(Clone, Copy, Debug, ZeroCopy, Record)]
    #[repr(C)]
    pub struct Point {
        pub x: i16,
        pub y: i16,
    }

    #[derive(Clone, Copy, Debug, ZeroCopy, Record)]
    #[repr(u8)]
    pub enum Forms {
        #[varve(rename = "__proto__")]
        Proto(u8),
        #[varve(rename = "constructor")]
        Constructor,
        #[varve(rename = "valueOf")]
        ValueOf(Point),
    }

    #[derive(Clone, Copy, Debug, ZeroCopy, Record)]
    #[repr(C)]
    pub struct Hard {
        #[varve(rename = "__proto__")]
        pub _proto: u8,
        pub constructor: u16,
        #[varve(rename = "toString")]
        pub to_string: Ref<str>,
        #[varve(rename = "hasOwnProperty")]
        pub has_own_property: bool,
        pub words: Words,
        pub forms: Forms,
        #[varve(rename = "valueOf")]
        pub value_of: u8,
        pub then: u8,
        pub length: u32,
        pub prototype: Point,
    }
}

pub mod row {
    use musli_zerocopy::ZeroCopy;
    use varve::schema::{FixedStr, Record};

    #[derive(Clone, Copy, Debug, ZeroCopy, Record)]
    #[repr(C)]
    pub struct Row {
        pub id: u32,
        pub username: FixedStr<32>,
        pub email: FixedStr<255>,
    }
}
