/** `varve/tinybase`: a persister for stores of TinyBase. It imports TinyBase, which its users have installed. */

import type { Changes, Content, Row, Store, Values } from "tinybase";
import { createCustomPersister, type Persister } from "tinybase/persisters";
import { rawOf, refused, written } from "../raw.js";
import { jsonValues } from "./json-values.js";

/** The options of `createVarvePersister`. */
export interface VarvePersisterOptions {
  /** What the keys in the database begin with, `"tinybase/"` by default. */
  prefix?: string | undefined;
  /** Called with every error of loading and saving. Without it TinyBase ignores them. */
  onIgnoredError?: ((error: unknown) => void) | undefined;
}

/** An object without a prototype: ids may be any text, such as `__proto__`. */
const byId = <T>() => Object.create(null) as Record<string, T>;

/**
 * A persister that keeps a store as raw keys of a database, or of a client of one: a record for each row and each value, so
 * that a change writes only the rows that it concerns.
 *
 * ```ts
 * const persister = createVarvePersister(store, db, "pets", { onIgnoredError: console.error });
 * await persister.startAutoPersisting();
 * ```
 *
 * The database stays yours: `destroy` does not close it. Errors, such as `QuotaExceededError`, are given to `onIgnoredError`;
 * what could not be saved is saved with the next change.
 *
 * @param to a database, as `open` gives it, or a client, as `connect` gives it
 * @param name which store of the database it is. Stores of one database do not share keys.
 * @throws TypeError for anything else
 */
export function createVarvePersister(
  store: Store,
  to: object,
  name: string,
  { prefix = "tinybase/", onIgnoredError }: VarvePersisterOptions = {},
): Persister {
  const raw = rawOf(to, "createVarvePersister()", prefix);
  if (typeof name !== "string") throw refused("The name of a store must be a string.", name);
  // It would be kept without what it needs to merge.
  if (store.isMergeable()) throw refused("The store must be no MergeableStore.", store);
  // In quotes a name ends by itself, so that none begins with another one.
  const base = `${prefix}${JSON.stringify(name)}`;
  /** The key of a value by its id, of a row by those of its table and of itself, and of the store itself by none. */
  const at = (...ids: string[]) => base + JSON.stringify(ids).slice(1, -1);
  /** The ids of a key; `undefined` for keys that are not of this persister. */
  const idsOf = (key: string) => {
    try {
      const ids: string[] = JSON.parse(`[${key.slice(base.length)}]`);
      return ids.length < 3 && at(...ids.map(String)) === key ? ids : undefined;
    } catch {
      return undefined;
    }
  };
  /** The text under each key that this persister has read or written last; `undefined` for what it has deleted. */
  const known = new Map<string, string | undefined>();
  /** Whether a save has failed: the next one compares everything. */
  let isBehind = false;

  const load = async (): Promise<Content | undefined> => {
    const found = raw.entries({ prefix: base });
    const tables = byId<Record<string, Row>>();
    const values: Values = byId();
    const read: [key: string, ids: string[], value: unknown][] = [];
    // Nothing is known if one of them is unreadable: a save must not delete what the store could not get.
    for (const [key, stored] of Symbol.iterator in found ? found : await found.all()) {
      const ids = idsOf(key);
      if (ids) read.push([key, ids, jsonValues.decode(stored)]);
    }
    known.clear();
    for (const [key, [id, row], value] of read) {
      known.set(key, JSON.stringify(value));
      if (id === undefined) continue;
      if (row === undefined) values[id] = value as Values[string];
      else {
        tables[id] ??= byId();
        tables[id][row] = value as Row;
      }
    }
    return known.size > 0 ? [tables, values] : undefined;
  };

  const write = async (all: Map<string, string | undefined>) => {
    // What is as it was known is not written again: another tab may have something newer by now.
    for (const [key, text] of all) if (known.has(key) && known.get(key) === text) all.delete(key);
    const before = [...all.keys()].map((key) => [key, known.get(key)] as const);
    for (const [key, text] of all) known.set(key, text);
    try {
      const result = raw.batch(
        Array.from(all, ([key, value]) =>
          value === undefined ? { type: "delete", key } : { type: "set", key, value },
        ),
      );
      await written(raw, result);
    } catch (error) {
      for (const [key, text] of before) known.set(key, text);
      isBehind = true;
      throw error;
    }
  };

  /** Writes what is not as it was known, and so leaves what other tabs have written meanwhile. */
  const saveAll = async () => {
    // It has read nothing, or there is nothing.
    if (known.size === 0) await load();
    isBehind = false;
    const all = new Map<string, string | undefined>([[base, "1"]]);
    for (const [id, value] of Object.entries(store.getValues())) {
      all.set(at(id), JSON.stringify(value));
    }
    for (const [table, rows] of Object.entries(store.getTables())) {
      for (const [row, cells] of Object.entries(rows)) {
        all.set(at(table, row), JSON.stringify(cells));
      }
    }
    for (const [key, text] of known) {
      if (text !== undefined && !all.has(key)) all.set(key, undefined);
    }
    await write(all);
  };

  // Not by the content that it is given, which has objects in another form than the store's own calls: what is as it was
  // known would seem to have changed.
  const save = async (_getContent: unknown, changes?: Changes) => {
    // The rows of a table that is gone are known from before.
    if (!changes || isBehind || Object.values(changes[0]).includes(undefined)) {
      return saveAll();
    }
    const all = new Map<string, string | undefined>();
    for (const id of Object.keys(changes[1])) all.set(at(id), JSON.stringify(store.getValue(id)));
    for (const [table, rows] of Object.entries(changes[0])) {
      for (const row of Object.keys(rows ?? {})) {
        const cells = store.hasRow(table, row) ? store.getRow(table, row) : undefined;
        all.set(at(table, row), JSON.stringify(cells));
      }
    }
    return write(all);
  };

  const nothing = () => {};
  return createCustomPersister(store, load, save, nothing, nothing, onIgnoredError);
}
