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

/** The JSON text of a value. @throws TypeError for a value without JSON form; errors of the value's own functions */
export function jsonOf(value: unknown): string {
  if (value instanceof JsonText) return value.text;
  let cause: unknown;
  let why = "";
  try {
    const text: unknown = JSON.stringify(value);
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
