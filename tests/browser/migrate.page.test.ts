import { type Client, connect, destroy } from "varve";
import { fromIndexedDB, fromLocalStorage, type MigrationProgress } from "varve/migrate";
import { type json, str, struct, timestamp, u16 } from "varve/struct";
import { assert, describe, expect, onTestFinished, test } from "vitest";
import { context } from "../support/context.js";
import { rejects } from "../support/errors.js";
import { contents, oldDatabase, settled } from "./old-stores.js";

const Product = struct("Product", { name: str, stock: u16, since: timestamp });

/** A worker that serves collections of each kind. */
function worker(name: string): Worker {
  const { root } = context();
  const source = `
    import { serve } from "${root}/dist/serve.js";
    import { f64, json, str, struct, text, timestamp, u16 } from "${root}/dist/struct.js";
    const Product = struct("Product", { name: str, stock: u16, since: timestamp });
    // As a codec that keeps what structured clone keeps, of dates.
    const dates = {
      encode: (value) => new TextEncoder().encode(JSON.stringify(value.map(Number))),
      decode: (bytes) => JSON.parse(new TextDecoder().decode(bytes)).map((ms) => new Date(ms)),
    };
    serve("${name}", { collections: { products: Product, unknown: Product, notes: json(), texts: text(), dates,
      rows: { of: json(), key: f64 } } });`;
  const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
  return new Worker(url, { type: "module" });
}

interface Served {
  procedures: Record<never, never>;
  collections: {
    products: typeof Product;
    unknown: typeof Product;
    notes: ReturnType<typeof json<unknown>>;
    texts: ReturnType<typeof json<string>>;
    dates: ReturnType<typeof json<Date[]>>;
    rows: { of: ReturnType<typeof json<unknown>>; key: typeof import("varve/struct").f64 };
  };
}

async function shop(name = "migrated") {
  await destroy(name);
  const client = connect<Served>(name, {
    worker: () => worker(name),
    collections: { products: Product } as never,
  });
  onTestFinished(() => client.close());
  return client;
}

const REFUSED = { name: "MigrationError", code: "VARVE_MIGRATION" };

