import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { join } from "node:path";
import { setImmediate } from "node:timers/promises";
import { measureFloor } from "../floor.js";
import { openMap } from "../map.js";
import { runFlushed, runStore, type StoreResult } from "../run.js";
import type { OpenStore } from "../store.js";
import type { Plan } from "../workload.js";
import { openGraus } from "./graus.js";
import { openLevel } from "./level.js";
import { openLmdb } from "./lmdb.js";
import { openSqlite } from "./sqlite.js";
import { openVarve } from "./varve.js";

/** One store at one size, which a process measures. */
export interface Request {
  root: string;
  folder: string;
  store: keyof typeof OPEN | "floor";
  plan: Plan;
  memory: number;
  /** Whether to measure flushed writes, and nothing else. */
  flushed: boolean;
}

const OPEN = {
  varve: () => openVarve,
  lmdb: openLmdb,
  sqlite: openSqlite,
  level: openLevel,
  graus: openGraus,
  map: () => openMap,
} satisfies Record<string, (root: string) => OpenStore>;

// A process for each store and size, so that stores share neither compiled code nor memory.
const request: Request = JSON.parse(process.argv[2] ?? "");
const { root, store, plan, memory } = request;
mkdirSync(request.folder, { recursive: true });
const folder = mkdtempSync(join(request.folder, `${store}-`));
/**
 * Two collections move the sample's keys to the old generation, so that collections during the sample do not
 * move them.
 */
function collect(): void {
  const { gc } = globalThis as { gc?: (options: { type: "minor" }) => void };
  gc?.({ type: "minor" });
  gc?.({ type: "minor" });
}

async function run(): Promise<StoreResult> {
  if (store === "floor") return measureFloor(plan);
  const open = OPEN[store](root);
  const runPlan = request.flushed ? runFlushed : runStore;
  return runPlan(plan, {
    open: (flushing = "default") => open(folder, { memory, flushing }),
    turn: () => setImmediate(),
    collect,
    wrap: (buffer, offset, length) => Buffer.from(buffer, offset, length),
    progress: (doing) => process.stderr.write(`  [${store}, ${plan.size} keys] ${doing}\n`),
  });
}

try {
  process.stdout.write(JSON.stringify(await run()));
} finally {
  rmSync(folder, { recursive: true, force: true });
}
