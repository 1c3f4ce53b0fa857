/** VeryLightSQL's four kinds of work on a row of 291 bytes, and updateIf, through bytes, views and JSON. */

import { type Database, memory, open } from "varve";
import { fixedStr, json, struct, u32 } from "varve/struct";
import { type Measured, measure, type Variant } from "./measure.js";

const Row = struct("Row", { id: u32, username: fixedStr(32), email: fixedStr(255) });

interface Plain {
  id: number;
  username: string;
  email: string;
}

const INSERTS = 100;
const ROWS = 50;

const input = (id: number): Plain => ({
  id,
  username: `user${id}`,
  email: `person${id}@example.com`,
});

/** A number as a key with the same order. */
function keyOf(id: number): Uint8Array {
  return Uint8Array.of(id >>> 24, id >>> 16, id >>> 8, id);
}

const SEQUENTIAL = Array.from({ length: INSERTS }, (_, index) => index);
/** Each of the same keys once, in a scattered order. */
const SCATTERED = SEQUENTIAL.map((index) => (index * 37 + 11) % INSERTS);

const RAW = { store: "raw bytes", about: "a view of bytes" };
const TYPED = { store: "typed view", about: "collection, schema" };
const JSONS = { store: "JSON", about: "collection, json()" };

function openTables(db: Database) {
  return {
    typed: db.collection("typed", Row, { key: u32 }),
    plain: db.collection("plain", json<Plain>(), { key: u32 }),
  };
}
type Tables = ReturnType<typeof openTables>;

export async function measureRows(samples: number, times: number): Promise<Measured[]> {
  const db = await open("rows", { storage: memory() });
  const tables = openTables(db);
  try {
    // Each kind of work has a separate database: scans and gets find 50 rows.
    const inserted = await measure(insertVariants(db, tables, times), samples);
    clear(db, tables);
    fill(db, tables);
    const found = await measure(readVariants(db, tables, times), samples);
    const handled = await measure(refVariants(tables, times), samples);
    const updated = await measure(updateVariants(db, tables, times), samples);
    return [...inserted, ...found, ...handled, ...updated];
  } finally {
    await db.close();
  }
}

function clear(db: Database, { typed, plain }: Tables): void {
  db.clear();
  typed.clear();
  plain.clear();
  db.commit();
}

function fill(db: Database, { typed, plain }: Tables): void {
  for (let id = 0; id < ROWS; id++) {
    db.set(keyOf(id), Row.encode(input(id)));
    typed.set(id, input(id));
    plain.set(id, input(id));
  }
  db.commit();
}

function insertVariants(db: Database, tables: Tables, times: number): Variant[] {
  const { typed, plain } = tables;
  const keys = SEQUENTIAL.map(keyOf);
  const encoded = SEQUENTIAL.map((id) => Row.encode(input(id)));
  const objects = SEQUENTIAL.map(input);
  return [
    { work: "insert 100 rows in order", order: SEQUENTIAL },
    { work: "insert 100 rows in random order", order: SCATTERED },
  ].flatMap(({ work, order }): Variant[] => {
    const variant = (about: typeof RAW, insert: (id: number) => void): Variant => {
      let aside = 0;
      return {
        work: `${work}, each`,
        ...about,
        count: INSERTS * times,
        aside: () => aside,
        run() {
          aside = 0;
          for (let time = 0; time < times; time++) {
            // A new database each time.
            const start = performance.now();
            clear(db, tables);
            aside += performance.now() - start;
            for (const id of order) insert(id);
            db.commit();
          }
          return times;
        },
      };
    };
    return [
      variant(RAW, (id) => db.set(keys[id]!, encoded[id]!)),
      variant(TYPED, (id) => typed.set(id, objects[id]!)),
      variant(JSONS, (id) => plain.set(id, objects[id]!)),
    ];
  });
}

