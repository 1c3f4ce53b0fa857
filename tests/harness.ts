/**
 * The test harness: the same in Node, Deno, Bun, a browser's page and its workers. It imports
 * nothing and knows nothing of varve.
 *
 * A test file is `tests/<room>/<name>.test.ts` and registers its tests when it is imported:
 *
 * ```ts
 * import { context, deepEqual, equal, ok, rejects, suite, test, throws } from "../harness.js";
 * import { memory, open } from "varve";
 *
 * suite("get", () => {
 *   test("a missing key is undefined", async () => {
 *     const db = await open("shop", { storage: memory(), ...wasmOption() });
 *     equal(db.get("nothing"), undefined);
 *     throws(() => db.get(""), { name: "TypeError", code: "VARVE_BAD_ARGUMENT", message: /empty/ });
 *     await rejects(open("shop", { storage: broken }), { code: "VARVE_CORRUPTION" });
 *   });
 * });
 * ```
 *
 * Suites nest; their names are joined. Tests run one after the other in the order of registration;
 * each has five minutes, or what its options say: that ends what hangs, and is no measure of speed.
 * `cleanup(fn)` inside a test runs `fn` after it, also when it failed, last registered first. There is
 * no way to skip a test.
 *
 * Where tests run: `tests/contract/` in Node 20 and 24, Deno, Bun and in workers of Chromium and
 * Firefox, on the release wasm and again on the debug wasm; `tests/struct/` in all of them once, and in workerd;
 * `tests/node/` and `tests/vectors/` in those of them that have files; `tests/browser/*.test.ts` in the browsers' workers and
 * `tests/browser/*.page.test.ts` on a page's main thread; `tests/model/`, `tests/lives/`, `tests/demo/`,
 * `tests/edge/` and `tests/packaging/` in this Node. `context()` tells which it is, and scripts/test.mjs has the list.
 */

/** What the runner tells the tests about where they run. */
export interface Context {
  runtime: "node" | "deno" | "bun" | "worker" | "page";
  /** Which build of the wasm this run is about. */
  build: "release" | "debug";
  /** In one of all runs: what finds more the longer it searches is to search for long. */
  thorough: boolean;
  /**
   * The wasm of that build. Hand it to `open(name, { wasm })` when it is there; `undefined` means
   * the package's own, which is the release build.
   */
  wasm: WebAssembly.Module | undefined;
  /** A fresh folder for files, in runtimes that have some; emptied by the runner. */
  directory: string | undefined;
  /** The repository's root as a path, or in browsers the URL that serves it (ends without "/"). */
  root: string;
  /**
   * In browsers: has the runner limit what this origin may store to so many bytes; `undefined` takes
   * the limit away.
   */
  limitStorage: ((bytes: number | undefined) => Promise<void>) | undefined;
  /** In a browser's worker: starts another worker beside it, with this module as its program. */
  startWorker: ((program: string) => OtherWorker) | undefined;
}

/** A worker beside the one that runs the tests. */
export interface OtherWorker {
  /** The first message that it posts; rejects when it fails before that. */
  said: Promise<unknown>;
  /** Ends it, in the middle of whatever it does. */
  kill(): Promise<void>;
}

/** What one run comes to. */
export interface Report {
  passed: number;
  failed: number;
  skipped: number;
  failures: { name: string; message: string }[];
  ms: number;
}

interface Registered {
  name: string;
  body: () => unknown;
  timeout: number;
}

/** A test that takes longer is named, so that it is known who makes everyone wait. */
const SLOW_SECONDS = 5;

/** The timers and the monotonic clock of this realm. */
interface Clock {
  now: () => number;
  setTimeout: (task: () => void, ms?: number, ...more: never[]) => unknown;
  setInterval: (task: () => void, ms?: number, ...more: never[]) => unknown;
}

const real: Clock = {
  now: performance.now.bind(performance),
  setTimeout: globalThis.setTimeout.bind(globalThis),
  setInterval: globalThis.setInterval.bind(globalThis),
};
const clock = { ...real };

/**
 * The package takes the platform's timers when it is loaded, which is after this module. So it takes these. They
 * are bound, for that is how they look native, as functions of browsers do.
 */
