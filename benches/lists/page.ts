/** A page of the benchmark of lists: it fills the stores, and lists their records in several variants. */

import { Dexie } from "dexie";
import { connect } from "varve/client";
import { keyOf, type Row, rowOf, SIZES } from "./rows.js";
import { COLLECTIONS } from "./worker.js";

/** A variant of listing the records of one store. */
export interface Variant {
  /** Opens what it needs, which is not measured. */
  open(): Promise<unknown>;
  /** Lists all records, and adds up one field of each. */
  sum(size: number): Promise<number>;
  /** All records as plain objects, to compare the contents. */
  rows(size: number): Promise<Row[]>;
}

const GET_MANY = 100;

let client: ReturnType<typeof connectNow> | undefined;
function connectNow() {
  return connect("lists", {
    worker: () => new Worker("/worker.js", { type: "module" }),
    collections: COLLECTIONS,
  });
}

function store() {
  client ??= connectNow();
  return client;
}

async function openStore() {
  await store().ready;
}

const jsonOf = (size: number) => store().collection(`json${size as 1_000 | 10_000}`);
const structOf = (size: number) => store().collection(`struct${size as 1_000 | 10_000}`);

/** Both kinds of collections have these calls. */
interface Listed<T> {
  values(): AsyncIterable<T> & { all(): Promise<T[]> };
  getMany(keys: string[]): Promise<(T | undefined)[]>;
}

async function looped<T extends { amount: number }>(rows: AsyncIterable<T>): Promise<number> {
  let sum = 0;
  for await (const { amount } of rows) sum += amount;
  return sum;
}

function summed(rows: readonly ({ amount: number } | undefined)[]): number {
  let sum = 0;
  for (const row of rows) sum += row?.amount ?? 0;
  return sum;
}

function keysFrom(from: number): string[] {
  return Array.from({ length: GET_MANY }, (_, i) => keyOf(from + i));
}

/** Gets all records, a hundred a call. */
async function hundreds(size: number, get: (keys: string[]) => Promise<(Row | undefined)[]>) {
  let sum = 0;
  for (let i = 0; i < size; i += GET_MANY) sum += summed(await get(keysFrom(i)));
  return sum;
}

function variantsOf(of: (size: number) => Listed<Row>): Record<string, Variant> {
  const rows = (size: number) => of(size).values().all();
  return {
    "for await": { open: openStore, sum: (size) => looped(of(size).values()), rows },
    "all()": { open: openStore, sum: async (size) => summed(await rows(size)), rows },
    getMany: {
      open: openStore,
      sum: (size) => hundreds(size, (keys) => of(size).getMany(keys)),
      rows: async (size) => {
        const found: Row[] = [];
        for (let i = 0; i < size; i += GET_MANY) {
          found.push(...((await of(size).getMany(keysFrom(i))) as Row[]));
        }
        return found;
      },
    },
  };
}

let dexie: Dexie | undefined;

async function openDexie(): Promise<void> {
  if (dexie !== undefined) return;
  dexie = new Dexie("lists", { chromeTransactionDurability: "relaxed" });
  dexie.version(1).stores(Object.fromEntries(SIZES.map((size) => [`rows${size}`, ""])));
  await dexie.open();
}

const table = (size: number) => dexie!.table<Row, string>(`rows${size}`);

const dexieVariants: Record<string, Variant> = {
  toArray: {
    open: openDexie,
    sum: async (size) => summed(await table(size).toArray()),
    rows: (size) => table(size).toArray(),
  },
  bulkGet: {
    open: openDexie,
    sum: (size) => hundreds(size, (keys) => table(size).bulkGet(keys)),
    rows: async (size) => {
      const all = Array.from({ length: size }, (_, i) => keyOf(i));
      return (await table(size).bulkGet(all)) as Row[];
    },
  },
};

let floor: Worker | undefined;
let answered: (data: unknown) => void;

async function openFloor(): Promise<void> {
  if (floor !== undefined) return;
  floor = new Worker("/floor-worker.js", { type: "module" });
  floor.onmessage = ({ data }) => answered(data);
  // The first answer comes when the worker has started.
  await askFloor("objects", 0);
}

function askFloor<T>(kind: string, size: number): Promise<T> {
  return new Promise((resolve) => {
    answered = resolve as (data: unknown) => void;
    floor!.postMessage({ kind, size });
  });
}

