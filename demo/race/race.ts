import { type Checked, type Contents, messageOf, type Slices } from "./messages.js";
import type { PageStore } from "./page-stores.js";
import {
  EXTENTS,
  type Extent,
  type Length,
  type StoreId,
  storeInfo,
  type WorkloadId,
  type WorkloadInfo,
  workloadInfo,
} from "./plan.js";
import { figuresOf, type Outcome, spreadOf } from "./results.js";
import { looked } from "./store.js";
import { StoppedError, StoreWorker } from "./store-worker.js";
import { contentsOf, keysOf, recordOf } from "./work.js";

export interface Progress {
  doing: string;
  /** From 0 to 1. */
  done: number;
  leftMs: number;
}

export interface Listener {
  progress(progress: Progress): void;
  outcome(workload: WorkloadId, store: StoreId, outcome: Outcome): void;
}

export interface Choice {
  length: Length;
  stores: readonly StoreId[];
  workloads: readonly WorkloadId[];
}

const NAME = "race";
const FIRST = "race-first";
/** Records of the round trips. */
const PAGE_RECORDS = 50;
/** The spread of the rounds' medians that is small enough. */
const SETTLED = 0.05;
/** Some workloads are settled before their time is over, so that others may take more than an even part of it. */
const MORE_THAN_EVEN = 1.4;
/** New workers take long to start, so there are fewer rounds of them. */
const NEW_WORKER_ROUNDS: Record<Length, number> = { quick: 1, full: 5 };

/** One race: workload by workload, and in each the stores in turn, round by round, each round in another order. */
export class Race {
  readonly #extent: Extent;
  readonly #steady = new Map<StoreId, StoreWorker>();
  /** Workers that are working for a moment, so that stopping ends them too. */
  readonly #others = new Set<StoreWorker>();
  readonly #pageStores = new Map<StoreId, PageStore>();
  readonly #failures = new Map<StoreId, string>();
  /** What each store must hold when it is opened again. */
  readonly #kept = new Map<StoreId, Contents>();
  #stopped = false;
  #resume: (() => void) | undefined;
  #paused: Promise<void> | undefined;
  #pausedAt = 0;
  #pausedMs = 0;
  /** Counts pauses: a turn during which one began is repeated. */
  #pauses = 0;
  #start = 0;
  #finished = 0;
  #within = 0;

  constructor(
    private readonly choice: Choice,
    private readonly listener: Listener,
  ) {
    this.#extent = EXTENTS[choice.length];
  }

