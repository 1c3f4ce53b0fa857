/** Errors on their way between realms: class, code and what a class has beside these stay. */

import { describe, errorClasses, VarveError } from "../../errors/index.js";
import type { WireError } from "./messages.js";

/** What the classes of varve have beside a message. */
const MORE = ["pid", "details", "reason", "applied", "collection", "index", "field"] as const;

/** A chain of causes may lead back to where it began. */
const MOST_CAUSES = 8;

/** An error as it travels. */
export function toWire(error: unknown, most = MOST_CAUSES): WireError {
  try {
    return told(error, most);
  } catch {
    // A property of it may be a function of the program, which throws in its turn.
    return { name: "Error", message: "The thrown value cannot be read." };
  }
}

function told(error: unknown, most: number): WireError {
  if (typeof error !== "object" || error === null) {
    return { name: "Error", message: String(error) };
  }
  const { name, message, code, stack, cause } = error as Partial<WireError>;
  const more: Record<string, unknown> = {};
  for (const key of MORE) if (key in error) more[key] = (error as Record<string, unknown>)[key];
  return {
    name: String(name ?? "Error"),
    message: String(message ?? `${describe(error)} was thrown.`),
    // A DOMException has a number for it.
    code: typeof code === "string" ? code : undefined,
    stack: typeof stack === "string" ? stack : undefined,
    more,
    cause: cause instanceof Error && most > 0 ? toWire(cause, most - 1) : undefined,
  };
}

/** The error that a `WireError` stands for. */
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
