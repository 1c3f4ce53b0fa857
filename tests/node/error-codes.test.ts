import { readFileSync } from "node:fs";
import { join } from "node:path";
import { assert, expect, test } from "vitest";
import { context } from "../support/context.js";

const source = (path: string) => readFileSync(join(context().root, path), "utf8");

/** Codes that never leave the wasm, or whose answer the package does not read. */
const INTERNAL = ["Reentrancy", "Aborted", "Misuse"];

test("the package knows each error code of the engine by the same name", () => {
  const rust = new Map<string, number>();
  for (const [, name, code] of source("crate/src/error.rs").matchAll(
    /Error::(\w+)(?:\(_\)| \{ \.\. \})? => (\d+)/g,
  )) {
    if (!INTERNAL.includes(name as string)) rust.set(name as string, Number(code));
  }
  const [, list = ""] = /const Code = \{(.*?)\}/s.exec(source("js/engine/error-codes.ts")) ?? [];
  const typescript = new Map<string, number>();
  for (const [, name, code] of list.matchAll(/(\w+): (\d+)/g)) {
    if (name !== "Ok") typescript.set(name as string, Number(code));
  }
  assert(rust.size > 15, `${rust.size} codes`);
  expect(Object.fromEntries(typescript)).toStrictEqual(Object.fromEntries(rust));
});