  /** Resolves when the race is over: whether it got to its end. What it stored is removed later, by `cleanUp`. */
  async run(): Promise<boolean> {
    this.#start = performance.now();
    try {
      for (const id of this.choice.workloads) {
        await this.#workload(workloadInfo(id));
        this.#finished += 1;
        this.#within = 0;
      }
      return true;
    } catch (error) {
      if (this.#stopped) return false;
      throw error;
    } finally {
      await this.#closePageStores().catch(() => {});
      for (const worker of [...this.#steady.values(), ...this.#others]) worker.end();
      this.#steady.clear();
    }
  }

  /** The workers end at once; what was measured stays. */
  stop(): void {
    this.#stopped = true;
    this.resume();
    for (const worker of [...this.#steady.values(), ...this.#others]) worker.end();
  }

  pause(): void {
    if (this.#paused !== undefined) return;
    this.#pauses += 1;
    this.#pausedAt = performance.now();
    this.#paused = new Promise((resolve) => {
      this.#resume = resolve;
    });
  }

  resume(): void {
    if (this.#paused === undefined) return;
    this.#pausedMs += performance.now() - this.#pausedAt;
    this.#paused = undefined;
    this.#resume?.();
  }

  /** Removes what the stores have kept. */
  async cleanUp(): Promise<void> {
    await Promise.all(
      this.choice.stores.map(async (store) => {
        const worker = new StoreWorker();
        // What cannot be removed now is removed before the next race.
        await worker.call({ do: "remove", store, names: [NAME, FIRST] }).catch(() => {});
        worker.end();
      }),
    );
  }

  get #elapsed(): number {
    return performance.now() - this.#start - this.#pausedMs;
  }

  /** Milliseconds until the present workload has to end, so that the others have their share. */
  get #share(): number {
    const left = this.choice.workloads.length - this.#finished;
    const all = this.#extent.budgetMs - this.#elapsed;
    return Math.min(all, (MORE_THAN_EVEN * all) / left);
  }

  async #checkpoint(): Promise<void> {
    while (this.#paused !== undefined && !this.#stopped) await this.#paused;
    if (this.#stopped) throw new StoppedError("the race was stopped");
  }

  #say(doing: string): void {
    const done = (this.#finished + Math.min(this.#within, 0.95)) / this.choice.workloads.length;
    const elapsed = this.#elapsed;
    const most = this.#extent.budgetMs - elapsed;
    const guess = done > 0.05 ? (elapsed * (1 - done)) / done : most;
    this.listener.progress({
      doing,
      done,
      leftMs: Math.max(0, Math.min(guess, Math.max(most, guess / 2))),
    });
  }

  /** Reports a failure of a store, unless the race was stopped. */
  #failed(workload: WorkloadId, store: StoreId, error: unknown): void {
    if (this.#stopped) throw error;
    this.listener.outcome(workload, store, { kind: "failed", reason: messageOf(error) });
  }

  async #workload(info: WorkloadInfo): Promise<void> {
    await this.#checkpoint();
    if (info.setting === "worker") return this.#inWorkers(info);
    if (info.setting === "page") return this.#onPage(info);
    if (info.id === "cold-list") return this.#inNewWorkers(info, true);
    return this.#inNewWorkers(info, false);
  }

  /** The stores in the order of a round: each round begins with another one. */
  #order(stores: readonly StoreId[], round: number): StoreId[] {
    const first = (round + this.#finished) % Math.max(1, stores.length);
    return [...stores.slice(first), ...stores.slice(0, first)];
  }

  async #openSteady(stores: readonly StoreId[]): Promise<void> {
    const missing = stores.filter(
      (store) => !this.#steady.has(store) && !this.#failures.has(store),
    );
    if (missing.length === 0) return;
    this.#say("Opening and filling the stores");
    await Promise.all(
      missing.map(async (store) => {
        const worker = new StoreWorker();
        this.#steady.set(store, worker);
        const extent = this.#extent;
        try {
          await worker.call({ do: "open", store, name: NAME, extent, fill: true, remove: true });
        } catch (error) {
          this.#steady.delete(store);
          worker.end();
          this.#failures.set(store, messageOf(error));
        }
      }),
    );
    await this.#checkpoint();
  }

  async #closeSteady(): Promise<void> {
    for (const [store, worker] of this.#steady) {
      try {
        this.#kept.set(store, await worker.call<Contents>({ do: "close" }));
      } catch (error) {
        this.#failures.set(store, messageOf(error));
      }
      worker.end();
    }
    this.#steady.clear();
    await this.#checkpoint();
  }

  /** Repeats a turn until no pause began meanwhile: while a page is hidden, browsers slow it down. */
  async #undisturbed<T>(turn: () => Promise<T>): Promise<T> {
    for (;;) {
      await this.#checkpoint();
      const pauses = this.#pauses;
      const result = await turn();
      if (pauses === this.#pauses) return result;
    }
  }

  /** Rounds of turns, until the spread of each store's medians is small, or the time is over. */
  async #rounds(
    info: WorkloadInfo,
    stores: Iterable<StoreId>,
    begin: number,
    end: number,
    turn: (store: StoreId) => Promise<Slices>,
  ): Promise<Map<StoreId, Slices>> {
    const all = new Map<StoreId, Slices>();
    const medians = new Map<StoreId, number[]>();
    const failed = new Set<StoreId>();
    const { leastRounds, mostRounds } = this.#extent;
    for (let round = 0; round < mostRounds; round++) {
      const going = [...stores].filter(
        (store) => !failed.has(store) && !isSettled(medians.get(store) ?? [], leastRounds),
      );
      if (going.length === 0 || (round > 0 && this.#elapsed > end)) break;
      for (const store of this.#order(going, round)) {
        const rounds = Math.max(leastRounds, round + 1);
        this.#within = Math.max((this.#elapsed - begin) / Math.max(1, end - begin), round / rounds);
        this.#say(`${info.title}: ${storeInfo(store).name}, round ${round + 1}`);
        try {
          const slices = await this.#undisturbed(() => turn(store));
          all.set(store, [...(all.get(store) ?? []), ...slices]);
          if (slices.length > 0) {
            medians.set(store, [...(medians.get(store) ?? []), figuresOf(slices).p50]);
          }
        } catch (error) {
          this.#failed(info.id, store, error);
          failed.add(store);
          all.delete(store);
        }
      }
    }
    return all;
  }

  #report(info: WorkloadInfo, store: StoreId, slices: Slices, checked: Checked): void {
    const { found, expected } = checked;
    if (found.sha256 !== expected.sha256) {
      const reason = `its contents are wrong: ${found.words}, and expected were ${expected.words}${
        found.words === expected.words ? " of other bytes" : ""
      }`;
      this.listener.outcome(info.id, store, { kind: "void", reason });
    } else if (slices.length === 0 || figuresOf(slices).p50 === 0) {
      this.listener.outcome(info.id, store, {
        kind: "failed",
        reason: "this browser's clock is too coarse",
      });
    } else this.listener.outcome(info.id, store, { kind: "measured", ...figuresOf(slices) });
  }

  async #inWorkers(info: WorkloadInfo): Promise<void> {
    await this.#openSteady(this.choice.stores);
    const begin = this.#elapsed;
    const end = begin + this.#share;
    const ready = new Map<StoreId, StoreWorker>();
    for (const store of this.choice.stores) {
      await this.#checkpoint();
      const worker = this.#steady.get(store);
      if (worker === undefined) {
        this.#failed(info.id, store, new Error(this.#failures.get(store)));
        continue;
      }
      this.#say(`${info.title}: ${storeInfo(store).name}, warming up`);
      try {
        const absent = await worker.call<string | undefined>({ do: "start", workload: info.id });
        if (absent === undefined) ready.set(store, worker);
        else this.listener.outcome(info.id, store, { kind: "absent", reason: absent });
      } catch (error) {
        this.#failed(info.id, store, error);
        this.#drop(store, worker, error);
      }
    }
    const all = await this.#rounds(info, ready.keys(), begin, end, (store) =>
      ready.get(store)!.call<Slices>({ do: "turn" }),
    );
    for (const [store, worker] of ready) {
      await this.#checkpoint();
      try {
        const checked = await worker.call<Checked>({ do: "finish" });
        const slices = all.get(store);
        if (slices !== undefined) this.#report(info, store, slices, checked);
      } catch (error) {
        this.#failed(info.id, store, error);
        this.#drop(store, worker, error);
      }
    }
  }

  /** A store whose work broke off may hold anything: it takes no further part. */
  #drop(store: StoreId, worker: StoreWorker, error: unknown): void {
    worker.end();
    this.#steady.delete(store);
    this.#failures.set(store, messageOf(error));
  }

  async #inNewWorkers(info: WorkloadInfo, cold: boolean): Promise<void> {
    const extent = this.#extent;
    const rounds = NEW_WORKER_ROUNDS[this.choice.length];
    const samples = new Map<StoreId, { slices: Slices; checked: Checked }>();
    const failed = new Set<StoreId>();
    await this.#closePageStores();
    // What the workloads before have stored is opened again; without any, there is nothing yet.
    if (cold) await this.#openSteady(this.choice.stores.filter((one) => !this.#kept.has(one)));
    await this.#closeSteady();
    const end = this.#elapsed + this.#share;
    for (let round = 0; round < rounds && (round === 0 || this.#elapsed < end); round++) {
      for (const store of this.#order(this.choice.stores, round)) {
        if (failed.has(store)) continue;
        this.#within = round / rounds;
        this.#say(`${info.title}: ${storeInfo(store).name}, round ${round + 1}`);
        try {
          const failure = this.#failures.get(store);
          if (failure !== undefined) throw new Error(failure);
          const { ns, checked } = await this.#undisturbed(() => {
            const { id: workload } = info;
            const expected = this.#kept.get(store);
            return this.#once<{ ns: number; checked: Checked }>((worker) =>
              expected !== undefined && cold
                ? worker.call({ do: "cold list", store, name: NAME, extent, expected })
                : worker.call({ do: "first drop", store, name: FIRST, extent, workload }),
            );
          });
          const before = samples.get(store)?.slices ?? [];
          samples.set(store, { slices: [...before, ns], checked });
        } catch (error) {
          this.#failed(info.id, store, error);
          failed.add(store);
          samples.delete(store);
        }
      }
    }
    for (const [store, { slices, checked }] of samples) this.#report(info, store, slices, checked);
  }

  async #once<T>(work: (worker: StoreWorker) => Promise<T>): Promise<T> {
    const worker = new StoreWorker();
    this.#others.add(worker);
    try {
      return await work(worker);
    } finally {
      worker.end();
      this.#others.delete(worker);
    }
  }

  async #onPage(info: WorkloadInfo): Promise<void> {
    const { id } = info;
    const numbers = Uint32Array.from({ length: PAGE_RECORDS }, (_, i) => 2 * i);
    const keys = keysOf(numbers);
    const values = Array.from(numbers, (number) => recordOf(number, 0));
    const expected = await contentsOf(keys.map((key, i) => [key, values[i]!]));
    await this.#closeSteady();
    const begin = this.#elapsed;
    const end = begin + this.#share;
    // Loaded now, and not with the page: the first paint needs none of it.
    const { openPageStore } = await import("./page-stores.js");
    const ready = new Set<StoreId>();
    for (const store of this.choice.stores) {
      await this.#checkpoint();
      this.#say(`${info.title}: ${storeInfo(store).name}, opening`);
      try {
        const opened = this.#pageStores.get(store) ?? (await openPageStore(store, this.#extent));
        this.#pageStores.set(store, opened);
        for (const [i, key] of keys.entries()) await opened.set(key, values[i]!);
        ready.add(store);
      } catch (error) {
        this.#failed(id, store, error);
      }
    }
    const all = await this.#rounds(info, ready, begin, end, (store) => {
      const opened = this.#pageStores.get(store)!;
      let at = 0;
      return pageTurn(this.#extent.turnMs, async () => {
        const i = at++ % PAGE_RECORDS;
        if (id === "page-set") await opened.set(keys[i]!, values[i]!);
        else if ((await opened.get(keys[i]!)) !== looked(values[i]!)) {
          throw new Error("a wrong value was read");
        }
      });
    });
    for (const [store, slices] of all) {
      const found = await contentsOf(await this.#pageStores.get(store)!.pairs());
      this.#report(info, store, slices, { found, expected });
    }
  }

  async #closePageStores(): Promise<void> {
    const opened = [...this.#pageStores.values()];
    this.#pageStores.clear();
    await Promise.all(opened.map((store) => store.close()));
  }
}

/** A slice of round trips takes so long, so that a clock with steps of a tenth of a millisecond suffices. */
const PAGE_SLICE_MS = 2;

async function pageTurn(ms: number, work: () => Promise<void>): Promise<Slices> {
  const slices: Slices = [];
  const end = performance.now() + Math.max(ms, 3 * PAGE_SLICE_MS);
  while (performance.now() < end) {
    const start = performance.now();
    let now = start;
    let count = 0;
    while (now - start < PAGE_SLICE_MS) {
      await work();
      count += 1;
      now = performance.now();
    }
    slices.push(((now - start) * 1e6) / count);
  }
  return slices;
}

function isSettled(medians: readonly number[], leastRounds: number): boolean {
  return medians.length >= leastRounds && spreadOf(figuresOf(medians)) <= SETTLED;
}
