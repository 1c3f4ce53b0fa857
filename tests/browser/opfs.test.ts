import { DatabaseBusyError, databases, destroy, open } from "varve";
import {
  cleanup,
  context,
  equal,
  type OtherWorker,
  ok,
  rejects,
  suite,
  test,
  wasmOption,
} from "../harness.js";

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
  cleanup(() => held.close());
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
  ok(start !== undefined, "the runner starts workers");
  const other = start(`import { open } from "${context().root}/dist/index.js";\n${program}`);
  cleanup(() => other.kill());
  return other;
}

suite("OPFS", () => {
  test("OPFS: it is the default storage of a dedicated worker, under the database's name", async () => {
    const { name, file } = fresh();
    const db = await open(name, wasmOption());
    db.set("a", "1");
    await db.close();
    const root = await navigator.storage.getDirectory();
    const { size } = await (await root.getFileHandle(file)).getFile();
    ok(size > 0);
    const again = await open(name, wasmOption());
    equal(again.getText("a"), "1");
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
    equal(await other.said, `${together ? "opened" : busy} ${busy}`);
    equal(reader.getText("a"), "1");
    await reader.close();
    const writer = await open(name, wasmOption());
    equal(writer.recovery.wasClean, true);
    await writer.close();
  });

  test("OPFS: a database that another worker has open cannot be destroyed", async () => {
    const { name } = fresh();
    const other = worker(`const db = await open("${name}"); postMessage("open");`);
    equal(await other.said, "open");
    await rejects(destroy(name), { name: "DatabaseBusyError", code: "VARVE_DATABASE_BUSY" });
    ok((await databases()).includes(name));
    await other.kill();
  });

  test("OPFS: a database that another worker has open is busy", async () => {
    const { name } = fresh();
    const other = worker(`const db = await open("${name}"); postMessage("open");`);
    equal(await other.said, "open");
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
    equal(await other.said, "saved");
    await other.kill();
    const db = await openWhenFree(name);
    equal(db.count() >= 1000, true);
    for (let i = 0; i < 1000; i++) equal(db.getText(`key ${i}`), `value ${i}`);
    equal(db.recovery.wasClean, false);
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
    equal(await other.said, "saved");
    await other.kill();
    const db = await openWhenFree(name);
    equal(db.getText("a"), "1");
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
