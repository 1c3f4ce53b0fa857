//! Golden files that open although something is missing: what was never flushed, or what has a
//! copy.

use varve::engine::format::MINOR;
use varve::engine::format::frame::{self, FrameHeader};
use varve::engine::format::record::KIND_SKIPPABLE;
use varve::engine::format::segment;
use varve::engine::format::superblock::SLOT_STRIDE;

use crate::golden_file::{Content, Expect, Golden};
use crate::image::{Image, LOG2, Segment, commit, extent, part, pattern, set};

fn opens(name: &'static str, about: &'static str, image: Image, content: Content) -> Golden {
    Golden { name, about, bytes: image.bytes, expect: Expect::Opens(content) }
}

pub fn all() -> Vec<Golden> {
    vec![
        watermark_witness(),
        torn_frame(),
        torn_commit(),
        torn_extent(),
        lost_frame(),
        image_in_a_value(),
        stale_frame(),
        reused_slot(),
        reused_slot_of_the_same_numbers(),
        torn_in_a_reused_slot(),
        abandoned_frames(),
        abandoned_segment(),
        torn_segment_start(),
        reserved_segment(),
        frames_after_clean(),
        one_header_lost(),
        superblock_lost(),
        half_created(),
        unfinished_creation(),
        compatible_bit(),
        skippable_kind(),
        first_needed(),
    ]
}

/// Frame 1 with one key, flushed, and its witness, frame 2.
fn flushed() -> (Image, Segment) {
    let mut image = Image::opened(LOG2);
    let mut segment = image.segment(0, 1, 1);
    image.frame(&mut segment, commit(1, 1), &[set("kept", "flushed", 1)]);
    image.frame(&mut segment, commit(2, 2), &[]);
    (image, segment)
}

/// The content of that, after anything behind it was dropped.
fn kept_content() -> Content {
    Content::up_to(2).live("kept", "flushed", 1)
}

fn watermark_witness() -> Golden {
    let (mut image, mut segment) = flushed();
    image.frame(&mut segment, commit(3, 2), &[set("kept", "written", 2)]);
    let about = "not closed: a flushed frame, its witness, and a written frame, all intact";
    let content = Content::up_to(3).live("kept", "written", 2);
    opens("watermark-witness", about, image, content)
}

fn torn_frame() -> Golden {
    let (mut image, mut segment) = flushed();
    let at = image.frame(&mut segment, commit(3, 2), &[set("torn", pattern(300, 1), 2)]);
    image.zero(at + 200..segment.at);
    let about = "the last frame was written but for its end";
    opens("torn-frame", about, image, kept_content().torn(200, 0))
}

fn torn_commit() -> Golden {
    let (mut image, mut segment) = flushed();
    let at = image.frame(&mut segment, part(3, 2), &[set("kept", pattern(600, 7), 2)]);
    let first = image.used(at..segment.at);
    let mut next = image.segment(1, 2, 4);
    let at = image.frame(&mut next, part(4, 2), &[set("other", pattern(700, 9), 3)]);
    let second = image.used(at..next.at);
    let about = "two frames of a commit whose last frame never came";
    opens("torn-commit", about, image, kept_content().torn(first + second, 2))
}

fn torn_extent() -> Golden {
    let (mut image, mut segment) = flushed();
    let descriptor = image.extent(1, 2, &pattern(2000, 5));
    image.zero(image.slot_start(1) + 1000..image.slot_start(1) + 1512);
    let at = image.frame(&mut segment, commit(3, 2), &[extent("kept", descriptor, 2)]);
    let about = "an unflushed commit whose extent lacks a sector";
    let torn = image.used(at..segment.at);
    opens("torn-extent", about, image, kept_content().torn(torn, 1))
}

fn lost_frame() -> Golden {
    let (mut image, mut segment) = flushed();
    let at = image.frame(&mut segment, commit(3, 2), &[set("lost", pattern(100, 1), 2)]);
    let end = segment.at;
    image.frame(&mut segment, commit(4, 2), &[set("later", "also dropped", 3)]);
    image.zero(at..end);
    let about = "frame 3 never reached the medium and frame 4 did; neither was flushed";
    let torn = image.used(at..segment.at);
    opens("lost-frame", about, image, kept_content().torn(torn, 1))
}

fn image_in_a_value() -> Golden {
    let (mut image, mut segment) = flushed();
    // A frame of this very segment with a watermark that would make the tail a loss, sealed for a
    // position 8 bytes after that of the value.
    let mut copy = vec![0; frame::SIZE];
    let position = segment.at + 40 + 40 + 8;
    let header = FrameHeader {
        length: frame::SIZE as u32,
        number: 3,
        watermark: 99,
        flags: frame::FLAG_COMMIT,
        ..Default::default()
    };
    header.seal(&mut copy, segment.salt, position + 8);
    let at = image.frame(&mut segment, commit(3, 2), &[set("copy", &copy, 2)]);
    image.flip(at + 20);
    let about =
        "a damaged unflushed frame whose value is a frame of this log, but of another place";
    let torn = image.used(at..segment.at);
    opens("image-in-a-value", about, image, kept_content().torn(torn, 0))
}

