import { type Client, connect, type Database, memory, type Served, serve } from "varve";
import {
  auto,
  blob,
  bytes,
  i64,
  json,
  option,
  str,
  struct,
  text,
  timestamp,
  u16,
  u32,
  vec,
} from "varve/struct";
import { assert, describe, expect, onTestFinished, test } from "vitest";
import { wasmOption } from "../support/context.js";
import { rejects, throws } from "../support/errors.js";
import { turn } from "../support/values.js";
import { shop } from "./support.js";

const Note = struct("Note", {
  at: timestamp,
  amount: i64,
  count: u16,
  title: str,
  tags: vec(str),
  mark: option(u32),
  photo: blob,
  hash: bytes(4),
});

function noteOf(i: number) {
  return {
    at: 1_700_000_000_000 + i,
    amount: BigInt(i) * -3n,
    count: i % 1_000,
    title: `note ${i} ${i % 3 === 0 ? "ü€😀" : ""}`,
    tags: i % 2 === 0 ? [] : ["a", `tag ${i}`],
    mark: i % 5 === 0 ? undefined : i,
    photo: Uint8Array.of(i & 0xff, 1, 2),
    hash: Uint8Array.of(i & 0xff, 0, 0, 9),
  };
}

function keyOf(i: number): string {
  return `n/${String(i).padStart(5, "0")}`;
}

const collections = {
  notes: { of: Note, indexes: { byCount: "count" } },
  numbered: { of: Note, key: auto() },
  pairs: { of: Note, key: [str, u32] },
  sessions: json<unknown>(),
  texts: text(),
} as const;

async function over<T>(rows: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const row of rows) found.push(row);
  return found;
}

/** A client with other declarations of collections than those that the worker serves. */
function shopOf<C extends object>(declared: C) {
  const { port1, port2 } = new MessageChannel();
  serve("shop", { storage: memory(), ...wasmOption(), collections }).listen(port1);
  const client = connect<Served<Record<never, never>, typeof collections>>("shop", {
    worker: () => port2,
    collections: declared as Record<keyof typeof collections, unknown>,
  });
  onTestFinished(async () => {
    await (client as Client).close();
    port1.close();
  });
  return client;
}

/** The reads of a scan. */
interface Inside {
  read(...args: unknown[]): Promise<unknown>;
}

/** Counts the pages that a scan asks for. */
function counted(scan: object): { pages: number } {
  const count = { pages: 0 };
  const { read } = scan as Inside;
  Object.assign(scan, {
    read: (...args: unknown[]) => {
      count.pages += 1;
      return read(...args);
    },
  });
  return count;
}

