/** Codecs that a program makes of two functions of its own. */

import { badArgument } from "../errors-base.js";
import type { Codec, CustomCodec } from "./codec.js";
import { CopyCodec } from "./copied.js";
import { PlainCodec } from "./plain.js";

class OwnCodec<T> extends CopyCodec<T> {
  private readonly custom: CustomCodec<T>;

  constructor(custom: CustomCodec<T>) {
    const { name = "custom" } = custom;
    if (custom instanceof PlainCodec) super(custom.kind, custom.kind.kind);
    else super({ kind: "custom", name }, `custom:${name}`);
    this.custom = custom;
  }

  protected encode(value: T): Uint8Array {
    const bytes: unknown = this.custom.encode(value);
    if (bytes instanceof Uint8Array) return bytes;
    if (bytes instanceof ArrayBuffer) return new Uint8Array(bytes);
    throw badArgument("The function encode of a codec has to return bytes.", bytes);
  }

  protected decode(bytes: Uint8Array): T {
    return this.custom.decode(bytes);
  }
}

/** What a program handed over as a codec, as one. */
export function codecOf<T>(given: Codec<T, T, T> | CustomCodec<T>): Codec<T, T, T> {
  if (typeof given === "object" && given !== null) {
    if ("fingerprint" in given) return given;
    if (typeof given.encode === "function" && typeof given.decode === "function") {
      return new OwnCodec(given);
    }
  }
  throw badArgument(
    "A collection needs a codec: json(), text() or a schema made by struct() of varve/struct, or an " +
      "object with the functions encode and decode.",
    given,
  );
}
