/**
 * The catalog: the descriptors of a database's collections and indexes in the engine's own keyspace (FORMAT.md,
 * section 8). The descriptor of a new collection is written by its first write, in the same commit, so that
 * getting a collection writes nothing.
 */

import type { Engine } from "../engine/engine.js";
import { SYSTEM_KEYSPACE } from "../engine/wasm-memory.js";
import {
  badArgument,
  CorruptionError,
  describe,
  QuotaExceededError,
  ReadOnlyError,
  ReentrancyError,
  SchemaMismatchError,
} from "../errors/index.js";
import type { Source, Space } from "../session/cursor.js";
import type { Session } from "../session/session.js";
import type { Codec, Descriptor } from "../struct/codec.js";
import type { Key } from "../util/bytes.js";
import { decoder, encoder } from "../util/text-coders.js";
import { indexKeyspaces, recordIndexKeyspaces } from "./index-counts.js";
import { type DeclaredIndex, type IndexShape, IndexSpace } from "./indexes.js";
import type { Keys } from "./keys.js";
import { type Declaration, MIGRATE, refuseOtherSchema } from "./schema-diff.js";

/** The database handle of a collection. It gives the session while it is open. */
export interface Handle {
  readonly session: Session;
  /** What is called when the handle closes; `undefined` for a snapshot. */
  readonly closers?: Set<() => void>;
  /** The catalog as of a snapshot, if the collections are to be those of one. */
  readonly catalog?: Catalog;
}

/** The keyspace of a collection, and the codecs of its keys and values. */
export interface CollectionContext<K, View, Writable, Input, KeyInput = K> {
  readonly source: Source;
  /** What is called when the handle closes; `undefined` for a snapshot. */
  readonly closers?: Set<() => void> | undefined;
  readonly space: CollectionSpace;
  readonly keys: Keys<K, KeyInput>;
  readonly codec: Codec<View, Writable, Input>;
  /** After how many milliseconds records expire that are set without an expiry of their own. */
  readonly expireIn?: number | undefined;
}

/** Flags of descriptors. */
const INDEX = 1;
const DROPPED = 2;
const BUILDING = 4;

const NOTHING: Pending = { clear: [] };

const HEAD = 24;
const SLASH = 0x2f;

/** Number of keys per scan. */
const PAGE = 1_024;

const FIRST_KEYSPACE = 2;
const LAST_KEYSPACE = 65_535;
const MAX_NAME = 200;

/** The key of the lowest keyspace number that was never assigned, stored as 4 bytes. */
export const KEYSPACES_KEY = "keyspaces";

/** The content of the descriptor of a collection or of an index. */
export interface Stored {
  readonly fingerprint: string;
  readonly keyspace: number;
  readonly flags: number;
  readonly parent: number;
  readonly json: {
    readonly value?: unknown;
    readonly key?: unknown;
    /** The names of a collection's indexes. Each index has its own descriptor. */
    readonly indexes?: readonly string[];
    /** The names of the indexes that are being built: every write updates them, but they cannot be read yet. */
    readonly building?: readonly string[];
    readonly fields?: unknown;
    readonly unique?: unknown;
  };
}

/** The state of a migration, stored beside the descriptor of the collection while it runs. */
export interface Pending {
  /** The target of a conversion: the values are converted into other keyspaces. */
  readonly to?: {
    readonly fingerprint: string;
    readonly key: Declaration["key"];
    readonly keyspace: number;
    readonly indexes: readonly (readonly [name: string, shape: IndexShape, keyspace: number])[];
    /** The key, in hexadecimal, up to which records are converted. */
    readonly after: string;
  };
  /** The key up to which records have their entries in the indexes that are being built. */
  readonly built?: string;
  /** Keyspaces without a descriptor, which are to be emptied. */
  readonly clear: readonly number[];
}

/** Suffix of an index's descriptor name while it is built to replace an index of the same name. */
const REBUILD_SUFFIX = "\0";

/** A collection, shared by all handles of a database. */
export class CollectionSpace implements Space {
  readonly name: string;
  declaration: Declaration;
  keyspace: number;
  /** The engine's `rollbacks` when the descriptor was last known to be written; -1 before. */
  checkedAt: number;
  /** All indexes of the collection, declared here or not: every write updates them. */
  readonly indexes: IndexSpace[];
  /** The key that was pushed last, and the engine's `changes` and `rollbacks` at that time. */
  pushed: { key: number; changes: number; rollbacks: number };
  /** The stored highest id that was ever in use, and the engine's `rollbacks` when it was read. */
  used: { upTo: bigint; isStored: boolean; rollbacks: number };
  private readonly catalog: Catalog;

