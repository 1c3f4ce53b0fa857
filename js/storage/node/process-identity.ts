/**
 * Processes and their threads as the platform shows them: whether one lives, and whether it is still
 * the same one.
 */

import { encoder } from "../../util/text-coders.js";
import { type Builtins, permitted } from "./builtins.js";

/**
 * What tells a process from every other, now and later. What the platform does not tell is `null`. All that is only
 * ever compared is a fingerprint, so that the whole is short.
 */
export interface ProcessIdentity {
  pid: number;
  /** When it started; tells reused numbers apart. */
  started: string | null;
  /** Its thread, as number and start: a worker can end long before its process. */
  thread: string | null;
  /** One for each start of each machine. */
  boot: string | null;
  /** The space in which process numbers count: containers have their own. */
  space: string | null;
  /** Of the machine's name. It decides nothing. */
  host: string | null;
}

/** `"unseen"`: nothing of it can be seen here, as with another container or machine. */
export type Life = "alive" | "dead" | "unseen";

/** Where Linux tells one start of the machine from the next. */
const BOOT = "/proc/sys/kernel/random/boot_id";

let known: ProcessIdentity | undefined;

/** Its fields in one line of at most 50 letters, for as long as Linux counts processes in seven digits. */
export function toText({ pid, started, thread, boot, space, host }: ProcessIdentity): string {
  return [pid, started, thread, boot, space, host].map((field) => field ?? "-").join(" ");
}

/** What `toText` made; `undefined` for anything else. */
export function fromText(text: string): ProcessIdentity | undefined {
  const [pid, started, thread, boot, space, host, ...more] = text
    .split(" ")
    .map((field) => (field === "-" ? null : field));
  if (host === undefined || more.length > 0 || !/^[1-9]\d{0,14}$/.test(pid ?? "")) return undefined;
  return {
    pid: Number(pid),
    started: started ?? null,
    thread: thread ?? null,
    boot: boot ?? null,
    space: space ?? null,
    host,
  };
}

/** Six letters that stand for a text where it is only compared: its FNV-1a of 32 bits, but for the highest. */
function fingerprint(text: string): string {
  let hash = 0x811c9dc5;
  for (const byte of encoder.encode(text)) hash = Math.imul(hash ^ byte, 0x01000193);
  return ((hash >>> 0) % 36 ** 6).toString(36);
}

/** This process and thread. */
export function self(node: Builtins): ProcessIdentity {
  known ??= identify(node);
  return known;
}

function identify(node: Builtins): ProcessIdentity {
  const { fs, process } = node;
  const { pid, platform } = process;
  const name = hostNameOf(node);
  const host = name === null ? null : fingerprint(name);
  if (platform !== "linux") {
    // Where processes are numbered in one space only, that needs no name of its own.
    const [boot, space] = platform === "darwin" ? [bootOfMacOS(node), "0"] : [null, null];
    return { pid, started: startedByPs(node, pid), thread: null, boot, space, host };
  }
  // A folder /proc of another space has other processes under these numbers: then nobody can be seen.
  const isOurs = attempt(() => fs.readlinkSync("/proc/self")) === String(pid);
  return {
    pid,
    started: statOf(node, "self")?.started ?? null,
    thread: ownThread(node),
    boot: attempt(() => fingerprint(fs.readFileSync(BOOT, "utf8").trim())),
    space: isOurs ? attempt(() => fingerprint(fs.readlinkSync("/proc/self/ns/pid"))) : null,
    host,
  };
}

export function hostNameOf({ os }: Builtins): string | null {
  return permitted({ name: "sys", kind: "hostname" }) ? os.hostname() : null;
}

/** The thread that runs this: a synchronous read of /proc happens in it. */
function ownThread(node: Builtins): string | null {
  const id = attempt(() => node.fs.readlinkSync("/proc/thread-self"))
    ?.split("/")
    .at(-1);
  const started = statOf(node, "thread-self")?.started;
  return id === undefined || started === undefined ? null : `${id}:${started}`;
}

