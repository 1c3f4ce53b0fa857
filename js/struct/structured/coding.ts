/** Values to bytes, and back. */

import { MalformedValueError } from "../../errors/base.js";
import { isTooDeep } from "../plain-json.js";
import { malformed, refused, tooDeep } from "./format.js";
import { ValueReader } from "./reader.js";
import { Writer } from "./writer.js";

/** A writer that is not in use: getters of a value may store other values meanwhile. */
let idle: Writer | undefined;

/** The bytes of a value. @throws TypeError */
export function encoded(value: unknown): Uint8Array<ArrayBuffer> {
  return writing((writer) => writer.encode(value));
}

/** Calls a function with a writer. */
export function writing<T>(write: (writer: Writer) => T): T {
  const writer = idle ?? new Writer();
  idle = undefined;
  try {
    return write(writer);
  } catch (error) {
    throw isTooDeep(error) ? refused("", "is nested too deeply.") : error;
  } finally {
    writer.reset();
    idle = writer;
  }
}

/** The value of these bytes. @throws MalformedValueError */
export function decoded(bytes: Uint8Array): unknown {
  return reading(() => {
    const value = new ValueReader(bytes).whole();
    if (value === undefined) throw malformed("it is undefined");
    return value;
  });
}

/** Makes a MalformedValueError of what the platform throws, as for a wrong regular expression. */
export function reading<T>(read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (error instanceof MalformedValueError) throw error;
    throw isTooDeep(error) ? tooDeep() : malformed((error as Error).message, error);
  }
}
