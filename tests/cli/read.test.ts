/** `varve stat`, `get` and `list`. */

import { struct, u32 } from "varve/struct";
import { assert, describe, expect, test } from "vitest";
import { database, golden, printed, varve } from "./support.js";

const text = new TextEncoder();
const base64 = (bytes: Uint8Array) => Buffer.from(bytes).toString("base64");

/** Keys that would affect a terminal, or are no text. */
const HOSTILE = [
  "\x1b[31mred\x1b[0m",
  "two\nlines",
  "\ttab\r",
  "back\\slash \\n",
  "\x9b31m",
  "\u202egnp.exe",
  "\u2066isolated\u2069",
  "\u200b\ufeff",
  "\u2028",
  "\x7f\x00",
  "\u{e0041}\ue000",
  "größe 品 👩‍👧",
  " spaces ",
].map((key) => text.encode(key));
const NOT_TEXT = [
  [0xff],
  [0x61, 0xc3],
  [0xc3, 0xa9, 0xed, 0xa0, 0x80],
  [0xf4, 0x90, 0x80, 0x80],
  [0xc0, 0x80],
].map((bytes) => Uint8Array.from(bytes));

const hostile = () =>
  database((db) => {
    for (const key of [...HOSTILE, ...NOT_TEXT]) db.set(key, key);
  });

describe("varve stat", () => {
  test("sizes and counts are printed, in words and as JSON", async () => {
    const path = await database((db) => {
      for (let i = 0; i < 1_234; i += 1) db.set(`key ${i}`, "v".repeat(100));
    });
    const shown = await printed("stat", path);
    assert(/^keys {8}1,234$/m.test(shown), shown);
    assert(/^live {8}1\d\d KB, \d+ % of the file$/m.test(shown), shown);
    assert(/^file {8}1\.1 MB$/m.test(shown), shown);
    assert(/^closed {6}cleanly$/m.test(shown), shown);
    const document = JSON.parse(await printed("stat", path, "--json"));
    expect([document.file, document.keys, document.recovery.wasClean]).toStrictEqual([
      path,
      1_234,
      true,
    ]);
    assert(document.liveBytes > 123_400 && document.fileBytes > document.liveBytes);
  });

  test("records in collections and index entries are counted separately", async () => {
    const path = await database((db) => {
      for (let i = 0; i < 3; i += 1) db.set(`key ${i}`, "value");
      const Row = struct("Row", { n: u32 });
      const rows = db.collection("rows", Row, { indexes: { byN: "n" } });
      for (let n = 0; n < 7; n += 1) rows.set(`row ${n}`, { n });
    });
    const shown = await printed("stat", path);
    assert(/^keys {9}3$/m.test(shown), shown);
    assert(/^collections {2}7 records, and 7 entries of their indexes; varve/m.test(shown), shown);
    const { keys, records, indexEntries } = JSON.parse(await printed("stat", path, "--json"));
    expect([keys, records, indexEntries]).toStrictEqual([3, 10, 7]);
    const one = await printed("stat", path, "--collection", "rows");
    assert(/^records {2}7$/m.test(one) && /^index {4}byN: 7 entries$/m.test(one), one);
    const document = JSON.parse(await printed("stat", path, "--collection", "rows", "--json"));
    expect(document.indexes).toStrictEqual({ byN: 7 });
  });

  test("an unflushed end is reported and left in the file", async () => {
    const path = golden("torn-frame");
    const shown = await printed("stat", path);
    assert(shown.includes("200 bytes at the end were never flushed"), shown);
    expect(await printed("stat", path).then(closedLine)).toBe(closedLine(shown));
    const one = await printed("stat", golden("lost-frame"));
    assert(one.includes("with 1 whole frame at the end"), one);
    expect(JSON.parse(await printed("stat", path, "--json")).recovery.tornBytes).toBe(200);
  });

  test("the use of a checkpoint is reported", async () => {
    assert(
      (await printed("stat", golden("checkpoint"))).includes("from a checkpoint and 3 frames"),
    );
    assert((await printed("stat", golden("one-record"))).includes("from all 2 frames"));
  });
});

function closedLine(shown: string): string | undefined {
  return shown.split("\n").find((line) => line.startsWith("closed"));
}

describe("varve get", () => {
  test("the bytes of the value are printed and nothing else", async () => {
    const values = {
      text: text.encode("no line end"),
      empty: new Uint8Array(0),
      every: Uint8Array.from({ length: 256 }, (_, i) => i),
      large: new Uint8Array(3_000_000).fill(0xe9),
    };
    const path = await database((db) => {
      for (const [key, value] of Object.entries(values)) db.set(key, value);
    });
    for (const [key, value] of Object.entries(values)) {
      const { code, stdout, stderr } = await varve(["get", path, key]);
      expect([code, stderr], key).toStrictEqual([0, ""]);
      expect(new Uint8Array(stdout), key).toStrictEqual(value);
    }
  });

  test("a missing key exits with code 1", async () => {
    const path = await database((db) => db.set("key", "value"));
    const { code, stdout, stderr } = await varve(["get", path, "other"]);
    expect([code, stdout.length]).toStrictEqual([1, 0]);
    assert(stderr.startsWith("varve: There is no key other in "), stderr);
    const json = await varve(["get", path, "other", "--json"]);
    expect(json.code).toBe(1);
    expect(JSON.parse(json.stdout.toString())).toStrictEqual({ found: false, key: "other" });
  });

  test("--json prints size and version, and non-text bytes in base64", async () => {
    const path = await database((db) => {
      db.set("first", "1");
      db.set("key", "välue");
      db.set("bytes", Uint8Array.from([0xff, 0]));
    });
    expect(JSON.parse(await printed("get", path, "key", "--json"))).toStrictEqual({
      found: true,
      key: "key",
      bytes: 6,
      version: 2,
      value: "välue",
    });
    expect(JSON.parse(await printed("get", path, "bytes", "--json"))).toStrictEqual({
      found: true,
      key: "bytes",
      bytes: 2,
      version: 3,
      valueBase64: "/wA=",
    });
  });

  test("keys are found in base64, text or not", async () => {
    const path = await hostile();
    for (const key of [...HOSTILE.slice(0, 2), ...NOT_TEXT.slice(0, 3)]) {
      const { code, stdout } = await varve(["get", path, "--base64", base64(key)]);
      expect([code, new Uint8Array(stdout)]).toStrictEqual([0, key]);
    }
  });

  test("intact records are read if only a record before the checkpoint is damaged", async () => {
    expect(await printed("get", golden("checkpoint-record-damaged"), "a")).toBe("third");
  });
});

