import { chdir, cwd } from "node:process";
import { open } from "varve";
import { createStore, get, set } from "varve/idb-keyval";
import { expect, onTestFinished, test } from "vitest";
import { context } from "../support/context.js";
import { rejects } from "../support/errors.js";
import { idbKeyvalTests } from "./idb-keyval.js";
import { fresh } from "./support.js";

idbKeyvalTests("a database", () => fresh("database"));
idbKeyvalTests("a client", () => fresh("client"));

test("keyval: a database that is given by its name is opened once, at the first call", async () => {
  const before = cwd();
  onTestFinished(() => chdir(before));
  chdir(context().directory ?? ".");
  const first = createStore("by name", "a");
  const second = createStore("by name", "b");
  const holder = await open("by name", { durability: "flushed" });
  // The options differ, and then it can be opened by the next call.
  await rejects(get("key", first), { code: "VARVE_OPTIONS_MISMATCH" });
  await holder.close();
  await Promise.all([set("key", 1, first), set("key", 2, second)]);
  const db = await open("by name");
  expect([await get("key", first), await get("key", second), db.count()]).toStrictEqual([1, 2, 2]);
  await db.close();
});
