/** New files that commands write. */

import { closeSync, lstatSync, openSync, rmSync } from "node:fs";
import { type Call, misused } from "./args.js";
import { codeOf, EXIT, Failure } from "./output.js";

/** A link that leads nowhere counts too. */
export function refuseExisting({ command }: Call, target: string): void {
  try {
    lstatSync(target);
  } catch (error) {
    if (codeOf(error) === "ENOENT") return;
    throw new Failure(EXIT.unreadable, `${target} cannot be created: ${String(error)}.`);
  }
  throw misused(command, `${target} already exists, and ${command} writes only new files.`);
}

/** Makes a new file, has it filled, and removes it if that fails. */
export async function into<T>(target: string, fill: () => Promise<T>): Promise<T> {
  try {
    // Nobody else's file, whatever came in between.
    closeSync(openSync(target, "wx"));
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new Failure(EXIT.unreadable, `${target} cannot be created: ${reason}.`);
  }
  try {
    return await fill();
  } catch (error) {
    rmSync(target, { force: true });
    throw error;
  }
}
