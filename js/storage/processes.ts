/** Processes as the platform shows them: whether one lives, and whether it is still the same one. */

import type { Builtins } from "./builtin.js";

/** What tells a process from every other, now and later. What the platform does not tell is `null`. */
export interface ProcessIdentity {
  pid: number;
  /** When it started, in whatever form the platform tells; tells reused numbers apart. */
  started: string | null;
  /** One for each start of the machine. */
  boot: string | null;
  /** The space in which process numbers count: containers have their own. */
  space: string | null;
  host: string;
}

/** `"unseen"`: it belongs to another container or machine, of which nothing can be seen here. */
export type Life = "alive" | "dead" | "unseen";

let known: ProcessIdentity | undefined;

/** This process. */
export function self(node: Builtins): ProcessIdentity {
  known ??= identify(node);
  return known;
}

function identify(node: Builtins): ProcessIdentity {
  const { fs, os, process } = node;
  const read = (path: string) => attempt(() => fs.readFileSync(path, "utf8").trim());
  if (process.platform !== "linux") {
    const started = startedByPs(node, process.pid);
    return { pid: process.pid, started, boot: null, space: null, host: os.hostname() };
  }
  return {
    pid: process.pid,
    started: processStat(node, "self")?.started ?? null,
    boot: read("/proc/sys/kernel/random/boot_id"),
    space: attempt(() => fs.readlinkSync("/proc/self/ns/pid")),
    host: os.hostname(),
  };
}

/** Whether that process lives. "dead" is certain. */
export function lifeOf(node: Builtins, other: ProcessIdentity): Life {
  const here = self(node);
  if (other.boot !== null && here.boot !== null) {
    if (other.boot !== here.boot) return other.host === here.host ? "dead" : "unseen";
    if (other.space !== here.space) return "unseen";
  }
  const found = find(node, other.pid);
  if (found === undefined) return "dead";
  const reused =
    other.started !== null && found.started !== null && other.started !== found.started;
  return reused ? "dead" : "alive";
}

/** The process of that number, or `undefined` when there is certainly none. */
function find(node: Builtins, pid: number): { started: string | null } | undefined {
  if (node.process.platform === "linux") {
    const stat = processStat(node, String(pid));
    if (stat !== undefined) return stat.ended ? undefined : { started: stat.started };
    // Not seen is not dead: /proc may hide the processes of others. The signal below knows.
  }
  try {
    node.process.kill(pid, 0);
  } catch (error) {
    if (codeOf(error) === "ESRCH") return undefined;
  }
  return { started: node.process.platform === "linux" ? null : startedByPs(node, pid) };
}

/** From /proc: when the process started (field 22, in ticks since boot), and whether it has ended. */
function processStat(
  { fs }: Builtins,
  pid: string,
): { started: string; ended: boolean } | undefined {
  const stat = attempt(() => fs.readFileSync(`/proc/${pid}/stat`, "utf8"));
  if (stat === null) return undefined;
  // Field 2 is the program's name in parentheses and may hold spaces and parentheses of its own.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  const [state, started] = [fields[0], fields[19]];
  if (state === undefined || started === undefined) return undefined;
  // A zombie holds no file any more; only its parent has not asked for its end yet.
  return { started, ended: state === "Z" || state === "X" || state === "x" };
}

function startedByPs({ childProcess, process }: Builtins, pid: number): string | null {
  if (process.platform === "win32") return null;
  return attempt(() =>
    childProcess
      .execFileSync("ps", ["-o", "lstart=", "-p", String(pid)], {
        env: { ...process.env, LC_ALL: "C", TZ: "UTC" },
        encoding: "utf8",
        stdio: ["ignore", "pipe", "ignore"],
        timeout: 5000,
      })
      .trim(),
  );
}

function codeOf(error: unknown): unknown {
  return (error as { code?: unknown } | null)?.code;
}

function attempt<T>(fn: () => T): T | null {
  try {
    return fn();
  } catch {
    return null;
  }
}
