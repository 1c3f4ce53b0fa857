/** A writer: opens the database, checks all of it, and writes until it is killed. */

import { type Database, DatabaseBusyError, databases, open, type Storage } from "varve";
import { createWithSegments } from "../model/segments.js";
import { turn as task } from "../support/values.js";
import { Expected } from "./expected.js";
import {
  durabilityOf,
  type End,
  keyToRead,
  MEMORY,
  mark,
  perform,
  type Reach,
  turnOf,
} from "./plan.js";

/** The task of a writer. */
export interface Order {
  readonly seed: number;
  readonly name: string;
  readonly segmentLog2: number;
  /** The number of this writer, from 1. */
  readonly writer: number;
  /** How far each earlier writer got, except the last one, for which this writer finds it out. */
  readonly past: readonly Reach[];
  /** Whether it writes until it is killed. Otherwise it compacts and closes the database. */
  readonly writes: boolean;
}

/** The state of the database when it was opened. */
export interface Found {
  /** How far the previous writer got. */
  readonly reach: Reach;
  readonly keys: number;
  /** Milliseconds until the database was open. */
  readonly ms: number;
  /** How often opening failed because the database was still locked. */
  readonly refused: number;
  readonly fromCheckpoint: boolean;
  readonly tornBytes: number;
  readonly droppedFrames: number;
  readonly fileBytes: number;
}

/** The size of the file after it was compacted and closed. */
export interface Ended {
  readonly liveBytes: number;
  readonly fileBytes: number;
}

/** A message from a writer to the program that kills it. */
export interface Report {
  readonly writer: number;
  readonly found?: Found;
  /** This turn and all earlier ones were acknowledged. */
  readonly acknowledged?: number;
  /** The writer has closed the database. */
  readonly ended?: Ended;
  readonly failed?: string;
}

/** Sends a report, and resolves when it was received. */
export type SendReport = (report: Report) => Promise<void>;

/** The time within which the lock of a killed writer is released. */
const LOCK_TIMEOUT_MS = 60_000;

/** Writes until it is killed, or does its other task. */
export async function runWriter(order: Order, storage: Storage, send: SendReport): Promise<void> {
  try {
    await new Writer(order, storage, send).run();
  } catch (error) {
    await send({ writer: order.writer, failed: String((error as Error).stack ?? error) });
  }
}

class Writer {
  readonly #order: Order;
  readonly #storage: Storage;
  readonly #send: SendReport;
  readonly #expected: Expected;
  #compacting: Promise<void> | undefined;

  constructor(order: Order, storage: Storage, send: SendReport) {
    this.#order = order;
    this.#storage = storage;
    this.#send = send;
    this.#expected = new Expected(order.seed, order.segmentLog2);
  }

  async run(): Promise<void> {
    const db = await this.#begin();
    if (this.#order.writes) return this.#write(db);
    await db.compact();
    await db.close();
    const reopened = await this.#open();
    this.#expected.walk(reopened);
    const { liveBytes, fileBytes } = reopened.stats();
    await reopened.close();
    await this.#send({ writer: this.#order.writer, ended: { liveBytes, fileBytes } });
  }

  #open(): Promise<Database> {
    const { seed, writer, name } = this.#order;
    const durability = durabilityOf(seed, writer);
    return open(name, { storage: this.#storage, durability, memory: MEMORY });
  }

  /** Opens what the previous writer left, checks it, and reports it. */
  async #begin(): Promise<Database> {
    const { writer, name, past, segmentLog2 } = this.#order;
    const start = performance.now();
    if (writer === 1) await this.#create(name, segmentLog2);
    const { db, refused } = await this.#openWhenFree();
    const ms = performance.now() - start;
    for (const [index, reach] of past.entries()) this.#expected.apply(index + 1, reach);
    const reach = this.#expected.find(db, writer - 1);
    this.#expected.walk(db);
    const { fromCheckpoint, tornBytes, droppedFrames } = db.recovery;
    const { fileBytes } = db.stats();
    const keys = this.#expected.size;
    await this.#send({
      writer,
      found: { reach, keys, ms, refused, fromCheckpoint, tornBytes, droppedFrames, fileBytes },
    });
    return db;
  }

  /** Creates a database with these segments, unless they have 1 MiB, as `open` creates them. */
  async #create(name: string, segmentLog2: number): Promise<void> {
    const there = await databases({ storage: this.#storage });
    if (segmentLog2 === 20 || there.includes(name)) return;
    await createWithSegments(this.#storage, name, segmentLog2);
  }

  async #openWhenFree(): Promise<{ db: Database; refused: number }> {
    const until = performance.now() + LOCK_TIMEOUT_MS;
    for (let refused = 0; ; refused++) {
      try {
        return { db: await this.#open(), refused };
      } catch (error) {
        if (!(error instanceof DatabaseBusyError) || performance.now() > until) throw error;
        await task(5);
      }
    }
  }

  /** Writes until it is killed. */
  async #write(opened: Database): Promise<never> {
    const { seed, writer } = this.#order;
    for (let db = opened, turn = 1; ; turn++) {
      const { steps, end } = turnOf(seed, writer, turn);
      for (const step of steps) perform(db, step);
      mark(db, writer, turn);
      this.#expected.turn(writer, turn);
      this.#expected.check(db, keyToRead(seed, writer, turn));
      db = await this.#end(db, end, () => this.#send({ writer, acknowledged: turn }));
    }
  }

  async #end(db: Database, end: End, acknowledge: () => unknown): Promise<Database> {
    if (end === "a microtask") {
      await undefined;
      return db;
    }
    if (end === "commit()") db.commit();
    else if (end === "flush()") db.flush();
    else if (end === "flushed") await db.flushed;
    else if (end === "close()") {
      await this.#compacting;
      await db.close();
    } else await db.committed;
    acknowledge();
    if (end === "close()") return this.#open();
    if (end === "a task") await task();
    if (end === "compact()") this.#compact(db);
    return db;
  }

  /** Compacts in the background. */
  #compact(db: Database): void {
    this.#compacting ??= db.compact().finally(() => {
      this.#compacting = undefined;
    });
  }
}
