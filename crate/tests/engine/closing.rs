//! Closing: the next opening has little to replay, however the session wrote.

use varve::engine::format::superblock::{SIZE, SLOT_STRIDE, Slot, Superblock};
use varve::engine::{MemoryFile, Options, Recovery, Store};

const SEGMENT: usize = 1 << 14;

/// How a session ends.
#[derive(Clone, Copy, PartialEq)]
enum End {
    Close,
    Crash,
}

/// A session that writes most of a segment in one burst, without a flush. Returns the result of
/// opening.
fn write_burst(file: &mut MemoryFile, session: u64, end: End) -> Recovery {
    let options = Options {
        segment_log2: SEGMENT.trailing_zeros() as u8,
        entropy: [session, 1, 2, 3],
        ..Options::default()
    };
    let mut store = Store::open(std::mem::take(file), options).expect("it opens");
    let found = *store.recovery();
    for i in 0..60_u64 {
        store.set(0, &(session * 20 + i).to_be_bytes(), &[i as u8; 150]).expect("enough space");
    }
    store.commit().expect("it commits");
    *file = match end {
        End::Close => store.close().map_err(|(_, error)| error).expect("it closes"),
        End::Crash => store.into_file(),
    };
    found
}

#[test]
fn burst_sessions_with_close_do_not_grow_the_tail() {
    let mut file = MemoryFile::default();
    for session in 0..40 {
        let found = write_burst(&mut file, session, End::Close);
        assert!(found.clean, "{session}");
        assert!(found.replayed_frames < 8, "{} frames in session {session}", found.replayed_frames);
        assert!(session < 4 || found.checkpoint, "session {session} found no checkpoint");
    }
}

#[test]
fn close_after_crash_recovery_writes_a_checkpoint() {
    let mut file = MemoryFile::default();
    for session in 0..40 {
        let end = if session % 2 == 0 { End::Crash } else { End::Close };
        let found = write_burst(&mut file, session, end);
        assert!(
            found.replayed_frames < 12,
            "{} frames in session {session}",
            found.replayed_frames
        );
        assert!(session < 8 || found.checkpoint, "session {session} found no checkpoint");
    }
}

#[test]
fn close_during_checkpoint_leaves_no_tail_to_replay() {
    let options = Options { segment_log2: SEGMENT.trailing_zeros() as u8, ..Options::default() };
    for turns in [1, 8, 20, 40] {
        let mut store = Store::open(MemoryFile::default(), options).expect("it opens");
        let mut key = 0_u64;
        let mut write = |store: &mut Store<MemoryFile>, keys: u64| {
            for _ in 0..keys {
                store.set(0, &key.to_be_bytes(), &[1; 16]).expect("enough space");
                key += 1;
            }
            store.commit().expect("it commits");
        };
        // Enough for a checkpoint of several steps, between which more is written.
        while !store.wants_maintenance() {
            write(&mut store, 50_000);
        }
        for _ in 0..turns {
            write(&mut store, 2_000);
            store.maintain(false).expect("it maintains");
        }
        let limit = 2 * store.stats().count as usize;
        let file = store.close().map_err(|(_, error)| error).expect("it closes");
        let found = *Store::open(file, options).expect("it opens").recovery();
        assert!(found.clean && found.checkpoint, "{turns} turns");
        let tail = found.replayed_frames as usize * SEGMENT;
        assert!(tail <= limit + 2 * SEGMENT, "{} frames, {turns} turns", found.replayed_frames);
    }
}

/// The file after so many unclean closes that its versions have reached `next_version`.
fn with_next_version(mut file: MemoryFile, next_version: u64) -> MemoryFile {
    for slot in 0..2 {
        let at = (slot * SLOT_STRIDE) as usize;
        let Slot::Valid(mut superblock) = Superblock::decode(&file.bytes[at..at + SIZE], slot)
        else {
            panic!("it is whole")
        };
        superblock.next_version = next_version;
        file.bytes[at..at + SIZE].copy_from_slice(&superblock.encode(slot));
    }
    file
}

#[test]
fn versions_stay_safe_integers_over_unclean_closes() {
    const MOST: u64 = 1 << 53;
    for left in [1 << 51, 1 << 50, 1 << 49, 1 << 40, 1 << 33, 1 << 32] {
        let mut file = MemoryFile::default();
        write_burst(&mut file, 0, End::Close);
        let mut file = with_next_version(file, MOST - left);
        let mut before = MOST - left;
        for session in 1..200 {
            write_burst(&mut file, session, End::Crash);
            let store = Store::open(file, Options::default()).expect("it opens");
            let next = store.stats().next_version;
            assert!(before + 1000 < next && next < MOST, "{left} left, session {session}: {next}");
            before = next;
            file = store.into_file();
        }
    }
}
