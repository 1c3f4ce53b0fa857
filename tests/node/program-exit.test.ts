import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { type Database, file, open } from "varve";
import { assert, describe, expect, onTestFinished, test } from "vitest";
import { wasmOption } from "../support/context.js";
import { folder } from "./support/processes.js";
import { hasOutput, type Program, shopIn, starts } from "./support/runtime-programs.js";

async function reopened(directory: string): Promise<Database> {
  const db = await open("shop", { storage: file(directory), ...wasmOption() });
  onTestFinished(() => db.close());
  return db;
}

/** Not `child.kill`, because Deno then reports the signal, however the child ended. */
function signalTo({ child }: Program, signal: NodeJS.Signals): void {
  process.kill(child.pid as number, signal);
}

/** Signals when the process has a handler of SIGTERM (15): in Deno this takes a moment. */
const LISTENING = `
  import { existsSync, readFileSync } from "node:fs";
  const status = "/proc/self/status";
  const caught = () => BigInt("0x" + /^SigCgt:\\s*(\\w+)/m.exec(readFileSync(status, "utf8"))[1]);
  const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
  if (!existsSync(status)) await pause(1_000);
  else while ((caught() & (1n << 14n)) === 0n) await pause(1);
  console.log("ready");`;

/** How programs end without being killed, and the exit code that their parent sees. */
const ENDS: Record<string, { source: string; code: number }> = {
  "by process.exit": { source: "process.exit(3);", code: 3 },
  "by running to its end": { source: "process.exitCode = 5;", code: 5 },
  "by what its runtime has beside that": {
    source: "globalThis.Deno === undefined ? process.exit(0) : Deno.exit(0);",
    code: 0,
  },
  "by an error while it is loaded": { source: 'throw new Error("on purpose");', code: 1 },
  "by an error in a callback": {
    source: 'setTimeout(() => { db.set("key", "last"); throw new Error("on purpose"); }, 10);',
    code: 1,
  },
  "by an unhandled rejection": {
    source:
      'setTimeout(() => { db.set("key", "last"); Promise.reject(new Error("on purpose")); }, 10);',
    code: 1,
  },
};

