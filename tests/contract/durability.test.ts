import { cleanup, deepEqual, equal, ok, replaceClock, suite, test, turn } from "../harness.js";
import { FakeStorage } from "./fake.js";
import { filled, opened } from "./places.js";

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

suite("durability", () => {
  test("written: all writes of a turn are one write to the file, at its end", async () => {
    const { fake, db } = await settled();
    for (let i = 0; i < 100; i++) db.set(`key ${i}`, "value");
    db.delete("key 5");
    db.updateIf("key 6", (view) => {
      view[0] = 65;
    });
    db.transaction(() => db.set("key 7", "in a transaction"));
    db.batch([{ type: "set", key: "key 8", value: "in a batch" }]);
    equal(fake.order, "");
    await null;
    equal(fake.order, "write");
    await turn();
    equal(fake.order, "write");
  });

  test("written is the default, and the database reports it", async () => {
    equal((await settled()).db.durability, "written");
    equal((await settled({ durability: "flushed" })).db.durability, "flushed");
    equal((await settled({ durability: "buffered" })).db.durability, "buffered");
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
    equal(fake.order, "write write");
  });

  test("written: the writes of a turn are completely in the file when the next turn begins", async () => {
    const { fake, db } = await settled();
    db.set("a", "1");
    db.set("b", "1");
    deepEqual(await survivors(fake), { a: undefined, b: undefined, c: undefined });
    await turn();
    deepEqual(await survivors(fake), { a: "1", b: "1", c: undefined });
  });

  test("commit writes before it returns, and flush flushes after it wrote", async () => {
    const { fake, db } = await settled();
    db.set("a", "1");
    db.commit();
    equal(fake.order, "write");
    deepEqual(fake.crashed().content, fake.content);
    db.set("b", "1");
    db.flush();
    equal(fake.order, "write write flush");
    db.commit();
    db.flush();
    equal(fake.order, "write write flush");
    await db.committed;
    deepEqual(await survivors(fake), { a: "1", b: "1", c: undefined });
  });

  test("a commit is written at 256 KiB, within its turn", async () => {
    const { fake, db } = await settled();
    for (let i = 0; i < 60; i++) db.set(`key ${i}`, filled(10_000, 1));
    const early = fake.count("write");
    ok(early >= 2, `${early} writes within the turn`);
    ok(db.stats().pendingBytes < 262_144);
    await turn();
    equal(db.stats().pendingBytes, 0);
  });

  test("buffered: the writes of several turns are one write, within a few milliseconds", async () => {
    const { fake, db } = await settled({ durability: "buffered" });
    db.set("a", "1");
    await null;
    db.set("b", "1");
    await null;
    equal(fake.order, "");
    await fake.reaches("write");
    deepEqual(await survivors(fake), { a: "1", b: "1", c: undefined });
    db.set("c", "1");
    await db.committed;
    equal(fake.order, "write write");
  });

  test("flushed: each turn is one write and one flush, in this order", async () => {
    const { fake, db } = await settled({ durability: "flushed" });
    db.set("a", "1");
    db.set("b", "1");
    equal(fake.order, "");
    await null;
    equal(fake.order, "write flush");
    equal(db.stats().unflushed, false);
  });

  test("committed resolves when the writes so far are in the file, and not before", async () => {
    const { fake, db } = await settled();
    db.set("a", "1");
    const { committed } = db;
    equal(fake.count("write"), 0);
    await committed;
    equal(fake.order, "write");
    await db.committed;
    equal(fake.order, "write");
  });

  test("a turn ends even if a test has replaced timers and microtasks", async () => {
    const { fake, db } = await settled();
    const { queueMicrotask, setTimeout, setInterval } = globalThis;
    cleanup(() => Object.assign(globalThis, { queueMicrotask, setTimeout, setInterval }));
    const never = () => 0;
    Object.assign(globalThis, { queueMicrotask: never, setTimeout: never, setInterval: never });
    db.set("a", "1");
    await db.committed;
    equal(fake.order, "write");
    await db.flushed;
    equal(fake.count("flush"), 1);
  });

  test("reading flushed causes a flush at the end of the turn, at every durability", async () => {
    for (const durability of ["buffered", "written", "flushed"] as const) {
      const { fake, db } = await settled({ durability });
      db.set("a", "1");
      const asked = db.flushed;
      equal(fake.order, "");
      await asked;
      equal(fake.order, "write flush", durability);
      await db.flushed;
      equal(fake.order, "write flush", durability);
    }
  });

  test("reading flushed in a later turn flushes writes of an earlier one", async () => {
    const { fake, db } = await settled();
    db.set("a", "1");
    await turn();
    equal(fake.order, "write");
    await db.flushed;
    equal(fake.order, "write flush");
  });

  test("unflushed writes are flushed after a second, once, followed by a witness", async () => {
    const { fake, db } = await settled();
    const waits = timersFromNowOn();
    db.set("a", "1");
    await fake.reaches("write");
    await fake.reaches("write flush write");
    const [written = 0, flushed = 0] = fake.times;
    ok(flushed - written > 900, `flushed after ${flushed - written}`);
    equal(Math.max(...waits), 1_000);
    await turn(1_300);
    equal(fake.order, "write flush write");
  });

  test("a flush is followed by one witness, within about 100 milliseconds", async () => {
    const { fake, db } = await settled();
    const waits = timersFromNowOn();
    db.set("a", "1");
    db.flush();
    await fake.reaches("write flush write");
    ok(Math.max(...waits) <= 100, `timers of ${waits.join(", ")} ms`);
    await turn(200);
    equal(fake.order, "write flush write");
  });

  test("close commits and flushes, and closes the file", async () => {
    const { fake, db } = await settled();
    db.set("a", "1");
    await db.close();
    ok(fake.order.startsWith("write"));
    ok(fake.order.endsWith("flush"));
    equal(fake.calls.at(-1)?.op, "close");
    equal(fake.openFiles, 0);
    deepEqual(await survivors(fake), { a: "1", b: undefined, c: undefined });
  });
});

