//! The memory allocator of the wasm: segregated fits with boundary tags, after TLSF (Masmano, Ripoll,
//! Crespo, Real, ECRTS 2004), in an eighth of the code that Rust's own takes there.
//!
//! Memory is blocks, one behind the other. Each begins with its size in four bytes, whose lowest bits
//! tell whether it is free and whether the one before it is. What is handed out lies behind them and is
//! 8-aligned. A free block holds its neighbours in the list of its class, and ends with its size, so
//! that what is freed can be joined with what is free on both sides of it: no two free ones touch.
#![allow(unsafe_code)]

/// An address, or how many bytes: wasm has 32 bits for both.
type Addr = u32;

const FREE: Addr = 1;
const AFTER_FREE: Addr = 2;
const FLAGS: Addr = 7;

/// Bytes of a header.
const TAG: Addr = 4;
/// Header, two neighbours, size.
const LEAST: Addr = 16;
/// Blocks below this size have classes of one size each; above, each doubling has 8.
const EXACT: Addr = 128;
/// So many blocks of the class that a size is in are tried. All of the next classes are large enough.
const TRIES: usize = 8;
/// Above this nothing can be had: sums of sizes must not overflow.
const MOST: usize = 1 << 30;

/// Where memory is from.
///
/// # Safety
/// What `grow` gave is nobody else's, 8-aligned, stays, and is what `at` points into.
pub unsafe trait PageSource {
    /// The byte at an address.
    fn at(&self, address: Addr) -> *mut u8;
    /// At least so many bytes more: where they begin and end.
    fn grow(&mut self, bytes: Addr) -> Option<(Addr, Addr)>;
}

/// Blocks of memory.
#[derive(Debug)]
pub struct Heap<G> {
    ground: G,
    /// Where memory ends, and with it the header of a block of no size that is never free.
    end: Addr,
    /// Which classes have free blocks, and the first of each.
    has: [u64; 4],
    first: [Addr; 256],
}

impl<G: PageSource> Heap<G> {
    /// No memory yet.
    pub const fn new(ground: G) -> Self {
        Heap { ground, end: 0, has: [0; 4], first: [0; 256] }
    }

    /// The address of `bytes` free bytes at a multiple of `align`, a power of two.
    pub fn alloc(&mut self, bytes: usize, align: usize) -> Option<Addr> {
        if bytes > MOST || align > MOST {
            return None;
        }
        let size = size_for(bytes);
        let align = align as Addr;
        if align <= 8 {
            return Some(self.split_from_free(size)? + TAG);
        }
        let block = self.split_from_free(size + align + LEAST)?;
        let at = block + TAG;
        let mut aligned = at.next_multiple_of(align);
        if aligned != at {
            // What is left out before it has to be a block.
            aligned = (at + LEAST).next_multiple_of(align);
            let whole = self.size(block);
            self.set(aligned - TAG, whole - (aligned - at));
            self.insert_free(block, aligned - at);
        }
        self.trim(aligned - TAG, size);
        Some(aligned)
    }

    /// Gives back what was taken at an address.
    pub fn free(&mut self, at: Addr) {
        self.coalesce(at - TAG);
    }

    /// Whether what was taken at an address has `bytes` bytes now, by what is free behind it.
    pub fn grow_in_place(&mut self, at: Addr, bytes: usize) -> bool {
        let block = at - TAG;
        let (tag, next) = (self.get(block), block + self.size(block));
        let room = if self.get(next) & FREE == 0 { 0 } else { self.size(next) };
        let size = size_for(bytes.min(MOST));
        if bytes > MOST || size > (tag & !FLAGS) + room {
            return false;
        }
        if room > 0 {
            self.unlink(next);
            self.set(block, tag + room);
            self.set_prev_free(block, 0);
        }
        self.trim(block, size);
        true
    }

    /// Whether so many bytes can be had without growing.
    pub fn has(&self, bytes: usize) -> bool {
        bytes <= MOST && self.find(size_for(bytes)).is_some()
    }

    fn get(&self, at: Addr) -> Addr {
        // SAFETY: callers name an aligned word of a block, and blocks lie in what `grow` gave.
        unsafe { self.ground.at(at).cast::<Addr>().read() }
    }

