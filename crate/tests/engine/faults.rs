//! Makes the N-th call of the file fail, for every N, once or permanently, in every way that files
//! fail. The error is reported, the state is the one before the batch, and a crash afterwards still
//! leaves an exact prefix of commits.

use std::sync::atomic::Ordering;

use varve::engine::{Error, IoError, Options, Store};

use crate::support::crash_programs::on_two_threads;
use crate::support::fault_file::{FailureMode, Fault, FaultFile};
use crate::support::fault_programs::{FAILURE_MODES, SEEDS, Tally, Trial, run_seed, run_trial};
use crate::support::phases::{FAILING, Phase, PhaseCounts, Stage};
use crate::support::rng::replayed;
use crate::support::session::With;

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
    for (failure, met) in FAILURE_MODES.iter().zip(met.iter()) {
        let missing = met.missing(&FAILING, 1);
        assert!(missing.is_empty(), "{failure:?} never struck in {missing:?}: {met:?}");
    }
    // Rolling back a batch reads before it writes, so only a full disk can fail it there.
    let mut all = PhaseCounts::default();
    met.iter().for_each(|met| all.add(met));
    assert_eq!(all.missing(&[Phase::Rollback], 10), [], "{all:?}");
}

/// A segment was freed without a flush although the flush of a failed batch had included it: power loss then
/// brought back an old state.
#[test]
fn segment_that_a_failed_batch_flushed_is_freed_in_order() {
    run_seed(669_802_455_675_370, None, &Tally::default());
}

/// Overwrites a few keys, one commit each, until the faulty call has happened. Returns whether it
/// poisoned a store whose commit had succeeded.
fn poisons_after_commit(nth: u64) -> Option<bool> {
    let file = FaultFile::default();
    let options = Options { segment_log2: 12, ..Options::default() };
    let mut store = Store::open(file.clone(), options).expect("opens");
    file.arm(Fault { nth, lasting: false, failure: FailureMode::Fail(IoError::Other) });
    for i in 0..300_u64 {
        let done = store.set(0, &[(i % 7) as u8], &[i as u8; 200]).and_then(|_| store.commit());
        if file.struck() {
            let is_hidden = done.is_ok() && store.stats().poisoned;
            if is_hidden {
                assert!(store.has_deferred_error(), "call {nth}: the error must be reported");
                assert_eq!(store.set(0, b"more", b""), Err(Error::Poisoned), "call {nth}");
                assert_eq!(
                    store.flush(),
                    Err(Error::Io),
                    "call {nth}: the original error is reported"
                );
                assert!(!store.has_deferred_error(), "call {nth}: once");
            }
            return Some(is_hidden);
        }
    }
    None
}

#[test]
fn poisoning_after_a_successful_commit_is_reported_by_the_next_call() {
    let hidden = (0..).map_while(poisons_after_commit).filter(|&hidden| hidden).count();
    println!("{hidden} failing calls after a commit poison the store");
    assert!(hidden > 10);
}

/// Overwrites `keys` keys, does `steps` steps of a compaction, flushes, and closes the store on a
/// disk that is full from the `nth` call of the close on. Returns whether the close could not undo
/// its write, which then must be its last call; none if it made fewer calls.
fn close_cannot_undo(keys: u64, steps: usize, nth: u64) -> Option<bool> {
    let file = FaultFile::default();
    let options = Options { segment_log2: 12, ..Options::default() };
    let mut store = Store::open(file.clone(), options).expect("opens");
    for i in 0..140_u64 {
        // Segments that stay full, and then segments that become empty.
        let key = if i < 40 { 100 + i } else { i % keys };
        store.set(0, &key.to_le_bytes(), &[i as u8; 200]).expect("set");
        store.commit().expect("committed");
    }
    for slice in 0..steps {
        store.maintain(slice == 0).expect("tended");
    }
    store.flush().expect("flushed");
    file.enter(Stage::Closing);
    file.arm(Fault { nth, lasting: true, failure: FailureMode::TearAndFail(128, IoError::Quota) });
    let closed = store.close().map(drop).map_err(|(_, error)| error);
    let failed_calls = file.failed_calls();
    let torn = failed_calls.windows(2).position(|two| two == [Phase::Commit, Phase::Erasure]);
    if let Some(torn) = torn {
        assert_eq!(closed, Err(Error::Quota), "{steps} slices, call {nth}: {failed_calls:?}");
        assert_eq!(failed_calls.len(), torn + 2, "{steps} slices, call {nth}: {failed_calls:?}");
    }
    file.struck().then_some(torn.is_some())
}

#[test]
fn close_that_cannot_undo_its_write_fails_and_stops_writing() {
    let closes = |(keys, steps)| (0..).map_while(move |nth| close_cannot_undo(keys, steps, nth));
    let states = [20, 25, 33].into_iter().flat_map(|keys| (0..60).map(move |steps| (keys, steps)));
    let poisoned = states.flat_map(closes).filter(|&poisoned| poisoned).count();
    println!("{poisoned} closes cannot undo their write");
    assert!(poisoned > 4);
}

#[test]
fn failing_calls_with_expiry_and_kept_history_lose_nothing_without_an_error() {
    const WITH: With = With { snapshots: true, expiry: true, history: true };
    let tally = Tally::default();
    if let Some(seed) = replayed("VARVE_HISTORY_FAULT_SEED") {
        return run_trial(&Trial::of(seed, WITH), Some(60), &tally);
    }
    let seeds = replayed("VARVE_HISTORY_FAULT_SEEDS").unwrap_or(8);
    on_two_threads(9000..9000 + seeds, |seed| {
        run_trial(&Trial::of(seed, WITH), Some(60), &tally);
    });
    assert_eq!(tally.cases.into_inner(), 60 * seeds);
    assert!(tally.walked.into_inner() > 1000);
}

#[test]
fn programs_with_expiry_that_failed_once_lose_nothing() {
    let tally = Tally::default();
    // A clear record whose predecessor compaction had dropped was counted twice. And a snapshot hid what expired
    // after it was taken, once the store could not be written to. The last one counts a snapshot of a store that
    // could not delete what had expired.
    let programs =
        [(669_908_539_687_825, false), (669_909_234_184_409, true), (669_916_209_274_713, true)];
    for (seed, snapshots) in programs {
        let with = With { snapshots, expiry: true, history: false };
        run_trial(&Trial::of(seed, with), Some(200), &tally);
    }
    assert_eq!(tally.cases.into_inner(), 600);
}
