/** `varve diff` */

import { CursorExpiredError, type Database } from "../index.js";
import { type Call, misused, numberIn } from "./args.js";
import { asJson, asLine } from "./log.js";
import { inspectFile } from "./open-file.js";
import { EXIT, type ExitCode, Failure, type Output } from "./output.js";

export async function diff(call: Call, output: Output): Promise<ExitCode> {
  const [path = ""] = call.positionals;
  const { since, until, collection } = call.texts;
  if (since === undefined) throw misused(call.command, "--since N is needed.");
  const options = { since: numberOf(call, "since", since), collection };
  const bounds = until === undefined ? {} : { until: numberOf(call, "until", until) };
  const show = call.flags.has("json") ? asJson : asLine;
  try {
    return await inspectFile(path, { ordered: true }, (db) => printed(db, show));
  } catch (error) {
    if (!(error instanceof CursorExpiredError)) throw error;
    const message = `compaction has removed a part of what happened since ${since}.`;
    throw new Failure(EXIT.negative, message);
  }

  async function printed(db: Database, shown: typeof asLine): Promise<ExitCode> {
    for (const change of db.changes({ ...options, ...bounds })) {
      // The value is valid only until the await.
      const passed = output.print(shown(change, call.flags.has("values")));
      if (passed !== undefined) await passed;
    }
    return EXIT.ok;
  }
}

function numberOf(call: Call, option: string, word: string): number {
  const number = numberIn(word);
  if (number !== undefined) return number;
  throw misused(
    call.command,
    `--${option} must be a version or the number of a transaction: ${word}.`,
  );
}