    fn set(&mut self, at: Addr, word: Addr) {
        // SAFETY: as in `get`; the word is a header's, or in a free block.
        unsafe { self.ground.at(at).cast::<Addr>().write(word) }
    }

    fn size(&self, block: Addr) -> Addr {
        self.get(block) & !FLAGS
    }

    /// Tells the block behind one whether that is free.
    fn set_prev_free(&mut self, block: Addr, flag: Addr) {
        let next = block + self.size(block);
        self.set(next, self.get(next) & !AFTER_FREE | flag);
    }

    /// Takes a block of a size out of the free ones.
    fn split_from_free(&mut self, size: Addr) -> Option<Addr> {
        let block = match self.find(size) {
            Some(block) => block,
            None => self.grow(size)?,
        };
        self.unlink(block);
        self.set(block, self.size(block));
        self.set_prev_free(block, 0);
        self.trim(block, size);
        Some(block)
    }

    fn find(&self, size: Addr) -> Option<Addr> {
        let class = class_of(size);
        let mut block = self.first[class];
        for _ in 0..TRIES {
            if block == 0 {
                break;
            }
            if self.size(block) >= size {
                return Some(block);
            }
            block = self.get(block + 4);
        }
        let mut ahead = u64::MAX << (class % 64) << 1;
        for word in class / 64..self.has.len() {
            let bits = self.has[word] & ahead;
            if bits != 0 {
                return Some(self.first[word * 64 + bits.trailing_zeros() as usize]);
            }
            ahead = u64::MAX;
        }
        None
    }

    /// Has a free block of at least a size at the end of memory.
    fn grow(&mut self, size: Addr) -> Option<Addr> {
        let last = self.end.wrapping_sub(TAG);
        let is_free = self.end > 0 && self.get(last) & AFTER_FREE != 0;
        let there = if is_free { self.get(last - TAG) } else { 0 };
        let (from, end) = self.ground.grow(size + LEAST - there.min(size))?;
        // The block that ended memory is the first of what is new, unless that is elsewhere.
        let (block, flag) = match from == self.end {
            true => (last, self.get(last) & AFTER_FREE),
            false => (from + TAG, 0),
        };
        self.end = end;
        self.set(end - TAG, 0);
        self.set(block, (end - TAG - block) | flag);
        let block = self.coalesce(block);
        (self.size(block) >= size).then_some(block)
    }

    /// Frees what a block in use has beyond a size.
    fn trim(&mut self, block: Addr, size: Addr) {
        let tag = self.get(block);
        let rest = (tag & !FLAGS) - size;
        if rest >= LEAST {
            self.set(block, tag - rest);
            self.set(block + size, rest);
            self.coalesce(block + size);
        }
    }

    /// Frees a block in use, together with what is free around it.
    fn coalesce(&mut self, block: Addr) -> Addr {
        let (mut block, tag) = (block, self.get(block));
        let mut size = tag & !FLAGS;
        let next = self.get(block + size);
        if next & FREE != 0 {
            self.unlink(block + size);
            size += next & !FLAGS;
        }
        if tag & AFTER_FREE != 0 {
            let before = self.get(block - TAG);
            block -= before;
            size += before;
            self.unlink(block);
        }
        self.insert_free(block, size);
        block
    }

    /// Makes a free block, between two that are not.
    fn insert_free(&mut self, block: Addr, size: Addr) {
        self.set(block, size | FREE);
        self.set(block + size - TAG, size);
        self.set_prev_free(block, AFTER_FREE);
        let class = class_of(size);
        let second = self.first[class];
        self.set(block + 4, second);
        self.set(block + 8, 0);
        if second != 0 {
            self.set(second + 8, block);
        }
        self.first[class] = block;
        self.has[class / 64] |= 1 << (class % 64);
    }

    /// Takes a free block out of the list of its class.
    fn unlink(&mut self, block: Addr) {
        let (next, before) = (self.get(block + 4), self.get(block + 8));
        if next != 0 {
            self.set(next + 8, before);
        }
        if before != 0 {
            return self.set(before + 4, next);
        }
        let class = class_of(self.size(block));
        self.first[class] = next;
        if next == 0 {
            self.has[class / 64] &= !(1 << (class % 64));
        }
    }
}

