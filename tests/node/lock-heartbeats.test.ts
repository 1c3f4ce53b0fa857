import fs, { readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { file, open } from "varve";
import { assert, describe, expect, onTestFinished, test } from "vitest";
import { context } from "../support/context.js";
import { throws } from "../support/errors.js";
import { bytes, turn } from "../support/values.js";
import { lockOf, NAME } from "./support/locks.js";
import { folder } from "./support/processes.js";
import { start } from "./support/programs.js";
import { hasOutput } from "./support/runtime-programs.js";

describe("the heartbeats of a lock", () => {
  test("a holder whose lock is moved away for a moment keeps it", async () => {
    const directory = folder();
    const { file: opened } = await file(directory).open(NAME);
    onTestFinished(() => opened.close());
    const real = Date.now;
    const { lutimesSync } = fs;
    onTestFinished(() => {
      Date.now = real;
      fs.lutimesSync = lutimesSync;
    });
    const moved = join(directory, "moved");
    fs.renameSync(lockOf(directory), moved);
    let misses = 0;
    fs.lutimesSync = (path, ...times) => {
      misses += 1;
      if (misses === 3) fs.renameSync(moved, path);
      lutimesSync(path, ...times);
    };
    Date.now = () => real() + 60_000;
    expect(opened.write(bytes("continued"), { at: 0 })).toBe(9);
    expect(misses).toBe(3);
  });

  test("heartbeats go on while the wall clock stands still, as under fake timers", async () => {
    const directory = folder();
    const real = Date.now;
    onTestFinished(() => {
      Date.now = real;
    });
    Date.now = () => 1_000_000;
    const { file: opened } = await file(directory).open(NAME);
    onTestFinished(() => opened.close());
    const stamps = new Set<number>();
    const deadline = real() + 60_000;
    while (stamps.size < 3) {
      stamps.add(statSync(lockOf(directory)).mtimeMs);
      assert(real() < deadline, "no heartbeat within a minute");
      await turn(100);
    }
  });

  test("a write while the lock was lost does not count", async () => {
    const directory = folder();
    const { file: opened } = await file(directory).open(NAME);
    const { writeSync } = fs;
    const real = Date.now;
    onTestFinished(() => {
      fs.writeSync = writeSync;
      Date.now = real;
    });
    fs.writeSync = ((...args: [number, Uint8Array, number, number, number]) => {
      // As if it had been suspended between its check of the lock and the end of its write.
      fs.writeSync = writeSync;
      Date.now = () => real() + 60_000;
      writeFileSync(lockOf(directory), "of another process");
      return writeSync(...args);
    }) as typeof writeSync;
    throws(() => opened.write(bytes("after"), { at: 0 }), { code: "VARVE_FILE_LOST" });
    opened.close();
  });

  test("a flush does not count if the lock is missing", async () => {
    const directory = folder();
    const { file: opened } = await file(directory).open(NAME);
    expect(opened.write(bytes("before"), { at: 0 })).toBe(6);
    rmSync(lockOf(directory));
    throws(() => opened.flush(), { code: "VARVE_FILE_LOST", message: /removed, or taken over/ });
    opened.close();
  });

  test("an open database sends heartbeats", async () => {
    const directory = folder();
    const { file: opened } = await file(directory).open(NAME);
    onTestFinished(() => opened.close());
    const before = statSync(lockOf(directory)).mtimeMs;
    const deadline = Date.now() + 60_000;
    while (statSync(lockOf(directory)).mtimeMs === before) {
      assert(Date.now() < deadline, "no heartbeat within a minute");
      await turn(100);
    }
  });

  test("a suspended holder that lost its lock writes no more, and its file may be closed", async () => {
    const directory = folder();
    const { file: opened } = await file(directory).open(NAME);
    expect(opened.write(bytes("before"), { at: 0 })).toBe(6);
    const real = Date.now;
    onTestFinished(() => {
      Date.now = real;
    });
    writeFileSync(lockOf(directory), "of another process");
    Date.now = () => real() + 6000;
    const lost = { name: "FileLostError", code: "VARVE_FILE_LOST", message: /taken over/ } as const;
    throws(() => opened.write(bytes("after"), { at: 0 }), lost);
    throws(() => opened.truncate(0), lost);
    opened.close();
    expect(readFileSync(join(directory, "shop.varve"), "utf8")).toBe("before");
    expect(readFileSync(lockOf(directory), "utf8")).toBe("of another process");
  });

  test("a suspended holder that kept its lock goes on", async () => {
    const directory = folder();
    const { file: opened } = await file(directory).open(NAME);
    onTestFinished(() => opened.close());
    const real = Date.now;
    onTestFinished(() => {
      Date.now = real;
    });
    Date.now = () => real() + 60_000;
    expect(opened.write(bytes("continued"), { at: 0 })).toBe(9);
  });
});

describe("holders suspended for longer than it takes to break their lock", () => {
  /** Commits one key after the other, and reports each only after its commit. */
  const commits = (name: string, count: number, space: string, directory: string) => `
    const { readlinkSync } = fs;
    // As if in another container, so that neither sees the processes of the other.
    fs.readlinkSync = (path, ...more) =>
      path === "/proc/self/ns/pid" ? "${space}" : readlinkSync(path, ...more);
    const acknowledged = fs.openSync(${JSON.stringify(directory)} + "/${name}.txt", "a");
    const db = await shop();
    fs.writeSync(1, "open ");
    for (let i = 0; i < ${count}; i += 1) {
      try {
        db.set("${name} " + i, "value".repeat(1 + i % 50));
        db.commit();
        if (i % 100 === 0) db.flush();
      } catch (error) {
        console.log(error.code, error.reason);
        process.exit();
      }
      fs.writeSync(acknowledged, i + " ");
    }
    await db.close();
    console.log("closed");`;

  test("a suspended holder acknowledges nothing more, and no acknowledged commit of either holder is lost", async () => {
    const ENDLESS = 100_000_000;
    await Promise.all(
      Array.from({ length: 6 }, async (_, round) => {
        const directory = folder();
        const first = start(directory, commits("first", ENDLESS, "pid:[1]", directory));
        await hasOutput(first);
        await turn(200 + round * 37);
        first.child.kill("SIGSTOP");
        const second = start(directory, commits("second", ENDLESS, "pid:[2]", directory));
        if (context().runtime === "deno") {
          // Deno also has the system's lock, which a suspended process keeps.
          assert((await second.ended).stderr.includes("DatabaseBusyError"));
          // Deno's kill() has no effect on a child that was sent a signal before.
          process.kill(first.child.pid as number, "SIGKILL");
          await first.ended;
          return;
        }
        await hasOutput(second);
        first.child.kill("SIGCONT");
        const { stdout, stderr } = await first.ended;
        assert(stdout.includes("VARVE_FILE_LOST taken-over"), `${stdout} ${stderr}`);
        await turn(200);
        second.child.kill("SIGKILL");
        await second.ended;
        const db = await open(NAME, { storage: file(directory) });
        for (const name of ["first", "second"]) {
          const committed = readFileSync(join(directory, `${name}.txt`), "utf8")
            .trimEnd()
            .split(" ");
          const missing = committed.filter((i) => db.getText(`${name} ${i}`) === undefined);
          assert(committed.length > 10, `${name} committed ${committed.length} times`);
          expect(missing, `of ${name}, round ${round}`).toStrictEqual([]);
        }
        expect((await db.verify()).problems.length).toBe(0);
        await db.close();
      }),
    );
  });
});
