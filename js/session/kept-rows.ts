/** The rows of a live range, in order, as its listener is given them. */

/** What is different in a range. */
export interface RangeUpdate {
  /**
   * Keys and their versions; 0 for removed keys. Each key is a string with one character for each of its bytes, so that
   * the order of the strings is that of the keys.
   */
  readonly changes: readonly (readonly [key: unknown, version: number])[];
  /** Whether these are all keys of the range, whatever was there before. */
  readonly isAll: boolean;
  /** Whether it is of another database than the update before, so that equal versions say nothing. */
  readonly isOther?: boolean;
}

interface KeptRow {
  /** The key's bytes, as a string with one character each. */
  readonly order: string;
  readonly version: number;
  readonly row: unknown;
}

/** The rows of a range, in order. Each update leaves them as of one moment of the owner. */
export class KeptRows {
  /** In ascending order of the keys; `undefined` before the first full answer. */
  private rows: readonly KeptRow[] | undefined;
  private readonly isReversed: boolean;

  constructor(isReversed: boolean) {
    this.isReversed = isReversed;
  }

  /**
   * Takes changes, whose rows that are there follow in `rows`. A row with the version that it had stays the same object.
   * Returns whether anything is different.
   */
  apply({ changes, isAll, isOther }: RangeUpdate, rows: readonly unknown[]): boolean {
    const before = isOther ? undefined : this.rows;
    const old = isAll ? [] : (before ?? []);
    let index = 0;
    const changed = changes.map(([order, version]): KeptRow => {
      const row = version === 0 ? undefined : rows[index++];
      return { order: order as string, version, row };
    });
    changed.sort((a, b) => (a.order < b.order ? -1 : 1));
    const next: KeptRow[] = [];
    let from = 0;
    let at = 0;
    for (const one of changed) {
      const to = positionOf(old, one.order, from);
      while (from < to) next.push(old[from++] as KeptRow);
      if (old[from]?.order === one.order) from += 1;
      if (one.version === 0) continue;
      // Another owner, or one that begins again, sends everything.
      if (isAll && before) at = positionOf(before, one.order, at);
      const known = isAll ? before?.[at] : undefined;
      next.push(known?.order === one.order && known.version === one.version ? known : one);
    }
    while (from < old.length) next.push(old[from++] as KeptRow);
    this.rows = next;
    return !(isAll && before?.length === next.length && before.every((row, i) => row === next[i]));
  }

  /** The rows, in a new array. */
  list(): unknown[] {
    const list = (this.rows ?? []).map(({ row }) => row);
    return this.isReversed ? list.reverse() : list;
  }
}

/** The number of rows before that key, which is not before the first `from` ones. */
function positionOf(rows: readonly KeptRow[], order: string, from: number): number {
  let to = rows.length;
  while (from < to) {
    const middle = (from + to) >>> 1;
    if ((rows[middle] as KeptRow).order < order) from = middle + 1;
    else to = middle;
  }
  return from;
}
