/** `varve/blobs` on a database and on a client of one. */

import { type Client, connect, type Database, memory, type Storage, serve } from "varve";
import { type BlobSource, Blobs } from "varve/blobs";
import { assert, describe, expect, onTestFinished, test } from "vitest";
import { wasmOption } from "../support/context.js";
import { rejects, throws } from "../support/errors.js";
import { turn } from "../support/values.js";
import { FakeStorage, platform } from "./fake-storage.js";
import { filled, opened } from "./storages.js";

/** The size of a chunk: sizes around its multiples are where mistakes would be. */
const CHUNK = 248 << 10;
const SIZES = [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 5];

const BAD = { name: "TypeError", code: "VARVE_BAD_ARGUMENT" } as const;
const STALE = { name: "StaleViewError", code: "VARVE_STALE_VIEW" } as const;
const QUOTA = { name: "QuotaExceededError", code: "VARVE_QUOTA_EXCEEDED" } as const;

type Host = Database | Client;

function clientOf(storage: Storage): Client {
  const { port1, port2 } = new MessageChannel();
  serve("blobs", { storage, ...wasmOption() }).listen(port1);
  const client: Client = connect("blobs", { worker: () => port2 });
  onTestFinished(async () => {
    await client.close();
    port1.close();
    port2.close();
  });
  return client;
}

const HOSTS: Readonly<Record<string, (storage: Storage) => Host | Promise<Host>>> = {
  database: (storage) => opened(storage, { strictViews: true }),
  client: clientOf,
};

/** Bytes in which each position differs from its neighbours and from the same one in other chunks. */
function content(size: number, seed = 1): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(size);
  for (let i = 0; i < size; i++) bytes[i] = (i * 31 + (i >> 8) * 17 + (i >> 16) * 7 + seed) & 0xff;
  return bytes;
}

function streamOf(
  bytes: Uint8Array<ArrayBuffer>,
  part = 100_000,
): ReadableStream<Uint8Array<ArrayBuffer>> {
  let at = 0;
  return new ReadableStream({
    pull(controller) {
      if (at >= bytes.length) controller.close();
      else controller.enqueue(bytes.slice(at, at + part));
      at += part;
    },
  });
}

async function* partsOf(bytes: Uint8Array<ArrayBuffer>, part = 77_777): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += part) yield bytes.subarray(at, at + part);
}

async function read(stream: ReadableStream<Uint8Array>): Promise<Uint8Array> {
  return new Uint8Array(
    await new Response(stream as ReadableStream<Uint8Array<ArrayBuffer>>).arrayBuffer(),
  );
}

function same(given: Uint8Array | undefined, expected: Uint8Array): void {
  assert(given !== undefined && given.length === expected.length);
  let at = 0;
  // Without a callback, which takes longer than all else for some hundred megabytes.
  while (at < given.length && given[at] === expected[at]) at += 1;
  expect(at).toBe(given.length);
}

/** The host with some calls of its own. */
function changed(host: Host, calls: Record<string, unknown>): Host {
  return new Proxy(host, {
    get(of, name) {
      const value: unknown = calls[name as string] ?? Reflect.get(of, name, of);
      return typeof value === "function" ? value.bind(of) : value;
    },
  });
}

async function keysOf(host: Host): Promise<string[]> {
  const keys = [];
  for await (const key of host.keys({ prefix: "blobs/" })) keys.push(key);
  return keys;
}

async function listed(blobs: Blobs, prefix?: string): Promise<[string, number, string][]> {
  const found: [string, number, string][] = [];
  for await (const { key, size, type } of blobs.list(prefix)) found.push([key, size, type]);
  return found;
}

