// A database in use for minutes at nine tenths of its memory: whether memory stays flat, and the file
// within its bound. Prints a table; all samples go to benches/results/soak.json.
//   npm run soak [-- --minutes n]

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { bundleForNode } from "../../scripts/bundle.mjs";
import { entry, Problem, parseArguments, root, say } from "../../scripts/lib.mjs";
import { begin, keep } from "../../scripts/record.mjs";

const USAGE = `npm run soak [-- --minutes n]
  --minutes   10 when left out`;

const MIB = 1_048_576;

/** Of the samples so many come before anything is compared: buffers are taken for the first time. */
const WARM_UP = 12;

/** The process' own memory is Node's affair too. */
const RSS_TOLERANCE = 1.1;

entry(async () => {
  const { values } = parseArguments(process.argv.slice(2), { "--minutes": "count" }, USAGE);
  const { "--minutes": minutes = 10 } = values;
  const begun = begin();
  const samples = await run(minutes);
  const verdict = judge(samples);
  keep("soak", begun, { minutes, verdict, samples });
  process.stdout.write("All samples are in benches/results/soak.json.\n");
  for (const { what, is, atMost, holds } of verdict) {
    process.stdout.write(`${holds ? "    ok" : "FAILED"}  ${what}: ${is}, at most ${atMost}\n`);
  }
  if (!verdict.every(({ holds }) => holds)) process.exitCode = 1;
});

async function run(minutes) {
  const out = `.build/tests/soak-kills-${process.pid}`;
  const folder = mkdtempSync(join(tmpdir(), "varve-soak-"));
  try {
    await bundleForNode(["tests/torture/soak.ts"], out);
    const program = join(root, out, "soak.mjs");
    const args = ["--expose-gc", program, folder, String(minutes)];
    const child = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "inherit"] });
    const samples = [];
    say(HEAD);
    createInterface(child.stdout).on("line", (line) => {
      samples.push(JSON.parse(line));
      if (samples.length % 5 === 0) say(row(samples.at(-1)));
    });
    const [code] = await once(child, "close");
    if (code !== 0) throw new Problem(`the soak broke off (exit code ${code}).`);
    return samples;
  } finally {
    rmSync(join(root, out), { recursive: true, force: true });
    rmSync(folder, { recursive: true, force: true });
  }
}

/** What has to hold, over all samples after the warm-up. */
function judge(samples) {
  const warm = samples.slice(WARM_UP);
  const third = Math.floor(warm.length / 3);
  const middle = (some, key) => some.map((one) => one[key]).sort((a, b) => a - b)[third >> 1];
  const first = (key) => middle(warm.slice(0, third), key);
  const last = (key) => middle(warm.slice(-third), key);
  const most = (key) => Math.max(...warm.map((one) => one[key]));
  const { budgetBytes } = warm[0];
  const tightest = samples.reduce((a, b) =>
    a.fileBytes - a.boundBytes > b.fileBytes - b.boundBytes ? a : b,
  );
  return [
    bounded("wasm memory after the warm-up", most("wasmBytes"), warm[0].wasmBytes),
    bounded("bytes of records in memory", most("memoryBytes"), budgetBytes * 1.25),
    bounded("memory of the process", last("rssBytes"), first("rssBytes") * RSS_TOLERANCE),
    bounded("the file where it was closest to its bound", tightest.fileBytes, tightest.boundBytes),
  ];
}

function bounded(what, is, atMost) {
  return { what, is: mib(is), atMost: mib(atMost), holds: is <= atMost };
}

const mib = (bytes) => `${(bytes / MIB).toFixed(1)} MiB`;

const HEAD =
  "seconds   writes    reads  wasm MiB  records MiB  RSS MiB  live MiB  file MiB  at most  cold reads  slices  p50 ms  p99 ms  max ms";

function row(sample) {
  const cells = [
    [sample.seconds.toFixed(0), 7],
    [sample.writes, 9],
    [sample.reads, 9],
    ...["wasmBytes", "memoryBytes", "rssBytes", "liveBytes", "fileBytes", "boundBytes"].map(
      (key, index) => [(sample[key] / MIB).toFixed(1), [10, 13, 9, 10, 10, 9][index]],
    ),
    [sample.coldReads, 12],
    [sample.slices, 8],
    [sample.sliceP50.toFixed(2), 8],
    [sample.sliceP99.toFixed(2), 8],
    [sample.sliceMax.toFixed(2), 8],
  ];
  return cells.map(([cell, width]) => String(cell).padStart(width)).join("");
}
