import type { Database, OpenOptions } from "varve";
import { assert, describe, expect, onTestFinished, test } from "vitest";
import { rejects, throws } from "../support/errors.js";
import { turn, until } from "../support/values.js";
import { type Call, FakeStorage, type Fault, platform } from "./fake-storage.js";
import { filled, freshName, opened } from "./storages.js";

interface Setting {
  fake: FakeStorage;
  db: Database;
  reported: Error[];
}

/** A database with `a` = old in its file, whose file calls fail on demand. */
async function setting(options: OpenOptions = {}): Promise<Setting> {
  const fake = new FakeStorage();
  const reported: Error[] = [];
  const db = await opened(fake, { onError: (error) => reported.push(error), ...options });
  db.set("a", "old");
  db.flush();
  await turn();
  return { fake, db, reported };
}

/** Makes all further calls of one kind fail. */
function failing(fake: FakeStorage, op: Call["op"], fault: () => Fault): void {
  fake.fault = (call) => (call.op === op ? fault() : undefined);
}

function healed(fake: FakeStorage): void {
  fake.fault = () => undefined;
}

/** Checks that there are no unhandled rejections. */
function forbidUnhandled(): Error[] {
  const unhandled: Error[] = [];
  const { process } = globalThis as { process?: NodeJS.Process };
  if (typeof process?.on === "function") {
    const listener = (reason: unknown) => unhandled.push(reason as Error);
    process.on("unhandledRejection", listener);
    onTestFinished(() => {
      process.off("unhandledRejection", listener);
    });
  } else {
    const listener = (event: Event) => unhandled.push((event as PromiseRejectionEvent).reason);
    addEventListener("unhandledrejection", listener);
    onTestFinished(() => removeEventListener("unhandledrejection", listener));
  }
  return unhandled;
}

const QUOTA = { name: "QuotaExceededError", code: "VARVE_QUOTA_EXCEEDED" } as const;
const POISONED = { name: "DatabasePoisonedError", code: "VARVE_DATABASE_POISONED" } as const;

/** The forms of a full disk: an error in Chromium, Node and Deno, a count of zero or a short count elsewhere. */
const FULL: [string, () => () => Fault, boolean][] = [
  ["thrown as browsers do", () => platform.quota, true],
  ["thrown as Node does", () => platform.enospc, true],
  ["thrown as Deno does", () => platform.efbig, true],
  ["reported by a count of zero", () => () => 0, false],
  ["reported by a short count", once, false],
];

/** The first write is cut off; the bytes that it left can be overwritten, as on any disk. */
function once(): () => Fault {
  let calls = 0;
  return () => {
    calls += 1;
    return calls === 1 ? 7 : undefined;
  };
}

