import type { Database, OpenOptions, OpenProgress, Storage } from "varve";
import { databases, destroy, memory, open } from "varve";
import { assert, describe, expect, test } from "vitest";
import { wasmOption } from "../support/context.js";
import { rejects, throws } from "../support/errors.js";
import { text } from "../support/values.js";
import { FakeStorage } from "./fake-storage.js";
import { everywhere, filled, freshName, opened } from "./storages.js";

const BAD = { name: "TypeError", code: "VARVE_BAD_ARGUMENT" } as const;
const READ_ONLY = { name: "ReadOnlyError", code: "VARVE_READ_ONLY" } as const;
const MISSING = { name: "DatabaseNotFoundError", code: "VARVE_DATABASE_NOT_FOUND" } as const;
const BUSY = { name: "DatabaseBusyError", code: "VARVE_DATABASE_BUSY" } as const;

everywhere("read-only databases", ({ storage }) => {
  test("everything can be read, and every write throws ReadOnlyError", async () => {
    const name = freshName();
    const db = await opened(storage, {}, name);
    for (let i = 0; i < 100; i++) db.set(`key ${i}`, `value ${i}`);
    await db.close();
    const reader = await opened(storage, { readOnly: true }, name);
    expect(reader.getText("key 7")).toBe("value 7");
    expect(reader.count()).toBe(100);
    expect(reader.count({ prefix: "key 9" })).toBe(11);
    expect([...reader.entries()].length).toBe(100);
    expect(reader.getMany(["key 1", "none"])[1]).toBe(undefined);
    assert((reader.getEntry("key 1")?.version ?? 0) > 0);
    using pin = reader.pin("key 3");
    expect(text(pin?.bytes)).toBe("value 3");
    expect(reader.transaction((tx) => tx.getText("key 5"))).toBe("value 5");
    const writes = [
      () => reader.set("a", "1"),
      () => reader.delete("key 1"),
      () => reader.delete("missing"),
      () => reader.updateIf("key 1", () => {}),
      () => reader.batch([{ type: "delete", key: "key 1" }]),
      () => reader.clear(),
      () => reader.transaction((tx) => tx.set("a", "1")),
    ];
    for (const write of writes) throws(write, { ...READ_ONLY, message: /readOnly/ });
    reader.commit();
    reader.flush();
    await reader.committed;
    await reader.flushed;
    expect(reader.count()).toBe(100);
    await reader.close();
    const again = await opened(storage, {}, name);
    expect(again.recovery.wasClean).toBe(true);
    expect(again.count()).toBe(100);
  });

  test("a missing database is an error, and none is created", async () => {
    const name = freshName();
    await rejects(opened(storage, { readOnly: true }, name), { ...MISSING, message: /readOnly/ });
    expect((await databases({ storage })).includes(name)).toBe(false);
    const db = await opened(storage, {}, name);
    expect(db.recovery.created).toBe(true);
  });

  test("an open database is read-only for all of its handles or for none", async () => {
    const name = freshName();
    const db = await opened(storage, {}, name);
    await rejects(opened(storage, { readOnly: true }, name), {
      name: "OptionsMismatchError",
      message: /readOnly is false, not true/,
    });
    await db.close();
    const [one, two] = [
      await opened(storage, { readOnly: true }, name),
      await opened(storage, { readOnly: true }, name),
    ];
    await one.close();
    expect(two.count()).toBe(0);
  });
});

describe("readOnly", () => {
  /** What a crash left: flushed records and a torn tail behind them. */
  async function torn(): Promise<FakeStorage> {
    const fake = new FakeStorage();
    const db = await opened(fake);
    for (let i = 0; i < 300; i++) db.set(`key ${i}`, filled(9_000, i));
    db.flush();
    db.set("unflushed", filled(2_000, 9));
    const before = fake.content.slice();
    db.commit();
    const left = fake.crashed();
    const first = before.findIndex((byte, i) => byte !== fake.content[i]);
    left.content.fill(0, first + 700);
    return left;
  }

  test("the file stays the same byte for byte, also after a crash", async () => {
    const fake = await torn();
    const before = fake.content.slice();
    for (let round = 0; round < 2; round++) {
      const db = await opened(fake, { readOnly: true, memory: 1_048_576 });
      expect(db.recovery.wasClean).toBe(false);
      expect(db.count()).toBe(300);
      expect(db.has("unflushed")).toBe(false);
      for (let i = 0; i < 300; i++) expect(db.get(`key ${i}`)?.[8_999]).toBe(i % 256);
      db.flush();
      await db.close();
    }
    expect(fake.order).toBe("");
    expect(fake.count("truncate")).toBe(0);
    expect(fake.content).toStrictEqual(before);
  });

  test("readOnly works with strict views and without order", async () => {
    const fake = await torn();
    const db = await opened(fake, { readOnly: true, strictViews: true, ordered: false });
    const view = db.get("key 1");
    expect(view?.length).toBe(9_000);
    await null;
    expect(view?.length).toBe(0);
    throws(() => db.set("a", "1"), READ_ONLY);
  });
});

