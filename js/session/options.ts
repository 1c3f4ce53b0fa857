/** The options of `open`, checked and completed. */

import type { WasmSource } from "../engine/load-wasm.js";
import type { History } from "../engine/reports.js";
import { badArgument, describe } from "../errors/index.js";
import type { ImageSource } from "../storage/bytes.js";
import type { Storage } from "../storage/storage.js";

/**
 * When writes are committed to the file. The writes of one synchronous turn are one commit; it is made earlier at
 * 256 KiB, or by `db.commit()`.
 *
 * - `"buffered"`: written to the file within 5 ms
 * - `"written"`: written to the file when the turn ends; a crash of the tab or browser after that loses
 *   nothing
 * - `"flushed"`: written to the file when the turn ends, and flushed; a power loss after that loses nothing
 */
export type Durability = "buffered" | "written" | "flushed";

/** The options of `open`. All are optional. */
export interface OpenOptions {
  /**
   * Where the database is kept: `opfs()`, `file()`, `memory()` or `durableObject()`. By default it is the
   * origin private file system in browser workers, and the current folder in Node, Deno and Bun.
   */
  storage?: Storage | undefined;
  /**
   * The bytes of a database, from `db.export()` or from a database file: an `ArrayBuffer`, a view of one, a
   * `Response`, a stream or a `Blob`, or a promise of one.
   *
   * A new database is filled with them. There must be no database of that name yet, unless `replace` is set.
   * The bytes are stored as they arrive, and all of them are verified as by `db.verify()` before they count.
   * If that fails, or `signal` aborts it, what was there before is unchanged. If the program crashes meanwhile,
   * what it leaves behind is never taken for a database: `open` throws `DatabaseNotFoundError` until it is
   * given `from` again or the name is destroyed.
   *
   * With `readOnly: true` the database is opened from the bytes themselves and needs no storage. They are
   * copied once, into the engine's memory, and are yours again when `open` resolves. `memory` comes on top of
   * them, and is 4 MiB by default.
   *
   * ```ts
   * const db = await open("shop", { from: fetch("/shop.varve") });
   * ```
   */
  from?: ImageSource | PromiseLike<ImageSource> | undefined;
  /**
   * Whether `from` may replace an existing database with all that is in it. The old database stays as it is
   * until the new one is complete and verified beside it, so there must be space for both. Then one step
   * switches from the old to the new: a program that crashes at any moment leaves one or the other. `false` by
   * default.
   */
  replace?: boolean | undefined;
  /** When writes reach the file. `"written"` by default. */
  durability?: Durability | undefined;
  /**
   * Bytes of memory for values between turns: a whole number from 1 MiB to 2 GiB, 64 MiB by default (4 MiB in
   * Durable Objects). Less than 4 MiB counts as 4 MiB. The database itself may be many times larger: cold
   * values are read from the file and kept among those read recently. A turn whose views hold more may use
   * twice as much until it ends, and as much again for values above half a MiB. Values that an open
   * transaction wrote come on top.
   */
  memory?: number | undefined;
  /**
   * How large the file may become, as a multiple of the live data: from 1.2 to 3, 1.5 by default. A smaller
   * factor costs more work for the same writes. Four segments of 1 MiB and two copies of the index, with the
   * order of keys, come on top.
   *
   * This holds for values of any size. Below 1.5, however, some values count together with the space that
   * they leave unused in their segments: values that do not fill a segment in any whole number (two of
   * 360,000 bytes leave a third of it), and a value above half a MiB that was written with another factor.
   */
  spaceFactor?: number | undefined;
  /**
   * Whether a database that is created keeps its history. With `"keep"`, nothing that was replaced or deleted is dropped,
   * so that `at` shows any past commit and `undo` takes one back; the file grows with every write, and `pack` forgets
   * what is too old. `"none"` by default: compaction drops what no current data needs. It is fixed when the database is
   * created: a later `open` without the option keeps it, and one that gives another value throws `OptionsMismatchError`.
   */
  history?: History | undefined;
  /**
   * Whether keys are kept in order, which ranges need. `true` by default. Without order, new keys are written somewhat
   * faster, and the file is smaller.
   */
  ordered?: boolean | undefined;
  /**
   * For development: finds views that are kept too long. All views are detached whenever your code yields,
   * and those of an iteration at its next step. Writes through a view from `get` are reported, and an update throws if
   * it assigns to a name that is no field of its record. Each view has bytes of its own; without this option,
   * `structuredClone(view)` and `postMessage(view)` send all of the database's memory, other records among it.
   * Slower. `false` by default.
   */
  strictViews?: boolean | undefined;
  /**
   * Called with the error of every commit or flush that failed. If no call was running that could throw the
   * error, the next call throws it. `committed` and `flushed` reject with it.
   */
  onError?: ((error: Error) => void) | undefined;
  /**
   * The engine's wasm, for places where the inlined one cannot be compiled: a module, bytes, a response, or a
   * promise of one of them.
   */
  wasm?: WasmSource | PromiseLike<WasmSource> | undefined;
  /**
   * Opens the database for reading only. Writes throw `ReadOnlyError`, a missing database is an error and is
   * not created, and the file stays the same byte for byte. What a crash left unfinished at the end of the
   * file is ignored, not repaired. A reader takes no lock, so a writer may come later: reading what it has overwritten
   * throws a `StorageError`, and the database has to be opened again. `false` by default.
   */
  readOnly?: boolean | undefined;
  /**
   * What to do if flushed data is damaged. Without this option, `open` throws `CorruptionError`, which says
   * what is intact, and changes nothing. Copy the file away first.
   *
   * - `"prefix"`: keeps exactly the commits before the damage and gives up all later ones
   * - `"salvage"`: keeps everything that is intact. Keys that lost writes may have changed or deleted are
   *   marked (`getEntry(key).uncertain`) until they are set again. Keys of which nothing is left are absent.
   *
   * `db.recovery.lost` says what was lost. What is kept is written to new space in the same file, which takes
   * as much space again while it lasts. It replaces the old data only when it is complete, so a crash loses
   * nothing. With `readOnly` nothing is written. An undamaged database opens as it does without this option,
   * but `"salvage"` reads all of it to be sure.
   */
  recovery?: "prefix" | "salvage" | undefined;
  /**
   * Called now and then with the progress of opening, since a large log takes time to read. If it throws,
   * opening ends and `open` rejects with that error. It is not called if this call joins an opening that is
   * already under way.
   *
   * A range sorts the keys, and reads records for that, if their order is not in the file yet. It is called then, too,
   * from within that call; if it throws, that range ends and throws the same error, and the next range starts again.
   */
  onProgress?: ((progress: OpenProgress) => void) | undefined;
  /**
   * Aborts the opening: `open` rejects with the signal's reason, and the file is as it was. Nothing else runs
   * while the engine itself works, so only `onProgress` can abort it then. The signal has no effect once the
   * database is open.
   */
  signal?: AbortSignal | undefined;
}

