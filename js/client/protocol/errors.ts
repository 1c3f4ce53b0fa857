/** The form in which errors are sent between realms: their class, code and further properties are kept. */

import { describe, errorClasses, VarveError } from "../../errors/index.js";
import type { WireError } from "./messages.js";

/** The properties of varve's error classes beside the message. */
const SENT_DETAILS = [
  "pid",
  "details",
  "reason",
  "applied",
  "collection",
  "index",
  "field",
] as const;

/** The longest chain of causes that is sent: causes may be circular. */
const MAX_CAUSES = 8;

/** Converts a thrown value to the form in which it is sent. */
export function toWire(error: unknown, most = MAX_CAUSES): WireError {
  try {
    return describeError(error, most);
  } catch {
    // A property may be a getter of the program that throws.
    return { name: "Error", message: "The thrown value cannot be read." };
  }
}

function describeError(error: unknown, most: number): WireError {
  if (typeof error !== "object" || error === null) {
    return { name: "Error", message: String(error) };
  }
  const { name, message, code, stack, cause } = error as Partial<WireError>;
  const more: Record<string, unknown> = {};
  for (const key of SENT_DETAILS)
    if (key in error) more[key] = (error as Record<string, unknown>)[key];
  return {
    name: String(name ?? "Error"),
    message: String(message ?? `${describe(error)} was thrown.`),
    // The code of a DOMException is a number.
    code: typeof code === "string" ? code : undefined,
    stack: typeof stack === "string" ? stack : undefined,
    more,
    cause: cause instanceof Error && most > 0 ? toWire(cause, most - 1) : undefined,
  };
}

/** Converts an error back from the form in which it was sent. */
export function fromWire({ name, message, code, stack, more, cause }: WireError): Error {
  const options = cause === undefined ? undefined : { cause: fromWire(cause as WireError) };
  const error = Object.assign(make(name, message, code, options), more);
  for (const [key, value] of Object.entries({ name, code, stack })) {
    if (value === undefined || error[key as keyof Error] === value) continue;
    Object.defineProperty(error, key, { value, configurable: true, writable: true });
  }
  return error;
}

function make(
  name: string,
  message: string,
  code: string | undefined,
  options: { cause: Error } | undefined,
): Error {
  const known = code !== undefined && errorClasses.get(name);
  if (!known) return new (name === "TypeError" ? TypeError : Error)(message, options);
  if (name === "VarveError") return new VarveError(code, message, options);
  return new known(message, options as { cause: Error });
}
