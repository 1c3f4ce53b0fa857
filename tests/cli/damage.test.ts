/** `varve verify` and `salvage`. */

import { existsSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { deepEqual, equal, ok, suite, test } from "../harness.js";
import { database, golden, printed, varve } from "./support.js";

/** A database of 3,000 keys and a large value. */
function intact(): Promise<string> {
  return database((db) => {
    for (let i = 0; i < 3_000; i += 1) db.set(`key ${i}`, `value ${i} ${"v".repeat(500)}`);
    db.set("large", new Uint8Array(1_000_000).fill(0x41));
  });
}

/** The same database with a bit flipped at each of these offsets. */
async function damaged(...places: ((bytes: Buffer) => number)[]): Promise<string> {
  const path = await intact();
  const bytes = readFileSync(path);
  for (const placeOf of places) bytes[placeOf(bytes)]! ^= 1;
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

suite("varve verify", () => {
  test("an intact file is reported as such, in a line or as JSON", async () => {
    const path = await intact();
    const said = await printed("verify", path);
    ok(/^ok: 3,001 records in \d+ frames, \d\.\d MB, verified in .*s\n$/.test(said), said);
    const {
      file,
      opens,
      ok: isWell,
      problems,
    } = JSON.parse(await printed("verify", path, "--json"));
    deepEqual([file, opens, isWell, problems], [path, true, true, []]);
  });

  test("damage exits with code 1, and its place and meaning are printed", async () => {
    for (const [path, meaning, what] of [
      [await inLargeValue(), "large value: it cannot be read", "value"],
      [await damaged(() => 100), "superblock: the other one is used", "superblock"],
      [await damaged(() => 8_200), "segment header: its copy is used", "header"],
    ] as const) {
      const { code, stdout, stderr } = await varve(["verify", path]);
      deepEqual([code, stderr], [1, ""], what);
      ok(stdout.toString().startsWith("damaged in 1 place; intact: "), stdout.toString());
      ok(stdout.toString().includes(`  ${meaning}\n`), stdout.toString());
      const json = await varve(["verify", path, "--json"]);
      equal(json.code, 1);
      const document = JSON.parse(json.stdout.toString());
      deepEqual([document.opens, document.ok, document.problems.length], [true, false, 1]);
      equal(document.problems[0].what, what);
    }
  });

  test("a file too damaged to open exits with code 1, and prints what is intact", async () => {
    const { code, stdout, stderr } = await varve(["verify", golden("damaged-frame")]);
    deepEqual([code, stderr], [1, ""]);
    ok(
      /too damaged to open: at byte 8,\d+, .*; 2 frames \(\d+ bytes\) beyond it are intact\n/.test(
        stdout.toString(),
      ),
    );
    const json = await varve(["verify", golden("damaged-frame"), "--json"]);
    equal(json.code, 1);
    const document = JSON.parse(json.stdout.toString());
    deepEqual([document.opens, document.ok, document.details.intactFrames], [false, false, 2]);
    const lost = await varve(["verify", await withoutSuperblocks()]);
    equal(lost.code, 1);
    ok(lost.stdout.toString().includes("neither of the two superblocks"), lost.stdout.toString());
  });

  test("a checkpoint that could not be used is found", async () => {
    for (const name of ["checkpoint-block-damaged", "checkpoint-head-damaged", "checkpoint-lost"]) {
      const { code, stdout } = await varve(["verify", golden(name)]);
      equal(code, 1, name);
      ok(stdout.toString().includes("  checkpoint: the log has the same data"), stdout.toString());
    }
  });

  test("the file and its folder stay as they are", async () => {
    const path = await inLargeValue();
    const before = readFileSync(path);
    await varve(["verify", path]);
    deepEqual(readdirSync(dirname(path)), ["shop.varve"]);
    ok(before.equals(readFileSync(path)));
  });
});

suite("varve get", () => {
  test("a damaged record exits with code 3, and the others can be read", async () => {
    const path = await inRecord();
    const { code, stdout, stderr } = await varve(["get", path, "key 1234"]);
    deepEqual([code, stdout.length], [3, 0]);
    ok(stderr.includes("varve salvage"), stderr);
    equal((await printed("get", path, "key 0")).slice(0, 7), "value 0");
  });
});

suite("varve salvage", () => {
  test("an intact file is copied completely, and reported as intact", async () => {
    const path = await intact();
    const output = await printed("salvage", path, beside(path));
    equal(output, `copied 3,001 keys (2.5 MB of values) to ${beside(path)}\nnothing was lost\n`);
    deepEqual(await keysOf(beside(path)), await keysOf(path));
    equal(await printed("list", beside(path), "--values"), await printed("list", path, "--values"));
    ok((await printed("verify", beside(path))).startsWith("ok: "));
    ok(!existsSync(`${beside(path)}.lock`));
  });

  test("a damaged file is copied as far as it is intact, left as it is, and exits with code 1", async () => {
    const path = await inLargeValue();
    const before = readFileSync(path);
    const { code, stdout, stderr } = await varve(["salvage", path, beside(path)]);
    deepEqual([code, stderr], [1, ""]);
    ok(stdout.toString().includes("lost: the values of 1 key\n"), stdout.toString());
    const keys = await keysOf(beside(path));
    deepEqual([keys.length, keys.includes("large")], [3_000, false]);
    ok(before.equals(readFileSync(path)), "not a byte is changed");
    deepEqual(readdirSync(dirname(path)).sort(), ["new.varve", "shop.varve"]);
  });

  test("records before and after a damaged one are copied", async () => {
    const path = await inRecord();
    const { code } = await varve(["salvage", path, beside(path)]);
    equal(code, 1);
    const keys = await keysOf(path).catch(() => undefined);
    equal(keys, undefined, "it cannot be listed");
    const copied = new Set(await keysOf(beside(path)));
    ok(copied.size > 2_000 && copied.has("key 0") && copied.has("large"), `${copied.size} keys`);
    ok(!copied.has("key 1234"));
    equal((await printed("get", beside(path), "key 2999")).slice(0, 10), "value 2999");
  });

  test("a file that lost both superblocks is copied completely", async () => {
    const path = await withoutSuperblocks();
    equal((await varve(["salvage", path, beside(path)])).code, 1);
    equal((await keysOf(beside(path))).length, 3_001);
  });

  test("keys that lost writes may have changed are copied and counted, and named with --json", async () => {
    const path = golden("damaged-commit");
    const { code, stdout } = await varve(["salvage", path, beside(path)]);
    equal(code, 1);
    ok(stdout.toString().includes("uncertain: 1 key, which"), stdout.toString());
    deepEqual(await keysOf(beside(path)), ["a"]);
    const json = await varve(["salvage", path, beside(path, "other.varve"), "--json"]);
    equal(json.code, 1);
    const document = JSON.parse(json.stdout.toString());
    deepEqual(document.uncertain, [{ key: "a" }]);
    deepEqual(
      [document.keys, document.newFile, document.lost.uncertainKeys],
      [1, beside(path, "other.varve"), 1],
    );
  });

  test("--json reports that nothing was lost", async () => {
    const path = await intact();
    const document = JSON.parse(await printed("salvage", path, beside(path), "--json"));
    deepEqual([document.keys, document.lost, document.uncertain], [3_001, null, []]);
  });

  test("an existing target is refused, and a failure leaves none", async () => {
    const path = await intact();
    writeFileSync(beside(path, "there"), "precious");
    symlinkSync("nowhere", beside(path, "link"));
    for (const name of ["there", "link", "shop.varve"]) {
      const { code, stderr } = await varve(["salvage", path, beside(path, name)]);
      equal(code, 2, name);
      ok(stderr.includes("already exists"), stderr);
    }
    equal(readFileSync(beside(path, "there"), "utf8"), "precious");
    equal((await varve(["salvage", path, join(dirname(path), "no/folder")])).code, 3);
    const text = beside(path, "text");
    writeFileSync(text, "no database ".repeat(1000));
    equal((await varve(["salvage", text, beside(path)])).code, 3);
    const cut = golden("cut-before-the-second-superblock");
    const { code, stderr } = await varve(["salvage", cut, beside(path)]);
    equal(code, 3);
    ok(/is damaged, and nothing in it can be salvaged\.\n$/.test(stderr), stderr);
    deepEqual(readdirSync(dirname(path)).sort(), ["link", "shop.varve", "text", "there"]);
  });

  test("the target is removed when the disk is full", async () => {
    const path = await intact();
    const { code, stderr } = await varve(["salvage", path, beside(path)], {
      largestFile: 1_000_000,
    });
    equal(code, 3);
    ok(/^varve: .*room/.test(stderr), stderr);
    deepEqual(readdirSync(dirname(path)), ["shop.varve"]);
  });
});

suite("commands without memory", () => {
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
      equal(code, 3);
      ok(/^varve: There is no memory to open .*\n$/.test(stderr), stderr);
    }
    deepEqual(readdirSync(dirname(path)), ["shop.varve"]);
  });
});

suite("varve export", () => {
  test("live data is copied into a database file, without anything deleted", async () => {
    const path = await database((db) => {
      for (let i = 0; i < 3_000; i += 1) db.set(`key ${i}`, `value ${i}`);
      db.flush();
      db.clear({ prefix: "key 1" });
    });
    const said = await printed("export", path, beside(path));
    ok(/^exported [\d.]+ KB of live data to /.test(said), said);
    deepEqual(await keysOf(beside(path)), await keysOf(path));
    const bytes = readFileSync(beside(path));
    equal(bytes.includes("key 1234"), false);
    const json = JSON.parse(await printed("export", path, beside(path, "b.varve"), "--json"));
    deepEqual(json, { file: path, newFile: beside(path, "b.varve"), bytes: bytes.length });
    equal(await printed("verify", beside(path)).then((told) => told.startsWith("ok: ")), true);
  });

  test("an existing target is not overwritten, and a damaged source leaves none", async () => {
    const path = await inRecord();
    equal((await varve(["export", path, path])).code, 2);
    const { code, stderr } = await varve(["export", path, beside(path)]);
    equal(code, 3);
    ok(stderr.includes("varve salvage"), stderr);
    equal(existsSync(beside(path)), false);
  });
});