for (const [kind, make] of Object.entries(HOSTS)) {
  const fresh = async (options = {}, storage: Storage = memory()) => {
    const host = await make(storage);
    return { host, blobs: new Blobs(host, options) };
  };

  describe(`blobs on a ${kind}`, () => {
    const sources: Record<string, (bytes: Uint8Array<ArrayBuffer>) => BlobSource> = {
      bytes: (bytes) => bytes,
      "an ArrayBuffer": (bytes) => bytes.buffer,
      "a DataView": (bytes) => new DataView(bytes.buffer),
      "a Blob": (bytes) => new Blob([bytes]),
      "a stream": streamOf,
      "a stream of large parts": (bytes) => streamOf(bytes, 600_000),
      "an iteration": partsOf,
      "a Response": (bytes) => new Response(streamOf(bytes)),
    };
    for (const [name, sourceOf] of Object.entries(sources)) {
      test(`what is stored from ${name} is read as it was`, async () => {
        const { blobs } = await fresh();
        for (const size of SIZES) {
          const bytes = content(size);
          const stored = await blobs.put("film", sourceOf(bytes.slice()));
          expect([stored.key, stored.size]).toStrictEqual(["film", size]);
          const film = await blobs.get("film");
          assert(film !== undefined);
          expect([film.size, film.type]).toStrictEqual([size, ""]);
          same(await film.bytes(), bytes);
          same(await read(film.stream()), bytes);
          same(new Uint8Array(await (await film.blob()).arrayBuffer()), bytes);
        }
      });
    }

    test("any range can be read", async () => {
      const { blobs } = await fresh();
      const bytes = content(2 * CHUNK + 10);
      const film = await blobs.put("film", bytes);
      const borders = [
        0,
        1,
        CHUNK - 1,
        CHUNK,
        CHUNK + 1,
        2 * CHUNK,
        bytes.length - 1,
        bytes.length,
      ];
      for (const start of borders) {
        for (const end of borders) {
          if (end < start) continue;
          same(await film.bytes({ start, end }), bytes.subarray(start, end));
        }
        same(await read(film.stream({ start })), bytes.subarray(start));
        same(await film.bytes({ end: start }), bytes.subarray(0, start));
      }
      same(await film.bytes({ start: CHUNK, end: 1e12 }), bytes.subarray(CHUNK));
      same(await film.bytes({ start: 1e12 }), new Uint8Array(0));
    });

    test("a type is that of the option, of the Blob or of the Response", async () => {
      const { blobs } = await fresh();
      await blobs.put("a", new Blob(["a"], { type: "image/png" }));
      await blobs.put("b", new Response("b", { headers: { "content-type": "text/css" } }));
      await blobs.put("c", new Blob(["c"], { type: "image/png" }), { type: "video/mp4" });
      await blobs.put("d", content(3));
      expect(await listed(blobs)).toStrictEqual([
        ["a", 1, "image/png"],
        ["b", 1, "text/css"],
        ["c", 1, "video/mp4"],
        ["d", 3, ""],
      ]);
      const blob = await (await blobs.get("c"))!.blob();
      expect([blob.type, blob.size, await blob.text()]).toStrictEqual(["video/mp4", 1, "c"]);
      expect((await (await blobs.get("d"))!.blob()).type).toBe("");
      expect(await (await blobs.get("a"))!.text()).toBe("a");
    });

    test("blobs are listed in the order of their keys, also those below a prefix", async () => {
      const { host, blobs } = await fresh();
      for (const key of ["b/2", "a", "b/1", "", "ü/1"]) await blobs.put(key, content(1));
      const keys = async (prefix?: string) => (await listed(blobs, prefix)).map(([key]) => key);
      expect(await keys()).toStrictEqual(["", "a", "b/1", "b/2", "ü/1"]);
      expect(await keys("b/")).toStrictEqual(["b/1", "b/2"]);
      expect([await blobs.has("a"), await blobs.has("b")]).toStrictEqual([true, false]);
      expect(await blobs.get("b")).toBe(undefined);
      const others = new Blobs(host, { prefix: "photos/" });
      expect(await listed(others)).toStrictEqual([]);
    });

    test("what is read while it is replaced or deleted is read to its end", async () => {
      const { host, blobs } = await fresh();
      const [old, next] = [content(3 * CHUNK, 1), content(2 * CHUNK, 2)];
      const film = await blobs.put("film", old);
      const reader = film.stream().getReader();
      const parts = [(await reader.read()).value!];
      same(await (await blobs.put("film", next)).bytes(), next);
      await new Blobs(host).reclaim();
      same(await (await blobs.get("film"))!.bytes(), next);
      assert(await blobs.delete("film"));
      expect(await blobs.get("film")).toBe(undefined);
      await new Blobs(host).reclaim();
      for (let part = await reader.read(); !part.done; part = await reader.read()) {
        parts.push(part.value);
      }
      same(new Uint8Array(await new Blob(parts).arrayBuffer()), old);
      // What was got before, and is read only now, is still there too.
      same(await film.bytes(), old);
    });

    test("what is not kept is removed, and reading it says so", async () => {
      const { host, blobs } = await fresh({ keepReplaced: 0 });
      const film = await blobs.put("film", content(2 * CHUNK));
      const next = await blobs.put("film", content(3));
      await blobs.reclaim();
      await rejects(film.bytes(), STALE);
      await rejects(film.stream().getReader().read(), STALE);
      await rejects(film.blob(), STALE);
      expect((await keysOf(host)).length).toBe(2);
      expect([await blobs.delete("film"), await blobs.delete("film")]).toStrictEqual([true, false]);
      await blobs.reclaim();
      await rejects(next.text(), STALE);
      expect(await keysOf(host)).toStrictEqual([]);
    });

    test("reading keeps what was replaced for longer", async () => {
      const { blobs } = await fresh({ keepReplaced: 60_000 });
      const { now } = Date;
      let passed = 0;
      Date.now = () => now() + passed;
      try {
        const old = content(4 * CHUNK);
        const film = await blobs.put("film", old);
        await blobs.put("film", content(1));
        for (let start = 0; start < old.length; start += CHUNK) {
          passed += 25_000;
          same(await film.bytes({ start, end: start + CHUNK }), old.subarray(start, start + CHUNK));
          expect(await blobs.reclaim()).toBe(0);
        }
        passed += 60_001;
        expect(await blobs.reclaim()).toBe(1);
        await rejects(film.bytes(), STALE);
      } finally {
        Date.now = now;
      }
    });

    test("what was replaced is removed on its own", async () => {
      const { host, blobs } = await fresh({ keepReplaced: 20 });
      await blobs.put("film", content(2 * CHUNK));
      await blobs.put("film", content(1));
      while ((await keysOf(host)).length > 2) await turn(20);
    });

    test("an upload that fails or is aborted leaves nothing, and the old content stays", async () => {
      const { host, blobs } = await fresh();
      const old = content(CHUNK + 1);
      await blobs.put("film", old);
      const before = await keysOf(host);
      const failure = new RangeError("the network is gone");
      const failing = async function* () {
        yield content(3 * CHUNK);
        throw failure;
      };
      expect(await rejects(blobs.put("film", failing()))).toBe(failure);
      let cancelled: unknown;
      const hanging = new ReadableStream<Uint8Array>({
        start: (controller) => controller.enqueue(content(2 * CHUNK)),
        cancel(reason) {
          cancelled = reason;
        },
      });
      const aborting = new AbortController();
      const { signal } = aborting;
      const reason = new Error("enough");
      const onProgress = () => aborting.abort(reason);
      expect(await rejects(blobs.put("film", hanging, { signal, onProgress }))).toBe(reason);
      expect(cancelled).toBe(reason);
      expect(await rejects(blobs.put("film", old, { signal }))).toBe(reason);
      const mixed = async function* () {
        yield content(2 * CHUNK);
        yield "text" as unknown as Uint8Array;
      };
      await rejects(blobs.put("film", mixed()), BAD);
      expect(await keysOf(host)).toStrictEqual(before);
      same(await (await blobs.get("film"))!.bytes(), old);
    });

    test("an upload whose source hangs can be aborted", async () => {
      const { host, blobs } = await fresh();
      const hanging = async function* () {
        yield content(CHUNK);
        await new Promise(() => {});
      };
      const aborting = new AbortController();
      const { signal } = aborting;
      const put = blobs.put("film", hanging(), {
        signal,
        onProgress: () => turn(5).then(() => aborting.abort()),
      });
      await rejects(put, { name: "AbortError" });
      expect(await keysOf(host)).toStrictEqual([]);
    });

    test("progress is reported after each chunk", async () => {
      const { blobs } = await fresh();
      const seen: number[] = [];
      await blobs.put("film", content(2 * CHUNK + 1), { onProgress: (bytes) => seen.push(bytes) });
      expect(seen).toStrictEqual([CHUNK, 2 * CHUNK, 2 * CHUNK + 1]);
    });

    test("uploads of one key at the same time leave one of them, whole", async () => {
      const { host, blobs } = await fresh({ keepReplaced: 0 });
      const contents = [1, 2, 3, 4, 5].map((seed) => content(CHUNK + seed, seed));
      await Promise.all(contents.map((bytes) => blobs.put("film", streamOf(bytes, 50_000))));
      const film = (await blobs.get("film"))!;
      same(await film.bytes(), contents[film.size - CHUNK - 1]!);
      while ((await blobs.reclaim()) > 0);
      expect((await keysOf(host)).length).toBe(3);
    });

    test("what an upload left whose tab was closed is removed by the next program", async () => {
      const { host, blobs } = await fresh();
      await blobs.put("kept", content(CHUNK));
      const version = "a".repeat(24);
      await host.set(`blobs/was/${version}`, String(Date.now() - 1));
      for (let i = 0; i < 200; i++) await host.set(`blobs/in/${version}/${i}`, "chunk");
      const later = `blobs/was/${"b".repeat(24)}`;
      await host.set(later, String(Date.now() + 300_000));
      expect(await new Blobs(host).reclaim()).toBe(1);
      expect((await keysOf(host)).length).toBe(3);
      assert(await host.has(later));
    });

    test("an upload that was frozen for too long fails, and changes nothing", async () => {
      const { host, blobs } = await fresh();
      const slow = async function* () {
        yield content(2 * CHUNK);
        const marker = (await keysOf(host)).find((key) => key.startsWith("blobs/was/"))!;
        await host.set(marker, String(Date.now() + 1_000));
        yield content(1);
      };
      await rejects(blobs.put("film", slow()), { ...STALE, message: /Store it again/ });
      expect(await keysOf(host)).toStrictEqual([]);
    });

    test("a chunk that is missing is reported as damage", async () => {
      const { host, blobs } = await fresh();
      const film = await blobs.put("film", content(2 * CHUNK));
      const chunk = (await keysOf(host)).find((key) => key.endsWith("/00000001"))!;
      await host.delete(chunk);
      await rejects(film.bytes(), { name: "MalformedValueError", message: /"film"/ });
      same(await film.bytes({ end: CHUNK }), content(CHUNK));
      assert(await blobs.delete("film"));
    });

    test("a key that has no place for a blob is refused before the source is read", async () => {
      const { host, blobs } = await fresh();
      await host.set("blobs/of/other", "something else");
      const before = await keysOf(host);
      for (const key of ["k".repeat(70_000), "\ud800", "other"]) {
        let parts = 0;
        const source = async function* () {
          parts += 1;
          yield content(CHUNK);
        };
        await rejects(blobs.put(key, source()), BAD);
        expect(parts).toBe(0);
      }
      expect(await keysOf(host)).toStrictEqual(before);
    });

    test("a type that no header can hold, a part of a response and a request are refused", async () => {
      const { host, blobs } = await fresh();
      for (const type of ["text/plain\n", "vid\u00e9o/mp4", "\u2603"]) {
        await rejects(blobs.put("film", content(1), { type }), BAD);
      }
      const part = new Response("part", { status: 206 });
      await rejects(blobs.put("film", part), { ...BAD, message: /206/ });
      const request = new Request("https://shop.example/film", { method: "POST", body: "film" });
      const source = request as unknown as BlobSource;
      await rejects(blobs.put("film", source), { ...BAD, message: /put\(\) stores/ });
      expect(await keysOf(host)).toStrictEqual([]);
    });

    test("a file that is not there is no empty blob", async () => {
      const { host, blobs } = await fresh();
      const failure = new Error("no such file");
      // As `Bun.file` of a name that does not exist.
      const file = {
        size: 0,
        type: "",
        arrayBuffer: () => Promise.reject(failure),
        slice: () => new Blob(),
      };
      expect(await rejects(blobs.put("film", file as unknown as Blob))).toBe(failure);
      expect(await keysOf(host)).toStrictEqual([]);
    });

    test("an upload whose last answer was lost keeps what it has stored", async () => {
      const { host } = await fresh();
      let isLost = false;
      const blobs = new Blobs(
        changed(host, {
          transaction: async (body: never) => {
            await host.transaction(body);
            const stored = await host.has("blobs/of/film");
            if (!stored || isLost) return;
            isLost = true;
            throw new Error("no owner has answered");
          },
        }),
      );
      const film = await blobs.put("film", content(CHUNK + 1));
      assert(isLost);
      same(await film.bytes(), content(CHUNK + 1));
      same(await (await new Blobs(host).get("film"))!.bytes(), content(CHUNK + 1));
    });

    test("however long replaced blobs are kept, nothing runs meanwhile", async () => {
      for (const keepReplaced of [Number.POSITIVE_INFINITY, 2 ** 32]) {
        const { host } = await fresh();
        let scans = 0;
        const scanned = (call: "entries" | "keys") => (range: never) => {
          scans += 1;
          return host[call](range);
        };
        const calls = { entries: scanned("entries"), keys: scanned("keys") };
        const blobs = new Blobs(changed(host, calls), { keepReplaced });
        const film = await blobs.put("film", content(5));
        await blobs.put("film", content(6));
        await turn(40);
        assert(scans <= 2);
        expect(await blobs.reclaim()).toBe(0);
        same(await film.bytes(), content(5));
      }
    });

    test("reclaiming sees what became due while another run of it was under way", async () => {
      const { host, blobs } = await fresh({ keepReplaced: 0 });
      await blobs.put("film", content(CHUNK));
      let isDeleted: Promise<boolean> | undefined;
      const entries = async function* (range: never) {
        yield* host.entries(range);
        isDeleted ??= blobs.delete("film");
        await isDeleted;
      };
      const other = new Blobs(changed(host, { entries }), { keepReplaced: 0 });
      const first = other.reclaim();
      const second = other.reclaim();
      assert((await first) + (await second) <= 1);
      expect(await keysOf(host)).toStrictEqual([]);
    });

    test("who keeps replaced blobs for a shorter time does not shorten that of others", async () => {
      const { host, blobs } = await fresh();
      const film = await blobs.put("film", content(CHUNK));
      const hasty = await new Blobs(host, { keepReplaced: 40 }).get("film");
      await blobs.put("film", content(1));
      await turn(20);
      same(await hasty!.bytes(), content(CHUNK));
      await turn(60);
      expect(await new Blobs(host).reclaim()).toBe(0);
      same(await film.bytes(), content(CHUNK));
    });

    test("what was put again while a full disk let it be deleted stays", async () => {
      const { host } = await fresh();
      await new Blobs(host).put("film", content(1));
      let isFull = true;
      const blobs = new Blobs(
        changed(host, {
          transaction: async (body: never) => {
            if (!isFull) return host.transaction(body);
            isFull = false;
            await host.transaction(body);
            // As if that had failed, and another tab had stored the key meanwhile.
            await new Blobs(host).put("film", content(2));
            throw Object.assign(new Error("full"), { code: QUOTA.code });
          },
        }),
      );
      await blobs.delete("film");
      const film = await new Blobs(host).get("film");
      same(await film!.bytes(), content(2));
    });

    test("bad arguments are refused with what to do, and nothing is stored", async () => {
      const { host, blobs } = await fresh();
      throws(() => new Blobs({} as Database), BAD);
      throws(() => new Blobs(host, { prefix: 1 as unknown as string }), BAD);
      for (const keepReplaced of [-1, Number.NaN, "1" as unknown as number]) {
        throws(() => new Blobs(host, { keepReplaced }), BAD);
      }
      const used = new Response("used");
      await used.text();
      const locked = streamOf(content(1));
      locked.getReader();
      for (const source of [undefined, null, 1, "text", {}, [1], used, locked, Response.error()]) {
        await rejects(blobs.put("film", source as unknown as BlobSource), BAD);
      }
      const gone = content(4);
      structuredClone(gone, { transfer: [gone.buffer] });
      await rejects(blobs.put("film", gone), BAD);
      await rejects(blobs.put(1 as unknown as string, content(1)), BAD);
      await rejects(blobs.put("film", content(1), { type: 1 as unknown as string }), BAD);
      for (const options of [null, 1, { signal: {} }, { signal: null }, { onProgress: 1 }]) {
        await rejects(blobs.put("film", content(1), options as object), BAD);
      }
      throws(() => new Blobs(host, null as unknown as object), BAD);
      await rejects(blobs.get(undefined as unknown as string), BAD);
      await rejects(blobs.delete(1 as unknown as string), BAD);
      expect(await keysOf(host)).toStrictEqual([]);
      const film = await blobs.put("film", content(10));
      for (const range of [
        { start: -1 },
        { start: 2, end: 1 },
        { start: 0.5 },
        { end: Number.NaN },
        1,
      ]) {
        await rejects(film.bytes(range as object), BAD);
        throws(() => film.stream(range as object), BAD);
      }
      await host.set("blobs/of/other", "something else");
      await rejects(blobs.get("other"), BAD);
    });
  });
}

