import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { type Database, file, open } from "varve";
import { assert, describe, expect, onTestFinished, test } from "vitest";
import { rejects } from "../support/errors.js";
import { random, turn } from "../support/values.js";
import { folder } from "./support/processes.js";
import { runs, start } from "./support/programs.js";
import { hasOutput } from "./support/runtime-programs.js";

async function reopened(directory: string): Promise<Database> {
  const db = await open("shop", { storage: file(directory) });
  onTestFinished(() => db.close());
  return db;
}

describe("programs that end", () => {
  test("the exit hook writes the writes of the same turn", async () => {
    const directory = folder();
    const { code, stderr } = await runs(
      directory,
      `const db = await shop(); db.set("key", "at the last moment"); process.exit(0);`,
    );
    expect(code, stderr).toBe(0);
    expect((await reopened(directory)).getText("key")).toBe("at the last moment");
  });

  test("a program that ends without close has written everything, at each durability", async () => {
    for (const durability of ["buffered", "written", "flushed"]) {
      const directory = folder();
      const { code, stderr } = await runs(
        directory,
        `const db = await shop({ durability: "${durability}" }); db.set("key", "${durability}");`,
      );
      expect(code, stderr).toBe(0);
      expect((await reopened(directory)).getText("key")).toBe(durability);
    }
  });

  test("an uncaught error keeps earlier writes", async () => {
    const directory = folder();
    const { code, stderr } = await runs(
      directory,
      `const db = await shop(); db.set("key", "value"); throw new Error("on purpose");`,
    );
    expect(code).toBe(1);
    assert(stderr.includes("on purpose"), "the error is shown");
    expect((await reopened(directory)).getText("key")).toBe("value");
  });

  test("no lock is left behind", async () => {
    const directory = folder();
    await runs(directory, `const db = await shop(); db.set("key", "value");`);
    expect(readdirSync(directory)).toStrictEqual(["shop.varve"]);
  });

  test("a program that ends inside a transaction has written none of it", async () => {
    const directory = folder();
    await runs(
      directory,
      `const db = await shop(); db.set("a", "old"); db.commit();
       db.transaction(() => { db.set("a", "new"); db.set("b", "new"); process.exit(0); });`,
    );
    const db = await reopened(directory);
    expect(db.getText("a")).toBe("old");
    expect(db.has("b")).toBe(false);
  });
});

describe("killed programs", () => {
  test("writes committed in the same turn are kept", async () => {
    const directory = folder();
    const { signal } = await runs(
      directory,
      `const db = await shop(); db.set("key", "value"); db.commit(); die();`,
    );
    expect(signal).toBe("SIGKILL");
    expect((await reopened(directory)).getText("key")).toBe("value");
  });

  test("writes committed by the end of an earlier turn are kept", async () => {
    const directory = folder();
    await runs(
      directory,
      `const db = await shop(); db.set("key", "value"); await db.committed; die();`,
    );
    expect((await reopened(directory)).getText("key")).toBe("value");
  });

  test("uncommitted writes are lost, and nothing before them", async () => {
    const directory = folder();
    await runs(
      directory,
      `const db = await shop(); db.set("a", "1"); await db.committed; db.set("b", "2"); die();`,
    );
    const db = await reopened(directory);
    expect(db.getText("a")).toBe("1");
    expect(db.has("b")).toBe(false);
  });

  test("the lock that is left behind is recognized as stale", async () => {
    const directory = folder();
    await runs(directory, `const db = await shop(); db.set("key", "value"); db.commit(); die();`);
    assert(existsSync(join(directory, "shop.varve.lock")), "the lock is there");
    await reopened(directory);
  });

  test("a kill at any moment loses no acknowledged write and leaves no partial transaction", async () => {
    const directory = folder();
    const next = random(20_260_731);
    let acknowledged = 0;
    for (let round = 0; round < 12; round += 1) {
      const program = start(
        directory,
        `const db = await shop();
           let n = Number(db.getText("left") ?? 0);
           for (;;) {
             for (let burst = 0; burst < 50; burst++) {
               n++;
               db.transaction(() => {
                 db.set("left", String(n));
                 db.set("padding" + n % 100, new Uint8Array(n % 3000));
                 db.set("right", String(n));
               });
             }
             await db.committed;
             fs.writeSync(1, n + "\\n");
           }`,
      );
      await hasOutput(program);
      await turn(next(150));
      program.child.kill("SIGKILL");
      const { stdout, stderr } = await program.ended;
      expect(stderr).toBe("");
      acknowledged = Math.max(acknowledged, ...stdout.trim().split("\n").map(Number));

      const db = await open("shop", { storage: file(directory) });
      expect(db.getText("left"), `round ${round}`).toBe(db.getText("right"));
      assert(
        Number(db.getText("left")) >= acknowledged,
        `round ${round}: ${acknowledged} is there`,
      );
      await db.close();
    }
  });
});

describe("two programs", () => {
  test("a second program cannot open the database, and the error names the process that has it open", async () => {
    const directory = folder();
    const db = await reopened(directory);
    db.set("key", "mine");
    const { stdout } = await runs(
      directory,
      `await shop().catch((error) => console.log(error.name, error.code, error.pid));`,
    );
    expect(stdout.trim()).toBe(`DatabaseBusyError VARVE_DATABASE_BUSY ${process.pid}`);
    expect(db.getText("key")).toBe("mine");
  });

  test("programs can open the database one after the other", async () => {
    const directory = folder();
    for (const value of ["1", "2", "3"]) {
      const { stdout, stderr } = await runs(
        directory,
        `const db = await shop(); console.log(db.getText("key")); db.set("key", "${value}"); await db.close();`,
      );
      expect(stderr).toBe("");
      expect(stdout.trim()).toBe(value === "1" ? "undefined" : String(Number(value) - 1));
    }
  });

  test("a folder that cannot be written is named, with the system's reason", async () => {
    const error = await rejects(open("shop", { storage: file("/proc/no/such/folder") }), {
      code: "VARVE_STORAGE_UNAVAILABLE",
      cause: true,
    });
    assert(error.message.includes("/proc/no/such/folder/shop.varve"), error.message);
  });
});

describe("full disks", () => {
  test("writes that do not fit are refused, and everything else is kept", async () => {
    const directory = folder();
    // No file may be longer than 8 MiB, which has the same effect as a full disk.
    const { stdout, stderr } = await runs(
      directory,
      `const db = await shop();
       const value = new Uint8Array(100_000).fill(7);
       let n = 0;
       try {
         for (; n < 100; n++) { db.set("value " + n, value); db.commit(); }
       } catch (error) {
         console.log(error.name, error.code);
       }
       console.log(n, db.count(), db.get("value 0").length, db.has("value " + n));
       await db.close();`,
      { fileSizeLimit: 8 * 1024 * 1024 },
    );
    expect(stderr).toBe("");
    const [refusal, counts] = stdout.trim().split("\n");
    expect(refusal).toBe("QuotaExceededError VARVE_QUOTA_EXCEEDED");
    const [fitted, count, length, has] = (counts ?? "").split(" ");
    assert(Number(fitted) > 30, `${fitted} values fitted`);
    expect([count, length, has]).toStrictEqual([fitted, "100000", "false"]);

    const db = await reopened(directory);
    expect(db.count()).toBe(Number(fitted));
    db.set("more", "with space again");
    db.flush();
  });
});
