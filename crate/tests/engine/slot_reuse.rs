//! Slot reuse: slots are not erased before they are reused, and their remains never count.

use varve::engine::format::frame::FrameHeader;
use varve::engine::format::segment::{self, KIND_LOG, SegmentHeader};
use varve::engine::format::superblock::{Slot, Superblock};
use varve::engine::format::{DATA_START, superblock};
use varve::engine::{MemoryFile, Options, Store};

use crate::support::fault_file::{Event, FaultFile};
use crate::support::rng::{Rng, bytes_of};

const SEGMENT: usize = 1 << 12;
const KEYS: u64 = 8;

fn options(session: u64) -> Options {
    Options {
        segment_log2: SEGMENT.trailing_zeros() as u8,
        entropy: [session, 1, 2, 3 + session],
        ..Options::default()
    }
}

fn value_of(i: u64) -> Vec<u8> {
    bytes_of(i, 90 + (i % 7) as usize)
}

#[test]
fn reused_slot_is_not_erased() {
    for flushes in [false, true] {
        let file = FaultFile::default();
        let mut store = Store::open(file.clone(), options(0)).expect("a new file opens");
        for i in 0..2_000 {
            store.set(0, &(i % KEYS).to_be_bytes(), &value_of(i)).expect("set");
            store.commit().expect("commit");
            if flushes && i % 20 == 0 {
                store.flush().expect("flush");
            }
        }
        let (_, events) = file.history();
        let (mut all, mut zeros) = (0, 0);
        for event in &events {
            if let Event::Write { bytes, .. } = event {
                all += bytes.len();
                zeros += if bytes.iter().all(|&b| b == 0) { bytes.len() } else { 0 };
            }
        }
        assert!(all > 80 * SEGMENT, "{all} bytes are many times the size of the file");
        assert!(file.image().len() < 20 * SEGMENT, "so slots were used again");
        assert!(zeros < all / 12, "{zeros} of {all} bytes were zeros");
    }
}

#[test]
fn session_after_a_kill_between_writes_resumes_at_the_same_slot() {
    let file = FaultFile::default();
    let mut store = Store::open(file.clone(), options(0)).expect("a new file opens");
    let (mut reused, mut last) = (0, 0);
    for i in 0..900 {
        store.set(0, &(i % KEYS).to_be_bytes(), &value_of(i)).expect("set");
        store.commit().expect("commit");
        let image = file.image();
        let mut next = Store::open(MemoryFile { bytes: image.clone() }, options(1 + i))
            .unwrap_or_else(|error| panic!("{i}: {error:?}"));
        let recovery = *next.recovery();
        assert!(!recovery.clean && recovery.torn_bytes == 0, "{i}: {recovery:?}");
        assert_eq!(recovery.last_frame, store.stats().next_frame - 1, "{i}");
        next.set(0, b"next", b"session").expect("set");
        next.commit().expect("commit");
        let after = next.into_file().bytes;
        let mut third = Store::open(MemoryFile { bytes: after.clone() }, options(0)).expect("open");
        assert_eq!(third.recovery().torn_bytes, 0, "{i}");
        assert!(third.recovery().last_frame > recovery.last_frame, "{i}");
        assert_eq!(third.get(0, b"next").expect("get"), Some(&b"session"[..]), "{i}");
        for key in 0..KEYS.min(i + 1) {
            let newest = i - (i - key) % KEYS;
            let value = third.get(0, &key.to_be_bytes()).expect("get").map(<[u8]>::to_vec);
            assert_eq!(value, Some(value_of(newest)), "{i}");
        }
        let stale = count_zeroed(&image, &after);
        reused += u32::from(stale > 0);
        last = last.max(stale);
    }
    assert!(reused > 300 && last > SEGMENT / 2, "{reused} times something was left, up to {last}");
}

/// How many bytes became zero.
fn count_zeroed(before: &[u8], after: &[u8]) -> usize {
    before.iter().zip(after).filter(|(b, a)| **b != 0 && **a == 0).count()
}

#[test]
fn database_killed_after_each_session_does_not_grow() {
    let mut bytes = Vec::new();
    for session in 0..300 {
        let mut store = Store::open(MemoryFile { bytes }, options(session)).expect("it opens");
        assert_eq!(store.recovery().torn_bytes, 0, "{session}");
        for i in 0..1 + session % 9 {
            store.set(0, &(i % KEYS).to_be_bytes(), &value_of(session + i)).expect("set");
            store.commit().expect("commit");
        }
        bytes = store.into_file().bytes;
        assert!(bytes.len() <= 8192 + 8 * SEGMENT, "{} bytes in session {session}", bytes.len());
    }
}

