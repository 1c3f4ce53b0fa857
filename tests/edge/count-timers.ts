/**
 * Counts the timers that are set. To be imported before the package, which keeps the platform's `setTimeout`
 * from when it is loaded.
 */

let count = 0;
const { setTimeout: original } = globalThis;
globalThis.setTimeout = ((handler: () => void, ms?: number) => {
  count += 1;
  return original(handler, ms);
}) as typeof setTimeout;

/** The number of timers that were set. */
export const timersSet = (): number => count;