  constructor(catalog: Catalog, name: string, declaration: Declaration, keyspace: number) {
    this.catalog = catalog;
    this.name = name;
    this.declaration = declaration;
    this.keyspace = keyspace;
    this.checkedAt = -1;
    this.indexes = [];
    this.pushed = { key: 0, changes: -1, rollbacks: -1 };
    this.used = { upTo: 0n, isStored: false, rollbacks: -1 };
  }

  /** Writes the descriptor before a write, unless it is written already. */
  ensure(): void {
    this.catalog.ensure(this);
  }
}

/** The catalog of one open database. */
export class Catalog {
  private readonly engine: Engine;
  private readonly spaces: Map<string, CollectionSpace>;
  /** The collections whose values are being converted: writes to them are refused. */
  readonly converting: Set<string>;
  /** The lowest keyspace number that was never assigned; 0 until it is read. */
  private next: number;
  /** The first value of `next`: numbers from there on were assigned by this session. */
  private first: number;
  /** Unused numbers, searched for when all were assigned. */
  private unusedNumbers: number[];
  /** Numbers that this session assigned again. */
  private readonly reassigned: Set<number>;

  /** The number of the snapshot whose descriptors this shows; 0 for the present ones. */
  private readonly snapshot: number;

  private constructor(engine: Engine, snapshot = 0) {
    this.engine = engine;
    this.snapshot = snapshot;
    this.spaces = new Map();
    this.converting = new Set();
    this.next = 0;
    this.first = 0;
    this.unusedNumbers = [];
    this.reassigned = new Set();
  }

  private static readonly all = new WeakMap<Engine, Catalog>();

  static of(engine: Engine): Catalog {
    let catalog = Catalog.all.get(engine);
    if (catalog === undefined) {
      catalog = new Catalog(engine);
      Catalog.all.set(engine, catalog);
    }
    return catalog;
  }

  /** The catalog as of a snapshot: its collections are in the keyspaces of that, and cannot be written to. */
  static asOf(engine: Engine, snapshot: number): Catalog {
    return new Catalog(engine, snapshot);
  }

  /**
   * The collection of this name, with these indexes.
   *
   * @throws SchemaMismatchError if the stored collection or one of its indexes is declared differently
   */
  collection(
    name: string,
    declaration: Declaration,
    indexes: readonly DeclaredIndex[],
  ): CollectionSpace {
    const space = this.space(name, declaration);
    const before = space.indexes.length;
    try {
      for (const index of indexes) this.join(space, index);
    } catch (error) {
      space.indexes.length = before;
      throw error;
    }
    return space;
  }

  /** The collection of this name, whatever its indexes are. Throws as `collection`. */
  space(name: string, declaration: Declaration): CollectionSpace {
    const space = this.spaces.get(name) ?? this.load(name, declaration);
    refuseOtherSchema(name, space.declaration, declaration);
    if (fieldsIn(declaration.value) > fieldsIn(space.declaration.value)) {
      // This declaration is a later version of the struct.
      space.declaration = declaration;
      space.checkedAt = -1;
    }
    this.spaces.set(name, space);
    return space;
  }

  /** The collections that the program has declared. */
  get declared(): Iterable<CollectionSpace> {
    return this.spaces.values();
  }

  /** The declaration of the collection of this name, whether or not its descriptor is written yet. */
  known(name: string): Declaration | undefined {
    const stored = this.read(keyOf(name));
    return stored === undefined ? this.spaces.get(name)?.declaration : declarationOf(stored);
  }