#[test]
fn close_leaves_nothing_after_the_log_end() {
    let (mut segments_with_remains, mut bytes) = (0, Vec::new());
    for session in 0..120 {
        let mut file = FaultFile::new(bytes);
        let mut store = Store::open(file.clone(), options(session)).expect("it opens");
        assert!(store.recovery().clean, "{session}: {:?}", store.recovery());
        for i in 0..session % 40 {
            store.set(0, &(i % KEYS).to_be_bytes(), &value_of(session + i)).expect("set");
            store.commit().expect("commit");
        }
        if session % 3 == 0 {
            // Killed, and closed by a session that writes nothing.
            drop(store.into_file());
            file = FaultFile::new(file.image());
            store = Store::open(file.clone(), options(1_000 + session)).expect("it opens");
        }
        let before = file.image();
        store.close().map_err(|(_, error)| error).expect("it closes");
        bytes = file.image();
        segments_with_remains += u32::from(count_zeroed(&before, &bytes) > 300);
    }
    assert!(segments_with_remains > 10, "{segments_with_remains} closes had something to zero");
}

/// The first frames of the log segments, other than the newest, with anything except zeros after
/// their last frame; and how many segments there are.
fn segments_with_remains(image: &[u8]) -> (Vec<u64>, usize) {
    let Slot::Valid(superblock) = Superblock::decode(&image[..superblock::SIZE], 0) else {
        panic!("the first superblock is whole");
    };
    let mut segments = Vec::new();
    for start in (DATA_START as usize..image.len()).step_by(SEGMENT) {
        let bytes = image.get(start..start + segment::SIZE).unwrap_or_default();
        let header = SegmentHeader::decode(bytes, superblock.file_id[0], start as u64);
        segments.extend(header.filter(|h| h.kind == KIND_LOG).map(|h| (h.sequence, start, h)));
    }
    segments.sort_by_key(|&(sequence, ..)| sequence);
    segments.pop();
    let left = segments.iter().filter(|(_, start, header)| {
        let end = start + SEGMENT - segment::SIZE;
        let mut at = start + segment::SIZE;
        while let Some(frame) = FrameHeader::open(&image[at..end], header.salt, at as u64) {
            at += frame.length as usize;
        }
        image[at..end].iter().any(|&byte| byte != 0)
    });
    (left.map(|(.., header)| header.first_frame).collect(), segments.len())
}

#[test]
fn segment_ends_with_its_last_frame_when_the_log_continues_elsewhere() {
    let mut checked = 0;
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let mut file = FaultFile::default();
        let mut store = Store::open(file.clone(), options(seed)).expect("a new file opens");
        for step in 0..700 {
            let key = (rng.below(KEYS as usize) as u64).to_be_bytes();
            let length = if rng.one_in(9) { rng.below(1_500) } else { rng.below(200) };
            match rng.below(14) {
                0 => {
                    // A record that takes a new segment and is aborted.
                    store.begin_set(0, &key, 900).expect("enough space");
                    store.abort();
                }
                1 => {
                    let savepoint = store.savepoint();
                    for i in 0..rng.below(12) as u64 {
                        store.set(0, &key, &bytes_of(i, 300)).expect("set");
                    }
                    store.rollback(savepoint);
                }
                2 => {
                    store.maintain(rng.one_in(10)).expect("maintain");
                }
                3 if rng.one_in(4) => store.flush().expect("flush"),
                4 => {
                    store.end_turn();
                }
                5 if rng.one_in(20) => {
                    drop(store.into_file());
                    file = FaultFile::new(file.image());
                    store = Store::open(file.clone(), options(1_000 + step)).expect("it opens");
                }
                _ => {
                    store.set(0, &key, &bytes_of(step, length)).expect("set");
                }
            }
            if rng.one_in(3) {
                store.commit().expect("commit");
                let (left, segments) = segments_with_remains(&file.image());
                assert!(
                    left.is_empty(),
                    "seed {seed}, step {step}: remains after frames from {left:?}"
                );
                checked += segments;
            }
        }
    }
    assert!(checked > 4_000, "only {checked} segments were checked");
}
