import { assert } from "vitest";
import { difference } from "./equality.js";
import { inspect } from "./inspect.js";

/**
 * Like `toStrictEqual`, for values that may have a field "constructor", which Vitest would compare as their class.
 */
export function expectSameContents(actual: unknown, expected: unknown, message?: string): void {
  const where = difference(actual, expected);
  if (where === undefined) return;
  const start = message === undefined ? "" : `${message}: `;
  assert.fail(`${start}expected ${inspect(actual)} to equal ${inspect(expected)} (see ${where})`);
}
