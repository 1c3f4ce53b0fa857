//! The parts of a line `{"key":…,"value":…}`, and keys as JSON: as `js/collection/json-lines.ts` writes and reads them.

use serde_json::{Number, Value};

use super::super::Malformed;
use super::super::descriptor::Plain;
use super::super::key::{
    KeyKind, Part, Rest, invert, put_bytes, put_float, put_signed, put_unsigned,
};
use super::escape::escape;
use super::tokens::{Tokens, fail};
use super::write;

type Read<T> = Result<T, Malformed>;

/// 2^53: a double represents all smaller integers exactly.
const SAFE: i128 = 1 << 53;

/// The texts of the key and of the value of a line.
pub(crate) fn members(line: &str) -> Read<(Value, &str)> {
    let (mut key, mut value) = (None, None);
    let mut tokens = Tokens { text: line.as_bytes(), at: 0 };
    tokens.expect(b'{')?;
    let mut more = tokens.peek() != b'}';
    while more {
        let name = parsed(skipped(line, &mut tokens)?)?;
        tokens.expect(b':')?;
        let text = skipped(line, &mut tokens)?;
        match name.as_str() {
            Some("key") if key.is_none() => key = Some(parsed(text)?),
            Some("value") if value.is_none() => value = Some(text),
            _ => {
                return fail(format!("it must have one \"key\" and one \"value\", but has {name}"));
            }
        }
        more = tokens.next(b',');
    }
    tokens.expect(b'}')?;
    tokens.finish()?;
    match (key, value) {
        (Some(key), Some(value)) => Ok((key, value)),
        _ => fail("it has no \"key\" or no \"value\""),
    }
}

/// The text of the next value, which is skipped.
fn skipped<'a>(line: &'a str, tokens: &mut Tokens<'_>) -> Read<&'a str> {
    tokens.peek();
    let start = tokens.at;
    tokens.skip()?;
    Ok(&line[start..tokens.at])
}

fn parsed(text: &str) -> Read<Value> {
    serde_json::from_str(text).or_else(|error| fail(format!("invalid JSON: {error}")))
}

/// Appends the JSON of a key. None if it is not one of this type.
pub(crate) fn write_key(kind: &KeyKind, key: &[u8], out: &mut Vec<u8>) -> Option<()> {
    match kind {
        KeyKind::Text => {
            str::from_utf8(key).ok()?;
            escape(out, key);
        }
        KeyKind::Bytes => write::base64(key, out),
        KeyKind::Tuple(parts) => {
            let mut rest = Rest::new(key);
            if let [part] = &parts[..] {
                write_part(part, &mut rest, out)?;
            } else {
                out.push(b'[');
                for (at, part) in parts.iter().enumerate() {
                    out.extend_from_slice(if at > 0 { b"," } else { b"" });
                    write_part(part, &mut rest, out)?;
                }
                out.push(b']');
            }
            return rest.is_empty().then_some(());
        }
    }
    Some(())
}

fn write_part(part: &Part, rest: &mut Rest<'_>, out: &mut Vec<u8>) -> Option<()> {
    match part {
        Part::Plain(plain) => write_plain(*plain, rest, out)?,
        Part::Enum8(names) => {
            escape(out, names.get(usize::from(rest.take::<1>()?[0]))?.as_bytes());
        }
        Part::Enum16(names) => {
            let number = u16::from_be_bytes(rest.take()?);
            escape(out, names.get(usize::from(number))?.as_bytes());
        }
        Part::Str => {
            let text = rest.text()?;
            str::from_utf8(&text).ok()?;
            escape(out, &text);
        }
        Part::Bytes => write::base64(&rest.text()?, out),
        Part::Option(of) => match rest.take::<1>()? {
            [0] => out.extend_from_slice(b"null"),
            [1] => write_part(of, rest, out)?,
            _ => return None,
        },
        Part::Desc(of) => {
            rest.turn();
            let done = write_part(of, rest, out);
            rest.turn();
            done?;
        }
    }
    Some(())
}

fn write_plain(plain: Plain, rest: &mut Rest<'_>, out: &mut Vec<u8>) -> Option<()> {
    let text = match plain {
        Plain::Bool => (rest.take::<1>()? == [1]).to_string(),
        Plain::F32 | Plain::F64 => {
            let value = if plain == Plain::F32 {
                let bits = u32::from_be_bytes(rest.take()?);
                let is_positive = bits >> 31 == 1;
                f64::from(f32::from_bits(if is_positive { bits ^ (1 << 31) } else { !bits }))
            } else {
                let bits = u64::from_be_bytes(rest.take()?);
                let is_positive = bits >> 63 == 1;
                f64::from_bits(if is_positive { bits ^ (1 << 63) } else { !bits })
            };
            write::float(value + 0.0, out);
            return Some(());
        }
        _ => {
            let mut bytes = [0; 16];
            let size = plain.size();
            for byte in &mut bytes[16 - size..] {
                [*byte] = rest.take()?;
            }
            let shift = if is_signed(plain) { 1_i128 << (8 * size - 1) } else { 0 };
            let number = i128::from_be_bytes(bytes) - shift;
            match plain {
                Plain::U64 | Plain::I64 => format!("\"{number}\""),
                _ => number.to_string(),
            }
        }
    };
    out.extend_from_slice(text.as_bytes());
    Some(())
}

