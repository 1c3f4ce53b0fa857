/** Values as the JSON text that is stored of them. */

import { badArgument } from "../errors/base.js";

/** JSON text that a client has made already, in the place of the value. */
export class JsonText {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

/** @throws TypeError for what has no JSON form, and what the value's own functions throw */
export function jsonOf(value: unknown): string {
  if (value instanceof JsonText) return value.text;
  let cause: Error | undefined;
  try {
    const text: unknown = JSON.stringify(value);
    if (typeof text === "string") return text;
  } catch (error) {
    // Of a circle or a bigint the engine tells; what the value's own functions throw is left to them.
    if (!(error instanceof TypeError) || "code" in error) throw error;
    cause = error;
  }
  const why = cause ? `: ${cause.message}` : "";
  const wrong = badArgument(`The value has no JSON form${why}.`, value);
  throw Object.assign(wrong, { field: "", cause });
}