describe("blobs and requests", () => {
  const answer = async (headers: Record<string, string> = {}, method = "GET") => {
    const blobs = new Blobs(await opened(memory()));
    const film = await blobs.put("film", content(1_000), { type: "video/mp4" });
    const named = Object.entries(headers).map(([name, value]) => [
      name,
      value.replace("TAG", `"${film.version}"`).replace("DATE", film.modified.toUTCString()),
    ]);
    const response = film.response(
      new Request("https://shop.example/film", { method, headers: named as [string, string][] }),
    );
    const body = new Uint8Array(await response.arrayBuffer());
    return { status: response.status, headers: response.headers, body };
  };

  test("without a range, all of it with its type, length and tag", async () => {
    const { status, headers, body } = await answer();
    expect(status).toBe(200);
    same(body, content(1_000));
    expect(
      ["content-type", "content-length", "accept-ranges", "content-range"].map((name) =>
        headers.get(name),
      ),
    ).toStrictEqual(["video/mp4", "1000", "bytes", null]);
    assert(/^"\w{24}"$/.test(headers.get("etag")!));
  });

  for (const [range, first, last] of [
    ["bytes=0-0", 0, 0],
    ["bytes=0-", 0, 999],
    ["bytes=500-", 500, 999],
    ["bytes=10-19", 10, 19],
    ["bytes=990-2000", 990, 999],
    ["bytes=-1", 999, 999],
    ["bytes=-2000", 0, 999],
    ["Bytes = 5-6", 5, 6],
  ] as const) {
    test(`"${range}" is answered by the bytes ${first} to ${last}`, async () => {
      const { status, headers, body } = await answer({ range });
      expect(status).toBe(206);
      expect(headers.get("content-range")).toBe(`bytes ${first}-${last}/1000`);
      expect(headers.get("content-length")).toBe(String(last - first + 1));
      same(body, content(1_000).subarray(first, last + 1));
    });
  }

  for (const range of ["bytes=1000-", "bytes=1000-1001", "bytes=-0"]) {
    test(`"${range}" is outside`, async () => {
      const { status, headers, body } = await answer({ range });
      expect([status, headers.get("content-range"), body.length]).toStrictEqual([
        416,
        "bytes */1000",
        0,
      ]);
    });
  }

  for (const range of ["bytes=5-4", "bytes=-", "lines=1-2", "bytes=0-1,5-6", "bytes=a-b"]) {
    test(`"${range}" is no range that is answered: all of it`, async () => {
      const { status, body } = await answer({ range });
      expect([status, body.length]).toStrictEqual([200, 1_000]);
    });
  }

  test("what the browser has already is not sent again, and a range of another content not at all", async () => {
    const range = "bytes=0-9";
    for (const [headers, status, length] of [
      [{ "if-none-match": "TAG" }, 304, 0],
      [{ "if-none-match": 'W/"x", TAG' }, 304, 0],
      [{ "if-none-match": "*" }, 304, 0],
      [{ "if-none-match": '"x"' }, 200, 1_000],
      [{ "if-modified-since": "DATE" }, 304, 0],
      [{ "if-modified-since": "Thu, 01 Jan 1970 00:00:00 GMT" }, 200, 1_000],
      [{ range, "if-range": "TAG" }, 206, 10],
      [{ range, "if-range": "DATE" }, 206, 10],
      [{ range, "if-range": '"x"' }, 200, 1_000],
    ] as const) {
      const answered = await answer(headers as Record<string, string>);
      expect([answered.status, answered.body.length]).toStrictEqual([status, length]);
    }
  });

  test("HEAD is answered without a body, and other methods are refused", async () => {
    const head = await answer({}, "HEAD");
    expect([head.status, head.body.length, head.headers.get("content-length")]).toStrictEqual([
      200,
      0,
      "1000",
    ]);
    const post = await answer({}, "POST");
    expect([post.status, post.headers.get("allow")]).toStrictEqual([405, "GET, HEAD"]);
  });

  test("a blob without a type is served as bytes", async () => {
    const film = await new Blobs(await opened(memory())).put("film", content(5));
    const response = film.response();
    expect(response.headers.get("content-type")).toBe("application/octet-stream");
    same(new Uint8Array(await response.arrayBuffer()), content(5));
  });
});

