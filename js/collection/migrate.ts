/**
 * Migration, `db.migrate`: converts a collection to its declaration, in slices, while the program goes on. Values
 * are converted into another keyspace, and new indexes are built beside the old ones, until one commit makes all of
 * it visible. The progress is stored beside the collection's descriptor, so that a migration continues after a crash.
 */

import { badArgument, SchemaMismatchError } from "../errors/index.js";
import type { Session } from "../session/session.js";
import type { Codec, Descriptor } from "../struct/codec.js";
import { schemaOf } from "../struct/codegen/schema-from-descriptor.js";
import { codecOf } from "../struct/value-codecs.js";
import { nextTask, timeSlice } from "../util/clock.js";
import {
  Catalog,
  type CollectionContext,
  CollectionSpace,
  type Handle,
  type Pending,
} from "./catalog.js";
import { keepAllIds } from "./ids.js";
import { copier, type DeclaredIndex, entriesOf, IndexSpace, reindex } from "./indexes.js";
import { type Keys, storedKeys } from "./keys.js";
import { writeRecord } from "./writes.js";

/** The progress of a migration. */
export interface MigrateProgress {
  /** Records processed so far. */
  readonly records: number;
  /** Records that were there when it started. */
  readonly total: number;
}

/** How a migration converts records, and how it reports. */
export interface Migration<Old, Input, K, OldKey, KeyInput> {
  /** Makes the new value from an old one. `undefined` leaves the record out. */
  readonly migrate?: ((old: Old, key: K) => Input | undefined) | undefined;
  /**
   * Makes the new key from an old one, if the collection has keys of another kind. Each record needs a key of
   * its own.
   */
  // The empty list makes the compiler infer a tuple for an array. As a key it is refused.
  readonly rekey?: ((key: OldKey, old: Old) => KeyInput | readonly []) | undefined;
  /** Called between slices with the progress so far. If it throws, the migration ends with that error. */
  readonly onProgress?: ((progress: MigrateProgress) => void) | undefined;
  /** Aborts the migration. The next call goes on where it stopped. */
  readonly signal?: AbortSignal | undefined;
}

/** Other tasks run after each slice of this length. */
const SLICE_MS = 4;

/** Number of records that are processed between two readings of the clock. */
const PAGE = 64;

/** The range of all keys. */
const ALL = {
  lower: undefined,
  lowerExcluded: true,
  upper: undefined,
  upperIncluded: false,
  reverse: false,
};

export async function migrate<K, View, Writable, Input, KeyInput>(
  handle: Handle,
  name: string,
  codec: Codec<View, Writable, Input>,
  keys: Keys<K, KeyInput>,
  indexes: readonly DeclaredIndex[] | undefined,
  options: Migration<unknown, Input, K, unknown, KeyInput>,
): Promise<void> {
  const { session } = handle;
  session.guard.assertOutsideCallback("migrate()");
  session.guard.assertWritable("migrate()");
  session.checkRange("migrate()");
  for (const option of ["migrate", "rekey"] as const) {
    const given: unknown = options[option];
    if (given !== undefined && typeof given !== "function") {
      throw badArgument(`The option ${option} of migrate() must be a function.`, given);
    }
  }
  const catalog = Catalog.of(session.engine);
  const { fingerprint, kind } = codec;
  const declaration = { fingerprint, value: kind, key: keys.kind };
  const there = catalog.known(name);
  if (there === undefined) return;
  if (catalog.converting.has(name)) {
    throw badArgument(`The collection "${name}" is already being migrated. Await that first.`);
  }
  const run = new Run(handle, catalog, name, codec, keys, options);
  const keepsKeys = JSON.stringify(there.key) === JSON.stringify(keys.kind);
  if (!keepsKeys && options.rekey === undefined) {
    throw new SchemaMismatchError(
      `The keys of "${name}" are ${JSON.stringify(there.key)}, not ` +
        `${JSON.stringify(keys.kind)}. Give migrate() the option rekey, a function that makes new ` +
        "keys from old ones.",
    );
  }
  if (keepsKeys && there.fingerprint === fingerprint) await run.index(declaration, indexes);
  else await run.convert(there, declaration, indexes);
  await run.removeOldKeyspaces();
}

/** One run of a migration. */
class Run<K, View, Writable, Input, KeyInput> {
  private readonly handle: Handle;
  private readonly catalog: Catalog;
  private readonly name: string;
  private readonly codec: Codec<View, Writable, Input>;
  private readonly keys: Keys<K, KeyInput>;
  private readonly options: Migration<unknown, Input, K, unknown, KeyInput>;

  constructor(
    handle: Handle,
    catalog: Catalog,
    name: string,
    codec: Codec<View, Writable, Input>,
    keys: Keys<K, KeyInput>,
    options: Migration<unknown, Input, K, unknown, KeyInput>,
  ) {
    this.handle = handle;
    this.catalog = catalog;
    this.name = name;
    this.codec = codec;
    this.keys = keys;
    this.options = options;
  }

