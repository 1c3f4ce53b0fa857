/** Keys of collections with typed keys, as JSON: how the command line prints and reads them. */

import { descriptorOf } from "../struct/codegen/schema-from-descriptor.js";
import { type PartKind, partCodec, TupleCodec } from "../struct/key.js";
import { MAX_KEY } from "../util/bytes.js";
import { fromBase64 } from "./format.js";
import { EXIT, Failure } from "./output.js";

/** The JSON form of a collection's keys. */
export interface KeyJson {
  /** The JSON of the key with these bytes. */
  toJson(bytes: Uint8Array): unknown;
  /** The bytes of a key given as JSON, or with `leading` of its first parts. */
  fromJson(word: string, leading: boolean): Uint8Array;
}

/** The JSON form of keys of this kind; `undefined` for texts and bytes, which are printed unchanged. */
export function keyJsonOf(stored: unknown): KeyJson | undefined {
  if (!Array.isArray(stored)) return undefined;
  const kinds = stored.map((kind) => checkedPartKind(kind));
  if (!kinds.every((kind) => kind !== undefined)) return undefined;
  const codec = new TupleCodec(
    "The key",
    kinds.map((kind, i) => partCodec(kind, `Part ${i + 1} of the key`)),
  );
  const hasOnePart = kinds.length === 1;
  return {
    toJson(bytes) {
      const parts = codec.read(bytes, 0).map(partAsJson);
      return hasOnePart ? parts[0] : parts;
    },
    fromJson(word, leading) {
      const given: unknown = parsed(word);
      const list = Array.isArray(given) ? given : [given];
      const values = list.map((value, i) => partFromJson(value, kinds[i]));
      const area = new Uint8Array(MAX_KEY + 2);
      return area.slice(0, codec.write(area, values, leading));
    },
  };
}

/** Checks the kind of a part that was read from a file. */
export function checkedPartKind(kind: unknown): PartKind | undefined {
  if (typeof kind === "object" && kind !== null && "desc" in kind) {
    const inner = checkedPartKind(kind.desc);
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

function partAsJson(value: unknown): unknown {
  if (typeof value === "bigint") return String(value);
  if (value instanceof Uint8Array) return Buffer.from(value).toString("base64");
  return value ?? null;
}

function partFromJson(value: unknown, kind: PartKind | undefined): unknown {
  if (kind === undefined) return value;
  if ("desc" in kind) return partFromJson(value, kind.desc);
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
      return value === null ? undefined : partFromJson(value, kind.of);
    default:
      return value;
  }
}