everywhere("destroy and databases", ({ storage }) => {
  test("destroy removes a database, and returns whether there was one", async () => {
    const name = freshName();
    const db = await opened(storage, {}, name);
    db.set("a", "1");
    await db.close();
    expect(await destroy(name, { storage })).toBe(true);
    expect(await destroy(name, { storage })).toBe(false);
    const again = await opened(storage, {}, name);
    expect(again.recovery.created).toBe(true);
    expect(again.count()).toBe(0);
  });

  test("destroy refuses an open database", async () => {
    const name = freshName();
    const db = await opened(storage, {}, name);
    db.set("a", "1");
    await rejects(destroy(name, { storage }), { ...BUSY, message: /Close it/ });
    expect(db.getText("a")).toBe("1");
    await db.close();
    const opening = opened(storage, {}, name);
    await rejects(destroy(name, { storage }), BUSY);
    expect((await opening).getText("a")).toBe("1");
  });

  test("databases returns the original names, sorted", async () => {
    const before = new Set(await databases({ storage }));
    const names = ["Zebra", "a.b", "..", "é", "list % 1", "list", "LIST", "."];
    for (const name of names) await (await opened(storage, {}, `listed ${name}`)).close();
    const found = (await databases({ storage })).filter((name) => !before.has(name));
    expect(found).toStrictEqual(names.map((name) => `listed ${name}`).sort());
    const open = await opened(storage, {}, freshName());
    assert((await databases({ storage })).length > found.length, "an open one is listed too");
    await open.close();
    for (const name of found) expect(await destroy(name, { storage })).toBe(true);
    expect(
      new Set([...(await databases({ storage }))].filter((name) => found.includes(name))),
    ).toStrictEqual(new Set());
  });

  test("bad names and options are refused", async () => {
    await rejects(destroy("", { storage }), BAD);
    await rejects(destroy(7 as unknown as string, { storage }), BAD);
    await rejects(destroy("a", { storag: storage } as object), { ...BAD, message: /"storag"/ });
    await rejects(databases({ storage: "here" as unknown as Storage }), BAD);
    await rejects(databases(null as unknown as object), BAD);
    await rejects(destroy("a", { storage: new FakeStorage() }), { ...BAD, message: /fake/ });
    await rejects(databases({ storage: new FakeStorage() }), { ...BAD, message: /fake/ });
  });
});

describe("destroy and databases", () => {
  test("each memory() has its own databases, and a new one has none", async () => {
    const storage = memory();
    expect(await databases({ storage })).toStrictEqual([]);
    await opened(storage, {}, "b");
    await opened(storage, {}, "a");
    expect(await databases({ storage })).toStrictEqual(["a", "b"]);
    expect(await databases({ storage: memory() })).toStrictEqual([]);
  });
});

