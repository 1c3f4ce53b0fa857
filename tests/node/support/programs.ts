/** Small programs that use the package, run in processes of their own. */

import { type ChildProcess, spawn } from "node:child_process";
import { cleanup, context } from "../../harness.js";

export interface Ended {
  code: number | null;
  signal: NodeJS.Signals | null;
  stdout: string;
  stderr: string;
}

/** A program that runs; killed after the test if it still does. */
export interface Program {
  child: ChildProcess;
  ended: Promise<Ended>;
}

/** What the system does not let a program do. */
export interface Limits {
  /** The longest file that it may write, in bytes. */
  fileSizeLimit?: number;
}

/** Starts a program. `directory` and everything that the package exports are there by name. */
export function start(directory: string, source: string, limits: Limits = {}): Program {
  const prelude = `import * as varve from "varve"; import fs from "node:fs";
    const { open, file, memory } = varve;
    const directory = ${JSON.stringify(directory)};
    const die = () => { process.kill(process.pid, "SIGKILL"); for (;;); };
    const shop = (options) => open("shop", { storage: file(directory), ...options });\n`;
  // In the repository's root, where the package finds itself by its name.
  const command = [process.execPath, "--input-type=module", "-e", prelude + source];
  if (limits.fileSizeLimit !== undefined) {
    const blocks = Math.floor(limits.fileSizeLimit / 1024);
    command.unshift("bash", "-c", `ulimit -f ${blocks}; exec "$@"`, "bash");
  }
  const [program = "", ...args] = command;
  const child = spawn(program, args, {
    cwd: context().root,
    stdio: ["ignore", "pipe", "pipe"],
  });
  cleanup(() => child.kill("SIGKILL"));
  let [stdout, stderr] = ["", ""];
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    stdout += text;
  });
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    stderr += text;
  });
  const ended = new Promise<Ended>((resolve) => {
    child.on("close", (code, signal) => resolve({ code, signal, stdout, stderr }));
  });
  return { child, ended };
}

/** Runs a program to its end. */
export function runs(directory: string, source: string, limits?: Limits): Promise<Ended> {
  return start(directory, source, limits).ended;
}
