//! Sorting by numbers, in a tenth of the code that sorting by comparing takes.

use alloc::vec::Vec;

/// What can be sorted by a number.
pub trait Numbered: Copy {
    /// The number.
    fn number(&self) -> u32;
}

impl Numbered for u32 {
    fn number(&self) -> u32 {
        *self
    }
}

/// The number comes first.
impl Numbered for (u32, u32) {
    fn number(&self) -> u32 {
        self.0
    }
}

/// Sorts from the smallest number; what has the same one keeps its order.
#[inline(never)]
#[must_use]
pub fn by_number<T: Numbered>(mut values: Vec<T>) -> Vec<T> {
    let mut sorted = values.clone();
    for shift in (0..32).step_by(8) {
        let digit = |value: &T| (value.number() >> shift & 0xFF) as usize;
        let mut ends = [0_usize; 257];
        for value in &values {
            ends[digit(value) + 1] += 1;
        }
        for i in 1..ends.len() {
            ends[i] += ends[i - 1];
        }
        for value in &values {
            let at = &mut ends[digit(value)];
            sorted[*at] = *value;
            *at += 1;
        }
        core::mem::swap(&mut values, &mut sorted);
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_sorted_and_equal_ones_keep_their_order() {
        assert!(by_number(Vec::<u32>::new()).is_empty());
        let mut x = 1u64;
        let values: Vec<(u32, u32)> = (0..5000)
            .map(|i| {
                x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                ((x >> (33 + i % 30)) as u32, i)
            })
            .chain([(u32::MAX, 5000), (0, 5001)])
            .collect();
        let mut expected = values.clone();
        expected.sort();
        assert_eq!(by_number(values), expected);
    }
}