describe("a full disk", () => {
  for (const [style, fault, cause] of FULL) {
    test(`at the end of a turn, ${style}, the commit is rolled back and reported everywhere once`, async () => {
      const { fake, db, reported } = await setting();
      db.set("a", "new");
      db.set("b", "new");
      const committed = db.committed;
      const flushed = db.flushed;
      failing(fake, "write", fault());
      const error = await rejects(committed, { ...QUOTA, cause });
      expect(await rejects(flushed, QUOTA)).toBe(error);
      expect(reported).toStrictEqual([error]);
      expect(throws(() => db.get("a"), QUOTA)).toBe(error);
      expect(db.getText("a")).toBe("old");
      expect(db.has("b")).toBe(false);
      healed(fake);
      db.set("c", "later");
      await db.flushed;
      expect(reported).toStrictEqual([error]);
      const left = await opened(fake.crashed());
      expect(left.getText("a")).toBe("old");
      expect(left.has("b")).toBe(false);
      expect(left.getText("c")).toBe("later");
    });

    test(`at a commit, ${style}, the writes are rolled back and commit throws`, async () => {
      const { fake, db, reported } = await setting();
      db.updateIf("a", (view) => {
        view.fill(90);
      });
      db.delete("a");
      db.set("b", "new");
      const { committed } = db;
      failing(fake, "write", fault());
      const error = throws(() => db.commit(), { ...QUOTA, cause });
      expect(await rejects(committed, QUOTA)).toBe(error);
      expect(reported).toStrictEqual([error]);
      expect(db.getText("a")).toBe("old");
      expect(db.has("b")).toBe(false);
      db.commit();
      healed(fake);
      db.set("b", "later");
      await turn();
      expect(db.getText("b")).toBe("later");
      const left = await opened(fake.crashed());
      expect(left.getText("a")).toBe("old");
      expect(left.getText("b")).toBe("later");
    });
  }

  test("a call that needs a new segment throws itself, and earlier writes stay", async () => {
    const { fake, db, reported } = await setting();
    const limit = fake.content.length;
    fake.fault = ({ op, at, length }) =>
      op === "write" && at + length > limit ? platform.quota() : undefined;
    let written = 0;
    const fill = () => {
      for (;;) {
        db.set(`key ${written}`, filled(10_000, written));
        written += 1;
      }
    };
    throws(fill, { ...QUOTA, cause: true });
    assert(written > 50);
    expect(reported).toStrictEqual([]);
    await db.committed;
    throws(() => db.set("large", filled(600_000, 1)), QUOTA);
    expect(db.count()).toBe(written + 1);
    // Existing records can still be changed and deleted in the remaining space.
    const left = await opened(fake.crashed());
    expect(left.count()).toBe(written + 1);
    expect(left.get(`key ${written - 1}`)?.[0]).toBe((written - 1) % 256);
  });

  test("a refusing predicate returns false even if there is no space for an update", async () => {
    const { fake, db } = await setting();
    for (let i = 0; i < 4; i++) db.set(`big ${i}`, filled(250_000, i));
    db.commit();
    failing(fake, "write", platform.quota);
    let calls = 0;
    const predicate = (view: Uint8Array) => {
      calls += 1;
      return view[0] !== 0;
    };
    throws(() => db.updateIf("big 0", () => {}), QUOTA);
    expect(db.updateIf("big 0", () => {}, { predicate })).toBe(false);
    throws(() => db.updateIf("big 1", () => {}, { predicate }), QUOTA);
    expect(calls).toBe(2);
    const writing = (view: Uint8Array) => {
      view.fill(99);
      return false;
    };
    expect(db.updateIf("big 2", () => {}, { predicate: writing })).toBe(false);
    expect(db.get("big 2")?.slice(), "what it wrote is undone there too").toStrictEqual(
      filled(250_000, 2),
    );
    expect(db.updateIf("missing", () => {})).toBe(false);
  });

  test("a write that makes the commit too large and cannot write it loses all of it, and throws", async () => {
    const { fake, db, reported } = await setting();
    db.set("b", "in the same group");
    const { committed } = db;
    failing(fake, "write", platform.quota);
    const error = throws(() => {
      for (let i = 0; i < 50; i++) db.set(`key ${i}`, filled(10_000, 1));
    }, QUOTA);
    expect(await rejects(committed, QUOTA)).toBe(error);
    expect(reported).toStrictEqual([error]);
    expect(db.count()).toBe(1);
    expect(db.getText("a")).toBe("old");
    healed(fake);
    db.set("b", "again");
    await db.committed;
    expect(db.getText("b")).toBe("again");
  });

  test("a transaction that cannot be committed is rolled back completely", async () => {
    const { fake, db } = await setting();
    failing(fake, "write", platform.quota);
    const large = () => {
      for (let i = 0; i < 50; i++) db.set(`key ${i}`, filled(10_000, 1));
    };
    throws(() => db.transaction(large), QUOTA);
    expect(db.count()).toBe(1);
    healed(fake);
    db.transaction(large);
    expect(db.count()).toBe(51);
  });

  test("compact() without space fails alone, and no committed write is lost", async () => {
    const { fake, db, reported } = await setting();
    for (let i = 0; i < 1_200; i++) db.set(`key ${i}`, filled(10_000, i));
    db.commit();
    const { length } = fake.content;
    failing(fake, "write", platform.enospc);
    const { fault } = fake;
    fake.fault = (call) => (call.at + call.length > length ? fault(call) : undefined);
    db.set("a", "new");
    const { flushed } = db;
    await rejects(db.compact(), QUOTA);
    await flushed;
    // Nor an unhandled rejection made by the listener.
    let committed: Promise<void> | undefined;
    const onProgress = () => {
      db.set("b", "new");
      committed = db.committed;
    };
    // On a slow machine the slices before the one that fails take several turns.
    await rejects(db.compact({ onProgress }), QUOTA);
    await committed;
    expect(reported.length).toBe(2);
    const again = await opened(fake.crashed());
    expect([again.getText("a"), again.getText("b")]).toStrictEqual(["new", "new"]);
    await db.close();
  });

  test("a refused deletion does not affect writes committed before it in its turn", async () => {
    const fake = new FakeStorage();
    const reported: Error[] = [];
    let db = await opened(fake, { memory: 4 << 20 });
    for (let i = 0; i < 800; i++) db.set(`key ${i}`, filled(10_000, i));
    await db.close();
    db = await opened(fake, { memory: 4 << 20, onError: (error) => reported.push(error) });
    for (const handOn of [() => db.set("large", filled(300_000, 1)), () => db.commit()]) {
      db.set("a", "new");
      const { committed, flushed } = db;
      handOn();
      failing(fake, "read", platform.io);
      throws(() => db.delete("key 0"), { code: "VARVE_STORAGE" });
      healed(fake);
      await Promise.all([committed, flushed]);
    }
    expect(reported).toStrictEqual([]);
    assert(db.delete("key 0"));
    await db.close();
  });

  test("without listeners there is no unhandled rejection, and the next call throws", async () => {
    const unhandled = forbidUnhandled();
    const { fake, db } = await setting({ onError: undefined });
    db.set("a", "new");
    failing(fake, "write", platform.quota);
    await turn(20);
    expect(unhandled).toStrictEqual([]);
    throws(() => db.set("b", "1"), QUOTA);
    healed(fake);
    db.set("b", "1");
    expect(db.getText("b")).toBe("1");
  });

  test("committed and close reject with an error that waits for the next call", async () => {
    const first = await setting();
    first.db.set("a", "new");
    failing(first.fake, "write", platform.quota);
    await turn();
    healed(first.fake);
    await rejects(first.db.committed, QUOTA);
    await first.db.committed;
    const second = await setting();
    second.db.set("a", "new");
    failing(second.fake, "write", platform.quota);
    await turn();
    healed(second.fake);
    await rejects(second.db.close(), QUOTA);
    expect(second.fake.openFiles).toBe(0);
  });

  test("a throwing listener does not keep others from being called", async () => {
    const reported: string[] = [];
    const uncaught: unknown[] = [];
    const catching = (error: unknown) => uncaught.push(error);
    const { process } = globalThis as { process?: NodeJS.Process };
    const onError = (event: ErrorEvent) => {
      event.preventDefault();
      catching(event.error);
    };
    if (typeof process?.on === "function") {
      process.on("uncaughtException", catching);
      onTestFinished(() => {
        process.off("uncaughtException", catching);
      });
    } else {
      addEventListener("error", onError);
      onTestFinished(() => removeEventListener("error", onError));
    }
    const fake = new FakeStorage();
    const name = freshName();
    const thrower = () => {
      reported.push("first");
      throw new Error("the listener's own");
    };
    const db = await opened(fake, { onError: thrower }, name);
    await opened(fake, { onError: () => reported.push("second") }, name);
    db.set("a", "1");
    failing(fake, "write", platform.quota);
    await turn(10);
    healed(fake);
    expect(reported).toStrictEqual(["first", "second"]);
    expect((uncaught[0] as Error | undefined)?.message).toBe("the listener's own");
    throws(() => db.get("a"), QUOTA);
  });
});

