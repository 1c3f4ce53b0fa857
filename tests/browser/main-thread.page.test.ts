import { databases, destroy, memory, open, opfs } from "varve";
import { describe, expect, test } from "vitest";
import { wasmOption } from "../support/context.js";
import { rejects } from "../support/errors.js";

describe("a page's main thread", () => {
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
    expect((await databases()).includes("from-a-page")).toBe(true);
    expect(await destroy("from-a-page")).toBe(true);
    expect(await destroy("from-a-page", { storage: opfs() })).toBe(false);
    expect((await databases({ storage: opfs() })).includes("from-a-page")).toBe(false);
  });

  test("main thread: a memory database can be opened", async () => {
    const db = await open("shop", { storage: memory(), ...wasmOption() });
    db.set("a", "1");
    expect(db.getText("a")).toBe("1");
    await db.close();
  });
});