describe("lists", () => {
  test("lists: they are the same with the page's schema as without it, for every kind of key", async () => {
    const declared = Object.fromEntries(Object.keys(collections).map((name) => [name, true]));
    for (const client of [shopOf(collections), shopOf(declared)]) {
      const wanted = Array.from({ length: 300 }, (_, i) => noteOf(i));
      await client.notes.batch(wanted.map((value, i) => ({ type: "set", key: keyOf(i), value })));
      await client.numbered.batch(wanted.map((value, i) => ({ type: "set", key: i + 1, value })));
      await client.pairs.batch(
        wanted.map((value, i) => ({ type: "set", key: ["p", i] as const, value })),
      );
      expect(await client.notes.values().all()).toStrictEqual(wanted);
      expect(await over(client.notes.values())).toStrictEqual(wanted);
      expect(await client.numbered.entries({ gt: 298 }).all()).toStrictEqual([
        [299, wanted[298]],
        [300, wanted[299]],
      ]);
      expect(await over(client.pairs.keys({ reverse: true, limit: 2 }))).toStrictEqual([
        ["p", 299],
        ["p", 298],
      ]);
      expect(await over(client.pairs.entries())).toStrictEqual(
        wanted.map((value, i) => [["p", i], value]),
      );
      expect(await client.notes.getMany([keyOf(7), "none", keyOf(8)])).toStrictEqual([
        wanted[7],
        undefined,
        wanted[8],
      ]);
      const { byCount } = client.notes.index;
      expect(await byCount.entries({ lt: 2 }).all()).toStrictEqual([
        [keyOf(0), wanted[0]],
        [keyOf(1), wanted[1]],
      ]);
      expect(await over(byCount.values({ reverse: true, limit: 1 }))).toStrictEqual([wanted[299]]);
      expect(await over(byCount.keys({ eq: 5 }))).toStrictEqual([keyOf(5)]);
    }
  });

  test("lists: rows of many buffers come in order, as of one moment", async () => {
    const client = shop({ collections });
    const wanted = Array.from({ length: 5_000 }, (_, i) => ({ i, text: "ü".repeat(i % 200) }));
    await client.sessions.batch(wanted.map((value, i) => ({ type: "set", key: keyOf(i), value })));
    const listed = client.sessions.values().all();
    const cleared = client.sessions.clear();
    expect(await listed).toStrictEqual(wanted);
    expect(await cleared).toBe(5_000);
    expect(await client.sessions.values().all()).toStrictEqual([]);
    expect(await over(client.sessions.entries())).toStrictEqual([]);
  });

  test("lists: values larger than a buffer, and empty ones", async () => {
    const client = shop({ collections });
    const values = ["", "x".repeat(700_000), "y", "ü".repeat(300_000), ""];
    for (const [i, value] of values.entries()) {
      await client.texts.set(keyOf(i), value);
      await client.sessions.set(keyOf(i), { value });
      await client.set(keyOf(i), value);
    }
    const objects = values.map((value) => ({ value }));
    const raw = values.map((value) => new TextEncoder().encode(value));
    expect(await client.texts.values().all()).toStrictEqual(values);
    expect(await over(client.texts.values())).toStrictEqual(values);
    expect(await client.sessions.values().all()).toStrictEqual(objects);
    expect(await over(client.sessions.values({ reverse: true }))).toStrictEqual(objects.reverse());
    expect(await client.values().all()).toStrictEqual(raw);
    expect(await over(client.values())).toStrictEqual(raw);
    const keys = values.map((_, i) => keyOf(i));
    expect(await client.texts.getMany(keys)).toStrictEqual(values);
    expect(await client.getMany([...keys, "none"])).toStrictEqual([...raw, undefined]);
  });

  test("lists: those of an index are as of one moment, of several buffers too", async () => {
    const { notes } = shop({ collections });
    const wanted = Array.from({ length: 4_000 }, (_, i) => ({ ...noteOf(i), count: i }));
    await notes.batch(wanted.map((value, i) => ({ type: "set", key: keyOf(i), value })));
    const { byCount } = notes.index;
    expect(await byCount.values().all()).toStrictEqual(wanted);
    expect(await over(byCount.values())).toStrictEqual(wanted);
    const entries = wanted.map((value, i) => [keyOf(i), value]).reverse();
    expect(await over(byCount.entries({ reverse: true }))).toStrictEqual(entries);
    const views = await over(notes.views.index.byCount.entries({ reverse: true }));
    expect(views.map(([key, view]) => [key, view.snapshot()])).toStrictEqual(entries);
  });

  test("lists: a missing value is undefined and not null, wherever it is among the keys", async () => {
    const client = shop({ collections });
    const large = "x".repeat(200_000);
    for (const [key, value] of Object.entries({ a: null, b: large, c: large, d: 0 })) {
      await client.sessions.set(key, value);
    }
    const keys = ["no", "a", "b", "no", "c", "no", "no", "d", "no"];
    const found = [undefined, null, large, undefined, large, undefined, undefined, 0, undefined];
    expect(await client.sessions.getMany(keys)).toStrictEqual(found);
    expect(await client.sessions.getMany([])).toStrictEqual([]);
    expect(await client.sessions.getMany(["no"])).toStrictEqual([undefined]);
  });

  test("lists: each value of raw keys is a copy with a buffer of its own", async () => {
    const client = shop();
    await client.batch(["a", "b"].map((key) => ({ type: "set", key, value: key })));
    const [a, b] = await client.values().all();
    assert(a && b);
    expect([a.buffer.byteLength, b.buffer.byteLength]).toStrictEqual([1, 1]);
    structuredClone(a, { transfer: [a.buffer] });
    expect(b).toStrictEqual(Uint8Array.of(98));
  });

  test("lists: a key that is not text is refused unless bytes are asked for", async () => {
    const client = shop();
    await client.set(Uint8Array.of(0xff, 1), "value");
    await rejects(client.keys().all(), { name: "TypeError", message: /keyAs: "bytes"/ });
    await rejects(over(client.entries()), { name: "TypeError", message: /keyAs: "bytes"/ });
    expect(await over(client.entries({ keyAs: "bytes" }))).toStrictEqual([
      [Uint8Array.of(0xff, 1), new TextEncoder().encode("value")],
    ]);
    expect((await client.values().all()).length).toBe(1);
  });
});