describe("varve list", () => {
  const numbered = () =>
    database((db) => {
      for (const i of [3, 1, 2, 10, 20]) db.set(`key/${i}`, `value ${i}`);
      db.set("other", "");
    });

  test("the keys of the requested range are printed in order", async () => {
    const path = await numbered();
    const list = async (...args: string[]) =>
      (await printed("list", path, ...args)).split("\n").slice(0, -1);
    const all = ["key/1", "key/10", "key/2", "key/20", "key/3", "other"];
    expect(await list()).toStrictEqual(all);
    expect(await list("--reverse")).toStrictEqual([...all].reverse());
    expect(await list("--prefix", "key/2")).toStrictEqual(["key/2", "key/20"]);
    expect(await list("--start", "key/2", "--end", "key/3")).toStrictEqual(["key/2", "key/20"]);
    expect(await list("--limit", "2", "--start=key/2")).toStrictEqual(["key/2", "key/20"]);
    expect(await list("--limit", "1", "--reverse")).toStrictEqual(["other"]);
    expect(await list("--prefix", "a2V5LzI=", "--base64")).toStrictEqual(["key/2", "key/20"]);
    expect(await list("--limit", "0")).toStrictEqual([]);
    expect(await list("--prefix", "nothing")).toStrictEqual([]);
    expect(await list("--prefix", "", "--limit", "1")).toStrictEqual(["key/1"]);
  });

  test("--values prints values after a tab, long ones in part", async () => {
    const path = await database((db) => {
      db.set("a", "one\ttwo");
      db.set("b", "");
      db.set("c", `${"x".repeat(199)}é and more`);
      db.set("d", "y".repeat(200));
      db.set("e", new Uint8Array(2_000_000).fill(0x1b));
    });
    const lines = (await printed("list", path, "--values")).split("\n");
    expect(lines).toStrictEqual([
      "a\tone\\ttwo",
      "b\t",
      `c\t${"x".repeat(199)}… (210 bytes)`,
      `d\t${"y".repeat(200)}`,
      `e\t${"\\x1b".repeat(200)}… (2.0 MB)`,
      "",
    ]);
  });

  test("terminal control characters are escaped, so that each key is one line", async () => {
    const path = await hostile();
    const shown = await printed("list", path, "--values");
    assert(!/[^\P{Cc}\n\t]/u.test(shown) && !/[\p{Cf}\p{Zl}\p{Zp}\p{Co}]/u.test(shown), "harmless");
    const lines = shown.split("\n").slice(0, -1);
    expect(lines.length).toBe(HOSTILE.length + NOT_TEXT.length);
    const keys = lines.map((line) => line.split("\t")[0] ?? "");
    for (const line of lines)
      expect(line.split("\t")[0], "values likewise").toBe(line.split("\t")[1]);
    expect(new Set(keys).size, "different keys look different").toBe(keys.length);
    for (const key of [
      "\\x1b[31mred\\x1b[0m",
      "two\\nlines",
      "back\\\\slash \\\\n",
      "\\u{9b}31m",
      "\\u{202e}gnp.exe",
      "größe 品 👩\\u{200d}👧",
      "\\xff",
      "a\\xc3",
      "é\\xed\\xa0\\x80",
    ]) {
      assert(keys.includes(key), `${key} in ${JSON.stringify(keys)}`);
    }
  });

  test("--json prints a document for each key, from which every byte can be recovered", async () => {
    const path = await hostile();
    const output = await printed("list", path, "--json", "--values");
    const found = output
      .split("\n")
      .slice(0, -1)
      .map((line) => {
        const { key, keyBase64, value, valueBase64, bytes } = JSON.parse(line);
        const of = (text?: string, coded?: string) =>
          text === undefined ? String(coded) : base64(new TextEncoder().encode(text));
        expect(of(key, keyBase64)).toBe(of(value, valueBase64));
        expect(bytes).toBe(Buffer.from(of(key, keyBase64), "base64").length);
        return of(key, keyBase64);
      });
    expect(found.sort()).toStrictEqual([...HOSTILE, ...NOT_TEXT].map(base64).sort());
    const keys = (await printed("list", path, "--json")).split("\n").slice(0, -1);
    expect(Object.keys(JSON.parse(keys[0] ?? ""))).toStrictEqual(["key"]);
  });

  test("a database larger than the memory is listed", async () => {
    const path = await database((db) => {
      for (let i = 0; i < 90; i += 1) db.set(`key ${i}`, new Uint8Array(1_000_000).fill(i));
    });
    let bytes = 0;
    const { code, stdout } = await varve(["list", path, "--values", "--json"]);
    for (const line of stdout.toString().split("\n").slice(0, -1)) {
      const document = JSON.parse(line);
      bytes += document.bytes;
    }
    expect([code, bytes]).toStrictEqual([0, 90_000_000]);
  });
});
