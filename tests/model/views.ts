/** The views that a program keeps, also for too long, and the bytes that each may show. */

import { head, Mismatch } from "./checks.js";
import { same } from "./values.js";

/** The size up to which views are checked after every operation. */
const FEW_BYTES = 2_000;

interface Kept {
  readonly view: Uint8Array;
  readonly length: number;
  readonly rank: number;
  /** The turn in which it was returned. */
  readonly turn: number;
  readonly from: string;
  /** The values of its record since it was returned. */
  readonly bytes: Uint8Array[];
}

/** The expected state of this turn's views. */
export interface Turn {
  readonly number: number;
  /** Whether its views must still be valid: the turn has read less than its memory. */
  readonly areValid: boolean;
}

/** The slots of views. */
export class Views {
  private readonly slots: (Kept | undefined)[];
  private next: number;

  constructor(count: number) {
    this.slots = new Array<Kept | undefined>(count).fill(undefined);
    this.next = 0;
  }

  /** Keeps a view of a value of `rank` that may show any of `bytes`. */
  keep(
    slot: number,
    view: Uint8Array,
    rank: number,
    bytes: Uint8Array[],
    turn: Turn,
    from: string,
  ) {
    const { length } = view;
    if (length === 0) return;
    this.slots[slot] = { view, length, rank, turn: turn.number, from, bytes };
  }

  /** Records a new value of a key: after a write a view shows old or new bytes. */
  written(rank: number, bytes: Uint8Array): void {
    for (const kept of this.slots) {
      if (kept?.rank === rank && kept.length === bytes.length) kept.bytes.push(bytes);
    }
  }

  /** Checks all views, or a different one each time where all would take too long. */
  checkSome(turn: Turn): void {
    if (this.slots.reduce((sum, kept) => sum + (kept?.length ?? 0), 0) < FEW_BYTES) {
      this.checkAll(turn);
      return;
    }
    this.next = (this.next + 1) % this.slots.length;
    const kept = this.slots[this.next];
    if (kept !== undefined) check(kept, turn);
  }

  checkAll(turn: Turn): void {
    for (const kept of this.slots) if (kept !== undefined) check(kept, turn);
  }

  /**
   * Drops the views after a yield in strict mode, and after closing. Without that mode, views beyond the turn's
   * memory remain: they are copies with buffers of their own.
   */
  checkExpired(when: string, turn: Turn, isStrict: boolean): void {
    for (const kept of this.slots) {
      if (kept === undefined || kept.view.length === 0) continue;
      if (isStrict || kept.view.buffer.byteLength !== kept.length) {
        throw new Mismatch(`the view of ${kept.from} is still valid ${when}`);
      }
      check(kept, turn);
    }
    this.slots.fill(undefined);
  }
}

function check({ view, length, turn: had, from, bytes }: Kept, turn: Turn): void {
  if (view.length === 0) {
    if (had === turn.number && turn.areValid) {
      throw new Mismatch(`the view of ${from} is stale within its turn`);
    }
    return;
  }
  if (view.length !== length) {
    throw new Mismatch(`the view of ${from} has ${view.length} bytes instead of ${length}`);
  }
  for (let i = bytes.length - 1; i >= 0; i--) if (same(view, bytes[i])) return;
  throw new Mismatch(
    `the view of ${from} shows what its key has not held since: ${head(view)}, not ${head(bytes.at(-1))}`,
  );
}
