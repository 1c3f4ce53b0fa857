//! Transitions of a key: after each, exactly the chunks of its current value exist.

use varve::engine::{Error, Options, Store};

use super::{Shared, close, count_chunks, open, options, run_all_maintenance};
use crate::support::oracle::{check_chunks, chunked_values, state_of};
use crate::support::rng::bytes_of;

/// What is done to a key.
#[derive(Clone, Copy, Debug)]
enum Transition {
    Set,
    /// Staged with more capacity than needed: this many percent are used.
    Shortened(usize),
    Delete,
    InPlace,
    Resize,
    Failing,
    /// An update that is aborted, possibly after it was resized.
    AbortedUpdate(bool),
    AbortedSet,
    RolledBack,
    Released,
}

const TRANSITIONS: [Transition; 13] = [
    Transition::Set,
    Transition::Shortened(90),
    Transition::Shortened(30),
    Transition::Shortened(0),
    Transition::Delete,
    Transition::InPlace,
    Transition::Resize,
    Transition::Failing,
    Transition::AbortedUpdate(false),
    Transition::AbortedUpdate(true),
    Transition::AbortedSet,
    Transition::RolledBack,
    Transition::Released,
];

impl Transition {
    /// Does it to a key with the value `before`, with a value of `length` bytes. Returns the value
    /// afterwards.
    fn apply(
        self,
        store: &mut Store<Shared>,
        length: usize,
        before: Option<&[u8]>,
    ) -> Option<Vec<u8>> {
        let key = b"key";
        let value = bytes_of(500 + length as u64, length);
        let unchanged = before.map(<[u8]>::to_vec);
        match self {
            Transition::Set => {
                store.set(0, key, &value).expect("set");
                Some(value)
            }
            Transition::Shortened(part) => {
                store.begin_set(0, key, length).expect("begin");
                store.staged_value().copy_from_slice(&value);
                let end = length * part / 100;
                store.finish(end).expect("finish");
                Some(value[..end].to_vec())
            }
            Transition::Delete => {
                assert_eq!(store.delete(0, key), Ok(before.is_some()));
                None
            }
            Transition::InPlace | Transition::Resize | Transition::Failing => {
                let mut after = unchanged.clone();
                let update = |bytes: &mut [u8]| {
                    assert!(Some(&*bytes) == before, "the value that an update receives");
                    bytes.fill(9);
                    after = Some(if matches!(self, Transition::Resize) {
                        value.clone()
                    } else {
                        bytes.to_vec()
                    });
                    match self {
                        Transition::InPlace => Ok(None),
                        Transition::Resize => Ok(Some(value.clone())),
                        _ => Err(()),
                    }
                };
                let done = store.update_if(0, key, |_| true, update);
                match self {
                    Transition::Failing if before.is_some() => {
                        assert_eq!(done, Err(Error::Aborted));
                        unchanged
                    }
                    _ => {
                        assert_eq!(done, Ok(before.is_some()));
                        after
                    }
                }
            }
            Transition::AbortedUpdate(resized) => {
                assert_eq!(store.begin_update(0, key), Ok(before.is_some()));
                if before.is_some() {
                    store.staged_value().fill(9);
                    if resized {
                        store.resize_update(length).expect("resize");
                        store.staged_value().fill(8);
                    }
                }
                store.abort();
                unchanged
            }
            Transition::AbortedSet => {
                store.begin_set(0, key, length).expect("begin");
                store.staged_value().fill(9);
                store.abort();
                unchanged
            }
            Transition::RolledBack => {
                let savepoint = store.savepoint();
                store.set(0, key, &value).expect("set");
                store.update_if(0, key, |_| true, |_| Ok(Some(vec![3; 2_500]))).expect("update");
                store.delete(0, key).expect("delete");
                store.rollback(savepoint);
                unchanged
            }
            Transition::Released => {
                let savepoint = store.savepoint();
                store.set(0, key, &vec![4; 1_800]).expect("set");
                store.delete(0, key).expect("delete");
                store.set(0, key, &value).expect("set");
                store.release(savepoint).expect("release");
                Some(value)
            }
        }
    }
}

/// When the previous value was written.
#[derive(Clone, Copy, Debug)]
enum WrittenIn {
    OpenBatch,
    LastCommit,
    EarlierSession,
}

/// Checks that the key has this value, and that the only chunks are its own and those of its
/// neighbor.
fn check_pair(store: &mut Store<Shared>, value: Option<&[u8]>, beside: &[u8], what: &str) {
    assert!(store.get(0, b"key") == Ok(value), "{what}");
    assert!(store.get(0, b"beside") == Ok(Some(beside)), "{what}");
    let found: Vec<_> = chunked_values(store).into_values().collect();
    let is_one = |found: &Vec<u8>| Some(&**found) == value || **found == *beside;
    assert!(found.iter().all(is_one), "{what}: chunks of another value");
    let once = |of: &[u8]| found.iter().filter(|found| ***found == *of).count();
    assert!(once(beside) == 1 && value.is_none_or(|value| once(value) < 2), "{what}");
}

