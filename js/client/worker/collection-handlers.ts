/** The collections that a worker serves, and the calls on them that clients may make. */

import type { Collection } from "../../collection/collection.js";
import { noIndex } from "../../collection/index-query.js";
import { plain } from "../../collection/live.js";
import { differencesOf } from "../../collection/schema-diff.js";
import { Database } from "../../database/database.js";
import type { Snapshot } from "../../database/snapshot.js";
import type { Engine } from "../../engine/engine.js";
import { badArgument, describe, SchemaMismatchError } from "../../errors/index.js";
import type { ExpiryOptions } from "../../session/expiry.js";
import type { LocalRows } from "../../session/live.js";
import { refuseUnknown } from "../../session/options.js";
import type { CustomCodec, Descriptor, StructDescriptor, Whole } from "../../struct/codec.js";
import type { KeySpec } from "../../struct/key.js";
import { JsonText } from "../../struct/plain-json.js";
import { type Forms, fieldFrom, type Storing, storedFormOf } from "../protocol/json-values.js";
import type { Cursor, RowsAnswer, ValueForm } from "../protocol/packed-rows.js";
import { pageOf } from "./paging.js";
import { packRange, ValuePacker } from "./row-packer.js";

/** The codec of a collection's values: a schema, `json()`, `text()`, or a codec of your own. */
export type AnyCodec =
  | ({ readonly kind: Descriptor } & Whole)
  | (Pick<CustomCodec<never>, "encode" | "name"> & Pick<CustomCodec<unknown>, "decode">);

/** A collection with options, as those of `db.collection`. */
export interface CollectionSpec {
  /** The codec of its values: a schema, `json()`, `text()`, or a codec of your own. */
  readonly of: AnyCodec;
  /** The type of its keys, as the option `key` of `db.collection`. Strings by default. */
  readonly key?: KeySpec | undefined;
  /** Its indexes, as the option `indexes` of `db.collection`. */
  readonly indexes?: unknown;
  /** After how many milliseconds its records expire by default, as the option of `db.collection`. */
  readonly expireIn?: number | undefined;
}

/** Collections by name: each a codec alone, or with options. */
export type CollectionSpecs = Readonly<Record<string, AnyCodec | CollectionSpec>>;

/** A collection of any types. */
export type AnyCollection = Collection<unknown, unknown, Fields, unknown, unknown>;

type Fields = Record<string, unknown>;

/** A condition on a field of a declarative update. */
interface Bounds {
  readonly gt?: unknown;
  readonly gte?: unknown;
  readonly lt?: unknown;
  readonly lte?: unknown;
  readonly not?: unknown;
}

/** A declarative update, as it is sent. */
interface UpdateArgs {
  readonly add?: Readonly<Record<string, number | bigint>>;
  readonly set?: Readonly<Fields>;
  readonly where?: Readonly<Record<string, unknown>>;
  readonly valueIfMissing?: unknown;
}

/** An open collection. `fields`: the names of its fields if its values are structs. */
interface Opened {
  readonly collection: AnyCollection;
  readonly fields: ReadonlySet<string> | undefined;
  readonly storing: Storing;
  readonly isCustom: boolean;
  readonly kind: Descriptor | undefined;
  /** The kind of a struct as text, to be compared with that of a page. */
  readonly schema: string | undefined;
}

/** How a client wants rows: the kind of its schema as text, if it has one, and whether it makes views of them. */
type Wanted = readonly [schema?: string | undefined, areViews?: boolean | undefined];

/** Rows that are read ahead of the first list: from so many neighbours on, the engine reads their whole segment. */
const PREPARED_ROWS = 16;

/** The calls that read many rows. */
const ROW_CALLS = ["keys", "values", "entries"];

/** The names of a struct's fields in its views: those of a flattened struct are its own. */
function* namesOf({ fields }: StructDescriptor): Generator<string> {
  for (const [name, kind] of fields) {
    if (kind.kind === "flatten") yield* namesOf(kind.of as StructDescriptor);
    else yield name;
  }
}

/** The collections of a served database. */
export class ServedCollections {
  private readonly db: Database;
  private readonly specs: CollectionSpecs;
  private readonly open: Map<string, Opened>;
  /** What the collections are of: the database, or a snapshot. */
  private readonly source: Pick<Database, "collection">;

