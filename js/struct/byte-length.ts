/** The length of an array of bytes, read from internal slots, which a program cannot override. */

const arrays = Object.getPrototypeOf(Uint8Array.prototype) as Uint8Array;
const trueLength = Object.getOwnPropertyDescriptor(arrays, "length")?.get as (
  this: unknown,
) => number;

/**
 * The true length of a typed array, whatever its own `length` returns; -1 for other values, and for an array without
 * memory, because its buffer was transferred or has shrunk: it seems empty although it was not.
 */
export function trueLengthOf(value: unknown): number {
  try {
    const length = trueLength.call(value);
    // Throws for an array without memory.
    if (length === 0) arrays.at.call(value, 0);
    return length;
  } catch {
    return -1;
  }
}

/** As `trueLengthOf`, of bytes. Arrays are known by behavior and not by class: those of other realms have another. */
export function byteLengthOf(value: unknown): number {
  const length = trueLengthOf(value);
  return length > 0 && (value as Uint8Array).BYTES_PER_ELEMENT > 1 ? -1 : length;
}
