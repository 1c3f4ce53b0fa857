/** `open`: opens a database by name. */

import type { OpenOptions } from "../session/options.js";
import { registerLoader, registerRest } from "../util/modules.js";
import type { Database } from "./database.js";
import { loadOnDemand } from "./lazy-imports.js";
import { openRegistered } from "./opening.js";

/**
 * Opens a database and creates it if it is missing. After this, all calls are synchronous.
 *
 * ```ts
 * const db = await open("shop");
 * db.set("yeezy", "Boost 350");
 * ```
 *
 * Opening a database that is already open in this realm joins it: all handles see the same data, and the last
 * `close` closes it. Each handle has its own `onError`. `wasm` has an effect only on the first open, and
 * `recovery` is refused on a later one unless the first one had it too.
 *
 * @param name a name, never a path: 1 to 200 bytes, after escaping where a file name needs it. Names that look
 * like a path or a file (`./data/shop`, `shop.varve`) are refused, and the error shows the right call. A file that
 * already has such a name is opened by its encoded name, as `databases()` returns it: `%2E%2Fdata%2Fshop.varve`.
 * @throws TypeError for a bad name, an unknown option or a bad value of one
 * @throws DatabaseBusyError if another process, worker or tab has the database open
 * @throws StorageUnavailableError if there is no such storage here; the message says what to do
 * @throws OutOfMemoryError if there is not enough memory for the bytes that it is opened from, or no memory or
 * address space for one more database (about 120 in a tab of Chromium)
 * @throws DatabaseExistsError if `from` is given without `replace` and the database exists
 * @throws DatabaseNotFoundError if `readOnly` is set and the database is missing or its file is empty, or if
 * a program crashed while it filled the database
 * @throws OptionsMismatchError if the database is open in this realm with other options
 * @throws CorruptionError if flushed data is damaged; nothing was changed, and `recovery` is the way out
 * @throws UnsupportedFormatError if the file is not a database, or has a newer format
 * @throws QuotaExceededError if there is no space to create it
 * @throws StorageError if the file cannot be read
 * @throws VarveError with the code `VARVE_WASM` if the engine's wasm cannot be fetched or compiled here, and
 * `VARVE_MODULE` if another module of the package that is loaded on demand cannot be
 * @throws the reason of `signal` if it was aborted, and what `onProgress` throws
 */
export function open(name: string, options: OpenOptions = {}): Promise<Database> {
  registerRest(loadOnDemand);
  // Not one of those above: where the wasm comes as a module of its own, bundles do not include the inlined one.
  registerLoader("engine/wasm-inline", () => import("../engine/wasm-inline.js"));
  return openRegistered(name, options);
}
