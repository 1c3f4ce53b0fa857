//! JSON compared with that of TypeScript: `tests/vectors/json.json`, which this test makes, and
//! `json-typescript.json`, which TypeScript makes.
//!
//! `UPDATE_VECTORS=1 cargo test --test schema` writes the former, and
//! `UPDATE_VECTORS=1 npx vitest run vectors/json` the latter.

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use musli_zerocopy::{Ref, ZeroCopy};
use varve::schema::json::Json;
use varve::schema::{Kind, Opt, Parts, Record, View};

use crate::layouts::{bytes_of, committed};
use crate::printed;

trait AnyJson {
    fn write(&self, bytes: &[u8]) -> Result<String, String>;
    fn read(&self, json: &str) -> Result<Vec<u8>, String>;
    fn read_leniently(&self, json: &str) -> Result<Vec<u8>, String>;
}

impl<T: Record> AnyJson for Json<T> {
    fn write(&self, bytes: &[u8]) -> Result<String, String> {
        Json::write(self, bytes).map_err(|error| error.to_string())
    }

    fn read(&self, json: &str) -> Result<Vec<u8>, String> {
        Json::read(self, json).map_err(|error| error.to_string())
    }

    fn read_leniently(&self, json: &str) -> Result<Vec<u8>, String> {
        let read = Json::<T>::new().ignore_unknown().read(json);
        read.map_err(|error| error.to_string())
    }
}

macro_rules! each_vector {
    ($act:expr, $($module:ident::$name:ident),* $(,)?) => {
        $($act(stringify!($name), &Json::<printed::$module::$name>::new());)*
    };
}

/// Calls a function for the type of each vector.
fn each_vector(mut act: impl FnMut(&str, &dyn AnyJson)) {
    each_vector!(
        act,
        product::Product,
        numbers::Numbers,
        safe::Safe,
        enums::Enums,
        fixed::Fixed,
        texts::Texts,
        arrays::Arrays,
        vecs::Vecs,
        deep::Deep,
        nested::Nested,
        paged::Paged,
        search::Search,
        options::Options,
        non_zeros::NonZeros,
        unions::Unions,
        old::Old,
        new::New,
        wide::Wide,
        ragged::Ragged,
        hard::Hard,
        row::Row,
    );
}

#[derive(Clone, Copy, ZeroCopy, Record)]
#[repr(C)]
struct Card {
    number: Ref<str>,
    #[varve(json(rename = "limit", default = 500))]
    max_amount: u16,
}

#[derive(Clone, Copy, ZeroCopy, Record)]
#[repr(C)]
struct Percent {
    value: u8,
    of: Ref<str>,
}

#[derive(Clone, Copy, ZeroCopy, Record)]
#[repr(u8)]
#[varve(json(rename_all = "kebab-case"))]
enum State {
    InStock,
    SoldOut,
}

#[derive(Clone, Copy, ZeroCopy, Record)]
#[repr(u8)]
#[varve(json(tag = "type", rename_all = "camelCase"))]
enum Inside {
    GiftCard(Card),
    Percent(Percent),
    NoCharge,
}

#[derive(Clone, Copy, ZeroCopy, Record)]
#[repr(u8)]
#[varve(json(tag = "t", content = "c"))]
enum Beside {
    Cash(u32),
    Card(Card),
    Tip(Opt<u8>),
    Free,
}

#[derive(Clone, Copy, ZeroCopy, Record)]
#[repr(u8)]
#[varve(json(rename_all = "SCREAMING_SNAKE_CASE"))]
enum Outside {
    CashOnly(u32),
    Free,
}

#[derive(Clone, Copy, ZeroCopy, Record)]
#[repr(C)]
#[varve(json(rename_all = "PascalCase"))]
struct Page {
    first_row: u32,
    http_status2: u8,
}

#[derive(Clone, Copy, ZeroCopy, Record)]
#[repr(C)]
#[varve(json(rename_all = "camelCase"))]
struct Order {
    order_id: u32,
    state: State,
    inside: Inside,
    beside: Beside,
    outside: Outside,
    all: Ref<[Inside]>,
    pair: [Beside; 2],
    maybe: Opt<Inside>,
    #[varve(flatten)]
    page: Page,
    #[varve(json(rename = "noteText", alias = "note text", alias = "text", default))]
    note: Ref<str>,
    #[varve(json(default))]
    tags: Ref<[u16]>,
    #[varve(json(default = true))]
    is_open: bool,
    #[varve(timestamp)]
    changed_at: i64,
    #[varve(json(skip, default = 7))]
    internal_count: u32,
    #[varve(json(skip))]
    internal_note: Ref<str>,
}

