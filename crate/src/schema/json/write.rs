//! Converts the bytes of a value to JSON text, in one pass.

use super::super::Malformed;
use super::super::descriptor::Plain;
use super::super::validate::{MAX_PART_BYTES, MAX_TIME, below};
use super::escape::escape;
use super::plan::{Node, Op};

pub(super) struct Writer<'a> {
    bytes: &'a [u8],
    out: &'a mut Vec<u8>,
    /// How many more bytes of parts may be read. Parts may overlap, and nested lists of the same
    /// list would take forever.
    left: usize,
}

type Done = Result<(), Malformed>;

fn wrong(reason: String) -> Malformed {
    Malformed::new("", reason)
}

/// Appends the JSON of a value to `out`.
pub(super) fn write(node: &Node, bytes: &[u8], out: &mut Vec<u8>) -> Done {
    if bytes.len() < node.size {
        let reason = format!("size: {} bytes, but the fields need {}", bytes.len(), node.size);
        return Err(wrong(reason));
    }
    let left = (64 * bytes.len() + 65_536).min(bytes.len().max(MAX_PART_BYTES));
    Writer { bytes, out, left }.value(node, 0)
}

impl<'a> Writer<'a> {
    fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut word = [0; N];
        word.copy_from_slice(&self.bytes[at..at + N]);
        word
    }

    fn value(&mut self, node: &Node, at: usize) -> Done {
        match node.op {
            Op::Plain(plain) => return self.plain(plain, at),
            Op::Enum(size) => {
                let index = if size == 1 {
                    usize::from(self.bytes[at])
                } else {
                    usize::from(u16::from_le_bytes(self.array(at)))
                };
                self.out.extend_from_slice(picked(&node.heads, index)?);
            }
            Op::Bytes => self.base64(at, node.count),
            Op::FixedStr => {
                let field = &self.bytes[at..at + node.count];
                let end = field.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
                if field[..end].contains(&0) {
                    return Err(wrong("zero: text after a zero byte".into()));
                }
                return self.text(at, end);
            }
            Op::Str => {
                let (start, length) = self.part(at, 1, 1)?;
                return self.text(start, length);
            }
            Op::Blob => {
                let (start, length) = self.part(at, 1, 1)?;
                self.base64(start, length);
            }
            Op::Array => return self.list(inner(node), at, node.count),
            Op::Vec => {
                let of = inner(node);
                let (start, count) = self.part(at, of.size, of.align)?;
                return self.list(of, start, count);
            }
            Op::Option => match self.bytes[at] {
                0 => self.out.extend_from_slice(b"null"),
                1 => return self.value(inner(node), at + node.starts[0]),
                tag => {
                    let reason = format!("discriminant: {tag}, but only 2 variants");
                    return Err(wrong(reason));
                }
            },
            Op::OptNonZero => {
                if self.bytes[at..at + node.size].iter().all(|&byte| byte == 0) {
                    self.out.extend_from_slice(b"null");
                } else {
                    return self.value(inner(node), at);
                }
            }
            Op::Union => return self.union(node, at),
            Op::Tagged => {
                let index = usize::from(self.bytes[at]);
                return self.structure(picked(&node.tagged, index)?, at + node.starts[index]);
            }
            Op::Struct => return self.structure(node, at),
            Op::Tag => self.out.extend_from_slice(&node.heads[0]),
        }
        Ok(())
    }

    fn plain(&mut self, plain: Plain, at: usize) -> Done {
        match plain {
            Plain::U8 => self.display(self.bytes[at]),
            Plain::U16 => self.display(u16::from_le_bytes(self.array(at))),
            Plain::U32 => self.display(u32::from_le_bytes(self.array(at))),
            Plain::I8 => self.display(i8::from_le_bytes(self.array(at))),
            Plain::I16 => self.display(i16::from_le_bytes(self.array(at))),
            Plain::I32 => self.display(i32::from_le_bytes(self.array(at))),
            Plain::U64 => self.quoted(u64::from_le_bytes(self.array(at))),
            Plain::I64 => self.quoted(i64::from_le_bytes(self.array(at))),
            Plain::U53 => {
                let value = u64::from_le_bytes(self.array(at));
                if value >> 53 != 0 {
                    return Err(wrong(format!("number: {value} exceeds 2^53 - 1")));
                }
                self.display(value);
            }
            Plain::Timestamp => {
                let value = i64::from_le_bytes(self.array(at));
                if value.unsigned_abs() > MAX_TIME {
                    return Err(wrong(format!("number: {value} is not a date")));
                }
                self.display(value);
            }
            Plain::F32 => self.float(f32::from_le_bytes(self.array(at)).into()),
            Plain::F64 => self.float(f64::from_le_bytes(self.array(at))),
            Plain::Bool => match self.bytes[at] {
                0 => self.out.extend_from_slice(b"false"),
                1 => self.out.extend_from_slice(b"true"),
                value => return Err(wrong(format!("bool: {value} is neither 0 nor 1"))),
            },
        }
        Ok(())
    }

    fn display(&mut self, value: impl std::fmt::Display) {
        use std::io::Write;
        // Writing to a vector does not fail.
        let _ = write!(self.out, "{value}");
    }

    /// Writes 64 bits as a string, because most readers would round a number.
    fn quoted(&mut self, value: impl std::fmt::Display) {
        self.out.push(b'"');
        self.display(value);
        self.out.push(b'"');
    }

    /// Writes a number as JavaScript does.
    fn float(&mut self, value: f64) {
        if value.is_nan() {
            self.out.extend_from_slice(b"\"NaN\"");
        } else if value.is_infinite() {
            self.quoted(if value > 0.0 { "Infinity" } else { "-Infinity" });
        } else if value == 0.0 {
            self.out.extend_from_slice(if value.is_sign_negative() { b"-0" } else { b"0" });
        } else {
            self.finite(value);
        }
    }

    fn finite(&mut self, value: f64) {
        // The shortest digits that are read as this number, and the power of ten of the first.
        let text = shortest(value.abs());
        let (digits, power) = text.split_once('e').unwrap_or((&text, "0"));
        let digits = digits.replace('.', "");
        let point = power.parse::<i32>().unwrap_or(0) + 1;
        let count = digits.len() as i32;
        if value < 0.0 {
            self.out.push(b'-');
        }
        if (1..=21).contains(&point) {
            let whole = point.min(count) as usize;
            self.out.extend_from_slice(&digits.as_bytes()[..whole]);
            self.zeros(point - count);
            if whole < digits.len() {
                self.out.push(b'.');
                self.out.extend_from_slice(&digits.as_bytes()[whole..]);
            }
        } else if (-5..=0).contains(&point) {
            self.out.extend_from_slice(b"0.");
            self.zeros(-point);
            self.out.extend_from_slice(digits.as_bytes());
        } else {
            let (first, more) = digits.split_at(1);
            self.out.extend_from_slice(first.as_bytes());
            if !more.is_empty() {
                self.out.push(b'.');
                self.out.extend_from_slice(more.as_bytes());
            }
            self.display(format_args!("e{:+}", point - 1));
        }
    }

    fn zeros(&mut self, count: i32) {
        self.out.extend((0..count).map(|_| b'0'));
    }

    fn text(&mut self, start: usize, length: usize) -> Done {
        let text = &self.bytes[start..start + length];
        std::str::from_utf8(text).map_err(|error| wrong(format!("UTF-8: {error}")))?;
        escape(self.out, text);
        Ok(())
    }

    fn base64(&mut self, start: usize, length: usize) {
        const DIGITS: &[u8; 64] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        self.out.push(b'"');
        for chunk in self.bytes[start..start + length].chunks(3) {
            let mut three = [0; 3];
            three[..chunk.len()].copy_from_slice(chunk);
            let bits = u32::from_be_bytes([0, three[0], three[1], three[2]]);
            for digit in 0..4 {
                let is_padding = digit > chunk.len();
                let index = (bits >> (18 - 6 * digit)) & 63;
                self.out.push(if is_padding { b'=' } else { DIGITS[index as usize] });
            }
        }
        self.out.push(b'"');
    }

    /// Where the part begins that a reference refers to, and how many elements it has.
    fn part(&mut self, at: usize, size: usize, align: usize) -> Result<(usize, usize), Malformed> {
        let offset = u32::from_le_bytes(self.array(at)) as usize;
        let count = u32::from_le_bytes(self.array(at + 4)) as usize;
        let length = count.saturating_mul(size);
        if offset.checked_add(length).is_none_or(|end| end > self.bytes.len()) {
            let reason =
                format!("range: {count} * {size} bytes at {offset} exceed {}", self.bytes.len());
            return Err(wrong(reason));
        }
        let left = self.left.checked_sub(length);
        self.left = left.ok_or_else(|| wrong("range: parts overlap too often".into()))?;
        if !offset.is_multiple_of(align) {
            return Err(wrong(format!("alignment: {offset} is not a multiple of {align}")));
        }
        Ok((offset, count))
    }

    fn list(&mut self, of: &Node, start: usize, count: usize) -> Done {
        self.out.push(b'[');
        for index in 0..count {
            if index > 0 {
                self.out.push(b',');
            }
            let written = self.value(of, start + index * of.size);
            written.map_err(|error| below(&format!("[{index}]"), error))?;
        }
        self.out.push(b']');
        Ok(())
    }

    fn union(&mut self, node: &Node, at: usize) -> Done {
        let index = usize::from(self.bytes[at]);
        let head = picked(&node.heads, index)?;
        let Some(payload) = &node.nodes[index] else {
            self.out.extend_from_slice(head);
            return Ok(());
        };
        self.out.push(b'{');
        self.out.extend_from_slice(head);
        self.out.push(b':');
        let written = self.value(payload, at + node.starts[index]);
        written.map_err(|error| below(&node.names.list[index], error))?;
        self.out.push(b'}');
        Ok(())
    }

    fn structure(&mut self, node: &Node, at: usize) -> Done {
        for (index, field) in node.nodes.iter().enumerate() {
            self.out.extend_from_slice(&node.heads[index]);
            let Some(field) = field else { continue };
            let written = self.value(field, at + node.starts[index]);
            written.map_err(|error| below(&node.names.list[index], error))?;
        }
        self.out.push(b'}');
        Ok(())
    }
}

