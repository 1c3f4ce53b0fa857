//! Golden files of databases with cleared keyspaces.

use varve::engine::error::{Damage, Error};
use varve::engine::format::KEYSPACE_ENGINE;
use varve::engine::format::system_records::clear_key;

use crate::golden_file::{Content, Expect, Golden};
use crate::image::{self, Image, LOG2, Row, clear, commit, extent, pattern, set};

pub fn all() -> Vec<Golden> {
    vec![cleared(), before_a_checkpoint(), moved(), moved_after_cleared_records(), malformed()]
}

/// Adds the clear record of a keyspace, which is live.
fn with_clear(content: Content, keyspace: u32, version: u64, newest: u64) -> Content {
    content.live_in(KEYSPACE_ENGINE, clear_key(keyspace), newest.to_le_bytes(), version)
}

fn cleared() -> Golden {
    let mut image = Image::opened(LOG2);
    let mut segment = image.segment(0, 1, 1);
    let large = image.extent(1, 2, &pattern(2000, 4));
    let records = [
        set("a", "of the raw calls", 1),
        set("a", "of a collection", 2).keyspace(2),
        set("b", "of a collection", 3).keyspace(2),
        extent("c", large, 4).keyspace(2),
    ];
    image.frame(&mut segment, commit(1, 1), &records);
    let records = [clear(2, 5, 1), set("b", "set again", 6).keyspace(2)];
    image.frame(&mut segment, commit(2, 2), &records);
    // The value in the extent is not needed any more, and its slot was reused.
    image.zero(image.slot_start(1)..image.slot_start(2));
    image.frame(&mut segment, commit(3, 3), &[set("d", "later", 7).keyspace(2)]);
    image.close(&mut segment, 4, 8);
    let about =
        "a keyspace that was emptied, beside one that was not, and what was set in it since";
    let content = Content::closed_at(4)
        .live("a", "of the raw calls", 1)
        .live_in(2, "b", "set again", 6)
        .live_in(2, "d", "later", 7);
    let content = with_clear(content, 2, 5, 1);
    Golden { name: "cleared", about, bytes: image.bytes, expect: Expect::Opens(content) }
}

fn before_a_checkpoint() -> Golden {
    let mut image = Image::opened(LOG2);
    let mut first = image.segment(0, 1, 1);
    let records = [set("a", "gone", 1), set("b", "gone", 2), set("c", "kept", 3).keyspace(2)];
    image.frame(&mut first, commit(1, 1), &records);
    let mut second = image.segment(1, 2, 2);
    let records = [clear(0, 4, 2).oldest(2), set("d", "set since", 5).oldest(2)];
    image.frame(&mut second, commit(2, 1), &records);
    let rows = [(first, 2), (second, 3)].map(|(segment, end_frame)| Row { segment, end_frame });
    image.checkpoint(2, 3, 3, &rows);
    image.superblock.next_frame = 3;
    image.write_superblocks();
    image.frame(&mut second, commit(3, 3), &[set("b", "set again", 6).oldest(2)]);
    image.close(&mut second, 4, 7);
    let about = "a checkpoint with entries of a keyspace that was emptied before it";
    let content = Content::closed_at(4)
        .checkpoint(3)
        .live_in(2, "c", "kept", 3)
        .live("d", "set since", 5)
        .live("b", "set again", 6);
    let content = with_clear(content, 0, 4, 2);
    let (name, bytes) = ("cleared-before-checkpoint", image.bytes);
    Golden { name, about, bytes, expect: Expect::Opens(content) }
}

fn moved() -> Golden {
    let mut image = Image::opened(LOG2);
    let mut first = image.segment(0, 1, 1);
    image.frame(&mut first, commit(1, 1), &[set("a", "gone", 1), set("b", "gone", 2)]);
    let mut second = image.segment(1, 2, 2);
    image.frame(&mut second, commit(2, 1), &[clear(0, 3, 2).oldest(2)]);
    image.frame(&mut second, commit(3, 1), &[set("a", "set again", 4).oldest(2)]);
    let mut third = image.segment(2, 3, 4);
    let moved = [image.replacing(clear(0, 3, 2).oldest(2))];
    image.frame(&mut third, image::moved(4, 4), &moved);
    image.frame(&mut third, commit(5, 4), &[set("c", "new", 5).oldest(3)]);
    image.close(&mut third, 6, 6);
    let about = "the record that emptied a keyspace was moved behind what was set since";
    let content = Content::closed_at(6).live("a", "set again", 4).live("c", "new", 5);
    let content = with_clear(content, 0, 3, 2);
    let (name, bytes) = ("cleared-moved", image.bytes);
    Golden { name, about, bytes, expect: Expect::Opens(content) }
}

fn moved_after_cleared_records() -> Golden {
    let mut image = Image::opened(LOG2);
    let mut first = image.segment(0, 1, 1);
    image.frame(&mut first, commit(1, 1), &[set("a", "gone", 1), set("b", "gone", 2)]);
    // The segment in which the record was first written was removed: frame 2.
    let mut third = image.segment(1, 3, 3);
    let gap = [varve::engine::format::system_records::KEY_GAP, &3_u64.to_be_bytes()].concat();
    let records = [
        set("a", "set again", 4).oldest(2),
        clear(0, 3, 2).oldest(2),
        set(&gap, 2_u64.to_le_bytes(), 5).keyspace(KEYSPACE_ENGINE).oldest(3),
    ];
    image.frame(&mut third, commit(3, 2), &records);
    image.close(&mut third, 4, 6);
    let about = "the record that emptied a keyspace, relocated, is the only one, and follows what was set since";
    let content = Content::closed_at(4).without(1).live("a", "set again", 4);
    let content = with_clear(content, 0, 3, 2);
    let content = content.live_in(KEYSPACE_ENGINE, gap, 2_u64.to_le_bytes(), 5);
    let (name, bytes) = ("cleared-moved-alone", image.bytes);
    Golden { name, about, bytes, expect: Expect::Opens(content) }
}

fn malformed() -> Golden {
    let mut image = Image::opened(LOG2);
    let mut segment = image.segment(0, 1, 1);
    image.frame(&mut segment, commit(1, 1), &[set("kept", "flushed", 1)]);
    let record = clear(KEYSPACE_ENGINE, 2, 1);
    let position = image.frame(&mut segment, commit(2, 1), &[record]);
    image.close(&mut segment, 3, 3);
    let damage = Damage { position, expected_frame: 2, flushed_frames: 3, ..Damage::default() };
    let about = "a valid, flushed frame with a record that empties the engine's own keyspace";
    let (name, bytes) = ("malformed-clear", image.bytes);
    Golden { name, about, bytes, expect: Expect::Refused(Error::from(damage)) }
}
