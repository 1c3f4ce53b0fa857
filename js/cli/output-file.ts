/** New files written by commands. */

import { closeSync, lstatSync, openSync, rmSync } from "node:fs";
import { type Call, misused } from "./args.js";
import { codeOf, EXIT, Failure } from "./output.js";

/** Whether a path exists. A dangling link counts too. */
export function refuseExisting({ command }: Call, target: string): void {
  try {
    lstatSync(target);
  } catch (error) {
    if (codeOf(error) === "ENOENT") return;
    throw new Failure(EXIT.unreadable, `${target} cannot be created: ${String(error)}.`);
  }
  throw misused(command, `${target} already exists, and ${command} writes only new files.`);
}

/** Creates a file and fills it. Removes it if that fails. */
export async function into<T>(target: string, fill: () => Promise<T>): Promise<T> {
  try {
    // Remove only the file that was created here, and not one that replaced it meanwhile.
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