function standIn(name: keyof Clock) {
  const call = (...args: never[]) => (clock[name] as (...args: never[]) => unknown)(...args);
  return call.bind(undefined) as never;
}
globalThis.setTimeout = standIn("setTimeout");
globalThis.setInterval = standIn("setInterval");
const ofClock = Object.hasOwn(performance, "now")
  ? performance
  : Object.getPrototypeOf(performance);
Object.defineProperty(ofClock, "now", {
  configurable: true,
  writable: true,
  value: standIn("now"),
});

/** Has everything in this realm, the package included, use another clock until the test ends; gives the real one. */
export function replaceClock(parts: Partial<Clock>): Readonly<Clock> {
  Object.assign(clock, parts);
  cleanup(() => Object.assign(clock, real));
  return real;
}

const registered: Registered[] = [];
const path: string[] = [];
let cleanups: (() => unknown)[] = [];
let current: Context | undefined;

/** Where this run takes place. Only inside tests, suites included. */
export function context(): Context {
  current ??= (globalThis as { varveTests?: Context }).varveTests;
  if (current === undefined) throw new Error("The runner has set no context.");
  return current;
}

/** `{ wasm }` for `open`'s options when the run is about another build than the package's own. */
export function wasmOption(): { wasm?: WebAssembly.Module } {
  const { wasm } = context();
  return wasm === undefined ? {} : { wasm };
}

/** What Vitest has given, where it runs the tests (tests/vitest-setup.ts). */
interface Vitest {
  describe(name: string, define: () => void): void;
  it(name: string, body: () => Promise<void>, timeout: number): void;
}

function vitest(): Vitest | undefined {
  return (globalThis as { varveRegister?: Vitest }).varveRegister;
}

/** Groups tests under a name. */
export function suite(name: string, define: () => void): void {
  const runner = vitest();
  if (runner !== undefined) {
    runner.describe(name, define);
    return;
  }
  path.push(name);
  try {
    define();
  } finally {
    path.pop();
  }
}

/** Registers a test. Its name is a sentence that says what holds. */
export function test(name: string, body: () => unknown, options: { timeout?: number } = {}): void {
  const runner = vitest();
  const timeout = options.timeout ?? 300_000;
  if (runner !== undefined) {
    runner.it(name, () => withCleanups(body, timeout), timeout);
    return;
  }
  const full = [...path, name].join(": ");
  if (registered.some((other) => other.name === full)) {
    throw new Error(`Two tests have the same name: ${full}`);
  }
  registered.push({ name: full, body, timeout });
}

/** Runs `fn` when the running test has ended, whatever its end. */
export function cleanup(fn: () => unknown): void {
  cleanups.push(fn);
}

/** Fails unless `value` is true. */
export function ok(value: unknown, message?: string): asserts value {
  if (!value) throw new AssertionError(message ?? `expected a true value, got ${show(value)}`);
}

/** Fails unless both are the same value, by `Object.is`. */
export function equal<T>(actual: unknown, expected: T, message?: string): asserts actual is T {
  if (Object.is(actual, expected)) return;
  throw new AssertionError(`${prefix(message)}expected ${show(expected)}, got ${show(actual)}`);
}

/** Fails if both are the same value. */
export function notEqual(actual: unknown, unexpected: unknown, message?: string): void {
  if (!Object.is(actual, unexpected)) return;
  throw new AssertionError(`${prefix(message)}expected anything but ${show(unexpected)}`);
}

/**
 * Fails unless both have the same contents: primitives, arrays, plain objects, maps, sets, typed
 * arrays and buffers (by type and bytes).
 */
export function deepEqual(actual: unknown, expected: unknown, message?: string): void {
  const where = difference(actual, expected, "");
  if (where === undefined) return;
  throw new AssertionError(
    `${prefix(message)}expected ${show(expected)}, got ${show(actual)}${where && ` (at ${where})`}`,
  );
}

/** What a thrown error has to look like. Each part that is given must match. */
export interface ErrorPattern {
  name?: string;
  code?: string;
  message?: RegExp | string;
  /** Whether it must have a `cause`, or must have none. */
  cause?: boolean;
}

