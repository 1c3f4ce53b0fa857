/**
 * Secondary indexes. An index has its own keyspace with an entry for each record. The key of an entry is the tuple
 * of the indexed fields, followed by the record's key. A record and its entries change under the same savepoint, so
 * that both changes are kept or neither.
 */

import type { Engine } from "../engine/engine.js";
import type { KeyRange } from "../engine/wasm-memory.js";
import { badArgument, SchemaMismatchError, UniqueViolationError } from "../errors/index.js";
import type { Space } from "../session/cursor.js";
import { refuseUnknown } from "../session/options.js";
import type { Descriptor } from "../struct/codec.js";
import { type Desc, type PartKind, partCodec, TupleCodec } from "../struct/key.js";
import { MAX_KEY } from "../util/bytes.js";

/**
 * A field to be indexed, or `desc()` of one: its name or, for a field of a struct within the struct, the path to
 * it, such as "size.width".
 */
export type IndexField<View> = Fields<View> | Desc<Fields<View>>;

/** The types of fields that can be sorted. */
type Sortable = string | number | bigint | boolean | Date | Uint8Array | undefined | null;

/**
 * The sortable fields of a view, and those of its structs by their paths. Limited to a depth of six structs, because
 * TypeScript does not allow unbounded recursion.
 */
type Fields<View, Level extends 0[] = []> = {
  [F in keyof View & string]: string extends F
    ? never
    : View[F] extends Sortable
      ? F
      : View[F] extends { snapshot(): readonly unknown[] }
        ? never
        : View[F] extends { snapshot(): object }
          ? Level["length"] extends 5
            ? never
            : `${F}.${Fields<View[F], [...Level, 0]>}`
          : never;
}[keyof View & string];

/** The value of a field or of a path to one. */
type At<T, Path> = Path extends keyof T
  ? T[Path]
  : Path extends `${infer F}.${infer Rest}`
    ? F extends keyof T
      ? At<T[F], Rest>
      : unknown
    : unknown;

/** What an index is over: a field, several fields, or either with options. */
export type IndexSpec<View> =
  | IndexField<View>
  | readonly [IndexField<View>, ...IndexField<View>[]]
  | {
      readonly fields: IndexField<View> | readonly [IndexField<View>, ...IndexField<View>[]];
      /**
       * Whether no two records may have the same values in these fields. A missing value counts as a value.
       * `false` by default.
       */
      readonly unique?: boolean;
    };

/** The option `indexes`: what to index, by the name of the index. */
export interface IndexSpecs<View> {
  readonly [name: string]: IndexSpec<View>;
}

/** A type to which nothing can be assigned, so that the compiler's error shows the reason. */
export interface Refused<Why extends string> {
  readonly refused: Why;
}

/** Refuses unknown options of indexes, which the compiler does not check while it infers a type. */
export type KnownIndexes<Specs> = {
  readonly [Name in keyof Specs]: KnownIndex<Specs[Name]>;
};

/** Refuses unknown options of one index. */
export type KnownIndex<Spec> = Spec extends { readonly fields: unknown }
  ? {
      readonly [Option in Exclude<
        keyof Spec,
        "fields" | "unique"
      >]: Refused<"An index has no option of this name, only: fields, unique.">;
    }
  : unknown;

/** The type of a field in a query. A field that can be stored as a `Date` can be queried by one. */
type FieldValue<View, F, Input> =
  F extends Desc<infer G> ? FieldValue<View, G, Input> : At<View, F> | Extract<At<Input, F>, Date>;

/** The values that an index is ordered by: those of its single field, or a tuple of those of several. */
export type IndexValue<View, S, Input = unknown> = S extends { readonly fields: infer F }
  ? IndexValue<View, F, Input>
  : S extends readonly unknown[]
    ? { readonly [I in keyof S]: FieldValue<View, S[I], Input> }
    : FieldValue<View, S, Input>;

/** A field's name, or that of a field sorted in descending order, as stored in the descriptor. */
type StoredField = string | { readonly desc: string };

/** The definition of an index, as stored in its descriptor. */
export interface IndexShape {
  readonly fields: readonly StoredField[];
  readonly unique?: true;
}

/** An index that a program declares: `isSingle` if it is of a field and not of an array of fields. */
export interface DeclaredIndex {
  readonly name: string;
  readonly shape: IndexShape;
  readonly isSingle: boolean;
}

/** Size of an entry's value, which holds the length of the tuple in its key. */
const ENTRY = 8;

