import { type Client, type ConnectOptions, connect, destroy } from "varve";
import {
  cleanup,
  context,
  deepEqual,
  equal,
  ok,
  rejects,
  suite,
  test,
  wasmOption,
} from "../harness.js";

/** The package's own worker, from the files that are published. */
function packageWorker(): Worker {
  return new Worker(`${context().root}/dist/client/worker.js`, { type: "module" });
}

/** A client of that database, as another tab would have it: with a worker of its own. */
function tab(name: string, options: ConnectOptions = {}): Client {
  const client = connect(name, { worker: packageWorker, ...options });
  cleanup(() => client.close());
  return client;
}

async function fresh(name: string): Promise<string> {
  equal(wasmOption().wasm, undefined, "the package's worker has the package's wasm");
  await destroy(name);
  return name;
}

suite("a page that connects", () => {
  test("has a database in its worker, which is there again the next time", async () => {
    const name = await fresh("connect-alone");
    const first = tab(name);
    equal(first.status.state, "starting");
    await first.set("yeezy", "Boost");
    deepEqual(first.status, { state: "open", owner: "here", reason: undefined });
    await first.close();
    const second = tab(name);
    equal(await second.getText("yeezy"), "Boost");
  });

  test("needs no worker's file of its own where modules are served as they are", async () => {
    const name = await fresh("connect-plain");
    const url = `${context().root}/dist/client/index.js`;
    const plain = (await import(url)) as typeof import("varve/client");
    const client = plain.connect(name);
    cleanup(() => client.close());
    await client.set("yeezy", "Boost");
    equal(await client.getText("yeezy"), "Boost");
    equal(client.status.owner, "here");
  });

  test("tells by an event how it stands", async () => {
    const client = tab(await fresh("connect-status"));
    const states: string[] = [];
    client.addEventListener("status", () => states.push(client.status.state));
    await client.ready;
    equal(states.at(-1), "open");
    ok(states.includes("opening"));
    await client.close();
    equal(states.at(-1), "closed");
  });

  test("is told why its worker does not start", async () => {
    const client = connect("shop", { worker: () => new Worker("/nothing.js", { type: "module" }) });
    await rejects(client.get("a"), { code: "VARVE_STORAGE_UNAVAILABLE", message: /worker/ });
    await client.close();
  });

  test("is told what opening the database threw", async () => {
    const root = await navigator.storage.getDirectory();
    await root.getDirectoryHandle("connect-folder.varve", { create: true });
    cleanup(() => root.removeEntry("connect-folder.varve"));
    const client = tab("connect-folder");
    await rejects(client.get("a"), { code: "VARVE_STORAGE_UNAVAILABLE", message: /folder/ });
  });
});

suite("two clients with a worker each", () => {
  test("share one owner: each reads what the other has written", async () => {
    const name = await fresh("connect-two");
    const one = tab(name);
    await one.set("a", "1");
    const two = tab(name);
    equal(await two.getText("a"), "1");
    equal(two.status.owner, "elsewhere");
    await two.set("b", "2");
    equal(await one.getText("b"), "2");
  });

  test("hand over when the owner closes, and what is asked meanwhile is answered", async () => {
    const name = await fresh("connect-hand-over");
    const one = tab(name);
    await one.set("a", "1");
    const two = tab(name);
    await two.ready;
    const closing = one.close();
    const asked = two.getText("a");
    await closing;
    equal(await asked, "1");
    await two.set("b", "2");
    equal(two.status.owner, "here");
  });

  test("of two versions: the newer one's worker takes over, and the older one is outdated", async () => {
    const name = await fresh("connect-versions");
    const old = tab(name, { version: 1 });
    await old.set("a", "1");
    const outdated = new Promise((resolve) => old.addEventListener("outdated", resolve));
    const newer = tab(name, { version: 2 });
    equal(await newer.getText("a"), "1");
    await outdated;
    equal(old.status.state, "outdated");
    await rejects(old.set("a", "2"), { name: "VersionChangedError" });
    await rejects(tab(name, { version: 1 }).get("a"), { name: "VersionChangedError" });
    equal(await newer.getText("a"), "1");
    equal(newer.status.owner, "here");
  });

  test("go on watching when another becomes owner, and miss nothing", async () => {
    const name = await fresh("connect-watch");
    const one = tab(name);
    await one.set("a", "1");
    const two = tab(name);
    const three = tab(name);
    await Promise.all([two.ready, three.ready]);
    const seen: string[] = [];
    let wake = () => {};
    two.watch({}, (changes) => {
      seen.push(...changes.map(({ key }) => key));
      wake();
    });
    const rows: number[] = [];
    three.live({}, (all) => {
      rows.push(all.length);
      wake();
    });
    await two.count();
    await one.set("b", "2");
    const closing = one.close();
    await three.set("c", "3");
    await closing;
    await two.set("d", "4");
    while (seen.length < 3 || rows.at(-1) !== 4) {
      await new Promise<void>((resolve) => {
        wake = resolve;
      });
    }
    deepEqual([...new Set(seen)].sort(), ["b", "c", "d"]);
  });

  test("hand over when the owner's worker is killed, and no write is lost or repeated", async () => {
    const name = await fresh("connect-killed");
    let worker: Worker | undefined;
    const one = connect(name, {
      worker: () => {
        worker = packageWorker();
        return worker;
      },
    });
    await one.set("stock", new Uint8Array([200]));
    const two = tab(name);
    await two.ready;
    const drops = Array.from({ length: 100 }, async () => {
      const drop = (stock: Uint8Array) => {
        stock[0]! -= 1;
      };
      return two.updateIf("stock", drop, { retries: 1_000 });
    });
    await drops[0];
    worker?.terminate();
    deepEqual(new Set(await Promise.all(drops)), new Set([true]));
    deepEqual(await two.get("stock"), new Uint8Array([100]));
  });
});
