import { existsSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { databases, destroy, file, memory, open } from "varve";
import { assert, describe, expect, onTestFinished, test } from "vitest";
import { context } from "../support/context.js";
import { folder } from "./support/processes.js";
import { runs } from "./support/programs.js";

const COUNT = 400;

/** Checks that there are this many keys, and that each names its owner. */
async function exportOf(owner: string): Promise<Uint8Array<ArrayBuffer>> {
  const db = await open("source", { storage: memory() });
  for (let i = 0; i < COUNT; i++) db.set(`key ${i}`, `${owner} ${i}`);
  const bytes = new Uint8Array(await new Response(db.export()).arrayBuffer());
  await db.close();
  return bytes;
}

/**
 * A program that fills the database of its folder, and is killed right before or after the file system call with
 * this number. With 0 it completes, and prints the number of calls.
 */
function filling(
  directory: string,
  from: string,
  call: number,
  isAfter: boolean,
  replace: boolean,
) {
  return runs(
    directory,
    `let calls = 0;
     for (const name of ["openSync", "closeSync", "writeSync", "ftruncateSync", "fdatasyncSync", "fsyncSync", "renameSync", "rmSync"]) {
       const real = fs[name];
       fs[name] = (...args) => {
         calls += 1;
         const isLast = calls === ${call};
         if (isLast && !${isAfter}) die();
         const result = real.apply(fs, args);
         if (isLast) die();
         return result;
       };
     }
     const bytes = fs.readFileSync(${JSON.stringify(from)});
     const db = await shop({ from: new Blob([bytes]), replace: ${replace} });
     await db.close();
     console.log(calls);`,
  );
}

/** The owner of the complete database in a folder; none if it is missing or empty. */
async function ownerOf(directory: string): Promise<string | undefined> {
  const db = await open("shop", { storage: file(directory) }).catch((error) => {
    expect((error as { code?: unknown }).code, String(error)).toBe("VARVE_DATABASE_NOT_FOUND");
  });
  if (!db) return undefined;
  onTestFinished(() => db.close());
  const owner = db.getText("key 0")?.split(" ")[0];
  expect(db.count()).toBe(owner === undefined ? 0 : COUNT);
  for (let i = 0; i < db.count(); i++) expect(db.getText(`key ${i}`)).toBe(`${owner} ${i}`);
  // One of two superblocks is enough, and the next write restores the other.
  const { problems } = await db.verify();
  expect(problems.filter(({ what }) => what !== "superblock")).toStrictEqual([]);
  await db.close();
  return owner;
}

describe("imports in killed programs", () => {
  for (const replace of [false, true]) {
    const what = replace ? "replaces a database" : "fills a new database";
    test(`a kill at any call of a program that ${what} leaves ${replace ? "the old one or" : "none, or all of"} the new one`, async () => {
      const directory = folder();
      const from = join(directory, "from");
      const old = await exportOf("old");
      writeFileSync(from, await exportOf("new"));
      const prepare = async () => {
        await destroy("shop", { storage: file(directory) });
        if (replace) await (await open("shop", { storage: file(directory), from: old })).close();
      };
      await prepare();
      const through = await filling(directory, from, 0, false, replace);
      const calls = Number(through.stdout);
      assert(calls > 10, through.stderr);
      expect(await ownerOf(directory)).toBe("new");
      const found = new Set<string | undefined>();
      for (let call = 1; call <= calls; call += context().thorough ? 2 : 5) {
        await prepare();
        const { signal, stderr } = await filling(directory, from, call, call % 4 === 1, replace);
        expect(signal, stderr).toBe("SIGKILL");
        const names = await databases({ storage: file(directory) });
        assert(
          names.every((name) => name === "shop"),
          names.join(),
        );
        const owner = await ownerOf(directory);
        found.add(owner);
        if (owner === undefined) continue;
        // The shadow file is removed. A draft of the lock may remain for a minute.
        const left = readdirSync(directory).filter((one) => !one.startsWith("shop.varve.lock."));
        expect(left.sort(), `call ${call}`).toStrictEqual(["from", "shop.varve"]);
      }
      expect([...found].sort()).toStrictEqual(["new", replace ? "old" : undefined].sort());
    });
  }
});

describe("discarded new files", () => {
  test("a new file stays if another program has written to it meanwhile", async () => {
    const directory = folder();
    const path = join(directory, "shop.varve");
    for (const isWritten of [false, true]) {
      const opened = await file(directory).open("shop");
      assert(existsSync(path));
      if (isWritten) writeFileSync(path, "of the process that has taken over the lock");
      await opened.discard?.();
      expect(readdirSync(directory)).toStrictEqual(isWritten ? ["shop.varve"] : []);
    }
  });
});
