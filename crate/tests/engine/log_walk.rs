//! Walks over the log: they show the transactions that were committed, as far as compaction left them, whatever
//! else is damaged.

use std::collections::{BTreeMap, BTreeSet};

use varve::engine::format::record::{KIND_CHUNKED, KIND_DELETE, KIND_EXTENT};
use varve::engine::log::log_walk::{LogWalk, PartKind};
use varve::engine::{File, Options, Store};

use crate::support::fault_file::FaultFile;
use crate::support::rng::{Rng, bytes_of};

/// A record: its key, and its value unless it is a deletion.
type Written = (Vec<u8>, Option<Vec<u8>>);

/// A transaction as a walk shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Walked {
    note: Option<Vec<u8>>,
    records: Vec<Written>,
}

/// All that a walk shows.
#[derive(Debug, Default)]
struct Seen {
    transactions: Vec<Walked>,
    numbers: Vec<u64>,
    moved: usize,
    gaps: usize,
    damage: Vec<(u64, u64)>,
    /// The newest version of each key, and its value.
    newest: BTreeMap<Vec<u8>, (u64, Option<Vec<u8>>)>,
}

fn walked<F: File>(store: &mut Store<F>, since: u64, until: u64) -> Seen {
    let mut walk = store.begin_log_walk(since, until);
    let (mut seen, mut is_moved) = (Seen::default(), false);
    while store.walk_log(&mut walk).expect("the file can be read") {
        see(store, &walk, &mut seen, &mut is_moved);
    }
    seen
}

/// What a walk from the newest to the oldest shows, in the order of a walk forwards.
fn walked_back(store: &mut Store<FaultFile>, since: u64, until: u64) -> Seen {
    let mut walk = store.begin_log_walk_back(since, until);
    let (mut seen, mut is_moved) = (Seen::default(), false);
    while store.walk_log(&mut walk).expect("the file can be read") {
        see(store, &walk, &mut seen, &mut is_moved);
    }
    seen.transactions.reverse();
    seen.numbers.reverse();
    seen.damage.reverse();
    seen
}

/// Checks that both directions show the same.
fn assert_same_back(store: &mut Store<FaultFile>, seen: &Seen, since: u64, until: u64) {
    let back = walked_back(store, since, until);
    assert_eq!((back.moved, back.gaps), (seen.moved, seen.gaps));
    assert_eq!(back.damage, seen.damage);
    assert_eq!(back.numbers, seen.numbers);
    assert!(back.transactions == seen.transactions);
    assert!(back.newest == seen.newest);
}

fn see<F: File>(store: &mut Store<F>, walk: &LogWalk, seen: &mut Seen, is_moved: &mut bool) {
    for part in walk.parts() {
        match part.kind {
            PartKind::Gap => seen.gaps += 1,
            PartKind::Damage => seen.damage.push((part.number, part.to.into())),
            PartKind::Moved => (seen.moved, *is_moved) = (seen.moved + 1, true),
            PartKind::Transaction => {
                let note = walk.transaction(part).map(|(_, note)| note.to_vec());
                seen.transactions.push(Walked { note, records: vec![] });
                seen.numbers.push(part.number);
                *is_moved = false;
            }
            PartKind::Continuation => {}
        }
        for record in walk.records(part) {
            let (kind, version) = (record.header.kind, record.header.version);
            let value = match kind {
                KIND_DELETE => None,
                KIND_EXTENT | KIND_CHUNKED => {
                    let value = store
                        .walked_value(record.header, record.key, record.value)
                        .expect("readable");
                    Some(value.unwrap_or(b"gone").to_vec())
                }
                _ => Some(record.value.to_vec()),
            };
            let newest = seen.newest.entry(record.key.to_vec()).or_default();
            if version >= newest.0 {
                *newest = (version, value.clone());
            }
            if !*is_moved {
                let last = seen.transactions.last_mut().expect("records follow their transaction");
                last.records.push((record.key.to_vec(), value));
            }
        }
    }
}

fn options() -> Options {
    Options { segment_log2: 12, factor: 300, ..Options::default() }
}