  // ---------------------------------------------------------------- indexes

  /** Builds the declared indexes and drops all others, without converting values. */
  async index(
    declaration: Parameters<Catalog["space"]>[1],
    declared: readonly DeclaredIndex[] | undefined,
  ): Promise<void> {
    const { catalog, name } = this;
    const space = catalog.space(name, declaration);
    const target = declared ?? space.indexes.filter(({ isBuilt }) => isBuilt);
    const obsolete = space.indexes.filter((index) => !target.some((other) => isSame(index, other)));
    const missing = target.filter((index) => !space.indexes.some((other) => isSame(other, index)));
    const abandoned = obsolete.filter(({ isBuilt }) => !isBuilt);
    if (abandoned.length > 0 || missing.length > 0) {
      this.atomically(() => {
        this.drop(space, abandoned);
        const made = missing.map((index) => catalog.newIndex(space, index.name, index.shape));
        for (const index of made) {
          index.isBuilt = false;
          space.indexes.push(index);
        }
        catalog.describe(space);
        const { to, built, ...rest } = catalog.pending(name);
        catalog.note(name, missing.length === 0 ? rest : { ...rest, built: "" });
      });
    }
    const building = space.indexes.filter(({ isBuilt }) => !isBuilt);
    if (building.length > 0) await this.build(space, building);
    // Drop old indexes only after the new ones are built, so that a failure leaves the collection as it was.
    const last = obsolete.filter((index) => space.indexes.includes(index));
    if (building.length === 0 && last.length === 0) return;
    this.atomically(() => {
      this.drop(space, last);
      for (const index of building) {
        catalog.forget(space, index);
        index.storedAs = index.name;
        index.isBuilt = true;
      }
      catalog.describe(space);
      const { built, ...rest } = catalog.pending(name);
      catalog.note(name, rest);
    });
    catalog.end(name, last);
  }

  private drop(space: CollectionSpace, obsolete: readonly IndexSpace[]): void {
    if (obsolete.length === 0) return;
    const { catalog, name } = this;
    for (const index of obsolete) {
      space.indexes.splice(space.indexes.indexOf(index), 1);
      catalog.forget(space, index);
    }
    const pending = catalog.pending(name);
    const clear = [...pending.clear, ...obsolete.map(({ keyspace }) => keyspace)];
    catalog.note(name, { ...pending, clear });
  }

  private async build(space: CollectionSpace, building: readonly IndexSpace[]): Promise<void> {
    const { catalog, name, codec } = this;
    let isRefused = false;
    try {
      await this.walk(space.keyspace, catalog.pending(name).built ?? "", (session, key, after) => {
        const { engine } = session;
        const at = engine.find(engine.encodeBy(copier, key), space.keyspace);
        const view = codec.view(engine.memory, at, engine.foundLength());
        try {
          const entries = entriesOf(building, view, key);
          const expiry = engine.expiryOf(engine.encodeBy(copier, key), space.keyspace);
          reindex(engine, building, undefined, entries, expiry);
        } catch (error) {
          isRefused = ["VARVE_UNIQUE_VIOLATION", "VARVE_BAD_ARGUMENT"].includes(codeOf(error));
          throw named(error, name, this.keys.decode(key));
        }
        return () => catalog.note(name, { ...catalog.pending(name), built: after });
      });
    } catch (error) {
      // An index that a record is refused by is dropped; an interrupted one is continued by the next call.
      if (isRefused) {
        this.atomically(() => {
          this.drop(space, building);
          catalog.describe(space);
          const { built, ...rest } = catalog.pending(name);
          catalog.note(name, rest);
        });
        await this.removeOldKeyspaces();
      }
      throw error;
    }
  }

  // ---------------------------------------------------------------- values

  /** Converts all values into a new keyspace, which then replaces the old one. */
  async convert(
    there: Parameters<Catalog["space"]>[1],
    declaration: Parameters<Catalog["space"]>[1],
    declared: readonly DeclaredIndex[] | undefined,
  ): Promise<void> {
    const { catalog, name } = this;
    const old = catalog.space(name, there);
    const read = readerOf(there.value);
    catalog.converting.add(name);
    old.checkedAt = -1;
    try {
      const target = declared ?? old.indexes.filter(({ isBuilt }) => isBuilt);
      const [space, after] = this.begin(declaration, target);
      await this.convertAll(old, space, read, after);
      this.atomically((session) => {
        const keys = storedKeys(old.declaration.key);
        if (keys.areIds) keepAllIds(session, { space: old, keys });
        const obsolete = old.indexes.map((index) => index.keyspace);
        for (const index of old.indexes) catalog.forget(old, index);
        const clear = [...catalog.pending(name).clear, old.keyspace, ...obsolete];
        catalog.describe(space);
        catalog.note(name, { clear });
      });
      catalog.replace(name, space);
    } finally {
      catalog.converting.delete(name);
    }
  }

