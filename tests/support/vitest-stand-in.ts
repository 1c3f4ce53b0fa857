/**
 * The part of "vitest" that tests use, for environments without Vitest: Deno, Bun, workerd, and the pages and workers
 * of browsers. Their bundles contain it in place of "vitest" (scripts/bundle.mjs), and vitest-stand-in.test.ts
 * compares it with the original.
 */

import { difference } from "./equality.js";
import { describeError, inspect } from "./inspect.js";
import { platformTimers } from "./timers.js";

/** Kept, because a test may have installed fake timers when its own timer is cleared. */
const { clearTimeout } = globalThis;

/** The results of a run. */
export interface Report {
  passed: number;
  failed: number;
  skipped: number;
  failures: { name: string; message: string }[];
  ms: number;
}

interface Options {
  timeout?: number;
}

interface Registered {
  readonly name: string;
  readonly body: () => unknown;
  readonly timeout: number;
}

/** The same as in vitest.config.ts. It is long, because it only has to end what hangs. */
const TIMEOUT_MS = 300_000;

/** Tests that take longer are printed. */
const SLOW_SECONDS = 5;

const registered: Registered[] = [];
const path: string[] = [];
/** The finishers of the running test. */
let finishers: (() => unknown)[] | undefined;

export class AssertionError extends Error {
  override readonly name = "AssertionError";
}

export function describe(name: string, define: () => void): void {
  path.push(name);
  try {
    define();
  } finally {
    path.pop();
  }
}

export function test(name: string, body: () => unknown): void;
export function test(name: string, options: Options, body: () => unknown): void;
export function test(name: string, options: Options | (() => unknown), body?: () => unknown): void {
  const { timeout = TIMEOUT_MS } = typeof options === "function" ? {} : options;
  const run = typeof options === "function" ? options : body;
  if (run === undefined) throw new TypeError(`The test "${name}" has no body.`);
  const full = [...path, name].join(" > ");
  if (registered.some((other) => other.name === full)) {
    throw new Error(`Two tests have the same name: ${full}`);
  }
  registered.push({ name: full, body: run, timeout });
}

export function onTestFinished(fn: () => unknown): void {
  if (finishers === undefined) throw new Error("onTestFinished was called outside of a test.");
  finishers.push(fn);
}

function fail(message?: string): never {
  throw new AssertionError(message ?? "assert.fail()");
}

function assertTrue(value: unknown, message?: string): asserts value {
  if (!value) fail(message ?? `expected a true value, got ${inspect(value)}`);
}

export const assert: typeof assertTrue & { fail(message?: string): never } = Object.assign(
  assertTrue,
  { fail },
);

interface Matchers {
  toBe(expected: unknown): void;
  toStrictEqual(expected: unknown): void;
}

export function expect(actual: unknown, message?: string): Matchers & { not: Matchers } {
  const check = (isNegated: boolean, holds: boolean, relation: string, expected: unknown) => {
    if (holds !== isNegated) return;
    const start = message === undefined ? "" : `${message}: `;
    const not = isNegated ? "not " : "";
    fail(`${start}expected ${inspect(actual)} ${not}to ${relation} ${inspect(expected)}`);
  };
  const matchers = (isNegated: boolean): Matchers => ({
    toBe: (expected) => check(isNegated, Object.is(actual, expected), "be", expected),
    toStrictEqual(expected) {
      const where = difference(actual, expected);
      const relation = where ? `strictly equal (see ${where})` : "strictly equal";
      check(isNegated, where === undefined, relation, expected);
    },
  });
  return { ...matchers(false), not: matchers(true) };
}

/** Runs the registered tests one after the other. For runners only. */
export async function run(
  options: { filter?: string | undefined; log?: (line: string) => void } = {},
): Promise<Report> {
  const report: Report = { passed: 0, failed: 0, skipped: 0, failures: [], ms: 0 };
  const start = platformTimers.now();
  for (const one of registered.splice(0)) {
    if (options.filter !== undefined && !one.name.includes(options.filter)) continue;
    const begun = platformTimers.now();
    const failures = await runOne(one);
    const seconds = (platformTimers.now() - begun) / 1000;
    if (seconds > SLOW_SECONDS) options.log?.(`  ${seconds.toFixed(0)} s: ${one.name}`);
    if (failures.length === 0) {
      report.passed += 1;
    } else {
      const message = failures.map(describeError).join("\n");
      report.failed += 1;
      report.failures.push({ name: one.name, message });
      options.log?.(`FAILED ${one.name}\n${message}`);
    }
  }
  report.ms = Math.round(platformTimers.now() - start);
  return report;
}

/** Runs a test, and then its finishers in reverse order, also after a failure. Returns the errors. */
async function runOne({ body, timeout }: Registered): Promise<unknown[]> {
  const failures: unknown[] = [];
  const attempt = async (fn: () => unknown) => {
    try {
      await limited(Promise.resolve().then(fn), timeout);
    } catch (error) {
      failures.push(error);
    }
  };
  const own: (() => unknown)[] = [];
  finishers = own;
  await attempt(body);
  for (const fn of own.splice(0).reverse()) await attempt(fn);
  finishers = undefined;
  return failures;
}

function limited(work: Promise<unknown>, timeout: number): Promise<unknown> {
  let timer: unknown;
  const late = new Promise((_, reject) => {
    const message = `The test did not end within ${timeout} ms.`;
    timer = platformTimers.setTimeout(() => reject(new Error(message)), timeout);
  });
  return Promise.race([work, late]).finally(() => clearTimeout(timer as number));
}
