import { encodeProduct, PRODUCT_KEY, PRODUCT_NAME } from "../drop.js";
import type { Extent, WorkloadId } from "./plan.js";
import {
  DELETE,
  GET,
  INSERT,
  type Kind,
  LARGE,
  looked,
  type Maybe,
  type Mixed,
  type Pair,
  type Store,
  stampOf,
  UPDATE,
} from "./store.js";
import {
  Chooser,
  firstNumbers,
  keysOf,
  LARGE_BYTES,
  LARGE_COUNT,
  recordOf,
  VALUE_BYTES,
} from "./work.js";

/** Operations of a commit. */
const BATCH = 100;
const RANGE = 50;
/** The stamp that all stores end with, however often each of them did the work. */
const LAST_STAMP = 0x7fff_ffff;
/** Buyers of a drop whose product is compared afterwards. */
const LAST_BUYERS = 100;

/** A workload on one store. Operations are numbered from 0 to below `length`, and done in parts of whole batches. */
export interface Task {
  length: number;
  /** The least part: one commit. */
  batch: number;
  /** Before and after each timed part, if it has to be undone to be repeated. */
  prepare?(from: number, to: number): Maybe<void>;
  restore?(from: number, to: number): Maybe<void>;
  /** The timed part. It throws if what it reads is wrong. `pass` differs each time. */
  run(from: number, to: number, pass: number): Maybe<void>;
  /** Checks that the last part was done: not timed. */
  check?(from: number, to: number, pass: number): Maybe<void>;
  /** Brings every store to the same contents, by the same work: not timed. */
  finish(): Maybe<void>;
  /** After the contents were compared. */
  cleanUp?(): Maybe<void>;
}

/** What the store has to hold, by the keys. */
export class Model {
  readonly pairs = new Map<string, () => Uint8Array>();
  typed = false;

  constructor({ records }: Extent) {
    const numbers = firstNumbers(records);
    const keys = keysOf(numbers);
    keys.forEach((key, i) => {
      this.pairs.set(key, () => recordOf(numbers[i]!, 0));
    });
  }

  all(): Pair[] {
    return [...this.pairs].map(([key, value]) => [key, value()]);
  }
}

class Wrong extends Error {
  override readonly name = "WrongResult";
}

function expectEqual(what: string, found: number, expected: number): void {
  if (found !== expected) throw new Wrong(`${what}: ${found} instead of ${expected}`);
}

/** Sums of the first 0, 1, 2 … terms, so that any part has its sum by one subtraction. */
function prefixSums(terms: ArrayLike<number>): Float64Array {
  const sums = new Float64Array(terms.length + 1);
  for (let i = 0; i < terms.length; i++) sums[i + 1] = sums[i]! + terms[i]!;
  return sums;
}

const lookedOf = (number: number) => looked(recordOf(number, 0));

/** Fills an empty store. */
export async function fill(store: Store, { records }: Extent): Promise<void> {
  const numbers = firstNumbers(records);
  const keys = keysOf(numbers);
  const values = Array.from(numbers, (number) => recordOf(number, 0));
  for (let from = 0; from < records; from += 1_000) {
    await store.sets(keys, values, from, Math.min(from + 1_000, records));
  }
}

export function taskOf(workload: WorkloadId, store: Store, extent: Extent, model: Model): Task {
  const tasks = new Tasks(store, extent, model);
  const [work, how = ""] = workload.split("-");
  if (work === "drop") return tasks.drop(how === "typed" ? "typed" : "raw", how === "each");
  if (work === "load") return tasks.load(how === "random" ? "random" : "sequential");
  if (work === "delete") return tasks.remove(how === "random");
  if (work === "get") return tasks.get(how as "random");
  if (work === "update") return tasks.update(how as "random");
  if (work === "write") return tasks.writeEach();
  if (work === "mixed") return tasks.mixed();
  if (work === "range") return tasks.range();
  if (work === "large") return tasks.large(how === "write");
  throw new RangeError(`no task for ${workload}`);
}

class Tasks {
  private readonly chooser: Chooser;

  constructor(
    private readonly store: Store,
    private readonly extent: Extent,
    private readonly model: Model,
  ) {
    this.chooser = new Chooser(extent.records, 3);
  }

  private async batches(from: number, to: number, work: (from: number, to: number) => Maybe<void>) {
    for (let at = from; at < to; at += BATCH) {
      const done = work(at, Math.min(at + BATCH, to));
      if (done !== undefined) await done;
    }
  }

