/** Storage in the browser's origin private file system. */

import {
  badArgument,
  DatabaseBusyError,
  DatabaseNotFoundError,
  QuotaExceededError,
  refuseMore,
  StorageUnavailableError,
  VarveError,
} from "../errors/index.js";
import { setTimeout } from "../util/clock.js";
import { escapeName, fileName, namesOf, SHADOW_SUFFIX } from "./file-names.js";
import { OpfsFile } from "./opfs-file.js";
import { isFull, OriginQuota, persistOrigin, reasonOf } from "./quota.js";
import { ioCode, type ReplacementFile, type Storage, type StorageFile } from "./storage.js";

/** The handle of dedicated workers, which TypeScript's types for pages lack. */
interface SyncFileHandle extends FileSystemFileHandle {
  createSyncAccessHandle(options?: {
    mode: "readwrite" | "read-only" | "readwrite-unsafe";
  }): Promise<StorageFile>;
}

/** The storage that exists everywhere. Errors recommend it; it is never used unasked. */
const CHOICE = "For temporary data, use memory().";

const REFUSED =
  "The browser denies storage here: private windows of some browsers, blocked cookies and " +
  `sandboxed or third-party frames have none. Allow it. ${CHOICE}`;

/** Advice by the name of the browser's error. */
const ADVICE: Readonly<Record<string, string>> = {
  SecurityError: REFUSED,
  NotAllowedError: REFUSED,
  TypeMismatchError: "There is a folder of that name. Choose another name.",
  UnknownError: `Some browsers report only this in private windows, which have no storage, or on a full disk. ${CHOICE}`,
};

const UNKNOWN = `Try again; if it persists, the browser's storage needs repair. ${CHOICE}`;

/**
 * Pauses between attempts to open a file that is locked. After a reload the browser takes a moment to end the old
 * page's workers. A lock that is held longer belongs to a worker that uses the file.
 */
const RETRIES_MS = [50, 100, 200];

/**
 * A storage in the browser's origin private file system (OPFS). It works in dedicated workers, since only
 * they have synchronous file access. One worker at a time can have a database open; another gets
 * `DatabaseBusyError`. With `readOnly` several can have it open if the browser supports it (Chrome 121 or
 * newer); no worker can write while one reads.
 *
 * If the browser removes the file while it is open, as it does when the user clears the site's data, a check after each
 * flush finds out: within about a second of the next write, writes fail with `FileLostError`, and what is in memory can
 * still be read and exported. Writes before that are acknowledged. The promises `flushed` and `close` wait for the
 * check; `flush()` and `commit()` cannot.
 *
 * ```ts
 * const db = await open("shop", { storage: opfs("stores/eu") });
 * ```
 *
 * @param directory folders inside the origin's own folder, separated by "/"; the topmost one by default
 * @throws TypeError for a bad folder. What the browser refuses comes from `open`.
 */
export function opfs(directory?: string): Storage;
export function opfs(directory = "", ...more: unknown[]): Storage {
  refuseMore("opfs()", more);
  const folders = parseFolders(directory);
  const named = (name: string) => fileName(name, (inner) => `opfs(${inside(directory, inner)})`);
  const lookups = new Map<string, Promise<SyncFileHandle>>();
  return {
    kind: "opfs",
    identity: (name) => ["opfs:", ...folders, named(name)].join("/"),
    async lookUp(name) {
      const wanted = named(name);
      if (!hasOpfs()) return;
      const folder = findFolder(folders, false);
      const lookup = folder.then(
        (folder) => folder.getFileHandle(wanted) as Promise<SyncFileHandle>,
      );
      // What fails is looked up again, and reported then.
      lookup.catch(() => {});
      lookups.set(wanted, lookup);
      await folder.catch(() => {});
    },
    async open(name, mode) {
      const wanted = named(name);
      requireSyncAccess();
      const readOnly = mode?.readOnly === true;
      const lookup = lookups.get(wanted);
      lookups.delete(wanted);
      const { handle, entry, isNew } = await openFile(folders, wanted, name, readOnly, lookup);
      // After opening the file: where storage is denied, Firefox ends a worker that asks for the quota.
      const originQuota = new OriginQuota();
      originQuota.latest();
      const file = new OpfsFile(name, entry, handle);
      return {
        file,
        estimate: () => originQuota.latest(),
        sync: () => file.isThere(),
        onLoss(listener) {
          file.onLoss = listener;
          // The listener is dropped with the file.
          return () => {};
        },
        openReplacement: () => openReplacement(folders, wanted, name),
        // Not awaited: usually there is nothing, and finding that out may take as long as opening the file.
        removeLeftovers: () => file.closeAfter(remove(folders, wanted + SHADOW_SUFFIX, name)),
        async discard() {
          const folder = await findFolder(folders, false);
          file.close();
          // Without a pause in between, in which another worker could open the file and write to it.
          if (isNew) await folder.removeEntry(wanted);
        },
      };
    },
    async snapshot(name) {
      const wanted = named(name);
      requireFolders();
      return existing(async () => {
        const folder = await findFolder(folders, false);
        return (await folder.getFileHandle(wanted)).getFile();
      }, `database "${name}" cannot be read`);
    },
    async destroy(name) {
      const wanted = named(name);
      requireFolders();
      const task = `database "${name}" cannot be removed`;
      const folder = await existing(() => findFolder(folders, false), task);
      const there = await existing(async () => folder?.getFileHandle(wanted), task);
      if (folder === undefined || there === undefined) return false;
      await withRetries(name, task, () => folder.removeEntry(wanted).catch(unlessMissing));
      await existing(() => folder.removeEntry(wanted + SHADOW_SUFFIX), task);
      return true;
    },
    async persist() {
      requireFolders();
      return persistOrigin();
    },
    async databases() {
      requireFolders();
      const folder = await existing(() => findFolder(folders, false), "databases cannot be listed");
      const files: string[] = [];
      if (folder === undefined) return files;
      for await (const entry of folder.values()) {
        if (entry.kind === "file") files.push(entry.name);
      }
      return namesOf(files);
    },
  };
}

