/** Keys, values or entries that another realm's database has in a range. */

/**
 * What a range holds, read in one moment when it is first gone over: with `for await`, or all at once
 * with `all()`. Each reads anew.
 */
export class RemoteScan<T> implements AsyncIterable<T, undefined> {
  private readonly read: () => Promise<T[]>;

  /** @internal */
  constructor(read: () => Promise<T[]>) {
    this.read = read;
  }

  /** All of it as an array. */
  all(): Promise<T[]> {
    return this.read();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<T, undefined> {
    yield* await this.read();
    return undefined;
  }
}
