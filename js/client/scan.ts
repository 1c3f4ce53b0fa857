/** Keys, values or entries that another realm's database has in a range. */

/**
 * The contents of a range: all of it as of one moment with `all()`, or for use in `for await`. A loop reads a
 * page at a time, each as of one moment: what others write after the last key is seen, what they write before
 * it is not, as in a loop over a database. An index is read as a single page. Each loop and each `all()`
 * reads anew.
 */
export class RemoteScan<T> implements AsyncIterable<T, undefined> {
  private readonly read: (after?: unknown) => Promise<unknown>;

  /** @internal `read` gives all of it, or the page behind what it is given; the first one for `null`. */
  constructor(read: (after?: unknown) => Promise<unknown>) {
    this.read = read;
  }

  /** Resolves to all of it as an array. */
  all(): Promise<T[]> {
    return this.read() as Promise<T[]>;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<T, undefined> {
    for (let after: unknown = null; after !== undefined; ) {
      const page = (await this.read(after)) as { rows: T[]; after?: unknown };
      yield* page.rows;
      after = page.after;
    }
    return undefined;
  }
}
