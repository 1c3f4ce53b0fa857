/** Runs a command: from its arguments to its exit code. */

import { readFileSync } from "node:fs";
import { isNoMemory } from "../errors/index.js";
import { CorruptionError, VarveError } from "../index.js";
import { type Call, type CommandName, parseCommandLine } from "./args.js";
import { at } from "./at.js";
import { diff } from "./diff.js";
import { exportFile } from "./export.js";
import { escapeControls } from "./format.js";
import { get } from "./get.js";
import { list } from "./list.js";
import { log } from "./log.js";
import { codeOf, EXIT, type ExitCode, Failure, Output, OutputClosed } from "./output.js";
import { salvage } from "./salvage.js";
import { schema } from "./schema.js";
import { stat } from "./stat.js";
import { placeOf, verify } from "./verify.js";

const RUN: Record<CommandName, (call: Call, output: Output) => Promise<ExitCode>> = {
  stat,
  get,
  list,
  log,
  diff,
  at,
  schema,
  verify,
  salvage,
  export: exportFile,
};

/** Runs the command. Writes to standard error only if there is a problem. */
export async function main(args: readonly string[]): Promise<ExitCode> {
  const output = new Output(process.stdout);
  // A message that cannot be written does not change the exit code.
  process.stderr.on("error", () => undefined);
  try {
    const exit = await run(args, output);
    await output.end();
    return exit;
  } catch (error) {
    if (error instanceof OutputClosed) return EXIT.ok;
    const { exit, message } = described(error);
    // Output that was written before an error stays.
    await output.end().catch(() => undefined);
    process.stderr.write(`varve: ${escapeControls(message).trimEnd()}\n`);
    return exit;
  }
}

async function run(args: readonly string[], output: Output): Promise<ExitCode> {
  const asked = parseCommandLine(args);
  if ("help" in asked) {
    await output.print(asked.help);
    return EXIT.ok;
  }
  if ("version" in asked) {
    await output.print(`varve ${version()}\n`);
    return EXIT.ok;
  }
  return RUN[asked.command](asked, output);
}

function version(): string {
  const manifest = readFileSync(new URL("../../package.json", import.meta.url), "utf8");
  return String((JSON.parse(manifest) as { version?: unknown }).version);
}

function described(error: unknown): { exit: ExitCode; message: string } {
  if (error instanceof Failure) return error;
  if (error instanceof CorruptionError && error.details !== undefined) {
    const advice = "varve verify shows more, and varve salvage copies what is intact.";
    const message = `The file is damaged: ${placeOf(error.details)}. ${advice}`;
    return { exit: EXIT.unreadable, message };
  }
  if (error instanceof VarveError) return { exit: EXIT.unreadable, message: error.message };
  // Bad arguments that the package refuses came from the command line.
  if (codeOf(error) === "VARVE_BAD_ARGUMENT") {
    return { exit: EXIT.usage, message: (error as Error).message };
  }
  if (isNoMemory(error)) {
    const message = "there is no memory for this. ulimit -v says whether the program's is limited.";
    return { exit: EXIT.unreadable, message };
  }
  const stack = error instanceof Error ? (error.stack ?? error.message) : String(error);
  return { exit: EXIT.unreadable, message: `unexpected error: ${stack}` };
}
