import { memory, open } from "varve";
import { text } from "varve/struct";
import { assert, describe, expect, onTestFinished, test } from "vitest";
import { wasmOption } from "../support/context.js";
import { rejects } from "../support/errors.js";
import { FakeStorage } from "./fake-storage.js";
import { BAD, type Bytes, exportOf, ownerOf, streamOf } from "./import-support.js";
import { everywhere, freshName, opened } from "./storages.js";

const EXISTS = { name: "DatabaseExistsError", code: "VARVE_DATABASE_EXISTS" } as const;

everywhere("import", ({ storage }) => {
  test("a database filled from bytes has all their data, in every form, and goes on like any other", async () => {
    const bytes = await exportOf("new", 3_000, 2_500_000);
    const framed = new Uint8Array(bytes.length + 100);
    framed.set(bytes, 50);
    const forms = [
      bytes,
      bytes.slice().buffer,
      new DataView(framed.buffer, 50, bytes.length),
      new Blob([bytes]),
      new Response(bytes.slice()),
      streamOf(bytes, 100_003),
      streamOf(bytes.slice(0), 1 << 20),
      Promise.resolve(bytes),
    ];
    for (const from of forms) {
      const name = freshName();
      const db = await opened(storage, { from: from as Bytes }, name);
      expect(await ownerOf(db)).toBe("new");
      db.set("more", "1");
      db.collection("others", text()).set("a", "1");
      await db.close();
      const again = await opened(storage, {}, name);
      expect(again.getText("more")).toBe("1");
      again.delete("more");
      expect(await ownerOf(again)).toBe("new");
      await again.close();
    }
  });

  test("an existing database is refused, and left as it is", async () => {
    const from = await exportOf("new", 10);
    const name = freshName();
    const db = await opened(storage, {}, name);
    db.set("a", "1");
    await rejects(open(name, { storage, from, ...wasmOption() }), { ...EXISTS, message: "open" });
    await db.close();
    await rejects(open(name, { storage, from, ...wasmOption() }), {
      ...EXISTS,
      message: "replace",
    });
    const again = await opened(storage, {}, name);
    expect([...again.keys()]).toStrictEqual(["a"]);
  });

  test("replace replaces a database, whichever is larger", async () => {
    const name = freshName();
    const small = await exportOf("small", 5);
    const large = await exportOf("large", 4_000, 3_000_000);
    const db = await opened(storage, {}, name);
    db.set("secret", "of the first");
    const wanted = { storage, from: small, replace: true, ...wasmOption() };
    await rejects(open(name, wanted), { name: "DatabaseBusyError", message: "Close it" });
    await db.close();
    for (const [bytes, owner] of [
      [small, "small"],
      [large, "large"],
      [small, "small"],
    ] as const) {
      const replaced = await opened(
        storage,
        { from: streamOf(bytes, 77_777), replace: true },
        name,
      );
      expect(await ownerOf(replaced)).toBe(owner);
      if (owner === "small") assert(replaced.stats().fileBytes < 3_000_000);
      replaced.set("more", "1");
      await replaced.close();
      const again = await opened(storage, {}, name);
      expect(again.getText("more")).toBe("1");
      again.delete("more");
      expect(await ownerOf(again)).toBe(owner);
      await again.close();
    }
    // If there is nothing to replace, it is filled as without the option.
    const fresh = await opened(storage, { from: small, replace: true });
    expect(await ownerOf(fresh)).toBe("small");
  });

  test("a replaced database keeps its name and nothing of the old one", async () => {
    if (storage.databases === undefined) throw new Error("this storage cannot list databases");
    const name = freshName();
    const from = await exportOf("new", 100);
    await (await opened(storage, { from }, name)).close();
    const before = await storage.databases();
    await (await opened(storage, { from, replace: true }, name)).close();
    expect((await storage.databases()).sort()).toStrictEqual(before.sort());
    expect(await storage.destroy?.(name)).toBe(true);
  });
});

describe("options of an import", () => {
  test("a response or stream that is locked or was read is refused", async () => {
    const used = new Response(new Uint8Array(9));
    await used.arrayBuffer();
    const locked = new Response(new Uint8Array(9));
    const reader = locked.body?.getReader();
    const reported = { ...BAD, message: /was already read, or is being read/ };
    for (const from of [used, locked, locked.body as ReadableStream<Bytes>]) {
      await rejects(open("a", { storage: memory(), from, ...wasmOption() }), reported);
      await rejects(open("a", { from, readOnly: true, ...wasmOption() }), reported);
    }
    await reader?.cancel();
  });

  test("options without a meaning are refused", async () => {
    const from = await exportOf("new", 1);
    const storage = memory();
    for (const wrong of [
      { replace: true },
      { replace: 1 as never, from },
      { replace: true, from, readOnly: true },
      { from, readOnly: true, storage },
    ]) {
      await rejects(open("a", { ...wrong, ...wasmOption() }), BAD);
    }
  });

  test("replace is refused by a storage that cannot replace, and nothing is changed", async () => {
    const fake = new FakeStorage();
    const db = await opened(fake);
    db.set("a", "1");
    await db.close();
    const before = fake.content.slice();
    const wanted = { storage: fake, from: await exportOf("new", 1), replace: true };
    await rejects(open("a", { ...wanted, ...wasmOption() }), {
      ...BAD,
      message: "not replace any",
    });
    expect(fake.content).toStrictEqual(before);
  });
});

describe("opening during an import", () => {
  test("an open during the import joins it, and sees all of it", async () => {
    const bytes = await exportOf("new", 500);
    const storage = memory();
    const name = freshName();
    const first = open(name, { storage, from: streamOf(bytes, 5_000), ...wasmOption() });
    const second = open(name, { storage, ...wasmOption() });
    const [a, b] = await Promise.all([first, second]);
    onTestFinished(() => Promise.all([a.close(), b.close()]).then(() => {}));
    expect(await ownerOf(b)).toBe("new");
  });
});
