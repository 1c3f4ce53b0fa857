//! Damage: whatever single bit flips, and wherever the file is truncated, no wrong value is
//! returned.

use varve::engine::format::KEYSPACE_ENGINE;
use varve::engine::format::system_records::KEY_GAP;
use varve::engine::{Error, Options, Store};

use crate::support::fault_file::FaultFile;
use crate::support::oracle::{State, difference, state_of, try_state_of};
use crate::support::pages::Pages;
use crate::support::rng::bytes_of;

fn options() -> Options {
    Options { segment_log2: 12, ..Options::default() }
}

/// How a session ended.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Closed,
    /// Flushed, with a witness after the flush; then the process died.
    Witnessed,
    /// Flushed; then the process died: the window that FORMAT.md describes.
    Flushed,
}

/// A file with some segments, an extent and a chunked value, and the states after its flushed
/// commits.
fn sample(end: End) -> (Vec<u8>, Vec<State>) {
    let file = FaultFile::default();
    let mut store = Store::open(file.clone(), options()).expect("a new file opens");
    let mut states = vec![State::new()];
    for i in 0..9_u8 {
        store.set(0, &[b'k', i], &bytes_of(i.into(), 90 * usize::from(i))).expect("set");
        store.set(2, b"the same", &[i; 12]).expect("set");
        if i == 3 {
            store.set(0, b"large", &bytes_of(99, 3500)).expect("set");
            store.set(0, b"pieces", &bytes_of(98, 1100)).expect("set");
            store.delete(0, &[b'k', 1]).expect("delete");
        }
        store.flush().expect("flush");
        states.push(state_of(&mut store));
    }
    (image_after(store, &file, end), states)
}

/// The image of a session that was flushed and ended in this way.
fn image_after(mut store: Store<FaultFile>, file: &FaultFile, end: End) -> Vec<u8> {
    match end {
        End::Closed => drop(store.close().map_err(|(_, e)| e).expect("close")),
        End::Witnessed => {
            store.witness().expect("witness");
            drop(store.into_file());
        }
        End::Flushed => drop(store.into_file()),
    }
    file.image()
}

/// A file with a history: segments between others were freed and have gap records, a large value
/// was relocated, and a checkpoint follows. Also the states since then.
fn sample_with_history(end: End) -> (Vec<u8>, Vec<State>) {
    let file = FaultFile::default();
    let mut store = Store::open(file.clone(), options()).expect("a new file opens");
    let moved = bytes_of(7, 11_000);
    let offset = |file: &FaultFile| file.image().windows(11_000).position(|bytes| bytes == moved);
    store.set(0, b"gone", &bytes_of(8, 30_000)).expect("set");
    store.set(0, b"moved", &moved).expect("set");
    store.commit().expect("commit");
    let before = offset(&file);
    store.delete(0, b"gone").expect("delete");
    store.flush().expect("flush");
    while store.maintain(false).expect("maintain") {}
    assert!(offset(&file) < before, "the large value was moved");
    let mut i = 0;
    while !store.keys(KEYSPACE_ENGINE).expect("keys").iter().any(|key| key.starts_with(KEY_GAP)) {
        // Some keys stay where they are, and others after them are replaced.
        let key = if i % 20 < 4 { 10 + i / 20 } else { i % 4 };
        store.set(0, &[b'k', key], &bytes_of(i.into(), 900)).expect("set");
        store.flush().expect("flush");
        for _ in 0..i % 8 {
            store.maintain(false).expect("maintain");
        }
        i += 1;
    }
    store.delete(0, b"k\0").expect("delete");
    store.flush().expect("flush");
    let mut states = vec![state_of(&mut store)];
    for i in 0..2_u8 {
        store.set(2, b"late", &[i; 60]).expect("set");
        store.flush().expect("flush");
        states.push(state_of(&mut store));
    }
    (image_after(store, &file, end), states)
}

#[derive(Debug, Default)]
struct Outcomes {
    reported: u64,
    harmless: u64,
    shortened: u64,
}

/// Opens a damaged image. Only `End::Flushed` may lose commits, and only the last ones.
fn check_image(image: Pages, states: &[State], end: End, outcomes: &mut Outcomes, what: &str) {
    let file = FaultFile::new(image);
    match Store::open(file.clone(), options()) {
        Err(Error::Corruption(_) | Error::NotADatabase | Error::UnsupportedFormat { .. }) => {
            assert!(file.event_count() == 0, "{what}: a refused file was changed");
            outcomes.reported += 1;
        }
        Err(error) => panic!("{what}: {error:?} is not an error for damage"),
        Ok(mut store) => {
            // Records before a checkpoint are verified when they are read.
            let seen = match try_state_of(&mut store) {
                Ok(seen) => seen,
                Err(Error::Corruption(_)) => {
                    outcomes.reported += 1;
                    return;
                }
                Err(error) => panic!("{what}: {error:?} is not an error for damage"),
            };
            let last = states.last().expect("there are some");
            if &seen == last {
                outcomes.harmless += 1;
            } else {
                let within = end == End::Flushed && states.contains(&seen);
                assert!(within, "{what} is not detected: {}", difference(&seen, last));
                outcomes.shortened += 1;
            }
        }
    }
}

