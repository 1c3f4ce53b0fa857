//! Programs that crash at every moment, over several generations, and the checks of each state that
//! a crash may leave.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use varve::engine::format::system_records::KEY_MARKS;
use varve::engine::format::{KEYSPACE_ENGINE, checkpoint};
use varve::engine::{Error, IoError, Options, Store};

use super::crash_images::{Crash, CrashKind, Limits, event_log, walk};
use super::fault_file::{Event, FailureMode, Fault, FaultFile};
use super::in_flight::{InFlight, in_flight_writes};
use super::oracle::{
    Bounds, Entry, Oracle, PastCommit, State, check_chunks, difference, problems_of, state_of,
    try_state_of,
};
use super::pages::Pages;
use super::past_commits::check_history;
use super::phases::PhaseCounts;
use super::raw_file::RawFile;
use super::rng::Rng;
pub use super::session::With;
use super::session::{Profile, Session, Step, next_step};

/// Programs below this seed have their writes torn at every byte; the others concern power loss.
const TORN: u64 = 14;
/// Programs from this seed on concern commits of several frames, and eviction,
const BULK: u64 = 100;
/// and from this one on about maintenance.
const MAINTENANCE: u64 = 120;
/// and from this one on maintenance on a nearly full disk,
const FULL: u64 = 130;
/// and from this one on unusual shapes of keys and values,
const SHAPES: u64 = 132;
/// and from this one on cleared keyspaces.
const CLEARS: u64 = 134;
/// This many are run by the tests. Later ones are of all kinds.
pub const SEEDS: u64 = 144;

/// What a program concerns.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    pub torn: bool,
    pub bulk: bool,
    pub maintenance: bool,
    pub full: bool,
    pub shapes: bool,
    pub clears: bool,
}

/// What the program of a seed concerns.
pub fn kind_of(seed: u64) -> Kind {
    if seed >= SEEDS {
        let mut rng = Rng::new(!seed);
        let about = rng.below(8);
        let torn = rng.one_in(16);
        let (maintenance, full) = ((3..6).contains(&about), about == 5);
        let clears = Rng::new(seed.rotate_left(9)).one_in(4);
        return Kind { torn, bulk: about == 0, maintenance, full, shapes: about > 5, clears };
    }
    let bulk = (BULK..MAINTENANCE).contains(&seed);
    let clears = seed >= CLEARS;
    let maintenance = (MAINTENANCE..SHAPES).contains(&seed) || clears && !seed.is_multiple_of(3);
    let full = (FULL..SHAPES).contains(&seed) || seed == CLEARS + 1;
    let shapes = (SHAPES..CLEARS).contains(&seed) || seed == CLEARS + 4;
    Kind { torn: seed < TORN, bulk, maintenance, full, shapes, clears }
}

pub const LIMITS: Limits = Limits {
    exhaustive: 300,
    drawn: 40,
    randomized: 2,
    patterns: 16,
    flushes_lie_from: usize::MAX,
    tear_step: 1,
};

#[derive(Default)]
pub struct Tally {
    pub process: AtomicU64,
    pub system: AtomicU64,
    pub nested: AtomicU64,
    /// The phases of the crashes of the first two kinds.
    pub phases: Mutex<PhaseCounts>,
    /// How many of all these were opened from a checkpoint, and again without it.
    pub from_checkpoint: AtomicU64,
    pub without: AtomicU64,
    /// How many of the first two kinds tore or lost a commit with an extent, with a chunked value,
    /// or of several frames, or happened after an eviction.
    pub extents: AtomicU64,
    pub chunks: AtomicU64,
    pub frames: AtomicU64,
    pub evicted: AtomicU64,
}

impl Tally {
    /// The number of all states so far.
    pub fn total(&self) -> u64 {
        let counters = [&self.process, &self.system, &self.nested];
        counters.map(|counter| counter.load(Ordering::Relaxed)).iter().sum()
    }

