//! Batched sets: they equal single sets, and cannot fail where the store says so.

use varve::engine::{MemoryFile, Options, Savepoint, Set, Store};

use crate::support::fault_file::FaultFile;
use crate::support::rng::{Rng, bytes_of};

/// Long runs of the same key, and records of every kind.
const KEYS: usize = 120;

/// Small segments with cold records, small segments in memory, and a database of one segment.
fn all_options() -> [Options; 3] {
    let small = Options { segment_log2: 12, memory: 0, ..Options::default() };
    [small, Options { memory: 1 << 20, ..small }, Options::default()]
}

type Pair = (Vec<u8>, Vec<u8>);

fn pairs(rng: &mut Rng, count: usize, longest: usize) -> Vec<Pair> {
    let pair = |rng: &mut Rng| {
        // Two in three have the same length, so that some are overwritten in place.
        let length = if rng.one_in(3) { rng.below(longest) } else { 24 };
        (format!("key {}", rng.below(KEYS)).into_bytes(), bytes_of(rng.next(), length))
    };
    (0..count).map(|_| pair(rng)).collect()
}

fn as_sets(pairs: &[Pair]) -> Vec<Set<'_>> {
    pairs.iter().map(|(key, value)| Set { keyspace: 0, key, value }).collect()
}

/// Does something other than setting, the same in every store that has the same random numbers.
fn do_other_operation<F: varve::engine::File>(
    store: &mut Store<F>,
    savepoints: &mut Vec<Savepoint>,
    rng: &mut Rng,
) {
    let key = format!("key {}", rng.below(KEYS)).into_bytes();
    match rng.below(10) {
        0 => drop(store.get(0, &key).expect("get").map(<[u8]>::to_vec)),
        1 => drop(store.delete(0, &key).expect("delete")),
        2 => savepoints.push(store.savepoint()),
        3 => savepoints.pop().map_or((), |savepoint| store.rollback(savepoint)),
        4 => savepoints.pop().map_or((), |savepoint| store.release(savepoint).expect("release")),
        5 => drop(store.update_if(
            0,
            &key,
            |_| true,
            |value| {
                value.reverse();
                Ok(None)
            },
        )),
        6 => drop(store.set(0, &key, &bytes_of(rng.next(), 3300)).expect("set")),
        7 => drop(store.keys(0).expect("keys")),
        _ if savepoints.is_empty() => {
            store.commit().expect("commit");
            store.end_turn();
            store.maintain(false).expect("maintain");
        }
        _ => {}
    }
}

#[test]
fn batched_sets_write_the_bytes_of_single_sets() {
    for (options, seed) in all_options().into_iter().flat_map(|o| (0..20).map(move |s| (o, s))) {
        let life = |at_once: bool| {
            let mut rng = Rng::new(seed);
            let mut store = Store::open(MemoryFile::default(), options).expect("open");
            let mut savepoints = Vec::new();
            for _ in 0..300 {
                let count = rng.below(40);
                let pairs = pairs(&mut rng, count, 1500);
                if at_once {
                    store.set_many(&as_sets(&pairs)).expect("set");
                } else {
                    for (key, value) in &pairs {
                        store.set(0, key, value).expect("set");
                    }
                }
                do_other_operation(&mut store, &mut savepoints, &mut rng);
            }
            let stats = store.stats();
            (stats, store.close().map_err(|(_, error)| error).expect("close").bytes)
        };
        let (one, many) = (life(false), life(true));
        assert_eq!(one.0, many.0, "seed {seed}");
        assert!(one.1 == many.1, "the files differ, seed {seed}");
    }
}

#[test]
fn infallible_sets_make_no_file_call() {
    let mut sure = [0; 3];
    for ((i, options), seed) in
        all_options().into_iter().enumerate().flat_map(|o| (0..20).map(move |s| (o, s)))
    {
        let mut rng = Rng::new(seed);
        let file = FaultFile::default();
        let mut store = Store::open(file.clone(), options).expect("open");
        let mut savepoints = Vec::new();
        for step in 0..400 {
            if step == 200 {
                savepoints.clear();
                drop(store.close().map_err(|(_, error)| error).expect("close"));
                store = Store::open(file.clone(), options).expect("open");
            }
            do_other_operation(&mut store, &mut savepoints, &mut rng);
            let first = pairs(&mut rng, 1, 100).remove(0);
            store.set(0, &first.0, &first.1).expect("set");
            let capacity = store.infallible_capacity();
            let mut pairs = pairs(&mut rng, 60, 200);
            let mut queued = 0;
            let padded = |bytes: &Vec<u8>| bytes.len().next_multiple_of(8);
            pairs.retain(|(key, value)| {
                let size = 40 + padded(key) + padded(value);
                let fits = queued + size <= capacity;
                queued += if fits { size } else { 0 };
                fits
            });
            let (calls, pending) = (file.calls(), store.pending());
            store.set_many(&as_sets(&pairs)).expect("they cannot fail");
            assert_eq!(file.calls(), calls, "seed {seed}, step {step}");
            assert!(store.pending() >= pending, "no call of the file was made");
            sure[i] += pairs.len();
        }
    }
    let [cold, resident, large] = sure;
    assert!(cold < resident && resident > 10_000 && large > 10_000, "{sure:?}");
}
