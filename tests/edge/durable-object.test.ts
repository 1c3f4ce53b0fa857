/** A database within a Durable Object, driven over HTTP. */

import { mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { memory, open } from "varve";
import { assert, describe, expect, test } from "vitest";
import { shown } from "../packaging/documented-programs.js";
import { context } from "../support/context.js";
import { bundledWorker, type Serving, serving, withObjects } from "./workerd.js";

let folders = 0;

/** A new folder with a Worker, by default that of these tests, which can be served repeatedly. */
async function worker(
  source = 'export * from "./tests/edge/shop.ts"; export { default } from "./tests/edge/shop.ts";',
): Promise<() => Promise<Serving>> {
  const folder = join(context().directory ?? ".", `edge-${folders++}`);
  mkdirSync(folder, { recursive: true });
  await bundledWorker(source, folder);
  return () => serving(folder, withObjects(folder, "Shop"));
}

async function call({ url }: Serving, path: string, body = ""): Promise<unknown> {
  const response = await fetch(url + path, { method: "POST", body });
  const text = await response.text();
  if (!response.ok) throw new Error(`${path}: ${text}`);
  return JSON.parse(text);
}

describe("a database in a Durable Object", () => {
  test("set, get, update and rollback work, and the data survives a restart", async () => {
    const start = await worker();
    const first = await start();
    await call(first, "one/set", "yeezy=Boost 350");
    await call(first, "one/stock", "2");
    expect([
      await call(first, "one/buy", "ann"),
      await call(first, "one/buy", "bob"),
      await call(first, "one/buy", "cid"),
    ]).toStrictEqual([true, true, false]);
    expect(await call(first, "one/undone")).toBe(false);
    expect(await call(first, "one/twice")).toBe("seen");
    expect(await call(first, "one/flushed")).toBe(false);
    await first.kill();
    const second = await start();
    expect(await call(second, "one/get", "yeezy")).toBe("Boost 350");
    expect(await call(second, "one/left")).toBe(0);
    expect(await call(second, "one/get", "kept")).toBe("1");
    expect(await call(second, "one/buyers")).toStrictEqual(["ann", "bob"]);
  });

  test("objects of the same class have separate databases of the same name", async () => {
    const edge = await (await worker())();
    await call(edge, "one/set", "key=one");
    expect(await call(edge, "two/get", "key")).toBe(null);
    await call(edge, "two/set", "key=two");
    expect(await call(edge, "one/get", "key")).toBe("one");
    expect(await call(edge, "one/made"), "objects that one isolate has").toBe(2);
  });

  test("flushed waits for the platform's sync, which is not called before", async () => {
    const edge = await (await worker())();
    expect(await call(edge, "one/synced")).toStrictEqual([0, 1]);
  });

  test("the file has pages of 16 KB, and 4 MiB of memory", async () => {
    const edge = await (await worker())();
    const sizes = (await call(edge, "one/sizes")) as Record<string, number>;
    const { longest, pages = 0, budgetBytes, memoryBytes = 0, wasmBytes = 0 } = sizes;
    expect([longest, budgetBytes]).toStrictEqual([16_384, 4_194_304]);
    assert(pages > 900, `${pages} pages`);
    assert(memoryBytes <= 1.25 * 4_194_304, `${memoryBytes} bytes of records`);
    assert(wasmBytes < 24 * 1_048_576, `${wasmBytes} bytes of memory`);
  });

  test("a full object refuses writes, and accepts them again after deletions", async () => {
    const edge = await (await worker())();
    const reported = (await call(edge, "one/full")) as Record<string, unknown>;
    const { written, kept, ...rest } = reported;
    expect(rest).toStrictEqual({ refused: "VARVE_QUOTA_EXCEEDED", isThere: true, after: "1" });
    expect(kept).toBe(Number(written) - 1);
    assert(Number(kept) > 100, `${kept} were written`);
  });

  test("writes are refused after the object rolled back rows, and the database opens intact again", async () => {
    const start = await worker();
    const edge = await start();
    for (const length of [100, 100_000, 3_000_000]) {
      const reported = await call(edge, `torn-${length}/torn`, String(length));
      const [first = "", second = "", ...opened] = reported as [string, string, ...unknown[]];
      assert(
        /^VARVE_STORAGE .*rolled back.*db\.transaction\(\)/.test(first),
        `${length}: ${first}`,
      );
      assert(/^VARVE_DATABASE_POISONED .*rolled back/.test(second), `${length}: ${second}`);
      expect(opened, `${length}`).toStrictEqual([true, ["again", "before"]]);
    }
    await edge.kill();
    const next = await start();
    expect(await call(next, "torn-100000/get", "again")).toBe("1");
  });

  test("writes are refused after deleteAll, and the database is new when opened again", async () => {
    const edge = await (await worker())();
    const [first = "", ...opened] = (await call(edge, "one/emptied")) as [string, ...unknown[]];
    assert(/^VARVE_STORAGE .*deleteAll\(\)/.test(first), first);
    expect(opened).toStrictEqual([true, ["again"]]);
  });

  test("export works without a timer, and the copy opens from its bytes", async () => {
    const edge = await (await worker())();
    await call(edge, "one/set", "key=one");
    expect(await call(edge, "one/exported")).toStrictEqual(["one", 1, 0]);
  });

  test("import and replace work, and damaged bytes keep the previous database", async () => {
    const edge = await (await worker())();
    await call(edge, "one/set", "key=one");
    expect(await call(edge, "one/filled")).toStrictEqual([
      ...["one", true],
      "VARVE_DATABASE_EXISTS",
      "VARVE_CORRUPTION",
      ...["one", 2],
      ...["two", true],
      ...[2, ["copy", "shop"]],
      1,
      true,
    ]);
  });

  test("no answered sale is lost and none is sold twice, killed by -9 repeatedly", async () => {
    const start = await worker();
    const sold = new Set<string>();
    const stock = 2_000;
    let edge = await start();
    await call(edge, "drop/stock", String(stock));
    for (let round = 0; round < 3; round++) {
      await sellUntil(edge, sold, sold.size + 200, `${round}`);
      await edge.kill();
      edge = await start();
      const buyers = new Set((await call(edge, "drop/buyers")) as string[]);
      for (const buyer of sold) assert(buyers.has(buyer), `${buyer} was sold a pair`);
      expect(buyers.size + Number(await call(edge, "drop/left"))).toBe(stock);
    }
  });

  test("the table behaves like a file, whatever is read, written and truncated", async () => {
    const edge = await (await worker())();
    expect(await call(edge, "files/file")).toBe("the same");
  });

  test("no timer is set, and writes do the maintenance", async () => {
    const edge = await (await worker())();
    const churned = (await call(edge, "churn/churn")) as Record<string, number>;
    expect(churned.timers).toBe(0);
    const { fileBytes = 0, liveBytes = 0 } = churned;
    assert(
      liveBytes > 2_000_000 && fileBytes < 12_000_000,
      `${liveBytes} live in ${fileBytes} bytes`,
    );
    const { ok: whole, fileBytes: small } = (await call(edge, "churn/compact")) as {
      ok: boolean;
      fileBytes: number;
    };
    assert(whole && small < fileBytes, `${small} of ${fileBytes} bytes when compacted`);
  });

  test("several databases are tables that can be listed and destroyed", async () => {
    const edge = await (await worker())();
    expect(await call(edge, "one/storages")).toStrictEqual({
      names: ["Another Shop", "shop"],
      there: [true, false],
      after: ["shop"],
    });
    assert(/^VARVE_DATABASE_NOT_FOUND /.test(String(await call(edge, "one/missing"))));
    assert(/^VARVE_DATABASE_BUSY /.test(String(await call(edge, "one/busy"))));
  });

  test("equals the program of docs/cloudflare.md, which runs", async () => {
    const { source } = shown("docs/cloudflare.md", "worker.ts");
    const handler = `export default { async fetch(request, { OBJECTS }) {
      return Response.json(await OBJECTS.get(OBJECTS.idFromName("shop")).buy());
    } };`;
    const edge = await (await worker(source + handler))();
    expect(await call(edge, "")).toBe(true);
    expect(await call(edge, "")).toBe(false);
  });

  test("durableObject outside of an object is refused, and the message says what to do", async () => {
    const edge = await (await worker())();
    const [none = "", noSql = "", nothing = ""] = (await call(edge, "")) as string[];
    assert(/^VARVE_STORAGE_UNAVAILABLE .*durableObject\(ctx\.storage\)/.test(none), none);
    assert(/^VARVE_STORAGE_UNAVAILABLE .*new_sqlite_classes/.test(noSql), noSql);
    assert(/^VARVE_BAD_ARGUMENT .*exists only inside one/.test(nothing), nothing);
  });
});

/** Sells from 16 clients at once until this many were sold, with more requests pending at the end. */
async function sellUntil(edge: Serving, sold: Set<string>, wanted: number, round: string) {
  let next = 0;
  await new Promise<void>((resolve, reject) => {
    const client = async () => {
      for (;;) {
        const buyer = `${round}-${next++}`;
        let answer: unknown;
        try {
          answer = await call(edge, "drop/buy", buyer);
        } catch (error) {
          // Killed while pending: it was not answered.
          if (sold.size < wanted) reject(error);
          return;
        }
        if (answer === true) sold.add(buyer);
        if (sold.size >= wanted) resolve();
      }
    };
    for (let n = 0; n < 16; n++) void client();
  });
}

describe("a database in a Worker outside of Durable Objects", () => {
  test("the program of docs/places.md reads the bytes of an export before the first request", async () => {
    const { source } = shown("docs/places.md", "edge.ts");
    assert(source.includes("readOnly"), source);
    const folder = join(context().directory ?? ".", `edge-${folders++}`);
    await bundledWorker(source, folder);
    const db = await open("shop", { storage: memory() });
    db.set("yeezy", "Boost 350");
    for (let i = 0; i < 20_000; i++) db.set(`key ${i}`, `value ${i}`);
    db.delete("key 7");
    writeFileSync(
      join(folder, "shop.varve"),
      new Uint8Array(await new Response(db.export()).arrayBuffer()),
    );
    await db.close();
    const edge = await serving(
      folder,
      `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [(name = "main", worker = (
    modules = [
      (name = "program.js", esModule = embed "program.js"),
      (name = "varve.wasm", wasm = embed "varve.wasm"),
      (name = "shop.varve", data = embed "shop.varve"),
    ],
    compatibilityDate = "2025-01-01",
  ))],
  sockets = [(name = "http", address = "127.0.0.1:0", http = (), service = "main")],
);
`,
    );
    const responseOf = async (path: string) => {
      const response = await fetch(edge.url + path);
      return [response.status, await response.text()];
    };
    expect(await responseOf("yeezy")).toStrictEqual([200, "Boost 350"]);
    expect(await responseOf("key%2019999")).toStrictEqual([200, "value 19999"]);
    expect(await responseOf("key%207")).toStrictEqual([404, "none"]);
    // The wasm is included once, as the module beside it.
    const { size } = statSync(join(folder, "program.js"));
    assert(size < 580_000, `the program takes ${size} bytes`);
    const program = readFileSync(join(folder, "program.js"), "utf8");
    assert(!/[A-Za-z0-9+/=]{100000,}/.test(program), "the inlined wasm is left out");
  });
});
