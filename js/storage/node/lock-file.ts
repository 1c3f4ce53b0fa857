/**
 * The lock file beside a database file: it has one holder at a time, and a dead holder does not keep it.
 *
 * Node has no file locks on every system, so the lock is a file that names its holder. These rules make it safe:
 *
 * 1. The lock appears with its whole content at once (written to a draft, then linked to its name), so that
 *    no process ever reads half of it. On a full disk, where a file can have no content, the lock is a symbolic
 *    link to no file, and the content is its target. File systems store such a short target in the link itself
 *    (ext4 up to 59 bytes).
 * 2. A lock is broken at once only if its holder is certainly dead: the holder ran since the same boot of this
 *    machine and in the same process number space, and its process or thread does not exist, or another one has
 *    its number (with another start time). For threads this is known only on Linux.
 * 3. All other holders are checked by their heartbeats: a holder changes the time stamp of its lock every two
 *    seconds, to a value that it never had before. A lock is broken if it did not change for eight seconds by the
 *    monotonic clock of the process that watches it. The wall clock decides nothing.
 * 4. A holder that could not send a heartbeat for three seconds, by either clock, sends one and checks its lock
 *    before it writes, and again before the write counts. So a holder that was suspended for longer than it takes
 *    to break its lock acknowledges no more writes. One write may already have been under way: the next holder
 *    appends to the log at a place where that does no harm (`OpenedStorage.takenOver`).
 * 5. A process that breaks a lock holds a second lock while doing so. It moves the lock away in one step and checks
 *    what it has moved: if that is not the lock it watched, or its time stamp has changed, it is put back. A process
 *    that creates its own lock meanwhile waits until the second lock is removed, and checks that its own is still
 *    there.
 * 6. A lock is released only by the holder whose token it contains.
 *
 * The heartbeat also checks that the guarded file is still the one at its path, and that no other program has truncated
 * or overwritten it.
 */

import { DatabaseBusyError, FileLostError, StorageError } from "../../errors/index.js";
import { monotonicNow } from "../../util/clock.js";
import { type Builtins, builtins } from "./builtins.js";
import {
  type FileIdentity,
  type GuardedFile,
  hasSize,
  identityOf,
  lossOf,
  lossText,
} from "./guarded-file.js";
import { HeartbeatMonitor, THREAD_EXIT_TIMEOUT_MS } from "./heartbeat-monitor.js";
import {
  codeOf,
  createLock,
  type Holder,
  holderOf,
  type LockSnapshot,
  moveAway,
  readLock,
  removeDrafts,
  unlink,
} from "./lock-on-disk.js";
import { self, stateOf } from "./process-identity.js";
import { lockBySystem, type Unlock } from "./system-lock.js";

/** A lock that was created. */
interface CreatedLock {
  content: string;
  /** Whether another lock was broken for it whose holder may still be alive. */
  takenOver: boolean;
}

/** How often a holder sends a heartbeat. */
const HEARTBEAT_MS = 2000;
/** Each heartbeat raises the time stamp by this: the resolution of the coarsest file system. */
const HEARTBEAT_SECONDS = 2;
/** A holder that could not send a heartbeat for this long sends one before it writes and before the write counts. */
const HEARTBEAT_FRESH_MS = 3000;
/** A missing lock may have been moved away by another process, which puts it back within this time. */
const MOVE_TIMEOUT_MS = 100;
/** Maximum time in all to find out whether a lock was left behind. */
const ACQUIRE_TIMEOUT_MS = 20_000;
/** Maximum depth of locks of breakers: a breaker that crashed leaves a lock of its own, and so on. */
const MAX_BREAK_DEPTH = 3;

/**
 * Acquires the lock beside the file `guarded`.
 *
 * @throws DatabaseBusyError if a running process holds it, with that process's number
 */
export async function acquireLock(guarded: string): Promise<Lock> {
  const node = builtins();
  const path = pathOf(guarded);
  const system = await takeSystemLock(node, path, guarded);
  try {
    return new Lock(path, guarded, await acquire(path, guarded, 0), system);
  } catch (error) {
    system?.();
    throw error;
  }
}

function pathOf(guarded: string): string {
  return `${guarded}.lock`;
}

/**
 * Acquires the system's own lock first, if there is one, because it is more reliable than the lock file: a lock file
 * is never broken while the system's lock is held.
 */
async function takeSystemLock(
  node: Builtins,
  path: string,
  guarded: string,
): Promise<Unlock | undefined> {
  const start = monotonicNow();
  for (;;) {
    const system = lockBySystem(node, guarded);
    if (system !== "busy") return system;
    if (monotonicNow() - start > THREAD_EXIT_TIMEOUT_MS) {
      throw busy(path, guarded, holderOf(readLock(node, path)?.content ?? ""), 0);
    }
    await pause(10);
  }
}

