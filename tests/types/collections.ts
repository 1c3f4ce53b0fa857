/** The types of collections, tested by compiling: see `api.ts`. */

import type { Collection, Database, Scan } from "varve";
import { standard } from "varve/standard";
import {
  auto,
  desc,
  f64,
  json,
  option,
  str,
  struct,
  text,
  timestamp,
  u16,
  u32,
  u64,
  vec,
} from "varve/struct";
import { structured } from "varve/structured";
import { z } from "zod";

/** Compiles only if both types are the same. */
type Same<A, B> =
  (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
function same<A, B>(_: Same<A, B>): void {}

const Product = struct("Product", { stock: u16, name: str });

interface Draft {
  at: Date;
  tags: Set<string>;
}

interface Job {
  kind: string;
}

export function values(db: Database): void {
  const products = db.collection("products", Product);
  products.set("yeezy", { stock: 1, name: "" });
  same<number | undefined, NonNullable<ReturnType<typeof products.get>>["stock"] | undefined>(true);
  const view = products.get("yeezy");
  // @ts-expect-error the value of a missing key is undefined
  view.stock;
  // @ts-expect-error a view of get is read-only
  if (view !== undefined) view.stock = 1;
  products.updateIf("yeezy", (p) => {
    p.stock -= 1;
    // @ts-expect-error a field of another type
    p.stock = "1";
    // @ts-expect-error not a field
    p.price = 1;
  });
  // @ts-expect-error a number is not a record
  products.updateIf("yeezy", (p) => p.stock);
  // @ts-expect-error a promise is not a record
  products.updateIf("yeezy", async () => {});
  products.updateIf("yeezy", () => ({ stock: 1, name: "" }));
  products.updateIf("yeezy", () => {}, {
    predicate: (p) => p.stock > 0,
    predicateKey: "other",
    valueIfMissing: { stock: 1, name: "" },
  });
  // @ts-expect-error a predicate takes the value
  products.updateIf("yeezy", () => {}, { predicate: (p: string) => p === "" });
  // @ts-expect-error a field is missing
  products.set("yeezy", { stock: 1 });
  // @ts-expect-error keys are strings
  products.get(1);

  const jobs = db.collection("jobs", json<Job>());
  same<typeof jobs, Collection<string, Job, Job, Job, string>>(true);
  same<ReturnType<typeof jobs.entries>, Scan<[string, Job]>>(true);
  // @ts-expect-error not a Job
  jobs.set("a", { kind: 1 });
  const lossy = db.collection("lossy", json<Job>({ lossy: true }));
  same<ReturnType<typeof lossy.get>, Job | undefined>(true);
  // @ts-expect-error json() has no such option
  json<Job>({ strict: true });
  const drafts = db.collection("drafts", structured<Draft>(), { key: u32 });
  same<typeof drafts, Collection<number, Draft, Draft, Draft, number>>(true);
  drafts.updateIf(1, (draft) => void draft.tags.add("x"));
  // @ts-expect-error not a Draft
  drafts.set(1, { at: 5, tags: new Set() });
  // @ts-expect-error a field of a plain object needs a type
  db.collection("drafts", structured<Draft>(), { indexes: { byAt: "at" } });
  // @ts-expect-error not a field
  db.collection("drafts", structured<Draft>(), { indexes: { by: { fields: "to", type: str } } });
  const byTimes = db.collection("drafts", structured<Draft>(), {
    indexes: {
      byTime: { fields: desc("at"), type: timestamp },
      byTag: { fields: "tags", type: str, multiEntry: true },
    },
  }).index;
  byTimes.byTime.get(new Date(0));
  byTimes.byTag.values({ eq: "x", prefix: "x", after: ["x", "key"] });
  // @ts-expect-error a tag is text
  byTimes.byTag.get(1);
  same<ReturnType<typeof byTimes.byTag.get>, Draft | undefined>(true);
  const { byBoth } = db.collection("any", json(), {
    indexes: { byBoth: { fields: ["a.b", desc("c")], type: [str, option(u32)], unique: true } },
  }).index;
  byBoth.get(["a", 1]);
  byBoth.keys({ eq: ["a", null], prefix: ["a"] });
  // @ts-expect-error a part of a tuple of another type
  byBoth.get([1, 1]);
  same<Uint8Array<ArrayBuffer>, ReturnType<ReturnType<typeof structured<Draft>>["encode"]>>(true);
  // @ts-expect-error it has no options
  structured<Draft>({ lossy: true });
  const User = z.object({ name: z.string(), age: z.number().default(0) });
  const users = db.collection("users", standard(User), { key: u32 });
  same<ReturnType<typeof users.get>, { name: string; age: number } | undefined>(true);
  users.set(1, { name: "a" });
  // @ts-expect-error a name is text
  users.set(1, { name: 1 });
  const byAge = { fields: "age", type: u16 } as const;
  db.collection("users", standard(User), { key: u32, indexes: { byAge } }).index.byAge.get(5)?.name;
  // @ts-expect-error not a Standard Schema
  standard({ name: "string" });
  // @ts-expect-error values are stored by json() or structured()
  standard(User, { as: text() });
  const notes = db.collection("notes", text());
  same<ReturnType<typeof notes.get>, string | undefined>(true);
  const dates = db.collection("dates", {
    encode: (date: Date) => new Uint8Array([date.getTime()]),
    decode: (bytes) => new Date(bytes[0] ?? 0),
  });
  same<ReturnType<typeof dates.get>, Date | undefined>(true);
  // @ts-expect-error a field type is not a codec: put it into a struct
  db.collection("numbers", u32);
  // @ts-expect-error a field type is not a codec, also with options
  db.collection("lists", vec(str), { key: u32 });
  // @ts-expect-error a field type is not a codec, also in a migration
  db.migrate("numbers", u32);
  // @ts-expect-error a codec needs encode and decode
  db.collection("dates", { encode: () => new Uint8Array(0) });
  notes.batch([
    { type: "set", key: "a", value: "A" },
    { type: "delete", key: "a" },
  ]);
}

const Row = struct("Row", { price: f64, brand: str, at: timestamp, inner: Product });

const Tags = struct("Tags", { names: vec(str) });

const Lists = struct("Lists", { list: vec(Product), may: option(Product) });

export function indexes(db: Database): void {
  const rows = db.collection("rows", Row, {
    key: u32,
    indexes: {
      byPrice: "price",
      byBrand: ["brand", desc("price")],
      byTime: { fields: "at", unique: true },
    },
  });
  const { byPrice, byBrand, byTime } = rows.index;
  byPrice.keys({ gte: 10, lt: 20, after: [12, 7] });
  same<ReturnType<typeof byPrice.keys>, Scan<number>>(true);
  byBrand.values({ eq: ["Nike"], gt: ["Nike", 5], prefix: ["Nike"], after: [["Nike", 5], 7] });
  byTime.get(0)?.brand;
  byTime.get(new Date(0));
  byTime.values({ gte: new Date(0), lt: 9, after: [new Date(0), 7] });
  // @ts-expect-error a number is not a Date
  byPrice.values({ gte: new Date(0) });
  for (const [key, row] of byPrice.entries())
    same<[number, string], [typeof key, typeof row.brand]>(true);
  // @ts-expect-error not an index
  rows.index.byName;
  // @ts-expect-error a price is a number
  byPrice.keys({ gte: "10" });
  // @ts-expect-error a number has no prefix
  byPrice.keys({ prefix: 1 });
  // @ts-expect-error an index of several fields has tuples as keys
  byBrand.values({ eq: "Nike" });
  // @ts-expect-error after needs a complete entry
  byBrand.values({ after: [["Nike"], 7] });
  // @ts-expect-error not a field
  db.collection("rows", Row, { indexes: { byName: "name" } });
  // @ts-expect-error not an option of indexes
  db.collection("rows", Row, { indexes: { byPrice: { fields: "price", uniq: true } } });
  const { byStock, byName } = db.collection("rows", Row, {
    indexes: { byStock: "inner.stock", byName: { fields: ["inner.name", desc("inner.stock")] } },
  }).index;
  byStock.get(1);
  byName.get(["a", 1]);
  // @ts-expect-error a stock is a number
  byStock.get("1");
  // @ts-expect-error a part of a tuple of another type
  byName.get([1, "a"]);
  // @ts-expect-error not a field of the inner struct
  db.collection("rows", Row, { indexes: { by: "inner.price" } });
  // @ts-expect-error not an inner struct
  db.collection("rows", Row, { indexes: { by: "outer.stock" } });
  // @ts-expect-error the length of a list is not a field
  db.collection("lists", Lists, { indexes: { by: "list.length" } });
  // @ts-expect-error fields of an option cannot be indexed
  db.collection("lists", Lists, { indexes: { by: "may.stock" } });
  // @ts-expect-error structs cannot be indexed
  db.collection("rows", Row, { indexes: { byInner: "inner" } });
  // @ts-expect-error a method is not a field
  db.collection("rows", Row, { indexes: { byMethod: "snapshot" } });
  const { byName: byNames } = db.collection("tags", Tags, {
    indexes: { byName: { fields: desc("names"), multiEntry: true } },
  }).index;
  byNames.get("a");
  // @ts-expect-error a name is text
  byNames.get(1);
  // @ts-expect-error not a list
  db.collection("rows", Row, { indexes: { by: { fields: "brand", multiEntry: true } } });
  // @ts-expect-error a list needs multiEntry
  db.collection("tags", Tags, { indexes: { by: { fields: "names" } } });
  // @ts-expect-error the fields of structs have types
  db.collection("rows", Row, { indexes: { by: { fields: "brand", type: str } } });
  // @ts-expect-error a field of a plain object needs a type
  db.collection("jobs", json<Job>(), { indexes: { byKind: "kind" } });
  // @ts-expect-error an undeclared index
  db.collection("rows", Row).index.byPrice;
}

export function keys(db: Database): void {
  const scores = db.collection("scores", text(), { key: [u32, desc(f64), str] });
  scores.get([1, 99.5, "ann"]);
  same<ReturnType<typeof scores.keys>, Scan<[number, number, string]>>(true);
  scores.keys({ gte: [1], lt: [2, 3], prefix: [1, 2, "a"], after: [1, 2, "a"] });
  // @ts-expect-error get needs a complete key
  scores.get([1, 99.5]);
  // @ts-expect-error a part of a key of another type
  scores.get([1, "99.5", "ann"]);
  // @ts-expect-error a part of a key of another type, in a bound
  scores.keys({ gte: ["1"] });
  // @ts-expect-error a bound needs at least one part
  scores.keys({ gte: [] });
  // @ts-expect-error after needs a complete key
  scores.keys({ after: [1] });

  const days = db.collection("days", text(), { key: timestamp });
  days.set(new Date(), "today");
  days.set(0, "then");
  same<ReturnType<typeof days.keys>, Scan<number>>(true);
  // @ts-expect-error a number has no prefix
  days.keys({ prefix: 1 });
  const big = db.collection("big", text(), { key: u64 });
  same<ReturnType<typeof big.keys>, Scan<bigint>>(true);
  // @ts-expect-error a bigint is not a number
  big.get(1);

  const jobs = db.collection("jobs", json<Job>(), { key: auto() });
  same<number, ReturnType<typeof jobs.push>>(true);
  jobs.push({ kind: "mail" });
  jobs.get(1);
  // @ts-expect-error push needs auto() keys
  db.collection("notes", text()).push("A");
  // @ts-expect-error a mistyped option
  db.collection("notes", text(), { keys: u32 });
  // @ts-expect-error a key type, not a name
  db.collection("notes", text(), { key: "u32" });
}

export async function migrating(db: Database): Promise<void> {
  const rows = await db.migrate("rows", Row, {
    key: u32,
    indexes: { byPrice: "price" },
    migrate: (old: { cents: number }, key) => {
      same<typeof key, number>(true);
      return { price: old.cents / 100, brand: "", at: 0, inner: { stock: 1, name: "" } };
    },
    onProgress: ({ records, total }) => records / total,
    signal: AbortSignal.timeout(1000),
  });
  same<ReturnType<typeof rows.index.byPrice.keys>, Scan<number>>(true);
  await db.migrate("rows", json<number>(), {
    key: [u32, str],
    rekey: (key: string, old: { id: number }) => [old.id, key],
  });
  // @ts-expect-error rekey returns a key
  await db.migrate("rows", json<number>(), { key: u32, rekey: (key: string) => key });
  // @ts-expect-error migrate returns a complete record
  await db.migrate("products", Product, { migrate: () => ({ stock: 1 }) });
  // @ts-expect-error not an option of indexes
  await db.migrate("products", Product, { indexes: { by: { fields: "stock", uniq: true } } });
  // @ts-expect-error migrate is synchronous
  await db.migrate("products", Product, { migrate: async () => ({ stock: 1, name: "" }) });
}

export function snapshots(db: Database): void {
  using then = db.snapshot();
  const past = then.collection("products", Product, { indexes: { byStock: "stock" } });
  const stock: number | undefined = past.get("a")?.stock;
  const found: string | undefined = past.index.byStock.get(stock ?? 0)?.name;
  for (const [key, { name }] of past.entries()) key.concat(name, found ?? "");

  // @ts-expect-error a snapshot cannot be written to
  then.set("a", "1");
  // @ts-expect-error nor can its collections
  past.set("a", { stock: 1, name: "" });
  // @ts-expect-error an index that was not declared
  past.index.byName;
  // @ts-expect-error stats are of the database
  then.stats();
}