    fn record(&self, crash: &Crash<'_>, in_progress: [InFlight; 2], evicted: bool) {
        let (counter, which) = match crash.kind {
            CrashKind::Process => (&self.process, in_progress[0]),
            CrashKind::System => (&self.system, in_progress[1]),
        };
        let more = [
            (&self.extents, which.extent),
            (&self.chunks, which.chunks),
            (&self.frames, which.frames),
            (&self.evicted, evicted),
        ];
        add(counter);
        more.iter().filter(|(_, holds)| *holds).for_each(|(counter, _)| add(counter));
    }
}

fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

pub fn options_for(seed: u64) -> Options {
    let Kind { bulk, maintenance, shapes, .. } = kind_of(seed);
    let segment_log2 = if bulk || maintenance || shapes { 12 } else { 12 + (seed % 3) as u8 };
    let memory = if bulk || seed.is_multiple_of(3) { 0 } else { 64 << 20 };
    let load_at_once = if (seed / 4).is_multiple_of(2) { 0 } else { usize::MAX };
    let index_memory = if (seed / 8).is_multiple_of(2) { 0 } else { usize::MAX };
    let entropy = [seed, 2, 3, 4];
    Options { segment_log2, entropy, memory, load_at_once, index_memory, ..Options::default() }
}

fn options_with(seed: u64, with: With) -> Options {
    Options { keeps_history: with.history.then_some(true), ..options_for(seed) }
}

/// Runs a random program of `steps` steps with crashes and reopens.
fn run_program(session: &mut Session, rng: &mut Rng, steps: usize, with: With) {
    let segment = 1 << session.options.segment_log2;
    let [seed, ..] = session.options.entropy;
    let Kind { bulk, maintenance, full, shapes, clears, .. } = kind_of(seed);
    if full {
        let slots = rng.within(4..10) as u64;
        let failure = if rng.one_in(2) {
            FailureMode::TakeNothing
        } else {
            FailureMode::Fail(IoError::Quota)
        };
        let bytes = 8192 + slots * segment as u64 + rng.below(segment) as u64;
        session.disk.limit(Some((bytes, failure)));
    }
    let profile = Profile {
        keys: rng.within(3..14),
        segment,
        crashes: true,
        bulk,
        maintenance,
        shapes,
        clears,
        with,
    };
    session.may_keep_due = with.expiry && full;
    for _ in 0..steps {
        let step = next_step(rng, &profile);
        if let Step::Die { ahead, byte } = step {
            session.disk.arm(Fault { nth: ahead, lasting: false, failure: FailureMode::Die(byte) });
        }
        let outcome = session.step(&step);
        match outcome {
            Err((_, trying)) if session.disk.is_dead() => session.revive(Some(trying)),
            Err((Error::Quota, _)) if session.disk.is_limited() && session.is_open() => {
                session.handle_failure();
            }
            Err((error, _)) => panic!("{step:?} failed: {error}"),
            Ok(()) if session.disk.is_dead() => session.revive(None),
            Ok(()) => {}
        }
        session.check();
    }
    session.disk.heal();
}

/// Runs a program with snapshots, each of which is checked after each step, without enumerating crashes.
pub fn run_with_snapshots(seed: u64, steps: usize) {
    let mut session = Session::new(FaultFile::default(), options_for(seed), State::new());
    session.open(Bounds::only(session.start)).expect("it opens");
    let with = With { snapshots: true, ..With::default() };
    run_program(&mut session, &mut Rng::new(seed), steps, with);
}

/// Removes every checkpoint from an image.
pub fn without_checkpoints(image: &Pages) -> Pages {
    let mut image = image.clone();
    for at in (8192 + 64..image.len().saturating_sub(16)).step_by(1 << 12) {
        let mut magic = [0; 4];
        image.read(&mut magic, at + 8);
        if u32::from_le_bytes(magic) == checkpoint::MAGIC {
            image.write(b"X", at as u64 + 8);
        }
    }
    image
}

