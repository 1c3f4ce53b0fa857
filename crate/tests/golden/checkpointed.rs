//! Golden files of databases with a history: checkpoints, removed segments, and the records that
//! compaction leaves. Also variants that must not open.

use varve::engine::error::{Damage, Error};
use varve::engine::format::KEYSPACE_ENGINE;
use varve::engine::format::segment;
use varve::engine::format::superblock::SLOT_STRIDE;
use varve::engine::format::system_records::KEY_GAP;

use crate::golden_file::{Content, Expect, Golden};
use crate::image::{
    Image, LOG2, Record, Row, Segment, commit, delete, extent, pattern, relocated_tombstone, set,
};

fn opens(name: &'static str, about: &'static str, image: Image, content: Content) -> Golden {
    Golden { name, about, bytes: image.bytes, expect: Expect::Opens(content) }
}

fn refused(name: &'static str, about: &'static str, image: Image, damage: Damage) -> Golden {
    Golden { name, about, bytes: image.bytes, expect: Expect::Refused(Error::from(damage)) }
}

pub fn all() -> Vec<Golden> {
    vec![
        checkpoint(),
        checkpoint_with_runs(),
        run_damaged(),
        checkpoint_at_close(),
        checkpoint_block_damaged(),
        checkpoint_head_damaged(),
        checkpoint_lost(),
        checkpoint_before(),
        checkpoint_end_damaged(),
        checkpoint_record_damaged(),
        removed(),
        removed_without_checkpoint(),
        removed_in_part(),
        removed_without_gap_record(),
        removed_with_deleted_gap_record(),
        removed_half_erased(),
        removed_and_truncated(),
        moved_deletions(),
    ]
}

fn row(segment: Segment, end_frame: u64) -> Row {
    Row { segment, end_frame }
}

/// The gap record for the frames from `from` up to the segment that begins with `to`.
fn gap(from: u64, to: u64, version: u64) -> Record {
    let key = [KEY_GAP, &to.to_be_bytes()].concat();
    set(key, from.to_le_bytes(), version).keyspace(KEYSPACE_ENGINE)
}

fn with_gap(content: Content, from: u64, to: u64, version: u64) -> Content {
    let key = [KEY_GAP, &to.to_be_bytes()].concat();
    content.live_in(KEYSPACE_ENGINE, key, from.to_le_bytes(), version)
}

/// A log in two segments with an extent, followed by a checkpoint and a tail with changes since;
/// closed at frame 6. Slots: log, extent, log, checkpoint.
fn with_history() -> (Image, Segment, [u64; 4]) {
    history(false)
}

/// The same; if wanted with two runs of keys in slots 4 to 7.
fn history(keeps_key_runs: bool) -> (Image, Segment, [u64; 4]) {
    let mut image = Image::opened(LOG2);
    let mut first = image.segment(0, 1, 1);
    let records =
        [set("a", "first", 1), set("b", "deleted before", 2), set("c", pattern(90, 2), 3)];
    let one = image.frame(&mut first, commit(1, 1), &records);
    let large = image.extent(1, 2, &pattern(2000, 4));
    let records = [
        image.replacing(delete("b", 4)),
        extent("large", large, 5),
        set("a", "of a collection", 6).keyspace(2),
    ];
    let two = image.frame(&mut first, commit(2, 2), &records);
    let mut second = image.segment(2, 3, 3);
    let records = [image.replacing(set("a", "second", 7)), set("d", "deleted behind", 8).oldest(3)];
    let three = image.frame(&mut second, commit(3, 2), &records);
    let sequence = if keeps_key_runs { 8 } else { 4 };
    if keeps_key_runs {
        image.run([4, 5], 4, &[(0, "a", true), (0, "b", true), (0, "c", true)]);
        let newer = [(0, "b", false), (0, "d", true), (0, "large", true), (2, "a", true)];
        image.run([7, 6], 6, &newer);
    }
    image.checkpoint(3, sequence, 4, &[row(first, 3), row(second, 4)]);
    image.superblock.next_frame = 4;
    image.write_superblocks();
    let records = [
        image.replacing(set("a", "third", 9)),
        image.replacing(delete("d", 10).oldest(3)),
        set("e", "behind", 11).oldest(3),
    ];
    let four = image.frame(&mut second, commit(4, 4), &records);
    let records = [image.replacing(set("c", "in place of 90 bytes", 12)), set("b", "again", 13)];
    image.frame(&mut second, commit(5, 4), &records);
    image.close(&mut second, 6, 14);
    (image, second, [one, two, three, four])
}

fn content_with_history(content: Content) -> Content {
    content
        .live("a", "third", 9)
        .live_in(2, "a", "of a collection", 6)
        .live("b", "again", 13)
        .live("c", "in place of 90 bytes", 12)
        .live("e", "behind", 11)
        .live("large", pattern(2000, 4), 5)
}

