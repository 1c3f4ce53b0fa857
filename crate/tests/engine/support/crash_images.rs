//! Every image that a crash could have left, from the history of a disk.
//!
//! - The process dies: all writes are there, the last one up to some byte.
//! - The system dies: each sector of 512 bytes written since the last flush has one of its
//!   contents since then, and the file has one of its sizes since then. That covers reordered and
//!   dropped writes, and size without data. Some images also mix parts of writes within a sector,
//!   older ones lost under newer ones.
//! - A lying flush: the same, with the flushes after some moment ignored.

use std::collections::{BTreeMap, HashSet};

use varve::engine::format::DATA_START;

use super::fault_file::Event;
use super::oracle::{Bounds, Mark};
use super::pages::Pages;
use super::rng::{Rng, bytes_of};

pub const SECTOR: usize = 512;

/// The kind of a crash: what died.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashKind {
    Process,
    System,
}

/// One state that a crash could have left.
pub struct Crash<'a> {
    pub kind: CrashKind,
    /// Index of the event at which it happened.
    pub event: usize,
    pub image: &'a Pages,
    pub bounds: Bounds,
}

/// How much to enumerate.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Events with up to this many choices of sectors are enumerated completely.
    pub exhaustive: usize,
    /// For others, this many random choices, beside the regular patterns.
    pub drawn: usize,
    /// This many images in which some parts have random content.
    pub randomized: usize,
    /// The maximum of regular patterns (all but one sector, only one sector) per event.
    pub patterns: usize,
    /// Flushes from this event on do nothing although they succeed.
    pub flushes_lie_from: usize,
    /// Writes are torn at every byte (1), at every n-th byte, or not at all (0).
    pub tear_step: usize,
}

type Sector = [u8; SECTOR];

/// What happened to the part of a write in one sector.
enum Part {
    Old,
    New,
    Anything,
}

/// The disk while its history is walked: its durable and its possible content.
struct Walker {
    durable: Pages,
    now: Pages,
    /// The contents of each written sector since the last flush, starting with the durable one.
    sectors: BTreeMap<usize, Vec<Sector>>,
    /// The sizes since the last flush, starting with the durable one.
    sizes: Vec<usize>,
    pending: Vec<(u64, Vec<u8>)>,
}

fn sector_of(image: &Pages, index: usize) -> Sector {
    let mut sector = [0; SECTOR];
    image.read(&mut sector, index * SECTOR);
    sector
}

impl Walker {
    fn new(base: &Pages) -> Self {
        Walker {
            durable: base.clone(),
            now: base.clone(),
            sectors: BTreeMap::new(),
            sizes: vec![base.len()],
            pending: vec![],
        }
    }

    fn apply_flush(&mut self) {
        self.durable.clone_from(&self.now);
        self.sectors.clear();
        self.sizes = vec![self.now.len()];
        self.pending.clear();
    }

    /// Records the current content of `range`.
    fn touch(&mut self, range: std::ops::Range<usize>) -> HashSet<usize> {
        let mut fresh = HashSet::new();
        for index in range.start / SECTOR..range.end.div_ceil(SECTOR) {
            let durable = &self.durable;
            let contents =
                self.sectors.entry(index).or_insert_with(|| vec![sector_of(durable, index)]);
            let content = sector_of(&self.now, index);
            if contents.last() != Some(&content) {
                contents.push(content);
                fresh.insert(index);
            }
        }
        if self.sizes.last() != Some(&self.now.len()) {
            self.sizes.push(self.now.len());
        }
        fresh
    }

    /// Applies an event; returns the sectors that it changed.
    fn apply(&mut self, event: &Event) -> HashSet<usize> {
        match event {
            Event::Write { at, bytes } => {
                self.now.write(bytes, *at);
                self.pending.push((*at, bytes.clone()));
                let at = *at as usize;
                self.touch(at..at + bytes.len())
            }
            Event::Truncate(size) => {
                let (before, size) = (self.now.len(), *size as usize);
                self.now.resize(size);
                self.touch(size.min(before)..before.max(size))
            }
            Event::Flush | Event::Mark(_) => HashSet::new(),
        }
    }

