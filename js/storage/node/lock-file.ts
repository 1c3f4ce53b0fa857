/**
 * The lock beside a database file: one holder at a time, and a dead one does not keep it.
 *
 * Node has no file locks on every system, so the lock is a file that says who holds it. These rules make it safe:
 *
 * 1. It appears with its whole content at once (written elsewhere, then linked to its name), so that
 *    nobody ever reads half of it. On a full disk, where a file can have no content, it is a symbolic
 *    link that leads to no file: what it says is its target. File systems keep so short a one beside
 *    the link itself (ext4 up to 59 bytes).
 * 2. A lock is broken at once only if its holder is certainly dead: it was on this very start of this
 *    machine and counts its processes in the same space, and there is no such process or thread, or
 *    another one under the same number (started at another time). Of threads this is known on Linux.
 * 3. Of everybody else nothing is known but heartbeats: a holder changes the time stamp of its lock
 *    every two seconds, to a value that it never had before. A lock that was watched for eight seconds
 *    by the monotonic clock of the watcher, and did not change, is broken. The wall clock decides nothing.
 * 4. A holder that could not send a heartbeat for three seconds, by either clock, sends one and looks at
 *    its lock before it writes, and again before what it wrote counts. So a holder that was stopped for
 *    longer than it takes to break its lock acknowledges nothing more. One write may already have been
 *    under way: the next holder's log goes on in a place where that does no harm (`OpenedStorage.takenOver`).
 * 5. Who breaks a lock holds a second lock while doing so, moves the lock away in one step, and looks
 *    at what it has moved: if that is not what it watched, or its time stamp has changed, it is put back. Who finds
 *    the place free meanwhile waits for the second lock to go, and looks whether its own lock is still there.
 * 6. It is released only by the one whose token it carries.
 *
 * The heartbeat also looks whether the file that the lock guards is still the one at its path.
 */

import { DatabaseBusyError, FileLostError, StorageError } from "../../errors/index.js";
import { monotonicNow } from "../../util/clock.js";
import { ioCode } from "../storage.js";
import { type Builtins, builtins } from "./builtins.js";
import {
  fromText,
  hostNameOf,
  isNeighbour,
  type Life,
  lifeOf,
  type ProcessIdentity,
  self,
  toText,
} from "./process-identity.js";
import { lockBySystem, type Unlock } from "./system-lock.js";

/** What a lock says: a token of eight letters, a new one each time, who holds it, and in a file the name of its host. */
interface Holder extends ProcessIdentity {
  name: string | undefined;
}

/** One look at a lock file. */
interface Sighting {
  content: string;
  inode: number;
  /** Its time stamp, in milliseconds. It is only ever compared with itself. */
  touched: number;
}

/** A lock that was put in place. */
interface Placed {
  content: string;
  /** Whether one was broken for it whose holder may still live. */
  takenOver: boolean;
}

/** `"silent"`: for all that can be seen from here it may live, but it has sent no heartbeat for long enough. */
type Judgement = Exclude<Life, "unseen"> | "silent" | "unknown";

/** How often a holder sends a heartbeat. */
const HEARTBEAT_MS = 2000;
/** By so much each heartbeat raises the time stamp: as much as the coarsest file system tells apart. */
const HEARTBEAT_SECONDS = 2;
/** A holder that could not send one for this long sends one before it writes, and before what it wrote counts. */
const STILL_MS = 3000;
/** An unseen holder that has sent none for this long is taken for dead. Well above STILL_MS. */
const SILENCE_MS = 8000;
/** A thread that is told to end takes a moment: one of this process is looked at again until then. */
const ENDING_MS = 100;
/** A lock that says nothing is being written on a file system without links, or was torn by a power failure. */
const WRITING_MS = 2000;
/** A lock that is not at its place may have been moved by somebody who puts it back: for no longer than this. */
const MOVED_MS = 100;
/** How long it may take in all to find out about a lock that was left behind. */
const PATIENCE_MS = 20_000;
/** A breaker that died leaves a lock of its own, and so on; so many in a row are not believed. */
const DEEPEST = 3;

