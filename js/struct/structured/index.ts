/** varve/structured: values as structured clone keeps them, for collections without a schema. */

import type { Declared } from "../codec.js";
import { CopyCodec } from "../copied-codec.js";
import { noMore } from "../type.js";
import { decoded, encoded } from "./coding.js";
import { bytesOfJson, jsonTextOf } from "./readable.js";

/** The declaration of a collection whose values are stored as structured clone keeps them. */
export interface Structured<T> extends Declared<T, T, T> {
  readonly kind: { readonly kind: "structured" };

  /**
   * Returns the bytes of a value, in memory of their own.
   *
   * @throws TypeError for a value that cannot be stored; `field` is the path to the part
   */
  encode(value: T): Uint8Array<ArrayBuffer>;

  /**
   * Returns the value of these bytes. It keeps nothing of them.
   *
   * @throws MalformedValueError if they are no such value
   */
  decode(bytes: Uint8Array): T;
}

class StructuredCodec<T> extends CopyCodec<T> implements Structured<T> {
  declare readonly kind: { readonly kind: "structured" };

  constructor() {
    super({ kind: "structured" });
  }

  encode(value: T): Uint8Array<ArrayBuffer> {
    return encoded(value);
  }

  decode(bytes: Uint8Array): T {
    return decoded(bytes) as T;
  }

  /** @internal The value as JSON. */
  toJsonText(bytes: Uint8Array): string {
    return jsonTextOf(bytes);
  }

  /** @internal The bytes of a value that is given as JSON. */
  fromJsonText(json: string): Uint8Array<ArrayBuffer> {
    return bytesOfJson(json);
  }
}

/**
 * Values are anything that `structuredClone` keeps: dates, maps, sets, typed arrays, bigints, NaN, errors, shared
 * and circular references. Each `get` returns a copy of its own. They are stored as CBOR.
 *
 * ```ts
 * const drafts = db.collection("drafts", structured<Draft>());
 * ```
 *
 * What structured clone refuses, such as functions, is refused, and so are objects of the platform, such as Blobs. A
 * typed array is stored with the bytes that it shows, without the rest of its buffer. At most 500 levels of nesting.
 */
export function structured<T>(): Structured<T>;
export function structured<T>(...more: unknown[]): Structured<T> {
  noMore("structured()", more);
  return new StructuredCodec<T>();
}
