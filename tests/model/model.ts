/** The expected contents of a database: a map from keys, by their rank in byte order, to values. */

import { type Key, latin } from "./keys.js";
import type { RankRange } from "./program.js";

/** A written value. */
export interface Entry {
  readonly bytes: Uint8Array<ArrayBuffer>;
  /** The largest version of any entry when it was written: its own version has to be larger. */
  readonly above: number;
  /** Its own version, once seen. It is constant from then on. */
  version: number | undefined;
}

/** All entries at one moment. */
export interface State {
  readonly entries: readonly (Entry | undefined)[];
  readonly size: number;
}

export class Model {
  readonly keys: readonly Key[];
  private readonly latin: readonly string[];
  private entries: (Entry | undefined)[];
  private present: number;

  constructor(keys: readonly Key[]) {
    this.keys = keys;
    this.latin = keys.map(({ bytes }) => latin(bytes));
    this.entries = new Array<Entry | undefined>(keys.length).fill(undefined);
    this.present = 0;
  }

  get size(): number {
    return this.present;
  }

  get(rank: number): Entry | undefined {
    return this.entries[rank];
  }

  /** All present entries. */
  all(): Entry[] {
    return this.entries.filter((entry) => entry !== undefined);
  }

  has(rank: number): boolean {
    return this.entries[rank] !== undefined;
  }

  set(rank: number, entry: Entry): void {
    if (this.entries[rank] === undefined) this.present += 1;
    this.entries[rank] = entry;
  }

  delete(rank: number): boolean {
    if (this.entries[rank] === undefined) return false;
    this.entries[rank] = undefined;
    this.present -= 1;
    return true;
  }

  state(): State {
    return { entries: this.entries.slice(), size: this.present };
  }

  restore({ entries, size }: State): void {
    this.entries = entries.slice();
    this.present = size;
  }

  /** Whether a key is in a range, regardless of the limit. */
  includes({ gt, gte, lt, lte, prefix }: RankRange, rank: number): boolean {
    return (
      (gt === undefined || rank > gt) &&
      (gte === undefined || rank >= gte) &&
      (lt === undefined || rank < lt) &&
      (lte === undefined || rank <= lte) &&
      (prefix === undefined || this.begins(rank, prefix))
    );
  }

  /** The present keys of a range, in its order. */
  within(range: RankRange): number[] {
    const found: number[] = [];
    for (let rank = 0; rank < this.entries.length; rank++) {
      if (this.entries[rank] !== undefined && this.includes(range, rank)) found.push(rank);
    }
    if (range.reverse === true) found.reverse();
    return range.limit === undefined ? found : found.slice(0, range.limit);
  }

  private begins(rank: number, [of, length]: readonly [number, number]): boolean {
    return (this.latin[rank] as string).startsWith((this.latin[of] as string).slice(0, length));
  }
}