describe("failed flushes", () => {
  test("a failed flush makes the database read-only everywhere, and keeps the cause", async () => {
    const { fake, db, reported } = await setting();
    db.set("a", "new");
    failing(fake, "flush", platform.io);
    const error = await rejects(db.flushed, {
      name: "StorageError",
      code: "VARVE_STORAGE",
      cause: true,
    });
    healed(fake);
    expect(reported).toStrictEqual([error]);
    expect(throws(() => db.get("a"))).toBe(error);
    expect(db.getText("a")).toBe("new");
    expect(db.has("a")).toBe(true);
    expect(db.count()).toBe(1);
    const writes = [
      () => db.set("b", "1"),
      () => db.delete("a"),
      () => db.updateIf("a", () => undefined),
      () => db.batch([{ type: "set", key: "b", value: "1" }]),
      () => db.transaction(() => db.set("b", "1")),
      () => db.flush(),
    ];
    for (const write of writes) {
      const refused = throws(write, { ...POISONED, message: /Close it and open it again/ });
      expect(refused.cause).toBe(error);
    }
    expect(db.stats().poisoned).toBe(true);
    expect(reported).toStrictEqual([error]);
    await rejects(db.flushed, POISONED);
    await db.close();
    expect(fake.openFiles).toBe(0);
    const again = await opened(fake);
    expect(again.getText("a")).toBe("new");
    again.set("b", "1");
    await again.flushed;
  });

  test("flush throws a failed flush, and the database is poisoned", async () => {
    const { fake, db } = await setting();
    db.set("a", "new");
    failing(fake, "flush", platform.io);
    throws(() => db.flush(), { name: "StorageError", cause: true });
    healed(fake);
    throws(() => db.set("b", "1"), POISONED);
    expect(db.getText("a")).toBe("new");
    await turn(1_300);
    expect(db.getText("a")).toBe("new");
  });

  test("a failed flush of the timer is thrown by the next call", async () => {
    const { fake, db, reported } = await setting();
    db.set("a", "new");
    await turn();
    failing(fake, "flush", platform.io);
    await until(() => reported.length > 0);
    expect(reported.length).toBe(1);
    throws(() => db.get("a"), { name: "StorageError" });
    throws(() => db.set("a", "newer"), POISONED);
  });
});