/// The checks of every crash state. Returns its content.
pub fn verify(oracle: &Oracle, options: &Options, crash: &Crash<'_>, tally: &Tally) -> State {
    // Salts that no session has had before.
    let [a, b, c, salts] = options.entropy;
    let options = &Options { entropy: [a, b, c, !salts], ..*options };
    let file = FaultFile::new(crash.image.clone());
    let mut store =
        Store::open(file.clone(), *options).unwrap_or_else(|e| panic!("it does not open: {e}"));
    let seen = state_of(&mut store);
    let commit = oracle.identify(&seen, crash.bounds).unwrap_or_else(|e| panic!("{e}"));
    check_chunks(&mut store, &seen);
    check_marks(&mut store);
    let most_packed = oracle.most_packed(crash.bounds);
    let past = if store.keeps_history() { oracle.past(commit) } else { vec![] };
    check_history(&mut store, &past, most_packed, &mut Rng::new(crash.event as u64));
    // Verifying the whole file takes longer than everything else.
    let verifies_all = crash.event.is_multiple_of(5);
    if verifies_all {
        check_sound(&mut store, "after the crash");
    }
    if store.recovery().checkpoint {
        add(&tally.from_checkpoint);
        // The log alone has the same content.
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
    if crash.event.is_multiple_of(40) {
        check_maintenance(&file, options, &seen, &past, most_packed);
    }

    let mut store =
        Store::open(file.clone(), *options).unwrap_or_else(|e| panic!("not a second time: {e}"));
    let again = state_of(&mut store);
    assert!(again == seen, "a second open shows {}", difference(&again, &seen));

    let version = store.set(0, b"after", b"the crash").expect("it can be written to");
    // Power loss may remove a whole session with all its traces, unless it was flushed.
    let known =
        if crash.kind == CrashKind::Process { crash.bounds.tip } else { crash.bounds.floor };
    let given = oracle.state(known).values().map(|e| e.version).max();
    assert!(Some(version) > given, "version {version} is given again, after {given:?}");
    let value = b"the crash".as_slice().into();
    let mut expected = seen.clone();
    expected.insert((0, b"after".to_vec()), Entry { value, version, expiry: 0 });
    if verifies_all {
        store.flush().expect("it can be flushed");
        check_sound(&mut store, "after a write");
    }
    store.close().map_err(|(_, e)| e).expect("it closes");
    let mut store = Store::open(file, *options).expect("it opens after its close");
    assert!(store.recovery().clean, "its close is noticed");
    let seen_last = state_of(&mut store);
    assert!(
        seen_last == expected,
        "after its close it shows {}",
        difference(&seen_last, &expected)
    );
    if verifies_all {
        check_sound(&mut store, "after its close");
    }
    seen
}

/// Checks that nothing after a mark is gone.
fn check_marks(store: &mut Store<FaultFile>) {
    let Some(mark) = store.get(KEYSPACE_ENGINE, KEY_MARKS).expect("readable") else { return };
    let cursor = u64::from_le_bytes(*mark.first_chunk().expect("a mark has a cursor"));
    let since = store.since(cursor).expect("the mark is of a commit that is there");
    assert!(since.is_whole, "something after the mark {cursor} is gone");
}

/// Checks that verification accepts what a crash left and what follows from it.
fn check_sound(store: &mut Store<FaultFile>, when: &str) {
    let problems = problems_of(store);
    assert!(problems.is_empty(), "{when} verification finds {problems:?}");
}

/// Checks that maintenance after a crash, without a write by the program, changes no content,
/// whether or not a close follows.
fn check_maintenance(
    file: &FaultFile,
    options: &Options,
    seen: &State,
    past: &[PastCommit],
    most_packed: u64,
) {
    let file = FaultFile::new(file.pages());
    let reading = Options { read_only: true, ..*options };
    if let Ok(mut store) = Store::open(file.clone(), reading) {
        assert!(&state_of(&mut store) == seen, "a read-only open shows another state");
        check_sound(&mut store, "read-only");
        assert!(file.history().1.iter().all(|event| matches!(event, Event::Flush)), "or writes");
    }
    let mut store = Store::open(file.clone(), *options).expect("it opened before");
    let mut rng = Rng::new(most_packed);
    let packs = !past.is_empty() && rng.one_in(2);
    let most_packed = match packs {
        true => store.pack(rng.pick(past).cursor).expect("it can be packed").max(most_packed),
        false => most_packed,
    };
    let mut more = store.maintain(true);
    for _ in 0..2000 {
        if more == Ok(true) {
            more = store.maintain(false);
        }
    }
    assert_eq!(more, Ok(false), "maintenance after a crash terminates");
    let kept = state_of(&mut store);
    assert!(&kept == seen, "after maintenance it shows {}", difference(&kept, seen));
    check_history(&mut store, past, most_packed, &mut rng);
    check_sound(&mut store, "after maintenance");
    let crash_kind = FaultFile::new(file.pages());
    store.close().map_err(|(_, e)| e).expect("it closes");
    for (file, how) in [(crash_kind, "death"), (file, "close")] {
        let mut store = Store::open(file, *options)
            .unwrap_or_else(|e| panic!("it does not open after maintenance and {how}: {e}"));
        let kept = state_of(&mut store);
        assert!(&kept == seen, "after maintenance and {how}: {}", difference(&kept, seen));
        check_history(&mut store, past, most_packed, &mut rng);
        check_sound(&mut store, "after maintenance and its end");
    }
}

/// Crashes again at every moment of the recovery from `crash` and of a few commits after it.
fn verify_nested(
    options: &Options,
    image: &Pages,
    (state, past, packed): (State, Vec<PastCommit>, u64),
    rng: &mut Rng,
    tally: &Tally,
) {
    let disk = FaultFile::new(image.clone());
    let mut session = Session::after(disk, *options, state, past, packed);
    session.open(Bounds::only(session.start)).expect("it opened before");
    let at =
        |i: usize| Step::Set { keyspace: 0, key: vec![i as u8], len: 20 * i, fill: 77 * i as u64 };
    let maintain = Step::Maintain { steps: 30, all: true };
    let maintains = rng.one_in(12).then_some(maintain);
    let program = [at(1), Step::Commit, at(2), Step::Flush, at(3)];
    for step in program.into_iter().chain(maintains).chain([Step::Reopen]) {
        session.step(&step).unwrap_or_else(|(e, _)| panic!("{step:?} failed: {e}"));
    }
    let (base, events, start) = session.history();
    let tear_step = usize::from(rng.one_in(6));
    let limits =
        Limits { exhaustive: 24, drawn: 4, randomized: 1, patterns: 3, tear_step, ..LIMITS };
    walk(&base, start, &events, limits, rng, |crash| {
        add(&tally.nested);
        verify(&session.oracle, options, crash, tally);
    });
}

/// Runs generations, each starting with the image that a crash of the previous one left.
pub fn run_seed(seed: u64, tally: &Tally) {
    run_generations(seed, tally, With::default());
}

/// The same, with more.
pub fn run_generations(seed: u64, tally: &Tally, with: With) {
    let mut rng = Rng::new(seed);
    let options = options_with(seed, with);
    let (mut image, mut state) = (Pages::default(), State::new());
    let (mut past, mut packed) = (vec![], 0);
    for generation in 0..4 {
        let disk = FaultFile::new(image.clone()).with_short_reads(seed);
        let earlier = core::mem::take(&mut past);
        let mut session = Session::after(disk, options, state.clone(), earlier, packed);
        let steps = rng.within(10..60);
        let disk = session.disk.clone();
        let context = || {
            let (events, count) = (disk.history().1, disk.event_count());
            format!("generation {generation}, in the program\n{}", event_log(&events, count))
        };
        with_replay_hint(seed, context, || {
            session.open(Bounds::only(session.start)).expect("it opens");
            run_program(&mut session, &mut rng, steps, with);
        });
        let (base, events, start) = session.history();
        let (in_flight, phases) = (in_flight_writes(&events), session.disk.phases());
        let mut met = PhaseCounts::default();
        let mut drawn = 0;
        let mut walker_rng = Rng::new(rng.next());
        let limits = Limits { tear_step: usize::from(kind_of(seed).torn), ..LIMITS };
        walk(&base, start, &events, limits, &mut walker_rng, |crash| {
            let evicted = session.evicted_at.is_some_and(|at| at <= crash.event);
            tally.record(crash, in_flight[crash.event], evicted);
            met.record(phases[crash.event]);
            let context = || {
                let (event_log, bounds) = (event_log(&events, crash.event), crash.bounds);
                format!("generation {generation}, {:?} died, {bounds:?}\n{event_log}", crash.kind)
            };
            let seen = with_replay_hint(seed, context, || {
                keep_image_on_failure(crash.image, || {
                    verify(&session.oracle, &options, crash, tally)
                })
            });
            let nested = if crash.kind == CrashKind::Process { 600 } else { 150 };
            let is_nested = rng.one_in(nested);
            let known = || {
                let (oracle, bounds) = (&session.oracle, crash.bounds);
                let past = match with.history {
                    true => oracle.past(oracle.identify(&seen, bounds).expect("it was before")),
                    false => vec![],
                };
                (seen.clone(), past, oracle.most_packed(bounds))
            };
            if is_nested {
                let (rng, known) = (&mut rng, known());
                with_replay_hint(seed, context, || {
                    verify_nested(&options, crash.image, known, rng, tally)
                });
            }
            drawn += 1;
            if rng.one_in(drawn) {
                image = crash.image.clone();
                (state, past, packed) = known();
            }
        });
        tally.phases.lock().expect("no thread has panicked").add(&met);
    }
}

/// Runs `check`; if it fails, writes the image to the file that `VARVE_KEEP_IMAGE` names, if that
/// is set.
pub fn keep_image_on_failure<T>(image: &Pages, check: impl FnOnce() -> T) -> T {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(check)).unwrap_or_else(|cause| {
        if let Some(path) = std::env::var_os("VARVE_KEEP_IMAGE") {
            std::fs::write(path, image.to_vec()).expect("the image can be kept");
        }
        std::panic::resume_unwind(cause)
    })
}