  /** Starts or continues a conversion. Returns its target and the key, in hexadecimal, up to which it is done. */
  private begin(
    declaration: Parameters<Catalog["space"]>[1],
    target: readonly Pick<DeclaredIndex, "name" | "shape">[],
  ): [CollectionSpace, string] {
    const { catalog, name } = this;
    const { fingerprint, value } = declaration;
    const { to, built, clear } = catalog.pending(name);
    const isResumed =
      to?.fingerprint === fingerprint &&
      JSON.stringify(to.key) === JSON.stringify(declaration.key) &&
      JSON.stringify(to.indexes.map(([index, shape]) => [index, shape])) ===
        JSON.stringify(target.map((index) => [index.name, index.shape]));
    const made = isResumed ? to : undefined;
    const space = new CollectionSpace(
      catalog,
      name,
      declaration,
      made?.keyspace ?? catalog.number(),
    );
    for (const [i, index] of target.entries()) {
      const keyspace = made?.indexes[i]?.[2] ?? catalog.number();
      space.indexes.push(new IndexSpace(name, index.name, index.shape, value, keyspace));
    }
    if (made !== undefined) return [space, made.after];
    const others = to === undefined ? [] : [to.keyspace, ...to.indexes.map(([, , of]) => of)];
    const pending: Pending = {
      to: {
        fingerprint,
        key: declaration.key,
        keyspace: space.keyspace,
        indexes: space.indexes.map((index) => [index.name, index.shape, index.keyspace]),
        after: "",
      },
      clear: [...clear, ...others],
      ...(built === undefined ? {} : { built }),
    };
    this.atomically(() => {
      catalog.noteNumbers();
      catalog.note(name, pending);
    });
    return [space, ""];
  }

  private convertAll(
    old: CollectionSpace,
    space: CollectionSpace,
    read: Reader,
    after: string,
  ): Promise<void> {
    const { catalog, name, codec, keys } = this;
    const { migrate: change = (value: unknown) => value as Input } = this.options;
    const source = () => this.handle.session;
    const context: CollectionContext<K, View, Writable, Input, KeyInput> = {
      source,
      space,
      keys,
      codec,
    };
    const keyFor = this.keying(old, space);
    return this.walk(old.keyspace, after, (session, oldKey, reached) => {
      const { engine } = session;
      const at = engine.find(engine.encodeBy(copier, oldKey), old.keyspace);
      naming(name, storedKeys(old.declaration.key), oldKey, () => {
        const value = read(engine.memory, at, engine.foundLength());
        const key = keyFor(session, oldKey, value);
        const made = change(value, keys.decode(key));
        session.refuseLater("The function migrate", made);
        if (made === undefined) return;
        const size = codec.size(made);
        const expiry = engine.expiryOf(engine.encodeBy(copier, oldKey), old.keyspace);
        writeRecord(session, context, engine.encodeBy(copier, key), made, size, expiry);
        const to = engine.find(engine.encodeBy(copier, key), space.keyspace);
        const view = codec.view(engine.memory, to, engine.foundLength());
        try {
          reindex(engine, space.indexes, undefined, entriesOf(space.indexes, view, key), expiry);
        } catch (error) {
          throw named(error, name, keys.decode(key));
        }
      });
      return () => {
        const pending = catalog.pending(name);
        if (pending.to === undefined) throw new Error("The state of a migration is gone.");
        catalog.note(name, { ...pending, to: { ...pending.to, after: reached } });
      };
    });
  }

  /** Returns the function that gives the new key of a record. */
  private keying(
    old: CollectionSpace,
    space: CollectionSpace,
  ): (session: Session, key: Uint8Array<ArrayBuffer>, value: unknown) => Uint8Array<ArrayBuffer> {
    const { name, keys, options } = this;
    const { rekey } = options;
    if (rekey === undefined || isSameKind(old, space)) return (_, key) => key;
    const before = storedKeys(old.declaration.key);
    return ({ engine }, key, value) => {
      const given = rekey(before.decode(key), value);
      const length = keys.encode(engine, given as KeyInput);
      const bytes = engine.encoded(length);
      if (engine.find(length, space.keyspace) === 0) return bytes;
      throw badArgument(
        `The function rekey gave this record of "${name}" another record's key: ${keyText(given)}.`,
      );
    };
  }

  // ---------------------------------------------------------------- slices

