/** The length of an array of bytes, read from internal slots, which a program cannot override. */

const trueLength = Object.getOwnPropertyDescriptor(
  Object.getPrototypeOf(Uint8Array.prototype),
  "length",
)?.get as (this: unknown) => number;

/**
 * The true byte length of an array, whatever its own `length` returns; -1 for other values. Arrays are known by behavior
 * and not by class, because those of other realms have another class.
 */
export function byteLengthOf(value: unknown): number {
  try {
    return (value as Uint8Array).BYTES_PER_ELEMENT === 1 ? trueLength.call(value) : -1;
  } catch {
    return -1;
  }
}
