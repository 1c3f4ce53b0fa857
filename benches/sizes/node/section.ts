import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { cargoBuild } from "../../cargo.js";
import type { BenchOptions } from "../../options.js";
import type { Section } from "../../report.js";
import { planFor, planForGraus, sizesOf } from "../plans.js";
import type { StoreResult } from "../run.js";
import { type Contender, sizesSection } from "../section.js";
import type { Request } from "./child.js";

const STORES = ["varve", "lmdb", "sqlite", "level", "graus", "map", "floor"] as const;

/** The stores that can flush on request. */
const FLUSHING = STORES.slice(0, 4);

/** Runs a store at a size in a separate process. */
function runChild(request: Request): StoreResult {
  const { status, signal, stdout, error } = spawnSync(
    process.execPath,
    ["--expose-gc", join(request.root, ".build/bench/sizes.mjs"), JSON.stringify(request)],
    { stdio: ["ignore", "pipe", "inherit"], encoding: "utf8", maxBuffer: 2 ** 28 },
  );
  if (error !== undefined) throw error;
  if (status !== 0) throw new Error(`${request.store} ended with ${signal ?? `code ${status}`}`);
  return JSON.parse(stdout) as StoreResult;
}

export async function nodeSizes(options: BenchOptions): Promise<Section> {
  const { root } = options;
  const stores = STORES.filter((name) => options.stores?.includes(name) ?? true);
  const folder = mkdtempSync(join(tmpdir(), "varve-sizes-"));
  const contenders: Contender[] = [];
  if (stores.includes("graus")) cargoBuild(root, "graus");
  try {
    for (const size of sizesOf(options)) {
      const { plan, memory } = planFor(size, options);
      // varve is measured again at the end, so that a change of the machine's speed shows in the spread.
      const order = stores.length > 1 && stores[0] === "varve" ? [...stores, stores[0]] : stores;
      for (const store of order) {
        const own = store === "graus" ? planForGraus(plan) : plan;
        contenders.push(attempt({ root, folder, store, plan: own, memory, flushed: false }));
      }
      for (const store of FLUSHING.filter((name) => stores.includes(name))) {
        contenders.push(attempt({ root, folder, store, plan, memory, flushed: true }));
      }
    }
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
  return sizesSection("Sizes in Node, on files", contenders);
}

/** A rival that cannot run is reported in the table; without varve there is no table. */
function attempt(request: Request): Contender {
  const { store: id, plan } = request;
  try {
    return { id, plan, result: runChild(request) };
  } catch (error) {
    if (id === "varve") throw error;
    return { id, plan, failure: (error as Error).message };
  }
}
