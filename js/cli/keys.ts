/** Typed keys of collections: input and output as JSON. */

import { descriptorOf } from "../struct/codegen/schema-from-descriptor.js";
import { type PartKind, partCodec, TupleCodec } from "../struct/key.js";
import { MAX_KEY } from "../util/bytes.js";
import { fromBase64 } from "./format.js";
import { EXIT, Failure } from "./output.js";

/** The JSON form of a collection's keys. */
export interface KeyForm {
  /** The JSON of the key with these bytes. */
  value(bytes: Uint8Array): unknown;
  /** The bytes of a key given as JSON, or with `leading` of its first parts. */
  bytes(word: string, leading: boolean): Uint8Array;
}

/** The JSON form of keys of this kind; `undefined` for texts and bytes, which are printed unchanged. */
export function keyFormOf(stored: unknown): KeyForm | undefined {
  if (!Array.isArray(stored)) return undefined;
  const kinds = stored.map((kind) => partKindOf(kind));
  if (!kinds.every((kind) => kind !== undefined)) return undefined;
  const codec = new TupleCodec(
    "The key",
    kinds.map((kind, i) => partCodec(kind, `Part ${i + 1} of the key`)),
  );
  const hasOnePart = kinds.length === 1;
  return {
    value(bytes) {
      const parts = codec.read(bytes, 0).map(asJson);
      return hasOnePart ? parts[0] : parts;
    },
    bytes(word, leading) {
      const given: unknown = parsed(word);
      const list = Array.isArray(given) ? given : [given];
      const values = list.map((value, i) => fromJson(value, kinds[i]));
      const area = new Uint8Array(MAX_KEY + 2);
      return area.slice(0, codec.write(area, values, leading));
    },
  };
}

/** Checks the kind of a part that was read from a file. */
export function partKindOf(kind: unknown): PartKind | undefined {
  if (typeof kind === "object" && kind !== null && "desc" in kind) {
    const inner = partKindOf(kind.desc);
    return inner && { desc: inner };
  }
  return descriptorOf(kind);
}

function parsed(word: string): unknown {
  try {
    return JSON.parse(word);
  } catch {
    throw new Failure(
      EXIT.usage,
      `Give keys of this collection as JSON, such as 7 or [7,"a"]; given: ${word}.`,
    );
  }
}

function asJson(value: unknown): unknown {
  if (typeof value === "bigint") return String(value);
  if (value instanceof Uint8Array) return Buffer.from(value).toString("base64");
  return value ?? null;
}

function fromJson(value: unknown, kind: PartKind | undefined): unknown {
  if (kind === undefined) return value;
  if ("desc" in kind) return fromJson(value, kind.desc);
  switch (kind.kind) {
    case "u64":
    case "i64":
      return /^-?\d+$/.test(String(value)) ? BigInt(String(value)) : value;
    case "timestamp":
      return typeof value === "string" ? new Date(value) : value;
    case "blob":
    case "bytes":
      return typeof value === "string" ? (fromBase64(value) ?? value) : value;
    case "option":
    case "optNonZero":
      return value === null ? undefined : fromJson(value, kind.of);
    default:
      return value;
  }
}
