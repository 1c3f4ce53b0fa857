/**
 * Equality as by Vitest's `toStrictEqual`, for the kinds of values that tests use. Unlike it, this compares
 * prototypes and not the property `constructor`, which a struct may have as a field.
 */

/** The path of the first difference of two values, "" at the top; `undefined` if they are equal. */
export function difference(actual: unknown, expected: unknown, at = ""): string | undefined {
  if (Object.is(actual, expected)) return undefined;
  if (!isObject(actual) || !isObject(expected)) return at;
  if (Object.getPrototypeOf(actual) !== Object.getPrototypeOf(expected)) return at;
  if (actual instanceof Date) return Object.is(+actual, +(expected as Date)) ? undefined : at;
  if (actual instanceof RegExp) return String(actual) === String(expected) ? undefined : at;
  if (actual instanceof Set) return setDifference(actual, expected as Set<unknown>, at);
  if (actual instanceof Map) return mapDifference(actual, expected as Map<unknown, unknown>, at);
  if (ArrayBuffer.isView(actual) || actual instanceof ArrayBuffer) {
    return sameElements(actual, expected as ArrayBufferView | ArrayBuffer) ? undefined : at;
  }
  if (Array.isArray(actual) && actual.length !== (expected as unknown[]).length) {
    return `${at}.length`;
  }
  if (actual instanceof Error) {
    const other = expected as Error;
    if (actual.name !== other.name) return `${at}.name`;
    if (actual.message !== other.message) return `${at}.message`;
    if (other.cause !== undefined) {
      const found = difference(actual.cause, other.cause, `${at}.cause`);
      if (found !== undefined) return found;
    }
  }
  return memberDifference(actual, expected, at);
}

function memberDifference(actual: object, expected: object, at: string): string | undefined {
  const left = actual as Record<PropertyKey, unknown>;
  const right = expected as Record<PropertyKey, unknown>;
  const keys = keysOf(left);
  const missing = keysOf(right).find((key) => !Object.hasOwn(left, key));
  if (missing !== undefined) return `${at}.${String(missing)}`;
  for (const key of keys) {
    const path = `${at}.${String(key)}`;
    if (!Object.hasOwn(right, key)) return path;
    const found = difference(left[key], right[key], path);
    if (found !== undefined) return found;
  }
  return undefined;
}

/** The own enumerable keys. A hole of an array has none, so it differs from `undefined`. */
function keysOf(value: object): PropertyKey[] {
  const symbols = Object.getOwnPropertySymbols(value);
  const isEnumerable = (key: PropertyKey) => Object.prototype.propertyIsEnumerable.call(value, key);
  return [...Object.keys(value), ...symbols.filter(isEnumerable)];
}

/** The order of sets and maps is ignored: each member needs an equal one. */
function setDifference(actual: Set<unknown>, expected: Set<unknown>, at: string) {
  if (actual.size !== expected.size) return `${at}.size`;
  for (const value of actual) {
    if (expected.has(value)) continue;
    if (![...expected].some((other) => equal(value, other))) return at;
  }
  return undefined;
}

function mapDifference(
  actual: Map<unknown, unknown>,
  expected: Map<unknown, unknown>,
  at: string,
): string | undefined {
  if (actual.size !== expected.size) return `${at}.size`;
  for (const [key, value] of actual) {
    if (expected.has(key) && equal(value, expected.get(key))) continue;
    if (![...expected].some((other) => equal(key, other[0]) && equal(value, other[1]))) return at;
  }
  return undefined;
}

function equal(actual: unknown, expected: unknown): boolean {
  return difference(actual, expected) === undefined;
}

/** Compares by `Object.is`: NaN equals NaN, and 0 differs from -0. */
function sameElements(a: ArrayBufferView | ArrayBuffer, b: ArrayBufferView | ArrayBuffer): boolean {
  const left = elementsOf(a);
  const right = elementsOf(b);
  if (left.length !== right.length) return false;
  for (let i = 0; i < left.length; i++) if (!Object.is(left[i], right[i])) return false;
  return true;
}

function elementsOf(value: ArrayBufferView | ArrayBuffer): ArrayLike<unknown> {
  if (!ArrayBuffer.isView(value)) return new Uint8Array(value);
  if (!(value instanceof DataView)) return value as Uint8Array;
  return new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
}

function isObject(value: unknown): value is object {
  return typeof value === "object" && value !== null;
}
