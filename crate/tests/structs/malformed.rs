//! Invalid bytes: each is a valid value with one change, and the expected field and reason.

use crate::kinds::Wrong;
use crate::vector::{Malformed, Vector};

/// A change of the bytes of a value.
enum Edit {
    Put(usize, &'static [u8]),
    Cut(usize),
}
use Edit::{Cut, Put};

/// The type, the index of the value, the change, the field, the reason, and a description.
type Line = (&'static str, usize, Edit, &'static str, &'static str, &'static str);

const HUGE: &[u8] = &[255; 4];

#[rustfmt::skip]
const LINES: &[Line] = &[
    ("Product", 0, Cut(0), "", "size", "nothing at all"),
    ("Product", 0, Cut(11), "", "size", "a root that ends early"),
    ("Product", 0, Cut(29), "name", "range", "a string that ends one byte early"),
    ("Product", 0, Put(8, &[19]), "name", "range", "a string one byte too long"),
    ("Product", 0, Put(4, &[13]), "name", "range", "a string that lies one byte too far"),
    ("Product", 0, Put(4, &[31]), "name", "range", "a string that begins behind the end"),
    ("Product", 0, Put(4, HUGE), "name", "range", "an offset whose sum with the length overflows"),
    ("Product", 0, Put(8, HUGE), "name", "range", "a length whose sum with the offset overflows"),
    ("Product", 0, Put(7, &[128]), "name", "range", "an offset of 2 GB"),
    ("Product", 1, Put(4, &[13]), "name", "range", "an empty string behind the end"),
    ("Product", 0, Put(12, &[255]), "name", "UTF-8", "a byte that UTF-8 does not have"),
    ("Product", 0, Put(29, &[0xc3]), "name", "UTF-8", "a letter that is cut off"),
    ("Product", 0, Put(12, &[0xed, 0xa0, 0x80]), "name", "UTF-8", "half of a surrogate pair"),
    ("Product", 0, Put(12, &[0xc0, 0xaf]), "name", "UTF-8", "a letter in more bytes than it needs"),
    ("Product", 0, Put(12, &[0xf4, 0x90, 0x80, 0x80]), "name", "UTF-8", "a letter above all letters"),
    ("Numbers", 0, Cut(71), "", "size", "a root that ends within its filling"),
    ("Numbers", 0, Put(12, &[2]), "e", "bool", "a bool of 2"),
    ("Numbers", 1, Put(64, &[255]), "n", "bool", "a bool of 255"),
    ("Safe", 0, Put(8, &[0, 0, 0, 0, 0, 0, 32]), "count", "number", "2 to the 53"),
    ("Safe", 0, Put(8, &[255; 8]), "count", "number", "the largest of 64 bits"),
    ("Safe", 0, Put(16, &[255, 255, 255, 255, 255, 255, 255, 127]), "at", "number", "a time without a number"),
    ("Safe", 4, Put(16, &[1]), "at", "number", "the first millisecond that no Date has"),
    ("Enums", 0, Put(0, &[3]), "color", "discriminant", "one above the last variant"),
    ("Enums", 0, Put(2, &[3]), "level", "discriminant", "one above the last variant of two bytes"),
    ("Enums", 0, Put(3, &[1]), "level", "discriminant", "a variant in the upper byte"),
    ("Fixed", 1, Put(5, &[255]), "code", "UTF-8", "a byte that UTF-8 does not have, in place"),
    ("Fixed", 2, Put(12, &[0]), "code", "UTF-8", "a letter that is cut off, in place"),
    ("Fixed", 1, Put(6, &[0]), "code", "zero", "a zero before the end of a text in place"),
    ("Texts", 4, Put(24, HUGE), "c", "range", "bytes that go on behind the end"),
    ("Texts", 4, Put(12, HUGE), "b", "range", "a second string out of range"),
    ("Arrays", 0, Put(17, &[2]), "flags[1]", "bool", "a bool in an array"),
    ("Arrays", 0, Put(31, &[255]), "codes[1]", "UTF-8", "a text in place in an array"),
    ("Arrays", 0, Put(47, &[9]), "colors[1]", "discriminant", "an enum in an array"),
    ("Arrays", 0, Put(56, HUGE), "names[1]", "range", "a string in an array"),
    ("Vecs", 1, Put(8, &[100]), "longs", "alignment", "longs at half their alignment"),
    ("Vecs", 1, Put(24, &[126]), "halves", "alignment", "floats at half their alignment"),
    ("Vecs", 1, Put(12, &[1, 0, 0, 32]), "longs", "range", "a count whose size overflows 32 bits"),
    ("Vecs", 1, Put(20, HUGE), "bytes", "range", "a count above the size"),
    ("Vecs", 1, Cut(199), "times", "range", "the last item ends early"),
    ("Vecs", 0, Put(80, &[104]), "times", "range", "an empty vector behind the end"),
    ("Vecs", 1, Put(137, &[2]), "flags[1]", "bool", "a bool in a vector"),
    ("Vecs", 1, Put(148, &[3]), "colors[0]", "discriminant", "an enum in a vector"),
    ("Vecs", 1, Put(152, &[255]), "codes[1]", "UTF-8", "a text in place in a vector"),
    ("Vecs", 1, Put(168, &[2]), "maybe[0]", "discriminant", "an option in a vector"),
    ("Deep", 0, Put(72, HUGE), "names[2]", "range", "a string of a vector"),
    ("Deep", 0, Put(108, &[255]), "words[0].text", "UTF-8", "a string of a struct of a vector"),
    ("Deep", 0, Put(128, &[141]), "lists[2]", "alignment", "a vector of a vector"),
    ("Deep", 0, Put(116, HUGE), "lists[0]", "range", "a vector of a vector that is too long"),
    ("Deep", 0, Put(144, HUGE), "blobs[0]", "range", "bytes of a vector"),
    ("Deep", 0, Put(208, &[7]), "shapes[1]", "discriminant", "a variant of a vector"),
    ("Deep", 0, Put(216, HUGE), "shapes[1]", "range", "the string of a variant of a vector"),
    ("Nested", 0, Put(16, &[2]), "middle.inner.flag", "bool", "a bool two structs deep"),
    ("Nested", 0, Put(32, HUGE), "middle.inner.label", "range", "a string two structs deep"),
    ("Search", 0, Put(28, &[2]), "exact", "bool", "a bool of a flattened struct"),
    ("Search", 0, Put(8, HUGE), "query", "range", "a string of a flattened struct"),
    ("Options", 0, Put(0, &[2]), "a", "discriminant", "neither there nor not"),
    ("Options", 0, Put(16, &[255]), "d", "discriminant", "neither there nor not, of 64 bits"),
    ("Options", 1, Put(57, &[2]), "g", "bool", "the bool of an option"),
    ("Options", 1, Put(81, &[3]), "color", "discriminant", "the enum of an option"),
    ("Options", 1, Put(136, HUGE), "name", "range", "the string of an option"),
    ("NonZeros", 0, Cut(31), "", "size", "a root without its last byte"),
    ("Unions", 0, Put(8, &[7]), "shape", "discriminant", "one above the last variant with a payload"),
    ("Unions", 0, Put(48, &[3]), "bare", "discriminant", "one above the last variant without"),
    ("Unions", 2, Put(12, HUGE), "shape", "range", "the string of a variant"),
    ("Unions", 3, Put(64, &[2]), "other", "bool", "the bool of a variant's struct"),
    ("Old", 0, Cut(11), "", "size", "a versioned root that ends early"),
    ("Hard", 0, Put(12, &[2]), "hasOwnProperty", "bool", "a bool with a name of JavaScript"),
];

/// Adds the invalid bytes to each vector.
pub fn add_malformed(vectors: &mut [Vector]) {
    for (name, value, edit, at, why, about) in LINES {
        let vector = vectors.iter_mut().find(|one| one.name == *name).expect("it is one of these");
        let mut bytes = vector.values[*value].bytes.clone();
        match *edit {
            Put(at, new) => bytes[at..at + new.len()].copy_from_slice(new),
            Cut(length) => bytes.truncate(length),
        }
        let wrong = Wrong { at: (*at).into(), why: (*why).into() };
        vector.malformed.push(Malformed { about, bytes, wrong });
    }
}
