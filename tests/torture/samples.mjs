// Runs a program that prints samples as lines of JSON, and checks their limits.

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

/** Runs `tests/torture/<name>.ts` with a folder and minutes, and at each sample calls `onSample` with all samples so far. */
export async function samplesOf(name, minutes, onSample) {
  const out = `.build/tests/${name}-${process.pid}`;
  const folder = mkdtempSync(join(tmpdir(), `varve-${name}-`));
  try {
    await bundleForNode([`tests/torture/${name}.ts`], out);
    const args = ["--expose-gc", join(root, out, `${name}.mjs`), folder, String(minutes)];
    const child = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "inherit"] });
    const samples = [];
    createInterface(child.stdout).on("line", (line) => {
      samples.push(JSON.parse(line));
      onSample(samples);
    });
    const [code] = await once(child, "close");
    if (code !== 0) throw new Problem(`${name} failed (exit code ${code}).`);
    return samples;
  } finally {
    rmSync(join(root, out), { recursive: true, force: true });
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Stores the samples and prints the verdict. The program fails if a limit was exceeded. */
export function conclude(name, begun, { minutes, verdict, samples }) {
  keep(name, begun, { minutes, verdict, samples });
  process.stdout.write(`All samples are in benches/results/${name}.json.\n`);
  for (const { what, is, atMost, holds } of verdict) {
    process.stdout.write(`${holds ? "    ok" : "FAILED"}  ${what}: ${is}, at most ${atMost}\n`);
  }
  if (!verdict.every(({ holds }) => holds)) process.exitCode = 1;
}

/** The median of some numbers. */
export function median(numbers) {
  const sorted = numbers.toSorted((a, b) => a - b);
  return sorted[(sorted.length - 1) >> 1];
}

export function bounded(what, is, atMost) {
  return { what, is: mib(is), atMost: mib(atMost), holds: is <= atMost };
}

export const mib = (bytes) => `${(bytes / MIB).toFixed(1)} MiB`;
