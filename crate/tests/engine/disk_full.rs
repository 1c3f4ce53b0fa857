//! Full disks: whatever the limit is and however the platform reports it, a refused write changes
//! nothing, everything before it remains, closing succeeds, and with space again writing continues.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use varve::engine::{Error, File, IoError, MemoryFile, Options, Store};

use crate::support::rng::{Rng, bytes_of, replayed};

const SEGMENT: u64 = 4096;

/// How a platform reports a full disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    /// With an error, and nothing was written: Chromium.
    Throws,
    /// With a count of 0 and no error: Firefox.
    TakesNothing,
    /// It writes what fits, and the count says so.
    TakesPart,
    /// Blocks are allocated when they are written, so that writes to holes may fail later: a disk.
    Blocks,
}

const STYLES: [Style; 4] = [Style::Throws, Style::TakesNothing, Style::TakesPart, Style::Blocks];
const BLOCK: usize = 512;

/// A file with a size limit. Clones share it.
#[derive(Clone)]
struct Limited {
    file: Rc<RefCell<MemoryFile>>,
    /// Which blocks are allocated.
    blocks: Rc<RefCell<Vec<bool>>>,
    limit: Rc<Cell<u64>>,
    style: Style,
}

impl Limited {
    fn new(limit: u64, style: Style) -> Self {
        let (file, blocks) = (Rc::default(), Rc::default());
        Limited { file, blocks, limit: Rc::new(Cell::new(limit)), style }
    }

    /// The image that a crash leaves.
    fn image(&self) -> MemoryFile {
        self.file.borrow().clone()
    }

    /// How many of `length` bytes at `at` can be written.
    fn writable(&self, at: u64, length: usize) -> usize {
        let limit = self.limit.get();
        if self.style != Style::Blocks {
            let end = self.file.borrow().bytes.len().max(limit as usize);
            return length.min(end.saturating_sub(at as usize));
        }
        let mut blocks = self.blocks.borrow_mut();
        let end = at as usize + length;
        let count = blocks.len().max(end.div_ceil(BLOCK));
        blocks.resize(count, false);
        let mut written = blocks.iter().filter(|&&written| written).count() as u64;
        for block in at as usize / BLOCK..end.div_ceil(BLOCK) {
            if !blocks[block] && (written + 1) * BLOCK as u64 > limit {
                return (block * BLOCK).saturating_sub(at as usize);
            }
            written += u64::from(!blocks[block]);
            blocks[block] = true;
        }
        length
    }
}

impl File for Limited {
    fn read(&mut self, buf: &mut [u8], at: u64) -> Result<usize, IoError> {
        self.file.borrow_mut().read(buf, at)
    }

    fn write(&mut self, bytes: &[u8], at: u64) -> Result<usize, IoError> {
        let fits = self.writable(at, bytes.len());
        match self.style {
            _ if fits == bytes.len() => self.file.borrow_mut().write(bytes, at),
            Style::Throws => Err(IoError::Quota),
            Style::TakesNothing => Ok(0),
            Style::TakesPart => self.file.borrow_mut().write(&bytes[..fits], at),
            Style::Blocks => {
                self.file.borrow_mut().write(&bytes[..fits], at)?;
                Err(IoError::Quota)
            }
        }
    }

    fn truncate(&mut self, size: u64) -> Result<(), IoError> {
        let before = self.file.borrow().bytes.len();
        if size as usize > before
            && self.writable(before as u64, size as usize - before) < size as usize - before
        {
            return Err(IoError::Quota);
        }
        self.blocks.borrow_mut().truncate((size as usize).div_ceil(BLOCK));
        self.file.borrow_mut().truncate(size)
    }

    fn size(&mut self) -> Result<u64, IoError> {
        self.file.borrow_mut().size()
    }

    fn flush(&mut self) -> Result<(), IoError> {
        Ok(())
    }
}

type Content = BTreeMap<Vec<u8>, Vec<u8>>;