fn is_signed(plain: Plain) -> bool {
    matches!(plain, Plain::I8 | Plain::I16 | Plain::I32 | Plain::I64 | Plain::Timestamp)
}

/// Appends the key that its JSON describes.
pub(crate) fn read_key(kind: &KeyKind, json: &Value, out: &mut Vec<u8>) -> Read<()> {
    match (kind, json) {
        (KeyKind::Text, Value::String(text)) => out.extend_from_slice(text.as_bytes()),
        (KeyKind::Text, _) => return fail(format!("its key must be text, and is {json}")),
        (KeyKind::Bytes, _) => out.extend_from_slice(&unbase64(json)?),
        (KeyKind::Tuple(parts), _) => match (&parts[..], json) {
            ([part], _) => read_part(part, json, out)?,
            (_, Value::Array(given)) if given.len() == parts.len() => {
                for (part, json) in parts.iter().zip(given) {
                    read_part(part, json, out)?;
                }
            }
            _ => {
                let count = parts.len();
                return fail(format!("its key must be an array of {count} parts, and is {json}"));
            }
        },
    }
    Ok(())
}

fn read_part(part: &Part, json: &Value, out: &mut Vec<u8>) -> Read<()> {
    let refused = || fail(format!("a part of its key must be {}, and is {json}", part.to_json()));
    match (part, json) {
        (Part::Plain(Plain::Bool), Value::Bool(value)) => out.push(u8::from(*value)),
        (Part::Plain(plain @ (Plain::F32 | Plain::F64)), _) => {
            let value = match json {
                Value::String(text) if text == "Infinity" => Some(f64::INFINITY),
                Value::String(text) if text == "-Infinity" => Some(f64::NEG_INFINITY),
                _ => json.as_f64(),
            };
            let Some(value) = value else { return refused() };
            put_float(out, value, *plain == Plain::F32)?;
        }
        (Part::Plain(plain), _) if *plain != Plain::Bool => {
            let (size, is_signed) = (plain.size(), is_signed(*plain));
            let number = match (plain, json) {
                (Plain::U64 | Plain::I64, Value::String(digits)) => digits.parse().ok(),
                (_, Value::Number(number)) => whole(number),
                _ => None,
            };
            let bits = 8 * size as u32;
            let (least, most) = match plain {
                Plain::U53 => (0, SAFE - 1),
                Plain::Timestamp => (1 - SAFE, SAFE - 1),
                _ if is_signed => (-(1 << (bits - 1)), (1 << (bits - 1)) - 1),
                _ => (0, (1 << bits) - 1),
            };
            let Some(number) = number.filter(|number| (least..=most).contains(number)) else {
                return refused();
            };
            match is_signed {
                true => put_signed(out, number as i64, size),
                false => put_unsigned(out, number as u64, size),
            }
        }
        (Part::Enum8(names) | Part::Enum16(names), Value::String(name)) => {
            let Some(number) = names.iter().position(|one| one == name) else { return refused() };
            let size = if matches!(part, Part::Enum8(_)) { 1 } else { 2 };
            put_unsigned(out, number as u64, size);
        }
        (Part::Str, Value::String(text)) => put_bytes(out, text.as_bytes()),
        (Part::Bytes, _) => put_bytes(out, &unbase64(json)?),
        (Part::Option(_), Value::Null) => out.push(0),
        (Part::Option(of), _) => {
            out.push(1);
            read_part(of, json, out)?;
        }
        (Part::Desc(of), _) => {
            let start = out.len();
            read_part(of, json, out)?;
            invert(&mut out[start..]);
        }
        _ => return refused(),
    }
    Ok(())
}

/// A number without a fraction, exactly.
fn whole(number: &Number) -> Option<i128> {
    let from_float = || {
        let value = number.as_f64()?;
        (value.fract() == 0.0 && value.abs() < SAFE as f64).then_some(value as i128)
    };
    number.as_i128().or_else(from_float)
}

fn unbase64(json: &Value) -> Read<Vec<u8>> {
    const WRONG: &str = "bytes in its key must be base64";
    let Value::String(text) = json else { return fail(WRONG) };
    let digits = text.trim_end_matches('=');
    let (mut bits, mut out) = (0_u32, Vec::new());
    for (at, letter) in digits.bytes().enumerate() {
        let digit = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return fail(WRONG),
        };
        bits = bits << 6 | u32::from(digit);
        if at % 4 > 0 {
            out.push((bits >> (6 - 2 * (at % 4))) as u8);
        }
    }
    let is_whole = digits.len() % 4 != 1 && (text.len() == digits.len() || text.len() % 4 == 0);
    if is_whole { Ok(out) } else { fail(WRONG) }
}
