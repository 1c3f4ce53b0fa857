//! What a close leaves: the next opening has little to replay, however the session wrote.

use varve::{MemoryFile, Options, Recovery, Store};

const SEGMENT: usize = 1 << 14;

/// How a session ends.
#[derive(Clone, Copy, PartialEq)]
enum End {
    Close,
    Death,
}

/// A session that writes most of a segment in one burst, without a flush. Answers what opening found.
fn burst(file: &mut MemoryFile, session: u64, end: End) -> Recovery {
    let options = Options {
        segment_log2: SEGMENT.trailing_zeros() as u8,
        entropy: [session, 1, 2, 3],
        ..Options::default()
    };
    let mut store = Store::open(std::mem::take(file), options).expect("it opens");
    let found = *store.recovery();
    for i in 0..60_u64 {
        store.set(0, &(session * 20 + i).to_be_bytes(), &[i as u8; 150]).expect("there is room");
    }
    store.commit().expect("it commits");
    *file = match end {
        End::Close => store.close().map_err(|(_, error)| error).expect("it closes"),
        End::Death => store.into_file(),
    };
    found
}

#[test]
fn sessions_that_write_in_one_burst_and_close_leave_no_tail_that_grows() {
    let mut file = MemoryFile::default();
    for session in 0..40 {
        let found = burst(&mut file, session, End::Close);
        assert!(found.clean, "{session}");
        assert!(found.replayed_frames < 8, "{} frames in session {session}", found.replayed_frames);
        assert!(session < 4 || found.checkpoint, "session {session} found no checkpoint");
    }
}

#[test]
fn a_close_takes_a_checkpoint_also_behind_a_crash() {
    let mut file = MemoryFile::default();
    for session in 0..40 {
        let end = if session % 2 == 0 { End::Death } else { End::Close };
        let found = burst(&mut file, session, end);
        assert!(
            found.replayed_frames < 12,
            "{} frames in session {session}",
            found.replayed_frames
        );
        assert!(session < 8 || found.checkpoint, "session {session} found no checkpoint");
    }
}
