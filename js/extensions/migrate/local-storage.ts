/** `fromLocalStorage`: moves the texts of `localStorage` or `sessionStorage`. */

import { badArgument } from "../../errors/index.js";
import { MigrationError } from "./errors.js";
import {
  checkCommon,
  type Found,
  type Mapping,
  type Migrated,
  type MigrationOptions,
  mappingOf,
  migrate,
} from "./run.js";

/** The part of a `Storage` of the platform that is used. */
export interface TextStorage {
  readonly length: number;
  key(index: number): string | null;
  getItem(key: string): string | null;
}

/** The options of `fromLocalStorage`. Without `value`, the values are the stored texts. */
export interface FromLocalStorageOptions extends MigrationOptions, Mapping {
  /** Moves only the items whose keys begin with this. The new keys begin with it too, unless `key` removes it. */
  prefix?: string | undefined;
  /** Where the items are: `localStorage` by default. Workers have none. */
  storage?: TextStorage | undefined;
}

const SLICE = 1_000;

/**
 * Moves the items of `localStorage` into a collection, or into raw keys.
 *
 * ```ts
 * await fromLocalStorage({ to: shop, into: settings, value: (text: string) => JSON.parse(text) });
 * ```
 *
 * Otherwise as `fromIndexedDB`: checked first, compared at the end, resumable; the items stay until the program removes
 * them.
 *
 * @throws (rejects) as `fromIndexedDB`
 */
export async function fromLocalStorage(options: FromLocalStorageOptions): Promise<Migrated> {
  const call = "fromLocalStorage()";
  checkCommon(call, options, ["into", "key", "value", "prefix", "storage"]);
  const { into, key, value, prefix = "" } = options;
  const mapping = mappingOf(call, { into, key, value });
  if (typeof prefix !== "string")
    throw badArgument(`The option prefix of ${call} must be text.`, prefix);
  if (options.storage !== undefined) checkStorage(call, options.storage);
  const given = options.storage ?? ownStorage();
  if (given === undefined) {
    throw new MigrationError(
      "There is no localStorage here: workers have none. Call this on a page, with a client as connect() gives it.",
    );
  }
  const storage: TextStorage = given;
  const name = isOfSession(storage) ? "sessionStorage" : "localStorage";
  const { mark = `varve/migrate/${name.toLowerCase()}/${prefix}` } = options;
  const names = () =>
    Array.from({ length: storage.length }, (_, i) => storage.key(i))
      .filter((item) => item !== null)
      .filter((item) => item.startsWith(prefix))
      .sort();
  async function* walk(after: unknown): AsyncGenerator<Found[]> {
    const all = names().filter((item) => after === undefined || item > (after as string));
    for (let i = 0; i < all.length; i += SLICE) {
      yield all.slice(i, i + SLICE).flatMap((item) => {
        const text = storage.getItem(item);
        return text === null ? [] : { key: item, value: text, at: item };
      });
    }
  }
  const part = { name, mapping, total: async () => names().length, walk };
  const source = {
    name,
    stores: [name],
    use: (work: (parts: [typeof part]) => Promise<void>) => work([part]),
  };
  return migrate(source, mark, options);
}

/** @throws MigrationError where the platform denies storage, as in a sandboxed frame */
function ownStorage(): TextStorage | undefined {
  try {
    return (globalThis as { localStorage?: TextStorage }).localStorage;
  } catch (cause) {
    throw new MigrationError(`localStorage is denied here: ${(cause as Error).message}`, { cause });
  }
}

/** @throws TypeError for anything but a storage */
function checkStorage(call: string, storage: unknown): void {
  const { length, key, getItem } = Object(storage) as Partial<TextStorage>;
  const isStorage = typeof key === "function" && typeof getItem === "function";
  if (isStorage && Number.isInteger(length)) return;
  throw badArgument(
    `The option storage of ${call} must be localStorage, sessionStorage, or an object with length, key() and getItem().`,
    storage,
  );
}

/** Whether these items are those of the tab: they have a mark of their own. */
function isOfSession(storage: TextStorage): boolean {
  try {
    return storage === (globalThis as { sessionStorage?: TextStorage }).sessionStorage;
  } catch {
    // Where it is denied, it cannot have been given.
    return false;
  }
}
