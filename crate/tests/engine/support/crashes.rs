//! Programs that die at every moment of their lives, generation after generation, and what each state
//! that they may leave has to pass.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use varve::{Error, IoError, Options, Store};

use super::census::{UnderWay, census};
use super::fault_file::{Event, Fault, FaultFile, Harm};
use super::images::{Crash, Death, Limits, trail, walk};
use super::oracle::{
    Bounds, Entry, Oracle, State, check_pieces, difference, problems_of, state_of, try_state_of,
};
use super::pages::Pages;
use super::phases::Met;
use super::rng::Rng;
use super::session::{Session, Step, Taste, next_step};
use super::witness::Medium;

/// Programs below this seed have their writes torn at every byte; the others are about power loss.
const TORN: u64 = 14;
/// From this seed on they are about commits of several frames, and memory that is given up,
const BULK: u64 = 100;
/// and from this one on about maintenance.
const MAINTENANCE: u64 = 120;
/// and from this one on about maintenance on a disk that is nearly full.
const FULL: u64 = 130;
/// and from this one on of the shapes that others seldom have.
const SHAPES: u64 = 132;
/// and from this one on of keyspaces that are emptied.
const CLEARS: u64 = 134;
/// So many are run with all tests. Those behind them are of all kinds.
pub const SEEDS: u64 = 144;

/// What a program is about.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    pub torn: bool,
    pub bulk: bool,
    pub maintenance: bool,
    pub full: bool,
    pub shapes: bool,
    pub clears: bool,
}

/// What the program of a seed is about.
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
    garbled: 2,
    patterns: 16,
    flushes_lie_from: usize::MAX,
    tear_step: 1,
};

#[derive(Default)]
pub struct Tally {
    pub process: AtomicU64,
    pub system: AtomicU64,
    pub nested: AtomicU64,
    /// What was under way in the first two.
    pub phases: Mutex<Met>,
    /// Of all these, opened from a checkpoint, and the same once more without it.
    pub from_checkpoint: AtomicU64,
    pub without: AtomicU64,
    /// Of the first two, those in which a commit with an extent was torn or not flushed, one with a value in
    /// pieces, one of several frames, or in which memory had been given up before.
    pub extents: AtomicU64,
    pub pieces: AtomicU64,
    pub frames: AtomicU64,
    pub evicted: AtomicU64,
}

impl Tally {
    /// All states so far.
    pub fn total(&self) -> u64 {
        let counters = [&self.process, &self.system, &self.nested];
        counters.map(|counter| counter.load(Ordering::Relaxed)).iter().sum()
    }

