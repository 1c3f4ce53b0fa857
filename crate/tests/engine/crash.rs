//! Crashes, enumerated: whatever moment the process or the system dies at, the file opens, shows
//! exactly the state after some commit, none that was flushed is missing, and it goes on from there.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use varve::{Error, Options, Store};

use crate::support::census::{UnderWay, census};
use crate::support::fault_file::{Event, Fault, FaultFile, Harm};
use crate::support::images::{Crash, Death, Limits, trail, walk};
use crate::support::oracle::{Bounds, Entry, Oracle, State, difference, state_of};
use crate::support::rng::{Rng, bytes_of, replayed};
use crate::support::session::{Session, Step, Taste, Update, next_step};

/// Crash states that the ordinary test run has to reach.
const REQUIRED: u64 = 100_000;
/// Of them those about extents, commits of several frames, and eviction, each.
const REQUIRED_OF_EACH: u64 = 10_000;

/// Programs below this seed have their writes torn at every byte; the others are about power loss.
const TORN: u64 = 14;
const SEEDS: u64 = 126;
/// From this seed on they are about commits of several frames, and memory that is given up,
const BULK: u64 = 100;
/// and from this one on about housekeeping.
const HOUSE: u64 = 120;

const LIMITS: Limits =
    Limits { exhaustive: 300, drawn: 40, patterns: 16, flushes_lie_from: usize::MAX, tear_step: 1 };

#[derive(Default)]
struct Tally {
    process: AtomicU64,
    system: AtomicU64,
    nested: AtomicU64,
    /// Of all these, opened from a checkpoint, and the same once more without it.
    from_checkpoint: AtomicU64,
    without: AtomicU64,
    /// Of the first two, those in which a commit with an extent was torn or not flushed, one of
    /// several frames, or in which memory had been given up before.
    extents: AtomicU64,
    frames: AtomicU64,
    evicted: AtomicU64,
}

impl Tally {
    fn note(&self, crash: &Crash<'_>, under_way: [UnderWay; 2], evicted: bool) {
        let (counter, which) = match crash.death {
            Death::Process => (&self.process, under_way[0]),
            Death::System => (&self.system, under_way[1]),
        };
        let more =
            [(&self.extents, which.extent), (&self.frames, which.frames), (&self.evicted, evicted)];
        add(counter);
        more.iter().filter(|(_, holds)| *holds).for_each(|(counter, _)| add(counter));
    }
}

fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

fn options_for(seed: u64) -> Options {
    let bulk = (BULK..HOUSE).contains(&seed);
    let segment_log2 = if seed >= BULK { 12 } else { 12 + (seed % 3) as u8 };
    let memory = if bulk || seed.is_multiple_of(3) { 0 } else { 64 << 20 };
    Options { segment_log2, entropy: [seed, 2, 3, 4], memory, ..Options::default() }
}

/// Runs a random program of `steps` steps, dying and coming back on the way.
fn run_program(session: &mut Session, rng: &mut Rng, steps: usize) {
    let segment = 1 << session.options.segment_log2;
    let [seed, ..] = session.options.entropy;
    let (bulk, house) = ((BULK..HOUSE).contains(&seed), seed >= HOUSE);
    let taste = Taste { keys: rng.within(3..14), segment, crashes: true, bulk, house };
    for _ in 0..steps {
        let step = next_step(rng, &taste);
        if let Step::Die { ahead, byte } = step {
            session.disk.arm(Fault { nth: ahead, lasting: false, harm: Harm::Die(byte) });
        }
        let outcome = session.step(&step);
        match outcome {
            Err((_, trying)) if session.disk.is_dead() => session.revive(Some(trying)),
            Err((error, _)) => panic!("{step:?} failed: {error}"),
            Ok(()) if session.disk.is_dead() => session.revive(None),
            Ok(()) => {}
        }
        session.check();
    }
    session.disk.heal();
}

/// Destroys every checkpoint in an image.
fn without_checkpoints(image: &[u8]) -> Vec<u8> {
    let mut image = image.to_vec();
    for at in (8192 + 64..image.len().saturating_sub(16)).step_by(1 << 12) {
        if &image[at + 8..at + 12] == b"VCKP" {
            image[at + 8] = b'X';
        }
    }
    image
}

