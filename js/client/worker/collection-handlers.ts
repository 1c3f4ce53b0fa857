/** The collections that a worker serves, and the calls on them that clients may make. */

import type { Collection } from "../../collection/collection.js";
import { noIndex } from "../../collection/index-query.js";
import type { Database } from "../../database/database.js";
import { badArgument, describe } from "../../errors/index.js";
import { refuseUnknown } from "../../session/options.js";
import type { CustomCodec, Descriptor, StructDescriptor, Whole } from "../../struct/codec.js";
import { JsonText } from "../../struct/json-form.js";
import type { KeySpec } from "../../struct/key.js";
import { type Forms, fieldFrom, takenFrom } from "../protocol/json-values.js";
import { type Cursor, keysOf, pageOf } from "./paging.js";

/** What the values of a collection are: a schema, `json()`, `text()`, or a codec of your own. */
export type AnyCodec =
  | ({ readonly kind: Descriptor } & Whole)
  | (Pick<CustomCodec<never>, "encode" | "name"> & Pick<CustomCodec<unknown>, "decode">);

/** A collection with options, as those of `db.collection`. */
export interface CollectionSpec {
  /** What its values are: a schema, `json()`, `text()`, or a codec of your own. */
  readonly of: AnyCodec;
  /** What its keys are, as the option `key` of `db.collection`. Strings by default. */
  readonly key?: KeySpec | undefined;
  /** Its indexes, as the option `indexes` of `db.collection`. */
  readonly indexes?: unknown;
}

/** Collections by name: each a codec alone, or with options. */
export type CollectionSpecs = Readonly<Record<string, AnyCodec | CollectionSpec>>;

/** A collection whose types nobody here knows. */
export type AnyCollection = Collection<unknown, unknown, Fields, unknown, unknown>;

type Fields = Record<string, unknown>;

/** What a field has to be for a declarative update to be done: a value, or bounds. */
interface Bounds {
  readonly gt?: unknown;
  readonly gte?: unknown;
  readonly lt?: unknown;
  readonly lte?: unknown;
  readonly not?: unknown;
}

/** A declarative update as it travels. */
interface Told {
  readonly add?: Readonly<Record<string, number | bigint>>;
  readonly set?: Readonly<Fields>;
  readonly where?: Readonly<Record<string, unknown>>;
  readonly valueIfMissing?: unknown;
}

/** A collection, and of structs the names of their fields. */
interface Opened {
  readonly collection: AnyCollection;
  readonly fields: ReadonlySet<string> | undefined;
  readonly isJson: boolean;
  readonly isCustom: boolean;
}

/** The names by which views have a struct's fields: those of a flattened one are its own. */
function* namesOf({ fields }: StructDescriptor): Generator<string> {
  for (const [name, kind] of fields) {
    if (kind.kind === "flatten") yield* namesOf(kind.of as StructDescriptor);
    else yield name;
  }
}

/** The collections of one database that is served. */
export class ServedCollections {
  private readonly db: Database;
  private readonly specs: CollectionSpecs;
  private readonly open: Map<string, Opened>;

  constructor(db: Database, specs: CollectionSpecs) {
    this.db = db;
    this.specs = specs;
    this.open = new Map();
  }

  /** @throws SchemaMismatchError when what is stored is something else */
  get(name: string): AnyCollection {
    return this.opened(name).collection;
  }

  private opened(name: string): Opened {
    const known = this.open.get(name);
    if (known !== undefined) return known;
    const { of, ...options } = specOf(this.specs, name);
    const made = this.db.collection(name, of as unknown as CustomCodec<unknown>, options as object);
    const { kind } = of as { kind?: Descriptor };
    const fields = kind?.kind === "struct" ? new Set(namesOf(kind)) : undefined;
    const collection = made as unknown as AnyCollection;
    const [isJson, isCustom] = [kind?.kind === "json", kind === undefined];
    const opened = { collection, fields, isJson, isCustom };
    this.open.set(name, opened);
    return opened;
  }