/**
 * Takes the lock beside the file `guarded`.
 *
 * @throws DatabaseBusyError when a living process holds it, with that process's number
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

/** Where the system has locks, nothing else is as certain: so it is asked first, and nothing is broken that it keeps. */
async function takeSystemLock(
  node: Builtins,
  path: string,
  guarded: string,
): Promise<Unlock | undefined> {
  const start = monotonicNow();
  for (;;) {
    const system = lockBySystem(node, guarded);
    if (system !== "busy") return system;
    if (monotonicNow() - start > ENDING_MS) {
      throw busy(path, guarded, parse(look(node, path)?.content ?? ""), 0);
    }
    await pause(10);
  }
}

/**
 * Returns when nobody holds the lock beside the file `guarded`, without taking it: for those who only read and leave
 * no trace. Whoever takes it from then on is not kept from it.
 *
 * @throws DatabaseBusyError when a living process holds it, with that process's number
 */
export async function refuseHeld(guarded: string): Promise<void> {
  const node = builtins();
  const path = pathOf(guarded);
  const watch = new Watch(node);
  for (;;) {
    const seen = look(node, path);
    if (seen === undefined) return;
    const holder = parse(seen.content);
    const life = watch.classifyHolder(seen, holder);
    if (life === "dead" || life === "silent") return;
    if (life === "alive") throw busy(path, guarded, holder, 0);
    await pause(50);
  }
}

/** The contents of the locks that this thread holds. */
const own = new Set<string>();

/** A lock that is held. */
export class Lock {
  /** Whether it was taken from a holder that may still live, and finish the write that it was in the middle of. */
  readonly takenOver: boolean;
  /** Hears that a heartbeat found the file or the lock lost. What finds it out by itself throws it. */
  onLoss: ((loss: FileLostError) => void) | undefined;
  readonly #node = builtins();
  readonly #path: string;
  readonly #guarded: string;
  readonly #content: string;
  readonly #inode: number;
  readonly #timer: NodeJS.Timeout;
  #system: Unlock | undefined;
  #file: FileIdentity | undefined;
  /** The time stamp that the lock was given last, in seconds. */
  #stamp = Math.floor(Date.now() / 1000 / HEARTBEAT_SECONDS) * HEARTBEAT_SECONDS;
  /** When that was, by both clocks: the monotonic one may stand still while the machine sleeps. */
  #beaten = Number.NEGATIVE_INFINITY;
  #beatenWall = 0;
  #loss: FileLostError | undefined;
  /** What kept the last heartbeat from being sent. */
  #trouble: unknown;

  /** Only for `acquireLock`: the lock lies at `path` already. */
  constructor(
    path: string,
    guarded: string,
    { content, takenOver }: Placed,
    system: Unlock | undefined,
  ) {
    this.#path = path;
    this.#guarded = guarded;
    this.#content = content;
    this.#system = system;
    this.takenOver = takenOver;
    own.add(content);
    const { fs, timers } = this.#node;
    this.#inode = fs.lstatSync(path, { throwIfNoEntry: false })?.ino ?? -1;
    this.#timer = timers.setInterval(() => this.#onTime(), HEARTBEAT_MS);
    this.#timer.unref();
    this.#beat();
  }

