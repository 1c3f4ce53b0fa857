//! Enumerated crashes: at whatever moment the process or the system dies, the file opens with
//! exactly the state after some commit, no flushed commit is missing, and writing can continue.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use varve::engine::format::{DATA_START, segment};
use varve::engine::{Options, Store};

use crate::support::crash_images::{Limits, event_log, walk};
use crate::support::crash_programs::{
    LIMITS, Lies, SEEDS, Tally, on_two_threads, options_for, run_flips, run_lie, run_seed, verify,
    with_replay_hint,
};
use crate::support::fault_file::{Event, FailureMode, Fault, FaultFile};
use crate::support::oracle::{Bounds, State, UNKNOWN};
use crate::support::phases::CHANGING;
use crate::support::rng::{Rng, bytes_of, replayed};
use crate::support::session::{Session, Step, Update};

/// The number of crash states that the ordinary test run must reach.
const REQUIRED: u64 = 1_000_000;
/// How many of them must concern extents, chunked values, commits of several frames, and eviction,
/// each.
const REQUIRED_OF_EACH: u64 = 10_000;
/// How many of them must happen during each kind of change of the file.
const REQUIRED_OF_EACH_PHASE: u64 = 300;

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
    let [extents, chunks, frames, evicted] =
        [&tally.extents, &tally.chunks, &tally.frames, &tally.evicted].map(read);
    let total = tally.total();
    let [from_checkpoint, without] =
        [&tally.from_checkpoint, &tally.without].map(|counter| counter.load(Ordering::Relaxed));
    println!("{from_checkpoint} opened from a checkpoint, {without} of them also without it");
    println!(
        "{total} crash states: {process} of a dying process, {system} of a dying system, \
         {nested} during and after recovery; {extents} with an extent in progress, {chunks} with a chunked \
         value, {frames} with a commit of several frames, {evicted} after an eviction; {:.1?}",
        begin.elapsed()
    );
    let seconds = begin.elapsed().as_secs_f64();
    let met = tally.phases.lock().expect("no thread has panicked");
    println!("{:.0} states a second; {met:?}", total as f64 / seconds);
    let missing = met.missing(&CHANGING, REQUIRED_OF_EACH_PHASE);
    assert!(missing.is_empty(), "hardly any crash in {missing:?}");
    assert!(from_checkpoint > 10_000 && without > 3_000, "checkpoints are hardly met");
    assert!(total >= REQUIRED, "only {total} crash states");
    let all = [
        (extents, "extents"),
        (chunks, "chunked values"),
        (frames, "several frames"),
        (evicted, "eviction"),
    ];
    for (count, what) in all {
        assert!(count >= REQUIRED_OF_EACH, "only {count} crash states with {what}");
    }
}

#[test]
fn version_only_update_differs_from_the_previous_commit() {
    // The process dies in its write, of which either nothing or everything reaches the file.
    for (byte, exists) in [(0, false), (usize::MAX, true)] {
        let mut session = Session::new(FaultFile::default(), options_for(1), State::new());
        session.open(Bounds::only(session.start)).expect("it opens");
        let key = || b"empty".to_vec();
        let set = Step::Set { keyspace: 0, key: key(), len: 0, fill: 0 };
        let update = Step::Update { keyspace: 0, key: key(), fill: 0, end: Update::InPlace };
        for step in [&set, &Step::Flush, &update] {
            session.step(step).unwrap_or_else(|(e, _)| panic!("{step:?} failed: {e}"));
        }
        session.disk.arm(Fault { nth: 0, lasting: false, failure: FailureMode::Die(byte) });
        let (_, trying) = session.step(&Step::Commit).expect_err("the process died");
        // If the update itself had been written, its version would be ambiguous.
        let mut state = session.oracle.state(trying).clone();
        state.values_mut().for_each(|entry| entry.version = UNKNOWN);
        session.oracle.fix(trying, state);
        let before = session.bounds(None).tip;
        session.revive(Some(trying));
        let found = if exists { trying } else { before };
        assert_eq!(session.bounds(None).tip, found, "of its write {byte} bytes are there");
    }
}

