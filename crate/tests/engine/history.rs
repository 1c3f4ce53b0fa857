//! What the log says about the time since a cursor: changes, marks that keep them, and what was forgotten.

use std::collections::BTreeMap;

use varve::engine::format::record::{KIND_CLEAR, KIND_DELETE};
use varve::engine::log::log_walk::PartKind;
use varve::engine::{Error, File, IoError, Options, Store};

use crate::support::crash_images::{Limits, walk};
use crate::support::fault_file::{FailureMode, FaultFile};
use crate::support::oracle::Bounds;
use crate::support::rng::{Rng, bytes_of};

type State = BTreeMap<(u32, Vec<u8>), Vec<u8>>;

/// A key as it is now: its keyspace, and its value unless it was deleted. Or a keyspace that was emptied.
type Change = (u32, Option<Vec<u8>>, Option<Vec<u8>>);

/// All that changed since a cursor, in the order in which to apply it.
fn changes<F: File>(store: &mut Store<F>, since: u64) -> Vec<Change> {
    let mut all = vec![];
    // A clear that was moved follows what was set after it.
    let mut walk = store.begin_log_walk(since, u64::MAX);
    while store.walk_log(&mut walk).expect("the file can be read") {
        let clears = walk.parts().iter().flat_map(|part| walk.records(part));
        let clears = clears.filter(|it| it.header.kind == KIND_CLEAR && it.header.version > since);
        let clears: Vec<_> = clears.map(|it| (*it.header, it.key.to_vec())).collect();
        for (header, key) in clears {
            let keyspace = u32::from_be_bytes(key[6..].try_into().expect("a number"));
            if store.walked_is_current(&walk, 0, &header, &key).expect("readable") {
                all.retain(|change: &Change| change.0 != keyspace);
                all.push((keyspace, None, None));
            }
        }
    }
    let (mut walk, mut deleted) = (store.begin_log_walk(since, u64::MAX), BTreeMap::new());
    while store.walk_log(&mut walk).expect("the file can be read") {
        let mut found = vec![];
        for part in walk.parts() {
            assert!(part.kind != PartKind::Damage, "nothing is damaged");
            for record in walk.records(part) {
                let at = record.key.as_ptr().addr() - walk.bytes().as_ptr().addr() - 40;
                found.push((at, *record.header, record.key.to_vec(), record.value.to_vec()));
            }
        }
        for (at, header, key, described) in found {
            if header.kind == KIND_CLEAR
                || header.version <= since
                || !store.walked_is_current(&walk, at, &header, &key).expect("readable")
            {
                continue;
            }
            let keyspace = header.keyspace();
            if header.kind == KIND_DELETE {
                deleted.insert((keyspace, key), header.version);
                continue;
            }
            let value = match header.kind {
                1 => described,
                _ => {
                    let value = store.walked_value(&header, &key, &described).expect("readable");
                    value.expect("a current value is there").to_vec()
                }
            };
            all.push((keyspace, Some(key), Some(value)));
        }
    }
    let mut keys: Vec<_> = all.iter().map(|(space, key, _)| (*space, key.clone())).collect();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), all.len(), "each key comes once");
    all.extend(deleted.into_keys().map(|(keyspace, key)| (keyspace, Some(key), None)));
    all
}

fn applied(mut state: State, changes: &[Change]) -> State {
    for (keyspace, key, value) in changes.iter().cloned() {
        match (key, value) {
            (None, _) => state.retain(|(other, _), _| *other != keyspace),
            (Some(key), Some(value)) => drop(state.insert((keyspace, key), value)),
            (Some(key), None) => drop(state.remove(&(keyspace, key))),
        }
    }
    state
}

/// The transactions since a cursor: the number and the records of each. None if some are gone.
fn transactions(store: &mut Store<FaultFile>, since: u64) -> Option<Vec<(u64, usize)>> {
    let (mut walk, mut all) = (store.begin_log_walk(since, u64::MAX), vec![]);
    let mut is_moved = false;
    while store.walk_log(&mut walk).expect("the file can be read") {
        for part in walk.parts() {
            match part.kind {
                PartKind::Gap => return None,
                PartKind::Damage => panic!("nothing is damaged"),
                PartKind::Moved => is_moved = true,
                PartKind::Transaction => {
                    is_moved = false;
                    all.push((part.number, 0));
                }
                PartKind::Continuation => {}
            }
            if !is_moved && let Some(last) = all.last_mut() {
                last.1 += walk.records(part).count();
            }
        }
    }
    Some(all)
}

