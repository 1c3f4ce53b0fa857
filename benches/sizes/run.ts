import { newDigest } from "./digest.js";
import type { Flushing, Store } from "./store.js";
import { Chooser, keysOf, Model, PATTERNS, type Pattern, type Plan, Values } from "./workload.js";

/** Samples of one kind of work, in nanoseconds per operation. */
export interface Measured {
  work: string;
  pattern: Pattern | "";
  ns: number[];
}

export interface StoreResult {
  name: string;
  settings: string;
  remarks: readonly string[];
  measured: Measured[];
  /** Checksums of the contents, by the work that came before. */
  digests: Record<string, string>;
  memory: { when: string; bytes: Record<string, number>; keys: number }[];
}

export interface Environment {
  open(flushing?: Flushing): Promise<Store>;
  /** Yields to the runtime's event loop. */
  turn(): Promise<void>;
  /** Collects garbage before a sample, if the runtime offers that. */
  collect?(): void;
  wrap(buffer: ArrayBuffer, offset: number, length: number): Uint8Array;
  progress(doing: string): void;
}

/** The only work measured in milliseconds, and for all keys at once. */
export const REOPEN = "close and reopen";

/** The names of the work that is measured at equal durability. */
export const FLUSHED = {
  "each second": "set existing, all flushed once a second",
  "each group": "set existing, each group flushed",
} as const;

/** Keys per `getMany`. */
export const MANY = 100;
const GET_MANY = `getMany of ${MANY}`;

const SEED = 3;
/** Keys prepared at a time during the load. */
const LOAD_CHUNK = 100_000;
/** A sample with fewer new keys than this repeats the work. */
const LEAST_FRESH = 20_000;

/** Batches per sample when each is flushed. */
const FLUSHED_BATCHES = 10;

const utf8 = new TextEncoder();

/** Fills a store, measures every kind of work, and compares the contents with the model in between. */
export async function runStore(plan: Plan, environment: Environment): Promise<StoreResult> {
  const run = new Run(plan, environment, await environment.open());
  await run.load();
  await run.compare("loading");
  await run.reads("get", PATTERNS);
  await run.readsOfMany();
  await run.scans("scan");
  await run.overwrites();
  await run.updates();
  await run.freshKeys("sequential");
  await run.freshKeys("random");
  await run.reads("get after all writes", ["random"]);
  await run.scans("scan after all writes");
  await run.reopen();
  return run.result();
}

/** Fills a store and measures overwrites at equal durability. */
export async function runFlushed(plan: Plan, environment: Environment): Promise<StoreResult> {
  const run = new Run(plan, environment, await environment.open());
  await run.load();
  await run.flushedEachSecond();
  await run.flushedEachGroup();
  await run.reopen();
  return run.flushedResult();
}

class Run {
  private readonly measured: Measured[] = [];
  private readonly digests: Record<string, string> = {};
  private readonly memory: StoreResult["memory"] = [];
  private readonly model: Model;
  private readonly chooser: Chooser;
  private readonly values: Values;

  constructor(
    private readonly plan: Plan,
    private readonly environment: Environment,
    private store: Store,
  ) {
    this.model = new Model(plan);
    this.chooser = new Chooser(plan.size, SEED);
    this.values = new Values(environment.wrap);
  }

  result(): StoreResult {
    const { name, settings, remarks = [] } = this.store;
    const { measured, digests, memory } = this;
    return { name, settings, remarks, measured, digests, memory };
  }

  /** The number of writes depends on the clock: contents are compared with the model, but not between stores. */
  flushedResult(): StoreResult {
    const works: readonly string[] = Object.values(FLUSHED);
    const { name, settings, remarks, measured } = this.result();
    const own = measured.filter(({ work }) => works.includes(work));
    return { name, settings, remarks, measured: own, digests: {}, memory: [] };
  }

  /** Milliseconds of `work`, including what the runtime does at the end of the turn. */
  private async time(work: () => Promise<void>): Promise<number> {
    const { elapsed } = this.store;
    this.environment.collect?.();
    elapsed?.();
    const start = performance.now();
    await work();
    await this.environment.turn();
    return elapsed?.() ?? performance.now() - start;
  }

  /** Runs `work` in batches. Where a store is synchronous, awaiting only ends the turn in between. */
  private async inBatches(
    count: number,
    batch: number,
    work: (from: number, to: number) => void | Promise<void>,
  ): Promise<void> {
    for (let from = 0; from < count; from += batch) {
      await work(from, Math.min(from + batch, count));
    }
  }

  private async samples(
    work: string,
    pattern: Measured["pattern"],
    sample: (round: number) => Promise<number>,
    { warmup, samples }: Pick<Plan, "warmup" | "samples"> = this.plan,
  ): Promise<void> {
    this.environment.progress(`${work} ${pattern}`);
    const ns: number[] = [];
    for (let round = 0; round < warmup + samples; round++) {
      const each = await sample(round);
      if (round >= warmup) ns.push(each);
    }
    this.measured.push({ work, pattern, ns });
  }

