//! Recovery: whatever is damaged, opening a prefix shows one, what a salvage reports as certain is
//! true, and the result of either opens again. Verification: it finds every flipped bit that
//! matters.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use varve::engine::format::superblock::SLOT_STRIDE;
use varve::engine::{Error, OnDamage, Options, Recovery, Store};

use crate::support::crash_images::{self, Limits};
use crate::support::fault_file::FaultFile;
use crate::support::oracle::{
    Bounds, Entry, KEYSPACES, State, check_chunks, difference, problems_of, state_of, try_state_of,
};
use crate::support::rng::{Rng, bytes_of, replayed};
use crate::support::shapes::chunked_length;

const SEGMENT: usize = 4096;
const DATA: usize = 8192;

fn options() -> Options {
    Options { segment_log2: 12, ..Options::default() }
}

fn recovering(on_damage: OnDamage, read_only: bool) -> Options {
    Options { on_damage, read_only, ..options() }
}

/// A closed file, and its content after each commit.
struct Sample {
    image: Vec<u8>,
    commits: Vec<State>,
    /// Every value that was set, even if the same commit replaced it.
    written: BTreeMap<u64, Rc<[u8]>>,
}

impl Sample {
    fn committed_content(&self) -> &State {
        self.commits.last().expect("there are some")
    }
}

/// The content of the store, and its uncertain keys.
fn content_and_uncertain_keys(store: &mut Store<FaultFile>) -> (State, BTreeSet<(u32, Vec<u8>)>) {
    let state = state_of(store);
    let is_uncertain = |store: &mut Store<FaultFile>, keyspace: u32, key: &[u8]| {
        store.version_and_certainty(keyspace, key).expect("readable").expect("there").1
    };
    let keys: Vec<_> = state.keys().cloned().collect();
    let uncertain = keys.into_iter().filter(|(ks, key)| is_uncertain(store, *ks, key)).collect();
    (state, uncertain)
}

/// A history of sets, deletions, transactions, large values, maintenance and closes.
fn sample_database(seed: u64, steps: usize, maintains: bool) -> Sample {
    live(seed, steps, maintains, true)
}

fn live(seed: u64, steps: usize, maintains: bool, closes: bool) -> Sample {
    let mut rng = Rng::new(seed);
    let file = FaultFile::default();
    let mut store = Store::open(file.clone(), options()).expect("a new file opens");
    let mut commits = vec![State::new()];
    let mut state = State::new();
    let mut written = BTreeMap::new();
    for _ in 0..steps {
        let savepoint = store.savepoint();
        for _ in 0..rng.within(1..5) {
            let keyspace = *rng.pick(&KEYSPACES);
            let key = vec![b'k', rng.below(14) as u8];
            if rng.one_in(4) {
                store.delete(keyspace, &key).expect("delete");
                state.remove(&(keyspace, key));
                continue;
            }
            let length = match rng.one_in(12) {
                true => chunked_length(rng.within(1100..5000), SEGMENT),
                false => rng.below(300),
            };
            let value = bytes_of(rng.next(), length);
            let version = store.set(keyspace, &key, &value).expect("set");
            let value: Rc<[u8]> = Rc::from(value);
            written.insert(version, value.clone());
            state.insert((keyspace, key), Entry { value, version, expiry: 0 });
        }
        store.release(savepoint).expect("release");
        store.commit().expect("commit");
        commits.push(state.clone());
        match rng.below(12) {
            0..4 => store.flush().expect("flush"),
            4 => store.witness().expect("witness"),
            5 => {
                let file = store.close().map_err(|(_, error)| error).expect("close");
                store = Store::open(file, options()).expect("open");
            }
            6..9 if maintains => {
                let mut more = store.maintain(rng.one_in(3)).expect("maintain");
                while more {
                    more = store.maintain(false).expect("maintain");
                }
            }
            _ => {}
        }
    }
    match closes {
        true => drop(store.close().map_err(|(_, error)| error).expect("close")),
        false => drop(store.into_file()),
    }
    Sample { image: file.image(), commits, written }
}

#[derive(Debug, Default)]
struct Tally {
    images: u64,
    refused: u64,
    prefixes: u64,
    salvaged: u64,
    kept: u64,
    uncertain: u64,
    lost: u64,
}

fn open(image: &[u8], options: Options) -> (FaultFile, Result<Store<FaultFile>, Error>) {
    let file = FaultFile::new(image.to_vec());
    (file.clone(), Store::open(file, options))
}

