/**
 * Identities of processes and threads: whether one is alive, and whether a process number still means the same
 * process.
 */

import { encoder } from "../../util/text-coders.js";
import { type Builtins, permitted } from "./builtins.js";

/**
 * Identifies a process among all others, now and later. What the platform does not report is `null`. Fields that are
 * only compared are fingerprints, so that the text form is short.
 */
export interface ProcessIdentity {
  pid: number;
  /** Its start time, which distinguishes processes with the same number. */
  started: string | null;
  /** Its thread, as number and start: a worker can end long before its process. */
  thread: string | null;
  /** Identifies a boot of a machine. */
  boot: string | null;
  /** The PID namespace: containers have their own. */
  space: string | null;
  /** The machine's name, only for messages. */
  host: string | null;
}

/** The state of a process. `"unknown"`: it is in another container or on another machine. */
export type ProcessState = "alive" | "dead" | "unknown";

/** The file in which Linux identifies the boot of the machine. */
const BOOT = "/proc/sys/kernel/random/boot_id";

let known: ProcessIdentity | undefined;

/** An identity as one line of at most 50 characters, given that Linux process numbers have at most seven digits. */
export function toText({ pid, started, thread, boot, space, host }: ProcessIdentity): string {
  return [pid, started, thread, boot, space, host].map((field) => field ?? "-").join(" ");
}

/** Parses the result of `toText`; `undefined` for anything else. */
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

/** A fingerprint of a text in six characters: its 32-bit FNV-1a hash modulo 36^6. */
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
    // macOS has a single PID namespace, so a constant identifies it.
    const [boot, space] = platform === "darwin" ? [bootOfMacOS(node), "0"] : [null, null];
    return { pid, started: startedByPs(node, pid), thread: null, boot, space, host };
  }
  // If /proc belongs to another PID namespace, its numbers are of other processes, so none can be checked.
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

/** The current thread. A synchronous read of /proc runs in it. */
function ownThread(node: Builtins): string | null {
  const id = attempt(() => node.fs.readlinkSync("/proc/thread-self"))
    ?.split("/")
    .at(-1);
  const started = statOf(node, "thread-self")?.started;
  return id === undefined || started === undefined ? null : `${id}:${started}`;
}

/**
 * Whether a process and its thread are alive. "dead" is certain: the process ran since the same boot of this machine
 * and in the same PID namespace.
 */
export function stateOf(node: Builtins, other: ProcessIdentity): ProcessState {
  const here = self(node);
  // Host names are not compared: two machines may have the same name, and a machine may change its own.
  const isHere = here.boot !== null && other.boot === here.boot;
  if (!isHere || here.space === null || other.space !== here.space) return "unknown";
  const found = find(node, other.pid);
  if (found === "unknown") return "unknown";
  if (found === undefined) return "dead";
  if (other.started !== null && found.started !== null && other.started !== found.started) {
    return "dead";
  }
  return stateOfThread(node, other, here);
}

function stateOfThread(
  node: Builtins,
  other: ProcessIdentity,
  here: ProcessIdentity,
): ProcessState {
  // Without thread numbers, a thread of this process can only be checked by its heartbeats.
  if (other.thread === null) return other.pid === here.pid ? "unknown" : "alive";
  const [id, started] = other.thread.split(":");
  const process = statOf(node, String(other.pid));
  const thread = statOf(node, `${other.pid}/task/${id}`);
  const ended = thread?.started !== started || thread?.ended === true;
  return process !== undefined && ended ? "dead" : "alive";
}

/** Whether an identity is that of another thread of this process. */
export function isOtherThread(node: Builtins, other: ProcessIdentity): boolean {
  const { pid, started, thread, boot, space } = self(node);
  const sameProcess =
    other.pid === pid && other.started === started && other.boot === boot && other.space === space;
  return sameProcess && other.thread !== null && other.thread !== thread;
}

/** Finds the process with this number: `undefined` if there is certainly none, "unknown" if it cannot be checked. */
function find(node: Builtins, pid: number): { started: string | null } | undefined | "unknown" {
  if (node.process.platform === "linux") {
    const stat = statOf(node, String(pid));
    if (stat !== undefined) return stat.ended ? undefined : { started: stat.started };
    // A missing entry proves nothing, because /proc may hide processes of other users. Check with a signal below.
  }
  if (pid !== node.process.pid && !permitted({ name: "run" })) return "unknown";
  try {
    node.process.kill(pid, 0);
  } catch (error) {
    if (codeOf(error) === "ESRCH") return undefined;
  }
  return { started: node.process.platform === "linux" ? null : startedByPs(node, pid) };
}

/** Reads from /proc when a process or thread started (field 22, ticks since boot), and whether it has ended. */
function statOf({ fs }: Builtins, which: string): { started: string; ended: boolean } | undefined {
  const stat = attempt(() => fs.readFileSync(`/proc/${which}/stat`, "utf8"));
  if (stat === null) return undefined;
  // Field 2 is the program's name in parentheses, and may contain spaces and parentheses itself.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  const [state, started] = [fields[0], fields[19]];
  if (state === undefined || started === undefined) return undefined;
  // A zombie has no open files; only its parent has not collected its exit status yet.
  return { started: fingerprint(started), ended: state === "Z" || state === "X" || state === "x" };
}

function startedByPs(node: Builtins, pid: number): string | null {
  if (node.process.platform === "win32") return null;
  return printOf(node, "ps", "-o", "lstart=", "-p", String(pid));
}

/** Identifies the boot on macOS. */
function bootOfMacOS(node: Builtins): string | null {
  return printOf(node, "sysctl", "-n", "kern.bootsessionuuid");
}

/** The fingerprint of a program's output; `null` if there is none. */
function printOf(
  { childProcess, process }: Builtins,
  program: string,
  ...args: string[]
): string | null {
  if (!permitted({ name: "run" })) return null;
  return attempt(() => {
    const output = childProcess.execFileSync(program, args, {
      env: { ...process.env, LC_ALL: "C", TZ: "UTC" },
      encoding: "utf8",
      stdio: ["ignore", "pipe", "ignore"],
      timeout: 5000,
    });
    return output.trim() === "" ? null : fingerprint(output.trim());
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
