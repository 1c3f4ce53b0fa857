/** Whether the file that a lock guards is still the one at its path, with the size that its program knows. */

import type { FileLostError } from "../../errors/index.js";
import type { Builtins } from "./builtins.js";

/** An open file that a lock guards, and what its program last knew of it. */
export interface GuardedFile {
  readonly fd: number;
  /** The size that it must have; `undefined` if that is uncertain. */
  size(): number | undefined;
  /** Reads its first bytes. Returns whether they are those that were written last, as far as that is known. */
  isHeadSame(): boolean;
}

/** What the system says of a file. */
interface FileStatus {
  readonly dev: bigint;
  readonly ino: bigint;
  readonly size: bigint;
}

/** Identifies a file for as long as it is open. */
export interface FileIdentity extends GuardedFile {
  /** `undefined` where inode numbers are useless, because path and open file give different ones. */
  readonly numbers: string | undefined;
}

export function identityOf({ fs }: Builtins, opened: GuardedFile, path: string): FileIdentity {
  const numbers = numbersOf(fs.fstatSync(opened.fd, { bigint: true }));
  const atPath = fs.statSync(path, { bigint: true, throwIfNoEntry: false });
  const isUseless = atPath !== undefined && numbersOf(atPath) !== numbers;
  return { ...opened, numbers: isUseless ? undefined : numbers };
}

function numbersOf({ dev, ino }: { dev: bigint; ino: bigint }): string {
  return `${dev} ${ino}`;
}

/** How an open file was lost, according to what is at its path: `undefined` if it was not. */
export function lossOf(
  { fs }: Builtins,
  { fd, numbers }: FileIdentity,
  atPath: FileStatus | undefined,
): FileLostError["reason"] | undefined {
  if (atPath === undefined) return "removed";
  const isOther =
    numbers === undefined ? fs.fstatSync(fd).nlink === 0 : numbersOf(atPath) !== numbers;
  return isOther ? "replaced" : undefined;
}

/** Whether the file has the size that its program knows. Also if that is uncertain, or the file is lost. */
export function hasSize(
  { fs }: Builtins,
  { fd, size }: FileIdentity,
  atPath: FileStatus | undefined,
): boolean {
  const known = size();
  if (atPath === undefined || known === undefined || Number(atPath.size) === known) return true;
  // A network file system may know an earlier size of the path. That of the open file counts.
  return fs.fstatSync(fd).size === known;
}

export function lossText(path: string, reason: FileLostError["reason"]): string {
  const what = {
    removed: `The database file ${path} was removed or moved away while this program had it open`,
    replaced:
      `Another file was put in the place of ${path}, or another program truncated or overwrote it, while this ` +
      "program had it open",
    "taken-over":
      `The lock of ${path} was removed, or taken over by another process while this one was suspended ` +
      "or busy for seconds",
  }[reason];
  return (
    `${what}, so nothing more can be written to it. Reads still work: save what is needed, say with ` +
    "export(), then close the database and open it again."
  );
}
