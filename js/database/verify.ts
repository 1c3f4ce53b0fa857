/** `db.verify()`: all of the file, a slice of time after the other. A chunk of its own, loaded when it is asked for. */

import type { Problem, ProblemKind, Verification } from "../engine/stats.js";
import type { Session } from "../session/session.js";

/** What the engine names by numbers from 1 on. */
const PROBLEMS: readonly ProblemKind[] = [
  "superblock",
  "header",
  "frame",
  "record",
  "zeros",
  "value",
  "checkpoint",
  "index",
];

/**
 * Verifies the file of a session, while the program goes on. `heed` is told how many bytes were verified, and
 * ends it by a throw.
 *
 * @throws StorageError when the file cannot be read, or was changed meanwhile by somebody else, and what `heed` throws
 */
export async function verified(
  session: Session,
  checkAbort: (bytes: number) => void,
): Promise<Verification> {
  const sum = { bytes: 0, segments: 0, frames: 0, records: 0 };
  const problems: Problem[] = [];
  // A verification begins and ends with unit 0.
  let [unit, part] = [0, 0];
  do {
    checkAbort(sum.bytes);
    // What it has called may have closed the database.
    session.assertOutsideCallback("verify()");
    const isOver = session.slice();
    do {
      const slot = session.engine.verify(unit, part);
      [unit, part] = [slot(0), slot(1)];
      sum.bytes += slot(2);
      sum.segments += slot(3);
      sum.frames += slot(4);
      sum.records += slot(5);
      const what = PROBLEMS[slot(6) - 1];
      if (what !== undefined) problems.push({ what, offset: slot(7), length: slot(8) });
    } while (unit !== 0 && !isOver());
    await session.rest("verify()");
  } while (unit !== 0);
  checkAbort(sum.bytes);
  if (problems.length > 0) session.engine.assertSame();
  return { ok: problems.length === 0, ...sum, problems };
}