describe("the end of a program, in its own runtime", () => {
  for (const [how, { source, code: expected }] of Object.entries(ENDS)) {
    test(`${how}: all writes are there, at each durability`, async () => {
      for (const durability of ["buffered", "written", "flushed"]) {
        const directory = folder();
        const { code, stderr } = await starts(
          `${shopIn(directory)}
           const db = await shop({ durability: "${durability}" });
           db.set("key", "last");
           ${source}`,
        ).ended;
        expect(code, stderr).toBe(expected);
        const db = await reopened(directory);
        expect(db.getText("key"), durability).toBe("last");
        expect(db.recovery.tornBytes).toBe(0);
      }
    });
  }

  test("process.exit leaves no lock, and nothing of an open transaction", async () => {
    const directory = folder();
    const { code, stderr } = await starts(
      `${shopIn(directory)}
       const db = await shop();
       db.set("a", "whole");
       db.transaction(() => {
         db.set("a", "half");
         db.updateIf("a", (view) => { view[0] = 88; process.exit(0); });
       });`,
    ).ended;
    expect(code, stderr).toBe(0);
    expect(readdirSync(directory)).toStrictEqual(["shop.varve"]);
    expect((await reopened(directory)).getText("a")).toBe("whole");
  });

  test("late writes are refused and not lost silently, and data in memory can be read", async () => {
    const directory = folder();
    const { stdout, stderr } = await starts(
      `${shopIn(directory)}
       const db = await shop();
       db.set("key", "last");
       process.on("exit", () => {
         const reported = [db.getText("key")];
         try { db.set("key", "too late"); } catch ({ name }) { reported.push(name); }
         console.log(reported.join());
       });`,
    ).ended;
    expect(stdout.trim(), stderr).toBe("last,ReadOnlyError");
    expect((await reopened(directory)).getText("key")).toBe("last");
  });

  test("several databases are all committed, whatever happens to one of them", async () => {
    const directory = folder();
    const { code, stderr } = await starts(
      `const storage = file(${JSON.stringify(directory)});
       const first = await open("first", { storage });
       const second = await open("second", { storage });
       first.set("key", "1"); second.set("key", "2");
       await first.close();
       const third = await open("third", { storage });
       third.set("key", "3"); second.set("key", "22");
       process.exit(0);`,
    ).ended;
    expect(code, stderr).toBe(0);
    const found = [];
    for (const name of ["first", "second", "third"]) {
      const db = await open(name, { storage: file(directory), ...wasmOption() });
      found.push(db.getText("key"));
      await db.close();
    }
    expect(found).toStrictEqual(["1", "22", "3"]);
  });

  test("an error that the program survives changes nothing: its transaction goes on", async () => {
    const directory = folder();
    const { code, stdout, stderr } = await starts(
      `${shopIn(directory)}
       const db = await shop({ durability: "buffered" });
       db.set("a", "1");
       if (globalThis.Deno !== undefined) {
         addEventListener("error", (event) => event.preventDefault());
         db.transaction(() => {
           db.set("b", "2");
           reportError(new Error("survived"));
           db.set("c", "3");
         });
         reportError(new Error("survived as well"));
       } else {
         process.on("uncaughtException", () => {});
         setTimeout(() => { throw new Error("survived"); });
         db.transaction(() => { db.set("b", "2"); db.set("c", "3"); });
       }
       setTimeout(() => {
         db.set("d", "4");
         console.log(["a", "b", "c", "d"].map((key) => db.getText(key)).join());
       }, 50);`,
    ).ended;
    expect(code, stderr).toBe(0);
    expect(stdout.trim()).toBe("1,2,3,4");
    expect([...(await reopened(directory)).keys()]).toStrictEqual(["a", "b", "c", "d"]);
  });
});

describe("signals", () => {
  test("the package does not listen for signals", async () => {
    const directory = folder();
    const { stdout, stderr } = await starts(
      `const signals = ["SIGINT", "SIGTERM", "SIGHUP"];
       const count = () => signals.map((signal) => process.listenerCount(signal)).join();
       const before = count();
       ${shopIn(directory)}
       const db = await shop();
       db.set("key", "value");
       console.log(before === count());
       await db.close();`,
    ).ended;
    expect(stdout.trim(), stderr).toBe("true");
  });

  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
    test(`${signal} ends a program that does not listen for it, and earlier turns are kept`, async () => {
      const directory = folder();
      const program = starts(
        `${shopIn(directory)}
         const db = await shop();
         db.set("key", "value");
         setTimeout(() => console.log("written"));
         setInterval(() => {}, 1000);`,
      );
      await hasOutput(program);
      signalTo(program, signal);
      const ended = await program.ended;
      assert(ended.signal === signal || (ended.code ?? 0) > 128, `${ended.signal} ${ended.code}`);
      assert(existsSync(join(directory, "shop.varve.lock")), "it had no word to say");
      expect((await reopened(directory)).getText("key")).toBe("value");
    });
  }

  test("a signal listener that calls process.exit has the last writes committed", async () => {
    const directory = folder();
    const program = starts(
      `${shopIn(directory)}
       const db = await shop({ durability: "buffered" });
       process.on("SIGTERM", () => { db.set("key", "at the last moment"); process.exit(0); });
       ${LISTENING}
       setInterval(() => {}, 1000);`,
    );
    await hasOutput(program);
    signalTo(program, "SIGTERM");
    const { code, stderr } = await program.ended;
    expect(code, stderr).toBe(0);
    expect(readdirSync(directory)).toStrictEqual(["shop.varve"]);
    expect((await reopened(directory)).getText("key")).toBe("at the last moment");
  });
});