  private expect(what: string, found: number, expected: number): void {
    if (found !== expected) {
      throw new Error(`${this.store.name}: ${what} gave ${found} instead of ${expected}`);
    }
  }

  async load(): Promise<void> {
    const { size, batch } = this.plan;
    const { store, values, model } = this;
    this.environment.progress("load");
    let ms = 0;
    for (let start = 0; start < size; start += LOAD_CHUNK) {
      const length = Math.min(LOAD_CHUNK, size - start);
      const numbers = Uint32Array.from({ length }, (_, i) => 2 * (start + i));
      const keys = keysOf(numbers);
      values.renew();
      ms += await this.time(() =>
        this.inBatches(length, batch, (from, to) => store.sets(keys, values.all, from, to)),
      );
      model.set(numbers, values);
    }
    this.measured.push({ work: "load", pattern: "sequential", ns: [(ms * 1e6) / size] });
    this.remember("loaded");
  }

  async reads(work: string, patterns: readonly Pattern[]): Promise<void> {
    const { store, model, plan } = this;
    for (const pattern of patterns) {
      await this.samples(work, pattern, async () => {
        const numbers = this.chooser.existing(pattern, plan.ops);
        const keys = this.keys(numbers);
        let sum = 0;
        const ms = await this.time(async () => {
          sum = await store.gets(keys);
        });
        this.expect(`${work}, ${pattern},`, sum, model.looked(numbers));
        return (ms * 1e6) / plan.ops;
      });
    }
  }

  async readsOfMany(): Promise<void> {
    const { store, model, plan } = this;
    if (store.many === undefined) return;
    // Not every store has this row: a separate chooser keeps the later keys the same for all stores.
    const chooser = new Chooser(plan.size, SEED + 1);
    await this.samples(GET_MANY, "random", async () => {
      const count = plan.ops - (plan.ops % MANY);
      const numbers = chooser.existing("random", count);
      const keys = this.keys(numbers);
      const batches = Array.from({ length: count / MANY }, (_, i) =>
        keys.slice(i * MANY, (i + 1) * MANY),
      );
      let sum = 0;
      const ms = await this.time(async () => {
        for (const batch of batches) {
          const seen = store.many!(batch);
          sum += typeof seen === "number" ? seen : await seen;
        }
      });
      this.expect(GET_MANY, sum, model.looked(numbers));
      return (ms * 1e6) / count;
    });
  }

  /** Keys as strings; a small database reuses the same strings. */
  private keys(numbers: Uint32Array): string[] {
    if (this.plan.size > 1_000) return keysOf(numbers);
    this.few ??= keysOf(Uint32Array.from({ length: this.plan.size }, (_, i) => 2 * i));
    return Array.from(numbers, (number) => this.few![number / 2]!);
  }
  private few: string[] | undefined;

  async scans(work: string): Promise<void> {
    const { store } = this;
    if (store.scan === undefined) return;
    await this.scan(work, (from, limit) => store.scan!(from, limit));
    for (const [name, scan] of Object.entries(store.scans ?? {})) {
      await this.scan(`${work}, ${name}`, scan, false);
    }
    this.remember(`after the ${work}`);
  }

  /** Repeats the scan where the keys are few. */
  private async scan(
    work: string,
    scan: (from: string, limit: number) => number | Promise<number>,
    check = true,
  ): Promise<void> {
    const { size, ops } = this.plan;
    const times = Math.max(1, Math.floor(Math.min(ops, 20_000) / size));
    await this.samples(work, "sequential", async (round) => {
      const from = size <= ops ? 0 : 2 * ((round * ops) % (size - ops + 1));
      const [key] = keysOf(Uint32Array.of(from));
      const expected = this.model.scanned(from, ops);
      let sum = 0;
      const ms = await this.time(async () => {
        for (let i = 0; i < times; i++) sum = await scan(key!, ops);
      });
      if (check) this.expect(work, sum, expected.sum);
      return (ms * 1e6) / (times * expected.count);
    });
  }

  async overwrites(): Promise<void> {
    for (const pattern of PATTERNS) await this.overwrite("set existing", pattern);
    const { singles } = this.plan;
    if (singles > 0) await this.overwrite("set existing, each by itself", "random", singles, 1);
    await this.compareIfOften("set existing");
  }

  private async overwrite(
    work: string,
    pattern: Pattern,
    count = this.plan.writes,
    batch = this.plan.batch,
  ): Promise<void> {
    const { store, values, model } = this;
    await this.samples(work, pattern, async () => {
      const numbers = this.chooser.existing(pattern, count);
      const keys = this.keys(numbers);
      values.renew();
      const ms = await this.time(() =>
        this.inBatches(count, batch, (from, to) => store.sets(keys, values.all, from, to)),
      );
      model.set(numbers, values);
      return (ms * 1e6) / count;
    });
  }

