// Coverage-guided fuzzing without a time limit: cargo-fuzz, on a nightly toolchain. `npm test` runs the same
// targets on the stable one, with the same inputs each time.

import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { ask, entry, filesBelow, must, Problem, parseArguments, root, say } from "./lib.mjs";

const TARGETS = ["open", "superblock", "segment", "frame", "record", "checkpoint"];
const USAGE = `npm run fuzz [-- target …] [--seconds n]
  target        ${TARGETS.join(", ")}: open by default
  --seconds n   end after n seconds for each target; otherwise at the first finding, or with Ctrl-C`;

/** Limits of an input's size and of the process's memory. */
const LONGEST = 65_536;
const MEMORY_MB = 1024;

const GOLDEN = "tests/vectors/golden";
const FOUND = "crate/fuzz/found/open";

/** Where a target's input begins in a file: at its magic, plus or minus so many bytes. */
const PARSES = {
  superblock: { magic: "varve\r\n\x1a", from: 0 },
  segment: { magic: "VSEG", from: -8 },
  frame: { magic: "VFRM", from: -8 },
  record: { magic: "VFRM", from: 32 },
  checkpoint: { magic: "VCP3", from: -8 },
};
const PART_BYTES = 600;

/** The initial corpus of a target: the golden files and earlier findings, or the parts of them that it parses. */
function seeds(target) {
  if (PARSES[target] === undefined) return [join(root, GOLDEN), join(root, FOUND)];
  const { magic, from } = PARSES[target];
  const folder = join(root, ".build/fuzz/seeds", target);
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  const parts = new Set();
  for (const path of filesBelow(GOLDEN, (name) => name.endsWith(".varve"))) {
    const file = readFileSync(join(root, path));
    for (let at = file.indexOf(magic); at >= 0; at = file.indexOf(magic, at + 8)) {
      const begin = Math.max(0, at + from);
      parts.add(file.toString("latin1", begin, begin + PART_BYTES));
    }
  }
  let count = 0;
  for (const part of parts) {
    count += 1;
    writeFileSync(join(folder, `${count}`), part, "latin1");
  }
  return [folder];
}

/** The program, built once, in .tools. */
async function cargoFuzz() {
  if (ask("cargo", ["+nightly", "--version"]) === undefined) {
    throw new Problem("cargo-fuzz needs a nightly toolchain: rustup toolchain install nightly");
  }
  const folder = join(root, ".tools/cargo-fuzz");
  if (!existsSync(join(folder, "bin/cargo-fuzz"))) {
    say("· cargo install cargo-fuzz");
    await must("cargo", ["install", "cargo-fuzz", "--quiet", "--root", folder]);
  }
  return join(folder, "bin/cargo-fuzz");
}

entry(async () => {
  const { values, words } = parseArguments(process.argv.slice(2), { "--seconds": "count" }, USAGE);
  const unknown = words.find((word) => !TARGETS.includes(word));
  if (unknown !== undefined) throw new Problem(`there is no target ${unknown}.\n${USAGE}`);
  const program = await cargoFuzz();
  for (const target of words.length > 0 ? words : ["open"]) {
    const corpus = join(root, ".build/fuzz", target);
    mkdirSync(corpus, { recursive: true });
    // Findings are stored in .build.
    const folders = [corpus, ...seeds(target)];
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