fn checkpoint() -> Golden {
    let (image, _, _) = with_history();
    let about = "a checkpoint, and behind it frames that change, delete and add keys";
    opens("checkpoint", about, image, content_with_history(Content::closed_at(6).checkpoint(4)))
}

fn checkpoint_with_runs() -> Golden {
    let (image, _, _) = history(true);
    let about = "a checkpoint with two runs of keys, the newer of which deletes and adds some";
    let content = content_with_history(Content::closed_at(6).checkpoint(4));
    opens("checkpoint-with-runs", about, image, content)
}

fn run_damaged() -> Golden {
    let (mut image, _, _) = history(true);
    image.flip(image.slot_start(5) + segment::SIZE as u64 + 20);
    let about = "a flipped bit in a run of keys: the keys are sorted again, and all are there";
    let content = content_with_history(Content::closed_at(6).checkpoint(4));
    opens("run-damaged", about, image, content)
}

fn checkpoint_at_close() -> Golden {
    let mut image = Image::opened(LOG2);
    let mut first = image.segment(0, 1, 1);
    image.frame(&mut first, commit(1, 1), &[set("a", pattern(900, 1), 1), set("b", "here", 2)]);
    image.frame(&mut first, commit(2, 1), &[image.replacing(set("a", pattern(901, 2), 3))]);
    image.checkpoint(1, 2, 3, &[row(first, 3)]);
    // The frame that the checkpoint expects did not fit in that segment.
    let mut second = image.segment(2, 3, 3);
    image.close(&mut second, 3, 4);
    let about = "a checkpoint at the end of the log, whose next frame begins the next segment";
    let content = Content::closed_at(3).checkpoint(3);
    let content = content.live("a", pattern(901, 2), 3).live("b", "here", 2);
    opens("checkpoint-at-close", about, image, content)
}

fn checkpoint_block_damaged() -> Golden {
    let (mut image, _, _) = with_history();
    let end = image.slot_start(4) - segment::SIZE as u64;
    let used = image.used(image.slot_start(3)..end);
    image.flip(image.slot_start(3) + used - 1);
    let about = "a flipped bit in the last entry of the checkpoint: the whole log is replayed";
    opens("checkpoint-block-damaged", about, image, content_with_history(Content::closed_at(6)))
}

fn checkpoint_head_damaged() -> Golden {
    let (mut image, _, _) = with_history();
    image.flip(image.slot_start(3) + segment::SIZE as u64 + 41);
    let about = "the checkpoint's head claims other numbers: the whole log is replayed";
    opens("checkpoint-head-damaged", about, image, content_with_history(Content::closed_at(6)))
}

fn checkpoint_lost() -> Golden {
    let (mut image, _, _) = with_history();
    image.erase(3);
    let about = "the superblock names a checkpoint that is not there: the whole log is replayed";
    opens("checkpoint-lost", about, image, content_with_history(Content::closed_at(6)))
}

fn checkpoint_before() -> Golden {
    let (mut image, second, _) = with_history();
    let first = Segment { start: image.slot_start(0), sequence: 1, salt: 0, at: 0 };
    // Frames of the first segment end at the same offset as those of `with_history`.
    let end = image.slot_start(1) - segment::SIZE as u64;
    let used = image.used(first.start..end).next_multiple_of(8);
    let first = Segment { at: first.start + used, ..first };
    image.checkpoint(4, 5, 7, &[row(first, 3), row(second, 7)]);
    image.write_superblock();
    image.flip((image.superblock.generation - 1) % 2 * SLOT_STRIDE + 60);
    let about =
        "the only superblock that names the newest checkpoint is damaged: the other's counts";
    opens(
        "checkpoint-before",
        about,
        image,
        content_with_history(Content::closed_at(6).checkpoint(4)),
    )
}

fn checkpoint_end_damaged() -> Golden {
    let (mut image, second, [_, _, three, four]) = with_history();
    image.flip(three + 100);
    let about =
        "a damaged frame before the checkpoint's end, in its segment: no checkpoint, and damage";
    let damage = Damage {
        position: three,
        expected_frame: 3,
        flushed_frames: 6,
        intact_frames: 3,
        intact_bytes: second.at - four,
        ..Damage::default()
    };
    refused("checkpoint-end-damaged", about, image, damage)
}

fn checkpoint_record_damaged() -> Golden {
    let (mut image, _, [_, two, _, _]) = with_history();
    // The last record of the frame: that of the collection.
    let length = 40 + 48 + (40 + 8 + 32) + (40 + 8 + 16);
    image.flip(two + length - 4);
    let about =
        "a damaged record in a segment before the checkpoint: it is reported when it is read";
    let mut content = content_with_history(Content::closed_at(6).checkpoint(4));
    content.live.retain(|live| live.keyspace != 2);
    opens("checkpoint-record-damaged", about, image, content.unreadable(2, "a"))
}

