import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { type Database, file, open } from "varve";
import { type Analysis, analyze, NotReadableError } from "varve/inspect";
import { auto, f64, str, struct, u16 } from "varve/struct";
import { assert, describe, expect, test } from "vitest";
import { context } from "../support/context.js";

/** What the inspector of the page reads of files by itself, compared with the package. */

const GOLDEN = join(context().root, "tests/vectors/golden");

type Bytes = Uint8Array<ArrayBuffer>;

const Product = struct("Product", { stock: u16, price: f64, name: str });

/**
 * Golden files of which the package says something else: of some that were damaged before a checkpoint it counts what the
 * checkpoint says, of one it drops a commit whose large value was torn, in one a record has expired, and two were never
 * completely created.
 */
const ELSEWISE = new Set([
  ...["checkpoint-record-damaged", "malformed-before-checkpoint", "pieces-before-checkpoint"],
  ...["torn-extent", "lost-frame", "expiry-entries", "half-created", "unfinished-creation"],
]);

/** Makes a database by `fill`, closes it, and returns its file. */
async function made(fill: (db: Database) => void | Promise<void>): Promise<Bytes> {
  const folder = mkdtempSync(join(context().directory ?? ".", "inspected-"));
  const db = await open("made", { storage: file(folder) });
  await fill(db);
  await db.close();
  return new Uint8Array(readFileSync(join(folder, "made.varve")));
}

function sumOf({ totals }: Analysis): number {
  return Object.values(totals).reduce((sum, bytes) => sum + bytes, 0);
}

async function expectStats(bytes: Bytes, name: string): Promise<Analysis> {
  const found = await analyze(bytes);
  const db = await open("file", { from: bytes, readOnly: true });
  const { liveBytes, keys } = db.stats();
  await db.close();
  const { live } = found.totals;
  expect({ name, live, keys: found.keys }).toStrictEqual({ name, live: liveBytes, keys });
  expect({ name, sum: sumOf(found) }).toStrictEqual({ name, sum: bytes.length });
  return found;
}

