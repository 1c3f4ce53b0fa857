import type { Slices } from "./messages.js";
import type { Extent } from "./plan.js";
import type { Store } from "./store.js";
import type { Task } from "./tasks.js";

/** A slice takes so many steps of the clock, so that it is exact to some percent. */
const CLOCK_STEPS = 20;
const LEAST_SLICE_MS = 2;

/**
 * Measures one workload on one store, in turns. Each turn is made of slices: as many operations as take some steps of
 * the clock. A fast store repeats them all in a slice, a slow one does one batch.
 */
export class Meter {
  #size: number;
  #repeats = 1;
  #at = 0;
  #pass = 0;
  readonly #sliceMs: number;

  constructor(
    private readonly task: Task,
    private readonly store: Store,
    private readonly extent: Extent,
    step: number,
  ) {
    this.#size = task.batch;
    this.#sliceMs = Math.max(LEAST_SLICE_MS, CLOCK_STEPS * step);
  }

  /** Runs the workload until its code is compiled, and finds how much of it makes a slice. */
  async warmUp(): Promise<void> {
    const { length } = this.task;
    const end = performance.now() + this.extent.warmupMs;
    do {
      const ms = (await this.#part()) / this.#repeats;
      if (ms < this.#sliceMs && this.#size < length) {
        const wanted = Math.min(4, this.#sliceMs / Math.max(ms, 0.01)) * this.#size;
        const { batch } = this.task;
        this.#size = Math.min(length, Math.ceil(wanted / batch) * batch);
        this.#at = 0;
      } else if (this.#repeatable && this.#size === length) {
        this.#repeats = Math.max(
          1,
          Math.min(10_000, Math.ceil(this.#sliceMs / Math.max(ms, 1e-4))),
        );
      }
    } while (performance.now() < end);
    await this.store.rest?.();
  }

  /** Work that need not be undone is repeated between two looks at the clock. */
  get #repeatable(): boolean {
    return this.task.restore === undefined && this.task.prepare === undefined;
  }

  /** One turn of the store: nanoseconds an operation of each slice. */
  async turn(): Promise<Slices> {
    const slices: Slices = [];
    const end = performance.now() + this.extent.turnMs;
    do {
      let ms = 0;
      let operations = 0;
      do {
        const size = this.#next().size;
        ms += await this.#part();
        operations += size * this.#repeats;
      } while (ms < this.#sliceMs && performance.now() < end + this.#sliceMs);
      // A clock that stood still says nothing.
      if (ms > 0) slices.push((ms * 1e6) / operations);
    } while (performance.now() < end);
    await this.store.rest?.();
    return slices;
  }

  /** Checks that the last timed part has done its work. */
  async check(): Promise<void> {
    const { from, to } = this.#last;
    await this.task.check?.(from, to, this.#pass);
  }

  #last = { from: 0, to: 0 };

  #next(): { from: number; size: number } {
    const { length } = this.task;
    if (this.#at >= length) this.#at = 0;
    return { from: this.#at, size: Math.min(this.#size, length - this.#at) };
  }

  /** Times the next part, repeated as often as was found. Returns milliseconds. */
  async #part(): Promise<number> {
    const { task, store } = this;
    const { from, size } = this.#next();
    const to = from + size;
    this.#at = to;
    this.#last = { from, to };
    const prepared = task.prepare?.(from, to);
    if (prepared !== undefined) await prepared;
    const start = performance.now();
    for (let repeat = 0; repeat < this.#repeats; repeat++) {
      this.#pass += 1;
      const done = task.run(from, to, this.#pass);
      if (done !== undefined) await done;
    }
    const settling = store.settle?.();
    if (settling !== undefined) await settling;
    const ms = performance.now() - start;
    const restored = task.restore?.(from, to);
    if (restored !== undefined) await restored;
    return ms;
  }
}
