/** Small programs that use the package, run in processes of their own. */

import { commandFor, type Ended, type Program, shopIn, startsBy } from "./runtime-programs.js";

/** Limits that the system sets for a program. */
export interface Limits {
  /** The maximum size of a file, in bytes. */
  fileSizeLimit?: number;
  /** Flags of Node besides those of the tests. */
  flags?: readonly string[];
}

/** Starts a program. `directory` and all exports of the package are defined by name. */
export function start(directory: string, source: string, limits: Limits = {}): Program {
  const prelude = `import fs from "node:fs";
    const directory = ${JSON.stringify(directory)};
    const die = () => { process.kill(process.pid, "SIGKILL"); for (;;); };
    ${shopIn(directory)}`;
  const [program = "", ...args] = commandFor(prelude + source);
  const command = [program, ...(limits.flags ?? []), ...args];
  if (limits.fileSizeLimit !== undefined) {
    const blocks = Math.floor(limits.fileSizeLimit / 1024);
    command.unshift("bash", "-c", `trap '' XFSZ; ulimit -f ${blocks}; exec "$@"`, "bash");
  }
  return startsBy(command);
}

/** Runs a program to its end. */
export function runs(directory: string, source: string, limits?: Limits): Promise<Ended> {
  return start(directory, source, limits).ended;
}
