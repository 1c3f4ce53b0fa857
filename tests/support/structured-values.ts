/** Values as structured clone keeps them: random ones, and their comparison. */

/** Random numbers below a bound; the same for the same seed. */
export type Random = (below: number) => number;

/** A generator of random numbers (xorshift32). */
export function randomOf(seed: number): Random {
  let state = seed | 0 || 1;
  return (below) => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) % below;
  };
}

const TYPED = [
  Uint8Array,
  Uint8ClampedArray,
  Uint16Array,
  Uint32Array,
  BigUint64Array,
  Int8Array,
  Int16Array,
  Int32Array,
  BigInt64Array,
  Float32Array,
  Float64Array,
] as const;

const ERRORS = [Error, EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError];

const NUMBERS = [
  0,
  -0,
  1,
  -1,
  23,
  24,
  255,
  256,
  65_535,
  65_536,
  2 ** 31,
  2 ** 32,
  -(2 ** 31),
  -(2 ** 31) - 1,
  0.1,
  1.5,
  Number.NaN,
  Infinity,
  -Infinity,
  5e-324,
  1.7976931348623157e308,
  Number.MAX_SAFE_INTEGER,
  Number.MIN_SAFE_INTEGER,
  2 ** 53,
  -(2 ** 53),
  3.4028234663852886e38,
  2 ** 70,
];

const TEXTS = [
  "",
  "a",
  "__proto__",
  "constructor",
  "$Date",
  "$v",
  "žluť",
  "😀",
  "\ud800",
  "\udc00\ud800x",
  "0",
  "length",
];

function textOf(random: Random): string {
  const some = () => TEXTS[random(TEXTS.length)] as string;
  return random(4) === 0 ? Array.from({ length: random(60) }, some).join("") : some();
}

function bigintOf(random: Random): bigint {
  let value = 0n;
  for (let i = random(6); i > 0; i--) value = (value << 32n) | BigInt(random(2 ** 32));
  return random(2) === 0 ? value : -value;
}

/** A random value with shared and circular references. `before`: the objects that it may refer to. */
export function randomValue(random: Random, depth = 4, before: object[] = []): unknown {
  const inner = () => randomValue(random, depth - 1, before);
  const known = <T extends object>(value: T): T => {
    before.push(value);
    return value;
  };
  const times = (act: () => void) => {
    for (let i = random(5); i > 0; i--) act();
  };
  switch (random(depth > 0 ? 22 : 9)) {
    case 0:
      return NUMBERS[random(NUMBERS.length)];
    case 1:
      return random(2 ** 32) / (random(9) + 1) - 2 ** 30;
    case 2:
      return textOf(random);
    case 3:
      return random(2) === 0;
    case 4:
      return null;
    case 5:
      return undefined;
    case 6:
      return bigintOf(random);
    case 7:
    case 8:
      return before.length > 0 ? before[random(before.length)] : random(100);
    case 9:
      return known(
        new Date(random(5) === 0 ? Number.NaN : (random(2 ** 32) - 2 ** 31) * random(4_000_000)),
      );
    case 10: {
      const Typed = TYPED[random(TYPED.length)] as (typeof TYPED)[0];
      const bytes = Uint8Array.from({ length: random(5) * 8 }, () => random(256));
      return known(new Typed(bytes.buffer));
    }
    case 11:
      return known(Uint8Array.from({ length: random(300) }, () => random(256)).buffer);
    case 12:
      return known(new DataView(new ArrayBuffer(random(20))));
    case 13:
      return known(
        new RegExp(["a+", "[/\\]\\d]", "", "ž"][random(4)] as string, ["", "g", "iu"][random(3)]),
      );
    case 14:
      return known(Object([5, -0, "text", true, 5n][random(5)]) as object);
    case 15: {
      const error = known(new (ERRORS[random(ERRORS.length)] as ErrorConstructor)(textOf(random)));
      if (random(2) === 0) Object.assign(error, { name: textOf(random), more: 1 });
      return error;
    }
    case 16: {
      const map = known(new Map());
      times(() => map.set(inner(), inner()));
      return map;
    }
    case 17: {
      const set = known(new Set());
      times(() => set.add(inner()));
      return set;
    }
    case 18: {
      const list: unknown[] = known([]);
      times(() => {
        list[list.length + random(3)] = inner();
      });
      if (random(2) === 0) list.length += random(3);
      if (random(3) === 0)
        (list as unknown as Record<string, unknown>)[`more${random(9)}`] = inner();
      return list;
    }
    case 19: {
      const list: unknown[] = known([]);
      times(() => list.push(inner()));
      return list;
    }
    default: {
      const fields: Record<string, unknown> = known(random(5) === 0 ? Object.create(null) : {});
      times(() => {
        const name = textOf(random);
        // A spread view of a struct is refused by this name.
        Object.defineProperty(fields, name, {
          value: inner(),
          enumerable: true,
          configurable: true,
          writable: true,
        });
      });
      return fields;
    }
  }
}

