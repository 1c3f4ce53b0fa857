/** Small programs that use the package, run in processes of their own. */

import { commandFor, type Ended, type Program, shopIn, startsBy } from "./anywhere.js";

/** What the system does not let a program do. */
export interface Limits {
  /** The longest file that it may write, in bytes. */
  fileSizeLimit?: number;
}

/** Starts a program. `directory` and everything that the package exports are there by name. */
export function start(directory: string, source: string, limits: Limits = {}): Program {
  const prelude = `import fs from "node:fs";
    const directory = ${JSON.stringify(directory)};
    const die = () => { process.kill(process.pid, "SIGKILL"); for (;;); };
    ${shopIn(directory)}`;
  const command = commandFor(prelude + source);
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
