/**
 * Milliseconds of a clock that never steps, as the wall clock does when it is set. Only differences
 * between two readings in the same realm mean anything. Taken when the module is loaded, so that a
 * clock mocked later does not reach it.
 */
export const monotonicNow: () => number = performance.now.bind(performance);
