import { assert, describe, expect, onTestFinished, test } from "vitest";
import { replaceClock } from "../support/context.js";
import { turn } from "../support/values.js";
import { FakeStorage } from "./fake-storage.js";
import { filled, opened } from "./storages.js";

/** A database with a first write, so that its file is set up. */
async function settled(options: Parameters<typeof opened>[1] = {}) {
  const fake = new FakeStorage();
  const db = await opened(fake, options);
  db.set("first", "1");
  db.flush();
  const witnessed = `${fake.order} write`;
  await fake.reaches(witnessed);
  fake.forget();
  return { fake, db };
}

/** The keys that a second program finds in the bytes as they are now. */
async function survivors(fake: FakeStorage): Promise<Record<string, string | undefined>> {
  const db = await opened(fake.crashed());
  const found: Record<string, string | undefined> = {};
  for (const key of ["a", "b", "c"]) found[key] = db.getText(key);
  await db.close();
  return found;
}

/** Records the delays of timers until the test ends, because a busy machine may run them late. */
function timersFromNowOn(): number[] {
  const waits: number[] = [];
  const real = replaceClock({
    setTimeout(task, ms = 0) {
      waits.push(ms);
      return real.setTimeout(task, ms);
    },
  });
  return waits;
}

describe("durability", () => {
  test("written: all writes of a turn are one write to the file, at its end", async () => {
    const { fake, db } = await settled();
    for (let i = 0; i < 100; i++) db.set(`key ${i}`, "value");
    db.delete("key 5");
    db.updateIf("key 6", (view) => {
      view[0] = 65;
    });
    db.transaction(() => db.set("key 7", "in a transaction"));
    db.batch([{ type: "set", key: "key 8", value: "in a batch" }]);
    expect(fake.order).toBe("");
    await null;
    expect(fake.order).toBe("write");
    await turn();
    expect(fake.order).toBe("write");
  });

  test("written is the default, and the database reports it", async () => {
    expect((await settled()).db.durability).toBe("written");
    expect((await settled({ durability: "flushed" })).db.durability).toBe("flushed");
    expect((await settled({ durability: "buffered" })).db.durability).toBe("buffered");
  });

  test("written: each turn with writes is one write to the file, a turn without is none", async () => {
    const { fake, db } = await settled();
    db.set("a", "1");
    await turn();
    db.get("a");
    db.has("b");
    await turn();
    db.set("a", "2");
    db.set("a", "3");
    await turn();
    expect(fake.order).toBe("write write");
  });

  test("written: the writes of a turn are completely in the file when the next turn begins", async () => {
    const { fake, db } = await settled();
    db.set("a", "1");
    db.set("b", "1");
    expect(await survivors(fake)).toStrictEqual({ a: undefined, b: undefined, c: undefined });
    await turn();
    expect(await survivors(fake)).toStrictEqual({ a: "1", b: "1", c: undefined });
  });

  test("commit writes before it returns, and flush flushes after it wrote", async () => {
    const { fake, db } = await settled();
    db.set("a", "1");
    db.commit();
    expect(fake.order).toBe("write");
    expect(fake.crashed().content).toStrictEqual(fake.content);
    db.set("b", "1");
    db.flush();
    expect(fake.order).toBe("write write flush");
    db.commit();
    db.flush();
    expect(fake.order).toBe("write write flush");
    await db.committed;
    expect(await survivors(fake)).toStrictEqual({ a: "1", b: "1", c: undefined });
  });

  test("a commit is written at 256 KiB, within its turn", async () => {
    const { fake, db } = await settled();
    for (let i = 0; i < 60; i++) db.set(`key ${i}`, filled(10_000, 1));
    const early = fake.count("write");
    assert(early >= 2, `${early} writes within the turn`);
    assert(db.stats().pendingBytes < 262_144);
    await turn();
    expect(db.stats().pendingBytes).toBe(0);
  });

  test("buffered: the writes of several turns are one write, within a few milliseconds", async () => {
    const { fake, db } = await settled({ durability: "buffered" });
    db.set("a", "1");
    await null;
    db.set("b", "1");
    await null;
    expect(fake.order).toBe("");
    await fake.reaches("write");
    expect(await survivors(fake)).toStrictEqual({ a: "1", b: "1", c: undefined });
    db.set("c", "1");
    await db.committed;
    expect(fake.order).toBe("write write");
  });

  test("flushed: each turn is one write and one flush, in this order", async () => {
    const { fake, db } = await settled({ durability: "flushed" });
    db.set("a", "1");
    db.set("b", "1");
    expect(fake.order).toBe("");
    await null;
    expect(fake.order).toBe("write flush");
    expect(db.stats().unflushed).toBe(false);
  });

  test("committed resolves when the writes so far are in the file, and not before", async () => {
    const { fake, db } = await settled();
    db.set("a", "1");
    const { committed } = db;
    expect(fake.count("write")).toBe(0);
    await committed;
    expect(fake.order).toBe("write");
    await db.committed;
    expect(fake.order).toBe("write");
  });

  test("a turn ends even if a test has replaced timers and microtasks", async () => {
    const { fake, db } = await settled();
    const { queueMicrotask, setTimeout, setInterval } = globalThis;
    onTestFinished(() => {
      Object.assign(globalThis, { queueMicrotask, setTimeout, setInterval });
    });
    const never = () => 0;
    Object.assign(globalThis, { queueMicrotask: never, setTimeout: never, setInterval: never });
    db.set("a", "1");
    await db.committed;
    expect(fake.order).toBe("write");
    await db.flushed;
    expect(fake.count("flush")).toBe(1);
  });

  test("reading flushed causes a flush at the end of the turn, at every durability", async () => {
    for (const durability of ["buffered", "written", "flushed"] as const) {
      const { fake, db } = await settled({ durability });
      db.set("a", "1");
      const asked = db.flushed;
      expect(fake.order).toBe("");
      await asked;
      expect(fake.order, durability).toBe("write flush");
      await db.flushed;
      expect(fake.order, durability).toBe("write flush");
    }
  });

  test("reading flushed in a later turn flushes writes of an earlier one", async () => {
    const { fake, db } = await settled();
    db.set("a", "1");
    await turn();
    expect(fake.order).toBe("write");
    await db.flushed;
    expect(fake.order).toBe("write flush");
  });

  test("unflushed writes are flushed after a second, once, followed by a witness", async () => {
    const { fake, db } = await settled();
    const waits = timersFromNowOn();
    db.set("a", "1");
    await fake.reaches("write");
    await fake.reaches("write flush write");
    const [written = 0, flushed = 0] = fake.times;
    assert(flushed - written > 900, `flushed after ${flushed - written}`);
    expect(Math.max(...waits)).toBe(1_000);
    await turn(1_300);
    expect(fake.order).toBe("write flush write");
  });

  test("a flush is followed by one witness, within about 100 milliseconds", async () => {
    const { fake, db } = await settled();
    const waits = timersFromNowOn();
    db.set("a", "1");
    db.flush();
    await fake.reaches("write flush write");
    assert(Math.max(...waits) <= 100, `timers of ${waits.join(", ")} ms`);
    await turn(200);
    expect(fake.order).toBe("write flush write");
  });

  test("close commits and flushes, and closes the file", async () => {
    const { fake, db } = await settled();
    db.set("a", "1");
    await db.close();
    assert(fake.order.startsWith("write"));
    assert(fake.order.endsWith("flush"));
    expect(fake.calls.at(-1)?.op).toBe("close");
    expect(fake.openFiles).toBe(0);
    expect(await survivors(fake)).toStrictEqual({ a: "1", b: undefined, c: undefined });
  });
});

