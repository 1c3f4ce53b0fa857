import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { cargoBuild, cargoBuildWasm } from "../cargo.js";
import type { BenchOptions } from "../options.js";
import { type Row, row, type Section } from "../report.js";
import { instantiateAlone } from "../wasm.js";

const SETS = ["engine", "vec"] as const;
const PHASES = ["insert", "seek", "walk"] as const;
type Phase = (typeof PHASES)[number];

/** Of one set: ns per key for each phase, and its memory when it is full. */
type Measured = Record<Phase, number[]> & { bytesPerKey: number; blocksPerKey: number };

interface KeysWasm {
  keys_prepare(count: number, seed: number): void;
  keys_run(which: number, phase: number): number;
  keys_held_bytes(): number;
  keys_held_blocks(): number;
  keys_clear(): void;
}

function empty(): Measured {
  return { insert: [], seek: [], walk: [], bytesPerKey: 0, blocksPerKey: 0 };
}

/** The same rounds as benches/keys/src/main.rs, timed by the caller. */
function runWasm(wasm: KeysWasm, count: number, samples: number): Record<string, Measured> {
  const measured: Record<string, Measured> = { engine: empty(), vec: empty() };
  wasm.keys_prepare(count, 2);
  for (let round = 0; round <= samples; round++) {
    const sums = SETS.map((name, which) => {
      const into = measured[name]!;
      const found = PHASES.map((phase, index) => {
        const start = performance.now();
        const sum = wasm.keys_run(which, index);
        if (round > 0) into[phase].push(((performance.now() - start) * 1e6) / count);
        return sum;
      });
      into.bytesPerKey = wasm.keys_held_bytes() / count;
      into.blocksPerKey = wasm.keys_held_blocks() / count;
      wasm.keys_clear();
      return found.join();
    });
    if (sums[0] !== sums[1]) throw new Error("the two sets do not hold the same keys in wasm");
  }
  return measured;
}

export async function keysBench({ root, quick }: BenchOptions): Promise<Section> {
  const count = quick ? 100_000 : 1_000_000;
  const samples = quick ? 2 : 7;
  const target = cargoBuild(root, "keys");
  const native: Record<string, Measured> = JSON.parse(
    execFileSync(join(target, "release", "keys-bench"), [String(count), String(samples)], {
      encoding: "utf8",
    }),
  );
  const wasm = await instantiateAlone<KeysWasm>(cargoBuildWasm(root, "keys"));
  const platforms = { native, wasm: runWasm(wasm, count, samples) };

  const names = { engine: "the engine's set", vec: "BTreeSet<Vec<u8>>" };
  const rows: Row[] = [];
  for (const [platform, sets] of Object.entries(platforms)) {
    for (const phase of PHASES) {
      for (const set of SETS) {
        rows.push(row(`${phase}, ${platform}`, names[set], "in memory", "ns", sets[set]![phase]));
      }
    }
    for (const set of SETS) {
      const { bytesPerKey } = sets[set]!;
      rows.push(row(`held per key, ${platform}`, names[set], "in memory", "bytes", [bytesPerKey]));
    }
  }
  return {
    title: `The ordered key set: ${count.toLocaleString("en")} random keys of 16 bytes`,
    rows,
    goals: [],
    notes: [
      "Times are per key. Seek looks up every key once in another random order; walk visits all in order.",
      `Allocations per key: ${Object.entries(platforms)
        .flatMap(([platform, sets]) =>
          SETS.map((set) => `${sets[set]!.blocksPerKey.toFixed(2)} ${set} ${platform}`),
        )
        .join(", ")}. Bytes are those requested, without the allocator's overhead.`,
      "Both sets gave the same checksum in every phase of every round.",
    ],
  };
}
