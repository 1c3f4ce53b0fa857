/**
 * Values as structured clone keeps them, as bytes: the length of a JSON text in four bytes, the text, and the bytes of the
 * buffers in it. In the text objects are objects, and everything that JSON has no form for is `[kind, …]`, as arrays are.
 * The format of varve/structured would make the adapter more than twice as large.
 */

import { isTooDeep, TOO_DEEP } from "../../struct/plain-json.js";
import { decoder, encoder } from "../../util/text-coders.js";
import { refused } from "../raw.js";

type Json = null | boolean | number | string | { [key: string]: Json } | Json[];

/** The error for what cannot be stored, with the name that IndexedDB gives it. */
function notCloneable(why: string, given: unknown): TypeError {
  return Object.assign(refused(`The value cannot be stored: ${why}.`, given), {
    name: "DataCloneError",
  });
}

/** Whether this is in the place of nothing at all, as for a hole of an array. */
const isHole = (json: Json | undefined) => Array.isArray(json) && json[0] === "h";

/** The bytes of a value. @throws TypeError (its name is DataCloneError) for what has no place in a file */
export function pack(value: unknown): Uint8Array {
  const seen = new Map<unknown, number>();
  const parts: Uint8Array[] = [];
  let length = 0;
  const put = (value: unknown): Json => {
    if (value === null || typeof value === "string" || typeof value === "boolean") return value;
    if (value === undefined) return ["u"];
    if (typeof value === "bigint") return ["i", `${value}`];
    if (typeof value === "number") {
      if (Object.is(value, -0)) return ["n", "-0"];
      return Number.isFinite(value) ? value : ["n", `${value}`];
    }
    if (typeof value !== "object") throw notCloneable(`it contains a ${typeof value}`, value);
    const before = seen.get(value);
    if (before !== undefined) return ["r", before];
    seen.set(value, seen.size);
    return putObject(value, Object.prototype.toString.call(value).slice(8, -1));
  };
  const putObject = (value: object, kind: string): Json => {
    const fields = value as Record<string, unknown>;
    switch (kind) {
      case "Object":
        return Object.fromEntries(Object.keys(fields).map((key) => [key, put(fields[key])]));
      case "Array":
        return [
          "a",
          ...Array.from(value as unknown[], (item, i): Json => (i in value ? put(item) : ["h"])),
        ];
      case "Date":
      case "Number":
      case "String":
      case "Boolean":
        return [kind[0] as string, put(value.valueOf())];
      case "RegExp":
        return ["x", (value as RegExp).source, (value as RegExp).flags];
      case "Map":
        return ["m", ...Array.from(value as Map<unknown, unknown>, (pair) => pair.map(put))];
      case "Set":
        return ["s", ...Array.from(value as Set<unknown>, put)];
      case "Error": {
        const { name, message, stack, cause } = value as Error;
        return ["e", `${name}`, `${message}`, put(stack), "cause" in value ? put(cause) : ["h"]];
      }
      case "ArrayBuffer": {
        const bytes = new Uint8Array(value as ArrayBuffer);
        parts.push(bytes);
        length += bytes.length;
        return ["b", length - bytes.length, bytes.length];
      }
    }
    if (ArrayBuffer.isView(value)) {
      // A part of a buffer is stored without the rest.
      const { buffer, byteOffset, byteLength } = value;
      const isWhole = buffer instanceof ArrayBuffer && buffer.byteLength === byteLength;
      const bytes = new Uint8Array(buffer, byteOffset, byteLength);
      return ["t", kind, put(isWhole ? buffer : bytes.slice().buffer)];
    }
    throw notCloneable(`it contains a ${kind}`, value);
  };
  let text: string;
  try {
    text = JSON.stringify(put(value));
  } catch (error) {
    throw isTooDeep(error) ? notCloneable(TOO_DEEP, value) : error;
  }
  const head = encoder.encode(text);
  const out = new Uint8Array(4 + head.length + length);
  new DataView(out.buffer).setUint32(0, head.length);
  let at = 4;
  for (const part of [head, ...parts]) {
    out.set(part, at);
    at += part.length;
  }
  return out;
}

/** The value of these bytes, as a copy. */
export function unpack(bytes: Uint8Array): unknown {
  const { buffer, byteOffset } = bytes;
  const end = 4 + new DataView(buffer, byteOffset).getUint32(0);
  const seen: unknown[] = [];
  const added = <T>(value: T): T => {
    seen.push(value);
    return value;
  };
  const takeFields = (into: object, fields: Iterable<readonly [string, Json]>) => {
    // Defined, not assigned: a field may be called `__proto__`.
    for (const [key, value] of fields) {
      Object.defineProperty(into, key, {
        value: take(value),
        configurable: true,
        enumerable: true,
        writable: true,
      });
    }
    return into;
  };
  const take = (json: Json): unknown => {
    if (json === null || typeof json !== "object") return json;
    if (!Array.isArray(json)) return takeFields(added({}), Object.entries(json));
    const [kind, ...rest] = json as [string, ...Json[]];
    const [first, second] = rest as [never, never];
    switch (kind) {
      case "u":
        return undefined;
      case "i":
        return BigInt(first);
      case "n":
        return Number(first);
      case "r":
        return seen[first];
      case "a": {
        const items = added<unknown[]>([]);
        items.length = rest.length;
        rest.forEach((item, i) => {
          if (!isHole(item)) items[i] = take(item);
        });
        return items;
      }
      case "D":
        return added(new Date(take(first) as number));
      case "x":
        return added(new RegExp(first, second));
      case "m": {
        const map = added(new Map());
        for (const [key, value] of rest as [Json, Json][]) map.set(take(key), take(value));
        return map;
      }
      case "s": {
        const set = added(new Set());
        for (const item of rest) set.add(take(item));
        return set;
      }
      case "e": {
        const name = /^(Eval|Range|Reference|Syntax|Type|URI)Error$/.test(first) ? first : "Error";
        const error: Error = added(new globalThis[name as "Error"](second));
        error.stack = take(rest[2] as Json) as string;
        if (!isHole(rest[3])) error.cause = take(rest[3] as Json);
        return error;
      }
      case "b":
        return added(bytes.slice(end + first, end + first + second).buffer);
      case "t": {
        const at = seen.push(undefined) - 1;
        const View = globalThis[(/^\w+Array$/.test(first) ? first : "DataView") as "Uint8Array"];
        const view = new View(take(second) as ArrayBuffer);
        seen[at] = view;
        return view;
      }
      default:
        return added(Object(take(first)));
    }
  };
  return take(JSON.parse(decoder.decode(bytes.subarray(4, end))));
}
