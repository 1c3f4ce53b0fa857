//! The expected content of a store: the state of every commit, and which of them may be found.

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::iter::successors;
use std::rc::Rc;

use varve::engine::format::KEYSPACE_ENGINE;
use varve::engine::format::system_records::{
    KEY_CHUNK, KEY_CLEAR, KEY_EXPIRY, KEY_GAP, KEY_HISTORY, KEY_MARKS, KEY_PACKED,
};
use varve::engine::{Error, File, ProblemKind, Store, Verified, VerifyCursor};

use super::fault_file::FaultFile;

/// The keyspaces that the tests write to, besides the engine's own.
pub const KEYSPACES: [u32; 3] = [0, 2, 65_535];

/// The value of a key and its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub value: Rc<[u8]>,
    /// `UNKNOWN` until the call that assigns it has returned.
    pub version: u64,
    /// From when on the key is absent, in seconds; 0 for never.
    pub expiry: u32,
}

/// No version: the first one is 1.
pub const UNKNOWN: u64 = 0;

/// The whole content of a store, by keyspace and key.
pub type State = BTreeMap<(u32, Vec<u8>), Entry>;

/// A commit, numbered in the order of attempts.
pub type Commit = usize;

/// The marks that the test adds to the events of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// A call begins that may make this commit visible.
    Trying(Commit),
    /// The call ended and the commit succeeded.
    Committed(Commit),
    /// The call ended and nothing was committed.
    Settled,
    /// `flush` or `close` returned: this commit survives power loss.
    Flushed(Commit),
    /// The store was opened and showed this commit.
    Recovered(Commit),
}

/// The commits that may be visible after a crash at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The last commit that was flushed.
    pub floor: Commit,
    /// The last commit that was acknowledged.
    pub tip: Commit,
    /// The commit in progress.
    pub trying: Option<Commit>,
    /// A commit that was in progress when the process died, and was absent when the store opened
    /// again: until a flush, power loss may undo its removal.
    pub unclear: Option<Commit>,
}

impl Bounds {
    pub fn only(commit: Commit) -> Self {
        Bounds { floor: commit, tip: commit, trying: None, unclear: None }
    }

    /// The bounds if everything that was written is there.
    pub fn all_written(self) -> Self {
        Bounds { floor: self.tip, unclear: None, ..self }
    }

    pub fn record(&mut self, mark: Mark) {
        match mark {
            Mark::Trying(commit) => self.trying = Some(commit),
            Mark::Settled => self.trying = None,
            Mark::Committed(commit) => (self.tip, self.trying) = (commit, None),
            Mark::Recovered(commit) => {
                self.unclear = self.trying.filter(|&trying| trying != commit).or(self.unclear);
                (self.tip, self.trying) = (commit, None);
            }
            Mark::Flushed(commit) => *self = Bounds::only(commit),
        }
    }
}

struct Node {
    before: Option<Commit>,
    state: State,
    /// A digest of keys and values.
    content: u64,
    /// A digest of keys, values and versions; none if one of them is unknown.
    full: Option<u64>,
    /// What the store called it, once that is known.
    cursor: Option<u64>,
    /// Until then, no later commit than this was to be packed up to.
    packed: u64,
}

impl Node {
    fn new(before: Option<Commit>, packed: u64, state: State) -> Self {
        let (content, full) = digest_of(&state);
        let is_known = state.values().all(|entry| entry.version != UNKNOWN);
        Node { before, state, content, full: is_known.then_some(full), cursor: None, packed }
    }
}

/// All commits that were ever attempted, each with the one before it.
#[derive(Default)]
pub struct Oracle {
    nodes: Vec<Node>,
    /// The latest commit that the file was to be packed up to.
    pub packed: u64,
    /// What expired up to this time may be there or not: deleting it may have failed.
    pub due_until: u32,
    /// Whether the oldest of several commits with the same content counts as what the store shows: it is not known that
    /// later ones, and those between them, are there.
    pub prefers_oldest: bool,
}

/// A commit of a file that keeps its history: what the store called it, and the content after it.
#[derive(Clone)]
pub struct PastCommit {
    pub cursor: u64,
    pub state: State,
}

impl Oracle {
    /// Adds a commit after `before`.
    pub fn add(&mut self, before: Option<Commit>, state: State) -> Commit {
        self.nodes.push(Node::new(before, self.packed, state));
        self.nodes.len() - 1
    }

    /// Sets the state of `commit` after the call that made it has returned.
    pub fn fix(&mut self, commit: Commit, state: State) {
        let Node { before, packed, cursor, .. } = self.nodes[commit];
        self.nodes[commit] = Node { cursor, ..Node::new(before, packed, state) };
    }

