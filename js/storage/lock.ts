/**
 * The lock beside a database file: one holder at a time, and a dead one does not keep it.
 *
 * Node has no file locks, so the lock is a file that says who holds it. Four rules make it safe:
 *
 * 1. It appears with its whole content at once (written elsewhere, then linked to its name), so that
 *    nobody ever reads half of it.
 * 2. Only a lock whose holder is certainly dead is broken: no such process, or another process under
 *    the same number (started at another time), or a machine that has been started again since.
 * 3. Who breaks a lock holds a second lock while doing so, and looks again under it. Two starters
 *    that see the same dead holder can therefore not remove each other's fresh lock.
 * 4. It is released only by the one whose token it carries.
 */

import { DatabaseBusyError } from "../errors.js";
import { type Builtins, builtins } from "./builtin.js";

/** A lock that is held. */
export interface Lock {
  /** Gives it back. Calling it twice is legal; a lock that is no longer ours stays. */
  release(): void;
}

/** Who holds a lock. What the platform does not tell is `null`. */
interface Holder {
  pid: number;
  /** When the process started, in whatever form the platform tells; tells reused numbers apart. */
  started: string | null;
  /** One for each start of the machine. */
  boot: string | null;
  /** The space in which process numbers count: containers have their own. */
  space: string | null;
  host: string;
  token: string;
}

/** One look at a lock file. */
interface Sighting {
  content: string;
  inode: number;
  /** Milliseconds since it was written, in either direction of a clock that was changed. */
  age: number;
}

/** A breaker that died leaves a lock of its own, and so on; so many in a row are not believed. */
const DEEPEST = 3;
/** How long others may take to break the same dead lock. */
const PATIENCE_MS = 5000;
/** A lock without readable content is being written by a file system without links, or is a ruin. */
const WRITING_MS = 2000;

/**
 * Takes the lock at `path`, which guards `guarded`.
 *
 * @throws DatabaseBusyError when a living process holds it, with that process's number
 */
export async function acquireLock(path: string, guarded: string): Promise<Lock> {
  return acquire(path, guarded, 0);
}

async function acquire(path: string, guarded: string, depth: number): Promise<Lock> {
  const node = builtins();
  const mine: Holder = { ...self(node), token: token() };
  const content = `${JSON.stringify(mine)}\n`;
  const deadline = Date.now() + PATIENCE_MS;
  for (;;) {
    if (create(node, path, content, mine.token)) {
      return { release: () => releaseIfOurs(node, path, content) };
    }
    const seen = look(node, path);
    if (seen === undefined) continue;
    const holder = parse(seen.content);
    if (holder === undefined ? seen.age > WRITING_MS : isDead(node, holder, path, guarded)) {
      await breakLock(path, guarded, seen, depth);
    } else if (holder !== undefined) {
      throw busy(path, guarded, holder, depth);
    }
    if (Date.now() > deadline) throw busy(path, guarded, holder, depth);
    await pause();
  }
}

/** Removes a lock that was seen to be dead, unless somebody else was faster. */
async function breakLock(
  path: string,
  guarded: string,
  dead: Sighting,
  depth: number,
): Promise<void> {
  if (depth >= DEEPEST) {
    throw new DatabaseBusyError(
      `The lock ${path} was left behind by programs that died one after the other. ` +
        `When no program uses ${guarded}, delete every file whose name begins like the lock's.`,
    );
  }
  let breaker: Lock;
  try {
    breaker = await acquire(`${path}.break`, guarded, depth + 1);
  } catch (error) {
    // Somebody else is at it, which is as good.
    if (error instanceof DatabaseBusyError && depth === 0) return;
    throw error;
  }
  try {
    const node = builtins();
    const now = look(node, path);
    if (now !== undefined && now.content === dead.content && now.inode === dead.inode) {
      unlink(node, path);
    }
  } finally {
    breaker.release();
  }
}

/** Makes the lock file with its content at once; `false` when there is one already. */
function create(node: Builtins, path: string, content: string, unique: string): boolean {
  const { fs } = node;
  const draft = `${path}.${unique}`;
  fs.writeFileSync(draft, content, { flag: "wx" });
  try {
    fs.linkSync(draft, path);
    return true;
  } catch (error) {
    if (codeOf(error) === "EEXIST") return false;
    // A file system without links (exFAT, some network shares): less than atomic, see WRITING_MS.
    try {
      fs.writeFileSync(path, content, { flag: "wx" });
      return true;
    } catch (second) {
      if (codeOf(second) === "EEXIST") return false;
      throw second;
    }
  } finally {
    unlink(node, draft);
  }
}

