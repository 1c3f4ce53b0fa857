/**
 * Secondary indexes. An index has its own keyspace with an entry for each record, or for each value of a record's list.
 * The key of an entry is the tuple of the indexed fields, followed by the record's key. A record and its entries change under the same savepoint, so
 * that both changes are kept or neither.
 */

import type { Engine } from "../engine/engine.js";
import type { KeyRange } from "../engine/wasm-memory.js";
import { badArgument, SchemaMismatchError, UniqueViolationError } from "../errors/index.js";
import type { Space } from "../session/cursor.js";
import { refuseUnknown } from "../session/options.js";
import type { Descriptor } from "../struct/codec.js";
import {
  type Desc,
  type KeyInput,
  type KeySpec,
  kindOf,
  type PartKind,
  partCodec,
  TupleCodec,
} from "../struct/key.js";
import type { Type } from "../struct/type.js";
import { compareBytes, MAX_KEY } from "../util/bytes.js";

/**
 * A field of a struct to be indexed, or `desc()` of one: its name or, for a field of a struct within the struct, the
 * path to it, such as "size.width".
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

/** The lists of a view, and those of its structs by their paths. */
type Lists<View, Level extends 0[] = []> = {
  [F in keyof View & string]: string extends F
    ? never
    : View[F] extends Sortable
      ? never
      : NonNullable<View[F]> extends { snapshot(): readonly unknown[] }
        ? F
        : View[F] extends { snapshot(): object }
          ? Level["length"] extends 5
            ? never
            : `${F}.${Lists<View[F], [...Level, 0]>}`
          : never;
}[keyof View & string];

/** The paths of plain objects, or `string` where the type says nothing of their fields. */
type Paths<T, Level extends 0[] = []> = unknown extends T
  ? string
  : T extends Sortable | readonly unknown[] | ReadonlySet<unknown> | ReadonlyMap<unknown, unknown>
    ? never
    : {
        [F in keyof T & string]:
          | F
          | (Level["length"] extends 5 ? never : `${F}.${Paths<NonNullable<T[F]>, [...Level, 0]>}`);
      }[keyof T & string];

/** The value of a field or of a path to one. */
type At<T, Path> = Path extends keyof T
  ? T[Path]
  : Path extends `${infer F}.${infer Rest}`
    ? F extends keyof T
      ? At<T[F], Rest>
      : unknown
    : unknown;

/** What an index is over: of structs a field or several, of plain objects fields and their types. */
export type IndexSpec<View> = View extends { snapshot(): object }
  ? StructIndexSpec<View>
  : PlainIndexSpec<View>;

/** An option of every index. */
interface Unique {
  /**
   * Whether no two records may have the same values in these fields, or the same value among many. A missing value
   * counts as a value if the record is in the index. `false` by default.
   */
  readonly unique?: boolean;
}

/** An option of indexes over one field. */
interface ManyValues {
  /**
   * Whether the field is a list, and each of its values an entry: a record is found by each of them, once by equal ones.
   * For `type: str` the field then is an array or a set of texts. `false` by default.
   */
  readonly multiEntry: true;
}

/** What an index of structs is over: a field, several fields, or either with options. */
export type StructIndexSpec<View> =
  | IndexField<View>
  | readonly [IndexField<View>, ...IndexField<View>[]]
  | (Unique & {
      readonly fields: IndexField<View> | readonly [IndexField<View>, ...IndexField<View>[]];
      readonly multiEntry?: false;
      readonly type?: never;
    })
  | (Unique &
      ManyValues & { readonly fields: Lists<View> | Desc<Lists<View>>; readonly type?: never });

/**
 * What an index of the values of `json()`, `structured()` or `standard()` is over. A record without a value in one of the
 * fields is not in the index, unless the type is an `option`.
 */
export type PlainIndexSpec<View> =
  | (Unique &
      Partial<Record<"multiEntry", boolean>> & {
        /** The path of the field, such as "address.city", or `desc()` of it. */
        readonly fields: Paths<View> | Desc<Paths<View>>;
        /** The type of the field, or of each of its values, such as `str`. Other values are refused. */
        readonly type: Type;
      })
  | (Unique & {
      /** The paths of several fields, each alone or in `desc()`. */
      readonly fields: readonly [
        Paths<View> | Desc<Paths<View>>,
        ...(Paths<View> | Desc<Paths<View>>)[],
      ];
      /** The type of each field. */
      readonly type: readonly [Type, ...Type[]];
      readonly multiEntry?: false;
    });

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
        "fields" | "type" | "unique" | "multiEntry"
      >]: Refused<"An index has no option of this name, only: fields, type, unique, multiEntry.">;
    }
  : unknown;

