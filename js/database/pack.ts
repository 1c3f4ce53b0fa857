/** `db.pack()`: forgets the history before a commit. */

import { ReentrancyError } from "../errors/index.js";
import type { Source } from "../session/cursor.js";
import { type CompactProgress, refuseUnknown } from "../session/options.js";
import { cursorIn } from "./past.js";

/** The options of `pack`. */
export interface PackOptions {
  /** The first commit that can be shown afterwards: the number of a commit, or a time as for `at`. */
  before: number | Date;
  /** Called after each slice with the size of the file and of the live data in it. */
  onProgress?: ((progress: CompactProgress) => void) | undefined;
  /** Aborts it. The history before that commit cannot be shown any more; the rest of its space is freed by the next call. */
  signal?: AbortSignal | undefined;
}

export async function packed(source: Source, options: PackOptions): Promise<number> {
  refuseUnknown("pack()", options, ["before", "onProgress", "signal"]);
  const { onProgress, signal } = options;
  const session = source();
  const { engine, commits, guard } = session;
  guard.assertOutsideCallback("pack()");
  guard.assertWritable("pack()");
  signal?.throwIfAborted();
  if (engine.log.isPacking()) {
    throw new ReentrancyError(
      `The history of the database "${session.name}" is being packed: await that pack() first.`,
    );
  }
  if (engine.pending() !== 0) commits.commit();
  const upTo = engine.log.pack(cursorIn(source, "The option before of pack()", options.before));
  const report = () => {
    signal?.throwIfAborted();
    if (onProgress === undefined) return;
    const { fileBytes, liveBytes } = engine.stats();
    onProgress({ fileBytes, liveBytes });
    signal?.throwIfAborted();
  };
  try {
    await commits.compact(report, "pack()", false);
  } finally {
    if (guard.isOpen()) engine.log.endPacking();
  }
  return upTo;
}