/**
 * Resolves when the lock beside the file `guarded` is not held, without acquiring it: for readers, which write
 * nothing. It does not keep a later writer out.
 *
 * @throws DatabaseBusyError if a running process holds it, with that process's number
 */
export async function refuseHeld(guarded: string): Promise<void> {
  const node = builtins();
  const path = pathOf(guarded);
  const monitor = new HeartbeatMonitor(node, heldLocks);
  for (;;) {
    const seen = readLock(node, path);
    if (seen === undefined) return;
    const holder = holderOf(seen.content);
    const state = monitor.classifyHolder(seen, holder);
    if (state === "dead" || state === "unresponsive") return;
    if (state === "alive") throw busy(path, guarded, holder, 0);
    await pause(50);
  }
}

/** The contents of all locks that this thread holds. */
const heldLocks = new Set<string>();

/** A lock that is held. */
export class Lock {
  /** Whether it was taken from a holder that may still be alive and finish a write that was under way. */
  readonly takenOver: boolean;
  /** Called if a heartbeat finds that the file or the lock was lost. Calls that find it themselves throw the error. */
  onLoss: ((loss: FileLostError) => void) | undefined;
  readonly #node = builtins();
  readonly #path: string;
  readonly #guarded: string;
  readonly #content: string;
  readonly #inode: number;
  readonly #timer: NodeJS.Timeout;
  #system: Unlock | undefined;
  #file: FileIdentity | undefined;
  /** The blocks of the guarded file when they were last seen. */
  #blocks = 0n;
  /** The time stamp of the last heartbeat, in seconds. */
  #stamp = Math.floor(Date.now() / 1000 / HEARTBEAT_SECONDS) * HEARTBEAT_SECONDS;
  /** The time of the last heartbeat, by both clocks, because the monotonic one may stop while the machine sleeps. */
  #heartbeatTime = Number.NEGATIVE_INFINITY;
  #heartbeatWall = 0;
  #loss: FileLostError | undefined;
  /** The error that kept the last heartbeat from being sent. */
  #heartbeatError: unknown;

