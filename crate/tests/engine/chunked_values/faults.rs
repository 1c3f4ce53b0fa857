//! Failing calls of the file and full disks: all chunks of a value exist, or none.

use varve::engine::{Error, IoError, Options, Store};

use super::options;
use crate::support::fault_file::{FailureMode, FaultFile};
use crate::support::fault_programs::{self, Tally};
use crate::support::oracle::{check_chunks, state_of};
use crate::support::rng::bytes_of;
use crate::support::session::{Step, Update, With};

/// A program whose steps all change chunked values.
fn chunked_program() -> Vec<Step> {
    let key = |i: u8| (0_u32, vec![b'k', i]);
    let set = |i: u8, len: usize| {
        let (keyspace, key) = key(i);
        Step::Set { keyspace, key, len, fill: len as u64 + u64::from(i) }
    };
    let update = |i: u8, end: Update| {
        let (keyspace, key) = key(i);
        Step::Update { keyspace, key, fill: 99, end }
    };
    let staged = |i: u8, capacity: usize, len: usize| {
        let (keyspace, key) = key(i);
        Step::Staged { keyspace, key, capacity, len, fill: capacity as u64 }
    };
    let delete = |i: u8| {
        let (keyspace, key) = key(i);
        Step::Delete { keyspace, key }
    };
    vec![
        set(1, 60),
        set(2, 1_100),
        Step::Commit,
        set(3, 5_000),
        update(2, Update::InPlace),
        Step::Flush,
        Step::Savepoint,
        set(2, 1_900),
        delete(3),
        Step::Rollback,
        Step::Savepoint,
        set(2, 1_300),
        set(1, 2_000),
        Step::Release,
        Step::Commit,
        update(1, Update::Resize(30)),
        update(2, Update::Resize(3_600)),
        staged(3, 1_800, 700),
        Step::EndTurn,
        update(3, Update::Throw),
        delete(2),
        Step::Maintain { steps: 40, all: true },
        set(2, 1_025),
        Step::Reopen,
        staged(2, 2_500, 0),
        delete(3),
        Step::Maintain { steps: 1000, all: true },
        Step::Witness,
    ]
}

#[test]
fn chunked_value_is_atomic_under_every_failing_file_call() {
    let tally = Tally::default();
    for memory in [0, 64 << 20] {
        let options = Options { memory, ..options(12) };
        let trial = fault_programs::Trial {
            seed: 1,
            options,
            program: chunked_program(),
            walks: 40,
            with: With::default(),
        };
        fault_programs::run_trial(&trial, None, &tally);
    }
    println!("{:?} failures, {:?} crashes after them", tally.cases, tally.walked);
}

/// Runs `run` in a batch that already has a write, on a disk with `free_bytes` bytes left. Returns
/// whether it was refused.
fn is_refused_without_space(
    free_bytes: u64,
    what: &str,
    run: impl FnOnce(&mut Store<FaultFile>) -> Result<(), Error>,
) -> bool {
    let file = FaultFile::default();
    let mut store = Store::open(file.clone(), options(12)).expect("it opens");
    store.set(0, b"before", &bytes_of(1, 1_700)).expect("set");
    store.flush().expect("flush");
    store.set(0, b"group", b"its first write").expect("set");
    let before = state_of(&mut store);
    file.limit(Some((file.image().len() as u64 + free_bytes, FailureMode::Fail(IoError::Quota))));
    let done = run(&mut store);
    let after = state_of(&mut store);
    check_chunks(&mut store, &after);
    if let Err(error) = &done {
        assert_eq!(*error, Error::Quota, "{what}, {free_bytes} bytes");
        assert!(after == before, "{what}, {free_bytes} bytes: the earlier batch is unchanged");
        assert!(store.pending() > 0);
    }
    store.commit().unwrap_or_else(|error| panic!("{what}, {free_bytes} bytes: {error:?}"));
    let mut left = Store::open(FaultFile::new(file.image()), options(12)).expect("it opens");
    assert!(state_of(&mut left) == after, "{what}, {free_bytes} bytes, after a crash");
    check_chunks(&mut left, &after);
    done.is_err()
}

#[test]
fn chunked_write_without_space_keeps_the_open_batch() {
    let resize = |length: usize| move |_: &mut [u8]| Ok(Some(vec![7; length]));
    let (mut refused, mut done) = (0, 0);
    for free_bytes in (0..16_384).step_by(256) {
        let all = [
            is_refused_without_space(free_bytes, "a new value", |s| {
                s.set(0, b"new", &[1; 6_000]).map(drop)
            }),
            is_refused_without_space(free_bytes, "a replaced value", |s| {
                s.set(0, b"before", &[2; 5_500]).map(drop)
            }),
            is_refused_without_space(free_bytes, "an update", |s| {
                s.update_if(0, b"before", |_| true, resize(5_900)).map(drop)
            }),
            is_refused_without_space(free_bytes, "a resized update in place", |s| {
                s.update_if(0, b"group", |_| true, resize(5_900)).map(drop)
            }),
            is_refused_without_space(free_bytes, "a short value replacing a chunked one", |s| {
                s.set(0, b"before", &[3; 1_000]).map(drop)
            }),
        ];
        refused += all.iter().filter(|&&refused| refused).count();
        done += all.iter().filter(|&&refused| !refused).count();
    }
    println!("{refused} refused, {done} done");
    assert!(refused > 20 && done > 20);
}