    fn note(&self, crash: &Crash<'_>, under_way: [UnderWay; 2], evicted: bool) {
        let (counter, which) = match crash.death {
            Death::Process => (&self.process, under_way[0]),
            Death::System => (&self.system, under_way[1]),
        };
        let more = [
            (&self.extents, which.extent),
            (&self.pieces, which.pieces),
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
    Options { segment_log2, entropy: [seed, 2, 3, 4], memory, ..Options::default() }
}

/// Runs a random program of `steps` steps, dying and coming back on the way.
fn run_program(session: &mut Session, rng: &mut Rng, steps: usize) {
    let segment = 1 << session.options.segment_log2;
    let [seed, ..] = session.options.entropy;
    let Kind { bulk, maintenance, full, shapes, clears, .. } = kind_of(seed);
    if full {
        let slots = rng.within(4..10) as u64;
        let harm = if rng.one_in(2) { Harm::TakeNothing } else { Harm::Fail(IoError::Quota) };
        let bytes = 8192 + slots * segment as u64 + rng.below(segment) as u64;
        session.disk.limit(Some((bytes, harm)));
    }
    let taste = Taste {
        keys: rng.within(3..14),
        segment,
        crashes: true,
        bulk,
        maintenance,
        shapes,
        clears,
    };
    for _ in 0..steps {
        let step = next_step(rng, &taste);
        if let Step::Die { ahead, byte } = step {
            session.disk.arm(Fault { nth: ahead, lasting: false, harm: Harm::Die(byte) });
        }
        let outcome = session.step(&step);
        match outcome {
            Err((_, trying)) if session.disk.is_dead() => session.revive(Some(trying)),
            Err((Error::Quota, _)) if session.disk.is_limited() && session.is_open() => {
                session.note_failure();
            }
            Err((error, _)) => panic!("{step:?} failed: {error}"),
            Ok(()) if session.disk.is_dead() => session.revive(None),
            Ok(()) => {}
        }
        session.check();
    }
    session.disk.heal();
}

/// Destroys every checkpoint in an image.
pub fn without_checkpoints(image: &Pages) -> Pages {
    let mut image = image.clone();
    for at in (8192 + 64..image.len().saturating_sub(16)).step_by(1 << 12) {
        let mut magic = [0; 4];
        image.read(&mut magic, at + 8);
        if &magic == b"VCP2" {
            image.write(b"X", at as u64 + 8);
        }
    }
    image
}

/// What every crash state has to pass. Answers the content that it shows.
pub fn verify(oracle: &Oracle, options: &Options, crash: &Crash<'_>, tally: &Tally) -> State {
    // Salts that no session had before.
    let [a, b, c, salts] = options.entropy;
    let options = &Options { entropy: [a, b, c, !salts], ..*options };
    let file = FaultFile::new(crash.image.clone());
    let mut store =
        Store::open(file.clone(), *options).unwrap_or_else(|e| panic!("it does not open: {e}"));
    let seen = state_of(&mut store);
    oracle.identify(&seen, crash.bounds).unwrap_or_else(|e| panic!("{e}"));
    check_pieces(&mut store, &seen);
    // A look at all of the file takes longer than all else.
    let looks = crash.event.is_multiple_of(5);
    if looks {
        check_sound(&mut store, "after the crash");
    }
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
    if crash.event.is_multiple_of(40) {
        check_maintenance(&file, options, &seen);
    }

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
    if looks {
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
    if looks {
        check_sound(&mut store, "after its close");
    }
    seen
}

/// What a crash can leave, and what comes of it, is no damage.
fn check_sound(store: &mut Store<FaultFile>, when: &str) {
    let problems = problems_of(store);
    assert!(problems.is_empty(), "{when} verification finds {problems:?}");
}

/// What a crash left is put in order, without a write of the program's: that changes nothing of what is
/// there, whether or not a close comes behind it.
fn check_maintenance(file: &FaultFile, options: &Options, seen: &State) {
    let file = FaultFile::new(file.pages());
    let reading = Options { read_only: true, ..*options };
    if let Ok(mut store) = Store::open(file.clone(), reading) {
        assert!(&state_of(&mut store) == seen, "who only reads sees something else");
        check_sound(&mut store, "for who only reads");
        assert!(file.history().1.iter().all(|event| matches!(event, Event::Flush)), "or writes");
    }
    let mut store = Store::open(file.clone(), *options).expect("it opened before");
    let mut more = store.maintain(true);
    for _ in 0..2000 {
        if more == Ok(true) {
            more = store.maintain(false);
        }
    }
    assert_eq!(more, Ok(false), "maintenance behind a crash comes to an end");
    let kept = state_of(&mut store);
    assert!(&kept == seen, "after maintenance it shows {}", difference(&kept, seen));
    check_sound(&mut store, "after maintenance");
    let died = FaultFile::new(file.pages());
    store.close().map_err(|(_, e)| e).expect("it closes");
    for (file, how) in [(died, "death"), (file, "close")] {
        let mut store = Store::open(file, *options)
            .unwrap_or_else(|e| panic!("after maintenance and {how} it does not open: {e}"));
        let kept = state_of(&mut store);
        assert!(&kept == seen, "after maintenance and {how}: {}", difference(&kept, seen));
        check_sound(&mut store, "after maintenance and its end");
    }
}

/// Dies again while recovering from `crash`, at every moment of it and of a few commits after it.
fn verify_nested(options: &Options, image: &Pages, state: State, rng: &mut Rng, tally: &Tally) {
    let mut session = Session::new(FaultFile::new(image.clone()), *options, state);
    session.open(Bounds::only(session.start)).expect("it opened before");
    let at =
        |i: usize| Step::Set { keyspace: 0, key: vec![i as u8], len: 20 * i, fill: 77 * i as u64 };
    let tend = Step::Tend { slices: 30, all: true };
    let tends = rng.one_in(12).then_some(tend);
    let program = [at(1), Step::Commit, at(2), Step::Flush, at(3)];
    for step in program.into_iter().chain(tends).chain([Step::Reopen]) {
        session.step(&step).unwrap_or_else(|(e, _)| panic!("{step:?} failed: {e}"));
    }
    let (base, events, start) = session.history();
    let tear_step = usize::from(rng.one_in(6));
    let limits = Limits { exhaustive: 24, drawn: 4, garbled: 1, patterns: 3, tear_step, ..LIMITS };
    walk(&base, start, &events, limits, rng, |crash| {
        add(&tally.nested);
        verify(&session.oracle, options, crash, tally);
    });
}

/// One generation after another, each beginning with what a crash of the one before left.
pub fn run_seed(seed: u64, tally: &Tally) {
    let mut rng = Rng::new(seed);
    let options = options_for(seed);
    let (mut image, mut state) = (Pages::default(), State::new());
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
        let (census, phases) = (census(&events), session.disk.phases());
        let mut met = Met::default();
        let mut drawn = 0;
        let mut walker_rng = Rng::new(rng.next());
        let limits = Limits { tear_step: usize::from(kind_of(seed).torn), ..LIMITS };
        walk(&base, start, &events, limits, &mut walker_rng, |crash| {
            let evicted = session.evicted_at.is_some_and(|at| at <= crash.event);
            tally.note(crash, census[crash.event], evicted);
            met.note(phases[crash.event]);
            let place = || {
                let (trail, bounds) = (trail(&events, crash.event), crash.bounds);
                format!("generation {generation}, {:?} died, {bounds:?}\n{trail}", crash.death)
            };
            let seen = explain(seed, place, || {
                keeping(crash.image, || verify(&session.oracle, &options, crash, tally))
            });
            let nested = if crash.death == Death::Process { 600 } else { 150 };
            if rng.one_in(nested) {
                let (rng, seen) = (&mut rng, seen.clone());
                explain(seed, place, || verify_nested(&options, crash.image, seen, rng, tally));
            }
            drawn += 1;
            if rng.one_in(drawn) {
                (image, state) = (crash.image.clone(), seen);
            }
        });
        tally.phases.lock().expect("no thread has panicked").add(&met);
    }
}

/// Runs `check`; if it fails, the image is kept in the file that `VARVE_KEEP_IMAGE` names, if it does.
pub fn keeping<T>(image: &Pages, check: impl FnOnce() -> T) -> T {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(check)).unwrap_or_else(|cause| {
        if let Some(path) = std::env::var_os("VARVE_KEEP_IMAGE") {
            std::fs::write(path, image.to_vec()).expect("the image can be kept");
        }
        std::panic::resume_unwind(cause)
    })
}

/// Runs `check`, and says how to replay it when it fails.
pub fn explain<T>(seed: u64, place: impl FnOnce() -> String, check: impl FnOnce() -> T) -> T {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(check)).unwrap_or_else(|cause| {
        eprintln!("VARVE_CRASH_SEED={seed} replays it: {}", place());
        std::panic::resume_unwind(cause)
    })
}

