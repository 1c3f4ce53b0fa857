/**
 * The lock beside a database file: one holder at a time, and a dead one does not keep it.
 *
 * Node has no file locks, so the lock is a file that says who holds it. These rules make it safe:
 *
 * 1. It appears with its whole content at once (written elsewhere, then linked to its name), so that
 *    nobody ever reads half of it. On a full disk, where a file can have no content, it is a symbolic
 *    link that leads to no file: what it says is its target. File systems keep so short a one beside
 *    the link itself (ext4 up to 59 bytes).
 * 2. Only a lock whose holder is dead is broken: there is no such process or thread, or another one
 *    under the same number (started at another time), or the machine has been started again since.
 *    Of threads this is known on Linux; elsewhere rule 3 holds between the threads of one process.
 * 3. A holder in another container or machine cannot be seen, and a Deno program that may use files
 *    only sees none. A holder shows that it lives by touching its lock every two seconds; one that has
 *    not for eight is taken for dead. A holder that was stopped for so long and wakes up looks whether
 *    the lock is still its own before it writes again.
 * 4. Who breaks a lock holds a second lock while doing so, and looks again under it. Two starters
 *    that see the same dead holder can therefore not remove each other's fresh lock.
 * 5. It is released only by the one whose token it carries.
 */

import { DatabaseBusyError } from "../errors.js";
import { type Builtins, builtins } from "./builtin.js";
import { ioCode } from "./contract.js";
import {
  fromText,
  hostNameOf,
  isNeighbour,
  lifeOf,
  type ProcessIdentity,
  self,
  toText,
} from "./processes.js";

/** What a lock says: a token of eight letters, a new one each time, who holds it, and in a file the name of its host. */
interface Holder extends ProcessIdentity {
  name: string | undefined;
}

/** One look at a lock file. */
interface Sighting {
  content: string;
  inode: number;
  touched: number;
}

/** How often a holder touches its lock. */
const BEAT_MS = 2000;
/** A holder that was still for this long looks at its lock before it writes. */
const STILL_MS = 5000;
/** An unseen holder that has not touched its lock for this long is dead. Well above STILL_MS. */
const SILENCE_MS = 8000;
/** A thread that is told to end takes a moment: one of this process is looked at again until then. */
const ENDING_MS = 100;
/** A lock that says nothing is being written on a file system without links, or is a ruin. */
const WRITING_MS = 2000;
/** How long it may take in all to see through a dead lock. */
const PATIENCE_MS = 20_000;
/** A breaker that died leaves a lock of its own, and so on; so many in a row are not believed. */
const DEEPEST = 3;

/**
 * Takes the lock at `path`, which guards the file `guarded`.
 *
 * @throws DatabaseBusyError when a living process holds it, with that process's number
 */
export async function acquireLock(path: string, guarded: string): Promise<Lock> {
  return new Lock(path, await acquire(path, guarded, 0));
}

/**
 * Returns when nobody holds the lock at `path`, without taking it: for those who only read and leave
 * no trace. Whoever takes it from then on is not kept from it.
 *
 * @throws DatabaseBusyError when a living process holds it, with that process's number
 */
export async function refuseHeld(path: string, guarded: string): Promise<void> {
  const node = builtins();
  let first: Sighting | undefined;
  let since = Date.now();
  for (;;) {
    const seen = look(node, path);
    if (seen === undefined) return;
    if (first === undefined || !isSame(first, seen)) {
      first = seen;
      since = Date.now();
    }
    const holder = parse(seen.content);
    const life = judge(node, holder, first, seen, since);
    if (life === "dead") return;
    if (life === "alive") throw busy(path, guarded, holder, 0);
    await pause(50);
  }
}

/** The contents of the locks that this thread holds. */
const own = new Set<string>();

/** A lock that is held. */
export class Lock {
  readonly #node = builtins();
  readonly #path: string;
  readonly #content: string;
  readonly #timer: { unref(): unknown };
  #beaten = Date.now();
  #held = true;

  /** Only for `acquireLock`: `content` lies at `path` already. */
  constructor(path: string, content: string) {
    this.#path = path;
    this.#content = content;
    own.add(content);
    const { setInterval } = this.#node.timers;
    this.#timer = setInterval(() => this.#beat(), BEAT_MS);
    this.#timer.unref();
  }