const tagOf = (value: object) => Object.prototype.toString.call(value).slice(8, -1);

/**
 * The first path at which two values differ in anything that structured clone keeps, also in which objects are the same;
 * `undefined` if there is none.
 */
export function differenceOf(
  one: unknown,
  other: unknown,
  path = "it",
  met = new Map<object, object>(),
  back = new Map<object, object>(),
): string | undefined {
  if (typeof one !== "object" || one === null || typeof other !== "object" || other === null) {
    return Object.is(one, other) ? undefined : `${path}: ${String(one)}, ${String(other)}`;
  }
  if (met.has(one) || back.has(other)) {
    return met.get(one) === other && back.get(other) === one ? undefined : `${path}: identity`;
  }
  met.set(one, other);
  back.set(other, one);
  const tag = tagOf(one);
  if (tagOf(other) !== tag || Object.getPrototypeOf(one) !== Object.getPrototypeOf(other)) {
    return `${path}: ${tag}, ${tagOf(other)}`;
  }
  const inner = (a: unknown, b: unknown, step: string) =>
    differenceOf(a, b, path + step, met, back);
  const all = (a: readonly unknown[], b: readonly unknown[], step: string) => {
    if (a.length !== b.length) return `${path}${step}: ${a.length}, ${b.length}`;
    for (const [i, item] of a.entries()) {
      const found = inner(item, b[i], `${step}[${i}]`);
      if (found !== undefined) return found;
    }
    return undefined;
  };
  const bytes = (of: object) => [
    ...(ArrayBuffer.isView(of)
      ? new Uint8Array(of.buffer, of.byteOffset, of.byteLength)
      : new Uint8Array(of as ArrayBuffer)),
  ];
  if (ArrayBuffer.isView(one) || tag === "ArrayBuffer")
    return all(bytes(one), bytes(other), "bytes");
  switch (tag) {
    case "Date":
    case "Number":
    case "String":
    case "Boolean":
    case "BigInt":
      return inner(one.valueOf(), other.valueOf(), ".value");
    case "RegExp":
      return inner(String(one), String(other), ".source");
    case "Map":
      return all(
        [...(one as Map<unknown, unknown>)].flat(),
        [...(other as Map<unknown, unknown>)].flat(),
        "map",
      );
    case "Set":
      return all([...(one as Set<unknown>)], [...(other as Set<unknown>)], "set");
    case "Error": {
      const parts = (of: object) => {
        const { name, message, cause } = of as Error;
        return [name, message, cause, Object.hasOwn(of, "message"), Object.keys(of).length];
      };
      return all(parts(one), parts(other), "error");
    }
  }
  if (Array.isArray(one) && one.length !== (other as unknown[]).length) return `${path}.length`;
  const [names, others] = [Object.keys(one), Object.keys(other)];
  if (names.join("\n") !== others.join("\n")) return `${path}: ${names.join()}, ${others.join()}`;
  for (const name of names) {
    const found = inner(Reflect.get(one, name), Reflect.get(other, name), `.${name}`);
    if (found !== undefined) return found;
  }
  return undefined;
}
