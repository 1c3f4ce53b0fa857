//! Parses JSON text to the bytes of a value, in one pass: each number, string and bool is written
//! directly to its offset. Parts lie in the order of the text.

use std::sync::LazyLock;

use super::super::Malformed;
use super::super::descriptor::{Plain, aligned};
use super::super::json_form::Fill;
use super::super::validate::{MAX_TIME, below};
use super::plan::{Names, Node, Op};
use super::tokens::{Read, Tokens, fail};

pub(super) struct Reader<'a> {
    pub tokens: Tokens<'a>,
    /// The value. Everything that was not written is zero.
    pub out: &'a mut Vec<u8>,
    pub lenient: bool,
    /// The added fields of a versioned struct, by their offsets: their values where they are missing.
    pub defaults: &'a [(usize, Vec<u8>)],
}

/// The fields of a variant in a snapshot of TypeScript.
static MEMBERS: LazyLock<Names> = LazyLock::new(|| Names::new(&["type", "value"]));

/// Which fields of an object were read.
struct Seen {
    few: u128,
    more: Vec<bool>,
}

impl Seen {
    fn new(count: usize) -> Seen {
        Seen { few: 0, more: vec![false; if count > 128 { count } else { 0 }] }
    }

    fn has(&self, index: usize) -> bool {
        if self.more.is_empty() { self.few & (1 << index) != 0 } else { self.more[index] }
    }

    fn insert(&mut self, index: usize) {
        if self.more.is_empty() {
            self.few |= 1 << index;
        } else {
            self.more[index] = true;
        }
    }
}

fn inner(node: &Node) -> &Node {
    node.of.as_ref().expect("what has elements has their node")
}