  /**
   * Visits the records after a key. Each slice is one transaction and one commit. `visit` returns a function that
   * stores the progress; at the end of a slice, the one of the last record is called.
   */
  private async walk(
    keyspace: number,
    from: string,
    visit: (session: Session, key: Uint8Array<ArrayBuffer>, reached: string) => () => void,
  ): Promise<void> {
    const { handle } = this;
    const total = handle.session.engine.count(keyspace);
    let lower: Uint8Array<ArrayBuffer> | undefined = from === "" ? undefined : unhex(from);
    let records = 0;
    for (let more = true; more; ) {
      this.reportProgress({ records, total });
      const isOver = timeSlice(SLICE_MS);
      this.atomically((session) => {
        let note: (() => void) | undefined;
        do {
          const range = { ...ALL, lower };
          const { bytes, numbers, count } = session.engine.scan(range, PAGE, false, keyspace);
          for (let i = 0; i < count; i++) {
            const key: Uint8Array<ArrayBuffer> = bytes.slice(numbers[i], numbers[i + 1]);
            lower = key;
            note = visit(session, key, hex(key));
          }
          records += count;
          more = count > 0;
        } while (more && !isOver());
        note?.();
      });
      await nextTask();
    }
    this.reportProgress({ records, total });
  }

  /** Reports the progress. Throws if the migration was aborted. */
  private reportProgress(progress: MigrateProgress): void {
    const { onProgress, signal } = this.options;
    signal?.throwIfAborted();
    onProgress?.(progress);
    signal?.throwIfAborted();
  }

  /** Clears the keyspaces that have no descriptor any more. */
  async removeOldKeyspaces(): Promise<void> {
    const { catalog, name, handle } = this;
    for (;;) {
      const [keyspace] = catalog.pending(name).clear;
      if (keyspace === undefined) return;
      this.options.signal?.throwIfAborted();
      this.atomically((session) => {
        session.clear(ALL, Number.POSITIVE_INFINITY, keyspace);
        const { clear, ...rest } = catalog.pending(name);
        catalog.note(name, { ...rest, clear: clear.filter((one) => one !== keyspace) });
      });
      await nextTask();
      handle.session.guard.assertReadable();
    }
  }

  /** Runs a part of the migration in one commit. If it throws, nothing is written. */
  private atomically(part: (session: Session) => void): void {
    const { session } = this.handle;
    session.guard.assertOutsideCallback("migrate()");
    session.guard.assertWritable("migrate()");
    session.undoUnless(
      () => true,
      () => part(session),
    );
    session.commits.commit();
  }
}

function isSameKind(one: CollectionSpace, other: CollectionSpace): boolean {
  return JSON.stringify(one.declaration.key) === JSON.stringify(other.declaration.key);
}

function keyText(key: unknown): string {
  return typeof key === "string" ? JSON.stringify(key) : String(key);
}

/** Processes a record, and adds its key to the error if the value is refused. */
function naming(
  collection: string,
  keys: Keys<unknown>,
  key: Uint8Array<ArrayBuffer>,
  act: () => void,
): void {
  try {
    act();
  } catch (error) {
    const isOfField = typeof (error as { field?: unknown } | null)?.field === "string";
    throw isOfField ? named(error, collection, keys.decode(key)) : error;
  }
}

/** Adds the key of a record to an error. A record that is not unique is named in it already. */
function named(error: unknown, collection: string, key: unknown): unknown {
  if (error instanceof Error && codeOf(error) !== "VARVE_UNIQUE_VIOLATION") {
    error.message = `The record ${keyText(key)} of "${collection}": ${error.message}`;
  }
  return error;
}

function codeOf(error: unknown): string {
  return String((error as { code?: unknown } | null)?.code);
}

/** Reads an old value, as a copy; of `structured()` and of codecs of the program its bytes. */
type Reader = (
  memory: Parameters<Codec<unknown, never, never>["view"]>[0],
  at: number,
  length: number,
) => unknown;

function readerOf(kind: Descriptor): Reader {
  if (kind.kind === "struct") {
    const schema = schemaOf(kind);
    return (memory, at, length) =>
      (schema.view(memory, at, length) as unknown as { snapshot(): unknown }).snapshot();
  }
  if (kind.kind === "json" || kind.kind === "text") {
    const codec = codecOf<unknown>({ kind });
    return (memory, at, length) => codec.view(memory, at, length);
  }
  return ({ u8 }, at, length) => u8.slice(at, at + length);
}

function isSame(
  one: Pick<DeclaredIndex, "name" | "shape">,
  other: Pick<DeclaredIndex, "name" | "shape">,
): boolean {
  return one.name === other.name && JSON.stringify(one.shape) === JSON.stringify(other.shape);
}

function hex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function unhex(digits: string): Uint8Array<ArrayBuffer> {
  return new Uint8Array(digits.length / 2).map((_, i) =>
    Number.parseInt(digits.slice(2 * i, 2 * i + 2), 16),
  );
}
