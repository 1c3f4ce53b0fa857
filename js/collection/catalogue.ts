/**
 * What collections a database has, and where: descriptors in the engine's own keyspace, as FORMAT.md
 * section 8 says. A new collection's descriptor is written by its first write, in the same commit, so
 * that asking for a collection writes nothing.
 */

import type { Key } from "../bytes.js";
import type { Engine } from "../engine.js";
import { badArgument, CorruptionError, describe, SchemaMismatchError } from "../errors.js";
import type { Space } from "../scan.js";
import type { Descriptor } from "../struct/codec.js";
import { type DeclaredIndex, type IndexShape, IndexSpace } from "./indexes.js";

/** The engine's own keyspace. */
export const OWN = 1;

/** Flags of descriptors. */
const INDEX = 1;
const DROPPED = 2;

/** What to do where data or indexes would have to change. */
const MIGRATE = "Change it by await db.migrate(name, codec, { indexes }).";

const HEAD = 24;
const FIRST_KEYSPACE = 2;
const MAX_NAME = 200;

/** Under it the number of the next keyspace that was never given out, as 4 bytes. */
const NEXT = "keyspaces";

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** What a program says that a collection is. */
export interface Declaration {
  readonly fingerprint: string;
  readonly value: Descriptor;
  /** The kinds of the parts of its keys, or what stands for the lone one that needs no codec. */
  readonly key: string | readonly unknown[];
}

/** What a descriptor says: of a collection, or of an index. */
export interface Stored {
  readonly fingerprint: string;
  readonly keyspace: number;
  readonly flags: number;
  readonly parent: number;
  readonly json: {
    readonly value?: unknown;
    readonly key?: unknown;
    /** The names of a collection's indexes: each has a descriptor of its own. */
    readonly indexes?: readonly string[];
    readonly fields?: unknown;
    readonly unique?: unknown;
  };
}

/** A collection as all handles of a database share it. */
export class CollectionSpace implements Space {
  readonly name: string;
  readonly declaration: Declaration;
  keyspace: number;
  /** The engine's `undone` when its descriptor was last known to be written; never that before. */
  sure: number;
  /** All that it has, whoever declared them: every write keeps them. */
  readonly indexes: IndexSpace[];
  /** The key that was pushed last, and the engine's `changes` as it then was. */
  pushed: { key: number; changes: number };
  private readonly catalogue: Catalogue;

  constructor(catalogue: Catalogue, name: string, declaration: Declaration, keyspace: number) {
    this.catalogue = catalogue;
    this.name = name;
    this.declaration = declaration;
    this.keyspace = keyspace;
    this.sure = -1;
    this.indexes = [];
    this.pushed = { key: 0, changes: -1 };
  }

  /** Before a write: has its descriptor written, unless it is. */
  ensure(): void {
    this.catalogue.ensure(this);
  }
}

/** The catalogue of one open database. */
export class Catalogue {
  private readonly engine: Engine;
  private readonly spaces: Map<string, CollectionSpace>;
  /** The number of the next keyspace, once that is known. */
  private next: number;

  private constructor(engine: Engine) {
    this.engine = engine;
    this.spaces = new Map();
    this.next = 0;
  }

  private static readonly all = new WeakMap<Engine, Catalogue>();

  static of(engine: Engine): Catalogue {
    let catalogue = Catalogue.all.get(engine);
    if (catalogue === undefined) {
      catalogue = new Catalogue(engine);
      Catalogue.all.set(engine, catalogue);
    }
    return catalogue;
  }

  /** @throws SchemaMismatchError when it is another collection than the one of this name */
  collection(
    name: string,
    declaration: Declaration,
    indexes: readonly DeclaredIndex[],
  ): CollectionSpace {
    const space = this.spaces.get(name) ?? this.load(name, declaration);
    refuseOther(name, space.declaration, declaration);
    for (const index of indexes) this.join(space, index);
    this.spaces.set(name, space);
    return space;
  }

  private load(name: string, declaration: Declaration): CollectionSpace {
    const stored = this.read(keyOf(name));
    if (stored === undefined) return new CollectionSpace(this, name, declaration, this.number());
    refuseOther(name, declarationOf(stored), declaration);
    const space = new CollectionSpace(this, name, declaration, stored.keyspace);
    for (const index of stored.json.indexes ?? []) {
      const found = this.read(indexKeyOf(space.keyspace, index));
      if (found === undefined || (found.flags & DROPPED) !== 0) continue;
      const shape = found.json as unknown as IndexShape;
      const { value } = declaration;
      space.indexes.push(new IndexSpace(name, index, shape, value, found.keyspace));
    }
    space.sure = this.engine.undone;
    return space;
  }

  /** Has a collection have an index, if it has it already or has no records that would be missing. */
  private join(space: CollectionSpace, { name, shape }: DeclaredIndex): void {
    const found = space.indexes.find((index) => index.name === name);
    if (found !== undefined) {
      if (JSON.stringify(found.shape) === JSON.stringify(shape)) return;
      throw new SchemaMismatchError(
        `The index "${name}" of "${space.name}" is ${JSON.stringify(found.shape)} there and ` +
          `${JSON.stringify(shape)} here. ${MIGRATE}`,
      );
    }
    if (this.engine.count(space.keyspace) !== 0) {
      throw new SchemaMismatchError(
        `The collection "${space.name}" has records, and no index "${name}" of them. ${MIGRATE}`,
      );
    }
    const { value } = space.declaration;
    space.indexes.push(new IndexSpace(space.name, name, shape, value, this.number()));
    space.sure = -1;
  }