describe("durability at the end of a program", () => {
  test("complete writes are committed, incomplete ones are rolled back", async () => {
    const { fake, db } = await settled();
    db.set("a", "1");
    let left = fake;
    try {
      db.transaction(() => {
        db.set("b", "half");
        db.updateIf("a", (view) => {
          view[0] = 88;
          fake.exit?.();
          left = fake.crashed();
          throw new Error("the program is over");
        });
      });
    } catch {
      // Nothing runs after the end.
    }
    expect(await survivors(left)).toStrictEqual({ a: "1", b: undefined, c: undefined });
  });

  test("a buffered write is committed", async () => {
    const { fake, db } = await settled({ durability: "buffered" });
    db.set("a", "1");
    fake.exit?.();
    expect(await survivors(fake)).toStrictEqual({ a: "1", b: undefined, c: undefined });
  });

  test("if the program may go on, complete writes are committed, and open transactions continue", async () => {
    const { fake, db } = await settled({ durability: "buffered" });
    db.set("a", "1");
    fake.exit?.(true);
    expect(await survivors(fake)).toStrictEqual({ a: "1", b: undefined, c: undefined });
    db.transaction(() => {
      db.set("b", "2");
      fake.exit?.(true);
      db.updateIf("a", (view) => {
        view[0] = 88;
        fake.exit?.(true);
      });
      expect(fake.count("write"), "half a transaction is not committed").toBe(1);
      db.set("c", "3");
    });
    db.commit();
    expect(await survivors(fake)).toStrictEqual({ a: "X", b: "2", c: "3" });
  });

  test("a closed database leaves no exit hook behind", async () => {
    const { fake, db } = await settled();
    assert(fake.exit !== undefined);
    await db.close();
    expect(fake.exit).toBe(undefined);
  });
});

describe("durability when the page hides", () => {
  test("everything is flushed, where such events exist", async () => {
    const page = globalThis as { dispatchEvent?: (event: Event) => boolean };
    const dispatch = page.dispatchEvent?.bind(globalThis) ?? addGlobalEvents();
    const { fake, db } = await settled({ durability: "buffered" });
    db.set("a", "1");
    dispatch(new Event("pagehide"));
    expect(fake.order).toBe("write flush");
    await db.close();
    fake.forget();
    dispatch(new Event("pagehide"));
    expect(fake.order).toBe("");
  });
});

/** Adds global events until the test ends, because Node has none. Returns their `dispatchEvent`. */
function addGlobalEvents(): (event: Event) => boolean {
  const target = new EventTarget();
  const realm = globalThis as Record<string, unknown>;
  for (const name of ["addEventListener", "removeEventListener"] as const) {
    realm[name] = target[name].bind(target);
    onTestFinished(() => {
      delete realm[name];
    });
  }
  return target.dispatchEvent.bind(target);
}
