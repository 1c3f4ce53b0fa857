//! Golden files that must not open, each with its error. None of them may be written to.

use varve::engine::error::{Damage, Error};
use varve::engine::format::MAJOR;
use varve::engine::format::segment;
use varve::engine::format::superblock::{MODE_KEEP_HISTORY, SLOT_STRIDE};

use crate::golden_file::{Expect, Golden};
use crate::image::{Image, LOG2, Segment, commit, extent, part, pattern, set};

fn refused(name: &'static str, about: &'static str, image: Image, error: Error) -> Golden {
    Golden { name, about, bytes: image.bytes, expect: Expect::Refused(error) }
}

pub fn all() -> Vec<Golden> {
    vec![
        damaged_frame(),
        damaged_end(),
        damaged_without_close(),
        damaged_commit(),
        damaged_extent(),
        malformed_record(),
        miscounted_records(),
        lost_segment(),
        both_superblocks_damaged(),
        damaged_magics(),
        cut_before_the_second_superblock(),
        foreign(),
        foreign_and_small(),
        newer_major(),
        newer_major_in_one_slot(),
        newer_major_in_the_older_slot(),
        incompatible_bit(),
        unknown_mode(),
        unknown_kind(),
    ]
}

/// Three flushed frames, closed; with the positions of the frames.
fn three_frames() -> (Image, Segment, [u64; 3]) {
    let mut image = Image::opened(LOG2);
    let mut segment = image.segment(0, 1, 1);
    let positions = [1, 2, 3].map(|n| {
        image.frame(&mut segment, commit(n, 1), &[set(format!("key {n}"), pattern(50, 1), n)])
    });
    image.close(&mut segment, 4, 4);
    (image, segment, positions)
}

fn damaged_frame() -> Golden {
    let (mut image, segment, [_, second, third]) = three_frames();
    image.flip(second + 70);
    let about = "one flipped bit in the second of three flushed frames";
    let damage = Damage {
        position: second,
        expected_frame: 2,
        flushed_frames: 4,
        intact_frames: 2,
        intact_bytes: segment.at - third,
        ..Damage::default()
    };
    refused("damaged-frame", about, image, Error::from(damage))
}

fn damaged_end() -> Golden {
    let (mut image, segment, [_, _, third]) = three_frames();
    image.zero(third..segment.at);
    let about = "the last flushed frame and the witness are gone; the superblock knows of them";
    let damage = Damage {
        position: third,
        expected_frame: 3,
        flushed_frames: 4,
        intact_frames: 0,
        intact_bytes: 0,
        ..Damage::default()
    };
    refused("damaged-end", about, image, Error::from(damage))
}

fn damaged_without_close() -> Golden {
    let mut image = Image::opened(LOG2);
    let mut segment = image.segment(0, 1, 1);
    let first = image.frame(&mut segment, commit(1, 1), &[set("kept", "flushed", 1)]);
    let witness = image.frame(&mut segment, commit(2, 2), &[]);
    image.flip(first + 3);
    let about = "not closed, and the only flushed frame is damaged; its witness shows that";
    let damage = Damage {
        position: first,
        expected_frame: 1,
        flushed_frames: 2,
        intact_frames: 1,
        intact_bytes: segment.at - witness,
        ..Damage::default()
    };
    refused("damaged-without-close", about, image, Error::from(damage))
}

fn damaged_commit() -> Golden {
    let mut image = Image::opened(LOG2);
    let mut first = image.segment(0, 1, 1);
    image.frame(&mut first, commit(1, 1), &[set("a", "before", 1)]);
    let start = image.frame(&mut first, part(2, 1), &[set("a", pattern(800, 1), 2)]);
    let mut second = image.segment(1, 2, 3);
    let last = image.frame(&mut second, commit(3, 1), &[set("b", pattern(800, 2), 3)]);
    let witness = second.at;
    image.close(&mut second, 4, 4);
    image.flip(last + 500);
    let about = "the second frame of a flushed commit is damaged: the whole commit is lost";
    let damage = Damage {
        position: start,
        expected_frame: 2,
        flushed_frames: 4,
        intact_frames: 1,
        intact_bytes: second.at - witness,
        ..Damage::default()
    };
    refused("damaged-commit", about, image, Error::from(damage))
}

fn damaged_extent() -> Golden {
    let mut image = Image::opened(LOG2);
    let mut segment = image.segment(0, 1, 1);
    let descriptor = image.extent(1, 2, &pattern(3000, 4));
    image.frame(&mut segment, commit(1, 1), &[extent("big", descriptor, 1)]);
    image.close(&mut segment, 2, 2);
    image.flip(image.slot_start(1) + 1000);
    let about = "one flipped bit in the extent of a live, flushed value";
    let damage = Damage {
        position: image.slot_start(1) + segment::SIZE as u64,
        expected_frame: 3,
        flushed_frames: 3,
        intact_frames: 0,
        intact_bytes: 0,
        ..Damage::default()
    };
    refused("damaged-extent", about, image, Error::from(damage))
}

fn lost_segment() -> Golden {
    let mut image = Image::opened(LOG2);
    let mut first = image.segment(0, 1, 1);
    image.frame(&mut first, commit(1, 1), &[set("a", "first", 1)]);
    let mut second = image.segment(1, 2, 2);
    image.frame(&mut second, commit(2, 1), &[set("b", "second", 2).oldest(2)]);
    let mut third = image.segment(2, 3, 3);
    let start = image.frame(&mut third, commit(3, 1), &[set("c", "third", 3).oldest(3)]);
    image.close(&mut third, 4, 4);
    image.zero(second.start..third.start);
    let about = "a whole flushed segment is gone, header and trailer too";
    let damage = Damage {
        position: first.at,
        expected_frame: 2,
        flushed_frames: 4,
        intact_frames: 2,
        intact_bytes: third.at - start,
        ..Damage::default()
    };
    refused("lost-segment", about, image, Error::from(damage))
}