  constructor(db: Database, specs: CollectionSpecs, source: unknown = db) {
    this.db = db;
    this.source = source as Pick<Database, "collection">;
    this.specs = specs;
    this.open = new Map();
  }

  /** The same collections as a snapshot shows them. */
  asOf(snapshot: Snapshot): ServedCollections {
    return new ServedCollections(this.db, this.specs, snapshot);
  }

  /** @throws SchemaMismatchError if the stored collection has another schema */
  get(name: string): AnyCollection {
    return this.opened(name).collection;
  }

  /** What a watch of an index reads. */
  reachOfIndex(name: string, index: string, call: string, range: unknown): LocalRows {
    return indexNamed(this.get(name), index).reach(call, range);
  }

  private opened(name: string): Opened {
    const known = this.open.get(name);
    if (known !== undefined) return known;
    const { of, ...options } = specOf(this.specs, name);
    const typed = this.source.collection(
      name,
      of as unknown as CustomCodec<unknown>,
      options as object,
    );
    const { kind } = of as { kind?: Descriptor };
    const fields = kind?.kind === "struct" ? new Set(namesOf(kind)) : undefined;
    const collection = typed as unknown as AnyCollection;
    const storing = storingOf(of);
    const isCustom = kind === undefined;
    const schema = fields && JSON.stringify(kind);
    const opened = { collection, fields, storing, isCustom, kind, schema };
    this.open.set(name, opened);
    return opened;
  }

  /** Performs a client's call on a collection, or on one of its indexes. */
  perform(name: string, call: string, args: readonly never[], index?: string): unknown {
    const opened = this.opened(name);
    const { collection, fields } = opened;
    if (index !== undefined) return queryIndex(opened, this.engine, index, call, args);
    if (call === "getMany") {
      const [keys, ...wanted] = args as unknown as [unknown[], ...Wanted];
      return this.many(collection, keys, formOf(opened, wanted));
    }
    if (ROW_CALLS.includes(call)) {
      const [range, cursor, ...wanted] = args as unknown as [object, Cursor | null, ...Wanted];
      return this.rows(opened, call, range, cursor, formOf(opened, wanted));
    }
    const toStored: ToStored = (value, forms) => this.toStored(name, value, forms);
    switch (call) {
      case "set": {
        const [key, value, options, forms] = args as unknown as [unknown, unknown, object, Forms?];
        return collection.set(key, toStored(value, forms), options);
      }
      case "push": {
        const [value, forms] = args as unknown as [unknown, Forms?];
        return (collection as unknown as Pushed).push(toStored(value, forms));
      }
      case "batch": {
        const [given] = args as unknown as [unknown];
        return collection.batch((Array.isArray(given) ? stepsOf(given, toStored) : given) as []);
      }
      case "update": {
        const [key, declared, forms] = args as unknown as [unknown, UpdateArgs, FormsOfUpdate?];
        return update(
          collection,
          fields,
          key,
          forms ? updateOf(declared, forms, toStored) : declared,
        );
      }
    }
    if (!Object.hasOwn(CALLS, call))
      throw badArgument(`Collections have no call ${describe(call)}.`);
    return (CALLS[call] as Call)(collection, ...args);
  }

  /** Reads the first records: the engine reads whole segments after a few, so that a list finds the others. */
  warmUp(name: string): void {
    this.rows(this.opened(name), "values", { limit: PREPARED_ROWS }, undefined, "bytes");
  }

  private get engine(): Engine {
    return Database.sessionOf(this.db).engine;
  }

  /** The values of several keys. */
  private many(
    collection: AnyCollection,
    keys: unknown[],
    form: ValueForm | undefined,
  ): RowsAnswer {
    if (form === undefined || !Array.isArray(keys)) {
      return { rows: collection.getMany(keys).map(plain) };
    }
    const { engine } = this;
    const packer = new ValuePacker(form);
    for (const key of keys) {
      const at = collection.find(key);
      if (at === 0) packer.addMissing();
      else packer.add(engine.u8, at, engine.foundLength());
    }
    return packer.answer();
  }

