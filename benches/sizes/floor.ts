import type { StoreResult } from "./run.js";
import { type Plan, Random, VALUE_BYTES } from "./workload.js";

/** Bytes of a table's entry, and of a record: about what varve has of both. */
const ENTRY = 8;
const RECORD = 56 + VALUE_BYTES + 4;
const PAGE = 65_536;

/**
 * No store, and no lookup: for each `get` two reads of wasm memory of the size that it takes to hold
 * so many keys, at random places, the second where the first says, and the next where the second says.
 * No hash, no key, no comparison, no call: what is above it is work, what is below it was in a cache.
 */
export function measureFloor({ size, ops, warmup, samples }: Plan): StoreResult {
  const entries = 2 ** Math.ceil(Math.log2(size * (4 / 3)));
  const recordsAt = entries * ENTRY;
  const pages = Math.ceil((recordsAt + size * RECORD) / PAGE);
  const { buffer } = new WebAssembly.Memory({ initial: pages });
  const words = new Uint32Array(buffer);
  // Written to, so that there is memory behind it.
  words.fill(0);
  const random = new Random(7);
  const first = recordsAt / 4;
  for (let entry = 0; entry < entries; entry++) {
    words[2 * entry] = first + random.below(size) * (RECORD / 4);
  }
  const ns: number[] = [];
  for (let round = 0; round < warmup + samples; round++) {
    const places = Uint32Array.from({ length: ops }, () => 2 * random.below(entries));
    const start = performance.now();
    // All records are zero, which the compiler does not know.
    let last = 0;
    for (let i = 0; i < ops; i++) last = words[words[places[i]! + last]!]!;
    const ms = performance.now() - start;
    if (last !== 0) throw new Error("a record is not zero");
    if (round >= warmup) ns.push((ms * 1e6) / ops);
  }
  return {
    name: "floor",
    settings: `no store: two reads at random places in ${Math.ceil((pages * PAGE) / 1_048_576).toLocaleString("en")} MiB of wasm memory, each waiting for the one before; what a get from so much memory takes at least`,
    remarks: [],
    measured: [{ work: "get", pattern: "random", ns }],
    digests: {},
    memory: [],
  };
}
