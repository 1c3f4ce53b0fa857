/** Clones arguments, because callers may change them before they are sent, or sent again. */

import { badCall } from "../../errors/index.js";
import type { Bytes } from "../../util/bytes.js";
import { encoder } from "../../util/text-coders.js";

/** Whether a value is bytes, by its nature and not by its class, which differs between realms. */
export function isBytes(given: unknown): given is Bytes {
  return (
    ArrayBuffer.isView(given) ||
    (given as Partial<ArrayBuffer> | null)?.[Symbol.toStringTag] === "ArrayBuffer"
  );
}

/** Clones keys, values, operations and ranges as far as they are mutable. Iterables become arrays. */
export function cloneArgs<T>(given: T): T {
  if (typeof given !== "object" || given === null) return given;
  // Dates are keys of collections, and may come from another realm.
  if ((given as { getTime?: unknown }).getTime) return new Date(+(given as unknown as Date)) as T;
  if (isBytes(given)) {
    try {
      const view = given as unknown as Uint8Array<ArrayBuffer>;
      // Bytes are copied by their internal slots: the object's own `length` may be overridden.
      return new Uint8Array(
        view.BYTES_PER_ELEMENT === 1
          ? view
          : new Uint8Array(view.buffer ?? view, view.byteOffset, view.byteLength),
      ) as T;
    } catch (error) {
      // The platform reports a detached buffer.
      throw badCall((error as Error).message);
    }
  }
  // Arrays, the usual case, are treated apart: iterating costs as much as the rest of a call here.
  if (Array.isArray(given)) return given.map(cloneArgs) as T;
  if (Symbol.iterator in given) return cloneArgs([...(given as never)]) as T;
  return Object.fromEntries(cloneArgs(Object.entries(given))) as T;
}

/** Clones text or bytes as bytes. Anything else is passed on, for the owner to reject. */
export function bytesOf<T>(given: T): T {
  if (typeof given !== "string" || /\p{Surrogate}/u.test(given)) return cloneArgs(given);
  return encoder.encode(given) as T;
}