  private load(name: string, declaration: Declaration): CollectionSpace {
    const stored = this.read(keyOf(name));
    if (stored === undefined) return new CollectionSpace(this, name, declaration, this.number());
    const there = declarationOf(stored);
    refuseOtherSchema(name, there, declaration);
    const { snapshot } = this;
    const space = new CollectionSpace(this, name, declaration, snapshot + stored.keyspace);
    for (const index of [...(stored.json.indexes ?? []), ...(stored.json.building ?? [])]) {
      const found = this.read(indexKeyOf(stored.keyspace, index));
      if (found === undefined || isDropped(found)) continue;
      const shape = found.json as unknown as IndexShape;
      // A later version of a struct may have fields that this program does not know.
      const { value } = fieldsIn(there.value) > fieldsIn(declaration.value) ? there : declaration;
      const [title] = index.split(REBUILD_SUFFIX, 1);
      const keyspace = snapshot + found.keyspace;
      const indexSpace = new IndexSpace(name, title as string, shape, value, keyspace);
      indexSpace.storedAs = index;
      indexSpace.isBuilt = (found.flags & BUILDING) === 0;
      space.indexes.push(indexSpace);
    }
    const isSame = there.fingerprint === declaration.fingerprint;
    if (snapshot === 0 && isSame && this.pending(name).to === undefined)
      space.checkedAt = this.engine.rollbacks;
    return space;
  }

  /** Declares an index of a collection. A new index is allowed only if the collection has no records. */
  private join(space: CollectionSpace, { name, shape }: DeclaredIndex): void {
    const found = space.indexes.find((index) => index.name === name);
    if (found?.isBuilt) {
      if (JSON.stringify(found.shape) === JSON.stringify(shape)) return;
      throw new SchemaMismatchError(
        `The index "${name}" of "${space.name}" is ${JSON.stringify(found.shape)}, not ` +
          `${JSON.stringify(shape)}. ${MIGRATE}`,
      );
    }
    if (found !== undefined || this.engine.count(space.keyspace) !== 0) {
      throw new SchemaMismatchError(
        `The collection "${space.name}" has records, but no index "${name}". ${MIGRATE}`,
      );
    }
    space.indexes.push(this.newIndex(space, name, shape));
    space.checkedAt = -1;
  }

  newIndex(space: CollectionSpace, name: string, shape: IndexShape): IndexSpace {
    const index = new IndexSpace(space.name, name, shape, space.declaration.value, this.number());
    if (space.indexes.some(({ storedAs }) => storedAs === name)) index.storedAs += REBUILD_SUFFIX;
    return index;
  }

  /** Writes the descriptors of a collection and its indexes, unless they are written already. */
  ensure(space: CollectionSpace): void {
    const { name } = space;
    if (this.snapshot !== 0) {
      throw new ReadOnlyError(
        `The collection "${name}" is that of a snapshot and cannot be written to: write to that of the ` +
          "database itself, db.collection().",
      );
    }
    if (this.converting.has(name)) {
      throw new ReentrancyError(
        `The collection "${name}" is being migrated and cannot be written to: await ` +
          "db.migrate() first.",
      );
    }
    const stored = this.read(keyOf(name));
    const isWritten =
      stored?.fingerprint === space.declaration.fingerprint &&
      namesIn(stored.json.indexes) === namesIn(namesOf(space, true)) &&
      namesIn(stored.json.building) === namesIn(namesOf(space, false));
    if (!isWritten) this.describe(space, stored);
    // This write makes an unfinished conversion incomplete, so it is discarded.
    const { to, ...rest } = this.pending(name);
    if (to !== undefined) {
      const clear = [...rest.clear, to.keyspace, ...to.indexes.map(([, , keyspace]) => keyspace)];
      this.note(name, { ...rest, clear });
    }
    space.checkedAt = this.engine.rollbacks;
  }

  /** Writes the descriptors of a collection and its indexes: first those of the indexes, which its own names. */
  describe(space: CollectionSpace, stored = this.read(keyOf(space.name))): void {
    const { name, keyspace, indexes } = space;
    // If another version of the struct is stored, the longer one is kept.
    const isLonger =
      stored?.keyspace === keyspace &&
      fieldsIn(stored.json.value) > fieldsIn(space.declaration.value);
    const { fingerprint, value, key } = isLonger ? declarationOf(stored) : space.declaration;
    this.noteNumbers();
    for (const index of indexes) {
      const { shape, isBuilt } = index;
      const flags = INDEX | (isBuilt ? 0 : BUILDING);
      const of = { fingerprint, flags, parent: keyspace, json: shape };
      this.write(indexKeyOf(keyspace, index.storedAs), { ...of, keyspace: index.keyspace });
    }
    recordIndexKeyspaces(
      this.engine,
      keyspace,
      indexes.map((index) => index.keyspace),
    );
    const [built, building] = [namesOf(space, true), namesOf(space, false)];
    const json = {
      value,
      key,
      ...(built.length === 0 ? {} : { indexes: built }),
      ...(building.length === 0 ? {} : { building }),
    };
    this.write(keyOf(name), { fingerprint, keyspace, flags: 0, parent: 0, json });
  }

