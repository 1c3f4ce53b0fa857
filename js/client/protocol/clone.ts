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

/**
 * Clones keys, values, operations and ranges as far as they are mutable.
 *
 * @throws TypeError for an object that a message would carry as an empty one, or not at all
 */
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
  if (Array.isArray(given)) return given.map(cloneArgs) as T;
  const kind = Object.prototype.toString.call(given).slice(8, -1);
  // A Proxy of bytes is an iterable that is called Object.
  if (kind !== "Object" || Symbol.iterator in given || "then" in given || "pipe" in given) {
    throw badCall(
      `A key or value must be a string or bytes, no Proxy. Await the bytes of a promise, Blob or stream. Given: ${kind}.`,
    );
  }
  return Object.fromEntries(cloneArgs(Object.entries(given))) as T;
}

/** Lists the items of an iterable argument, which may be another object than an array. */
export function listOf(given: unknown): unknown {
  return Symbol.iterator in Object(given) && typeof given === "object"
    ? [...(given as Iterable<unknown>)]
    : given;
}

/** Clones text or bytes as bytes. Anything else is passed on, for the owner to reject. */
export function bytesOf<T>(given: T): T {
  if (typeof given !== "string" || /\p{Surrogate}/u.test(given)) return cloneArgs(given);
  return encoder.encode(given) as T;
}
