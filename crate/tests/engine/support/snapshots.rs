//! Snapshots compared with the content when they were taken.

use std::ops::Bound;
use std::rc::Rc;

use varve::engine::store::{KeyBounds, SnapshotId};
use varve::engine::{File, Store};

use super::oracle::{Entry, KEYSPACES, State, difference};
use super::rng::Rng;
use super::session::Step;

/// A step that takes or ends a snapshot.
pub fn snapshot_step(rng: &mut Rng) -> Step {
    if rng.one_in(3) { Step::EndSnapshot(rng.below(8)) } else { Step::Snapshot }
}

/// The keys in a range of a keyspace, as the store lists them.
pub fn range_of<F: File>(
    store: &mut Store<F>,
    keyspace: u32,
    bounds: KeyBounds<'_>,
    reverse: bool,
) -> Vec<Vec<u8>> {
    let mut keys = vec![];
    let see = |key: &[u8], _| {
        keys.push(key.to_vec());
        true
    };
    store.range(keyspace, bounds, reverse, see).expect("the range can be read");
    keys
}

/// Checks gets, versions, ranges in both directions and counts of a snapshot.
pub fn check_snapshot<F: File>(store: &mut Store<F>, snapshot: SnapshotId, state: &State) {
    let mut seen = State::new();
    for (keyspace, key) in state.keys() {
        let then = snapshot.keyspace(*keyspace);
        let value = store.get(then, key).expect("readable").map(Rc::from);
        assert_eq!(store.has(then, key), Ok(value.is_some()));
        let version = store.version(then, key).expect("readable");
        let expiry = store.expiry(then, key).expect("readable");
        if let (Some(value), Some(version), Some(expiry)) = (value, version, expiry) {
            seen.insert((*keyspace, key.clone()), Entry { value, version, expiry });
        }
    }
    assert!(&seen == state, "a snapshot shows {}", difference(&seen, state));
    for keyspace in KEYSPACES {
        let then = snapshot.keyspace(keyspace);
        let all: Vec<Vec<u8>> = state
            .keys()
            .filter(|(other, _)| *other == keyspace)
            .map(|(_, key)| key.clone())
            .collect();
        check_ranges(store, then, &all);
        assert_eq!(store.live_count(then), Ok(all.len() as u64), "the count of a snapshot");
        let now = store.keys(keyspace).expect("readable");
        for key in now.iter().filter(|key| all.binary_search(key).is_err()) {
            assert_eq!(store.get(then, key), Ok(None), "a key that is newer than the snapshot");
            assert_eq!(store.version(then, key), Ok(None));
        }
    }
}

/// Checks all keys, and those above, below and around the middle one.
fn check_ranges<F: File>(store: &mut Store<F>, keyspace: u32, all: &[Vec<u8>]) {
    let middle = all.len() / 2;
    let mut ranges: Vec<(KeyBounds<'_>, &[Vec<u8>])> =
        vec![((Bound::Unbounded, Bound::Unbounded), all)];
    if let Some(key) = all.get(middle) {
        let key = &key[..];
        ranges.push(((Bound::Unbounded, Bound::Excluded(key)), &all[..middle]));
        ranges.push(((Bound::Unbounded, Bound::Included(key)), &all[..=middle]));
        ranges.push(((Bound::Excluded(key), Bound::Unbounded), &all[middle + 1..]));
        ranges.push(((Bound::Included(key), Bound::Included(key)), &all[middle..=middle]));
    }
    for (bounds, wanted) in ranges {
        assert_eq!(range_of(store, keyspace, bounds, false), wanted);
        let mut back = range_of(store, keyspace, bounds, true);
        back.reverse();
        assert_eq!(back, wanted, "backwards");
        assert_eq!(store.count_range(keyspace, bounds), Ok(wanted.len() as u64));
    }
}
