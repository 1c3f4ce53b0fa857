/** What collections hold for those who just want to store an object or a text. */

import type { CustomCodec, Descriptor } from "./codec.js";
import { inside, wrong } from "./type.js";
import { decoder, encoder, textOf } from "./utf8.js";

/** A codec that goes through text. What else a collection needs of a codec, it makes of this. */
export class PlainCodec<T> implements CustomCodec<T> {
  declare readonly kind: Descriptor;
  declare readonly encode: (value: T) => Uint8Array;
  declare readonly decode: (bytes: Uint8Array) => T;

  /** @internal */
  constructor(kind: "json" | "text", textOf: (value: T) => string, parse: (text: string) => T) {
    this.kind = { kind };
    this.encode = (value) => encoder.encode(textOf(value));
    this.decode = (bytes) => parse(decoder.decode(bytes));
  }
}

/**
 * Values are what JSON can hold, and are stored as that. `get` gives a copy of its own each time.
 *
 * ```ts
 * const sessions = db.collection("sessions", json<Session>());
 * ```
 */
export function json<T>(): PlainCodec<T> {
  return new PlainCodec<T>(
    "json",
    (value) => {
      let cause: Error | undefined;
      try {
        const text: unknown = JSON.stringify(value);
        if (typeof text === "string") return text;
      } catch (error) {
        // Of a circle or a bigint the engine tells; what the value's own functions throw is left to them.
        if (!(error instanceof TypeError) || "code" in error) throw error;
        cause = error;
      }
      throw Object.assign(wrong(`The value has no JSON form. ${cause?.message ?? ""}`, value), {
        cause,
      });
    },
    JSON.parse,
  );
}

/** Values are strings, stored as UTF-8. */
export function text(): PlainCodec<string> {
  return new PlainCodec(
    "text",
    // Half of a surrogate pair would get three bytes in its place that are another character's.
    (value) => inside("text", () => textOf(value)),
    String,
  );
}