  /** Stores which keyspace numbers were assigned so far. */
  noteNumbers(): void {
    if (this.next !== 0) this.engine.set(KEYSPACES_KEY, numberAsBytes(this.next), SYSTEM_KEYSPACE);
  }

  /** Deletes the descriptor of an index. */
  forget(space: CollectionSpace, { storedAs }: IndexSpace): void {
    this.engine.remove(indexKeyOf(space.keyspace, storedAs), SYSTEM_KEYSPACE);
  }

  /** Replaces a collection. Handles of the old one throw from now on. */
  replace(name: string, space: CollectionSpace | undefined): void {
    const old = this.spaces.get(name);
    if (space === undefined) this.spaces.delete(name);
    else this.spaces.set(name, space);
    if (old === undefined || old === space) return;
    this.end(name, [old, ...old.indexes]);
  }

  /** Makes every use of these keyspaces throw: each use reads `keyspace` first. */
  end(name: string, spaces: readonly Space[]): void {
    for (const space of spaces) {
      Object.defineProperty(space, "keyspace", {
        get() {
          throw new SchemaMismatchError(
            `The collection "${name}" was migrated: get it again with db.collection().`,
          );
        },
      });
    }
  }

  /** The state of the migration of a collection. */
  pending(name: string): Pending {
    const bytes = this.engine.get(pendingKeyOf(name), SYSTEM_KEYSPACE);
    return bytes === undefined ? NOTHING : (JSON.parse(decoder.decode(bytes)) as Pending);
  }

  /** Stores the state of the migration of a collection, or deletes it if nothing is left to do. */
  note(name: string, pending: Pending): void {
    const isNothing =
      pending.to === undefined && pending.built === undefined && pending.clear.length === 0;
    if (isNothing) this.engine.remove(pendingKeyOf(name), SYSTEM_KEYSPACE);
    else this.engine.set(pendingKeyOf(name), JSON.stringify(pending), SYSTEM_KEYSPACE);
  }

  private write(key: Key, stored: Stored): void {
    this.engine.set(key, encoded(stored), SYSTEM_KEYSPACE);
  }

  private read(key: Key): Stored | undefined {
    const bytes = this.engine.get(key, this.snapshot + SYSTEM_KEYSPACE);
    return bytes === undefined ? undefined : decoded(key, bytes);
  }

  /** The number of entries in all indexes: those recorded in the file, and those of collections in use here. */
  indexEntries(): number {
    const keyspaces = indexKeyspaces(this.engine);
    for (const { indexes } of this.spaces.values()) {
      for (const { keyspace } of indexes) keyspaces.add(keyspace);
    }
    return [...keyspaces].reduce((sum, keyspace) => sum + this.engine.count(keyspace), 0);
  }

  /**
   * Assigns a keyspace number: one that was never used or, if none is left, that of an empty keyspace without a
   * descriptor.
   *
   * @throws QuotaExceededError if there is none
   */
  number(): number {
    if (this.snapshot !== 0) return this.emptyKeyspace();
    if (this.next === 0) {
      this.next = this.firstFree();
      this.first = this.next;
    }
    if (this.next > LAST_KEYSPACE) return this.reassignNumber();
    this.next += 1;
    return this.next - 1;
  }

  /** A keyspace of the snapshot without records, for collections and indexes that did not exist. */
  private emptyKeyspace(): number {
    let keyspace = this.snapshot + LAST_KEYSPACE;
    while (this.engine.count(keyspace) !== 0) keyspace -= 1;
    return keyspace;
  }

  private firstFree(): number {
    const { engine } = this;
    const noted = engine.get(KEYSPACES_KEY, SYSTEM_KEYSPACE);
    let free = noted === undefined ? FIRST_KEYSPACE : dataOf(noted).getUint32(0, true);
    // A damaged file may have lost that record or its latest value, so keyspaces with records are skipped.
    while (free <= LAST_KEYSPACE && engine.count(free) !== 0) free += 1;
    return free;
  }