/** Opens the shadow file. It has no `takeOver`, because browsers cannot replace one file by another in one step. */
async function openReplacement(
  folders: readonly string[],
  wanted: string,
  name: string,
): Promise<ReplacementFile> {
  const next = wanted + SHADOW_SUFFIX;
  const { handle: file } = await openFile(folders, next, name, false);
  return {
    file,
    remove() {
      file.close();
      return remove(folders, next, name);
    },
  };
}

/** Removes a file, if it is there. */
async function remove(folders: readonly string[], wanted: string, name: string): Promise<void> {
  await existing(async () => {
    const folder = await findFolder(folders, false);
    // Usually there is no file. Chromium finds that out faster here than in removeEntry.
    await folder.getFileHandle(wanted);
    await folder.removeEntry(wanted);
  }, `database "${name}" cannot be cleaned up`);
}

/** Whether this realm can list and remove files. Pages can, although they have no synchronous access. */
export function hasFolders(): boolean {
  return typeof globalThis.navigator?.storage?.getDirectory === "function";
}

function requireFolders(): void {
  if (!hasFolders()) throw absent(globalThis.isSecureContext === false ? INSECURE : MISSING);
}

async function findFolder(
  folders: readonly string[],
  create: boolean,
): Promise<FileSystemDirectoryHandle> {
  let folder = await navigator.storage.getDirectory();
  for (const part of folders) folder = await folder.getDirectoryHandle(part, { create });
  return folder;
}

/** The result of a lookup, or `undefined` if there is no such file. */
async function existing<T>(find: () => Promise<T>, task: string): Promise<T | undefined> {
  try {
    return await find();
  } catch (cause) {
    if ((cause as { name?: unknown }).name === "NotFoundError") return undefined;
    throw unavailable(task, cause);
  }
}

/** Whether this realm has synchronous file access: in dedicated workers of secure origins. */
export function hasOpfs(): boolean {
  return (
    typeof FileSystemFileHandle !== "undefined" &&
    "createSyncAccessHandle" in FileSystemFileHandle.prototype &&
    hasFolders()
  );
}

/**
 * Why there is no synchronous file access in this realm and what to do about it.
 *
 * @throws StorageUnavailableError unless `hasOpfs()`
 */
export function requireSyncAccess(): void {
  if (hasOpfs()) return;
  if (globalThis.isSecureContext === false) throw absent(INSECURE);
  if (typeof document !== "undefined") throw absent(ON_A_PAGE);
  if ("SharedWorkerGlobalScope" in globalThis || "ServiceWorkerGlobalScope" in globalThis) {
    throw absent(IN_SHARED_WORKERS);
  }
  throw absent(MISSING);
}

const INSECURE =
  "Browsers give storage only to secure origins: serve the page over https or from localhost.";

const ON_A_PAGE =
  "A page's main thread has no synchronous files. Use connect(), which runs the database in a worker " +
  "and answers with promises, or call open() inside a dedicated worker.";

