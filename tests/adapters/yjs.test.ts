import { type Client, connect, type Database, file, memory, open, serve } from "varve";
import { clearDocument, VarvePersistence } from "varve/yjs";
import { assert, describe, expect, onTestFinished, test } from "vitest";
import { applyUpdate, Doc, encodeStateAsUpdate } from "yjs";
import { context, wasmOption } from "../support/context.js";
import { rejects, throws } from "../support/errors.js";
import { turn, until } from "../support/values.js";
import { FULL, fresh, nearlyFull, onBoth } from "./support.js";

const BAD = { name: "TypeError", code: "VARVE_BAD_ARGUMENT" };
const MALFORMED = { name: "MalformedValueError", code: "VARVE_MALFORMED_VALUE" };

/** A provider, destroyed with the test, and the errors that it reported. */
function provided(name: string, doc: Doc, to: object, options = {}) {
  const provider = new VarvePersistence(name, doc, to, options);
  const errors: { code?: string }[] = [];
  provider.on("error", (error) => errors.push(error as object));
  onTestFinished(() => provider.destroy().catch(() => {}));
  return { provider, errors };
}

/** A new document with what is stored. */
async function loaded(name: string, to: object): Promise<Doc> {
  const doc = new Doc();
  const provider = new VarvePersistence(name, doc, to);
  await provider.whenSynced;
  await provider.destroy();
  return doc;
}

const records = (to: Database | Client, name: string) =>
  to.count({ prefix: `yjs/${JSON.stringify(name)}u` });