  /**
   * The file that the lock guards was opened, or opened anew. From now on it is looked at whether it is the one at its
   * path.
   *
   * @throws DatabaseBusyError when somebody else has the system's own lock on it
   */
  guard(fd: number): void {
    const node = this.#node;
    const again = lockBySystem(node, this.#guarded);
    // Of a file that was there before it is ours already.
    if (again === "busy" && this.#system === undefined) {
      throw busy(this.#path, this.#guarded, undefined, 0);
    }
    if (again !== "busy" && again !== undefined) {
      this.#system?.();
      this.#system = again;
    }
    this.#file = identityOf(node, fd, this.#guarded);
  }

  /**
   * To be called before each change of the guarded file, and again before what was written counts: costs a look at
   * the clocks, and a heartbeat only when none could be sent for seconds.
   *
   * @throws FileLostError when the lock or the file was lost in the meantime, for good
   */
  assertHeld(): void {
    if (this.#loss !== undefined) throw this.#loss;
    if (this.#isFresh()) return;
    this.#beat();
    if (this.#loss !== undefined) throw this.#loss;
    if (this.#isFresh()) return;
    throw new Error(
      `The lock ${this.#path} could not be renewed for seconds, so another process may have taken it.`,
      { cause: this.#trouble },
    );
  }

  /**
   * Looks whether the lock is still held, and the guarded file still the one at its path.
   *
   * @throws FileLostError when they are not, for good
   */
  assertThere(): void {
    this.#lookAtFile();
    if (this.#loss === undefined && !this.#isOurs()) this.#beat();
    this.assertHeld();
  }

  /** Gives it back. Calling it twice is legal; a lock that is no longer ours stays. */
  release(): void {
    const wasHeld = own.delete(this.#content) && this.#loss?.reason !== "taken-over";
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
      monotonicNow() - this.#beaten < STILL_MS && Math.abs(Date.now() - this.#beatenWall) < STILL_MS
    );
  }

  #onTime(): void {
    this.#beat();
    if (this.#loss !== undefined) this.onLoss?.(this.#loss);
  }

  #beat(): void {
    this.#lookAtFile();
    if (this.#loss !== undefined) return;
    const [now, wall] = [monotonicNow(), Date.now()];
    this.#stamp += HEARTBEAT_SECONDS;
    for (;;) {
      try {
        // Touched before it is looked at: whoever moves it away to break it sees that, and puts it back.
        this.#node.fs.lutimesSync(this.#path, this.#stamp, this.#stamp);
        const seen = look(this.#node, this.#path);
        if (seen !== undefined) {
          if (seen.content !== this.#content) this.#lose("taken-over");
          [this.#beaten, this.#beatenWall] = [now, wall];
          return;
        }
      } catch (error) {
        this.#trouble = error;
        // Anything else, say a file system that hangs, is tried again at the next heartbeat.
        if (codeOf(error) !== "ENOENT") return;
      }
      if (monotonicNow() - now > MOVED_MS) {
        this.#lose("taken-over");
        return;
      }
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 5);
    }
  }

  /** Whether the lock at its path is this one. The time stamp that it was given last tells it from nearly every other. */
  #isOurs(): boolean {
    const { fs } = this.#node;
    const { ino, mtimeMs } = fs.lstatSync(this.#path, { throwIfNoEntry: false }) ?? {};
    if (ino === undefined) return false;
    if (ino === this.#inode && mtimeMs === this.#stamp * 1000) return true;
    return look(this.#node, this.#path)?.content === this.#content;
  }

  #lookAtFile(): void {
    const loss = this.#file && lossOf(this.#node, this.#file, this.#guarded);
    if (loss !== undefined) this.#lose(loss);
  }

  #lose(reason: FileLostError["reason"]): void {
    this.#loss ??= new FileLostError(lossText(this.#guarded, reason), { reason });
    this.#stop();
  }

  #stop(): void {
    this.#node.timers.clearInterval(this.#timer);
  }
}

/** What tells a file from every other for as long as it is open. */
interface FileIdentity {
  fd: number;
  /** `undefined` where numbers mean nothing: the system gives another one by the path than by the open file. */
  numbers: string | undefined;
}

function identityOf({ fs }: Builtins, fd: number, path: string): FileIdentity {
  const numbers = numbersOf(fs.fstatSync(fd, { bigint: true }));
  const there = fs.statSync(path, { bigint: true, throwIfNoEntry: false });
  return { fd, numbers: there !== undefined && numbersOf(there) !== numbers ? undefined : numbers };
}

function numbersOf({ dev, ino }: { dev: bigint; ino: bigint }): string {
  return `${dev} ${ino}`;
}

/** What has become of an open file: `undefined` if it is the one at its path, or that cannot be told just now. */
function lossOf(
  { fs }: Builtins,
  { fd, numbers }: FileIdentity,
  path: string,
): FileLostError["reason"] | undefined {
  try {
    const there = fs.statSync(path, { bigint: true, throwIfNoEntry: false });
    if (there === undefined) return "removed";
    if (numbers !== undefined) return numbersOf(there) === numbers ? undefined : "replaced";
    return fs.fstatSync(fd).nlink === 0 ? "replaced" : undefined;
  } catch (error) {
    return codeOf(error) === "ENOENT" || codeOf(error) === "ENOTDIR" ? "removed" : undefined;
  }
}

function lossText(path: string, reason: FileLostError["reason"]): string {
  const what = {
    removed: `The database file ${path} was removed or moved away while this program had it open`,
    replaced: `Another file was put in the place of ${path} while this program had it open`,
    "taken-over":
      `The lock of ${path} was removed, or taken over by another process while this one was suspended ` +
      "or busy for seconds",
  }[reason];
  return (
    `${what}, so nothing more can be written to it. Reads still work: save what is needed, say with ` +
    "export(), then close the database and open it again."
  );
}

/** What one starter has seen of a lock that it waits for. Only its own monotonic clock counts. */
class Watch {
  readonly #node: Builtins;
  #first: Sighting | undefined;
  #since = 0;

  constructor(node: Builtins) {
    this.#node = node;
  }

  /** Whether the holder lives, as far as it can be told by now. */
  classifyHolder(seen: Sighting, holder: Holder | undefined): Judgement {
    const now = monotonicNow();
    if (this.#first === undefined || !isSame(this.#first, seen)) {
      this.#first = seen;
      this.#since = now;
    }
    const watched = now - this.#since;
    // Zeros are what a power failure can leave of a text.
    if (/^[\0\s]*$/.test(seen.content)) return watched > WRITING_MS ? "dead" : "unknown";
    // What another build wrote in a way of its own is respected as what cannot be seen.
    if (holder !== undefined) {
      const life = own.has(seen.content) ? "alive" : lifeOf(this.#node, holder);
      if (life === "alive" && isNeighbour(this.#node, holder) && watched < ENDING_MS) {
        return "unknown";
      }
      if (life !== "unseen") return life;
    }
    if (seen.touched !== this.#first.touched) return "alive";
    return watched > SILENCE_MS ? "silent" : "unknown";
  }
}

/** Puts the lock file in place, when nobody has or what is there was left behind. */
async function acquire(path: string, guarded: string, depth: number): Promise<Placed> {
  const node = builtins();
  // Not the global crypto: under jsdom it is that of a page over http, which gives no such numbers.
  const token = node.process.getBuiltinModule("node:crypto").randomBytes(4).toString("hex");
  const start = monotonicNow();
  const watch = new Watch(node);
  let takenOver = false;
  for (;;) {
    const content = create(node, path, token);
    if (content !== undefined) {
      // Somebody may have moved a living lock away, and is about to put it back over this one.
      await untilNoneIsBroken(node, path, guarded, depth);
      if (look(node, path)?.content === content) return { content, takenOver };
    }
    const seen = look(node, path);
    const holder = seen && parse(seen.content);
    const life = seen === undefined ? "unknown" : watch.classifyHolder(seen, holder);
    if (seen !== undefined && (life === "dead" || life === "silent")) {
      const isBroken = await breakLock(path, guarded, seen, depth);
      takenOver ||= isBroken && life === "silent";
      if (look(node, path) === undefined) continue;
    }
    if (life === "alive" || monotonicNow() - start > PATIENCE_MS) {
      throw busy(path, guarded, holder, depth);
    }
    await pause(holder !== undefined && lifeOf(node, holder) === "unseen" ? 100 : 2);
  }
}

/** Waits for whoever breaks this lock just now, and clears away what one that died in the middle of it has left. */
async function untilNoneIsBroken(
  node: Builtins,
  path: string,
  guarded: string,
  depth: number,
): Promise<void> {
  const breaker = `${path}.break`;
  const start = monotonicNow();
  while (look(node, breaker) !== undefined) {
    try {
      const { content } = await acquire(breaker, guarded, depth + 1);
      if (look(node, breaker)?.content === content) unlink(node, breaker);
    } catch (error) {
      const isBusy = error instanceof DatabaseBusyError;
      if (!isBusy || depth > 0 || monotonicNow() - start > PATIENCE_MS) throw error;
      await pause(2);
    }
  }
}

/** Removes a lock that was left behind, unless somebody else was faster or it was not. Answers whether it did. */
async function breakLock(
  path: string,
  guarded: string,
  dead: Sighting,
  depth: number,
): Promise<boolean> {
  if (depth >= DEEPEST) {
    throw new DatabaseBusyError(
      `The lock ${path} was left behind by programs that died one after another. When no ` +
        `program uses ${guarded}, delete all files whose names begin with the lock's.`,
    );
  }
  const node = builtins();
  const breaker = `${path}.break`;
  let content: string;
  try {
    ({ content } = await acquire(breaker, guarded, depth + 1));
  } catch (error) {
    // Somebody else is at it, which is as good.
    if (error instanceof DatabaseBusyError && depth === 0) return false;
    throw error;
  }
  try {
    removeDrafts(node, path);
    return moveAway(node, path, dead, content.slice(0, 8));
  } finally {
    if (look(node, breaker)?.content === content) unlink(node, breaker);
  }
}

/** Removes a lock if it is what was seen. A heartbeat that comes at the last moment is seen in what was moved. */
function moveAway(node: Builtins, path: string, dead: Sighting, token: string): boolean {
  const { fs } = node;
  const is = (seen: Sighting | undefined) =>
    seen !== undefined && isSame(seen, dead) && seen.touched === dead.touched;
  if (!is(look(node, path))) return false;
  const moved = `${path}.${token}`;
  try {
    fs.renameSync(path, moved);
  } catch (error) {
    if (codeOf(error) === "ENOENT") return false;
    throw error;
  }
  if (!is(look(node, moved))) {
    fs.renameSync(moved, path);
    return false;
  }
  unlink(node, moved);
  return true;
}

/** What was written and never linked, by processes that died in between a minute ago or more. */
function removeDrafts(node: Builtins, path: string): void {
  const { fs, path: paths } = node;
  const start = `${paths.basename(path)}.`;
  for (const name of fs.readdirSync(paths.dirname(path))) {
    if (!name.startsWith(start) || !/^[0-9a-f]{8}$/.test(name.slice(start.length))) continue;
    const draft = paths.join(paths.dirname(path), name);
    const age = Date.now() - (look(node, draft)?.touched ?? Date.now());
    if (age > 60_000) unlink(node, draft);
  }
}

/** Puts the lock in place with its whole content at once, and gives that; `undefined` when there is one already. */
function create(node: Builtins, path: string, token: string): string | undefined {
  const { fs } = node;
  const told = `${token} ${toText(self(node))}`;
  const content = `${told} ${hostNameOf(node) ?? ""}\n`;
  const draft = `${path}.${token}`;
  try {
    fs.writeFileSync(draft, content, { flag: "wx" });
    // A file system without links (exFAT, some network shares): less than atomic, see WRITING_MS.
    const isPlaced = link(node, draft, path) ?? createInPlace(node, path, content);
    return isPlaced ? content : undefined;
  } catch (error) {
    if (ioCode(error) !== -2) throw error;
    return createAsLink(node, path, told, error);
  } finally {
    drop(node, draft);
  }
}

/** Removes a draft, if there is one. What keeps it from that is no news: the draft could not be made, or goes later. */
function drop({ fs }: Builtins, draft: string): void {
  try {
    fs.unlinkSync(draft);
  } catch {
    // One that stays is removed with the next lock that is broken.
  }
}

/** `undefined` when this file system cannot do it. */
function link({ fs }: Builtins, from: string, to: string): boolean | undefined {
  try {
    fs.linkSync(from, to);
    return true;
  } catch (error) {
    return codeOf(error) === "EEXIST" ? false : undefined;
  }
}

function createInPlace({ fs }: Builtins, path: string, content: string): boolean {
  try {
    fs.writeFileSync(path, content, { flag: "wx" });
    return true;
  } catch (error) {
    if (codeOf(error) === "EEXIST") return false;
    throw error;
  }
}

/** Where there is no room for a file. What keeps a link from being made is no news: that there is no room is. */
function createAsLink(
  { fs }: Builtins,
  path: string,
  told: string,
  full: unknown,
): string | undefined {
  try {
    fs.symlinkSync(told, path);
    return told;
  } catch (error) {
    if (codeOf(error) === "EEXIST") return undefined;
    throw full;
  }
}

function look({ fs }: Builtins, path: string): Sighting | undefined {
  try {
    const target = targetOf(fs, path);
    if (target !== undefined) {
      const { ino, mtimeMs } = fs.lstatSync(path);
      return { content: target, inode: ino, touched: mtimeMs };
    }
    const fd = fs.openSync(path, "r");
    try {
      const { ino, mtimeMs } = fs.fstatSync(fd);
      return { content: fs.readFileSync(fd, "utf8"), inode: ino, touched: mtimeMs };
    } finally {
      fs.closeSync(fd);
    }
  } catch (error) {
    if (codeOf(error) === "ENOENT") return undefined;
    throw error;
  }
}

/** What a symbolic link says; `undefined` when this is none. */
function targetOf(fs: Builtins["fs"], path: string): string | undefined {
  try {
    return fs.readlinkSync(path);
  } catch (error) {
    // Node on Windows says UNKNOWN of some files.
    if (codeOf(error) === "ENOENT") throw error;
    return undefined;
  }
}

function isSame(one: Sighting, other: Sighting): boolean {
  return one.content === other.content && one.inode === other.inode;
}

function unlink({ fs }: Builtins, path: string): void {
  try {
    fs.unlinkSync(path);
  } catch (error) {
    if (codeOf(error) !== "ENOENT") throw error;
  }
}

/** `undefined` for what no lock of this build says. */
function parse(content: string): Holder | undefined {
  const [, told, name] = /^[0-9a-f]{8} (\S+(?: \S+){5})(?: (.*)\n)?$/.exec(content) ?? [];
  const holder = fromText(told ?? "");
  return holder && { ...holder, name: name || undefined };
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
    `The database ${guarded} is open in ${whose(holder)}. Only one process may have it open: ` +
      `close it there first. (The lock is ${path}. If this is a copy of a folder that was in use, ` +
      "delete the copied lock.)",
    { pid: holder.pid },
  );
}

function whose({ pid, host, space, name }: Holder): string {
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

/** That long and a little more, different for each waiter so that they do not meet again. */
function pause(ms: number): Promise<void> {
  const { setTimeout } = builtins().timers;
  return new Promise((resolve) => setTimeout(resolve, ms + Math.random() * 10));
}

function codeOf(error: unknown): unknown {
  return (error as { code?: unknown } | null)?.code;
}

function reasonOf(cause: unknown): string {
  return cause instanceof Error ? cause.message : String(cause);
}
