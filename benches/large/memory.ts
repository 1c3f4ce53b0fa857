import { type Database, open } from "varve";
import { keysOf } from "../sizes/workload.js";
import type { Amounts, LargeResult, Line, Platform } from "./platform.js";

const VALUE = 100;
const COMMIT_SIZE = 1_000;
const NAME = "memory";
/** So little that the values fill it, and the index needs memory beyond it. */
const MEMORY = 8 * 1_048_576;

/**
 * The memory of a key: in the index table, as `stats` reports it, and in all wasm memory beyond the option
 * `memory`, which includes capacity kept for growth.
 */
export async function memoryPerKey(platform: Platform, amounts: Amounts): Promise<LargeResult> {
  const count = amounts.memoryKeys;
  const lines: Line[] = [];
  const group = `Memory per key, ${count.toLocaleString("en")} keys`;
  const [firstKey] = keysOf(Uint32Array.of(0));

  const measure = (db: Database, when: string) => {
    const { indexBytes, wasmBytes } = db.stats();
    const values: [string, string, number][] = [
      ["index", "index table", indexBytes],
      ["wasm", `wasm memory beyond "memory"`, wasmBytes - MEMORY],
    ];
    for (const [id, what, bytes] of values) {
      lines.push({
        id: `memory, ${id}, ${when}`,
        group,
        work: when,
        store: what,
        durability: "",
        unit: "bytes",
        samples: [bytes / count],
      });
    }
  };

  platform.progress(`memory per key: ${count} keys`);
  const value = new Uint8Array(VALUE).fill(7);
  let db = await open(NAME, { storage: platform.storage, memory: MEMORY });
  for (let start = 0; start < count; start += COMMIT_SIZE) {
    for (const key of keysOf(Uint32Array.from({ length: COMMIT_SIZE }, (_, i) => start + i))) {
      db.set(key, value);
    }
    await platform.turn();
  }
  measure(db, "loaded");
  const range = db.count({ gte: firstKey! });
  if (range !== count) throw new Error(`there are ${range} keys instead of ${count}`);
  await platform.turn();
  measure(db, "after the first range");
  await db.close();
  db = await open(NAME, { storage: platform.storage, memory: MEMORY });
  await platform.turn();
  measure(db, "opened again");
  await db.close();
  await platform.remove(NAME);
  return {
    lines,
    notes: [
      `Memory per key: pairs of 16 and ${VALUE} bytes, option memory ${MEMORY / 1_048_576} MiB, which they fill. Beyond it are the index table, the sorted keys, and the capacity reserved for both to grow within a turn.`,
    ],
  };
}
