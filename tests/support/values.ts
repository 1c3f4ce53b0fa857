/** Conversions, waiting, and random numbers. */

import { platformTimers } from "./timers.js";

/** The UTF-8 bytes of a text. */
export function bytes(text: string): Uint8Array {
  return new TextEncoder().encode(text);
}

/** The text of UTF-8 bytes; `undefined` stays `undefined`. Works for views of any buffer. */
export function text(value: Uint8Array | undefined): string | undefined {
  return value === undefined ? undefined : new TextDecoder().decode(value.slice());
}

/** Makes an object fail `instanceof` of this realm's classes, like one from a frame or a clone in a test by Jest. */
export function ofAnotherRealm<T extends object>(thing: T): T {
  const copyOf = (prototype: object | null): object | null =>
    prototype &&
    Object.create(
      copyOf(Object.getPrototypeOf(prototype)),
      Object.getOwnPropertyDescriptors(prototype),
    );
  return Object.setPrototypeOf(thing, copyOf(Object.getPrototypeOf(thing)));
}

/** A date that is no instance of this realm's Date. */
export function dateOfAnotherRealm(ms: number): Date {
  return ofAnotherRealm(new Date(ms));
}

/** Waits for a task of the event loop, after all microtasks. */
export function turn(ms = 0): Promise<void> {
  return new Promise((resolve) => platformTimers.setTimeout(() => resolve(), ms));
}

/** Waits until a condition holds. Without a timeout of its own, because that of the test applies. */
export async function until(holds: () => boolean): Promise<void> {
  while (!holds()) await turn(5);
}

/** A seeded generator: `next(n)` is an integer from 0 to n - 1. */
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
