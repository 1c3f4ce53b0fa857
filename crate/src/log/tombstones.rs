//! Accounting of the tombstones in a segment by the segments that they cover, which are those that
//! may contain earlier records of the same keys. A tombstone is needed as long as a segment that it
//! covers exists, other than its own.

use alloc::vec::Vec;

/// The newest covered segment, if it is not known.
pub(crate) const UNKNOWN: u32 = u32::MAX;

/// The maximum number of buckets. What does not fit widens one of them.
const MAX_BUCKETS: usize = 16;

/// Whether a segment from `oldest` to `newest` other than `own` exists. `sequences` are those of
/// all existing segments.
#[inline(never)]
pub(crate) fn covers_any(sequences: &[u32], oldest: u32, newest: u32, own: u32) -> bool {
    let from = sequences.partition_point(|&s| s < oldest);
    sequences[from..].iter().take_while(|&&s| s <= newest).any(|&s| s != own)
}

#[derive(Debug)]
struct Bucket {
    oldest: u32,
    newest: u32,
    bytes: u32,
}

/// The tombstones of a segment, in buckets by the oldest segment that they cover.
#[derive(Debug, Default)]
pub(super) struct Tombstones(Vec<Bucket>);

impl Tombstones {
    /// How many buckets start at or before `oldest`.
    fn index_of(&self, oldest: u32) -> usize {
        self.0.partition_point(|bucket| bucket.oldest <= oldest)
    }

    /// Adds `bytes` of tombstones that cover segments from `oldest` to `newest`.
    pub(super) fn add(&mut self, bytes: u32, oldest: u32, newest: u32) {
        let at = self.index_of(oldest);
        // If the newest covered segment is unknown for one bucket, it is for all.
        let is_full =
            self.0.len() == MAX_BUCKETS || self.0.first().is_some_and(|it| it.newest == UNKNOWN);
        if !is_full && (at == 0 || self.0[at - 1].oldest < oldest) {
            self.0.insert(at, Bucket { oldest, newest, bytes });
            return;
        }
        let bucket = &mut self.0[at.saturating_sub(1)];
        bucket.bytes += bytes;
        (bucket.oldest, bucket.newest) = (bucket.oldest.min(oldest), bucket.newest.max(newest));
    }

    /// Subtracts `bytes` that were added with this `oldest`.
    pub(super) fn subtract(&mut self, bytes: u32, oldest: u32) {
        let at = self.index_of(oldest);
        if let Some(bucket) = self.0.get_mut(at.saturating_sub(1)) {
            bucket.bytes = bucket.bytes.saturating_sub(bytes);
        }
    }

    /// The newest segment that any tombstone with this `oldest` may cover.
    pub(super) fn newest(&self, oldest: u32) -> u32 {
        let bucket = self.0.get(self.index_of(oldest).wrapping_sub(1));
        bucket.map_or(UNKNOWN, |bucket| bucket.newest)
    }

    /// The oldest segment that any of them covers.
    pub(super) fn oldest(&self) -> u32 {
        self.0.first().map_or(u32::MAX, |bucket| bucket.oldest)
    }

    pub(super) fn bytes(&self) -> u32 {
        self.0.iter().map(|bucket| bucket.bytes).sum()
    }

    /// Bytes of the tombstones that are needed in the segment `own`.
    pub(super) fn needed(&self, sequences: &[u32], own: u32) -> u32 {
        let needed =
            self.0.iter().filter(|it| covers_any(sequences, it.oldest, it.newest.min(own), own));
        needed.map(|bucket| bucket.bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tombstone_estimate_is_an_upper_bound_and_exact_for_few_parts() {
        const OWN: u32 = 200;
        let mut x = 1u64;
        let mut below = |end: u32| {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (x >> 40) as u32 % end
        };
        // Miri would take longer for all rounds than for all other tests.
        for round in 0..if cfg!(miri) { 60 } else { 2_000 } {
            let (mut tombstones, mut added) = (Tombstones::default(), Vec::new());
            let (span, wide) = ([5, 12, OWN][round % 3], round % 2 == 0);
            for _ in 0..below(60) {
                let (bytes, oldest) = (1 + below(100), 1 + below(span) * (OWN / span));
                let newest = if wide { oldest + below(OWN - oldest + 1) } else { oldest };
                tombstones.add(bytes, oldest, newest);
                added.push((bytes, oldest, newest));
                if below(5) == 0 {
                    tombstones.subtract(bytes, oldest);
                    added.pop();
                }
            }
            let stand: Vec<u32> = (0..=OWN).filter(|_| below(20) == 0).collect();
            let mut needed = 0;
            for &(bytes, oldest, newest) in &added {
                assert!((newest..UNKNOWN).contains(&tombstones.newest(oldest)), "round {round}");
                let is_needed = stand.iter().any(|s| (oldest..=newest).contains(s) && *s != OWN);
                needed += if is_needed { bytes } else { 0 };
            }
            let estimate = tombstones.needed(&stand, OWN);
            assert!(estimate >= needed, "round {round}: {estimate} estimated, {needed} needed");
            assert!(
                wide || span == OWN || estimate == needed,
                "round {round}: {estimate}, not {needed}"
            );
            assert_eq!(
                tombstones.bytes(),
                added.iter().map(|added| added.0).sum::<u32>(),
                "round {round}"
            );
        }
    }
}
