//! Programs of which a call of the file fails, once or for ever, and what they have to show for it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use varve::{Error, IoError, Options, Store};

use super::crashes::keeping;
use super::fault_file::{Fault, FaultFile, Harm};
use super::images::{Limits, trail, walk};
use super::oracle::{Bounds, Commit, State, state_of};
use super::phases::Met;
use super::rng::Rng;
use super::session::{Session, Step, Taste, next_step};

pub const HARMS: [Harm; 8] = [
    Harm::Fail(IoError::Quota),
    Harm::Fail(IoError::Lost),
    Harm::Fail(IoError::Other),
    Harm::TakeNothing,
    Harm::TakePart(128),
    Harm::TakePart(255),
    Harm::TearAndFail(100, IoError::Other),
    Harm::TearAndFail(250, IoError::Quota),
];

/// From this seed on programs are about maintenance.
const MAINTENANCE: u64 = 24;
/// and from this one on of keyspaces that are emptied.
const CLEARS: u64 = 28;
/// So many are run with all tests. Those behind them are of all kinds.
pub const SEEDS: u64 = 32;

/// What was tried.
#[derive(Default)]
pub struct Tally {
    /// Programs with a failure.
    pub cases: AtomicU64,
    /// Crash states after failures.
    pub walked: AtomicU64,
    /// What was under way when each harm struck.
    pub met: Mutex<[Met; HARMS.len()]>,
}

fn is_about_maintenance(seed: u64) -> bool {
    seed >= SEEDS && !seed.is_multiple_of(3) || (MAINTENANCE..CLEARS + 2).contains(&seed)
}

/// Half of the programs run in next to no memory, so that reads fail too.
fn options_for(seed: u64) -> Options {
    let memory = if seed.is_multiple_of(2) { 64 << 20 } else { 0 };
    Options { segment_log2: 12, memory, ..Options::default() }
}

/// A program without crashes, in which every step may meet the fault.
fn program(seed: u64) -> Vec<Step> {
    let mut rng = Rng::new(seed);
    // Every fourth program is about commits of several frames, and memory that is given up.
    let maintenance = is_about_maintenance(seed);
    let bulk = !maintenance && seed % 4 == 2;
    let clears = (CLEARS..SEEDS).contains(&seed) || seed > SEEDS && seed.is_multiple_of(5);
    let taste =
        Taste { keys: 8, segment: 4096, crashes: false, bulk, maintenance, shapes: false, clears };
    let steps = if maintenance { 60 } else { 36 };
    (0..steps).map(|_| next_step(&mut rng, &taste)).collect()
}

/// Whether `error` is what the store should call the harm that was done to it.
fn is_named(harm: Harm, error: &Error) -> bool {
    let named = match harm {
        Harm::Fail(error) | Harm::TearAndFail(_, error) => Error::from(error),
        // For calls other than writes these two fail with an ordinary error.
        Harm::TakeNothing | Harm::TakePart(_) if *error == Error::Io => Error::Io,
        Harm::TakeNothing | Harm::TakePart(_) => Error::Quota,
        Harm::Die(_) => Error::Lost,
    };
    *error == named || *error == Error::Poisoned
}

/// A program of which calls of the file fail.
pub struct Trial {
    pub seed: u64,
    pub options: Options,
    pub program: Vec<Step>,
    /// Of so many failures one is followed by crashes everywhere.
    pub walks: usize,
}

impl Trial {
    fn of(seed: u64) -> Self {
        // Those about maintenance have a long history.
        let walks = if is_about_maintenance(seed) { 100 } else { 2 };
        Trial { seed, options: options_for(seed), program: program(seed), walks }
    }
}

struct Case<'a> {
    trial: &'a Trial,
    fault: Fault,
}

/// What came of a step while faults were about.
fn follow(session: &mut Session, case: &Case<'_>, step: &Step) -> Result<(), Commit> {
    let Err((error, trying)) = session.step(step) else {
        session.check();
        let is_untold = session.is_poisoned();
        assert!(
            !is_untold || session.store().has_deferred_error(),
            "{step:?}: the next call is to tell"
        );
        return Ok(());
    };
    assert!(session.disk.struck(), "{step:?} failed without a cause: {error}");
    assert!(is_named(case.fault.harm, &error), "{step:?}: {error:?} for {:?}", case.fault);
    if !session.is_open() || session.is_poisoned() {
        return Err(trying);
    }
    session.note_failure();
    session.check();
    Ok(())
}

/// Poisoned: reads live, writes are refused, and nothing more gets to the file.
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
    // There is nothing to commit any more, so these may answer either way, but write nothing. Within a
    // savepoint they are misused.
    let is_within = store.depth() > 0;
    let is_refused = |done: Result<(), Error>| match done {
        Err(Error::Misuse) => is_within,
        done => matches!(done, Ok(()) | Err(Error::Poisoned)),
    };
    assert!(is_refused(store.commit()));
    // The first one tells what maintenance within a commit has met.
    let _ = store.flush();
    assert!(is_refused(store.flush()));
    assert!(is_refused(store.witness()));
}

fn run_case(case: &Case<'_>, tally: &Tally) {
    let trial = case.trial;
    let mut session = Session::new(FaultFile::default(), trial.options, State::new());
    session.disk.arm(case.fault);
    let bounds = Bounds::only(session.start);
    if let Err(error) = session.open(bounds) {
        assert!(is_named(case.fault.harm, &error), "open: {error:?} for {:?}", case.fault);
        session.disk.heal();
        session.open(bounds).expect("opening again is all it takes");
    }
    let mut failures = 0;
    for step in &trial.program {
        match follow(&mut session, case, step) {
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
        // The last steps have succeeded, and maintenance behind one of them has met the fault.
        while session.store().depth() > 0 {
            session.step(&Step::Rollback).expect("going back writes nothing");
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
        walk_case(&session, &mut rng, tally);
    }
    let which = HARMS.iter().position(|&harm| harm == case.fault.harm).unwrap_or_default();
    let mut met = tally.met.lock().expect("no thread has panicked");
    session.disk.blows().into_iter().for_each(|phase| met[which].note(phase));
    tally.cases.fetch_add(1, Ordering::Relaxed);
}

/// Power fails somewhere in the history, failures and all.
fn walk_case(session: &Session, rng: &mut Rng, tally: &Tally) {
    let limits = Limits {
        exhaustive: 64,
        drawn: 8,
        garbled: 1,
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
        keeping(crash.image, || {
            found.unwrap_or_else(|e| panic!("{e}\n{}", trail(&events, crash.event)))
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

/// Lets every call of a seed's program fail, or as many as `sample` says, drawn by the seed.
pub fn run_seed(seed: u64, sample: Option<u64>, tally: &Tally) {
    run_trial(&Trial::of(seed), sample, tally);
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
            let (nth, harm) = (rng.below(calls as usize) as u64, *rng.pick(&HARMS));
            run(Fault { nth, lasting: rng.one_in(2), harm });
        }
        return;
    }
    for nth in 0..calls {
        for harm in HARMS {
            for lasting in [false, true] {
                run(Fault { nth, lasting, harm });
            }
        }
    }
}