fn content_of<F: File>(store: &mut Store<F>) -> Content {
    let keys: Vec<Vec<u8>> = store.keys(0).expect("keys");
    let value =
        |store: &mut Store<F>, key: &[u8]| store.get(0, key).expect("get").map(<[u8]>::to_vec);
    keys.into_iter().map(|key| (key.clone(), value(store, &key).expect("is there"))).collect()
}

fn key_of(i: u64) -> Vec<u8> {
    format!("key {i:06}").into_bytes()
}

/// A store on a limited file, and its expected content.
struct FullDisk {
    disk: Limited,
    options: Options,
    store: Store<Limited>,
    content: Content,
    context: String,
}

impl FullDisk {
    /// None if there is not even space to create it.
    fn new(limit: u64, style: Style) -> Option<Self> {
        let options = Options { segment_log2: 12, ..Options::default() };
        let disk = Limited::new(limit, style);
        let context = format!("{limit} bytes, {style:?}");
        match Store::open(disk.clone(), options) {
            Ok(store) => Some(FullDisk { disk, options, store, content: Content::new(), context }),
            Err(error) => {
                assert_eq!(error, Error::Quota, "{context}");
                None
            }
        }
    }

    /// Sets a key and commits; false if there was no space and nothing changed.
    fn set(&mut self, key: &[u8], value: &[u8]) -> bool {
        let done = self.store.set(0, key, value).map(|_| ()).and_then(|()| self.store.commit());
        match done {
            Ok(()) => {
                self.content.insert(key.to_vec(), value.to_vec());
                true
            }
            Err(error) => {
                assert_eq!(error, Error::Quota, "{}", self.context);
                self.store.end_turn();
                false
            }
        }
    }

    /// Deletes a key and commits. On a full disk it runs maintenance as long as that frees space.
    fn delete(&mut self, key: &[u8]) -> bool {
        for attempt in 0.. {
            let done = self.store.delete(0, key).and_then(|_| self.store.commit());
            match done {
                Ok(()) => break,
                Err(error) => assert_eq!(error, Error::Quota, "{}", self.context),
            }
            if attempt == 2 {
                return false;
            }
            self.maintain(true);
        }
        self.content.remove(key);
        true
    }

    fn maintain(&mut self, all: bool) {
        let mut first = all;
        for _ in 0..10_000 {
            match self.store.maintain(std::mem::take(&mut first)) {
                Ok(true) => {}
                Ok(false) | Err(Error::Quota) => return,
                Err(error) => panic!("{}: {error}", self.context),
            }
        }
        panic!("{}: maintenance has no end", self.context);
    }

    fn fill(&mut self, from: u64, size: usize) -> u64 {
        (from..).find(|&i| !self.set(&key_of(i), &bytes_of(i, size))).expect("it ends")
    }

    fn check(&mut self) {
        assert!(content_of(&mut self.store) == self.content, "{}", self.context);
        assert!(!self.store.stats().poisoned, "{}", self.context);
        // A crash at this point loses nothing either.
        let mut left = Store::open(self.disk.image(), self.options).expect("opens");
        assert!(content_of(&mut left) == self.content, "{} after a crash", self.context);
    }

    fn reopen(self) -> Self {
        let FullDisk { disk, options, store, content, context } = self;
        store.close().map_err(|(_, e)| e).unwrap_or_else(|e| panic!("{context}: closing: {e}"));
        let store = Store::open(disk.clone(), options).expect("opens");
        assert!(store.recovery().clean, "{context}");
        let mut disk_full = FullDisk { disk, options, store, content, context };
        disk_full.check();
        disk_full
    }
}

/// Limits around each size at which something new is allocated, and some between.
fn limits() -> impl Iterator<Item = u64> {
    let slots = (0..24).flat_map(|slot| {
        let start = 8192 + slot * SEGMENT;
        [start - 64, start - 1, start, start + 1, start + 64, start + 2048]
    });
    slots.chain([100, 256, 4096, 4352, 40 * SEGMENT, 100 * SEGMENT + 17])
}

