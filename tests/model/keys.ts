/** The keys of random programs: short, long, similar, non-ASCII, and not UTF-8. */

/** One key of a program. */
export interface Key {
  readonly bytes: Uint8Array<ArrayBuffer>;
  /** The key as text, if it is UTF-8. */
  readonly text: string | undefined;
  /** The key as written in a printed program. */
  readonly shown: string;
}

const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** The keys of one program, in the order of their bytes. */
export function keysFor(below: (limit: number) => number, segmentLog2: number): Key[] {
  const kind = below(10);
  const keys =
    kind < 4 ? few(below) : kind < 8 ? allKinds(segmentLog2) : kind < 9 ? binary(below) : many();
  const distinct = new Map(keys.map((key) => [latin(key.bytes), key]));
  return [...distinct].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, key]) => key);
}

/** The bytes as a string with one character each, so that strings compare as the bytes do. */
export function latin(bytes: Uint8Array): string {
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return text;
}

function few(below: (limit: number) => number): Key[] {
  return Array.from({ length: 2 + below(10) }, (_, i) => textKey(`key ${i}`));
}

function many(): Key[] {
  return Array.from({ length: 2_500 }, (_, i) => textKey(`n${String(i).padStart(5, "0")}`));
}

function allKinds(segmentLog2: number): Key[] {
  const texts = Array.from({ length: 24 }, (_, i) => `key ${i}`);
  texts.push("a", "b", "\u0000", "\u0000\u0000", "é", "日本", "😀", "\ufeffmarked");
  const keys = texts.map(textKey);
  // Near the lengths at which the engine's code paths differ, up to the capacity of a segment.
  const lengths = [2, 7, 8, 9, 12, 13, 15, 16, 17, 20, 21, 63, 64, 65, 255, 256, 257, 900];
  if (segmentLog2 >= 14) lengths.push(3_000, 3_001);
  if (segmentLog2 >= 20) lengths.push(40_000, 65_534, 65_535);
  for (const length of lengths) keys.push(longKey("k", length));
  for (const length of [63, 64, 65, 300]) keys.push(longKey("é", length));
  return keys;
}

/** Bytes that are not UTF-8, many of them prefixes of others. */
function binary(below: (limit: number) => number): Key[] {
  const alphabet = [0x00, 0x01, 0x61, 0x7f, 0x80, 0xc3, 0xfe, 0xff];
  return Array.from({ length: 60 }, () => {
    const bytes = new Uint8Array(1 + below(5));
    for (let i = 0; i < bytes.length; i++) bytes[i] = alphabet[below(8)] as number;
    return binaryKey(bytes);
  });
}

function textKey(text: string): Key {
  return { bytes: encode(text), text, shown: JSON.stringify(text) };
}

function longKey(character: string, length: number): Key {
  const text = character.repeat(length);
  return { bytes: encode(text), text, shown: `"${character}".repeat(${length})` };
}

function binaryKey(bytes: Uint8Array<ArrayBuffer>): Key {
  return { bytes, text: textIn(bytes), shown: `bytes(${[...bytes].join(", ")})` };
}

/** The text of these bytes, if they are UTF-8. */
export function textIn(bytes: Uint8Array): string | undefined {
  try {
    return decoder.decode(bytes);
  } catch {
    return undefined;
  }
}

function encode(text: string): Uint8Array<ArrayBuffer> {
  return new TextEncoder().encode(text) as Uint8Array<ArrayBuffer>;
}
