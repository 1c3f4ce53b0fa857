import { type Database, open, opfs } from "varve";
import { runSuite } from "./drop-suite.js";
import { handleRequests } from "./handle-requests.js";
import { indexedDbRival } from "./rivals/indexeddb.js";
import type { Grouping } from "./rivals/rival.js";
import { sqliteRival } from "./rivals/sqlite.js";
import { varveRival } from "./rivals/varve.js";

export interface BrowserRequest {
  /** Samples of each single call. */
  samples: number;
  /** Drops of each store. */
  runs: number;
  /** Buyers of each drop. */
  cycles: number;
}

/** A single call, many times. */
export interface Call {
  id: string;
  work: string;
  store: string;
  durability: string;
  ns: number[];
}

export interface BrowserResult {
  calls: Call[];
  drops: { id: string; name: string; grouping: Grouping; durability: string; ms: number[] }[];
  equal: boolean;
}

const FOLDER = "bench-calls";
/**
 * Enough keys that no compiler can hoist the call out of the loop, few enough to stay in the cache. A power
 * of two.
 */
const KEYS = 64;
const VALUE = 64;
const GETS = 200_000;
const WRITES = 20_000;
const WRITTEN = "written: survives a crash of tab or browser";

let progress: (doing: string) => void;

/** One kind of call. `run` returns a number that depends on every call, so that none can be optimized away. */
interface Work extends Omit<Call, "ns"> {
  count: number;
  /** The expected result of `run`, if it is known. */
  expected?: number;
  run(): number;
}

function works(db: Database): Work[] {
  const names = Array.from({ length: KEYS }, (_, i) => `user:${String(i).padStart(11, "0")}`);
  const utf8 = new TextEncoder();
  const byteNames = names.map((name) => utf8.encode(name));
  const value = new Uint8Array(VALUE).fill(7);
  const map = new Map<string, number>();
  const buffer = new ArrayBuffer(KEYS * VALUE);
  names.forEach((name, i) => {
    db.set(name, value);
    map.set(name, i * VALUE);
    new Uint8Array(buffer, i * VALUE, VALUE).set(value);
  });
  db.commit();

  const increase = (view: Uint8Array) => {
    view[1] = view[1]! + 1;
  };
  const always = { predicate: (view: Uint8Array) => view[0] === 7 };
  const viaMap = (mask: number) => () => {
    let sum = 0;
    for (let i = 0; i < GETS; i++) {
      const at = map.get(names[i & mask]!);
      if (at !== undefined) sum += new Uint8Array(buffer, at, VALUE)[0]!;
    }
    return sum;
  };
  const viaVarve = (keys: readonly (string | Uint8Array)[], mask: number) => () => {
    let sum = 0;
    for (let i = 0; i < GETS; i++) {
      const view = db.get(keys[i & mask]!);
      if (view !== undefined) sum += view[0]!;
    }
    return sum;
  };
  const viaUpdate = (mask: number, options?: typeof always) => () => {
    let done = 0;
    for (let i = 0; i < WRITES; i++) {
      if (db.updateIf(names[i & mask]!, increase, options)) done += 1;
    }
    db.commit();
    return done;
  };
  const gets = { count: GETS, expected: 7 * GETS };
  const updates = { count: WRITES, expected: WRITES, store: "varve", durability: WRITTEN };
  const fromMap = { ...gets, store: "Map and new Uint8Array", durability: "none: memory" };
  const fromVarve = { ...gets, store: "varve", durability: "reads" };
  const get = "get of 64 bytes by string";
  return [
    { id: "map1", work: `${get}, one key`, ...fromMap, run: viaMap(0) },
    { id: "get1", work: `${get}, one key`, ...fromVarve, run: viaVarve(names, 0) },
    { id: "map", work: `${get}, ${KEYS} keys in turn`, ...fromMap, run: viaMap(KEYS - 1) },
    {
      id: "get",
      work: `${get}, ${KEYS} keys in turn`,
      ...fromVarve,
      run: viaVarve(names, KEYS - 1),
    },
    {
      id: "getBytes",
      work: `get of 64 bytes by bytes, ${KEYS} keys in turn`,
      ...fromVarve,
      run: viaVarve(byteNames, KEYS - 1),
    },
    { id: "updateIf1", work: "updateIf, one key", ...updates, run: viaUpdate(0) },
    {
      id: "updateIfWhen1",
      work: "updateIf with a predicate, one key",
      ...updates,
      run: viaUpdate(0, always),
    },
    {
      id: "updateIf",
      work: `updateIf, ${KEYS} keys in turn`,
      ...updates,
      run: viaUpdate(KEYS - 1),
    },
    {
      id: "updateIfWhen",
      work: `updateIf with a predicate, ${KEYS} keys in turn`,
      ...updates,
      run: viaUpdate(KEYS - 1, always),
    },
    {
      id: "set",
      work: `set of 64 bytes over an existing key, ${KEYS} keys in turn`,
      store: "varve",
      durability: WRITTEN,
      count: WRITES,
      expected: KEYS,
      run() {
        for (let i = 0; i < WRITES; i++) db.set(names[i & (KEYS - 1)]!, value);
        db.commit();
        return db.count();
      },
    },
  ];
}

/** Measures each kind of call once per round, each in a separate turn. */
async function measureCalls(samples: number): Promise<Call[]> {
  const root = await navigator.storage.getDirectory();
  const db = await open("calls", { storage: opfs(FOLDER) });
  const all = works(db);
  const ns = all.map(() => [] as number[]);
  const warmup = 5;
  for (let round = 0; round < warmup + samples; round++) {
    progress(`single calls, round ${round + 1} of ${warmup + samples}`);
    for (const [index, { id, count, expected, run }] of all.entries()) {
      const start = performance.now();
      const result = run();
      const elapsed = performance.now() - start;
      if (expected !== undefined && result !== expected) {
        throw new Error(`${id} gave ${result} instead of ${expected}`);
      }
      if (round >= warmup) ns[index]!.push((elapsed * 1e6) / count);
      await new Promise((resolve) => setTimeout(resolve));
    }
  }
  await db.close();
  await root.removeEntry(FOLDER, { recursive: true });
  return all.map(({ id, work, store, durability }, index) => ({
    id,
    work,
    store,
    durability,
    ns: ns[index]!,
  }));
}

async function measureDrops({
  cycles,
  runs,
}: BrowserRequest): Promise<Pick<BrowserResult, "drops" | "equal">> {
  const drops: BrowserResult["drops"] = [];
  const contenders = [
    { id: "varve", name: "varve", open: varveRival },
    { id: "sqlite", name: "SQLite, prepared statements", open: () => sqliteRival() },
    { id: "sqlite-raw", name: "SQLite, raw calls", open: () => sqliteRival({ raw: true }) },
    { id: "indexeddb", name: "IndexedDB", open: indexedDbRival },
  ];
  const { equal } = await runSuite(
    contenders,
    ["all", "each"],
    { cycles, runs },
    {
      progress: (_done, _total, doing) => progress(doing),
      row: ({ id, grouping, durability, ms }) => {
        const name = contenders.find((one) => one.id === id)!.name;
        drops.push({ id, name, grouping, durability, ms: ms.samples });
      },
      failed: ({ name, error }) => {
        throw new Error(`${name}: ${error}`);
      },
    },
  );
  return { drops, equal };
}

handleRequests<BrowserRequest, BrowserResult>(async (request, reportProgress) => {
  progress = reportProgress;
  return { calls: await measureCalls(request.samples), ...(await measureDrops(request)) };
});
