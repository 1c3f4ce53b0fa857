/**
 * Counts the timers that are set, and may see to what they do. To be imported before the package, which keeps the
 * platform's `setTimeout` from when it is loaded.
 */

let count = 0;
let wrap = (handler: () => void, _ms: number): (() => void) => handler;
const { setTimeout: original } = globalThis;
globalThis.setTimeout = ((handler: () => void, ms = 0) => {
  count += 1;
  return original(wrap(handler, ms), ms);
}) as typeof setTimeout;

/** The number of timers that were set. */
export const timersSet = (): number => count;

/** Gives what is done in the place of what a timer that is set from now on was to do. */
export function wrapTimers(by: typeof wrap): void {
  wrap = by;
}