fn is_damage(error: &Error) -> bool {
    matches!(error, Error::Corruption(_) | Error::NotADatabase)
}

/// Checks that the next opening, with default options, shows the same.
fn opens_again(file: &FaultFile, state: &State, uncertain: &BTreeSet<(u32, Vec<u8>)>, what: &str) {
    let again = FaultFile::new(file.image());
    let mut store = Store::open(again, options()).unwrap_or_else(|error| {
        panic!("{what}: the recovered file does not open again: {error:?}");
    });
    let (seen, doubts) = content_and_uncertain_keys(&mut store);
    assert!(&seen == state, "{what}: opened again: {}", difference(&seen, state));
    check_chunks(&mut store, &seen);
    assert!(&doubts == uncertain, "{what}: other keys are uncertain");
    assert!(!store.recovery().damaged);
    assert_eq!(problems_of(&mut store), [], "{what}");
}

fn check_prefix(image: &[u8], sample: &Sample, refused: bool, what: &str, tally: &mut Tally) {
    for read_only in [true, false] {
        let (file, opened) = open(image, recovering(OnDamage::Prefix, read_only));
        let mut store = match opened {
            Ok(store) => store,
            Err(error) => {
                assert!(is_damage(&error) && refused, "{what}: {error:?}");
                assert_eq!(file.event_count(), 0, "{what}: refused but changed");
                continue;
            }
        };
        assert_eq!(store.recovery().damaged, refused, "{what}: {:?}", store.recovery());
        // Records before a checkpoint are verified when they are read.
        let Ok(seen) = try_state_of(&mut store) else {
            assert!(!refused, "{what}: a prefix is not readable");
            continue;
        };
        let is_one = if refused {
            sample.commits.contains(&seen)
        } else {
            &seen == sample.committed_content()
        };
        assert!(is_one, "{what}: no prefix: {}", difference(&seen, sample.committed_content()));
        if read_only {
            assert_eq!(file.event_count(), 0, "{what}: read only");
        } else if refused {
            tally.prefixes += 1;
            opens_again(&file, &seen, &BTreeSet::new(), what);
        }
    }
}

/// Salvages, checks every key, and returns the content and the statistics of recovery.
fn check_salvage(
    image: &[u8],
    sample: &Sample,
    what: &str,
    tally: &mut Tally,
) -> (State, Recovery) {
    let (file, opened) = open(image, recovering(OnDamage::Salvage, true));
    let mut store = opened.unwrap_or_else(|error| panic!("{what}: not salvaged: {error:?}"));
    let (seen, uncertain) = content_and_uncertain_keys(&mut store);
    let recovery = *store.recovery();
    assert_eq!(file.event_count(), 0, "{what}: read only");
    for (key, entry) in &seen {
        let is_true = sample.committed_content().get(key) == Some(entry);
        assert!(
            is_true || uncertain.contains(key),
            "{what}: {key:?} is wrong but reported as certain"
        );
        assert!(
            sample.written.get(&entry.version) == Some(&entry.value),
            "{what}: {key:?} never existed"
        );
    }
    let lost = sample.committed_content().keys().filter(|key| !seen.contains_key(*key)).count();
    let reported = recovery.lost_frames + recovery.lost_keys;
    assert!(lost == 0 || reported > 0, "{what}: {lost} lost keys are not reported");
    assert!(uncertain.is_empty() || recovery.lost_frames > 0, "{what}: uncertain without a loss");
    assert_eq!(recovery.uncertain_keys, uncertain.len() as u64, "{what}");
    tally.kept += seen.len() as u64;
    tally.uncertain += uncertain.len() as u64;
    tally.lost += lost as u64;

    let (file, opened) = open(image, recovering(OnDamage::Salvage, false));
    let mut store = opened.unwrap_or_else(|error| panic!("{what}: not salvaged: {error:?}"));
    let (written, doubts) = content_and_uncertain_keys(&mut store);
    assert!(
        written == seen && doubts == uncertain,
        "{what}: written: {}",
        difference(&written, &seen)
    );
    if recovery.damaged {
        tally.salvaged += 1;
        opens_again(&file, &seen, &uncertain, what);
        // The store remains usable: what is written is certain, even after compaction.
        if let Some((keyspace, key)) = uncertain.first() {
            store.set(*keyspace, key, b"new").expect("set");
            store.maintain(true).expect("maintain");
            while store.maintain(false).expect("maintain") {}
            let (_, doubts) = content_and_uncertain_keys(&mut store);
            assert_eq!(doubts.len() + 1, uncertain.len(), "{what}");
        }
    } else {
        assert_eq!(&seen, sample.committed_content(), "{what}");
    }
    (seen, recovery)
}

