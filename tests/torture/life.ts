/** One life of a database: opened, looked at from end to end, and written to until it is killed. */

import { type Database, DatabaseBusyError, databases, open, type Storage } from "varve";
import { createWithSegments } from "../model/segments.js";
import { turn as task } from "../support/values.js";
import { Held } from "./held.js";
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

/** The task of a process. */
export interface Order {
  readonly seed: number;
  readonly name: string;
  readonly segmentLog2: number;
  /** The number of this life, from 1. */
  readonly life: number;
  /** How far the lives came before the last one. How far that came is for this one to find out. */
  readonly past: readonly Reach[];
  /** Whether it writes until it is killed. Otherwise it tidies up and ends by itself. */
  readonly writes: boolean;
}

/** What opening came to. */
export interface Found {
  /** How far the life before came. */
  readonly reach: Reach;
  readonly keys: number;
  /** Milliseconds until the database was open, and how often another still seemed to have it. */
  readonly ms: number;
  readonly refused: number;
  readonly fromCheckpoint: boolean;
  readonly tornBytes: number;
  readonly droppedFrames: number;
  readonly fileBytes: number;
}

/** What is in the file when everything was compacted and closed. */
export interface Ended {
  readonly liveBytes: number;
  readonly fileBytes: number;
}

/** What a life tells, outside of its own process or page. */
export interface News {
  readonly life: number;
  readonly found?: Found;
  /** This turn was acknowledged, and with it those before. */
  readonly acknowledged?: number;
  /** It has ended by itself, everything closed. */
  readonly ended?: Ended;
  readonly failed?: string;
}

/** Tells, and resolves when that was heard. */
export type Tell = (news: News) => Promise<void>;

/** Whoever was killed does not hold its database for longer than this. */
const PATIENCE_MS = 60_000;

/** Lives until it is killed, or has done its task. */
export async function live(order: Order, storage: Storage, tell: Tell): Promise<void> {
  try {
    await new Life(order, storage, tell).live();
  } catch (error) {
    await tell({ life: order.life, failed: String((error as Error).stack ?? error) });
  }
}

class Life {
  readonly #order: Order;
  readonly #storage: Storage;
  readonly #tell: Tell;
  readonly #held: Held;
  #compacting: Promise<void> | undefined;

  constructor(order: Order, storage: Storage, tell: Tell) {
    this.#order = order;
    this.#storage = storage;
    this.#tell = tell;
    this.#held = new Held(order.seed, order.segmentLog2);
  }

  async live(): Promise<void> {
    const db = await this.#begin();
    if (this.#order.writes) return this.#write(db);
    await db.compact();
    await db.close();
    const again = await this.#open();
    this.#held.walk(again);
    const { liveBytes, fileBytes } = again.stats();
    await again.close();
    await this.#tell({ life: this.#order.life, ended: { liveBytes, fileBytes } });
  }

  #open(): Promise<Database> {
    const { seed, life, name } = this.#order;
    const durability = durabilityOf(seed, life);
    return open(name, { storage: this.#storage, durability, memory: MEMORY });
  }

  /** Opens what the life before left, and tells what that is. */
  async #begin(): Promise<Database> {
    const { life, name, past, segmentLog2 } = this.#order;
    const start = performance.now();
    if (life === 1) await this.#create(name, segmentLog2);
    const { db, refused } = await this.#openPatiently();
    const ms = performance.now() - start;
    for (const [index, reach] of past.entries()) this.#held.live(index + 1, reach);
    const reach = this.#held.find(db, life - 1);
    this.#held.walk(db);
    const { fromCheckpoint, tornBytes, droppedFrames } = db.recovery;
    const { fileBytes } = db.stats();
    const keys = this.#held.size;
    await this.#tell({
      life,
      found: { reach, keys, ms, refused, fromCheckpoint, tornBytes, droppedFrames, fileBytes },
    });
    return db;
  }

  /** What opening creates by itself has segments of 1 MiB. */
  async #create(name: string, segmentLog2: number): Promise<void> {
    const there = await databases({ storage: this.#storage });
    if (segmentLog2 === 20 || there.includes(name)) return;
    await createWithSegments(this.#storage, name, segmentLog2);
  }

  async #openPatiently(): Promise<{ db: Database; refused: number }> {
    const until = performance.now() + PATIENCE_MS;
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
    const { seed, life } = this.#order;
    for (let db = opened, turn = 1; ; turn++) {
      const { steps, end } = turnOf(seed, life, turn);
      for (const step of steps) perform(db, step);
      mark(db, life, turn);
      this.#held.turn(life, turn);
      this.#held.check(db, keyToRead(seed, life, turn));
      db = await this.#end(db, end, () => this.#tell({ life, acknowledged: turn }));
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

  /** Compacts while the turns go on. */
  #compact(db: Database): void {
    this.#compacting ??= db.compact().finally(() => {
      this.#compacting = undefined;
    });
  }
}
