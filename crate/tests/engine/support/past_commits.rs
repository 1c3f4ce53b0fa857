//! Steps of random programs on a file that keeps its history, and the checks of what it shows of the past.

use std::ops::Bound;
use std::rc::Rc;

use varve::engine::store::SnapshotId;
use varve::engine::{Error, File, Store};

use super::oracle::{Entry, KEYSPACES, PastCommit, State};
use super::rng::Rng;
use super::session::Step;
use super::snapshots::{check_snapshot, range_of};

/// The next step: a past commit is shown, or the history before one is forgotten.
pub fn history_step(rng: &mut Rng) -> Step {
    let which = rng.below(1 << 20);
    match rng.below(12) {
        0..6 => Step::At(which),
        6 | 7 => Step::Pack(which),
        8 if rng.one_in(2) => Step::EndPacking,
        _ => Step::Maintain { steps: rng.within(1..12), all: rng.one_in(3) },
    }
}

/// Checks a past commit. What had expired by then is there until the commit that deleted it.
pub fn check_past<F: File>(store: &mut Store<F>, past: SnapshotId, state: &State) {
    let mut state = state.clone();
    for keyspace in KEYSPACES {
        let then = past.keyspace(keyspace);
        for key in range_of(store, then, (Bound::Unbounded, Bound::Unbounded), false) {
            let expiry = store.expiry(then, &key).expect("readable").expect("it is listed");
            if expiry == 0 || state.contains_key(&(keyspace, key.clone())) {
                continue;
            }
            let value = Rc::from(store.get(then, &key).expect("readable").expect("it is listed"));
            let version = store.version(then, &key).expect("readable").expect("it is listed");
            state.insert((keyspace, key), Entry { value, version, expiry });
        }
    }
    check_snapshot(store, past, &state);
}

/// Checks some commits of a file, and that it was packed up to none after `most_packed`.
pub fn check_history<F: File>(
    store: &mut Store<F>,
    past: &[PastCommit],
    most_packed: u64,
    rng: &mut Rng,
) {
    let packed = store.packed_up_to().expect("readable");
    assert!(packed <= most_packed, "it is packed up to {packed}, not {most_packed}");
    for _ in 0..2.min(past.len()) {
        let PastCommit { cursor, state } = rng.pick(past);
        match store.at(*cursor) {
            Ok(shown) => {
                check_past(store, shown, state);
                store.end_snapshot(shown);
            }
            Err(Error::CursorExpired) if *cursor < packed => {}
            Err(error) => panic!("{cursor}, packed up to {packed}: {error}"),
        }
    }
}