  /** Does what a client asks of a collection, or of one of its indexes. */
  perform(name: string, call: string, args: readonly never[], index?: string): unknown {
    const { collection, fields } = this.opened(name);
    if (index !== undefined) return lookUp(collection, index, call, args);
    const taken: Taken = (value, forms) => this.taken(name, value, forms);
    switch (call) {
      case "set": {
        const [key, value, options, forms] = args as unknown as [unknown, unknown, object, Forms?];
        return collection.set(key, taken(value, forms), options);
      }
      case "push": {
        const [value, forms] = args as unknown as [unknown, Forms?];
        return (collection as unknown as Pushed).push(taken(value, forms));
      }
      case "batch": {
        const [given] = args as unknown as [unknown];
        return collection.batch((Array.isArray(given) ? stepsOf(given, taken) : given) as []);
      }
      case "update": {
        const [key, declared, forms] = args as unknown as [unknown, Told, FormsOfUpdate?];
        return update(collection, fields, key, forms ? updateOf(declared, forms, taken) : declared);
      }
    }
    if (!Object.hasOwn(CALLS, call))
      throw badArgument(`Collections have no call ${describe(call)}.`);
    return (CALLS[call] as Call)(collection, ...args);
  }

  /** The value that a client has sent, as the collection stores it. */
  taken(name: string, value: unknown, forms: Forms | undefined): unknown {
    if (forms === undefined) return value;
    const { isJson, isCustom } = this.opened(name);
    return takenFrom(value, forms, isJson, isCustom);
  }
}

/** @throws TypeError when there is none of that name */
export function specOf(specs: CollectionSpecs, name: string): CollectionSpec {
  const spec = Object.hasOwn(specs, name) ? specs[name] : undefined;
  if (spec === undefined) throw noCollection(name, specs);
  return "of" in spec ? spec : { of: spec };
}

type Call = (collection: AnyCollection, ...args: never[]) => unknown;

const CALLS: Readonly<Record<string, Call>> = {
  get: (products, key: unknown) => plain(products.get(key)),
  has: (products, key: unknown) => products.has(key),
  getMany: (products, keys: unknown[]) => products.getMany(keys).map(plain),
  getEntry: entryOf,
  count: (products, range?: object) => products.count(range),
  keys: (products, range?: object, cursor?: Cursor | null) =>
    cursor === undefined
      ? [...products.keys(range)]
      : pageOf(
          range,
          cursor,
          behind,
          (part) => keysOf(products.keys(part)),
          (key) => key,
        ),
  values: (products, range?: object, cursor?: Cursor | null) =>
    cursor === undefined
      ? Array.from(products.values(range), plain)
      : pageOf(
          range,
          cursor,
          behind,
          (part) => products.entries(part),
          (_, value) => plain(value),
        ),
  entries: (products, range?: object, cursor?: Cursor | null) =>
    cursor === undefined
      ? Array.from(products.entries(range), pairOf)
      : pageOf(
          range,
          cursor,
          behind,
          (part) => products.entries(part),
          (key, value) => [key, plain(value)],
        ),
  delete: (products, key: unknown) => products.delete(key),
  clear: (products, range?: object) => products.clear(range),
};

type Taken = (value: unknown, forms?: Forms) => unknown;

/** What goes along with the values of an update. */
interface FormsOfUpdate {
  readonly set?: Readonly<Record<string, Forms | undefined>>;
  readonly valueIfMissing?: Forms;
}

/** The steps of a batch, with what their values are in this collection. */
function stepsOf(steps: readonly unknown[], taken: Taken): unknown[] {
  return steps.map((step) => {
    const { value, forms, ...rest } = Object(step) as { value?: unknown; forms?: Forms };
    return forms === undefined ? step : { ...rest, value: taken(value, forms) };
  });
}

/** An update, with what its values are in this collection. */
function updateOf(told: Told, forms: FormsOfUpdate, taken: Taken): Told {
  const { set, valueIfMissing } = told;
  const fields = Object.entries(set ?? {}).map(([name, value]) => {
    const stored = taken(value, forms.set?.[name]);
    return [name, stored instanceof JsonText ? fieldFrom(name, stored.text) : stored] as const;
  });
  return {
    ...told,
    ...(forms.set && { set: Object.fromEntries(fields) }),
    ...(forms.valueIfMissing && { valueIfMissing: taken(valueIfMissing, forms.valueIfMissing) }),
  };
}

/** The names of the collections whose values are JSON. */
export function jsonNames(specs: CollectionSpecs): string[] {
  const isJson = (name: string) =>
    (specOf(specs, name).of as { kind?: Descriptor }).kind?.kind === "json";
  return Object.keys(specs).filter(isJson);
}

/** The part of a collection's range that comes behind a key. */
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