fn check_image(image: &[u8], sample: &Sample, what: &str, tally: &mut Tally) -> (State, Recovery) {
    tally.images += 1;
    let (file, opened) = open(image, options());
    let refused = match opened {
        Ok(mut store) => {
            if let Ok(seen) = try_state_of(&mut store) {
                assert!(
                    &seen == sample.committed_content(),
                    "{what}: {}",
                    difference(&seen, sample.committed_content())
                );
            }
            false
        }
        Err(error) => {
            assert!(is_damage(&error), "{what}: {error:?}");
            assert_eq!(file.event_count(), 0, "{what}: refused but changed");
            true
        }
    };
    tally.refused += u64::from(refused);
    check_prefix(image, sample, refused, what, tally);
    check_salvage(image, sample, what, tally)
}

fn slots(sample: &Sample) -> usize {
    (sample.image.len() - DATA).div_ceil(SEGMENT)
}

fn zeroed(image: &[u8], ranges: &[std::ops::Range<usize>]) -> Vec<u8> {
    let mut damaged = image.to_vec();
    for range in ranges {
        damaged[range.start.min(image.len())..range.end.min(image.len())].fill(0);
    }
    damaged
}

fn samples() -> impl Iterator<Item = (u64, Sample)> {
    let seeds = match replayed("VARVE_SALVAGE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..replayed("VARVE_SALVAGE_SEEDS").unwrap_or(12),
    };
    seeds.map(|seed| (seed, sample_database(seed, 20 + 10 * (seed as usize % 4), seed % 3 > 0)))
}

#[test]
fn intact_file_opens_unchanged_with_every_damage_option() {
    for (seed, sample) in samples() {
        for on_damage in [OnDamage::Refuse, OnDamage::Prefix, OnDamage::Salvage] {
            let (file, opened) = open(&sample.image, recovering(on_damage, false));
            let mut store = opened.expect("intact");
            assert_eq!(&state_of(&mut store), sample.committed_content(), "seed {seed}");
            assert_eq!(problems_of(&mut store), [], "seed {seed}");
            assert!(store.recovery().clean && !store.recovery().damaged);
            assert_eq!(file.event_count(), 0, "seed {seed}, {on_damage:?}");
        }
    }
}

#[test]
fn lost_superblocks_checkpoint_or_segment_header_lose_no_record() {
    let mut tally = Tally::default();
    for (seed, sample) in samples() {
        let stride = SLOT_STRIDE as usize;
        let mut cases = vec![
            ("no superblock".to_string(), vec![0..256, stride..stride + 256]),
            ("the first segment is missing".to_string(), std::iter::once(0..DATA).collect()),
        ];
        for slot in 0..slots(&sample) {
            let at = DATA + slot * SEGMENT;
            cases.push((format!("header {slot}"), std::iter::once(at..at + 64).collect()));
            let end = at + SEGMENT - 64..at + SEGMENT;
            cases.push((format!("trailer {slot}"), std::iter::once(end).collect()));
        }
        for (case, ranges) in cases {
            let damaged = zeroed(&sample.image, &ranges);
            let what = format!("seed {seed}, {case}");
            // The position of a header may be inside a large value.
            let (seen, recovery) = check_image(&damaged, &sample, &what, &mut tally);
            if case.starts_with("no") || case.starts_with("the") {
                assert!(
                    &seen == sample.committed_content(),
                    "{what}: {}",
                    difference(&seen, sample.committed_content())
                );
                assert_eq!((recovery.lost_frames, recovery.uncertain_keys), (0, 0), "{what}");
            }
        }
    }
    println!("{tally:?}");
}

#[test]
fn lost_segment_is_salvaged_around() {
    let mut tally = Tally::default();
    for (seed, sample) in samples() {
        for slot in 0..slots(&sample) {
            let at = DATA + slot * SEGMENT;
            let damaged = zeroed(&sample.image, std::slice::from_ref(&(at..at + SEGMENT)));
            check_image(&damaged, &sample, &format!("seed {seed}, slot {slot} erased"), &mut tally);
        }
    }
    println!("{tally:?}");
}