describe("moving old data from a page, by a client", () => {
  test("page: stores of every kind arrive in the worker's collections, and in raw keys", async () => {
    const since = new Date(5);
    await oldDatabase("old", {
      products: [["yeezy", { name: "Boost", stock: 3, since }]],
      unknown: [["yeezy", { name: "Boost", stock: 3, since }]],
      notes: [["a", { deep: [1, { b: null }] }]],
      texts: [["a", "é"]],
      dates: [["a", [new Date(7)]]],
      files: [
        ["bytes", new Uint8Array([1, 2])],
        ["text", "abc"],
      ],
    });
    const before = await contents("old", "files");
    const client = await shop();
    const at = client.collection.bind(client);
    const stores = {
      products: at("products"),
      unknown: at("unknown"),
      notes: at("notes"),
      texts: at("texts"),
      dates: at("dates"),
      files: client,
    };
    const result = await fromIndexedDB("old", { to: client, stores });
    const counts = Object.entries(result.stores).map(([name, { records }]) => [name, records]);
    expect(counts.map(([, records]) => records)).toStrictEqual([1, 1, 1, 1, 1, 2]);
    const product = { name: "Boost", stock: 3, since: 5 };
    expect(await at("products").get("yeezy")).toStrictEqual(product);
    expect(await at("unknown").get("yeezy")).toStrictEqual(product);
    expect(await at("notes").get("a")).toStrictEqual({ deep: [1, { b: null }] });
    expect(await at("texts").get("a")).toBe("é");
    expect(await at("dates").get("a")).toStrictEqual([new Date(7)]);
    expect(await client.get("bytes")).toStrictEqual(new Uint8Array([1, 2]));
    expect(await client.getText("text")).toBe("abc");
    expect(await contents("old", "files")).toStrictEqual(before);
    expect((await fromIndexedDB("old", { to: client, stores })).before).toBe(true);
  });

  test("page: what JSON or the page's schema would change, and wrong keys, are refused before anything is written", async () => {
    const client = await shop();
    const cases = [
      ["notes", "a", { at: new Date(5) }, ".at"],
      ["notes", "a", { map: new Map() }, ".map"],
      ["products", "a", { name: "x", stock: -1, since: 0 }, "stock"],
      ["texts", "a", new Blob(["a"]), "Blob"],
      ["notes", 5, "number", "strings"],
    ] as const;
    for (const [name, key, value, part] of cases) {
      const good = name === "products" ? { name: "x", stock: 1, since: 0 } : "good";
      await oldDatabase("old", {
        store: [
          [0, good],
          [key, value],
        ],
      });
      const into = client.collection(name);
      const map = typeof key === "string" ? String : undefined;
      const moving = fromIndexedDB("old", { to: client, stores: { store: { into, key: map } } });
      const error = await rejects(moving, REFUSED);
      assert(error.message.includes(part), error.message);
      assert(/The record ("a"|0|5) of "store"/.test(error.message), error.message);
      expect(await into.count()).toBe(0);
      expect(await client.count(), "nor a mark").toBe(0);
    }
  });

  test("page: what only the worker knows ends it at that record, and names it", async () => {
    const good = { name: "x", stock: 1, since: 0 };
    const pairs = Array.from({ length: 700 }, (_, i) => {
      const value = i === 500 ? { ...good, stock: -1 } : good;
      return [`p${1_000 + i}`, value] as const;
    });
    await oldDatabase("old", { unknown: pairs });
    const client = await shop();
    // The page has no schema of this one.
    const unknown = client.collection("unknown");
    const error = await rejects(fromIndexedDB("old", { to: client, stores: { unknown } }), {
      ...REFUSED,
      message: 'The record "p1500" of "unknown" cannot be moved: ',
    });
    assert(error.message.includes("stock"), error.message);
    expect(await unknown.count(), "those before it").toBe(500);
    const value = (product: { stock: number }) => ({
      ...product,
      stock: Math.max(0, product.stock),
    });
    const stores = { unknown: { into: unknown, value } };
    await fromIndexedDB("old", { to: client, stores });
    expect(await unknown.count()).toBe(700);
    expect((await unknown.get("p1500"))?.stock).toBe(0);
  });

  test("page: a key that is there is refused, also one that comes while it copies", async () => {
    const pairs = Array.from({ length: 3_000 }, (_, i) => [i, { n: i }] as const);
    await oldDatabase("old", { rows: pairs });
    const client = await shop();
    const rows = client.collection("rows");
    await rows.set(2_999, "mine");
    const moving = () => fromIndexedDB("old", { to: client, stores: { rows } });
    await rejects(moving, { ...REFUSED, message: "has a record with the key 2999 already" });
    expect(await rows.count()).toBe(1);
    await rows.delete(2_999);
    let written: Promise<void> | undefined;
    const onProgress = ({ phase }: MigrationProgress) => {
      if (phase === "copying") written ??= rows.set(2_999, "mine");
    };
    await rejects(fromIndexedDB("old", { to: client, stores: { rows }, onProgress }), {
      ...REFUSED,
      message: "has a record with the key 2999 already",
    });
    await written;
    expect(await rows.get(2_999)).toBe("mine");
    await rows.delete(2_999);
    await moving();
    expect(await rows.entries().all()).toStrictEqual(pairs);
  });

  test("page: a page that is gone in the middle leaves nothing twice, and the next one goes on", async () => {
    const pairs = Array.from({ length: 6_000 }, (_, i) => [i, { n: i }] as const);
    await oldDatabase("old", { rows: pairs });
    const name = "migrated-frame";
    await destroy(name);
    const source = URL.createObjectURL(new Blob([frameSource(name)], { type: "text/javascript" }));
    const frame = document.createElement("iframe");
    document.body.append(frame);
    const reached = new Promise<number>((resolve) => {
      addEventListener("message", ({ data }) => typeof data === "number" && resolve(data));
    });
    const script = (frame.contentDocument as Document).createElement("script");
    script.type = "module";
    script.src = source;
    frame.contentDocument?.body.append(script);
    const copied = await reached;
    frame.remove();
    assert(copied >= 1_000 && copied < 6_000, `${copied}`);
    const client = connect<Served>(name, { worker: () => worker(name) });
    onTestFinished(() => client.close());
    const rows = client.collection("rows");
    expect(await rows.count()).toBe(copied);
    let first: MigrationProgress | undefined;
    const onProgress = (now: MigrationProgress) => {
      if (now.phase === "copying") first ??= now;
    };
    await fromIndexedDB("old", { to: client, stores: { rows }, onProgress });
    assert((first?.records ?? 0) > copied, "it does not begin again");
    expect(await rows.entries().all()).toStrictEqual(pairs);
  });

  test("page: the items of localStorage arrive, those of a prefix, and as what they mean", async () => {
    localStorage.clear();
    onTestFinished(() => localStorage.clear());
    for (let i = 0; i < 1_500; i++) localStorage.setItem(`todo/${i}`, JSON.stringify({ i }));
    localStorage.setItem("theme", "dark");
    localStorage.setItem("odd", "\ud800");
    const client = await shop();
    const notes = client.collection("notes");
    const options = {
      to: client,
      into: notes,
      prefix: "todo/",
      key: (item: string) => item.slice(5),
      value: (text: string) => JSON.parse(text) as unknown,
    };
    const result = await fromLocalStorage(options);
    expect(result.stores).toStrictEqual({ localStorage: { records: 1_500, skipped: 0 } });
    expect(await notes.count()).toBe(1_500);
    expect(await notes.get("1499")).toStrictEqual({ i: 1_499 });
    expect((await fromLocalStorage(options)).before).toBe(true);
    const raw = { to: client, into: client as Client };
    await rejects(fromLocalStorage(raw), { ...REFUSED, message: "lone surrogates" });
    localStorage.removeItem("odd");
    await fromLocalStorage({
      ...raw,
      value: (text: string, key: string) => (key === "theme" ? text : undefined),
    });
    expect(await client.getText("theme")).toBe("dark");
    expect(localStorage.length).toBe(1_501);
  });

  test("page: where storage is denied, as in a sandboxed frame, it says so", async () => {
    const client = await shop();
    const denied = () => {
      throw new DOMException("The document has no origin.", "SecurityError");
    };
    for (const [name, property] of [
      ["indexedDB", { value: { open: denied } }],
      ["localStorage", { get: denied }],
    ] as const) {
      const own = Object.getOwnPropertyDescriptor(globalThis, name) as PropertyDescriptor;
      onTestFinished(() => {
        Object.defineProperty(globalThis, name, own);
      });
      Object.defineProperty(globalThis, name, { ...property, configurable: true });
    }
    const message = "is denied here: The document has no origin.";
    const wanted = { ...REFUSED, message, cause: true };
    await rejects(fromIndexedDB("old", { to: client, stores: { a: client } }), wanted);
    await rejects(fromLocalStorage({ to: client, into: client }), wanted);
  });

  test("page: two tabs move the data once", async () => {
    const pairs = Array.from({ length: 2_000 }, (_, i) => [i, { n: i }] as const);
    await oldDatabase("old", { rows: pairs });
    const client = await shop();
    const rows = client.collection("rows");
    const other = connect<Served>("migrated", { worker: () => worker("migrated") });
    onTestFinished(() => other.close());
    const both = await Promise.all([
      fromIndexedDB("old", { to: client, stores: { rows } }),
      fromIndexedDB("old", { to: other, stores: { rows: other.collection("rows") } }),
    ]);
    expect(both.map(({ before }) => before).sort()).toStrictEqual([false, true]);
    expect(await rows.entries().all()).toStrictEqual(pairs);
  });

  test("page: it ends when its signal is aborted, and goes on afterwards", async () => {
    const pairs = Array.from({ length: 3_000 }, (_, i) => [i, { n: i }] as const);
    await oldDatabase("old", { rows: pairs });
    const client = await shop();
    const rows = client.collection("rows");
    const controller = new AbortController();
    const onProgress = ({ phase, records }: MigrationProgress) =>
      phase === "copying" && records > 500 && controller.abort(new Error("enough"));
    const { signal } = controller;
    await rejects(fromIndexedDB("old", { to: client, stores: { rows }, onProgress, signal }), {
      message: "enough",
    });
    const there = await rows.count();
    assert(there > 0 && there < 3_000, `${there}`);
    await fromIndexedDB("old", { to: client, stores: { rows } });
    expect(await rows.entries().all()).toStrictEqual(pairs);
    await settled(indexedDB.deleteDatabase("old"));
  });
});

/** A program that migrates, and stops in the middle of copying until its frame is removed. */
function frameSource(name: string): string {
  const { root } = context();
  return `
    import { connect } from "${root}/dist/client/index.js";
    import { fromIndexedDB } from "${root}/dist/extensions/migrate/index.js";
    const program = 'import { serve } from "${root}/dist/serve.js"; import { f64, json } from "${root}/dist/struct.js";' +
      'serve("${name}", { collections: { rows: { of: json(), key: f64 } } });';
    const url = URL.createObjectURL(new Blob([program], { type: "text/javascript" }));
    const client = connect("${name}", { worker: () => new Worker(url, { type: "module" }) });
    const rows = client.collection("rows");
    let isReached = false;
    const value = (old) => isReached ? new Promise(() => {}) : old;
    await fromIndexedDB("old", { to: client, stores: { rows: { into: rows, value } }, onProgress({ phase, records }) {
      if (phase !== "copying" || records < 1_000 || isReached) return;
      isReached = true;
      parent.postMessage(records);
    } });`;
}
