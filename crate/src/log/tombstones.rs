//! Accounts of the deletions in a segment, by the segments that they cover: those in which earlier records of their
//! keys may lie. A deletion is needed as long as one of these stands, but for its own.

use alloc::vec::Vec;

/// Where nobody knows which segment deletions cover last.
pub(crate) const UNKNOWN: u32 = u32::MAX;

/// So many parts are told apart; what does not fit widens one of them.
const MOST: usize = 16;

/// Whether a segment from `oldest` to `newest` stands, but for `own`; with the sequences of all that stand.
#[inline(never)]
pub(crate) fn covers(sequences: &[u32], oldest: u32, newest: u32, own: u32) -> bool {
    let from = sequences.partition_point(|&s| s < oldest);
    sequences[from..].iter().take_while(|&&s| s <= newest).any(|&s| s != own)
}

#[derive(Debug)]
struct Part {
    oldest: u32,
    newest: u32,
    bytes: u32,
}

/// The deletions of a segment, in parts by the oldest segment that they cover.
#[derive(Debug, Default)]
pub(super) struct Tombstones(Vec<Part>);

impl Tombstones {
    /// How many parts there are up to the one of those that cover no segment before `oldest`.
    fn up_to(&self, oldest: u32) -> usize {
        self.0.partition_point(|part| part.oldest <= oldest)
    }

    /// Adds `bytes` of deletions that cover segments from `oldest` to `newest`.
    pub(super) fn add(&mut self, bytes: u32, oldest: u32, newest: u32) {
        let at = self.up_to(oldest);
        // What is not known of one of them is not known of any.
        let is_full = self.0.len() == MOST || self.0.first().is_some_and(|it| it.newest == UNKNOWN);
        if !is_full && (at == 0 || self.0[at - 1].oldest < oldest) {
            self.0.insert(at, Part { oldest, newest, bytes });
            return;
        }
        let part = &mut self.0[at.saturating_sub(1)];
        part.bytes += bytes;
        (part.oldest, part.newest) = (part.oldest.min(oldest), part.newest.max(newest));
    }

    /// Takes back what was added with that `oldest`.
    pub(super) fn take_back(&mut self, bytes: u32, oldest: u32) {
        let at = self.up_to(oldest);
        if let Some(part) = self.0.get_mut(at.saturating_sub(1)) {
            part.bytes = part.bytes.saturating_sub(bytes);
        }
    }

    /// The last segment that any of them covers of which `oldest` is the first.
    pub(super) fn newest(&self, oldest: u32) -> u32 {
        let part = self.0.get(self.up_to(oldest).wrapping_sub(1));
        part.map_or(UNKNOWN, |part| part.newest)
    }

    /// The oldest segment that one of them covers.
    pub(super) fn oldest(&self) -> u32 {
        self.0.first().map_or(u32::MAX, |part| part.oldest)
    }

    pub(super) fn bytes(&self) -> u32 {
        self.0.iter().map(|part| part.bytes).sum()
    }

    /// Bytes of those that are needed in the segment `own`.
    pub(super) fn needed(&self, sequences: &[u32], own: u32) -> u32 {
        let needed =
            self.0.iter().filter(|it| covers(sequences, it.oldest, it.newest.min(own), own));
        needed.map(|part| part.bytes).sum()
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
        // For all of them Miri takes longer than for all else.
        for round in 0..if cfg!(miri) { 60 } else { 2_000 } {
            let (mut tombstones, mut added) = (Tombstones::default(), Vec::new());
            let (span, wide) = ([5, 12, OWN][round % 3], round % 2 == 0);
            for _ in 0..below(60) {
                let (bytes, oldest) = (1 + below(100), 1 + below(span) * (OWN / span));
                let newest = if wide { oldest + below(OWN - oldest + 1) } else { oldest };
                tombstones.add(bytes, oldest, newest);
                added.push((bytes, oldest, newest));
                if below(5) == 0 {
                    tombstones.take_back(bytes, oldest);
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