    /// Sets what the store calls `commit`, unless it was called something before.
    pub fn name(&mut self, commit: Commit, cursor: u64) {
        self.nodes[commit].cursor.get_or_insert(cursor);
    }

    /// The commits up to `commit`, the oldest first, as far as their cursors are known.
    pub fn past(&self, commit: Commit) -> Vec<PastCommit> {
        let nodes = successors(Some(commit), |&at| self.nodes[at].before).map(|at| &self.nodes[at]);
        let known = nodes.filter_map(|node| {
            Some(PastCommit { cursor: node.cursor?, state: self.certain(&node.state) })
        });
        let mut known: Vec<_> = known.collect();
        known.reverse();
        known
    }

    /// Up to which commit the file may have been packed at a crash.
    pub fn most_packed(&self, bounds: Bounds) -> u64 {
        let commits = [Some(bounds.tip), bounds.trying, bounds.unclear].into_iter().flatten();
        commits.map(|commit| self.nodes[commit].packed).max().unwrap_or_default()
    }

    /// Without what may be there or not.
    fn certain(&self, state: &State) -> State {
        let mut state = state.clone();
        state.retain(|_, entry| entry.expiry == 0 || entry.expiry > self.due_until);
        state
    }

    pub fn state(&self, commit: Commit) -> &State {
        &self.nodes[commit].state
    }

    /// Determines which of the permitted commits the store shows, or describes the difference.
    pub fn identify(&self, seen: &State, bounds: Bounds) -> Result<Commit, String> {
        let certain = self.certain(seen);
        let seen = if self.due_until > 0 { &certain } else { seen };
        let (content, full) = digest_of(seen);
        let matches = |&c: &Commit| {
            let node = &self.nodes[c];
            let certain = (self.due_until > 0)
                .then(|| Node::new(node.before, node.packed, self.certain(&node.state)));
            let node = certain.as_ref().unwrap_or(node);
            let grew = || node.content == content && self.has_grown(node, seen);
            node.full.map_or_else(grew, |f| f == full)
        };
        let mut path = vec![];
        let mut at = Some(bounds.tip);
        while let Some(commit) = at {
            path.push(commit);
            at = (commit != bounds.floor).then(|| self.nodes[commit].before).flatten();
        }
        path.splice(0..0, bounds.trying.into_iter().chain(bounds.unclear));
        let mut found = path.iter().filter(|c| matches(c));
        let found = if self.prefers_oldest { found.next_back() } else { found.next() };
        if let Some(&commit) = found {
            return Ok(commit);
        }
        let elsewhere: Vec<_> = (0..self.nodes.len()).filter(matches).collect();
        Err(format!(
            "the content is of none of the commits {path:?} ({bounds:?}); it equals {elsewhere:?}; \
             against commit {}: {}",
            bounds.tip,
            difference(seen, self.state(bounds.tip))
        ))
    }

    /// Whether `seen` has the versions of `node`, whose keys and values it has. Unknown versions
    /// must be new ones: only that distinguishes an update of an empty value from the commit before
    /// it.
    fn has_grown(&self, node: &Node, seen: &State) -> bool {
        let before = node.before.map(|commit| &self.nodes[commit].state);
        let given = before.and_then(|state| state.values().map(|e| e.version).max());
        node.state.values().zip(seen.values()).all(|(ids, seen)| match ids.version {
            UNKNOWN => Some(seen.version) > given,
            version => seen.version == version,
        })
    }
}

fn digest_of(state: &State) -> (u64, u64) {
    let (mut content, mut full) = (DefaultHasher::new(), DefaultHasher::new());
    for (key, entry) in state {
        (key, &entry.value, entry.expiry).hash(&mut content);
        entry.version.hash(&mut full);
    }
    let content = content.finish();
    content.hash(&mut full);
    (content, full.finish())
}

fn shown(entry: Option<&Entry>) -> String {
    entry.map_or_else(
        || "nothing".into(),
        |e| {
            let head: Vec<_> = e.value.iter().take(6).collect();
            format!("version {} of {} bytes {head:02x?}", e.version, e.value.len())
        },
    )
}

/// The first differences between what was found and what was expected.
pub fn difference(found: &State, expected: &State) -> String {
    let keys: std::collections::BTreeSet<_> = found.keys().chain(expected.keys()).collect();
    let lines: Vec<_> = keys
        .into_iter()
        .filter(|k| found.get(*k) != expected.get(*k))
        .map(|k| {
            format!("{k:?}: found {}, expected {}", shown(found.get(k)), shown(expected.get(k)))
        })
        .collect();
    let more = lines.len().saturating_sub(4);
    format!("{} (and {more} more)", lines[..lines.len() - more].join("; "))
}

