/** The Worker of these tests: `POST /object/call` runs one of the calls below within that object. */

import { timersSet } from "./count-timers.js";

// Imported before the package, which keeps the timers that exist when it is loaded.

import {
  type Database,
  type DurableObjectStorageLike,
  databases,
  destroy,
  durableObject,
  open,
  type Storage,
} from "varve";

interface State {
  readonly storage: DurableObjectStorageLike & {
    transaction(work: () => Promise<void>): Promise<void>;
    deleteAll(): Promise<void>;
  };
}

interface Env {
  readonly OBJECTS: {
    idFromName(name: string): unknown;
    get(id: unknown): { fetch(request: Request): Promise<Response> };
  };
}

type Call = (given: string, shop: Shop) => unknown;

/** The number of objects that this isolate has made. */
let made = 0;

export class Shop {
  readonly platform: State["storage"];
  readonly sql: DurableObjectStorageLike["sql"];
  readonly storage: Storage;
  readonly opening: Promise<Database>;
  /** The number of calls of the platform's sync(). */
  syncs = 0;
  /** The limit of row numbers; above it the disk is full. */
  pages = Number.POSITIVE_INFINITY;

  constructor({ storage }: State) {
    made += 1;
    this.platform = storage;
    this.sql = storage.sql;
    const sync = () => {
      this.syncs += 1;
      return storage.sync();
    };
    const exec: DurableObjectStorageLike["sql"]["exec"] = (query, ...bindings) => {
      if (query.startsWith("INSERT") && Number(bindings[0]) >= this.pages) {
        throw new Error("database or disk is full: SQLITE_FULL");
      }
      return storage.sql.exec(query, ...bindings);
    };
    this.storage = durableObject({ sql: { exec }, sync });
    this.opening = open("shop", { storage: this.storage });
  }

  async fetch(request: Request): Promise<Response> {
    const name = new URL(request.url).pathname.split("/")[2] ?? "";
    const call = CALLS[name];
    if (call === undefined) return new Response("no such call", { status: 404 });
    try {
      return Response.json((await call(await request.text(), this)) ?? null);
    } catch (error) {
      return Response.json({ error: String(error) }, { status: 500 });
    }
  }
}

const u32 = (bytes: Uint8Array) => new DataView(bytes.buffer, bytes.byteOffset);

