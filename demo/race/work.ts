/** Keys, values and contents that every store gets: all of it follows from numbers, so that workers need not agree. */

import { Chooser, keysOf } from "../../benches/sizes/workload.js";
import type { Contents } from "./messages.js";
import type { Pair } from "./store.js";
import { writeStamp } from "./store.js";

export { Chooser, keysOf };

export const VALUE_BYTES = 100;
export const LARGE_BYTES = 256 * 1_024;
export const LARGE_COUNT = 8;

function mix(x: number): number {
  let h = Math.imul(x ^ (x >>> 16), 0x85eb_ca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2_ae35);
  return h ^ (h >>> 16);
}

/** The value of the key with this number. The stamp changes four of its bytes, none of which `looked` sees. */
export function recordOf(number: number, stamp: number, bytes = VALUE_BYTES): Uint8Array {
  const words = new Uint32Array(bytes / 4);
  for (let word = 0; word < words.length; word++) {
    words[word] = mix(number + Math.imul(word + 1, 0x9e37_79b9));
  }
  const value = new Uint8Array(words.buffer);
  writeStamp(value, stamp);
  return value;
}

/** The numbers of the records that are there from the start: even ones, so that others fit between them. */
export function firstNumbers(records: number): Uint32Array {
  return Uint32Array.from({ length: records }, (_, i) => 2 * i);
}

/** The checksum of pairs in the order of their keys. */
export async function contentsOf(pairs: readonly Pair[]): Promise<Contents> {
  const sorted = [...pairs].sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
  const utf8 = new TextEncoder();
  const parts: Uint8Array[] = [];
  let length = 0;
  for (const [key, value] of sorted) {
    // The length is part of it, so that no two different contents are the same bytes.
    const head = utf8.encode(`${key} ${value.length} `);
    parts.push(head, value);
    length += head.length + value.length;
  }
  const all = new Uint8Array(length);
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", all));
  const hex = Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return { sha256: hex, words: `${sorted.length.toLocaleString("en")} records` };
}