/// Three segments, the second of which was compacted to the end and removed. Slots: log, blank,
/// log, checkpoint. Frames 3 and 4 are gone; closed at frame 8.
fn compacted(account: Option<Record>) -> (Image, [Segment; 3], u64) {
    let mut image = Image::opened(LOG2);
    let mut first = image.segment(0, 1, 1);
    image.frame(&mut first, commit(1, 1), &[set("a", "stays", 1), set("b", "goes", 2)]);
    image.frame(&mut first, commit(2, 1), &[set("c", "stays too", 3)]);
    let behind = first.at;
    let mut second = image.segment(1, 2, 3);
    image.frame(
        &mut second,
        commit(3, 1),
        &[image.replacing(set("b", "moves", 4)), set("x", "old", 5)],
    );
    image.frame(&mut second, commit(4, 1), &[set("d", pattern(200, 5), 6).oldest(2)]);
    let mut third = image.segment(2, 3, 5);
    image.frame(&mut third, commit(5, 5), &[image.replacing(set("x", "new", 7))]);
    let moved = [image.relocated(0, "b"), image.relocated(0, "d")];
    image.frame(&mut third, commit(6, 5), &moved);
    image.frame(&mut third, commit(7, 5), account.as_slice());
    image.erase(1);
    image.checkpoint(3, 4, 8, &[row(first, 3), row(third, 8)]);
    image.superblock.next_frame = 8;
    image.write_superblocks();
    image.close(&mut third, 8, 9);
    (image, [first, second, third], behind)
}

fn content_of_compacted(content: Content) -> Content {
    content
        .live("a", "stays", 1)
        .live("b", "moves", 4)
        .live("c", "stays too", 3)
        .live("d", pattern(200, 5), 6)
        .live("x", "new", 7)
}

fn removed() -> Golden {
    let (image, _, _) = compacted(Some(gap(3, 5, 8)));
    let about = "the live records of the second of three segments were relocated, and the segment was freed";
    let content = content_of_compacted(Content::closed_at(8).checkpoint(8));
    opens("freed-segment", about, image, with_gap(content, 3, 5, 8))
}

fn removed_without_checkpoint() -> Golden {
    let (mut image, _, _) = compacted(Some(gap(3, 5, 8)));
    image.erase(3);
    let about =
        "the same without its checkpoint: a record accounts for the frames that are missing";
    let content = content_of_compacted(Content::closed_at(8).without(2));
    opens("freed-segment-without-checkpoint", about, image, with_gap(content, 3, 5, 8))
}

fn removed_in_part() -> Golden {
    let mut image = Image::opened(LOG2);
    let mut first = image.segment(0, 1, 1);
    image.frame(&mut first, commit(1, 1), &[set("a", "stays", 1), set("b", "goes", 2)]);
    let mut second = image.segment(1, 2, 2);
    image.frame(&mut second, commit(2, 1), &[image.replacing(set("b", "goes as well", 3))]);
    let mut third = image.segment(2, 3, 3);
    image.frame(&mut third, commit(3, 1), &[image.replacing(delete("b", 4))]);
    let mut fourth = image.segment(3, 4, 4);
    image.frame(&mut fourth, commit(4, 4), &[gap(2, 4, 5), image.replacing(delete("b", 4))]);
    // Both segments are being removed; power failed after the first was erased, and the checkpoint
    // is damaged.
    image.erase(1);
    image.checkpoint(4, 5, 5, &[row(first, 2), row(fourth, 5)]);
    image.erase(4);
    image.superblock.next_frame = 5;
    image.write_superblocks();
    let about = "of two segments that were freed one still exists; the gap record covers both";
    let content = Content::up_to(4).without(1).live("a", "stays", 1);
    opens("freed-segment-in-part", about, image, with_gap(content, 2, 4, 5))
}

/// The error if frames 3 and 4 of [`compacted`] are gone and no record accounts for them.
fn missing(position: u64, third: Segment) -> Damage {
    Damage {
        position,
        expected_frame: 3,
        flushed_frames: 8,
        intact_frames: 4,
        intact_bytes: third.at - third.start - segment::SIZE as u64,
        ..Damage::default()
    }
}

fn removed_without_gap_record() -> Golden {
    // The record accounts for frame 4 only.
    let (mut image, [_, _, third], behind) = compacted(Some(gap(4, 5, 8)));
    image.erase(3);
    let about = "no checkpoint, and frame 3 is missing where only frame 4 is accounted for";
    refused("freed-segment-unaccounted", about, image, missing(behind, third))
}