/** Calls on the database. All of them but opening are synchronous. */
const CALLS: Record<string, Call> = {
  async set(given, { opening }) {
    const [key = "", value = ""] = given.split("=");
    (await opening).set(key, value);
  },
  async get(given, { opening }) {
    return (await opening).getText(given);
  },
  async stock(given, { opening }) {
    const bytes = new Uint8Array(4);
    u32(bytes).setUint32(0, Number(given));
    (await opening).set("stock", bytes);
  },
  async left(_, { opening }) {
    const view = (await opening).get("stock");
    return view && u32(view).getUint32(0);
  },
  /** One sale: reduces the stock by one and stores the buyer, both or neither. */
  async buy(buyer, { opening }) {
    const db = await opening;
    return db.transaction((tx) => {
      const sold = tx.updateIf(
        "stock",
        (bytes) => u32(bytes).setUint32(0, u32(bytes).getUint32(0) - 1),
        { predicate: (bytes) => u32(bytes).getUint32(0) > 0 },
      );
      if (sold) tx.set(`sold/${buyer}`, "1");
      return sold;
    });
  },
  async buyers(_, { opening }) {
    return [...(await opening).keys({ prefix: "sold/" })].map((key) => key.slice(5));
  },
  async undone(_, { opening }) {
    const db = await opening;
    try {
      db.transaction((tx) => {
        tx.set("undone", "1");
        throw new Error("never mind");
      });
    } catch {
      return db.has("undone");
    }
    return "it did not throw";
  },
  /**
   * Writes a value of this length within a failing transaction of the Durable Object, and twice afterwards. Returns
   * the results of the later writes, and whether the file is intact when it is opened again.
   */
  async torn(length, shop) {
    const db = await shop.opening;
    db.set("before", "1");
    db.commit();
    const transaction = shop.platform.transaction(async () => {
      db.set("within", new Uint8Array(Number(length)).fill(7));
      await db.committed;
      throw new Error("never mind");
    });
    await transaction.catch(() => {});
    const reported = [await refused(() => db.set("after", "1"), db)];
    reported.push(await refused(() => db.set("after", "2"), db));
    return [...reported, ...(await reopened(shop, db))];
  },
  async emptied(_, shop) {
    const db = await shop.opening;
    db.set("before", "1");
    db.commit();
    await shop.platform.deleteAll();
    return [await refused(() => db.set("after", "1"), db), ...(await reopened(shop, db))];
  },
  async twice(_, { storage, opening }) {
    const other = await open("shop", { storage });
    other.set("by another handle", "seen");
    await other.close();
    return (await opening).getText("by another handle");
  },
  async flushed(_, { opening }) {
    const db = await opening;
    db.set("kept", "1");
    await db.flushed;
    return db.stats().unflushed;
  },
  async synced(_, shop) {
    const db = await shop.opening;
    const before = shop.syncs;
    db.set("synced", "1");
    await db.committed;
    const between = shop.syncs;
    await db.flushed;
    return [between - before, shop.syncs - between];
  },
  made: () => made,
  /** The memory and time for 300 values of 50 KB that were written and read in any order. */
  async sizes(_, { opening, sql }) {
    const db = await opening;
    for (let i = 0; i < 300; i++) {
      db.set(`size/${i}`, crypto.getRandomValues(new Uint8Array(50_000)));
      if (i % 10 === 0) await Promise.resolve();
    }
    for (let i = 0; i < 300; i++) {
      db.get(`size/${(i * 77) % 300}`);
      if (i % 10 === 0) await Promise.resolve();
    }
    const query = 'SELECT max(length(bytes)) AS longest, count(*) AS pages FROM "shop.varve"';
    const [rows] = sql.exec(query).toArray();
    const { budgetBytes, memoryBytes, wasmBytes } = db.stats();
    return { ...rows, budgetBytes, memoryBytes, wasmBytes };
  },
  /** Fills the database until there is no space, and frees some. */
  async full(_, shop) {
    const db = await shop.opening;
    const value = new Uint8Array(10_000).fill(7);
    shop.pages = 400;
    let written = 0;
    let refused = "nothing";
    for (; written < 5_000 && refused === "nothing"; written++) {
      try {
        db.set(`full/${written}`, value);
        db.commit();
      } catch (error) {
        refused = (error as { code: string }).code;
      }
    }
    const isThere = db.get("full/0")?.length === 10_000;
    const kept = db.count({ prefix: "full/" });
    db.clear({ prefix: "full/" });
    await db.compact();
    db.set("after", "1");
    db.commit();
    return { written, refused, isThere, kept, after: db.getText("after") };
  },
  async exported(_, { opening }) {
    const from = await new Response((await opening).export()).arrayBuffer();
    const copy = await open("copy", { from, readOnly: true });
    return [copy.getText("key"), copy.count(), timersSet()];
  },
  /** Fills another database with the bytes of this one, and replaces it. Returns the results. */
  async filled(_, { opening, storage, sql }) {
    const db = await opening;
    const exported = () =>
      new Response(db.export()).body as ReadableStream<Uint8Array<ArrayBuffer>>;
    const reported: unknown[] = [];
    const filled = async (from: ReadableStream<Uint8Array<ArrayBuffer>>, replace: boolean) => {
      try {
        await using copy = await open("copy", { storage, from, replace });
        reported.push(copy.getText("key"), (await copy.verify()).ok);
        copy.set("more", "1");
      } catch (error) {
        reported.push((error as { code: string }).code);
      }
    };
    await filled(exported(), false);
    await filled(exported(), false);
    db.set("key", "two");
    const whole = await new Response(exported()).arrayBuffer();
    const damaged = new Blob([whole.slice(0, 8_300)]).stream();
    await filled(damaged as ReadableStream<Uint8Array<ArrayBuffer>>, true);
    await using old = await open("copy", { storage });
    reported.push(old.getText("key"), old.count());
    await old.close();
    await filled(exported(), true);
    await using last = await open("copy", { storage });
    reported.push(last.count(), await databases({ storage }));
    await last.close();
    const tables = sql.exec("SELECT name FROM sqlite_master WHERE name LIKE 'copy%'").toArray();
    return [...reported, tables.length, await destroy("copy", { storage })];
  },
  /** Overwrites 200 values of 10 KB twenty times, a turn each. */
  async churn(_, { opening }) {
    const db = await opening;
    const value = new Uint8Array(10_000);
    const before = timersSet();
    for (let turn = 0; turn < 4_000; turn++) {
      crypto.getRandomValues(value);
      db.set(`churn/${turn % 200}`, value);
      await Promise.resolve();
    }
    const { fileBytes, liveBytes } = db.stats();
    return { timers: timersSet() - before, fileBytes, liveBytes };
  },
  async compact(_, { opening }) {
    const db = await opening;
    db.clear({ prefix: "churn/" });
    await db.compact();
    const { ok } = await db.verify();
    return { ok, fileBytes: db.stats().fileBytes };
  },
  async storages(_, { storage }) {
    const db = await open("Another Shop", { storage });
    db.set("key", "value");
    await db.close();
    const names = await databases({ storage });
    const there = [await destroy("Another Shop", { storage }), await destroy("none", { storage })];
    return { names, there, after: await databases({ storage }) };
  },
  async missing(_, { storage }) {
    return codeOf(open("none", { storage, readOnly: true }));
  },
  async busy(_, { storage }) {
    return codeOf(storage.open("shop"));
  },
  file: (_, { storage }) => comparedFile(storage),
};

