//! The N-th call of the file fails, for every N, once or for ever, in every way that files fail:
//! the error is told, the state is the one before the group, and what a crash leaves afterwards is
//! still an exact prefix of commits.

use varve::{Error, IoError, Options, Store};

use crate::support::fault_file::{Fault, FaultFile, Harm};
use crate::support::images::{Limits, trail, walk};
use crate::support::oracle::{Bounds, Commit, State, state_of};
use crate::support::rng::{Rng, replayed};
use crate::support::session::{Session, Step, Taste, next_step};

const HARMS: [Harm; 8] = [
    Harm::Fail(IoError::Quota),
    Harm::Fail(IoError::Lost),
    Harm::Fail(IoError::Other),
    Harm::TakeNothing,
    Harm::TakePart(128),
    Harm::TakePart(255),
    Harm::TearAndFail(100, IoError::Other),
    Harm::TearAndFail(250, IoError::Quota),
];

/// From this seed on programs are about housekeeping.
const HOUSE: u64 = 24;
const SEEDS: u64 = 28;

/// Half of the programs run in next to no memory, so that reads fail too.
fn options_for(seed: u64) -> Options {
    let memory = if seed.is_multiple_of(2) { 64 << 20 } else { 0 };
    Options { segment_log2: 12, memory, ..Options::default() }
}

/// A program without crashes, in which every step may meet the fault.
fn program(seed: u64) -> Vec<Step> {
    let mut rng = Rng::new(seed);
    // Every fourth program is about commits of several frames, and memory that is given up.
    let house = seed >= HOUSE;
    let bulk = !house && seed % 4 == 2;
    let taste = Taste { keys: 8, segment: 4096, crashes: false, bulk, house };
    let steps = if house { 60 } else { 36 };
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

struct Case {
    seed: u64,
    fault: Fault,
}

/// What came of a step while faults were about.
fn follow(session: &mut Session, case: &Case, step: &Step) -> Result<(), Commit> {
    let Err((error, trying)) = session.step(step) else {
        session.check();
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
fn check_poisoned(session: &mut Session, trying: Commit) {
    let bounds = session.bounds(Some(trying));
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
    // There is nothing to commit any more, so these may answer either way, but write nothing.
    assert!(matches!(store.commit(), Ok(()) | Err(Error::Poisoned)));
    // The first one tells what housekeeping within a commit has met.
    let _ = store.flush();
    assert!(matches!(store.flush(), Ok(()) | Err(Error::Poisoned)));
    assert!(matches!(store.witness(), Ok(()) | Err(Error::Poisoned)));
}

fn run_case(case: &Case, walked: &mut u64) {
    let mut session = Session::new(FaultFile::default(), options_for(case.seed), State::new());
    session.disk.arm(case.fault);
    let bounds = Bounds::only(session.start);
    if let Err(error) = session.open(bounds) {
        assert!(is_named(case.fault.harm, &error), "open: {error:?} for {:?}", case.fault);
        session.disk.heal();
        session.open(bounds).expect("opening again is all it takes");
    }
    let mut failures = 0;
    for step in program(case.seed) {
        match follow(&mut session, case, &step) {
            Ok(()) => {}
            Err(trying) => {
                if session.is_open() {
                    check_poisoned(&mut session, trying);
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
    session.disk.heal();
    session.step(&Step::Set { keyspace: 0, key: b"late".to_vec(), len: 9, fill: 9 }).expect("set");
    session.finish();
    session.step(&Step::Crash).expect("open");
    session.check();
    session.step(&Step::Reopen).expect("close and open");
    session.check();
    let mut rng = Rng::new(case.seed ^ case.fault.nth);
    // Those about housekeeping have a long history.
    if rng.one_in(if case.seed >= HOUSE { 100 } else { 2 }) {
        *walked += walk_case(&session, &mut rng);
    }
}

/// Power fails somewhere in the history, failures and all.
fn walk_case(session: &Session, rng: &mut Rng) -> u64 {
    let limits = Limits {
        exhaustive: 64,
        drawn: 8,
        patterns: 6,
        flushes_lie_from: usize::MAX,
        tear_step: 0,
    };
    let (base, events, start) = session.history();
    let mut states = 0;
    walk(&base, start, &events, limits, rng, |crash| {
        states += 1;
        let seen = Store::open(FaultFile::new(crash.image.to_vec()), session.options)
            .map_err(|e| format!("it does not open: {e}"))
            .map(|mut store| state_of(&mut store));
        let found = seen.and_then(|seen| session.oracle.identify(&seen, crash.bounds));
        found.unwrap_or_else(|e| panic!("{e}\n{}", trail(&events, crash.event)));
    });
    states
}

fn calls_of(seed: u64) -> u64 {
    let mut session = Session::new(FaultFile::default(), options_for(seed), State::new());
    session.open(Bounds::only(session.start)).expect("open");
    for step in program(seed) {
        session.step(&step).expect("nothing fails here");
    }
    session.disk.calls()
}

fn run_seed(seed: u64) -> (u64, u64) {
    let (mut cases, mut walked) = (0, 0);
    for nth in 0..calls_of(seed) {
        for harm in HARMS {
            for lasting in [false, true] {
                cases += 1;
                let case = Case { seed, fault: Fault { nth, lasting, harm } };
                let run = std::panic::AssertUnwindSafe(|| run_case(&case, &mut walked));
                if let Err(cause) = std::panic::catch_unwind(run) {
                    eprintln!("VARVE_FAULT_SEED={seed} replays it: {:?}", case.fault);
                    std::panic::resume_unwind(cause);
                }
            }
        }
    }
    (cases, walked)
}

#[test]
fn whichever_call_fails_nothing_is_lost_and_nothing_half_done() {
    let seeds = match replayed("VARVE_FAULT_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..replayed("VARVE_FAULT_SEEDS").unwrap_or(SEEDS),
    };
    let counts = seeds.map(run_seed);
    let (cases, walked) = counts.fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
    println!("{cases} failures, {walked} crash states after them");
}
