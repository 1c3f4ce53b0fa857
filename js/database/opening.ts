/** Opening a database by its name. */

import { Engine } from "../engine/engine.js";
import { Code, noMemoryToOpen } from "../engine/error-codes.js";
import { loadModule } from "../engine/load-wasm.js";
import { type BlankInstance, instantiate } from "../engine/wasm-exports.js";
import {
  badArgument,
  CorruptionError,
  DatabaseBusyError,
  DatabaseExistsError,
  DatabaseNotFoundError,
  isNoMemory,
  OptionsMismatchError,
  UnsupportedFormatError,
} from "../errors/index.js";
import {
  checkFrom,
  checkOptions,
  differences,
  type OpenOptions,
  type OpenProgress,
  type Settings,
} from "../session/options.js";
import { Session } from "../session/session.js";
import type { ImageSource } from "../storage/bytes.js";
import { fileName } from "../storage/file-names.js";
import { markOf } from "../storage/import-marker.js";
import type { OpenedStorage, Storage, StorageFile } from "../storage/storage.js";
import { moduleAt } from "../util/modules.js";
import { Database } from "./database.js";
import { defaultStorage } from "./default-storage.js";
import { type AbortReason, Entry, type Opening } from "./open-databases.js";

const importModule = () => moduleAt<typeof import("./import.js")>("database/import");

/** The default of `memory` for a database in bytes: little is needed, because its data is in memory already. */
const IMAGE_MEMORY = 4_194_304;

/**
 * As `open`, for a caller that holds a lock by which no other program of this origin opens the database: the file is
 * opened while the wasm is loaded. The caller reserves the engine's memory before it calls functions of the program.
 */
export function openLocked(name: string, options: OpenOptions): Promise<Database> {
  return openWith(loadModule, name, options, true);
}

/** As `open`, where the modules that are loaded on demand are registered already. */
export function openRegistered(name: string, options: OpenOptions): Promise<Database> {
  return openWith(loadModule, name, options);
}

/** Loads the wasm module. `given` is the option `wasm`. */
type Load = (given: OpenOptions["wasm"]) => Promise<WebAssembly.Module>;

/** The options of `open`, with the loader and the resolved source. */
interface OpenRequest extends OpenOptions {
  readonly load: Load;
  /** The value of the option `from`. */
  readonly source: Promise<ImageSource> | undefined;
  /** Whether no other program is kept from the file if it is open while the wasm is loaded. */
  readonly isLocked: boolean;
}

/** As `open`, with a given loader, so that bundles that load the wasm in another way do not include the inlined one. */
export async function openWith(
  load: Load,
  name: string,
  options: OpenOptions,
  isLocked = false,
): Promise<Database> {
  if (typeof name !== "string") throw badArgument("A database name must be a string.", name);
  checkFrom(options);
  const source = sourceOf(options);
  const named = source !== undefined && options.readOnly === true ? image(source) : options.storage;
  const settings = checkOptions({ ...options, storage: named });
  const storage = named ?? defaultStorage();
  const identity = storage.identity(name);
  const { signal } = options;
  throwIfAborted(signal);
  const found = Entry.find(identity);
  if (found !== undefined && source !== undefined) throw openAlready(name, options);
  if (found !== undefined) refuseOtherSettings(name, found.opening.settings, settings);
  const given = { ...options, load, source, isLocked };
  const entry = found ?? Entry.add(identity, begin(name, storage, settings, given));
  entry.join();
  let session: Session;
  try {
    session = await entry.opening.session;
  } catch (error) {
    // Forget the entry now and not when the last waiting call ends, so that the next open tries again.
    entry.forget();
    // If the call that was joined was aborted, this call opens the database itself.
    if (found !== undefined && entry.opening.interrupted !== undefined) {
      return openWith(load, name, options, isLocked);
    }
    throw error;
  }
  if (!isLocked) session.engine.reserve();
  const db = new Database(session, () => entry.leave(), options.onError);
  try {
    const { history } = options;
    if (history !== undefined && history !== db.history)
      throw session.engine.failure(Code.OtherHistory);
    throwIfAborted(signal);
    return db;
  } catch (reason) {
    await db.close();
    throw reason;
  }
}

function sourceOf({ from }: OpenOptions): Promise<ImageSource> | undefined {
  if (from === undefined) return undefined;
  const source = Promise.resolve(from);
  // It may reject while the engine is being loaded, before anything awaits it.
  source.catch(() => {});
  return source;
}

/** A read-only storage for a database in bytes. It serves one open, and needs no timers. */
function image(source: Promise<ImageSource>): Storage {
  return {
    kind: "image",
    memory: IMAGE_MEMORY,
    timers: false,
    identity: (name) => ({ image: fileName(name) }),
    open: async (name) => {
      const { openImage } = await moduleAt<typeof import("../storage/bytes.js")>("storage/bytes");
      return openImage(name, source);
    },
  };
}

function throwIfAborted(signal: AbortSignal | undefined): void {
  if (signal?.aborted === true) throw signal.reason;
}

function openAlready(name: string, { replace }: OpenOptions): Error {
  return replace === true
    ? new DatabaseBusyError(
        `The database "${name}" is open in this program. Close it before it is replaced.`,
      )
    : new DatabaseExistsError(
        `The database "${name}" already exists and is open in this program: from fills only new ` +
          "ones.",
      );
}

function refuseOtherSettings(name: string, given: Settings, wanted: Settings): void {
  const different = differences(given, wanted);
  if (different.length === 0) return;
  const list = different.map((option) => {
    const [a, b] = [given[option], wanted[option]];
    return `${option} is ${JSON.stringify(a)}, not ${JSON.stringify(b)}`;
  });
  throw new OptionsMismatchError(
    `The database "${name}" is already open with other options: ${list.join("; ")}. Open it ` +
      "with the same options, or close it first.",
  );
}

