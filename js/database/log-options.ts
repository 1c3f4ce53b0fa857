/** The options of a walk over the log, and what they select. */

import { badArgument } from "../errors/index.js";
import { refuseUnknown } from "../session/options.js";

/** The options of `log`: which transactions to walk over. */
export interface LogOptions {
  /**
   * Only transactions after this one, given by its number or by the version of a key that it wrote (`getEntry`). A `Date`
   * selects those with a later time; a transaction without a time counts as having that of the last one before it that has
   * one. After the newest one there are none, whatever the number.
   */
  since?: number | Date | undefined;
  /** Only transactions up to and including this one, given like `since`. */
  until?: number | Date | undefined;
  /**
   * Whether the newest transaction comes first. The records of each come in the order in which they were written, and
   * `since` and `until` must be numbers. `false` by default.
   */
  reverse?: boolean | undefined;
  /** At most this many transactions. Unlimited by default. */
  limit?: number | undefined;
  /**
   * Whether transactions, their records, gaps and damage come as one stream. `false` by default: the walk gives
   * transactions, and each of them its records.
   */
  flat?: boolean | undefined;
}

const NEVER = Number.MAX_SAFE_INTEGER;

/** The checked options. */
export interface Selection {
  readonly since: number;
  readonly until: number;
  readonly sinceTime: number;
  readonly untilTime: number;
  readonly limit: number;
  readonly reverse: boolean;
}

/** All between two cursors. */
export function between(since: number, until = NEVER): Selection {
  const limit = Number.POSITIVE_INFINITY;
  return { since, until, sinceTime: Number.NaN, untilTime: Number.NaN, limit, reverse: false };
}

/** Checks a bound, and returns its number and its time, of which one is given. */
function boundOf(option: string, given: unknown, none: number): [number: number, time: number] {
  const isDate = given instanceof Date;
  if (isDate && !Number.isNaN(given.getTime())) return [none, given.getTime()];
  if (given === undefined) return [none, Number.NaN];
  if (!isDate && Number.isSafeInteger(given) && (given as number) >= 0) {
    return [given as number, Number.NaN];
  }
  throw badArgument(
    `The option ${option} of log() must be the number of a transaction, 0 or more, or a valid Date.`,
    given,
  );
}

export function selectionOf(options: LogOptions): Selection {
  refuseUnknown("log()", options, ["since", "until", "reverse", "limit", "flat"]);
  const { limit = Number.POSITIVE_INFINITY, flat = false, reverse = false } = options;
  if (typeof flat !== "boolean") {
    throw badArgument("The option flat of log() must be true or false.", flat);
  }
  if (typeof reverse !== "boolean") {
    throw badArgument("The option reverse of log() must be true or false.", reverse);
  }
  if (reverse && (options.since instanceof Date || options.until instanceof Date)) {
    throw badArgument(
      "log() with reverse needs numbers for since and until: the time of a transaction without a note is that of one " +
        "before it, which comes later then.",
    );
  }
  if (options.limit !== undefined && !(Number.isSafeInteger(limit) && limit >= 0)) {
    throw badArgument("The option limit of log() must be an integer, 0 or more.", limit);
  }
  const [since, sinceTime] = boundOf("since", options.since, 0);
  const [until, untilTime] = boundOf("until", options.until, NEVER);
  return { since, until, sinceTime, untilTime, limit, reverse };
}
