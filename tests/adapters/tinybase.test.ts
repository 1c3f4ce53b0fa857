import { isDeepStrictEqual } from "node:util";
import { createMergeableStore, createStore, type Store } from "tinybase";
import type { Persister } from "tinybase/persisters";
import { type Client, connect, type Database, file, memory, open, serve } from "varve";
import { createVarvePersister } from "varve/tinybase";
import { assert, describe, expect, onTestFinished, test } from "vitest";
import { FakeStorage } from "../contract/fake-storage.js";
import { context, wasmOption } from "../support/context.js";
import { throws } from "../support/errors.js";
import { turn, until } from "../support/values.js";
import { FULL, fresh, nearlyFull, onBoth } from "./support.js";

const BAD = { name: "TypeError", code: "VARVE_BAD_ARGUMENT" };

/** A persister, destroyed with the test, and the codes of the errors that it reported. */
function persisted(store: Store, to: object, name: string) {
  const codes: unknown[] = [];
  const onIgnoredError = (error: unknown) => codes.push((error as { code: string }).code);
  const persister = createVarvePersister(store, to, name, { onIgnoredError });
  onTestFinished(async () => void (await persister.destroy()));
  return { persister, codes };
}

/** A store with what is stored. */
async function loaded(to: object, name: string): Promise<Store> {
  const store = createStore();
  await persisted(store, to, name).persister.load();
  return store;
}

/** Whether the persister has saved so often, and does nothing now. */
const hasSaved = (persister: Persister, saves: number) =>
  persister.getStats().saves === saves && persister.getStatus() === 0;

/** What is stored below this prefix. */
async function stored(to: Database | Client, prefix: string): Promise<Record<string, string>> {
  const all: Record<string, string> = {};
  for await (const key of to.keys({ prefix })) all[key] = (await to.getText(key)) as string;
  return all;
}

/** TinyBase's objects have no prototype. */
const plain = (content: unknown) => JSON.parse(JSON.stringify(content));

