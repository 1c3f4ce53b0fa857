/** The storage of a database for which the program names none. */

import { StorageUnavailableError } from "../errors/index.js";
import { hasBuiltins } from "../storage/node/builtins.js";
import { file } from "../storage/node/index.js";
import { hasOpfs, opfs, requireSyncAccess } from "../storage/opfs.js";
import type { Storage } from "../storage/storage.js";

/**
 * The default storage.
 *
 * @throws StorageUnavailableError if there is none here; the message says what to do
 */
export function defaultStorage(): Storage {
  // Files and OPFS seem to exist there, but are lost with the isolate.
  if (globalThis.navigator?.userAgent === "Cloudflare-Workers") {
    throw new StorageUnavailableError(
      "In Cloudflare Workers a database is kept in a Durable Object: give open() the option " +
        "storage: durableObject(ctx.storage) there. Elsewhere, read it from bytes with the " +
        "options from and readOnly, or use memory() for temporary data.",
    );
  }
  if (hasOpfs()) return opfs();
  if (hasBuiltins()) return file();
  requireSyncAccess();
  return opfs();
}