const parsed = async (size: number) =>
  JSON.parse(new TextDecoder().decode(await askFloor<Uint8Array>("bytes", size))) as Row[];

const floorVariants: Record<string, Variant> = {
  objects: {
    open: openFloor,
    sum: async (size) => summed(await askFloor<Row[]>("objects", size)),
    rows: (size) => askFloor<Row[]>("objects", size),
  },
  "one buffer": {
    open: openFloor,
    sum: async (size) => (await askFloor<Uint8Array>("bytes", size)).length,
    rows: parsed,
  },
  "one buffer, parsed": {
    open: openFloor,
    sum: async (size) => summed(await parsed(size)),
    rows: parsed,
  },
};

/** The same lists as views, whose fields are read in place. */
const viewVariants: Record<string, Variant> = Object.fromEntries(
  Object.entries(variantsOf((size) => structOf(size).views)).map(([name, variant]) => [
    name,
    { ...variant, rows: async (size) => (await variant.rows(size)).map((view) => sorted(view)) },
  ]),
);

const VARIANTS: Record<string, Record<string, Variant>> = {
  "varve, json()": variantsOf(jsonOf),
  "varve, views": viewVariants,
  "varve, schema": variantsOf(structOf),
  Dexie: dexieVariants,
  floor: floorVariants,
};

/** The longest time in which no other task of the page could run. */
async function longestTask(work: () => Promise<unknown>): Promise<number> {
  const { port1, port2 } = new MessageChannel();
  let last = performance.now();
  let longest = 0;
  port1.onmessage = () => {
    const now = performance.now();
    longest = Math.max(longest, now - last);
    last = now;
    port2.postMessage(0);
  };
  port2.postMessage(0);
  await new Promise((resolve) => setTimeout(resolve, 20));
  longest = 0;
  await work();
  await new Promise((resolve) => setTimeout(resolve, 0));
  port1.close();
  return longest;
}

const page = {
  variants: () =>
    Object.entries(VARIANTS).flatMap(([store, variants]) =>
      Object.keys(variants).map((variant) => [store, variant] as const),
    ),
  /** Writes the records into the stores. */
  async fill(): Promise<void> {
    await openDexie();
    for (const size of SIZES) {
      const all = Array.from({ length: size }, (_, i) => i);
      await table(size).bulkPut(all.map(rowOf), all.map(keyOf));
      const operations = all.map((i) => ({ type: "set", key: keyOf(i), value: rowOf(i) }) as const);
      await jsonOf(size).batch(operations);
      await structOf(size).batch(operations);
    }
    await store().flush();
    await store().close();
  },
  open: (store: string, variant: string) => VARIANTS[store]![variant]!.open(),
  /** Milliseconds that one list takes. */
  async time(store: string, variant: string, size: number): Promise<number> {
    const one = VARIANTS[store]![variant]!;
    const start = performance.now();
    await one.sum(size);
    return performance.now() - start;
  },
  /** Times of all variants in turn, so that a disturbance affects all of them. The first rounds are not counted. */
  async warm(size: number, rounds: number, warmUp: number): Promise<Record<string, number[]>> {
    const times: Record<string, number[]> = {};
    for (const [store, variant] of page.variants()) await page.open(store, variant);
    for (let round = -warmUp; round < rounds; round += 1) {
      for (const [store, variant] of page.variants()) {
        const ms = await page.time(store, variant, size);
        times[`${store}/${variant}`] ??= [];
        if (round >= 0) times[`${store}/${variant}`]!.push(ms);
      }
    }
    return times;
  },
  longest: (store: string, variant: string, size: number) =>
    longestTask(() => VARIANTS[store]![variant]!.sum(size)),
  /** Throws if a variant gives other contents than were written. */
  async compare(size: number): Promise<void> {
    const wanted = JSON.stringify(Array.from({ length: size }, (_, i) => sorted(rowOf(i))));
    for (const [store, variant] of page.variants()) {
      await page.open(store, variant);
      const found = JSON.stringify((await VARIANTS[store]![variant]!.rows(size)).map(sorted));
      if (found !== wanted) throw new Error(`${store}, ${variant}: other contents`);
    }
  },
};

function sorted({ updated, amount, done, title, author }: Row): Row {
  return { updated, amount, done, title, author };
}

Object.assign(globalThis, { page });
