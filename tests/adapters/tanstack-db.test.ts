import {
  createCollection,
  createLiveQueryCollection,
  createTransaction,
  eq,
  type Collection as Rows,
} from "@tanstack/db";
import { type Client, connect, type Database, memory, open, type Served, serve } from "varve";
import { json, str, struct, u16, u32 } from "varve/struct";
import { type VarveCollectionUtils, varveCollectionOptions } from "varve/tanstack-db";
import { assert, describe, expect, onTestFinished, test } from "vitest";
import { FakeStorage, platform } from "../contract/fake-storage.js";
import { wasmOption } from "../support/context.js";
import { rejects, throws } from "../support/errors.js";
import { until } from "../support/values.js";

interface Todo {
  id: string;
  title: string;
  completed: boolean;
}

interface Numbered {
  id: number;
  completed: boolean;
}

const Product = struct("Product", { sku: str, stock: u16 });

const unique = { byTitle: { fields: "title", type: str, unique: true } } as const;

const COLLECTIONS = {
  todos: json<Todo>(),
  others: json<Todo>(),
  numbers: { of: json<Numbered>(), key: u32 },
  titles: { of: json<Todo>(), indexes: unique },
  products: Product,
} as const;

/** The collections of a database, or of a client that is served them. */
interface Tab {
  readonly todos: ReturnType<typeof ofDatabase>["todos"];
  readonly others: ReturnType<typeof ofDatabase>["others"];
  readonly numbers: ReturnType<typeof ofDatabase>["numbers"];
  readonly titles: ReturnType<typeof ofDatabase>["titles"];
  readonly products: ReturnType<typeof ofDatabase>["products"];
}

function ofDatabase(db: Database) {
  return {
    todos: db.collection("todos", json<Todo>()),
    others: db.collection("others", json<Todo>()),
    numbers: db.collection("numbers", json<Numbered>(), { key: u32 }),
    titles: db.collection("titles", json<Todo>(), { indexes: unique }),
    products: db.collection("products", Product),
  };
}

/** Two handles of a database, or two clients of one: as two tabs. */
async function twoTabs(kind: string, storage = memory()): Promise<[Tab, Tab]> {
  const options = { storage, ...wasmOption() };
  if (kind === "database") {
    // Views end with the turn, and what an adapter gives must not.
    const handles = [await open("todos", { ...options, strictViews: true })];
    handles.push(await open("todos", { ...options, strictViews: true }));
    onTestFinished(async () => {
      for (const db of handles) await db.close().catch(() => undefined);
    });
    return handles.map(ofDatabase) as [Tab, Tab];
  }
  const served = serve("todos", { ...options, collections: COLLECTIONS });
  const tabs = [0, 1].map(() => {
    const { port1, port2 } = new MessageChannel();
    served.listen(port1);
    const client = connect<Served<Record<never, never>, typeof COLLECTIONS>>("todos", {
      worker: () => port2,
    });
    onTestFinished(async () => {
      await (client as Client).close();
      port1.close();
    });
    const names = ["todos", "others", "numbers", "titles", "products"] as const;
    return Object.fromEntries(names.map((name) => [name, client.collection(name)]));
  });
  return tabs as unknown as [Tab, Tab];
}

type Todos = Rows<Todo, string, VarveCollectionUtils>;

/** Rows of this collection, which are synchronized until the test ends. */
async function followed(tab: Tab, name: "todos" | "others" | "titles" = "todos"): Promise<Todos> {
  const options = varveCollectionOptions({ collection: tab[name], getKey: ({ id }) => id });
  const rows = createCollection(options) as unknown as Todos;
  const subscription = rows.subscribeChanges(() => {});
  onTestFinished(() => subscription.unsubscribe());
  await rows.preload();
  return rows;
}

const todo = (id: string, title = id, completed = false): Todo => ({ id, title, completed });

/** What is stored, by key. */
async function stored(of: object): Promise<Record<string, unknown>> {
  const all: Record<string, unknown> = {};
  for await (const [key, value] of (of as Tab["todos"]).entries()) all[key] = value;
  return all;
}