  private reassignNumber(): number {
    const { engine, reassigned } = this;
    if (this.unusedNumbers.length === 0) this.unusedNumbers = this.findUnusedNumbers();
    const number = this.unusedNumbers.pop();
    if (number !== undefined) {
      reassigned.add(number);
      return number;
    }
    throw new QuotaExceededError(
      `The database "${engine.name}" has reached its limit of ${LAST_KEYSPACE - 1} collections and indexes. ` +
        "Nothing was written. Put records that differ in a name into one collection, with keys that " +
        "are tuples and begin with that name: { key: [str, str] }.",
    );
  }

  /**
   * The numbers of empty keyspaces without a descriptor. Those assigned by this session are left out, because they
   * may be in use before their descriptor is written.
   */
  private findUnusedNumbers(): number[] {
    const { engine, first, reassigned } = this;
    const unused: number[] = [];
    const named = allReferencedKeyspaces(engine);
    if (named === undefined) return unused;
    for (let number = first - 1; number >= FIRST_KEYSPACE; number--) {
      if (named.has(number) || reassigned.has(number) || engine.count(number) !== 0) continue;
      unused.push(number);
    }
    return unused;
  }
}

/** All keyspaces that descriptors or migrations refer to; `undefined` if the database keeps no key order. */
function allReferencedKeyspaces(engine: Engine): Set<number> | undefined {
  const referenced = new Set<number>();
  let lower = new Uint8Array(0);
  try {
    for (;;) {
      const range = { lower, lowerExcluded: true, upper: undefined, upperIncluded: false };
      const { bytes, numbers, count } = engine.scan(
        { ...range, reverse: false },
        PAGE,
        false,
        SYSTEM_KEYSPACE,
      );
      for (let i = 0; i < count; i++) {
        lower = bytes.slice(numbers[i], numbers[i + 1]);
        for (const number of referencedKeyspaces(engine, lower)) referenced.add(number);
      }
      if (count === 0) return referenced;
    }
  } catch (error) {
    if ((error as { code?: unknown }).code === "VARVE_BAD_ARGUMENT") return undefined;
    throw error;
  }
}

function referencedKeyspaces(engine: Engine, key: Uint8Array<ArrayBuffer>): readonly number[] {
  const name = decoder.decode(key.subarray(0, key.indexOf(SLASH) + 1));
  if (name === "collection/" || name === "index/") {
    const bytes = engine.get(key, SYSTEM_KEYSPACE);
    return bytes === undefined ? [] : [decoded(key, bytes).keyspace];
  }
  if (name !== "migration/") return [];
  const bytes = engine.get(key, SYSTEM_KEYSPACE);
  const { to, clear } =
    bytes === undefined ? NOTHING : (JSON.parse(decoder.decode(bytes)) as Pending);
  const indexes = to?.indexes.map(([, , keyspace]) => keyspace) ?? [];
  return [...clear, ...indexes, ...(to === undefined ? [] : [to.keyspace])];
}

function keyOf(name: unknown): string {
  if (typeof name !== "string" || name.length === 0 || name.length > MAX_NAME) {
    throw badArgument(`A collection name must be a string of 1 to ${MAX_NAME} characters.`, name);
  }
  if (/\p{Cs}/u.test(name)) {
    throw badArgument("A collection name must not contain a lone surrogate.", name);
  }
  return `collection/${name}`;
}

function pendingKeyOf(name: string): string {
  return `migration/${name}`;
}

function namesOf(space: CollectionSpace, isBuilt: boolean): string[] {
  return space.indexes.filter((index) => index.isBuilt === isBuilt).map(({ storedAs }) => storedAs);
}

function namesIn(names: readonly string[] | undefined): string {
  return JSON.stringify(names ?? []);
}

function fieldsIn(value: unknown): number {
  return (value as { fields?: readonly unknown[] }).fields?.length ?? 0;
}

/** The key of an index's descriptor. */
export function indexKeyOf(keyspace: number, name: string): Uint8Array<ArrayBuffer> {
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

/** Encodes a descriptor. */
export function encoded({
  fingerprint,
  keyspace,
  flags,
  parent,
  json,
}: Stored): Uint8Array<ArrayBuffer> {
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

/** Whether the collection or index of this descriptor was dropped. */
export function isDropped({ flags }: Stored): boolean {
  return (flags & DROPPED) !== 0;
}

/** Decodes a descriptor. */
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
      `The descriptor ${describe(key)} in this database is invalid. It was written by a newer ` +
        "version, or by another program.",
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
