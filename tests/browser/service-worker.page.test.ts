import { type Client, connect, destroy } from "varve";
import { assert, describe, expect, onTestFinished, test } from "vitest";
import { context, wasmOption } from "../support/context.js";
import { rejects } from "../support/errors.js";
import type { Asked } from "./service-worker.js";

const registered = new Map<string, Promise<ServiceWorker>>();

/** The service worker with that program, shared by all tests. */
function serviceWorker(program: string, type: WorkerType): Promise<ServiceWorker> {
  const known = registered.get(program);
  if (known !== undefined) return known;
  const starting = (async () => {
    const options: RegistrationOptions = { type, scope: `${program.replace(/\.js$/, "")}/` };
    const registration = await navigator.serviceWorker.register(program, options);
    const worker = registration.installing ?? registration.waiting ?? registration.active;
    if (worker === null) throw new Error("there is no service worker");
    while (worker.state !== "activated") {
      await new Promise((resolve) => {
        worker.addEventListener("statechange", resolve, { once: true });
      });
    }
    return worker;
  })();
  registered.set(program, starting);
  return starting;
}

/** The answer of a service worker to a message. */
async function answered(worker: ServiceWorker, message: unknown): Promise<unknown> {
  const { port1, port2 } = new MessageChannel();
  const answer = new Promise<{ value?: unknown; error?: object }>((resolve) => {
    port1.onmessage = ({ data }) => resolve(data);
  });
  worker.postMessage(message, [port2]);
  const { value, error } = await answer;
  port1.close();
  if (error !== undefined) throw Object.assign(new Error(), error);
  return value;
}

/** The bytes of a database with one key. */
async function image(): Promise<ArrayBuffer> {
  const client = tab(await fresh("sw-image"));
  await client.set("a", "1");
  return new Response(await client.export()).arrayBuffer();
}

/** A client in the service worker. */
async function visitorOf(worker: ServiceWorker, name: string) {
  const ask = (call: Asked["call"], ...args: unknown[]): Promise<unknown> =>
    answered(worker, { name, call, args } satisfies Asked);
  onTestFinished(async () => {
    await ask("close");
  });
  return ask;
}

function tab(name: string): Client {
  const worker = () =>
    new Worker(`${context().root}/dist/client/worker/index.js`, { type: "module" });
  const client: Client = connect(name, { worker });
  onTestFinished(() => client.close());
  return client;
}

async function fresh(name: string): Promise<string> {
  expect(wasmOption().wasm, "the package's worker has the package's wasm").toBe(undefined);
  await destroy(name);
  return name;
}

/** A page that opens, writes the key "a", and closes. */
async function visited(name: string, value: string): Promise<void> {
  const page = tab(name);
  await page.set("a", value);
  await page.close();
}

/** The kinds of service workers that use the package, by how they are built. */
const KINDS: Record<string, readonly [program: string, type: WorkerType]> = {
  "a service worker": ["/service-worker.js", "classic"],
  "a service worker of separate modules": ["/service-worker-modules.js", "module"],
  "a service worker bundled into chunks": ["/chunks-service-worker/service-worker.js", "module"],
};

describe("a service worker with chunks that only opens bytes", () => {
  test("service worker: the error names the solution where import() is forbidden", async () => {
    const worker = await serviceWorker("/chunks-reading-worker/reading-worker.js", "module");
    const error = await rejects(answered(worker, { bytes: await image(), key: "a" }), {
      code: "VARVE_WASM",
      message: /varve\/worker/,
    });
    assert(/single file/.test(error.message), error.message);
  });

  test("service worker: bytes can be read after importing varve/worker", async () => {
    const worker = await serviceWorker(
      "/chunks-reading-worker-whole/reading-worker-whole.js",
      "module",
    );
    expect(await answered(worker, { bytes: await image(), key: "a" })).toBe("1");
  });
});

for (const [kind, [program, type]] of Object.entries(KINDS)) {
  describe(kind, () =>
    define((name) => serviceWorker(program, type).then((one) => visitorOf(one, name))),
  );
}

