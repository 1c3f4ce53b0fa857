/** The database that records are moved into: one of this realm, or a client of one. */

import type { Client } from "../../client/client.js";
import type { Caller } from "../../client/connection/caller.js";
import { bytesOf, cloneArgs } from "../../client/protocol/clone.js";
import { carried, type Sent, sentOf } from "../../client/protocol/json-values.js";
import type { RowSchema } from "../../client/rows.js";
import type { CollectionContext } from "../../collection/catalog.js";
import type { Database } from "../../database/database.js";
import { badCall, describe } from "../../errors/index.js";
import type { Codec } from "../../struct/codec.js";
import { jsonOf } from "../../struct/plain-json.js";
import { MAX_VALUE, TOO_LONG_VALUE } from "../../util/bytes.js";
import { decoder, encoder } from "../../util/text-coders.js";
import { bytesIn, type Difference, differenceOf } from "./compare.js";

/** A database, as `open` gives it, or a client, as `connect` gives it. */
export interface AnyDatabase {
  getMany(keys: never): unknown;
  getEntry(key: never): unknown;
  close(): Promise<void>;
}

/** A collection of either; or the database itself, for its raw keys. */
export interface AnyCollection {
  getMany(keys: never): unknown;
  batch(operations: never): unknown;
}

/** A record to be stored. */
export interface Row {
  readonly key: unknown;
  readonly value: unknown;
}

/** Where the records of one store go. */
export interface Place {
  /** The name of the collection; `undefined` for raw keys. */
  readonly name: string | undefined;
  /** How a value would change; throws what the codec throws for a bad value. */
  check(value: unknown): Difference | undefined;
  /** How a value differs from what is stored. */
  compare(value: unknown, stored: unknown): Difference | undefined;
  /** What is stored under these keys; throws for a bad key. */
  read(keys: readonly unknown[]): unknown[] | Promise<unknown[]>;
}

/** The mark of a migration: how far it has come. */
export interface StoredMark {
  readonly text: string;
  readonly version: number;
}

/** A database that takes records. */
export interface Target {
  /** The database's name; a client does not know it. */
  readonly name: string;
  place(collection: AnyCollection): Place;
  mark(): Promise<StoredMark | undefined>;
  /**
   * Stores records and the mark in one commit, and resolves to the mark's version.
   *
   * @throws (rejects) ConflictError if the mark has another version or, unless `replaces`, a key is there; nothing was
   * written
   */
  commit(mark: StoredMark, place: Place, rows: readonly Row[], replaces: boolean): Promise<number>;
  /** Resolves when all that was stored is on disk. */
  flush(): Promise<void>;
}

/** @throws TypeError for anything but a database or a client */
export function targetOf(to: unknown, markKey: string, signal: AbortSignal | undefined): Target {
  const { link, transaction, handle } = Object(to) as Record<string, unknown>;
  if (typeof (link as Caller | undefined)?.request === "function") {
    return new RemoteTarget(to as Client, markKey, signal);
  }
  if (typeof transaction === "function" && handle !== undefined) {
    return new LocalTarget(to as Database, markKey);
  }
  throw badCall(
    `The option to must be a database, as open() gives it, or a client, as connect() gives it. Given: ${describe(to)}.`,
  );
}

/** Raw keys: values are bytes or text, which are stored as bytes. */
const RAW = {
  name: undefined,
  check(value: unknown): Difference | undefined {
    const bytes = rawOf(value);
    if (bytes === undefined) {
      const text = `is ${describe(value)}, and raw keys have only bytes and text: use a collection`;
      return { path: "", text };
    }
    refuseLong(bytes.length);
    const isWhole = typeof value !== "string" || decoder.decode(bytes) === value;
    return isWhole ? undefined : { path: "", text: "has lone surrogates, which UTF-8 cannot hold" };
  },
  compare(value: unknown, stored: unknown): Difference | undefined {
    return differenceOf(rawOf(value), stored, false);
  },
};