#[test]
fn zeroed_sector_is_salvaged_around() {
    let mut tally = Tally::default();
    for (seed, sample) in samples() {
        for from in (0..sample.image.len()).step_by(512) {
            let damaged = zeroed(&sample.image, std::slice::from_ref(&(from..from + 512)));
            check_image(&damaged, &sample, &format!("seed {seed}, {from} zeroed"), &mut tally);
        }
    }
    println!("{tally:?}");
}

#[test]
fn multiple_damages_are_salvaged_around() {
    let mut tally = Tally::default();
    for (seed, sample) in samples() {
        let mut rng = Rng::new(seed);
        for round in 0..60 {
            let mut damaged = sample.image.clone();
            for _ in 0..rng.within(2..5) {
                // Both superblocks stay intact: another test covers files without them.
                let from = rng.within(DATA..damaged.len());
                let to = damaged.len().min(from + rng.within(1..200));
                let bytes = bytes_of(rng.next(), to - from);
                damaged[from..to].copy_from_slice(&bytes);
            }
            check_image(&damaged, &sample, &format!("seed {seed}, round {round}"), &mut tally);
        }
    }
    println!("{tally:?}");
}

#[test]
fn bit_flips_are_salvaged_around_and_found_by_verification() {
    let mut tally = Tally::default();
    let (mut found, mut missed) = (0_u64, 0_u64);
    let sample = sample_database(5, 14, true);
    let mut damaged = sample.image.clone();
    for bit in 0..damaged.len() * 8 {
        // One bit of each byte, a different one each time; flips.rs tests every bit of headers.
        if bit % 8 != bit / 8 % 8 {
            continue;
        }
        damaged[bit / 8] ^= 1 << (bit % 8);
        let what = format!("bit {bit} flipped");
        let (_, recovery) = check_image(&damaged, &sample, &what, &mut tally);
        // A bit flip while the store is open.
        let file = FaultFile::new(sample.image.clone());
        let mut store = Store::open(file.clone(), options()).expect("intact");
        file.damage(bit / 8, 1 << (bit % 8));
        let problems = problems_of(&mut store);
        match problems.as_slice() {
            [] => {
                assert!(!recovery.damaged, "{what}: not found, and damage");
                missed += 1;
            }
            [one] => {
                let at = bit as u64 / 8;
                assert!((one.at..one.at + one.length).contains(&at), "{what}: {one:?}");
                found += 1;
            }
            more => panic!("{what}: {more:?}"),
        }
        damaged[bit / 8] ^= 1 << (bit % 8);
    }
    println!("{} bytes, {found} found, {missed} harmless, {tally:?}", sample.image.len());
    // The remaining bytes follow superblocks and values, and are never read.
    assert!(found > 8_000);
}

#[test]
fn crash_at_any_moment_of_salvage_loses_nothing() {
    let mut states = 0_u64;
    for (seed, sample) in samples().take(4) {
        let mut rng = Rng::new(seed);
        // The first offset at which opening detects damage.
        let positions = (DATA + 200..sample.image.len()).step_by(700);
        let zeroed_at = |at: usize| zeroed(&sample.image, std::slice::from_ref(&(at..at + 60)));
        let is_refused = |image: &Vec<u8>| open(image, options()).1.is_err();
        let Some(image) = positions.map(zeroed_at).find(is_refused) else { continue };
        for on_damage in [OnDamage::Prefix, OnDamage::Salvage] {
            let (file, opened) = open(&image, recovering(on_damage, false));
            let Ok(mut store) = opened else { continue };
            if !store.recovery().damaged {
                continue;
            }
            let (expected, uncertain) = content_and_uncertain_keys(&mut store);
            let limits = Limits {
                exhaustive: 64,
                drawn: 8,
                randomized: 1,
                patterns: 8,
                flushes_lie_from: usize::MAX,
                tear_step: 512,
            };
            let (base, events) = file.history();
            crash_images::walk(&base, Bounds::only(0), &events, limits, &mut rng, |crash| {
                states += 1;
                let what = format!("seed {seed}, {on_damage:?}, crash at event {}", crash.event);
                let (_, opened) = open(&crash.image.to_vec(), options());
                // With a checkpoint the old log opens, and its damage is detected by reads.
                let whole = opened
                    .ok()
                    .and_then(|mut store| try_state_of(&mut store).is_ok().then_some(store));
                if let Some(mut store) = whole {
                    let (seen, doubts) = content_and_uncertain_keys(&mut store);
                    assert!(seen == expected, "{what}: {}", difference(&seen, &expected));
                    assert_eq!(doubts, uncertain, "{what}");
                    return;
                }
                // Each opening has its own random numbers, so the remains of the first attempt do
                // not belong to it.
                let second_attempt =
                    Options { entropy: [5, 6, 7, 8], ..recovering(on_damage, false) };
                let (again, opened) = open(&crash.image.to_vec(), second_attempt);
                let (seen, doubts) =
                    content_and_uncertain_keys(&mut opened.expect("recovered again"));
                assert!(
                    seen == expected,
                    "{what}: second attempt: {}",
                    difference(&seen, &expected)
                );
                assert_eq!(doubts, uncertain, "{what}");
                opens_again(&again, &expected, &uncertain, &what);
            });
        }
    }
    println!("{states} states");
    assert!(states > 100);
}