describe("progress and abort of open", () => {
  /** A database of some segments whose program was killed, so that its whole log has to be read. */
  async function written(): Promise<FakeStorage> {
    const fake = new FakeStorage();
    const db = await opened(fake);
    for (let i = 0; i < 400; i++) db.set(`key ${i}`, filled(10_000, i));
    db.flush();
    const left = fake.crashed();
    await db.close();
    return left;
  }

  /** A database with as many keys that was closed: its index is loaded, and records are read when needed. */
  async function closedWith(keys: number): Promise<FakeStorage> {
    const fake = new FakeStorage();
    const db = await opened(fake);
    for (let i = 0; i < keys; i++) db.set(`key ${i}`, filled(10_000, i));
    await db.close();
    return fake;
  }

  const openOf = (fake: FakeStorage, options: OpenOptions) =>
    open("progress", { storage: fake, ...wasmOption(), ...options });

  test("progress never exceeds its total", async () => {
    const fake = await written();
    const reported: OpenProgress[] = [];
    const db = await openOf(fake, { onProgress: (progress) => reported.push(progress) });
    assert(reported.length > 3);
    let last = 0;
    for (const { bytes, total } of reported) {
      expect(total).toBe(fake.content.length);
      assert(bytes >= last && bytes <= total);
      last = bytes;
    }
    assert(last > fake.content.length / 2);
    assert(reported.every(({ doing }) => doing === "opening"));
    const count = reported.length;
    db.get("key 1");
    expect(reported.length, "later reads report nothing").toBe(count);
    await db.close();
  });

  test("the first range reports the progress of sorting, and later ones do not", async () => {
    const fake = await closedWith(800);
    const reported: OpenProgress[] = [];
    const db = await openOf(fake, {
      memory: 8 << 20,
      onProgress: (progress) => reported.push(progress),
    });
    reported.length = 0;
    expect(db.count({ gte: "key 1" })).toBe(799);
    assert(reported.length > 3 && reported.every(({ doing }) => doing === "sorting"));
    let last = 0;
    for (const { bytes, total } of reported) {
      expect(total).toBe(fake.content.length);
      assert(bytes >= last && bytes <= total);
      last = bytes;
    }
    assert(last > fake.content.length / 3);
    reported.length = 0;
    for (const value of db.values()) expect(value.length).toBe(10_000);
    expect(reported.length).toBe(0);
    await db.close();
  });

  test("an onProgress that throws ends the first range, and the next one starts again", async () => {
    const fake = await closedWith(400);
    const thrown = new Error("not now");
    let reads = 0;
    const onProgress = ({ doing }: OpenProgress) => {
      reads += 1;
      if (doing === "sorting" && reads < 1000) {
        reads = 1000;
        throw thrown;
      }
    };
    const db = await openOf(fake, { onProgress });
    expect(throws(() => [...db.keys()])).toBe(thrown);
    expect([...db.keys()].length).toBe(400);
    db.set("after", "it");
    expect(db.getText("after")).toBe("it");
    await db.close();
  });

  test("an onProgress for sorting may read, write and use ranges", async () => {
    const fake = await closedWith(800);
    let db: Database | undefined;
    let reported = 0;
    let inside = 0;
    const onProgress = () => {
      if (db === undefined) return;
      reported += 1;
      if (reported === 2) {
        for (let i = 0; i < 800; i += 4) db.delete(`key ${i}`);
        for (let i = 1; i < 800; i += 4) db.set(`key ${i}`, filled(9_000, i));
        for (let i = 0; i < 50; i++) db.set(`new ${i}`, filled(100, i));
        expect(db.get("key 799")?.length).toBe(10_000);
      }
      if (reported === 3) inside = [...db.keys()].length;
    };
    db = await openOf(fake, { memory: 4 << 20, onProgress });
    const keys = [...db.keys()];
    expect(inside).toBe(650);
    expect(db.count()).toBe(650);
    expect(keys.length).toBe(650);
    const lengths = [undefined, 9_000, 10_000, 10_000];
    for (let i = 0; i < 800; i++) expect(db.get(`key ${i}`)?.length).toBe(lengths[i % 4]);
    expect((await db.verify()).problems).toStrictEqual([]);
    await db.close();
  });

  test("an aborted signal rejects with its reason, and touches nothing", async () => {
    const fake = await written();
    const reason = new Error("changed my mind");
    const opening = openOf(fake, { signal: AbortSignal.abort(reason) });
    expect(await rejects(opening, { message: "changed my mind" })).toBe(reason);
    expect(fake.calls.length).toBe(0);
    const plain = await rejects(openOf(fake, { signal: AbortSignal.abort() }));
    expect(plain.name).toBe("AbortError");
  });

  test("an abort inside onProgress rejects with the reason, and leaves the file as it was", async () => {
    const fake = await written();
    const before = fake.content.slice();
    for (const after of [1, 2, 5]) {
      const controller = new AbortController();
      let calls = 0;
      const onProgress = () => {
        calls += 1;
        if (calls === after) controller.abort(new Error(`after ${after}`));
      };
      const opening = openOf(fake, { onProgress, signal: controller.signal });
      await rejects(opening, { message: `after ${after}` });
      expect(calls, "nothing more is read").toBe(after);
      expect(fake.order).toBe("");
      expect(fake.openFiles).toBe(0);
    }
    expect(fake.content).toStrictEqual(before);
    const db = await openOf(fake, {});
    expect(db.count()).toBe(400);
    await db.close();
  });

  test("open rejects with the error of onProgress", async () => {
    const fake = await written();
    const thrown = new Error("from the listener");
    const onProgress = () => {
      throw thrown;
    };
    expect(await rejects(openOf(fake, { onProgress }))).toBe(thrown);
    expect(fake.openFiles).toBe(0);
  });

  test("an open aborted while it waits rejects, and opens for the callers that joined it", async () => {
    const fake = await written();
    const controller = new AbortController();
    const [first, second] = [openOf(fake, { signal: controller.signal }), openOf(fake, {})];
    controller.abort(new Error("mine alone"));
    await rejects(first, { message: "mine alone" });
    const db = await second;
    expect(db.count()).toBe(400);
    const late = new AbortController();
    const third = openOf(fake, { signal: late.signal });
    late.abort(new Error("too late for this one"));
    await rejects(third, { message: "too late for this one" });
    expect(db.count(), "an aborted call does not close the shared database").toBe(400);
    await db.close();
    expect(fake.openFiles).toBe(0);
  });

  test("a signal aborted afterwards has no effect", async () => {
    const controller = new AbortController();
    const db = await opened(memory(), { signal: controller.signal });
    controller.abort();
    db.set("a", "1");
    expect(db.getText("a")).toBe("1");
  });
});
