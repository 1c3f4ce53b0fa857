/** Keys, values or entries that another realm's database has in a range. */

/**
 * What a range holds: all of it as of one moment with `all()`, or to go over with `for await`. That reads a
 * page at a time, each as of one moment: what others write behind the last key is seen, what they
 * write before it is not, as when going over a database while it is written to. Each reads anew.
 */
export class RemoteScan<T> implements AsyncIterable<T, undefined> {
  private readonly read: (after?: unknown) => Promise<unknown>;

  /** @internal `read` gives all of it, or the page behind what it is given; the first one for `null`. */
  constructor(read: (after?: unknown) => Promise<unknown>) {
    this.read = read;
  }

  /** All of it as an array. */
  all(): Promise<T[]> {
    return this.read() as Promise<T[]>;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<T, undefined> {
    let after: unknown = null;
    do {
      const page = (await this.read(after)) as { rows: T[]; after?: unknown };
      yield* page.rows;
      after = page.after;
    } while (after !== undefined);
    return undefined;
  }
}