describe("lists of views", () => {
  test("views: they are of the same records, keys and order, by ranges, keys and indexes", async () => {
    const { notes, pairs } = shop({ collections });
    const wanted = Array.from({ length: 2_000 }, (_, i) => noteOf(i));
    await notes.batch(wanted.map((value, i) => ({ type: "set", key: keyOf(i), value })));
    await pairs.set(["a", 1], noteOf(1));
    const listed = await notes.views.values().all();
    expect(listed.map((view) => view.snapshot())).toStrictEqual(wanted);
    const looped = await over(notes.views.entries({ reverse: true }));
    expect(looped.map(([key, view]) => [key, view.snapshot()])).toStrictEqual(
      wanted.map((value, i) => [keyOf(i), value]).reverse(),
    );
    const [first, none] = await notes.views.getMany([keyOf(3), "none"]);
    expect([first?.title, first?.mark, none]).toStrictEqual(["note 3 ü€😀", 3, undefined]);
    const indexed = await notes.views.index.byCount.values({ eq: 7 }).all();
    expect(indexed.map(({ at }) => at)).toStrictEqual([wanted[7]?.at, wanted[1_007]?.at]);
    expect(await notes.views.keys({ limit: 1 }).all()).toStrictEqual([keyOf(0)]);
    const [[key, view] = []] = await pairs.views.entries().all();
    expect([key, [...(view?.tags ?? [])][1]]).toStrictEqual([["a", 1], "tag 1"]);
  });

  test("views: they stay as they are while the record changes and other lists are read", async () => {
    const client = shop({ collections });
    await client.notes.set("a", noteOf(1));
    const [view] = await client.notes.views.values().all();
    await client.notes.set("a", noteOf(2));
    await client.notes.views.values().all();
    await client.notes.delete("a");
    await client.close();
    expect(view?.snapshot()).toStrictEqual(noteOf(1));
    const { photo } = view as NonNullable<typeof view>;
    expect(photo).toStrictEqual(noteOf(1).photo);
  });

  test("views: they cannot be assigned to, spread or cloned", async () => {
    const { notes } = shop({ collections });
    await notes.set("a", noteOf(1));
    const [view] = await notes.views.values().all();
    assert(view);
    throws(() => Object.assign(view, { count: 2 }), { name: "TypeError", message: /count/ });
    throws(() => structuredClone(view), { name: "DataCloneError" });
    expect(view.count).toBe(1);
  });

  test("views: of a buffer that the program has transferred away, they throw", async () => {
    const { notes } = shop({ collections });
    await notes.set("a", noteOf(1));
    await notes.set("b", noteOf(2));
    const [first, second] = await notes.views.values().all();
    assert(first && second);
    const [kept] = await notes.views.values().all();
    const { buffer } = first.photo;
    structuredClone(buffer, { transfer: [buffer as ArrayBuffer] });
    const stale = { name: "StaleViewError", message: /transferred/ };
    throws(() => second.count, stale);
    throws(() => second.title, stale);
    throws(() => second.hash, stale);
    throws(() => first.snapshot(), stale);
    expect(kept?.title).toBe("note 1 ");
  });

  test("views: a page without the schema gets an error that says to give it", async () => {
    const client = shopOf({
      notes: true,
      numbered: true,
      pairs: true,
      sessions: true,
      texts: true,
    });
    await client.notes.set("a", noteOf(1));
    const noSchema = { name: "TypeError", message: /"notes".*connect\(\)/ };
    await rejects(client.notes.views.values().all(), noSchema);
    await rejects(over(client.notes.views.entries()), noSchema);
    await rejects(client.notes.views.getMany(["a"]), noSchema);
    expect(await client.notes.values().all()).toStrictEqual([noteOf(1)]);
  });

  test("views: a schema that is not the worker's is refused, and lists of plain objects are not", async () => {
    const Other = struct("Note", { at: timestamp, amount: i64, count: u32, title: str });
    const client = shopOf({ ...collections, notes: Other });
    await client.notes.set("a", noteOf(1));
    const mismatch = { name: "SchemaMismatchError", message: /"notes".*count is u16, not u32/ };
    await rejects(client.notes.views.values().all(), mismatch);
    await rejects(client.notes.views.getMany(["a"]), mismatch);
    await rejects(client.notes.views.index.byCount.values().all(), mismatch);
    expect(await client.notes.values().all()).toStrictEqual([noteOf(1)]);
    expect(await client.notes.getMany(["a"])).toStrictEqual([noteOf(1)]);
    const sessions = shopOf({ ...collections, sessions: Note }).sessions as unknown as Pick<
      typeof client.notes,
      "views"
    >;
    await rejects(sessions.views.values().all(), { name: "SchemaMismatchError", message: /json/ });
  });
});