fn options(factor: u32) -> Options {
    Options { segment_log2: 12, factor, ..Options::default() }
}

/// A store and the list of its states: the cursor of each commit with the content and the number of records then.
struct Model {
    file: FaultFile,
    store: Store<FaultFile>,
    states: Vec<(u64, State)>,
    /// The last versions of commits, and how many records each had.
    commits: Vec<(u64, usize)>,
    rng: Rng,
    number: u64,
}

impl Model {
    fn new(seed: u64, factor: u32) -> Self {
        let file = FaultFile::default();
        let store = Store::open(file.clone(), options(factor)).expect("a new file opens");
        let states = vec![(0, State::new())];
        Model { file, store, states, commits: vec![], rng: Rng::new(seed), number: 0 }
    }

    fn state(&self) -> State {
        self.states.last().expect("there is one").1.clone()
    }

    /// Some writes in one commit.
    fn write(&mut self) {
        let (mut state, mut records) = (self.state(), 0);
        let savepoint = self.store.savepoint();
        for _ in 0..self.rng.within(1..6) {
            self.number += 1;
            let keyspace = if self.rng.one_in(4) { 2 } else { 0 };
            let key = format!("key {}", self.rng.below(60)).into_bytes();
            if self.rng.one_in(200) {
                let count = self.store.empty(keyspace).expect("there is space");
                state.retain(|(other, _), _| *other != keyspace);
                records += usize::from(count > 0);
            } else if self.rng.one_in(3) {
                let was_there = self.store.delete(keyspace, &key).expect("there is space");
                assert_eq!(was_there, state.remove(&(keyspace, key)).is_some());
                records += usize::from(was_there);
            } else {
                let longest = if self.rng.one_in(40) { 6_000 } else { 300 };
                let value = bytes_of(self.number, self.rng.below(longest));
                self.store.set(keyspace, &key, &value).expect("there is space");
                state.insert((keyspace, key), value);
                records += 1;
            }
        }
        self.store.release(savepoint).expect("there is space");
        if self.rng.one_in(3) { self.store.flush() } else { self.store.commit() }.expect("space");
        self.states.push((self.store.last_commit(), state));
        if records > 0 {
            self.commits.push((self.store.last_commit(), records));
        }
    }

    fn maintain(&mut self) {
        let mut all = self.rng.one_in(4);
        for _ in 0..self.rng.below(60) {
            if !self.store.maintain(core::mem::take(&mut all)).expect("there is space") {
                break;
            }
        }
    }

    fn reopen(mut self, factor: u32) -> Self {
        let store = match self.rng.one_in(2) {
            // As after a kill.
            true => self.store.into_file(),
            false => self.store.close().map_err(|(_, error)| error).expect("closes"),
        };
        drop(store);
        self.store = Store::open(self.file.clone(), options(factor)).expect("opens");
        self
    }

    /// Checks the changes since every earlier state; returns how many cursors have expired.
    fn check(&mut self, seed: u64) -> usize {
        let (now, mut expired) = (self.state(), 0);
        for (cursor, before) in self.states.clone() {
            let known = self.store.since(cursor).expect("readable");
            assert!(known.changes_are_known || !known.is_whole);
            if !known.changes_are_known {
                expired += 1;
                continue;
            }
            let changes = changes(&mut self.store, cursor);
            let after = applied(before, &changes);
            assert!(after == now, "seed {seed}: since {cursor}");
            if !known.is_whole {
                continue;
            }
            let shown = transactions(&mut self.store, cursor);
            let shown: usize =
                shown.expect("nothing is gone").iter().map(|(_, records)| records).sum();
            let later = self.commits.iter().filter(|(version, _)| *version > cursor);
            let written: usize = later.map(|(_, records)| records).sum();
            // A key that was written twice in a commit may have one record.
            assert!(shown <= written, "seed {seed}: since {cursor}: {shown} of {written}");
        }
        expired
    }
}