/** A transaction that stores what it changes of these rows. */
const accepting = (...of: readonly { utils: VarveCollectionUtils }[]) =>
  createTransaction({
    mutationFn: async ({ transaction }) => {
      for (const { utils } of of) await utils.acceptMutations(transaction);
    },
    autoCommit: false,
  });

const titles = (rows: Todos) => [...rows.values()].map(({ title }) => title).sort();

// TanStack DB's tests are not in its package. These make the assertions of its tests of localStorageCollectionOptions (packages/db,
// local-storage.test.ts) that apply here.
for (const kind of ["database", "client"]) {
  describe(`TanStack DB's tests of a persisted collection, on a ${kind}`, () => {
    test("tanstack-db: a collection has utils and an id", async () => {
      const [{ todos: collection }] = await twoTabs(kind);
      const getKey = ({ id }: Todo) => id;
      const rows = createCollection(varveCollectionOptions({ collection, getKey }));
      expect(typeof rows.utils.clearStorage).toBe("function");
      expect(typeof rows.utils.acceptMutations).toBe("function");
      expect(varveCollectionOptions({ collection, getKey }).id).toBe("varve:todos");
      expect(varveCollectionOptions({ collection, getKey, id: "mine" }).id).toBe("mine");
      for (const other of [undefined, null, {}, { batch() {} }, "todos"]) {
        throws(() => varveCollectionOptions({ collection: other, getKey } as never), {
          name: "TypeError",
          code: "VARVE_BAD_ARGUMENT",
          message: /^The collection must be one of a database or a client\. Given: \w+\.$/,
        });
      }
    });

    test("tanstack-db: what is stored is loaded, and an empty collection is ready too", async () => {
      const [tab] = await twoTabs(kind);
      await tab.todos.set("1", todo("1", "Existing"));
      const rows = await followed(tab);
      expect(rows.size).toBe(1);
      expect(rows.get("1")?.title).toBe("Existing");
      const empty = await followed(tab, "others");
      expect([empty.size, empty.status]).toStrictEqual([0, "ready"]);
    });

    test("tanstack-db: inserts, updates and deletions are stored without handlers", async () => {
      const [tab] = await twoTabs(kind);
      const rows = await followed(tab);
      await rows.insert(todo("1")).isPersisted.promise;
      expect(await stored(tab.todos)).toStrictEqual({ "1": todo("1") });
      const update = rows.update("1", (draft) => {
        draft.title = "Updated";
      });
      await update.isPersisted.promise;
      expect(await stored(tab.todos)).toStrictEqual({ "1": todo("1", "Updated") });
      await rows.delete("1").isPersisted.promise;
      expect(await stored(tab.todos)).toStrictEqual({});
      expect(rows.size).toBe(0);
      await rows.insert([todo("2"), todo("3")]).isPersisted.promise;
      expect(Object.keys(await stored(tab.todos))).toStrictEqual(["2", "3"]);
    });

    test("tanstack-db: handlers are called once, before it is stored, and may refuse", async () => {
      const [tab] = await twoTabs(kind);
      const called: string[] = [];
      const handler = (name: string) => async () => {
        called.push(`${name} ${Object.keys(await stored(tab.todos))}`);
        if (name === "update") throw new Error("refused");
      };
      const rows = createCollection(
        varveCollectionOptions({
          collection: tab.todos,
          getKey: ({ id }) => id,
          onInsert: handler("insert"),
          onUpdate: handler("update"),
          onDelete: handler("delete"),
        }),
      );
      await rows.preload();
      await rows.insert(todo("1")).isPersisted.promise;
      const update = rows.update("1", (draft) => {
        draft.title = "Updated";
      });
      expect(rows.get("1")?.title).toBe("Updated");
      await rejects(update.isPersisted.promise, { message: "refused" });
      expect(rows.get("1")?.title).toBe("1");
      expect(await stored(tab.todos)).toStrictEqual({ "1": todo("1") });
      await rows.delete("1").isPersisted.promise;
      expect(called).toStrictEqual(["insert ", "update 1", "delete 1"]);
    });

    test("tanstack-db: what another tab inserts, updates and deletes is shown", async () => {
      const [tab, other] = await twoTabs(kind);
      const rows = await followed(tab);
      const others = await followed(other);
      await others.insert(todo("1", "From another tab")).isPersisted.promise;
      await until(() => rows.get("1")?.title === "From another tab");
      await other.todos.set("1", todo("1", "Again"));
      await until(() => rows.get("1")?.title === "Again");
      await other.others.set("1", todo("1", "Of another collection"));
      await other.todos.delete("1");
      await until(() => rows.size === 0);
    });

    test("tanstack-db: a change of one row is one change of rows", async () => {
      const [tab, other] = await twoTabs(kind);
      for (let i = 0; i < 100; i += 1) await tab.todos.set(`${i}`, todo(`${i}`));
      const rows = await followed(tab);
      expect(rows.size).toBe(100);
      const seen: string[] = [];
      const subscription = rows.subscribeChanges(
        (changes) => {
          for (const { key, type } of changes) seen.push(`${type} ${key}`);
        },
        { includeInitialState: true },
      );
      expect(seen.splice(0).length).toBe(100);
      await other.todos.set("5", todo("5", "Changed"));
      await until(() => rows.get("5")?.title === "Changed");
      expect(seen).toStrictEqual(["update 5"]);
      subscription.unsubscribe();
    });

    test("tanstack-db: clearStorage deletes everything", async () => {
      const [tab] = await twoTabs(kind);
      const rows = await followed(tab);
      await rows.insert([todo("1"), todo("2")]).isPersisted.promise;
      await rows.utils.clearStorage();
      expect(await stored(tab.todos)).toStrictEqual({});
      await until(() => rows.size === 0);
    });

    test("tanstack-db: a manual transaction is stored by the collections that accept it", async () => {
      const [tab] = await twoTabs(kind);
      const rows = await followed(tab);
      const others = await followed(tab, "others");
      const first = accepting(rows);
      first.mutate(() => {
        rows.insert(todo("a"));
        rows.insert(todo("b"));
        others.insert(todo("c"));
      });
      expect([rows.has("a"), rows.has("b"), others.has("c")]).toStrictEqual([true, true, true]);
      await first.commit();
      expect(titles(rows)).toStrictEqual(["a", "b"]);
      expect(Object.keys(await stored(tab.todos))).toStrictEqual(["a", "b"]);
      expect(await stored(tab.others)).toStrictEqual({});
      // The same key in both: each stores its own.
      const second = accepting(rows, others);
      second.mutate(() => {
        rows.insert(todo("new"));
        rows.update("a", (draft) => {
          draft.title = "Updated";
        });
        rows.delete("new");
        rows.delete("b");
        others.insert(todo("b"));
      });
      await second.commit();
      expect(await stored(tab.todos)).toStrictEqual({ a: todo("a", "Updated") });
      expect(await stored(tab.others)).toStrictEqual({ b: todo("b") });
      expect([rows.has("b"), others.has("b")]).toStrictEqual([false, true]);
      const third = accepting(rows);
      third.mutate(() => rows.insert(todo("d")));
      await third.commit();
      await rows.insert(todo("e")).isPersisted.promise;
      expect(Object.keys(await stored(tab.todos))).toStrictEqual(["a", "d", "e"]);
    });

    test("tanstack-db: a manual transaction that fails is taken back, and nothing is stored", async () => {
      const [tab] = await twoTabs(kind);
      const rows = await followed(tab);
      const transaction = createTransaction({
        mutationFn: () => Promise.reject(new Error("API failed")),
        autoCommit: false,
      });
      transaction.isPersisted.promise.catch(() => {});
      transaction.mutate(() => rows.insert(todo("1")));
      expect(rows.has("1")).toBe(true);
      await rejects(transaction.commit(), { message: "API failed" });
      expect(rows.has("1")).toBe(false);
      expect(await stored(tab.todos)).toStrictEqual({});
    });

    test("tanstack-db: a manual transaction is accepted before anything is subscribed to", async () => {
      const [tab] = await twoTabs(kind);
      const options = varveCollectionOptions({
        collection: tab.todos,
        getKey: ({ id }) => id,
      });
      const rows = createCollection(options);
      const transaction = accepting(rows);
      transaction.mutate(() => rows.insert(todo("early")));
      await transaction.commit();
      expect(await stored(tab.todos)).toStrictEqual({ early: todo("early") });
      await rows.preload();
      expect(rows.has("early")).toBe(true);
    });

    test("tanstack-db: rapid changes of a row end as the last one, and none before is shown again", async () => {
      const [tab] = await twoTabs(kind);
      const rows = await followed(tab);
      const seen: (string | undefined)[] = [];
      const subscription = rows.subscribeChanges(() => seen.push(rows.get("1")?.title));
      const changes = [rows.insert(todo("1", "a")), rows.insert(todo("2"))];
      for (const title of "bcdefgh") {
        changes.push(
          rows.update("1", (draft) => {
            draft.title = title;
          }),
        );
      }
      changes.push(rows.delete("2"));
      await Promise.all(changes.map(({ isPersisted }) => isPersisted.promise));
      expect(await stored(tab.todos)).toStrictEqual({ "1": todo("1", "h") });
      expect(titles(rows)).toStrictEqual(["h"]);
      const last = seen.indexOf("h");
      assert(last >= 0 && seen.slice(last).every((title) => title === "h"), seen.join());
      assert(!seen.includes(undefined), "an inserted row is there from then on");
      subscription.unsubscribe();
    });

    test("tanstack-db: a row that is inserted and deleted at once is not waited for", async () => {
      const [tab] = await twoTabs(kind);
      const rows = await followed(tab);
      const changes = [rows.insert(todo("1")), rows.delete("1")];
      await Promise.all(changes.map(({ isPersisted }) => isPersisted.promise));
      expect([rows.size, await stored(tab.todos)]).toStrictEqual([0, {}]);
    });

    test("tanstack-db: what another tab writes meanwhile stays", async () => {
      const [tab, other] = await twoTabs(kind);
      const rows = await followed(tab);
      const local = rows.insert(todo("local"));
      await other.todos.set("remote", todo("remote"));
      await local.isPersisted.promise;
      await until(() => rows.has("remote"));
      expect(titles(rows)).toStrictEqual(["local", "remote"]);
      await other.todos.set("local", todo("local", "Remote", true));
      await until(() => rows.get("local")?.completed === true);
      const update = rows.update("local", (draft) => {
        draft.title = "Local again";
      });
      await update.isPersisted.promise;
      expect((await stored(tab.todos)).local).toStrictEqual(todo("local", "Local again", true));
    });

    test("tanstack-db: what cannot be stored is taken back, with what follows it", async () => {
      const [tab] = await twoTabs(kind);
      const rows = await followed(tab, "titles");
      await rows.insert(todo("1", "same")).isPersisted.promise;
      const refused = rows.insert(todo("2", "same"));
      const next = rows.update("2", (draft) => {
        draft.completed = true;
      });
      next.isPersisted.promise.catch(() => {});
      expect(rows.has("2")).toBe(true);
      await rejects(refused.isPersisted.promise, { name: "UniqueViolationError" });
      assert((await Promise.allSettled([next.isPersisted.promise]))[0]?.status === "rejected");
      expect(titles(rows)).toStrictEqual(["same"]);
      expect(Object.keys(await stored(tab.titles))).toStrictEqual(["1"]);
      await rows.insert(todo("2", "other")).isPersisted.promise;
      expect(titles(rows)).toStrictEqual(["other", "same"]);
    });

    test("tanstack-db: a full disk is reported, and the row is taken back", async () => {
      const storage = new FakeStorage();
      const [tab] = await twoTabs(kind, storage);
      const rows = await followed(tab);
      await rows.insert(todo("before")).isPersisted.promise;
      storage.fault = ({ op, at, length }) =>
        op !== "read" && at + length > 3 * 1_048_576 ? platform.quota() : undefined;
      const large = rows.insert(todo("1", "x".repeat(4_000_000)));
      await rejects(large.isPersisted.promise, { code: "VARVE_QUOTA_EXCEEDED" });
      expect(titles(rows)).toStrictEqual(["before"]);
      storage.fault = () => undefined;
      await rows.insert(todo("1", "after")).isPersisted.promise;
      expect(titles(rows)).toStrictEqual(["after", "before"]);
    });

    test("tanstack-db: the row of a key is changed and no other, with numbers as keys too", async () => {
      const [tab] = await twoTabs(kind);
      for (const id of [1, 2, 3]) await tab.numbers.set(id, { id, completed: false });
      const rows = createCollection(
        varveCollectionOptions({ collection: tab.numbers, getKey: ({ id }) => id }),
      );
      await rows.preload();
      expect(rows.size).toBe(3);
      const update = rows.update(1, (draft) => {
        draft.completed = true;
      });
      await update.isPersisted.promise;
      await rows.delete(2).isPersisted.promise;
      expect([rows.get(1)?.completed, rows.has(2), rows.get(3)?.completed]).toStrictEqual([
        true,
        false,
        false,
      ]);
      expect(await stored(tab.numbers)).toStrictEqual({
        1: { id: 1, completed: true },
        3: { id: 3, completed: false },
      });
      // The collection has keys of one kind.
      const text = rows.insert({ id: "1" as never, completed: false });
      await rejects(text.isPersisted.promise, { code: "VARVE_BAD_ARGUMENT" });
      expect(rows.has("1" as never)).toBe(false);
    });
  });

  describe(`varve/tanstack-db on a ${kind}`, () => {
    test("tanstack-db: structs are plain rows", async () => {
      const [tab, other] = await twoTabs(kind);
      const rows = createCollection(
        varveCollectionOptions({ collection: tab.products, getKey: ({ sku }) => sku }),
      );
      await rows.preload();
      await rows.insert({ sku: "a", stock: 2 }).isPersisted.promise;
      const update = rows.update("a", (draft) => {
        draft.stock -= 1;
      });
      await update.isPersisted.promise;
      const found = other.products.get("a");
      expect((found instanceof Promise ? await found : found)?.stock).toBe(1);
      const bad = rows.insert({ sku: "b", stock: 70_000 });
      await rejects(bad.isPersisted.promise, { message: /stock/ });
      expect([...rows.keys()]).toStrictEqual(["a"]);
    });

    test("tanstack-db: a live query follows what another tab writes", async () => {
      const [tab, other] = await twoTabs(kind);
      const rows = await followed(tab);
      const open_ = createLiveQueryCollection((query) =>
        query.from({ row: rows }).where(({ row }) => eq(row.completed, false)),
      );
      await open_.preload();
      await rows.insert([todo("1"), todo("2", "two", true)]).isPersisted.promise;
      expect(open_.size).toBe(1);
      await other.todos.set("2", todo("2", "two"));
      await until(() => open_.size === 2);
      await other.todos.set("1", todo("1", "one", true));
      await until(() => open_.size === 1);
      await open_.cleanup();
    });

    test("tanstack-db: a record whose key is another than getKey returns ends the sync with an error", async () => {
      const [tab] = await twoTabs(kind);
      await tab.todos.set("1", todo("one"));
      const rows = createCollection(
        varveCollectionOptions({ collection: tab.todos, getKey: ({ id }) => id }),
      );
      await rejects(rows.preload(), {
        name: "TypeError",
        code: "VARVE_BAD_ARGUMENT",
        message: /^getKey\(\) must return a record's own key, 1\./,
      });
      expect([rows.status, rows.size]).toStrictEqual(["error", 0]);
    });

    test("tanstack-db: a collection that was cleaned up follows again", async () => {
      const [tab, other] = await twoTabs(kind);
      const options = varveCollectionOptions({ collection: tab.todos, getKey: ({ id }) => id });
      const rows = createCollection(options);
      await rows.preload();
      await rows.insert(todo("1")).isPersisted.promise;
      await rows.cleanup();
      await other.todos.set("2", todo("2"));
      await rows.preload();
      expect([...rows.keys()].sort()).toStrictEqual(["1", "2"]);
      await rows.insert(todo("3")).isPersisted.promise;
      expect(rows.size).toBe(3);
    });
  });
}