describe("what analyze finds", () => {
  test("finds the live bytes and keys that db.stats() says, in every golden file that opens", async () => {
    const names = readdirSync(GOLDEN)
      .filter((name) => name.endsWith(".varve"))
      .map((name) => name.slice(0, -".varve".length));
    let opened = 0;
    for (const name of names) {
      const described = JSON.parse(readFileSync(join(GOLDEN, `${name}.json`), "utf8"));
      if (described.error !== undefined || ELSEWISE.has(name)) continue;
      opened += 1;
      await expectStats(new Uint8Array(readFileSync(join(GOLDEN, `${name}.varve`))), name);
    }
    assert(opened > 40);
  });

  test("shows what there is of every golden file, or says why it shows nothing", async () => {
    const refused: Record<string, string> = {};
    for (const file of readdirSync(GOLDEN)) {
      if (!file.endsWith(".varve")) continue;
      const bytes = new Uint8Array(readFileSync(join(GOLDEN, file)));
      try {
        const found = await analyze(bytes);
        for (const { index, kind, frames } of found.segments) {
          const intact = (await found.frames(index)).filter(({ state }) => state === "intact");
          // A segment that a recovery dropped has frames, which do not count.
          if (kind === "log" && frames > 0) expect(intact.length).toBe(frames);
        }
        expect({ file, sum: sumOf(found) }).toStrictEqual({ file, sum: bytes.length });
      } catch (error) {
        if (!(error instanceof NotReadableError)) throw error;
        refused[file.slice(0, -".varve".length)] = error.message;
      }
    }
    const newer = Object.entries(refused).filter(([, message]) =>
      message.includes("newer version"),
    );
    expect(newer.map(([name]) => name).sort()).toStrictEqual([
      "incompatible-bit",
      "incompatible-bit-beside-pieces",
      "newer-major",
      "newer-major-in-one-slot",
      "unknown-mode",
    ]);
    const others = Object.keys(refused).filter((name) => !refused[name]?.includes("newer version"));
    expect(others.sort()).toStrictEqual(["foreign", "foreign-and-small", "unfinished-creation"]);
  });

  test("finds one flipped bit, wherever it is in a frame", async () => {
    const bytes = await made((db) => {
      const products = db.collection("products", Product, { key: auto() });
      for (let i = 0; i < 40; i++) products.push({ stock: i, price: i, name: `product ${i}` });
      db.set("last", "x".repeat(600));
    });
    const intact = await analyze(bytes);
    expect(intact.totals.damaged).toBe(0);
    const segment = intact.segments.findIndex(({ kind }) => kind === "log");
    // The last frame is the witness of closing, which is written after what it says.
    const frames = (await intact.frames(segment)).filter(({ records }) => records > 0);
    assert(frames.length > 0);
    let tried = 0;
    for (const { position, length } of frames) {
      for (let byte = 0; byte < length; byte += 37) {
        const copy = bytes.slice();
        copy[position + byte]! ^= 1 << (byte % 8);
        const found = await analyze(copy);
        const damaged = (await found.frames(segment))
          .filter(({ state }) => state === "damaged")
          .map((frame) => ({ position: frame.position, length: frame.length }));
        expect(damaged).toStrictEqual([{ position, length }]);
        assert(found.totals.damaged > 0);
        tried += 1;
      }
    }
    assert(tried > 80);
  });

  test("pauses between slices, reports how far it is, and ends by its signal", async () => {
    const bytes = await made((db) => {
      for (let i = 0; i < 3; i++) db.set(`large ${i}`, new Uint8Array(400_000).fill(i));
    });
    const parts: number[] = [];
    await analyze(bytes, { sliceMs: 0, onProgress: (done) => parts.push(done) });
    assert(parts.length > 2);
    expect(parts).toStrictEqual([...parts].sort((a, b) => a - b));
    const ended = new AbortController();
    const onProgress = () => ended.abort(new Error("enough"));
    const analyzing = analyze(bytes, { sliceMs: 0, signal: ended.signal, onProgress });
    expect(await analyzing.catch((error: unknown) => String(error))).toBe("Error: enough");
  });

  test("agrees with db.stats() about overwritten, deleted, cleared, compacted, large and indexed records", async () => {
    const bytes = await made(async (db) => {
      const products = db.collection("products", Product, {
        key: auto(),
        indexes: { byPrice: "price" },
      });
      for (let i = 0; i < 4_000; i++) {
        const product = { stock: i % 500, price: i / 7, name: `product ${i}`.repeat(5) };
        products.push(product);
      }
      await db.flushed;
      for (let round = 0; round < 5; round++) {
        for (let i = 1; i <= 4_000; i += 3) {
          products.updateIf(i, (product) => {
            product.stock += 1;
          });
          if (i % 5 === 0) products.delete(i);
        }
        await db.committed;
      }
      db.set("photo", new Uint8Array(900_000).fill(7));
      db.set("odd", new Uint8Array(700_000).fill(8));
      for (let i = 0; i < 500; i++) db.set(`old/${i}`, "x".repeat(i));
      await db.committed;
      db.clear({ prefix: "old/" });
      await db.compact();
      for (let i = 0; i < 300; i++) db.set(`new/${i}`, "y".repeat(i), { expireIn: 3_600_000 });
      db.set("photo", new Uint8Array(950_000).fill(9));
    });
    const found = await expectStats(bytes, "mixed");
    assert(found.totals.dead > 0);
    expect([...new Set(found.segments.map(({ kind }) => kind))].sort()).toStrictEqual([
      ...["checkpoint", "extent", "free", "log", "run"],
    ]);
    let live = 0;
    for (const { index } of found.segments) {
      for (const frame of await found.frames(index)) live += frame.live;
    }
    // The photo is the only value outside of the log.
    expect(live + 950_000).toBe(found.totals.live);
  });

  test("is what the program of docs/inspect.md prints", () => {
    const page = readFileSync(join(context().root, "docs/inspect.md"), "utf8");
    const program = /```js\n(.*?)```/s.exec(page)?.[1] ?? "";
    const printed = execFileSync(process.execPath, ["--input-type=module", "-e", program], {
      cwd: context().root,
      encoding: "utf8",
    });
    expect(printed).toBe("true 0 0\nintact true\n");
  });
});
