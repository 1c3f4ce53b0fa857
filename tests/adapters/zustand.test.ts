import { file, open } from "varve";
import { structured } from "varve/structured";
import { varveStorage } from "varve/zustand";
import { assert, describe, expect, onTestFinished, test } from "vitest";
import { persist } from "zustand/middleware";
import { createStore } from "zustand/vanilla";
import { FakeStorage } from "../contract/fake-storage.js";
import { context, wasmOption } from "../support/context.js";
import { rejects, throws } from "../support/errors.js";
import { turn, until } from "../support/values.js";
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

/** Reports what `persist` calls after it has read: the state and the error, if any. */
function reported() {
  const after: unknown[][] = [];
  const onRehydrateStorage = () => (state: unknown, error: unknown) =>
    after.push(error === undefined ? [state] : [state, error]);
  return { after, onRehydrateStorage };
}

// Zustand's tests are not in its package. These make the assertions of its persistAsync.test.tsx and persistSync.test.tsx, as of
// version 5.0.15, on stores without components of React.
onBoth("Zustand's tests of persist", (to, kind) => {
  test("zustand: a stored state is the store's", async () => {
    await varveStorage(to()).setItem("hydrate", { state: { count: 42 }, version: 0 });
    const { after, onRehydrateStorage } = reported();
    const before: unknown[] = [];
    const { store, hydrated } = counter(to(), "hydrate", {
      onRehydrateStorage: (state: unknown) => {
        before.push(state);
        return onRehydrateStorage();
      },
    });
    // A database has it from the start.
    const isRead = kind === "database";
    expect(store.getState()).toStrictEqual({ count: isRead ? 42 : 0 });
    expect(store.persist.hasHydrated()).toBe(isRead);
    await hydrated();
    expect(store.getState()).toStrictEqual({ count: 42 });
    expect([before, after]).toStrictEqual([[{ count: 0 }], [[{ count: 42 }]]]);
    await store.persist.rehydrate();
    expect(store.persist.hasHydrated()).toBe(true);
  });

  test("zustand: without a stored state the store has its own", async () => {
    const { after, onRehydrateStorage } = reported();
    const { store, hydrated, storage } = counter(to(), "empty", { onRehydrateStorage });
    await hydrated();
    expect(store.getState()).toStrictEqual({ count: 0 });
    expect(after).toStrictEqual([[{ count: 0 }]]);
    expect(await storage.getItem("empty")).toBe(null);
  });

  test("zustand: an error of reading is reported, and the store has its own state", async () => {
    const db = await fresh(kind);
    await db.close();
    const { after, onRehydrateStorage } = reported();
    const { store } = counter(db, "closed", { onRehydrateStorage });
    await until(() => after.length > 0);
    expect(after.map(([state, error]) => [state, (error as { code: string }).code])).toStrictEqual([
      [undefined, "VARVE_DATABASE_CLOSED"],
    ]);
    expect([store.getState().count, store.persist.hasHydrated()]).toStrictEqual([0, false]);
  });

  test("zustand: reading stores nothing", async () => {
    await varveStorage(to()).setItem("reading", { state: { count: 1 }, version: 0 });
    const version = async () => (await to().getEntry("zustand/reading"))?.version;
    const before = await version();
    const { hydrated } = counter(to(), "reading");
    await hydrated();
    await turn(5);
    expect(await version()).toBe(before);
  });

  test("zustand: what the stored state does not have is the store's, and stays as it was set", async () => {
    const act = () => {};
    // Without a version, as of another program.
    await varveStorage(to()).setItem("part", { state: { count: 42 } });
    const { after, onRehydrateStorage } = reported();
    const storage = varveStorage<{ count: number; name: string; act: () => void }>(to());
    const store = createStore(
      persist(() => ({ count: 0, name: "unknown", act }), {
        name: "part",
        storage,
        onRehydrateStorage,
        skipHydration: true,
      }),
    );
    const reading = store.persist.rehydrate();
    // It ends at once on a database, and on a client after this.
    store.setState({ name: "test" });
    await reading;
    expect(store.getState()).toStrictEqual({ count: 42, name: "test", act });
    assert(store.getState().act === act);
    const name = kind === "database" ? "unknown" : "test";
    expect(after).toStrictEqual([[{ count: 42, name, act }]]);
  });

  test("zustand: what is stored wins over what is set while it is read", async () => {
    await varveStorage(to()).setItem("wins", { state: { count: 42 }, version: 0 });
    const { store } = counter(to(), "wins", { skipHydration: true });
    store.setState({ count: 100 });
    await varveStorage(to()).setItem("wins", { state: { count: 42 }, version: 0 });
    const reading = store.persist.rehydrate();
    if (kind === "client") store.setState({ count: 101 });
    await reading;
    expect(store.getState()).toStrictEqual({ count: 42 });
  });

  test("zustand: each change is stored, and the last one stays", async () => {
    const { store, hydrated, storage } = counter(to(), "change");
    await hydrated();
    for (let count = 1; count <= 100; count += 1) store.setState({ count });
    await store.setState({ count: 101 });
    expect(await storage.getItem("change")).toStrictEqual({ state: { count: 101 }, version: 0 });
    expect(await to().getText("zustand/change")).toBe('{"state":{"count":101},"version":0}');
    const { after, onRehydrateStorage } = reported();
    const second = counter(to(), "change", { onRehydrateStorage });
    await second.hydrated();
    expect(second.store.getState()).toStrictEqual({ count: 101 });
    expect(after).toStrictEqual([[{ count: 101 }]]);
  });

  test("zustand: a state of another version is migrated and stored, also by a promise", async () => {
    for (const wait of [<T>(value: T) => value, async <T>(value: T) => value]) {
      await varveStorage(to()).setItem("migrate", { state: { count: 1 }, version: 12 });
      const seen: unknown[] = [];
      const migrate = (state: Counted, version: number) => {
        seen.push(state, version);
        return wait({ count: state.count + 98 });
      };
      const { after, onRehydrateStorage } = reported();
      const more = { version: 13, migrate, onRehydrateStorage };
      const { store, hydrated, storage } = counter(to(), "migrate", more);
      await hydrated();
      expect(after).toStrictEqual([[{ count: 99 }]]);
      expect(seen).toStrictEqual([{ count: 1 }, 12]);
      expect(store.getState()).toStrictEqual({ count: 99 });
      const stored = { state: { count: 99 }, version: 13 };
      expect(await storage.getItem("migrate")).toStrictEqual(stored);
    }
  });

  test("zustand: an error of migrate is reported, and the state stays as it was", async () => {
    await varveStorage(to()).setItem("failing", { state: { count: 1 }, version: 12 });
    const { after, onRehydrateStorage } = reported();
    const failure = new Error("not today");
    const migrate = () => {
      throw failure;
    };
    const { store } = counter(to(), "failing", { version: 13, migrate, onRehydrateStorage });
    await until(() => after.length > 0);
    expect(after).toStrictEqual([[undefined, failure]]);
    expect([store.getState(), store.persist.hasHydrated()]).toStrictEqual([{ count: 0 }, false]);
  });

  test("zustand: a state of another version that nothing migrates is reported on the console and stays", async () => {
    await varveStorage(to()).setItem("unknown", { state: { count: 1 }, version: 12 });
    const { after, onRehydrateStorage } = reported();
    const error = console.error;
    onTestFinished(() => {
      console.error = error;
    });
    const lines: unknown[] = [];
    console.error = (line: unknown) => lines.push(line);
    const more = { version: 13, onRehydrateStorage };
    const { store, hydrated, storage } = counter(to(), "unknown", more);
    await hydrated();
    expect([store.getState(), after, lines.length]).toStrictEqual([
      { count: 0 },
      [[{ count: 0 }]],
      1,
    ]);
    expect((await storage.getItem("unknown"))?.version).toBe(12);
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

  test("zustand: clearStorage leaves the state of the store", async () => {
    await varveStorage(to()).setItem("leave", { state: { count: 1 }, version: 0 });
    const { store, hydrated, storage } = counter(to(), "leave");
    await hydrated();
    store.persist.clearStorage();
    expect(await storage.getItem("leave")).toBe(null);
    expect(store.getState()).toStrictEqual({ count: 1 });
  });

  test("zustand: clearStorage ends a read or a migration that is under way, and later ones are made", async () => {
    const stored = { state: { count: 1 }, version: 1 };
    for (const version of [1, 2]) {
      await varveStorage(to()).setItem("revoked", stored);
      const { after, onRehydrateStorage } = reported();
      const migrate = async (state: Counted) => state;
      const more = { version, migrate, onRehydrateStorage, skipHydration: true };
      const { store } = counter(to(), "revoked", more);
      const finished: number[] = [];
      store.persist.onFinishHydration(({ count }) => finished.push(count));
      const reading = store.persist.rehydrate();
      store.persist.clearStorage();
      await reading;
      // A database has read it before that.
      const isRead = kind === "database" && version === 1;
      expect([store.getState().count, store.persist.hasHydrated()]).toStrictEqual(
        isRead ? [1, true] : [0, false],
      );
      expect([after.length, finished.length]).toStrictEqual(isRead ? [1, 1] : [0, 0]);
      await varveStorage(to()).setItem("revoked", { state: { count: 2 }, version });
      await store.persist.rehydrate();
      expect([store.getState().count, store.persist.hasHydrated()]).toStrictEqual([2, true]);
      expect([after.at(-1), finished.at(-1)]).toStrictEqual([[{ count: 2 }], 2]);
    }
  });

  test("zustand: of several reads at once the last one counts", async () => {
    const storage = varveStorage(to());
    const { store } = counter(to(), "last", { skipHydration: true });
    const finished: number[] = [];
    store.persist.onFinishHydration(({ count }) => finished.push(count));
    const reads: unknown[] = [];
    for (const count of [10, 20, 30]) {
      const written = storage.setItem("last", { state: { count }, version: 0 });
      reads.push(store.persist.rehydrate(), written);
    }
    await Promise.all(reads);
    expect(store.getState()).toStrictEqual({ count: 30 });
    // A database answers each before the next.
    expect(finished).toStrictEqual(kind === "database" ? [10, 20, 30] : [30]);
  });

  test("zustand: of several migrations at once the last one counts", async () => {
    await varveStorage(to()).setItem("migrations", { state: { count: 1 }, version: 0 });
    let calls = 0;
    const migrate = async ({ count }: Counted) => {
      calls += 1;
      const by = calls * 10;
      await turn();
      return { count: count * by };
    };
    const more = { version: 1, migrate, skipHydration: true };
    const { store, storage } = counter(to(), "migrations", more);
    const finished: number[] = [];
    store.persist.onFinishHydration(({ count }) => finished.push(count));
    await Promise.all([store.persist.rehydrate(), store.persist.rehydrate()]);
    expect([calls, finished, store.getState().count]).toStrictEqual([2, [20], 20]);
    expect(await storage.getItem("migrations")).toStrictEqual({ state: { count: 20 }, version: 1 });
  });

  test("zustand: options are read and changed, such as the name", async () => {
    const { store, hydrated, storage } = counter(to(), "named");
    await hydrated();
    expect(store.persist.getOptions().name).toBe("named");
    await store.setState({});
    expect(await to().getText("zustand/named")).toBe('{"state":{"count":0},"version":0}');
    store.persist.setOptions({ name: "renamed", partialize: () => ({}) as Counted });
    await store.setState({ count: 1 });
    expect(await to().getText("zustand/renamed")).toBe('{"state":{},"version":0}');
    expect((await storage.getItem("named"))?.state).toStrictEqual({ count: 0 });
  });

  test("zustand: listeners of reading are called until they are removed", async () => {
    const { store, hydrated, storage } = counter(to(), "listeners");
    await hydrated();
    const seen: unknown[] = [];
    const removed = [
      store.persist.onHydrate(({ count }) => seen.push(["removed", count])),
      store.persist.onFinishHydration(({ count }) => seen.push(["removed after", count])),
    ];
    store.persist.onHydrate(({ count }) => seen.push(["before", count]));
    store.persist.onFinishHydration(({ count }) => seen.push(["after", count]));
    await storage.setItem("listeners", { state: { count: 1 }, version: 0 });
    await store.persist.rehydrate();
    expect(seen.splice(0)).toStrictEqual([
      ["removed", 0],
      ["before", 0],
      ["removed after", 1],
      ["after", 1],
    ]);
    for (const remove of removed) remove();
    await storage.setItem("listeners", { state: { count: 2 }, version: 0 });
    await store.persist.rehydrate();
    expect(seen).toStrictEqual([
      ["before", 1],
      ["after", 2],
    ]);
  });

  test("zustand: what is set while or after a state is read is reported and stored", async () => {
    await varveStorage(to()).setItem("meanwhile", { state: { count: 1 }, version: 0 });
    const { after, onRehydrateStorage } = reported();
    const { store, storage } = counter(to(), "meanwhile", {
      skipHydration: true,
      onRehydrateStorage: () => (state: Counted, error: unknown) => {
        onRehydrateStorage()({ ...state }, error);
        store.setState(({ count }) => ({ count: count + 1 }));
      },
    });
    store.subscribe(({ count }) => {
      if (count === 1) store.setState({ count: 10 });
    });
    await store.persist.rehydrate();
    expect([after, store.getState()]).toStrictEqual([[[{ count: 10 }]], { count: 11 }]);
    expect((await storage.getItem("meanwhile"))?.state).toStrictEqual({ count: 11 });
  });

  test("zustand: states with maps come back with another form of the values", async () => {
    const storage = varveStorage<{ map: Map<string, string> }>(to(), { values: structured() });
    const made = () => {
      const { after, onRehydrateStorage } = reported();
      const store = createStore(
        persist(() => ({ map: new Map<string, string>() }), {
          name: "maps",
          storage,
          onRehydrateStorage,
        }),
      );
      return { after, store, hydrated: () => until(() => store.persist.hasHydrated()) };
    };
    const first = made();
    await first.hydrated();
    expect(first.after).toStrictEqual([[{ map: new Map() }]]);
    await first.store.setState({ map: new Map([["a", "b"]]) });
    const second = made();
    await second.hydrated();
    expect(second.store.getState().map.get("a")).toBe("b");
    expect(second.after).toStrictEqual([[{ map: new Map([["a", "b"]]) }]]);
  });

  test("zustand: with skipHydration nothing is read before rehydrate", async () => {
    await varveStorage(to()).setItem("skip", { state: { count: 3 }, version: 0 });
    const { after, onRehydrateStorage } = reported();
    const { store } = counter(to(), "skip", { skipHydration: true, onRehydrateStorage });
    expect([store.getState().count, store.persist.hasHydrated()]).toStrictEqual([0, false]);
    await store.persist.rehydrate();
    expect([store.getState().count, store.persist.hasHydrated()]).toStrictEqual([3, true]);
    expect(after).toStrictEqual([[{ count: 3 }]]);
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