#[test]
fn close_flushes_its_writes_and_writes_nothing_after_only_reads() {
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

#[test]
fn lying_flush_is_detected_or_leaves_an_exact_prefix() {
    if let Some(seed) = replayed("VARVE_LIE_SEED") {
        run_lie(seed);
        return;
    }
    let Lies { whole, shorter, noticed, unwitnessed } = after_lies(0..60);
    println!(
        "after lies: {whole} whole, {shorter} shorter, {noticed} detected, {unwitnessed} not witnessed"
    );
    assert!(noticed > 0 && shorter > 0);
}

#[test]
fn early_erase_by_a_lying_disk_is_detected_where_detectable() {
    // In the first program the first segment was erased, and the checkpoint and superblocks that
    // permitted that were lost. In the second the only witness lies where the older checkpoint has a run, and in the third
    // no frame after the end hints at it.
    // The others concern maintenance too.
    let found = [669_464_169_664_048, 669_906_477_534_896, 669_921_562_915_392];
    let Lies { noticed, unwitnessed, .. } = after_lies(found.into_iter().chain(120..132));
    println!("erased by disks that lied: {noticed} detected, {unwitnessed} not witnessed");
    assert!(noticed > unwitnessed && unwitnessed > 0);
}

#[test]
fn bit_flip_in_a_reclaimed_segment_is_detected_or_harmless() {
    // In the first program the damaged record is a tombstone whose segment was removed according to
    // a flushed gap record, and the deleted record is before it.
    for (seed, every) in [(669_467_781_869_383, 40), (124, 200), (127, 200), (130, 200)] {
        let (noticed, harmless, shorter) = run_flips(seed, every);
        println!("{seed}: {noticed} noticed, {harmless} harmless, {shorter} shorter");
        assert!(noticed > 0 && harmless > 0);
    }
}

fn after_lies(seeds: impl Iterator<Item = u64>) -> Lies {
    seeds.map(run_lie).fold(Lies::default(), |a, b| Lies {
        whole: a.whole + b.whole,
        shorter: a.shorter + b.shorter,
        noticed: a.noticed + b.noticed,
        unwitnessed: a.unwitnessed + b.unwitnessed,
    })
}

#[test]
fn one_mebibyte_segments_with_large_values_recover() {
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
        set(1, 1_800_000),
        set(8, 600_000),
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
        let context = || event_log(&events, crash.event);
        with_replay_hint(0, context, || {
            verify(&session.oracle, &options, crash, &Tally::default())
        });
    });
    println!("{states} crash states with segments of a mebibyte");
}

/// Overwrites a few keys repeatedly and hardly ever flushes.
fn hot_program(rng: &mut Rng) -> Vec<Step> {
    let mut program = vec![];
    let keys = rng.within(1..5);
    let (has_large, deletes) = (rng.one_in(4), rng.one_in(3));
    let flushed = rng.within(60..300);
    for i in 1..rng.within(150..400) {
        for _ in 0..rng.within(1..4) {
            let key = vec![rng.below(keys) as u8];
            program.push(match rng.below(12) {
                0 if deletes => Step::Delete { keyspace: 0, key },
                // Sometimes a value in an extent or in chunks.
                1 if has_large && rng.one_in(6) => {
                    let len = if i % 2 == 0 { 7_000 } else { 5_000 };
                    Step::Set { keyspace: 0, key, len, fill: i as u64 }
                }
                _ => Step::Set { keyspace: 0, key, len: rng.below(120), fill: i as u64 },
            });
        }
        program.push(Step::Commit);
        match rng.below(8) {
            0 => program.push(Step::EndTurn),
            1 => program.push(Step::Maintain { steps: rng.within(1..4), all: rng.one_in(20) }),
            2 if rng.one_in(2) => program.push(Step::Witness),
            _ if i % flushed == 0 => program.push(Step::Flush),
            _ if rng.one_in(100) => program.push(Step::Crash),
            _ => {}
        }
    }
    program
}

/// How many segments were created in a slot that was already reused since the last flush.
fn reused_between_flushes(events: &[Event]) -> usize {
    let (mut begun, mut reused) = (HashSet::new(), 0);
    for event in events {
        match event {
            Event::Flush => begun.clear(),
            Event::Write { at, bytes }
                if *at >= DATA_START && (at - DATA_START).is_multiple_of(4096) =>
            {
                let begins = bytes[8..12] == segment::MAGIC.to_le_bytes();
                reused += usize::from(begins && !begun.insert(*at));
            }
            _ => {}
        }
    }
    reused
}

