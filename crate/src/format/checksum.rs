//! Seeded XXH3-64, the only checksum of the format.
//!
//! The seed binds bytes to their position: that of a frame consists of the salt of its segment and
//! its position, so that stale frames of reused segments, misplaced writes, and images of databases
//! stored as values are never taken for frames of this log.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// XXH3-64 of `bytes` under `seed`.
#[must_use]
pub fn checksum(bytes: &[u8], seed: u64) -> u64 {
    #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
    if bytes.len() > 16 {
        return vectors::checksum(bytes, seed);
    }
    xxh3_64_with_seed(bytes, seed)
}

#[cfg(not(all(target_arch = "wasm32", target_feature = "simd128")))]
pub use words::Checksum;

#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
pub use vectors::Checksum;

/// Without vectors, the library computes incremental checksums.
#[cfg(not(all(target_arch = "wasm32", target_feature = "simd128")))]
mod words {
    use alloc::boxed::Box;
    use core::fmt;

    use xxhash_rust::xxh3::Xxh3;

    /// An incremental checksum of more than 240 bytes.
    pub struct Checksum(Box<Xxh3>);

    impl Checksum {
        /// The checksum of no bytes yet.
        #[must_use]
        pub fn new(seed: u64) -> Self {
            Checksum(Box::new(Xxh3::with_seed(seed)))
        }

        /// Adds bytes that are not the last ones; their number is a multiple of 1024.
        pub fn add(&mut self, bytes: &[u8]) {
            debug_assert!(bytes.len().is_multiple_of(1024));
            self.0.update(bytes);
        }

        /// Adds the last bytes, at least 64, and returns the checksum.
        #[must_use]
        pub fn end(&mut self, bytes: &[u8]) -> u64 {
            self.0.update(bytes);
            self.0.digest()
        }
    }

    impl fmt::Debug for Checksum {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("Checksum")
        }
    }
}