    /// The image in which each written sector has the chosen content.
    fn compose(&self, choice: &Choice) -> Pages {
        let mut image = self.durable.clone();
        for ((&index, contents), &pick) in self.sectors.iter().zip(&choice.sectors) {
            image.write(&contents[pick], (index * SECTOR) as u64);
        }
        image.resize(self.sizes[choice.size]);
        image
    }

    /// An image with a random subset of the parts, one per sector, of the pending writes.
    fn mix(&self, rng: &mut Rng) -> Pages {
        let lost = rng.within(1..8);
        self.compose_parts(rng, |rng, _| match rng.below(8) < lost {
            true => Part::Old,
            false => Part::New,
        })
    }

    /// An image in which some of the parts have random content: few or many of them, or all parts
    /// of superblocks.
    fn randomize(&self, rng: &mut Rng) -> Pages {
        let [randomized, lost] = [rng.within(1..9), rng.below(4)];
        let only_start = rng.one_in(3);
        self.compose_parts(rng, |rng, at| match rng.below(8) {
            _ if only_start && at < DATA_START as usize => Part::Anything,
            _ if only_start => Part::New,
            n if n < randomized => Part::Anything,
            n if n < randomized + lost => Part::Old,
            _ => Part::New,
        })
    }

    /// The image in which each part of a pending write within one sector becomes what `becomes`
    /// returns.
    fn compose_parts(
        &self,
        rng: &mut Rng,
        mut becomes: impl FnMut(&mut Rng, usize) -> Part,
    ) -> Pages {
        let mut image = self.durable.clone();
        for (at, bytes) in &self.pending {
            let mut from = 0;
            while from < bytes.len() {
                let at = *at as usize + from;
                let to = bytes.len().min(from + SECTOR - at % SECTOR);
                match becomes(rng, at) {
                    Part::Old => {}
                    Part::New => image.write(&bytes[from..to], at as u64),
                    Part::Anything => {
                        image.write(&bytes_of(rng.next(), to - from), at as u64);
                    }
                }
                from = to;
            }
        }
        image.resize(*rng.pick(&self.sizes));
        image
    }

    fn newest(&self) -> Choice {
        Choice {
            sectors: self.sectors.values().map(|c| c.len() - 1).collect(),
            size: self.sizes.len() - 1,
        }
    }

    /// All choices, if they are at most `limit`.
    fn every_choice(&self, limit: usize) -> Option<Vec<Choice>> {
        let mut choices = vec![Choice { sectors: vec![], size: 0 }];
        let of_size = (0..self.sizes.len()).map(|size| Choice { sectors: vec![], size });
        choices.splice(.., of_size);
        for contents in self.sectors.values() {
            if choices.len() * contents.len() > limit {
                return None;
            }
            let extended = |choice: &Choice| {
                let choice = choice.clone();
                (0..contents.len()).map(move |pick| {
                    let mut choice = choice.clone();
                    choice.sectors.push(pick);
                    choice
                })
            };
            choices = choices.iter().flat_map(extended).collect();
        }
        Some(choices)
    }

