import { assert, describe, expect, test } from "vitest";
import { context } from "../support/context.js";
import { folder } from "./support/processes.js";
import { runs } from "./support/programs.js";

// Deno and Bun exit if they get no addresses, and only Linux can limit a running program.
const limits = context().runtime === "node" && process.platform === "linux";

/** V8 grows these spaces while it collects garbage, and aborts if it cannot: they stay as small as they start. */
const SMALL_SPACES = ["--min-semi-space-size=1", "--max-semi-space-size=1"];

/** V8 found no memory for itself. A program cannot prevent that, whatever it leaves free. */
const ABORTED = /^FATAL ERROR: .*heap out of memory/m;

/** Megabytes that a repeated program gets in addition: another part of the 16 MB that one value takes is left over. */
const ADDITIONAL = [0, 5, 10, 3, 8];

/** Limits the further address space of the program, in megabytes, and prints the errors. */
const LIMIT = `
  import { execFileSync } from "node:child_process";
  const limit = (megabytes) => {
    const [, kilobytes] = /VmSize:\\s+(\\d+)/.exec(fs.readFileSync("/proc/self/status", "utf8"));
    const most = (Number(kilobytes) + (megabytes + additional) * 1024) * 1024;
    execFileSync("prlimit", ["--pid", String(process.pid), "--as=" + most + ":" + most]);
  };
  const failures = [];
  const tried = async (what, call) => {
    try {
      return await call();
    } catch (error) {
      failures.push([what, error.code ?? error.stack]);
      if (!/memory/.test(error.message) || !/Release other|Close some/.test(error.message)) failures.push([error.message]);
    }
  };
  const big = new Uint8Array(16 * 2 ** 20).fill(7);
  const reported = () => console.log(JSON.stringify(failures));`;

const CODE = "VARVE_OUT_OF_MEMORY";

/** The errors of a program. One that V8 aborts runs again with another limit; one that never ends by itself fails. */
async function failuresOf(source: string): Promise<unknown> {
  const aborts: string[] = [];
  for (const additional of ADDITIONAL) {
    const program = `const additional = ${additional};${LIMIT}${source}`;
    const { code, stdout, stderr } = await runs(folder(), program, { flags: SMALL_SPACES });
    if (ABORTED.test(stderr)) {
      aborts.push(stderr);
      continue;
    }
    expect(code, stderr).toBe(0);
    expect(stderr).toBe("");
    return JSON.parse(stdout);
  }
  return assert.fail(`V8 aborted every run:\n${aborts.join("\n")}`);
}

if (limits) {
  describe("programs with a limited address space", () => {
    test("opening throws OutOfMemoryError, whatever the source, and open databases go on", async () => {
      const found = await failuresOf(`
        const db = await shop();
        db.set("a", "kept");
        db.flush();
        const image = fs.readFileSync(directory + "/shop.varve");
        limit(200);
        await tried("open", () => open("other", { storage: memory() }));
        await tried("from", () => open("other", { from: image, readOnly: true }));
        await tried("filled", () => open("other", { storage: memory(), from: image }));
        await tried("export", () => db.export().getReader().read());
        db.set("b", db.getText("a"));
        await db.close();
        reported();`);
      expect(found).toStrictEqual([
        ["open", CODE],
        ["from", CODE],
        ["filled", CODE],
        ["export", CODE],
      ]);
    });

    test("reading more copies than there is memory for throws, and the next turn reads on", async () => {
      const found = await failuresOf(`
        const db = await shop({ memory: 64 * 2 ** 20 });
        for (let i = 0; i < 20; i++) { db.set("k" + i, big); await null; }
        limit(70);
        const views = [];
        await tried("get", () => {
          for (let i = 0; i < 20; i++) views.push(db.get("k" + i));
        });
        views.length = 0;
        await new Promise((resolve) => setTimeout(resolve));
        if (db.get("k0").length !== big.length) failures.push("lost");
        await db.close();
        reported();`);
      expect(found).toStrictEqual([["get", CODE]]);
    });

    test("writing to a database in memory throws, and the database goes on", async () => {
      const found = await failuresOf(`
        const db = await open("scratch", { storage: memory() });
        limit(100);
        for (let i = 0; i < 20 && failures.length === 0; i++) {
          await tried("set", () => db.set("k" + i, big));
        }
        db.set("small", "kept");
        db.commit();
        if (db.getText("small") !== "kept") failures.push("lost");
        await db.close();
        reported();`);
      expect(found).toStrictEqual([["set", CODE]]);
    });

    test("importing lines throws, and the records stored before stay", async () => {
      const found = await failuresOf(`
        const { json, u32 } = await import(new URL("../../dist/struct.js", import.meta.url).href);
        const db = await shop();
        const notes = db.collection("notes", json(), { key: u32 });
        const line = (key) => JSON.stringify({ key, value: "x".repeat(100) }) + "\\n";
        const text = new TextEncoder().encode("x".repeat(8 * 2 ** 20));
        async function* lines() {
          yield line(1);
          await new Promise((resolve) => setTimeout(resolve, 5));
          limit(100);
          yield '{"key":2,"value":"';
          for (let i = 0; i < 64; i++) yield text.slice();
        }
        await tried("lines", () => notes.fromJsonLines(lines()));
        if (notes.get(1).length !== 100) failures.push("lost");
        await db.close();
        reported();`);
      expect(found).toStrictEqual([["lines", CODE]]);
    });
  });
}
