//! Assembled chunked values in memory: they stay while pinned, and count towards the budget.

use varve::engine::{Options, Store};

use super::{Shared, open, options, run_all_maintenance, store_with_chunked_value};
use crate::support::rng::bytes_of;

#[test]
fn pinned_chunked_value_survives_changes_of_its_key() {
    for (memory, what) in
        [0, 64 << 20].into_iter().flat_map(|memory| (0..6).map(move |i| (memory, i)))
    {
        let file = Shared::default();
        let mut store = store_with_chunked_value(&file, Options { memory, ..options(12) });
        let pinned = bytes_of(7, 1_500);
        let pins = [(); 2].map(|()| store.pin(0, b"large").expect("pin").expect("it is there"));
        match what {
            0 => drop(store.set(0, b"large", &bytes_of(70, 1_500)).expect("set")),
            1 => assert_eq!(store.delete(0, b"large"), Ok(true)),
            2 => {
                let update = |bytes: &mut [u8]| {
                    bytes.fill(1);
                    Ok(None)
                };
                assert_eq!(store.update_if(0, b"large", |_| true, update), Ok(true));
            }
            3 => {
                let savepoint = store.savepoint();
                store.delete(0, b"large").expect("delete");
                store.set(0, b"large", &[5; 3_000]).expect("set");
                store.rollback(savepoint);
            }
            4 => {
                store.begin_update(0, b"large").expect("begin");
                store.staged_value().fill(9);
                store.abort();
            }
            _ => {}
        }
        let is_same = |store: &mut Store<Shared>, pin: u32, when: &str| {
            assert!(store.pinned(pin) == Some(&pinned), "{memory} bytes, case {what}, {when}");
        };
        is_same(&mut store, pins[0], "at once");
        store.commit().expect("commit");
        store.end_turn();
        store.unpin(pins[1]);
        for round in 0..60_u64 {
            // Large values of all kinds, so that buffers are evicted and slots reused.
            store
                .set(0, &round.to_be_bytes()[7..], &bytes_of(round, 900 + 40 * round as usize))
                .expect("set");
            store.set(0, b"hot", &bytes_of(round, 2_000)).expect("set");
            store.commit().expect("commit");
            is_same(&mut store, pins[0], "while others are written");
            store.end_turn();
            store.maintain(round % 20 == 0).expect("maintain");
            is_same(&mut store, pins[0], "after maintenance");
        }
        run_all_maintenance(&mut store);
        is_same(&mut store, pins[0], "after all maintenance");
        let held = store.stats().memory_bytes;
        store.unpin(pins[0]);
        assert_eq!(store.pinned(pins[0]), None);
        store.end_turn();
        assert!(store.stats().memory_bytes <= held);
    }
}

#[test]
fn chunked_values_stay_within_the_memory_budget() {
    let options = Options { memory: 4 << 20, ..Options::default() };
    let file = Shared::default();
    let mut store = open(&file, options);
    let length = |i: u8| 600_000 + 20_000 * usize::from(i);
    for i in 0..20_u8 {
        store.set(0, &[i], &bytes_of(i.into(), length(i))).expect("set");
        store.commit().expect("commit");
        store.end_turn();
        let held = store.stats().memory_bytes;
        assert!(held <= 7 << 20, "{held} bytes after value {i} was written");
    }
    for i in (0..20_u8).chain((0..20).rev()) {
        assert!(store.get(0, &[i]) == Ok(Some(&bytes_of(i.into(), length(i)))), "value {i}");
        store.end_turn();
        let held = store.stats().memory_bytes;
        assert!(held <= 6 << 20, "{held} bytes after value {i} was read");
    }
}
