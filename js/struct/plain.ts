/** Codecs for those who just want to store an object or a text. */

import { badArgument } from "../errors-base.js";
import type { Codec } from "./codec.js";
import { CopyCodec } from "./copied.js";

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

class JsonCodec<T> extends CopyCodec<T> {
  constructor() {
    super({ kind: "json" }, "json");
  }

  protected encode(value: T): Uint8Array {
    const text: unknown = JSON.stringify(value);
    if (typeof text !== "string") {
      throw badArgument("The value has to have a JSON form, which this has not.", value);
    }
    return encoder.encode(text);
  }

  protected decode(bytes: Uint8Array): T {
    return JSON.parse(decoder.decode(bytes)) as T;
  }
}

class TextCodec extends CopyCodec<string> {
  constructor() {
    super({ kind: "text" }, "text");
  }

  protected encode(value: string): Uint8Array {
    if (typeof value !== "string") throw badArgument("The value has to be a string.", value);
    const bytes = encoder.encode(value);
    // Half of a surrogate pair has no UTF-8, and three bytes in its place that are another character's.
    if (bytes.length > value.length && decoder.decode(bytes) !== value) {
      throw badArgument("A text must not hold half of a surrogate pair: it has no UTF-8.", value);
    }
    return bytes;
  }

  protected decode(bytes: Uint8Array): string {
    return decoder.decode(bytes);
  }
}

/**
 * Values are what JSON can hold, and are stored as that. `get` gives a copy of its own each time.
 *
 * ```ts
 * const sessions = db.collection("sessions", json<Session>());
 * ```
 */
export function json<T>(): Codec<T, T, T> {
  return new JsonCodec<T>();
}

/** Values are strings, stored as UTF-8. */
export function text(): Codec<string, string, string> {
  return new TextCodec();
}
