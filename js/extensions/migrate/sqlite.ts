/** `fromSQLite`: moves the rows of a query. It knows no driver: a row is an object. */

import { badArgument } from "../../errors/index.js";
import {
  checkCommon,
  type Found,
  type Mapping,
  type Migrated,
  type MigrationOptions,
  mappingOf,
  migrate,
} from "./run.js";

/** The rows of a query: an array, or what a function returns, which runs the query again each time. */
export type Rows =
  | readonly object[]
  | (() => Iterable<object> | AsyncIterable<object> | PromiseLike<Iterable<object>>);

/** The options of `fromSQLite`. Without `value`, the value of a record is the row. */
export interface FromSQLiteOptions extends MigrationOptions, Mapping {
  /** Returns the key of a row, such as `(_, row) => row.id`. The first argument is the row's number, from 0. */
  key: (number: never, row: never) => unknown;
  /**
   * The rows, such as `() => db.prepare("SELECT * FROM products ORDER BY id").iterate()`. The function is called several
   * times and must give the same rows in the same order, so the query needs an ORDER BY.
   */
  rows: Rows;
  /**
   * The name of what is moved, such as that of the table: it names the mark, and appears in errors. Tables of the same name
   * in several files need different names here, such as `"2026/orders"`: a name that is done is not moved again.
   */
  table: string;
}

/** Rows of a slice. */
const SLICE = 1_000;

/**
 * Moves the rows of a query into a collection: of better-sqlite3, node:sqlite or anything else that gives rows as objects.
 *
 * ```ts
 * const query = old.prepare("SELECT * FROM products ORDER BY id");
 * await fromSQLite({ table: "products", rows: () => query.iterate(), to: shop, into: products, key: (_, row: Row) => row.id });
 * ```
 *
 * Otherwise as `fromIndexedDB`: checked first, compared at the end, resumable; the table is only read.
 *
 * @throws (rejects) as `fromIndexedDB`, and what the query throws
 */
export async function fromSQLite(options: FromSQLiteOptions): Promise<Migrated> {
  const call = "fromSQLite()";
  checkCommon(call, options, ["into", "key", "value", "rows", "table"]);
  const { into, key, value, rows, table } = options;
  if (typeof table !== "string" || table === "") {
    throw badArgument(`${call} needs the option table: the name of what is moved.`, table);
  }
  if (typeof key !== "function") {
    throw badArgument(`${call} needs the option key: a function that gives the key of a row.`, key);
  }
  if (typeof rows !== "function" && !Array.isArray(rows)) {
    throw badArgument(
      `The option rows of ${call} must be an array, or a function that runs the query: () => query.iterate(). The rows ` +
        "are read several times, and an iterator gives them once.",
      rows,
    );
  }
  const { mark = `varve/migrate/sqlite/${table}` } = options;
  const mapping = mappingOf(call, { into, key, value });
  async function* walk(after: unknown): AsyncGenerator<Found[]> {
    const first = after === undefined ? 0 : (after as number) + 1;
    let number = 0;
    let found: Found[] = [];
    const isFull = (row: unknown) => {
      if (typeof row !== "object" || row === null) {
        throw badArgument(`The rows of ${call} must be objects.`, row);
      }
      if (number >= first) found.push({ key: number, value: plainRow(row), at: number });
      number += 1;
      return found.length === SLICE;
    };
    const taken = () => {
      const all = found;
      found = [];
      return all;
    };
    const all = await given();
    // Waiting for each row takes longer than all else.
    if (Symbol.iterator in all) for (const row of all) isFull(row) && (yield taken());
    else for await (const row of all) isFull(row) && (yield taken());
    if (found.length > 0) yield taken();
  }
  const given = async () => {
    const all: unknown = typeof rows === "function" ? await rows() : rows;
    if (Symbol.iterator in Object(all) || Symbol.asyncIterator in Object(all)) {
      return all as Iterable<object> | AsyncIterable<object>;
    }
    throw badArgument(`The function rows of ${call} must return rows to iterate over.`, all);
  };
  const total = async () => (typeof rows === "function" ? undefined : rows.length);
  const part = { name: table, mapping, total, walk };
  const source = {
    name: `the table ${JSON.stringify(table)}`,
    stores: [table],
    use: (work: (parts: [typeof part]) => Promise<void>) => work([part]),
  };
  return migrate(source, mark, options);
}

/** A row with the usual prototype, which objects of node:sqlite lack, and with a Buffer as bytes like others. */
function plainRow(row: object): object {
  const isBuffer = (value: unknown) =>
    value instanceof Uint8Array && value.constructor !== Uint8Array;
  const isUsual = Object.getPrototypeOf(row) !== null && !Object.values(row).some(isBuffer);
  if (isUsual) return row;
  const plain = (value: unknown) => (isBuffer(value) ? new Uint8Array(value as Uint8Array) : value);
  // Drivers also have a mode in which a row is the list of its values.
  if (Array.isArray(row)) return row.map(plain);
  return Object.fromEntries(Object.entries(row).map(([name, value]) => [name, plain(value)]));
}
