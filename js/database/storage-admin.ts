/** Administration of a storage without opening a database: `destroy`, `databases` and `persist`. */

import { badArgument, DatabaseBusyError } from "../errors/index.js";
import { refuseUnknown } from "../session/options.js";
import { hasFolders, opfs } from "../storage/opfs.js";
import type { Persistence, Storage } from "../storage/storage.js";
import { registerRest } from "../util/modules.js";
import { defaultStorage } from "./default-storage.js";
import { loadOnDemand } from "./lazy-imports.js";
import { isOpen } from "./open-databases.js";

/** The options of `destroy`, `databases` and `persist`. */
export interface StorageOptions {
  /** Where the databases are. As for `open`, with the same default. */
  storage?: Storage | undefined;
}

/**
 * Deletes a database with all its data.
 *
 * @returns whether there was one
 * @throws TypeError for a bad name or option, or if the storage cannot remove databases
 * @throws DatabaseBusyError if the database is open, here or elsewhere
 * @throws StorageUnavailableError if there is no such storage here, or it refuses
 */
export async function destroy(name: string, options: StorageOptions = {}): Promise<boolean> {
  if (typeof name !== "string") throw badArgument("A database name must be a string.", name);
  const storage = storageOf("destroy()", options);
  if (isOpen(storage.identity(name))) {
    throw new DatabaseBusyError(
      `The database "${name}" is open in this program. Close it before it is destroyed.`,
    );
  }
  if (storage.destroy === undefined) {
    throw badArgument(`A storage of the kind "${storage.kind}" cannot remove databases.`);
  }
  return storage.destroy(name);
}

/**
 * Lists the names of the databases in a storage, sorted.
 *
 * @throws TypeError for a bad option, or if the storage cannot list its databases
 * @throws StorageUnavailableError if there is no such storage here, or it refuses
 */
export async function databases(options: StorageOptions = {}): Promise<string[]> {
  const storage = storageOf("databases()", options);
  if (storage.databases === undefined) {
    throw badArgument(`A storage of the kind "${storage.kind}" cannot list its databases.`);
  }
  return (await storage.databases()).sort();
}

function storageOf(call: string, options: StorageOptions): Storage {
  registerRest(loadOnDemand);
  refuseUnknown(call, options, ["storage"]);
  const { storage } = options;
  if (storage !== undefined && typeof (storage as Partial<Storage> | null)?.open !== "function") {
    throw badArgument(
      "The option storage must be one storage, made by opfs(), file() or memory().",
      storage,
    );
  }
  // A page cannot open databases in OPFS, but it can list and remove those of its workers, whose default it is.
  return storage ?? (hasFolders() ? opfs() : defaultStorage());
}

/**
 * Asks the browser to keep this origin's data until the user deletes it. Otherwise the browser may delete all
 * of it when the disk runs short, or if the site was not visited for some time.
 *
 * - `"granted"`: the data is kept
 * - `"refused"`: it is not kept, for now; some browsers ask the user, others decide by how the site is used
 * - `"not-applicable"`: no browser decides about this storage (files, memory)
 *
 * Only a page can ask, not a worker. Call it on the page's main thread, best after the user did something
 * that is worth keeping. In a worker, `db.stats().persisted` is the current state.
 *
 * @throws TypeError for a bad option
 * @throws StorageUnavailableError if the browser has no storage here, or in a worker, if it was not granted
 * before
 */
export async function persist(options: StorageOptions = {}): Promise<Persistence> {
  const storage = storageOf("persist()", options);
  return storage.persist === undefined ? "not-applicable" : storage.persist();
}
