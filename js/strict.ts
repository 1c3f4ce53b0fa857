/**
 * What `strictViews` watches: that nobody writes through a view that `get` gave, and that none of an
 * iteration is kept beyond its step. Loaded where it is asked for.
 */

import { bury } from "./bytes.js";
import type { Engine } from "./engine.js";
import { VarveError } from "./errors.js";
import type { Memory } from "./struct/codec.js";
import { lone } from "./struct/type.js";

/** The bytes behind the views of one turn, as they were when the views were handed out. */
export class Watch {
  private readonly engine: Engine;
  private readonly copies: Map<number, Uint8Array<ArrayBuffer>>;
  /** Copies that stand for values of an iteration, and what they have to look like. */
  private readonly lent: Map<Uint8Array<ArrayBuffer>, Uint8Array<ArrayBuffer>>;

  constructor(engine: Engine) {
    this.engine = engine;
    this.copies = new Map();
    this.lent = new Map();
  }

  /**
   * Gives a copy in place of a view that is good until an iteration's next step: it can be killed
   * then, alone.
   */
  lend(view: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
    const copy = view.slice();
    this.lent.set(copy, view.slice());
    return copy;
  }

  /** Kills what was lent. Gives the error if it was written to. */
  takeBack(copy: Uint8Array<ArrayBuffer>): VarveError | undefined {
    const proof = this.lent.get(copy);
    if (proof === undefined) return undefined;
    const error = compared(copy, proof);
    this.lent.delete(copy);
    kill(copy);
    return error;
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
      error ??= written("get()", first, copy.length);
    }
    if (only !== undefined) return error;
    for (const [copy, proof] of this.lent) {
      const found = compared(copy, proof);
      error ??= found;
    }
    return error;
  }

  /** The memory that typed views of a copy that was lent read through: they end when it is killed. */
  memory(copy: Uint8Array): Memory {
    return {
      ...lone(copy),
      get epoch() {
        return copy.length === 0 ? -1 : 0;
      },
    };
  }

  forget(): void {
    this.copies.clear();
    for (const copy of this.lent.keys()) kill(copy);
    this.lent.clear();
  }
}

/** Puts back what was changed in a copy that was lent, and gives the error. */
function compared(copy: Uint8Array, proof: Uint8Array): VarveError | undefined {
  const first = proof.findIndex((byte, index) => byte !== copy[index]);
  if (first < 0) return undefined;
  copy.set(proof);
  return written("an iteration", first, proof.length);
}

function kill({ buffer }: Uint8Array<ArrayBuffer>): void {
  structuredClone(buffer, { transfer: [buffer] });
  bury(buffer);
}

function written(giver: string, first: number, length: number): VarveError {
  return new VarveError(
    "VARVE_VIEW_WRITTEN",
    `A view from ${giver} was written to, at byte ${first} of ${length}. The bytes were ` +
      "restored. Such views are read-only: change a value in place with updateIf(), or change a " +
      "copy made with .slice() and set() it.",
  );
}
