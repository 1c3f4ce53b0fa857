/** Values of `structured()` with their bytes and their readable form, which `cargo test` reads with another library. */

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { memory, open } from "varve";
import { structured } from "varve/structured";
import { describe, expect, test } from "vitest";
import { context, wasmOption } from "../support/context.js";

/** Errors with a stack that is the same everywhere. */
function fixed<E extends Error>(error: E, stack = `${error.name}: ${error.message}`): E {
  return Object.defineProperty(error, "stack", { value: stack });
}

function values(): Record<string, unknown> {
  const shared = { at: new Date(5) };
  const circle: unknown[] = [shared];
  circle.push(circle, new Map([[shared, circle]]));
  const cause = fixed(new Error("inner"));
  return {
    record: { id: 12_345, name: "Yeezy Boost 350 V2", price: 219.99, active: true, none: null },
    integers: [0, 23, 24, 255, 256, 65_535, 65_536, 2 ** 32 - 1, 2 ** 32, 2 ** 53 - 1],
    "negative integers": [-1, -24, -25, -256, -257, -(2 ** 32), 1 - 2 ** 53],
    floats: [0.1, 1.5, 2 ** 53, 1e300, 5e-324, Number.NaN, Infinity, -Infinity, -0],
    bigints: [0n, 5n, -1n, 255n, 256n, -(2n ** 64n), 2n ** 100n],
    texts: ["", "ASCII", "žluťoučký", "😀", "x".repeat(300)],
    "lone surrogates": ["\ud800", { "a\udfffb": "č\ud83d" }],
    missing: [undefined, { field: undefined }],
    dates: [
      new Date(5),
      new Date(1_790_000_000_000),
      new Date(-1),
      new Date(8.64e15 - 1),
      new Date(Number.NaN),
    ],
    collections: [
      new Map<unknown, unknown>([
        ["a", 1],
        [{ b: 2 }, new Set([1, "1"])],
      ]),
      new Set(),
    ],
    bytes: [
      Uint8Array.of(1, 2, 255),
      new Uint8Array(300).buffer,
      new DataView(Uint8Array.of(7).buffer),
    ],
    "typed arrays": [
      Uint8ClampedArray.of(1, 255),
      Uint16Array.of(1, 65_535),
      Uint32Array.of(1, 2 ** 32 - 1),
      BigUint64Array.of(2n ** 64n - 1n),
      Int8Array.of(-1),
      Int16Array.of(-2),
      Int32Array.of(-3),
      BigInt64Array.of(-4n),
      Float32Array.of(1.5),
      Float64Array.of(0.1),
    ],
    "regular expression": /[a-z]+\/"/giu,
    errors: [
      fixed(new TypeError("no", { cause })),
      fixed(new RangeError("")),
      fixed(new Error(undefined, { cause: undefined })),
    ],
    wrapped: [Object(5), Object("text"), Object(false), Object(5n)],
    "arrays with holes and names": [
      Object.assign([], { 1: "b", length: 4 }),
      Object.assign([1], { index: 0, __proto__: null }),
    ],
    "shared and circular": [circle, shared],
    "names like those of the readable form": [
      { $Date: "text" },
      { $Date: 1, more: 2 },
      { $Object: {} },
    ],
    "the name __proto__": JSON.parse('{"__proto__":{"a":1}}'),
  };
}

const codec = structured<unknown>();

const hexOf = (bytes: Uint8Array) =>
  Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

async function readableOf(value: unknown): Promise<string> {
  const db = await open("vectors", { storage: memory(), ...wasmOption() });
  const collection = db.collection("values", codec);
  collection.set("a", value);
  const stream = collection.toJsonLines() as ReadableStream<Uint8Array<ArrayBuffer>>;
  const line = await new Response(stream).text();
  await db.close();
  return line.slice('{"key":"a","value":'.length, -2);
}

describe("the vectors of structured()", () => {
  test("have the bytes and the readable forms that this version writes", async () => {
    const path = join(context().root, "tests/vectors/structured.json");
    const vectors: object[] = [];
    for (const [about, value] of Object.entries(values())) {
      const json = await readableOf(value);
      vectors.push({ about, json, bytes: hexOf(codec.encode(value)) });
    }
    const text = `${JSON.stringify(vectors, undefined, 2)}\n`;
    if (process.env.UPDATE_VECTORS !== undefined) writeFileSync(path, text);
    expect(JSON.parse(readFileSync(path, "utf8"))).toStrictEqual(vectors);
  });
});
