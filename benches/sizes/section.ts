import { summarize } from "../../demo/statistics.js";
import { type Goal, goal, type Row, row, type Section } from "../report.js";
import { FLUSHED, REOPEN, type StoreResult } from "./run.js";
import type { Plan } from "./workload.js";

/** A store at a size, with its result or its failure. */
export interface Contender {
  id: string;
  plan: Plan;
  result?: StoreResult;
  /** Why there is no result. */
  failure?: string;
}

const VARVE = "varve";
const WRITTEN = "survives the process, not a power loss";
const DURABILITY: Readonly<Record<string, string>> = {
  [FLUSHED["each second"]]: "survives a power loss but for the last second",
  [FLUSHED["each group"]]: "survives a power loss",
};
/** A size at which everything fits in the processor's caches, and one at which nothing does. */
const HOT = 1_000;
const LARGE = 1_000_000;

const keys = (size: number) => `${size.toLocaleString("en")} keys`;

/** All samples of a store at a size for one kind of work; `undefined` if there are none. */
type Find = (id: string, size: number, work: string, pattern: string) => number[] | undefined;

function finder(contenders: readonly Contender[]): Find {
  return (id, size, work, pattern) => {
    const samples = contenders
      .filter((one) => one.id === id && one.plan.size === size)
      .flatMap(({ result }) => result?.measured ?? [])
      .filter((one) => one.work === work && one.pattern === pattern)
      .flatMap(({ ns }) => ns);
    return samples.length > 0 ? samples : undefined;
  };
}

/** Equal work must lead to equal contents in all stores; each was compared with the model before. */
function compareContents(contenders: readonly Contender[]): number {
  const seen = new Map<string, { digest: string; name: string }>();
  let compared = 0;
  for (const { plan, result } of contenders) {
    for (const [after, digest] of Object.entries(result?.digests ?? {})) {
      const what = `${JSON.stringify(plan)} ${after}`;
      const other = seen.get(what);
      const name = result!.name;
      if (other === undefined) seen.set(what, { digest, name });
      else if (other.digest === digest) compared += 1;
      else throw new Error(`${name} and ${other.name} differ after ${after} at ${keys(plan.size)}`);
    }
  }
  return compared;
}

function rowsOf(contenders: readonly Contender[], find: Find): Row[] {
  const rows: Row[] = [];
  const done = new Set<string>();
  const works = contenders.flatMap(({ plan, result }) =>
    (result?.measured ?? []).map(({ work, pattern }) => ({ size: plan.size, work, pattern })),
  );
  for (const { size, work, pattern } of works) {
    const title = pattern === "" ? work : `${work}, ${pattern}`;
    const group = keys(size);
    if (done.has(group + title)) continue;
    done.add(group + title);
    for (const id of new Set(contenders.map((one) => one.id))) {
      const samples = find(id, size, work, pattern);
      const name = contenders.find((one) => one.id === id && one.result)?.result?.name ?? id;
      const reads = /^(get|scan)/.test(work)
        ? "reads"
        : id === "map"
          ? "none: memory"
          : (DURABILITY[work] ?? WRITTEN);
      // Loads of few keys are left out: their code is not compiled yet.
      if (samples === undefined || (work === "load" && size <= HOT)) continue;
      rows.push({ group, ...row(title, name, reads, work === REOPEN ? "ms" : "ns", samples) });
    }
  }
  return rows;
}

