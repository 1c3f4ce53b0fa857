/** The errors and assertions of the model. */

/** A difference between the database and its model. */
export class Mismatch extends Error {
  override readonly name = "Mismatch";
}

/** An error that a program throws on purpose. */
export class Undone extends Error {
  override readonly name = "Undone";
}

export const BAD_ARGUMENT = "VARVE_BAD_ARGUMENT";
export const CLOSED = "VARVE_DATABASE_CLOSED";
export const CONFLICT = "VARVE_CONFLICT";
export const OUT_OF_MEMORY = "VARVE_OUT_OF_MEMORY";
export const REENTRANCY = "VARVE_REENTRANCY";
export const STALE_VIEW = "VARVE_STALE_VIEW";

/** The memory with which programs of this size can do anything within one turn. */
export const AMPLE = 64 * 1_048_576;

export function codeOf(error: unknown): unknown {
  return (error as { code?: unknown } | undefined)?.code;
}

export function equal(what: string, found: unknown, expected: unknown): void {
  if (found === expected) return;
  throw new Mismatch(`${what}: ${String(found)} instead of ${String(expected)}`);
}

/** Checks that a call is refused with an error of this code. */
export function refused(code: string, call: () => unknown): void {
  let result: unknown;
  try {
    result = call();
  } catch (error) {
    if (error instanceof Mismatch || codeOf(error) !== code) throw error;
    return;
  }
  throw new Mismatch(`it returned ${String(result)} instead of throwing an error ${code}`);
}

/** Checks that a call throws `Undone`. */
export function undone(call: () => unknown): void {
  let result: unknown;
  try {
    result = call();
  } catch (error) {
    if (error instanceof Undone) return;
    throw error;
  }
  throw new Mismatch(`it returned ${String(result)} instead of throwing its callback's error`);
}

/** The first bytes, for a message. */
export function head(bytes: Uint8Array | undefined): string {
  if (bytes === undefined) return "nothing";
  const some = [...bytes.subarray(0, 8)].join(" ");
  return `${bytes.length} bytes [${some}${bytes.length > 8 ? " …" : ""}]`;
}
