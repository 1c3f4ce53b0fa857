/** A database within a Durable Object, driven over HTTP. */

import { mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { memory, open } from "varve";
import { context, deepEqual, equal, ok, suite, test } from "../harness.js";
import { shown } from "../packaging/shown.js";
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
  const said = await response.text();
  if (!response.ok) throw new Error(`${path}: ${said}`);
  return JSON.parse(said);
}

suite("a database in a Durable Object", () => {
  test("set, get, update and rollback work, and the data survives a restart", async () => {
    const start = await worker();
    const first = await start();
    await call(first, "one/set", "yeezy=Boost 350");
    await call(first, "one/stock", "2");
    deepEqual(
      [
        await call(first, "one/buy", "ann"),
        await call(first, "one/buy", "bob"),
        await call(first, "one/buy", "cid"),
      ],
      [true, true, false],
    );
    equal(await call(first, "one/undone"), false);
    equal(await call(first, "one/twice"), "seen");
    equal(await call(first, "one/flushed"), false);
    await first.kill();
    const second = await start();
    equal(await call(second, "one/get", "yeezy"), "Boost 350");
    equal(await call(second, "one/left"), 0);
    equal(await call(second, "one/get", "kept"), "1");
    deepEqual(await call(second, "one/buyers"), ["ann", "bob"]);
  });

  test("objects of the same class have separate databases of the same name", async () => {
    const edge = await (await worker())();
    await call(edge, "one/set", "key=one");
    equal(await call(edge, "two/get", "key"), null);
    await call(edge, "two/set", "key=two");
    equal(await call(edge, "one/get", "key"), "one");
    equal(await call(edge, "one/made"), 2, "objects that one isolate has");
  });

  test("flushed waits for the platform's sync, which is not called before", async () => {
    const edge = await (await worker())();
    deepEqual(await call(edge, "one/synced"), [0, 1]);
  });

  test("the file has pages of 16 KB, and 4 MiB of memory", async () => {
    const edge = await (await worker())();
    const sizes = (await call(edge, "one/sizes")) as Record<string, number>;
    const { longest, pages = 0, budgetBytes, memoryBytes = 0, wasmBytes = 0 } = sizes;
    deepEqual([longest, budgetBytes], [16_384, 4_194_304]);
    ok(pages > 900, `${pages} pages`);
    ok(memoryBytes <= 1.25 * 4_194_304, `${memoryBytes} bytes of records`);
    ok(wasmBytes < 24 * 1_048_576, `${wasmBytes} bytes of memory`);
  });

  test("a full object refuses writes, and accepts them again after deletions", async () => {
    const edge = await (await worker())();
    const told = (await call(edge, "one/full")) as Record<string, unknown>;
    const { written, kept, ...rest } = told;
    deepEqual(rest, { refused: "VARVE_QUOTA_EXCEEDED", isThere: true, after: "1" });
    equal(kept, Number(written) - 1);
    ok(Number(kept) > 100, `${kept} were written`);
  });

  test("writes are refused after the object rolled back rows, and the database opens intact again", async () => {
    const start = await worker();
    const edge = await start();
    for (const length of [100, 100_000, 3_000_000]) {
      const told = await call(edge, `torn-${length}/torn`, String(length));
      const [first = "", second = "", ...opened] = told as [string, string, ...unknown[]];
      ok(/^VARVE_STORAGE .*rolled back.*db\.transaction\(\)/.test(first), `${length}: ${first}`);
      ok(/^VARVE_DATABASE_POISONED .*rolled back/.test(second), `${length}: ${second}`);
      deepEqual(opened, [true, ["again", "before"]], `${length}`);
    }
    await edge.kill();
    const next = await start();
    equal(await call(next, "torn-100000/get", "again"), "1");
  });

  test("writes are refused after deleteAll, and the database is new when opened again", async () => {
    const edge = await (await worker())();
    const [first = "", ...opened] = (await call(edge, "one/emptied")) as [string, ...unknown[]];
    ok(/^VARVE_STORAGE .*deleteAll\(\)/.test(first), first);
    deepEqual(opened, [true, ["again"]]);
  });

  test("export works without a timer, and the copy opens from its bytes", async () => {
    const edge = await (await worker())();
    await call(edge, "one/set", "key=one");
    deepEqual(await call(edge, "one/exported"), ["one", 1, 0]);
  });

  test("import and replace work, and damaged bytes keep the previous database", async () => {
    const edge = await (await worker())();
    await call(edge, "one/set", "key=one");
    deepEqual(await call(edge, "one/filled"), [
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
      for (const buyer of sold) ok(buyers.has(buyer), `${buyer} was told of a sale`);
      equal(buyers.size + Number(await call(edge, "drop/left")), stock);
    }
  });

  test("the table behaves like a file, whatever is read, written and truncated", async () => {
    const edge = await (await worker())();
    equal(await call(edge, "files/file"), "the same");
  });

  test("no timer is set, and writes do the maintenance", async () => {
    const edge = await (await worker())();
    const churned = (await call(edge, "churn/churn")) as Record<string, number>;
    equal(churned.timers, 0);
    const { fileBytes = 0, liveBytes = 0 } = churned;
    ok(liveBytes > 2_000_000 && fileBytes < 12_000_000, `${liveBytes} live in ${fileBytes} bytes`);
    const { ok: whole, fileBytes: small } = (await call(edge, "churn/compact")) as {
      ok: boolean;
      fileBytes: number;
    };
    ok(whole && small < fileBytes, `${small} of ${fileBytes} bytes when compacted`);
  });

  test("several databases are tables that can be listed and destroyed", async () => {
    const edge = await (await worker())();
    deepEqual(await call(edge, "one/places"), {
      names: ["Another Shop", "shop"],
      there: [true, false],
      after: ["shop"],
    });
    ok(/^VARVE_DATABASE_NOT_FOUND /.test(String(await call(edge, "one/missing"))));
    ok(/^VARVE_DATABASE_BUSY /.test(String(await call(edge, "one/busy"))));
  });

  test("is what docs/cloudflare.md shows, and that runs", async () => {
    const { source } = shown("docs/cloudflare.md", "worker.ts");
    const handler = `export default { async fetch(request, { OBJECTS }) {
      return Response.json(await OBJECTS.get(OBJECTS.idFromName("shop")).buy());
    } };`;
    const edge = await (await worker(source + handler))();
    equal(await call(edge, ""), true);
    equal(await call(edge, ""), false);
  });

  test("durableObject outside of an object is refused, and the message says what to do", async () => {
    const edge = await (await worker())();
    const [none = "", noSql = "", nothing = ""] = (await call(edge, "")) as string[];
    ok(/^VARVE_STORAGE_UNAVAILABLE .*durableObject\(ctx\.storage\)/.test(none), none);
    ok(/^VARVE_STORAGE_UNAVAILABLE .*new_sqlite_classes/.test(noSql), noSql);
    ok(/^VARVE_BAD_ARGUMENT .*exists only inside one/.test(nothing), nothing);
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

suite("a database in a Worker outside of Durable Objects", () => {
  test("the program of docs/places.md reads the bytes of an export before the first request", async () => {
    const { source } = shown("docs/places.md", "edge.ts");
    ok(source.includes("readOnly"), source);
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
    const said = async (path: string) => {
      const response = await fetch(edge.url + path);
      return [response.status, await response.text()];
    };
    deepEqual(await said("yeezy"), [200, "Boost 350"]);
    deepEqual(await said("key%2019999"), [200, "value 19999"]);
    deepEqual(await said("key%207"), [404, "none"]);
    // The wasm is included once, as the module beside it.
    const { size } = statSync(join(folder, "program.js"));
    ok(size < 440_000, `the program takes ${size} bytes`);
    ok(!readFileSync(join(folder, "program.js"), "utf8").includes("AGFzbQ"));
  });
});
