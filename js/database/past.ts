/** `db.at()`: a past commit of a database that keeps its history. */

import { badArgument, CursorExpiredError } from "../errors/index.js";
import type { Source } from "../session/cursor.js";
import type { Session } from "../session/session.js";
import { between } from "./log-options.js";
import { Walk } from "./log-walk.js";

/** Checks a point of the history: the number of a commit, or a time. */
export function cursorIn(source: Source, call: string, given: unknown): number {
  if (Number.isSafeInteger(given) && (given as number) >= 0) return given as number;
  if (given instanceof Date && !Number.isNaN(given.getTime())) {
    return cursorAt(source, call, given.getTime());
  }
  throw badArgument(
    `${call} needs the number of a commit, 0 or more, as from lastCommit, or a valid Date.`,
    given,
  );
}

/**
 * The last transaction up to a time. One without a time counts as having that of the one before it that has one. The log
 * is walked from its end, so the cost grows with what was written since.
 */
function cursorAt(source: Source, call: string, time: number): number {
  commitPending(source(), call);
  const walk = new Walk(source, { ...between(0), reverse: true });
  /** The newest transaction whose time is not known yet: it is that of one before it. */
  let untimed: number | undefined;
  try {
    for (let item = walk.nextItem(); item !== undefined; item = walk.nextItem()) {
      if (item.type === "error") throw item.error;
      if (item.type === "gap" || item.moved) continue;
      if (item.time === undefined) untimed ??= item.number;
      else if (item.time.getTime() <= time) return untimed ?? item.number;
      else untimed = undefined;
    }
  } finally {
    walk.stop();
  }
  throw badArgument(
    `${call} found no transaction that has a time up to then. Only those with a note have one: give the number of a ` +
      "commit.",
    new Date(time),
  );
}

/** Takes a snapshot of a past commit, or with `before` of the one before it, and returns its number. */
export function snapshotAt(session: Session, call: string, cursor: number, before = false): number {
  commitPending(session, call);
  try {
    return session.engine.log.at(cursor, before);
  } catch (error) {
    if (!(error instanceof CursorExpiredError)) throw error;
    throw new CursorExpiredError(
      `The commit ${cursor} of the database "${session.name}" cannot be shown any more: pack() has forgotten it, or ` +
        "the file was salvaged since.",
    );
  }
}

/** What is pending is committed, as for a snapshot, and counts as well. */
function commitPending({ guard, engine, commits }: Session, call: string): void {
  guard.assertOutsideCallback(call);
  if (engine.pending() !== 0) commits.commit();
}
