//! The tokens of a JSON text, read where they lie.

use super::super::Malformed;
use super::super::validate::MAX_TIME;

/// The text and the position of the next byte.
pub(super) struct Tokens<'a> {
    pub text: &'a [u8],
    pub at: usize,
}

pub(super) type Read<T> = Result<T, Malformed>;

pub(super) fn fail<T>(reason: impl Into<String>) -> Read<T> {
    Err(Malformed::new("", reason))
}

impl<'a> Tokens<'a> {
    /// The text from `from` to here.
    pub fn written(&self, from: usize) -> String {
        String::from_utf8_lossy(&self.text[from..self.at.min(self.text.len())]).into_owned()
    }

    pub fn wanted<T>(&self, what: &str) -> Read<T> {
        let found = match self.text.get(self.at) {
            Some(&byte) => char::from(byte).to_string(),
            None => "end of text".into(),
        };
        fail(format!("expected {what} at byte {}, found {found}", self.at))
    }

    /// The byte here; 0 at the end.
    pub fn here(&self) -> u8 {
        self.text.get(self.at).copied().unwrap_or(0)
    }

    /// Skips spaces and returns the next byte; 0 at the end.
    pub fn peek(&mut self) -> u8 {
        while matches!(self.here(), b' ' | b'\n' | b'\r' | b'\t') {
            self.at += 1;
        }
        self.here()
    }

    pub fn expect(&mut self, byte: u8) -> Read<()> {
        if self.peek() != byte {
            return self.wanted(&char::from(byte).to_string());
        }
        self.at += 1;
        Ok(())
    }

    /// Consumes `byte` if it is next, and returns whether it was.
    pub fn next(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == byte;
        self.at += usize::from(is_next);
        is_next
    }

    fn word(&mut self, letters: &str) -> Read<()> {
        if !self.text[self.at..].starts_with(letters.as_bytes()) {
            return self.wanted(letters);
        }
        self.at += letters.len();
        Ok(())
    }

    /// Consumes `null` if it is next, and returns whether it was.
    pub fn null(&mut self) -> Read<bool> {
        if self.peek() != b'n' {
            return Ok(false);
        }
        self.word("null").map(|()| true)
    }

    pub fn bool(&mut self) -> Read<bool> {
        let is_true = self.peek() == b't';
        self.word(if is_true { "true" } else { "false" }).map(|()| is_true)
    }

    /// Throws if there is more text after the value.
    pub fn finish(&mut self) -> Read<()> {
        if self.peek() == 0 && self.at >= self.text.len() {
            Ok(())
        } else {
            self.wanted("end of text")
        }
    }

    fn digits(&mut self) -> usize {
        let start = self.at;
        while self.here().is_ascii_digit() {
            self.at += 1;
        }
        self.at - start
    }

    /// A number, and whether it has neither a fraction nor an exponent.
    fn number(&mut self, what: &str) -> Read<(&'a str, bool)> {
        self.peek();
        let start = self.at;
        self.at += usize::from(self.here() == b'-');
        let first = self.here();
        let whole = self.digits();
        let mut is_good = whole > 0 && (first != b'0' || whole == 1);
        let end_of_whole = self.at;
        if self.here() == b'.' {
            self.at += 1;
            is_good &= self.digits() > 0;
        }
        if matches!(self.here(), b'e' | b'E') {
            self.at += 1;
            self.at += usize::from(matches!(self.here(), b'+' | b'-'));
            is_good &= self.digits() > 0;
        }
        if !is_good {
            self.at = start;
            return self.wanted(what);
        }
        let letters = &self.text[start..self.at];
        Ok((std::str::from_utf8(letters).unwrap_or(""), self.at == end_of_whole))
    }

    /// A whole number within a range.
    pub fn integer(&mut self, kind: &str, least: i64, most: i64) -> Read<i64> {
        let (letters, is_whole) = self.number(&format!("a number for {kind}"))?;
        let value = if is_whole {
            letters.parse::<i64>().ok()
        } else {
            let value = letters.parse::<f64>().unwrap_or(f64::INFINITY);
            if value.is_finite() && value.fract() != 0.0 {
                return fail(format!("{letters} is not an integer for {kind}"));
            }
            // A range of 64 bits is never asked for, so that this is exact within the range.
            (value.abs() < 9.1e18).then_some(value as i64)
        };
        match value {
            Some(value) if (least..=most).contains(&value) => Ok(value),
            _ => fail(format!("{letters} is out of range for {kind}")),
        }
    }