// y-indexeddb's tests are not in its package. These make the assertions of its y-indexeddb.tests.js, as of version 9.0.12.
onBoth("y-indexeddb's tests", (to) => {
  test("yjs: a document is there again, and what two providers wrote is merged", async () => {
    const doc = new Doc();
    doc.getArray("t").insert(0, [0]);
    const { provider } = provided("merge", doc, to());
    doc.getArray("t").insert(0, [1]);
    await provider.whenSynced;
    expect(provider.synced).toBe(true);
    doc.getArray("t").insert(0, [2]);
    await provider.flush();
    const second = new Doc();
    const other = provided("merge", second, to()).provider;
    await other.whenSynced;
    expect(second.getArray("t").toJSON()).toStrictEqual([2, 1, 0]);
    second.getArray("t").insert(0, [3]);
    await other.flush();
    expect((await loaded("merge", to())).getArray("t").toJSON()).toStrictEqual([3, 2, 1, 0]);
  });

  test("yjs: writes of two providers that run at once are all there", async () => {
    const docs = [new Doc(), new Doc()];
    const providers = docs.map((doc) => provided("at once", doc, to(), { compactAt: 20 }).provider);
    await Promise.all(providers.map((one) => one.whenSynced));
    for (let i = 0; i < 100; i += 1) {
      for (const [index, doc] of docs.entries()) doc.getMap("m").set(`${index}-${i}`, i);
      if (i % 10 === 0) await turn();
    }
    await Promise.all(providers.map((one) => one.flush()));
    const stored = await loaded("at once", to());
    expect(stored.getMap("m").size).toBe(200);
    await Promise.all(providers.map((one) => one.compact()));
    expect((await loaded("at once", to())).getMap("m").size).toBe(200);
  });

  test("yjs: what is loaded is observed once, with the provider as its origin and as not local", async () => {
    await provided("observed", filledDoc("a", "b"), to()).provider.flush();
    const doc = new Doc();
    const seen: unknown[] = [];
    const { provider } = provided("observed", doc, to());
    doc.getMap("m").observe((_event, { local, origin }) => seen.push(local, origin === provider));
    await provider.whenSynced;
    expect(seen).toStrictEqual([false, true]);
  });

  test("yjs: 500 updates are replaced by one, and another provider that compacts has them all", async () => {
    const doc = new Doc();
    doc.getArray("t").push([0]);
    const { provider } = provided("500", doc, to());
    await provider.whenSynced;
    doc.getArray("t").push([1]);
    const second = new Doc();
    const other = provided("500", second, to()).provider;
    await other.whenSynced;
    expect(second.getArray("t").toJSON()).toStrictEqual([0, 1]);
    for (let i = 2; i < 501; i += 1) doc.getArray("t").push([i]);
    await Promise.all([provider.flush(), other.flush()]);
    expect(await records(to(), "500")).toBe(1);
    await other.compact();
    expect(second.getArray("t").toJSON()).toStrictEqual(doc.getArray("t").toJSON());
    expect(second.getArray("t").length).toBe(501);
    expect(await records(to(), "500")).toBe(1);
  });

  test("yjs: two documents that each have had 500 updates at once end alike, in few records", async () => {
    const docs = [new Doc(), new Doc()] as const;
    const [first, second] = docs.map((doc) => doc.getArray("t"));
    assert(first && second);
    first.insert(0, [0]);
    const one = provided("alike", docs[0], to()).provider;
    await one.whenSynced;
    const two = provided("alike", docs[1], to()).provider;
    await two.whenSynced;
    for (const [array, name] of [
      [first, "left"],
      [second, "right"],
    ] as const) {
      array.insert(0, [name]);
      for (let i = 0; i < 501; i += 1) array.insert(i, [i]);
    }
    await Promise.all([one.flush(), two.flush()]);
    assert((await records(to(), "alike")) < 10);
    for (const provider of [one, two, one]) await provider.compact();
    expect(first.length).toBe(1_005);
    expect(first.toJSON()).toStrictEqual(second.toJSON());
  });

  test("yjs: values beside the document are kept, replaced and deleted", async () => {
    const { provider } = provided("custom", new Doc(), to());
    expect(await provider.get("a")).toBe(undefined);
    await provider.set("a", 4);
    expect(await provider.get("a")).toBe(4);
    await provider.set("a", { deep: ["x"] });
    expect(await provided("custom", new Doc(), to()).provider.get("a")).toStrictEqual({
      deep: ["x"],
    });
    await provider.del("a");
    expect(await provider.get("a")).toBe(undefined);
    // Without waiting, and with a number.
    const writes = [provider.set("b", 4), provider.set(4, "four"), provider.set("o", { a: 4 })];
    expect(await provider.get("b")).toBe(4);
    expect([await provider.get(4), await provider.get("4")]).toStrictEqual(["four", "four"]);
    expect(await provider.get("o")).toStrictEqual({ a: 4 });
    await Promise.all(writes);
    await provider.del(4);
    expect(await provider.get(4)).toBe(undefined);
    for (const key of [undefined, new Date(), new ArrayBuffer(1), ["a"]]) {
      await rejects(provider.set(key as never, 1), { ...BAD, message: /key/ });
      await rejects(provider.get(key as never), BAD);
      await rejects(provider.del(key as never), BAD);
    }
  });

  test("yjs: many updates are replaced by one", async () => {
    const doc = new Doc();
    const { provider } = provided("many", doc, to(), { compactAt: 50 });
    await provider.whenSynced;
    for (let i = 0; i < 49; i += 1) doc.getArray("t").push([i]);
    await provider.flush();
    expect(await records(to(), "many")).toBe(49);
    doc.getArray("t").push([49]);
    await provider.flush();
    expect(await records(to(), "many")).toBe(1);
    const all = Array.from({ length: 50 }, (_, i) => i);
    expect((await loaded("many", to())).getArray("t").toJSON()).toStrictEqual(all);
  });

  test("yjs: clearData ends the provider and deletes the document and the values beside it", async () => {
    const doc = new Doc();
    const { provider } = provided("clear", doc, to());
    doc.getMap("m").set("a", 1);
    await provider.set("a", 1);
    await provided('clear" more', doc, to()).provider.flush();
    await provider.clearData();
    doc.getMap("m").set("a", 2);
    await turn();
    expect(await to().count({ prefix: 'yjs/"clear"' })).toBe(0);
    expect((await loaded('clear" more', to())).getMap("m").get("a")).toBe(2);
    await clearDocument('clear" more', to());
    expect((await loaded('clear" more', to())).getMap("m").size).toBe(0);
  });

  test("yjs: a destroyed document ends its provider, and a destroyed provider stores nothing more", async () => {
    const doc = new Doc();
    const { provider } = provided("destroy", doc, to());
    await provider.whenSynced;
    doc.getMap("m").set("a", 1);
    await provider.destroy();
    doc.getMap("m").set("b", 1);
    const second = new Doc();
    provided("destroy", second, to());
    second.getMap("m").set("c", 1);
    second.destroy();
    second.getMap("m").set("d", 1);
    await turn();
    const left = [...(await loaded("destroy", to())).getMap("m").keys()].sort();
    expect(left).toStrictEqual(["a", "c"]);
  });

  test("yjs: destroyed before it has loaded, it changes nothing and settles", async () => {
    await provided("early", filledDoc("a"), to()).provider.flush();
    const doc = new Doc();
    const { provider } = provided("early", doc, to());
    let events = 0;
    provider.on("synced", () => {
      events += 1;
    });
    await provider.destroy();
    await provider.whenSynced;
    await turn(5);
    expect([doc.getMap("m").size, provider.synced, events]).toStrictEqual([0, false, 0]);
  });
});

