//! Programs in which a call of the file fails, once or permanently, and their checks.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use varve::engine::{Error, IoError, Options, Store};

use super::crash_images::{Limits, event_log, walk};
use super::crash_programs::keep_image_on_failure;
use super::fault_file::{FailureMode, Fault, FaultFile};
use super::oracle::{Bounds, Commit, State, state_of};
use super::phases::PhaseCounts;
use super::rng::Rng;
use super::session::{Profile, Session, Step, With, next_step};

pub const FAILURE_MODES: [FailureMode; 8] = [
    FailureMode::Fail(IoError::Quota),
    FailureMode::Fail(IoError::Lost),
    FailureMode::Fail(IoError::Other),
    FailureMode::TakeNothing,
    FailureMode::TakePart(128),
    FailureMode::TakePart(255),
    FailureMode::TearAndFail(100, IoError::Other),
    FailureMode::TearAndFail(250, IoError::Quota),
];

/// Programs from this seed on concern maintenance,
const MAINTENANCE: u64 = 24;
/// and from this one on cleared keyspaces.
const CLEARS: u64 = 28;
/// This many are run by the tests. Later ones are of all kinds.
pub const SEEDS: u64 = 32;

/// What was tested.
#[derive(Default)]
pub struct Tally {
    /// Programs with a failure.
    pub cases: AtomicU64,
    /// Crash states after failures.
    pub walked: AtomicU64,
    /// The phase of each failed call, by kind of failure.
    pub met: Mutex<[PhaseCounts; FAILURE_MODES.len()]>,
}

fn is_about_maintenance(seed: u64) -> bool {
    seed >= SEEDS && !seed.is_multiple_of(3) || (MAINTENANCE..CLEARS + 2).contains(&seed)
}

/// Half of the programs run with minimal memory, so that reads fail too.
fn options_for(seed: u64) -> Options {
    let memory = if seed.is_multiple_of(2) { 64 << 20 } else { 0 };
    let load_at_once = if (seed / 2).is_multiple_of(2) { 0 } else { usize::MAX };
    let index_memory = if (seed / 4).is_multiple_of(2) { 0 } else { usize::MAX };
    Options { segment_log2: 12, memory, load_at_once, index_memory, ..Options::default() }
}

/// A program without crashes, each step of which may meet the fault.
fn program(seed: u64, with: With) -> Vec<Step> {
    let mut rng = Rng::new(seed);
    // Every fourth program concerns commits of several frames, and eviction.
    let maintenance = is_about_maintenance(seed);
    let bulk = !maintenance && seed % 4 == 2;
    let clears = (CLEARS..SEEDS).contains(&seed) || seed > SEEDS && seed.is_multiple_of(5);
    let profile = Profile {
        keys: 8,
        segment: 4096,
        crashes: false,
        bulk,
        maintenance,
        shapes: false,
        clears,
        with,
    };
    let steps = if maintenance { 60 } else { 36 };
    (0..steps).map(|_| next_step(&mut rng, &profile)).collect()
}

/// Whether `error` is the right one for a failure.
fn is_named(failure: FailureMode, error: &Error) -> bool {
    let named = match failure {
        FailureMode::Fail(error) | FailureMode::TearAndFail(_, error) => Error::from(error),
        // Calls other than writes fail with an ordinary error for these two.
        FailureMode::TakeNothing | FailureMode::TakePart(_) if *error == Error::Io => Error::Io,
        FailureMode::TakeNothing | FailureMode::TakePart(_) => Error::Quota,
        FailureMode::Die(_) => Error::Lost,
    };
    *error == named || *error == Error::Poisoned
}

/// A program in which calls of the file fail.
pub struct Trial {
    pub seed: u64,
    pub options: Options,
    pub program: Vec<Step>,
    /// One in this many failures is followed by crashes at every moment.
    pub walks: usize,
    pub with: With,
}

impl Trial {
    pub fn of(seed: u64, with: With) -> Self {
        // Programs that concern maintenance have a long history.
        let walks = if is_about_maintenance(seed) { 100 } else { 2 };
        let options = Options { keeps_history: with.history.then_some(true), ..options_for(seed) };
        Trial { seed, options, program: program(seed, with), walks, with }
    }
}

struct Case<'a> {
    trial: &'a Trial,
    fault: Fault,
}

/// Runs a step during which calls may fail, and checks the result.
fn run_step_with_faults(session: &mut Session, case: &Case<'_>, step: &Step) -> Result<(), Commit> {
    let Err((error, trying)) = session.step(step) else {
        session.check();
        let is_untold = session.is_poisoned();
        assert!(
            !is_untold || session.store().has_deferred_error(),
            "{step:?}: the next call must report the error"
        );
        return Ok(());
    };
    assert!(session.disk.struck(), "{step:?} failed without a cause: {error}");
    assert!(is_named(case.fault.failure, &error), "{step:?}: {error:?} for {:?}", case.fault);
    if !session.is_open() || session.is_poisoned() {
        return Err(trying);
    }
    session.handle_failure();
    session.check();
    Ok(())
}

/// Checks a poisoned store: reads work, writes are refused, and nothing more is written to the
/// file.
fn check_poisoned(session: &mut Session, trying: Option<Commit>) {
    let bounds = session.bounds(trying);
    let seen = session.seen();
    session.oracle.identify(&seen, bounds).unwrap_or_else(|e| panic!("poisoned: {e}"));
    let events = session.disk.event_count();
    let disk = session.disk.clone();
    disk.paused(|| refuses_writes(session.store()));
    assert!(session.seen() == seen, "refused writes change nothing");
    assert_eq!(session.disk.event_count(), events, "nothing is written when poisoned");
}

