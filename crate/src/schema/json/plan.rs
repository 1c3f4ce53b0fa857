//! A layout compiled for JSON: what lies at each offset. Fields of flattened structs are merged
//! into their parent, so that they cost no more than others.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::descriptor::{Plain, aligned};
use super::super::json_form::{Form, PartForm, Spelling};
use super::super::layout::{Layout, Shape};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Plain(Plain),
    /// Of one or two bytes.
    Enum(usize),
    Bytes,
    FixedStr,
    Str,
    Blob,
    Array,
    Vec,
    Option,
    OptNonZero,
    Union,
    /// A union with a tag.
    Tagged,
    Struct,
    /// The field that names a union's variant. It takes no bytes.
    Tag,
}

#[derive(Debug)]
pub(super) struct Node {
    pub op: Op,
    pub size: usize,
    pub align: usize,
    /// Number of bytes or elements, if fixed.
    pub count: usize,
    /// Whether it refers to parts behind the root.
    pub has_parts: bool,
    /// Of elements, or of what is optional.
    pub of: Option<Arc<Node>>,
    pub names: Names,
    /// Of each field in JSON, or each variant: its type, none for a variant without data.
    pub nodes: Vec<Option<Arc<Node>>>,
    /// Of each of these: where it begins.
    pub starts: Vec<usize>,
    /// The JSON in front of each field, or that a name is.
    pub heads: Vec<Vec<u8>>,
    /// Of a versioned struct: its size; else 0.
    pub root: usize,
    /// Of a struct: all of its fields, those of flattened structs and skipped ones among them.
    pub fields: Vec<Field>,
    /// Of a struct: how many fields a text must have, or it is completed.
    pub complete: usize,
    /// Of a union with a tag: the name of that field, and the object that each variant is.
    pub tag: Names,
    pub tagged: Vec<Node>,
}

#[derive(Clone, Debug)]
pub(super) struct Field {
    /// The name in the schema.
    pub own: String,
    /// The name in JSON.
    pub name: String,
    pub node: Arc<Node>,
    pub start: usize,
    pub form: Option<&'static PartForm>,
}

impl Field {
    pub fn is_skipped(&self) -> bool {
        self.form.is_some_and(|form| form.skip)
    }
}

/// Names, with others for some of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    pub list: Vec<String>,
    sorted: Vec<(Vec<u8>, usize)>,
}

impl Names {
    pub fn new(list: &[&str]) -> Names {
        let sorted = list.iter().enumerate().map(|(index, name)| (name.as_bytes().to_vec(), index));
        let mut names = Names {
            list: list.iter().map(ToString::to_string).collect(),
            sorted: sorted.collect(),
        };
        names.sorted.sort();
        names
    }

