//! The one instance: its store, the key areas, and the block of answers.

use alloc::vec::Vec;
use core::cell::UnsafeCell;

use super::imports::HostFile;
use crate::error::Error;
use crate::format::MAX_KEY;
use crate::store::Store;

/// Bytes of one key area.
pub(super) const KEY_AREA: usize = MAX_KEY + 1;
/// Bytes of the queue of sets.
pub(super) const QUEUE: usize = 8 << 10;
/// So much memory is kept free for the next turn, beside what the store may come to need, and what
/// one turn may take beyond the option `memory`: as much again, and not less than this.
const HEADROOM: usize = 8 << 20;
/// It is made sure of in pieces: what is free need not lie in one.
pub(super) const PIECE: usize = 1 << 20;

/// What calls answer beside their return value.
#[repr(C, align(8))]
pub(super) struct Answer {
    pub code: u32,
    pub length: u32,
    pub numbers: [f64; 15],
}

pub(super) struct Instance {
    pub store: Option<Store<HostFile>>,
    pub answer: Answer,
    pub error: Option<Error>,
    /// The store's footprint when room was last reserved.
    footprint: [usize; 3],
    /// More room than this is never of use: nothing is written, and there is no more to be read.
    pub most_room: usize,
    /// Keys of a range: their lengths and then their bytes.
    pub page: Vec<u8>,
    pub scratch: Scratch,
}

/// Two key areas, and the queue of sets. Aligned, so that short texts can be written word by word.
#[repr(align(8))]
pub(super) struct Scratch(pub [u8; 2 * KEY_AREA + QUEUE]);

struct Shared(UnsafeCell<Instance>);

// SAFETY: wasm32 without threads: there is one.
unsafe impl Sync for Shared {}

static INSTANCE: Shared = Shared(UnsafeCell::new(Instance {
    store: None,
    answer: Answer { code: 0, length: 0, numbers: [0.0; 15] },
    error: None,
    footprint: [0; 3],
    most_room: usize::MAX,
    page: Vec::new(),
    scratch: Scratch([0; 2 * KEY_AREA + QUEUE]),
}));

/// The instance. Invariant: an export takes it once and gives it up before it returns, and the
/// host's functions call no export (engine.ts refuses to), so no two borrows overlap.
pub(super) fn instance() -> &'static mut Instance {
    // SAFETY: see the invariant above.
    unsafe { &mut *INSTANCE.0.get() }
}

impl Instance {
    /// Runs `call` on the store, with the key areas and the answer. Its error becomes the code.
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

    /// The same for calls that answer with a status.
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

    /// Has memory ready for what the next turn may come to need, and so much besides.
    #[inline(never)]
    pub fn make_room(&mut self, besides: usize, most: usize) {
        let Some(store) = &self.store else {
            return;
        };
        let now = store.memory_usage();
        if core::mem::replace(&mut self.footprint, now) != now {
            let (whole, rest) = store.reserve_needed();
            // What is held for a while is part of that room: it leaves by itself, and beside it memory
            // would grow with each rarer coincidence, and never shrink.
            let turn = besides + store.budget().max(HEADROOM);
            let room = turn + HEADROOM - store.transient_bytes().min(HEADROOM / 4);
            let room = room.min(self.most_room);
            take_and_leave(whole, room + rest, most);
        }
    }

    pub fn numbers(&mut self, values: &[u64]) {
        for (slot, value) in self.answer.numbers[1..].iter_mut().zip(values) {
            *slot = *value as f64;
        }
    }
}

impl Answer {
    /// The address of some bytes; their length goes into the answer.
    pub fn bytes(&mut self, bytes: &[u8]) -> *const u8 {
        self.length = bytes.len() as u32;
        bytes.as_ptr()
    }
}

/// Takes so many bytes in one piece and so many in pieces of at most `most`, and lets them go, so that
/// later calls need not grow memory: growth detaches every view.
fn take_and_leave(whole: usize, mut rest: usize, most: usize) {
    let mut taken: Vec<Vec<u8>> = Vec::new();
    let mut size = whole;
    loop {
        let mut piece = Vec::new();
        // No room is no error here: the call that really needs it says so.
        if piece.try_reserve_exact(size).is_err() || rest == 0 {
            break;
        }
        taken.push(piece);
        size = rest.min(most);
        rest -= size;
    }
    core::hint::black_box(&mut taken);
}

/// The address of the key area; a second one follows it, and the queue of sets.
#[unsafe(no_mangle)]
extern "C" fn scratch() -> *const u8 {
    instance().scratch.0.as_ptr()
}

/// The address of the answer block: code, length, and fifteen numbers.
#[unsafe(no_mangle)]
extern "C" fn result() -> *const Answer {
    &instance().answer
}
