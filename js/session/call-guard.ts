/** The call guard: checks before every call of a session whether the state of the database allows it. */

import type { Engine } from "../engine/engine.js";
import { readOnlyText } from "../engine/error-codes.js";
import {
  DatabaseClosedError,
  type DatabasePoisonedError,
  ReadOnlyError,
  ReentrancyError,
} from "../errors/index.js";
import type { Settings } from "./options.js";

/** Flags of `CallGuard.gate`. The hot path checks only whether the gate is zero. */
export const CLOSED = 1;
export const DEAD = 2;
/** A commit failed since the last call; the next call throws its error. */
export const FAILED = 4;
/** A callback of `updateIf` runs. */
export const IN_CALLBACK = 8;
/** Views are tracked (`strictViews`); calls are allowed. */
export const STRICT = 16;
/** The database is read-only; reads are allowed. */
export const READ_ONLY = 32;

/** An engine, and the state that decides which calls to it are allowed. */
export class CallGuard {
  gate: number;
  readonly engine: Engine;
  readonly name: string;
  readonly settings: Settings;
  /** Number of open transactions, each nested in the one before. */
  protected depth: number;
  /** The deferred error that the next call throws. */
  protected failure: Error | undefined;
  /** The error that every call throws once the wasm instance is dead. */
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

  /** Throws unless the database can be read: closed, dead, or with a deferred error. */
  assertReadable(): void {
    if ((this.gate & CLOSED) !== 0) throw closed(this.name);
    if (this.death !== undefined) throw this.death;
    if ((this.gate & FAILED) !== 0) throw this.takeFailure();
  }

  /** Throws unless the database can be written to: as `assertIdle`, and read-only. */
  assertWritable(call: string): void {
    this.assertIdle(call);
    if ((this.gate & READ_ONLY) !== 0) throw new ReadOnlyError(readOnlyText(this.name));
  }

  /** Throws unless the database can be read and no callback of `updateIf` is running. */
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

  /** As `assertIdle`, and throws inside a transaction too. */
  assertOutsideCallback(call: string): void {
    this.assertIdle(call);
    if (this.depth === 0) return;
    throw new ReentrancyError(
      `${call} was called inside db.transaction() on "${this.name}", which is not complete. ` +
        "Call it after the transaction has returned.",
    );
  }

  /** Throws if a handle may not be closed now: inside a callback or a transaction. */
  assertClosable(): void {
    if (this.death !== undefined) return;
    if ((this.gate & IN_CALLBACK) === 0 && this.depth === 0) return;
    throw new ReentrancyError(
      `close() was called inside a callback or a transaction of "${this.name}". ` +
        "Close the database after it has returned.",
    );
  }

  /** Returns and clears the deferred error, so that it is thrown only once. */
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