// TinyBase's tests are not in its package. These make the assertions of its version 9.5.1 about what is stored: those of
// persisters.test.ts for every persister, and those of indexed-db.test.ts and durable-object-storage.test.ts that apply here.
onBoth("TinyBase's tests of persisters", (to) => {
  test("tinybase: what was saved is loaded", async () => {
    const store = createStore()
      .setTables({ t1: { r1: { c1: 1, c2: "two" } } })
      .setValues({ v1: true });
    await persisted(store, to(), "save").persister.save();
    const other = await loaded(to(), "save");
    expect(plain(other.getContent())).toStrictEqual([
      { t1: { r1: { c1: 1, c2: "two" } } },
      { v1: true },
    ]);
    store.setTables({ t1: { r1: { c1: 2 } } }).delValues();
    await persisted(store, to(), "save").persister.save();
    expect(plain((await loaded(to(), "save")).getContent())).toStrictEqual([
      { t1: { r1: { c1: 2 } } },
      {},
    ]);
  });

  test("tinybase: a store that was never saved has its initial content, and an empty one none", async () => {
    const initial = [{ t1: { r1: { c1: 1 } } }, {}] as [object, object];
    const first = createStore();
    await persisted(first, to(), "initial").persister.load(initial as never);
    expect(plain(first.getContent())).toStrictEqual(initial);
    await persisted(createStore(), to(), "initial").persister.save();
    const second = createStore();
    await persisted(second, to(), "initial").persister.load(initial as never);
    expect(plain(second.getContent())).toStrictEqual([{}, {}]);
  });

  test("tinybase: each change is saved, of cells, rows, tables and values", async () => {
    const store = createStore();
    const { persister, codes } = persisted(store, to(), "auto");
    await persister.startAutoPersisting();
    // Each save ends with the status 0, also while others wait.
    const isSame = async () =>
      isDeepStrictEqual(
        plain((await loaded(to(), "auto")).getContent()),
        plain(store.getContent()),
      );
    const same = async () => {
      while (!(await isSame())) await turn();
    };
    store.setTables({ t1: { r1: { c1: 1, c2: 2 }, r2: { c1: 3 } }, t2: { r1: { c1: 4 } } });
    await same();
    store
      .setCell("t1", "r1", "c1", 5)
      .delCell("t1", "r1", "c2")
      .setValue("v1", 6)
      .setValue("v2", 7);
    await same();
    store.delRow("t1", "r2").delValue("v1").addRow("t3", { c1: "x" });
    await same();
    store.delTable("t2");
    await same();
    store.transaction(() => store.delTables().setRow("t1", "r1", { c9: 9 }).delValues());
    await same();
    expect(codes).toStrictEqual([]);
  });

  test("tinybase: a change writes the record of its row and no other", async () => {
    const store = createStore();
    const { persister } = persisted(store, to(), "rows");
    await persister.startAutoPersisting();
    for (let i = 0; i < 10; i += 1) store.setCell("t", `${i}`, "c", i);
    const versions = async () => {
      const all: unknown[] = [];
      for await (const key of to().keys({ prefix: "tinybase/" })) {
        if (key.startsWith('tinybase/"rows"')) all.push((await to().getEntry(key))?.version);
      }
      return all;
    };
    while ((await versions()).length < 11) await turn();
    const before = await versions();
    store.setCell("t", "5", "c", "new");
    while ((await loaded(to(), "rows")).getCell("t", "5", "c") !== "new") await turn();
    const after = await versions();
    expect(after.filter((version, i) => version !== before[i]).length).toBe(1);
  });

  test("tinybase: ids may be any text, and stores with similar names are apart", async () => {
    const ids = ["", '"', '","', "ö", "a/b", "\u0000", "1", "__proto__"];
    const store = createStore();
    for (const id of ids) store.setCell(id, id, id, id).setValue(id, id);
    await persisted(store, to(), "ids").persister.save();
    await persisted(createStore().setValue("a", 1), to(), 'ids"').persister.save();
    await persisted(createStore().setValue("a", 1), to(), "ids2").persister.save();
    expect(plain((await loaded(to(), "ids")).getContent())).toStrictEqual(
      plain(store.getContent()),
    );
    // No id has changed the prototype of all objects.
    for (const id of ids) expect(Object.hasOwn(Object.prototype, id)).toBe(id === "__proto__");
  });

  test("tinybase: a persister gives its store, its status and its counts", async () => {
    const store = createStore().setValue("v", 1);
    const { persister } = persisted(store, to(), "status");
    assert(persister.getStore() === store);
    const seen: number[] = [];
    persister.addStatusListener((_persister, status) => seen.push(status));
    const saving = persister.save();
    expect(persister.getStatus()).toBe(2);
    await saving;
    expect([persister.getStatus(), persister.getStats()]).toStrictEqual([
      0,
      { loads: 0, saves: 1 },
    ]);
    const loading = persister.load();
    expect(persister.getStatus()).toBe(1);
    await loading;
    expect([persister.getStatus(), persister.getStats()]).toStrictEqual([
      0,
      { loads: 1, saves: 1 },
    ]);
    expect(seen).toStrictEqual([2, 0, 1, 0]);
  });

  test("tinybase: objects and arrays are loaded as they were, however they were saved", async () => {
    const cells = { object: { a: "b" }, array: [1, [2], null], nothing: null };
    for (const isAutomatic of [false, true]) {
      const name = `objects ${isAutomatic}`;
      const store = createStore();
      const { persister, codes } = persisted(store, to(), name);
      if (isAutomatic) await persister.startAutoSave();
      store.setRow("t", "r", cells).setValues(cells);
      if (isAutomatic) await until(() => hasSaved(persister, 3));
      else await persister.save();
      const other = await loaded(to(), name);
      expect(plain([other.getRow("t", "r"), other.getValues()])).toStrictEqual([cells, cells]);
      const before = await stored(to(), "tinybase/");
      await persister.save();
      expect(await stored(to(), "tinybase/")).toStrictEqual(before);
      expect(codes).toStrictEqual([]);
    }
  });

  test("tinybase: the mark that TinyBase has for undefined is kept within texts and objects", async () => {
    const values = { text: "a\uFFFCb", object: { a: "\uFFFC" } };
    // By itself the store refuses it.
    const store = createStore().setValues(values).setValue("alone", "\uFFFC");
    expect(store.hasValue("alone")).toBe(false);
    const { persister, codes } = persisted(store, to(), "marks");
    await persister.save();
    expect(plain((await loaded(to(), "marks")).getValues())).toStrictEqual(values);
    expect(codes).toStrictEqual([]);
  });

  test("tinybase: automatic saves are one for each change, from their start to their end", async () => {
    const store = createStore().setCell("t", "r", "a", 1).setValue("a", 1);
    const { persister } = persisted(store, to(), "saves");
    const saved = async (saves: number) => {
      await until(() => hasSaved(persister, saves));
      return plain((await loaded(to(), "saves")).getContent());
    };
    expect(persister.isAutoSaving()).toBe(false);
    await persister.startAutoSave();
    expect(persister.isAutoSaving()).toBe(true);
    expect(await saved(1)).toStrictEqual([{ t: { r: { a: 1 } } }, { a: 1 }]);
    store.setTables({ t: { r: { a: 1, b: 2 } } });
    expect(await saved(2)).toStrictEqual([{ t: { r: { a: 1, b: 2 } } }, { a: 1 }]);
    store.setValues({ a: 1, b: 2 });
    expect(await saved(3)).toStrictEqual([{ t: { r: { a: 1, b: 2 } } }, { a: 1, b: 2 }]);
    store.delCell("t", "r", "b");
    expect(await saved(4)).toStrictEqual([{ t: { r: { a: 1 } } }, { a: 1, b: 2 }]);
    store.delValue("b");
    expect(await saved(5)).toStrictEqual([{ t: { r: { a: 1 } } }, { a: 1 }]);
    // Of two changes at once the last one stays.
    store.setValue("a", 2).setValue("a", 3);
    expect(await saved(7)).toStrictEqual([{ t: { r: { a: 1 } } }, { a: 3 }]);
    await persister.stopAutoSave();
    expect(persister.isAutoSaving()).toBe(false);
    store.setValue("a", 4);
    await turn(5);
    expect(await saved(7)).toStrictEqual([{ t: { r: { a: 1 } } }, { a: 3 }]);
    expect(persister.getStats()).toStrictEqual({ loads: 0, saves: 7 });
  });

  test("tinybase: startAutoLoad loads what automatic saves have stored", async () => {
    const store = createStore();
    const { persister } = persisted(store, to(), "round");
    await persister.startAutoSave();
    store.setTables({ t: { r: { a: 1, b: 2 }, s: { a: 3 } }, u: { r: { a: 4 } } });
    store
      .setValues({ a: 1, b: 2 })
      .delTable("u")
      .delRow("t", "s")
      .delCell("t", "r", "b")
      .delValue("b");
    await persister.stopAutoSave();
    await persister.save();
    store.delTables().delValues();
    await persister.startAutoLoad();
    expect(plain(store.getContent())).toStrictEqual([{ t: { r: { a: 1 } } }, { a: 1 }]);
    // Nothing reports later changes to it.
    expect([persister.isAutoLoading(), persister.getStats().loads]).toStrictEqual([false, 1]);
  });

  test("tinybase: automatic loads do not save, nor automatic saves load", async () => {
    await persisted(createStore().setValue("a", 1), to(), "no echo").persister.save();
    const store = createStore();
    const { persister } = persisted(store, to(), "no echo");
    await persister.startAutoPersisting();
    expect(persister.getStats()).toStrictEqual({ loads: 1, saves: 1 });
    await persister.load();
    await turn(5);
    expect(persister.getStats()).toStrictEqual({ loads: 2, saves: 1 });
    store.setValue("a", 2);
    await until(() => hasSaved(persister, 2));
    expect(persister.getStats()).toStrictEqual({ loads: 2, saves: 2 });
  });

  test("tinybase: where nothing is stored, or no longer, a load leaves the store or sets what it is given", async () => {
    const store = createStore().setCell("t", "r", "a", 1);
    const { persister, codes } = persisted(store, to(), "nothing");
    await persister.load();
    expect(plain(store.getContent())).toStrictEqual([{ t: { r: { a: 1 } } }, {}]);
    await persister.startAutoLoad();
    expect(plain(store.getContent())).toStrictEqual([{ t: { r: { a: 1 } } }, {}]);
    await persister.load([{ t: { r: { a: 2 } } }, { v: 1 }]);
    expect(plain(store.getContent())).toStrictEqual([{ t: { r: { a: 2 } } }, { v: 1 }]);
    await persister.save();
    await to().clear({ prefix: 'tinybase/"nothing"' });
    await persister.load();
    expect(plain(store.getContent())).toStrictEqual([{ t: { r: { a: 2 } } }, { v: 1 }]);
    expect([persister.getStats(), codes]).toStrictEqual([{ loads: 4, saves: 1 }, []]);
  });

  test("tinybase: what is unreadable leaves the store as it is", async () => {
    const store = createStore().setCell("t", "r", "a", 1);
    const { persister, codes } = persisted(store, to(), "corrupt");
    await persister.startAutoPersisting();
    await to().set('tinybase/"corrupt""t","r"', "{");
    await persister.load();
    expect(plain(store.getContent())).toStrictEqual([{ t: { r: { a: 1 } } }, {}]);
    expect([persister.getStats().loads, codes]).toStrictEqual([2, ["VARVE_MALFORMED_VALUE"]]);
  });

  test("tinybase: keys of others below the persister's are left as they are", async () => {
    await persisted(createStore().setValue("a", 1), to(), "others").persister.save();
    const others = ["x", "1", '["a"]', '"a","b","c"', '"\\u0061"', '"b'];
    for (const key of others) await to().set(`tinybase/"others"${key}`, "2");
    const store = createStore();
    const { persister, codes } = persisted(store, to(), "others");
    await persister.load();
    expect(plain(store.getContent())).toStrictEqual([{}, { a: 1 }]);
    store.delValues();
    await persister.save();
    expect(codes).toStrictEqual([]);
    expect(await stored(to(), 'tinybase/"others"')).toStrictEqual(
      Object.fromEntries(
        ["", ...others].map((key) => [`tinybase/"others"${key}`, key ? "2" : "1"]),
      ),
    );
  });

  test("tinybase: a load writes nothing", async () => {
    await persisted(createStore().setValue("a", 1), to(), "reading").persister.save();
    const version = async () => (await to().getEntry('tinybase/"reading""a"'))?.version;
    const before = await version();
    await loaded(to(), "reading");
    expect(await version()).toBe(before);
  });
});