fn both_superblocks_damaged() -> Golden {
    let (mut image, _, _) = three_frames();
    image.flip(20);
    image.flip(SLOT_STRIDE + 20);
    let about = "no superblock is left, but there is a segment: never taken for a new file";
    let error = Error::from(Damage::default());
    refused("both-superblocks-damaged", about, image, error)
}

fn foreign() -> Golden {
    let mut image = Image::created(LOG2);
    image.bytes.fill(0);
    image.put(0, b"SQLite format 3\0");
    let about = "a file of something else";
    refused("foreign", about, image, Error::NotADatabase)
}

fn newer_major() -> Golden {
    let mut image = Image::opened(LOG2);
    image.superblock.major = MAJOR + 1;
    image.write_superblocks();
    let about = "a later major version";
    let error = Error::UnsupportedFormat { major: MAJOR + 1, features: 0.into() };
    refused("newer-major", about, image, error)
}

fn newer_major_in_one_slot() -> Golden {
    let mut image = Image::opened(LOG2);
    image.superblock.major = MAJOR + 1;
    image.write_superblock();
    let about =
        "a later major version in the newer slot, as an upgrade that was cut short leaves it";
    let error = Error::UnsupportedFormat { major: MAJOR + 1, features: 0.into() };
    refused("newer-major-in-one-slot", about, image, error)
}

fn incompatible_bit() -> Golden {
    let mut image = Image::opened(LOG2);
    image.superblock.incompatible = 1 << 3;
    image.write_superblocks();
    let about = "an unknown incompatible feature";
    let error = Error::UnsupportedFormat { major: MAJOR, features: 8.into() };
    refused("incompatible-bit", about, image, error)
}

fn unknown_kind() -> Golden {
    let mut image = Image::opened(LOG2);
    let mut segment = image.segment(0, 1, 1);
    let unknown = set("name", "something of later", 2).kind(0x41);
    image.frame(&mut segment, commit(1, 1), &[set("name", "varve", 1), unknown]);
    image.close(&mut segment, 2, 3);
    let about = "a record of an unknown kind that must be understood";
    let error = Error::UnsupportedFormat { major: MAJOR, features: 0.into() };
    refused("unknown-kind", about, image, error)
}

/// A flushed, closed file with a correct checksum but an invalid second frame.
fn invalid_frame(
    name: &'static str,
    about: &'static str,
    put: impl FnOnce(&mut Image, &mut Segment) -> u64,
) -> Golden {
    let mut image = Image::opened(LOG2);
    let mut segment = image.segment(0, 1, 1);
    image.frame(&mut segment, commit(1, 1), &[set("kept", "flushed", 1)]);
    let position = put(&mut image, &mut segment);
    image.close(&mut segment, 3, 3);
    let damage = Damage {
        position,
        expected_frame: 2,
        flushed_frames: 3,
        intact_frames: 0,
        intact_bytes: 0,
        ..Damage::default()
    };
    refused(name, about, image, Error::from(damage))
}

fn malformed_record() -> Golden {
    let about = "a valid, flushed frame with a record of kind 0, which does not exist";
    invalid_frame("malformed-record", about, |image, segment| {
        image.frame(segment, commit(2, 1), &[set("bad", "kind", 2).kind(0)])
    })
}

fn miscounted_records() -> Golden {
    let about = "a valid, flushed frame that holds one record and says two";
    invalid_frame("miscounted-records", about, |image, segment| {
        image.frame_with_count(segment, commit(2, 1), &[set("bad", "count", 2)], 2)
    })
}

fn damaged_magics() -> Golden {
    let (mut image, _, _) = three_frames();
    image.flip(3);
    image.flip(SLOT_STRIDE + 30);
    let about = "one superblock with a damaged magic, the other with a damaged field";
    let error = Error::from(Damage::default());
    refused("damaged-magics", about, image, error)
}

fn foreign_and_small() -> Golden {
    let mut image = Image::created(LOG2);
    image.bytes.fill(0);
    image.put(300, b"a small file of something else that begins with zeros");
    let about = "a small file of something else whose first 256 bytes are zeros";
    refused("foreign-and-small", about, image, Error::NotADatabase)
}

fn newer_major_in_the_older_slot() -> Golden {
    let mut image = Image::opened(LOG2);
    image.superblock.major = MAJOR + 1;
    image.write_superblock();
    image.superblock.major = MAJOR;
    image.write_superblock();
    let about = "a later major version in the slot with the smaller generation";
    let error = Error::UnsupportedFormat { major: MAJOR + 1, features: 0.into() };
    refused("newer-major-in-the-older-slot", about, image, error)
}

fn unknown_mode() -> Golden {
    let mut image = Image::opened(LOG2);
    image.superblock.mode = MODE_KEEP_HISTORY << 1;
    image.write_superblocks();
    let about = "a database of a mode that this version does not know";
    let error = Error::UnsupportedFormat { major: MAJOR, features: 0.into() };
    refused("unknown-mode", about, image, error)
}

fn cut_before_the_second_superblock() -> Golden {
    let (mut image, _, _) = three_frames();
    image.write_superblock();
    image.bytes.truncate(SLOT_STRIDE as usize);
    let about = "a used database of which only the first superblock is left";
    let error = Error::from(Damage::default());
    refused("cut-before-the-second-superblock", about, image, error)
}
