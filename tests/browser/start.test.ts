/** What a worker does side by side when it opens a database for its page. */

import { connect, type Database, databases, destroy, open, opfs, serve } from "varve";
import { assert, describe, expect, onTestFinished, test } from "vitest";
import { context, wasmOption } from "../support/context.js";
import { rejects } from "../support/errors.js";

async function wasmBytes(): Promise<ArrayBuffer> {
  const file = context().build === "debug" ? "varve.debug.wasm" : "varve.wasm";
  return (await fetch(`${context().root}/dist/${file}`)).arrayBuffer();
}

describe("a worker's start", () => {
  test("start: a response is compiled whatever media type its server states", async () => {
    const bytes = await wasmBytes();
    for (const type of ["application/wasm", "Application/WASM", "text/html", undefined]) {
      const headers = type === undefined ? {} : { "content-type": type };
      const name = `start-type-${type?.replace("/", "-")}`;
      const db = await open(name, { wasm: new Response(bytes.slice(0), { headers }) });
      db.set("a", "1");
      expect(db.getText("a")).toBe("1");
      await db.close();
      expect(await destroy(name)).toBe(true);
    }
  });

  test("start: a response that is no wasm is refused, also if its server states that it is", async () => {
    for (const type of ["application/wasm", "text/html"]) {
      const wasm = new Response("<!doctype html>", { headers: { "content-type": type } });
      const error = await rejects(() => open("start-no-wasm", { wasm }));
      expect((error as { code?: unknown }).code).toBe("VARVE_WASM");
    }
  });

  test("start: without the wasm, a client's call fails and leaves neither a database nor an open file", async () => {
    const name = "start-failed";
    const failure = new Error("the wasm is not there");
    const wasm = new Promise<Response>((_, reject) => setTimeout(() => reject(failure), 100));
    wasm.catch(() => {});
    const client = connect(name, { worker: serve(name, { wasm }).here });
    onTestFinished(() => client.close());
    const error = await rejects(() => client.get("a"));
    assert(/the wasm is not there/.test(String(error)), String(error));
    expect((await databases()).includes(name)).toBe(false);
    const db = await open(name, wasmOption());
    await db.close();
    expect(await destroy(name)).toBe(true);
  });

  test("start: a file that was removed, or made again, after it was looked up is found as it is now", async () => {
    const name = "start-removed";
    const storage = opfs();
    const options = { ...wasmOption(), storage };
    for (const again of [false, true]) {
      const first = await open(name, options);
      first.set("a", "old");
      await first.close();
      storage.lookUp?.(name);
      await new Promise((resolve) => setTimeout(resolve, 50));
      await destroy(name);
      if (again) {
        const other = await open(name, { ...options, storage: opfs() });
        other.set("a", "new");
        await other.close();
      }
      const db = await open(name, options);
      expect(db.getText("a")).toBe(again ? "new" : undefined);
      await db.close();
      await destroy(name);
    }
  });

  test("start: a look-up of a missing database creates none", async () => {
    const storage = opfs();
    storage.lookUp?.("start-missing");
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect((await databases()).includes("start-missing")).toBe(false);
    const error = await rejects(() => open("start-missing", { storage, readOnly: true }));
    expect((error as { code?: unknown }).code).toBe("VARVE_DATABASE_NOT_FOUND");
  });

  test("start: the first procedure has all the memory for its turn, and so has a program that joins", async () => {
    const wanted = 2 * 64 * 1_048_576;
    for (const joins of [false, true]) {
      const name = `start-memory-${joins}`;
      const procedures = { bytes: (db: Database) => db.stats().wasmBytes };
      const served = serve(name, { ...wasmOption(), procedures });
      const client = connect<typeof served>(name, { worker: served.here });
      if (joins) await client.get("a");
      const db = joins ? await open(name, wasmOption()) : undefined;
      const bytes = db?.stats().wasmBytes ?? (await client.call.bytes());
      assert(bytes >= wanted, `${bytes} bytes`);
      await db?.close();
      await client.close();
      await destroy(name);
    }
  });
});
