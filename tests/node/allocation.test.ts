import { readFileSync } from "node:fs";
import { join } from "node:path";
import { type Database, file, open, VarveError } from "varve";
import { assert, describe, expect, onTestFinished, test } from "vitest";
import { context } from "../support/context.js";
import { turn } from "../support/values.js";
import { folder } from "./support/processes.js";

/** A number in the encoding of wasm (LEB128), seven bits per byte. */
function leb(number: number): number[] {
  return number < 128 ? [number] : [(number & 127) | 128, ...leb(number >>> 7)];
}

function readLeb(bytes: Uint8Array, at: number): { value: number; next: number } {
  const byte = bytes[at] ?? 0;
  if (byte < 128) return { value: byte, next: at + 1 };
  const { value, next } = readLeb(bytes, at + 1);
  return { value: (byte & 127) + value * 128, next };
}

const MEMORY_SECTION = 5;

/** The same wasm with a memory limited to this many pages. */
function capped(wasm: Uint8Array, pages: number): Uint8Array<ArrayBuffer> {
  let at = 8;
  while (at < wasm.length) {
    const { value: length, next: body } = readLeb(wasm, at + 1);
    if (wasm[at] === MEMORY_SECTION) {
      expect(wasm[body], "it has one memory").toBe(1);
      const initial = readLeb(wasm, body + 2).value;
      const limits = [1, 1, ...leb(initial), ...leb(initial + pages)];
      const section = [MEMORY_SECTION, ...leb(limits.length), ...limits];
      return Uint8Array.from([
        ...wasm.subarray(0, at),
        ...section,
        ...wasm.subarray(body + length),
      ]);
    }
    at = body + length;
  }
  throw new Error("it has no memory");
}

function textOf(index: number): string {
  return `${index} `.repeat(1 + ((index * 3701) % 12_000));
}

/** Writes until an error ends it. Returns how many keys were committed, and the error. */
async function writeUntilItEnds(db: Database): Promise<{ committed: number; error: unknown }> {
  let committed = 0;
  try {
    for (let index = 0; index < 100_000; index += 1) {
      db.set(`key ${index}`, textOf(index));
      // Ranges and cold reads allocate other kinds of memory.
      if (index % 10 === 9) Array.from(db.keys({ limit: 5 }));
      if (index % 3 === 0) db.get(`key ${Math.floor(index / 2)}`);
      db.commit();
      committed = index + 1;
      if (index % 50 === 49) await turn();
    }
  } catch (error) {
    return { committed, error };
  }
  throw new Error("memory never ended");
}

describe("failing allocations", () => {
  test("a failing allocation anywhere ends the instance, and the file opens intact", async () => {
    const wasm = readFileSync(join(context().root, "dist/varve.wasm"));
    const ends = { atOpen: 0, later: 0 };
    for (const pages of [1, 2, 4, 8, 16, 17, 18, 20, 24, 28, 33, 40, 47, 56]) {
      const storage = file(folder());
      const options = { storage, memory: 1 << 20, onError: () => undefined };
      const started = await open("shop", { ...options, wasm: capped(wasm, pages) }).catch(
        (error: unknown) => error,
      );
      if (started instanceof Error) {
        ends.atOpen += 1;
        assert(started instanceof VarveError, String(started));
        continue;
      }
      const db = started as Database;
      void db.committed.catch(() => undefined);
      const { committed, error } = await writeUntilItEnds(db);
      ends.later += 1;
      assert(error instanceof VarveError, `${pages} pages: ${String(error)}`);
      await db.close().catch(() => undefined);
      const again = await open("shop", { storage });
      onTestFinished(() => again.close());
      // All committed writes exist, and only complete commits of the failed turn.
      assert(again.count() === committed || again.count() === committed + 1, `${pages} pages`);
      for (let index = 0; index < again.count(); index += 1) {
        expect(again.getText(`key ${index}`)).toBe(textOf(index));
      }
    }
    assert(ends.later > 5, JSON.stringify(ends));
  });
});
