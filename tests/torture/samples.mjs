// A program of its own that tells how it fares, line by line, and what has to hold of that.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { bundleForNode } from "../../scripts/bundle.mjs";
import { Problem, root } from "../../scripts/lib.mjs";
import { keep } from "../../scripts/record.mjs";

const MIB = 1_048_576;

/** Runs `tests/torture/<name>.ts` with a folder and minutes; `hear` is given all samples so far with each. */
export async function samplesOf(name, minutes, hear) {
  const out = `.build/tests/${name}-${process.pid}`;
  const folder = mkdtempSync(join(tmpdir(), `varve-${name}-`));
  try {
    await bundleForNode([`tests/torture/${name}.ts`], out);
    const args = ["--expose-gc", join(root, out, `${name}.mjs`), folder, String(minutes)];
    const child = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "inherit"] });
    const samples = [];
    createInterface(child.stdout).on("line", (line) => {
      samples.push(JSON.parse(line));
      hear(samples);
    });
    const [code] = await once(child, "close");
    if (code !== 0) throw new Problem(`${name} broke off (exit code ${code}).`);
    return samples;
  } finally {
    rmSync(join(root, out), { recursive: true, force: true });
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Keeps the samples and says what held; the program fails if anything did not. */
export function conclude(name, begun, { minutes, verdict, samples }) {
  keep(name, begun, { minutes, verdict, samples });
  process.stdout.write(`All samples are in benches/results/${name}.json.\n`);
  for (const { what, is, atMost, holds } of verdict) {
    process.stdout.write(`${holds ? "    ok" : "FAILED"}  ${what}: ${is}, at most ${atMost}\n`);
  }
  if (!verdict.every(({ holds }) => holds)) process.exitCode = 1;
}

/** The middle one of some numbers. */
export function middle(numbers) {
  const sorted = numbers.toSorted((a, b) => a - b);
  return sorted[(sorted.length - 1) >> 1];
}

export function bounded(what, is, atMost) {
  return { what, is: mib(is), atMost: mib(atMost), holds: is <= atMost };
}

export const mib = (bytes) => `${(bytes / MIB).toFixed(1)} MiB`;
