/**
 * What `strictViews` watches: that nobody writes through a view that `get` gave, that none of an
 * iteration is kept beyond its step, and none at all beyond its turn. Loaded where it is asked for.
 */

import { allocated } from "../engine/error-codes.js";
import { VarveError } from "../errors/index.js";
import type { Memory } from "../struct/codec.js";
import { standaloneMemory } from "../struct/type.js";
import { markDetached } from "../util/bytes.js";

interface TrackedView {
  readonly giver: string;
  readonly proof: Uint8Array<ArrayBuffer>;
}

/**
 * The views of one turn. Each has bytes of its own: it can be killed alone, a write through it reaches no
 * record, and a clone of it has nothing but its record.
 */
export class Watch {
  /** What was lent, who gave it, and what it has to look like. */
  private readonly tracked: Map<Uint8Array<ArrayBuffer>, TrackedView>;

  private readonly name: string;

  constructor(name: string) {
    this.name = name;
    this.tracked = new Map();
  }

  /** Gives a copy in place of a view. It is good until it is taken back, at the end of the turn at latest. */
  track(view: Uint8Array<ArrayBuffer>, giver: string): Uint8Array<ArrayBuffer> {
    const take = () => new Uint8Array(view);
    const copy = allocated(this.name, take);
    this.tracked.set(copy, { giver, proof: allocated(this.name, take) });
    return copy;
  }

  /** A copy that a callback was given: from here on nobody may write to it any more. */
  note(copy: Uint8Array<ArrayBuffer>): void {
    this.tracked.set(copy, { giver: "updateIf()", proof: copy.slice() });
  }

  /** Kills what was lent. Gives the error if it was written to. */
  takeBack(copy: Uint8Array<ArrayBuffer>): VarveError | undefined {
    const tracked = this.tracked.get(copy);
    if (tracked === undefined) return undefined;
    const error = compared(copy, tracked);
    this.tracked.delete(copy);
    kill(copy);
    return error;
  }

  /** Compares all of them. Puts back what was changed and gives the error. */
  verify(): VarveError | undefined {
    let error: VarveError | undefined;
    for (const [copy, tracked] of this.tracked) {
      const found = compared(copy, tracked);
      error ??= found;
    }
    return error;
  }

  /** The memory that typed views of a copy that was lent read through: they end when it is killed. */
  memory(copy: Uint8Array): Memory {
    return {
      ...standaloneMemory(copy),
      get epoch() {
        return copy.length === 0 ? -1 : 0;
      },
    };
  }

  forget(): void {
    for (const copy of this.tracked.keys()) kill(copy);
    this.tracked.clear();
  }
}

/** Puts back what was changed in a copy that was lent, and gives the error. */
function compared(copy: Uint8Array, { giver, proof }: TrackedView): VarveError | undefined {
  const first = proof.findIndex((byte, index) => byte !== copy[index]);
  if (first < 0) return undefined;
  copy.set(proof);
  return written(giver, first, proof.length);
}

function kill({ buffer }: Uint8Array<ArrayBuffer>): void {
  structuredClone(buffer, { transfer: [buffer] });
  markDetached(buffer);
}

function written(giver: string, first: number, length: number): VarveError {
  return new VarveError(
    "VARVE_VIEW_WRITTEN",
    `A view from ${giver} was written to, at byte ${first} of ${length}. The bytes were ` +
      "restored. Such views are read-only: change a value in place with updateIf(), or change a " +
      "copy made with .slice() and set() it.",
  );
}
