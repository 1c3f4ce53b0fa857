#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};
use varve_fuzz::{allocations::Counting, repair, targets};

#[global_allocator]
static ALLOCATIONS: Counting = Counting;

// Seven times in eight all checksums are corrected, so that mutations get past them.
fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    let size = fuzzer_mutate(data, size, max_size);
    if seed % 8 != 0 {
        repair::all(&mut data[..size]);
    }
    size
});

fuzz_target!(|data: &[u8]| targets::open(data));