#[derive(Clone, Copy, ZeroCopy, Record)]
#[repr(C)]
#[varve(versioned, json(rename_all = "snake_case"))]
struct Grown {
    root_size: u16,
    #[varve(rename = "unitPrice")]
    unit_price: u16,
    #[varve(rename = "addedLater", added = 5)]
    added_later: u32,
    #[varve(rename = "moreText", added)]
    more_text: Ref<str>,
    #[varve(rename = "isSkipped", added = 9, json(skip))]
    is_skipped: u8,
}

fn order(number: u8) -> Vec<u8> {
    let mut parts = Parts::of::<Order>();
    let page = Page { first_row: u32::from(number) * 7, http_status2: number };
    let mut card = |text| Card { number: parts.str(text), max_amount: u16::from(number) };
    let (inside, beside) = match number % 3 {
        0 => (Inside::GiftCard(card("12 \"34\"")), Beside::Tip(Opt::None)),
        1 => (Inside::NoCharge, Beside::Card(card("ž\u{1}"))),
        _ => (Inside::Percent(Percent { value: 5, of: parts.str("all") }), Beside::Free),
    };
    let all = match number % 2 {
        0 => Vec::new(),
        _ => vec![
            Inside::NoCharge,
            Inside::Percent(Percent { value: 1, of: Ref::with_metadata(0u32, 0) }),
        ],
    };
    // The text of an element lies behind the elements.
    let all = if all.is_empty() { parts.slice(&all) } else { parts.slice(&all[..1]) };
    let maybe = if number > 2 { Opt::Some(Inside::NoCharge) } else { Opt::None };
    let root = Order {
        order_id: number.into(),
        state: if number.is_multiple_of(2) { State::InStock } else { State::SoldOut },
        inside,
        beside,
        outside: if number > 1 { Outside::Free } else { Outside::CashOnly(3) },
        all,
        pair: [Beside::Free, Beside::Tip(Opt::Some(number))],
        maybe,
        page,
        note: parts.str("a note"),
        tags: parts.slice(&[1, 2, 3]),
        is_open: number > 0,
        changed_at: -1,
        internal_count: 7,
        internal_note: parts.str(""),
    };
    parts.finish(root).expect("it is short")
}

