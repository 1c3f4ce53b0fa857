/** Values and texts that are nested more deeply than any stack. */

import { json, option, str, struct, u32, vec } from "varve/struct";
import { assert, expect, test } from "vitest";
import { throws } from "../support/errors.js";
import { everywhere, opened } from "./storages.js";

const DEPTH = 100_000;
const BAD = { name: "TypeError", code: "VARVE_BAD_ARGUMENT" } as const;

function nested(): unknown {
  let value: unknown = [];
  for (let i = 1; i < DEPTH; i++) value = i % 2 === 0 ? [value] : { value };
  return value;
}

/** Platforms differ in what they can parse and write. A limit has to be reported as an error of the package. */
async function goesOrRefuses(code: string, call: () => unknown): Promise<void> {
  try {
    await call();
  } catch (error) {
    expect((error as { code?: string }).code, String(error)).toBe(code);
  }
}

everywhere("values nested a hundred thousand deep", ({ storage }) => {
  test("every call stores or refuses a deep value, and the database goes on", async () => {
    const db = await opened(storage);
    const notes = db.collection("notes", json<unknown>(), { key: u32 });
    notes.set(1, "before");
    const deep = nested();
    const calls = [
      () => notes.set(1, deep),
      () => notes.set(2, { field: deep }),
      () => notes.updateIf(1, () => deep as string),
      () => notes.updateIf(2, () => {}, { valueIfMissing: deep as string }),
      () => db.transaction(() => notes.set(1, deep)),
    ];
    for (const call of calls) await goesOrRefuses(BAD.code, call);
    notes.set(1, "after");
    expect(notes.get(1)).toBe("after");
  });

  test("a deep value is refused as a part of a struct and as a key", async () => {
    const db = await opened(storage);
    const Person = struct("Person", { name: str, ages: vec(u32), more: option(str) });
    const people = db.collection("people", Person, { key: [str, u32] });
    const deep = nested() as never;
    throws(() => people.set(["a", 1], { name: deep, ages: [], more: null }), BAD);
    throws(() => people.set(["a", 1], { name: "", ages: deep, more: null }), BAD);
    throws(() => people.set(["a", 1], { name: "", ages: [deep], more: deep }), BAD);
    throws(() => people.get([deep, 1]), BAD);
    throws(() => people.get(deep), BAD);
    throws(() => db.set("a", deep), BAD);
    expect(people.count()).toBe(0);
  });

  test("deep JSON in lines is stored or refused, and later lines are read", async () => {
    const db = await opened(storage);
    const notes = db.collection("notes", json<unknown>(), { key: u32 });
    const text = `${"[".repeat(DEPTH)}${"]".repeat(DEPTH)}`;
    await goesOrRefuses("VARVE_MALFORMED_VALUE", () =>
      notes.fromJsonLines(`{"key":1,"value":${text}}\n`),
    );
    await goesOrRefuses("VARVE_MALFORMED_VALUE", () => notes.get(1));
    await goesOrRefuses("VARVE_MALFORMED_VALUE", () => [...notes.values()]);
    const refused = await notes
      .fromJsonLines(`{"key":${text},"value":1}\n`)
      .catch((error) => error);
    assert(["VARVE_BAD_ARGUMENT", "VARVE_MALFORMED_VALUE"].includes(refused.code), String(refused));
    expect(await notes.fromJsonLines('{"key":2,"value":"after"}\n')).toBe(1);
    expect(notes.get(2)).toBe("after");
  });
});