#[test]
fn disk_full_at_any_size_loses_nothing_and_resumes_with_space() {
    let (mut cases, mut tried) = (0, 0);
    for style in STYLES {
        for limit in limits() {
            for size in [0, 30, 700, 1700] {
                let order = [Order::Written, Order::Twice, Order::Mixed][tried % 3];
                tried += 1;
                cases += u32::from(fill_and_empty(limit, style, size, order));
            }
        }
    }
    println!("{cases} full disks");
    assert!(cases > 500);
}

/// The order in which keys are deleted.
#[derive(Clone, Copy, Debug)]
enum Order {
    Written,
    Twice,
    Mixed,
}

impl Order {
    fn of(self, count: u64) -> Vec<u64> {
        match self {
            Order::Written => (0..count).collect(),
            Order::Twice => (0..count).step_by(2).chain((1..count).step_by(2)).collect(),
            Order::Mixed => {
                let mut keys: Vec<u64> = (0..count).collect();
                let mut rng = Rng::new(count);
                (1..keys.len()).for_each(|i| keys.swap(i, rng.below(i + 1)));
                keys
            }
        }
    }
}

fn fill_and_empty(limit: u64, style: Style, size: usize, order: Order) -> bool {
    let Some(mut disk_full) = FullDisk::new(limit, style) else { return false };
    let written = disk_full.fill(0, size);
    disk_full.check();
    if written == 0 {
        return false;
    }
    // Overwriting needs space too, and leaves the old value if there is none.
    disk_full.set(&key_of(0), &bytes_of(77, size));
    let update = disk_full.store.update_if(0, &key_of(0), |_| true, |_| Ok(Some(vec![1; size])));
    match update.and_then(|_| disk_full.store.commit()) {
        Ok(()) => drop(disk_full.content.insert(key_of(0), vec![1; size])),
        Err(error) => assert_eq!(error, Error::Quota, "{}", disk_full.context),
    }
    disk_full.store.end_turn();
    disk_full.check();
    disk_full = disk_full.reopen();
    // With a reserve, all deletions succeed in any order. Without one some succeed, and those that
    // fail change nothing. A disk may even refuse to fill the last segment.
    let has_reserve = limit >= 8192 + 4 * SEGMENT && style != Style::Blocks;
    for i in order.of(written) {
        if has_reserve {
            let done = disk_full.store.delete(0, &key_of(i)).and_then(|_| disk_full.store.commit());
            assert_eq!(done, Ok(()), "{}: deletion of {i} of {written}", disk_full.context);
            disk_full.content.remove(&key_of(i));
        } else if !disk_full.delete(&key_of(i)) {
            break;
        }
    }
    disk_full.check();
    disk_full.maintain(true);
    disk_full.check();
    if has_reserve {
        let again = disk_full.fill(0, size);
        let least = if limit < 8192 + 8 * SEGMENT { 0 } else { written / 2 };
        assert!(again > least, "{}: {again} of {written} fit again", disk_full.context);
        disk_full.check();
    }
    disk_full = disk_full.reopen();
    disk_full.disk.limit.set(u64::MAX);
    for i in 0..written {
        assert!(
            disk_full.delete(&key_of(i)),
            "{}: with free space everything can be deleted",
            disk_full.context
        );
        assert!(disk_full.set(&key_of(i), &[8; 20]), "{}: and written", disk_full.context);
    }
    disk_full.maintain(true);
    disk_full.check();
    disk_full.reopen();
    true
}

#[test]
fn transaction_without_space_is_rolled_back() {
    for style in STYLES {
        for limit in limits().filter(|&limit| limit > 8192 + SEGMENT) {
            let Some(mut disk_full) = FullDisk::new(limit, style) else { continue };
            let written = disk_full.fill(0, 200);
            for i in 0..written.min(6) {
                disk_full.delete(&key_of(i));
            }
            let savepoint = disk_full.store.savepoint();
            let refused =
                (0..200).find_map(|i| disk_full.store.set(0, &key_of(500 + i), &[9; 900]).err());
            if let Some(error) = refused {
                assert_eq!(error, Error::Quota, "{}", disk_full.context);
                disk_full.store.rollback(savepoint);
                disk_full.store.commit().expect("nothing to commit");
            } else {
                match disk_full.store.release(savepoint).and_then(|()| disk_full.store.commit()) {
                    Ok(()) => (0..200).for_each(|i| {
                        drop(disk_full.content.insert(key_of(500 + i), vec![9; 900]))
                    }),
                    Err(error) => assert_eq!(error, Error::Quota, "{}", disk_full.context),
                }
            }
            disk_full.store.end_turn();
            disk_full.check();
            disk_full.reopen();
        }
    }
}

