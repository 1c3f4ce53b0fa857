import { Chromium } from "../../browser/chromium.js";
import type { BenchOptions } from "../../options.js";
import type { Section } from "../../report.js";
import { planFor, planForSlow, sizesOf } from "../plans.js";
import type { StoreResult } from "../run.js";
import { type Contender, sizesSection } from "../section.js";
import type { Request } from "./worker.js";

const STORES = ["varve", "sqlite", "indexeddb", "map", "floor"] as const;

export async function browserSizes(options: BenchOptions): Promise<Section> {
  const stores = STORES.filter((name) => options.stores?.includes(name) ?? true);
  const contenders: Contender[] = [];
  let version = "";
  for (const size of sizesOf(options)) {
    // A new browser for each size, so that leftovers of one do not slow down the next.
    const browser = await Chromium.start(options.root, "benches/sizes/browser/worker.ts");
    version = browser.version;
    try {
      const { plan, memory } = planFor(size, options);
      const order = stores.length > 1 && stores[0] === "varve" ? [...stores, stores[0]] : stores;
      for (const store of order) {
        const few = FEWER_WRITES[store];
        const own = few === undefined ? plan : planForSlow(plan, few);
        contenders.push(await attempt(browser, { store, plan: own, memory }));
      }
    } finally {
      await browser.close();
    }
  }
  const section = sizesSection("Sizes in Chromium, a worker on OPFS", contenders);
  return { ...section, notes: [version, ...section.notes] };
}

async function attempt(browser: Chromium, request: Request): Promise<Contender> {
  const { store: id, plan } = request;
  if (id === "indexeddb" && plan.size > LARGEST_INDEXEDDB) {
    return {
      id,
      plan,
      failure: "loading so many keys would take longer than all other stores together",
    };
  }
  try {
    return { id, plan, result: await browser.run<StoreResult>("worker", request) };
  } catch (error) {
    if (id === "varve") throw error;
    return { id, plan, failure: (error as Error).message };
  }
}

/** Writes per sample of slow stores, for which the default would take minutes. */
const FEWER_WRITES: Partial<Record<Request["store"], number>> = { sqlite: 5_000, indexeddb: 1_000 };
const LARGEST_INDEXEDDB = 100_000;
