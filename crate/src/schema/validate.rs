//! Deep validation of values from untrusted sources.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use super::descriptor::{Kind, Malformed, Plain, aligned};

/// The largest number of milliseconds before or after 1970 that is a date in JavaScript.
pub(super) const MAX_TIME: u64 = 8_640_000_000_000_000;

/// The maximum number of bytes of parts to validate, however long a value is, because parts may
/// overlap.
pub(super) const MAX_PART_BYTES: usize = 64 << 20;

impl Kind {
    /// Checks that all of a value matches its layout: lengths, offsets, alignment, UTF-8, booleans,
    /// variants, dates, safe integers, and padding of text.
    ///
    /// # Errors
    /// The field and what is wrong with it.
    pub fn check(&self, bytes: &[u8]) -> Result<(), Malformed> {
        self.validate(&Validation::new(bytes, None))
    }

    /// The offsets of all references in a value, and the alignments of what they refer to.
    pub(super) fn references(&self, bytes: &[u8]) -> Result<BTreeMap<usize, usize>, Malformed> {
        let value = Validation::new(bytes, Some(RefCell::default()));
        self.validate(&value)?;
        Ok(value.references.map(RefCell::into_inner).unwrap_or_default())
    }

    fn validate(&self, value: &Validation<'_>) -> Result<(), Malformed> {
        let (size, _) = self.size_and_align();
        let is_versioned = matches!(self, Kind::Struct { versioned: true, .. });
        let size = if is_versioned { value.root_size(size)? } else { size };
        let length = value.bytes.len();
        if length < size {
            let reason = format!("size: {length} bytes, but its root has {size}");
            return Err(Malformed::new("", reason));
        }
        value.at(self, 0)
    }
}

struct Validation<'a> {
    bytes: &'a [u8],
    /// How many more bytes of parts may be validated, as in TypeScript. Parts may overlap, and
    /// nested lists of the same list would take forever.
    left: Cell<usize>,
    /// The offsets of the references found, and the alignments of what they refer to, if they are
    /// collected.
    references: Option<RefCell<BTreeMap<usize, usize>>>,
}

impl<'a> Validation<'a> {
    fn new(bytes: &'a [u8], references: Option<RefCell<BTreeMap<usize, usize>>>) -> Self {
        let left = (64 * bytes.len() + 65_536).min(bytes.len().max(MAX_PART_BYTES));
        Validation { bytes, left: Cell::new(left), references }
    }

    /// The size of the root of a record of this or another version; `size` is that of this version.
    fn root_size(&self, size: usize) -> Result<usize, Malformed> {
        let root_size = self.bytes.first_chunk().map_or(0, |size| u16::from_le_bytes(*size));
        match usize::from(root_size) {
            0 | 1 => Err(Malformed::new("", "size: too small to contain that of its root")),
            actual => Ok(actual.min(size)),
        }
    }

    /// `size` bytes at an offset of the root or of a part, whose bounds are checked.
    fn take(&self, at: usize, size: usize) -> Result<&[u8], Malformed> {
        let end = at.checked_add(size);
        end.and_then(|end| self.bytes.get(at..end)).ok_or_else(|| outside(at, size, self.bytes))
    }

    fn unsigned(&self, at: usize, size: usize) -> Result<u64, Malformed> {
        let mut word = [0; 8];
        word[..size].copy_from_slice(self.take(at, size)?);
        Ok(u64::from_le_bytes(word))
    }

    fn at(&self, kind: &Kind, at: usize) -> Result<(), Malformed> {
        match kind {
            Kind::Plain(plain) => self.plain(*plain, at),
            Kind::Enum8(names) => self.tag(at, 1, names.len()).map(|_| ()),
            Kind::Enum16(names) => self.tag(at, 2, names.len()).map(|_| ()),
            Kind::Bytes(n) => self.take(at, *n).map(|_| ()),
            Kind::FixedStr(n) => fixed_text(self.take(at, *n)?),
            Kind::Str => text(self.part(at, 1, 1)?),
            Kind::Blob => self.part(at, 1, 1).map(|_| ()),
            Kind::Array(of, n) => self.each(of, at, *n),
            Kind::Vec(of) => {
                let (size, align) = of.size_and_align();
                self.part(at, size, align)?;
                let count = self.unsigned(at + 4, 4)?;
                self.each(of, self.unsigned(at, 4)? as usize, count as usize)
            }
            Kind::Struct { .. } => self.fields(kind, at),
            Kind::Flatten(of) | Kind::OptNonZero(of) => self.at(of, at),
            Kind::Option(of) => match self.tag(at, 1, 2)? {
                0 => Ok(()),
                _ => self.at(of, at + aligned(1, of.size_and_align().1)),
            },
            Kind::Union { variants, .. } => {
                let tag = self.tag(at, 1, variants.len())?;
                match &variants[tag].kind {
                    None => Ok(()),
                    Some(of) => self.at(of, at + aligned(1, of.size_and_align().1)),
                }
            }
        }
    }

