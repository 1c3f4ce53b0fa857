/**
 * The timers and the monotonic clock of this realm, which a test can replace. The package takes the platform's
 * timers when it is loaded, so load this module before it.
 */
export interface Timers {
  now: () => number;
  setTimeout: (task: () => void, ms?: number, ...more: never[]) => unknown;
  setInterval: (task: () => void, ms?: number, ...more: never[]) => unknown;
}

/** The platform's own. */
export const platformTimers: Readonly<Timers> = {
  now: performance.now.bind(performance),
  setTimeout: globalThis.setTimeout.bind(globalThis),
  setInterval: globalThis.setInterval.bind(globalThis),
};

/** What everything in this realm uses now. */
export const currentTimers: Timers = { ...platformTimers };

/** Bound functions look native, as those of browsers do. */
function forward(name: keyof Timers) {
  const call = (...args: never[]) =>
    (currentTimers[name] as (...args: never[]) => unknown)(...args);
  return call.bind(undefined) as never;
}

globalThis.setTimeout = forward("setTimeout");
globalThis.setInterval = forward("setInterval");
Object.defineProperty(
  Object.hasOwn(performance, "now") ? performance : Object.getPrototypeOf(performance),
  "now",
  { configurable: true, writable: true, value: forward("now") },
);