/** Fails unless `fn` throws an error like `pattern`; gives that error. */
export function throws(fn: () => unknown, pattern: ErrorPattern = {}): Error {
  let result: unknown;
  try {
    result = fn();
  } catch (error) {
    return matchError(error, pattern);
  }
  throw new AssertionError(`expected ${show(pattern)} to be thrown; it returned ${show(result)}`);
}

/** Fails unless the promise, or the one that `fn` returns, rejects like `pattern`; gives the error. */
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
  throw new AssertionError(`expected a rejection ${show(pattern)}; it gave ${show(result)}`);
}

/** The UTF-8 bytes of a text. */
export function bytes(text: string): Uint8Array {
  return new TextEncoder().encode(text);
}

/** The text of UTF-8 bytes; `undefined` stays `undefined`. Works for views of any buffer. */
export function text(value: Uint8Array | undefined): string | undefined {
  return value === undefined ? undefined : new TextDecoder().decode(value.slice());
}

/** Has this realm's classes know nothing of a thing, as of one from a frame, or of a clone in a test by jest. */
export function ofAnotherRealm<T extends object>(thing: T): T {
  const copyOf = (prototype: object | null): object | null =>
    prototype &&
    Object.create(
      copyOf(Object.getPrototypeOf(prototype)),
      Object.getOwnPropertyDescriptors(prototype),
    );
  return Object.setPrototypeOf(thing, copyOf(Object.getPrototypeOf(thing)));
}

/** A date of which this realm's class knows nothing. */
export function dateOfAnotherRealm(ms: number): Date {
  return ofAnotherRealm(new Date(ms));
}

/** Gives the event loop a turn: all microtasks, and one task. */
export function turn(ms = 0): Promise<void> {
  return new Promise((resolve) => real.setTimeout(() => resolve(), ms));
}

/** Waits until something holds, however slow the machine is; a test that waits for ever is ended. */
export async function until(holds: () => boolean): Promise<void> {
  while (!holds()) await turn(5);
}

/** A seeded source of numbers: `next(n)` is an integer from 0 to n - 1. The same seed, the same run. */
export function random(seed: number): (below: number) => number {
  let state = seed >>> 0;
  return (below) => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = state;
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return Math.floor((((mixed ^ (mixed >>> 14)) >>> 0) / 0x1_0000_0000) * below);
  };
}

/** Runs what was registered and is still waiting; for runners only. */
export async function run(
  where: Context,
  options: { filter?: string; log?: (line: string) => void } = {},
): Promise<Report> {
  current = where;
  const report: Report = { passed: 0, failed: 0, skipped: 0, failures: [], ms: 0 };
  const start = performance.now();
  for (const one of registered.splice(0)) {
    if (options.filter !== undefined && !one.name.includes(options.filter)) continue;
    const begun = performance.now();
    const message = await runOne(one);
    const seconds = (performance.now() - begun) / 1000;
    if (seconds > SLOW_SECONDS) options.log?.(`  ${seconds.toFixed(0)} s: ${one.name}`);
    if (message === undefined) {
      report.passed += 1;
    } else {
      report.failed += 1;
      report.failures.push({ name: one.name, message });
      options.log?.(`FAILED ${one.name}\n${message}`);
    }
  }
  report.ms = Math.round(performance.now() - start);
  return report;
}

async function runOne({ body, timeout }: Registered): Promise<string | undefined> {
  try {
    await withCleanups(body, timeout);
    return undefined;
  } catch (error) {
    return explain(error);
  }
}

/** Runs a test and then its cleanups. Throws what the test threw, or else the first cleanup that failed. */
async function withCleanups(body: () => unknown, timeout: number): Promise<void> {
  cleanups = [];
  const failures: unknown[] = [];
  const attempt = async (fn: () => unknown) => {
    try {
      await limited(Promise.resolve().then(fn), timeout);
    } catch (error) {
      failures.push(error);
    }
  };
  await attempt(body);
  for (const fn of cleanups.splice(0).reverse()) await attempt(fn);
  if (failures.length > 0) throw failures[0];
}

function limited(work: Promise<unknown>, timeout: number): Promise<unknown> {
  let timer: unknown;
  const late = new Promise((_, reject) => {
    timer = real.setTimeout(() => reject(new Error(`no end within ${timeout} ms`)), timeout);
  });
  return Promise.race([work, late]).finally(() => clearTimeout(timer as number));
}

