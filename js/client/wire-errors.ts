/** Errors on their way between realms: class, code and what a class has beside these stay. */

import { errorClasses, VarveError } from "../errors.js";
import type { WireError } from "./messages.js";

/** What the classes of varve have beside a message; the options of their constructors by the same names. */
const MORE = ["pid", "details", "reason", "applied"] as const;

/** An error as it travels. */
export function toWire(error: unknown): WireError {
  if (typeof error !== "object" || error === null) {
    return { name: "Error", message: String(error) };
  }
  const { name, message, code, stack, cause } = error as Partial<WireError>;
  const more: Record<string, unknown> = {};
  for (const key of MORE) if (key in error) more[key] = (error as Record<string, unknown>)[key];
  return {
    name: String(name),
    message: String(message),
    // A DOMException has a number for it.
    code: typeof code === "string" ? code : undefined,
    stack: typeof stack === "string" ? stack : undefined,
    more,
    cause: cause instanceof Error ? toWire(cause) : undefined,
  };
}

/** The error that a `WireError` stands for. */
export function fromWire(wire: WireError): Error {
  const { name, message, code, stack, more } = wire;
  const options: Record<string, unknown> = { ...more };
  if (wire.cause !== undefined) options.cause = fromWire(wire.cause as WireError);
  const made = make(name, message, code, options);
  if (stack !== undefined)
    Object.defineProperty(made, "stack", { value: stack, configurable: true, writable: true });
  return made;
}

function make(
  name: string,
  message: string,
  code: string | undefined,
  options: Record<string, unknown>,
): Error {
  const known = errorClasses.get(name);
  if (code !== undefined && known !== undefined) {
    return name === "VarveError"
      ? new VarveError(code, message, options)
      : new known(message, options);
  }
  const error =
    name === "TypeError" ? new TypeError(message, options) : new Error(message, options);
  if (error.name !== name)
    Object.defineProperty(error, "name", { value: name, configurable: true, writable: true });
  return code === undefined ? error : Object.assign(error, { code });
}