function begin(name: string, storage: Storage, settings: Settings, options: OpenRequest): Opening {
  let interrupted: AbortReason | undefined;
  const interrupt = (reason: unknown): never => {
    interrupted = { reason };
    throw reason;
  };
  const session = start(name, storage, settings, options, interrupt).catch((error) => {
    // The engine reports an aborted read as its own error; throw the reason instead.
    if (interrupted !== undefined) throw interrupted.reason;
    throw isNoMemory(error) ? noMemoryToOpen(name, error) : error;
  });
  return {
    settings,
    session,
    get interrupted() {
      return interrupted;
    },
  };
}

async function start(
  name: string,
  storage: Storage,
  settings: Settings,
  options: OpenRequest,
  interrupt: (reason: unknown) => never,
): Promise<Session> {
  const { onProgress, signal, source } = options;
  const { readOnly, recovery } = settings;
  const checkAbort = () => {
    if (signal?.aborted === true) interrupt(signal.reason);
  };
  const reportProgress = (progress: OpenProgress) => {
    try {
      onProgress?.(progress);
    } catch (thrown) {
      interrupt(thrown);
    }
    checkAbort();
  };
  const loading = options.load(options.wasm);
  let module: WebAssembly.Module;
  let opened: OpenedStorage;
  let blank: BlankInstance | undefined;
  if (options.isLocked) {
    // Side by side, because the platform takes as long for the one as for the other.
    const instantiating = loading.then((module) => instantiate(name, module));
    const opening = (async () => storage.open(name, { readOnly }))();
    blank = await withFile(instantiating, opening);
    [module, opened] = await Promise.all([loading, opening]);
  } else {
    // Load the wasm first: holding the file open meanwhile would only block other programs. Looking it up does not.
    const lookup = storage.lookUp?.(name);
    // What fails is reported by `open`.
    lookup?.catch(() => {});
    module = await loading;
    checkAbort();
    opened = await storage.open(name, { readOnly });
  }
  try {
    checkAbort();
    const { file, takenOver } = opened;
    if (source !== undefined && !readOnly) {
      const { importDatabase } = await importModule();
      const replace = options.replace === true;
      await importDatabase(name, opened, {
        from: source,
        replace,
        module,
        settings,
        signal,
        reportProgress,
      });
    }
    const start = (mode: OpenOptions["recovery"]) => {
      const progressFile = onProgress && progressOf("opening", file, reportProgress);
      const instance = blank;
      // Opening may fail, and is tried again in a new instance then.
      blank = undefined;
      return Engine.open(
        name,
        module,
        file,
        { ...settings, takenOver, reservesLater: options.isLocked },
        mode,
        progressFile,
        instance,
      );
    };
    // An import marker counts only if no superblock is valid. Opening without recovery finds that out, whereas
    // salvaging would make a database of a half-filled file.
    const first = recovery && markOf(file) ? undefined : recovery;
    const engine = await start(first).catch(async (error) => {
      const isNone = error instanceof UnsupportedFormatError || error instanceof CorruptionError;
      if (isNone && source === undefined && file.getSize() === 0) throw emptyFile(name);
      if (isNone && ((await completedReplace(name, opened, readOnly)) || first !== recovery)) {
        return start(recovery);
      }
      throw error;
    });
    await ignoringErrors(() => opened.removeLeftovers?.());
    if (onProgress !== undefined) engine.reportSorting(progressOf("sorting", file, onProgress));
    const strict = settings.strictViews
      ? await moduleAt<typeof import("../session/strict-views.js")>("session/strict-views")
      : undefined;
    return Session.start(name, engine, opened, settings, strict && new strict.ViewTracker(name));
  } catch (error) {
    await giveUp(opened);
    throw error;
  }
}

/** Waits for an instance and for the file that is being opened. Without the instance, the file is closed again. */
async function withFile(
  instantiating: Promise<BlankInstance>,
  opening: Promise<OpenedStorage>,
): Promise<BlankInstance> {
  const [instance, opened] = await Promise.allSettled([instantiating, opening]);
  if (instance.status === "fulfilled") return instance.value;
  if (opened.status === "fulfilled") await giveUp(opened.value);
  throw instance.reason;
}

/** Closes a file, and removes it if this opening has created it and written nothing. */
async function giveUp(opened: OpenedStorage): Promise<void> {
  await ignoringErrors(() => opened.file.getSize() === 0 && opened.discard?.());
  await ignoringErrors(() => opened.file.close());
}

function emptyFile(name: string): Error {
  return new DatabaseNotFoundError(
    `The file of the database "${name}" is empty: nothing was ever written to it, and readOnly ` +
      "writes nothing.",
  );
}

/** Completes a replacement that a crash has interrupted. Returns whether there was one. */
async function completedReplace(
  name: string,
  opened: OpenedStorage,
  readOnly: boolean,
): Promise<boolean> {
  if (markOf(opened.file) === undefined) return false;
  return (await importModule()).completeReplace(name, opened, readOnly);
}

/** Returns a listener for reads that reports them as progress. */
function progressOf(
  doing: OpenProgress["doing"],
  file: StorageFile,
  onProgress: (progress: OpenProgress) => void,
): (count: number) => void {
  let bytes = 0;
  let total = 0;
  return (count) => {
    if (bytes === 0) total = file.getSize();
    // Limit the sum, because some parts are read twice.
    bytes = Math.min(bytes + count, total);
    onProgress({ doing, bytes, total });
  };
}

/** Runs a cleanup task and ignores its errors, because the error that caused the cleanup matters more. */
async function ignoringErrors(task: () => unknown): Promise<void> {
  try {
    await task();
  } catch {
    // The file is closed, or its storage is gone.
  }
}