describe("blobs, crashes and full disks", () => {
  test("an upload that stood still for too long writes no chunk after that", async () => {
    const db = await opened(memory());
    const { now } = Date;
    onTestFinished(() => {
      Date.now = now;
    });
    let chunks = 0;
    const set = (key: string, value: Uint8Array) => {
      if (key.startsWith("blobs/in/")) chunks += 1;
      return db.set(key, value);
    };
    const frozen = async function* () {
      yield content(CHUNK);
      Date.now = () => now() + 200_000;
      yield content(2 * CHUNK);
    };
    await rejects(new Blobs(changed(db, { set })).put("film", frozen()), STALE);
    expect(chunks).toBe(1);
    expect(await keysOf(db)).toStrictEqual([]);
  });

  test("a crash at any write leaves the old content or the new one, and what it left of others is removed", async () => {
    const fake = new FakeStorage();
    const states: Uint8Array<ArrayBuffer>[] = [];
    const db = await opened(fake);
    const blobs = new Blobs(db, { keepReplaced: 0 });
    const [old, next] = [content(2 * CHUNK, 1), content(2 * CHUNK + 9, 2)];
    await blobs.put("film", old);
    fake.fault = ({ op }) => {
      if (op === "write") states.push(fake.content.slice());
      return undefined;
    };
    await blobs.put("film", partsOf(next));
    await blobs.reclaim();
    await blobs.delete("film");
    await blobs.reclaim();
    fake.fault = () => undefined;
    states.push(fake.content.slice());
    assert(states.length > 8);
    const seen = new Set<number | undefined>();
    for (const state of states) {
      const left = new FakeStorage();
      left.content = state;
      const again = await opened(left);
      const film = await new Blobs(again).get("film");
      seen.add(film?.size);
      if (film !== undefined) same(await film.bytes(), film.size === old.length ? old : next);
      // As if minutes had passed.
      for (const marker of again.keys({ prefix: "blobs/was/" })) again.set(marker, "1");
      await new Blobs(again).reclaim();
      const chunks = Math.ceil((film?.size ?? 0) / CHUNK);
      expect((await keysOf(again)).length).toBe(film === undefined ? 0 : 1 + chunks);
      if (film !== undefined) same(await film.bytes(), film.size === old.length ? old : next);
      await again.close();
    }
    expect(seen.size).toBe(3);
  });

  for (const made of ["database", "client"]) {
    test(`on a ${made}, an upload that fills the disk leaves nothing, and what was there can be read and deleted`, async () => {
      const fake = new FakeStorage();
      const host = await HOSTS[made]!(fake);
      const blobs = new Blobs(host);
      const old = content(4 * CHUNK);
      await blobs.put("film", old);
      for (let i = 0; i < 20; i++) await host.set(`other ${i}`, filled(200_000, i));
      const { length } = fake.content;
      fake.fault = (call) =>
        call.op === "write" && call.at + call.length > length + CHUNK
          ? platform.quota()
          : undefined;
      await rejects(blobs.put("film", content(200 * CHUNK)), QUOTA);
      same(await (await blobs.get("film"))!.bytes(), old);
      expect((await keysOf(host)).filter((key) => !key.startsWith("blobs/of/")).length).toBe(4);
      assert(await blobs.delete("film"));
      fake.fault = () => undefined;
      await new Blobs(host, { keepReplaced: 0 }).put("next", content(CHUNK));
      same(await (await blobs.get("next"))!.bytes(), content(CHUNK));
    });
  }
});