  /** All rows of a range, or for a cursor (`null` at the beginning) the page behind it. */
  private rows(
    { collection }: Opened,
    call: string,
    range: object,
    cursor: Cursor | null | undefined,
    form: ValueForm | undefined,
  ): RowsAnswer {
    const session = Database.sessionOf(this.db);
    if (call !== "keys" && form === undefined) return plainRows(collection, call, range, cursor);
    const text = `${call}()`;
    session.checkRange(text);
    const { bounds, keyspace, keyOf, keyKind } = collection.reach(text, range);
    const hasKeys = call !== "values";
    const keyForm = keyFormOf(keyKind);
    return packRange(
      {
        session,
        keyspace: keyspace(),
        bounds,
        form: call === "keys" ? undefined : form,
        keyForm: hasKeys ? keyForm : undefined,
        keyOf: hasKeys && keyForm === undefined ? keyOf : undefined,
      },
      cursor,
    );
  }

  /** The form in which the values of a collection are sent to a page with this schema; `undefined` for decoded ones. */
  formOf(name: string, wanted: Wanted): ValueForm | undefined {
    return formOf(this.opened(name), wanted);
  }

  /** Converts a value that a client has sent to the one that the collection stores. */
  toStored(name: string, value: unknown, forms: Forms | undefined): unknown {
    if (forms === undefined) return value;
    const { storing, isCustom } = this.opened(name);
    return storedFormOf(value, forms, storing, isCustom);
  }
}

/** The form in which a page decodes keys of this kind; `undefined` if only the worker can. */
export function keyFormOf(kind: unknown): "text" | "bytes" | undefined {
  return kind === "string" ? "text" : kind === "bytes" ? "bytes" : undefined;
}

/** @throws TypeError if there is no collection of that name */
export function specOf(specs: CollectionSpecs, name: string): CollectionSpec {
  const spec = Object.hasOwn(specs, name) ? specs[name] : undefined;
  if (spec === undefined) throw noCollection(name, specs);
  return "of" in spec ? spec : { of: spec };
}

type Call = (collection: AnyCollection, ...args: never[]) => unknown;

const CALLS: Readonly<Record<string, Call>> = {
  get: (products, key: unknown) => plain(products.get(key)),
  has: (products, key: unknown) => products.has(key),
  getEntry: entryOf,
  count: (products, range?: object) => products.count(range),
  delete: (products, key: unknown) => products.delete(key),
  touch: (products, key: unknown, expiry: ExpiryOptions) => products.touch(key, expiry),
  clear: (products, range?: object) => products.clear(range),
};

type ToStored = (value: unknown, forms?: Forms) => unknown;

/** The forms that are sent with the values of an update. */
interface FormsOfUpdate {
  readonly set?: Readonly<Record<string, Forms | undefined>>;
  readonly valueIfMissing?: Forms;
}

/** The steps of a batch, with the values that the collection stores. */
function stepsOf(steps: readonly unknown[], toStored: ToStored): unknown[] {
  return steps.map((step) => {
    const { value, forms, ...rest } = Object(step) as { value?: unknown; forms?: Forms };
    return forms === undefined ? step : { ...rest, value: toStored(value, forms) };
  });
}

/** An update, with the values that the collection stores. */
function updateOf(given: UpdateArgs, forms: FormsOfUpdate, toStored: ToStored): UpdateArgs {
  const { set, valueIfMissing } = given;
  const fields = Object.entries(set ?? {}).map(([name, value]) => {
    const stored = toStored(value, forms.set?.[name]);
    return [name, stored instanceof JsonText ? fieldFrom(name, stored.text) : stored] as const;
  });
  return {
    ...given,
    ...(forms.set && { set: Object.fromEntries(fields) }),
    ...(forms.valueIfMissing && { valueIfMissing: toStored(valueIfMissing, forms.valueIfMissing) }),
  };
}

/** How a collection stores its values. */
function storingOf(of: AnyCodec): Storing {
  const { kind, lossy } = of as { readonly kind?: Descriptor; readonly lossy?: boolean };
  if (kind?.kind === "structured") return "structured";
  return kind?.kind === "json" && (lossy ? "lossy" : true);
}

