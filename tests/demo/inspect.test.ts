import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { type Database, open } from "varve";
import { auto, f64, str, struct, u16 } from "varve/struct";
import { assert, describe, expect, test } from "vitest";
import { checksum } from "../../demo/inspect/checksum.js";
import { MemoryImage } from "../../demo/inspect/memory-image.js";
import { shownFrames, shownRecords } from "../../demo/inspect/records.js";
import { NotReadableError, readLog, type Scan, scan, totalsOf } from "../../demo/inspect/scan.js";
import { bytesSource } from "../../demo/inspect/source.js";
import { context } from "../support/context.js";

/** What the inspector of the page reads of files by itself, compared with the package. */

const GOLDEN = join(context().root, "tests/vectors/golden");

type Bytes = Uint8Array<ArrayBuffer>;

const Product = struct("Product", { stock: u16, price: f64, name: str });

function scanned(bytes: Bytes): Promise<Scan> {
  return scan(bytesSource("file", bytes));
}

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
async function made(fill: (db: Database) => void | Promise<void>, options = {}): Promise<Bytes> {
  const image = new MemoryImage();
  const db = await open("made", { storage: image, ...options });
  await fill(db);
  await db.close();
  return image.copy();
}

async function expectStats(bytes: Bytes, name: string): Promise<void> {
  const found = await scanned(bytes);
  const db = await open("file", { from: bytes, readOnly: true });
  const { liveBytes, keys } = db.stats();
  await db.close();
  expect({ name, live: found.live, keys: found.keys }).toStrictEqual({
    name,
    live: liveBytes,
    keys,
  });
  const { live, dead, structure, damaged, torn, free } = totalsOf(found);
  const sum = live + dead + structure + damaged + torn + free;
  expect({ name, sum }).toStrictEqual({ name, sum: bytes.length });
}

describe("the inspector's reader", () => {
  test("computes the checksums of the format's vectors", () => {
    const vectors = JSON.parse(readFileSync(join(GOLDEN, "checksums.json"), "utf8")) as {
      length: number;
      seed: string;
      check: string;
    }[];
    const long = vectors.filter(({ length }) => length >= 17);
    assert(long.length > 30);
    for (const { length, seed, check } of long) {
      const bytes = Uint8Array.from({ length }, (_, i) => 131 * i + 7);
      const word = { hi: Number(`0x${seed.slice(0, 8)}`), lo: Number(`0x${seed.slice(8)}`) };
      const { hi, lo } = checksum(new DataView(bytes.buffer), 0, length, word);
      const hex = [hi, lo].map((half) => half.toString(16).padStart(8, "0")).join("");
      expect({ length, seed, hex }).toStrictEqual({ length, seed, hex: check });
    }
  });

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
        const found = await scanned(bytes);
        for (const slot of found.slots) {
          if (slot.kind !== "log") continue;
          const log = await readLog(found, slot);
          for (const frame of shownFrames(found, slot, log)) shownRecords(found, log, frame);
        }
        const { live, dead, structure, damaged, torn, free } = totalsOf(found);
        const sum = live + dead + structure + damaged + torn + free;
        expect({ file, sum }).toStrictEqual({ file, sum: bytes.length });
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
    const intact = await scanned(bytes);
    expect(totalsOf(intact).damaged).toBe(0);
    const slot = intact.slots.find(({ kind }) => kind === "log")!;
    const log = await readLog(intact, slot);
    // The last frame is the witness of closing, which is written after what it says.
    const frames = shownFrames(intact, slot, log).filter(({ header }) => header?.records !== 0);
    assert(frames.length > 0);
    let tried = 0;
    for (const { at, length } of frames) {
      for (let byte = 0; byte < length; byte += 37) {
        const copy = bytes.slice();
        copy[slot.start + at + byte]! ^= 1 << (byte % 8);
        const found = await scanned(copy);
        const damaged = shownFrames(found, found.slots[slot.index]!, await readLog(found, slot))
          .filter(({ state }) => state === "damaged")
          .map((frame) => ({ from: frame.at, to: frame.at + frame.length }));
        expect(damaged).toStrictEqual([{ from: at, to: at + length }]);
        assert(totalsOf(found).damaged > 0);
        tried += 1;
      }
    }
    assert(tried > 80);
  });

  test("pauses between slices, reports how far it is, and ends by its signal", async () => {
    const bytes = await made((db) => {
      for (let i = 0; i < 3; i++) db.set(`large ${i}`, new Uint8Array(400_000).fill(i));
    });
    const source = bytesSource("file", bytes);
    const parts: number[] = [];
    await scan(source, { sliceMs: 0, onProgress: (_, done) => parts.push(done) });
    assert(parts.length > 2);
    expect(parts).toStrictEqual([...parts].sort((a, b) => a - b));
    const ended = new AbortController();
    const onProgress = () => ended.abort(new Error("enough"));
    const scanning = scan(source, { sliceMs: 0, signal: ended.signal, onProgress });
    expect(await scanning.catch((error: unknown) => String(error))).toBe("Error: enough");
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
    await expectStats(bytes, "mixed");
    const found = await scanned(bytes);
    assert(totalsOf(found).dead > 0);
    expect([...found.descriptors.keys()].map((key) => key.slice(0, 6)).sort()).toStrictEqual([
      "collec",
      "index/",
    ]);
  });
});