/// Runs `check`; if it fails, prints how to replay it.
pub fn with_replay_hint<T>(
    seed: u64,
    context: impl FnOnce() -> String,
    check: impl FnOnce() -> T,
) -> T {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(check)).unwrap_or_else(|cause| {
        eprintln!("VARVE_CRASH_SEED={seed} replays it: {}", context());
        std::panic::resume_unwind(cause)
    })
}

/// Flips a bit of one in `every` bytes of a random program's file at each of its flushes. Returns
/// how often that was detected, how often it changed nothing, and how often the log was shorter:
/// the damage may concern a flush that is not witnessed yet.
pub fn run_flips(seed: u64, every: usize) -> (u64, u64, u64) {
    let options = options_for(seed);
    let mut session = Session::new(FaultFile::default(), options, State::new());
    session.open(Bounds::only(session.start)).expect("it opens");
    run_program(&mut session, &mut Rng::new(seed), 40, With::default());
    let (mut image, events, _) = session.history();
    let (mut noticed, mut harmless, mut shorter) = (0, 0, 0);
    for (event, what) in events.iter().enumerate() {
        match what {
            Event::Write { at, bytes } => image.write(bytes, *at),
            Event::Truncate(size) => image.resize(*size as usize),
            Event::Mark(_) => {}
            Event::Flush => {
                let Ok(mut store) = Store::open(FaultFile::new(image.clone()), options) else {
                    continue;
                };
                let (whole, end) = (state_of(&mut store), store.recovery().last_frame);
                for at in (event % every..image.len()).step_by(every) {
                    let mut image = image.clone();
                    image.flip(at, 1);
                    let Ok(mut store) = Store::open(FaultFile::new(image), options) else {
                        noticed += 1;
                        continue;
                    };
                    let is_shorter = store.recovery().last_frame < end;
                    match try_state_of(&mut store) {
                        Err(_) => noticed += 1,
                        Ok(state) if state == whole => harmless += 1,
                        Ok(_) if is_shorter => shorter += 1,
                        Ok(state) => panic!(
                            "seed {seed}: byte {at} after event {event}: {}",
                            difference(&state, &whole)
                        ),
                    }
                }
            }
        }
    }
    (noticed, harmless, shorter)
}