function define(visitor: (name: string) => ReturnType<typeof visitorOf>): void {
  test("service worker: bytes of a database can be read, verified and exported", async () => {
    const ask = await visitor("sw-bytes");
    expect(await ask("image", await image(), "a")).toStrictEqual(["1", true, true]);
  });

  test("service worker: the file is read without an owner, and again after a change", async () => {
    const name = await fresh("sw-file");
    const ask = await visitor(name);
    await rejects(ask("getText", "a"), { code: "VARVE_DATABASE_NOT_FOUND" });
    for (const value of ["1", "2"]) {
      await visited(name, value);
      expect(await ask("getText", "a")).toBe(value);
      expect(await ask("getText", "b")).toBe(undefined);
    }
  });

  test("service worker: the file is read again after an owner, also if its time has not changed", async () => {
    const name = await fresh("sw-timeless");
    const ask = await visitor(name);
    await ask("timeless", true);
    onTestFinished(async () => {
      await ask("timeless", false);
    });
    for (const value of ["1", "2", "3"]) {
      await visited(name, value);
      expect(await ask("getText", "a")).toBe(value);
    }
  });

  test("service worker: a write without an owner is refused, and reported as not done", async () => {
    const name = await fresh("sw-write");
    await visited(name, "1");
    const ask = await visitor(name);
    const error = await rejects(ask("set", "a", "2"), { name: "OwnerUnavailableError" });
    expect((error as { applied?: unknown }).applied).toBe(false);
    expect(await ask("getText", "a")).toBe("1");
  });

  test("service worker: without an owner, calls about the past are refused as not done, and with one they are answered", async () => {
    const name = await fresh("sw-past");
    await visited(name, "1");
    const ask = await visitor(name);
    const calls = [
      ["snapshot"],
      ["lastCommit"],
      ["at", 1],
      ["undo", 1],
      ["pack", { before: 1 }],
    ] as const;
    for (const [call, ...args] of calls) {
      const pattern = {
        name: "OwnerUnavailableError",
        message: `${call}() on "${name}" was not done`,
      };
      const error = await rejects(ask(call, ...args), pattern);
      expect((error as { applied?: unknown }).applied).toBe(false);
    }
    const page = tab(name);
    await page.ready;
    expect([await ask("snapshot"), await ask("lastCommit")]).toStrictEqual(["object", "number"]);
    // Its worker opens the database as it is: without history.
    for (const [call, ...args] of calls.slice(2)) {
      await rejects(ask(call, ...args), { name: "TypeError", message: /keep.*history/ });
    }
  });

  test("service worker: it uses an owner if there is one, and writes through it", async () => {
    const name = await fresh("sw-owner");
    const page = tab(name);
    await page.set("a", "1");
    const ask = await visitor(name);
    expect(await ask("getText", "a")).toBe("1");
    await ask("set", "a", "2");
    expect(await page.getText("a")).toBe("2");
    expect(await ask("status")).toStrictEqual({
      state: "open",
      owner: "elsewhere",
      reason: undefined,
    });
  });

  test("service worker: each write is done at most once while owners come and go", async () => {
    const name = await fresh("sw-both");
    const ask = await visitor(name);
    let done = 0;
    for (let round = 0; round < 3; round += 1) {
      const page = tab(name);
      const writes = Array.from({ length: 8 }, (_, i) => ask("set", `${round}/${i}`, "1"));
      const ends = Promise.allSettled(writes);
      await page.set("round", String(round));
      const closing = page.close();
      await closing;
      done += (await ends).filter(({ status }) => status === "fulfilled").length;
      expect(await ask("getText", "round")).toBe(String(round));
    }
    const last = tab(name);
    expect(await last.count({ gt: "0", lt: "9" })).toBe(done);
  });

  test("service worker: a read refused within the same millisecond is retried, and a lasting error is reported", async () => {
    const name = await fresh("sw-refused");
    await visited(name, "1");
    const ask = await visitor(name);
    await ask("refuse", 1);
    expect(await ask("getText", "a")).toBe("1");
    await visited(name, "2");
    await ask("refuse", 2);
    await rejects(ask("getText", "a"), { name: "NotReadableError" });
    expect(await ask("getText", "a")).toBe("2");
  });

  test("service worker: a part of a commit is never seen, even if a program opens the file directly", async () => {
    const name = await fresh("sw-torn");
    const program = `
      import { open } from "${context().root}/dist/index.js";
      const db = await open("${name}");
      postMessage("open");
      for (let i = 0; ; i += 1) {
        const value = String(i).padEnd(1 + (i * 997) % 60_000, ".");
        db.batch([
          { type: "set", key: "one", value },
          { type: "set", key: "two", value },
          { type: "set", key: "count", value: String(i) },
        ]);
        // Its pauses grow, so that even the slowest machine reads the whole file within one of them.
        await new Promise((resolve) => setTimeout(resolve, i % 7 === 0 ? 60 + 10 * i : 1));
      }`;
    const url = URL.createObjectURL(new Blob([program], { type: "text/javascript" }));
    const writer = new Worker(url, { type: "module" });
    onTestFinished(() => writer.terminate());
    await new Promise((resolve) => writer.addEventListener("message", resolve, { once: true }));
    const ask = await visitor(name);
    let seen = 0;
    for (let i = 0; i < 200 && seen < 12; i += 1) {
      const found = (await ask("getMany", ["one", "two", "count"]).catch((error) => {
        // It reports a file that keeps changing.
        expect(error.name).toBe("OwnerUnavailableError");
        return [];
      })) as (Uint8Array | undefined)[];
      const [one, two, count] = found.map((bytes) => new TextDecoder().decode(bytes));
      if (one === undefined || count === "") continue;
      seen += 1;
      expect(one).toBe(two);
      expect(one?.replace(/\.*$/, "")).toBe(count);
    }
    assert(seen > 0, "it has found the file at rest");
  });
}