class AssertionError extends Error {
  override readonly name = "AssertionError";
}

function prefix(message: string | undefined): string {
  return message === undefined ? "" : `${message}: `;
}

function explain(error: unknown): string {
  if (!(error instanceof Error)) return `threw ${show(error)}`;
  const cause = error.cause === undefined ? "" : `\n  caused by ${explain(error.cause)}`;
  return `${error.stack?.includes(error.message) ? error.stack : `${error.name}: ${error.message}\n${error.stack}`}${cause}`;
}

function matchError(error: unknown, pattern: ErrorPattern): Error {
  if (error instanceof AssertionError) throw error;
  // A DOMException is an Error, and errors of another realm are none: the shape decides.
  const given = error as { name?: unknown; code?: unknown; message?: unknown; cause?: unknown };
  const wrong = (what: string, expected: unknown, actual: unknown): never => {
    throw new AssertionError(
      `expected an error with ${what} ${show(expected)}, got ${show(actual)} in:\n${explain(error)}`,
    );
  };
  if (typeof error !== "object" || error === null) wrong("name", pattern.name ?? "any", error);
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

/** Where two values differ, as a path; `undefined` when they do not. */
function difference(actual: unknown, expected: unknown, at: string): string | undefined {
  if (Object.is(actual, expected)) return undefined;
  if (!isObject(actual) || !isObject(expected)) return at;
  if (Object.getPrototypeOf(actual) !== Object.getPrototypeOf(expected)) return at;
  if (ArrayBuffer.isView(actual) || actual instanceof ArrayBuffer) {
    return sameBytes(actual, expected as ArrayBufferView | ArrayBuffer) ? undefined : at;
  }
  if (actual instanceof Map || actual instanceof Set) {
    return difference([...actual], [...(expected as Iterable<unknown>)], at);
  }
  const left = actual as Record<string, unknown>;
  const right = expected as Record<string, unknown>;
  const keys = Object.keys(left);
  const missing = Object.keys(right).find((key) => !(key in left));
  if (missing !== undefined) return `${at}.${missing}`;
  for (const key of keys) {
    if (!(key in right)) return `${at}.${key}`;
    const found = difference(left[key], right[key], `${at}.${key}`);
    if (found !== undefined) return found;
  }
  return keys.length === 0 && actual instanceof Date && +actual !== +(expected as Date)
    ? at
    : undefined;
}

function isObject(value: unknown): value is object {
  return typeof value === "object" && value !== null;
}

function sameBytes(a: ArrayBufferView | ArrayBuffer, b: ArrayBufferView | ArrayBuffer): boolean {
  const left = raw(a);
  const right = raw(b);
  if (left.length !== right.length) return false;
  for (let i = 0; i < left.length; i++) if (left[i] !== right[i]) return false;
  return true;
}

function raw(value: ArrayBufferView | ArrayBuffer): Uint8Array {
  return ArrayBuffer.isView(value)
    ? new Uint8Array(value.buffer, value.byteOffset, value.byteLength)
    : new Uint8Array(value);
}

function show(value: unknown): string {
  if (typeof value === "string") return JSON.stringify(shorten(value));
  if (typeof value === "bigint") return `${value}n`;
  if (value instanceof RegExp) return String(value);
  if (value instanceof Error) return `${value.name}: ${value.message}`;
  if (ArrayBuffer.isView(value)) {
    const listed = [...raw(value).subarray(0, 32)].join(" ");
    return `${value.constructor.name}(${value.byteLength}) [${listed}${value.byteLength > 32 ? " …" : ""}]`;
  }
  if (value instanceof Map || value instanceof Set) {
    return `${value.constructor.name} ${show([...value])}`;
  }
  try {
    return shorten(JSON.stringify(value, replacer) ?? String(value));
  } catch {
    return Object.prototype.toString.call(value);
  }
}

function replacer(_key: string, value: unknown): unknown {
  if (typeof value === "bigint") return `${value}n`;
  if (value instanceof RegExp) return String(value);
  if (value === undefined) return "(undefined)";
  return ArrayBuffer.isView(value) ? show(value) : value;
}

function shorten(value: string): string {
  return value.length > 400 ? `${value.slice(0, 400)}…` : value;
}