fn flip_every_bit(end: End, (image, states): (Vec<u8>, Vec<State>)) -> Outcomes {
    let mut outcomes = Outcomes::default();
    let image = Pages::from(image);
    for bit in 0..image.len() * 8 {
        let mut damaged = image.clone();
        damaged.flip(bit / 8, 1 << (bit % 8));
        check_image(damaged, &states, end, &mut outcomes, &format!("{end:?}, bit {bit} flipped"));
    }
    println!("{end:?}: {} bytes, {outcomes:?}", image.len());
    outcomes
}

#[test]
fn bit_flip_in_a_closed_file_is_detected_or_harmless() {
    let outcomes = flip_every_bit(End::Closed, sample(End::Closed));
    assert_eq!(outcomes.shortened, 0);
    assert!(outcomes.reported > 0 && outcomes.harmless > 0);
}

#[test]
fn bit_flip_before_a_witness_is_detected_or_harmless() {
    assert_eq!(flip_every_bit(End::Witnessed, sample(End::Witnessed)).shortened, 0);
}

#[test]
fn bit_flip_before_the_witness_loses_only_the_last_flush() {
    let outcomes = flip_every_bit(End::Flushed, sample(End::Flushed));
    // Only the last commit can be lost here: the one before it has a witness in it.
    assert!(outcomes.reported > outcomes.shortened);
}

#[test]
fn bit_flip_in_a_compacted_file_is_detected_or_harmless() {
    for end in [End::Closed, End::Witnessed] {
        let outcomes = flip_every_bit(end, sample_with_history(end));
        assert_eq!(outcomes.shortened, 0);
        assert!(outcomes.reported > 0 && outcomes.harmless > 0);
    }
    let outcomes = flip_every_bit(End::Flushed, sample_with_history(End::Flushed));
    assert!(outcomes.shortened > 0 && outcomes.reported > outcomes.shortened);
}

#[test]
fn truncated_closed_file_is_detected_or_complete() {
    let (image, states) = sample(End::Closed);
    let mut outcomes = Outcomes::default();
    // Less than a superblock is an interrupted creation without anything to lose.
    for len in 256..image.len() {
        check_image(
            image[..len].into(),
            &states,
            End::Closed,
            &mut outcomes,
            &format!("cut to {len} bytes"),
        );
    }
    println!("cut: {outcomes:?}");
}

#[test]
fn zeroed_sector_of_a_closed_file_is_detected_or_harmless() {
    let (image, states) = sample(End::Closed);
    let mut outcomes = Outcomes::default();
    for from in (0..image.len()).step_by(64) {
        let mut damaged = image.clone();
        let to = image.len().min(from + 512);
        damaged[from..to].fill(0);
        check_image(
            damaged.into(),
            &states,
            End::Closed,
            &mut outcomes,
            &format!("{from}..{to} zeroed"),
        );
    }
    assert!(outcomes.reported > 0);
}

#[test]
fn misplaced_sector_is_detected_or_harmless() {
    let (image, states) = sample(End::Closed);
    let mut outcomes = Outcomes::default();
    for to in (0..image.len() / 512).map(|s| s * 512) {
        for from in (0..image.len() / 512).map(|s| s * 512) {
            let mut damaged = image.clone();
            damaged.copy_within(from..from + 512, to);
            let what = format!("the sector at {from} written to {to}");
            check_image(damaged.into(), &states, End::Closed, &mut outcomes, &what);
        }
    }
    assert!(outcomes.reported > 0);
}

#[test]
fn database_image_stored_as_a_value_is_never_taken_for_the_log() {
    let (image, _) = sample(End::Closed);
    let file = FaultFile::default();
    let mut store = Store::open(file.clone(), options()).expect("open");
    store.set(0, b"a", b"1").expect("set");
    store.set(0, b"image", &image).expect("set");
    store.flush().expect("flush");
    for chunk in image.chunks(700) {
        store.set(0, b"piece", chunk).expect("set");
        store.commit().expect("commit");
    }
    let expected = state_of(&mut store);
    let whole = file.image();
    drop(store.into_file());
    for len in (whole.len().saturating_sub(9000)..whole.len()).rev().step_by(97) {
        if let Ok(mut store) = Store::open(FaultFile::new(whole[..len].to_vec()), options()) {
            let seen = state_of(&mut store);
            let known = [&b"a"[..], b"image", b"piece"];
            assert!(seen.keys().all(|(ks, key)| *ks == 0 && known.contains(&key.as_slice())));
        }
    }
    let mut store = Store::open(FaultFile::new(whole), options()).expect("open");
    assert!(state_of(&mut store) == expected);
}