/**
 * The progress of opening, or of sorting the keys for the first range. With `from`, filling and verifying
 * come first.
 */
export interface OpenProgress {
  /**
   * What is being done: `"filling"` stores the bytes of `from`, `"verifying"` checks them, `"opening"` reads
   * the file, `"sorting"` sorts the keys for the first range.
   */
  readonly doing: "filling" | "verifying" | "opening" | "sorting";
  /** Bytes of the file read so far. With `from`, bytes that have arrived. */
  readonly bytes: number;
  /**
   * Bytes of the file; not all of them have to be read. With `from`, the number that the source announces, or
   * the bytes that have arrived if it announces none.
   */
  readonly total: number;
}

/** The options of `compact`. */
export interface CompactOptions {
  /** Called after each slice with the size of the file and of the live data in it. */
  onProgress?: ((progress: CompactProgress) => void) | undefined;
  /** Aborts the compaction. What was done until then stays done. */
  signal?: AbortSignal | undefined;
}

/** The progress of a compaction. */
export interface CompactProgress {
  /** Size of the file, in bytes. */
  readonly fileBytes: number;
  /** Bytes of the current records. */
  readonly liveBytes: number;
}

/** The options of `verify`. */
export interface VerifyOptions {
  /** Called after each slice with the progress so far. */
  onProgress?: ((progress: VerifyProgress) => void) | undefined;
  /** Aborts the verification. */
  signal?: AbortSignal | undefined;
}

/** The progress of a verification. */
export interface VerifyProgress {
  /** Bytes verified so far. */
  readonly bytes: number;
  /** Size of the file, in bytes. Unused space does not have to be read. */
  readonly total: number;
}

/** The options of `export`. */
export interface ExportOptions {
  /** Called now and then with the progress of the copy. If it throws, the export ends. */
  onProgress?: ((progress: ExportProgress) => void) | undefined;
  /** Aborts the export. */
  signal?: AbortSignal | undefined;
}

/** The progress of the copy that an export makes. */
export interface ExportProgress {
  /** Bytes of keys and values copied so far. */
  readonly bytes: number;
  /**
   * Bytes of the current records, which is a little more than all their keys and values. At the end it equals
   * `bytes`.
   */
  readonly total: number;
}

/** The settings in which two opens of one database have to agree. */
export interface Settings {
  durability: Durability;
  memory: number;
  spaceFactor: number;
  ordered: boolean;
  strictViews: boolean;
  readOnly: boolean;
  /** Compared only if the second open sets it. */
  recovery: OpenOptions["recovery"];
  /** For a new database, what it is to be; opening an existing one fails if it differs. `undefined`: either. */
  history: History | undefined;
  /** Whether work may be done later than at the end of a turn. The storage decides this. */
  timers: boolean;
}