  /** Only for `acquireLock`, which has created the lock at `path`. */
  constructor(
    path: string,
    guarded: string,
    { content, takenOver }: CreatedLock,
    system: Unlock | undefined,
  ) {
    this.#path = path;
    this.#guarded = guarded;
    this.#content = content;
    this.#system = system;
    this.takenOver = takenOver;
    heldLocks.add(content);
    const { fs, timers } = this.#node;
    this.#inode = fs.lstatSync(path, { throwIfNoEntry: false })?.ino ?? -1;
    this.#timer = timers.setInterval(() => this.#onTime(), HEARTBEAT_MS);
    // Those that no fake timers can reach have no such method, and never keep a process running.
    (this.#timer as Partial<NodeJS.Timeout>).unref?.();
    this.#heartbeat();
  }

  /**
   * Sets the open guarded file, after it was opened or reopened. Heartbeats check from now on that it is still the
   * one at its path.
   *
   * @throws DatabaseBusyError if another process holds the system's own lock on it
   */
  guard(opened: GuardedFile): void {
    const node = this.#node;
    const systemLock = lockBySystem(node, this.#guarded);
    // If the file existed before, this lock holds the system's lock already.
    if (systemLock === "busy" && this.#system === undefined) {
      throw busy(this.#path, this.#guarded, undefined, 0);
    }
    if (systemLock !== "busy" && systemLock !== undefined) {
      this.#system?.();
      this.#system = systemLock;
    }
    this.#file = identityOf(node, opened, this.#guarded);
    this.#blocks = 0n;
  }

  /**
   * Checks that the lock is held. Has to be called before each change of the guarded file, and again before the
   * change counts. It reads the clocks, and sends a heartbeat only if none could be sent for seconds.
   *
   * @throws FileLostError if the lock or the file was lost in the meantime, permanently
   */
  assertHeld(): void {
    if (this.#loss !== undefined) throw this.#loss;
    if (this.#isFresh()) return;
    this.#heartbeat();
    if (this.#loss !== undefined) throw this.#loss;
    if (this.#isFresh()) return;
    throw new Error(
      `The lock ${this.#path} could not be renewed for seconds, so another process may have taken it.`,
      { cause: this.#heartbeatError },
    );
  }

  /**
   * Checks that the lock is still held, and that the guarded file is still the one at its path.
   *
   * @throws FileLostError if not, permanently
   */
  assertThere(): void {
    this.#checkFile(false);
    if (this.#loss === undefined && !this.#isOurs()) this.#heartbeat();
    this.assertHeld();
  }

  /**
   * Checks like a heartbeat that the guarded file is still the one at its path, and that no other program has written
   * to it.
   *
   * @throws FileLostError if not, permanently
   */
  assertUnchanged(): void {
    this.#checkFile(true);
    if (this.#loss !== undefined) throw this.#loss;
  }

  /** Releases the lock. It may be called twice. A lock that another process has taken over is left alone. */
  release(): void {
    const wasHeld = heldLocks.delete(this.#content) && this.#loss?.reason !== "taken-over";
    this.#stop();
    try {
      if (wasHeld && this.#isOurs()) unlink(this.#node, this.#path);
    } catch (cause) {
      throw new StorageError(
        `The lock ${this.#path} cannot be removed (${reasonOf(cause)}). The database was closed: ` +
          "when no program has it open, delete the lock.",
        { cause },
      );
    } finally {
      this.#system?.();
      this.#system = undefined;
    }
  }

  #isFresh(): boolean {
    return (
      monotonicNow() - this.#heartbeatTime < HEARTBEAT_FRESH_MS &&
      Math.abs(Date.now() - this.#heartbeatWall) < HEARTBEAT_FRESH_MS
    );
  }

  #onTime(): void {
    this.#heartbeat();
    if (this.#loss !== undefined) this.onLoss?.(this.#loss);
  }

  #heartbeat(): void {
    this.#checkFile(true);
    if (this.#loss !== undefined) return;
    const [now, wall] = [monotonicNow(), Date.now()];
    this.#stamp += HEARTBEAT_SECONDS;
    for (;;) {
      try {
        // Touch the lock before reading it: a process that moves it away to break it notices and puts it back.
        this.#node.fs.lutimesSync(this.#path, this.#stamp, this.#stamp);
        const seen = readLock(this.#node, this.#path);
        if (seen !== undefined) {
          if (seen.content !== this.#content) this.#lose("taken-over");
          [this.#heartbeatTime, this.#heartbeatWall] = [now, wall];
          return;
        }
      } catch (error) {
        this.#heartbeatError = error;
        // Other errors, such as those of a file system that hangs, are retried at the next heartbeat.
        if (codeOf(error) !== "ENOENT") return;
      }
      if (monotonicNow() - now > MOVE_TIMEOUT_MS) {
        this.#lose("taken-over");
        return;
      }
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 5);
    }
  }

  /** Whether the lock at its path is this one. In nearly all cases inode and last time stamp are enough to know. */
  #isOurs(): boolean {
    const { fs } = this.#node;
    const { ino, mtimeMs } = fs.lstatSync(this.#path, { throwIfNoEntry: false }) ?? {};
    if (ino === undefined) return false;
    if (ino === this.#inode && mtimeMs === this.#stamp * 1000) return true;
    return readLock(this.#node, this.#path)?.content === this.#content;
  }

  /**
   * Checks the guarded file: by its identity and size, which one call reads, and if `readsHead`, by its first bytes. A
   * file that was truncated and has grown to its old size since has fewer blocks, which is no proof (file systems give
   * blocks back later, or compress them), but reason to read the first bytes.
   */
  #checkFile(readsHead: boolean): void {
    const opened = this.#file;
    if (opened === undefined) return;
    const { fs } = this.#node;
    try {
      const atPath = fs.statSync(this.#guarded, { bigint: true, throwIfNoEntry: false });
      const loss = lossOf(this.#node, opened, atPath);
      if (loss !== undefined) this.#lose(loss);
      if (!hasSize(this.#node, opened, atPath)) this.#loseContent();
      const blocks = atPath?.blocks ?? 0n;
      const hasFewer = blocks < this.#blocks;
      this.#blocks = blocks;
      if ((readsHead || hasFewer) && !opened.isHeadSame()) this.#loseContent();
    } catch (error) {
      if (codeOf(error) === "ENOENT" || codeOf(error) === "ENOTDIR") this.#lose("removed");
    }
  }

  /** Another program has written to the file: the next holder of the lock, or one that knows no locks. */
  #loseContent(): void {
    this.#lose(this.#isOurs() ? "replaced" : "taken-over");
  }

  #lose(reason: FileLostError["reason"]): void {
    this.#loss ??= new FileLostError(lossText(this.#guarded, reason), { reason });
    this.#stop();
  }

  #stop(): void {
    this.#node.timers.clearInterval(this.#timer);
  }
}

/** Creates the lock file, after breaking one that was left behind. */
async function acquire(path: string, guarded: string, depth: number): Promise<CreatedLock> {
  const node = builtins();
  // Not the global crypto: that of jsdom is the one of an insecure page, which has no such function.
  const token = node.process.getBuiltinModule("node:crypto").randomBytes(4).toString("hex");
  const start = monotonicNow();
  const monitor = new HeartbeatMonitor(node, heldLocks);
  let takenOver = false;
  for (;;) {
    const content = createLock(node, path, token);
    if (content !== undefined) {
      // Another process may have moved a lock that is held away, and may be about to put it back over this one.
      await waitForBreaker(node, path, guarded, depth);
      if (readLock(node, path)?.content === content) return { content, takenOver };
    }
    const seen = readLock(node, path);
    const holder = seen && holderOf(seen.content);
    const state = seen === undefined ? "unknown" : monitor.classifyHolder(seen, holder);
    if (seen !== undefined && (state === "dead" || state === "unresponsive")) {
      const isBroken = await breakLock(path, guarded, seen, depth);
      takenOver ||= isBroken && state === "unresponsive";
      if (readLock(node, path) === undefined) continue;
    }
    if (state === "alive" || monotonicNow() - start > ACQUIRE_TIMEOUT_MS) {
      throw busy(path, guarded, holder, depth);
    }
    await pause(holder !== undefined && stateOf(node, holder) === "unknown" ? 100 : 2);
  }
}

/** Waits until no process is breaking this lock, and removes the second lock of a process that crashed doing so. */
async function waitForBreaker(
  node: Builtins,
  path: string,
  guarded: string,
  depth: number,
): Promise<void> {
  const breaker = `${path}.break`;
  const start = monotonicNow();
  while (readLock(node, breaker) !== undefined) {
    try {
      const { content } = await acquire(breaker, guarded, depth + 1);
      if (readLock(node, breaker)?.content === content) unlink(node, breaker);
    } catch (error) {
      const isBusy = error instanceof DatabaseBusyError;
      if (!isBusy || depth > 0 || monotonicNow() - start > ACQUIRE_TIMEOUT_MS) throw error;
      await pause(2);
    }
  }
}

/** Removes a lock that was left behind. Returns `false` if another process did, or if its holder is alive after all. */
async function breakLock(
  path: string,
  guarded: string,
  stale: LockSnapshot,
  depth: number,
): Promise<boolean> {
  if (depth >= MAX_BREAK_DEPTH) {
    throw new DatabaseBusyError(
      `The lock ${path} was left behind by programs that crashed one after another. When no ` +
        `program uses ${guarded}, delete all files whose names begin with the lock's.`,
    );
  }
  const node = builtins();
  const breaker = `${path}.break`;
  let content: string;
  try {
    ({ content } = await acquire(breaker, guarded, depth + 1));
  } catch (error) {
    // Another process is breaking the lock already.
    if (error instanceof DatabaseBusyError && depth === 0) return false;
    throw error;
  }
  try {
    removeDrafts(node, path);
    return moveAway(node, path, stale, content.slice(0, 8));
  } finally {
    if (readLock(node, breaker)?.content === content) unlink(node, breaker);
  }
}

function busy(
  path: string,
  guarded: string,
  holder: Holder | undefined,
  depth: number,
): DatabaseBusyError {
  if (holder === undefined || depth > 0) {
    return new DatabaseBusyError(`Another program is opening ${guarded}. Try again.`);
  }
  return new DatabaseBusyError(
    `The database ${guarded} is open in ${describeHolder(holder)}. Only one process may have it open: ` +
      `close it there first. (The lock is ${path}. If this is a copy of a folder that was in use, ` +
      "delete the copied lock.)",
    { pid: holder.pid },
  );
}

function describeHolder({ pid, host, space, name }: Holder): string {
  const here = self(builtins());
  if (host !== here.host || space !== here.space) {
    return `process ${pid} of another container or machine${name === undefined ? "" : ` (${name})`}`;
  }
  if (pid !== here.pid) return `process ${pid}`;
  return (
    `this process (${pid}), in another thread (threads use connect()) or through another copy ` +
    "of varve"
  );
}

/** Waits for this time plus a random part, so that processes that wait do not retry at the same time. */
function pause(ms: number): Promise<void> {
  const { setTimeout } = builtins().timers;
  return new Promise((resolve) => setTimeout(resolve, ms + Math.random() * 10));
}

function reasonOf(cause: unknown): string {
  return cause instanceof Error ? cause.message : String(cause);
}
