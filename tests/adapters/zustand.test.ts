import { file, open } from "varve";
import { structured } from "varve/structured";
import { varveStorage } from "varve/zustand";
import { assert, describe, expect, onTestFinished, test } from "vitest";
import { persist } from "zustand/middleware";
import { createStore } from "zustand/vanilla";
import { FakeStorage } from "../contract/fake-storage.js";
import { context, wasmOption } from "../support/context.js";
import { rejects, throws } from "../support/errors.js";
import { until } from "../support/values.js";
import { FULL, fresh, nearlyFull, onBoth } from "./support.js";

const BAD = { name: "TypeError", code: "VARVE_BAD_ARGUMENT" };

interface Counted {
  count: number;
}

/** A store that counts, with these options of `persist`. */
function counter(to: object, name: string, more: object = {}) {
  const storage = varveStorage<Counted>(to);
  const store = createStore(persist((): Counted => ({ count: 0 }), { name, storage, ...more }));
  return { store, storage, hydrated: () => until(() => store.persist.hasHydrated()) };
}

// Zustand's tests are not in its package. These make the assertions of its tests of `persist` with an asynchronous
// storage.
onBoth("Zustand's tests of persist", (to, kind) => {
  test("zustand: a stored state is the store's", async () => {
    await varveStorage(to()).setItem("hydrate", { state: { count: 42 }, version: 0 });
    const after: unknown[] = [];
    const onRehydrateStorage = () => (state: unknown, error: unknown) => after.push(state, error);
    const { store, hydrated } = counter(to(), "hydrate", { onRehydrateStorage });
    // A database has it from the start.
    expect(store.getState()).toStrictEqual({ count: kind === "database" ? 42 : 0 });
    await hydrated();
    expect(store.getState()).toStrictEqual({ count: 42 });
    expect(after).toStrictEqual([{ count: 42 }, undefined]);
  });

  test("zustand: without a stored state the store has its own", async () => {
    const { store, hydrated, storage } = counter(to(), "empty");
    await hydrated();
    expect(store.getState()).toStrictEqual({ count: 0 });
    expect(await storage.getItem("empty")).toBe(null);
  });

  test("zustand: each change is stored, and the last one stays", async () => {
    const { store, hydrated, storage } = counter(to(), "change");
    await hydrated();
    for (let count = 1; count <= 100; count += 1) store.setState({ count });
    await store.setState({ count: 101 });
    expect(await storage.getItem("change")).toStrictEqual({ state: { count: 101 }, version: 0 });
    expect(await to().getText("zustand/change")).toBe('{"state":{"count":101},"version":0}');
    const second = counter(to(), "change");
    await second.hydrated();
    expect(second.store.getState()).toStrictEqual({ count: 101 });
  });

  test("zustand: a state of another version is migrated and stored, also by a promise", async () => {
    for (const wait of [<T>(value: T) => value, async <T>(value: T) => value]) {
      await varveStorage(to()).setItem("migrate", { state: { count: 1 }, version: 12 });
      const seen: unknown[] = [];
      const migrate = (state: Counted, version: number) => {
        seen.push(state, version);
        return wait({ count: state.count + 98 });
      };
      const { store, hydrated, storage } = counter(to(), "migrate", { version: 13, migrate });
      await hydrated();
      expect(seen).toStrictEqual([{ count: 1 }, 12]);
      expect(store.getState()).toStrictEqual({ count: 99 });
      const stored = { state: { count: 99 }, version: 13 };
      expect(await storage.getItem("migrate")).toStrictEqual(stored);
    }
  });

  test("zustand: an error of migrate is reported, and the state stays as it was", async () => {
    await varveStorage(to()).setItem("failing", { state: { count: 1 }, version: 12 });
    const errors: unknown[] = [];
    const onRehydrateStorage = () => (_: unknown, error: unknown) => errors.push(error);
    const failure = new Error("not today");
    const migrate = () => {
      throw failure;
    };
    const { store } = counter(to(), "failing", { version: 13, migrate, onRehydrateStorage });
    await until(() => errors.length > 0);
    expect(errors).toStrictEqual([failure]);
    expect([store.getState(), store.persist.hasHydrated()]).toStrictEqual([{ count: 0 }, false]);
  });

  test("zustand: partialize chooses what is stored, and merge how it comes back", async () => {
    const of = () => ({ kept: { a: 1, b: 2 }, left: 1 });
    const storage = varveStorage<{ kept: { a?: number; b?: number } }>(to());
    const store = createStore(
      persist(of, {
        name: "partial",
        storage,
        partialize: ({ kept }) => ({ kept: { a: kept.a } }),
        merge: (stored, current) => ({
          ...current,
          kept: { ...current.kept, ...(stored as { kept: object } | undefined)?.kept },
        }),
      }),
    );
    await until(() => store.persist.hasHydrated());
    await store.setState({ kept: { a: 7, b: 8 }, left: 9 });
    expect((await storage.getItem("partial"))?.state).toStrictEqual({ kept: { a: 7 } });
    await store.persist.rehydrate();
    expect(store.getState()).toStrictEqual({ kept: { a: 7, b: 8 }, left: 9 });
  });

  test("zustand: clearStorage deletes the state, and rehydrate reads it again", async () => {
    const { store, hydrated, storage } = counter(to(), "clear");
    await hydrated();
    await store.setState({ count: 5 });
    await storage.setItem("clear", { state: { count: 6 }, version: 0 });
    const finished: number[] = [];
    store.persist.onFinishHydration(({ count }) => finished.push(count));
    await store.persist.rehydrate();
    expect([store.getState().count, finished]).toStrictEqual([6, [6]]);
    store.persist.clearStorage();
    expect(await storage.getItem("clear")).toBe(null);
  });

  test("zustand: with skipHydration nothing is read before rehydrate", async () => {
    await varveStorage(to()).setItem("skip", { state: { count: 3 }, version: 0 });
    const { store } = counter(to(), "skip", { skipHydration: true });
    expect([store.getState().count, store.persist.hasHydrated()]).toStrictEqual([0, false]);
    await store.persist.rehydrate();
    expect([store.getState().count, store.persist.hasHydrated()]).toStrictEqual([3, true]);
  });
});

