/** Values that tests make and read, and ways to wait. */

import { platformTimers } from "./timers.js";

/** The UTF-8 bytes of a text. */
export function bytes(text: string): Uint8Array {
  return new TextEncoder().encode(text);
}

/** The text of UTF-8 bytes; `undefined` stays `undefined`. Works for views of any buffer. */
export function text(value: Uint8Array | undefined): string | undefined {
  return value === undefined ? undefined : new TextDecoder().decode(value.slice());
}

/** Has this realm's classes know nothing of a thing, as of one from a frame, or of a clone in a test by jest. */
export function ofAnotherRealm<T extends object>(thing: T): T {
  const copyOf = (prototype: object | null): object | null =>
    prototype &&
    Object.create(
      copyOf(Object.getPrototypeOf(prototype)),
      Object.getOwnPropertyDescriptors(prototype),
    );
  return Object.setPrototypeOf(thing, copyOf(Object.getPrototypeOf(thing)));
}

/** A date of which this realm's class knows nothing. */
export function dateOfAnotherRealm(ms: number): Date {
  return ofAnotherRealm(new Date(ms));
}

/** Gives the event loop a turn: all microtasks, and one task. */
export function turn(ms = 0): Promise<void> {
  return new Promise((resolve) => platformTimers.setTimeout(() => resolve(), ms));
}

/** Waits until something holds, however slow the machine is; a test that waits for ever is ended. */
export async function until(holds: () => boolean): Promise<void> {
  while (!holds()) await turn(5);
}

/** A seeded source of numbers: `next(n)` is an integer from 0 to n - 1. The same seed, the same run. */
export function random(seed: number): (below: number) => number {
  let state = seed >>> 0;
  return (below) => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = state;
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return Math.floor((((mixed ^ (mixed >>> 14)) >>> 0) / 0x1_0000_0000) * below);
  };
}
