/** `varve at`. */

import { dirname } from "node:path";
import { type Database, file, open } from "varve";
import { json, u32 } from "varve/struct";
import { describe, expect, onTestFinished, test } from "vitest";
import { database, printed, varve } from "./support.js";

const KEEP = { history: "keep" } as const;

interface Shop {
  readonly path: string;
  readonly first: number;
}

async function shop(): Promise<Shop> {
  let first = 0;
  const fill = (db: Database) => {
    const users = db.collection("users", json<string>(), { key: u32 });
    db.transaction(
      (tx) => {
        tx.set("price", "12");
        tx.set("old", "1");
        users.set(7, "ann");
      },
      { note: "first" },
    );
    db.commit();
    first = db.lastCommit;
    db.set("price", "13");
    db.delete("old");
    users.set(7, "bob");
    users.set(8, "cy");
    db.commit();
  };
  const path = await database(fill, KEEP);
  return { path, first };
}

describe("varve at", () => {
  test("keys and values of a past commit are printed as list and get print them", async () => {
    const { path, first } = await shop();
    const n = String(first);
    expect(await printed("at", path, n)).toBe("old\nprice\n");
    expect(await printed("at", path, n, "list", "--values")).toBe("old\t1\nprice\t12\n");
    expect(await printed("at", path, n, "list", "--prefix", "p")).toBe("price\n");
    expect(await printed("at", path, n, "get", "price")).toBe("12");
    expect(await printed("at", path, n, "--collection", "users", "--values")).toBe('7\t"ann"\n');
    expect(await printed("at", path, n, "get", "7", "--collection", "users")).toBe('"ann"\n');
    const document = JSON.parse(await printed("at", path, n, "get", "price", "--json"));
    expect([document.found, document.key, document.value]).toStrictEqual([true, "price", "12"]);
    expect(await printed("at", path, String(first + 4), "get", "price")).toBe("13");
    expect(await printed("at", path, new Date().toISOString(), "get", "price")).toBe("13");
    expect((await varve(["at", path, n, "get", "none"])).code).toBe(1);
    expect((await varve(["at", path, n, "get", "8", "--collection", "users"])).code).toBe(1);
    expect((await varve(["at", path, "0", "--collection", "users"])).code).toBe(1);
  });

  test("what is not understood, not kept and not there any more has its exit code", async () => {
    const { path, first } = await shop();
    for (const words of [
      [],
      ["x"],
      ["0", "get"],
      ["0", "got", "a"],
      ["0", "list", "a"],
      ["0", "get", "a", "b"],
    ]) {
      const { code, stderr } = await varve(["at", path, ...words]);
      expect([code, stderr.includes("varve at --help")]).toStrictEqual([2, true]);
    }
    expect((await varve(["at", path, "99999999"])).code).toBe(2);
    const plain = await database((db) => db.set("a", "1"));
    const { code, stderr } = await varve(["at", plain, "1"]);
    expect([code, stderr.includes("does not keep its history")]).toStrictEqual([2, true]);
    const db = await open("shop", { storage: file(dirname(path)) });
    onTestFinished(() => db.close());
    await db.pack({ before: db.lastCommit });
    await db.close();
    const packed = await varve(["at", path, String(first)]);
    expect([packed.code, packed.stderr.includes("pack()")]).toStrictEqual([1, true]);
  });
});
