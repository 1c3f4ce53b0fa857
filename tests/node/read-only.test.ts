import { execFileSync } from "node:child_process";
import fs, { chmodSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { databases, destroy, file, open } from "varve";
import { describe, expect, onTestFinished, test } from "vitest";
import { rejects, throws } from "../support/errors.js";
import { folder, Holder, lockContent, lockFields } from "./support/processes.js";
import { shopIn, starts } from "./support/runtime-programs.js";

const NAME = "shop";
const BUSY = { name: "DatabaseBusyError", code: "VARVE_DATABASE_BUSY" } as const;

/** A folder with a closed database. */
async function written(): Promise<string> {
  const directory = folder();
  const db = await open(NAME, { storage: file(directory) });
  db.set("a", "1");
  await db.close();
  return directory;
}

describe("files opened read-only", () => {
  test("reading leaves no trace: no lock, no folder, and not a byte changed", async () => {
    const directory = await written();
    const path = join(directory, "shop.varve");
    const before = readFileSync(path);
    const db = await open(NAME, { storage: file(directory), readOnly: true });
    expect(db.getText("a")).toBe("1");
    expect(readdirSync(directory)).toStrictEqual(["shop.varve"]);
    await db.close();
    expect(new Uint8Array(readFileSync(path))).toStrictEqual(new Uint8Array(before));
    const missing = join(directory, "missing");
    await rejects(open(NAME, { storage: file(missing), readOnly: true }), {
      name: "DatabaseNotFoundError",
      message: missing,
    });
    expect(readdirSync(directory)).toStrictEqual(["shop.varve"]);
  });

  test("a file that is not writable can be read", async () => {
    const directory = await written();
    const path = join(directory, "shop.varve");
    chmodSync(path, 0o444);
    chmodSync(directory, 0o555);
    try {
      const db = await open(NAME, { storage: file(directory), readOnly: true });
      expect(db.getText("a")).toBe("1");
      await db.close();
    } finally {
      chmodSync(directory, 0o755);
    }
  });

  test("a file is never flushed, which some systems refuse, not even an empty one", async () => {
    const directory = folder();
    await (await open(NAME, { storage: file(directory) })).close();
    const flush = fs.fdatasyncSync;
    onTestFinished(() => {
      fs.fdatasyncSync = flush;
    });
    fs.fdatasyncSync = () => {
      throw Object.assign(new Error("EPERM: operation not permitted"), { code: "EPERM" });
    };
    const db = await open(NAME, { storage: file(directory), readOnly: true });
    expect(db.count()).toBe(0);
    db.flush();
    await db.close();
  });

  test("a file that another process has open for writing is refused, with its process number", async () => {
    const directory = await written();
    const writer = await Holder.start();
    await writer.run("open", { directory, name: NAME });
    const error = await rejects(open(NAME, { storage: file(directory), readOnly: true }), BUSY);
    expect(typeof Reflect.get(error, "pid")).toBe("number");
    await rejects(destroy(NAME, { storage: file(directory) }), BUSY);
    await writer.run("close");
    const db = await open(NAME, { storage: file(directory), readOnly: true });
    expect(db.getText("a")).toBe("1");
    await db.close();
  });

  test("the lock of a killed process is ignored and left", async () => {
    const directory = await written();
    const lock = join(directory, "shop.varve.lock");
    const real = await Holder.start();
    await real.run("open", { directory, name: NAME });
    const content = readFileSync(lock, "utf8");
    await real.run("close");
    writeFileSync(lock, lockContent({ ...lockFields(content), started: "never" }));
    const db = await open(NAME, { storage: file(directory), readOnly: true });
    expect(db.getText("a")).toBe("1");
    await db.close();
    expect(readdirSync(directory).sort()).toStrictEqual(["shop.varve", "shop.varve.lock"]);
  });

  test("a reader keeps its data when a writer comes later", async () => {
    const directory = await written();
    const reader = await open(NAME, { storage: file(directory), readOnly: true });
    const writer = await Holder.start();
    await writer.run("open", { directory, name: NAME });
    expect(reader.getText("a")).toBe("1");
    throws(() => reader.set("a", "2"), { name: "ReadOnlyError" });
    await reader.close();
    await writer.run("close");
  });

  test("overwritten data is distinguished from damage, and reopening shows the new data", async () => {
    const directory = folder();
    const [storage, keys] = [file(directory), Array.from({ length: 80 }, (_, i) => `k${i}`)];
    const first = await open(NAME, { storage });
    for (const key of keys) first.set(key, new Uint8Array(50_000).fill(1));
    await first.close();
    const openReader = () => open(NAME, { storage, readOnly: true, memory: 1_048_576 });
    const reader = await openReader();
    const { stderr } = await starts(
      `${shopIn(directory)}
       const db = await shop();
       db.clear();
       await db.compact();
       for (let i = 0; i < 80; i += 1) db.set("k" + i, new Uint8Array(50_000).fill(2));
       await db.close();`,
    ).ended;
    expect(stderr).toBe("");
    const changed = { name: "StorageError", message: "changed by another program" } as const;
    throws(() => keys.map((key) => reader.get(key)), changed);
    await rejects(reader.verify(), changed);
    await reader.close();
    const again = await openReader();
    expect(keys.map((key) => again.get(key)?.[0]).filter((byte) => byte !== 2)).toStrictEqual([]);
    await again.close();
    // Without a writer it is damage.
    const path = join(directory, "shop.varve");
    writeFileSync(path, readFileSync(path).fill(0, 8_192));
    const damaged = await openReader().catch((error) => error);
    expect(damaged.name).toBe("CorruptionError");
  });
});

describe("paths that cannot be a database file", () => {
  const UNAVAILABLE = { code: "VARVE_STORAGE_UNAVAILABLE" } as const;

  test("a pipe and a dangling link are refused at once", async () => {
    const directory = folder();
    execFileSync("mkfifo", [join(directory, "pipe.varve")]);
    symlinkSync(join(directory, "unmounted", "shop.varve"), join(directory, "shop.varve"));
    const storage = file(directory);
    for (const name of ["pipe", NAME]) {
      for (const readOnly of [false, true]) {
        await rejects(open(name, { storage, readOnly }), { ...UNAVAILABLE, message: "link" });
      }
      await rejects(destroy(name, { storage }), UNAVAILABLE);
    }
    expect(readdirSync(directory).sort()).toStrictEqual(["pipe.varve", "shop.varve"]);
  });

  test("a file that the system hides is not taken for a missing one", async () => {
    const directory = folder();
    symlinkSync("round", join(directory, "round"));
    const storage = file(join(directory, "round"));
    await rejects(open(NAME, { storage, readOnly: true }), UNAVAILABLE);
    await rejects(destroy(NAME, { storage }), UNAVAILABLE);
    await rejects(databases({ storage }), UNAVAILABLE);
  });
});

describe("folders of databases", () => {
  test("databases lists the database files only, and nothing for a missing folder", async () => {
    const directory = await written();
    for (const other of ["notes.txt", "%zz.varve", "Upper.varve", ".varve", "shop.varve.lock.x"]) {
      writeFileSync(join(directory, other), "");
    }
    expect(await databases({ storage: file(directory) })).toStrictEqual(["shop"]);
    expect(await databases({ storage: file(join(directory, "missing")) })).toStrictEqual([]);
  });

  test("destroy removes the file and its lock, and keeps all else", async () => {
    const directory = await written();
    writeFileSync(join(directory, "notes.txt"), "");
    expect(await destroy(NAME, { storage: file(directory) })).toBe(true);
    expect(readdirSync(directory)).toStrictEqual(["notes.txt"]);
    expect(await destroy(NAME, { storage: file(join(directory, "missing")) })).toBe(false);
  });
});
