/** Random programs of several `Blobs` on one database, checked against a map of whole contents. */

import { type Client, connect, type Database, memory, type OpenOptions, serve } from "varve";
import { type BlobSource, Blobs, type StoredBlob } from "varve/blobs";
import { assert, describe, expect, onTestFinished, test } from "vitest";
import { wasmOption } from "../support/context.js";
import { random } from "../support/values.js";
import { freshName, opened } from "./storages.js";

const CHUNK = 248 << 10;
const KEYS = ["", "a", "b/1", "ü"];
const STEPS = 40;

type Random = (below: number) => number;

function content(size: number, seed: number): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(size);
  for (let i = 0; i < size; i++) bytes[i] = (i * 31 + (i >> 8) * 17 + seed) & 0xff;
  return bytes;
}

function sizeOf(below: Random): number {
  const size = below(3) * CHUNK + below(3) - 1;
  return below(3) === 0 ? below(600) : Math.max(size, 0);
}

function same(given: Uint8Array, expected: Uint8Array): void {
  assert(given.length === expected.length);
  expect(given.findIndex((byte, at) => byte !== expected[at])).toBe(-1);
}

/** In one of the ways in which a program has bytes. With `failure`, it fails behind the last one. */
function sourceOf(bytes: Uint8Array<ArrayBuffer>, below: Random, failure?: Error): BlobSource {
  const part = 1 + below(2 * CHUNK);
  const parts = async function* () {
    for (let at = 0; at < bytes.length; at += part) yield bytes.slice(at, at + part);
    if (failure !== undefined) throw failure;
  };
  const kind = failure === undefined ? below(4) : below(2);
  if (kind === 0) return parts();
  if (kind === 2) return new Blob([bytes]);
  if (kind === 3) return bytes;
  const all = parts();
  return new ReadableStream({
    async pull(controller) {
      const { done, value } = await all.next();
      if (done) controller.close();
      else controller.enqueue(value);
    },
  });
}

/** A reader that stands anywhere in a blob that may have been replaced since. */
interface Reading {
  readonly film: StoredBlob;
  readonly expected: Uint8Array<ArrayBuffer>;
  readonly reader: ReadableStreamDefaultReader<Uint8Array<ArrayBuffer>>;
  at: number;
}

/** Where a program runs. `again` opens the database once more, or connects once more, as after a crash. */
interface Place {
  host(): Database | Client;
  again?(): Promise<void>;
}

function databaseOf(options: OpenOptions): () => Promise<Place> {
  return async () => {
    const [name, storage] = [freshName(), memory()];
    let db = await opened(storage, options, name);
    return {
      host: () => db,
      async again() {
        await db.close();
        db = await opened(storage, options, name);
      },
    };
  };
}

async function clients(): Promise<Place> {
  const db = serve("blobs", { storage: memory(), ...wasmOption() });
  const connected = () => {
    const { port1, port2 } = new MessageChannel();
    db.listen(port1);
    const client: Client = connect("blobs", { worker: () => port2 });
    onTestFinished(async () => {
      await client.close();
      port1.close();
      port2.close();
    });
    return client;
  };
  let client = connected();
  return {
    host: () => client,
    async again() {
      await client.close();
      client = connected();
    },
  };
}

