/** Expected errors. Unlike `toThrow`, these functions check each part of an error and return it. */

import { assert } from "vitest";
import { describeError, inspect } from "./inspect.js";

/** The expected parts of an error. Missing parts are not checked. */
export interface ErrorPattern {
  name?: string;
  code?: string;
  message?: RegExp | string;
  /** Whether it must have a `cause`. */
  cause?: boolean;
}

/** Fails unless `fn` throws an error that matches `pattern`. Returns that error. */
export function throws(fn: () => unknown, pattern: ErrorPattern = {}): Error {
  let result: unknown;
  try {
    result = fn();
  } catch (error) {
    return matchError(error, pattern);
  }
  return assert.fail(`expected ${inspect(pattern)} to be thrown; it returned ${inspect(result)}`);
}

/** Fails unless the promise, or the one that a function returns, rejects with such an error. Returns that error. */
export async function rejects(
  promise: PromiseLike<unknown> | (() => PromiseLike<unknown>),
  pattern: ErrorPattern = {},
): Promise<Error> {
  let result: unknown;
  try {
    result = await (typeof promise === "function" ? promise() : promise);
  } catch (error) {
    return matchError(error, pattern);
  }
  return assert.fail(`expected a rejection ${inspect(pattern)}; it resolved to ${inspect(result)}`);
}

function matchError(error: unknown, pattern: ErrorPattern): Error {
  // Not by `instanceof`, because errors of another realm are no instances of this realm's Error.
  const given = error as { name?: unknown; code?: unknown; message?: unknown; cause?: unknown };
  const wrong = (what: string, expected: unknown, actual: unknown): never =>
    assert.fail(
      `expected an error with ${what} ${inspect(expected)}, got ${inspect(actual)} in:\n${describeError(error)}`,
    );
  if (typeof error !== "object" || error === null) wrong("name", pattern.name ?? "any", error);
  // A failed assertion within `fn` is a failure of the test.
  if (given.name === "AssertionError") throw error;
  if (pattern.name !== undefined && given.name !== pattern.name) {
    wrong("name", pattern.name, given.name);
  }
  if (pattern.code !== undefined && given.code !== pattern.code) {
    wrong("code", pattern.code, given.code);
  }
  const message = String(given.message);
  if (typeof pattern.message === "string" && !message.includes(pattern.message)) {
    wrong("message", pattern.message, message);
  }
  if (pattern.message instanceof RegExp && !pattern.message.test(message)) {
    wrong("message", String(pattern.message), message);
  }
  if (pattern.cause !== undefined && (given.cause !== undefined) !== pattern.cause) {
    wrong("cause", pattern.cause ? "present" : "absent", given.cause);
  }
  return error as Error;
}