describe("failing files", () => {
  test("a failed write that cannot be rolled back makes the database read-only", async () => {
    const { fake, db } = await setting();
    db.set("a", "new");
    let writes = 0;
    fake.fault = ({ op }) => {
      if (op !== "write") return undefined;
      writes += 1;
      return writes === 1 ? 20 : platform.io();
    };
    throws(() => db.commit());
    healed(fake);
    throws(() => db.set("b", "1"), POISONED);
    expect(db.getText("a")).toBe("old");
    const left = await opened(fake.crashed());
    expect(left.getText("a")).toBe("old");
  });

  test("a lost file handle is reported", async () => {
    const { fake, db } = await setting();
    db.set("a", "new");
    fake.fault = platform.lost;
    throws(() => db.commit(), { name: "StorageError", message: /gone/, cause: true });
    expect(db.getText("a")).toBe("old");
    await db.close().catch(() => {});
    expect(fake.openFiles).toBe(0);
  });

  test("impossible results of a file are refused", async () => {
    for (const nonsense of [-5, 1e9, Number.NaN, 0.5]) {
      const { fake, db } = await setting();
      db.set("a", "new");
      failing(fake, "write", () => nonsense);
      throws(() => db.commit(), { cause: true });
      expect(db.getText("a")).toBe("old");
      healed(fake);
    }
  });

  test("a file that cannot be read does not open, and is closed again", async () => {
    const { fake, db } = await setting();
    await db.close();
    fake.forget();
    failing(fake, "read", platform.io);
    await rejects(opened(fake), { name: "StorageError", cause: true });
    expect(fake.openFiles).toBe(0);
    expect(fake.order).toBe("");
    healed(fake);
    const again = await opened(fake);
    expect(again.getText("a")).toBe("old");
  });

  test("a database that cannot be created on a full disk opens later", async () => {
    const fake = new FakeStorage();
    failing(fake, "write", platform.quota);
    await rejects(opened(fake), QUOTA);
    expect(fake.openFiles).toBe(0);
    healed(fake);
    const db = await opened(fake);
    db.set("a", "1");
    await db.flushed;
  });

  test("a file with short reads is read completely", async () => {
    const { fake, db } = await setting();
    for (let i = 0; i < 50; i++) db.set(`key ${i}`, filled(5_000, i));
    await db.close();
    let reads = 0;
    failing(fake, "read", () => {
      reads += 1;
      return 1 + ((reads * 7_919) % 9_973);
    });
    const again = await opened(fake);
    expect(again.count()).toBe(51);
    expect(again.get("key 49")?.[4_999]).toBe(49);
  });
});

