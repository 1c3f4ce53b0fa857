#![no_main]

#[global_allocator]
static ALLOCATIONS: varve_fuzz::allocations::Counting = varve_fuzz::allocations::Counting;

libfuzzer_sys::fuzz_target!(|data: &[u8]| varve_fuzz::targets::record(data));