fn grown(number: u16) -> Vec<u8> {
    let mut parts = Parts::of::<Grown>();
    let more_text = parts.str("more");
    let root = Grown { root_size: 0, unit_price: number, added_later: 6, more_text, is_skipped: 9 };
    parts.finish(root).expect("it is short")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

const FORMS: [&str; 2] = ["Order", "Grown"];

fn kind_of(name: &str) -> Kind {
    let (_, layout, _) = printed::ALL.iter().find(|(other, ..)| *other == name).expect(name);
    Kind::from(*layout)
}

/// The values in JSON forms, by the names of their types.
fn in_forms() -> Vec<(&'static str, Vec<u8>)> {
    let orders = (0..6).map(|number| ("Order", order(number)));
    // One of an earlier version, which ended before the first added field.
    let grown = [("Grown", grown(1)), ("Grown", vec![4, 0, 3, 0])];
    orders.chain(grown).collect()
}

fn form(name: &str) -> Box<dyn AnyJson> {
    match name {
        "Order" => Box::new(Json::<Order>::new()),
        _ => Box::new(Json::<Grown>::new()),
    }
}

#[test]
fn json_is_byte_for_byte_the_same_as_committed_for_typescript() {
    let mut lines = Vec::new();
    let vectors = committed("structs.json");
    each_vector(|name, json| {
        let vector = vectors.iter().find(|vector| vector["name"] == name).expect(name);
        for (index, value) in vector["values"].as_array().unwrap().iter().enumerate() {
            let bytes = bytes_of(&value["bytes"]);
            let text = json.write(&bytes).expect(name);
            assert_eq!(json.read(&text).as_ref(), Ok(&bytes), "{name} {index}");
            lines.push(serde_json::json!([name, hex(&bytes), text]).to_string());
        }
    });
    for (name, bytes) in in_forms() {
        let json = form(name);
        let text = json.write(&bytes).expect(name);
        let again = json.read(&text).expect(name);
        assert_eq!(json.write(&again).as_ref(), Ok(&text));
        if bytes.len() > 4 {
            assert_eq!(hex(&again), hex(&bytes), "{text}");
        }
        lines.push(serde_json::json!([name, hex(&bytes), text]).to_string());
    }
    let made = format!("[\n{}\n]\n", lines.join(",\n"));
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/vectors/json.json");
    if std::env::var_os("UPDATE_VECTORS").is_some() {
        fs::write(&path, &made).expect("the file can be written");
    }
    let found = fs::read_to_string(path).expect("the vectors are committed");
    for (made, found) in made.lines().zip(found.lines()) {
        assert_eq!(made, found);
    }
    assert_eq!(made.len(), found.len());
}

#[test]
fn fields_in_reverse_order_give_the_bytes_of_typescript() {
    let reversed = committed("structs-reversed.json");
    let vectors = committed("structs.json");
    each_vector(|name, json| {
        let vector = vectors.iter().find(|vector| vector["name"] == name).expect(name);
        for (index, value) in vector["values"].as_array().unwrap().iter().enumerate() {
            let label = format!("{name} {index}");
            let bytes = reversed.iter().find(|one| one[0] == label.as_str()).expect("it is there");
            let text = json.write(&bytes_of(&bytes[1])).expect(&label);
            let expected = json.write(&bytes_of(&value["bytes"])).expect(&label);
            assert_eq!(text, expected, "{label}");
        }
    });
}

#[test]
fn malformed_bytes_are_refused_as_in_typescript() {
    let vectors = committed("structs.json");
    each_vector(|name, json| {
        let vector = vectors.iter().find(|vector| vector["name"] == name).expect(name);
        for one in vector["malformed"].as_array().unwrap() {
            let wrong = json.write(&bytes_of(&one["bytes"])).expect_err(name);
            let (at, why) = (one["at"].as_str().unwrap(), one["why"].as_str().unwrap());
            assert!(wrong.starts_with(at), "{name}, {}: {wrong}", one["about"]);
            assert!(wrong.contains(&format!("{why}: ")), "{name}, {}: {wrong}", one["about"]);
        }
    });
}

/// The same sequence in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }
}

#[test]
fn damaged_bytes_are_refused_exactly_where_a_check_refuses_them() {
    let vectors = committed("structs.json");
    let mut random = Random(1);
    let mut refusals = 0;
    each_vector(|name, json| {
        let vector = vectors.iter().find(|vector| vector["name"] == name).expect(name);
        let kind = kind_of(name);
        for value in vector["values"].as_array().unwrap() {
            for _ in 0..300 {
                let mut bytes = bytes_of(&value["bytes"]);
                for _ in 0..=random.below(3) {
                    let at = random.below(bytes.len());
                    bytes[at] = [0, 1, 2, 0x7F, 0xFF, random.below(256) as u8][random.below(6)];
                }
                bytes.truncate(bytes.len() - random.below(2) * random.below(bytes.len()));
                let (written, checked) = (json.write(&bytes), kind.check(&bytes));
                // A check of an earlier version looks at what it has, and JSON needs all that it must have.
                if !matches!(kind, Kind::Struct { versioned: true, .. }) {
                    assert_eq!(
                        written.is_ok(),
                        checked.is_ok(),
                        "{name}: {written:?}, {checked:?}"
                    );
                }
                refusals += usize::from(written.is_err());
            }
        }
    });
    assert!(refusals > 1_000, "{refusals}");
}

#[test]
fn damaged_texts_are_refused_or_read_as_records() {
    let mut random = Random(2);
    let mut counts = [0, 0];
    let mut damaged = |name: &str, json: &dyn AnyJson, text: &str| {
        for _ in 0..200 {
            let mut letters: Vec<char> = text.chars().collect();
            for _ in 0..=random.below(3) {
                let (at, other) = (random.below(letters.len()), random.below(letters.len()));
                match random.below(4) {
                    0 => drop(letters.remove(at)),
                    1 => {
                        letters[at] =
                            ['"', '\\', '{', '}', '[', ']', ',', ':', '0', '\0'][random.below(10)]
                    }
                    2 => letters.insert(at, letters[other]),
                    _ => letters.swap(at, other),
                }
                if letters.is_empty() {
                    letters.push('{');
                }
            }
            let text: String = letters.into_iter().collect();
            let read =
                if random.below(2) == 0 { json.read(&text) } else { json.read_leniently(&text) };
            counts[usize::from(read.is_ok())] += 1;
            if let Ok(bytes) = read {
                json.write(&bytes).unwrap_or_else(|error| panic!("{name}: {text}: {error}"));
            }
        }
    };
    for one in committed("json.json") {
        let (name, text) = (one[0].as_str().unwrap(), one[2].as_str().unwrap());
        if FORMS.contains(&name) {
            damaged(name, &*form(name), text);
        } else {
            each_vector(|other, json| {
                if other == name {
                    damaged(name, json, text);
                }
            });
        }
    }
    assert!(counts.iter().all(|&count| count > 500), "{counts:?}");
}

