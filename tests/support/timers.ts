/**
 * The timers and the monotonic clock of this realm, which a test can replace. The package keeps the timers that
 * exist when it is loaded, so load this module first.
 */
export interface Timers {
  now: () => number;
  setTimeout: (task: () => void, ms?: number, ...more: never[]) => unknown;
  setInterval: (task: () => void, ms?: number, ...more: never[]) => unknown;
}

/** The timers and clock of the platform. */
export const platformTimers: Readonly<Timers> = {
  now: performance.now.bind(performance),
  setTimeout: globalThis.setTimeout.bind(globalThis),
  setInterval: globalThis.setInterval.bind(globalThis),
};

/** The timers and clock that this realm uses now. */
export const currentTimers: Timers = { ...platformTimers };

/** Bound, because bound functions look native, like those of the platform. */
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