describe("failures inside the engine", () => {
  /** Makes the next call trap: a key length that no caller can reach. */
  function sabotage(db: Database): void {
    const engine = Reflect.get(Reflect.get(db, "session") as object, "engine") as object;
    Reflect.set(engine, "encodeKey", () => 10_000_000);
  }

  for (const [name, call] of [
    ["get", (db: Database) => db.get("a")],
    ["set", (db: Database) => db.set("a", "1")],
    ["delete", (db: Database) => db.delete("a")],
    ["updateIf", (db: Database) => db.updateIf("a", () => {})],
  ] as const) {
    test(`a failure in ${name} ends the instance: every call throws, and the file opens intact`, async () => {
      const { fake, db, reported } = await setting();
      db.set("b", "not committed");
      const { committed } = db;
      const gone = committed.catch((error: unknown) => error);
      sabotage(db);
      const error = throws(() => call(db), {
        ...POISONED,
        message: /refuses all further calls.*panicked at crate\/src\/[a-z_/]+\.rs:\d+\./s,
      });
      assert(error.cause instanceof WebAssembly.RuntimeError);
      expect(reported).toStrictEqual([error]);
      expect(await gone).toBe(error);
      for (const other of [
        () => db.get("a"),
        () => db.has("a"),
        () => db.count(),
        () => db.set("a", "1"),
        () => db.commit(),
        () => db.flush(),
        () => db.stats(),
        () => db.transaction(() => 1),
      ]) {
        expect(throws(other)).toBe(error);
      }
      await turn(20);
      await db.close();
      expect(fake.openFiles).toBe(0);
      const again = await opened(fake);
      expect(again.getText("a")).toBe("old");
      expect(again.has("b")).toBe(false);
    });
  }

  for (const [name, call] of [
    ["set", (db: Database, value: Uint8Array, i: number) => db.set(`key ${i}`, value)],
    ["batch", (db: Database, value: Uint8Array) => db.batch([{ type: "set", key: "b", value }])],
    ["updateIf", (db: Database, value: Uint8Array, i: number) => updated(db, value, i % 100)],
  ] as const) {
    test(`a stack overflow in ${name} leaves complete writes or ends the instance`, async () => {
      for (let round = 0; round < 8; round++) {
        const { fake, db } = await setting();
        for (let i = 0; i < 100; i++) db.set(`base ${i}`, filled(100, i));
        db.commit();
        let depth = 0;
        const value = filled(100 * round, round);
        const deeper = () => {
          depth += 1;
          call(db, value, depth);
          deeper();
        };
        throws(deeper);
        let refused: unknown;
        try {
          db.set("a", "new");
          db.commit();
        } catch (error) {
          refused = error;
        }
        if (refused === undefined) {
          expect([...db.keys()].length).toBe(db.count());
          expect((await db.verify()).problems).toStrictEqual([]);
        } else {
          expect((refused as { code?: unknown }).code).toBe(POISONED.code);
          assert((refused as Error).message.includes("open it again"));
        }
        await db.close();
        expect(fake.openFiles).toBe(0);
        const again = await opened(fake);
        expect([...again.keys()].length).toBe(again.count());
        expect(again.getText("a")).toBe(refused === undefined ? "new" : "old");
        for (let i = 0; i < 100; i++) assert(again.has(`base ${i}`));
        await again.close();
      }
    });
  }

  test("a stack overflow while scheduling the end of a turn leaves that to the next write", async () => {
    const { fake, db } = await setting();
    // No timer may commit in place of the turn's end.
    await turn(200);
    const { resolve } = Promise;
    Promise.resolve = () => {
      throw new RangeError("no stack");
    };
    try {
      throws(() => db.set("b", "1"), { message: "no stack" });
    } finally {
      Promise.resolve = resolve;
    }
    for (let i = 0; i < 5; i++) {
      db.set("c", `${i}`);
      await turn();
      expect(db.stats().pendingBytes).toBe(0);
      const again = await opened(fake.crashed());
      expect(again.getText("c")).toBe(`${i}`);
    }
    await db.close();
  });

  function updated(db: Database, value: Uint8Array, i: number): void {
    db.updateIf(`base ${i}`, () => value);
  }

  test("a failure does not affect other databases", async () => {
    const [one, other] = [await setting(), await setting()];
    sabotage(one.db);
    throws(() => one.db.get("a"), POISONED);
    expect(other.db.getText("a")).toBe("old");
    other.db.set("a", "new");
    await other.db.flushed;
  });
});