onBoth("tinybase: the persister", (to, kind) => {
  test("tinybase: a value of something else is reported and stays", async () => {
    await persisted(createStore().setValue("a", 1), to(), "bad").persister.save();
    await to().set('tinybase/"bad""b"', "no json");
    const { persister, codes } = persisted(createStore(), to(), "bad");
    await persister.load();
    await persister.save();
    expect(new Set(codes)).toStrictEqual(new Set(["VARVE_MALFORMED_VALUE"]));
    expect(await to().getText('tinybase/"bad""b"')).toBe("no json");
    expect(await to().getText('tinybase/"bad""a"')).toBe("1");
  });

  test("tinybase: what a full disk refuses is reported, and saved with the next change", async () => {
    const { to: full, free } = await nearlyFull(kind);
    const store = createStore();
    const { persister, codes } = persisted(store, full, "full");
    await persister.startAutoPersisting();
    store.setCell("t", "large", "c", "x".repeat(4_000_000));
    await until(() => codes.length > 0 && persister.getStatus() === 0);
    expect(codes).toStrictEqual([FULL.code]);
    expect(plain((await loaded(full, "full")).getTables())).toStrictEqual({});
    free();
    store.setCell("t", "small", "c", 1);
    await until(() => persister.getStatus() === 0);
    expect(plain((await loaded(full, "full")).getContent())).toStrictEqual(
      plain(store.getContent()),
    );
  });

  test("tinybase: of a save that fails nothing is stored", async () => {
    const { to: full } = await nearlyFull(kind);
    const store = createStore();
    for (let i = 0; i < 40; i += 1) store.setCell("t", `${i}`, "c", "x".repeat(100_000));
    const { persister, codes } = persisted(store, full, "whole");
    await persister.save();
    expect([codes, await full.count()]).toStrictEqual([[FULL.code], 1]);
  });

  test("tinybase: a closed database is reported", async () => {
    const db = await fresh(kind);
    const { persister, codes } = persisted(createStore().setValue("a", 1), db, "closed");
    await db.close();
    await persister.save();
    await persister.load();
    expect(codes).toStrictEqual(Array(2).fill("VARVE_DATABASE_CLOSED"));
  });
});

