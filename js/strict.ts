/** What `strictViews` watches: that nobody writes through a view that `get` gave. */

import type { Engine } from "./engine.js";
import { StaleViewError, VarveError } from "./errors.js";

/** The bytes behind the views of one turn, as they were when the views were handed out. */
export class Watch {
  private readonly engine: Engine;
  private readonly copies: Map<number, Uint8Array<ArrayBuffer>>;

  constructor(engine: Engine) {
    this.engine = engine;
    this.copies = new Map();
  }

  /** Notes what a view shows, unless its place is watched already. */
  add(view: Uint8Array<ArrayBuffer>): void {
    if (view.length === 0) return;
    const copy = this.copies.get(view.byteOffset);
    if (copy === undefined || copy.length < view.length) {
      this.copies.set(view.byteOffset, view.slice());
    }
  }

  /** The engine itself has changed this place, as it may. */
  renew(view: Uint8Array<ArrayBuffer>): void {
    this.copies.delete(view.byteOffset);
    this.add(view);
  }

  /** All places may have changed lawfully: a transaction was rolled back. */
  renewAll(): void {
    for (const [at, copy] of this.copies) {
      copy.set(this.engine.view(at, copy.length));
    }
  }

  /** Compares every place, or the one given. Puts back what was changed and gives the error. */
  verify(only?: number): VarveError | undefined {
    let error: VarveError | undefined;
    for (const [at, copy] of this.copies) {
      if (only !== undefined && only !== at) continue;
      const now = this.engine.view(at, copy.length);
      const first = copy.findIndex((byte, index) => byte !== now[index]);
      if (first < 0) continue;
      now.set(copy);
      error ??= new VarveError(
        "VARVE_VIEW_WRITTEN",
        `A view that get() gave was written to, at byte ${first} of ${copy.length}. The bytes were put ` +
          "back. Such views are for reading: change a value in place with updateIf(), or change a " +
          "copy made with .slice() and set() it.",
      );
    }
    return error;
  }

  forget(): void {
    this.copies.clear();
  }
}

/** The error for a view that died while its callback ran. */
export function diedInCallback(): StaleViewError {
  return new StaleViewError(
    "The view died while the callback of updateIf() ran, so that its changes could not be kept. " +
      "Nothing was changed.",
  );
}
