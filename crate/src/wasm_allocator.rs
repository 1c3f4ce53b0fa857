//! The memory allocator of the wasm: segregated fits with boundary tags, after TLSF (Masmano,
//! Ripoll, Crespo, Real, ECRTS 2004), in an eighth of the code that Rust's default allocator needs
//! there.
//!
//! Memory is a sequence of blocks. Each begins with its size in four bytes, the lowest bits of
//! which state whether it is free and whether the previous block is free. The allocated bytes
//! follow these and are 8-aligned. A free block contains its neighbors in the list of its class and
//! ends with its size, so that a freed block can be coalesced with free blocks on both sides: no
//! two free blocks are adjacent.
#![allow(unsafe_code)]

/// An address or a number of bytes: wasm uses 32 bits for both.
type Addr = u32;

const FREE: Addr = 1;
const AFTER_FREE: Addr = 2;
const FLAGS: Addr = 7;

/// Bytes of a header.
const TAG: Addr = 4;
/// The smallest block: header, two list neighbors, size.
const MIN_BLOCK: Addr = 16;
/// Blocks below this size have one class per size; above it, each power of two has 8 classes.
const EXACT_LIMIT: Addr = 128;
/// Only blocks of this size count for [`Heap::can_allocate_chunks`].
const LARGE_BLOCK: Addr = 1 << 20;
/// How many blocks of the size's own class are tried. All blocks of higher classes are large
/// enough.
const MAX_TRIES: usize = 8;
/// The maximum size, so that sums of sizes cannot overflow.
const MAX_SIZE: usize = 1 << 30;

/// A source of memory.
///
/// # Safety
/// The memory that `grow` returns is not used by anything else, is 8-aligned and zero, stays valid, and is what
/// `at` points into.
pub unsafe trait PageSource {
    /// A pointer to the byte at an address.
    fn at(&self, address: Addr) -> *mut u8;
    /// Grows by at least `bytes` bytes; returns the start and the end of the new memory.
    fn grow(&mut self, bytes: Addr) -> Option<(Addr, Addr)>;
}

/// A heap of blocks.
#[derive(Debug)]
pub struct Heap<G> {
    source: G,
    /// The end of the memory. The last four bytes are the header of an empty block that is never
    /// free.
    end: Addr,
    /// The end of the last block that was ever allocated: what lies behind it is zero, but for the headers and
    /// ends of free blocks.
    used_end: Addr,
    /// A bitmap of the classes with free blocks, and the first free block of each class.
    class_bits: [u64; 4],
    free_lists: [Addr; 256],
}

impl<G: PageSource> Heap<G> {
    /// A heap without memory.
    pub const fn new(source: G) -> Self {
        Heap { source, end: 0, used_end: 0, class_bits: [0; 4], free_lists: [0; 256] }
    }

    /// Allocates `bytes` bytes at an address that is a multiple of `align`, a power of two.
    pub fn alloc(&mut self, bytes: usize, align: usize) -> Option<Addr> {
        if bytes > MAX_SIZE || align > MAX_SIZE {
            return None;
        }
        let size = size_for(bytes);
        let align = align as Addr;
        if align <= 8 {
            return Some(self.split_from_free(size)? + TAG);
        }
        let block = self.split_from_free(size + align + MIN_BLOCK)?;
        let at = block + TAG;
        let mut aligned = at.next_multiple_of(align);
        if aligned != at {
            // The skipped bytes before it must form a block.
            aligned = (at + MIN_BLOCK).next_multiple_of(align);
            let whole = self.size(block);
            self.set(aligned - TAG, whole - (aligned - at));
            self.insert_free(block, aligned - at);
        }
        self.trim(aligned - TAG, size);
        Some(aligned)
    }

    /// As [`alloc`](Heap::alloc), with zeros in all of it. Memory that was never used is not touched: the system
    /// then gives it no page before something is written there.
    pub fn alloc_zeroed(&mut self, bytes: usize, align: usize) -> Option<Addr> {
        let used_end = self.used_end;
        let at = self.alloc(bytes, align)?;
        let end = at + (size_for(bytes) - TAG);
        // The first words, those at the end of what was used, and the last one may be those of free blocks.
        let dirty = end.min(used_end.max(at) + MIN_BLOCK);
        for (from, to) in [(at, dirty), (dirty.max(end - 2 * TAG), end)] {
            // SAFETY: both ranges lie in the block that was just allocated.
            unsafe { self.source.at(from).write_bytes(0, (to - from) as usize) };
        }
        Some(at)
    }

    /// Frees the allocation at an address.
    pub fn free(&mut self, at: Addr) {
        self.coalesce(at - TAG);
    }