  /** Has the descriptors of a collection and its indexes be written, unless they are. */
  ensure(space: CollectionSpace): void {
    const { engine } = this;
    const { name, keyspace, indexes, declaration } = space;
    const names = indexes.map((index) => index.name);
    const stored = this.read(keyOf(name));
    if (stored === undefined || String(stored.json.indexes ?? []) !== String(names)) {
      const { fingerprint, value, key } = declaration;
      const json = names.length === 0 ? { value, key } : { value, key, indexes: names };
      this.write(keyOf(name), { fingerprint, keyspace, flags: 0, parent: 0, json });
      for (const index of indexes) {
        const { shape } = index;
        const of = { fingerprint, flags: INDEX, parent: keyspace, json: shape };
        this.write(indexKeyOf(keyspace, index.name), { ...of, keyspace: index.keyspace });
      }
      // What was given out by now, whoever got it.
      if (this.next !== 0) engine.set(NEXT, numberAsBytes(this.next), OWN);
    }
    space.sure = engine.undone;
  }

  private write(key: Key, stored: Stored): void {
    this.engine.set(key, encoded(stored), OWN);
  }

  private read(key: Key): Stored | undefined {
    const bytes = this.engine.get(key, OWN);
    return bytes === undefined ? undefined : decoded(key, bytes);
  }

  /** Gives out a number that no keyspace has or had. */
  private number(): number {
    if (this.next === 0) this.next = this.firstFree();
    this.next += 1;
    return this.next - 1;
  }

  private firstFree(): number {
    const { engine } = this;
    const noted = engine.get(NEXT, OWN);
    let free = noted === undefined ? FIRST_KEYSPACE : dataOf(noted).getUint32(0, true);
    // A damaged file may have lost the note, or its newest form. What is in use shows in the counts.
    while (engine.count(free) !== 0) free += 1;
    return free;
  }
}

function keyOf(name: unknown): string {
  if (typeof name !== "string" || name.length === 0 || name.length > MAX_NAME) {
    throw badArgument(`The name of a collection is a string of 1 to ${MAX_NAME} characters.`, name);
  }
  return `collection/${name}`;
}

function indexKeyOf(keyspace: number, name: string): Uint8Array<ArrayBuffer> {
  const text = encoder.encode(`index/1234${name}`);
  dataOf(text).setUint32(6, keyspace);
  return text;
}

function declarationOf({ fingerprint, json }: Stored): Declaration {
  return {
    fingerprint,
    value: json.value as Descriptor,
    key: json.key as Declaration["key"],
  };
}

function refuseOther(name: string, stored: Declaration, declared: Declaration): void {
  const sameKey = JSON.stringify(stored.key) === JSON.stringify(declared.key);
  if (stored.fingerprint === declared.fingerprint && sameKey) return;
  const what = sameKey ? "value" : "key";
  throw new SchemaMismatchError(
    `The collection "${name}" holds ${what}s of another kind: ${JSON.stringify(stored[what])} there ` +
      `and ${JSON.stringify(declared[what])} here. Declare what it holds, or use another name.`,
  );
}

function encoded({ fingerprint, keyspace, flags, parent, json }: Stored): Uint8Array<ArrayBuffer> {
  const text = encoder.encode(JSON.stringify(json));
  const bytes = new Uint8Array(HEAD + text.length);
  const data = dataOf(bytes);
  data.setBigUint64(0, BigInt(`0x${fingerprint}`), true);
  data.setUint32(8, keyspace, true);
  data.setUint32(12, flags, true);
  data.setUint32(16, parent, true);
  data.setUint32(20, text.length, true);
  bytes.set(text, HEAD);
  return bytes;
}

/** What the bytes of a descriptor say. */
export function decoded(key: Key, bytes: Uint8Array<ArrayBuffer>): Stored {
  try {
    const data = dataOf(bytes);
    const text = decoder.decode(bytes.subarray(HEAD, HEAD + data.getUint32(20, true)));
    return {
      fingerprint: data.getBigUint64(0, true).toString(16).padStart(16, "0"),
      keyspace: data.getUint32(8, true),
      flags: data.getUint32(12, true),
      parent: data.getUint32(16, true),
      json: JSON.parse(text) as Stored["json"],
    };
  } catch (cause) {
    throw new CorruptionError(
      `The descriptor ${describe(key)} in this database is none. It was written by something ` +
        "else than this package, or by a newer one.",
      { cause },
    );
  }
}

function dataOf(bytes: Uint8Array<ArrayBuffer>): DataView<ArrayBuffer> {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
}

function numberAsBytes(number: number): Uint8Array<ArrayBuffer> {
  return new Uint8Array(new Uint32Array([number]).buffer);
}