function filledDoc(...keys: string[]): Doc {
  const doc = new Doc();
  for (const key of keys) doc.getMap("m").set(key, key);
  return doc;
}

onBoth("yjs: the provider", (to, kind) => {
  test("yjs: listeners are called once, or until they are removed", async () => {
    const doc = new Doc();
    const provider = new VarvePersistence("events", doc, to());
    const seen: string[] = [];
    const removed = () => seen.push("removed");
    provider.on("synced", (given) => seen.push(`on ${given === provider}`));
    provider.once("synced", () => seen.push("once"));
    provider.on("synced", removed);
    provider.off("synced", removed);
    expect(await provider.whenSynced).toBe(provider);
    expect(seen).toStrictEqual(["on true", "once"]);
    await provider.destroy();
  });

  test("yjs: what is loaded has the provider as its origin, is not local, and is not stored again", async () => {
    await provided("origin", filledDoc("a"), to()).provider.flush();
    const doc = new Doc();
    const seen: unknown[] = [];
    doc.on("update", (_update, origin, _doc, { local }) => seen.push(origin, local));
    const { provider } = provided("origin", doc, to());
    await provider.whenSynced;
    await provider.flush();
    expect(seen.length).toBe(2);
    assert(seen[0] === provider && seen[1] === false);
    expect(await records(to(), "origin")).toBe(1);
  });

  test("yjs: an update larger than a record is stored in parts, and compacted", async () => {
    const doc = new Doc();
    const { provider } = provided("large", doc, to());
    await provider.whenSynced;
    const large = new Uint8Array(20 * 1_048_576).map((_, i) => i % 251);
    doc.getMap("m").set("picture", large);
    await provider.flush();
    expect(await records(to(), "large")).toBe(3);
    const same = async () => {
      const stored = (await loaded("large", to())).getMap("m").get("picture") as Uint8Array;
      assert(stored.length === large.length && stored.every((byte, i) => byte === large[i]));
    };
    await same();
    await provider.compact();
    expect(await records(to(), "large")).toBe(3);
    await same();
    await provider.clearData();
  });

  test("yjs: a deleted document does not come back by a compaction that had read it before", async () => {
    const doc = filledDoc("a", "b");
    const { provider } = provided("race", doc, to());
    await provider.flush();
    const compacting = provider.compact();
    await clearDocument("race", to());
    await compacting;
    const left = await to().count({ prefix: 'yjs/"race"' });
    // On a database the compaction has been made before, and is deleted.
    expect(left).toBe(0);
  });

  test("yjs: a stored value that is no update is reported and stays, and all else is loaded", async () => {
    await provided("bad", filledDoc("a", "b"), to()).provider.flush();
    await to().set('yjs/"bad"u0-0-0-000', new Uint8Array([0xff, 0xff, 0xff]));
    const doc = new Doc();
    const { provider, errors } = provided("bad", doc, to());
    await rejects(provider.whenSynced, { ...MALFORMED, message: "no update of Yjs" });
    expect(errors.map(({ code }) => code)).toStrictEqual([MALFORMED.code]);
    expect([[...doc.getMap("m").keys()].sort(), provider.synced]).toStrictEqual([
      ["a", "b"],
      false,
    ]);
    await rejects(provider.compact(), MALFORMED);
    doc.getMap("m").set("c", 1);
    await provider.flush();
    expect(await records(to(), "bad")).toBe(3);
  });

  test("yjs: what a full disk refuses is reported and kept, and stored when there is space", async () => {
    const { to: full, free } = await nearlyFull(kind);
    const doc = new Doc();
    const { provider, errors } = provided("full", doc, full);
    await provider.whenSynced;
    doc.getMap("m").set("large", "x".repeat(4_000_000));
    await rejects(provider.flush(), FULL);
    expect(errors.map(({ code }) => code)).toStrictEqual([FULL.code]);
    doc.getMap("m").set("small", 1);
    await rejects(provider.flush(), FULL);
    // The small one is stored, and waits for the one before it.
    expect(await records(full, "full")).toBe(1);
    free();
    await provider.flush();
    const stored = (await loaded("full", full)).getMap("m");
    expect([stored.get("small"), String(stored.get("large")).length]).toStrictEqual([1, 4_000_000]);
  });

  test("yjs: after a full disk the next update stores what was refused", async () => {
    const { to: full, free } = await nearlyFull(kind);
    const doc = new Doc();
    const { provider } = provided("full", doc, full);
    await provider.whenSynced;
    doc.getMap("m").set("large", "x".repeat(4_000_000));
    await turn(20);
    free();
    doc.getMap("m").set("small", 1);
    while ((await loaded("full", full)).getMap("m").size < 2) await turn();
  });

  test("yjs: a closed database is reported, also by the promises", async () => {
    const db = await fresh(kind);
    const closed = { code: "VARVE_DATABASE_CLOSED" };
    const doc = new Doc();
    const { provider, errors } = provided("closed", doc, db);
    await provider.whenSynced;
    await db.close();
    doc.getMap("m").set("a", 1);
    await until(() => errors.length > 0);
    expect(errors[0]?.code).toBe(closed.code);
    await rejects(provider.flush(), closed);
    await rejects(provider.compact(), closed);
    await rejects(provider.get("a"), closed);
    await rejects(provider.destroy(), closed);
  });
});

