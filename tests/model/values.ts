/**
 * The values of random programs. Each is a function of its number: whoever sees bytes of it can tell
 * whose they are, and a program that is printed or shrunk needs no bytes in it.
 */

/** How a value is made: bytes of all kinds, a text of ASCII, or a text of characters of one to four bytes. */
export type Kind = "bytes" | "ascii" | "unicode";

/** A value, as data. `size` counts bytes, or characters when it is a text. */
export interface Value {
  readonly number: number;
  readonly size: number;
  readonly kind: Kind;
}

const ALPHABET = ["n", "é", "日", "😀", "\u0000", "ß", "z", "€"];

/** Multiplying by an odd number gives each value a pattern that no other one has at any place. */
const SPREAD = 0x9e3779b1;

/** The bytes of a value. */
export function bytesOf({ number, size, kind }: Value): Uint8Array<ArrayBuffer> {
  if (kind === "bytes") return pattern(number, size);
  return new TextEncoder().encode(textOf({ number, size, kind })) as Uint8Array<ArrayBuffer>;
}

/** A text of this many characters. */
export function textOf({ number, size, kind }: Value): string {
  if (kind === "unicode") {
    return Array.from({ length: size }, (_, i) => ALPHABET[(number * 7 + i * i) % 8]).join("");
  }
  const head = `value ${number} `;
  return head.repeat(Math.ceil(size / head.length)).slice(0, size);
}

/** `size` bytes that follow from `number`. */
export function pattern(number: number, size: number): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(size);
  fill(bytes, number);
  return bytes;
}

/** Overwrites bytes, wherever they are, with the pattern of `number`. */
export function fill(bytes: Uint8Array, number: number): void {
  const words = wordsOf(bytes);
  const seed = Math.imul(number + 1, SPREAD);
  for (let i = 0; i < words.length; i++) words[i] = seed ^ i;
  for (let i = words.length * 4; i < bytes.length; i++) {
    bytes[i] = (seed ^ (i >>> 2)) >>> ((i & 3) * 8);
  }
}

/** Whether both are the same bytes; none at all on both sides counts as that. */
export function same(a: Uint8Array | undefined, b: Uint8Array | undefined): boolean {
  if (a === undefined || b === undefined) return a === b;
  const { length } = a;
  if (length !== b.length) return false;
  let from = 0;
  if (length > 64) {
    const [left, right] = [wordsOf(a), wordsOf(b)];
    if (left.length === right.length) {
      for (let i = 0; i < left.length; i++) if (left[i] !== right[i]) return false;
      from = left.length * 4;
    }
  }
  for (let i = from; i < length; i++) if (a[i] !== b[i]) return false;
  return true;
}

/** The same memory in words of four bytes, as far as it is aligned to them. */
function wordsOf({ buffer, byteOffset, length }: Uint8Array): Uint32Array {
  return byteOffset % 4 === 0
    ? new Uint32Array(buffer, byteOffset, length >>> 2)
    : new Uint32Array(0);
}

/** The same bytes as a part of others, at an odd place. */
export function partOf(bytes: Uint8Array): Uint8Array<ArrayBuffer> {
  const larger = new Uint8Array(bytes.length + 8).fill(0xee);
  larger.set(bytes, 3);
  return larger.subarray(3, 3 + bytes.length);
}