/** Bytes of a raw value. Arrays of larger numbers would come back as bytes. */
function rawOf(value: unknown): Uint8Array | undefined {
  if (typeof value === "string") return encoder.encode(value);
  const isOther = ArrayBuffer.isView(value) && !(value instanceof Uint8Array);
  return isOther ? undefined : bytesIn(value);
}

function refuseLong(length: number): void {
  if (length > MAX_VALUE) throw badCall(TOO_LONG_VALUE);
}

/** A copy of a value that may be a view. */
function plain(value: unknown): unknown {
  const { snapshot } = Object(value) as { snapshot?: unknown };
  return typeof snapshot === "function" ? snapshot.call(value) : value;
}

/** Where values are encoded to be checked. It is used again, as allocating takes longer. */
let spare = new Uint8Array(0);

/** Encodes a value and decodes it again, in memory of its own. */
/** What becomes of a value. Of JSON what its losses are, and not the error that `json()` throws for them. */
function became(codec: Codec<unknown, unknown, unknown>, value: unknown): unknown {
  return codec.kind.kind === "json" ? JSON.parse(jsonOf(value, true)) : roundTrip(codec, value);
}

function roundTrip(codec: Codec<unknown, unknown, unknown>, value: unknown): unknown {
  const size = codec.size(value);
  refuseLong(size);
  if (spare.length < size) spare = new Uint8Array(Math.max(65_536, Math.ceil(size / 8) * 8));
  const u8 = spare;
  // A large one is not kept.
  if (u8.length > 1 << 20) spare = new Uint8Array(0);
  const memory = { u8, data: new DataView(u8.buffer), epoch: 0 };
  codec.write(memory, 0, value, size);
  return plain(codec.view(memory, 0, size));
}

/** The parts of a collection of this realm that are needed here. */
interface OwnCollection {
  readonly name: string;
  readonly handle: unknown;
  readonly context: CollectionContext<unknown, unknown, unknown, unknown>;
  get(key: unknown): unknown;
  set(key: unknown, value: unknown, options?: { ifVersion: number }): void;
}

class LocalTarget implements Target {
  readonly name: string;
  private readonly db: Database;
  private readonly markKey: string;
  private readonly setters = new Map<Place, OwnCollection["set"]>();

  constructor(db: Database, markKey: string) {
    this.db = db;
    this.name = (db as unknown as { handle: { session: { name: string } } }).handle.session.name;
    this.markKey = markKey;
  }

  place(given: AnyCollection): Place {
    const { db } = this;
    if ((given as unknown) === db) {
      const read = (keys: readonly unknown[]) => keys.map((key) => db.get(key as string)?.slice());
      return this.added({ ...RAW, read }, (key, value, options) =>
        db.set(key as string, rawOf(value) as Uint8Array, options),
      );
    }
    const collection = given as unknown as OwnCollection;
    const { handle } = db as unknown as { handle: unknown };
    if (collection?.handle === undefined || collection.handle !== handle) {
      throw badCall("Each store goes into a collection of the database that the option to names.");
    }
    const { codec } = collection.context;
    const byType = codec.kind.kind === "struct";
    return this.added(
      {
        name: collection.name,
        check: (value) => differenceOf(value, became(codec, value), byType),
        compare: (value, stored) => differenceOf(value, stored, byType),
        read: (keys) => keys.map((key) => plain(collection.get(key))),
      },
      (key, value, options) => collection.set(key, value, options),
    );
  }

  private added(place: Place, set: OwnCollection["set"]): Place {
    this.setters.set(place, set);
    return place;
  }

  async mark(): Promise<StoredMark | undefined> {
    const entry = this.db.getEntry(this.markKey);
    return entry && { text: decoder.decode(entry.value), version: entry.version };
  }

  async commit(
    { text, version }: StoredMark,
    place: Place,
    rows: readonly Row[],
    replaces: boolean,
  ): Promise<number> {
    const { db, markKey } = this;
    const set = this.setters.get(place) as OwnCollection["set"];
    db.transaction(() => {
      db.set(markKey, text, { ifVersion: version });
      for (const { key, value } of rows) set(key, value, replaces ? undefined : { ifVersion: 0 });
    });
    return db.getEntry(markKey)?.version ?? 0;
  }

