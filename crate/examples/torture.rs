//! Endless random programs that crash and whose files fail: `npm run torture`.
//!
//! Every seed is another program; the tests of the crate run the first ones. A failure prints its
//! seed, and writes the image of the file to where `VARVE_KEEP_IMAGE` says. A run with a time limit
//! writes its results to where `VARVE_KEEP_RESULTS` says.

#[expect(
    dead_code,
    reason = "it includes the support modules of the tests, of which it uses only a part"
)]
#[path = "../tests/engine/support/mod.rs"]
mod support;

use std::io::IsTerminal;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use support::session::With;
use support::{crash_programs, fault_programs};

const USAGE: &str = "npm run torture [-- --seed N] [--seconds N] [--states N] [--threads N]
  --seed N      run only this program: a failure prints its seed
  --seconds N   end after N seconds; otherwise at the first failure, or Ctrl-C
  --states N    end after N states of the file
  --threads N   run N programs at once: 1";

/// Failures selected for each program in which calls of the file fail.
const SAMPLE: u64 = 200;

#[derive(Default)]
struct Done {
    crashes: crash_programs::Tally,
    failures: fault_programs::Tally,
    lies: AtomicU64,
    seeds: AtomicU64,
}

impl Done {
    fn states(&self) -> u64 {
        let counts = [&self.failures.cases, &self.failures.walked, &self.lies];
        let counts = counts.map(|count| count.load(Ordering::Relaxed));
        self.crashes.total() + counts.iter().sum::<u64>()
    }

    /// Programs that crash, programs in which calls fail, and sometimes a lying flush.
    fn run(&self, seed: u64) {
        let with = with_of(seed);
        match seed % 8 {
            0 => {
                let crash_programs::Lies { whole, shorter, noticed, unwitnessed } =
                    crash_programs::run_lie_with(seed, with);
                let states = whole + shorter + noticed + unwitnessed;
                self.lies.fetch_add(states, Ordering::Relaxed);
            }
            1..4 => {
                let trial = fault_programs::Trial::of(seed, with);
                fault_programs::run_trial(&trial, Some(SAMPLE), &self.failures);
            }
            _ => crash_programs::run_generations(seed, &self.crashes, with),
        }
        self.seeds.fetch_add(1, Ordering::Relaxed);
    }
}

/// What the program of a seed does besides: in each block of 64 seeds, eight of each kind take snapshots, have records
/// that expire, keep their history, or do any two or all of these.
fn with_of(seed: u64) -> With {
    let which = seed / 8;
    With { snapshots: which & 1 != 0, expiry: which & 2 != 0, history: which & 4 != 0 }
}

#[derive(Default)]
struct Options {
    seed: Option<u64>,
    seconds: Option<u64>,
    states: Option<u64>,
    threads: Option<u64>,
}

fn arguments() -> Result<Options, String> {
    let mut options = Options::default();
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let number = || words.next().and_then(|word| word.parse().ok());
        let context = match &*word {
            "--seed" => &mut options.seed,
            "--seconds" => &mut options.seconds,
            "--states" => &mut options.states,
            "--threads" => &mut options.threads,
            _ => return Err(format!("there is no option {word}.\n{USAGE}")),
        };
        *context = Some({ number }().ok_or(format!("{word} needs a number.\n{USAGE}"))?);
    }
    Ok(options)
}

fn print_progress(done: &Done, begin: Instant) {
    let (states, seconds) = (done.states(), begin.elapsed().as_secs_f64());
    let line = format!(
        "{:.0} s: {} programs, {states} states, {:.0} a second",
        seconds,
        done.seeds.load(Ordering::Relaxed),
        states as f64 / seconds
    );
    if std::io::stdout().is_terminal() {
        use std::io::Write;
        print!("\r{line} ");
        let _ = std::io::stdout().flush();
    } else {
        println!("{line}");
    }
}

/// Ends a run: prints its results, and writes them as JSON.
fn end_run(done: &Done, begin: Instant, first: u64, failed: bool) {
    print_progress(done, begin);
    println!();
    let Some(path) = std::env::var_os("VARVE_KEEP_RESULTS") else { return };
    let Done { crashes, failures, lies, seeds } = done;
    let counts = [
        ("firstSeed", first),
        ("seconds", begin.elapsed().as_secs()),
        ("programs", seeds.load(Ordering::Relaxed)),
        ("states", done.states()),
        ("ofProcesses", crashes.process.load(Ordering::Relaxed)),
        ("ofSystems", crashes.system.load(Ordering::Relaxed)),
        ("whileRecovering", crashes.nested.load(Ordering::Relaxed)),
        ("failedCalls", failures.cases.load(Ordering::Relaxed)),
        ("afterFailedCalls", failures.walked.load(Ordering::Relaxed)),
        ("afterLies", lies.load(Ordering::Relaxed)),
        ("failures", failed.into()),
    ];
    let reported = counts.map(|(name, count)| format!("\"{name}\":{count}")).join(",");
    if let Err(error) = std::fs::write(&path, format!("{{{reported}}}")) {
        eprintln!("{} cannot be written: {error}", path.display());
    }
}

fn main() -> ExitCode {
    let options = match arguments() {
        Ok(options) => options,
        Err(what) => {
            eprintln!("{what}");
            return ExitCode::from(2);
        }
    };
    let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    // The first ones are those of the tests.
    let first = options.seed.unwrap_or(1_000_000 + clock.as_micros() as u64 % (1 << 50));
    let last = options.seed.unwrap_or(u64::MAX);
    let (done, begin) = (Done::default(), Instant::now());
    let (next, ended) = (AtomicU64::new(first), AtomicBool::new(false));
    let failed = AtomicBool::new(false);
    let running = AtomicU64::new(options.threads.unwrap_or(1).max(1));
    let work = || {
        while !ended.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed > last {
                break;
            }
            if catch_unwind(AssertUnwindSafe(|| done.run(seed))).is_err() {
                eprintln!("\nthe program of seed {seed} failed: npm run torture -- --seed {seed}");
                if let Some(path) = std::env::var_os("VARVE_KEEP_IMAGE") {
                    eprintln!(
                        "if it was a state of the file that failed, it is {}",
                        path.display()
                    );
                }
                failed.store(true, Ordering::Relaxed);
                ended.store(true, Ordering::Relaxed);
            }
        }
        running.fetch_sub(1, Ordering::Relaxed);
    };
    let every = Duration::from_secs(if std::io::stdout().is_terminal() { 1 } else { 10 });
    std::thread::scope(|scope| {
        for _ in 0..running.load(Ordering::Relaxed) {
            scope.spawn(work);
        }
        let mut reported = Instant::now();
        while running.load(Ordering::Relaxed) > 0 {
            std::thread::sleep(Duration::from_millis(50));
            if reported.elapsed() >= every {
                print_progress(&done, begin);
                reported = Instant::now();
            }
            let enough = options.seconds.is_some_and(|n| begin.elapsed().as_secs() >= n)
                || options.states.is_some_and(|n| done.states() >= n);
            if enough {
                // Programs in progress take a while, and have shown no failure.
                let failed = failed.load(Ordering::Relaxed);
                end_run(&done, begin, first, failed);
                std::process::exit(failed.into());
            }
        }
    });
    let failed = failed.load(Ordering::Relaxed);
    end_run(&done, begin, first, failed);
    ExitCode::from(u8::from(failed))
}