    /// Regular patterns, and some random choices.
    fn some_choices(&self, limits: Limits, rng: &mut Rng) -> Vec<Choice> {
        let newest = self.newest();
        let oldest = Choice { sectors: vec![0; newest.sectors.len()], size: 0 };
        let mut choices = vec![
            newest.clone(),
            Choice { size: 0, ..newest.clone() },
            Choice { size: newest.size, ..oldest.clone() },
        ];
        let count = newest.sectors.len();
        for i in 0..limits.patterns.min(count) {
            let sector = if count <= limits.patterns { i } else { rng.below(count) };
            let mut all_but_one = newest.clone();
            all_but_one.sectors[sector] = 0;
            let mut only_one = oldest.clone();
            only_one.sectors[sector] = newest.sectors[sector];
            only_one.size = newest.size;
            choices.extend([all_but_one, only_one]);
        }
        for _ in 0..limits.drawn {
            let kept = rng.within(1..8);
            let mut choice = newest.clone();
            for pick in &mut choice.sectors {
                *pick = if rng.below(8) < kept { *pick } else { rng.below(*pick + 1) };
            }
            if rng.one_in(2) {
                choice.size = rng.below(choice.size + 1);
            }
            choices.push(choice);
        }
        choices
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Choice {
    sectors: Vec<usize>,
    size: usize,
}

/// Walks a history and passes every crash state in it to `visit`; each differs from all states of
/// earlier events, or has narrower bounds.
pub fn walk(
    base: &Pages,
    start: Bounds,
    events: &[Event],
    limits: Limits,
    rng: &mut Rng,
    mut visit: impl FnMut(&Crash<'_>),
) {
    let mut walker = Walker::new(base);
    let mut bounds = start;
    for (index, event) in events.iter().enumerate() {
        let mut show = |kind, image: &Pages, bounds| {
            visit(&Crash { kind, event: index, image, bounds });
        };
        match event {
            Event::Mark(Mark::Flushed(_)) if index >= limits.flushes_lie_from => {}
            Event::Mark(mark) => {
                bounds.record(*mark);
                show(CrashKind::Process, &walker.now, bounds.all_written());
            }
            Event::Flush if index >= limits.flushes_lie_from => {}
            Event::Flush => {
                walker.apply_flush();
                (bounds.floor, bounds.unclear) = (bounds.tip, None);
                show(CrashKind::System, &walker.now, bounds);
            }
            Event::Write { .. } | Event::Truncate(_) => {
                if let (Event::Write { at, bytes }, 1..) = (event, limits.tear_step) {
                    let (at, torn) = (*at as usize, bounds.all_written());
                    let show = |image: &Pages| show(CrashKind::Process, image, torn);
                    tear(&walker.now, at, bytes, limits.tear_step, show);
                }
                let grown = walker.sizes.len();
                let fresh = walker.apply(event);
                show(CrashKind::Process, &walker.now, bounds.all_written());
                let grown = walker.sizes.len() > grown;
                lose_power(&walker, &fresh, grown, limits, rng, |i| {
                    show(CrashKind::System, i, bounds)
                });
            }
        }
    }
}

/// The write stops after some of its bytes, at every multiple of `step` but the last; bytes that
/// change nothing are skipped.
fn tear(now: &Pages, at: usize, bytes: &[u8], step: usize, mut show: impl FnMut(&Pages)) {
    let mut image = now.clone();
    let mut changed = false;
    for (i, &byte) in bytes[..bytes.len() - 1].iter().enumerate() {
        if image.get(at + i) != Some(byte) {
            image.write(&[byte], (at + i) as u64);
            changed = true;
        }
        if changed && i % step == 0 {
            show(&image);
            changed = false;
        }
    }
}

/// Power fails after the last event, which changed the sectors `fresh`.
fn lose_power(
    walker: &Walker,
    fresh: &HashSet<usize>,
    grown: bool,
    limits: Limits,
    rng: &mut Rng,
    mut show: impl FnMut(&Pages),
) {
    let newest = walker.newest();
    let is_new = |choice: &Choice| {
        (grown && choice.size == newest.size)
            || walker
                .sectors
                .keys()
                .enumerate()
                .any(|(i, s)| fresh.contains(s) && choice.sectors[i] == newest.sectors[i])
    };
    let exhaustive = walker.every_choice(limits.exhaustive);
    let mixes = if exhaustive.is_some() { 0 } else { limits.drawn / 4 };
    let choices = exhaustive.unwrap_or_else(|| walker.some_choices(limits, rng));
    let mut seen = HashSet::new();
    for choice in choices {
        // The newest content of everything is also what the death of the process leaves, which was
        // visited already.
        if choice != newest && is_new(&choice) && seen.insert(choice.clone()) {
            show(&walker.compose(&choice));
        }
    }
    for _ in 0..mixes {
        show(&walker.mix(rng));
    }
    // Before a segment exists, nothing was promised.
    if walker.durable.len() > DATA_START as usize {
        for _ in 0..limits.randomized {
            show(&walker.randomize(rng));
        }
    }
}

/// The last events up to a crash, one per line, for debugging.
pub fn event_log(events: &[Event], until: usize) -> String {
    let from = until.saturating_sub(40);
    let lines = events.iter().enumerate().take(until + 1).skip(from);
    let line = |(i, event): (usize, &Event)| match event {
        Event::Write { at, bytes } => {
            let head = &bytes[..bytes.len().min(8)];
            format!("{i}: write of {} at {at}: {head:02x?}", bytes.len())
        }
        other => format!("{i}: {other:?}"),
    };
    lines.map(line).collect::<Vec<_>>().join("\n")
}
