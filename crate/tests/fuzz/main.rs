//! The fuzz targets of `crate/fuzz` on a stable toolchain. The inputs are every golden file, files
//! that fuzzing has found (`crate/fuzz/found`), and mutations of them by a seeded mutator, most
//! with corrected checksums. Each run is the same.
//!
//! `VARVE_FUZZ_SEED` runs one seed alone, `VARVE_FUZZ_RUNS` that many. Failing inputs are written
//! to `target/tmp`. `npm run fuzz` runs forever, guided by coverage.

#[path = "../../fuzz/src/allocations.rs"]
mod allocations;
mod mutate;
#[path = "../../fuzz/src/repair.rs"]
mod repair;
#[path = "../engine/support/rng.rs"]
mod rng;
#[path = "../../fuzz/src/targets.rs"]
mod targets;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use mutate::mutate;
use rng::{Rng, replayed};
use targets::{TARGETS, Target};
use varve::engine::format::checkpoint;

#[global_allocator]
static ALLOCATIONS: allocations::Counting = allocations::Counting;

/// Mutated files per target; opening takes longer than parsing.
const RUNS: u64 = 200_000;
const PARSERS_RUN: u64 = 5;

fn files_in(folder: &str, selected: impl Fn(&Path) -> bool) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let files = std::fs::read_dir(&folder).expect("the files to begin with are there");
    let mut paths: Vec<PathBuf> = files.map(|file| file.expect("a file").path()).collect();
    paths.sort();
    let files = paths.iter().filter(|path| selected(path));
    files.map(|path| std::fs::read(path).expect("it can be read")).collect()
}

/// Every golden file: every feature and version of the format.
fn golden() -> Vec<Vec<u8>> {
    files_in("../tests/vectors/golden", |path| path.extension().is_some_and(|e| e == "varve"))
}

/// Files that once revealed a problem, and others that reach code that no golden file reaches.
fn found() -> Vec<Vec<u8>> {
    files_in("fuzz/found/open", |_| true)
}

/// The inputs of a target: whole files, or the parts of them that it parses.
fn seeds(name: &str, files: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let magic: &[u8] = match name {
        "superblock" => b"varve\r\n\x1a",
        "segment" => b"VSEG",
        "checkpoint" => &checkpoint::MAGIC.to_le_bytes(),
        "frame" | "record" => b"VFRM",
        _ => {
            let small = files.iter().filter(|file| file.len() < 100_000).cloned();
            return small.chain(found()).collect();
        }
    };
    let before = if name == "superblock" { 0 } else { 8 };
    let skip = if name == "record" { 40 } else { 0 };
    let mut found = Vec::new();
    for file in files {
        let offsets = (before..file.len().saturating_sub(magic.len())).step_by(8);
        let offsets = offsets.filter(|&at| file[at..].starts_with(magic));
        found.extend(offsets.map(|at| {
            let from = at - before + skip;
            file[from.min(file.len())..file.len().min(from + 600)].to_vec()
        }));
    }
    found
}

fn run(name: &str, target: Target, data: &[u8], what: &str) {
    if let Err(cause) = catch_unwind(AssertUnwindSafe(|| target(data))) {
        let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fuzz-{name}-{what}"));
        std::fs::write(&kept, data).expect("the file is kept");
        eprintln!("{name}, {what}: VARVE_FUZZ_SEED replays a seed; kept in {}", kept.display());
        std::panic::resume_unwind(cause);
    }
}

fn fuzz(selected: &str) {
    let files = golden();
    let (name, target) = TARGETS.into_iter().find(|(name, _)| *name == selected).expect("a target");
    let seeds = seeds(name, &files);
    assert!(seeds.len() > 3, "{name} has {} seeds", seeds.len());
    for (i, data) in seeds.iter().enumerate() {
        run(name, target, data, &format!("begun-with-{i}"));
    }
    let runs = replayed("VARVE_FUZZ_RUNS").unwrap_or(RUNS);
    let runs = if name == "open" { runs } else { runs * PARSERS_RUN };
    let range = replayed("VARVE_FUZZ_SEED").map_or(0..runs, |seed| seed..seed + 1);
    let count = range.end - range.start;
    for seed in range {
        let mut rng = Rng::new(seed);
        let mut data = rng.pick(&seeds).clone();
        mutate(&mut data, &seeds, &mut rng);
        if name == "open" && !rng.one_in(8) {
            repair::all(&mut data);
        }
        run(name, target, &data, &format!("seed-{seed}"));
    }
    println!("{name}: {} to begin with and {count} mutated", seeds.len());
}

#[test]
fn superblock_parser_never_panics() {
    fuzz("superblock");
}

#[test]
fn segment_header_parser_never_panics() {
    fuzz("segment");
}

#[test]
fn frame_parser_never_panics() {
    fuzz("frame");
}

#[test]
fn record_parser_never_panics() {
    fuzz("record");
}

#[test]
fn checkpoint_parser_never_panics() {
    fuzz("checkpoint");
}

#[test]
fn opening_any_file_never_panics_or_exceeds_its_memory_bound() {
    fuzz("open");
}