describe("tinybase: tabs", () => {
  function tabs(count: number): Client[] {
    const channels = Array.from({ length: count }, () => new MessageChannel());
    const served = serve("tabs", { storage: memory(), ...wasmOption() });
    for (const { port1 } of channels) served.listen(port1);
    return channels.map(({ port1, port2 }) => {
      const client = connect("tabs", { worker: () => port2 });
      onTestFinished(async () => {
        await client.close();
        port1.close();
        port2.close();
      });
      return client as Client;
    });
  }

  test("tinybase: a save of everything leaves rows of another tab that it does not know", async () => {
    const [one, two] = tabs(2) as [Client, Client];
    const first = createStore();
    const { persister } = persisted(first, one, "leave");
    await persister.load();
    await persister.save();
    await persisted(createStore().setValue("theirs", 1), two, "leave").persister.save();
    first.setValue("mine", 2);
    await persister.save();
    const values = (await loaded(one, "leave")).getValues();
    expect(plain(values)).toStrictEqual({ mine: 2, theirs: 1 });
  });

  test("tinybase: a save of everything leaves objects that another tab has replaced", async () => {
    const [one, two] = tabs(2) as [Client, Client];
    const first = createStore();
    const { persister } = persisted(first, one, "objects");
    await persister.startAutoSave();
    first.setValue("object", { from: "one" }).setCell("t", "r", "object", { from: "one" });
    await until(() => hasSaved(persister, 3));
    const second = await loaded(two, "objects");
    second.setValue("object", { from: "two" }).setCell("t", "r", "object", { from: "two" });
    await persisted(second, two, "objects").persister.save();
    await persister.save();
    const left = await loaded(one, "objects");
    expect([left.getValue("object"), left.getCell("t", "r", "object")]).toStrictEqual([
      { from: "two" },
      { from: "two" },
    ]);
  });
});

