/** Ranges of a remote database. */

import { asyncDispose } from "../util/dispose.js";
import type { RowsAnswer } from "./protocol/packed-rows.js";
import { allRows, type RowDecoder } from "./rows.js";

/** A loop that has taken so many rows of a page probably takes the rest: the next page is fetched ahead. */
const AHEAD_ROWS = 8;

/** Reads the whole range, or the page behind `after`; the first page for `null`. */
type Read = (after?: unknown) => Promise<unknown>;

/**
 * The contents of a range: all of it as of one moment with `all()`, or for use in `for await`. A loop reads a
 * page at a time, each as of one moment, and the next one while it uses the rows of the last. It sees this
 * client's writes after the last page that it has begun, and none before it, as a loop over a local database
 * does. An index is read as a single page. Each loop and each `all()` reads again.
 */
export class RemoteScan<T> implements AsyncIterable<T, undefined> {
  private readonly read: Read;
  private readonly decoder: RowDecoder;
  /** The number of writes that the client has requested. */
  private readonly writes: () => number;

  /** @internal */
  constructor(read: Read, decoder: RowDecoder, writes: () => number) {
    this.read = read;
    this.decoder = decoder;
    this.writes = writes;
  }

  /** Resolves to all of it as an array. */
  async all(): Promise<T[]> {
    return allRows((await this.read()) as RowsAnswer, this.decoder) as Promise<T[]>;
  }

  [Symbol.asyncIterator](): AsyncGenerator<T, undefined> {
    return new RemoteRows<T>((after) => this.read(after), this.decoder, this.writes);
  }
}

/** A page that is fetched ahead. `writes`: the number of writes requested before. */
interface Ahead {
  readonly page: Promise<unknown>;
  readonly writes: number;
}

const DONE = { done: true, value: undefined } as const;

/**
 * The rows of a loop. A row of the present page takes one promise, and not the three of a generator, which take longer
 * than everything else.
 */
class RemoteRows<T> implements AsyncGenerator<T, undefined> {
  private readonly read: Read;
  private readonly decoder: RowDecoder;
  private readonly writes: () => number;
  private rows: readonly unknown[] = [];
  private index = 0;
  /** The end of the present page; `undefined` if it is the last one. */
  private after: unknown = null;
  private ahead: Ahead | undefined;
  /** Whether pages are fetched ahead: not in loops that write, since they would fetch them twice. */
  private isAheadUseful = true;
  /** The steps that wait for a page, one after the other. */
  private last: Promise<unknown> = Promise.resolve();
  private waiting = 0;

  constructor(read: Read, decoder: RowDecoder, writes: () => number) {
    this.read = read;
    this.decoder = decoder;
    this.writes = writes;
  }

  next(): Promise<IteratorResult<T, undefined>> {
    if (this.waiting > 0 || this.index >= this.rows.length) {
      return this.inTurn(() => this.step());
    }
    return Promise.resolve(this.row());
  }

  return(): Promise<IteratorReturnResult<undefined>> {
    return this.inTurn(async () => this.end());
  }

  throw(error: unknown): Promise<never> {
    return this.inTurn(async () => {
      this.end();
      throw error;
    });
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async [asyncDispose](): Promise<void> {
    await this.return();
  }

  /** Runs a step after those before it. */
  private inTurn<R>(step: () => Promise<R>): Promise<R> {
    this.waiting += 1;
    const turn = this.last.then(step).finally(() => {
      this.waiting -= 1;
    });
    this.last = turn.catch(() => {});
    return turn;
  }

  private row(): IteratorYieldResult<T> {
    const value = this.rows[this.index] as T;
    this.index += 1;
    if (this.index === AHEAD_ROWS) this.fetchAhead();
    return { done: false, value };
  }

  private async step(): Promise<IteratorResult<T, undefined>> {
    while (this.index >= this.rows.length) {
      if (this.after === undefined) return DONE;
      await this.nextPage();
    }
    return this.row();
  }

  private async nextPage(): Promise<void> {
    const { ahead, after } = this;
    this.ahead = undefined;
    this.end();
    const isCurrent = ahead?.writes === this.writes();
    if (ahead !== undefined && !isCurrent) this.isAheadUseful = false;
    const answer = (await (isCurrent ? ahead?.page : this.read(after))) as RowsAnswer;
    this.rows = await allRows(answer, this.decoder);
    this.after = answer.after;
  }

  private fetchAhead(): void {
    if (this.after === undefined || !this.isAheadUseful) return;
    const page = this.read(this.after);
    // A loop that ends before has no use for its error.
    page.catch(() => {});
    this.ahead = { page, writes: this.writes() };
  }

  /** Ends the loop: further steps are done. */
  private end(): IteratorReturnResult<undefined> {
    this.rows = [];
    this.index = 0;
    this.after = undefined;
    return DONE;
  }
}
