/**
 * The values of random programs. Each is a function of its number, so that any part of its bytes identifies it,
 * and a printed or shrunk program needs no bytes.
 */

/** The kind of a value: arbitrary bytes, ASCII text, or text of characters of one to four bytes. */
export type Kind = "bytes" | "ascii" | "unicode";

/** A value as data. `size` counts bytes, or characters for texts. */
export interface Value {
  readonly number: number;
  readonly size: number;
  readonly kind: Kind;
}

const ALPHABET = ["n", "é", "日", "😀", "\u0000", "ß", "z", "€"];

/** An odd factor: it gives each value a pattern that differs from all others at every position. */
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

/** `size` bytes derived from `number`. */
export function pattern(number: number, size: number): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(size);
  fill(bytes, number);
  return bytes;
}

/** Overwrites bytes with the pattern of `number`. */
export function fill(bytes: Uint8Array, number: number): void {
  const words = wordsOf(bytes);
  const seed = Math.imul(number + 1, SPREAD);
  for (let i = 0; i < words.length; i++) words[i] = seed ^ i;
  for (let i = words.length * 4; i < bytes.length; i++) {
    bytes[i] = (seed ^ (i >>> 2)) >>> ((i & 3) * 8);
  }
}

/** Whether both are the same bytes, or both are missing. */
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

/** The aligned part of the same memory in words of four bytes. */
function wordsOf({ buffer, byteOffset, length }: Uint8Array): Uint32Array {
  return byteOffset % 4 === 0
    ? new Uint32Array(buffer, byteOffset, length >>> 2)
    : new Uint32Array(0);
}

/** The same bytes as a part of a larger buffer, at an odd offset. */
export function partOf(bytes: Uint8Array): Uint8Array<ArrayBuffer> {
  const larger = new Uint8Array(bytes.length + 8).fill(0xee);
  larger.set(bytes, 3);
  return larger.subarray(3, 3 + bytes.length);
}