suite("durability at the end of a program", () => {
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
    deepEqual(await survivors(left), { a: "1", b: undefined, c: undefined });
  });

  test("a buffered write is committed", async () => {
    const { fake, db } = await settled({ durability: "buffered" });
    db.set("a", "1");
    fake.exit?.();
    deepEqual(await survivors(fake), { a: "1", b: undefined, c: undefined });
  });

  test("if the program may go on, complete writes are committed, and open transactions continue", async () => {
    const { fake, db } = await settled({ durability: "buffered" });
    db.set("a", "1");
    fake.exit?.(true);
    deepEqual(await survivors(fake), { a: "1", b: undefined, c: undefined });
    db.transaction(() => {
      db.set("b", "2");
      fake.exit?.(true);
      db.updateIf("a", (view) => {
        view[0] = 88;
        fake.exit?.(true);
      });
      equal(fake.count("write"), 1, "half a transaction is not handed on");
      db.set("c", "3");
    });
    db.commit();
    deepEqual(await survivors(fake), { a: "X", b: "2", c: "3" });
  });

  test("a closed database leaves no exit hook behind", async () => {
    const { fake, db } = await settled();
    ok(fake.exit !== undefined);
    await db.close();
    equal(fake.exit, undefined);
  });
});

suite("durability when the page hides", () => {
  test("everything is flushed, where such events exist", async () => {
    const page = globalThis as { dispatchEvent?: (event: Event) => boolean };
    const dispatch = page.dispatchEvent?.bind(globalThis) ?? lent();
    const { fake, db } = await settled({ durability: "buffered" });
    db.set("a", "1");
    dispatch(new Event("pagehide"));
    equal(fake.order, "write flush");
    await db.close();
    fake.forget();
    dispatch(new Event("pagehide"));
    equal(fake.order, "");
  });
});

/** Node has no global events; for one test it gets some. */
function lent(): (event: Event) => boolean {
  const target = new EventTarget();
  const lender = globalThis as Record<string, unknown>;
  for (const name of ["addEventListener", "removeEventListener"] as const) {
    lender[name] = target[name].bind(target);
    cleanup(() => {
      delete lender[name];
    });
  }
  return target.dispatchEvent.bind(target);
}
