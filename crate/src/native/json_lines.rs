//! Collections as JSON lines: each record is a line `{"key":…,"value":…}`, as in TypeScript.

use std::mem;

use crate::schema::json::{Json, lines};
use crate::schema::{Malformed, Record};

use super::collection::{Collection, Records};
use super::snapshots::SnapshotCollection;
use super::{Error, KeyRange, SetOptions};

/// The byte order mark that some programs write at the start of a UTF-8 file.
const BYTE_ORDER_MARK: &str = "\u{FEFF}";

/// The records of a collection as JSON lines, by [`Collection::json_lines`].
///
/// As an [`Iterator`] it gives lines that belong to the program; [`next_line`](JsonLines::next_line) borrows the next one.
#[derive(Debug)]
#[must_use = "iterators do nothing unless they are consumed"]
pub struct JsonLines<'s, T> {
    records: Records<'s, T>,
    json: Json<T>,
    line: Vec<u8>,
}

impl<'s, T: Record> JsonLines<'s, T> {
    fn of(records: Records<'s, T>) -> Self {
        JsonLines { records, json: Json::new(), line: Vec::new() }
    }

    /// The next line with its newline, in UTF-8; none at the end. It is valid until the next call.
    ///
    /// # Errors
    /// As for [`Collection::get`].
    pub fn next_line(&mut self) -> Result<Option<&[u8]>, Error> {
        let JsonLines { records, json, line } = self;
        let stored = std::sync::Arc::clone(&records.stored);
        let Some(entry) = records.next_entry()? else { return Ok(None) };
        line.clear();
        line.extend_from_slice(br#"{"key":"#);
        let kind = stored.key()?;
        lines::write_key(kind, entry.key_bytes(), line).ok_or_else(|| {
            let reason = format!("a key is not {}", kind.to_json());
            Error::MalformedValue(Malformed::new("", reason))
        })?;
        line.extend_from_slice(br#","value":"#);
        json.write_to(entry.value.bytes(), line)?;
        line.extend_from_slice(b"}\n");
        Ok(Some(line))
    }
}

impl<T: Record> Iterator for JsonLines<'_, T> {
    type Item = Result<String, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let line = self.next_line().transpose()?;
        Some(line.map(|line| String::from_utf8_lossy(line).into_owned()))
    }
}

/// Stores the records of JSON lines in a collection, by [`Collection::read_json_lines`].
#[derive(Debug)]
#[must_use = "the last line is stored by finish()"]
pub struct JsonLinesReader<'c, 's, T> {
    collection: &'c mut Collection<'s, T>,
    json: Json<T>,
    /// The start of a line whose end did not come yet.
    rest: Vec<u8>,
    key: Vec<u8>,
    value: Vec<u8>,
    line: u64,
    records: u64,
}

impl<T: Record> JsonLinesReader<'_, '_, T> {
    /// Skips fields that the record does not have. Otherwise they are an error.
    pub fn ignore_unknown(mut self) -> Self {
        self.json = self.json.ignore_unknown();
        self
    }

    /// Stores the records of these lines. They may end anywhere, also within a character, and go on in the next call.
    ///
    /// # Errors
    /// For the first wrong line, whose number is in the message: the records before it stay, and the rest is not read.
    /// [`Error::MalformedLine`] with the path of what is wrong; as for [`Collection::set`].
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let mut left = bytes;
        while let Some(end) = left.iter().position(|&byte| byte == b'\n') {
            let (line, rest) = left.split_at(end);
            left = &rest[1..];
            if self.rest.is_empty() {
                self.store(line)?;
            } else {
                let mut whole = mem::take(&mut self.rest);
                whole.extend_from_slice(line);
                self.store(&whole)?;
            }
        }
        self.rest.extend_from_slice(left);
        Ok(())
    }

    /// Stores the last line, which may lack its newline, and returns how many records were stored.
    ///
    /// # Errors
    /// As for [`push`](JsonLinesReader::push).
    pub fn finish(mut self) -> Result<u64, Error> {
        let last = mem::take(&mut self.rest);
        self.store(&last)?;
        Ok(self.records)
    }

    /// The number of the line that was read last, from 1 on.
    #[must_use]
    pub fn line(&self) -> u64 {
        self.line
    }

    fn store(&mut self, line: &[u8]) -> Result<(), Error> {
        self.line += 1;
        let line_number = self.line;
        let is_one = self.parse(line);
        if !is_one.map_err(|cause| Error::MalformedLine { line: line_number, cause })? {
            return Ok(());
        }
        let stored = self.collection.set_encoded(&self.key, SetOptions::new(), &self.value);
        stored.map_err(|error| match error {
            Error::BadArgument(malformed) => {
                let reason = format!("Line {line_number}: {malformed}");
                Error::BadArgument(Malformed::new("", reason))
            }
            other => other,
        })?;
        self.records += 1;
        Ok(())
    }

    /// Parses a line into its key and its value. False if it is blank.
    fn parse(&mut self, line: &[u8]) -> Result<bool, Malformed> {
        let text =
            str::from_utf8(line).map_err(|error| Malformed::new("", format!("UTF-8: {error}")))?;
        let text = if self.line == 1 { text.trim_start_matches(BYTE_ORDER_MARK) } else { text };
        if text.bytes().all(|byte| matches!(byte, b' ' | b'\t' | b'\r')) {
            return Ok(false);
        }
        let (key, value) = lines::members(text)?;
        self.key.clear();
        let kind = self.collection.stored.key_if_known();
        let kind = kind.ok_or_else(|| Malformed::new("", "the type of the keys is unknown"))?;
        lines::read_key(kind, &key, &mut self.key)?;
        self.json.read_into(value, &mut self.value)?;
        Ok(true)
    }
}

