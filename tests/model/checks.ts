/** What the parts of the model say when something is not as it ought to be. */

/** What a program finds that ought not to be. */
export class Mismatch extends Error {
  override readonly name = "Mismatch";
}

/** A throw that a program means. */
export class Undone extends Error {
  override readonly name = "Undone";
}

export const BAD_ARGUMENT = "VARVE_BAD_ARGUMENT";
export const CLOSED = "VARVE_DATABASE_CLOSED";
export const CONFLICT = "VARVE_CONFLICT";
export const OUT_OF_MEMORY = "VARVE_OUT_OF_MEMORY";
export const REENTRANCY = "VARVE_REENTRANCY";
export const STALE_VIEW = "VARVE_STALE_VIEW";

/** With so much memory programs of this size do in one turn whatever they want. */
export const AMPLE = 64 * 1_048_576;

export function codeOf(error: unknown): unknown {
  return (error as { code?: unknown } | undefined)?.code;
}

export function equal(what: string, found: unknown, expected: unknown): void {
  if (found === expected) return;
  throw new Mismatch(`${what}: ${String(found)} instead of ${String(expected)}`);
}

/** Runs what is to be refused with an error of this code. */
export function refused(code: string, call: () => unknown): void {
  let result: unknown;
  try {
    result = call();
  } catch (error) {
    if (error instanceof Mismatch || codeOf(error) !== code) throw error;
    return;
  }
  throw new Mismatch(`it gave ${String(result)} instead of an error ${code}`);
}

/** Runs what is to throw `Undone`. */
export function undone(call: () => unknown): void {
  let result: unknown;
  try {
    result = call();
  } catch (error) {
    if (error instanceof Undone) return;
    throw error;
  }
  throw new Mismatch(`it gave ${String(result)} instead of throwing what was thrown in it`);
}

/** The first bytes, for a message. */
export function head(bytes: Uint8Array | undefined): string {
  if (bytes === undefined) return "nothing";
  const some = [...bytes.subarray(0, 8)].join(" ");
  return `${bytes.length} bytes [${some}${bytes.length > 8 ? " …" : ""}]`;
}