/** An index, shared by all handles of a database. */
export class IndexSpace implements Space {
  readonly name: string;
  readonly shape: IndexShape;
  readonly tuple: TupleCodec;
  keyspace: number;
  /** The name of its descriptor. It differs from `name` while the index is built to replace one of that name. */
  storedAs: string;
  /** Whether all records have their entries. Until then the index is updated but cannot be read. */
  isBuilt: boolean;
  private readonly collection: string;
  private readonly paths: readonly (readonly string[])[];

  constructor(
    collection: string,
    name: string,
    shape: IndexShape,
    value: Descriptor,
    keyspace: number,
  ) {
    this.collection = collection;
    this.name = name;
    this.storedAs = name;
    this.shape = shape;
    this.keyspace = keyspace;
    this.isBuilt = true;
    const fields = shape.fields.map((field) => fieldOf(value, field, `The index "${name}"`));
    this.paths = fields.map(({ path }) => path);
    this.tuple = new TupleCodec(
      `The index "${name}"`,
      fields.map(({ kind, path }) => partCodec(kind, `The indexed field ${path.join(".")}`)),
    );
  }

  /** The entry of a record. */
  entryOf(view: unknown, key: Uint8Array): Entry {
    const values = this.paths.map((path) => {
      let value: unknown = view;
      for (const name of path) {
        if (!(name in (value as object))) throw this.unknown(path);
        value = (value as Record<string, unknown>)[name];
      }
      return value;
    });
    area ??= new Uint8Array(MAX_KEY + 2);
    const head = this.tuple.write(area, values);
    if (head + key.length > MAX_KEY) {
      throw badArgument(
        `An entry of the index "${this.name}" of "${this.collection}" is too long: with the ` +
          `record's key it may take ${MAX_KEY} bytes.`,
      );
    }
    const bytes = new Uint8Array(head + key.length);
    bytes.set(area.subarray(0, head));
    bytes.set(key, head);
    return { bytes, head };
  }

  /** The error for an indexed field that only a later version of the struct has. */
  private unknown(path: readonly string[]): Error {
    return new SchemaMismatchError(
      `The index "${this.name}" of "${this.collection}" needs the field ${path.join(".")}, ` +
        "which is not declared here, so nothing can be written. Declare the later version of the " +
        "struct.",
    );
  }

  /** Adds an entry, which expires with its record. @throws UniqueViolationError */
  add(engine: Engine, { bytes, head }: Entry, expiry: number): void {
    if (this.shape.unique === true) this.refuseTaken(engine, bytes, bytes.subarray(0, head));
    if (expiry !== 0) engine.expireNext(expiry);
    const at = engine.setBegin(engine.encodeBy(copier, bytes), ENTRY, this.keyspace);
    engine.memory.data.setUint32(at, head, true);
    engine.memory.data.setUint32(at + 4, 0, true);
    engine.finish(ENTRY);
  }

  touch(engine: Engine, { bytes }: Entry, expiry: number): void {
    engine.touch(engine.encodeBy(copier, bytes), expiry, this.keyspace);
  }

  remove(engine: Engine, { bytes }: Entry): void {
    engine.removeEncoded(engine.encodeBy(copier, bytes), this.keyspace);
  }

  /**
   * Throws if another entry has the same tuple. Each part of a tuple marks its own end, so an entry that starts with
   * the tuple's bytes has exactly that tuple.
   */
  private refuseTaken(
    engine: Engine,
    entry: Uint8Array<ArrayBuffer>,
    tuple: Uint8Array<ArrayBuffer>,
  ): void {
    const { bytes } = engine.scan({ ...ALL, lower: tuple }, 1, false, this.keyspace);
    if (bytes.length < tuple.length || tuple.some((byte, i) => byte !== bytes[i])) return;
    if (bytes.length === entry.length && entry.every((byte, i) => byte === bytes[i])) return;
    const values = this.tuple.read(tuple, 0);
    const names = this.paths.map((path) => path.join("."));
    throw new UniqueViolationError(
      `Another record of "${this.collection}" already has this ${names.join(" and ")}: ` +
        `${values.map((value) => `${typeof value === "string" ? JSON.stringify(value) : value}`).join(", ")}. ` +
        `The index "${this.name}" is unique; nothing was written.`,
      { collection: this.collection, index: this.name },
    );
  }
}

/** The key of an index entry, and the length of the tuple in it. */
export interface Entry {
  readonly bytes: Uint8Array<ArrayBuffer>;
  readonly head: number;
}