#[test]
fn changes_since_any_cursor_lead_from_its_state_to_the_present() {
    let (mut expired, mut cursors) = (0, 0);
    for seed in 0..12 {
        let mut model = Model::new(seed, 120);
        for round in 0..60 {
            for _ in 0..model.rng.below(6) {
                model.write();
            }
            model.maintain();
            if round % 5 == 4 {
                expired += model.check(seed);
                cursors += model.states.len();
            }
            if model.rng.one_in(10) {
                model = model.reopen(120);
            }
        }
    }
    // Some expire; of a store with so many deletions not all do.
    assert!(expired > 0 && expired < cursors, "{expired} of {cursors}");
}

#[test]
fn a_mark_keeps_every_transaction_since_it() {
    for seed in 0..8 {
        let mut model = Model::new(seed, 120);
        let mut mark: Option<u64> = None;
        for _ in 0..60 {
            for _ in 0..model.rng.below(6) {
                model.write();
            }
            if model.rng.one_in(6) {
                let next = model.rng.pick(&model.states).0;
                match model.store.retain(b"backup", Some(next)) {
                    Ok(()) => mark = Some(next),
                    Err(error) => {
                        assert_eq!(error, Error::CursorExpired);
                        assert!(mark.is_none_or(|mark| mark > next), "seed {seed}");
                    }
                }
                model.store.commit().expect("there is space");
            }
            if model.rng.one_in(20) {
                model.store.retain(b"backup", None).expect("there is space");
                model.store.commit().expect("there is space");
                mark = None;
            }
            model.maintain();
            if model.rng.one_in(8) {
                model = model.reopen(120);
            }
            if let Some(mark) = mark {
                assert!(model.store.since(mark).expect("readable").is_whole, "seed {seed}");
                assert!(model.store.retained_bytes() > 0);
            } else {
                assert_eq!(model.store.retained_bytes(), 0);
            }
        }
        model.check(seed);
    }
}

/// The content of an opened image: all keys of both keyspaces.
fn content(store: &mut Store<FaultFile>) -> State {
    let mut state = State::new();
    for keyspace in [0, 2] {
        let keys: Vec<Vec<u8>> = store.keys(keyspace).expect("readable");
        for key in keys {
            let value = store.get(keyspace, &key).expect("readable").expect("it is there").to_vec();
            state.insert((keyspace, key), value);
        }
    }
    state
}

#[test]
fn after_any_crash_cursors_and_marks_are_as_good_as_before() {
    let (mut images, mut known, mut whole, mut gone) = (0, 0, 0, 0);
    for seed in 0..4 {
        let mut model = Model::new(seed, 120);
        let (base, _) = model.file.history();
        for round in 0..40 {
            for _ in 0..model.rng.within(1..4) {
                model.write();
            }
            if round % 6 == 2 {
                let next = model.states[model.states.len() - 2].0;
                match model.store.retain(b"backup", Some(next)) {
                    Ok(()) | Err(Error::CursorExpired) => {}
                    Err(error) => panic!("{error}"),
                }
                model.store.commit().expect("there is space");
            }
            model.maintain();
        }
        let (_, events) = model.file.history();
        let limits = Limits {
            exhaustive: 8,
            drawn: 3,
            randomized: 0,
            patterns: 1,
            flushes_lie_from: usize::MAX,
            tear_step: 1_999,
        };
        let mut rng = Rng::new(seed);
        let states = &model.states;
        walk(&base, Bounds::only(0), &events, limits, &mut Rng::new(seed), |crash| {
            images += 1;
            let file = FaultFile::new(crash.image.clone());
            let Ok(mut store) = Store::open(file, options(120)) else {
                // Before the first superblock is complete there is no database.
                assert!(crash.event < 8, "seed {seed}: event {}", crash.event);
                return;
            };
            let now = content(&mut store);
            let last = states.iter().position(|(_, state)| *state == now);
            let last = last.expect("the content is that after some commit");
            if let Some(marks) = store.get(1, b"marks").expect("readable") {
                let cursor = u64::from_le_bytes(marks[..8].try_into().expect("8 bytes"));
                let since = store.since(cursor).expect("readable");
                assert!(since.is_whole, "seed {seed}: event {}", crash.event);
                whole += 1;
            }
            for _ in 0..3 {
                let (cursor, before) = &states[rng.below(last + 1)];
                if !store.since(*cursor).expect("readable").changes_are_known {
                    gone += 1;
                    continue;
                }
                known += 1;
                let after = applied(before.clone(), &changes(&mut store, *cursor));
                assert!(after == now, "seed {seed}: event {} since {cursor}", crash.event);
            }
        });
    }
    println!("{images} crash states, {whole} with a mark, {known} cursors, and {gone} expired");
    assert!(whole > 500 && known > 500 && gone > 100, "{images}: {whole}, {known}, {gone}");
}

