/** Values as the JSON text that is stored of them. */

import { badCall } from "../errors/base.js";

/** JSON text that a client has made already, in the place of the value. */
export class JsonText {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

/** Why a value that is an object within an object, thousands of times, can be neither copied nor written. */
export const TOO_DEEP = "it is nested too deeply";

/** Whether the platform had no stack left: it tells by the text alone. */
export function isTooDeep(error: unknown): boolean {
  return /call stack|recursion/.test((error as Error | null)?.message ?? "");
}

/** @throws TypeError for what has no JSON form, and what the value's own functions throw */
export function jsonOf(value: unknown): string {
  if (value instanceof JsonText) return value.text;
  let cause: unknown;
  let why = "";
  try {
    const text: unknown = JSON.stringify(value);
    if (typeof text === "string") return text;
  } catch (error) {
    cause = error;
    // Of a circle or a bigint the engine tells; what the value's own functions throw is left to them.
    if (isTooDeep(error)) why = `: ${TOO_DEEP}`;
    else if (error instanceof TypeError && !("code" in error)) why = `: ${error.message}`;
    else throw error;
  }
  const badValue = badCall(`The value has no JSON form${why}. Given: ${typeof value}.`);
  throw Object.assign(badValue, { field: "", cause });
}
