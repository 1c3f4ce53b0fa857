/** Encoding of values as JSON text, the form in which `json()` stores them. */

import { badCall } from "../errors/base.js";

/** A value that a client has already encoded as JSON text. */
export class JsonText {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

/** The message for a value that is nested too deeply, thousands of levels, to be copied or written. */
export const TOO_DEEP = "it is nested too deeply";

/** Whether an error is a stack overflow, which platforms report only by the text. */
export function isTooDeep(error: unknown): boolean {
  return /call stack|recursion/.test((error as Error | null)?.message ?? "");
}

/**
 * The JSON text of a value. If `isLossy`, without what JSON does not keep.
 *
 * @throws TypeError for a value without JSON form, or with a part that JSON would change; errors of the value's own
 * functions
 */
export function jsonOf(value: unknown, isLossy = false): string {
  if (value instanceof JsonText) return value.text;
  let cause: unknown;
  let why = "";
  try {
    const isPlain = isLossy || isKept(value);
    const text: unknown = JSON.stringify(value, isPlain ? undefined : refusingLosses());
    if (typeof text === "string") return text;
  } catch (error) {
    cause = error;
    // For a cycle or a bigint the runtime's error is converted; errors of the value's own functions pass unchanged.
    if (isTooDeep(error)) why = `: ${TOO_DEEP}`;
    else if (error instanceof TypeError && !("code" in error)) why = `: ${error.message}`;
    else throw error;
  }
  const badValue = badCall(`The value has no JSON form${why}. Given: ${typeof value}.`);
  throw Object.assign(badValue, { field: "", cause });
}

/** The kinds of objects of which JSON keeps nothing, or not the kind. */
const LOST = /^(Date|Map|Set|RegExp|Error|DataView|.+Array)$/;

function kindOf(value: object): string {
  return Object.prototype.toString.call(value).slice(8, -1);
}

/** After so many parts of a value a circle is looked for. */
const MANY = 10_000;

/** Whether JSON certainly keeps a value. It is not certain where a function `toJSON` decides, nor of circles. */
function isKept(value: unknown): boolean {
  const left: unknown[] = [value];
  const seen = new Set<unknown>();
  let parts = 0;
  while (left.length > 0) {
    const one = left.pop();
    if (parts > MANY && Object(one) === one) {
      if (seen.has(one)) return false;
      seen.add(one);
    }
    if (typeof one !== "object" || one === null) {
      if (partThatIsLost(one, one, false) !== undefined) return false;
    } else if ("toJSON" in one) return false;
    else if (Array.isArray(one)) {
      parts += one.length;
      for (let i = 0; i < one.length; i++) {
        const item: unknown = one[i];
        if (item === undefined) return false;
        if (typeof item !== "string") left.push(item);
      }
    } else {
      const prototype: unknown = Object.getPrototypeOf(one);
      const isPlain = prototype === Object.prototype || prototype === null;
      if (!isPlain && partThatIsLost(one, one, false) !== undefined) return false;
      for (const name of Object.keys(one)) {
        parts += 1;
        const field: unknown = (one as Record<string, unknown>)[name];
        if (typeof field !== "string") left.push(field);
      }
    }
  }
  return true;
}

/** What is lost if JSON has a value, or `now`, which its `toJSON` has returned. */
function partThatIsLost(given: unknown, now: unknown, isItem: boolean): string | undefined {
  switch (typeof now) {
    case "number":
      return Number.isFinite(now) ? undefined : String(now);
    case "undefined":
      return isItem ? "undefined" : undefined;
    case "function":
    case "symbol":
      return `a ${typeof now}`;
  }
  const before = Object(given) === given ? kindOf(given as object) : "";
  // A function toJSON decides what is stored, but that of a Date or a Buffer loses what it was.
  if (before === "Date" || ArrayBuffer.isView(given)) return `a ${before}`;
  if (typeof now !== "object" || now === null) return undefined;
  const kind = kindOf(now);
  switch (kind) {
    case "Object":
    case "Array":
    case "String":
    case "Boolean":
      return undefined;
    case "Number":
      return partThatIsLost(0, +now, isItem);
  }
  // Objects of the platform have no fields of their own.
  return LOST.test(kind) || Object.keys(now).length === 0 ? `a ${kind}` : undefined;
}

/** A function for JSON.stringify that throws, by its path, for what JSON would lose. */
function refusingLosses() {
  const paths = new Map<unknown, string>();
  return function (this: unknown, name: string, now: unknown): unknown {
    const around = paths.get(this);
    const step = Array.isArray(this)
      ? `[${name}]`
      : /^[A-Za-z_$][\w$]*$/.test(name)
        ? `.${name}`
        : `[${JSON.stringify(name)}]`;
    // The first value is in an object of its own.
    const path = around === undefined ? "" : around + step;
    const given = (this as Record<string, unknown>)[name];
    // jsonOf has an error of its own for a value that is nothing in JSON.
    const isNone = around === undefined && JSON.stringify(now) === undefined;
    const lost = isNone ? undefined : partThatIsLost(given, now, Array.isArray(this));
    if (lost !== undefined) {
      const message =
        `json(): ${path || "the value"} is ${lost}, which JSON does not keep. Use structured() of varve/structured, ` +
        "or json({ lossy: true }).";
      throw Object.assign(badCall(message), { field: path });
    }
    if (typeof now === "object" && now !== null) paths.set(now, path);
    return now;
  };
}
