/** `db.verify()`: verifies the whole file in slices. This module is a separate chunk, loaded on first use. */

import type { Problem, ProblemKind, Verification } from "../engine/reports.js";
import type { Session } from "../session/session.js";

/** The kinds of problems, which the engine numbers from 1 on. */
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
 * Verifies the file of a session, while the program goes on. `reportProgress` is called with the number of bytes verified
 * so far, and may throw to end it.
 *
 * @throws StorageError if the file cannot be read, or another program changed it meanwhile; errors of `reportProgress`
 */
export async function verified(
  session: Session,
  reportProgress: (bytes: number) => void,
): Promise<Verification> {
  const sum = { bytes: 0, segments: 0, frames: 0, records: 0 };
  const problems: Problem[] = [];
  // A verification begins and ends with unit 0.
  let [unit, part] = [0, 0];
  do {
    reportProgress(sum.bytes);
    // The callback may have closed the database.
    session.guard.assertOutsideCallback("verify()");
    const isOver = session.commits.slice();
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
    await session.commits.rest("verify()");
  } while (unit !== 0);
  reportProgress(sum.bytes);
  if (problems.length > 0) session.engine.assertSame();
  return { ok: problems.length === 0, ...sum, problems };
}