impl Reader<'_> {
    /// Reads a whole value.
    pub fn root(&mut self, node: &Node) -> Read<()> {
        self.out.clear();
        self.out.resize(node.size, 0);
        self.value(node, 0)?;
        self.tokens.finish()
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.out[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn value(&mut self, node: &Node, at: usize) -> Read<()> {
        match node.op {
            Op::Plain(plain) => self.plain(plain, at)?,
            Op::Enum(size) => {
                let index = self.known_name(&node.names)?;
                self.put(at, &index.to_le_bytes()[..size]);
            }
            Op::Bytes => self.fixed(node, "bytes", at, Self::base64)?,
            Op::FixedStr => self.fixed(node, "fixedStr", at, Self::string)?,
            Op::Str => self.part(at, Self::string)?,
            Op::Blob => self.part(at, Self::base64)?,
            Op::Array => self.array(node, at)?,
            Op::Vec => self.vec(node, at)?,
            Op::Option => {
                if !self.tokens.null()? {
                    self.out[at] = 1;
                    self.value(inner(node), at + node.starts[0])?;
                }
            }
            Op::OptNonZero => {
                if !self.tokens.null()? {
                    self.value(inner(node), at)?;
                    if self.out[at..at + node.size].iter().all(|&byte| byte == 0) {
                        return fail("0 means absent here: write null");
                    }
                }
            }
            Op::Union => self.union(node, at)?,
            Op::Tagged => self.tagged(node, at)?,
            Op::Struct => self.structure(node, at)?,
            Op::Tag => {
                self.known_name(&node.names)?;
            }
        }
        Ok(())
    }

    fn plain(&mut self, plain: Plain, at: usize) -> Read<()> {
        let (least, most) = match plain {
            Plain::U8 => (0, u8::MAX.into()),
            Plain::U16 => (0, u16::MAX.into()),
            Plain::U32 => (0, u32::MAX.into()),
            Plain::I8 => (i8::MIN.into(), i8::MAX.into()),
            Plain::I16 => (i16::MIN.into(), i16::MAX.into()),
            Plain::I32 => (i32::MIN.into(), i32::MAX.into()),
            Plain::U53 => (0, (1 << 53) - 1),
            Plain::Timestamp => {
                let value = self.tokens.time()?;
                debug_assert!(value.unsigned_abs() <= MAX_TIME, "it was checked");
                self.put(at, &value.to_le_bytes());
                return Ok(());
            }
            Plain::U64 => {
                let value = self.tokens.long("u64", 0, u64::MAX.into())?;
                self.put(at, &value.to_le_bytes()[..8]);
                return Ok(());
            }
            Plain::I64 => {
                let value = self.tokens.long("i64", i64::MIN.into(), i64::MAX.into())?;
                self.put(at, &value.to_le_bytes()[..8]);
                return Ok(());
            }
            Plain::F32 => {
                let value = self.tokens.float("f32")? as f32;
                self.put(at, &value.to_le_bytes());
                return Ok(());
            }
            Plain::F64 => {
                let value = self.tokens.float("f64")?;
                self.put(at, &value.to_le_bytes());
                return Ok(());
            }
            Plain::Bool => {
                self.out[at] = self.tokens.bool()?.into();
                return Ok(());
            }
        };
        let value = self.tokens.integer(plain.name(), least, most)?;
        self.put(at, &value.to_le_bytes()[..plain.size()]);
        Ok(())
    }

    /// Decodes a string behind the value, and returns its length.
    fn string(&mut self) -> Read<usize> {
        if self.tokens.peek() != b'"' {
            return self.tokens.wanted("a string");
        }
        self.tokens.at += 1;
        let before = self.out.len();
        loop {
            let start = self.tokens.at;
            let rest = &self.tokens.text[start..];
            let plain =
                rest.iter().take_while(|&&byte| byte >= b' ' && byte != b'"' && byte != b'\\');
            let count = plain.count();
            self.out.extend_from_slice(&rest[..count]);
            self.tokens.at += count;
            match rest.get(count) {
                Some(b'"') => break,
                Some(b'\\') => {
                    let character = self.tokens.escape()?;
                    let mut utf8 = [0; 4];
                    self.out.extend_from_slice(character.encode_utf8(&mut utf8).as_bytes());
                }
                _ => return self.tokens.wanted("the end of a string"),
            }
        }
        self.tokens.at += 1;
        Ok(self.out.len() - before)
    }

    /// Decodes base64 behind the value, and returns the number of bytes.
    fn base64(&mut self) -> Read<usize> {
        let length = self.string()?;
        let start = self.out.len() - length;
        let letters = &self.out[start..];
        let fill = letters.iter().rev().take(2).take_while(|&&letter| letter == b'=').count();
        let mut is_good = length.is_multiple_of(4);
        let mut bits = 0u32;
        let mut to = start;
        for at in 0..length - fill {
            let digit = match self.out[start + at] {
                letter @ b'A'..=b'Z' => letter - b'A',
                letter @ b'a'..=b'z' => letter - b'a' + 26,
                letter @ b'0'..=b'9' => letter - b'0' + 52,
                b'+' => 62,
                b'/' => 63,
                _ => {
                    is_good = false;
                    0
                }
            };
            bits = (bits << 6) | u32::from(digit);
            if at % 4 > 0 {
                self.out[to] = (bits >> (6 - 2 * (at % 4))).to_le_bytes()[0];
                to += 1;
            }
        }
        // Only canonical base64 is accepted: unused bits of the last digit must be zero.
        if !is_good || bits & ((1 << (2 * fill)) - 1) != 0 {
            return fail("invalid base64");
        }
        self.out.truncate(to);
        Ok(to - start)
    }

    /// Moves what is decoded behind the value to a field of fixed length.
    fn fixed(
        &mut self,
        node: &Node,
        kind: &str,
        at: usize,
        decode: fn(&mut Self) -> Read<usize>,
    ) -> Read<()> {
        let length = decode(self)?;
        let start = self.out.len() - length;
        let count = node.count;
        if length > count || (node.op == Op::Bytes && length != count) {
            return fail(format!("{length} bytes do not fit {kind}({count})"));
        }
        if node.op == Op::FixedStr && self.out[start..].contains(&0) {
            return fail("fixedStr must not contain U+0000");
        }
        self.out.copy_within(start.., at);
        self.out.truncate(start);
        Ok(())
    }

    fn part(&mut self, at: usize, decode: fn(&mut Self) -> Read<usize>) -> Read<()> {
        let start = self.out.len();
        let length = decode(self)?;
        self.refer(at, start, length)
    }

    fn refer(&mut self, at: usize, start: usize, count: usize) -> Read<()> {
        let (Ok(start), Ok(count)) = (u32::try_from(start), u32::try_from(count)) else {
            return fail("has more bytes than any value can have");
        };
        self.put(at, &start.to_le_bytes());
        self.put(at + 4, &count.to_le_bytes());
        Ok(())
    }

    /// Reads the next string as a name. The index among these names, and where it begins.
    fn name(&mut self, names: &Names, likely: usize) -> Read<(Option<usize>, usize)> {
        if self.tokens.peek() != b'"' {
            return self.tokens.wanted("a name in quotes");
        }
        let start = self.tokens.at;
        let rest = &self.tokens.text[start + 1..];
        let plain = |&&byte: &&u8| byte >= b' ' && byte != b'"' && byte != b'\\';
        let count = rest.iter().take_while(plain).count();
        if rest.get(count) == Some(&b'"') {
            self.tokens.at = start + count + 2;
            return Ok((names.find(&rest[..count], likely), start));
        }
        let length = self.string()?;
        let begins = self.out.len() - length;
        let index = names.find(&self.out[begins..], likely);
        self.out.truncate(begins);
        Ok((index, start))
    }

    /// As `name`, of a name that must be known.
    fn known_name(&mut self, names: &Names) -> Read<usize> {
        let (index, start) = self.name(names, 0)?;
        index.map_or_else(|| self.unknown(names, start), Ok)
    }

    fn unknown<T>(&self, names: &Names, start: usize) -> Read<T> {
        let given = self.tokens.written(start);
        fail(format!("{given} is not one of {}", names.list.join(", ")))
    }

    fn array(&mut self, node: &Node, at: usize) -> Read<()> {
        let of = inner(node);
        self.tokens.expect(b'[')?;
        for index in 0..node.count {
            let result = if index > 0 { self.tokens.expect(b',') } else { Ok(()) };
            let result = result.and_then(|()| self.value(of, at + index * of.size));
            result.map_err(|error| below(&format!("[{index}]"), error))?;
        }
        if self.tokens.peek() == b',' {
            return fail(format!("more than {} items", node.count));
        }
        self.tokens.expect(b']')
    }

    fn vec(&mut self, node: &Node, at: usize) -> Read<()> {
        let of = inner(node);
        self.tokens.expect(b'[')?;
        let first = aligned(self.out.len(), of.align);
        self.out.resize(first, 0);
        // Elements are contiguous, so they are counted before the parts of the first one are written.
        if of.has_parts {
            let counted = self.tokens.count_elements()?;
            self.out.resize(first + counted * of.size, 0);
        }
        let mut count = 0;
        if self.tokens.peek() != b']' {
            loop {
                let offset = first + count * of.size;
                if !of.has_parts {
                    self.out.resize(offset + of.size, 0);
                }
                let read = self.value(of, offset);
                read.map_err(|error| below(&format!("[{count}]"), error))?;
                count += 1;
                if !self.tokens.next(b',') {
                    break;
                }
            }
        }
        self.tokens.expect(b']')?;
        self.refer(at, first, count)
    }

    fn union(&mut self, node: &Node, at: usize) -> Read<()> {
        let is_bare = !self.tokens.next(b'{');
        self.tokens.peek();
        let (index, start) = self.name(&node.names, 0)?;
        let Some(index) = index else {
            if is_bare {
                return self.unknown(&node.names, start);
            }
            self.tokens.at = start;
            return self.typed(node, at);
        };
        let variant = &node.names.list[index];
        self.out[at] = index.to_le_bytes()[0];
        match (&node.nodes[index], is_bare) {
            (None, true) => Ok(()),
            (None, false) => fail(format!("{variant} has no payload: write only its name")),
            (Some(_), true) => fail(format!("{variant} needs a payload")),
            (Some(payload), false) => {
                self.tokens.expect(b':')?;
                let read = self.value(payload, at + node.starts[index]);
                read.map_err(|error| below(variant, error))?;
                self.tokens.expect(b'}')
            }
        }
    }

    /// Reads a variant in the form of a snapshot in TypeScript, behind its `{`: `{ type, value }`.
    fn typed(&mut self, node: &Node, at: usize) -> Read<()> {
        let mut variant = None;
        let mut value = None;
        loop {
            self.tokens.peek();
            let (member, start) = self.name(&MEMBERS, 0)?;
            if (member == Some(0) && variant.is_some()) || (member == Some(1) && value.is_some()) {
                return fail(format!("duplicate field {}", self.tokens.written(start)));
            }
            if member.is_none() {
                return self.unknown(&node.names, start);
            }
            self.tokens.expect(b':')?;
            self.tokens.peek();
            if member == Some(1) {
                value = Some(self.tokens.at);
                self.tokens.skip()?;
            } else {
                variant = Some(self.known_name(&node.names)?);
            }
            if !self.tokens.next(b',') {
                break;
            }
        }
        self.tokens.expect(b'}')?;
        let Some(index) = variant else {
            return fail(
                "missing field type: a variant is {\"Name\":value} or {\"type\":\"Name\",\"value\":value}",
            );
        };
        let name = &node.names.list[index];
        self.out[at] = index.to_le_bytes()[0];
        match (&node.nodes[index], value) {
            (None, None) => Ok(()),
            (None, Some(_)) => fail(format!("{name} has no payload")),
            (Some(payload), None) if is_optional(payload) => Ok(()),
            (Some(_), None) => fail(format!("{name} needs a payload")),
            (Some(payload), Some(value)) => {
                let behind = std::mem::replace(&mut self.tokens.at, value);
                let read = self.value(payload, at + node.starts[index]);
                read.map_err(|error| below(name, error))?;
                self.tokens.at = behind;
                Ok(())
            }
        }
    }

    /// Reads a variant that a field of its object names. If that is not the first one, the fields
    /// before it are skipped and then read: nothing is kept.
    fn tagged(&mut self, node: &Node, at: usize) -> Read<()> {
        let tag = &node.tag.list[0];
        if self.tokens.peek() != b'{' {
            return self.tokens.wanted("{");
        }
        let start = self.tokens.at;
        self.tokens.at += 1;
        let mut index = None;
        let mut fields = 0;
        if self.tokens.peek() != b'}' {
            loop {
                fields += 1;
                let (found, _) = self.name(&node.tag, 0)?;
                if found.is_some() {
                    let read = self.tokens.expect(b':').and_then(|()| self.known_name(&node.names));
                    index = Some(read.map_err(|error| below(tag, error))?);
                    break;
                }
                self.tokens.expect(b':')?;
                self.tokens.skip()?;
                if !self.tokens.next(b',') {
                    break;
                }
            }
        }
        let is_plain = match index {
            None => tag != "type",
            Some(index) => fields == 1 && self.is_plain_next(node, index)?,
        };
        self.tokens.at = start + 1;
        if is_plain && self.tokens.peek() == b'"' {
            let (member, from) = self.name(&MEMBERS, 0)?;
            if member.is_some() {
                self.tokens.at = from;
                return self.typed(node, at);
            }
        }
        self.tokens.at = start;
        let Some(index) = index else {
            return fail(format!("missing field {tag}, which names the variant"));
        };
        self.out[at] = index.to_le_bytes()[0];
        self.structure(&node.tagged[index], at + node.starts[index])
    }

    /// Whether a variant whose tag was read, and is called "type", is in the form of a snapshot. It
    /// is not if its own field "value" could be what follows.
    fn is_plain_next(&mut self, node: &Node, index: usize) -> Read<bool> {
        let Some(payload) = &node.nodes[index] else { return Ok(false) };
        if node.tag.list[0] != "type" || !self.tokens.next(b',') || self.tokens.peek() != b'"' {
            return Ok(false);
        }
        if self.name(&MEMBERS, 1)?.0 != Some(1) || !self.tokens.next(b':') {
            return Ok(false);
        }
        let object = &node.tagged[index];
        let mut own = object.names.find(b"value", 0).and_then(|at| object.nodes[at].as_ref());
        if let Some(Node { op: Op::Option, of, .. }) = own.map(AsRef::as_ref) {
            own = of.as_ref();
        }
        let is_content = object.nodes.get(1).and_then(Option::as_ref);
        let is_content =
            is_content.is_some_and(|node| std::ptr::eq(node.as_ref(), payload.as_ref()));
        let is_object =
            own.is_some_and(|own| matches!(own.op, Op::Struct | Op::Union | Op::Tagged));
        Ok((own.is_none() && is_content) || (!is_object && self.tokens.peek() == b'{'))
    }

    fn structure(&mut self, node: &Node, at: usize) -> Read<()> {
        let mut seen = Seen::new(node.nodes.len());
        let mut found = 0;
        let mut likely = 0;
        self.tokens.expect(b'{')?;
        if !self.tokens.next(b'}') {
            loop {
                self.tokens.peek();
                let (index, start) = self.name(&node.names, likely)?;
                if index.is_none() && !self.lenient {
                    return fail(format!("unknown field {}", self.tokens.written(start)));
                }
                self.tokens.expect(b':')?;
                if let Some(index) = index {
                    let name = &node.names.list[index];
                    if seen.has(index) {
                        return fail(format!("duplicate field {name}"));
                    }
                    seen.insert(index);
                    found += 1;
                    likely = index + 1;
                    if let Some(field) = &node.nodes[index] {
                        let read = self.value(field, at + node.starts[index]);
                        read.map_err(|error| below(name, error))?;
                    }
                } else {
                    self.tokens.skip()?;
                }
                if !self.tokens.next(b',') {
                    break;
                }
            }
            self.tokens.expect(b'}')?;
        }
        if node.root > 0 {
            self.put(at, &node.root.to_le_bytes()[..2]);
        }
        if found < node.complete {
            self.add_missing(node, at, &seen)?;
        }
        Ok(())
    }

    /// Fills in fields that are missing in the text: defaults, also those of added fields, and none
    /// for what is optional.
    fn add_missing(&mut self, node: &Node, at: usize, seen: &Seen) -> Read<()> {
        let mut index = 0;
        for field in &node.fields {
            let is_skipped = field.is_skipped();
            if !is_skipped {
                index += 1;
                if seen.has(index - 1) {
                    continue;
                }
            }
            let offset = at + field.start;
            let range = offset..offset + field.node.size;
            match field.form.and_then(|form| form.default) {
                Some(Fill::With(fill)) => fill(&mut self.out[range]),
                Some(Fill::Zero) => self.empty(&field.node, offset)?,
                None if is_optional(&field.node) => {}
                None => {
                    let added = self.defaults.iter().find(|(start, bytes)| {
                        node.root > 0 && (*start..start + bytes.len()).contains(&field.start)
                    });
                    match added {
                        Some((start, bytes)) => {
                            let from = field.start - start;
                            self.out[range].copy_from_slice(&bytes[from..from + field.node.size]);
                            self.empty(&field.node, offset)?;
                        }
                        None if is_skipped => self.empty(&field.node, offset)?,
                        None => return fail(format!("missing field {}", field.name)),
                    }
                }
            }
        }
        Ok(())
    }

    /// Makes an empty part of a reference, wherever a field has one.
    fn empty(&mut self, node: &Node, at: usize) -> Read<()> {
        match node.op {
            Op::Str | Op::Blob | Op::Vec => {
                let align = if node.op == Op::Vec { inner(node).align } else { 1 };
                let end = aligned(self.out.len(), align);
                self.out.resize(end, 0);
                self.refer(at, end, 0)
            }
            Op::Struct => {
                for field in &node.fields {
                    self.empty(&field.node, at + field.start)?;
                }
                Ok(())
            }
            Op::Array => {
                let of = inner(node);
                for index in 0..node.count {
                    self.empty(of, at + index * of.size)?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

fn is_optional(node: &Node) -> bool {
    matches!(node.op, Op::Option | Op::OptNonZero)
}

pub(super) fn at_root(error: Malformed) -> Malformed {
    below("$", error)
}