impl<'s, T: Record> Collection<'s, T> {
    /// The records of a range of keys as JSON lines, each `{"key":…,"value":…}`: byte for byte those of `toJsonLines` in
    /// TypeScript. Values are written as by [`Json::write`]. In keys, 64-bit numbers are strings of digits, and bytes are
    /// base64.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = std::env::temp_dir().join(format!("varve-doc-lines-{}", std::process::id()));
    /// # let mut store = varve::Store::open(folder.join("shop.varve"))?;
    /// use musli_zerocopy::{Ref, ZeroCopy};
    /// use varve::schema::Record;
    ///
    /// #[derive(Clone, Copy, ZeroCopy, Record)]
    /// #[repr(C)]
    /// struct Product {
    ///     stock: u16,
    ///     name: Ref<str>,
    /// }
    ///
    /// let mut products = store.collection::<Product>("products")?;
    /// products.set("air", |parts| Product { stock: 7, name: parts.str("Air") })?;
    /// let mut exported = Vec::new(); // or a file
    /// let mut lines = products.json_lines(..)?;
    /// while let Some(line) = lines.next_line()? {
    ///     exported.extend_from_slice(line);
    /// }
    /// assert_eq!(exported, b"{\"key\":\"air\",\"value\":{\"stock\":7,\"name\":\"Air\"}}\n");
    ///
    /// let mut copies = store.collection::<Product>("copies")?;
    /// let mut reader = copies.read_json_lines();
    /// for chunk in exported.chunks(10) {
    ///     reader.push(chunk)?;
    /// }
    /// assert_eq!(reader.finish()?, 1);
    /// assert_eq!(copies.get("air")?.expect("it was read").stock, 7);
    /// # store.close()?;
    /// # std::fs::remove_dir_all(folder)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// A bound that is not a key of this collection.
    pub fn json_lines<'k>(
        &mut self,
        range: impl Into<KeyRange<'k>>,
    ) -> Result<JsonLines<'_, T>, Error> {
        Ok(JsonLines::of(self.entries(range)?))
    }

    /// Stores the records of JSON lines as [`json_lines`](Collection::json_lines) writes them, and as [`Json::read`] reads
    /// them. Blank lines are skipped. Nothing is committed in between: for all lines or none, read them in a
    /// [`transaction`](super::Store::transaction).
    pub fn read_json_lines(&mut self) -> JsonLinesReader<'_, 's, T> {
        JsonLinesReader {
            collection: self,
            json: Json::new(),
            rest: Vec::new(),
            key: Vec::new(),
            value: Vec::new(),
            line: 0,
            records: 0,
        }
    }
}

impl<T: Record> SnapshotCollection<'_, T> {
    /// The records that there were as JSON lines: as [`Collection::json_lines`].
    ///
    /// # Errors
    /// A bound that is not a key of this collection.
    pub fn json_lines<'k>(
        &mut self,
        range: impl Into<KeyRange<'k>>,
    ) -> Result<JsonLines<'_, T>, Error> {
        Ok(JsonLines::of(self.entries(range)?))
    }
}
