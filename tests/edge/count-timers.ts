/**
 * Counts timers, and can wrap their callbacks. Import this before the package, which keeps the `setTimeout` that
 * exists when it is loaded.
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

/** Wraps the callbacks of all further timers. */
export function wrapTimers(by: typeof wrap): void {
  wrap = by;
}
