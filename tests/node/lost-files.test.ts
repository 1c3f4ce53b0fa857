import fs, {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { type Database, type FileLostError, file, memory, open } from "varve";
import { assert, describe, expect, onTestFinished, test } from "vitest";
import { context, wasmOption } from "../support/context.js";
import { rejects, throws } from "../support/errors.js";
import { turn } from "../support/values.js";
import { folder } from "./support/processes.js";
import { shopIn, starts } from "./support/runtime-programs.js";

const NAME = "shop";
const lost = (reason: FileLostError["reason"]) =>
  ({ name: "FileLostError", code: "VARVE_FILE_LOST", message: WHAT[reason] }) as const;
const WHAT = {
  removed: /was removed or moved away/,
  replaced: /Another file was put in the place/,
  "taken-over": /taken over/,
};

/** A database with a key that was flushed, and a copy of its file from before that. */
async function written(directory: string, onError?: (error: Error) => void): Promise<Database> {
  const options = { storage: file(directory), ...wasmOption() };
  const first = await open(NAME, options);
  first.set("old", "in the backup");
  await first.close();
  copyFileSync(join(directory, "shop.varve"), join(directory, "..", "backup"));
  const db = await open(NAME, { ...options, ...(onError && { onError }) });
  onTestFinished(() => db.close().catch(() => undefined));
  db.set("a", "flushed before");
  db.flush();
  return db;
}

/** The data that a database has in memory, read from its export. */
async function saved(db: Database): Promise<Record<string, string | undefined>> {
  const bytes = await new Response(db.export()).bytes();
  const copy = await open("copy", { storage: memory(), from: bytes, ...wasmOption() });
  const found = Object.fromEntries(["old", "a", "b"].map((key) => [key, copy.getText(key)]));
  await copy.close();
  return found;
}

interface Loss {
  reason: "removed" | "replaced";
  lose(directory: string): void;
}

const restore = (directory: string) => {
  copyFileSync(join(directory, "..", "backup"), join(directory, "restored"));
  renameSync(join(directory, "restored"), join(directory, "shop.varve"));
};

const LOSSES: Record<string, Loss> = {
  "was removed": { reason: "removed", lose: (at) => rmSync(join(at, "shop.varve")) },
  "was moved away": {
    reason: "removed",
    lose: (at) => renameSync(join(at, "shop.varve"), join(at, "elsewhere.varve")),
  },
  "was removed with its folder": {
    reason: "removed",
    lose: (at) => rmSync(at, { recursive: true }),
  },
  "was moved away with its folder": {
    reason: "removed",
    lose: (at) => renameSync(at, `${at}-moved`),
  },
  "was replaced by a backup that was renamed over it": { reason: "replaced", lose: restore },
  "was removed, and another one made": {
    reason: "replaced",
    lose(at) {
      rmSync(join(at, "shop.varve"));
      copyFileSync(join(at, "..", "backup"), join(at, "shop.varve"));
    },
  },
};

/** A folder inside another one, with space for the backup. */
function place(): string {
  const directory = join(folder(), "data");
  mkdirSync(directory);
  return directory;
}

describe("lost files", () => {
  for (const [how, { reason, lose }] of Object.entries(LOSSES)) {
    test(`a file that ${how} while it is open is reported by the next flush, refuses writes, and can be saved`, async () => {
      const directory = place();
      const reported: Error[] = [];
      const db = await written(directory, (error) => reported.push(error));
      lose(directory);
      db.set("b", "written after it");
      throws(() => db.flush(), lost(reason));
      throws(() => db.set("c", "refused"), lost(reason));
      throws(() => db.delete("a"), lost(reason));
      throws(() => db.flush(), lost(reason));
      await rejects(db.flushed, lost(reason));
      expect(reported.map((error) => Reflect.get(error, "reason"))).toStrictEqual([reason]);
      expect(db.getText("a")).toBe("flushed before");
      expect(await saved(db)).toStrictEqual({
        old: "in the backup",
        a: "flushed before",
        b: "written after it",
      });
      await rejects(db.close(), lost(reason));
      if (existsSync(directory))
        assert(!readdirSync(directory).includes("shop.varve.lock"), "lock");
      const again = await open(NAME, { storage: file(directory), ...wasmOption() });
      expect(again.getText("old")).toBe(reason === "replaced" ? "in the backup" : undefined);
      expect(again.getText("a")).toBe(undefined);
      again.set("a", "new");
      await again.close();
    });
  }

  const OVERWRITES: Record<string, (path: string) => void> = {
    "truncated to nothing": (path) => truncateSync(path),
    "overwritten by its backup": (path) =>
      writeFileSync(path, readFileSync(join(path, "../../backup"))),
    "made longer": (path) => writeFileSync(path, "more", { flag: "a" }),
  };
  for (const [how, overwrite] of Object.entries(OVERWRITES)) {
    // A flush extends a short file to its size again, and an older superblock may still be the current one.
    if (how !== "overwritten by its backup")
      test(`a file that another program has ${how} is reported by the next flush, and its data can be saved`, async () => {
        const directory = place();
        const db = await written(directory);
        for (let i = 0; i < 500; i += 1) db.set(`k${i}`, "value".repeat(20));
        db.flush();
        overwrite(join(directory, "shop.varve"));
        db.set("b", "written after it");
        throws(() => db.flush(), lost("replaced"));
        throws(() => db.set("c", "refused"), lost("replaced"));
        expect((await saved(db)).b).toBe("written after it");
        await rejects(db.close(), lost("replaced"));
      });

    test(`a file that another program has ${how} is noticed by a heartbeat`, async () => {
      const directory = place();
      const reported: Error[] = [];
      const db = await written(directory, (error) => reported.push(error));
      overwrite(join(directory, "shop.varve"));
      const deadline = Date.now() + 60_000;
      while (reported.length === 0) {
        assert(Date.now() < deadline, "it is noticed");
        await turn(100);
      }
      expect(reported.map((error) => Reflect.get(error, "reason"))).toStrictEqual(["replaced"]);
      expect((await saved(db)).a).toBe("flushed before");
    });
  }

  test("a file overwritten with as many bytes is noticed by a heartbeat", async () => {
    const directory = place();
    const reported: Error[] = [];
    const db = await written(directory, (error) => reported.push(error));
    const path = join(directory, "shop.varve");
    writeFileSync(path, new Uint8Array(readFileSync(path).length), { flag: "r+" });
    const deadline = Date.now() + 60_000;
    while (reported.length === 0) {
      assert(Date.now() < deadline, "it is noticed");
      await turn(100);
    }
    expect(db.getText("a")).toBe("flushed before");
  });

  test("a file whose writes fail on a full disk, that grows and is compacted, is not lost", async () => {
    const directory = place();
    const db = await written(directory);
    const { writeSync } = fs;
    onTestFinished(() => {
      fs.writeSync = writeSync;
    });
    const refuse = (...args: [number, Uint8Array, number, number, number]) => {
      if (args[1].length <= 65_536) return writeSync(...args);
      throw Object.assign(new Error("ENOSPC: no space left on device"), { code: "ENOSPC" });
    };
    for (let round = 0; round < 6; round += 1) {
      fs.writeSync = refuse as typeof writeSync;
      throws(
        () => {
          db.set("large", new Uint8Array(200_000 * (round + 1)));
          db.flush();
        },
        { code: "VARVE_QUOTA_EXCEEDED" },
      );
      fs.writeSync = writeSync;
      await turn(10);
      db.set("a", `round ${round}`);
      db.flush();
      db.set("large", new Uint8Array(150_000 * (round + 1)));
      db.flush();
      await db.compact();
    }
    await turn(2500);
    db.set("a", "still there");
    db.flush();
    await db.close();
  });

  test("a removed file is reported by a flush with nothing to flush, and by its promise", async () => {
    const directory = place();
    const db = await written(directory);
    rmSync(join(directory, "shop.varve"));
    await rejects(db.flushed, lost("removed"));
    throws(() => db.flush(), lost("removed"));
  });

  test("a removed file is reported by close, if anything was written", async () => {
    const directory = place();
    const db = await written(directory);
    rmSync(join(directory, "shop.varve"));
    await rejects(db.close(), lost("removed"));
    expect(readdirSync(directory)).toStrictEqual([]);
    const idle = await open(NAME, { storage: file(directory), ...wasmOption() });
    await idle.close();
    const untouched = await open(NAME, { storage: file(directory), ...wasmOption() });
    rmSync(directory, { recursive: true });
    await untouched.close();
  });

  test("a removed file is noticed by a heartbeat, without a call, and the next write is refused", async () => {
    const directory = place();
    const reported: Error[] = [];
    const db = await written(directory, (error) => reported.push(error));
    rmSync(join(directory, "shop.varve"));
    const deadline = Date.now() + 60_000;
    while (reported.length === 0) {
      assert(Date.now() < deadline, "it is noticed");
      await turn(100);
    }
    expect(Reflect.get(reported[0] as Error, "code")).toBe("VARVE_FILE_LOST");
    expect(db.getText("a")).toBe("flushed before");
    db.set("b", "in a turn that is not committed");
    await rejects(db.committed, lost("removed"));
    expect(db.getText("b")).toBe(undefined);
    throws(() => db.set("b", "again"), lost("removed"));
    expect(reported.length, "it is reported once").toBe(1);
    expect(await saved(db)).toStrictEqual({
      old: "in the backup",
      a: "flushed before",
      b: undefined,
    });
  });

  test("a file opened through a link is lost with the target, and not with the link", async () => {
    const [directory, linked] = [place(), place()];
    await (await open(NAME, { storage: file(directory), ...wasmOption() })).close();
    symlinkSync(join(directory, "shop.varve"), join(linked, "shop.varve"));
    const db = await written(linked);
    rmSync(join(linked, "shop.varve"));
    db.set("b", "still in the file");
    db.flush();
    rmSync(join(directory, "shop.varve"));
    throws(() => db.flush(), lost("removed"));
  });

  test("a lost file with values larger than the memory can still be read and saved", async () => {
    const directory = place();
    const options = { storage: file(directory), memory: 1_048_576, ...wasmOption() };
    const db = await open(NAME, options);
    onTestFinished(() => db.close().catch(() => undefined));
    for (let i = 0; i < 60; i += 1) db.set(`${i}`, new Uint8Array(100_000).fill(i));
    db.flush();
    rmSync(join(directory, "shop.varve"));
    throws(() => db.flush(), lost("removed"));
    const bytes = await new Response(db.export()).bytes();
    const copy = await open("copy", { storage: memory(), from: bytes, ...wasmOption() });
    for (let i = 0; i < 60; i += 1) expect(copy.get(`${i}`)?.[99_999]).toBe(i);
    await copy.close();
  });

  test("a file compacted or replaced by the program itself is not lost", async () => {
    const directory = place();
    const db = await written(directory);
    await db.compact();
    db.flush();
    const bytes = await new Response(db.export()).bytes();
    await db.close();
    const options = { storage: file(directory), from: bytes, replace: true, ...wasmOption() };
    const again = await open(NAME, options);
    again.set("b", "behind the replacement");
    again.flush();
    expect(again.getText("a")).toBe("flushed before");
    await again.close();
  });
});

describe("system errors with their own error code", () => {
  test("a deleted current folder is reported", async () => {
    const directory = place();
    const { stdout, stderr } = await starts(
      `import { rmdirSync } from "node:fs";
       process.chdir(${JSON.stringify(directory)});
       rmdirSync(${JSON.stringify(directory)});
       const storage = file("data");
       const calls = [
         () => open("shop", { storage }),
         () => open("shop", { storage, readOnly: true }),
         () => open("shop"),
         () => varve.destroy("shop", { storage }),
         () => varve.databases({ storage }),
       ];
       for (const call of calls) {
         const error = await call().catch((error) => error);
         console.log(error.code, /working directory, which was deleted/.test(error.message));
       }`,
    ).ended;
    const lines = stdout.trim().split("\n");
    // Bun remembers the path of the folder, which open() creates again then.
    if (context().runtime !== "bun") {
      expect(lines, stderr).toStrictEqual(Array(5).fill("VARVE_STORAGE_UNAVAILABLE true"));
    }
    expect(lines.length, stderr).toBe(5);
    for (const line of lines) assert(/^(undefined|VARVE_[A-Z_]+) /.test(line), line);
  });

  test("a lock that cannot be read is reported when it is acquired, found and released", async () => {
    const directory = place();
    chmodSync(directory, 0o777);
    const { stdout, stderr } = await starts(
      `${shopIn(directory)}
       import fs from "node:fs";
       const lock = ${JSON.stringify(join(directory, "shop.varve.lock"))};
       const refuse = (call) => {
         const before = fs[call];
         fs[call] = (path, ...more) => {
           if (path !== lock) return before.call(fs, path, ...more);
           throw Object.assign(new Error("EACCES: permission denied"), { code: "EACCES" });
         };
         return () => { fs[call] = before; };
       };
       const say = async (what, call) => {
         const error = await call().catch((error) => error);
         console.log(what, error?.code, String(error?.message).includes("EACCES"));
       };
       const db = await shop();
       db.set("a", "1");
       db.flush();
       const readable = refuse("lstatSync");
       await say("close", () => db.close());
       readable();
       fs.writeFileSync(lock, "something");
       refuse("openSync");
       await say("open", () => shop());
       await say("read", () => shop({ readOnly: true }));
       await say("destroy", () => varve.destroy("shop", { storage: file(${JSON.stringify(directory)}) }));`,
    ).ended;
    const unavailable = "VARVE_STORAGE_UNAVAILABLE true";
    const expected = [`open ${unavailable}`, `read ${unavailable}`, `destroy ${unavailable}`];
    expect(stdout.trim().split("\n"), stderr).toStrictEqual([
      "close VARVE_STORAGE true",
      ...expected,
    ]);
  });
});
