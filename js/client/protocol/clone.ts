/** Keys and values of one's own: the program may change its bytes before they are sent, or sent again. */

import { badCall } from "../../errors/index.js";
import type { Bytes } from "../../util/bytes.js";
import { encoder } from "../../util/text-coders.js";

/** By what it is and not by its class, of which every realm has another. */
export function isBytes(given: unknown): given is Bytes {
  return (
    ArrayBuffer.isView(given) ||
    (given as Partial<ArrayBuffer> | null)?.[Symbol.toStringTag] === "ArrayBuffer"
  );
}

/** A copy of keys, values, operations and ranges, as far as they can change. What can be gone over is an array then. */
export function cloneArgs<T>(given: T): T {
  if (typeof given !== "object" || given === null) return given;
  // Dates are keys of collections, also those of another realm.
  if ((given as { getTime?: unknown }).getTime) return new Date(+(given as unknown as Date)) as T;
  if (isBytes(given)) {
    try {
      const view = given as unknown as Uint8Array<ArrayBuffer>;
      // An array of bytes is copied by what it is: its own length may say anything.
      return new Uint8Array(
        view.BYTES_PER_ELEMENT === 1
          ? view
          : new Uint8Array(view.buffer ?? view, view.byteOffset, view.byteLength),
      ) as T;
    } catch (gone) {
      // The platform says that its buffer is detached.
      throw badCall((gone as Error).message);
    }
  }
  // The usual one apart: going over it costs as much as all else that a call does here.
  if (Array.isArray(given)) return given.map(cloneArgs) as T;
  if (Symbol.iterator in given) return cloneArgs([...(given as never)]) as T;
  return Object.fromEntries(cloneArgs(Object.entries(given))) as T;
}

/** A copy as bytes, if it is text or bytes; what can be neither key nor value stays what it is, for the owner to refuse. */
export function bytesOf<T>(given: T): T {
  if (typeof given !== "string" || /\p{Surrogate}/u.test(given)) return cloneArgs(given);
  return encoder.encode(given) as T;
}