/** The type of a field in a query. A field that can be stored as a `Date` can be queried by one. */
type FieldValue<View, F, Input> =
  F extends Desc<infer G> ? FieldValue<View, G, Input> : At<View, F> | Extract<At<Input, F>, Date>;

/** The type of one value of a list in a query. */
type ItemValue<View, F> =
  F extends Desc<infer G>
    ? ItemValue<View, G>
    : NonNullable<At<View, F>> extends Iterable<infer V>
      ? V
      : never;

/** The values that an index is ordered by: those of its single field, or a tuple of those of several. */
export type IndexValue<View, S, Input = unknown> = S extends { readonly type: infer T }
  ? T extends KeySpec
    ? KeyInput<T>
    : never
  : S extends { readonly fields: infer F; readonly multiEntry: true }
    ? ItemValue<View, F>
    : S extends { readonly fields: infer F }
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
  /** The kinds of the fields, if the values have no schema. */
  readonly types?: readonly Descriptor[];
  /** Whether the field is a list, and each of its values has an entry. */
  readonly multiEntry?: true;
}

/** What this version knows of an index. One with more cannot be kept up to date. */
const SHAPE = ["fields", "unique", "types", "multiEntry"];

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
  /** Whether a value that is missing is the tuple's, by field; for plain objects only. */
  private readonly optional: readonly boolean[] | undefined;

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
    const what = `The index "${name}"`;
    const other = Object.keys(shape).find((option) => !SHAPE.includes(option));
    if (other !== undefined) {
      throw new SchemaMismatchError(
        `${what} of "${collection}" was declared by a newer version: this one does not know its option ${other}.`,
      );
    }
    const fields = shape.fields.map((field, i) => fieldOf(value, field, shape, i, what));
    this.paths = fields.map(({ path }) => path);
    const of = shape.multiEntry ? "A value in the indexed field" : "The indexed field";
    this.tuple = new TupleCodec(
      what,
      fields.map(({ kind, path }) => partCodec(kind, `${of} ${path.join(".")}`)),
    );
    this.optional = shape.types?.map(({ kind }) => kind === "option" || kind === "optNonZero");
  }

  /** The entries of a record, in the order of their bytes. */
  entriesOf(view: unknown, key: Uint8Array): readonly Entry[] {
    const { optional, paths, shape } = this;
    const values = paths.map((path) => this.valueAt(view, path));
    if (shape.multiEntry) return this.entriesOfList(values[0], key);
    if (optional?.some((isOptional, i) => !isOptional && values[i] == null)) return [];
    return [this.entryOf(values, key)];
  }

  /** An entry for each value of a list. Plain objects may lack the list, and may have values there that are missing. */
  private entriesOfList(list: unknown, key: Uint8Array): readonly Entry[] {
    if (list == null) return [];
    const [what, isOptional] = [`indexed field ${this.paths[0]?.join(".")}`, this.optional?.[0]];
    if (typeof list !== "object" || !(Symbol.iterator in list)) {
      throw badArgument(
        `The ${what} must be an array or a set, because the index "${this.name}" is of many values.`,
        list,
      );
    }
    const entries = Array.from(list as Iterable<unknown>, (value, i) => {
      if (isOptional === false && value == null) return undefined;
      try {
        return this.entryOf([value], key);
      } catch (error) {
        const named = error as Error;
        named.message = named.message.replace(`A value in the ${what}`, `The ${what}[${i}]`);
        throw error;
      }
    }).filter((entry) => entry !== undefined);
    entries.sort((a, b) => compareBytes(a.bytes, b.bytes));
    return entries.filter((entry, i) => i === 0 || !isSame(entry, entries[i - 1] as Entry));
  }

  /** The value of a field; `undefined` if a plain object does not have it. */
  private valueAt(view: unknown, path: readonly string[]): unknown {
    let value = view;
    for (const name of path) {
      if (this.optional !== undefined) {
        if (Object(value) !== value || !Object.hasOwn(value as object, name)) return undefined;
      } else if (!(name in (value as object))) throw this.unknown(path);
      value = (value as Record<string, unknown>)[name];
    }
    return value;
  }

  private entryOf(values: readonly unknown[], key: Uint8Array): Entry {
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

/** The entries of a record, by index. */
export type Entries = readonly (readonly Entry[])[];

/** The entries of a record in all indexes. */
export function entriesOf(indexes: readonly IndexSpace[], view: unknown, key: Uint8Array): Entries {
  return indexes.map((index) => index.entriesOf(view, key));
}

/**
 * The same of a record that is about to change. An index that is being built has no entries of a record that it cannot have,
 * and such a record can be put right.
 */
export function entriesBefore(
  indexes: readonly IndexSpace[],
  view: unknown,
  key: Uint8Array,
): Entries {
  return indexes.map((index) => {
    try {
      return index.entriesOf(view, key);
    } catch (error) {
      if (index.isBuilt || (error as { code?: unknown }).code !== "VARVE_BAD_ARGUMENT") throw error;
      return [];
    }
  });
}

/** Replaces the index entries of a record where they differ. */
export function reindex(
  engine: Engine,
  indexes: readonly IndexSpace[],
  before: Entries | undefined,
  after: Entries | undefined,
  expiry: number,
): void {
  for (const [i, index] of indexes.entries()) {
    const old = before?.[i] ?? [];
    const now = after?.[i] ?? [];
    let [from, to] = [0, 0];
    for (;;) {
      const [gone, come] = [old[from], now[to]];
      if (gone === undefined && come === undefined) break;
      const order = gone && come ? compareBytes(gone.bytes, come.bytes) : come ? 1 : -1;
      if (order <= 0) from += 1;
      if (order >= 0) to += 1;
      if (order < 0) index.remove(engine, gone as Entry);
      else if (order > 0) index.add(engine, come as Entry, expiry);
      else if (engine.expiring) index.touch(engine, come as Entry, expiry);
    }
  }
}

/** Whether all index entries are the same. */
export function areSame(before: Entries, after: Entries): boolean {
  return before.every((old, i) => {
    const now = after[i] as readonly Entry[];
    return old.length === now.length && old.every((entry, j) => isSame(entry, now[j] as Entry));
  });
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
  if (isObject)
    refuseUnknown(`the index "${name}"`, spec, ["fields", "type", "unique", "multiEntry"]);
  const given = (isObject ? spec : { fields: spec }) as Record<string, unknown>;
  const { fields, type, unique = false, multiEntry = false } = given;
  for (const option of ["unique", "multiEntry"]) {
    if (typeof (given[option] ?? false) === "boolean") continue;
    throw badArgument(
      `The option ${option} of the index "${name}" must be true or false.`,
      given[option],
    );
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
  if (multiEntry === true && list.length > 1) {
    throw badArgument(`The index "${name}" is of many values: it takes one field.`, fields);
  }
  const plain = list.map((field) => (typeof field === "string" ? field : { desc: field.desc }));
  const types = type === undefined ? undefined : typesOf(name, type, fields);
  const shape = {
    fields: plain,
    ...(unique === true && { unique: true as const }),
    ...(types && { types }),
    ...(multiEntry === true && { multiEntry: true as const }),
  };
  return { name, shape, isSingle: !Array.isArray(fields) };
}

/** The kinds of the fields of plain objects, as the option `type` gives them. */
function typesOf(name: string, type: unknown, fields: unknown): readonly Descriptor[] {
  const what = `The option type of the index "${name}"`;
  const isList = Array.isArray(type);
  if (isList !== Array.isArray(fields) || (isList && type.length !== (fields as []).length)) {
    throw badArgument(`${what} must be one type for each field.`, type);
  }
  return (isList ? type : [type]).map((one: unknown) => {
    const kind = kindOf(one, what);
    if ("kind" in kind) return kind;
    throw badArgument(`${what} takes no desc(): put it around the field's name.`);
  });
}

/** Finds a field: its path in the value, and its kind as part of a key. */
function fieldOf(
  value: Descriptor,
  field: StoredField,
  shape: IndexShape,
  i: number,
  what: string,
): { readonly kind: PartKind; readonly path: readonly string[] } {
  if (typeof field !== "string") {
    const { kind, path } = fieldOf(value, field.desc, shape, i, what);
    return { kind: { desc: kind }, path };
  }
  const type = shape.types?.[i];
  const isPlain = value.kind === "json" || value.kind === "structured";
  if (isPlain && type !== undefined) return { kind: type, path: field.split(".") };
  const found = isPlain || type !== undefined ? undefined : find(value, field);
  if (found === undefined) {
    const where = isPlain
      ? "its type is not given: add the option type, such as { fields, type: str }"
      : value.kind !== "struct"
        ? "its values have no fields"
        : type === undefined
          ? `${value.name} has none`
          : `those of ${value.name} have types: leave out the option type`;
    throw badArgument(`${what} needs the field ${JSON.stringify(field)}, but ${where}.`);
  }
  if (!shape.multiEntry) return found;
  const kind = itemKind(found.kind);
  if (kind !== undefined) return { kind, path: found.path };
  throw badArgument(`${what} is of many values, but the field ${field} is no list.`);
}

/** The kind of the values of a list; `undefined` for another kind. */
function itemKind(kind: Descriptor): Descriptor | undefined {
  if (kind.kind === "option") return itemKind(kind.of);
  return kind.kind === "vec" || kind.kind === "array" ? kind.of : undefined;
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