#[test]
fn crash_after_reusing_unflushed_segments_leaves_a_prefix() {
    let (mut states, mut reused) = (0, 0);
    for seed in 0..replayed("VARVE_HOT_SEEDS").unwrap_or(24) {
        let mut rng = Rng::new(!seed);
        let options = Options {
            segment_log2: 12,
            entropy: [seed, 7, 7, 7],
            memory: if seed % 2 == 0 { 0 } else { 64 << 20 },
            ..Options::default()
        };
        let mut session = Session::new(FaultFile::default(), options, State::new());
        session.open(Bounds::only(session.start)).expect("it opens");
        for step in hot_program(&mut rng) {
            match step {
                Step::Crash => session.revive(None),
                step => session.step(&step).unwrap_or_else(|(e, _)| panic!("{step:?}: {e}")),
            }
            session.check();
        }
        let (base, events, start) = session.history();
        reused += reused_between_flushes(&events);
        let limits = Limits { exhaustive: 60, drawn: 12, patterns: 6, tear_step: 97, ..LIMITS };
        walk(&base, start, &events, limits, &mut rng, |crash| {
            states += 1;
            let context = || event_log(&events, crash.event);
            with_replay_hint(seed, context, || {
                verify(&session.oracle, &options, crash, &Tally::default())
            });
        });
    }
    println!("{states} crash states; {reused} segments in slots that were freed without a flush");
    assert!(reused > 100, "only {reused} segments");
}

/// A commit of two frames, the second of which never reached the file, nor did its segment.
fn truncated_commit_image(options: &Options) -> Vec<u8> {
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
    assert!(image[8192 + 4096..].iter().any(|&byte| byte != 0), "it takes two segments");
    image[..8192 + 4096].to_vec()
}

#[test]
fn truncated_commit_is_never_completed_by_a_later_one() {
    let options = Options { segment_log2: 12, ..Options::default() };
    let image = truncated_commit_image(&options);
    let mut session = Session::new(FaultFile::new(image), options, State::new());
    session.open(Bounds::only(session.start)).expect("it opens");
    // The first segment gets one frame, so that the second continues with the number after the
    // dropped one. Nothing is flushed, so power loss may remove the first segment and keep the
    // second.
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
        with_replay_hint(
            0,
            || event_log(&events, crash.event),
            || verify(&session.oracle, &options, crash, &Tally::default()),
        );
    });
    println!("{states} crash states after a truncated commit");
}

#[test]
fn unflushed_superblock_is_flushed_before_the_other_is_written() {
    let options = Options { segment_log2: 12, ..Options::default() };
    // One of these steps ends with a superblock after which nothing is flushed. Everything is in
    // the checkpoint that it names, so opening and closing have nothing else to flush.
    for steps in 1..40 {
        let mut session = Session::new(FaultFile::default(), options, State::new());
        session.open(Bounds::only(session.start)).expect("it opens");
        let set =
            |key: u8| Step::Set { keyspace: 0, key: vec![key % 3], len: 900, fill: key.into() };
        let maintain = Step::Maintain { steps, all: true };
        let program = (0..12).map(set).chain([Step::Flush, maintain, Step::Crash, Step::Reopen]);
        for step in program {
            session.step(&step).unwrap_or_else(|(e, _)| panic!("{step:?} failed: {e}"));
        }
        let (base, events, start) = session.history();
        let limits = Limits { tear_step: 0, ..LIMITS };
        walk(&base, start, &events, limits, &mut Rng::new(3), |crash| {
            let context = || event_log(&events, crash.event);
            with_replay_hint(0, context, || {
                verify(&session.oracle, &options, crash, &Tally::default())
            });
        });
    }
}

#[test]
fn large_value_keeps_its_slots_in_a_truncated_file() {
    let options = Options { segment_log2: 12, ..Options::default() };
    let disk = FaultFile::default();
    let mut store = Store::open(disk.clone(), options).expect("open");
    store.set(0, b"small", b"value").expect("set");
    store.flush().expect("flush");
    // Space for three slots; the value takes a part of the first.
    store.begin_set(0, b"large", 11_000).expect("enough space");
    store.staged_value()[..900].fill(7);
    store.finish(900).expect("finish");
    store.commit().expect("commit");
    let image = disk.image();
    let large = image.windows(900).position(|bytes| bytes == [7; 900]).expect("it was written");
    // All of the commit is on the disk, but the size of the file is not.
    let slot = (large - 8192) / 4096 * 4096 + 8192;
    for end in [slot + 4096, slot + 2 * 4096, slot + 3 * 4096 - 64] {
        let mut file = FaultFile::new(image[..end].to_vec());
        for round in 0..3_u8 {
            let mut store =
                Store::open(file, options).unwrap_or_else(|e| panic!("cut to {end}: {e}"));
            assert_eq!(store.get(0, b"large"), Ok(Some(&[7; 900][..])));
            for key in 0..4 {
                store.set(0, &[round, key], &bytes_of(key.into(), 1000)).expect("set");
            }
            file = store.close().map_err(|(_, e)| e).expect("close");
        }
    }
}