function look({ fs }: Builtins, path: string): Sighting | undefined {
  let fd: number;
  try {
    fd = fs.openSync(path, "r");
  } catch (error) {
    if (codeOf(error) === "ENOENT") return undefined;
    throw error;
  }
  try {
    const { ino, mtimeMs } = fs.fstatSync(fd);
    const content = fs.readFileSync(fd, "utf8");
    return { content, inode: ino, age: Math.abs(Date.now() - mtimeMs) };
  } finally {
    fs.closeSync(fd);
  }
}

function releaseIfOurs(node: Builtins, path: string, content: string): void {
  if (look(node, path)?.content === content) unlink(node, path);
}

function unlink({ fs }: Builtins, path: string): void {
  try {
    fs.unlinkSync(path);
  } catch (error) {
    if (codeOf(error) !== "ENOENT") throw error;
  }
}

/** `undefined` for a lock that says nothing: cut off by a power failure, or no lock of ours. */
function parse(content: string): Holder | undefined {
  let value: unknown;
  try {
    value = JSON.parse(content);
  } catch {
    return undefined;
  }
  const holder = value as Partial<Holder> | null;
  const complete =
    Number.isSafeInteger(holder?.pid) &&
    Number(holder?.pid) > 0 &&
    typeof holder?.token === "string";
  return complete ? (holder as Holder) : undefined;
}

function isDead(node: Builtins, holder: Holder, path: string, guarded: string): boolean {
  const here = self(node);
  if (holder.boot !== null && here.boot !== null) {
    const sameMachine = holder.boot === here.boot || holder.host === here.host;
    if (!sameMachine || (holder.boot === here.boot && holder.space !== here.space)) {
      throw elsewhere(path, guarded, holder);
    }
    if (holder.boot !== here.boot) return true;
  }
  const living = findProcess(node, holder.pid);
  if (living === undefined) return true;
  return holder.started !== null && living.started !== null && holder.started !== living.started;
}

/** The process of that number, or `undefined` when there is certainly none. */
function findProcess(node: Builtins, pid: number): { started: string | null } | undefined {
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

let known: Omit<Holder, "token"> | undefined;

function self(node: Builtins): Omit<Holder, "token"> {
  const { fs, os, process } = node;
  const linux = process.platform === "linux";
  known ??= {
    pid: process.pid,
    started: linux ? (processStat(node, "self")?.started ?? null) : startedByPs(node, process.pid),
    boot: linux
      ? attempt(() => fs.readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim())
      : null,
    space: linux ? attempt(() => fs.readlinkSync("/proc/self/ns/pid")) : null,
    host: os.hostname(),
  };
  return known;
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

function busy(
  path: string,
  guarded: string,
  holder: Holder | undefined,
  depth: number,
): DatabaseBusyError {
  if (holder === undefined || depth > 0) {
    return new DatabaseBusyError(`Another program is just opening ${guarded}. Try again.`);
  }
  const who =
    holder.pid === builtins().process.pid
      ? `this process (${holder.pid}), in another thread or through another copy of varve`
      : `process ${holder.pid}`;
  return new DatabaseBusyError(
    `The database ${guarded} is open in ${who}. One process may have it open at a time: ` +
      `close it there first. (The lock is ${path}.)`,
    { pid: holder.pid },
  );
}

function elsewhere(path: string, guarded: string, holder: Holder): DatabaseBusyError {
  return new DatabaseBusyError(
    `The database ${guarded} is locked by process ${holder.pid} in another container or on another ` +
      `machine (${holder.host}), and whether that still runs cannot be seen from here. ` +
      `If it is certain to have ended, delete ${path}.`,
    { pid: holder.pid },
  );
}

function token(): string {
  return globalThis.crypto.randomUUID().replaceAll("-", "").slice(0, 16);
}

/** A few milliseconds, different for each waiter so that they do not meet again. */
function pause(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, 2 + Math.random() * 10));
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