onBoth("zustand: the storage", (to, kind) => {
  test("zustand: with structured() dates, maps and sets come back", async () => {
    const storage = varveStorage<unknown>(to(), { prefix: "s/", values: structured() });
    const state = { at: new Date(5), cart: new Map([["a", 1n]]), seen: new Set([undefined]) };
    await storage.setItem("a", { state });
    expect(await storage.getItem("a")).toStrictEqual({ state });
    await storage.removeItem("a");
    expect(await to().count({ prefix: "s/" })).toBe(0);
  });

  test("zustand: a value of something else is reported and stays", async () => {
    for (const [name, value] of [
      ["text", "no json"],
      ["bytes", new Uint8Array([0xff])],
    ] as const) {
      await to().set(`zustand/${name}`, value);
      const errors: { code?: string }[] = [];
      const onRehydrateStorage = () => (_: unknown, error: object) => errors.push(error);
      const { store } = counter(to(), name, { onRehydrateStorage });
      await until(() => errors.length > 0);
      expect(errors.map(({ code }) => code)).toStrictEqual(["VARVE_MALFORMED_VALUE"]);
      expect([store.getState().count, store.persist.hasHydrated()]).toStrictEqual([0, false]);
      expect(await to().has(`zustand/${name}`)).toBe(true);
    }
  });

  test("zustand: what cannot be stored is refused, and the state before it stays stored", async () => {
    const { store, hydrated, storage } = counter(to(), "circle");
    await hydrated();
    await store.setState({ count: 1 });
    const circle: Record<string, unknown> = {};
    circle.circle = circle;
    await rejects(storage.setItem("circle", { state: circle as never }), { name: "TypeError" });
    expect((await storage.getItem("circle"))?.state.count).toBe(1);
  });

  test("zustand: on a full disk setState rejects, and what was stored stays", async () => {
    const { to: full, free } = await nearlyFull(kind);
    const name = "full";
    const storage = varveStorage<{ text: string }>(full);
    const store = createStore(persist(() => ({ text: "small" }), { name, storage }));
    await until(() => store.persist.hasHydrated());
    await store.setState({ text: "medium" });
    const refused = store.setState({ text: "x".repeat(4_000_000) }) as unknown;
    assert(refused instanceof Promise);
    await rejects(refused, FULL);
    expect((await storage.getItem(name))?.state).toStrictEqual({ text: "medium" });
    free();
    await store.setState({ text: "y".repeat(4_000_000) });
    expect((await storage.getItem(name))?.state.text.length).toBe(4_000_000);
  });

  test("zustand: a closed database rejects", async () => {
    const db = await fresh(kind);
    const closed = { code: "VARVE_DATABASE_CLOSED" };
    const { storage } = counter(db, "closed");
    await db.close();
    await rejects(storage.setItem("a", { state: { count: 1 } }), closed);
    await rejects(storage.removeItem("a"), closed);
    await rejects(async () => storage.getItem("a"), closed);
  });
});

describe("zustand: varveStorage", () => {
  test("zustand: anything but a database or a client is refused, and a bad prefix", async () => {
    const db = await fresh("database");
    for (const wrong of [undefined, null, {}, new Map(), "shop", db.snapshot()]) {
      throws(() => varveStorage(wrong as object), { ...BAD, message: /open\(\)/ });
    }
    throws(() => varveStorage(db, { prefix: 5 as never }), { ...BAD, message: /prefix/ });
  });

  test("zustand: what has resolved is in the file, also of a buffered database", async () => {
    const storage = new FakeStorage();
    const db = await open("zustand", { storage, durability: "buffered", ...wasmOption() });
    onTestFinished(() => db.close());
    const states = varveStorage<number>(db);
    const writes = () => storage.calls.filter(({ op }) => op === "write").length;
    for (const change of [() => states.setItem("a", { state: 1 }), () => states.removeItem("a")]) {
      const before = writes();
      await change();
      assert(writes() > before);
    }
  });

  test("zustand: a state is there when the database is opened again", async () => {
    const storage = file(context().directory ?? "");
    for (const expected of [0, 1]) {
      const db = await open("zustand", { storage, ...wasmOption() });
      const { store } = counter(db, "again");
      expect(store.getState().count).toBe(expected);
      store.setState({ count: expected + 1 });
      await db.close();
    }
  });
});
