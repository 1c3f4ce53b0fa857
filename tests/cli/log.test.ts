/** `varve log`. */

import { readFileSync, writeFileSync } from "node:fs";
import { json, u32 } from "varve/struct";
import { describe, expect, test } from "vitest";
import { database, golden, printed, varve } from "./support.js";

function shop(): Promise<string> {
  return database((db) => {
    const users = db.collection("users", json<string>(), { key: u32 });
    db.transaction(
      (tx) => {
        tx.set("price", "12");
        users.set(7, "ann");
      },
      { note: "first\nprices" },
    );
    db.commit();
    db.delete("price");
    db.commit();
  });
}

const documentsOf = (text: string): Record<string, unknown>[] =>
  text
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line));

describe("varve log", () => {
  test("transactions, their notes and records are printed, one below the other", async () => {
    const path = await shop();
    const [first, ...others] = (await printed("log", path, "--values")).split("\n");
    expect(first).toMatch(/^transaction \d+ {2}\d{4}-\d\d-\d\dT[\d:.]+Z {2}first\\nprices$/);
    expect(others.map((line) => line.replace(/\d+ /, "N "))).toStrictEqual([
      "  set N price 12",
      '  set N users 7 "ann"',
      "transaction 6".replace("6", others[2]?.slice(12) ?? ""),
      "  delete N price",
      "",
    ]);
    expect(others[2]).toMatch(/^transaction \d+$/);
  });

  test("--reverse prints the newest transaction first", async () => {
    const path = await shop();
    const lines = (await printed("log", path, "--flat", "--reverse")).trimEnd().split("\n");
    expect(lines.map((line) => line.split("\t")[0])).toStrictEqual([
      "transaction",
      "delete",
      "transaction",
      "set",
      "set",
    ]);
    const args = ["log", path, "--reverse", "--since", "2026-11-27T03:00Z"];
    const { code, stderr } = await varve(args);
    expect(code).toBe(2);
    expect(stderr).toContain("must be numbers");
  });

  test("diff prints each key that changed since a commit, and refuses other numbers", async () => {
    const path = await shop();
    const all = (await printed("diff", path, "--since", "0", "--values")).trimEnd().split("\n");
    expect(all.map((line) => line.replace(/\t\d+/, ""))).toStrictEqual([
      'set\tusers\t7\t"ann"',
      "delete\tprice",
    ]);
    const [since = ""] = /\d+/.exec(all[0] ?? "") ?? [];
    const [change] = documentsOf(await printed("diff", path, "--since", since, "--json"));
    expect([change?.type, change?.key]).toStrictEqual(["delete", "price"]);
    expect(await printed("diff", path, "--since", "0", "--collection", "other")).toBe("");
    for (const args of [[], ["--since", "x"], ["--since", "123456789"]]) {
      expect((await varve(["diff", path, ...args])).code).toBe(2);
    }
  });

  test("lines and JSON documents have the same items; options select transactions", async () => {
    const path = await shop();
    const lines = (await printed("log", path, "--flat")).trimEnd().split("\n");
    expect(lines.map((line) => line.split("\t")[0])).toStrictEqual([
      "transaction",
      "set",
      "set",
      "transaction",
      "delete",
    ]);
    const documents = documentsOf(await printed("log", path, "--json", "--values"));
    expect(documents.map(({ type, key, value }) => [type, key, value])).toStrictEqual([
      ["transaction", undefined, undefined],
      ["set", "price", "12"],
      ["set", 7, '"ann"'],
      ["transaction", undefined, undefined],
      ["delete", "price", undefined],
    ]);
    const since = String(documents[0]?.number);
    const later = documentsOf(await printed("log", path, "--json", "--since", since));
    expect(later.map(({ type }) => type)).toStrictEqual(["transaction", "delete"]);
    const one = documentsOf(await printed("log", path, "--json", "--limit", "1"));
    expect(one).toHaveLength(3);
    const none = await printed("log", path, "--until", "2001-01-01");
    expect(none).toBe("");
    for (const wrong of [
      ["--since", "yesterday"],
      ["--limit", "-1"],
    ]) {
      expect((await varve(["log", path, ...wrong])).code).toBe(2);
    }
  });

  test("a file of the format's examples has its transactions", async () => {
    const path = golden("transactions");
    const documents = documentsOf(await printed("log", path, "--json"));
    const notes = documents.filter(({ type }) => type === "transaction");
    expect(notes.map(({ number, note, client }) => [number, note, client])).toStrictEqual([
      [1, "first stock", undefined],
      [2, "", "77"],
      [3, "größer", "77"],
    ]);
  });

  test("a damaged file is shown with the damage in its place, and exits with code 1", async () => {
    const path = await database((db) => {
      for (let i = 0; i < 20; i += 1) {
        db.set(`key ${i}`, `value ${i}`);
        db.flush();
      }
    });
    const bytes = readFileSync(path);
    const at = bytes.indexOf("value 7");
    bytes[at]! ^= 1;
    writeFileSync(path, bytes);
    const { code, stdout, stderr } = await varve(["log", path, "--json"]);
    expect([code, stderr]).toStrictEqual([1, ""]);
    const documents = documentsOf(stdout.toString());
    const keys = documents.filter(({ type }) => type === "set").map(({ key }) => key);
    const all = Array.from({ length: 20 }, (_, i) => `key ${i}`);
    expect(keys).toStrictEqual(all.filter((key) => key !== "key 7"));
    const [error, ...more] = documents.filter(({ type }) => type === "error");
    expect(more).toStrictEqual([]);
    expect(Number(error?.offset)).toBeLessThanOrEqual(at);
    expect(Number(error?.offset) + Number(error?.length)).toBeGreaterThan(at);
  });
});
