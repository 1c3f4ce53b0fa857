/**
 * The lock as a file: it is created with its whole content, read, and moved away, each in one step. What a lock means
 * is decided in `lock-file.ts`.
 */

import { ioCode } from "../storage.js";
import type { Builtins } from "./builtins.js";
import { fromText, hostNameOf, type ProcessIdentity, self, toText } from "./process-identity.js";

/**
 * The content of a lock: a token of eight letters, new for each lock, the identity of the holder, and, unless the
 * lock is a symbolic link, the name of its host.
 */
export interface Holder extends ProcessIdentity {
  name: string | undefined;
}

/** A lock file as it was read at one time. */
export interface LockSnapshot {
  content: string;
  inode: number;
  /** The time stamp, in milliseconds. It is only compared with earlier ones of the same lock. */
  mtimeMs: number;
}

/** Removes a lock if it is unchanged. A heartbeat in the last moment shows in the lock after it was moved. */
export function moveAway(
  node: Builtins,
  path: string,
  stale: LockSnapshot,
  token: string,
): boolean {
  const { fs } = node;
  const isUnchanged = (seen: LockSnapshot | undefined) =>
    seen !== undefined && isSame(seen, stale) && seen.mtimeMs === stale.mtimeMs;
  if (!isUnchanged(readLock(node, path))) return false;
  const moved = `${path}.${token}`;
  try {
    fs.renameSync(path, moved);
  } catch (error) {
    if (codeOf(error) === "ENOENT") return false;
    throw error;
  }
  if (!isUnchanged(readLock(node, moved))) {
    fs.renameSync(moved, path);
    return false;
  }
  unlink(node, moved);
  return true;
}

/** Removes drafts that were never linked, because their process crashed a minute ago or more. */
export function removeDrafts(node: Builtins, path: string): void {
  const { fs, path: paths } = node;
  const start = `${paths.basename(path)}.`;
  for (const name of fs.readdirSync(paths.dirname(path))) {
    if (!name.startsWith(start) || !/^[0-9a-f]{8}$/.test(name.slice(start.length))) continue;
    const draft = paths.join(paths.dirname(path), name);
    const age = Date.now() - (readLock(node, draft)?.mtimeMs ?? Date.now());
    if (age > 60_000) unlink(node, draft);
  }
}

/** Creates the lock with its whole content at once and returns the content; `undefined` if a lock exists. */
export function createLock(node: Builtins, path: string, token: string): string | undefined {
  const { fs } = node;
  const identity = `${token} ${toText(self(node))}`;
  const content = `${identity} ${hostNameOf(node) ?? ""}\n`;
  const draft = `${path}.${token}`;
  try {
    fs.writeFileSync(draft, content, { flag: "wx" });
    // A file system without links (exFAT, some network shares): creation is not atomic, see WRITE_TIMEOUT_MS.
    const isPlaced = link(node, draft, path) ?? createInPlace(node, path, content);
    return isPlaced ? content : undefined;
  } catch (error) {
    if (ioCode(error) !== -2) throw error;
    return createAsLink(node, path, identity, error);
  } finally {
    removeDraft(node, draft);
  }
}

/** Removes a draft, if there is one. Errors are ignored. */
function removeDraft({ fs }: Builtins, draft: string): void {
  try {
    fs.unlinkSync(draft);
  } catch {
    // The draft was never created, or is removed when the next lock is broken.
  }
}

/** Links a file. Returns `false` if the target exists, `undefined` if this file system has no links. */
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

/** Creates the lock as a symbolic link on a full disk. If that fails too, throws the error of the full disk. */
function createAsLink(
  { fs }: Builtins,
  path: string,
  identity: string,
  full: unknown,
): string | undefined {
  try {
    fs.symlinkSync(identity, path);
    return identity;
  } catch (error) {
    if (codeOf(error) === "EEXIST") return undefined;
    throw full;
  }
}

export function readLock({ fs }: Builtins, path: string): LockSnapshot | undefined {
  try {
    const target = targetOf(fs, path);
    if (target !== undefined) {
      const { ino, mtimeMs } = fs.lstatSync(path);
      return { content: target, inode: ino, mtimeMs };
    }
    const fd = fs.openSync(path, "r");
    try {
      const { ino, mtimeMs } = fs.fstatSync(fd);
      return { content: fs.readFileSync(fd, "utf8"), inode: ino, mtimeMs };
    } finally {
      fs.closeSync(fd);
    }
  } catch (error) {
    if (codeOf(error) === "ENOENT") return undefined;
    throw error;
  }
}

/** The target of a symbolic link; `undefined` for anything else. */
function targetOf(fs: Builtins["fs"], path: string): string | undefined {
  try {
    return fs.readlinkSync(path);
  } catch (error) {
    // Node on Windows reports UNKNOWN for some files.
    if (codeOf(error) === "ENOENT") throw error;
    return undefined;
  }
}

export function isSame(a: LockSnapshot, b: LockSnapshot): boolean {
  return a.content === b.content && a.inode === b.inode;
}

export function unlink({ fs }: Builtins, path: string): void {
  try {
    fs.unlinkSync(path);
  } catch (error) {
    if (codeOf(error) !== "ENOENT") throw error;
  }
}

/** Parses the content of a lock; `undefined` if it is not in the format of this version. */
export function holderOf(content: string): Holder | undefined {
  const [, identity, name] = /^[0-9a-f]{8} (\S+(?: \S+){5})(?: (.*)\n)?$/.exec(content) ?? [];
  const holder = fromText(identity ?? "");
  return holder && { ...holder, name: name || undefined };
}

export function codeOf(error: unknown): unknown {
  return (error as { code?: unknown } | null)?.code;
}