describe("tinybase: createVarvePersister", () => {
  test("tinybase: anything but a database or a client is refused, a bad prefix and a bad name", async () => {
    const db = await fresh("database");
    const store = createStore();
    for (const wrong of [undefined, null, {}, new Map(), "shop", db.snapshot()]) {
      throws(() => createVarvePersister(store, wrong as object, "a"), {
        ...BAD,
        message: /open\(\)/,
      });
    }
    throws(() => createVarvePersister(store, db, 5 as never), { ...BAD, message: /name/ });
    const mergeable = createMergeableStore();
    throws(() => createVarvePersister(mergeable, db, "a"), { ...BAD, message: /MergeableStore/ });
    throws(() => createVarvePersister(store, db, "a", { prefix: 5 as never }), BAD);
  });

  test("tinybase: what has been saved is in the file, also of a buffered database", async () => {
    const storage = new FakeStorage();
    const db = await open("tinybase", { storage, durability: "buffered", ...wasmOption() });
    onTestFinished(() => db.close());
    const writes = () => storage.calls.filter(({ op }) => op === "write").length;
    const before = writes();
    await persisted(createStore().setValue("a", 1), db, "a").persister.save();
    expect(writes() > before).toBe(true);
  });

  test("tinybase: a store is there when the database is opened again", async () => {
    const storage = file(context().directory ?? "");
    for (const expected of [undefined, 1]) {
      const db = await open("tinybase", { storage, ...wasmOption() });
      const store = createStore();
      const persister = createVarvePersister(store, db, "a");
      await persister.startAutoPersisting();
      expect(store.getValue("a")).toBe(expected);
      store.setValue("a", 1);
      await until(() => persister.getStatus() === 0);
      await persister.destroy();
      await db.close();
    }
  });
});