#[test]
fn texts_of_typescript_are_read_alike_and_refused_alike() {
    let vectors = committed("json-typescript.json");
    let mut kinds = [0; 3];
    for one in &vectors {
        let field = |index: usize| one[index].as_str().expect("it is text");
        let (kind, name, text) = (field(0), field(1), field(2));
        let boxed = form(name);
        let mut product: Option<Json<printed::numbers::Numbers>> = None;
        let json: &dyn AnyJson = match name {
            "Numbers" => product.insert(Json::new()),
            _ => &*boxed,
        };
        match kind {
            "read" => {
                kinds[0] += 1;
                let bytes = json.read(text).unwrap_or_else(|error| panic!("{text}: {error}"));
                assert_eq!(hex(&bytes), field(3), "{text}");
            }
            "refused" => {
                kinds[1] += 1;
                assert_eq!(
                    json.read(text).map(|bytes| hex(&bytes)),
                    Err(field(3).into()),
                    "{text}"
                );
            }
            _ => {
                kinds[2] += 1;
                let bytes =
                    json.read_leniently(text).unwrap_or_else(|error| panic!("{text}: {error}"));
                assert_eq!(hex(&bytes), field(3), "{text}");
            }
        }
        if kind != "refused" {
            assert_eq!(json.write(&bytes_of(&one[3])).as_deref(), Ok(field(4)), "{text}");
        }
    }
    assert!(kinds.iter().all(|&count| count > 0), "{kinds:?}");
}

#[test]
fn forms_change_neither_layouts_nor_fingerprints() {
    #[derive(Clone, Copy, ZeroCopy, Record)]
    #[repr(C)]
    #[varve(rename = "Card")]
    struct Plain {
        number: Ref<str>,
        max_amount: u16,
    }
    assert_eq!(Plain::LAYOUT, Card::LAYOUT);
    assert_eq!(Plain::FINGERPRINT, Card::FINGERPRINT);
    let bytes = order(0);
    let view = View::<Order>::new(&bytes);
    if let Ok(view) = view {
        assert_eq!(view.to_json().ok(), Json::<Order>::new().write(&bytes).ok());
    }
}

#[test]
fn a_form_that_a_type_cannot_have_panics_with_its_reason() {
    #[derive(Clone, Copy, ZeroCopy, Record)]
    #[repr(C)]
    struct Twice {
        a: u8,
        #[varve(json(rename = "a"))]
        b: u8,
    }
    #[derive(Clone, Copy, ZeroCopy, Record)]
    #[repr(C)]
    struct Tagged {
        #[varve(json(alias = "type"))]
        kind: u8,
    }
    #[derive(Clone, Copy, ZeroCopy, Record)]
    #[repr(u8)]
    #[varve(json(tag = "type"))]
    enum Same {
        Tagged(Tagged),
    }
    #[derive(Clone, Copy, ZeroCopy, Record)]
    #[repr(u8)]
    #[varve(json(tag = "type"))]
    enum Number {
        Number(u8),
    }
    #[derive(Clone, Copy, ZeroCopy, Record)]
    #[repr(C)]
    struct Nothing {
        #[varve(json(skip))]
        a: u8,
    }
    fn reason<T: Record>() -> String {
        let panic = std::panic::catch_unwind(|| drop(Json::<T>::new())).expect_err("it is refused");
        panic.downcast_ref::<String>().expect("it has a text").clone()
    }
    for (reason, part) in [
        (reason::<Twice>(), "fields a and b cannot both have the name \"a\""),
        (reason::<Same>(), "the tag \"type\" is also a field of the variant Tagged"),
        (reason::<Number>(), "the variant Number is not a struct"),
        (reason::<Nothing>(), "a field that is not skipped"),
    ] {
        assert!(reason.contains(part), "{reason}");
    }
}