/// Writes random commits, each with its transactions, and returns these. Each key is new, or of an earlier commit.
fn written(
    store: &mut Store<FaultFile>,
    rng: &mut Rng,
    commits: usize,
    overwrites: bool,
) -> Vec<Vec<Walked>> {
    let mut all = vec![];
    let mut keys: Vec<Vec<u8>> = vec![];
    for number in 0..commits {
        let mut commit = vec![];
        let mut used = BTreeSet::new();
        for part in 0..rng.within(1..4) {
            let noted = rng.one_in(2);
            let note = noted.then(|| bytes_of(rng.next(), rng.below(200)));
            // Within a savepoint nothing is committed, however large it is.
            let savepoint = store.savepoint();
            if let Some(note) = &note {
                store.note(number as u64, note).expect("there is space");
            }
            let mut records = vec![];
            for i in 0..rng.below(5) {
                let mut key = format!("{number}-{part}-{i}").into_bytes();
                if (overwrites || rng.one_in(20)) && !keys.is_empty() {
                    key = rng.pick(&keys).clone();
                }
                if !used.insert(key.clone()) {
                    continue;
                }
                if rng.one_in(6) {
                    if store.delete(0, &key).expect("there is space") {
                        records.push((key, None));
                    }
                } else {
                    let longest = if rng.one_in(30) { 3_000 } else { 500 };
                    let value = bytes_of(rng.next(), rng.below(longest));
                    store.set(0, &key, &value).expect("there is space");
                    keys.push(key.clone());
                    records.push((key, Some(value)));
                }
            }
            if rng.one_in(8) {
                // What is rolled back leaves nothing but unused space.
                let inner = store.savepoint();
                store.set(0, b"rolled back", &bytes_of(1, 300)).expect("there is space");
                store.rollback(inner);
            }
            store.release(savepoint).expect("there is space");
            if !records.is_empty() {
                commit.push(Walked { note, records });
            }
        }
        if rng.one_in(2) { store.flush() } else { store.commit() }.expect("there is space");
        if !commit.is_empty() {
            all.push(commit);
        }
    }
    all
}

/// Transactions with notes, and all records between two of them together: how many commits these were depends on
/// their size. Those of which only the note is left are not looked at.
fn merged<'a>(all: impl IntoIterator<Item = &'a Walked>) -> Vec<Walked> {
    let mut merged: Vec<Walked> = vec![];
    for one in all.into_iter().filter(|it| !it.records.is_empty()) {
        match merged.last_mut() {
            Some(Walked { note: None, records }) if one.note.is_none() => {
                records.extend(one.records.iter().cloned());
            }
            _ => merged.push(one.clone()),
        }
    }
    merged
}

/// Each record with the note that it was shown under.
fn flat(all: &[Walked]) -> Vec<(Written, Option<Vec<u8>>)> {
    let each = |it: &Walked| {
        let note = it.note.clone();
        it.records.iter().map(move |record| (record.clone(), note.clone())).collect::<Vec<_>>()
    };
    all.iter().flat_map(each).collect()
}

/// Values that lie outside of the log may be gone.
fn matches(shown: &[Walked], expected: &[Walked]) -> bool {
    let same = |(a, b): (&Written, &Written)| {
        a.0 == b.0 && (a.1 == b.1 || a.1.as_deref() == Some(b"gone") && b.1.is_some())
    };
    shown.len() == expected.len()
        && shown.iter().zip(expected).all(|(a, b)| {
            a.note == b.note
                && a.records.len() == b.records.len()
                && a.records.iter().zip(&b.records).all(same)
        })
}

#[test]
fn a_walk_shows_the_committed_transactions() {
    for seed in 0..40 {
        let file = FaultFile::default();
        let mut store = Store::open(file.clone(), options()).expect("a new file opens");
        let mut rng = Rng::new(seed);
        let commits = written(&mut store, &mut rng, 60, false);
        let all = commits.concat();
        let seen = walked(&mut store, 0, u64::MAX);
        assert_eq!((seen.moved, seen.gaps, seen.damage.len()), (0, 0, 0), "seed {seed}");
        assert!(matches(&merged(&seen.transactions), &merged(&all)), "seed {seed}");
        assert!(seen.numbers.is_sorted_by(|a, b| a < b), "seed {seed}: {:?}", seen.numbers);
        // A part of it, by numbers.
        let [from, to] = [seen.numbers.len() / 3, seen.numbers.len() / 2];
        let part = walked(&mut store, seen.numbers[from], seen.numbers[to]);
        assert_eq!(part.numbers, seen.numbers[from + 1..=to], "seed {seed}");
        assert!(part.transactions == seen.transactions[from + 1..=to], "seed {seed}");
        assert_same_back(&mut store, &seen, 0, u64::MAX);
        assert_same_back(&mut store, &part, seen.numbers[from], seen.numbers[to]);
        // The same after opening the file again, by its checkpoint and without.
        drop(store.close().map_err(|(_, error)| error).expect("closes"));
        let options = Options { read_only: true, ..options() };
        let mut store = Store::open(FaultFile::new(file.pages()), options).expect("opens");
        let again = walked(&mut store, 0, u64::MAX);
        assert!(matches(&merged(&again.transactions), &merged(&all)), "seed {seed}");
    }
}

