/** The types of clients, tested by compiling, as in `api.ts`. */

import { type Client, connect, type Database, type RemoteEntry, serve } from "varve";
import { at, connect as connectAlone, pack, undo } from "varve/client";
import { keep } from "varve/keep";
import {
  auto,
  desc,
  json,
  option,
  str,
  struct,
  text,
  timestamp,
  u16,
  u32,
  type View,
  vec,
} from "varve/struct";
import { structured } from "varve/structured";

/** Compiles only if both types are the same. */
type Same<A, B> =
  (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
function same<A, B>(_: Same<A, B>): void {}

const Product = struct("Product", { stock: u16, name: str, tags: vec(str) });

const Size = struct("Size", { width: u16, height: u16 });
const Box = struct("Box", { size: Size, label: str, at: timestamp, note: option(str) });
type Boxed = {
  size: { width: number; height: number };
  label: string;
  at: number;
  note: string | undefined;
};

/** A recursive type. */
type Tree = string | number | Tree[] | { [name: string]: Tree };

/** Its type in answers to a client. */
type Copy = { stock: number; name: string; tags: string[] };

const served = serve("shop", {
  durability: "flushed",
  procedures: {
    buy(db, id: string, count = 1) {
      same<typeof db, Database>(true);
      return db.has(id) && count > 0;
    },
    look: (db, id: string) => db.get(id),
    nothing: () => {},
    product: (db) => db.collection("products", Product).get("a"),
    all: (db) => ({ at: new Date(), rows: [...db.collection("products", Product).values()] }),
    tree: (_, of: Tree) => of,
    unknown: (db, name: string) => [name as unknown, db.count()] as const,
  },
});

export async function calling(): Promise<void> {
  const shop = connect<typeof served>("shop", {
    worker: () => new Worker(new URL("./db.ts", import.meta.url), { type: "module" }),
  });
  same<Awaited<ReturnType<typeof shop.call.buy>>, boolean>(true);
  same<Parameters<typeof shop.call.buy>, [id: string, count?: number | undefined]>(true);
  same<Awaited<ReturnType<typeof shop.call.look>>, Uint8Array<ArrayBuffer> | undefined>(true);
  await shop.call.nothing();
  // Views in an answer arrive as copies, at any depth.
  same<Awaited<ReturnType<typeof shop.call.product>>, Copy | undefined>(true);
  same<Awaited<ReturnType<typeof shop.call.all>>, { at: Date; rows: Copy[] }>(true);
  same<Awaited<ReturnType<typeof shop.call.unknown>>, readonly [unknown, number]>(true);
  (await shop.call.tree(["a", { b: 1 }])) satisfies Tree;

  // @ts-expect-error a procedure is called with its arguments
  await shop.call.buy(1);
  // @ts-expect-error not a served procedure
  await shop.call.sell("yeezy");
}

export async function reading(client: Client): Promise<void> {
  same<Awaited<ReturnType<typeof client.get>>, Uint8Array<ArrayBuffer> | undefined>(true);
  same<Awaited<ReturnType<typeof client.getEntry>>, RemoteEntry | undefined>(true);
  for await (const key of client.keys()) same<typeof key, string>(true);
  for await (const [key] of client.entries({ keyAs: "bytes" })) {
    same<typeof key, Uint8Array<ArrayBuffer>>(true);
  }
  const bought = await client.transaction(async (tx) => {
    tx.set("a", "1");
    return (await tx.get("b"))?.length;
  });
  same<typeof bought, number | undefined>(true);
  same<typeof client.status.owner, "here" | "elsewhere" | undefined>(true);
  // @ts-expect-error the package's own worker has no procedures
  client.call.buy();
}

const typed = serve("shop", {
  collections: {
    products: Product,
    jobs: { of: json<{ kind: string }>(), key: auto() },
    scores: { of: Product, key: [u16, str], indexes: { byStock: "stock" } },
  },
});

export async function collecting(): Promise<void> {
  const collections = { products: true, jobs: true, scores: true };
  const shop = connect<typeof typed>("shop", { collections });
  const product = await shop.products.get("yeezy");
  same<typeof product, Copy | undefined>(true);
  const { applied, value } = await shop.products.update("yeezy", {
    add: { stock: -1 },
    where: { stock: { gt: 0 }, name: "a" },
  });
  same<typeof applied, boolean>(true);
  same<typeof value, Copy | undefined>(true);
  same<number, Awaited<ReturnType<typeof shop.jobs.push>>>(true);
  for await (const [key] of shop.scores.index.byStock.entries()) {
    same<typeof key, [number, string]>(true);
  }
  // Lists are of plain objects, and with `views` of views.
  same<Awaited<ReturnType<ReturnType<typeof shop.products.values>["all"]>>, Copy[]>(true);
  for await (const view of shop.products.views.values({ prefix: "y" })) {
    same<typeof view, View<typeof Product>>(true);
    // @ts-expect-error a view of a list is read only
    view.stock = 1;
  }
  const some = await shop.scores.views.getMany([[1, "a"]]);
  same<typeof some, (View<typeof Product> | undefined)[]>(true);
  for await (const [key, view] of shop.scores.views.index.byStock.entries()) {
    same<typeof key, [number, string]>(true);
    same<typeof view, View<typeof Product>>(true);
  }
  // @ts-expect-error values of json() have no views
  shop.jobs.views.values();

  await shop.transaction(async (tx) => {
    const found = await tx.products.get("yeezy");
    same<typeof found, Copy | undefined>(true);
    tx.scores.set([1, "a"], { stock: 1, name: "a", tags: [] });
    // @ts-expect-error a field is missing
    tx.products.set("yeezy", { name: "a" });
    // @ts-expect-error not a collection
    tx.orders.delete("a");
  });
  for await (const changes of shop.scores.watch()) {
    same<(typeof changes)[number]["key"], [number, string]>(true);
  }
  for await (const rows of shop.live({ prefix: "a" })) {
    same<typeof rows, [string, Uint8Array<ArrayBuffer>][]>(true);
  }

  // @ts-expect-error conditions only apply to fields of a single value
  await shop.products.update("yeezy", { where: { tags: ["a"] } });
  // @ts-expect-error only numbers can be added to
  await shop.products.update("yeezy", { add: { name: 1 } });
  // @ts-expect-error a field is missing
  await shop.products.set("yeezy", { name: "a" });
  // @ts-expect-error keys are numbers
  await shop.jobs.get("a");
  // @ts-expect-error not an index
  shop.scores.index.byName.keys();
  // @ts-expect-error not a collection
  await shop.orders.get("a");
}

export async function connecting(): Promise<void> {
  const alone = connectAlone("shop", { timeout: 1_000 });
  await alone.ready;
  // @ts-expect-error not a call
  await connectAlone("shop").call.buy();
  // @ts-expect-error a database needs a name
  connect();
  // @ts-expect-error a mistyped option
  connect("shop", { wroker: () => {} });
  // @ts-expect-error a procedure is a function
  serve("shop", { procedures: { buy: 1 } });
  // @ts-expect-error a procedure is synchronous
  serve("shop", { procedures: { buy: async () => 1 } });
  // @ts-expect-error a procedure is no generator
  serve("shop", { procedures: { *buy() {} } });
}

/** `serve` refuses the same definitions as `db.collection`. */
export function declaring(): void {
  // @ts-expect-error a field type is not a codec: put it into a struct
  serve("shop", { collections: { a: u16 } });
  // @ts-expect-error a field type is not a codec, also with options
  serve("shop", { collections: { a: { of: u16, key: u16 } } });
  // @ts-expect-error not a field
  serve("shop", { collections: { a: { of: Product, indexes: { byPrice: "price" } } } });
  // @ts-expect-error not a field, in a list
  serve("shop", { collections: { a: { of: Product, indexes: { by: ["stock", "price"] } } } });
  // @ts-expect-error not a field, with an order
  serve("shop", { collections: { a: { of: Product, indexes: { by: desc("price") } } } });
  // @ts-expect-error not a field, in an object
  serve("shop", { collections: { a: { of: Product, indexes: { by: { fields: "price" } } } } });
  serve("shop", {
    // @ts-expect-error not an option of indexes
    collections: { a: { of: Product, indexes: { by: { fields: "stock", uniq: true } } } },
  });
  serve("shop", {
    // @ts-expect-error unique is a boolean
    collections: { a: { of: Product, indexes: { by: { fields: "stock", unique: 1 } } } },
  });
  // @ts-expect-error lists cannot be indexed
  serve("shop", { collections: { a: { of: Product, indexes: { byTags: "tags" } } } });
  // @ts-expect-error a field of a plain object needs a type
  serve("shop", { collections: { a: { of: json<{ b: number }>(), indexes: { by: "b" } } } });
  const byB = { fields: "b", type: u16 } as const;
  serve("shop", { collections: { a: { of: json<{ b: number }>(), indexes: { byB } } } });
  // @ts-expect-error not a field
  serve("shop", { collections: { a: { of: json<{ c: number }>(), indexes: { byB } } } });
  // @ts-expect-error text has no fields
  serve("shop", { collections: { a: { of: text(), indexes: { by: "b" } } } });
  // @ts-expect-error a mistyped option
  serve("shop", { collections: { a: { of: Product, keys: u16 } } });
  // @ts-expect-error a mistyped option beside a correct one
  serve("shop", { collections: { a: { of: Product, key: u16, index: { byStock: "stock" } } } });
  // @ts-expect-error a key type, not a name
  serve("shop", { collections: { a: { of: Product, key: "u16" } } });
  // @ts-expect-error a collection needs a codec
  serve("shop", { collections: { a: { key: u16 } } });
  // @ts-expect-error a codec needs encode and decode
  serve("shop", { collections: { a: { encode: () => new Uint8Array(1) } } });
  serve("shop", {
    collections: {
      dates: {
        encode: (date: Date) => new Uint8Array([date.getTime()]),
        decode: (bytes: Uint8Array) => new Date(bytes[0] ?? 0),
      },
      boxes: { of: Box, indexes: { byWidth: "size.width", byBoth: ["size.height", "label"] } },
    },
  });
}

const indexed = serve("shop", {
  collections: {
    boxes: {
      of: Box,
      key: u32,
      indexes: {
        byWidth: "size.width",
        byLabel: { fields: ["label", desc("at")], unique: true },
        byTime: "at",
        byNote: "note",
      },
    },
  },
});

export async function lookingUp(): Promise<void> {
  const boxes = connect<typeof indexed>("shop").collection("boxes");
  const { byWidth, byLabel, byTime, byNote } = boxes.index;
  await byWidth.get(1);
  await byWidth.count({ gte: 1, lt: 2 });
  await byWidth.keys({ eq: 1, after: [1, 7], limit: 10, reverse: true }).all();
  await byLabel.values({ eq: ["a"], gt: ["a", 5], prefix: ["a"] }).all();
  await byTime.get(new Date());
  await byTime.entries({ gte: new Date(0), lt: 9 }).all();
  await byNote.get(undefined);
  await byNote.keys({ eq: null }).all();
  same<Awaited<ReturnType<typeof byWidth.get>>, Boxed | undefined>(true);
  // @ts-expect-error a width is a number
  await byWidth.get("1");
  // @ts-expect-error a width is a number, also in a bound
  byWidth.keys({ gte: "1" });
  // @ts-expect-error a number has no prefix
  byWidth.keys({ prefix: 1 });
  // @ts-expect-error an index of several fields has tuples as keys
  byLabel.values({ eq: "a" });
  // @ts-expect-error after needs a complete entry
  byLabel.values({ after: ["a", 7] });
  // @ts-expect-error a mistyped option
  byWidth.entries({ form: 1 });
  // @ts-expect-error keys are numbers
  boxes.keys({ gte: "a" });
  // @ts-expect-error keys are numbers, also in live
  boxes.live({ gte: "a" });
}

export async function naming(): Promise<void> {
  const shop = connect<typeof typed>("shop");
  const products = shop.collection("products");
  same<Awaited<ReturnType<typeof products.get>>, Copy | undefined>(true);
  await shop.transaction(async (tx) => {
    const found = await tx.collection("products").get("yeezy");
    same<typeof found, Copy | undefined>(true);
    // @ts-expect-error without names in connect, collections are no properties
    tx.products.delete("a");
  });
  // @ts-expect-error not a collection
  shop.collection("orders");
  // @ts-expect-error without names in connect, collections are no properties
  shop.products;
  // @ts-expect-error all collections are named, or none
  connect<typeof typed>("shop", { collections: { products: true } });
  // @ts-expect-error not a served collection
  connect<typeof typed>("shop", { collections: { products: 1, jobs: 1, scores: 1, orders: 1 } });
  // @ts-expect-error the package's own worker has no collections
  connect("shop").collection("products");

  // A page with the schemas needs no type arguments.
  const specified = connect("shop", {
    collections: {
      products: Product,
      jobs: { of: json(), key: auto() },
      drafts: structured<{ at: Date; tags: Map<string, bigint> }>(),
    },
  });
  const draft = await specified.drafts.get("a");
  same<typeof draft, { at: Date; tags: Map<string, bigint> } | undefined>(true);
  await specified.drafts.set("a", { at: new Date(), tags: new Map() });
  // @ts-expect-error a field is missing
  await specified.drafts.set("a", { at: new Date() });
  same<Awaited<ReturnType<typeof specified.products.get>>, Copy | undefined>(true);
  same<Awaited<ReturnType<typeof specified.jobs.push>>, number>(true);
  // @ts-expect-error keys are numbers
  specified.jobs.get("a");

  const any: Client = shop;
  same<Awaited<ReturnType<ReturnType<typeof any.collection>["get"]>>, unknown>(true);
}

export async function past(): Promise<void> {
  const shop = connect<typeof typed>("shop");
  await using then = await at(shop, new Date());
  same<Awaited<ReturnType<typeof then.getText>>, string | undefined>(true);
  const [key] = await then.keys({ keyAs: "bytes" }).all();
  same<typeof key, Uint8Array<ArrayBuffer> | undefined>(true);
  const products = then.collection("products");
  same<Awaited<ReturnType<typeof products.get>>, Copy | undefined>(true);
  // @ts-expect-error a past state cannot be written to
  products.set("a", { stock: 1, name: "A" });
  // @ts-expect-error not a collection
  then.collection("orders");
  // @ts-expect-error a point is a number or a Date
  await at(shop, "1");
  await undo(shop, 1, { note: "why", timeout: 1_000 });
  // @ts-expect-error the number of a transaction
  await undo(shop, new Date());
  same<Awaited<ReturnType<typeof pack>>, number>(true);
  await pack(shop, { before: new Date(), signal: AbortSignal.timeout(1) });
  // @ts-expect-error the commit is missing
  await pack(shop, {});
  await shop.transaction((tx) => {
    tx.set("a", "1", { expireIn: 1_000 });
    // @ts-expect-error what was read is checked anyway
    tx.set("a", "1", { ifVersion: 1 });
  });
}

export async function keeping(db: Database): Promise<void> {
  const shop = connect<typeof indexed>("shop");
  const boxes = await keep(shop.collection("boxes"), { gte: 1 }, { maxRows: 10 });
  same<ReturnType<typeof boxes.get>, Boxed | undefined>(true);
  same<typeof boxes.rows, readonly (readonly [number, Boxed])[]>(true);
  // @ts-expect-error keys are numbers
  boxes.get("a");
  const wide = await keep(shop.collection("boxes").index.byWidth, { gte: 1 });
  same<ReturnType<typeof wide.get>, Boxed | undefined>(true);
  const raw = await keep(shop, { prefix: "a" });
  same<ReturnType<typeof raw.get>, Uint8Array<ArrayBuffer> | undefined>(true);
  const local = await keep(db.collection("products", Product), { lt: "b" });
  same<ReturnType<typeof local.get>, Copy | undefined>(true);
  // @ts-expect-error keys are numbers
  await keep(shop.collection("boxes"), { gte: "a" });
  // @ts-expect-error a mistyped option
  await keep(shop, {}, { max: 1 });
}