/** How the collections store their values: those that clients have to send in another form than a copy. */
export function storingByName(specs: CollectionSpecs): readonly (readonly [string, Storing])[] {
  const all = Object.keys(specs).map((name) => [name, storingOf(specOf(specs, name).of)] as const);
  return all.filter(([, storing]) => storing !== false);
}

/**
 * The form in which the bytes of values are sent to a page that can decode them; `undefined` if the worker has to.
 *
 * @throws SchemaMismatchError if the page makes views, and its schema is not that of the collection
 */
function formOf(
  { collection, kind, schema }: Opened,
  [wanted, areViews]: Wanted,
): ValueForm | undefined {
  if (kind?.kind === "json" || kind?.kind === "text") {
    if (!areViews) return kind.kind;
  } else if (schema !== undefined && wanted === schema) return "struct";
  if (!areViews) return undefined;
  const given = JSON.parse(wanted ?? "null") as Descriptor;
  const lines = differencesOf(
    { fingerprint: "there", value: kind ?? { kind: "custom", name: "custom" }, key: "" },
    { fingerprint: "here", value: given, key: "" },
  );
  throw new SchemaMismatchError(
    `The page's schema of the collection "${collection.name}" is not the one that the worker serves: ` +
      `${lines.join("; ")}. Give connect() the schema that serve() is given.`,
  );
}

/** Rows that only the worker can decode. */
function plainRows(
  products: AnyCollection,
  call: string,
  range: object,
  cursor: Cursor | null | undefined,
): RowsAnswer {
  const isPair = call === "entries";
  if (cursor === undefined) {
    return isPair
      ? { rows: Array.from(products.entries(range), pairOf) }
      : { rows: Array.from(products.values(range), plain) };
  }
  return pageOf(
    range,
    cursor,
    behind,
    (part) => products.entries(part),
    (key, value) => (isPair ? [key, plain(value)] : plain(value)),
  );
}

/** The part of a collection's range behind a key. */
function behind(range: object, after: unknown): object {
  return { ...range, after };
}

type Pushed = Collection<number, unknown, unknown, unknown, number>;

function entryOf(collection: AnyCollection, key: unknown) {
  const entry = collection.getEntry(key);
  return entry && { ...entry, value: plain(entry.value) };
}

function pairOf([key, value]: readonly [unknown, unknown]): [unknown, unknown] {
  return [key, plain(value)];
}

function queryIndex(
  opened: Opened,
  engine: Engine,
  name: string,
  call: string,
  args: readonly never[],
): unknown {
  const index = indexNamed(opened.collection, name);
  const [query, , ...wanted] = args as unknown as [never, unknown, ...Wanted];
  switch (call) {
    case "get":
      return plain(index.get(query));
    case "count":
      return index.count(query);
    case "keys":
      return { rows: [...index.keys(query)] };
  }
  // An index is returned as a single page: an index entry does not say after which record its page ended.
  const isPair = call === "entries";
  const form = formOf(opened, wanted);
  if (form === undefined) {
    return isPair
      ? { rows: Array.from(index.entries(query), pairOf) }
      : { rows: Array.from(index.values(query), plain) };
  }
  const packer = new ValuePacker(form);
  const keys: unknown[] = [];
  index.visit(`${call}()`, query, (key, at) => {
    if (isPair) keys.push(key);
    packer.add(engine.u8, at, engine.foundLength());
  });
  return packer.answer(isPair ? keys : undefined);
}

/** @throws TypeError if the collection has no index of that name */
function indexNamed(collection: AnyCollection, name: string): AnyIndex {
  const indexes = collection.index as unknown as Record<string, AnyIndex>;
  const index = Object.hasOwn(indexes, name) ? indexes[name] : undefined;
  if (index === undefined) throw noIndex(collection.name, name, indexes);
  return index;
}

interface AnyIndex {
  reach(call: string, range: unknown): LocalRows;
  visit(call: string, range: unknown, visitor: (key: unknown, at: number) => void): void;
  get(value: unknown): unknown;
  count(range: unknown): number;
  keys(range: unknown): Iterable<unknown>;
  values(range: unknown): Iterable<unknown>;
  entries(range: unknown): Iterable<[unknown, unknown]>;
}