fn try_transition(
    transition: Transition,
    before: Option<usize>,
    written_in: WrittenIn,
    length: usize,
    memory: usize,
) {
    let what = format!(
        "{transition:?} of {length} bytes in place of {before:?}, {written_in:?}, {memory}"
    );
    let options = Options { memory, ..options(12) };
    let file = Shared::default();
    let mut store = open(&file, options);
    let beside = bytes_of(2, 2_000);
    store.set(0, b"beside", &beside).expect("set");
    store.commit().expect("commit");
    let value = before.map(|length| bytes_of(1, length));
    if let Some(value) = &value {
        store.set(0, b"key", value).expect("set");
    }
    match written_in {
        WrittenIn::OpenBatch => {}
        WrittenIn::LastCommit => store.commit().expect("commit"),
        WrittenIn::EarlierSession => {
            close(store);
            store = open(&file, options);
        }
    }
    let after = transition.apply(&mut store, length, value.as_deref());
    check_pair(&mut store, after.as_deref(), &beside, &what);
    store.commit().expect("commit");
    store.end_turn();
    check_pair(&mut store, after.as_deref(), &beside, &what);
    let mut left = open(&Shared::of(file.image()), options);
    check_pair(&mut left, after.as_deref(), &beside, &format!("{what}, after a crash"));
    run_all_maintenance(&mut store);
    check_pair(&mut store, after.as_deref(), &beside, &format!("{what}, compacted"));
    close(store);
    let mut store = open(&file, options);
    check_pair(&mut store, after.as_deref(), &beside, &format!("{what}, opened again"));
}

#[test]
fn every_transition_of_a_chunked_value_frees_its_chunks() {
    // In its record, in an extent, and in chunks within the space of one segment and of two.
    let lengths = [0, 60, 1_500, 3_600, 5_000];
    let befores = lengths.map(Some).into_iter().chain([None]);
    for before in befores {
        for written_in in [WrittenIn::OpenBatch, WrittenIn::LastCommit, WrittenIn::EarlierSession] {
            for (transition, length) in
                TRANSITIONS.into_iter().flat_map(|transition| lengths.map(|n| (transition, n)))
            {
                let memory = if length % 500 == 0 { 0 } else { 64 << 20 };
                try_transition(transition, before, written_in, length, memory);
            }
        }
    }
}

#[test]
fn short_value_of_a_segment_sized_key_is_chunked() {
    // What header, trailer, frame and record header leave of a segment.
    let most = 4096 - 128 - 40 - 40;
    for left in [24, 32, 40, 104, 1_000] {
        let key = vec![b'k'; most - left];
        let file = Shared::default();
        let mut store = open(&file, options(12));
        let mut expected = Some(bytes_of(1, left + 1));
        let check = |store: &mut Store<Shared>, expected: &Option<Vec<u8>>, what: &str| {
            assert!(store.get(0, &key) == Ok(expected.as_deref()), "{what}, {left} bytes are left");
            let found: Vec<_> = chunked_values(store).into_values().collect();
            let long = expected.iter().filter(|value| value.len() > left).cloned();
            assert!(found == long.collect::<Vec<_>>(), "{what}, {left} bytes are left");
        };
        store.set(0, &key, &bytes_of(1, left + 1)).expect("set");
        check(&mut store, &expected, "set");
        store.commit().expect("commit");
        for length in [left, left + 8, 0, 1_024, left + 1] {
            let value = bytes_of(length as u64, length);
            let update = |_: &mut [u8]| Ok(Some(value.clone()));
            assert_eq!(store.update_if(0, &key, |_| true, update), Ok(true), "{length} bytes");
            expected = Some(value);
            check(&mut store, &expected, "updated");
            store.commit().expect("commit");
        }
        run_all_maintenance(&mut store);
        check(&mut store, &expected, "compacted");
        close(store);
        let mut store = open(&file, options(12));
        check(&mut store, &expected, "opened");
        assert_eq!(store.delete(0, &key), Ok(true));
        check(&mut store, &None, "deleted");
    }
}

#[test]
fn shortened_value_of_a_long_key_can_be_updated() {
    // The torture test found this with seed 669516153483492: a value that was staged with the
    // capacity of an extent and finished shorter did not fit in a record again.
    let key = vec![b'k'; 3_856];
    for (capacity, end) in [(3_500, 900), (3_500, 0), (2_000, 900), (2_000, 30)] {
        let file = Shared::default();
        let mut store = open(&file, options(12));
        store.begin_set(0, &key, capacity).expect("begin");
        store.staged_value().fill(5);
        store.finish(end).expect("finish");
        store.commit().expect("commit");
        let change = |bytes: &mut [u8]| {
            assert!(bytes == vec![5; end]);
            bytes.fill(6);
            Ok(None)
        };
        assert_eq!(store.update_if(0, &key, |_| true, change), Ok(true), "{capacity}, {end}");
        store.commit().expect("commit");
        let mut store = open(&Shared::of(file.image()), options(12));
        assert!(store.get(0, &key) == Ok(Some(&vec![6; end])), "{capacity}, {end}");
        let state = state_of(&mut store);
        check_chunks(&mut store, &state);
    }
}

#[test]
fn key_too_long_for_any_value_is_refused_without_chunks() {
    let most = 4096 - 128 - 40 - 40;
    let mut store = open(&Shared::default(), options(12));
    store.set(0, b"before", b"in the group").expect("set");
    for (left, length) in [(0, 1), (8, 9), (16, 17), (16, 1_024), (16, 1_500)] {
        let key = vec![b'k'; most - left];
        assert_eq!(
            store.set(0, &key, &vec![1; length]),
            Err(Error::KeyTooLong),
            "{left}, {length}"
        );
        assert_eq!(
            (count_chunks(&mut store), store.get(0, &key)),
            (0, Ok(None)),
            "{left}, {length}"
        );
    }
    store.commit().expect("commit");
    assert_eq!((store.count(0), store.get(0, b"before")), (1, Ok(Some(&b"in the group"[..]))));
}