/// What every crash state has to pass. Answers the content that it shows.
fn verify(oracle: &Oracle, options: &Options, crash: &Crash<'_>, tally: &Tally) -> State {
    let file = FaultFile::new(crash.image.to_vec());
    let mut store =
        Store::open(file.clone(), *options).unwrap_or_else(|e| panic!("it does not open: {e}"));
    let seen = state_of(&mut store);
    oracle.identify(&seen, crash.bounds).unwrap_or_else(|e| panic!("{e}"));
    if store.recovery().checkpoint {
        add(&tally.from_checkpoint);
        // The log alone tells the same.
        if crash.event.is_multiple_of(3) {
            add(&tally.without);
            let bare = FaultFile::new(without_checkpoints(crash.image));
            let mut store =
                Store::open(bare, *options).unwrap_or_else(|e| panic!("without checkpoint: {e}"));
            assert!(!store.recovery().checkpoint, "the checkpoint was destroyed");
            let bare = state_of(&mut store);
            assert!(bare == seen, "without checkpoint it shows {}", difference(&bare, &seen));
        }
    }
    drop(store.into_file());

    let mut store =
        Store::open(file.clone(), *options).unwrap_or_else(|e| panic!("not a second time: {e}"));
    let again = state_of(&mut store);
    assert!(again == seen, "a second open shows {}", difference(&again, &seen));

    let version = store.set(0, b"after", b"the crash").expect("it can be written to");
    // Power loss may take a whole session with all its traces, but not one that was flushed.
    let known = if crash.death == Death::Process { crash.bounds.tip } else { crash.bounds.floor };
    let given = oracle.state(known).values().map(|e| e.version).max();
    assert!(Some(version) > given, "version {version} is given again, after {given:?}");
    let value = b"the crash".as_slice().into();
    let mut expected = seen.clone();
    expected.insert((0, b"after".to_vec()), Entry { value, version });
    store.close().map_err(|(_, e)| e).expect("it closes");
    let mut store = Store::open(file, *options).expect("it opens after its close");
    assert!(store.recovery().clean, "its close is noticed");
    let seen_last = state_of(&mut store);
    assert!(
        seen_last == expected,
        "after its close it shows {}",
        difference(&seen_last, &expected)
    );
    seen
}

/// Dies again while recovering from `crash`, at every moment of it and of a few commits after it.
fn verify_nested(options: &Options, image: &[u8], state: State, rng: &mut Rng, tally: &Tally) {
    let mut session = Session::new(FaultFile::new(image.to_vec()), *options, state);
    session.open(Bounds::only(session.start)).expect("it opened before");
    let at =
        |i: usize| Step::Set { keyspace: 0, key: vec![i as u8], len: 20 * i, fill: 77 * i as u64 };
    for step in [at(1), Step::Commit, at(2), Step::Flush, at(3), Step::Reopen] {
        session.step(&step).unwrap_or_else(|(e, _)| panic!("{step:?} failed: {e}"));
    }
    let (base, events, start) = session.history();
    let tear_step = usize::from(rng.one_in(6));
    let limits = Limits { exhaustive: 24, drawn: 4, patterns: 3, tear_step, ..LIMITS };
    walk(&base, start, &events, limits, rng, |crash| {
        add(&tally.nested);
        verify(&session.oracle, options, crash, tally);
    });
}

/// One generation after another, each beginning with what a crash of the one before left.
fn run_seed(seed: u64, tally: &Tally) {
    let mut rng = Rng::new(seed);
    let options = options_for(seed);
    let (mut image, mut state) = (vec![], State::new());
    for generation in 0..4 {
        let disk = FaultFile::new(image.clone()).with_short_reads(seed);
        let mut session = Session::new(disk, options, state.clone());
        let steps = rng.within(10..60);
        let disk = session.disk.clone();
        let place = || {
            let (events, count) = (disk.history().1, disk.event_count());
            format!("generation {generation}, in the program\n{}", trail(&events, count))
        };
        explain(seed, place, || {
            session.open(Bounds::only(session.start)).expect("it opens");
            run_program(&mut session, &mut rng, steps);
        });
        let (base, events, start) = session.history();
        let census = census(&events);
        let mut drawn = 0;
        let mut walker_rng = Rng::new(rng.next());
        let limits = Limits { tear_step: usize::from(seed < TORN), ..LIMITS };
        walk(&base, start, &events, limits, &mut walker_rng, |crash| {
            let evicted = session.evicted_at.is_some_and(|at| at <= crash.event);
            tally.note(crash, census[crash.event], evicted);
            let place = || {
                let (trail, bounds) = (trail(&events, crash.event), crash.bounds);
                format!("generation {generation}, {:?} died, {bounds:?}\n{trail}", crash.death)
            };
            let seen = explain(seed, place, || verify(&session.oracle, &options, crash, tally));
            let nested = if crash.death == Death::Process { 600 } else { 150 };
            if rng.one_in(nested) {
                let (rng, seen) = (&mut rng, seen.clone());
                explain(seed, place, || verify_nested(&options, crash.image, seen, rng, tally));
            }
            drawn += 1;
            if rng.one_in(drawn) {
                (image, state) = (crash.image.to_vec(), seen);
            }
        });
    }
}

