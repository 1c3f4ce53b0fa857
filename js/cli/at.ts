/** `varve at` */

import { Database } from "../database/database.js";
import { cursorIn, snapshotAt } from "../database/past.js";
import { CursorExpiredError } from "../index.js";
import { type Call, misused } from "./args.js";
import { printValue } from "./get.js";
import { printKeys } from "./list.js";
import { pointOf } from "./log.js";
import { inspectFile } from "./open-file.js";
import { EXIT, type ExitCode, Failure, type Output } from "./output.js";

export async function at(call: Call, output: Output): Promise<ExitCode> {
  const [path = "", word = "", what = "list", key, ...more] = call.positionals;
  const point = pointOf(call, "NUMBER", word);
  const isKnown = what === "get" ? key !== undefined && more.length === 0 : what === "list";
  if (!isKnown || (what === "list" && key !== undefined)) {
    throw misused(call.command, "After FILE and NUMBER, give get KEY, or list, or nothing.");
  }
  return inspectFile(path, { ordered: true }, async (db) => {
    const session = Database.sessionOf(db);
    const past = pastOf(() => {
      const cursor = cursorIn(() => session, "at", point);
      return snapshotAt(session, "at", cursor);
    });
    if (key === undefined) return printKeys(call, db, output, past);
    return printValue(call, db, key, output, past);
  });
}

function pastOf(take: () => number): number {
  try {
    return take();
  } catch (error) {
    if (!(error instanceof CursorExpiredError)) throw error;
    throw new Failure(EXIT.negative, error.message);
  }
}