/** The result of a write, with all causes of its error. */
async function refused(write: () => void, db: Database): Promise<string> {
  try {
    write();
    db.commit();
    return "kept";
  } catch (error) {
    const reported = [(error as { code: string }).code];
    for (let next = error; next instanceof Error; next = next.cause) reported.push(next.message);
    return reported.join(" ");
  }
}

async function reopened({ storage }: Shop, old: Database): Promise<unknown[]> {
  await old.close().catch(() => {});
  await using db = await open("shop", { storage });
  db.set("again", "1");
  db.commit();
  return [(await db.verify()).ok, [...db.keys()]];
}

async function codeOf(promise: Promise<unknown>): Promise<string> {
  return promise.then(
    () => "none",
    (error: { code?: string; message: string }) => `${error.code} ${error.message}`,
  );
}

/** Random calls on a file, compared with the same on an array. Returns the first difference, if any. */
async function comparedFile(storage: Storage): Promise<string> {
  const { file } = await storage.open("compared");
  let model = new Uint8Array(0);
  const resize = (size: number) => {
    const next = new Uint8Array(size);
    next.set(model.subarray(0, size));
    model = next;
  };
  let seed = 1;
  const random = (below: number) => {
    seed = (Math.imul(seed, 1_103_515_245) + 12_345) >>> 0;
    return Math.floor((seed / 2 ** 32) * below);
  };
  let handle = file;
  for (let step = 0; step < 1_500; step++) {
    const what = random(10);
    const at = random(3) === 0 ? model.length : random(150_000);
    if (what < 5) {
      const bytes = new Uint8Array(random(2) === 0 ? random(200) : random(70_000));
      bytes.fill(1 + random(255));
      if (handle.write(bytes, { at }) !== bytes.length) return `step ${step}: a short write`;
      if (bytes.length > 0 || at > model.length) resize(Math.max(model.length, at + bytes.length));
      model.set(bytes, at);
    } else if (what < 7) {
      handle.truncate(at);
      resize(at);
    } else if (what < 8) {
      handle.close();
      handle = (await storage.open("compared")).file;
    }
    const read = new Uint8Array(random(80_000)).fill(7);
    const from = random(150_000);
    const count = handle.read(read, { at: from });
    const wanted = model.subarray(from, from + read.length);
    if (count !== wanted.length) return `step ${step}: ${count} bytes read of ${wanted.length}`;
    if (!read.subarray(0, count).every((byte, i) => byte === wanted[i]))
      return `step ${step}: read`;
    if (handle.getSize() !== model.length) return `step ${step}: the size`;
  }
  handle.close();
  return "the same";
}

/** Outside of any object. */
async function outside(): Promise<string[]> {
  return [
    await codeOf(open("shop")),
    await codeOf(open("shop", { storage: durableObject({} as DurableObjectStorageLike) })),
    await codeOf((async () => durableObject(undefined as never))()),
  ];
}

export default {
  async fetch(request: Request, env: Env): Promise<Response> {
    const object = new URL(request.url).pathname.split("/")[1] ?? "";
    if (object === "") return Response.json(await outside());
    return env.OBJECTS.get(env.OBJECTS.idFromName(object)).fetch(request);
  },
};
