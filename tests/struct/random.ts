/** Random schemas and random values: the same seed gives the same ones. */

import type { Kind, Simple, StructKind } from "./kinds.js";
import { type Fields, LATEST, type Value } from "./reference-codec.js";

type Random = (below: number) => number;

const SIMPLE: readonly Simple[] = [
  "u8",
  "u16",
  "u32",
  "u64",
  "u53",
  "i8",
  "i16",
  "i32",
  "i64",
  "f32",
  "f64",
  "bool",
  "timestamp",
  "str",
  "blob",
];
const NUMBERS = SIMPLE.filter((name) => /^[uif]\d|^timestamp/.test(name));

/** Names with a meaning in JavaScript, in JSON or in the layout string. */
const HARD = [
  "__proto__",
  "constructor",
  "prototype",
  "toString",
  "valueOf",
  "hasOwnProperty",
  "__defineGetter__",
  "then",
  "length",
  "name",
  "$",
  "a.b",
  "a,b:c;{d}(e)[f]|&\\",
  '"quoted"',
  "with space",
  "ünïcödé",
  "😀",
  "",
  "\u0000\n",
];

export function pick<T>(random: Random, list: readonly T[]): T {
  return list[random(list.length)] as T;
}

function name(random: Random, taken: Set<string>): string {
  for (;;) {
    const made =
      random(3) === 0 ? pick(random, HARD) : `${"abcdefgh"[random(8)]}${random(40) || ""}`;
    if (taken.has(made)) continue;
    taken.add(made);
    return made;
  }
}

function names(random: Random, most: number): string[] {
  const taken = new Set<string>();
  return Array.from({ length: 1 + random(most) }, () => name(random, taken));
}

/** A struct of at most this depth, without duplicate field names, flattened structs included. */
export function randomStruct(random: Random, depth = 3, taken = new Set<string>()): StructKind {
  const fields = Array.from({ length: 1 + random(6) }, (): [string, Kind] => {
    const flat = depth > 1 && random(8) === 0;
    // A flattened field's own name exists only in Rust: it may equal that of another field.
    if (flat)
      return [`flat${taken.size}`, { kind: "flatten", of: randomStruct(random, depth - 1, taken) }];
    return [name(random, taken), randomKind(random, depth - 1)];
  });
  const byName = new Map(fields);
  return { kind: "struct", name: `S${random(100)}`, fields: [...byName] };
}

function randomKind(random: Random, depth: number): Kind {
  if (depth <= 0 || random(2) === 0) return { kind: pick(random, SIMPLE) };
  switch (random(10)) {
    case 0:
      return { kind: "enum8", variants: names(random, 5) };
    case 1:
      return { kind: "enum16", variants: names(random, 5) };
    case 2:
      return { kind: pick(random, ["bytes", "fixedStr"] as const), length: 1 + random(9) };
    case 3:
      return { kind: "array", of: randomKind(random, depth - 1), length: 1 + random(3) };
    case 4:
      return { kind: "optNonZero", of: { kind: pick(random, NUMBERS) } };
    case 5:
      return randomStruct(random, depth - 1);
    case 6:
      return {
        kind: "union",
        variants: names(random, 4).map((one) => [
          one,
          random(3) === 0 ? null : randomKind(random, depth - 1),
        ]),
      };
    case 7:
      return { kind: "option", of: randomKind(random, depth - 1) };
    default:
      return { kind: "vec", of: randomKind(random, depth - 1) };
  }
}

const TEXTS = [
  "",
  "a",
  "text",
  "grüße",
  "日本語",
  "😀",
  "\u0000",
  '"\\\n',
  "x".repeat(50),
  "\ufeffbom",
];

function text(random: Random): string {
  return random(2) === 0
    ? pick(random, TEXTS)
    : Array.from({ length: random(30) }, () => pick(random, [..."abc ABC äß€😀"])).join("");
}

/** Text of up to this many bytes, without U+0000. */
function shortText(random: Random, most: number): string {
  let made = "";
  for (const letter of text(random).replaceAll("\0", "0")) {
    if (new TextEncoder().encode(made + letter).length > most) break;
    made += letter;
  }
  return made;
}

function bits(random: Random): bigint {
  const whole = (BigInt(random(0x1_0000_0000)) << 32n) | BigInt(random(0x1_0000_0000));
  return whole >> BigInt(random(64));
}

function integer(random: Random, low: number, high: number): number {
  switch (random(4)) {
    case 0:
      return low;
    case 1:
      return high;
    default: {
      const [least, most] = [BigInt(low), BigInt(high)];
      return Number(least + (bits(random) % (most - least + 1n)));
    }
  }
}

function float(random: Random): number {
  const special = [0, -0, 1.5, -1, Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
  return random(2) === 0
    ? pick(random, special)
    : (random(2_000_001) - 1_000_000) / 2 ** random(30);
}

const LIMITS: Record<string, readonly [number, number]> = {
  u8: [0, 0xff],
  u16: [0, 0xffff],
  u32: [0, 0xffff_ffff],
  i8: [-0x80, 0x7f],
  i16: [-0x8000, 0x7fff],
  i32: [-0x8000_0000, 0x7fff_ffff],
  u53: [0, Number.MAX_SAFE_INTEGER],
  timestamp: [-LATEST, LATEST],
};

function bytes(random: Random, length: number): Uint8Array {
  return Uint8Array.from({ length }, () => random(256));
}

function simple(random: Random, kind: string): Value {
  const limits = LIMITS[kind];
  if (limits !== undefined) return integer(random, ...limits);
  switch (kind) {
    case "u64":
      return bits(random);
    case "i64":
      return BigInt.asIntN(64, bits(random));
    case "f32":
      return Math.fround(float(random));
    case "f64":
      return float(random);
    case "bool":
      return random(2) === 1;
    case "str":
      return text(random);
    default:
      return bytes(random, random(20));
  }
}

export function randomValue(random: Random, kind: Kind): Value {
  switch (kind.kind) {
    case "enum8":
    case "enum16":
      return pick(random, kind.variants);
    case "bytes":
      return bytes(random, kind.length);
    case "fixedStr":
      return shortText(random, kind.length);
    case "array":
      return Array.from({ length: kind.length }, () => randomValue(random, kind.of));
    case "vec":
      return Array.from({ length: random(5) }, () => randomValue(random, kind.of));
    case "option":
      return random(2) === 0 ? null : randomValue(random, kind.of);
    case "optNonZero": {
      const value = randomValue(random, kind.of);
      return Number(value) === 0 ? null : value;
    }
    case "union": {
      const [variant, of] = pick(random, kind.variants);
      return of === null ? variant : Object.fromEntries([[variant, randomValue(random, of)]]);
    }
    case "struct":
      return randomFields(random, kind);
    case "flatten":
      return randomFields(random, kind.of);
    default:
      return simple(random, kind.kind);
  }
}

export function randomFields(random: Random, kind: StructKind): Fields {
  return Object.fromEntries(
    kind.fields.flatMap(([field, of]): [string, Value][] =>
      of.kind === "flatten"
        ? Object.entries(randomFields(random, of.of))
        : [[field, randomValue(random, of)]],
    ),
  );
}