/// Runs `check`, and says how to replay it when it fails.
fn explain<T>(seed: u64, place: impl FnOnce() -> String, check: impl FnOnce() -> T) -> T {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(check)).unwrap_or_else(|cause| {
        eprintln!("VARVE_CRASH_SEED={seed} replays it: {}", place());
        std::panic::resume_unwind(cause)
    })
}

/// Runs `seeds` on two threads, which take them in turn.
fn on_two_threads(seeds: std::ops::Range<u64>, run: impl Fn(u64) + Sync) {
    let next = AtomicU64::new(seeds.start);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        break;
                    }
                    run(seed);
                }
            });
        }
    });
}

#[test]
fn every_crash_state_opens_as_an_exact_prefix_of_commits() {
    let tally = Tally::default();
    if let Some(seed) = replayed("VARVE_CRASH_SEED") {
        return run_seed(seed, &tally);
    }
    let begin = Instant::now();
    on_two_threads(0..replayed("VARVE_CRASH_SEEDS").unwrap_or(SEEDS), |seed| {
        run_seed(seed, &tally)
    });
    let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let [process, system, nested] = [&tally.process, &tally.system, &tally.nested].map(read);
    let [extents, frames, evicted] = [&tally.extents, &tally.frames, &tally.evicted].map(read);
    let total = process + system + nested;
    let [from_checkpoint, without] =
        [&tally.from_checkpoint, &tally.without].map(|counter| counter.load(Ordering::Relaxed));
    println!("{from_checkpoint} opened from a checkpoint, {without} of them also without it");
    println!(
        "{total} crash states: {process} of a dying process, {system} of a dying system, \
         {nested} during and after recovery; {extents} with an extent under way, {frames} with a \
         commit of several frames, {evicted} after memory was given up; {:.1?}",
        begin.elapsed()
    );
    assert!(from_checkpoint > 10_000 && without > 3_000, "checkpoints are hardly met");
    assert!(total >= REQUIRED, "only {total} crash states");
    for (count, what) in [(extents, "extents"), (frames, "several frames"), (evicted, "eviction")] {
        assert!(count >= REQUIRED_OF_EACH, "only {count} crash states with {what}");
    }
}

#[test]
fn what_a_close_wrote_is_flushed_and_a_store_that_was_only_read_writes_nothing() {
    let disk = FaultFile::default();
    let mut store = Store::open(disk.clone(), options_for(0)).expect("open");
    store.set(0, b"key", b"value").expect("set");
    store.close().map_err(|(_, e)| e).expect("close");
    assert!(matches!(disk.history().1.last(), Some(Event::Flush)));
    let written = disk.event_count();
    let mut store = Store::open(disk.clone(), options_for(0)).expect("open");
    assert_eq!(store.get(0, b"key"), Ok(Some(&b"value"[..])));
    store.close().map_err(|(_, e)| e).expect("close");
    assert_eq!(disk.event_count(), written);
}

/// A flush that lied (a disk whose cache lost power) cannot be survived, but it is noticed, or what
/// is left is a shorter log. Answers how often each was the case.
fn run_lie(seed: u64) -> [u64; 3] {
    let mut rng = Rng::new(seed);
    let options = options_for(seed);
    let mut session = Session::new(FaultFile::default(), options, State::new());
    session.open(Bounds::only(session.start)).expect("it opens");
    run_program(&mut session, &mut rng, 40);
    let (base, events, start) = session.history();
    let lie = rng.below(events.len());
    let limits = Limits { flushes_lie_from: lie, tear_step: 0, ..LIMITS };
    let mut outcomes = [0; 3];
    walk(&base, start, &events, limits, &mut rng, |crash| {
        let place = || format!("lying from {lie}, {}", trail(&events, crash.event));
        let check = || match Store::open(FaultFile::new(crash.image.to_vec()), options) {
            Ok(mut store) => {
                let seen = state_of(&mut store);
                let found = session.oracle.identify(&seen, crash.bounds);
                let commit = found.unwrap_or_else(|e| panic!("{e}"));
                usize::from(commit != crash.bounds.tip)
            }
            Err(Error::Corruption(_) | Error::NotADatabase) => 2,
            Err(error) => panic!("{error:?} is not what damage is called"),
        };
        outcomes[explain(seed, place, check)] += 1;
    });
    outcomes
}

