import { databases, destroy, memory, open, opfs } from "varve";
import { equal, rejects, suite, test, wasmOption } from "../harness.js";

suite("a page's main thread", () => {
  test("main thread: open is refused and names connect", async () => {
    const unavailable = {
      name: "StorageUnavailableError",
      code: "VARVE_STORAGE_UNAVAILABLE",
      message: /main thread.*connect\(\)/,
    };
    await rejects(open("shop"), unavailable);
    await rejects(open("shop", { storage: opfs() }), unavailable);
  });

  test("main thread: databases of its workers can be listed and removed", async () => {
    const root = await navigator.storage.getDirectory();
    await root.getFileHandle("from-a-page.varve", { create: true });
    equal((await databases()).includes("from-a-page"), true);
    equal(await destroy("from-a-page"), true);
    equal(await destroy("from-a-page", { storage: opfs() }), false);
    equal((await databases({ storage: opfs() })).includes("from-a-page"), false);
  });

  test("main thread: a memory database can be opened", async () => {
    const db = await open("shop", { storage: memory(), ...wasmOption() });
    db.set("a", "1");
    equal(db.getText("a"), "1");
    await db.close();
  });
});