function readVariants(db: Database, { typed, plain }: Tables, times: number): Variant[] {
  const keys = SEQUENTIAL.slice(0, ROWS).map(keyOf);
  const scan = { work: "a cursor over 50 rows, each", count: ROWS * times * 10 };
  const find = { work: "find a row among 50", count: ROWS * times * 10 };
  const sum = ((ROWS * (ROWS - 1)) / 2) * times * 10;
  const repeat = (run: () => number) => () => {
    let all = 0;
    for (let time = 0; time < times * 10; time++) all += run();
    return all;
  };
  const found = (get: (id: number) => number) =>
    repeat(() => {
      let all = 0;
      for (let i = 0; i < ROWS; i++) all += get((i * 37) % ROWS);
      return all;
    });
  return [
    {
      ...scan,
      ...RAW,
      sum,
      run: repeat(() => {
        let all = 0;
        for (const row of db.values()) all += row[0]! | (row[1]! << 8);
        return all;
      }),
    },
    {
      ...scan,
      ...TYPED,
      sum,
      run: repeat(() => {
        let all = 0;
        for (const row of typed.values()) all += row.id;
        return all;
      }),
    },
    {
      ...scan,
      ...JSONS,
      sum,
      run: repeat(() => {
        let all = 0;
        for (const row of plain.values()) all += row.id;
        return all;
      }),
    },
    { ...find, ...RAW, sum, run: found((id) => db.get(keys[id]!)![0]!) },
    { ...find, ...TYPED, sum, run: found((id) => typed.get(id)!.id) },
    { ...find, ...JSONS, sum, run: found((id) => plain.get(id)!.id) },
  ];
}

/** What a program may keep of records: views until the next write, and handles across writes. */
function refVariants({ typed }: Tables, times: number): Variant[] {
  const views = SEQUENTIAL.slice(0, ROWS).map((id) => typed.get(id)!);
  const refs = SEQUENTIAL.slice(0, ROWS).map((id) => typed.ref(id));
  const work = "read a number of a record that is at hand";
  const rounds = times * 500;
  const variant = { work, count: ROWS * rounds, sum: ((ROWS * (ROWS - 1)) / 2) * rounds };
  // Each loop is written out: a call of a function parameter would dominate the measurement.
  return [
    {
      ...variant,
      ...TYPED,
      about: "the view, kept",
      run() {
        let sum = 0;
        for (let round = 0; round < rounds; round++) {
          for (let i = 0; i < ROWS; i++) sum += views[i]!.id;
        }
        return sum;
      },
    },
    {
      ...variant,
      store: "ref",
      about: "a handle: ref.value",
      run() {
        let sum = 0;
        for (let round = 0; round < rounds; round++) {
          for (let i = 0; i < ROWS; i++) sum += refs[i]!.value!.id;
        }
        return sum;
      },
    },
  ];
}

function updateVariants(db: Database, { typed }: Tables, times: number): Variant[] {
  const keys = SEQUENTIAL.slice(0, ROWS).map(keyOf);
  const names = Array.from({ length: ROWS }, (_, id) => `row${id}`);
  const byName = db.collection("byName", Row);
  for (let id = 0; id < ROWS; id++) {
    db.set(names[id]!, Row.encode(input(id)));
    byName.set(names[id]!, input(id));
  }
  const count = ROWS * times * 10;
  const variant = (work: string, about: typeof RAW, update: (id: number) => boolean): Variant => ({
    work,
    ...about,
    count,
    sum: count,
    run() {
      let done = 0;
      for (let i = 0; i < count; i++) if (update((i * 37) % ROWS)) done += 1;
      db.commit();
      return done;
    },
  });
  const strings = "updateIf with a predicate, keys are strings";
  const numbers = "updateIf with a predicate, keys are numbers";
  const bytewise = (view: Uint8Array) => {
    view[0] = (view[0]! + 1) & 0xff;
  };
  const change = (row: { id: number }) => {
    row.id = (row.id + 1) & 0xff;
  };
  const raw = { predicate: (view: Uint8Array) => view[3] === 0 };
  const checked = { predicate: (row: { readonly id: number }) => row.id < 256 };
  return [
    variant(strings, RAW, (id) => db.updateIf(names[id]!, bytewise, raw)),
    variant(strings, TYPED, (id) => byName.updateIf(names[id]!, change, checked)),
    variant(numbers, RAW, (id) => db.updateIf(keys[id]!, bytewise, raw)),
    variant(numbers, TYPED, (id) => typed.updateIf(id, change, checked)),
  ];
}