/// The seed for bytes at file position `position` in a segment with `salt`.
#[must_use]
pub const fn seed_at(salt: u64, position: u64) -> u64 {
    salt ^ position.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// XXH3-64 of more than 16 bytes.
///
/// For up to 240 bytes, which most records have, it multiplies 64 by 64 bits to 128, for which wasm
/// has no instruction. Two products at a time in vectors take half the time of the library's code,
/// which computes one at a time. For more bytes it processes stripes of 64 bytes, for each of which
/// the library makes a call. Tests through the package check in wasm that both agree.
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
mod vectors {
    use core::arch::wasm32::{
        i32x4_shuffle, i64x2_add, i64x2_mul, i64x2_shl, i64x2_shuffle, i64x2_splat, u64x2,
        u64x2_extmul_high_u32x4, u64x2_extmul_low_u32x4, u64x2_extract_lane, u64x2_shr, v128,
        v128_and, v128_or, v128_xor,
    };

    use crate::aligned_buf::vector;

    const PRIME64_1: u64 = 0x9E37_79B1_85EB_CA87;
    const PRIME_MX1: u64 = 0x1656_6791_9E37_79F9;

    /// The secret of XXH3.
    static SECRET: [u8; 192] = [
        0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad,
        0x1c, 0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3,
        0x67, 0x1f, 0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc,
        0xff, 0x72, 0x21, 0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6,
        0x81, 0x3a, 0x26, 0x4c, 0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65,
        0x8b, 0x1b, 0x53, 0x2e, 0xa3, 0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19,
        0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8, 0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9,
        0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d, 0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31,
        0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64, 0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb,
        0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb, 0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0,
        0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e, 0x2b, 0x16, 0xbe, 0x58, 0x7d,
        0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce, 0x45, 0xcb, 0x3a, 0x8f,
        0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
    ];

    const STRIPE: usize = 64;
    /// The secret for each stripe of a block starts eight bytes after that for the previous one.
    const STRIPES: usize = (SECRET.len() - STRIPE) / 8;

    /// The bytes and the seed in the form that all steps need.
    struct Input<'a> {
        bytes: &'a [u8],
        /// The seed and its negative.
        seeds: v128,
    }

    pub(super) fn checksum(bytes: &[u8], seed: u64) -> u64 {
        let length = bytes.len();
        if length > 240 {
            return Checksum::new(seed).end(bytes);
        }
        let input = Input { bytes, seeds: u64x2(seed, seed.wrapping_neg()) };
        let start = (length as u64).wrapping_mul(PRIME64_1);
        if length <= 128 {
            let pairs = 0..=(length - 1) / 32;
            let mixed = pairs.fold(ZERO, |all, i| {
                let front = input.keyed(16 * i, 32 * i);
                let back = input.keyed(length - 16 * (i + 1), 32 * i + 16);
                i64x2_add(all, multiply(front, back))
            });
            return avalanche(start.wrapping_add(sum(mixed)));
        }
        let pair =
            |at, secret| multiply(input.keyed(at, secret), input.keyed(at + 16, secret + 16));
        let mixed = (0..4).fold(ZERO, |all, i| i64x2_add(all, pair(32 * i, 32 * i)));
        let start = avalanche(start.wrapping_add(sum(mixed)));
        let last = input.keyed(length - 16, 119);
        let parts = length / 16 - 8;
        let pairs = (0..parts / 2).map(|i| pair(128 + 32 * i, 32 * i + 3));
        let mixed = pairs.fold(ZERO, |all, pair| i64x2_add(all, pair));
        // The last 16 bytes are the second half of a pair, or the first half of one without a
        // second.
        let odd = match parts % 2 {
            0 => ZERO,
            _ => input.keyed(112 + 16 * parts, 16 * parts - 13),
        };
        let mixed = i64x2_add(mixed, multiply(odd, last));
        avalanche(start.wrapping_add(sum(mixed)))
    }

    /// An incremental checksum of more than 240 bytes.
    #[derive(Debug)]
    pub struct Checksum {
        lanes: [v128; 4],
        /// The secret combined with the seed.
        secret: [u8; SECRET.len()],
        length: u64,
    }

    impl Checksum {
        /// The checksum of no bytes yet.
        #[must_use]
        #[inline(never)]
        pub fn new(seed: u64) -> Self {
            let mut secret = SECRET;
            let seeds = u64x2(seed, seed.wrapping_neg());
            for pair in secret.as_chunks_mut::<16>().0 {
                let keyed = i64x2_add(vector(pair), seeds);
                pair[..8].copy_from_slice(&u64x2_extract_lane::<0>(keyed).to_le_bytes());
                pair[8..].copy_from_slice(&u64x2_extract_lane::<1>(keyed).to_le_bytes());
            }
            let lanes = [
                u64x2(0xC2B2_AE3D, PRIME64_1),
                u64x2(0xC2B2_AE3D_27D4_EB4F, 0x1656_67B1_9E37_79F9),
                u64x2(0x85EB_CA77_C2B2_AE63, 0x85EB_CA77),
                u64x2(0x27D4_EB2F_1656_67C5, 0x9E37_79B1),
            ];
            Checksum { lanes, secret, length: 0 }
        }

        /// Adds bytes that are not the last ones; their number is a multiple of 1024.
        pub fn add(&mut self, bytes: &[u8]) {
            debug_assert!(bytes.len().is_multiple_of(STRIPE * STRIPES));
            self.add_stripes(bytes);
            self.length += bytes.len() as u64;
        }

        fn add_stripes(&mut self, bytes: &[u8]) {
            let (mut lanes, secret) = (self.lanes, &self.secret);
            let end = &secret[SECRET.len() - STRIPE..];
            for block in bytes.chunks(STRIPE * STRIPES) {
                for (i, stripe) in block.chunks_exact(STRIPE).enumerate() {
                    lanes = mix(lanes, stripe, &secret[8 * i..8 * i + STRIPE]);
                }
                if block.len() == STRIPE * STRIPES {
                    for (i, lane) in lanes.iter_mut().enumerate() {
                        let mixed =
                            v128_xor(v128_xor(*lane, u64x2_shr(*lane, 47)), load(end, 16 * i));
                        *lane = i64x2_mul(mixed, i64x2_splat(0x9E37_79B1));
                    }
                }
            }
            self.lanes = lanes;
        }

        /// Adds the last bytes, at least 64, and returns the checksum.
        #[must_use]
        pub fn end(&mut self, bytes: &[u8]) -> u64 {
            // The bytes of the last stripe are left out here, so that no block is the last.
            self.add_stripes(&bytes[..bytes.len() - 1]);
            let last = &bytes[bytes.len() - STRIPE..];
            let lanes = mix(self.lanes, last, &self.secret[SECRET.len() - STRIPE - 7..]);
            let keyed = |i: usize| v128_xor(lanes[i], load(&self.secret, 11 + 16 * i));
            let products = i64x2_add(multiply(keyed(0), keyed(1)), multiply(keyed(2), keyed(3)));
            let length = self.length + bytes.len() as u64;
            avalanche(length.wrapping_mul(PRIME64_1).wrapping_add(sum(products)))
        }
    }

    /// Mixes a stripe of 64 bytes into the lanes, with 64 bytes of the secret. It has no loop:
    /// anything that is not inlined here costs more than the multiplications.
    #[inline(always)]
    fn mix([a, b, c, d]: [v128; 4], stripe: &[u8], secret: &[u8]) -> [v128; 4] {
        let (a, b) = mix_pair(a, b, &stripe[..32], &secret[..32]);
        let (c, d) = mix_pair(c, d, &stripe[32..], &secret[32..]);
        [a, b, c, d]
    }

    #[inline(always)]
    fn mix_pair(a: v128, b: v128, stripe: &[u8], secret: &[u8]) -> (v128, v128) {
        let (x, y) = (load(stripe, 0), load(stripe, 16));
        let (keyed_x, keyed_y) = (v128_xor(x, load(secret, 0)), v128_xor(y, load(secret, 16)));
        let low = i32x4_shuffle::<0, 2, 4, 6>(keyed_x, keyed_y);
        let high = i32x4_shuffle::<1, 3, 5, 7>(keyed_x, keyed_y);
        let crossed_x = i64x2_shuffle::<1, 0>(x, x);
        let crossed_y = i64x2_shuffle::<1, 0>(y, y);
        (
            i64x2_add(a, i64x2_add(u64x2_extmul_low_u32x4(low, high), crossed_x)),
            i64x2_add(b, i64x2_add(u64x2_extmul_high_u32x4(low, high), crossed_y)),
        )
    }

    const ZERO: v128 = u64x2(0, 0);

    impl Input<'_> {
        /// Combines 16 bytes with 16 bytes of the secret.
        #[inline(always)]
        fn keyed(&self, at: usize, secret: usize) -> v128 {
            v128_xor(load(self.bytes, at), i64x2_add(load(&SECRET, secret), self.seeds))
        }
    }

    /// Loads 16 bytes. Not by an index, whose bounds check would cost the loops a third of their
    /// speed.
    #[inline(always)]
    fn load(bytes: &[u8], at: usize) -> v128 {
        match bytes.get(at..).and_then(|rest| rest.first_chunk()) {
            Some(bytes) => vector(bytes),
            _ => ZERO,
        }
    }

    /// Multiplies the two halves of each vector, and combines the two halves of each product by
    /// exclusive or.
    #[inline(always)]
    fn multiply(x: v128, y: v128) -> v128 {
        let low_half = i64x2_splat(0xFFFF_FFFF);
        let a = i32x4_shuffle::<0, 4, 1, 5>(x, y);
        let b = i32x4_shuffle::<2, 6, 3, 7>(x, y);
        let b_crossed = i32x4_shuffle::<2, 3, 0, 1>(b, b);
        let low = u64x2_extmul_low_u32x4(a, b);
        let right = u64x2_extmul_low_u32x4(a, b_crossed);
        let left = u64x2_extmul_high_u32x4(a, b_crossed);
        let high = u64x2_extmul_high_u32x4(a, b);
        let cross = i64x2_add(i64x2_add(u64x2_shr(low, 32), v128_and(left, low_half)), right);
        let high = i64x2_add(i64x2_add(high, u64x2_shr(left, 32)), u64x2_shr(cross, 32));
        v128_xor(high, v128_or(i64x2_shl(cross, 32), v128_and(low, low_half)))
    }

    #[inline(always)]
    fn sum(lanes: v128) -> u64 {
        u64x2_extract_lane::<0>(lanes).wrapping_add(u64x2_extract_lane::<1>(lanes))
    }

    fn avalanche(mut sum: u64) -> u64 {
        sum ^= sum >> 37;
        sum = sum.wrapping_mul(PRIME_MX1);
        sum ^ sum >> 32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incremental_checksum_equals_one_shot() {
        let bytes: Vec<u8> =
            (0..9000_u32).map(|i| (i.wrapping_mul(0x9E37_79B9) >> 23) as u8).collect();
        // All combinations would take too long in Miri, which checks how bytes are accessed.
        let (step, rest, seeds) = if cfg!(miri) { (97, 3072, 2) } else { (1, 1024, 3) };
        for length in
            (241..1500).step_by(step).chain([2047, 2048, 2049, 4096, 4160, 8191, 8192, 9000])
        {
            for &seed in &[0, 0xFEDC_BA98_7654_3210, 1][..seeds] {
                let expected = xxh3_64_with_seed(&bytes[..length], seed);
                for before in (0..length - 63).step_by(rest) {
                    let mut sum = Checksum::new(seed);
                    bytes[..before].chunks(2048).for_each(|part| sum.add(part));
                    let computed = sum.end(&bytes[before..length]);
                    assert_eq!(computed, expected, "{length} after {before}");
                }
            }
        }
    }
}
