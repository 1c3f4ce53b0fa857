/** Calls, each measured beside a `Map` in the same process. */

import { connect, memory, open, serve } from "varve";
import { json, str, struct, u32 } from "varve/struct";

const KEYS = 1_000;
const BATCH = 100;
const WARM_UP = 30;
const ROUNDS = 51;

/** Names of calls, and how many times the time of a `Map`'s `get` each of them takes for a key. */
export type Ratios = Readonly<Record<string, number>>;

const Product = struct("Product", { name: str, stock: u32 });

const touch = (bytes: Uint8Array) => {
  bytes[0] = 1;
};
const ifTouched = { predicate: (bytes: Uint8Array) => bytes[0] === 1 };
const fill = (product: { stock: number }) => {
  product.stock = 10;
};
const ifInStock = { predicate: (product: { stock: number }) => product.stock > 0 };

interface Note {
  text: string;
}

type Call = () => void | Promise<void>;

/** Measures every call: the lower quartiles of many rounds, since other programs only make a call longer. */
export async function measure(wasm?: WebAssembly.Module): Promise<Ratios> {
  // One after the other: with two databases in a process, calls of both take longer than in most programs.
  return { ...(await ofDatabase(wasm)), ...(await ofClient(wasm)) };
}

function keysInMixedOrder(): string[] {
  return Array.from({ length: KEYS }, (_, index) => `product-${(index * 7919) % KEYS}`);
}

async function ofDatabase(wasm?: WebAssembly.Module): Promise<Ratios> {
  const keys = keysInMixedOrder();
  const batches = Array.from({ length: KEYS / BATCH }, (_, index) =>
    keys.slice(index * BATCH, (index + 1) * BATCH),
  );
  const map = new Map(keys.map((key) => [key, new Uint8Array(100).fill(1)]));
  const db = await open("speed", { storage: memory(), ...(wasm && { wasm }) });
  const products = db.collection("products", Product, { indexes: { byStock: "stock" } });
  const notes = db.collection("notes", json<Note>());
  const value = new Uint8Array(100).fill(1);
  const product = { name: "a right shoe", stock: 10 };
  for (const key of keys) {
    db.set(key, value);
    products.set(key, product);
    notes.set(key, { text: "a note" });
  }
  let sum = 0;
  const each = (call: (key: string) => unknown) => () => {
    for (const key of keys) sum += Number(call(key) ?? 0);
  };
  const get = each((key) => map.get(key)?.[0]);
  const calls: Record<string, Call> = {
    get: each((key) => db.get(key)?.[0]),
    getText: each((key) => db.getText(key)?.length),
    has: each((key) => db.has(key)),
    set: each((key) => db.set(key, value)),
    updateIf: each((key) => db.updateIf(key, touch, ifTouched)),
    "delete and set": each((key) => {
      db.delete(key);
      db.set(key, value);
    }),
    getMany: () => {
      for (const batch of batches) for (const found of db.getMany(batch)) sum += Number(found?.[0]);
    },
    entries: () => {
      for (const [, bytes] of db.entries()) sum += Number(bytes[0]);
    },
    "entries of ranges of 100": () => {
      for (const [first] of batches) {
        for (const [, bytes] of db.entries({ gte: first as string, limit: BATCH })) {
          sum += Number(bytes[0]);
        }
      }
    },
    transaction: () => {
      db.transaction(() => {
        for (const key of keys) db.set(key, value);
      });
    },
    "get of a struct": each((key) => products.get(key)?.stock),
    "set of a struct": each((key) => products.set(key, product)),
    "updateIf of a struct": each((key) => products.updateIf(key, fill, ifInStock)),
    "entries of an index": () => {
      for (const [, { stock }] of products.index.byStock.entries()) sum += stock;
    },
    "get of JSON": each((key) => notes.get(key)?.text.length),
  };
  const ratios = await ratiosOf(get, calls, () => db.commit());
  await db.close();
  if (!(sum > 0)) throw new Error("the calls found nothing");
  return ratios;
}

/** A client in the same process, whose calls are messages through a port. */
async function ofClient(wasm?: WebAssembly.Module): Promise<Ratios> {
  const keys = keysInMixedOrder();
  const value = new Uint8Array(100).fill(1);
  const map = new Map(keys.map((key) => [key, value]));
  const { here } = serve("speed", { storage: memory(), ...(wasm && { wasm }) });
  const client = connect("speed", { worker: here });
  await client.batch(keys.map((key) => ({ type: "set", key, value })));
  let sum = 0;
  const get = () => {
    for (const key of keys) sum += Number(map.get(key)?.[0]);
  };
  const calls: Record<string, Call> = {
    // In one message.
    "get of a client": async () => {
      for (const found of await Promise.all(keys.map((key) => client.get(key)))) {
        sum += Number(found?.[0]);
      }
    },
    "entries of a client": async () => {
      for (const [, bytes] of await client.entries().all()) sum += Number(bytes[0]);
    },
  };
  const ratios = await ratiosOf(get, calls, () => client.commit());
  await client.close();
  if (!(sum > 0)) throw new Error("the calls found nothing");
  return ratios;
}

async function ratiosOf(
  get: () => void,
  calls: Readonly<Record<string, Call>>,
  commit: Call,
): Promise<Ratios> {
  const measured = Object.entries(calls).map(([name, call]) => ({
    name,
    call,
    ratios: [] as number[],
  }));
  for (let round = -WARM_UP; round < ROUNDS; round += 1) {
    for (const { call, ratios } of measured) {
      // Right before and after, so that other programs slow down both.
      const before = timeOf(get);
      const start = performance.now();
      const done = call();
      // Not awaited otherwise: the calls of a round are of one turn.
      if (done !== undefined) await done;
      const time = performance.now() - start;
      const beside = (before + timeOf(get)) / 2;
      if (round >= 0) ratios.push(time / beside);
      const committed = commit();
      if (committed !== undefined) await committed;
    }
    // Ends the turn, as programs do.
    await new Promise((resolve) => setTimeout(resolve));
  }
  return Object.fromEntries(measured.map(({ name, ratios }) => [name, lowerQuartile(ratios)]));
}

function lowerQuartile(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b)[values.length >> 2] as number;
}

function timeOf(work: () => void): number {
  const start = performance.now();
  work();
  return performance.now() - start;
}
