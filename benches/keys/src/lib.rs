//! Two ordered key sets under the same work: the engine's own, whose short keys are inline, and a set of
//! `Vec<u8>`.
//!
//! The phases contain no clock, so that the same code runs natively and in wasm: the caller measures the
//! time. Every phase returns a checksum, which must be the same for both sets.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::atomic::{AtomicUsize, Ordering};

use varve::engine::index::ordered_index::OrderedKeys;

/// Length of every key.
pub const KEY: usize = 16;

/// Counts requested bytes. The system allocator's overhead per block is not counted, which favours the set
/// with more blocks.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static BLOCKS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is forwarded unchanged to the system's allocator; only counters are updated besides.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Ordering::Relaxed);
        BLOCKS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller guarantees for `layout` what `System` requires.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        BLOCKS.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: `block` came from `System` by `alloc` above, with this layout.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The operations of both sets.
trait Keys: Default {
    fn insert(&mut self, key: &[u8]);
    /// The first key at or after this one: the start of a range.
    fn seek(&self, key: &[u8]) -> Option<&[u8]>;
    fn walk(&self, visit: impl FnMut(&[u8]));
}

impl Keys for OrderedKeys {
    fn insert(&mut self, key: &[u8]) {
        OrderedKeys::insert(self, key, 0);
    }

    fn seek(&self, key: &[u8]) -> Option<&[u8]> {
        self.range(Bound::Included(key), Bound::Unbounded).next().map(|key| &**key)
    }

    fn walk(&self, mut visit: impl FnMut(&[u8])) {
        self.range(Bound::Unbounded, Bound::Unbounded).for_each(|key| visit(key));
    }
}

#[derive(Default)]
struct VecKeys(BTreeSet<Vec<u8>>);

impl Keys for VecKeys {
    fn insert(&mut self, key: &[u8]) {
        self.0.insert(key.to_vec());
    }

    fn seek(&self, key: &[u8]) -> Option<&[u8]> {
        self.0.range::<[u8], _>((Bound::Included(key), Bound::Unbounded)).next().map(Vec::as_slice)
    }

    fn walk(&self, mut visit: impl FnMut(&[u8])) {
        self.0.iter().for_each(|key| visit(key));
    }
}

struct Bench {
    keys: Vec<u8>,
    /// The same keys in another random order: lookups in the order of insertion would hit a warm cache.
    order: Vec<u32>,
    /// Live bytes and blocks before the first insertion.
    before: (usize, usize),
    inline: OrderedKeys,
    vectors: VecKeys,
}

/// One of the two sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Which {
    /// The engine's set.
    Inline = 0,
    /// A `BTreeSet<Vec<u8>>`.
    Vectors = 1,
}

/// The operations that are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Phase {
    /// All keys into an empty set.
    Insert = 0,
    /// Each key looked up once, in another order.
    Seek = 1,
    /// All keys in order.
    Walk = 2,
}

thread_local! {
    static BENCH: RefCell<Option<Bench>> = const { RefCell::new(None) };
}

/// splitmix64: small, and random enough for keys.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn live() -> (usize, usize) {
    (LIVE.load(Ordering::Relaxed), BLOCKS.load(Ordering::Relaxed))
}

fn mix(sum: u64, key: &[u8]) -> u64 {
    sum.rotate_left(5) ^ u64::from(key[0]) ^ (u64::from(key[KEY - 1]) << 8)
}

fn phase<K: Keys>(set: &mut K, keys: &[u8], order: &[u32], phase: Phase) -> u64 {
    let mut sum = 0;
    match phase {
        Phase::Insert => keys.chunks_exact(KEY).for_each(|key| set.insert(key)),
        Phase::Seek => {
            for &at in order {
                let key = &keys[at as usize * KEY..][..KEY];
                let found = set.seek(key).expect("every key was inserted");
                assert!(found == key, "another key was found");
                sum = mix(sum, found);
            }
        }
        Phase::Walk => set.walk(|key| sum = mix(sum, key)),
    }
    sum
}

/// Makes `count` random keys; both sets are empty afterwards.
pub fn prepare(count: u32, seed: u64) {
    let mut state = seed;
    let mut keys = Vec::with_capacity(count as usize * KEY);
    for _ in 0..count {
        for _ in 0..KEY / 8 {
            keys.extend_from_slice(&random(&mut state).to_le_bytes());
        }
    }
    let mut order: Vec<u32> = (0..count).collect();
    for i in (1..order.len()).rev() {
        order.swap(i, (random(&mut state) % (i as u64 + 1)) as usize);
    }
    BENCH.set(Some(Bench {
        keys,
        order,
        before: live(),
        inline: OrderedKeys::default(),
        vectors: VecKeys::default(),
    }));
}

/// Runs one phase on one set and returns its checksum.
pub fn run(which: Which, what: Phase) -> u64 {
    BENCH.with_borrow_mut(|bench| {
        let Bench { keys, order, inline, vectors, .. } = bench.as_mut().expect("prepared");
        match which {
            Which::Inline => phase(inline, keys, order, what),
            Which::Vectors => phase(vectors, keys, order, what),
        }
    })
}

/// Bytes and blocks requested since `prepare` and not yet freed.
pub fn held() -> (usize, usize) {
    BENCH.with_borrow(|bench| {
        let before = bench.as_ref().expect("prepared").before;
        let now = live();
        (now.0 - before.0, now.1 - before.1)
    })
}

/// Empties both sets.
pub fn clear() {
    BENCH.with_borrow_mut(|bench| {
        let bench = bench.as_mut().expect("prepared");
        bench.inline = OrderedKeys::default();
        bench.vectors = VecKeys::default();
    });
}

/// The exports for JavaScript, in numbers only.
#[cfg(target_arch = "wasm32")]
mod exports {
    use super::{Phase, Which};

    #[unsafe(no_mangle)]
    extern "C" fn keys_prepare(count: u32, seed: u32) {
        super::prepare(count, u64::from(seed));
    }

    /// The checksum, folded into 32 bits.
    #[unsafe(no_mangle)]
    extern "C" fn keys_run(which: u32, phase: u32) -> u32 {
        let which = if which == 0 { Which::Inline } else { Which::Vectors };
        let phase = [Phase::Insert, Phase::Seek, Phase::Walk][phase as usize];
        let sum = super::run(which, phase);
        (sum ^ (sum >> 32)) as u32
    }

    #[unsafe(no_mangle)]
    extern "C" fn keys_held_bytes() -> u32 {
        super::held().0 as u32
    }

    #[unsafe(no_mangle)]
    extern "C" fn keys_held_blocks() -> u32 {
        super::held().1 as u32
    }

    #[unsafe(no_mangle)]
    extern "C" fn keys_clear() {
        super::clear();
    }
}