fn entry_of<F: File>(store: &mut Store<F>, keyspace: u32, key: &[u8]) -> Result<Entry, Error> {
    let value = store.get(keyspace, key)?.unwrap_or_else(|| panic!("{key:?} has no value"));
    let value = Rc::from(value);
    let version = store.version(keyspace, key)?.expect("a key that is there has a version");
    let expiry = store.expiry(keyspace, key)?.expect("likewise");
    Ok(Entry { value, version, expiry })
}

/// The whole content of the store, read by its ordered keys and checked against its counts.
pub fn state_of<F: File>(store: &mut Store<F>) -> State {
    try_state_of(store).unwrap()
}

/// The same, where a record may turn out to be damaged when it is read.
pub fn try_state_of<F: File>(store: &mut Store<F>) -> Result<State, Error> {
    let mut state = State::new();
    for keyspace in KEYSPACES {
        let keys: Vec<Vec<u8>> = store.keys(keyspace)?;
        assert!(keys.is_sorted_by(|a, b| a < b), "the keys of {keyspace} are out of order");
        assert_eq!(Ok(keys.len() as u64), store.live_count(keyspace), "the count of {keyspace}");
        for key in keys {
            let entry = entry_of(store, keyspace, &key)?;
            state.insert((keyspace, key), entry);
        }
    }
    let count = store.stats().count - store.due()?;
    assert_eq!(count, state.len() as u64, "the count of all keys but the engine's");
    // Gap records, clear records, chunks, entries of what expires and marks are the engine's own business.
    let own: Vec<Vec<u8>> = store.keys(KEYSPACE_ENGINE)?;
    assert_eq!(
        own.len() as u64,
        store.count(KEYSPACE_ENGINE),
        "the count of the engine's own keys"
    );
    let is_system_record = |key: &Vec<u8>| {
        let mut own = [KEY_CLEAR, KEY_GAP, KEY_CHUNK, KEY_HISTORY, KEY_EXPIRY, KEY_MARKS].iter();
        key == KEY_PACKED || own.any(|start| key.starts_with(start))
    };
    for key in own.into_iter().filter(|key| !is_system_record(key)) {
        let entry = entry_of(store, KEYSPACE_ENGINE, &key)?;
        state.insert((KEYSPACE_ENGINE, key), entry);
    }
    Ok(state)
}

/// The chunked values by their ids; checks that no chunk is missing.
pub fn chunked_values<F: File>(store: &mut Store<F>) -> BTreeMap<u64, Vec<u8>> {
    let own = store.keys(KEYSPACE_ENGINE).expect("readable");
    let chunks = own.into_iter().filter(|key| key.starts_with(KEY_CHUNK));
    let (mut values, mut next) = (BTreeMap::<u64, Vec<u8>>::new(), (0, 0));
    for key in chunks {
        let [id, chunk] =
            [&key[6..14], &key[14..]].map(|n| n.iter().fold(0, |n, b| n << 8 | *b as u64));
        next = if next.0 == id { next } else { (id, 0) };
        assert_eq!((id, chunk), next, "a chunk is missing before this one");
        next.1 += 1;
        let bytes = store.get(KEYSPACE_ENGINE, &key).expect("readable").expect("it is there");
        values.entry(id).or_default().extend(bytes);
    }
    values
}

/// Checks that each chunk belongs to a value of `state`. Chunks of cleared keyspaces are removed by
/// the sweep.
pub fn check_chunks<F: File>(store: &mut Store<F>, state: &State) {
    let mut values: Vec<Rc<[u8]>> = vec![];
    // Those of what has expired are removed with its records.
    if store.stats().unswept > 0 || store.due() != Ok(0) {
        return;
    }
    for (id, value) in chunked_values(store) {
        if values.is_empty() {
            values = state.values().map(|entry| entry.value.clone()).collect();
        }
        let found = values.iter().position(|known| **known == *value);
        let found = found.unwrap_or_else(|| panic!("chunks of {id} without a value"));
        values.swap_remove(found);
    }
}

/// The problems that verification finds.
pub fn problems_of(store: &mut Store<FaultFile>) -> Vec<Verified> {
    let (mut cursor, mut problems) = (VerifyCursor::default(), Vec::new());
    loop {
        let found = store.verify(cursor).expect("readable");
        cursor = found.next;
        if found.what != ProblemKind::Nothing {
            problems.push(found);
        }
        if cursor == VerifyCursor::default() {
            return problems;
        }
    }
}