  drop(kind: Kind, commitEach: boolean): Task {
    const { store, model } = this;
    return {
      length: commitEach ? 1_000 : 20_000,
      batch: commitEach ? 10 : 50,
      prepare: (from, to) => store.restock(kind, to - from + 1),
      run: (from, to) => store.buy(kind, to - from, commitEach),
      async check() {
        const product = await store.product(kind);
        expectEqual("pairs left", product?.stock ?? -1, 1);
      },
      async finish() {
        await store.restock(kind, LAST_BUYERS + 1);
        await store.buy(kind, LAST_BUYERS, commitEach);
        const product = await store.product(kind);
        if (product?.stock !== 1 || product.name !== PRODUCT_NAME) {
          throw new Wrong(`after the drop there are ${product?.stock} of "${product?.name}"`);
        }
        if (kind === "raw") {
          model.pairs.set(PRODUCT_KEY, () => encodeProduct({ stock: 1, name: PRODUCT_NAME }));
        }
      },
    };
  }

  load(pattern: "sequential" | "random"): Task {
    const { store, model, extent } = this;
    const numbers = this.chooser.fresh(pattern, extent.operations);
    const keys = keysOf(numbers);
    const values = Array.from(numbers, (number) => recordOf(number, 0));
    const insert = (from: number, to: number) =>
      this.batches(from, to, (a, b) => store.sets(keys, values, a, b));
    const remove = (from: number, to: number) =>
      this.batches(from, to, (a, b) => store.deletes(keys, a, b));
    return {
      length: keys.length,
      batch: BATCH,
      run: insert,
      restore: remove,
      async finish() {
        await insert(0, keys.length);
        keys.forEach((key, i) => {
          model.pairs.set(key, () => recordOf(numbers[i]!, 0));
        });
      },
      async cleanUp() {
        await remove(0, keys.length);
        for (const key of keys) model.pairs.delete(key);
      },
    };
  }

  remove(random: boolean): Task {
    const { store, extent } = this;
    const numbers = this.chooser.fresh(random ? "random" : "sequential", extent.operations);
    const keys = keysOf(random ? this.chooser.shuffled(numbers) : numbers);
    const value = recordOf(1, 0);
    const values = keys.map(() => value);
    const insert = (from: number, to: number) =>
      this.batches(from, to, (a, b) => store.sets(keys, values, a, b));
    const remove = (from: number, to: number) =>
      this.batches(from, to, (a, b) => store.deletes(keys, a, b));
    return {
      length: keys.length,
      batch: BATCH,
      prepare: insert,
      run: remove,
      async finish() {
        await insert(0, keys.length);
        await remove(0, keys.length);
      },
    };
  }

  get(pattern: "sequential" | "random" | "zipfian"): Task {
    const { store, extent } = this;
    const numbers = this.chooser.existing(pattern, extent.operations);
    const keys = keysOf(numbers);
    const sums = prefixSums(Array.from(numbers, lookedOf));
    return {
      length: keys.length,
      batch: BATCH,
      run: async (from, to) => {
        let sum = 0;
        for (let at = from; at < to; at += BATCH) {
          const part = store.gets(keys, at, Math.min(at + BATCH, to));
          sum += typeof part === "number" ? part : await part;
        }
        expectEqual("what was read", sum, sums[to]! - sums[from]!);
      },
      finish() {},
    };
  }

  /** Reads one key of a part and checks its stamp. */
  private async checkStamp(key: string, expected: number): Promise<void> {
    const found = (await this.store.pairs()).find(([other]) => other === key);
    expectEqual("the change of a record", found === undefined ? -1 : stampOf(found[1]), expected);
  }

  update(pattern: "sequential" | "random" | "zipfian"): Task {
    const { store, model, extent } = this;
    const numbers = this.chooser.existing(pattern, extent.operations);
    const keys = keysOf(numbers);
    const sums = prefixSums(Array.from(numbers, lookedOf));
    const change = async (from: number, to: number, stamp: number) => {
      let sum = 0;
      for (let at = from; at < to; at += BATCH) {
        const part = store.updates(keys, at, Math.min(at + BATCH, to), stamp);
        sum += typeof part === "number" ? part : await part;
      }
      expectEqual("what was read", sum, sums[to]! - sums[from]!);
    };
    return {
      length: keys.length,
      batch: BATCH,
      run: change,
      check: (from, _, pass) => this.checkStamp(keys[from]!, pass),
      async finish() {
        await change(0, keys.length, LAST_STAMP);
        keys.forEach((key, i) => {
          model.pairs.set(key, () => recordOf(numbers[i]!, LAST_STAMP));
        });
      },
    };
  }

  writeEach(): Task {
    const { store, model, extent } = this;
    const numbers = this.chooser.existing("random", extent.operations);
    const keys = keysOf(numbers);
    const values = Array.from(numbers, (number) => recordOf(number, 1));
    const write = async (from: number, to: number) => {
      for (let at = from; at < to; at++) {
        const done = store.sets(keys, values, at, at + 1);
        if (done !== undefined) await done;
      }
    };
    return {
      length: keys.length,
      batch: 10,
      run: write,
      check: (from) => this.checkStamp(keys[from]!, 1),
      async finish() {
        await write(0, keys.length);
        keys.forEach((key, i) => {
          model.pairs.set(key, () => recordOf(numbers[i]!, 1));
        });
      },
    };
  }

