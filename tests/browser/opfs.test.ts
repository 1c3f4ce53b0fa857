import { DatabaseBusyError, databases, destroy, open } from "varve";
import { assert, describe, expect, onTestFinished, test } from "vitest";
import { context, type OtherWorker, wasmOption } from "../support/context.js";
import { rejects } from "../support/errors.js";

let counter = 0;

/** A new name in this profile, and the name of its file. */
function fresh(): { name: string; file: string } {
  counter += 1;
  return { name: `opfs-${counter}`, file: `opfs-${counter}.varve` };
}

/** The file of a database, held open by another worker until the test ends. */
async function hold(file: string): Promise<{ close(): void }> {
  const root = await navigator.storage.getDirectory();
  const handle = (await root.getFileHandle(file, { create: true })) as FileSystemFileHandle & {
    createSyncAccessHandle(): Promise<{ close(): void }>;
  };
  const held = await handle.createSyncAccessHandle();
  onTestFinished(() => held.close());
  return held;
}

/** Whether this browser lets several readers share a file. Firefox does not. */
async function sharesReaders(file: string): Promise<boolean> {
  const root = await navigator.storage.getDirectory();
  const handle = (await root.getFileHandle(file)) as FileSystemFileHandle & {
    createSyncAccessHandle(options: { mode: "read-only" }): Promise<{ close(): void }>;
  };
  const first = await handle.createSyncAccessHandle({ mode: "read-only" });
  try {
    (await handle.createSyncAccessHandle({ mode: "read-only" })).close();
    return true;
  } catch {
    return false;
  } finally {
    first.close();
  }
}

/** A worker that runs this program, which may post messages. */
function worker(program: string): OtherWorker {
  const start = context().startWorker;
  assert(start !== undefined, "the runner starts workers");
  const other = start(`import { open } from "${context().root}/dist/index.js";\n${program}`);
  onTestFinished(() => other.kill());
  return other;
}

describe("OPFS", () => {
  test("OPFS: it is the default storage of a dedicated worker, under the database's name", async () => {
    const { name, file } = fresh();
    const db = await open(name, wasmOption());
    db.set("a", "1");
    await db.close();
    const root = await navigator.storage.getDirectory();
    const { size } = await (await root.getFileHandle(file)).getFile();
    assert(size > 0);
    const again = await open(name, wasmOption());
    expect(again.getText("a")).toBe("1");
    await again.close();
  });

  test("OPFS: a database in use elsewhere is busy, and opens when it is released", async () => {
    const { name, file } = fresh();
    const held = await hold(file);
    await rejects(open(name, wasmOption()), {
      name: "DatabaseBusyError",
      code: "VARVE_DATABASE_BUSY",
      message: /another worker or tab/,
      cause: true,
    });
    held.close();
    await (await open(name, wasmOption())).close();
  });

  test("OPFS: read-only workers share a database where the browser allows it, and a writer is refused", async () => {
    const { name, file } = fresh();
    const db = await open(name, wasmOption());
    db.set("a", "1");
    await db.close();
    const together = await sharesReaders(file);
    const reader = await open(name, { readOnly: true, ...wasmOption() });
    const other = worker(`
      const read = await open("${name}", { readOnly: true }).then(
        (db) => db.close().then(() => "opened"),
        (error) => error.code,
      );
      const written = await open("${name}").catch((error) => error.code);
      postMessage(read + " " + written);
    `);
    const busy = "VARVE_DATABASE_BUSY";
    expect(await other.firstMessage).toBe(`${together ? "opened" : busy} ${busy}`);
    expect(reader.getText("a")).toBe("1");
    await reader.close();
    const writer = await open(name, wasmOption());
    expect(writer.recovery.wasClean).toBe(true);
    await writer.close();
  });

  test("OPFS: a database that another worker has open cannot be destroyed", async () => {
    const { name } = fresh();
    const other = worker(`const db = await open("${name}"); postMessage("open");`);
    expect(await other.firstMessage).toBe("open");
    await rejects(destroy(name), { name: "DatabaseBusyError", code: "VARVE_DATABASE_BUSY" });
    assert((await databases()).includes(name));
    await other.kill();
  });

  test("OPFS: a database that another worker has open is busy", async () => {
    const { name } = fresh();
    const other = worker(`const db = await open("${name}"); postMessage("open");`);
    expect(await other.firstMessage).toBe("open");
    await rejects(open(name, wasmOption()), { name: "DatabaseBusyError" });
    await other.kill();
  });

  test("OPFS: committed writes survive killing the worker during its work", async () => {
    const { name } = fresh();
    const other = worker(`
      const db = await open("${name}");
      for (let i = 0; i < 1000; i++) db.set("key " + i, "value " + i);
      db.commit();
      db.set("not committed", "1");
      postMessage("saved");
      for (;;) db.set("endless", "1".repeat(100));
    `);
    expect(await other.firstMessage).toBe("saved");
    await other.kill();
    const db = await openWhenFree(name);
    expect(db.count() >= 1000).toBe(true);
    for (let i = 0; i < 1000; i++) expect(db.getText(`key ${i}`)).toBe(`value ${i}`);
    expect(db.recovery.wasClean).toBe(false);
    await db.close();
  });

  test("OPFS: writes of an earlier turn survive killing the worker", async () => {
    const { name } = fresh();
    const other = worker(`
      const db = await open("${name}");
      db.set("a", "1");
      await db.committed;
      postMessage("saved");
    `);
    expect(await other.firstMessage).toBe("saved");
    await other.kill();
    const db = await openWhenFree(name);
    expect(db.getText("a")).toBe("1");
    await db.close();
  });
});

/** The file of a killed worker is released a moment later. */
async function openWhenFree(name: string) {
  for (;;) {
    try {
      return await open(name, wasmOption());
    } catch (error) {
      if (!(error instanceof DatabaseBusyError)) throw error;
    }
  }
}
