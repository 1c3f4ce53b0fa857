/** `varve verify` and `salvage`. */

import { existsSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { file, open } from "varve";
import { assert, describe, expect, onTestFinished, test } from "vitest";
import { database, golden, printed, varve } from "./support.js";

/** A database of 3,000 keys and a large value. */
function intact(): Promise<string> {
  return database((db) => {
    for (let i = 0; i < 3_000; i += 1) db.set(`key ${i}`, `value ${i} ${"v".repeat(500)}`);
    db.set("large", new Uint8Array(1_000_000).fill(0x41));
  });
}

/** The same database with a bit flipped at each of these offsets. */
async function damaged(...offsetsOf: ((bytes: Buffer) => number)[]): Promise<string> {
  const path = await intact();
  const bytes = readFileSync(path);
  for (const offsetOf of offsetsOf) bytes[offsetOf(bytes)]! ^= 1;
  writeFileSync(path, bytes);
  return path;
}

const inLargeValue = () => damaged((bytes) => bytes.indexOf("A".repeat(1000)) + 500_000);
const inRecord = () => damaged((bytes) => bytes.indexOf("value 1234 ") + 300);
const withoutSuperblocks = () =>
  damaged(
    () => 20,
    () => 4_116,
  );

const beside = (path: string, name = "new.varve") => join(dirname(path), name);
const keysOf = async (path: string) => (await printed("list", path)).split("\n").slice(0, -1);

describe("varve verify", () => {
  test("an intact file is reported as such, in a line or as JSON", async () => {
    const path = await intact();
    const output = await printed("verify", path);
    assert(/^ok: 3,001 records in \d+ frames, \d\.\d MB, verified in .*s\n$/.test(output), output);
    const {
      file,
      opens,
      ok: isWell,
      problems,
    } = JSON.parse(await printed("verify", path, "--json"));
    expect([file, opens, isWell, problems]).toStrictEqual([path, true, true, []]);
  });

  test("damage exits with code 1, and its place and meaning are printed", async () => {
    for (const [path, meaning, what] of [
      [await inLargeValue(), "large value: it cannot be read", "value"],
      [await damaged(() => 100), "superblock: the other one is used", "superblock"],
      [await damaged(() => 8_200), "segment header: its copy is used", "header"],
    ] as const) {
      const { code, stdout, stderr } = await varve(["verify", path]);
      expect([code, stderr], what).toStrictEqual([1, ""]);
      assert(stdout.toString().startsWith("damaged in 1 place; intact: "), stdout.toString());
      assert(stdout.toString().includes(`  ${meaning}\n`), stdout.toString());
      const json = await varve(["verify", path, "--json"]);
      expect(json.code).toBe(1);
      const document = JSON.parse(json.stdout.toString());
      expect([document.opens, document.ok, document.problems.length]).toStrictEqual([
        true,
        false,
        1,
      ]);
      expect(document.problems[0].what).toBe(what);
    }
  });

  test("a file too damaged to open exits with code 1, and prints what is intact", async () => {
    const { code, stdout, stderr } = await varve(["verify", golden("damaged-frame")]);
    expect([code, stderr]).toStrictEqual([1, ""]);
    assert(
      /too damaged to open: at byte 8,\d+, .*; 2 frames \(\d+ bytes\) beyond it are intact\n/.test(
        stdout.toString(),
      ),
    );
    const json = await varve(["verify", golden("damaged-frame"), "--json"]);
    expect(json.code).toBe(1);
    const document = JSON.parse(json.stdout.toString());
    expect([document.opens, document.ok, document.details.intactFrames]).toStrictEqual([
      false,
      false,
      2,
    ]);
    const lost = await varve(["verify", await withoutSuperblocks()]);
    expect(lost.code).toBe(1);
    assert(
      lost.stdout.toString().includes("neither of the two superblocks"),
      lost.stdout.toString(),
    );
  });

  test("a checkpoint that could not be used is found", async () => {
    for (const name of ["checkpoint-block-damaged", "checkpoint-head-damaged", "checkpoint-lost"]) {
      const { code, stdout } = await varve(["verify", golden(name)]);
      expect(code, name).toBe(1);
      assert(
        stdout.toString().includes("  checkpoint: the log has the same data"),
        stdout.toString(),
      );
    }
  });

  test("the file and its folder stay as they are", async () => {
    const path = await inLargeValue();
    const before = readFileSync(path);
    await varve(["verify", path]);
    expect(readdirSync(dirname(path))).toStrictEqual(["shop.varve"]);
    assert(before.equals(readFileSync(path)));
  });
});

describe("varve get", () => {
  test("a damaged record exits with code 3, and the others can be read", async () => {
    const path = await inRecord();
    const { code, stdout, stderr } = await varve(["get", path, "key 1234"]);
    expect([code, stdout.length]).toStrictEqual([3, 0]);
    assert(stderr.includes("varve salvage"), stderr);
    expect((await printed("get", path, "key 0")).slice(0, 7)).toBe("value 0");
  });
});

describe("varve salvage", () => {
  test("an intact file is copied completely, and reported as intact", async () => {
    const path = await intact();
    const output = await printed("salvage", path, beside(path));
    expect(output).toBe(
      `copied 3,001 keys (2.5 MB of values) to ${beside(path)}\nnothing was lost\n`,
    );
    expect(await keysOf(beside(path))).toStrictEqual(await keysOf(path));
    expect(await printed("list", beside(path), "--values")).toBe(
      await printed("list", path, "--values"),
    );
    assert((await printed("verify", beside(path))).startsWith("ok: "));
    assert(!existsSync(`${beside(path)}.lock`));
  });

  test("large values are copied to their own keys, whatever order they were written in", async () => {
    const fills = { a: 0x41, b: 0x42, c: 0x43 };
    const path = await database((db) => {
      for (const [key, fill] of Object.entries(fills).reverse()) {
        db.set(key, new Uint8Array(1_400_000).fill(fill));
      }
    });
    await printed("salvage", path, beside(path));
    for (const [key, fill] of Object.entries(fills)) {
      const { stdout } = await varve(["get", beside(path), key]);
      assert(stdout.length === 1_400_000 && stdout.every((byte) => byte === fill), key);
    }
    const { liveBytes } = JSON.parse(await printed("stat", beside(path), "--json"));
    assert(liveBytes < 4_300_000, `${liveBytes} bytes: no chunk is there twice`);
  });

  test("a record with an expiry that is lost is not subtracted from the count when it would be due", async () => {
    const path = await database((db) => {
      for (const key of ["a", "b"]) db.set(key, "stays");
      db.set("lost", "an expiring value", { expireIn: 60_000 });
    });
    const bytes = readFileSync(path);
    bytes[bytes.indexOf("an expiring value")]! ^= 1;
    writeFileSync(path, bytes);
    expect((await varve(["salvage", path, beside(path)])).code).toBe(1);
    const { now } = Date;
    onTestFinished(() => {
      Date.now = now;
    });
    Date.now = () => now() + 120_000;
    const copy = await open("new", { storage: file(dirname(path)), readOnly: true });
    onTestFinished(() => copy.close());
    expect([...copy.keys()]).toStrictEqual(["a", "b"]);
    expect(copy.count()).toBe(2);
  });

  test("changes since any cursor are complete in the copy of a file with packed history", async () => {
    const path = await database(
      async (db) => {
        for (let i = 0; i < 300; i += 1) {
          db.set(`key ${i % 50}`, `${i}`);
          db.commit();
        }
        await db.pack({ before: db.lastCommit - 20 });
      },
      { history: "keep" },
    );
    await printed("salvage", path, beside(path));
    const storage = file(dirname(path));
    const written = await open("new", { storage });
    const value = new Uint8Array(30_000);
    let middle = 0;
    for (let i = 0; i < 400; i += 1) {
      written.transaction((tx) => {
        for (let j = 0; j < 10; j += 1) tx.set(`${i}/${j}`, j === 0 ? value : "");
      });
      written.commit();
      if (i === 99) middle = written.lastCommit;
    }
    await written.close();
    const copy = await open("new", { storage });
    onTestFinished(() => copy.close());
    expect([...copy.changes({ since: middle })].length).toBe(3_000);
  });

  test("a damaged file is copied as far as it is intact, left as it is, and exits with code 1", async () => {
    const path = await inLargeValue();
    const before = readFileSync(path);
    const { code, stdout, stderr } = await varve(["salvage", path, beside(path)]);
    expect([code, stderr]).toStrictEqual([1, ""]);
    assert(stdout.toString().includes("lost: the values of 1 key\n"), stdout.toString());
    const keys = await keysOf(beside(path));
    expect([keys.length, keys.includes("large")]).toStrictEqual([3_000, false]);
    assert(before.equals(readFileSync(path)), "not a byte is changed");
    expect(readdirSync(dirname(path)).sort()).toStrictEqual(["new.varve", "shop.varve"]);
  });

  test("records before and after a damaged one are copied", async () => {
    const path = await inRecord();
    const { code } = await varve(["salvage", path, beside(path)]);
    expect(code).toBe(1);
    const keys = await keysOf(path).catch(() => undefined);
    expect(keys, "it cannot be listed").toBe(undefined);
    const copied = new Set(await keysOf(beside(path)));
    assert(
      copied.size > 2_000 && copied.has("key 0") && copied.has("large"),
      `${copied.size} keys`,
    );
    assert(!copied.has("key 1234"));
    expect((await printed("get", beside(path), "key 2999")).slice(0, 10)).toBe("value 2999");
  });

  test("a file that lost both superblocks is copied completely", async () => {
    const path = await withoutSuperblocks();
    expect((await varve(["salvage", path, beside(path)])).code).toBe(1);
    expect((await keysOf(beside(path))).length).toBe(3_001);
  });

  test("keys that lost writes may have changed are copied and counted, and named with --json", async () => {
    const path = golden("damaged-commit");
    const { code, stdout } = await varve(["salvage", path, beside(path)]);
    expect(code).toBe(1);
    assert(stdout.toString().includes("uncertain: 1 key, which"), stdout.toString());
    expect(await keysOf(beside(path))).toStrictEqual(["a"]);
    const json = await varve(["salvage", path, beside(path, "other.varve"), "--json"]);
    expect(json.code).toBe(1);
    const document = JSON.parse(json.stdout.toString());
    expect(document.uncertain).toStrictEqual([{ key: "a" }]);
    expect([document.keys, document.newFile, document.lost.uncertainKeys]).toStrictEqual([
      1,
      beside(path, "other.varve"),
      1,
    ]);
  });

  test("--json reports that nothing was lost", async () => {
    const path = await intact();
    const document = JSON.parse(await printed("salvage", path, beside(path), "--json"));
    expect([document.keys, document.lost, document.uncertain]).toStrictEqual([3_001, null, []]);
  });

  test("an existing target is refused, and a failure leaves none", async () => {
    const path = await intact();
    writeFileSync(beside(path, "there"), "precious");
    symlinkSync("nowhere", beside(path, "link"));
    for (const name of ["there", "link", "shop.varve"]) {
      const { code, stderr } = await varve(["salvage", path, beside(path, name)]);
      expect(code, name).toBe(2);
      assert(stderr.includes("already exists"), stderr);
    }
    expect(readFileSync(beside(path, "there"), "utf8")).toBe("precious");
    expect((await varve(["salvage", path, join(dirname(path), "no/folder")])).code).toBe(3);
    const text = beside(path, "text");
    writeFileSync(text, "no database ".repeat(1000));
    expect((await varve(["salvage", text, beside(path)])).code).toBe(3);
    const cut = golden("cut-before-the-second-superblock");
    const { code, stderr } = await varve(["salvage", cut, beside(path)]);
    expect(code).toBe(3);
    assert(/is damaged, and nothing in it can be salvaged\.\n$/.test(stderr), stderr);
    expect(readdirSync(dirname(path)).sort()).toStrictEqual([
      "link",
      "shop.varve",
      "text",
      "there",
    ]);
  });

  test("the target is removed when the disk is full", async () => {
    const path = await intact();
    const { code, stderr } = await varve(["salvage", path, beside(path)], {
      largestFile: 1_000_000,
    });
    expect(code).toBe(3);
    assert(/^varve: .*room/.test(stderr), stderr);
    expect(readdirSync(dirname(path))).toStrictEqual(["shop.varve"]);
  });
});

describe("commands without memory", () => {
  test("the error says what to do, without a stack", async () => {
    const path = await intact();
    const calls = [
      ["stat", path],
      ["list", path],
      ["verify", path],
      ["salvage", path, beside(path)],
      ["export", path, beside(path)],
    ];
    for (const call of calls) {
      const { code, stderr } = await varve(call, { addresses: 4 * 2 ** 30 });
      expect(code).toBe(3);
      assert(/^varve: There is no memory to open .*\n$/.test(stderr), stderr);
    }
    expect(readdirSync(dirname(path))).toStrictEqual(["shop.varve"]);
  });
});

describe("varve export", () => {
  test("live data is copied into a database file, without anything deleted", async () => {
    const path = await database((db) => {
      for (let i = 0; i < 3_000; i += 1) db.set(`key ${i}`, `value ${i}`);
      db.flush();
      db.clear({ prefix: "key 1" });
    });
    const output = await printed("export", path, beside(path));
    assert(/^exported [\d.]+ KB of live data to /.test(output), output);
    expect(await keysOf(beside(path))).toStrictEqual(await keysOf(path));
    const bytes = readFileSync(beside(path));
    expect(bytes.includes("key 1234")).toBe(false);
    const json = JSON.parse(await printed("export", path, beside(path, "b.varve"), "--json"));
    expect(json).toStrictEqual({
      file: path,
      newFile: beside(path, "b.varve"),
      bytes: bytes.length,
    });
    expect(
      await printed("verify", beside(path)).then((reported) => reported.startsWith("ok: ")),
    ).toBe(true);
  });

  test("an existing target is not overwritten, and a damaged source leaves none", async () => {
    const path = await inRecord();
    expect((await varve(["export", path, path])).code).toBe(2);
    const { code, stderr } = await varve(["export", path, beside(path)]);
    expect(code).toBe(3);
    assert(stderr.includes("varve salvage"), stderr);
    expect(existsSync(beside(path))).toBe(false);
  });
});
