//! The single instance: its store, the key areas, and the answer block.

use alloc::vec::Vec;
use core::cell::UnsafeCell;

use super::imports::HostFile;
use crate::error::Error;
use crate::format::MAX_KEY;
use crate::log::log_walk::LogWalk;
use crate::store::Store;

/// Bytes of one key area.
pub(super) const KEY_AREA: usize = MAX_KEY + 1;
/// Bytes of the queue of sets.
pub(super) const QUEUE: usize = 8 << 10;
/// Bytes of memory kept free for the next turn, beside what the store may need to grow. One turn
/// may use as much above the option `memory` as that option is, but at least this much.
const HEADROOM: usize = 8 << 20;
/// The reserve of a store that is opened with `RESERVES_LATER`. Browsers collect garbage when a worker has 64 MiB, which takes
/// longer than opening.
pub(super) const SMALL_RESERVE: usize = 24 << 20;
/// The memory is reserved in chunks, because free memory need not be contiguous.
pub(super) const CHUNK: usize = 1 << 20;
/// Numbers that a call can return beside its return value.
const NUMBERS: usize = 18;

/// The results of a call beside its return value.
#[repr(C, align(8))]
pub(super) struct Answer {
    pub code: u32,
    pub length: u32,
    pub numbers: [f64; NUMBERS],
}

pub(super) struct Instance {
    pub store: Option<Store<HostFile>>,
    pub answer: Answer,
    pub error: Option<Error>,
    /// The store's memory usage when memory was last reserved.
    pub memory_usage: [usize; 3],
    /// More memory than this is never needed: a read-only store has no more to read.
    pub max_reserve: usize,
    /// Keys of a range: their offsets, then their bytes.
    pub page: Vec<u8>,
    /// The values of a page, if they were copied.
    pub values: Vec<u8>,
    /// Walks over the log, by their handles.
    pub walks: Vec<Option<LogWalk>>,
    pub scratch: Scratch,
}

/// Two key areas and the queue of sets. Aligned, so that short text can be written word by word.
#[repr(align(8))]
pub(super) struct Scratch(pub [u8; 2 * KEY_AREA + QUEUE]);

struct Shared(UnsafeCell<Instance>);

// SAFETY: wasm32 without threads has only one thread.
unsafe impl Sync for Shared {}

static INSTANCE: Shared = Shared(UnsafeCell::new(Instance {
    store: None,
    answer: Answer { code: 0, length: 0, numbers: [0.0; NUMBERS] },
    error: None,
    memory_usage: [0; 3],
    max_reserve: usize::MAX,
    page: Vec::new(),
    values: Vec::new(),
    walks: Vec::new(),
    scratch: Scratch([0; 2 * KEY_AREA + QUEUE]),
}));

/// The instance. Invariant: an export borrows it once and releases it before it returns, and the
/// host's functions call no export (engine.ts prevents that), so no two borrows overlap.
pub(super) fn instance() -> &'static mut Instance {
    // SAFETY: see the invariant above.
    unsafe { &mut *INSTANCE.0.get() }
}

impl Instance {
    /// Runs `call` on the store with the key areas and the answer block. Its error becomes the
    /// code.
    #[inline(always)]
    pub fn run<T>(
        &mut self,
        call: impl FnOnce(&mut Store<HostFile>, &[u8], &mut Answer) -> Result<T, Error>,
    ) -> Option<T> {
        let Instance { store, answer, scratch, .. } = self;
        let called = match store {
            Some(store) => call(store, &scratch.0, answer),
            None => Err(Error::NotOpen),
        };
        match called {
            Ok(value) => {
                self.answer.code = 0;
                Some(value)
            }
            Err(error) => {
                self.fail(error);
                None
            }
        }
    }

    /// The same for calls that return a status.
    pub fn status(&mut self, call: impl FnOnce(&mut Store<HostFile>) -> Result<(), Error>) -> u32 {
        self.run(|store, _, _| call(store));
        self.answer.code
    }

    #[cold]
    pub fn fail(&mut self, error: Error) -> u32 {
        self.answer.code = error.code();
        self.error = Some(error);
        self.answer.code
    }

    /// Reserves memory for what the next turn may need, and `extra` bytes more.
    #[inline(never)]
    pub fn reserve_memory(&mut self, extra: usize, most: usize) {
        let Some(store) = &self.store else {
            return;
        };
        let now = store.memory_usage();
        if core::mem::replace(&mut self.memory_usage, now) != now {
            let (whole, rest) = store.reserve_needed();
            // Memory in temporary use counts towards the reserve, because it becomes free by
            // itself. Otherwise memory would grow with each rare coincidence and never shrink.
            let turn = extra + store.budget().max(HEADROOM);
            let reserve = turn + HEADROOM - store.transient_bytes().min(HEADROOM / 4);
            let reserve = reserve.min(self.max_reserve);
            reserve_by_allocating(whole, reserve + rest, most);
        }
    }

    /// Puts numbers into the slots of the answer behind the first one.
    #[inline]
    pub fn numbers<const N: usize>(&mut self, values: &[u64; N]) {
        const { assert!(N < NUMBERS, "the answer has fewer slots") };
        self.put_numbers(values);
    }

    #[inline(never)]
    fn put_numbers(&mut self, values: &[u64]) {
        for (slot, value) in self.answer.numbers[1..].iter_mut().zip(values) {
            *slot = *value as f64;
        }
    }
}

impl Answer {
    /// Returns the address of some bytes; their length is stored in the answer.
    pub fn bytes(&mut self, bytes: &[u8]) -> *const u8 {
        self.length = bytes.len() as u32;
        bytes.as_ptr()
    }
}

/// Allocates `whole` bytes in one piece and `rest` bytes in pieces of at most `most`, and frees
/// them all, so that later calls need not grow the memory: growth detaches every view.
fn reserve_by_allocating(whole: usize, mut rest: usize, most: usize) {
    let mut allocated: Vec<Vec<u8>> = Vec::new();
    let mut size = whole;
    loop {
        let mut allocation = Vec::new();
        // Failing to allocate is not an error here: the call that needs the memory reports it.
        if allocation.try_reserve_exact(size).is_err() || rest == 0 {
            break;
        }
        allocated.push(allocation);
        size = rest.min(most);
        rest -= size;
    }
    core::hint::black_box(&mut allocated);
}

/// Returns the address of the first key area; the second one follows it, and then the queue of
/// sets.
#[unsafe(no_mangle)]
extern "C" fn scratch() -> *const u8 {
    instance().scratch.0.as_ptr()
}

/// Returns the address of the answer block: code, length, and eighteen numbers.
#[unsafe(no_mangle)]
extern "C" fn result() -> *const Answer {
    &instance().answer
}
