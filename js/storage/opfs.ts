/** Storage in the browser's origin private file system. */

import {
  badArgument,
  DatabaseBusyError,
  QuotaExceededError,
  StorageUnavailableError,
  type VarveError,
} from "../errors.js";
import { ioCode, type OpenedStorage, type Storage, type StorageFile } from "./contract.js";
import { escapeName, fileName } from "./names.js";

/** What dedicated workers have and the library of types for pages does not know. */
interface SyncFileHandle extends FileSystemFileHandle {
  createSyncAccessHandle(): Promise<StorageFile>;
}

/**
 * How long to wait for a file that is still held. After a reload the browser takes a moment to end
 * the old page's workers; anyone who holds it longer means to.
 */
const RETRIES_MS = [50, 100, 200];

/**
 * A storage in the origin private file system, for dedicated workers: only they have synchronous
 * file access. One worker at a time may have a database open; another gets `DatabaseBusyError`.
 *
 * ```ts
 * const db = await open("shop", { storage: opfs("stores/eu") });
 * ```
 *
 * @param directory folders inside the origin's own, separated by "/"; the topmost when left out
 * @throws TypeError for a folder that is none. What the browser refuses comes from `open`.
 */
export function opfs(directory = ""): Storage {
  const folders = parseFolders(directory);
  return {
    kind: "opfs",
    identity: (name) => ["opfs:", ...folders, fileName(name)].join("/"),
    async open(name) {
      const wanted = fileName(name);
      requireSyncAccess();
      const handle = await findFile(folders, wanted, name);
      return openHandle(handle, name);
    },
  };
}

/** Whether this realm has synchronous file access: in dedicated workers of secure origins. */
export function hasOpfs(): boolean {
  return (
    typeof FileSystemFileHandle !== "undefined" &&
    "createSyncAccessHandle" in FileSystemFileHandle.prototype &&
    typeof globalThis.navigator?.storage?.getDirectory === "function"
  );
}

/**
 * Why there is no synchronous file access in this realm and what to do about it.
 *
 * @throws StorageUnavailableError unless `hasOpfs()`
 */
export function requireSyncAccess(): void {
  if (hasOpfs()) return;
  const advice = (): string => {
    if (typeof document !== "undefined") {
      return (
        "A page's main thread has no synchronous files. Use connect(), which runs the database in a " +
        "worker and answers with promises, or call open() inside a dedicated worker."
      );
    }
    if (globalThis.isSecureContext === false) {
      return "Browsers give storage to secure origins only: serve the page over https or from localhost.";
    }
    if ("SharedWorkerGlobalScope" in globalThis || "ServiceWorkerGlobalScope" in globalThis) {
      return (
        "Shared and service workers have no synchronous files. Use connect(), or call open() inside " +
        "a dedicated worker."
      );
    }
    return (
      "This runtime has no origin private file system with synchronous handles (browsers have it " +
      "since Chrome 102, Firefox 111 and Safari 15.2). In Node, Deno and Bun use file()."
    );
  };
  throw new StorageUnavailableError(advice());
}

async function findFile(
  folders: readonly string[],
  wanted: string,
  name: string,
): Promise<SyncFileHandle> {
  try {
    let folder = await navigator.storage.getDirectory();
    for (const part of folders) folder = await folder.getDirectoryHandle(part, { create: true });
    return (await folder.getFileHandle(wanted, { create: true })) as SyncFileHandle;
  } catch (cause) {
    throw unavailable(name, cause);
  }
}

async function openHandle(handle: SyncFileHandle, name: string): Promise<OpenedStorage> {
  for (let attempt = 0; ; attempt += 1) {
    try {
      return { file: await handle.createSyncAccessHandle() };
    } catch (cause) {
      if ((cause as { name?: unknown }).name !== "NoModificationAllowedError") {
        throw unavailable(name, cause);
      }
      const wait = RETRIES_MS[attempt];
      if (wait === undefined) {
        throw new DatabaseBusyError(
          `The database "${name}" is open in another worker or tab. Only one may have it open: ` +
            "close it there, or share one owner among all tabs with connect().",
          { cause },
        );
      }
      await new Promise((resolve) => setTimeout(resolve, wait));
    }
  }
}

function unavailable(name: string, cause: unknown): VarveError {
  if (ioCode(cause) === -2) {
    return new QuotaExceededError(
      `There is no room left for the database "${name}" in this origin's share of the disk.`,
      { cause },
    );
  }
  const kind = (cause as { name?: unknown } | null)?.name;
  const reason = cause instanceof Error ? cause.message : String(cause);
  const advice: Record<string, string> = {
    SecurityError:
      "The browser refuses storage here: private windows of some browsers, blocked cookies and " +
      "sandboxed or third-party frames have none. Allow it, or use memory() for data that may vanish.",
    TypeMismatchError: "There is a folder of that name in its place. Choose another name.",
    UnknownError: "Some browsers say no more than this in private windows, which have no storage.",
  };
  return new StorageUnavailableError(
    `The database "${name}" cannot be opened in the origin private file system (${reason}). ` +
      (advice[String(kind)] ??
        "Try again; if it persists, the browser's storage is in need of repair."),
    { cause },
  );
}

function parseFolders(directory: string): string[] {
  if (typeof directory !== "string") {
    throw badArgument('A folder has to be a string such as "stores/eu".', directory);
  }
  if (directory === "") return [];
  const parts = directory.split("/");
  if (parts.some((part) => part === "" || part === "." || part === "..")) {
    throw badArgument(
      'A folder is a list of names separated by "/", without "." and "..".',
      directory,
    );
  }
  return parts.map((part) => escapeName(part, "folder name"));
}