    /// A 64-bit integer, with or without quotes.
    pub fn long(&mut self, kind: &str, least: i128, most: i128) -> Read<i128> {
        let is_quoted = self.next(b'"');
        let start = self.at;
        self.at += usize::from(self.here() == b'-');
        let first = self.here();
        let count = self.digits();
        let is_fraction = matches!(self.here(), b'.' | b'e' | b'E');
        if count == 0 || (first == b'0' && count > 1) || is_fraction {
            self.at = start;
            return self.wanted(&format!("an integer for {kind}"));
        }
        let letters = self.written(start);
        let value = match letters.parse::<i128>() {
            Ok(value) if (least..=most).contains(&value) => value,
            _ => return fail(format!("{letters} is out of range for {kind}")),
        };
        if is_quoted {
            if self.here() != b'"' {
                self.at += 1;
                return fail(format!("{} is not an integer", self.written(start)));
            }
            self.at += 1;
        }
        Ok(value)
    }

    pub fn float(&mut self, kind: &str) -> Read<f64> {
        if self.peek() == b'"' {
            let start = self.at;
            self.skip_string()?;
            return match &self.text[start + 1..self.at - 1] {
                b"NaN" => Ok(f64::NAN),
                b"Infinity" => Ok(f64::INFINITY),
                b"-Infinity" => Ok(f64::NEG_INFINITY),
                _ => fail(format!("{} is not a number", self.written(start))),
            };
        }
        let (letters, _) = self.number(&format!("a number for {kind}"))?;
        let value = letters.parse::<f64>().unwrap_or(f64::INFINITY);
        let is_finite = if kind == "f32" { (value as f32).is_finite() } else { value.is_finite() };
        if is_finite { Ok(value) } else { fail(format!("{letters} is out of range for {kind}")) }
    }

    /// A time as milliseconds or in ISO 8601.
    pub fn time(&mut self) -> Read<i64> {
        let most = MAX_TIME.cast_signed();
        if self.peek() != b'"' {
            return self.integer("timestamp", -most, most);
        }
        let start = self.at;
        self.skip_string()?;
        let letters = &self.text[start + 1..self.at - 1];
        match iso(letters).filter(|value| (-most..=most).contains(value)) {
            Some(value) => Ok(value),
            None => fail(format!("{} is not an ISO 8601 time", self.written(start))),
        }
    }

    /// Skips a string, including its quotes. Only escapes are looked at.
    pub fn skip_string(&mut self) -> Read<()> {
        self.at += 1;
        loop {
            match self.text.get(self.at) {
                None => return self.wanted("the end of a string"),
                Some(b'"') => break,
                Some(b'\\') => self.at += 2,
                Some(_) => self.at += 1,
            }
        }
        self.at += 1;
        Ok(())
    }

    /// Skips a value, checking only strings and brackets.
    pub fn skip(&mut self) -> Read<()> {
        let mut depth = 0usize;
        loop {
            match self.peek() {
                0 if self.at >= self.text.len() => return self.wanted("the end of a value"),
                b'"' => {
                    self.skip_string()?;
                    if depth == 0 {
                        return Ok(());
                    }
                    continue;
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' if depth == 0 => return self.wanted("a value"),
                b'}' | b']' => depth -= 1,
                b',' if depth == 0 => return self.wanted("a value"),
                _ if depth == 0 => {
                    while !matches!(self.here(), 0..=b' ' | b',' | b'}' | b']') {
                        self.at += 1;
                    }
                    return Ok(());
                }
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return Ok(());
            }
        }
    }

    /// The number of elements up to the end of the current list, which is not consumed.
    pub fn count_elements(&mut self) -> Read<usize> {
        let start = self.at;
        let mut count = 0;
        if self.peek() != b']' {
            loop {
                self.skip()?;
                count += 1;
                if !self.next(b',') {
                    break;
                }
            }
        }
        self.at = start;
        Ok(count)
    }

    /// The character of the escape here.
    pub fn escape(&mut self) -> Read<char> {
        let short = match self.text.get(self.at + 1) {
            Some(&byte @ (b'"' | b'\\' | b'/')) => char::from(byte),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            _ => {
                let unit = self.unit()?;
                return self.character(unit);
            }
        };
        self.at += 2;
        Ok(short)
    }

    fn character(&mut self, unit: u32) -> Read<char> {
        let mut code = unit;
        if (0xD800..0xDC00).contains(&unit) && self.here() == b'\\' {
            let low = self.unit()?;
            if !(0xDC00..0xE000).contains(&low) {
                return fail("lone surrogate");
            }
            code = 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
        }
        char::from_u32(code).map_or_else(|| fail("lone surrogate"), Ok)
    }

    /// The four digits after `\u`.
    fn unit(&mut self) -> Read<u32> {
        let start = self.at;
        self.at = (start + 6).min(self.text.len());
        let letters = &self.text[start..self.at];
        let digits = letters
            .strip_prefix(b"\\u")
            .filter(|digits| digits.len() == 4 && digits.iter().all(u8::is_ascii_hexdigit));
        let unit = digits
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u32::from_str_radix(digits, 16).ok());
        unit.map_or_else(|| fail(format!("invalid escape {}", self.written(start))), Ok)
    }
}