  mixed(): Task {
    const { store, model, extent } = this;
    const length = Math.ceil(extent.operations / BATCH) * BATCH;
    const existing = this.chooser.existing("zipfian", length);
    // Of 100 operations five insert new records, and five delete those that the batch before has inserted.
    const fresh = this.chooser.fresh("random", length / 20);
    const numbers = Uint32Array.from(existing);
    const kinds = new Uint8Array(length);
    for (let i = 0; i < length; i++) {
      const within = i % 20;
      const inserted = Math.floor(i / 20);
      if (within === 9) {
        kinds[i] = INSERT;
        numbers[i] = fresh[inserted]!;
      } else if (within === 19) {
        kinds[i] = DELETE;
        numbers[i] = fresh[(inserted - BATCH / 20 + fresh.length) % fresh.length]!;
      } else kinds[i] = within % 5 === 2 ? UPDATE : GET;
    }
    const keys = keysOf(numbers);
    const values = Array.from(numbers, (number) => recordOf(number, 0));
    const work: Mixed = { kinds, keys, values };
    const sums = prefixSums(
      Array.from(numbers, (number, i) => (kinds[i] === GET ? lookedOf(number) : 0)),
    );
    const mix = async (from: number, to: number, stamp: number) => {
      let sum = 0;
      for (let at = from; at < to; at += BATCH) {
        const part = store.mixed(work, at, Math.min(at + BATCH, to), stamp);
        sum += typeof part === "number" ? part : await part;
      }
      expectEqual("what was read", sum, sums[to]! - sums[from]!);
    };
    const lastBatch = keys.filter((_, i) => i >= length - BATCH && kinds[i] === INSERT);
    return {
      length,
      batch: BATCH,
      run: mix,
      async finish() {
        await mix(0, length, LAST_STAMP);
        for (let i = 0; i < length; i++) {
          if (kinds[i] === UPDATE) {
            model.pairs.set(keys[i]!, () => recordOf(numbers[i]!, LAST_STAMP));
          } else if (kinds[i] === INSERT && i >= length - BATCH) {
            model.pairs.set(keys[i]!, () => recordOf(numbers[i]!, 0));
          }
        }
      },
      async cleanUp() {
        await store.deletes(lastBatch, 0, lastBatch.length);
        for (const key of lastBatch) model.pairs.delete(key);
      },
    };
  }

  range(): Task {
    const { store, extent } = this;
    const { records } = extent;
    const each = prefixSums(
      Array.from(
        firstNumbers(records),
        (number) => lookedOf(number) + keysOf(Uint32Array.of(number))[0]!.length,
      ),
    );
    const starts = new Chooser(records - RANGE, 5).existing("random", 200);
    const sums = prefixSums(
      Array.from(starts, (number) => each[number / 2 + RANGE]! - each[number / 2]!),
    );
    const keys = keysOf(starts);
    return {
      length: keys.length,
      batch: 10,
      run: async (from, to) => {
        let sum = 0;
        for (let at = from; at < to; at += 10) {
          const part = store.ranges!(keys, at, Math.min(at + 10, to), RANGE);
          sum += typeof part === "number" ? part : await part;
        }
        expectEqual("what was read", sum, sums[to]! - sums[from]!);
      },
      finish() {},
    };
  }

  large(write: boolean): Task {
    const { store, model } = this;
    const keys = Array.from({ length: LARGE_COUNT }, (_, i) => `${LARGE}${i}`);
    const values = keys.map((_, i) => recordOf(i, 1, LARGE_BYTES));
    const sums = prefixSums(values.map(looked));
    const put = async (from: number, to: number) => {
      for (let at = from; at < to; at++) {
        const done = store.sets(keys, values, at, at + 1);
        if (done !== undefined) await done;
      }
    };
    let stored = false;
    return {
      length: keys.length,
      batch: write ? 1 : 4,
      run: write
        ? put
        : async (from, to) => {
            const sum = await store.gets(keys, from, to);
            expectEqual("what was read", sum, sums[to]! - sums[from]!);
          },
      ...(!write && {
        async prepare() {
          if (!stored) await put(0, keys.length);
          stored = true;
        },
      }),
      async finish() {
        await put(0, keys.length);
        keys.forEach((key, i) => {
          model.pairs.set(key, () => recordOf(i, 1, LARGE_BYTES));
        });
      },
      async cleanUp() {
        await store.deletes(keys, 0, keys.length);
        for (const key of keys) model.pairs.delete(key);
      },
    };
  }
}

export { VALUE_BYTES };
