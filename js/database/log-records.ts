/** What a walk over the log gives: transactions, their records, gaps and damage. */

import { type CorruptionError, StaleViewError } from "../errors/index.js";
import type { KeyspaceName } from "./keyspace-names.js";

/** Where compaction removed a part of the log. */
export interface LogGap {
  readonly type: "gap";
}

/** Where the log is damaged. The transactions to which the damaged bytes belong are left out; the walk goes on. */
export interface LogDamage {
  readonly type: "error";
  readonly error: CorruptionError;
  /** Position of the damaged bytes in the file. */
  readonly offset: number;
  /** How many bytes. */
  readonly length: number;
}

/** What a flat walk gives. */
export type LogItem = LogTransaction | LogRecord | LogGap | LogDamage;

/** The walk that a record or a transaction came from, as far as they need it. */
export interface WalkPosition {
  /** Counts the steps: a value is valid during its own. */
  readonly step: number;
  /** The transaction whose records come next. */
  readonly transaction: LogTransaction | undefined;
  /** The next record of that transaction. */
  nextRecord(): LogRecord | undefined;
  /** The value of the record of this step. */
  value(): Uint8Array<ArrayBuffer> | undefined;
}

/** The note of a transaction, with what was kept beside it. */
export interface Note {
  readonly time: Date;
  readonly note: string;
  readonly client: bigint | undefined;
}

/** A record of the log: a key that was set or deleted, or a collection that was cleared. */
export class LogRecord {
  readonly type: "set" | "delete" | "clear";
  /** The collection; `undefined` for keys outside of collections, and for a collection that is not there any more. */
  readonly collection: string | undefined;
  /** The number of the collection in the file; 0 for keys outside of collections. */
  readonly keyspace: number;
  /**
   * The key in the form that its collection gives it. Bytes if it is not text, or if the collection is not there any
   * more; `undefined` for a clear.
   */
  readonly key: unknown;
  /** The version that the change gave the key. */
  readonly version: number;
  private readonly walk: WalkPosition;
  private readonly step: number;

  /** @internal */
  constructor(
    walk: WalkPosition,
    type: LogRecord["type"],
    named: KeyspaceName,
    keyspace: number,
    key: unknown,
    version: number,
  ) {
    this.type = type;
    this.collection = named.collection;
    this.keyspace = keyspace;
    this.key = key;
    this.version = version;
    this.walk = walk;
    this.step = walk.step;
  }

  /**
   * The bytes of the value: a view that is valid until the next step of the walk. `undefined` for a deletion and a
   * clear, and for a value above half a MiB that was replaced since: such values are kept outside of the log.
   *
   * @throws StaleViewError after the next step
   */
  get value(): Uint8Array<ArrayBuffer> | undefined {
    if (this.type !== "set") return undefined;
    if (this.step !== this.walk.step) {
      throw new StaleViewError(
        "The value of a record of the log was read after the walk had gone on. Read it at once, and copy it with " +
          ".slice() to keep it.",
      );
    }
    return this.walk.value();
  }
}

/** A transaction of the log, and its records in the order in which they were written. */
export class LogTransaction implements Iterable<LogRecord, undefined> {
  readonly type = "transaction";
  /** Its number, which grows: the version of its first change. `since` takes it. */
  readonly number: number;
  /** When it was written; only transactions with a note have a time. */
  readonly time: Date | undefined;
  /** The note that `transaction` was given. */
  readonly note: string | undefined;
  /** The client that asked for it, if that is known. */
  readonly client: bigint | undefined;
  /**
   * Whether these are no transaction but records that compaction moved here. Which transactions wrote them is not
   * known any more. Their versions say when: of several records of a key, the one with the largest version counts.
   */
  readonly moved: boolean;
  /** Whether compaction removed a part of the log between it and the transaction that the walk gave before it. */
  readonly afterGap: boolean;
  private readonly walk: WalkPosition;

  /** @internal */
  constructor(
    walk: WalkPosition,
    number: number,
    moved: boolean,
    afterGap: boolean,
    note: Note | undefined,
  ) {
    this.number = number;
    this.time = note?.time;
    this.note = note?.note;
    this.client = note?.client;
    this.moved = moved;
    this.afterGap = afterGap;
    this.walk = walk;
  }

  /** The records that were not walked over yet. They end when the outer walk goes on. */
  [Symbol.iterator](): IterableIterator<LogRecord, undefined> {
    const next = (): IteratorResult<LogRecord, undefined> => {
      const record = this.walk.transaction === this ? this.walk.nextRecord() : undefined;
      return record === undefined ? { done: true, value: record } : { done: false, value: record };
    };
    const records: IterableIterator<LogRecord, undefined> = {
      next,
      [Symbol.iterator]: () => records,
    };
    return records;
  }
}