#[test]
fn one_flipped_bit_is_one_damage_and_takes_one_commit() {
    let file = FaultFile::default();
    let mut store = Store::open(file.clone(), options()).expect("a new file opens");
    let commits = written(&mut store, &mut Rng::new(7), 30, false);
    store.flush().expect("flushes");
    let whole = walked(&mut store, 0, u64::MAX).transactions;
    assert!(matches(&merged(&whole), &merged(commits.iter().flatten())));
    let whole = flat(&whole);
    let commits: Vec<BTreeSet<_>> =
        commits.iter().map(|it| flat(it).into_iter().collect()).collect();
    let (mut damaged, mut rng) = (0, Rng::new(1));
    let image = file.image();
    for at in (8192..image.len()).step_by(3) {
        let bit = 1 << rng.below(8);
        file.damage(at, bit);
        let seen = walked(&mut store, 0, u64::MAX);
        if at % 21 == 0 {
            assert_same_back(&mut store, &seen, 0, u64::MAX);
        }
        file.damage(at, bit);
        let left = flat(&seen.transactions);
        assert!(seen.damage.len() <= 1, "byte {at}: {:?}", seen.damage);
        let Some(&(position, length)) = seen.damage.first() else {
            // Not in a frame; or in a value outside of the log.
            assert_eq!(left.len(), whole.len(), "byte {at}");
            continue;
        };
        damaged += 1;
        assert!((position..position + length).contains(&(at as u64)), "byte {at}");
        let before = whole.iter().zip(&left).take_while(|(a, b)| a == b).count();
        let lost = whole.len() - left.len();
        assert!(left[before..] == whole[before + lost..], "byte {at}");
        // A frame may have no records, or only the engine's own.
        let lost = &whole[before..before + lost];
        let is_one = |commit: &BTreeSet<_>| lost.iter().all(|it| commit.contains(it));
        assert!(commits.iter().any(is_one), "byte {at} bit {bit}");
    }
    assert!(damaged > 1000, "{damaged}");
}

#[test]
fn compaction_leaves_what_the_content_follows_from() {
    let mut moved = 0;
    for seed in 0..20 {
        let options = Options { segment_log2: 12, factor: 120, ..Options::default() };
        let file = FaultFile::default();
        let mut store = Store::open(file.clone(), options).expect("a new file opens");
        let mut rng = Rng::new(seed);
        let mut all = written(&mut store, &mut rng, 60, true).concat();
        let begun = store.begin_log_walk(0, u64::MAX);
        let mut first = true;
        while store.maintain(core::mem::take(&mut first)).expect("there is space") {}
        all.extend(written(&mut store, &mut rng, 20, true).concat());
        let seen = walked(&mut store, 0, u64::MAX);
        assert!(seen.gaps > 0, "seed {seed}");
        moved += seen.moved;
        // Parts of transactions may be gone, but nothing is shown that was not written under the same note.
        let written: BTreeSet<_> = all
            .iter()
            .flat_map(|it| it.records.iter().map(move |record| (record.clone(), it.note.clone())))
            .collect();
        for transaction in &seen.transactions {
            for record in &transaction.records {
                let is_gone = record.1.as_deref() == Some(b"gone");
                let note = transaction.note.clone();
                let known = |note| written.contains(&(record.clone(), note));
                assert!(
                    is_gone
                        || known(note.clone())
                        || note.is_none() && {
                            // The record with the note was in a segment that is gone.
                            written.iter().any(|(it, _)| it == record)
                        },
                    "seed {seed}"
                );
            }
        }
        assert_content(&mut store, &seen, seed);
        assert_same_back(&mut store, &seen, 0, u64::MAX);
        // A walk that began before shows what was moved meanwhile.
        let (mut walk, mut late, mut is_moved) = (begun, Seen::default(), false);
        while store.walk_log(&mut walk).expect("readable") {
            see(&mut store, &walk, &mut late, &mut is_moved);
        }
        assert!(late.gaps > 0, "seed {seed}");
        let missing = seen
            .newest
            .iter()
            .filter(|(key, (_, value))| value.is_some() && !late.newest.contains_key(*key));
        // Only what was written later is missing.
        let first_later = seen.numbers.iter().find(|&&n| !late.numbers.contains(&n)).copied();
        for (_, (version, _)) in missing {
            assert!(Some(*version) >= first_later, "seed {seed}");
        }
    }
    assert!(moved > 5, "{moved}");
}

/// Checks that the newest record of each key is what the store has.
fn assert_content(store: &mut Store<FaultFile>, seen: &Seen, seed: u64) {
    let mut count = 0;
    for (key, (version, value)) in &seen.newest {
        let current = store.get(0, key).expect("readable").map(<[u8]>::to_vec);
        assert!(current == *value, "seed {seed}");
        if value.is_some() {
            assert_eq!(store.version(0, key).expect("readable"), Some(*version), "seed {seed}");
            count += 1;
        }
    }
    assert_eq!(count, store.count(0), "seed {seed}");
}