async function run(seed: number, place: Place): Promise<void> {
  const below = random(seed);
  const kept = new Map<string, Uint8Array<ArrayBuffer>>();
  let readings: Reading[] = [];
  const made = () => [new Blobs(place.host()), new Blobs(place.host())];
  let all = made();
  const next = async (reading: Reading) => {
    const { done, value } = await reading.reader.read();
    if (done) {
      expect(reading.at).toBe(reading.expected.length);
      readings = readings.filter((one) => one !== reading);
      return;
    }
    same(value, reading.expected.subarray(reading.at, reading.at + value.length));
    reading.at += value.length;
  };
  const fails = async (put: Promise<unknown>, reason: unknown) => {
    const result = await put.then(
      () => "stored",
      (error: unknown) => error,
    );
    expect(result).toBe(reason);
  };
  for (let step = 0; step < STEPS; step++) {
    const blobs = all[below(all.length)]!;
    const key = KEYS[below(KEYS.length)]!;
    const bytes = content(sizeOf(below), below(256));
    const old = kept.get(key);
    const choice = below(12);
    if (choice < 3) {
      expect((await blobs.put(key, sourceOf(bytes, below))).size).toBe(bytes.length);
      kept.set(key, bytes);
    } else if (choice === 3) {
      expect(await blobs.delete(key)).toBe(kept.delete(key));
    } else if (choice === 4) {
      const failure = new Error("the source failed");
      await fails(blobs.put(key, sourceOf(bytes, below, failure)), failure);
    } else if (choice === 5) {
      const aborting = new AbortController();
      const reason = new Error("enough");
      const hanging = async function* () {
        yield bytes;
        aborting.abort(reason);
        await new Promise(() => {});
      };
      await fails(blobs.put(key, hanging(), { signal: aborting.signal }), reason);
    } else if (choice === 6) {
      const other = content(sizeOf(below), below(256));
      await Promise.all([
        blobs.put(key, sourceOf(bytes, below)),
        all[0]!.put(key, sourceOf(other, below)),
      ]);
      const now = await (await blobs.get(key))!.bytes();
      const isFirst = now.length === bytes.length && now.every((byte, at) => byte === bytes[at]);
      const stored = isFirst ? bytes : other;
      same(now, stored);
      kept.set(key, stored);
    } else if (choice === 7) {
      await blobs.reclaim();
    } else if (choice === 8 && below(3) === 0 && place.again !== undefined) {
      // In the middle of an upload.
      const source = async function* () {
        yield content(2 * CHUNK, 9);
        await new Promise(() => {});
      };
      const torn = blobs.put(key, source(), { onProgress: () => void closing() });
      let closed: Promise<void> | undefined;
      const closing = () => (closed ??= place.again!());
      torn.catch(() => {});
      while (closed === undefined) await new Promise((resolve) => setTimeout(resolve, 1));
      await closed;
      readings = [];
      all = made();
    } else if (choice === 9 && old !== undefined) {
      const film = (await blobs.get(key))!;
      readings.push({ film, expected: old, reader: film.stream().getReader(), at: 0 });
    } else if (choice === 10 && readings.length > 0) {
      const reading = readings[below(readings.length)]!;
      if (below(4) > 0) await next(reading);
      else {
        await reading.reader.cancel();
        readings = readings.filter((one) => one !== reading);
        const start = below(reading.expected.length + 1);
        const end = start + below(CHUNK);
        same(await reading.film.bytes({ start, end }), reading.expected.subarray(start, end));
      }
    } else {
      const film = await blobs.get(key);
      expect(film?.size).toBe(old?.length);
      if (film === undefined || old === undefined) continue;
      const start = below(old.length + 1);
      const end = start + below(2 * CHUNK);
      same(await film.bytes({ start, end }), old.subarray(start, end));
    }
  }
  while (readings.length > 0) await next(readings[0]!);
  const listed: string[] = [];
  for await (const { key, size } of all[1]!.list()) {
    listed.push(key);
    expect(size).toBe(kept.get(key)?.length);
    same(await (await all[0]!.get(key))!.bytes(), kept.get(key)!);
  }
  expect(listed).toStrictEqual([...kept.keys()].sort());
  // As if minutes had passed: nothing is left but what the blobs have.
  const host = place.host();
  const markers: string[] = [];
  for await (const marker of host.keys({ prefix: "blobs/was/" })) markers.push(marker);
  for (const marker of markers) await host.set(marker, "1");
  await all[0]!.reclaim();
  let left = 0;
  for await (const _ of host.keys({ prefix: "blobs/" })) left += 1;
  let expected = 0;
  for (const bytes of kept.values()) expected += 1 + Math.ceil(bytes.length / CHUNK);
  expect(left).toBe(expected);
}

const SETUPS: Readonly<Record<string, () => Promise<Place>>> = {
  "a database": databaseOf({}),
  "a database with strict views and little memory": databaseOf({
    strictViews: true,
    memory: 4 << 20,
  }),
  "a database that keeps its history": databaseOf({ history: "keep" }),
  "clients of one database": clients,
};

describe("random programs of blobs agree with a map", () => {
  for (const [name, make] of Object.entries(SETUPS)) {
    test(`on ${name}`, async () => {
      for (const seed of [1, 2, 3]) await run(seed, await make());
    });
  }
});