const OF_FIELDS = ["add", "set", "where"] as const;
const DECLARED = [...OF_FIELDS, "valueIfMissing"];
const LIMITS = ["gt", "gte", "lt", "lte"] as const;
const BOUNDS = [...LIMITS, "not"];

/**
 * Adds to fields and sets others if all conditions hold. Returns whether it did, and the resulting value.
 *
 * @throws TypeError for anything that would be ignored: an ignored condition would always hold
 */
function update(
  collection: AnyCollection,
  fields: ReadonlySet<string> | undefined,
  key: unknown,
  declared: UpdateArgs,
) {
  refuseUnknown("update()", declared, DECLARED);
  for (const part of OF_FIELDS) refuseFields(part, declared[part], fields);
  const { add = {}, set = {}, where = {}, valueIfMissing } = declared;
  for (const [name, condition] of Object.entries(where)) refuseCondition(name, condition);
  const hasFields = Object.keys({ ...add, ...set, ...where }).length > 0;
  const predicate = (value: unknown) => {
    if (hasFields && Object(value) !== value) {
      throw badArgument(
        "update() changes fields, but this value has none. Use set() or updateIf().",
        value,
      );
    }
    return Object.entries(where).every(([name, condition]) =>
      holds((value as Fields)[name], condition),
    );
  };
  const change = (value: Fields) => {
    for (const name in add) value[name] = sum(name, value[name], add[name]);
    if (hasFields) Object.assign(value, set);
  };
  const applied = collection.updateIf(key, change, { predicate, valueIfMissing });
  return { applied, value: plain(collection.get(key)) };
}

function sum(name: string, value: unknown, more: unknown): number | bigint {
  if (typeof value === "bigint" && typeof more === "bigint") return value + more;
  if (typeof value === "number" && typeof more === "number") return value + more;
  throw badArgument(
    `update() can add only numbers of the same type, but ${name} has another.`,
    value,
  );
}

/** Refuses names that are no fields. A value without a schema may have any. */
function refuseFields(part: string, given: unknown, fields: ReadonlySet<string> | undefined): void {
  if (given === undefined) return;
  if (typeof given !== "object" || given === null || Array.isArray(given)) {
    throw badArgument(`The option ${part} of update() must be an object of fields.`, given);
  }
  for (const name of Object.keys(given)) {
    if (fields?.has(name) === false) {
      const names = [...fields].join(", ");
      throw badArgument(
        `The option ${part} of update() names ${describe(name)}, but the fields are: ${names}.`,
      );
    }
  }
}

function refuseCondition(name: string, condition: unknown): void {
  if (typeof condition !== "object" || condition === null) return;
  const isList = Array.isArray(condition) || ArrayBuffer.isView(condition);
  if (!isList) refuseUnknown(`The condition of update() on ${name}`, condition, BOUNDS);
  for (const limit of LIMITS) {
    // A bound of `undefined` would always hold if it were ignored, and never otherwise: it is an error.
    if (limit in condition && (condition as Bounds)[limit] === undefined) {
      throw badArgument(`The condition of update() on ${name} has ${limit}: undefined.`);
    }
  }
  if (BOUNDS.some((bound) => bound in condition)) return;
  throw badArgument(
    `The condition of update() on ${name} must be a primitive value, or bounds: ` +
      `${BOUNDS.join(", ")}.`,
    condition,
  );
}

function holds(value: unknown, condition: unknown): boolean {
  const bounds = condition as Bounds | null;
  if (typeof bounds !== "object" || bounds === null) return Object.is(value, condition);
  const known = value as number;
  return (
    !("gt" in bounds && !(known > (bounds.gt as number))) &&
    !("gte" in bounds && !(known >= (bounds.gte as number))) &&
    !("lt" in bounds && !(known < (bounds.lt as number))) &&
    !("lte" in bounds && !(known <= (bounds.lte as number))) &&
    !("not" in bounds && Object.is(value, bounds.not))
  );
}

function noCollection(name: unknown, specs: CollectionSpecs): Error {
  const names = Object.keys(specs).join(", ") || "none";
  return badArgument(
    `The worker has no collection ${describe(name)}. Those given to serve(): ${names}.`,
  );
}