fn removed_with_deleted_gap_record() -> Golden {
    // The deletion of a gap record that was removed with its segment, relocated from segment 2.
    let mut account = relocated_tombstone([], 8, 2).keyspace(KEYSPACE_ENGINE);
    account.key = [KEY_GAP, &5_u64.to_be_bytes()].concat();
    let (mut image, [_, _, third], behind) = compacted(Some(account));
    image.erase(3);
    let about =
        "frames are missing, and what looks like their account is a deletion that was moved";
    refused("freed-segment-deleted-account", about, image, missing(behind, third))
}

fn removed_half_erased() -> Golden {
    let mut image = Image::opened(LOG2);
    let mut first = image.segment(0, 1, 1);
    image.frame(&mut first, commit(1, 1), &[set("a", pattern(60, 1), 1), set("gone", "1", 2)]);
    let mut second = image.segment(1, 2, 2);
    image.frame(&mut second, commit(2, 1), &[image.replacing(delete("gone", 3)), set("b", "2", 4)]);
    let mut third = image.segment(2, 3, 3);
    let moved = [image.relocated(0, "a"), image.relocated(0, "b")];
    image.frame(&mut third, commit(3, 3), &moved);
    image.checkpoint(3, 4, 4, &[row(third, 4)]);
    // An older checkpoint that no superblock names.
    let named = image.superblock;
    image.checkpoint(4, 5, 4, &[row(third, 4)]);
    image.superblock = named;
    image.superblock.first_sequence = 3;
    image.superblock.first_frame = 3;
    image.superblock.next_frame = 4;
    image.write_superblocks();
    // The first lost both headers, the second its header, and the checkpoint its trailer.
    for at in [image.slot_start(0), image.slot_start(1)] {
        image.zero(at..at + segment::SIZE as u64);
    }
    for at in [image.slot_start(1), image.slot_start(5)] {
        image.zero(at - segment::SIZE as u64..at);
    }
    image.frame(&mut third, commit(4, 4), &[set("c", "3", 5).oldest(3)]);
    let about = "the power went while two segments and a checkpoint were being erased";
    let content = Content::up_to(4).checkpoint(4);
    let content = content.live("a", pattern(60, 1), 1).live("b", "2", 4).live("c", "3", 5);
    opens("freed-segment-half-erased", about, image, content)
}

fn removed_and_truncated() -> Golden {
    let mut image = Image::opened(LOG2);
    let mut first = image.segment(0, 1, 1);
    image.frame(&mut first, commit(1, 1), &[set("a", "moves", 1), set("b", pattern(300, 1), 2)]);
    let mut second = image.segment(3, 2, 2);
    image.frame(
        &mut second,
        commit(2, 1),
        &[image.replacing(delete("b", 3)), set("c", "moves too", 4)],
    );
    let moved = [image.relocated(0, "a"), image.relocated(0, "c")];
    image.erase(0);
    let mut third = image.segment(0, 3, 3);
    image.frame(&mut third, commit(3, 3), &moved);
    image.checkpoint(1, 4, 4, &[row(third, 4)]);
    image.superblock.first_sequence = 3;
    image.superblock.first_frame = 3;
    image.superblock.next_frame = 4;
    image.write_superblocks();
    image.bytes.truncate(image.slot_start(2) as usize);
    image.close(&mut third, 4, 5);
    let about =
        "the end of the file was cut off, after all that lived there had moved to the front";
    let content =
        Content::closed_at(4).checkpoint(4).live("a", "moves", 1).live("c", "moves too", 4);
    opens("freed-segment-shrunk", about, image, content)
}

fn moved_deletions() -> Golden {
    let mut image = Image::opened(LOG2);
    let mut first = image.segment(0, 1, 1);
    image.frame(&mut first, commit(1, 1), &[set("gone", "1", 1), set("back", "1", 2)]);
    let mut second = image.segment(1, 2, 2);
    let records =
        [image.replacing(delete("gone", 3)), image.replacing(delete("back", 4)), set("a", "2", 5)];
    image.frame(&mut second, commit(2, 1), &records);
    image.frame(&mut second, commit(3, 1), &[set("back", "again", 6)]);
    let mut third = image.segment(2, 3, 4);
    let moved = [
        relocated_tombstone("gone", 3, 2),
        relocated_tombstone("back", 4, 2),
        image.relocated(0, "back"),
        image.relocated(0, "a"),
    ];
    image.frame(&mut third, commit(4, 4), &moved[..2]);
    image.frame(&mut third, commit(5, 4), &[&moved[2..], &[gap(2, 4, 7)]].concat());
    image.erase(1);
    image.superblock.next_frame = 6;
    image.write_superblock();
    image.close(&mut third, 6, 8);
    let about = "deletions that were moved; one comes after a newer record of its key";
    let content = Content::closed_at(6).without(2).live("back", "again", 6).live("a", "2", 5);
    opens("moved-deletions", about, image, with_gap(content, 2, 4, 7))
}
