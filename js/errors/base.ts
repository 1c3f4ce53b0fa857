/** The errors that typed views need. They have their own module, because a page may load nothing else of varve. */

/** Options that every error takes besides its message. */
export interface VarveErrorOptions {
  /** The error that the platform threw, unchanged. */
  cause?: unknown;
}

/** Constructs an error that came from another realm. */
export type ErrorClass = new (message: string, options: Record<string, unknown>) => Error;

/** All error classes by name, because minifiers remove the names of classes. */
export const errorClasses: ReadonlyMap<string, ErrorClass> = new Map();

/** The base class of every error that varve throws, except for bad arguments: those are `TypeError`s. */
export class VarveError extends Error {
  /** A stable code, such as `"VARVE_CONFLICT"`: the same in every version and on every platform. */
  readonly code: string;

  constructor(code: string, message: string, options: VarveErrorOptions = {}) {
    super(message, options);
    this.code = code;
  }

  static {
    // On the prototype, as for built-in errors, so that no own field shows up in logs.
    named(VarveError, "VarveError");
  }
}

/** Base class of the specific errors. The code is derived from the name: `VARVE_STALE_VIEW`. */
export class NamedError extends VarveError {
  constructor(message: string, options: VarveErrorOptions = {}) {
    const { name } = new.target.prototype;
    const words = name.slice(0, -"Error".length).replace(/[A-Z]/g, "_$&");
    super(`VARVE${words.toUpperCase()}`, message, options);
  }
}

/** A view was used after the code that got it had yielded. Get the view again, or copy it in time with `slice()`. */
export class StaleViewError extends NamedError {
  static {
    named(StaleViewError, "StaleViewError");
  }
}

/**
 * Bytes do not match their schema: they are too short, a part lies outside them, text is not UTF-8, a bool is
 * 2. Nothing outside the value was read. `Schema.check(bytes)` looks for all of this at once. Whatever reads a
 * whole value also refuses one whose parts overlap so often that they have 64 times its bytes, or 64 MiB.
 */
export class MalformedValueError extends NamedError {
  /** The path of the wrong field, such as `Product.name` or `items[3].price`. */
  readonly field: string;

  constructor(message: string, options: VarveErrorOptions = {}) {
    super(message, options);
    this.field = "";
  }

  static {
    named(MalformedValueError, "MalformedValueError");
  }
}

/** A `TypeError` that says what was wrong with an argument. Its `code` never changes. */
export interface BadArgumentError extends TypeError {
  readonly code: "VARVE_BAD_ARGUMENT";
}

/**
 * Makes the error for a bad argument.
 *
 * @param expected what the argument has to be, as a sentence: "A key has to be a string or bytes."
 * @param given what it was; described in the message, never kept.
 */
export function badArgument(expected: string, ...given: [] | [unknown]): BadArgumentError {
  return badCall(given.length === 0 ? expected : `${expected} Given: ${describe(given[0])}.`);
}

/** Refuses surplus arguments, because their intent must not be ignored. */
export function refuseMore(call: string, more: readonly unknown[]): void {
  for (const argument of more) {
    if (argument !== undefined) {
      throw badArgument(`${call} takes no more arguments, nor options.`, argument);
    }
  }
}

/** As `badArgument`, without a description of the value, so that pages need less code. */
export function badCall(message: string): BadArgumentError {
  return Object.assign(new TypeError(message), { code: "VARVE_BAD_ARGUMENT" as const });
}

/** A short, safe description of any value for an error message. It runs no code of the value. */
export function describe(value: unknown): string {
  const type = typeof value;
  if (typeof value === "string") {
    return JSON.stringify(value.slice(0, 60)) + (value.length > 60 ? "…" : "");
  }
  if (type === "bigint") return `${value}n`;
  if (Object.is(value, -0)) return "-0";
  if (value === null || ["number", "boolean", "undefined"].includes(type)) return String(value);
  const what = type === "object" ? kindOf(value as object) : type;
  return `a${/^[AEIOU]/.test(what) ? "n" : ""} ${what}`;
}

/** The built-in tag of an object or, if that is only "Object", the name of its class. */
function kindOf(value: object): string {
  const kind = Object.prototype.toString.call(value).slice(8, -1);
  if (kind !== "Object") return kind;
  const prototype: unknown = Object.getPrototypeOf(value);
  const own = (of: unknown, name: string): unknown =>
    Object(of) === of && Object.getOwnPropertyDescriptor(of, name)?.value;
  const name = own(own(prototype, "constructor"), "name");
  return typeof name === "string" && /^\w{1,60}$/.test(name) ? name : kind;
}

/** Sets the name of an error class on its prototype, and registers the class. */
export function named(type: { prototype: Error }, name: string): void {
  (errorClasses as Map<string, unknown>).set(name, type);
  type.prototype.name = name;
}
