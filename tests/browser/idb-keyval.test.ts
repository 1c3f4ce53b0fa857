import * as original from "idb-keyval";
import { memory, open, opfs } from "varve";
import { createStore, entries, keys, set, setMany, values } from "varve/idb-keyval";
import { assert, expect, onTestFinished, test } from "vitest";
import { idbKeyvalTests } from "../adapters/idb-keyval.js";
import { wasmOption } from "../support/context.js";
import { random } from "../support/values.js";

let count = 0;

idbKeyvalTests("OPFS", async () => {
  count += 1;
  const db = await open(`keyval-${count}`, { storage: opfs("keyval"), ...wasmOption() });
  onTestFinished(() => db.close());
  return db;
});

test("keyval: random keys have the order that idb-keyval gives them", async () => {
  const number = random(34);
  const pick = <T>(from: readonly T[]) => from[number(from.length)] as T;
  const text = () =>
    Array.from({ length: number(4) }, () =>
      pick(["\u0000", "a", "\u007f", "é", "\ud800", "\udc00", "\uffff"]),
    ).join("");
  const key = (depth: number): IDBValidKey =>
    [
      () => pick([0, 1, -1, 0.5, 1e300, -1e300, Number.MIN_VALUE, number(1_000)]),
      () => new Date(number(10_000) - 5_000),
      text,
      () => Uint8Array.from({ length: number(4) }, () => number(256)).buffer,
      () => Array.from({ length: number(4) }, () => key(depth + 1)),
    ][number(depth < 4 ? 5 : 4)]?.() as IDBValidKey;
  const pairs = Array.from({ length: 2_000 }, (_, i): [IDBValidKey, number] => [key(0), i]);
  const db = await open("keyval order", { storage: memory(), ...wasmOption() });
  onTestFinished(() => db.close());
  const [ours, theirs] = [createStore(db, "a"), original.createStore("order", "a")];
  await original.clear(theirs);
  await original.setMany(pairs, theirs);
  await setMany(pairs, ours);
  expect(await values(ours)).toStrictEqual(await original.values(theirs));
  expect(await keys(ours)).toStrictEqual(await original.keys(theirs));
});

test("keyval: everything of idb-keyval moves in by one call", async () => {
  const theirs = original.createStore("moving", "a");
  await original.clear(theirs);
  const all: [IDBValidKey, unknown][] = [
    [[1, "a"], { when: new Date(5), bytes: new Uint8Array([1, 2]) }],
    ["list", [undefined, new Map([[1, 2]])]],
  ];
  await original.setMany(all, theirs);
  const db = await open("keyval moving", { storage: memory(), ...wasmOption() });
  onTestFinished(() => db.close());
  const ours = createStore(db, "a");
  await setMany(await original.entries(theirs), ours);
  expect(await entries(ours)).toStrictEqual(await original.entries(theirs));
});

test("keyval: what is of the platform and has no place in a file is refused", async () => {
  const db = await open("keyval blobs", { storage: memory(), ...wasmOption() });
  onTestFinished(() => db.close());
  const ours = createStore(db, "a");
  for (const value of [
    new Blob(["a"]),
    new File(["a"], "a"),
    new ImageData(1, 1),
    new Event("a"),
  ]) {
    const error: { name?: string; code?: string; message?: string } = await set(
      "a",
      value,
      ours,
    ).then(
      () => ({}),
      (reason) => reason,
    );
    expect([error.name, error.code]).toStrictEqual(["DataCloneError", "VARVE_BAD_ARGUMENT"]);
    assert(error.message?.includes(value.constructor.name), error.message);
  }
});