function targets(find: Find, sizes: readonly number[]): Goal[] {
  const goals: Goal[] = [];
  const atMost = (what: string, size: number, work: string, pattern: string, ns: number) => {
    const samples = find(VARVE, size, work, pattern);
    if (samples === undefined) return;
    const title = `${what}, ${pattern}, ${keys(size)}`;
    goals.push(goal(title, summarize(samples).median, { atMost: ns }, "ns"));
  };
  const compareWith = (id: string, work: string, size: number, times: number) => {
    const [ours, theirs] = [find(VARVE, size, work, "random"), find(id, size, work, "random")];
    if (ours === undefined || theirs === undefined) return;
    const ratio = summarize(theirs).median / summarize(ours).median;
    const title = `${work}, random, ${keys(size)}, against ${id}`;
    goals.push(goal(title, ratio, { atLeast: times }, "times faster"));
  };
  atMost("get", HOT, "get", "random", 70);
  atMost("get", LARGE, "get", "random", 250);
  atMost("set existing", HOT, "set existing", "random", 100);
  atMost("set existing", LARGE, "set existing", "random", 300);
  for (const size of sizes) {
    atMost("set new", size, "set new", "sequential", 700);
    atMost("set new", size, "set new", "random", 700);
  }
  for (const size of sizes) {
    atMost("scan of pairs", size, "scan", "sequential", 40);
    atMost("scan of values", size, "scan, values only", "sequential", 40);
    atMost("scan of keys", size, "scan, keys only", "sequential", 40);
  }
  for (const size of sizes) compareWith("lmdb", "get", size, 3);
  for (const size of sizes) compareWith("lmdb", "set existing", size, 5);
  for (const work of Object.values(FLUSHED)) {
    for (const size of sizes) compareWith("lmdb", work, size, 5);
  }
  return goals;
}

/** varve's memory in bytes per key: the index, the values in memory, and all wasm memory. */
function memoryOf(contenders: readonly Contender[]): string[] {
  const reported = new Set<number>();
  return contenders.flatMap(({ id, plan, result }) => {
    if (id !== VARVE || result === undefined || reported.has(plan.size)) return [];
    reported.add(plan.size);
    return result.memory.map(({ when, bytes, keys: count }) => {
      const per = (value: number) => Math.round(value / count).toLocaleString("en");
      const parts = Object.entries(bytes).map(([name, value]) => `${name} ${per(value)}`);
      return `Memory of varve at ${keys(count)}, ${when}, bytes per key: ${parts.join(", ")}.`;
    });
  });
}

export function sizesSection(title: string, contenders: readonly Contender[]): Section {
  const find = finder(contenders);
  const sizes = [...new Set(contenders.map(({ plan }) => plan.size))];
  const compared = compareContents(contenders);
  const [{ plan }] = contenders as [Contender];
  const fewer = new Map(
    contenders.flatMap(({ plan: own, result }) =>
      result === undefined || own.writes === plan.writes
        ? []
        : [[result.name, `${own.ops.toLocaleString("en")} and ${own.writes.toLocaleString("en")}`]],
    ),
  );
  const settings = contenders.flatMap(({ result }) =>
    result === undefined ? [] : [`${result.name}: ${result.settings}.`, ...result.remarks],
  );
  const failures = contenders.flatMap(({ id, plan: { size }, failure }) =>
    failure === undefined ? [] : [`NOT MEASURED: ${id} at ${keys(size)}: ${failure}`],
  );
  return {
    title,
    layout: "side by side",
    rows: rowsOf(contenders, find),
    goals: targets(find, sizes),
    notes: [
      `Keys are strings of 16 characters, values 100 bytes. Above a thousand keys each sample creates its key strings before its time begins, in the order of their use, so that no access misses the cache for a key; in Node garbage is collected before the time begins. A sample is ${[...new Set(contenders.filter(({ id }) => id === VARVE).map((one) => one.plan.ops.toLocaleString("en")))].join(" or ")} operations (reads and writes of slower stores: ${[...fewer].map(([name, ops]) => `${name} ${ops}`).join(", ") || "none"}); all stores write in groups of ${plan.batch.toLocaleString("en")} (varve: a turn; the others: a transaction or batch), "each by itself" one by one. After each median: half the interquartile range, relative to it.`,
      ...new Set(settings),
      ...(contenders.some(({ result }) => result?.measured.some(({ work }) => work in DURABILITY))
        ? [
            "At equal durability, in separate stores that are loaded in the same way. Once a second: a sample is a second of writing in groups and a flush, which counts, so that a power loss costs each store at most the last second's writes. Each group flushed: no group is acknowledged before it is on the medium. The goals of set at equal durability refer to these rows; in all other rows only varve flushes.",
          ]
        : []),
      `Every store was compared with a plain model by a checksum of all pairs in order, after each kind of writing and after closing and opening${contenders.some((one) => !one.plan.compareOften) ? " (at the largest size after loading and at the end)" : ""}; every get and scan had to match the model. Equal work led to equal contents ${compared.toLocaleString("en")} times.`,
      ...memoryOf(contenders),
      ...failures,
    ],
  };
}