#[test]
fn salvage_without_space_leaves_the_file_unchanged() {
    use crate::support::fault_file::{FailureMode, Fault};
    use varve::engine::IoError;
    let sample = sample_database(3, 40, false);
    let image = zeroed(&sample.image, std::slice::from_ref(&(DATA + 500..DATA + 560)));
    for nth in 0.. {
        let file = FaultFile::new(image.clone());
        file.arm(Fault { nth, lasting: true, failure: FailureMode::Fail(IoError::Quota) });
        let failed = Store::open(file.clone(), recovering(OnDamage::Salvage, false)).is_err();
        if !file.struck() {
            assert!(!failed && nth > 10);
            break;
        }
        file.heal();
        let left = file.image();
        let mut tally = Tally::default();
        let (before, _) = check_salvage(&image, &sample, "before", &mut tally);
        let (_, opened) = open(&left, recovering(OnDamage::Salvage, false));
        let (after, _) = content_and_uncertain_keys(&mut opened.expect("salvaged after all"));
        assert!(after == before, "call {nth}: {}", difference(&after, &before));
    }
}

#[test]
fn unclosed_file_is_salvaged_around_its_damage() {
    let (mut salvaged, mut shortened) = (0_u64, 0_u64);
    let seeds = 0..replayed("VARVE_SALVAGE_SEEDS").unwrap_or(12);
    for seed in seeds {
        let sample = live(1_000 + seed, 30, seed % 2 > 0, false);
        for from in (0..sample.image.len()).step_by(256) {
            let image = zeroed(&sample.image, std::slice::from_ref(&(from..from + 300)));
            let what = format!("seed {seed}, {from} zeroed");
            for on_damage in [OnDamage::Prefix, OnDamage::Salvage] {
                let (file, opened) = open(&image, recovering(on_damage, false));
                let Ok(mut store) = opened else {
                    assert!(on_damage == OnDamage::Prefix, "{what}: not salvaged");
                    continue;
                };
                if on_damage == OnDamage::Prefix && try_state_of(&mut store).is_err() {
                    assert!(!store.recovery().damaged, "{what}: a prefix is not readable");
                    continue;
                }
                let (seen, uncertain) = content_and_uncertain_keys(&mut store);
                if on_damage == OnDamage::Prefix || !store.recovery().damaged {
                    // Unflushed frames may be dropped, as after a crash.
                    assert!(
                        sample.commits.contains(&seen),
                        "{what}: {on_damage:?} is not a prefix"
                    );
                    shortened += u64::from(&seen != sample.committed_content());
                } else {
                    for (key, entry) in &seen {
                        let is_true = sample.committed_content().get(key) == Some(entry);
                        // The damage may extend into unflushed frames, which are dropped.
                        let torn = store.recovery().torn_bytes > 0
                            && sample.commits.iter().any(|state| state.get(key) == Some(entry));
                        let recovery = store.recovery();
                        assert!(
                            is_true || torn || uncertain.contains(key),
                            "{what}: {key:?} is wrong: {recovery:?}"
                        );
                    }
                    salvaged += 1;
                }
                if store.recovery().damaged {
                    opens_again(&file, &seen, &uncertain, &what);
                }
            }
        }
    }
    println!("{salvaged} salvaged, {shortened} shortened");
    assert!(salvaged > 100);
}