  /** A sample is a second of writes and the flush at its end. */
  async flushedEachSecond(): Promise<void> {
    await this.openAgain("each second");
    const { writes } = this.plan;
    const few = { warmup: 1, samples: 3 };
    await this.samples(
      FLUSHED["each second"],
      "random",
      async () => {
        let [ms, count] = [0, 0];
        for (; ms < 1_000; count += writes) ms += await this.randomly(writes);
        ms += await this.time(async () => this.store.sync!());
        return (ms * 1e6) / count;
      },
      few,
    );
  }

  async flushedEachGroup(): Promise<void> {
    await this.openAgain("each group");
    const count = this.plan.batch * FLUSHED_BATCHES;
    await this.samples(FLUSHED["each group"], "random", async () => {
      return ((await this.randomly(count, () => this.store.sync!())) * 1e6) / count;
    });
  }

  private async openAgain(flushing: Flushing): Promise<void> {
    await this.store.close();
    this.store = await this.environment.open(flushing);
  }

  /** Overwrites random keys and returns the milliseconds. */
  private async randomly(count: number, afterBatch?: () => void | Promise<void>): Promise<number> {
    const { store, values, model } = this;
    const numbers = this.chooser.existing("random", count);
    const keys = this.keys(numbers);
    values.renew();
    const ms = await this.time(() =>
      this.inBatches(count, this.plan.batch, async (from, to) => {
        await store.sets(keys, values.all, from, to);
        await afterBatch?.();
      }),
    );
    model.set(numbers, values);
    return ms;
  }

  async updates(): Promise<void> {
    const { store, model, plan } = this;
    for (const pattern of PATTERNS) {
      await this.samples("update", pattern, async () => {
        const numbers = this.chooser.existing(pattern, plan.writes);
        const keys = this.keys(numbers);
        const ms = await this.time(() =>
          this.inBatches(plan.writes, plan.batch, (from, to) => store.updates(keys, from, to)),
        );
        model.update(numbers);
        return (ms * 1e6) / plan.writes;
      });
    }
    await this.compareIfOften("update");
  }

  /** Adds new keys and deletes them again: the database keeps its size. */
  async freshKeys(pattern: "sequential" | "random"): Promise<void> {
    const { store, values, model, plan } = this;
    const { fresh, batch, warmup, samples } = plan;
    this.environment.progress(`set new and delete ${pattern}`);
    const times = Math.max(1, Math.floor(Math.min(LEAST_FRESH, plan.writes) / fresh));
    const sets: number[] = [];
    const deletes: number[] = [];
    for (let round = 0; round < warmup + samples; round++) {
      let [set, deleted] = [0, 0];
      for (let time = 0; time < times; time++) {
        const numbers = this.chooser.fresh(pattern, fresh);
        const keys = keysOf(numbers);
        values.renew();
        set += await this.time(() =>
          this.inBatches(fresh, batch, (from, to) => store.sets(keys, values.all, from, to)),
        );
        model.set(numbers, values);
        const last = round === warmup + samples - 1 && time === times - 1;
        if (last) await this.compareIfOften(`set new, ${pattern}`);
        const leaving = pattern === "random" ? keysOf(this.chooser.shuffled(numbers)) : keys;
        deleted += await this.time(() =>
          this.inBatches(fresh, batch, (from, to) => store.deletes(leaving, from, to)),
        );
        model.delete(numbers);
      }
      if (round < warmup) continue;
      sets.push((set * 1e6) / (fresh * times));
      deletes.push((deleted * 1e6) / (fresh * times));
    }
    this.measured.push({ work: "set new", pattern, ns: sets });
    this.measured.push({ work: "delete", pattern, ns: deletes });
    await this.compareIfOften(`delete, ${pattern}`);
  }

  private async compareIfOften(after: string): Promise<void> {
    if (this.plan.compareOften) await this.compare(after);
  }

  async compare(after: string): Promise<void> {
    const { store, model } = this;
    this.environment.progress(`comparing contents after ${after}`);
    const expected = model.digest(await newDigest());
    const digest = await newDigest();
    await store.pairs((key, value) => digest.add(key, value), model.everStored());
    const found = digest.end();
    if (found !== expected) {
      throw new Error(`${store.name} has ${found} after ${after}, and should have ${expected}`);
    }
    this.digests[after] = found;
  }

  /** Measures closing and opening again, and checks the contents. */
  async reopen(): Promise<void> {
    this.environment.progress("reopen");
    const start = performance.now();
    await this.store.close();
    this.store = await this.environment.open();
    this.measured.push({ work: REOPEN, pattern: "", ns: [performance.now() - start] });
    await this.compare("closing and opening");
    await this.store.close();
  }

  private remember(when: string): void {
    const bytes = this.store.memory?.();
    if (bytes !== undefined) this.memory.push({ when, bytes, keys: this.plan.size });
  }
}

/** The bytes of a key, for stores that return strings. */
export function keyBytes(key: string, into: Uint8Array): Uint8Array {
  utf8.encodeInto(key, into);
  return into;
}