#[test]
fn witness_without_space_on_a_full_disk_is_no_failure() {
    let mut missing = 0;
    for style in STYLES {
        for limit in limits() {
            for size in [0, 200, 900] {
                let Some(mut disk_full) = FullDisk::new(limit, style) else { continue };
                for key in (0..).map(key_of) {
                    let is_full = !disk_full.set(&key, &bytes_of(limit, size));
                    disk_full.store.flush().expect("the content can be flushed");
                    disk_full
                        .store
                        .witness()
                        .unwrap_or_else(|e| panic!("{}: {e}", disk_full.context));
                    missing += u32::from(disk_full.store.is_unwitnessed());
                    if is_full {
                        break;
                    }
                }
                disk_full.check();
                disk_full.reopen();
            }
        }
    }
    println!("{missing} flushes have no witness");
    assert!(missing > 10);
}

/// Tears the last frame of a full disk, opens and closes it, and opens it again. Returns whether
/// the torn tail was still reported then.
fn close_behind_a_torn_tail(mut disk_full: FullDisk, written: u64) -> Option<bool> {
    let before = disk_full.disk.image().bytes;
    let key = key_of(written - 1);
    disk_full.store.delete(0, &key).and_then(|_| disk_full.store.commit()).ok()?;
    let after = disk_full.disk.image().bytes;
    drop(disk_full.store.into_file());
    let is_new = |at: &usize| before.get(*at) != Some(&after[*at]);
    let at = (8192..after.len()).rev().find(is_new)?;
    disk_full.disk.file.borrow_mut().bytes[at] ^= 1;
    for is_open_before in [false, true] {
        disk_full.store = Store::open(disk_full.disk.clone(), disk_full.options).expect("it opens");
        let recovery = *disk_full.store.recovery();
        assert!(is_open_before || recovery.torn_bytes > 0, "{}: {recovery:?}", disk_full.context);
        disk_full.check();
        if is_open_before {
            let is_torn = recovery.torn_bytes > 0;
            assert_ne!(recovery.clean, is_torn, "{}: {recovery:?}", disk_full.context);
            disk_full.disk.limit.set(u64::MAX);
            assert!(disk_full.set(b"with room", &[1; 30]), "{}", disk_full.context);
            disk_full.reopen();
            return Some(is_torn);
        }
        let FullDisk { store, .. } = disk_full;
        store.close().map_err(|(_, e)| e).unwrap_or_else(|e| panic!("closing: {e}"));
    }
    None
}

#[test]
fn close_succeeds_with_a_torn_tail_on_a_full_disk() {
    let (mut stayed, mut ended) = (0, 0);
    for style in STYLES {
        for limit in limits() {
            let Some(mut disk_full) = FullDisk::new(limit, style) else { continue };
            let written = disk_full.fill(0, 200);
            if written == 0 {
                continue;
            }
            match close_behind_a_torn_tail(disk_full, written) {
                Some(true) => stayed += 1,
                Some(false) => ended += 1,
                None => {}
            }
        }
    }
    println!("{stayed} torn tails remained for lack of space, {ended} were cancelled");
    assert!(stayed > 10 && ended > 10);
}

