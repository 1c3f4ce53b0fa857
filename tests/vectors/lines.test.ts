/**
 * JSON lines compared with those of Rust: `lines.json` has the lines of collections with all kinds of keys, which this test
 * makes with `UPDATE_VECTORS=1 npx vitest run vectors/lines`. crate/tests/native/json_lines.rs reads them, and writes the
 * same.
 */

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type Database, memory, open } from "varve";
import {
  blob,
  bool,
  desc,
  enum8,
  enum16,
  f32,
  f64,
  i8,
  i16,
  i32,
  i64,
  option,
  str,
  struct,
  timestamp,
  u8,
  u16,
  u32,
  u53,
  u64,
} from "varve/struct";
import { expect, test } from "vitest";
import { context, wasmOption } from "../support/context.js";

const Row = struct("Row", { id: u64, price: f64, rank: option(u16), name: str, raw: blob });

async function textOf(stream: ReadableStream<Uint8Array<ArrayBuffer>>): Promise<string> {
  return new Response(stream).text();
}

/** The lines of each kind of key, by its JSON. */
async function linesOf(db: Database): Promise<{ key: unknown; lines: string[] }[]> {
  const all: { key: unknown; lines: string[] }[] = [];
  let made = 0;
  const row = (name: string) => {
    made += 1;
    const rank = made % 2 === 0 ? undefined : made;
    return { id: BigInt(made) << 50n, price: made / 7, rank, name, raw: new Uint8Array(made % 5) };
  };
  const add = async (key: unknown, lines: ReadableStream<Uint8Array<ArrayBuffer>>) => {
    all.push({ key, lines: (await textOf(lines)).split("\n").slice(0, -1) });
  };
  const named = db.collection("named", Row);
  for (const key of ["a", 'quotes " and \\', "ž😀\u2028\u007f", "\u0001\n\t\u001f"]) {
    named.set(key, row(key));
  }
  await add("string", named.toJsonLines());

  const binary = db.collection("binary", Row, { key: blob });
  for (let length = 1; length < 6; length++) {
    binary.set(new Uint8Array(length).fill(0xfb), row(`${length} bytes`));
  }
  await add("bytes", binary.toJsonLines());

  const numbered = db.collection("numbered", Row, { key: f64 });
  const numbers = [0, 0.1, -2.5e-9, 1e21, 123_456_789_012, -1, 2 ** 53, Infinity, -Infinity];
  for (const key of numbers) numbered.set(key, row(`number ${key}`));
  await add([{ kind: "f64" }], numbered.toJsonLines());

  const whole = db.collection("whole", Row, { key: [u8, i8, u16, i16, u32, i32, u53] });
  whole.set([0, -128, 0, -32_768, 0, -(2 ** 31), 0], row("least"));
  whole.set([255, 127, 65_535, 32_767, 2 ** 32 - 1, 2 ** 31 - 1, 2 ** 53 - 1], row("most"));
  const kinds = ["u8", "i8", "u16", "i16", "u32", "i32", "u53"];
  await add(
    kinds.map((kind) => ({ kind })),
    whole.toJsonLines(),
  );

  const wide = db.collection("wide", Row, { key: [u64, desc(i64), timestamp, bool, f32] });
  wide.set([0n, -(2n ** 63n), new Date(0), false, 0.1], row("least"));
  wide.set([2n ** 64n - 1n, 2n ** 63n - 1n, new Date(8.64e15), true, -1.5], row("most"));
  wide.set([7n, -7n, new Date(-1), true, Infinity], row("between"));
  await add(
    [
      { kind: "u64" },
      { desc: { kind: "i64" } },
      { kind: "timestamp" },
      { kind: "bool" },
      { kind: "f32" },
    ],
    wide.toJsonLines(),
  );

  const parts = db.collection("parts", Row, {
    key: [enum8("Small", "Large"), enum16("One", "Two"), str, blob, option(u8), desc(str)],
  });
  parts.set(["Large", "One", "a\0b", new Uint8Array([0, 255, 0]), undefined, "ž"], row("none"));
  parts.set(["Small", "Two", "", new Uint8Array(0), 7, ""], row("some"));
  await add(
    [
      { kind: "enum8", variants: ["Small", "Large"] },
      { kind: "enum16", variants: ["One", "Two"] },
      { kind: "str" },
      { kind: "blob" },
      { kind: "option", of: { kind: "u8" } },
      { desc: { kind: "str" } },
    ],
    parts.toJsonLines(),
  );
  return all;
}

test("lines of all kinds of keys are those that Rust reads and writes", async () => {
  const path = join(context().root, "tests/vectors/lines.json");
  const db = await open("lines", { storage: memory(), ...wasmOption() });
  const made = await linesOf(db);
  await db.close();
  if (process.env.UPDATE_VECTORS !== undefined) {
    writeFileSync(path, `${JSON.stringify(made, null, 2)}\n`);
  }
  expect(made).toStrictEqual(JSON.parse(readFileSync(path, "utf8")));
});