describe("yjs: tabs", () => {
  /** Clients of one database, as of several tabs. */
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

  test("yjs: tabs get each other's updates, through compactions too, and end alike", async () => {
    const docs = [new Doc(), new Doc(), new Doc()];
    const providers = tabs(3).map(
      (client, i) => provided("tabs", docs[i] as Doc, client, { compactAt: 10 }).provider,
    );
    await Promise.all(providers.map((one) => one.whenSynced));
    for (let i = 0; i < 60; i += 1) {
      docs[i % 3]?.getArray("t").push([i]);
      if (i % 7 === 0) await turn();
    }
    await until(() => docs.every((doc) => doc.getArray("t").length === 60));
    const [first] = docs as [Doc];
    for (const doc of docs) {
      expect(doc.getArray("t").toJSON()).toStrictEqual(first.getArray("t").toJSON());
    }
    await Promise.all(providers.map((one) => one.flush()));
  });

  test("yjs: 100 keystrokes of one tab come to the other and back once", async () => {
    const [one, two] = tabs(2) as [Client, Client];
    const docs = [new Doc(), new Doc()] as [Doc, Doc];
    const first = provided("typing", docs[0], one).provider;
    const second = provided("typing", docs[1], two).provider;
    await Promise.all([first.whenSynced, second.whenSynced]);
    for (let i = 0; i < 100; i += 1) docs[0].getText("t").insert(i, "x");
    await until(() => docs[1].getText("t").length === 100);
    await Promise.all([first.flush(), second.flush()]);
    expect(await records(one, "typing")).toBe(100);
  });
});

describe("yjs: VarvePersistence", () => {
  test("yjs: anything but a database or a client is refused, and bad options", async () => {
    const db = await fresh("database");
    const doc = new Doc();
    for (const wrong of [undefined, null, {}, new Map(), "shop", db.snapshot()]) {
      throws(() => new VarvePersistence("a", doc, wrong as object), {
        ...BAD,
        message: /open\(\)/,
      });
    }
    throws(() => new VarvePersistence(5 as never, doc, db), { ...BAD, message: /name/ });
    throws(() => new VarvePersistence("a", doc, db, { prefix: 5 as never }), BAD);
    for (const compactAt of [0, 1, Number.NaN, "many"]) {
      throws(() => new VarvePersistence("a", doc, db, { compactAt: compactAt as never }), BAD);
    }
    await rejects(clearDocument(5 as never, db), BAD);
    doc.getMap("m").set("a", 1);
    await turn();
    expect(db.count()).toBe(0);
  });

  test("yjs: a document is there when the database is opened again", async () => {
    const storage = file(context().directory ?? "");
    for (const expected of [[], ["a"], ["a", "b"]]) {
      const db = await open("yjs", { storage, ...wasmOption() });
      const doc = new Doc();
      const provider = new VarvePersistence("a", doc, db);
      await provider.whenSynced;
      expect([...doc.getMap("m").keys()].sort()).toStrictEqual(expected);
      doc.getMap("m").set(expected.length === 0 ? "a" : "b", 1);
      await provider.destroy();
      await db.close();
    }
  });

  test("yjs: a reader of the raw keys has the document from them alone", async () => {
    const db = await fresh("database");
    await provided("raw", filledDoc("a", "b"), db).provider.flush();
    const doc = new Doc();
    for (const update of db.values({ prefix: "yjs/" })) applyUpdate(doc, update.slice());
    expect(encodeStateAsUpdate(doc).length > 2 && doc.getMap("m").size).toBe(2);
  });
});