    /// Resizes the allocation at an address to `bytes` bytes if the free block after it permits
    /// that; returns whether it did.
    pub fn grow_in_place(&mut self, at: Addr, bytes: usize) -> bool {
        let block = at - TAG;
        let (tag, next) = (self.get(block), block + self.size(block));
        let free_after = if self.get(next) & FREE == 0 { 0 } else { self.size(next) };
        let size = size_for(bytes.min(MAX_SIZE));
        if bytes > MAX_SIZE || size > (tag & !FLAGS) + free_after {
            return false;
        }
        if free_after > 0 {
            self.unlink(next);
            self.set(block, tag + free_after);
            self.set_prev_free(block, 0);
        }
        self.trim(block, size);
        self.used_end = self.used_end.max(block + size);
        true
    }

    /// Whether `bytes` bytes can be allocated without growing the memory.
    pub fn can_allocate(&self, bytes: usize) -> bool {
        bytes <= MAX_SIZE && self.find(size_for(bytes)).is_some()
    }

    /// Whether `bytes` bytes can be allocated without growing the memory in chunks of less than 1 MiB.
    pub fn can_allocate_chunks(&self, bytes: usize) -> bool {
        let mut left = bytes as Addr;
        for &first in &self.free_lists[class_of(LARGE_BLOCK)..] {
            let mut block = first;
            while block != 0 {
                left = left.saturating_sub(self.size(block));
                block = self.get(block + 4);
            }
        }
        left == 0
    }

    fn get(&self, at: Addr) -> Addr {
        // SAFETY: callers pass an aligned address in a block, and blocks lie in memory that `grow`
        // returned.
        unsafe { self.source.at(at).cast::<Addr>().read() }
    }

    fn set(&mut self, at: Addr, word: Addr) {
        // SAFETY: as in `get`; the address is that of a header or lies in a free block.
        unsafe { self.source.at(at).cast::<Addr>().write(word) }
    }

    fn size(&self, block: Addr) -> Addr {
        self.get(block) & !FLAGS
    }

    /// Records in the next block whether this one is free.
    fn set_prev_free(&mut self, block: Addr, flag: Addr) {
        let next = block + self.size(block);
        self.set(next, self.get(next) & !AFTER_FREE | flag);
    }

    /// Allocates a block of a size from the free ones.
    fn split_from_free(&mut self, size: Addr) -> Option<Addr> {
        let block = match self.find(size) {
            Some(block) => block,
            None => self.grow(size)?,
        };
        self.unlink(block);
        self.set(block, self.size(block));
        self.set_prev_free(block, 0);
        self.trim(block, size);
        self.used_end = self.used_end.max(block + size);
        Some(block)
    }

    /// A free block of at least so many bytes: among the first few of its size class, or the first of a larger class.
    fn find(&self, size: Addr) -> Option<Addr> {
        let class = class_of(size);
        let mut block = self.free_lists[class];
        for _ in 0..MAX_TRIES {
            if block == 0 {
                break;
            }
            if self.size(block) >= size {
                return Some(block);
            }
            block = self.get(block + 4);
        }
        let mut ahead = u64::MAX << (class % 64) << 1;
        for word in class / 64..self.class_bits.len() {
            let bits = self.class_bits[word] & ahead;
            if bits != 0 {
                return Some(self.free_lists[word * 64 + bits.trailing_zeros() as usize]);
            }
            ahead = u64::MAX;
        }
        None
    }

    /// Grows the memory so that a free block of at least `size` bytes is at its end.
    fn grow(&mut self, size: Addr) -> Option<Addr> {
        let last = self.end.wrapping_sub(TAG);
        let is_free = self.end > 0 && self.get(last) & AFTER_FREE != 0;
        let last_free = if is_free { self.get(last - TAG) } else { 0 };
        let (from, end) = self.source.grow(size + MIN_BLOCK - last_free.min(size))?;
        // The empty block at the old end becomes the first of the new memory, if that is adjacent.
        let (block, flag) = match from == self.end {
            true => (last, self.get(last) & AFTER_FREE),
            false => (from + TAG, 0),
        };
        self.end = end;
        self.set(end - TAG, 0);
        self.set(block, (end - TAG - block) | flag);
        let block = self.coalesce(block);
        // What ended the memory until now lies within the free block: it becomes zero again.
        for word in [last.wrapping_sub(TAG), last] {
            if from == last.wrapping_add(TAG) && word >= block + MIN_BLOCK {
                self.set(word, 0);
            }
        }
        (self.size(block) >= size).then_some(block)
    }

    /// Frees the part of an allocated block beyond a size.
    fn trim(&mut self, block: Addr, size: Addr) {
        let tag = self.get(block);
        let rest = (tag & !FLAGS) - size;
        if rest >= MIN_BLOCK {
            self.set(block, tag - rest);
            self.set(block + size, rest);
            self.coalesce(block + size);
        }
    }

