/**
 * Tests of the model itself: faults planted between it and a database are found, and reduced to the few calls
 * that show them.
 */

import type { Database, Key } from "varve";
import { memory, open } from "varve";
import { assert, describe, expect, test } from "vitest";
import { wasmOption } from "../support/context.js";
import { programOf } from "./author.js";
import { callsIn, type Finding, find, reported } from "./check.js";
import type { Environment } from "./machine.js";
import { print } from "./print.js";
import type { Operation } from "./program.js";
import { run } from "./run.js";
import { bytesOf, pattern, same, textOf } from "./values.js";

const ABILITIES = { fails: false, slowFlush: false };
const LENGTH = 400;

/** Replacements for some methods of a database. */
type Replacements = (db: Database, self: () => Database) => Partial<Database>;

function environment(replacements?: Replacements): Environment {
  return {
    storage: memory(),
    open: (name, options) => open(name, { ...options, ...wasmOption() }),
    ...(replacements === undefined ? {} : { wrap: (db) => wrapped(db, replacements) }),
  };
}

/** A database whose methods are replaced by those of `replacements`. */
function wrapped(db: Database, replacements: Replacements): Database {
  const reported: Partial<Database> = {
    transaction: (body) => db.transaction(() => body(self)),
    ...replacements(db, () => self),
  };
  const self: Database = new Proxy(db, {
    get(target, name) {
      const value: unknown = Reflect.get(name in reported ? reported : target, name);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
  return self;
}

/** The first program that meets the fault, shrunk. */
async function finding(replacements: Replacements): Promise<Finding> {
  for (let seed = 1; seed < 60; seed++) {
    const program = programOf(seed, ABILITIES, LENGTH);
    const found = await find(program, () => environment(replacements), {
      tries: 3_000,
      ms: 60_000,
    });
    if (found !== undefined) return found;
  }
  throw new Error("no program met the fault");
}

interface Fault {
  what: string;
  replacements: Replacements;
  /** The number of operations that suffices to meet it. */
  enough: number;
  /** The calls that it must have, in this order, with any others between them. */
  calls: RegExp;
}

const FAULTS: Fault[] = [
  {
    what: "a rollback that does not restore deleted keys",
    replacements: (db, self) => {
      let gone: Key[] = [];
      return {
        delete: (key) => {
          gone.push(key);
          return db.delete(key);
        },
        transaction: (body) => {
          gone = [];
          try {
            return db.transaction(() => body(self()));
          } catch (error) {
            for (const key of gone) db.delete(key);
            throw error;
          }
        },
      };
    },
    enough: 3,
    calls: /db\.(set|updateIf|batch).*transaction.*delete.*throw undone/s,
  },
  {
    what: "an iterator that misses a key after a write between two steps",
    replacements: (db) => {
      let writes = 0;
      const missing = <T>(iterable: Iterable<T, undefined>): Iterable<T, undefined> => ({
        [Symbol.iterator]() {
          const iterator = iterable[Symbol.iterator]();
          let seen = writes;
          return {
            next() {
              if (seen !== writes) iterator.next();
              seen = writes;
              return iterator.next();
            },
          };
        },
      });
      const scans = {
        set: (...given: Parameters<Database["set"]>) => {
          writes += 1;
          db.set(...given);
        },
        entries: (range: object) => missing(db.entries(range)),
      };
      return scans as unknown as Partial<Database>;
    },
    enough: 6,
    calls: /db\.entries.*db\.set.*next\(\)/s,
  },
  {
    what: "a view that shows another record's bytes after a write to that record",
    replacements: (db) => {
      let last: Uint8Array = new Uint8Array(0);
      return {
        get: (key) => {
          const view = db.get(key)?.slice();
          last = view ?? last;
          // Like a view of the database, it expires when the program yields.
          if (view !== undefined)
            queueMicrotask(() => structuredClone(0, { transfer: [view.buffer] }));
          return view;
        },
        set: (key, value, options) => {
          db.set(key, value, options);
          const bytes = db.get(key) as Uint8Array;
          if (bytes.length === last.length) last.set(bytes);
        },
      };
    },
    enough: 3,
    calls: /view\d = .*db\.get.*db\.set/s,
  },
  {
    what: "a pin that follows its key",
    replacements: (db) => ({
      pin: (key) => {
        const pin = db.pin(key);
        if (pin === undefined) return undefined;
        return new Proxy(pin, {
          get: (target, name) => {
            const value: unknown = Reflect.get(target, name, target);
            if (name === "bytes") return db.get(key) ?? value;
            return typeof value === "function" ? value.bind(target) : value;
          },
        });
      },
    }),
    enough: 4,
    calls: /pin\d = db\.pin.*db\.(set|updateIf|batch)/s,
  },
  {
    what: "a count that is one too high at the end of a range",
    replacements: (db) => ({
      count: (range) => db.count(range) + (range?.lte !== undefined && db.count(range) > 0 ? 1 : 0),
    }),
    enough: 2,
    calls: /db\.count\(\{ lte: /,
  },
  {
    what: "a version that stays the same after a write",
    replacements: (db) => ({
      getEntry: (key) => {
        const entry = db.getEntry(key);
        return entry && { ...entry, version: Math.min(entry.version, 7) };
      },
    }),
    enough: 10,
    calls: /db\.(set|updateIf|batch)/,
  },
];

/** The number of calls of a program, including nested ones. */
function size(operations: readonly Operation[]): number {
  return operations.reduce((sum, operation) => sum + callsIn(operation), 0);
}

describe("planted faults", () => {
  for (const { what, replacements, enough, calls } of FAULTS) {
    test(`fault: ${what} is found, and shrunk to ${enough} calls or fewer`, async () => {
      const { small, smallFailure, program, failure } = await finding(replacements);
      assert(smallFailure !== undefined, "the small program does not fail");
      assert(calls.test(print(small)), print(small));
      assert(size(small.operations) <= enough, print(small));
      expect(await run(small, environment()), "without the fault it fails too").toBe(undefined);
      assert(failure.at < program.operations.length);
    });
  }

  test("fault: the report has the line that repeats it and every call", async () => {
    const replacements: Replacements = (db) => ({ has: (key) => !db.has(key) });
    const found = await finding(replacements);
    const text = reported(found, "node again --seed 7");
    assert(
      text.includes(`seed ${found.program.seed} failed at its operation ${found.failure.at}`),
      text,
    );
    assert(text.includes("node again --seed 7"), text);
    assert(/\ndb\.has\(.*\);$/.test(text), text);
    expect(found.small.operations.length).toBe(1);
  });
});

describe("the model", () => {
  test("model: the same seed makes the same program", () => {
    expect(programOf(5, ABILITIES, 200)).toStrictEqual(programOf(5, ABILITIES, 200));
  });

  test("model: different seeds make different programs, which cover every call", () => {
    const names = new Set<string>();
    for (let seed = 1; seed < 20; seed++) {
      const { setting, operations } = programOf(seed, { fails: true, slowFlush: false }, 2_000);
      for (const line of print({ seed, setting, operations }).split("\n")) {
        for (const [, name] of line.matchAll(/db\.(\w+)/g)) names.add(name as string);
      }
    }
    const calls = ["get", "getText", "has", "getMany", "getEntry", "set", "delete", "updateIf"];
    calls.push("batch", "transaction", "count", "clear", "keys", "values", "entries", "pin");
    calls.push("commit", "flush", "committed", "flushed", "close");
    expect([...calls.filter((name) => !names.has(name))]).toStrictEqual([]);
  });

  test("model: values are compared by their bytes, whatever buffer they are in", () => {
    const some = pattern(3, 1_000);
    const odd = new Uint8Array(1_003).subarray(3);
    odd.set(some);
    assert(same(some, odd));
    for (const i of [0, 63, 64, 500, 999]) {
      const other = some.slice();
      other[i] = (other[i] as number) ^ 1;
      assert(!same(some, other) && !same(odd, other), `byte ${i}`);
    }
    assert(
      !same(some, some.subarray(0, 999)) && !same(some, undefined) && same(undefined, undefined),
    );
    const texts = ["ascii", "unicode"].map((kind) => ({ number: 9, size: 50, kind })) as Parameters<
      typeof textOf
    >[0][];
    for (const value of texts)
      expect(bytesOf(value)).toStrictEqual(new TextEncoder().encode(textOf(value)));
  });
});