#[test]
fn without_marks_compaction_takes_what_they_kept() {
    let mut model = Model::new(1, 120);
    model.store.retain(b"a", Some(0)).expect("there is space");
    for _ in 0..300 {
        model.write();
        while model.store.maintain(false).expect("there is space") {}
    }
    let kept = model.store.stats().file_bytes;
    assert_eq!(model.check(1), 0);
    assert!(model.store.retained_bytes() > kept / 2);
    model.store.retain(b"a", None).expect("there is space");
    model.store.commit().expect("there is space");
    let mut all = true;
    while model.store.maintain(core::mem::take(&mut all)).expect("there is space") {}
    let left = model.store.stats().file_bytes;
    assert!(left < kept / 3, "{left} of {kept} bytes");
    assert!(model.check(1) > 0);
}

#[test]
fn a_full_disk_with_a_mark_refuses_writes_until_the_mark_is_dropped() {
    let file = FaultFile::default();
    let mut store = Store::open(file.clone(), options(120)).expect("a new file opens");
    store.retain(b"backup", Some(0)).expect("there is space");
    store.commit().expect("there is space");
    file.limit(Some((200_000, FailureMode::Fail(IoError::Quota))));
    let mut written = 0;
    let refused = loop {
        let value = bytes_of(written, 500);
        let done = store.set(0, b"key", &value).and_then(|_| store.commit());
        // Maintenance ends, although there is much that it would like to free.
        let mut steps = 0;
        while matches!(store.maintain(false), Ok(true)) {
            steps += 1;
            assert!(steps < 10_000, "maintenance goes on for ever");
        }
        match done {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(refused, Error::Quota);
    assert!(written > 200, "{written}");
    let kept = transactions(&mut store, 0).expect("nothing is gone");
    assert_eq!(kept.len() as u64, written);
    store.retain(b"backup", None).expect("there is space for a deletion");
    store.commit().expect("there is space for a deletion");
    for round in 0..1_000 {
        store.set(0, b"key", &bytes_of(round, 500)).expect("there is space again");
        store.commit().expect("there is space again");
    }
}

#[test]
fn what_follows_the_newest_commit_is_whole_also_if_all_before_it_was_moved() {
    for reopens in [false, true] {
        let file = FaultFile::default();
        let mut store = Store::open(file.clone(), options(120)).expect("opens");
        for i in 0..600_u32 {
            store.set(0, &(i % 300).to_be_bytes(), &[7; 100]).expect("set");
            store.commit().expect("commit");
        }
        let mut more = store.maintain(true).expect("maintain");
        while more {
            more = store.maintain(false).expect("maintain");
        }
        let cursor = store.last_commit();
        store.retain(b"mark", Some(cursor)).expect("nothing is newer");
        store.commit().expect("commit");
        store.set(0, b"later", b"value").expect("set");
        store.commit().expect("commit");
        if reopens {
            store.close().map_err(|(_, error)| error).expect("close");
            store = Store::open(file, options(120)).expect("opens");
        }
        assert!(store.since(cursor).expect("readable").is_whole);
        let found = transactions(&mut store, cursor).expect("there is no gap");
        assert_eq!(found.len(), 1, "{found:?}");
    }
}

#[test]
fn cursors_that_no_commit_has_reached_are_refused() {
    let mut store = Store::open(FaultFile::default(), options(150)).expect("a new file opens");
    assert_eq!(store.last_commit(), 0);
    store.set(0, b"a", b"1").expect("there is space");
    assert_eq!((store.last_commit(), store.since(1)), (0, Err(Error::CursorInFuture)));
    store.commit().expect("there is space");
    assert_eq!(store.last_commit(), 1);
    assert!(store.since(1).expect("readable").is_whole);
    assert_eq!(store.retain(b"a", Some(2)), Err(Error::CursorInFuture));
    assert_eq!(store.retain(b"", Some(1)), Err(Error::EmptyKey));
    assert_eq!(store.retain(&[b'a'; 256], Some(1)), Err(Error::KeyTooLong));
}
