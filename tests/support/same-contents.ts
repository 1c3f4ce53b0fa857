import { assert } from "vitest";
import { difference } from "./equality.js";
import { inspect } from "./inspect.js";

/**
 * Fails unless both have the same contents: `toStrictEqual` for values that may have a field "constructor", by which
 * Vitest tells their classes.
 */
export function expectSameContents(actual: unknown, expected: unknown, message?: string): void {
  const where = difference(actual, expected);
  if (where === undefined) return;
  const start = message === undefined ? "" : `${message}: `;
  assert.fail(`${start}expected ${inspect(actual)} to equal ${inspect(expected)} (see ${where})`);
}