    /// The names in JSON of fields, variants or an enum. Their own names are read, too, because
    /// the JSON of a snapshot in TypeScript has them.
    fn of(all: &[(&str, &str, &[&'static str])], what: &str) -> Result<Names, String> {
        let mut seen = BTreeMap::new();
        for (index, (own, name, aliases)) in all.iter().enumerate() {
            for one in [*name, *own].iter().chain(aliases.iter()) {
                match seen.insert(one.as_bytes().to_vec(), index) {
                    Some(other) if other != index => {
                        return Err(format!(
                            "the {what} {} and {own} cannot both have the name {one:?} in JSON",
                            all[other].0
                        ));
                    }
                    _ => {}
                }
            }
        }
        let list = all.iter().map(|(_, name, _)| name.to_string()).collect();
        Ok(Names { list, sorted: seen.into_iter().collect() })
    }

    /// The index of a name. `likely` is tried first.
    pub fn find(&self, name: &[u8], likely: usize) -> Option<usize> {
        if self.list.get(likely).is_some_and(|one| one.as_bytes() == name) {
            return Some(likely);
        }
        let at = self.sorted.binary_search_by(|(one, _)| one.as_slice().cmp(name)).ok()?;
        Some(self.sorted[at].1)
    }
}

type Planned = Result<Node, String>;

fn leaf(op: Op, size: usize, align: usize) -> Node {
    Node {
        op,
        size,
        align,
        count: 0,
        has_parts: false,
        of: None,
        names: Names::default(),
        nodes: Vec::new(),
        starts: Vec::new(),
        heads: Vec::new(),
        root: 0,
        fields: Vec::new(),
        complete: 0,
        tag: Names::default(),
        tagged: Vec::new(),
    }
}

pub(super) fn quoted(name: &str) -> Vec<u8> {
    let mut out = Vec::new();
    super::escape::escape(&mut out, name.as_bytes());
    out
}

fn part_form(form: &Form, index: usize) -> &'static Form {
    form.parts.get(index).map_or(&Form::PLAIN, |part| part.form)
}

/// The plan of a type.
pub(super) fn plan(layout: &Layout, form: &Form) -> Planned {
    let inner = |of: &Layout| Ok::<_, String>(Arc::new(plan(of, part_form(form, 0))?));
    let plain = |plain: Plain| leaf(Op::Plain(plain), plain.size(), plain.size());
    Ok(match layout {
        Layout::U8 => plain(Plain::U8),
        Layout::U16 => plain(Plain::U16),
        Layout::U32 => plain(Plain::U32),
        Layout::U64 => plain(Plain::U64),
        Layout::U53 => plain(Plain::U53),
        Layout::I8 => plain(Plain::I8),
        Layout::I16 => plain(Plain::I16),
        Layout::I32 => plain(Plain::I32),
        Layout::I64 => plain(Plain::I64),
        Layout::Timestamp => plain(Plain::Timestamp),
        Layout::F32 => plain(Plain::F32),
        Layout::F64 => plain(Plain::F64),
        Layout::Bool => plain(Plain::Bool),
        Layout::Enum8(names) => enumeration(names, form, 1)?,
        Layout::Enum16(names) => enumeration(names, form, 2)?,
        Layout::Bytes(n) => Node { count: *n, ..leaf(Op::Bytes, *n, 1) },
        Layout::FixedStr(n) => Node { count: *n, ..leaf(Op::FixedStr, *n, 1) },
        Layout::Str => Node { has_parts: true, ..leaf(Op::Str, 8, 4) },
        Layout::Blob => Node { has_parts: true, ..leaf(Op::Blob, 8, 4) },
        Layout::Vec(of) => Node { has_parts: true, of: Some(inner(of)?), ..leaf(Op::Vec, 8, 4) },
        Layout::Array(of, n) => {
            let of = inner(of)?;
            let (size, align, has_parts) = (of.size * n, of.align, of.has_parts);
            Node { count: *n, has_parts, of: Some(of), ..leaf(Op::Array, size, align) }
        }
        Layout::Option(of) => {
            let of = inner(of)?;
            let start = aligned(1, of.align);
            let (size, align) = (aligned(start + of.size, of.align), of.align);
            let has_parts = of.has_parts;
            Node { has_parts, starts: vec![start], of: Some(of), ..leaf(Op::Option, size, align) }
        }
        Layout::OptNonZero(of) => {
            let of = inner(of)?;
            let (size, align) = (of.size, of.align);
            Node { of: Some(of), ..leaf(Op::OptNonZero, size, align) }
        }
        Layout::Flatten(of) => plan(of, form)?,
        Layout::Struct(shape) => structure(shape, form)?,
        Layout::Union(_, variants) => union(variants, form)?,
    })
}

fn spelled_names(names: &[&'static str], form: &Form, what: &str) -> Result<Names, String> {
    let spelled: Vec<String> = names.iter().map(|name| spelled(name, form.spelling)).collect();
    let all: Vec<(&str, &str, &[&str])> =
        names.iter().zip(&spelled).map(|(own, name)| (*own, name.as_str(), &[][..])).collect();
    Names::of(&all, what)
}

fn enumeration(names: &[&'static str], form: &Form, size: usize) -> Planned {
    let names = spelled_names(names, form, "names")?;
    let heads = names.list.iter().map(|name| quoted(name)).collect();
    Ok(Node { names, heads, ..leaf(Op::Enum(size), size, size) })
}

fn union(variants: &[(&'static str, Option<&'static Layout>)], form: &Form) -> Planned {
    let (mut size, mut align, mut has_parts) = (1, 1, false);
    let mut nodes = Vec::new();
    let mut starts = Vec::new();
    for (index, (_, payload)) in variants.iter().enumerate() {
        let Some(payload) = payload else {
            nodes.push(None);
            starts.push(1);
            continue;
        };
        let node = plan(payload, part_form(form, index))?;
        let start = aligned(1, node.align);
        size = size.max(start + node.size);
        align = align.max(node.align);
        has_parts |= node.has_parts;
        nodes.push(Some(Arc::new(node)));
        starts.push(start);
    }
    let owns: Vec<&'static str> = variants.iter().map(|(name, _)| *name).collect();
    let names = spelled_names(&owns, form, "variants")?;
    let heads = names.list.iter().map(|name| quoted(name)).collect();
    let tagged = tagged_objects(&owns, &nodes, form)?;
    let op = if form.tag.is_some() { Op::Tagged } else { Op::Union };
    let tag = Names::new(form.tag.as_slice());
    let node = leaf(op, aligned(size, align), align);
    Ok(Node { has_parts, names, nodes, starts, heads, tag, tagged, ..node })
}

/// The objects that the variants of a union are in JSON if a field of them names the variant.
fn tagged_objects(
    owns: &[&'static str],
    payloads: &[Option<Arc<Node>>],
    form: &Form,
) -> Result<Vec<Node>, String> {
    let Some(tag) = form.tag else {
        let is_alone = form.content.is_some();
        return if is_alone {
            Err("a union with content needs a tag, too".into())
        } else {
            Ok(Vec::new())
        };
    };
    if form.content == Some(tag) {
        return Err("the tag and the content need different names".into());
    }
    if tag == "value" {
        return Err("the tag cannot be called \"value\": in a snapshot that is not the tag".into());
    }
    let field = |name: &str, node: Arc<Node>| Field {
        own: name.to_string(),
        name: name.to_string(),
        node,
        start: 0,
        form: None,
    };
    let object = |(own, payload): (&&'static str, &Option<Arc<Node>>)| {
        let names = spelled_names(&[*own], form, "variants")?;
        let heads = vec![quoted(&names.list[0])];
        let first = field(tag, Arc::new(Node { names, heads, ..leaf(Op::Tag, 0, 1) }));
        let mut fields = vec![first];
        match (payload, form.content) {
            (None, _) => {}
            (Some(payload), Some(content)) => fields.push(field(content, Arc::clone(payload))),
            (Some(payload), None) if payload.op != Op::Struct => {
                return Err(format!(
                    "the variant {own} is not a struct, whose fields could be beside the tag: \
                     give the union content, too"
                ));
            }
            (Some(payload), None) => {
                if payload.names.find(tag.as_bytes(), 0).is_some() {
                    return Err(format!("the tag {tag:?} is also a field of the variant {own}"));
                }
                fields.extend(payload.fields.iter().cloned());
            }
        }
        object_of(fields, 0, 1, 0)
    };
    owns.iter().zip(payloads).map(object).collect()
}

fn structure(shape: &Shape, form: &Form) -> Planned {
    let (mut size, mut align) = if shape.versioned { (2, 2) } else { (0, 1) };
    let mut fields = Vec::new();
    for (index, &(own, layout)) in shape.fields.iter().enumerate() {
        let part = form.parts.get(index);
        let node = plan(layout, part_form(form, index))?;
        let start = aligned(size, node.align);
        size = start + node.size;
        align = align.max(node.align);
        if matches!(layout, Layout::Flatten(_)) {
            let inner = node.fields.into_iter();
            fields.extend(inner.map(|field| Field { start: start + field.start, ..field }));
            continue;
        }
        let rename = part.and_then(|part| part.rename);
        let name = rename.map_or_else(|| spelled(own, form.spelling), ToString::to_string);
        let node = Arc::new(node);
        fields.push(Field { own: own.to_string(), name, node, start, form: part });
    }
    let size = aligned(size, align);
    object_of(fields, size, align, if shape.versioned { size } else { 0 })
}

fn object_of(fields: Vec<Field>, size: usize, align: usize, root: usize) -> Planned {
    let kept: Vec<&Field> = fields.iter().filter(|field| !field.is_skipped()).collect();
    if kept.is_empty() {
        return Err("a struct needs a field that is not skipped in JSON".into());
    }
    let all: Vec<(&str, &str, &[&'static str])> = kept
        .iter()
        .map(|one| {
            let aliases = one.form.map_or(&[][..], |form| form.aliases);
            (one.own.as_str(), one.name.as_str(), aliases)
        })
        .collect();
    let names = Names::of(&all, "fields")?;
    let heads = names.list.iter().enumerate().map(|(index, name)| {
        let open: &[u8] = if index == 0 { b"{" } else { b"," };
        [open, &quoted(name), b":"].concat()
    });
    let node = leaf(Op::Struct, size, align);
    Ok(Node {
        heads: heads.collect(),
        has_parts: fields.iter().any(|field| field.node.has_parts),
        nodes: kept.iter().map(|field| Some(Arc::clone(&field.node))).collect(),
        starts: kept.iter().map(|field| field.start).collect(),
        complete: kept.len() + usize::from(kept.len() < fields.len()),
        names,
        root,
        fields,
        ..node
    })
}

/// A name in another spelling, as in TypeScript. A word begins behind `_`, `-` or a space, and at a
/// capital behind a small letter or a digit, or before a small letter. Only letters of ASCII count.
fn spelled(name: &str, spelling: Option<Spelling>) -> String {
    let Some(spelling) = spelling else { return name.to_string() };
    let rest = name.trim_start_matches('_');
    let start = &name[..name.len() - rest.len()];
    let letters: Vec<char> = rest.chars().collect();
    let mut words = vec![String::new()];
    for (at, &letter) in letters.iter().enumerate() {
        if matches!(letter, '-' | '_' | ' ') {
            words.push(String::new());
            continue;
        }
        let before = at.checked_sub(1).map(|before| letters[before]);
        let is_behind_small =
            before.is_some_and(|one| one.is_ascii_lowercase() || one.is_ascii_digit());
        let is_before_small = before.is_some_and(|one| one.is_ascii_uppercase())
            && letters.get(at + 1).is_some_and(char::is_ascii_lowercase);
        if letter.is_ascii_uppercase() && (is_behind_small || is_before_small) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut() {
            word.push(letter);
        }
    }
    words.retain(|word| !word.is_empty());
    let Some((first, more)) = words.split_first() else { return name.to_string() };
    let title = |word: &String| {
        let mut word = word.to_ascii_lowercase();
        if let Some(first) = word.get_mut(..1) {
            first.make_ascii_uppercase();
        }
        word
    };
    let joined = match spelling {
        Spelling::Camel => first.to_ascii_lowercase() + &more.iter().map(title).collect::<String>(),
        Spelling::Pascal => words.iter().map(title).collect(),
        Spelling::Snake => words.join("_").to_ascii_lowercase(),
        Spelling::Kebab => words.join("-").to_ascii_lowercase(),
        Spelling::ScreamingSnake => words.join("_").to_ascii_uppercase(),
    };
    format!("{start}{joined}")
}
