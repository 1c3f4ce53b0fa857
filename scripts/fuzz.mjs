// Fuzzing for as long as one has patience, guided by coverage: cargo-fuzz, on a nightly toolchain. The
// same targets run on the stable one in `npm test`, each run the same.

import { existsSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import { ask, entry, must, Problem, parseArguments, root, say } from "./lib.mjs";

const TARGETS = ["open", "superblock", "segment", "frame", "record", "checkpoint"];
const USAGE = `npm run fuzz [-- target …] [--seconds n]
  target        ${TARGETS.join(", ")}: open when none is named
  --seconds n   end after so many seconds for each; otherwise at the first finding, or Ctrl-C`;

/** Of a file, and of the memory that the process may take. */
const LONGEST = 65_536;
const MEMORY_MB = 1024;

/** The program, which is built once, below .tools. */
async function cargoFuzz() {
  if (ask("cargo", ["+nightly", "--version"]) === undefined) {
    throw new Problem("cargo-fuzz wants a nightly toolchain: rustup toolchain install nightly");
  }
  const place = join(root, ".tools/cargo-fuzz");
  if (!existsSync(join(place, "bin/cargo-fuzz"))) {
    say("· cargo install cargo-fuzz");
    await must("cargo", ["install", "cargo-fuzz", "--quiet", "--root", place]);
  }
  return join(place, "bin/cargo-fuzz");
}

entry(async () => {
  const { values, words } = parseArguments(process.argv.slice(2), { "--seconds": "count" }, USAGE);
  const unknown = words.find((word) => !TARGETS.includes(word));
  if (unknown !== undefined) throw new Problem(`no target is called ${unknown}.\n${USAGE}`);
  const program = await cargoFuzz();
  for (const target of words.length > 0 ? words : ["open"]) {
    const corpus = join(root, ".build/fuzz", target);
    mkdirSync(corpus, { recursive: true });
    // What is found is kept below .build; the golden files are where it begins.
    const folders = [corpus, join(root, "tests/vectors/golden")];
    const limits = [`-max_len=${LONGEST}`, `-rss_limit_mb=${MEMORY_MB}`, "-print_final_stats=1"];
    const seconds = values["--seconds"] ?? 0;
    await must(
      program,
      ["run", target, ...folders, "--", ...limits, `-max_total_time=${seconds}`],
      {
        cwd: join(root, "crate/fuzz"),
        env: { ...process.env, RUSTUP_TOOLCHAIN: "nightly" },
      },
    );
  }
});