#[test]
fn a_flush_that_lied_is_noticed_or_leaves_an_exact_prefix() {
    if let Some(seed) = replayed("VARVE_LIE_SEED") {
        run_lie(seed);
        return;
    }
    let sums = (0..60).map(run_lie).fold([0; 3], |a, b| [a[0] + b[0], a[1] + b[1], a[2] + b[2]]);
    let [whole, shorter, noticed] = sums;
    println!("after a flush that lied: {whole} whole, {shorter} shorter, {noticed} noticed");
    assert!(noticed > 0 && shorter > 0);
}

#[test]
fn segments_of_a_mebibyte_with_large_values_recover_too() {
    let options = Options::default();
    let mut session = Session::new(FaultFile::default(), options, State::new());
    session.open(Bounds::only(session.start)).expect("it opens");
    let set =
        |key: u8, len: usize| Step::Set { keyspace: 0, key: vec![key], len, fill: key.into() };
    let limit = 256 << 10;
    let program = [
        set(1, limit),
        set(2, limit + 1),
        Step::Flush,
        Step::Update { keyspace: 0, key: vec![2], fill: 5, end: Update::InPlace },
        set(3, 100),
        Step::Commit,
        Step::Savepoint,
        set(4, limit - 7),
        set(5, limit - 8),
        set(6, limit - 9),
        set(7, limit - 10),
        set(1, 1_200_000),
        Step::Release,
        Step::Commit,
        set(1, 3),
        Step::Reopen,
    ];
    for step in program {
        session.step(&step).unwrap_or_else(|(e, _)| panic!("{step:?} failed: {e}"));
        session.check();
    }
    let (base, events, start) = session.history();
    let limits = Limits { drawn: 3, patterns: 1, exhaustive: 16, tear_step: 90_001, ..LIMITS };
    let mut states = 0;
    walk(&base, start, &events, limits, &mut Rng::new(1), |crash| {
        states += 1;
        let place = || trail(&events, crash.event);
        explain(0, place, || verify(&session.oracle, &options, crash, &Tally::default()));
    });
    println!("{states} crash states with segments of a mebibyte");
}

/// A commit of two frames of which the second, and its segment, never got to the file.
fn cut_off_commit(options: &Options) -> Vec<u8> {
    let disk = FaultFile::default();
    let mut store = Store::open(disk.clone(), *options).expect("open");
    let savepoint = store.savepoint();
    for key in 0..6_u8 {
        store.set(0, &[key], &bytes_of(key.into(), 900)).expect("set");
    }
    store.release(savepoint).expect("release");
    store.commit().expect("commit");
    drop(store.into_file());
    let image = disk.image();
    assert_eq!(image.len(), 8192 + 2 * 4096, "it takes two segments");
    image[..8192 + 4096].to_vec()
}

#[test]
fn a_commit_that_was_cut_off_is_never_completed_by_a_later_one() {
    let options = Options { segment_log2: 12, ..Options::default() };
    let image = cut_off_commit(&options);
    let mut session = Session::new(FaultFile::new(image), options, State::new());
    session.open(Bounds::only(session.start)).expect("it opens");
    // The first segment gets one frame, so that the second goes on with the number behind the one
    // that was dropped; nothing is flushed, so that power loss may take the first and leave it.
    let set = |key: u8| Step::Set { keyspace: 0, key: vec![9, key], len: 900, fill: key.into() };
    let program = [Step::Savepoint, set(1), set(2), set(3), set(4), Step::Release, set(5)];
    for step in program.iter().chain(&[Step::Commit, set(6), Step::Commit]) {
        session.step(step).unwrap_or_else(|(e, _)| panic!("{step:?} failed: {e}"));
    }
    let mut rng = Rng::new(2);
    let (base, events, start) = session.history();
    let limits = Limits { tear_step: 0, ..LIMITS };
    let mut states = 0;
    walk(&base, start, &events, limits, &mut rng, |crash| {
        states += 1;
        explain(
            0,
            || trail(&events, crash.event),
            || verify(&session.oracle, &options, crash, &Tally::default()),
        );
    });
    println!("{states} crash states behind a commit that was cut off");
}
