/**
 * The checks of `strictViews`: no write through a view from `get`, no view of an iteration kept beyond its step,
 * and no view kept beyond its turn. This module is loaded only if the option is set.
 */

import { allocated } from "../engine/error-codes.js";
import { VarveError } from "../errors/index.js";
import type { Memory } from "../struct/codec.js";
import { standaloneMemory } from "../struct/type.js";
import { markDetached } from "../util/bytes.js";

interface TrackedView {
  readonly calledBy: string;
  readonly expectedBytes: Uint8Array<ArrayBuffer>;
}

/**
 * Tracks the views of one turn. Each is a copy in its own buffer, so it can be detached alone, a write through
 * it reaches no record, and a clone of it contains only its record.
 */
export class ViewTracker {
  /** Each copy that was given out, the call that gave it, and its expected bytes. */
  private readonly tracked: Map<Uint8Array<ArrayBuffer>, TrackedView>;

  private readonly name: string;

  constructor(name: string) {
    this.name = name;
    this.tracked = new Map();
  }

  /** Returns a copy in place of a view. It is valid until it is taken back, at the latest when the turn ends. */
  track(view: Uint8Array<ArrayBuffer>, calledBy: string): Uint8Array<ArrayBuffer> {
    const take = () => new Uint8Array(view);
    const copy = allocated(this.name, take);
    this.tracked.set(copy, { calledBy, expectedBytes: allocated(this.name, take) });
    return copy;
  }

  /** Tracks a copy that a callback was given: writes to it are errors from now on. */
  note(copy: Uint8Array<ArrayBuffer>): void {
    this.tracked.set(copy, { calledBy: "updateIf()", expectedBytes: copy.slice() });
  }

  /** Detaches a copy that was given out. Returns an error if it was written to. */
  untrack(copy: Uint8Array<ArrayBuffer>): VarveError | undefined {
    const tracked = this.tracked.get(copy);
    if (tracked === undefined) return undefined;
    const error = compared(copy, tracked);
    this.tracked.delete(copy);
    detach(copy);
    return error;
  }

  /** Checks all copies. Restores the bytes of those that were changed, and returns the first error. */
  verify(): VarveError | undefined {
    let error: VarveError | undefined;
    for (const [copy, tracked] of this.tracked) {
      const found = compared(copy, tracked);
      error ??= found;
    }
    return error;
  }

  /** The `Memory` for typed views of such a copy: they become stale when the copy is detached. */
  memory(copy: Uint8Array): Memory {
    return {
      ...standaloneMemory(copy),
      get epoch() {
        return copy.length === 0 ? -1 : 0;
      },
    };
  }

  forget(): void {
    for (const copy of this.tracked.keys()) detach(copy);
    this.tracked.clear();
  }
}

/** Compares a copy with its expected bytes. Restores them if they differ, and returns the error. */
function compared(
  copy: Uint8Array,
  { calledBy, expectedBytes }: TrackedView,
): VarveError | undefined {
  const first = expectedBytes.findIndex((byte, index) => byte !== copy[index]);
  if (first < 0) return undefined;
  copy.set(expectedBytes);
  return written(calledBy, first, expectedBytes.length);
}

function detach({ buffer }: Uint8Array<ArrayBuffer>): void {
  structuredClone(buffer, { transfer: [buffer] });
  markDetached(buffer);
}

function written(calledBy: string, first: number, length: number): VarveError {
  return new VarveError(
    "VARVE_VIEW_WRITTEN",
    `A view from ${calledBy} was written to, at byte ${first} of ${length}. The bytes were ` +
      "restored. Such views are read-only: change a value in place with updateIf(), or change a " +
      "copy made with .slice() and set() it.",
  );
}