const KNOWN = [
  "storage",
  "from",
  "replace",
  "durability",
  "memory",
  "spaceFactor",
  "history",
  "ordered",
  "strictViews",
  "onError",
  "wasm",
  "readOnly",
  "recovery",
  "onProgress",
  "signal",
];

const DURABILITIES: readonly unknown[] = ["buffered", "written", "flushed"];

const HISTORIES: readonly unknown[] = [undefined, "keep", "none"];

const RECOVERIES: readonly unknown[] = [undefined, "prefix", "salvage"];

const MIB = 1_048_576;

/**
 * Checks that the options are an object and that all names are known, because a mistyped name must not be ignored.
 * Also checks the types of `onProgress` and `signal`, which many calls have.
 */
export function refuseUnknown(
  what: string,
  options: unknown,
  known: readonly string[],
): asserts options is object {
  if (typeof options !== "object" || options === null || Array.isArray(options)) {
    throw badArgument(`The options of ${what} must be an object.`, options);
  }
  for (const name in options) {
    if (!known.includes(name)) {
      throw badArgument(
        `${what} has no option ${describe(name)}. Its options are: ${known.join(", ")}.`,
      );
    }
  }
  const { onProgress, signal } = options as { onProgress?: unknown; signal?: unknown };
  if (onProgress !== undefined && typeof onProgress !== "function") {
    throw badArgument("The option onProgress must be a function.", onProgress);
  }
  if (signal !== undefined && typeof (signal as AbortSignal | null)?.aborted !== "boolean") {
    throw badArgument("The option signal must be an AbortSignal.", signal);
  }
}

/** @throws TypeError for unknown options, and for combinations in which `from` or `replace` are not allowed */
export function checkFrom(options: OpenOptions): void {
  refuseUnknown("open()", options, KNOWN);
  const { from, replace = false, readOnly, storage } = options;
  boolean("replace", replace);
  if (replace && (from === undefined || readOnly === true)) {
    throw badArgument(
      "The option replace needs from, whose bytes replace what is there, and no readOnly.",
    );
  }
  if (from !== undefined && options.history !== undefined) {
    throw badArgument(
      "With from, the bytes say whether the database keeps its history: leave out the option history.",
    );
  }
  if (from !== undefined && readOnly === true && storage !== undefined) {
    throw badArgument(
      "With readOnly, a database is opened from the bytes of from or from a storage: give only " +
        "one.",
    );
  }
}

/** Checks and completes the options. @throws TypeError for options of a wrong type */
export function checkOptions(options: Omit<OpenOptions, "replace" | "from">): Settings {
  const timers = options.storage?.timers !== false;
  const {
    durability = "written",
    memory = options.storage?.memory ?? 64 * MIB,
    spaceFactor = 1.5,
    ordered = true,
    strictViews = false,
    readOnly = false,
  } = options;
  if (!DURABILITIES.includes(durability)) {
    throw badArgument(
      'The option durability must be "buffered", "written" or "flushed".',
      durability,
    );
  }
  if (!Number.isInteger(memory) || memory < MIB || memory > 2048 * MIB) {
    throw badArgument(
      "The option memory must be a whole number of bytes, from 1 MiB (1048576) to 2 GiB (2147483648).",
      memory,
    );
  }
  if (typeof spaceFactor !== "number" || !(spaceFactor >= 1.2 && spaceFactor <= 3)) {
    throw badArgument("The option spaceFactor must be a number from 1.2 to 3.", spaceFactor);
  }
  boolean("ordered", ordered);
  boolean("strictViews", strictViews);
  boolean("readOnly", readOnly);
  const { onError, recovery, storage, history } = options;
  if (!HISTORIES.includes(history)) {
    throw badArgument('The option history must be "keep", "none" or left out.', history);
  }
  if (!RECOVERIES.includes(recovery)) {
    throw badArgument('The option recovery must be "prefix", "salvage" or left out.', recovery);
  }
  if (onError !== undefined && typeof onError !== "function") {
    throw badArgument("The option onError must be a function.", onError);
  }
  if (storage !== undefined && typeof (storage as Partial<Storage> | null)?.open !== "function") {
    throw badArgument(
      "The option storage must be one storage, made by opfs(), file(), memory() or durableObject().",
      storage,
    );
  }
  const effective = timers || durability !== "buffered" ? durability : "written";
  return {
    durability: effective,
    memory,
    spaceFactor,
    ordered,
    strictViews,
    readOnly,
    recovery,
    history,
    timers,
  };
}

/** The names of the settings in which an open database differs from those of a second open. */
export function differences(a: Settings, b: Settings): (keyof Settings)[] {
  const names = Object.keys(b) as (keyof Settings)[];
  // What the file is decides about the history.
  return names.filter((name) => name !== "history" && a[name] !== b[name] && b[name] !== undefined);
}

function boolean(name: string, given: unknown): void {
  if (typeof given !== "boolean")
    throw badArgument(`The option ${name} must be true or false.`, given);
}
