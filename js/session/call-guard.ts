/** What may be called when: the lowest part of a session, which every call passes. */

import type { Engine } from "../engine/engine.js";
import { readOnlyText } from "../engine/error-codes.js";
import {
  DatabaseClosedError,
  type DatabasePoisonedError,
  ReadOnlyError,
  ReentrancyError,
} from "../errors/index.js";
import type { Settings } from "./options.js";

/** What stands in the way of a call. Zero on the hot path, which asks nothing else. */
export const CLOSED = 1;
export const DEAD = 2;
/** A group failed since the last call, and the next one throws it. */
export const FAILED = 4;
/** A callback of `updateIf` runs. */
export const IN_CALLBACK = 8;
/** Nothing stands in the way, but views are watched. */
export const STRICT = 16;
/** Nothing stands in the way of reads. */
export const READ_ONLY = 32;

/** An engine, and what stands in the way of calling it. */
export class CallGuard {
  gate: number;
  readonly engine: Engine;
  readonly name: string;
  readonly settings: Settings;
  /** How many transactions are open, one within the other. */
  protected depth: number;
  /** What the next call throws. */
  protected failure: Error | undefined;
  protected death: DatabasePoisonedError | undefined;

  protected constructor(name: string, engine: Engine, settings: Settings) {
    this.gate = (settings.strictViews ? STRICT : 0) | (settings.readOnly ? READ_ONLY : 0);
    this.engine = engine;
    this.name = name;
    this.settings = settings;
    this.depth = 0;
    this.failure = undefined;
    this.death = undefined;
  }

  /** Whether the engine can still be called. */
  isAlive(): boolean {
    return this.death === undefined;
  }

  /** Lets a read pass or throws what stands in its way. */
  assertReadable(): void {
    if ((this.gate & CLOSED) !== 0) throw closed(this.name);
    if (this.death !== undefined) throw this.death;
    if ((this.gate & FAILED) !== 0) throw this.takeFailure();
  }

  /** Lets a write pass or throws what stands in its way. */
  assertWritable(call: string): void {
    this.assertIdle(call);
    if ((this.gate & READ_ONLY) !== 0) throw new ReadOnlyError(readOnlyText(this.name));
  }

  /** Lets pass what may not run inside a callback. */
  assertIdle(call: string): void {
    this.assertReadable();
    if ((this.gate & IN_CALLBACK) !== 0) {
      throw new ReentrancyError(
        `${call} was called inside a callback of updateIf() on "${this.name}". There, change ` +
          "only the bytes of the view, and write other records after updateIf() has returned, or " +
          "do both in db.transaction().",
      );
    }
  }

  /** As `admitWrite`, for what cannot be done halfway through a transaction. */
  assertOutsideCallback(call: string): void {
    this.assertIdle(call);
    if (this.depth === 0) return;
    throw new ReentrancyError(
      `${call} was called inside db.transaction() on "${this.name}", which is not complete. ` +
        "Call it after the transaction has returned.",
    );
  }

  /** Whether a handle may be closed now. */
  assertClosable(): void {
    if (this.death !== undefined) return;
    if ((this.gate & IN_CALLBACK) === 0 && this.depth === 0) return;
    throw new ReentrancyError(
      `close() was called inside a callback or a transaction of "${this.name}". ` +
        "Close the database after it has returned.",
    );
  }

  /** The failure that no call was there to throw, if there is one: it is thrown once. */
  protected takeFailure(): Error | undefined {
    const { failure } = this;
    this.failure = undefined;
    this.gate &= ~FAILED;
    return failure;
  }
}

function closed(name: string): DatabaseClosedError {
  return new DatabaseClosedError(`The database "${name}" was closed. Open it again to use it.`);
}