/**
 * Whether that process and its thread live. "dead" is certain: it was on this start of this machine, in the space in
 * which processes are numbered here.
 */
export function lifeOf(node: Builtins, other: ProcessIdentity): Life {
  const here = self(node);
  // Names of hosts prove nothing: two machines may have the same, and one may change its own.
  const isHere = here.boot !== null && other.boot === here.boot;
  if (!isHere || here.space === null || other.space !== here.space) return "unseen";
  const found = find(node, other.pid);
  if (found === "unseen") return "unseen";
  if (found === undefined) return "dead";
  if (other.started !== null && found.started !== null && other.started !== found.started) {
    return "dead";
  }
  return lifeOfThread(node, other, here);
}

function lifeOfThread(node: Builtins, other: ProcessIdentity, here: ProcessIdentity): Life {
  // Where threads have no numbers, one of this process is known only by what it does.
  if (other.thread === null) return other.pid === here.pid ? "unseen" : "alive";
  const [id, started] = other.thread.split(":");
  const process = statOf(node, String(other.pid));
  const thread = statOf(node, `${other.pid}/task/${id}`);
  const ended = thread?.started !== started || thread?.ended === true;
  return process !== undefined && ended ? "dead" : "alive";
}

/** Whether that is another thread of this process. */
export function isNeighbour(node: Builtins, other: ProcessIdentity): boolean {
  const { pid, started, thread, boot, space } = self(node);
  const sameProcess =
    other.pid === pid && other.started === started && other.boot === boot && other.space === space;
  return sameProcess && other.thread !== null && other.thread !== thread;
}

/** The process of that number, `undefined` when there is certainly none, or that it cannot be seen. */
function find(node: Builtins, pid: number): { started: string | null } | undefined | "unseen" {
  if (node.process.platform === "linux") {
    const stat = statOf(node, String(pid));
    if (stat !== undefined) return stat.ended ? undefined : { started: stat.started };
    // Not seen is not dead: /proc may hide the processes of others. The signal below knows.
  }
  if (pid !== node.process.pid && !permitted({ name: "run" })) return "unseen";
  try {
    node.process.kill(pid, 0);
  } catch (error) {
    if (codeOf(error) === "ESRCH") return undefined;
  }
  return { started: node.process.platform === "linux" ? null : startedByPs(node, pid) };
}

/** From /proc: when the process or thread started (from field 22, ticks since boot), and whether it has ended. */
function statOf({ fs }: Builtins, which: string): { started: string; ended: boolean } | undefined {
  const stat = attempt(() => fs.readFileSync(`/proc/${which}/stat`, "utf8"));
  if (stat === null) return undefined;
  // Field 2 is the program's name in parentheses and may hold spaces and parentheses of its own.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  const [state, started] = [fields[0], fields[19]];
  if (state === undefined || started === undefined) return undefined;
  // A zombie holds no file any more; only its parent has not asked for its end yet.
  return { started: fingerprint(started), ended: state === "Z" || state === "X" || state === "x" };
}

function startedByPs(node: Builtins, pid: number): string | null {
  if (node.process.platform === "win32") return null;
  return printOf(node, "ps", "-o", "lstart=", "-p", String(pid));
}

/** macOS names each of its starts. */
function bootOfMacOS(node: Builtins): string | null {
  return printOf(node, "sysctl", "-n", "kern.bootsessionuuid");
}

/** The fingerprint of what a program says; `null` for nothing. */
function printOf(
  { childProcess, process }: Builtins,
  program: string,
  ...args: string[]
): string | null {
  if (!permitted({ name: "run" })) return null;
  return attempt(() => {
    const told = childProcess.execFileSync(program, args, {
      env: { ...process.env, LC_ALL: "C", TZ: "UTC" },
      encoding: "utf8",
      stdio: ["ignore", "pipe", "ignore"],
      timeout: 5000,
    });
    return told.trim() === "" ? null : fingerprint(told.trim());
  });
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
