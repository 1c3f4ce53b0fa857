//! `keys-bench [count] [samples]` runs both sets natively and prints one line of JSON, times in ns per key.

use std::error::Error;
use std::time::Instant;

use keys_bench::{Phase, Which, clear, held, prepare, run};

const SETS: [(Which, &str); 2] = [(Which::Inline, "engine"), (Which::Vectors, "vec")];
const PHASES: [(Phase, &str); 3] =
    [(Phase::Insert, "insert"), (Phase::Seek, "seek"), (Phase::Walk, "walk")];

fn list(values: &[f64]) -> String {
    let words: Vec<String> = values.iter().map(|value| format!("{value:.2}")).collect();
    format!("[{}]", words.join(","))
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let count: u32 = arguments.next().map_or(Ok(1_000_000), |word| word.parse())?;
    let samples: u32 = arguments.next().map_or(Ok(5), |word| word.parse())?;
    prepare(count, 2);

    let mut times = vec![vec![Vec::new(); PHASES.len()]; SETS.len()];
    let mut held_by = [(0, 0); SETS.len()];
    // The first round warms up caches and allocator and is not counted.
    for round in 0..=samples {
        let mut sums = [[0; PHASES.len()]; SETS.len()];
        for (s, (which, _)) in SETS.iter().enumerate() {
            for (p, (phase, _)) in PHASES.iter().enumerate() {
                let start = Instant::now();
                sums[s][p] = run(*which, *phase);
                let ns = start.elapsed().as_nanos() as f64 / f64::from(count);
                if round > 0 {
                    times[s][p].push(ns);
                }
            }
            held_by[s] = held();
            clear();
        }
        if sums[0] != sums[1] {
            return Err("the two sets do not hold the same keys in the same order".into());
        }
    }

    let sets: Vec<String> = SETS
        .iter()
        .enumerate()
        .map(|(s, (_, name))| {
            let phases: Vec<String> = PHASES
                .iter()
                .enumerate()
                .map(|(p, (_, phase))| format!("\"{phase}\":{}", list(&times[s][p])))
                .collect();
            let (bytes, blocks) = held_by[s];
            format!(
                "\"{name}\":{{{},\"bytesPerKey\":{:.2},\"blocksPerKey\":{:.3}}}",
                phases.join(","),
                bytes as f64 / f64::from(count),
                blocks as f64 / f64::from(count)
            )
        })
        .collect();
    println!("{{\"count\":{count},{}}}", sets.join(","));
    Ok(())
}
