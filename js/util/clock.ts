/**
 * Clock and timers of the platform. The functions are captured when this module is loaded, so that fake timers that a
 * test installs later (vitest, Jest, Sinon, Cypress, Playwright) do not replace them. If fake timers were installed
 * before, they are detected, and functions that they do not replace are used instead: performance marks for the time,
 * and waits in shared memory for timers. On platforms without such waits (Firefox before 145), fake timers are used.
 */

// Without a monotonic clock, use the wall clock.
const { performance = Date } = globalThis as { performance?: Pick<Performance, "now"> };

function isNative(of: unknown): boolean {
  return /\[native code\]/.test(String(of));
}

/**
 * Whether a test tool has replaced a function of the platform. The fake timers of Sinon, which vitest, Jest and
 * Cypress use, have a property `clock`. On pages, others (Playwright's) are detected because they are not native code.
 * That is checked nowhere else, because error trackers wrap timers too, and in Workers of Cloudflare a wait in shared
 * memory never ends.
 */
export function isFake(of: object): boolean {
  const isPage = "document" in globalThis && isNative(globalThis.addEventListener);
  return "clock" in of || (isPage && !isNative(of));
}

/**
 * Milliseconds of a monotonic clock, which never steps as the wall clock does when it is set. Only differences between
 * two readings in the same realm are meaningful.
 */
export const monotonicNow: () => number =
  Object.hasOwn(performance, "now") && !isNative(performance.now)
    ? () => new PerformanceMark("varve").startTime
    : performance.now.bind(performance);

/**
 * Milliseconds since a moment that is the same for a page and its workers, unless a test has replaced one of their
 * clocks; `NaN` where the platform has no such moment.
 */
export function originTime(): number {
  const { timeOrigin = Number.NaN } = performance as { timeOrigin?: number };
  return timeOrigin + monotonicNow();
}

type Task = () => void;
type WaitAsync = (at: Int32Array, index: number, value: number, ms: number) => { value: unknown };

const { waitAsync } = Atomics as { waitAsync?: WaitAsync };
const fakes =
  [globalThis.setTimeout, globalThis.setInterval].some(isFake) && waitAsync !== undefined;

/** Timers that fake timers cannot reach: they wait for a cell of shared memory that nothing ever changes. */
let cell: Int32Array | undefined;

class Wait {
  task: Task | undefined;

  constructor(task: Task, ms: number) {
    this.task = task;
    this.begin(task, ms);
  }

  protected begin(task: Task, ms: number): void {
    const shared = { initial: 1, maximum: 1, shared: true };
    cell ??= new Int32Array(new WebAssembly.Memory(shared).buffer);
    const { value } = (waitAsync as WaitAsync)(cell, 0, 0, Math.max(ms, 1));
    Promise.resolve(value).then(() => this.task === task && this.fire(task, ms));
  }

  protected fire(task: Task, _ms: number): void {
    this.task = undefined;
    task();
  }
}

class Repetition extends Wait {
  protected override fire(task: Task, ms: number): void {
    this.begin(task, ms);
    task();
  }
}

function end(wait: unknown): void {
  if (wait !== undefined) (wait as Wait).task = undefined;
}

/** As the platform's function, also under fake timers. */
export const setTimeout = (fakes
  ? (task: Task, ms = 0) => new Wait(task, ms)
  : globalThis.setTimeout.bind(globalThis)) as unknown as typeof globalThis.setTimeout;

/** As the platform's function, for timers of this module. */
export const clearTimeout = (
  fakes ? end : globalThis.clearTimeout.bind(globalThis)
) as typeof globalThis.clearTimeout;

/** As the platform's function, also under fake timers. */
export const setInterval = (fakes
  ? (task: Task, ms: number) => new Repetition(task, ms)
  : globalThis.setInterval.bind(globalThis)) as unknown as typeof globalThis.setInterval;

/** As the platform's function, for timers of this module. */
export const clearInterval = (
  fakes ? end : globalThis.clearInterval.bind(globalThis)
) as typeof globalThis.clearInterval;

/** As the platform's function, also under fake timers. */
export const queueMicrotask: (task: Task) => void = isFake(globalThis.queueMicrotask)
  ? (task) => void Promise.resolve().then(task)
  : globalThis.queueMicrotask.bind(globalThis);

/** When the files of this page or worker were loaded, and how that ended, the first one first. */
export function resourceTimings(): PerformanceEntryList {
  return (performance as Performance).getEntriesByType("resource");
}

/** Lets the process end before the timer fires, on platforms where a timer would keep it alive. */
export function unref(timer: unknown): void {
  (timer as { unref?: () => void }).unref?.();
}

/** Lets other tasks run. */
export function nextTask(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, 0));
}

/**
 * Begins a slice of work. Returns a function that says whether it is over: after this many milliseconds, or after this
 * many calls, because on some platforms the clock stands still while a program runs.
 */
export function timeSlice(ms: number, maxClockReads = 256): () => boolean {
  const until = monotonicNow() + ms;
  let left = maxClockReads;
  return () => {
    left -= 1;
    return left < 0 || monotonicNow() >= until;
  };
}