/// The shortest digits that are read as this number, as `d.ddde-7`. Where two are equally close, those that
/// end with an even digit, as in JavaScript.
fn shortest(value: f64) -> String {
    let text = format!("{value:e}");
    let Some((digits, power)) = text.split_once('e') else { return text };
    if !digits.ends_with(['1', '3', '5', '7', '9']) || digits.len() < 2 {
        return text;
    }
    let decimals = digits.len() - 2;
    for precision in [decimals + 20, 800] {
        let exact = format!("{value:.precision$e}");
        let exact = exact.split_once('e').map_or(exact.as_str(), |(exact, _)| exact);
        let (lower, rest) = exact.split_at(digits.len());
        if !rest.starts_with('5') || rest[1..].contains(|digit| digit != '0') {
            return text;
        }
        if precision < 800 {
            continue;
        }
        let mut even = lower.as_bytes().to_vec();
        if let Some(last @ (b'1' | b'3' | b'5' | b'7')) = even.last_mut() {
            *last += 1;
        }
        let even = format!("{}e{power}", String::from_utf8_lossy(&even));
        if even.parse() == Ok(value) {
            return even;
        }
    }
    text
}

/// Appends a number as JavaScript writes it.
pub(super) fn float(value: f64, out: &mut Vec<u8>) {
    Writer { bytes: &[], out, left: 0 }.float(value);
}

/// Appends bytes as a string in base64.
pub(super) fn base64(bytes: &[u8], out: &mut Vec<u8>) {
    Writer { bytes, out, left: 0 }.base64(0, bytes.len());
}

fn inner(node: &Node) -> &Node {
    node.of.as_ref().expect("what has elements has their node")
}

fn picked<T>(all: &[T], index: usize) -> Result<&T, Malformed> {
    let reason = || wrong(format!("discriminant: {index}, but only {} variants", all.len()));
    all.get(index).ok_or_else(reason)
}