/// The results for files whose disk did not flush as it claimed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lies {
    /// Everything acknowledged exists.
    pub whole: u64,
    /// A prefix exists, with everything that was flushed before the disk began to lie.
    pub shorter: u64,
    pub noticed: u64,
    /// Less exists than was flushed before, because what witnessed it was lost together with it.
    pub unwitnessed: u64,
}

/// A lying flush (of a disk whose cache lost power) cannot be survived, but it is detected, or a
/// shorter log is left with everything that was flushed before. The exception is that later writes
/// destroyed that, their own predecessors were lost, and nothing readable witnesses it.
pub fn run_lie(seed: u64) -> Lies {
    run_lie_with(seed, With::default())
}

/// The same, with more.
pub fn run_lie_with(seed: u64, with: With) -> Lies {
    let mut rng = Rng::new(seed);
    let options = options_with(seed, with);
    let mut session = Session::new(FaultFile::default(), options, State::new());
    session.open(Bounds::only(session.start)).expect("it opens");
    run_program(&mut session, &mut rng, 40, with);
    let (base, events, start) = session.history();
    let lie = rng.below(events.len());
    let durable = image_at_flush(&base, &events[..lie]).to_vec();
    let durable = RawFile::new(&durable, options.segment_log2);
    let limits = Limits { flushes_lie_from: lie, tear_step: 0, ..LIMITS };
    let mut lies = Lies::default();
    walk(&base, start, &events, limits, &mut rng, |crash| {
        let context = || format!("lying from {lie}, {}", event_log(&events, crash.event));
        let check = || match Store::open(FaultFile::new(crash.image.clone()), options) {
            Ok(mut store) => {
                // Records before a checkpoint are verified when they are read.
                let seen = match try_state_of(&mut store) {
                    Ok(seen) => seen,
                    Err(Error::Corruption(_)) => return lies.noticed += 1,
                    Err(error) => panic!("{error:?} is not an error for damage"),
                };
                match session.oracle.identify(&seen, crash.bounds) {
                    Ok(commit) if commit == crash.bounds.tip => lies.whole += 1,
                    Ok(_) => lies.shorter += 1,
                    Err(what) => {
                        assert!(crash.event >= lie, "{what}");
                        let next = store.recovery().last_frame + 1;
                        let now = crash.image.to_vec();
                        let now = RawFile::new(&now, options.segment_log2);
                        let witnessed = now.witnessed();
                        assert!(
                            witnessed <= next,
                            "{witnessed} frames are witnessed, not {next}: {what}"
                        );
                        assert!(durable.has_lost(next, &now), "frame {next} exists: {what}");
                        let all = Bounds { floor: session.start, ..crash.bounds };
                        session.oracle.identify(&seen, all).unwrap_or_else(|e| panic!("{e}"));
                        lies.unwitnessed += 1;
                    }
                }
            }
            Err(Error::Corruption(_) | Error::NotADatabase) => lies.noticed += 1,
            Err(error) => panic!("{error:?} is not an error for damage"),
        };
        with_replay_hint(seed, context, || keep_image_on_failure(crash.image, check));
    });
    lies
}

/// The content of the disk that is certain after the last of these events.
fn image_at_flush(base: &Pages, events: &[Event]) -> Pages {
    let flush = events.iter().rposition(|event| matches!(event, Event::Flush)).unwrap_or(0);
    let mut image = base.clone();
    for event in &events[..flush] {
        match event {
            Event::Write { at, bytes } => image.write(bytes, *at),
            Event::Truncate(size) => image.resize(*size as usize),
            Event::Flush | Event::Mark(_) => {}
        }
    }
    image
}

/// Runs `seeds` on two threads, which take turns from the last seed on: these take longest, and a
/// thread that started one of them last would keep the other waiting.
pub fn on_two_threads(seeds: std::ops::Range<u64>, run: impl Fn(u64) + Sync) {
    let left = AtomicU64::new(seeds.end);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let next_seed =
                        left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                            (left > seeds.start).then(|| left - 1)
                        });
                    let Ok(next) = next_seed else { break };
                    run(next - 1);
                }
            });
        }
    });
}