    fn plain(&self, plain: Plain, at: usize) -> Result<(), Malformed> {
        let value = self.unsigned(at, plain.size())?;
        match plain {
            Plain::Bool if value > 1 => Err(wrong(format!("bool: {value} is neither 0 nor 1"))),
            Plain::U53 if value >> 53 != 0 => {
                Err(wrong(format!("number: {value} exceeds 2^53 - 1")))
            }
            Plain::Timestamp if value.cast_signed().unsigned_abs() > MAX_TIME => {
                Err(wrong(format!("number: {} is not a date", value.cast_signed())))
            }
            _ => Ok(()),
        }
    }

    fn tag(&self, at: usize, size: usize, variants: usize) -> Result<usize, Malformed> {
        match self.unsigned(at, size)? as usize {
            tag if tag < variants => Ok(tag),
            tag => Err(wrong(format!("discriminant: {tag}, but only {variants} variants"))),
        }
    }

    fn fields(&self, kind: &Kind, at: usize) -> Result<(), Malformed> {
        let (size, _) = kind.size_and_align();
        let is_versioned = matches!(kind, Kind::Struct { versioned: true, .. });
        let end = if is_versioned && at == 0 { self.root_size(size)? } else { size };
        let mut result = Ok(());
        kind.each_field(|name, field, offset| {
            // Fields that a record of an older version does not have are not validated.
            if result.is_ok() && offset.saturating_add(field.size_and_align().0) <= end {
                let is_flat = matches!(field, Kind::Flatten(_));
                let name = if is_flat { "" } else { name };
                result = self.at(field, at + offset).map_err(|error| below(name, error));
            }
        });
        result
    }

    fn each(&self, of: &Kind, at: usize, count: usize) -> Result<(), Malformed> {
        let (size, _) = of.size_and_align();
        // Elements without bytes are all equal.
        let count = if size == 0 { count.min(1) } else { count };
        for index in 0..count {
            self.at(of, at + index * size).map_err(|error| below(&format!("[{index}]"), error))?;
        }
        Ok(())
    }

    /// The part that the reference at `at` refers to.
    fn part(&self, at: usize, size: usize, align: usize) -> Result<&[u8], Malformed> {
        let offset = self.unsigned(at, 4)? as usize;
        let count = self.unsigned(at + 4, 4)? as usize;
        let length = count.saturating_mul(size);
        let part = self.take(offset, length)?;
        let left = self.left.get().checked_sub(length);
        self.left.set(left.ok_or_else(|| wrong("range: parts overlap too often".to_string()))?);
        if !offset.is_multiple_of(align) {
            return Err(wrong(format!("alignment: {offset} is not a multiple of {align}")));
        }
        if let Some(references) = &self.references {
            references.borrow_mut().insert(at, align);
        }
        Ok(part)
    }
}

fn wrong(reason: String) -> Malformed {
    Malformed::new("", reason)
}

fn outside(at: usize, size: usize, bytes: &[u8]) -> Malformed {
    wrong(format!("range: {size} bytes at {at} exceed {}", bytes.len()))
}

pub(super) fn below(name: &str, error: Malformed) -> Malformed {
    let ends = error.field.is_empty() || error.field.starts_with('[') || name.is_empty();
    Malformed { field: format!("{name}{}{}", if ends { "" } else { "." }, error.field), ..error }
}

fn text(bytes: &[u8]) -> Result<(), Malformed> {
    std::str::from_utf8(bytes).map(|_| ()).map_err(|error| wrong(format!("UTF-8: {error}")))
}

fn fixed_text(bytes: &[u8]) -> Result<(), Malformed> {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    let (before, padding) = bytes.split_at(end);
    text(before)?;
    if padding.iter().any(|&byte| byte != 0) {
        return Err(wrong("zero: text after a zero byte".to_string()));
    }
    Ok(())
}