fn stale_frame() -> Golden {
    let (mut image, segment) = flushed();
    let mut stale = Segment { salt: segment.salt ^ 1, ..segment };
    image.frame(&mut stale, commit(3, 3), &[set("kept", "from an earlier life", 9)]);
    let about = "behind the end lies the right frame number under the salt of an earlier use";
    let torn = image.used(segment.at..stale.at);
    opens("stale-frame", about, image, kept_content().torn(torn, 0))
}

/// As [`flushed`], in a slot that contained four frames before, of which the last two follow; and
/// where those end.
fn flushed_in_a_reused_slot() -> (Image, Segment, u64) {
    let mut image = Image::opened(LOG2);
    let mut earlier = image.segment(0, 1, 1);
    let first = earlier.at;
    image.frame(&mut earlier, commit(1, 1), &[set("kept", "earlier", 1)]);
    image.frame(&mut earlier, commit(2, 2), &[]);
    image.frame(&mut earlier, commit(3, 2), &[set("kept", "in the earlier life", 8)]);
    image.frame(&mut earlier, commit(4, 4), &[set("other", pattern(300, 3), 9)]);
    let mut segment = image.segment_in_reused_slot(0, 2, 1);
    assert_eq!(segment.at, first);
    image.frame(&mut segment, commit(1, 1), &[set("kept", "flushed", 1)]);
    image.frame(&mut segment, commit(2, 2), &[]);
    (image, segment, earlier.at)
}

fn reused_slot() -> Golden {
    let (mut image, segment, end) = flushed_in_a_reused_slot();
    // The number that comes next is not that of the frame that was there.
    image.put(segment.at + 16, &7_u64.to_le_bytes());
    assert!(image.used(segment.at..end) > 300);
    let about = "the log ends in a slot that was used before, whose old frames follow";
    opens("reused-slot", about, image, kept_content())
}

fn reused_slot_of_the_same_numbers() -> Golden {
    let (image, segment, end) = flushed_in_a_reused_slot();
    let torn = image.used(segment.at..end);
    let about = "the same, and the old frames have the very numbers that come next";
    opens("reused-slot-of-the-same-numbers", about, image, kept_content().torn(torn, 0))
}

fn torn_in_a_reused_slot() -> Golden {
    let (mut image, segment, end) = flushed_in_a_reused_slot();
    let mut torn = Segment { ..segment };
    let at = image.frame(&mut torn, commit(3, 2), &[set("torn", pattern(100, 1), 2)]);
    image.flip(at + 90);
    let about = "the same, and a frame was begun there that is not whole";
    let bytes = image.used(segment.at..end.max(torn.at));
    opens("torn-in-a-reused-slot", about, image, kept_content().torn(bytes, 0))
}

fn abandoned_frames() -> Golden {
    let (mut image, mut segment) = flushed();
    let at = image.frame(&mut segment, commit(3, 2), &[set("lost", "torn", 2)]);
    image.frame(&mut segment, commit(4, 2), &[set("kept", "dropped by the recovery", 3)]);
    image.flip(at + 50);
    let mut fresh = image.segment(1, 2, 3);
    image.frame(&mut fresh, commit(3, 2), &[set("after", "the recovery", 1 << 33)]);
    image.close(&mut fresh, 4, (1 << 33) + 1);
    let about = "a recovery dropped frames 3 and 4; a fresh segment took their numbers";
    let content =
        Content::closed_at(4).live("kept", "flushed", 1).live("after", "the recovery", 1 << 33);
    opens("abandoned-frames", about, image, content)
}

fn abandoned_segment() -> Golden {
    let (mut image, mut segment) = flushed();
    let at = image.frame(&mut segment, commit(3, 2), &[set("lost", "never written", 2)]);
    image.zero(at..segment.at);
    let mut lost = image.segment(1, 2, 4);
    image.frame(&mut lost, commit(4, 2), &[set("kept", "dropped by the recovery", 3)]);
    let mut fresh = image.segment(2, 3, 3);
    image.frame(&mut fresh, commit(3, 2), &[set("after", "the recovery", 1 << 33)]);
    image.frame(&mut fresh, commit(4, 2), &[set("again", "frame 4", (1 << 33) + 1)]);
    image.close(&mut fresh, 5, (1 << 33) + 2);
    let about = "a recovery lost frame 3 and with it the whole next segment";
    let content = Content::closed_at(5)
        .live("kept", "flushed", 1)
        .live("after", "the recovery", 1 << 33)
        .live("again", "frame 4", (1 << 33) + 1);
    opens("abandoned-segment", about, image, content)
}

fn torn_segment_start() -> Golden {
    let (mut image, _) = flushed();
    image.segment(1, 2, 3);
    image.zero(image.slot_start(1)..image.slot_start(1) + segment::SIZE as u64);
    let about = "of a new segment only the trailer was written";
    opens("torn-segment-start", about, image, kept_content())
}

