/** The call guard: checks before every call of a session whether the state of the database allows it. */

import { readOnlyText } from "../engine/error-codes.js";
import {
  DatabaseClosedError,
  type DatabasePoisonedError,
  ReadOnlyError,
  ReentrancyError,
} from "../errors/index.js";

/** Flags of `CallGuard.gate`. The hot path checks only whether the gate is zero. */
export const CLOSED = 1;
export const POISONED = 2;
/** A commit failed since the last call; the next call throws its error. */
export const FAILED = 4;
/** A callback of `updateIf` runs. */
export const IN_CALLBACK = 8;
/** Views are tracked (`strictViews`); calls are allowed. */
export const STRICT = 16;
/** The database is read-only; reads are allowed. */
export const READ_ONLY = 32;

/** Records expire, and the clock was not read in this turn; reads are allowed. */
export const NEW_TURN = 64;

/** The state of an open database that decides which calls are allowed. */
export class CallGuard {
  gate: number;
  /** Number of open transactions, each nested in the one before. */
  depth: number;
  /** The error that every call throws once the wasm instance has failed. */
  poisonedError: DatabasePoisonedError | undefined;
  /** Called at the first call of a turn if records expire. */
  onNewTurn: (() => void) | undefined;
  readonly #name: string;
  readonly #ended: (name: string) => Error;
  /** The deferred error that the next call throws. */
  #failure: Error | undefined;

  /** `ended` makes the error of every call if the gate is closed. */
  constructor(name: string, gate: number, ended: (name: string) => Error = closed) {
    this.gate = gate;
    this.depth = 0;
    this.poisonedError = undefined;
    this.onNewTurn = undefined;
    this.#name = name;
    this.#ended = ended;
    this.#failure = undefined;
  }

  /** Whether the engine can still be called. */
  isUsable(): boolean {
    return this.poisonedError === undefined;
  }

  /** Whether the database is open, and its engine usable. */
  isOpen(): boolean {
    return this.poisonedError === undefined && (this.gate & CLOSED) === 0;
  }

  /** Throws unless the database can be read: closed, poisoned, or with a deferred error. */
  assertReadable(): void {
    if ((this.gate & CLOSED) !== 0) throw this.#ended(this.#name);
    if (this.poisonedError !== undefined) throw this.poisonedError;
    if ((this.gate & FAILED) !== 0) throw this.takeFailure();
    if ((this.gate & NEW_TURN) !== 0) this.onNewTurn?.();
  }

  /** Throws unless the database can be written to: as `assertIdle`, and read-only. */
  assertWritable(call: string): void {
    this.assertIdle(call);
    if ((this.gate & READ_ONLY) !== 0) throw new ReadOnlyError(readOnlyText(this.#name));
  }

  /** Throws unless the database can be read and no callback of `updateIf` is running. */
  assertIdle(call: string): void {
    this.assertReadable();
    if ((this.gate & IN_CALLBACK) !== 0) {
      throw new ReentrancyError(
        `${call} was called inside a callback of updateIf() on "${this.#name}". There, change ` +
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
      `${call} was called inside db.transaction() on "${this.#name}", which is not complete. ` +
        "Call it after the transaction has returned.",
    );
  }

  /** Throws if a handle may not be closed now: inside a callback or a transaction. */
  assertClosable(): void {
    if (this.poisonedError !== undefined) return;
    if ((this.gate & IN_CALLBACK) === 0 && this.depth === 0) return;
    throw new ReentrancyError(
      `close() was called inside a callback or a transaction of "${this.#name}". ` +
        "Close the database after it has returned.",
    );
  }

  /** Has the next call throw this error, once. An error that is already deferred stays. */
  defer(error: Error): void {
    if (this.#failure !== undefined) return;
    this.#failure = error;
    this.gate |= FAILED;
  }

  /** Returns and clears the deferred error, so that it is thrown only once. */
  takeFailure(): Error | undefined {
    const failure = this.#failure;
    this.#failure = undefined;
    this.gate &= ~FAILED;
    return failure;
  }

  /** Has every call throw this error from now on. */
  poison(error: DatabasePoisonedError): void {
    this.poisonedError = error;
    this.gate |= POISONED;
  }
}

function closed(name: string): DatabaseClosedError {
  return new DatabaseClosedError(`The database "${name}" was closed. Open it again to use it.`);
}
