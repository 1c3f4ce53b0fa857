//! The N-th call of the file fails, for every N, once or for ever, in every way that files fail:
//! the error is told, the state is the one before the group, and what a crash leaves afterwards is
//! still an exact prefix of commits.

use std::sync::atomic::Ordering;

use varve::{Error, IoError, Options, Store};

use crate::support::crashes::on_two_threads;
use crate::support::failures::{HARMS, SEEDS, Tally, run_seed};
use crate::support::fault_file::{Fault, FaultFile, Harm};
use crate::support::phases::{FAILING, Met, Phase, Stage};
use crate::support::rng::replayed;

#[test]
fn every_failing_file_call_keeps_data_and_atomicity() {
    let tally = Tally::default();
    if let Some(seed) = replayed("VARVE_FAULT_SEED") {
        return run_seed(seed, None, &tally);
    }
    let seeds = replayed("VARVE_FAULT_SEEDS").unwrap_or(SEEDS);
    on_two_threads(0..seeds, |seed| run_seed(seed, None, &tally));
    let [cases, walked] = [&tally.cases, &tally.walked].map(|count| count.load(Ordering::Relaxed));
    println!("{cases} failures, {walked} crash states after them");
    let met = tally.met.lock().expect("no thread has panicked");
    for (harm, met) in HARMS.iter().zip(met.iter()) {
        let missing = met.missing(&FAILING, 1);
        assert!(missing.is_empty(), "{harm:?} never struck in {missing:?}: {met:?}");
    }
    // What takes a group back reads before it writes: only a full disk fails it there.
    let mut all = Met::default();
    met.iter().for_each(|met| all.add(met));
    assert_eq!(all.missing(&[Phase::Rollback], 10), [], "{all:?}");
}

/// Overwrites a few keys, a commit each, until the call of the file that is to fail has failed; answers
/// whether it poisoned a store whose commit succeeded.
fn is_poisoned_behind_a_commit(nth: u64) -> Option<bool> {
    let file = FaultFile::default();
    let options = Options { segment_log2: 12, ..Options::default() };
    let mut store = Store::open(file.clone(), options).expect("opens");
    file.arm(Fault { nth, lasting: false, harm: Harm::Fail(IoError::Other) });
    for i in 0..300_u64 {
        let done = store.set(0, &[(i % 7) as u8], &[i as u8; 200]).and_then(|_| store.commit());
        if file.struck() {
            let is_hidden = done.is_ok() && store.stats().poisoned;
            if is_hidden {
                assert!(store.has_deferred_error(), "call {nth}: somebody has to tell");
                assert_eq!(store.set(0, b"more", b""), Err(Error::Poisoned), "call {nth}");
                assert_eq!(store.flush(), Err(Error::Io), "call {nth}: what it was is told");
                assert!(!store.has_deferred_error(), "call {nth}: once");
            }
            return Some(is_hidden);
        }
    }
    None
}

#[test]
fn poisoning_after_a_successful_commit_is_reported_by_the_next_call() {
    let hidden = (0..).map_while(is_poisoned_behind_a_commit).filter(|&hidden| hidden).count();
    println!("{hidden} calls of the file that fail behind a commit poison the store");
    assert!(hidden > 10);
}

/// Overwrites so many keys, does so many slices of a compaction, flushes, and closes the store on a disk
/// that is full from one of the close's calls on. Answers whether the close could not take back what it
/// had written, which then must be the last that it did; none when it made no such call.
fn is_poisoned_by_its_close(keys: u64, slices: usize, nth: u64) -> Option<bool> {
    let file = FaultFile::default();
    let options = Options { segment_log2: 12, ..Options::default() };
    let mut store = Store::open(file.clone(), options).expect("opens");
    for i in 0..140_u64 {
        // Segments that nothing is taken from, and then some of which all is.
        let key = if i < 40 { 100 + i } else { i % keys };
        store.set(0, &key.to_le_bytes(), &[i as u8; 200]).expect("set");
        store.commit().expect("committed");
    }
    for slice in 0..slices {
        store.maintain(slice == 0).expect("tended");
    }
    store.flush().expect("flushed");
    file.enter(Stage::Closing);
    file.arm(Fault { nth, lasting: true, harm: Harm::TearAndFail(128, IoError::Quota) });
    let closed = store.close().map(drop).map_err(|(_, error)| error);
    let blows = file.blows();
    let torn = blows.windows(2).position(|two| two == [Phase::Commit, Phase::Erasing]);
    if let Some(torn) = torn {
        assert_eq!(closed, Err(Error::Quota), "{slices} slices, call {nth}: {blows:?}");
        assert_eq!(blows.len(), torn + 2, "{slices} slices, call {nth}: {blows:?}");
    }
    file.struck().then_some(torn.is_some())
}

#[test]
fn close_that_cannot_undo_its_write_fails_and_stops_writing() {
    let closes =
        |(keys, slices)| (0..).map_while(move |nth| is_poisoned_by_its_close(keys, slices, nth));
    let states =
        [20, 25, 33].into_iter().flat_map(|keys| (0..60).map(move |slices| (keys, slices)));
    let poisoned = states.flat_map(closes).filter(|&poisoned| poisoned).count();
    println!("{poisoned} closes poison the store by what they cannot take back");
    assert!(poisoned > 4);
}