    /// Frees an allocated block and coalesces it with free neighbors.
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

    /// Adds a free block between two blocks in use.
    fn insert_free(&mut self, block: Addr, size: Addr) {
        self.set(block, size | FREE);
        self.set(block + size - TAG, size);
        self.set_prev_free(block, AFTER_FREE);
        let class = class_of(size);
        let second = self.free_lists[class];
        self.set(block + 4, second);
        self.set(block + 8, 0);
        if second != 0 {
            self.set(second + 8, block);
        }
        self.free_lists[class] = block;
        self.class_bits[class / 64] |= 1 << (class % 64);
    }

    /// Removes a free block from the list of its class.
    fn unlink(&mut self, block: Addr) {
        let (next, before) = (self.get(block + 4), self.get(block + 8));
        if next != 0 {
            self.set(next + 8, before);
        }
        if before != 0 {
            return self.set(before + 4, next);
        }
        let class = class_of(self.size(block));
        self.free_lists[class] = next;
        if next == 0 {
            self.class_bits[class / 64] &= !(1 << (class % 64));
        }
    }
}

/// The size of the block for an allocation of `bytes` bytes.
fn size_for(bytes: usize) -> Addr {
    (bytes as Addr + TAG).next_multiple_of(8).max(MIN_BLOCK)
}

fn class_of(size: Addr) -> usize {
    if size < EXACT_LIMIT {
        return size as usize / 8;
    }
    let log = size.ilog2();
    (log * 8 + (size >> (log - 3) & 7)) as usize - 40
}

#[cfg(all(target_arch = "wasm32", feature = "module"))]
pub use global::{can_allocate, can_allocate_chunks};

#[cfg(all(target_arch = "wasm32", feature = "module"))]
mod global {
    use core::alloc::{GlobalAlloc, Layout};
    use core::arch::wasm32::memory_grow;
    use core::cell::UnsafeCell;
    use core::ptr::{null_mut, with_exposed_provenance_mut};

    use super::{Addr, Heap, PageSource};

    const PAGE: Addr = 1 << 16;

    #[cfg(debug_assertions)]
    #[link(wasm_import_module = "host")]
    unsafe extern "C" {
        fn views_held() -> u32;
    }

    /// The memory of the module.
    #[derive(Debug)]
    struct Memory;

    // SAFETY: pages that the module allocates are not used by anything else.
    unsafe impl PageSource for Memory {
        fn at(&self, address: Addr) -> *mut u8 {
            with_exposed_provenance_mut(address as usize)
        }

        fn grow(&mut self, bytes: Addr) -> Option<(Addr, Addr)> {
            let pages = bytes.div_ceil(PAGE);
            // Growth detaches all views. Every test in this build shows that none happens under a view that must
            // stay valid: such calls ask `can_allocate` first.
            // SAFETY: no memory is passed.
            #[cfg(debug_assertions)]
            if unsafe { views_held() } != 0 {
                core::arch::wasm32::unreachable();
            }
            let from = memory_grow::<0>(pages as usize) as Addr;
            // The last page of the address space is not used, so that no address overflows.
            let end = from.checked_add(pages)?.checked_mul(PAGE)?;
            Some((from * PAGE, end))
        }
    }

    struct Shared(UnsafeCell<Heap<Memory>>);

    // SAFETY: wasm32 without threads has only one thread.
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

    /// Whether this many bytes can be allocated in one piece without growing the memory.
    pub fn can_allocate(bytes: usize) -> bool {
        HEAP.heap().can_allocate(bytes)
    }

    /// The same for chunks of less than 1 MiB.
    pub fn can_allocate_chunks(bytes: usize) -> bool {
        HEAP.heap().can_allocate_chunks(bytes)
    }

    // SAFETY: blocks do not overlap, and have at least the requested size and alignment.
    unsafe impl GlobalAlloc for Shared {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            let allocated = self.heap().alloc(layout.size(), layout.align());
            allocated.map_or(null_mut(), |at| with_exposed_provenance_mut(at as usize))
        }

        unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
            let allocated = self.heap().alloc_zeroed(layout.size(), layout.align());
            allocated.map_or(null_mut(), |at| with_exposed_provenance_mut(at as usize))
        }

        unsafe fn dealloc(&self, at: *mut u8, _: Layout) {
            self.heap().free(at as usize as Addr);
        }

        unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
            if self.heap().grow_in_place(at as usize as Addr, size) {
                return at;
            }
            // SAFETY: the caller's guarantees are those of the three functions.
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

    /// Grows by adjacent pieces, with an occasional hole.
    #[derive(Debug)]
    struct Arena {
        words: Vec<u64>,
        end: Addr,
        limit: Addr,
        grown: u32,
    }

    // SAFETY: memory that was returned is not returned again, and the words do not move.
    unsafe impl PageSource for Arena {
        fn at(&self, address: Addr) -> *mut u8 {
            assert!(address < self.end);
            self.words.as_ptr().cast_mut().cast::<u8>().wrapping_add(address as usize)
        }

        fn grow(&mut self, bytes: Addr) -> Option<(Addr, Addr)> {
            self.grown += 1;
            let from = self.end + if self.grown.is_multiple_of(8) { 64 } else { 0 };
            let end = from + bytes.next_multiple_of(512);
            (end <= self.limit).then(|| self.end = end)?;
            Some((from, end))
        }
    }

    fn heap(limit: Addr) -> Heap<Arena> {
        Heap::new(Arena { words: vec![0; limit as usize / 8], end: 64, limit, grown: 0 })
    }

    /// Checks all blocks in order; returns the bytes in use and the free bytes.
    fn walk(heap: &Heap<Arena>, from: Addr) -> (Addr, Addr) {
        let (mut used, mut free, mut was_free, mut at) = (0, 0, false, from + TAG);
        while at < heap.end - TAG {
            let (tag, size) = (heap.get(at), heap.size(at));
            assert_eq!(tag & AFTER_FREE != 0, was_free, "at {at}");
            assert!(size >= MIN_BLOCK && (tag & FREE == 0 || !was_free), "at {at}");
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
        let mut live: Vec<(Addr, usize, u8)> = Vec::new();
        let fill = |heap: &mut Heap<Arena>, at: Addr, from: usize, to: usize, with: u8| {
            (from..to).for_each(|i| unsafe { heap.source.at(at + i as Addr).write(with) });
        };
        let check = |heap: &Heap<Arena>, &(at, bytes, with): &(Addr, usize, u8)| {
            let same = |i: usize| unsafe { heap.source.at(at + i as Addr).read() } == with;
            assert!((0..bytes).all(same));
        };
        for round in 0..rounds {
            let most = [40, 300, 5000, large][random(4) as usize].min(large);
            let bytes = 1 + random(most) as usize;
            match random(5) {
                0 | 1 => {
                    let align = 1 << random(9);
                    let is_zeroed = random(2) == 0;
                    let allocated = match is_zeroed {
                        true => heap.alloc_zeroed(bytes, align),
                        false => heap.alloc(bytes, align),
                    };
                    let Some(at) = allocated else { continue };
                    if is_zeroed {
                        check(&heap, &(at, bytes, 0));
                    }
                    assert_eq!(at as usize % align.max(8), 0);
                    fill(&mut heap, at, 0, bytes, round as u8);
                    live.push((at, bytes, round as u8));
                }
                2 if !live.is_empty() => {
                    let i = random(live.len() as u64) as usize;
                    if heap.grow_in_place(live[i].0, bytes) {
                        let (at, before, with) = live[i];
                        fill(&mut heap, at, before.min(bytes), bytes, with);
                        live[i].1 = bytes;
                    }
                }
                _ if !live.is_empty() => {
                    let freed = live.swap_remove(random(live.len() as u64) as usize);
                    check(&heap, &freed);
                    heap.free(freed.0);
                }
                _ => {}
            }
        }
        live.iter().for_each(|one| check(&heap, one));
        live.iter().for_each(|one| heap.free(one.0));
    }

    #[test]
    fn freed_blocks_coalesce_and_are_reused() {
        let mut heap = heap(1 << 20);
        heap.source.grown = 1 << 20;
        let whole = heap.alloc(300_000, 8).expect("enough memory");
        let from = whole - 8;
        heap.free(whole);
        let end = heap.end;
        let steps: &[usize] = if cfg!(miri) { &[3] } else { &[1, 2, 3, 5, 7] };
        for step in steps {
            let mut allocated: Vec<Addr> =
                (0..900).filter_map(|i| heap.alloc(i % 300 + 1, 8)).collect();
            walk(&heap, from);
            while !allocated.is_empty() {
                heap.free(allocated.remove(step * 131 % allocated.len()));
            }
            assert_eq!(walk(&heap, from), (0, end - 8 - from));
        }
        assert_eq!((heap.alloc(300_000, 8), heap.end), (Some(whole), end));
    }

    #[test]
    fn oversized_allocation_is_refused_without_loss() {
        let mut heap = heap(1 << 16);
        let one = heap.alloc(1000, 8).expect("enough memory");
        for bytes in [1 << 16, MAX_SIZE, MAX_SIZE + 1, usize::MAX] {
            assert_eq!(heap.alloc(bytes, 8), None);
            assert!(!heap.grow_in_place(one, bytes));
        }
        heap.free(one);
        assert_eq!(heap.alloc(1000, 8), Some(one));
    }
}