/// Milliseconds since 1970 of `2026-11-21T20:00:00.123Z`, with a year of six digits behind a sign
/// if it needs them, seconds and their fraction if given, and `Z` or an offset.
fn iso(letters: &[u8]) -> Option<i64> {
    let mut rest = letters;
    let sign = matches!(rest.first(), Some(b'+' | b'-')).then(|| rest[0]);
    if sign.is_some() {
        rest = &rest[1..];
    }
    let year = take_digits(&mut rest, if sign.is_some() { 6 } else { 4 })?;
    if sign == Some(b'-') && year == 0 {
        return None;
    }
    let year = if sign == Some(b'-') { -year } else { year };
    take_byte(&mut rest, b'-')?;
    let month = take_digits(&mut rest, 2)?;
    take_byte(&mut rest, b'-')?;
    let day = take_digits(&mut rest, 2)?;
    take_byte(&mut rest, b'T')?;
    let hour = take_digits(&mut rest, 2)?;
    take_byte(&mut rest, b':')?;
    let minute = take_digits(&mut rest, 2)?;
    let (mut second, mut milli) = (0, 0);
    if rest.first() == Some(&b':') {
        rest = &rest[1..];
        second = take_digits(&mut rest, 2)?;
        if rest.first() == Some(&b'.') {
            let fraction = rest[1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            if fraction == 0 {
                return None;
            }
            let mut first = [b'0'; 3];
            let known = fraction.min(3);
            first[..known].copy_from_slice(&rest[1..=known]);
            milli = take_digits(&mut &first[..], 3)?;
            rest = &rest[1 + fraction..];
        }
    }
    let offset = match rest {
        b"Z" => 0,
        [sign @ (b'+' | b'-'), more @ ..] => {
            let mut more = more;
            let hours = take_digits(&mut more, 2)?;
            take_byte(&mut more, b':')?;
            let minutes = take_digits(&mut more, 2)?;
            if !more.is_empty() || hours > 23 || minutes > 59 {
                return None;
            }
            (hours * 60 + minutes) * if *sign == b'-' { -1 } else { 1 }
        }
        _ => return None,
    };
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 => 28 + i64::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    let is_time = hour < 24 && minute < 60 && second < 60;
    let is_end_of_day = hour == 24 && minute == 0 && second == 0 && milli == 0;
    if !(1..=days).contains(&day) || !(is_time || is_end_of_day) {
        return None;
    }
    // Years that begin in March, so that a leap day is the last one.
    let shifted = if month > 2 { year } else { year - 1 };
    let days_before = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = shifted * 365 + shifted.div_euclid(4) - shifted.div_euclid(100)
        + shifted.div_euclid(400)
        + days_before
        - 719_468;
    Some((((days * 24 + hour) * 60 + minute - offset) * 60 + second) * 1000 + milli)
}

fn take_digits(rest: &mut &[u8], count: usize) -> Option<i64> {
    let (digits, more) = rest.split_at_checked(count)?;
    *rest = more;
    digits.iter().all(u8::is_ascii_digit).then_some(())?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn take_byte(rest: &mut &[u8], byte: u8) -> Option<()> {
    let (first, more) = rest.split_first()?;
    *rest = more;
    (*first == byte).then_some(())
}
