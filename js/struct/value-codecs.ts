/** The codecs of collections, made from what a program declares. */

import { badArgument, MalformedValueError } from "../errors/base.js";
import { decoder, encoder } from "../util/text-coders.js";
import { byteLengthOf } from "./byte-length.js";
import type { Codec, CustomCodec, Declared, Descriptor, StructCodec, Structure } from "./codec.js";
import { CopyCodec } from "./copied-codec.js";
import { isTooDeep, jsonOf, TOO_DEEP } from "./plain-json.js";
import { SchemaCodec } from "./schema-codec.js";
import type { StructSchema } from "./struct.js";
import { withField } from "./type.js";
import { textOf } from "./utf8.js";

/** A codec made from two functions of the program. */
class OwnCodec<T> extends CopyCodec<T> {
  private readonly custom: CustomCodec<T>;

  constructor(custom: CustomCodec<T>) {
    super({ kind: "custom", name: custom.name ?? "custom" });
    this.custom = custom;
  }

  protected encode(value: T): Uint8Array {
    const bytes: unknown = this.custom.encode(value);
    if (bytes instanceof Uint8Array && byteLengthOf(bytes) >= 0) return bytes;
    if (bytes instanceof ArrayBuffer) return new Uint8Array(bytes);
    throw badArgument("A codec's encode() must return bytes, and not a detached array.", bytes);
  }

  protected decode(bytes: Uint8Array): T {
    return this.custom.decode(bytes);
  }
}

/** The codec of `text()` and `json()`. */
class TextCodec extends CopyCodec<unknown> {
  private readonly isLossy: boolean;

  constructor(kind: Descriptor, isLossy: boolean) {
    super(kind);
    this.isLossy = isLossy;
  }

  protected encode(value: unknown): Uint8Array {
    // A lone surrogate would be stored as another character, of three bytes.
    const isJson = this.kind.kind === "json";
    return encoder.encode(
      isJson ? jsonOf(value, this.isLossy) : withField("text", () => textOf(value)),
    );
  }

  protected decode(bytes: Uint8Array): unknown {
    const text = decoder.decode(bytes);
    if (this.kind.kind !== "json") return text;
    try {
      return JSON.parse(text);
    } catch (cause) {
      throw isTooDeep(cause) ? new MalformedValueError(`json: ${TOO_DEEP}.`, { cause }) : cause;
    }
  }
}

/** A declaration of a collection's values. */
export type CodecInput<T> = Declared<T, T, T> | Codec<T, T, T> | CustomCodec<T>;

/** Cache of the codecs of schemas, because programs get the same collections repeatedly. */
const made = new WeakMap<object, SchemaCodec>();

/**
 * The codec for a declaration: a schema, whose values it stores and changes in place, `json()`, `text()`, or two
 * functions.
 *
 * @throws TypeError for anything else
 */
export function codecOf<View, Writable, Input>(
  given: Structure<View, Writable, Input>,
): StructCodec<View, Writable, Input>;
export function codecOf<T>(given: CodecInput<T>): Codec<T, T, T>;
export function codecOf<T>(given: CodecInput<T>): Codec<T, T, T> {
  const codec = known(given as CodecInput<unknown>);
  if (codec !== undefined) return codec as Codec<T, T, T>;
  throw badArgument(
    "A collection needs a codec: json(), text() or a struct() schema of varve/struct, or an " +
      "object with encode() and decode().",
    given,
  );
}

function known(given: CodecInput<unknown>): unknown {
  if (typeof given !== "object" || given === null) return undefined;
  if ("fingerprint" in given) return given;
  if ("kind" in given) return declared(given);
  return typeof given.encode === "function" && typeof given.decode === "function"
    ? new OwnCodec(given)
    : undefined;
}

function declared(given: Declared<unknown, unknown, unknown>): unknown {
  const { kind } = given as Partial<typeof given>;
  if (kind?.kind === "json" || kind?.kind === "text") {
    return new TextCodec(kind, (given as { readonly lossy?: unknown }).lossy === true);
  }
  if (!("leaves" in given)) return undefined;
  let codec = made.get(given);
  if (codec === undefined) {
    codec = new SchemaCodec(given as unknown as StructSchema);
    made.set(given, codec);
  }
  return codec;
}