  /**
   * To be called before each change of the guarded file: costs a look at the clock, and a look at the
   * lock only when this process stood still for seconds.
   *
   * @throws an error with the code EBADF when the lock was lost in the meantime, for good
   */
  assertHeld(): void {
    if (this.#held && Date.now() - this.#beaten > STILL_MS) this.#beat();
    if (this.#held) return;
    throw Object.assign(
      new Error(
        `The lock ${this.#path} was taken over by another process while this one was suspended, ` +
          "or busy for seconds, so this one must not write any more.",
      ),
      { code: "EBADF" },
    );
  }

  /** Gives it back. Calling it twice is legal; a lock that is no longer ours stays. */
  release(): void {
    const wasHeld = this.#held;
    this.#stop();
    if (wasHeld && look(this.#node, this.#path)?.content === this.#content) {
      unlink(this.#node, this.#path);
    }
  }

  #beat(): void {
    const now = Date.now();
    try {
      // Touched before it is looked at: whoever is about to break it looks once more after that.
      this.#node.fs.lutimesSync(this.#path, now / 1000, now / 1000);
      if (look(this.#node, this.#path)?.content === this.#content) this.#beaten = now;
      else this.#stop();
    } catch (error) {
      // Gone is lost. Anything else, say a file system that hangs, is tried again at the next beat.
      if (codeOf(error) === "ENOENT") this.#stop();
    }
  }

  #stop(): void {
    this.#held = false;
    own.delete(this.#content);
    this.#node.timers.clearInterval(this.#timer as NodeJS.Timeout);
  }
}

/** Puts the lock file in place, when nobody has or a dead one had, and gives its content. */
async function acquire(path: string, guarded: string, depth: number): Promise<string> {
  const node = builtins();
  // Not the global crypto: under jsdom it is that of a page over http, which gives no such numbers.
  const token = node.process.getBuiltinModule("node:crypto").randomBytes(4).toString("hex");
  const start = Date.now();
  let first: Sighting | undefined;
  let since = start;
  for (;;) {
    const content = create(node, path, token);
    if (content !== undefined) return content;
    const seen = look(node, path);
    const holder = seen && parse(seen.content);
    if (seen !== undefined) {
      if (first === undefined || !isSame(first, seen)) {
        first = seen;
        since = Date.now();
      }
      const life = judge(node, holder, first, seen, since);
      if (life === "dead") {
        await breakLock(path, guarded, seen, depth);
        if (look(node, path) === undefined) continue;
      }
      if (life === "alive") throw busy(path, guarded, holder, depth);
    }
    if (Date.now() - start > PATIENCE_MS) throw busy(path, guarded, holder, depth);
    await pause(holder !== undefined && lifeOf(node, holder) === "unseen" ? 100 : 2);
  }
}

/** Whether the holder lives, or "unknown" for as long as only time can tell. */
function judge(
  node: Builtins,
  holder: Holder | undefined,
  first: Sighting,
  seen: Sighting,
  since: number,
): "alive" | "dead" | "unknown" {
  const now = Date.now();
  // Zeros are what a power failure can leave of a text.
  if (/^[\0\s]*$/.test(seen.content)) {
    return Math.abs(now - seen.touched) > WRITING_MS ? "dead" : "unknown";
  }
  // What another build wrote in a way of its own is respected as what cannot be seen.
  if (holder !== undefined) {
    const life = own.has(seen.content) ? "alive" : lifeOf(node, holder);
    if (life === "alive" && isNeighbour(node, holder) && now - since < ENDING_MS) return "unknown";
    if (life !== "unseen") return life;
  }
  // Its clock may not be ours: what counts is a change that was watched, or none for long enough.
  if (seen.touched !== first.touched) return "alive";
  return now - since > SILENCE_MS ? "dead" : "unknown";
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
      `The lock ${path} was left behind by programs that died one after another. When no ` +
        `program uses ${guarded}, delete all files whose names begin with the lock's.`,
    );
  }
  const node = builtins();
  const breaker = `${path}.break`;
  let content: string;
  try {
    content = await acquire(breaker, guarded, depth + 1);
  } catch (error) {
    // Somebody else is at it, which is as good.
    if (error instanceof DatabaseBusyError && depth === 0) return;
    throw error;
  }
  try {
    const now = look(node, path);
    if (now !== undefined && isSame(now, dead) && now.touched === dead.touched) unlink(node, path);
    removeDrafts(node, path);
  } finally {
    if (look(node, breaker)?.content === content) unlink(node, breaker);
  }
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
