/**
 * When records expire: the options that say so, and the clock. All calls of a turn see the same time, that of the first
 * one, so that reading the clock costs nothing per call, and two reads of a turn agree.
 */

import type { Engine } from "../engine/engine.js";
import { badArgument } from "../errors/index.js";
import { type CallGuard, NEW_TURN } from "./call-guard.js";
import type { CommitScheduler } from "./commit-scheduler.js";

/** When a record expires. At most one of them may be given. */
export interface ExpiryOptions {
  /** Milliseconds from now on, above 0, after which the record is absent. `Infinity` for never. */
  expireIn?: number | undefined;
  /**
   * From when on the record is absent: a `Date`, or milliseconds since 1970. `Infinity` for never. If it is past, the
   * record is absent at once.
   */
  expireAt?: Date | number | undefined;
}

/** The names of these options. */
export const EXPIRY_OPTIONS = ["expireIn", "expireAt"] as const;

/** The file has seconds, in 32 bits: up to the year 2106. */
const LAST_SECOND = 0xffff_ffff;

/** Checks the option `expireIn` of a call. */
export function checkedExpireIn(call: string, expireIn: unknown): number | undefined {
  if (expireIn !== undefined && !(typeof expireIn === "number" && expireIn > 0)) {
    throw badArgument(
      `The option expireIn of ${call} must be a number of milliseconds above 0, or Infinity for never.`,
      expireIn,
    );
  }
  if (Number.isFinite(expireIn) && Date.now() + (expireIn as number) > LAST_SECOND * 1000) {
    throw tooLate(call, expireIn);
  }
  return expireIn;
}

function tooLate(call: string, given: unknown): Error {
  return badArgument(
    `${call} was given an expiry after the year 2106, which the file cannot hold. Leave it out, ` +
      "or give Infinity, for never.",
    given,
  );
}

function checkedExpireAt(call: string, expireAt: unknown): number | undefined {
  if (expireAt === undefined) return undefined;
  const time = expireAt instanceof Date ? expireAt.getTime() : expireAt;
  if (typeof time === "number" && !Number.isNaN(time)) return time;
  throw badArgument(
    `The option expireAt of ${call} must be a valid Date, or a number of milliseconds since 1970.`,
    expireAt,
  );
}

/** The time by which records of a session expire. It is read once in a turn, and only if records expire. */
export class ExpiryClock {
  private readonly engine: Engine;
  private readonly guard: CallGuard;
  private readonly commits: CommitScheduler;
  private readonly endTurn: () => void;
  private isSet = false;
  /** Called when the clock was read: records may have expired. They must not throw. */
  readonly listeners: Set<() => void> = new Set();

  constructor(engine: Engine, guard: CallGuard, commits: CommitScheduler) {
    this.engine = engine;
    this.guard = guard;
    this.commits = commits;
    guard.onNewTurn = () => this.beginTurn();
    this.endTurn = () => {
      this.isSet = false;
      if (!engine.expiring || !guard.isOpen()) return;
      guard.gate |= NEW_TURN;
      // Cursors and refs look again.
      engine.changes += 1;
    };
    if (engine.expiring) guard.gate |= NEW_TURN;
  }

  /** Reads the clock, once in a turn. Deletes some of what has expired. */
  private beginTurn(): void {
    const { engine, guard, commits } = this;
    guard.gate &= ~NEW_TURN;
    this.isSet = true;
    Promise.resolve().then(this.endTurn);
    engine.setNow(Math.min(Math.max(Math.floor(Date.now() / 1000), 0), LAST_SECOND));
    if (!commits.queued && engine.pending() !== 0) commits.queue();
    for (const listener of this.listeners) listener();
  }

  /**
   * When a record with these options expires, in seconds since 1970, rounded up; 0 for never. Without them it is
   * `expireIn`, a default.
   */
  expiryOf(call: string, options: ExpiryOptions | undefined, expireIn?: number): number {
    const after = checkedExpireIn(call, options?.expireIn);
    const at = checkedExpireAt(call, options?.expireAt);
    if (after !== undefined && at !== undefined) {
      throw badArgument(`${call} needs expireIn or expireAt, not both.`);
    }
    const delay = at === undefined ? (after ?? expireIn) : undefined;
    if (at === undefined && delay === undefined) return 0;
    if (!this.isSet) this.beginTurn();
    const time = at ?? Math.max(Date.now(), this.engine.now * 1000) + (delay as number);
    if (time === Number.POSITIVE_INFINITY) return 0;
    const seconds = Math.max(1, Math.ceil(time / 1000));
    if (seconds <= LAST_SECOND) return seconds;
    throw tooLate(call, at ?? after);
  }
}