function lookUp(
  collection: AnyCollection,
  name: string,
  call: string,
  args: readonly never[],
): unknown {
  const indexes = collection.index as unknown as Record<string, AnyIndex>;
  const index = Object.hasOwn(indexes, name) ? indexes[name] : undefined;
  if (index === undefined) {
    throw noIndex(collection.name, name, indexes);
  }
  const [wanted, cursor] = args as unknown as [never, unknown];
  // All of it is one page: where it ends is not told by the record that its entry leads to.
  if (cursor !== undefined) return { rows: lookUp(collection, name, call, [wanted]) };
  switch (call) {
    case "get":
      return plain(index.get(wanted));
    case "count":
      return index.count(wanted);
    case "keys":
      return [...index.keys(wanted)];
    case "values":
      return Array.from(index.values(wanted), plain);
    default:
      return Array.from(index.entries(wanted), pairOf);
  }
}

interface AnyIndex {
  get(value: unknown): unknown;
  count(range: unknown): number;
  keys(range: unknown): Iterable<unknown>;
  values(range: unknown): Iterable<unknown>;
  entries(range: unknown): Iterable<[unknown, unknown]>;
}

/** A value that can travel: what is a view becomes a copy. */
export function plain(value: unknown): unknown {
  const view = value as { snapshot?: unknown } | null | undefined;
  return typeof view?.snapshot === "function" ? view.snapshot() : value;
}

const OF_FIELDS = ["add", "set", "where"] as const;
const DECLARED = [...OF_FIELDS, "valueIfMissing"];
const LIMITS = ["gt", "gte", "lt", "lte"] as const;
const BOUNDS = [...LIMITS, "not"];

/**
 * Adds to fields and sets others if all conditions hold. Says whether it did, and what is there then.
 *
 * @throws TypeError for what nobody would heed: a condition that is not looked at would be one that holds
 */
function update(
  collection: AnyCollection,
  fields: ReadonlySet<string> | undefined,
  key: unknown,
  declared: Told,
) {
  refuseUnknown("update()", declared, DECLARED);
  for (const part of OF_FIELDS) refuseFields(part, declared[part], fields);
  const { add = {}, set = {}, where = {}, valueIfMissing } = declared;
  for (const [name, wanted] of Object.entries(where)) refuseCondition(name, wanted);
  const isTold = Object.keys({ ...add, ...set, ...where }).length > 0;
  const predicate = (value: unknown) => {
    if (isTold && Object(value) !== value) {
      throw badArgument("update() changes fields, but this value has none.", value);
    }
    return Object.entries(where).every(([name, wanted]) => holds((value as Fields)[name], wanted));
  };
  const change = (value: Fields) => {
    for (const name in add) value[name] = sum(name, value[name], add[name]);
    if (isTold) Object.assign(value, set);
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

/** Refuses what are no fields. What has no schema may have any. */
function refuseFields(part: string, told: unknown, fields: ReadonlySet<string> | undefined): void {
  if (told === undefined) return;
  if (typeof told !== "object" || told === null || Array.isArray(told)) {
    throw badArgument(`The option ${part} of update() must be an object of fields.`, told);
  }
  for (const name of Object.keys(told)) {
    if (fields?.has(name) === false) {
      const names = [...fields].join(", ");
      throw badArgument(
        `The option ${part} of update() names ${describe(name)}, but the fields are: ${names}.`,
      );
    }
  }
}

function refuseCondition(name: string, wanted: unknown): void {
  if (typeof wanted !== "object" || wanted === null) return;
  const isList = Array.isArray(wanted) || ArrayBuffer.isView(wanted);
  if (!isList) refuseUnknown(`The condition of update() on ${name}`, wanted, BOUNDS);
  for (const limit of LIMITS) {
    // Left out it would always hold, and as it is never: who forgot a value wants neither.
    if (limit in wanted && (wanted as Bounds)[limit] === undefined) {
      throw badArgument(`The condition of update() on ${name} has ${limit}: undefined.`);
    }
  }
  if (BOUNDS.some((bound) => bound in wanted)) return;
  throw badArgument(
    `The condition of update() on ${name} must be a primitive value, or bounds: ` +
      `${BOUNDS.join(", ")}.`,
    wanted,
  );
}

function holds(value: unknown, wanted: unknown): boolean {
  const bounds = wanted as Bounds | null;
  if (typeof bounds !== "object" || bounds === null) return Object.is(value, wanted);
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