const IN_SHARED_WORKERS =
  "Shared and service workers have no synchronous files. Use connect(), or call open() inside a " +
  "dedicated worker.";

const MISSING =
  "This runtime has no origin private file system with synchronous handles (browsers have it since " +
  "Chrome 102, Firefox 113 and Safari 16.4). In Node, Deno and Bun use file().";

function absent(why: string): StorageUnavailableError {
  return new StorageUnavailableError(`${why} ${CHOICE}`);
}

/** Opens a file, and creates it if needed. `isNew` says whether this call created it. */
async function openFile(
  folders: readonly string[],
  wanted: string,
  name: string,
  readOnly: boolean,
  lookup?: Promise<SyncFileHandle>,
): Promise<{ handle: StorageFile; entry: FileSystemFileHandle; isNew: boolean }> {
  let isNew = false;
  let known = await lookup?.catch(() => undefined);
  // Browsers without this mode ignore it and open the file exclusively.
  const access = (entry: SyncFileHandle) =>
    readOnly ? entry.createSyncAccessHandle({ mode: "read-only" }) : entry.createSyncAccessHandle();
  const task = `database "${name}" cannot be opened`;
  return withRetries(name, task, async () => {
    if (known !== undefined) {
      const entry = known;
      known = undefined;
      try {
        return { handle: await access(entry), entry, isNew };
      } catch {
        // Perhaps the file was removed after it was looked up: it is looked up again.
      }
    }
    const found = await existing(() => findFile(folders, wanted, false), task);
    if (found === undefined && readOnly) throw missing(name);
    isNew ||= found === undefined;
    const entry = found ?? (await findFile(folders, wanted, true));
    return { handle: await access(entry), entry, isNew };
  });
}

async function findFile(
  folders: readonly string[],
  wanted: string,
  create: boolean,
): Promise<SyncFileHandle> {
  const folder = await findFolder(folders, create);
  return (await folder.getFileHandle(wanted, { create })) as SyncFileHandle;
}

function missing(name: string): Error {
  return new DatabaseNotFoundError(
    `There is no database "${name}" in the origin private file system, and readOnly creates none.`,
  );
}

/** Ignores that another worker has removed the file meanwhile. */
function unlessMissing(cause: unknown): void {
  if ((cause as { name?: unknown }).name !== "NotFoundError") throw cause;
}

/** How often other workers may remove the file while this one tries to open it. */
const MAX_MISSED = 20;

/** Retries a task that needs exclusive access, for as long as the last owner may take to end. */
async function withRetries<T>(name: string, task: string, attempt: () => Promise<T>): Promise<T> {
  let missed = 0;
  for (let tries = 0; ; ) {
    try {
      return await attempt();
    } catch (cause) {
      if (cause instanceof VarveError) throw cause;
      const { name: kind } = cause as Error;
      if (kind === "NotFoundError" && missed < MAX_MISSED) {
        missed += 1;
        continue;
      }
      if (kind === "UnknownError" && (await isFull())) throw full(task, cause);
      if (kind !== "NoModificationAllowedError") throw unavailable(task, cause);
      const wait = RETRIES_MS[tries];
      tries += 1;
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

function full(task: string, cause: unknown): QuotaExceededError {
  return new QuotaExceededError(`The ${task}: this origin's share of the disk is full.`, { cause });
}

function unavailable(task: string, cause: unknown): VarveError {
  if (ioCode(cause) === -2) return full(task, cause);
  const kind = String((cause as { name?: unknown } | null)?.name);
  return new StorageUnavailableError(
    `The ${task} in the origin private file system (${reasonOf(cause)}). ${ADVICE[kind] ?? UNKNOWN}`,
    { cause },
  );
}

/** The path of a folder within this one, as a string literal for messages. */
function inside(directory: string, folder: string): string {
  const parts = `${directory}/${folder}`.split(/[/\\]/);
  return JSON.stringify(parts.filter((part) => !/^\.{0,2}$/.test(part)).join("/"));
}

function parseFolders(directory: string): string[] {
  if (typeof directory !== "string") {
    throw badArgument('A folder must be a string such as "stores/eu".', directory);
  }
  if (directory === "") return [];
  const parts = directory.split("/");
  if (parts.some((part) => part === "" || part === "." || part === "..")) {
    throw badArgument('A folder must be names separated by "/", without "." and "..".', directory);
  }
  return parts.map((part) => escapeName(part, "folder name"));
}
