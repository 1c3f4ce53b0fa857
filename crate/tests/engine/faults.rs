//! The N-th call of the file fails, for every N, once or for ever, in every way that files fail:
//! the error is told, the state is the one before the group, and what a crash leaves afterwards is
//! still an exact prefix of commits.

use std::sync::atomic::Ordering;

use crate::support::crashes::on_two_threads;
use crate::support::failures::{HARMS, SEEDS, Tally, run_seed};
use crate::support::phases::{FAILING, Met, Phase};
use crate::support::rng::replayed;

#[test]
fn whichever_call_fails_nothing_is_lost_and_nothing_half_done() {
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