describe("loops over lists", () => {
  const fill = (db: Database) => {
    for (let i = 0; i < 3_000; i += 1) db.set(keyOf(i), String(i));
  };

  test("loop: a page is fetched ahead once several rows of one are used", async () => {
    const client = shop({ procedures: { fill } });
    await client.call.fill();
    const scan = client.keys();
    const count = counted(scan);
    const loop = scan[Symbol.asyncIterator]();
    await loop.next();
    expect(count.pages).toBe(1);
    for (let i = 0; i < 10; i += 1) await loop.next();
    expect(count.pages).toBe(2);
    await loop.return(undefined);
    expect(await loop.next()).toStrictEqual({ done: true, value: undefined });
    expect(count.pages).toBe(2);
  });

  test("loop: writes of the same client are seen, though their page was fetched ahead", async () => {
    const client = shop({ procedures: { fill } });
    await client.call.fill();
    const scan = client.values();
    const count = counted(scan);
    let index = 0;
    const seen: string[] = [];
    for await (const value of scan) {
      seen.push(new TextDecoder().decode(value));
      if (index === 20) await client.set(keyOf(100), "changed");
      if (index === 200) await client.set(keyOf(2_999), "last");
      index += 1;
    }
    expect(seen.length).toBe(3_000);
    expect([seen[100], seen[2_999]]).toStrictEqual(["changed", "last"]);
    // One page was fetched twice, and none ahead since.
    expect(count.pages).toBe(5);
  });

  test("loop: steps at once come in order, and none after the end", async () => {
    const client = shop({ procedures: { fill } });
    await client.call.fill();
    const loop = client.keys({ limit: 70 })[Symbol.asyncIterator]();
    const steps = await Promise.all(Array.from({ length: 72 }, () => loop.next()));
    expect(steps.map(({ value }) => value)).toStrictEqual([
      ...Array.from({ length: 70 }, (_, i) => keyOf(i)),
      undefined,
      undefined,
    ]);
    expect(steps.map(({ done }) => done).indexOf(true)).toBe(70);
  });

  test("loop: an error ends it, and so do throw and the end of a block", async () => {
    const client = shop({ procedures: { fill } });
    await client.call.fill();
    const bad = client.keys({ limit: -1 })[Symbol.asyncIterator]();
    await rejects(bad.next(), { name: "TypeError", message: /limit/ });
    expect(await bad.next()).toStrictEqual({ done: true, value: undefined });
    const thrown = client.keys()[Symbol.asyncIterator]();
    await thrown.next();
    await rejects(thrown.throw(new RangeError("enough")), { name: "RangeError" });
    expect(await thrown.next()).toStrictEqual({ done: true, value: undefined });
    const loop = client.keys()[Symbol.asyncIterator]();
    await loop[Symbol.asyncDispose]?.();
    expect(await loop.next()).toStrictEqual({ done: true, value: undefined });
  });

  test("loop: it ends with the reason of its signal, also while a page is fetched ahead", async () => {
    const client = shop({ procedures: { fill } });
    await client.call.fill();
    const controller = new AbortController();
    let count = 0;
    const loop = async () => {
      for await (const _ of client.keys({}, { signal: controller.signal })) {
        count += 1;
        if (count === 20) controller.abort(new RangeError("enough"));
      }
    };
    await rejects(loop(), { name: "RangeError", message: "enough" });
    expect(count).toBe(64);
  });
});

describe("an owner without requests", () => {
  const SEGMENT = 1_048_576;

  /** A client of a database in a file with these records, and the bytes that were read of it. */
  async function reopened(records: number): Promise<() => Promise<number>> {
    const storage = memory();
    const first = shop({ storage, collections });
    const value = { text: "x".repeat(2_000) };
    for (let from = 0; from < records; from += 1_000) {
      const keys = Array.from({ length: 1_000 }, (_, i) => keyOf(from + i));
      await first.sessions.batch(keys.map((key) => ({ type: "set", key, value })));
    }
    await (first as Client).close();
    const second = shop({ storage, collections });
    return async () => (await second.stats()).coldBytes;
  }

  test("idle owner: it reads the first records of a small database before they are listed", async () => {
    const bytesRead = await reopened(1_000);
    while ((await bytesRead()) < SEGMENT) await turn(5);
  });

  test("idle owner: it does not read a large database", async () => {
    const bytesRead = await reopened(6_000);
    for (let i = 0; i < 50; i += 1) {
      assert((await bytesRead()) < SEGMENT);
      await turn(5);
    }
  });
});