/// The block that so many bytes need.
fn size_for(bytes: usize) -> Addr {
    (bytes as Addr + TAG).next_multiple_of(8).max(LEAST)
}

fn class_of(size: Addr) -> usize {
    if size < EXACT {
        return size as usize / 8;
    }
    let log = size.ilog2();
    (log * 8 + (size >> (log - 3) & 7)) as usize - 40
}

#[cfg(all(target_arch = "wasm32", feature = "module"))]
pub use global::can_allocate;

#[cfg(all(target_arch = "wasm32", feature = "module"))]
mod global {
    use core::alloc::{GlobalAlloc, Layout};
    use core::arch::wasm32::memory_grow;
    use core::cell::UnsafeCell;
    use core::ptr::{null_mut, with_exposed_provenance_mut};

    use super::{Addr, Heap, PageSource};

    const PAGE: Addr = 1 << 16;

    /// The memory of the module.
    #[derive(Debug)]
    struct Memory;

    // SAFETY: pages that the module asks for are nobody else's.
    unsafe impl PageSource for Memory {
        fn at(&self, address: Addr) -> *mut u8 {
            with_exposed_provenance_mut(address as usize)
        }

        fn grow(&mut self, bytes: Addr) -> Option<(Addr, Addr)> {
            let pages = bytes.div_ceil(PAGE);
            let from = memory_grow::<0>(pages as usize) as Addr;
            // The last page of all is not used, so that no address overflows.
            let end = from.checked_add(pages)?.checked_mul(PAGE)?;
            Some((from * PAGE, end))
        }
    }

    struct Shared(UnsafeCell<Heap<Memory>>);

    // SAFETY: wasm32 without threads: there is one.
    unsafe impl Sync for Shared {}

    #[global_allocator]
    static HEAP: Shared = Shared(UnsafeCell::new(Heap::new(Memory)));

    impl Shared {
        #[allow(clippy::mut_from_ref, reason = "no two borrows overlap: nothing here calls back")]
        fn heap(&self) -> &mut Heap<Memory> {
            // SAFETY: there is one thread, and the heap calls nothing that allocates.
            unsafe { &mut *self.0.get() }
        }
    }

    /// Whether so many bytes can be had in one piece without growing the memory.
    pub fn can_allocate(bytes: usize) -> bool {
        HEAP.heap().has(bytes)
    }

    // SAFETY: blocks do not overlap, and are as large and as aligned as is asked for.
    unsafe impl GlobalAlloc for Shared {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            let taken = self.heap().alloc(layout.size(), layout.align());
            taken.map_or(null_mut(), |at| with_exposed_provenance_mut(at as usize))
        }

        unsafe fn dealloc(&self, at: *mut u8, _: Layout) {
            self.heap().free(at as usize as Addr);
        }

        unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
            if self.heap().grow_in_place(at as usize as Addr, size) {
                return at;
            }
            // SAFETY: the caller's promises are those of the three.
            unsafe {
                let to = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
                if !to.is_null() {
                    to.copy_from_nonoverlapping(at, size.min(layout.size()));
                    self.dealloc(at, layout);
                }
                to
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Grows by pieces that touch, but for some.
    #[derive(Debug)]
    struct Arena {
        words: Vec<u64>,
        end: Addr,
        most: Addr,
        grown: u32,
    }

    // SAFETY: what was given is not given again, and the words stay where they are.
    unsafe impl PageSource for Arena {
        fn at(&self, address: Addr) -> *mut u8 {
            assert!(address < self.end);
            self.words.as_ptr().cast_mut().cast::<u8>().wrapping_add(address as usize)
        }

        fn grow(&mut self, bytes: Addr) -> Option<(Addr, Addr)> {
            self.grown += 1;
            let from = self.end + if self.grown.is_multiple_of(8) { 64 } else { 0 };
            let end = from + bytes.next_multiple_of(512);
            (end <= self.most).then(|| self.end = end)?;
            Some((from, end))
        }
    }

    fn heap(most: Addr) -> Heap<Arena> {
        Heap::new(Arena { words: vec![0; most as usize / 8], end: 64, most, grown: 0 })
    }

    /// Bytes in use and free by going from block to block; also whether all is as it should be.
    fn walk(heap: &Heap<Arena>, from: Addr) -> (Addr, Addr) {
        let (mut used, mut free, mut was_free, mut at) = (0, 0, false, from + TAG);
        while at < heap.end - TAG {
            let (tag, size) = (heap.get(at), heap.size(at));
            assert_eq!(tag & AFTER_FREE != 0, was_free, "at {at}");
            assert!(size >= LEAST && (tag & FREE == 0 || !was_free), "at {at}");
            was_free = tag & FREE != 0;
            if was_free {
                assert_eq!(heap.get(at + size - TAG), size);
            }
            *(if was_free { &mut free } else { &mut used }) += size;
            at += size;
        }
        assert_eq!(at, heap.end - TAG);
        (used, free)
    }

    #[test]
    fn allocations_are_aligned_and_disjoint() {
        // Miri takes a microsecond for each byte.
        let (rounds, large) = if cfg!(miri) { (300, 400) } else { (20_000, 60_000) };
        let mut heap = heap(4 << 20);
        let mut x = 1_u64;
        let mut random = |below: u64| {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (x >> 33) % below
        };
        let mut held: Vec<(Addr, usize, u8)> = Vec::new();
        let fill = |heap: &mut Heap<Arena>, at: Addr, from: usize, to: usize, with: u8| {
            (from..to).for_each(|i| unsafe { heap.ground.at(at + i as Addr).write(with) });
        };
        let check = |heap: &Heap<Arena>, &(at, bytes, with): &(Addr, usize, u8)| {
            let same = |i: usize| unsafe { heap.ground.at(at + i as Addr).read() } == with;
            assert!((0..bytes).all(same));
        };
        for round in 0..rounds {
            let most = [40, 300, 5000, large][random(4) as usize].min(large);
            let bytes = 1 + random(most) as usize;
            match random(5) {
                0 | 1 => {
                    let align = 1 << random(9);
                    let Some(at) = heap.alloc(bytes, align) else { continue };
                    assert_eq!(at as usize % align.max(8), 0);
                    fill(&mut heap, at, 0, bytes, round as u8);
                    held.push((at, bytes, round as u8));
                }
                2 if !held.is_empty() => {
                    let i = random(held.len() as u64) as usize;
                    if heap.grow_in_place(held[i].0, bytes) {
                        let (at, before, with) = held[i];
                        fill(&mut heap, at, before.min(bytes), bytes, with);
                        held[i].1 = bytes;
                    }
                }
                _ if !held.is_empty() => {
                    let gone = held.swap_remove(random(held.len() as u64) as usize);
                    check(&heap, &gone);
                    heap.free(gone.0);
                }
                _ => {}
            }
        }
        held.iter().for_each(|one| check(&heap, one));
        held.iter().for_each(|one| heap.free(one.0));
    }

    #[test]
    fn freed_blocks_coalesce_and_are_reused() {
        let mut heap = heap(1 << 20);
        heap.ground.grown = 1 << 20;
        let whole = heap.alloc(300_000, 8).expect("there is room");
        let from = whole - 8;
        heap.free(whole);
        let end = heap.end;
        let steps: &[usize] = if cfg!(miri) { &[3] } else { &[1, 2, 3, 5, 7] };
        for step in steps {
            let mut taken: Vec<Addr> =
                (0..900).filter_map(|i| heap.alloc(i % 300 + 1, 8)).collect();
            walk(&heap, from);
            while !taken.is_empty() {
                heap.free(taken.remove(step * 131 % taken.len()));
            }
            assert_eq!(walk(&heap, from), (0, end - 8 - from));
        }
        assert_eq!((heap.alloc(300_000, 8), heap.end), (Some(whole), end));
    }

    #[test]
    fn oversized_allocation_is_refused_without_loss() {
        let mut heap = heap(1 << 16);
        let one = heap.alloc(1000, 8).expect("there is room");
        for bytes in [1 << 16, MOST, MOST + 1, usize::MAX] {
            assert_eq!(heap.alloc(bytes, 8), None);
            assert!(!heap.grow_in_place(one, bytes));
        }
        heap.free(one);
        assert_eq!(heap.alloc(1000, 8), Some(one));
    }
}