/// A few times, fills a disk, deletes a part, does maintenance or not, and closes or not. Then it
/// deletes everything, which must succeed.
fn refill_repeatedly(limit: u64, style: Style, size: usize, rng: &mut Rng) {
    let Some(mut disk_full) = FullDisk::new(limit, style) else { return };
    let mut next = 0;
    for round in 0..4 {
        next = disk_full.fill(next, size);
        if rng.one_in(2) {
            disk_full.maintain(rng.one_in(2));
        }
        if rng.one_in(3) {
            disk_full = disk_full.reopen();
        }
        let mut keys: Vec<_> = disk_full.content.keys().cloned().collect();
        if rng.one_in(2) {
            (1..keys.len()).for_each(|i| keys.swap(i, rng.below(i + 1)));
        }
        let count = if round == 3 { keys.len() } else { rng.below(keys.len() + 1) };
        for key in &keys[..count] {
            let done = disk_full.store.delete(0, key).and_then(|_| disk_full.store.commit());
            assert_eq!(done, Ok(()), "{}, {size} bytes, round {round}", disk_full.context);
            disk_full.content.remove(key);
        }
        if rng.one_in(2) {
            disk_full.maintain(rng.one_in(2));
        }
    }
    disk_full.maintain(true);
    disk_full.check();
    assert!(disk_full.set(b"with room again", &[1; 30]), "{}, {size} bytes", disk_full.context);
    disk_full.reopen();
}

#[test]
fn deletes_succeed_on_a_repeatedly_full_disk() {
    let seeds = match replayed("VARVE_FULL_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..replayed("VARVE_FULL_SEEDS").unwrap_or(1_500),
    };
    for seed in seeds {
        let mut rng = Rng::new(seed);
        let style = *rng.pick(&[Style::Throws, Style::TakesNothing, Style::TakesPart]);
        let limit = 8192 + SEGMENT * rng.within(5..28) as u64 + rng.below(4096) as u64;
        let size = *rng.pick(&[0, 30, 100, 300, 700, 1000]);
        println!("VARVE_FULL_SEED={seed}");
        refill_repeatedly(limit, style, size, &mut rng);
    }
}

#[test]
fn smallest_disk_with_reserve_can_be_filled_and_emptied_repeatedly() {
    // One full segment, one being written, and the reserve; and one more.
    for (slots, seed) in [4, 5].into_iter().flat_map(|slots| (0..300).map(move |i| (slots, i))) {
        for size in [0, 1, 8, 30, 100, 300, 500, 700, 900, 1000] {
            let mut rng = Rng::new(seed);
            let limit = 8192 + SEGMENT * slots + rng.below(4096) as u64;
            println!("{slots} segments, seed {seed}, {size} bytes");
            refill_repeatedly(limit, Style::Throws, size, &mut rng);
        }
    }
}

#[test]
fn large_value_allocation_is_all_or_nothing() {
    for style in STYLES {
        for limit in limits() {
            let Some(mut disk_full) = FullDisk::new(limit, style) else { continue };
            // In extents and in chunks.
            let size = if limit % 2 == 0 { 7000 } else { 5000 };
            let written = disk_full.fill(0, size);
            disk_full.check();
            disk_full = disk_full.reopen();
            for i in 0..written {
                if !disk_full.delete(&key_of(i)) {
                    break;
                }
            }
            disk_full.maintain(true);
            disk_full.check();
            disk_full.reopen();
        }
    }
}

#[test]
fn randomly_filled_and_emptied_disk_loses_nothing() {
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let style = *rng.pick(&STYLES);
        let limit = 8192 + SEGMENT * (6 + rng.below(40) as u64) + rng.below(4096) as u64;
        let mut disk_full = FullDisk::new(limit, style).expect("enough space to create it");
        for step in 0..400 {
            let key = key_of(rng.below(300) as u64);
            match rng.below(20) {
                0..12 => {
                    let len = rng.below(600);
                    disk_full.set(&key, &bytes_of(step, len));
                }
                12..16 => drop(disk_full.delete(&key)),
                16 => disk_full.maintain(rng.one_in(2)),
                17 => disk_full = disk_full.reopen(),
                // Other programs take space or free some.
                18 => disk_full.disk.limit.set(8192 + SEGMENT * (4 + rng.below(40) as u64)),
                _ => disk_full.check(),
            }
        }
        disk_full.check();
        disk_full.disk.limit.set(u64::MAX);
        assert!(disk_full.set(b"with room again", b"it goes on"), "seed {seed}");
        disk_full.reopen();
    }
}
