import type { Database, Key, Value } from "varve";
import { deepEqual, equal, test, text } from "../harness.js";
import { everywhere, filled, opened } from "./places.js";

/** Arrays that say another length than they have; the bytes that each really has. */
function liars(db: Database): [name: string, array: Uint8Array, really: number][] {
  const lying = (length: number, given: unknown): Uint8Array =>
    Object.defineProperty(filled(length, 65), "length", {
      get: typeof given === "function" ? (given as () => number) : () => given,
    });
  let calls = 0;
  class Sub extends Uint8Array {
    override get length(): number {
      return 1 << 20;
    }
    override get byteLength(): number {
      return -1;
    }
    override get byteOffset(): number {
      return 7;
    }
    override get buffer(): ArrayBuffer {
      return new ArrayBuffer(3);
    }
  }
  return [
    ["less than nothing", lying(5, -1), 5],
    ["much more", lying(5, 4_000), 5],
    ["more than can be", lying(5, 2 ** 40), 5],
    ["no number", lying(5, "five"), 5],
    ["another one each time", lying(5, () => (calls++ % 2 === 0 ? 1 : 3_000)), 5],
    [
      "something while it writes",
      lying(5, () => {
        db.set("meanwhile", "written");
        return 5;
      }),
      5,
    ],
    ["less, of a long one", lying(100_000, 3), 100_000],
    ["more, of a long one", lying(2_000, 16_000_000), 2_000],
    ["all wrong, as its class does", new Sub(5).fill(65), 5],
  ];
}

everywhere("arguments that lie", ({ storage }) => {
  test("arrays are taken as they are, whatever their length says", async () => {
    const db = await opened(storage);
    db.set("secret", filled(4_000, 99));
    const names = liars(db).map(([name]) => name);
    for (const name of names) {
      for (const waits of [false, true]) {
        const [, value, length] = liars(db).find(([one]) => one === name) as never as [
          string,
          Uint8Array,
          number,
        ];
        // Behind several sets more wait in a queue.
        if (waits) for (let i = 0; i < 4; i++) db.set(`other ${i}`, "x");
        db.set(`of ${name}`, value);
        deepEqual(db.get(`of ${name}`)?.slice(), filled(length, 65), name);
        db.updateIf(`of ${name}`, () => value);
        deepEqual(db.get(`of ${name}`)?.slice(), filled(length, 65), name);
        if (length > 65_535) continue;
        if (waits) for (let i = 0; i < 4; i++) db.set(`other ${i}`, "x");
        db.set(value, name);
        equal(db.getText("A".repeat(length)), name);
        equal(text(db.get(value)), name);
        deepEqual(
          db.getMany([value, "secret", value]).map((view) => view?.length),
          [name.length, 4_000, name.length],
        );
        equal(db.count({ gte: value, lte: value }), 1, name);
        equal(db.delete(value), true);
      }
    }
    deepEqual(db.get("secret")?.slice(), filled(4_000, 99));
  });

  test("hostile arguments of every call give an error or a result, and poison nothing", async () => {
    const db = await opened(storage);
    db.set("key", "value");
    const write = () => db.set("meanwhile", filled(3_000, 1));
    const trap = () => {
      write();
      return undefined;
    };
    const view = Object.defineProperties(new DataView(new ArrayBuffer(9)), {
      byteLength: { get: () => trap() ?? 4_000_000 },
    });
    const hostile: unknown[] = [
      ...liars(db).map(([, array]) => array),
      new Proxy(filled(5, 1), {}),
      new Proxy(filled(5, 1), { get: trap, getPrototypeOf: () => trap() ?? Uint8Array.prototype }),
      new Proxy(["a", "b"], {}),
      view,
      Object.create(Uint8Array.prototype),
      Object.create(filled(5, 1)),
      { length: -1, [Symbol.toStringTag]: "ArrayBuffer" },
      { [Symbol.iterator]: () => trap() ?? ["key"].values() },
      -1,
      Number.NaN,
      null,
      undefined,
      Symbol("s"),
      () => write(),
    ];
    for (const one of hostile) {
      const [key, value] = [one as Key, one as Value];
      const calls: (() => unknown)[] = [
        () => db.get(key),
        () => db.getText(key),
        () => db.has(key),
        () => db.getEntry(key),
        () => db.getMany(one as Key[]),
        () => db.getMany(["key", key, "key"]),
        () => db.set(key, "x"),
        () => db.set("x", value),
        () => db.set(key, value),
        () => db.delete(key),
        () => db.updateIf(key, () => value, { valueIfMissing: "1" }),
        () => db.updateIf("key", () => value),
        () => db.updateIf("key", () => {}, { predicateKey: key, predicate: () => true }),
        () => db.updateIf("new", () => {}, { valueIfMissing: value }),
        () => db.batch([{ type: "set", key, value }]),
        () => db.batch([{ type: "delete", key }]),
        () => db.count({ gte: key }),
        () => [...db.entries({ gt: key, lt: key })],
        () => [...db.keys({ prefix: key })],
        () => db.clear({ gte: key, limit: 0 }),
        () => db.pin(key)?.dispose(),
      ];
      for (const call of calls) {
        try {
          call();
        } catch {
          // Whatever it is: what counts is that the database goes on.
        }
        db.set("key", "value");
        equal(db.getText("key"), "value");
      }
    }
    equal(db.stats().poisoned, false);
    db.flush();
  });
});