  async flush(): Promise<void> {
    this.db.flush();
  }
}

/** The parts of a client's collection that are needed here. */
interface OtherCollection {
  readonly name: string;
  readonly caller: Caller;
  readonly target: { readonly schema?: (RowSchema & Partial<Encoder>) | undefined };
  getMany(keys: readonly unknown[], options: object): Promise<unknown[]>;
}

interface Encoder {
  encode(value: unknown): Uint8Array;
}

class RemoteTarget implements Target {
  readonly name = "";
  private readonly client: Client;
  private readonly caller: Caller;
  private readonly markKey: string;
  private readonly options: { readonly signal: AbortSignal | undefined };

  constructor(client: Client, markKey: string, signal: AbortSignal | undefined) {
    this.client = client;
    this.caller = (client as unknown as { link: Caller }).link;
    this.markKey = markKey;
    this.options = { signal };
  }

  place(given: AnyCollection): Place {
    const { client, caller, options } = this;
    if ((given as unknown) === client) {
      const read = (keys: readonly unknown[]) => client.getMany(keys as string[], options);
      return { ...RAW, read };
    }
    const collection = given as unknown as OtherCollection;
    if (collection?.caller === undefined || collection.caller !== caller) {
      throw badCall("Each store goes into a collection of the client that the option to names.");
    }
    const { name, target } = collection;
    const { schema } = target;
    const isJson = () => [true, "lossy"].includes(caller.storingOf(name) as true);
    return {
      name,
      check(value) {
        if (isJson()) return differenceOf(value, JSON.parse(jsonOf(value, true)), false);
        if (schema?.encode !== undefined) {
          const u8 = schema.encode(value);
          refuseLong(u8.length);
          const memory = { u8, data: new DataView(u8.buffer, u8.byteOffset, u8.length), epoch: 0 };
          return differenceOf(value, schema.view(memory, 0, u8.length).snapshot(), true);
        }
        const { value: sent } = carried(() => sentOf(value, caller.storingOf(name) ?? false));
        return differenceOf(value, sent, false);
      },
      // Of a collection that is not JSON, the page may not know whether it has a schema.
      compare: (value, stored) => differenceOf(value, stored, !isJson()),
      read: (keys) => collection.getMany(keys, options),
    };
  }

  async mark(): Promise<StoredMark | undefined> {
    const entry = await this.client.getEntry(this.markKey, this.options);
    return entry && { text: decoder.decode(entry.value), version: entry.version };
  }

  async commit(
    { text, version }: StoredMark,
    { name }: Place,
    rows: readonly Row[],
    replaces: boolean,
  ): Promise<number> {
    const { caller, options } = this;
    const markKey = bytesOf(this.markKey);
    const storing = name === undefined ? undefined : caller.storingOf(name);
    const all = rows.map(({ key, value }) => ({
      key: name === undefined ? bytesOf(key) : cloneArgs(key),
      in: name,
      ...(name === undefined
        ? { value: rawOf(value) }
        : carried((): Sent => sentOf(value, storing))),
    }));
    const commitment = {
      reads: [
        { key: markKey, version },
        ...(replaces ? [] : all.map(({ key, in: of }) => ({ key, in: of, version: 0 }))),
      ],
      writes: [
        ...all.map(({ key, in: of, value, forms }: (typeof all)[number] & Partial<Sent>) => ({
          type: "set",
          key,
          in: of,
          value,
          forms,
        })),
        { type: "set", key: markKey, value: bytesOf(text) },
      ],
    };
    const done = caller.request("commitIf", () => [commitment], true, options);
    // In the same message, so that no other write comes between.
    const entry = this.client.getEntry(this.markKey, options);
    entry.catch(() => undefined);
    await done;
    return (await entry)?.version ?? 0;
  }

  flush(): Promise<void> {
    return this.client.flush(this.options);
  }
}
