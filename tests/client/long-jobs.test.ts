import {
  type Client,
  type ClientProgress,
  connect,
  memory,
  open,
  type Served,
  type ServeOptions,
  type Storage,
  serve,
} from "varve";
import { json, text, u32 } from "varve/struct";
import { assert, describe, expect, onTestFinished, test } from "vitest";
import { wasmOption } from "../support/context.js";
import { rejects } from "../support/errors.js";
import { shop } from "./support.js";

/** The number and size of values, which take several slices to read. */
const [COUNT, LENGTH] = [3_000, 10_000];

async function fill(client: Client): Promise<void> {
  const value = new Uint8Array(LENGTH);
  await Promise.all(Array.from({ length: COUNT }, (_, i) => client.set(`key ${i}`, value)));
}

/** A client of a file, which its own worker opens. */
function at(storage: Storage, options: ServeOptions = {}): Client {
  const { port1, port2 } = new MessageChannel();
  serve("shop", { storage, ...wasmOption(), ...options } as ServeOptions).listen(port1);
  const client = connect<Served>("shop", { worker: () => port2 }) as Client;
  onTestFinished(async () => {
    await client.close();
    port1.close();
  });
  return client;
}

/** Collects the progress that a client reports. */
function progressOf(client: EventTarget & Pick<Client, "status">): ClientProgress[] {
  const reported: ClientProgress[] = [];
  client.addEventListener("status", () => {
    const { progress } = client.status;
    if (progress !== undefined) reported.push(progress);
  });
  return reported;
}

/** Resolves when no long work is in progress. */
async function rest(client: Client): Promise<void> {
  while (client.status.progress !== undefined) {
    await new Promise((resolve) => client.addEventListener("status", resolve, { once: true }));
  }
}

describe("long work for clients", () => {
  test("compact: it reports its progress and its end", async () => {
    const client: Client = shop();
    await fill(client);
    const { fileBytes } = await client.stats();
    await client.clear({ gte: "key 1" });
    const reported = progressOf(client);
    await client.compact();
    assert((await client.stats()).fileBytes < fileBytes / 2);
    assert(reported.length > 0 && reported.every(({ doing }) => doing === "compacting"));
    await rest(client);
    expect(client.status).toStrictEqual({ state: "open", owner: "here", reason: undefined });
  });

  test("compact: aborting ends it in the worker too", async () => {
    const files = { read: 0 };
    const client = at(counting(memory(), files));
    await fill(client);
    await client.flush();
    files.read = 0;
    const stop = new AbortController();
    const reported = progressOf(client);
    client.addEventListener("status", () => stop.abort(new Error("enough")), { once: true });
    await rejects(client.verify({ signal: stop.signal }), { message: /enough/ });
    await rest(client);
    assert(reported.length > 0 && reported.every(({ doing }) => doing === "verifying"));
    assert(files.read < (COUNT * LENGTH) / 2, `${files.read} bytes were read`);
  });

  test("verify: it returns its findings", async () => {
    const client: Client = shop();
    await client.set("a", "1");
    const { ok: isIntact, problems } = await client.verify();
    expect([isIntact, problems]).toStrictEqual([true, []]);
  });

  test("export: earlier writes are in the bytes, which can be opened", async () => {
    const client: Client = shop();
    await client.ready;
    const reported = progressOf(client);
    const late = client.set("a", "1");
    const blob = await client.export();
    await late;
    assert(reported.length > 0 && reported.every(({ doing }) => doing === "exporting"));
    const copy = await open("copy", {
      from: await blob.arrayBuffer(),
      readOnly: true,
      ...wasmOption(),
    });
    expect(copy.getText("a")).toBe("1");
    await copy.close();
  });

  test("long work: its error rejects the call", async () => {
    const client: Client = shop({ ordered: false });
    await rejects(client.export(), { name: "TypeError", message: /ordered/ });
  });

  test("long work: a repeated request is done once and answered again", async () => {
    const { port1, port2 } = new MessageChannel();
    onTestFinished(() => {
      port1.close();
      port2.close();
    });
    const reported: { id: number; outcome: unknown }[] = [];
    let onMessage = (_: { type: string }) => {};
    const until = (type: string, act: () => void) =>
      new Promise<Record<string, unknown>>((resolve) => {
        onMessage = (message) => {
          if (message.type === type) resolve(message as unknown as Record<string, unknown>);
        };
        act();
      });
    port2.onmessage = ({ data }) => {
      if (data.type === "responses") reported.push(...data.answers);
      onMessage(data);
    };
    serve("shop", { storage: memory(), ...wasmOption() }).listen(port1);
    const hello = () => port2.postMessage({ type: "init", name: "shop" });
    const { build } = await until("ready", hello);
    await until("owner", hello);
    const request = {
      id: 1,
      write: 0,
      after: 0,
      deadline: Date.now() + 60_000,
      call: "verify",
      args: [],
    };
    const ask = {
      type: "requests",
      build,
      term: 1,
      client: 7,
      acknowledged: 0,
      requests: [request],
    };
    await until("responses", () => {
      port2.postMessage(ask);
      port2.postMessage(ask);
    });
    await until("responses", () => port2.postMessage(ask));
    expect(reported.length).toBe(2);
    expect(reported[0]).toStrictEqual(reported[1]);
    const closed = until("released", () => port2.postMessage({ type: "release" }));
    await closed;
  });
});

describe("progress of workers", () => {
  test("progress: sorting for the first range is reported until the call is answered", async () => {
    const storage = memory();
    const first = at(storage);
    await fill(first);
    await first.close();
    const client = at(storage, { memory: 8 << 20 });
    await client.ready;
    const reported = progressOf(client);
    expect(await client.count({ gte: "key" })).toBe(COUNT);
    await rest(client);
    assert(reported.length > 0 && reported.every(({ doing }) => doing === "sorting"));
  });

  test("progress: migration of another version's records is reported", async () => {
    const storage = memory();
    const old = at(storage, {
      version: 1,
      collections: { notes: { of: text(), key: u32 } },
    });
    await Promise.all(
      Array.from({ length: 2_000 }, (_, i) => old.collection("notes").set(i, `note ${i}`)),
    );
    await old.close();
    const Note = json<{ note: string }>();
    const client = at(storage, {
      version: 2,
      collections: { notes: { of: Note, key: u32 } },
      migrate: async (db, from, migrating) => {
        expect(from).toBe(1);
        const migrate = (note: string) => ({ note });
        await db.migrate("notes", Note, { key: u32, migrate, ...migrating });
      },
    });
    const reported = progressOf(client);
    expect(await client.collection("notes").get(7)).toStrictEqual({ note: "note 7" });
    assert(reported.some(({ doing }) => doing === "migrating"));
    expect(client.status.progress).toBe(undefined);
  });
});

/** A storage that counts the bytes read from its files. */
function counting(storage: Storage, count: { read: number }): Storage {
  return {
    ...storage,
    identity: (name) => storage.identity(name),
    open: async (name, options) => {
      const opened = await storage.open(name, options);
      const { file } = opened;
      const read: typeof file.read = (buffer, at) => {
        count.read += buffer.byteLength;
        // Longer than a slice, so that every read ends one.
        for (const until = Date.now() + 5; Date.now() < until; );
        return file.read(buffer, at);
      };
      const get = (target: typeof file, name: keyof typeof file) =>
        name === "read" ? read : (target[name] as (() => unknown) | undefined)?.bind(target);
      return { ...opened, file: new Proxy(file, { get: get as never }) };
    },
  };
}