/// Flips a bit of one byte in so many of what a random program's file is at each of its flushes. Gives how often
/// that was noticed, how often it changed nothing, and how often the log was shorter: what is damaged may be a
/// flush of which nothing tells yet.
pub fn run_flips(seed: u64, every: usize) -> (u64, u64, u64) {
    let options = options_for(seed);
    let mut session = Session::new(FaultFile::default(), options, State::new());
    session.open(Bounds::only(session.start)).expect("it opens");
    run_program(&mut session, &mut Rng::new(seed), 40);
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
                            "seed {seed}: byte {at} behind event {event}: {}",
                            difference(&state, &whole)
                        ),
                    }
                }
            }
        }
    }
    (noticed, harmless, shorter)
}

/// What became of files whose disk lied about flushes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lies {
    /// All that was acknowledged is there,
    pub whole: u64,
    /// or a prefix of it, with all that was flushed before the disk began to lie.
    pub shorter: u64,
    pub noticed: u64,
    /// Less is there than was flushed before: what had told of it was lost together with it.
    pub untold: u64,
}

/// A flush that lied (a disk whose cache lost power) cannot be survived, but it is noticed, or what
/// is left is a shorter log: one that has what was flushed before, unless writes that were to come
/// behind others destroyed it without them, and nothing that can still be read tells of it.
pub fn run_lie(seed: u64) -> Lies {
    let mut rng = Rng::new(seed);
    let options = options_for(seed);
    let mut session = Session::new(FaultFile::default(), options, State::new());
    session.open(Bounds::only(session.start)).expect("it opens");
    run_program(&mut session, &mut rng, 40);
    let (base, events, start) = session.history();
    let lie = rng.below(events.len());
    let durable = image_at_flush(&base, &events[..lie]).to_vec();
    let durable = Medium::new(&durable, options.segment_log2);
    let limits = Limits { flushes_lie_from: lie, tear_step: 0, ..LIMITS };
    let mut lies = Lies::default();
    walk(&base, start, &events, limits, &mut rng, |crash| {
        let place = || format!("lying from {lie}, {}", trail(&events, crash.event));
        let check = || match Store::open(FaultFile::new(crash.image.clone()), options) {
            Ok(mut store) => {
                // What lies before a checkpoint is verified when it is read.
                let seen = match try_state_of(&mut store) {
                    Ok(seen) => seen,
                    Err(Error::Corruption(_)) => return lies.noticed += 1,
                    Err(error) => panic!("{error:?} is not what damage is called"),
                };
                match session.oracle.identify(&seen, crash.bounds) {
                    Ok(commit) if commit == crash.bounds.tip => lies.whole += 1,
                    Ok(_) => lies.shorter += 1,
                    Err(what) => {
                        assert!(crash.event >= lie, "{what}");
                        let next = store.recovery().last_frame + 1;
                        let now = crash.image.to_vec();
                        let now = Medium::new(&now, options.segment_log2);
                        let told = now.witnessed();
                        assert!(told <= next, "{told} frames are told of, not {next}: {what}");
                        assert!(durable.has_lost(next, &now), "frame {next} is there: {what}");
                        let all = Bounds { floor: session.start, ..crash.bounds };
                        session.oracle.identify(&seen, all).unwrap_or_else(|e| panic!("{e}"));
                        lies.untold += 1;
                    }
                }
            }
            Err(Error::Corruption(_) | Error::NotADatabase) => lies.noticed += 1,
            Err(error) => panic!("{error:?} is not what damage is called"),
        };
        explain(seed, place, || keeping(crash.image, check));
    });
    lies
}

/// What was certainly on the disk after the last of these events.
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

/// Runs `seeds` on two threads, which take them in turn, the last ones first: those take longest, and who
/// took one of them last would keep the other waiting.
pub fn on_two_threads(seeds: std::ops::Range<u64>, run: impl Fn(u64) + Sync) {
    let left = AtomicU64::new(seeds.end);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let taken = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                        (left > seeds.start).then(|| left - 1)
                    });
                    let Ok(next) = taken else { break };
                    run(next - 1);
                }
            });
        }
    });
}