fn reserved_segment() -> Golden {
    let (mut image, _) = flushed();
    image.put(image.slot_start(2) - segment::SIZE as u64, &[0; segment::SIZE]);
    let about = "a slot was reserved at the end of the file and not used";
    opens("reserved-segment", about, image, kept_content())
}

fn frames_after_clean() -> Golden {
    let mut image = Image::opened(LOG2);
    let mut segment = image.segment(0, 1, 1);
    image.frame(&mut segment, commit(1, 1), &[set("kept", "flushed", 1)]);
    image.close(&mut segment, 2, 2);
    image.frame(&mut segment, commit(3, 2), &[set("kept", "by the next session", 2)]);
    let about = "the next session's frame survived a power loss, its superblock did not";
    let content = Content::up_to(3).live("kept", "by the next session", 2);
    opens("frames-after-clean", about, image, content)
}

fn one_header_lost() -> Golden {
    let mut image = Image::opened(LOG2);
    let big = pattern(5000, 3);
    let mut first = image.segment(0, 1, 1);
    let descriptor = image.extent(1, 2, &big);
    image.frame(&mut first, commit(1, 1), &[extent("big", descriptor, 1)]);
    let mut second = image.segment(3, 3, 2);
    image.frame(&mut second, commit(2, 1), &[set("small", "here", 2).oldest(3)]);
    image.close(&mut second, 3, 3);
    image.flip(first.start + 30);
    image.flip(image.slot_start(1) + 9);
    image.flip(image.slot_start(4) - 1);
    let about = "a segment and an extent with a damaged header, a segment with a damaged trailer";
    let content = Content::closed_at(3).live("big", big, 1).live("small", "here", 2);
    opens("one-header-lost", about, image, content)
}

fn superblock_lost() -> Golden {
    let mut image = Image::opened(LOG2);
    let mut segment = image.segment(0, 1, 1);
    image.frame(&mut segment, commit(1, 1), &[set("kept", "flushed", 1)]);
    image.close(&mut segment, 2, 2);
    // Generation 4, the clean close, is in slot 1.
    image.flip(SLOT_STRIDE + 100);
    let about = "the superblock of the clean close is damaged; the one before it opens the file";
    opens("superblock-lost", about, image, kept_content())
}

fn half_created() -> Golden {
    let mut image = Image::created(LOG2);
    image.bytes.truncate(256);
    let about = "creation was cut short between the two superblocks: it is done again";
    opens("half-created", about, image, created())
}

/// The content after an interrupted creation is repeated.
fn created() -> Content {
    Content { clean: true, created: true, ..Content::default() }
}

fn unfinished_creation() -> Golden {
    let mut image = Image::created(LOG2);
    image.bytes.truncate(100);
    let about = "creation was cut short within the first superblock: it is done again";
    opens("unfinished-creation", about, image, created())
}

fn compatible_bit() -> Golden {
    let mut image = Image::opened(LOG2);
    image.superblock.compatible = 1 << 40;
    image.superblock.minor = MINOR + 9;
    image.superblock.reserved[9] = 7;
    image.write_superblocks();
    let mut segment = image.segment(0, 1, 1);
    image.frame(&mut segment, commit(1, 1), &[set("name", "varve", 1)]);
    image.close(&mut segment, 2, 2);
    let about = "a later minor version and an unknown compatible feature";
    opens("compatible-bit", about, image, Content::closed_at(2).live("name", "varve", 1))
}

fn skippable_kind() -> Golden {
    let mut image = Image::opened(LOG2);
    let mut segment = image.segment(0, 1, 1);
    let unknown = set("name", "something of later", 2).kind(KIND_SKIPPABLE | 0x41);
    let records = [set("name", "varve", 1), unknown, set("more", "after it", 3)];
    image.frame(&mut segment, commit(1, 1), &records);
    image.close(&mut segment, 2, 4);
    let about = "a record of an unknown kind that may be skipped";
    let content = Content::closed_at(2).live("name", "varve", 1).live("more", "after it", 3);
    opens("skippable-kind", about, image, content)
}

fn first_needed() -> Golden {
    let mut image = Image::opened(LOG2);
    image.superblock.first_sequence = 3;
    image.superblock.first_frame = 5;
    image.superblock.next_frame = 6;
    let mut old = image.segment(2, 1, 1);
    image.frame(&mut old, commit(1, 1), &[set("gone", "not needed", 1)]);
    let mut reused = image.segment(1, 2, 2);
    let stale = image.frame(&mut reused, commit(2, 1), &[set("gone", "not needed", 2)]);
    let mut segment = image.segment(0, 3, 5);
    let records = [set("kept", "copied", 3), set("new", "here", 4).oldest(3)];
    image.frame(&mut segment, commit(5, 5), &records);
    image.frame(&mut segment, commit(6, 6), &[]);
    image.trailer(1, 4, 7);
    image.write_superblock();
    let about =
        "the log begins at frame 5; a slot has its old header and the trailer of its next use";
    let content = Content::up_to(6).from(5).torn(image.used(stale..reused.at), 0);
    let content = content.live("kept", "copied", 3).live("new", "here", 4);
    opens("first-needed", about, image, content)
}