fn refuses_writes(store: &mut Store<FaultFile>) {
    assert_eq!(store.set(0, b"refused", b"value"), Err(Error::Poisoned));
    assert_eq!(store.delete(0, b"refused"), Err(Error::Poisoned));
    // There is nothing to commit any more, so these may succeed or fail, but write nothing. In a
    // savepoint they are misuse.
    let is_within = store.depth() > 0;
    let is_refused = |done: Result<(), Error>| match done {
        Err(Error::Misuse) => is_within,
        done => matches!(done, Ok(()) | Err(Error::Poisoned)),
    };
    assert!(is_refused(store.commit()));
    // The first one reports what failed in maintenance during a commit.
    let _ = store.flush();
    assert!(is_refused(store.flush()));
    assert!(is_refused(store.witness()));
}

fn run_case(case: &Case<'_>, tally: &Tally) {
    let trial = case.trial;
    let mut session = Session::new(FaultFile::default(), trial.options, State::new());
    session.may_keep_due = trial.with.expiry;
    session.disk.arm(case.fault);
    let bounds = Bounds::only(session.start);
    if let Err(error) = session.open(bounds) {
        assert!(is_named(case.fault.failure, &error), "open: {error:?} for {:?}", case.fault);
        session.disk.heal();
        session.open(bounds).expect("opening again is all it takes");
    }
    let mut failures = 0;
    for step in &trial.program {
        match run_step_with_faults(&mut session, case, step) {
            Ok(()) => {}
            Err(trying) => {
                if session.is_open() {
                    check_poisoned(&mut session, Some(trying));
                }
                session.revive(Some(trying));
            }
        }
        if session.disk.struck() {
            failures += 1;
        }
        if failures == 6 {
            session.disk.heal();
        }
    }
    if session.is_poisoned() {
        // The last steps succeeded, and maintenance after one of them met the fault.
        while session.store().depth() > 0 {
            session.step(&Step::Rollback).expect("rolling back writes nothing");
        }
        check_poisoned(&mut session, None);
        session.revive(None);
    }
    session.disk.heal();
    session.step(&Step::Set { keyspace: 0, key: b"late".to_vec(), len: 9, fill: 9 }).expect("set");
    session.finish();
    session.step(&Step::Crash).expect("open");
    session.check();
    session.step(&Step::Reopen).expect("close and open");
    session.check();
    let mut rng = Rng::new(trial.seed ^ case.fault.nth);
    if rng.one_in(trial.walks) {
        crash_after_case(&session, &mut rng, tally);
    }
    let which =
        FAILURE_MODES.iter().position(|&failure| failure == case.fault.failure).unwrap_or_default();
    let mut met = tally.met.lock().expect("no thread has panicked");
    session.disk.failed_calls().into_iter().for_each(|phase| met[which].record(phase));
    tally.cases.fetch_add(1, Ordering::Relaxed);
}

/// Crashes by power loss somewhere in the history, including the failures.
fn crash_after_case(session: &Session, rng: &mut Rng, tally: &Tally) {
    let limits = Limits {
        exhaustive: 64,
        drawn: 8,
        randomized: 1,
        patterns: 6,
        flushes_lie_from: usize::MAX,
        tear_step: 0,
    };
    let (base, events, start) = session.history();
    walk(&base, start, &events, limits, rng, |crash| {
        tally.walked.fetch_add(1, Ordering::Relaxed);
        let seen = Store::open(FaultFile::new(crash.image.clone()), session.options)
            .map_err(|e| format!("it does not open: {e}"))
            .map(|mut store| state_of(&mut store));
        let found = seen.and_then(|seen| session.oracle.identify(&seen, crash.bounds));
        keep_image_on_failure(crash.image, || {
            found.unwrap_or_else(|e| panic!("{e}\n{}", event_log(&events, crash.event)))
        });
    });
}

fn calls_of(trial: &Trial) -> u64 {
    let mut session = Session::new(FaultFile::default(), trial.options, State::new());
    session.open(Bounds::only(session.start)).expect("open");
    for step in &trial.program {
        session.step(step).expect("nothing fails here");
    }
    session.disk.calls()
}

/// Makes every call of a seed's program fail, or `sample` of them, selected by the seed.
pub fn run_seed(seed: u64, sample: Option<u64>, tally: &Tally) {
    run_trial(&Trial::of(seed, With::default()), sample, tally);
}

/// The same for any program.
pub fn run_trial(trial: &Trial, sample: Option<u64>, tally: &Tally) {
    let seed = trial.seed;
    let run = |fault: Fault| {
        let case = Case { trial, fault };
        let run = std::panic::AssertUnwindSafe(|| run_case(&case, tally));
        if let Err(cause) = std::panic::catch_unwind(run) {
            eprintln!("VARVE_FAULT_SEED={seed} replays it: {fault:?}");
            std::panic::resume_unwind(cause);
        }
    };
    let calls = calls_of(trial);
    if let Some(count) = sample {
        let mut rng = Rng::new(!seed);
        for _ in 0..count {
            let (nth, failure) = (rng.below(calls as usize) as u64, *rng.pick(&FAILURE_MODES));
            run(Fault { nth, lasting: rng.one_in(2), failure });
        }
        return;
    }
    for nth in 0..calls {
        for failure in FAILURE_MODES {
            for lasting in [false, true] {
                run(Fault { nth, lasting, failure });
            }
        }
    }
}