const ALL: KeyRange = {
  lower: undefined,
  lowerExcluded: false,
  upper: undefined,
  upperIncluded: false,
  reverse: false,
};

let area: Uint8Array<ArrayBuffer> | undefined;

/** Encodes a key that is given as its encoded bytes. */
export const copier = {
  write(to: Uint8Array, bytes: Uint8Array): number {
    to.set(bytes);
    return bytes.length;
  },
};

/** The entries of a record in all indexes. */
export function entriesOf(
  indexes: readonly IndexSpace[],
  view: unknown,
  key: Uint8Array,
): readonly Entry[] {
  return indexes.map((index) => index.entryOf(view, key));
}

/** Replaces the index entries of a record where they differ. */
export function reindex(
  engine: Engine,
  indexes: readonly IndexSpace[],
  before: readonly Entry[] | undefined,
  after: readonly Entry[] | undefined,
  expiry: number,
): void {
  for (const [i, index] of indexes.entries()) {
    const [old, now] = [before?.[i], after?.[i]];
    if (old !== undefined && now !== undefined && isSame(old, now)) {
      if (engine.expiring) index.touch(engine, now, expiry);
      continue;
    }
    if (old !== undefined) index.remove(engine, old);
    if (now !== undefined) index.add(engine, now, expiry);
  }
}

/** Whether all index entries are the same. */
export function areSame(before: readonly Entry[], after: readonly Entry[]): boolean {
  return before.every((entry, i) => isSame(entry, after[i] as Entry));
}

function isSame({ bytes }: Entry, { bytes: other }: Entry): boolean {
  return bytes.length === other.length && bytes.every((byte, i) => byte === other[i]);
}

/** Parses the option `indexes`. */
export function declaredIndexes(specs: unknown): readonly DeclaredIndex[] {
  if (specs === undefined) return [];
  if (typeof specs !== "object" || specs === null) {
    throw badArgument("The option indexes must be an object of indexes by name.", specs);
  }
  return Object.entries(specs).map(([name, spec]) => declared(name, spec as unknown));
}

function declared(name: string, spec: unknown): DeclaredIndex {
  const isObject = typeof spec === "object" && spec !== null && "fields" in spec;
  if (isObject) refuseUnknown(`the index "${name}"`, spec, ["fields", "unique"]);
  const { fields, unique = false } = (isObject ? spec : { fields: spec }) as {
    fields: unknown;
    unique?: unknown;
  };
  if (typeof unique !== "boolean") {
    throw badArgument(`The option unique of the index "${name}" must be true or false.`, unique);
  }
  const list: readonly unknown[] = Array.isArray(fields) ? fields : [fields];
  const isField = (field: unknown): field is StoredField =>
    typeof field === "string" || typeof (field as Desc<string> | null)?.desc === "string";
  if (list.length === 0 || !list.every(isField)) {
    throw badArgument(
      `The index "${name}" must be a field name, an array of them, or { fields, unique }.`,
      fields,
    );
  }
  const plain = list.map((field) => (typeof field === "string" ? field : { desc: field.desc }));
  const shape = unique ? { fields: plain, unique } : { fields: plain };
  return { name, shape, isSingle: !Array.isArray(fields) };
}

/** Finds a field: its path in the view, and its kind as part of a key. */
function fieldOf(
  value: Descriptor,
  field: StoredField,
  what: string,
): { readonly kind: PartKind; readonly path: readonly string[] } {
  if (typeof field !== "string") {
    const { kind, path } = fieldOf(value, field.desc, what);
    return { kind: { desc: kind }, path };
  }
  const found = find(value, field);
  if (found === undefined) {
    const where = value.kind === "struct" ? `${value.name} has none` : "its values are not structs";
    throw badArgument(`${what} needs the field ${JSON.stringify(field)}, but ${where}.`);
  }
  return found;
}

function find(
  value: Descriptor,
  name: string,
): { readonly kind: Descriptor; readonly path: readonly string[] } | undefined {
  if (value.kind !== "struct") return undefined;
  for (const [own, kind] of value.fields) {
    if (kind.kind === "flatten") {
      const found = find(kind.of, name);
      if (found !== undefined) return found;
    } else if (own === name) {
      return { kind, path: [name] };
    } else if (name.startsWith(`${own}.`)) {
      const found = find(kind, name.slice(own.length + 1));
      if (found !== undefined) return { kind: found.kind, path: [own, ...found.path] };
    }
  }
  return undefined;
}
