/** `file()`: storage in files, for Node, Deno and Bun. */

import { badArgument, refuseMore, StorageUnavailableError } from "../../errors/index.js";
import { moduleAt } from "../../util/modules.js";
import { fileName, namesOf } from "../file-names.js";
import type { Storage } from "../storage.js";
import { type Builtins, builtins } from "./builtins.js";

/** The code that works on files is a separate chunk, so that browsers do not load it. */
const files = () => moduleAt<typeof import("./file.js")>("storage/node/file");

/**
 * A storage that keeps each database in one file of a folder, for Node, Deno and Bun. The folder is created
 * if it is missing. While a database is open, a lock file lies beside it: another process that opens it gets
 * `DatabaseBusyError`. The lock of a process that crashed is noticed and removed.
 *
 * With `readOnly` no lock is taken and nothing is written, not even beside the file. So it works in folders
 * without write permission, and any number of processes may read at once. It is refused while another program has
 * the database open for writing. It does not keep a later writer out: the reader goes on with what was there
 * when it opened the database, until it asks for something that was overwritten since. That throws
 * `StorageError`, and the reader has to open the database again.
 *
 * When a program or one of its threads ends, also by `process.exit` or an uncaught error, its writes are
 * committed first. Signals are left to the program: one that ends it is like a crash, unless the program
 * listens for it and calls `process.exit`.
 *
 * If the file is removed or replaced while it is open, truncated or overwritten by another program, or another process
 * takes its lock over because this one was suspended for more than eight seconds, the next flush or a check every two
 * seconds finds out: writes fail with `FileLostError`, and what is in memory can still be read and exported.
 *
 * A symbolic link to a file elsewhere is that database under another name; the lock lies beside the file that
 * it points to. A file with more than one hard link is refused with `StorageUnavailableError`, except with `readOnly`:
 * the locks of its names would not exclude each other. The same goes for a file that is mounted into several
 * containers, which cannot be noticed: mount its folder, not the file.
 *
 * Threads count like processes: only one thread can have a database open at a time. When a thread was
 * terminated, the next one can open the database at once on Linux, and after eight seconds elsewhere.
 *
 * A lock that a crash left behind is removed at once where the system can say that its process is dead: on Linux and
 * macOS, within the same boot of the machine and the same container. Everywhere else (on Windows, after a reboot, in
 * another container) it is removed when it was not renewed for eight seconds.
 *
 * In Deno, `--allow-read` and `--allow-write` for the folder are enough, and the user is not asked for more.
 * Other programs cannot be seen with these alone, so a lock that was left behind holds for eight seconds.
 *
 * ```ts
 * const db = await open("shop", { storage: file("./data") }); // ./data/shop.varve
 * ```
 *
 * @param directory a path, or a URL with the scheme "file:"; the current folder by default
 * @throws TypeError for anything else. Errors of the file system come from `open`.
 */
export function file(directory?: string | URL): Storage;
export function file(directory: string | URL = ".", ...more: unknown[]): Storage {
  refuseMore("file()", more);
  if (typeof directory !== "string" && !(directory instanceof URL)) {
    throw badArgument("A folder must be a path or a URL.", directory);
  }
  if (directory === "") throw badArgument('A folder must not be empty; "." is the current one.');
  // Resolved once, so that a later change of the current folder moves no database.
  let resolved: string | undefined;
  const folder = (): string => (resolved ??= resolve(builtins(), directory));
  const named = (name: string) => fileName(name, (inner) => `file(${inside(directory, inner)})`);
  return {
    kind: "file",
    identity(name) {
      const node = builtins();
      return realPath(node, node.path.join(folder(), named(name)));
    },
    async open(name, mode) {
      const node = builtins();
      const path = node.path.join(folder(), named(name));
      return (await files()).openAt(node, path, mode);
    },
    async destroy(name) {
      const node = builtins();
      return (await files()).destroyFile(node, node.path.join(folder(), named(name)));
    },
    async databases() {
      const [node, path] = [builtins(), folder()];
      return namesOf((await files()).listFolder(node, path));
    },
  };
}

/**
 * A storage that knows one database: the file at this path, whatever it is called. For the command
 * line, whose users name files.
 *
 * @internal
 */
export function fileAt(path: string): Storage {
  return {
    kind: "file",
    identity() {
      const node = builtins();
      return realPath(node, absolute(node, path));
    },
    async open(_name, mode) {
      const node = builtins();
      const resolved = absolute(node, path);
      return (await files()).openAt(node, resolved, mode);
    },
  };
}

/** Resolves a path. @throws StorageUnavailableError if it is relative and the current folder was deleted */
function absolute({ path: paths }: Builtins, path: string): string {
  try {
    return paths.resolve(path);
  } catch (cause) {
    throw new StorageUnavailableError(
      `The path ${path} begins in the current working directory, which was deleted or cannot be read. ` +
        "Change to another one with process.chdir(), or use file() with an absolute path.",
      { cause },
    );
  }
}

function resolve(node: Builtins, directory: string | URL): string {
  if (typeof directory === "string") return absolute(node, directory);
  if (directory.protocol !== "file:") {
    throw badArgument('The URL of a folder must have the scheme "file:".', directory.href);
  }
  return node.path.resolve(node.process.getBuiltinModule("node:url").fileURLToPath(directory));
}

/** The source text of a path for an error message: of a folder within `directory`, or of an absolute path. */
function inside(directory: string | URL, folder: string): string {
  const isAbsolute = /^([/\\]|[a-z]:)/i.test(folder);
  if (isAbsolute || directory === ".") return JSON.stringify(folder);
  return JSON.stringify(`${directory}/${folder}`.replace(/\/(\.?\/)+/g, "/"));
}

/** The path with all links resolved, as far as it exists. */
function realPath(node: Builtins, path: string): string {
  try {
    return node.fs.realpathSync.native(path);
  } catch {
    const parent = node.path.dirname(path);
    return parent === path
      ? path
      : node.path.join(realPath(node, parent), node.path.basename(path));
  }
}
