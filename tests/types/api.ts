/**
 * Tests of the types. They are compiled and never run: `npm run check` fails if a line does not compile, or if a
 * line marked as an error does.
 */

import type {
  BadArgumentError,
  BatchOperation,
  ByteRange,
  Change,
  CorruptionError,
  Database,
  DatabaseStats,
  Durability,
  Entry,
  Key,
  OpenOptions,
  Persistence,
  Pin,
  Predicate,
  Range,
  Recovery,
  Scan,
  Storage,
  TextRange,
  UpdateOptions,
  Value,
  Walker,
} from "varve";
import {
  DatabaseBusyError,
  databases,
  destroy,
  file,
  memory,
  open,
  opfs,
  persist,
  VarveError,
} from "varve";

/** Compiles only if both types are the same. */
type Same<A, B> =
  (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
function same<A, B>(_: Same<A, B>): void {}

export async function opening(): Promise<void> {
  const db = await open("shop");
  same<typeof db, Database>(true);
  await open("shop", {});
  await open("shop", { storage: memory(), durability: "flushed", memory: 1 << 20, ordered: false });
  await open("shop", {
    storage: file("./data"),
    strictViews: true,
    onError: (error) => error.stack,
  });
  await open("shop", { storage: file(new URL("file:///data")) });
  await open("shop", { storage: opfs(), wasm: fetch("varve.wasm") });
  await open("shop", { storage: undefined, durability: undefined });
  await open("shop", { wasm: new Uint8Array(8) });

  // @ts-expect-error a database needs a name
  await open();
  // @ts-expect-error the name of a database is a string
  await open(1);
  // @ts-expect-error not a durability level
  await open("shop", { durability: "safe" });
  // @ts-expect-error a mistyped option
  await open("shop", { durabilty: "flushed" });
  // @ts-expect-error a storage is created by a function
  await open("shop", { storage: memory });
  // @ts-expect-error a listener takes an error
  await open("shop", { onError: (error: string) => error });
  // @ts-expect-error memory is a number of bytes
  await open("shop", { memory: "64 MiB" });

  const options: OpenOptions = { durability: "buffered" };
  const durability: Durability | undefined = options.durability;
  await open("shop", { durability });
  const storage: Storage = memory();
  same<typeof storage.kind, string>(true);
}

export function reading(db: Database): void {
  same<ReturnType<Database["get"]>, Uint8Array<ArrayBuffer> | undefined>(true);
  same<ReturnType<Database["getText"]>, string | undefined>(true);
  same<ReturnType<Database["has"]>, boolean>(true);
  same<ReturnType<Database["count"]>, number>(true);
  same<DatabaseStats["quota"], number | undefined>(true);
  same<DatabaseStats["persisted"], boolean | undefined>(true);
  same<DatabaseStats["coldReads"], number>(true);
  same<ReturnType<Database["stats"]>, DatabaseStats>(true);
  same<Database["recovery"], Recovery>(true);
  same<Database["durability"], Durability>(true);
  db.get("key")?.slice();
  db.get(new Uint8Array(3));
  db.get(new Uint8Array(3) as Uint8Array);
  db.get(new ArrayBuffer(3));
  db.get(new DataView(new ArrayBuffer(3)));

  // @ts-expect-error the value of a missing key is undefined
  db.get("key").length;
  // @ts-expect-error a number is not a key
  db.get(1);
  // @ts-expect-error a key is needed
  db.has();
  // @ts-expect-error properties of a database are read-only
  db.recovery = {} as Recovery;
  // @ts-expect-error the recovery report is read-only
  db.recovery.tornBytes = 1;
}

export function writing(db: Database, key: Key, value: Value): void {
  same<ReturnType<Database["set"]>, void>(true);
  same<ReturnType<Database["delete"]>, boolean>(true);
  db.set(key, value);
  db.set("key", new Float64Array(2));
  db.set("key", new Uint8Array(2).buffer);
  db.set("key", db.get("key") ?? "");

  // @ts-expect-error a number is not a value
  db.set("key", 1);
  // @ts-expect-error an object is not a value
  db.set("key", { stock: 1 });
  // @ts-expect-error undefined is not a value
  db.set("key", undefined);
  db.set("key", "value", { ifVersion: 1 });
  db.set("key", "value", { ifVersion: undefined });
  // @ts-expect-error a version is a number
  db.set("key", "value", { ifVersion: "1" });
  // @ts-expect-error a mistyped option
  db.set("key", "value", { ifversion: 1 });

  const operations: BatchOperation[] = [
    { type: "set", key, value },
    { type: "delete", key },
  ];
  db.batch(operations);
  db.batch([{ type: "set", key: "a", value: "b" }] as const);
  // @ts-expect-error not a type of operation
  db.batch([{ type: "put", key: "a", value: "b" }]);
  // @ts-expect-error a set needs a value
  db.batch([{ type: "set", key: "a" }]);
}

export function ranging(db: Database, range: Range): void {
  for (const key of db.keys()) same<typeof key, string>(true);
  for (const key of db.keys({ prefix: "a", keyAs: "string" })) same<typeof key, string>(true);
  for (const key of db.keys({ keyAs: "bytes" })) same<typeof key, Uint8Array<ArrayBuffer>>(true);
  for (const value of db.values(range)) same<typeof value, Uint8Array<ArrayBuffer>>(true);
  for (const [key, value] of db.entries(range)) {
    same<typeof key, string>(true);
    same<typeof value, Uint8Array<ArrayBuffer>>(true);
  }
  for (const [key] of db.entries({ ...range, keyAs: "bytes" })) {
    same<typeof key, Uint8Array<ArrayBuffer>>(true);
  }
  const either = { keyAs: "string" } as TextRange | ByteRange;
  for (const key of db.keys(either)) same<typeof key, string | Uint8Array<ArrayBuffer>>(true);
  const scan: Scan<string> = db.keys({ gt: "a", lte: new Uint8Array(1), reverse: true, limit: 3 });
  scan[Symbol.iterator]().next();
  same<ReturnType<Database["clear"]>, number>(true);
  db.count({ prefix: "a" });
  db.clear({ gte: "a" });

  // @ts-expect-error a mistyped option
  db.keys({ from: "a" });
  // @ts-expect-error not a form of keys
  db.keys({ keyAs: "buffer" });
  // @ts-expect-error values have no option for keys
  db.values({ keyAs: "bytes" });
  // @ts-expect-error counts have no option for keys
  db.count({ keyAs: "bytes" });
  // @ts-expect-error a bound is a key
  db.clear({ gt: 1 });
  // @ts-expect-error a limit is a number
  db.keys({ limit: "1" });
}

export function holding(db: Database): void {
  same<ReturnType<Database["getMany"]>, (Uint8Array<ArrayBuffer> | undefined)[]>(true);
  same<ReturnType<Database["getEntry"]>, Entry | undefined>(true);
  same<ReturnType<Database["pin"]>, Pin | undefined>(true);
  db.getMany(["a", new Uint8Array(1)]);
  db.getMany(new Set(["a"]));
  const entry = db.getEntry("key");
  if (entry !== undefined) db.set("key", "value", { ifVersion: entry.version });
  using lease = db.pin("key");
  using steps = db.entries({ keyAs: "bytes" })[Symbol.iterator]();
  same<typeof steps, Walker<[Uint8Array<ArrayBuffer>, Uint8Array<ArrayBuffer>]>>(true);
  same<Pin["bytes"], Uint8Array<ArrayBuffer>>(true);
  lease?.bytes.slice();
  db.pin("key")?.dispose();

  // @ts-expect-error the entry of a missing key is undefined
  db.getEntry("key").version;
  // @ts-expect-error an entry is read-only
  if (entry !== undefined) entry.version = 1;
  // @ts-expect-error a pin is read-only
  if (lease !== undefined) lease.bytes = new Uint8Array(1);
  // @ts-expect-error a number is not a key
  db.getMany([1]);
}

export async function keeping(): Promise<void> {
  const controller = new AbortController();
  await open("shop", {
    readOnly: true,
    signal: controller.signal,
    onProgress: ({ bytes, total }) => (bytes === total ? controller.abort() : undefined),
  });
  same<Awaited<ReturnType<typeof destroy>>, boolean>(true);
  same<Awaited<ReturnType<typeof databases>>, string[]>(true);
  await destroy("shop");
  same<Awaited<ReturnType<typeof persist>>, Persistence>(true);
  await persist();
  await persist({ storage: opfs() });
  await destroy("shop", { storage: memory() });
  await databases({ storage: undefined });

  // @ts-expect-error destroy has no such option
  await destroy("shop", { force: true });
  // @ts-expect-error databases takes options, not a name
  await databases("shop");
}

export function updating(db: Database): void {
  same<ReturnType<Database["updateIf"]>, boolean>(true);
  db.updateIf("key", (view) => {
    same<typeof view, Uint8Array<ArrayBuffer>>(true);
    view[0] = 1;
  });
  db.updateIf("key", () => "new text");
  db.updateIf("key", (view) => view.slice(1));
  db.updateIf("key", () => undefined);
  db.updateIf("key", (view): undefined | string => (view.length > 3 ? "shorter" : undefined));
  const inPlace = (view: Uint8Array): void => {
    view.fill(0);
  };
  db.updateIf("key", inPlace, { predicate: (view) => view[0] === 1 });
  db.updateIf("key", inPlace, {
    valueIfMissing: "0",
    predicateKey: "other",
    predicate: () => true,
  });
  const change: Change = inPlace;
  const predicate: Predicate = (view) => view.length === 0;
  const options: UpdateOptions = { predicate };
  db.updateIf("key", change, options);

  // @ts-expect-error a callback is synchronous
  db.updateIf("key", async (view) => {
    view[0] = 1;
  });
  // @ts-expect-error the value of an assignment is not a result: use braces
  db.updateIf("key", (view) => (view[0] = 1));
  // @ts-expect-error a predicate returns a boolean
  db.updateIf("key", inPlace, { predicate: (view) => view[0] });
  // @ts-expect-error a predicate is synchronous
  db.updateIf("key", inPlace, { predicate: async () => true });
  // @ts-expect-error a mistyped option
  db.updateIf("key", inPlace, { predicat: () => true });
  // @ts-expect-error a callback is needed
  db.updateIf("key");
}

export async function grouping(db: Database): Promise<void> {
  same<ReturnType<Database["commit"]>, void>(true);
  same<Database["committed"], Promise<void>>(true);
  same<Database["flushed"], Promise<void>>(true);
  same<ReturnType<Database["close"]>, Promise<void>>(true);
  const number = db.transaction((tx) => {
    same<typeof tx, Database>(true);
    return 1;
  });
  same<typeof number, number>(true);
  const nothing = db.transaction(() => {});
  same<typeof nothing, void>(true);
  const object = db.transaction((tx) => ({ text: tx.getText("key") }));
  same<typeof object, { text: string | undefined }>(true);

  // @ts-expect-error a transaction is synchronous
  db.transaction(async (tx) => tx.getText("key"));
  // @ts-expect-error a transaction returns no promise
  db.transaction(() => Promise.resolve(1));

  await using scoped = await open("shop");
  scoped.flush();
}

export function failing(error: unknown): void {
  if (error instanceof VarveError) {
    same<typeof error.code, string>(true);
    // @ts-expect-error the code of an error is read-only
    error.code = "OTHER";
  }
  if (error instanceof DatabaseBusyError) same<typeof error.pid, number | undefined>(true);
  const damaged = error as CorruptionError;
  same<Exclude<typeof damaged.details, undefined>["position"], number>(true);
  const bad = error as BadArgumentError;
  same<typeof bad.code, "VARVE_BAD_ARGUMENT">(true);
}
