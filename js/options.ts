/** The options of `open`, checked and completed. */

import { badArgument, describe } from "./errors.js";
import type { Storage } from "./storage/contract.js";
import type { ImageSource } from "./storage/image.js";
import type { WasmSource } from "./wasm/load.js";

/**
 * When a group of writes is handed on. A group ends with the synchronous turn of the program, at
 * 256 KiB, or at `db.commit()`.
 *
 * - `"buffered"`: to the file within 5 ms
 * - `"written"`: to the file when the turn ends; a crash of the tab or browser then loses nothing
 * - `"flushed"`: to the file when the turn ends, and flushed; a power loss then loses nothing
 */
export type Durability = "buffered" | "written" | "flushed";

/** The options of `open`. All may be left out. */
export interface OpenOptions {
  /**
   * Where the database is kept: `opfs()`, `file()`, `memory()` or `durableObject()`. Left out, it is the origin's
   * private file system in browser workers and the current folder in Node, Deno and Bun.
   */
  storage?: Storage | undefined;
  /**
   * The bytes of a database, of `db.export()` or of a file: an `ArrayBuffer`, a view of one, a
   * `Response`, a stream or a `Blob`, or a promise of one.
   *
   * A new database is filled with them: there must be none of the name yet, unless `replace` says
   * so. They go into the storage as they come, and all of them are verified, as `db.verify()` does it,
   * before they count. When that fails, or `signal` ends it, there is what was there before; when the
   * program dies meanwhile, what it leaves is never taken for one: `open` throws
   * `DatabaseNotFoundError` then, until it is given `from` again or the name is destroyed.
   *
   * With `readOnly: true` the database is opened from the bytes themselves and needs no storage. They
   * are copied once, into the engine's memory, and yours again when `open` resolves; `memory` is what
   * comes on top, 4 MiB when left out.
   *
   * ```ts
   * const db = await open("shop", { from: fetch("/shop.varve") });
   * ```
   */
  from?: ImageSource | PromiseLike<ImageSource> | undefined;
  /**
   * Whether `from` may take the place of a database that is there: of all that it holds. That one stays
   * as it is until the new one is complete and verified beside it, which needs room for both. Then one
   * step changes from the one to the other, and a program that dies at any moment leaves either. `false`
   * when left out.
   */
  replace?: boolean | undefined;
  /** When writes reach the file. `"written"` when left out. */
  durability?: Durability | undefined;
  /**
   * Bytes of memory for values between turns, 64 MiB when left out (4 in Durable Objects); the database itself may be many
   * times larger. Cold values are read from the file and kept among those looked at lately. A turn
   * whose views hold more may use twice as much until it ends, and as much again for values above
   * half a MiB; those that an open transaction wrote come on top. Below 4 MiB it counts as 4 MiB.
   */
  memory?: number | undefined;
  /**
   * How large the file may become, as a multiple of what lives in it: from 1.2 to 3, 1.5 when left
   * out. Less means more work for the same writes. Four segments of 1 MiB and two copies of the
   * index come on top. That holds for values of any size; but below 1.5, those of which no whole number
   * fills a segment (two of 360,000 bytes leave a third) count with what is left, and so does one above
   * half a MiB that was written with another factor.
   */
  spaceFactor?: number | undefined;
  /** Whether keys are kept in order, for ranges. `true` when left out; without order writes are faster. */
  ordered?: boolean | undefined;
  /**
   * For development: kills all views whenever the program yields, and those of an iteration with its next
   * step, so that none can be kept too long unnoticed. Reports writes through a view that `get` gave, and
   * has an update throw that assigns to what is no field of its record. Slower.
   */
  strictViews?: boolean | undefined;
  /**
   * Hears of every group of writes that was lost and of every flush that failed. Where no call was
   * there to throw it, the same error is thrown by the next one; it rejects `committed` and `flushed`.
   */
  onError?: ((error: Error) => void) | undefined;
  /** The engine's wasm, where the inlined one cannot be compiled: a module, bytes, a response, or a promise. */
  wasm?: WasmSource | PromiseLike<WasmSource> | undefined;
  /**
   * Only for reading: writes throw `ReadOnlyError`, a missing database is an error and none is
   * created, and the file stays byte for byte as it is. What a crash left unfinished at its end is
   * left out, not put in order. `false` when left out.
   */
  readOnly?: boolean | undefined;
  /**
   * What to do when data that had been flushed is damaged. Left out, `open` then throws
   * `CorruptionError`, which says what is intact, and changes nothing. Copy the file away first.
   *
   * - `"prefix"`: the commits before the damage, exactly; all later ones are given up
   * - `"salvage"`: everything that is intact. What lost writes may have changed or deleted is marked:
   *   `getEntry(key).uncertain`, until the key is set again. Keys of which nothing is left are absent.
   *
   * `db.recovery.lost` tells what is gone. What is kept is written into new room of the same file,
   * which takes as much again while it lasts; only when that is complete does it take the place of the
   * old, so that a crash loses nothing. With `readOnly` nothing is written. An undamaged database
   * opens as without the option, though `"salvage"` reads all of it to be sure.
   */
  recovery?: "prefix" | "salvage" | undefined;
  /**
   * Hears how far opening has come, now and then: a large log takes time to read. What it throws
   * ends the opening and rejects it. Whoever joins an opening that is under way hears nothing.
   *
   * The first range sorts the keys, and reads the records for it: of that it hears, too, within the
   * call. What it throws then ends that range and is thrown by it; the next one begins anew.
   */
  onProgress?: ((progress: OpenProgress) => void) | undefined;
  /**
   * Ends the opening when it is aborted before that is done: `open` rejects with its reason, and the
   * file is as it was. Within the engine's own work only `onProgress` can abort, for nothing else
   * runs meanwhile. Afterwards it has no effect.
   */
  signal?: AbortSignal | undefined;
}

/**
 * How far opening has come, or sorting the keys for the first range. With `from` it is filling and
 * verifying first.
 */
export interface OpenProgress {
  readonly doing: "filling" | "verifying" | "opening" | "sorting";
  /** Bytes of the file that were read; of `from`, those that came. */
  readonly bytes: number;
  /**
   * Bytes of the file. Not all of them need be read. Of `from`, as many as the source promises, and as
   * came where it does not tell.
   */
  readonly total: number;
}

/** The options of `compact`. */
export interface CompactOptions {
  /** Hears after each slice how large the file is, and how much of it lives. */
  onProgress?: ((progress: CompactProgress) => void) | undefined;
  /** Ends the compaction when it is aborted; what was done until then stays done. */
  signal?: AbortSignal | undefined;
}

/** How far a compaction has come. */
export interface CompactProgress {
  /** Bytes of the file. */
  readonly fileBytes: number;
  /** Bytes of the records that are current. */
  readonly liveBytes: number;
}

/** The options of `verify`. */
export interface VerifyOptions {
  /** Hears after each slice how far it has come. */
  onProgress?: ((progress: VerifyProgress) => void) | undefined;
  /** Ends the verification when it is aborted. */
  signal?: AbortSignal | undefined;
}

/** How far a verification has come. */
export interface VerifyProgress {
  /** Bytes that were verified. */
  readonly bytes: number;
  /** Bytes of the file. Room that is not used need not be read. */
  readonly total: number;
}

/** The options of `export`. */
export interface ExportOptions {
  /** Hears now and then how far the copy has come. What it throws ends the export. */
  onProgress?: ((progress: ExportProgress) => void) | undefined;
  /** Ends the export when it is aborted. */
  signal?: AbortSignal | undefined;
}

/** How far the copy of an export has come. */
export interface ExportProgress {
  /** Bytes of keys and values that were copied. */
  readonly bytes: number;
  /** Bytes of the records that are current, which is a little more than all keys and values; at the end as many as `bytes`. */
  readonly total: number;
}

/** What two opens of one database have to agree in. */
export interface Settings {
  durability: Durability;
  memory: number;
  spaceFactor: number;
  ordered: boolean;
  strictViews: boolean;
  readOnly: boolean;
  /** Whether something may be done later than at the end of a turn. It is the storage that says so. */
  timers: boolean;
}

const KNOWN = [
  "storage",
  "from",
  "replace",
  "durability",
  "memory",
  "spaceFactor",
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

const RECOVERIES: readonly unknown[] = [undefined, "prefix", "salvage"];

const MIB = 1_048_576;

/**
 * Refuses options that are none, or that do not exist: a mistyped name must not be ignored. Of those that many
 * calls have it refuses what is none, before anything is done.
 */
export function refuseUnknown(
  what: string,
  options: unknown,
  known: readonly string[],
): asserts options is object {
  if (typeof options !== "object" || options === null || Array.isArray(options)) {
    throw badArgument(`The options of ${what} have to be an object.`, options);
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
    throw badArgument("The option onProgress is a function.", onProgress);
  }
  if (signal !== undefined && typeof (signal as AbortSignal | null)?.aborted !== "boolean") {
    throw badArgument("The option signal is an AbortSignal.", signal);
  }
}

/** @throws TypeError for options that are unknown, and for `from` and `replace` where they cannot be */
export function checkFrom(options: OpenOptions): void {
  refuseUnknown("open()", options, KNOWN);
  const { from, replace = false, readOnly, storage } = options;
  boolean("replace", replace);
  if (replace && (from === undefined || readOnly === true)) {
    throw badArgument(
      "The option replace needs from, whose bytes are to take the place of what is there, and no readOnly.",
    );
  }
  if (from !== undefined && readOnly === true && storage !== undefined) {
    throw badArgument(
      "With readOnly a database is opened from the bytes of from, or from a storage: give one.",
    );
  }
}

/** @throws TypeError for options that have a wrong type */
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
    throw badArgument('The option durability is "buffered", "written" or "flushed".', durability);
  }
  if (!Number.isInteger(memory) || memory < MIB || memory > 2048 * MIB) {
    throw badArgument(
      "The option memory is a whole number of bytes, from 1 MiB (1048576) to 2 GiB (2147483648).",
      memory,
    );
  }
  if (typeof spaceFactor !== "number" || !(spaceFactor >= 1.2 && spaceFactor <= 3)) {
    throw badArgument("The option spaceFactor is a number from 1.2 to 3.", spaceFactor);
  }
  boolean("ordered", ordered);
  boolean("strictViews", strictViews);
  boolean("readOnly", readOnly);
  const { onError, recovery, storage } = options;
  if (!RECOVERIES.includes(recovery)) {
    throw badArgument('The option recovery is "prefix" or "salvage", or left out.', recovery);
  }
  if (onError !== undefined && typeof onError !== "function") {
    throw badArgument("The option onError is a function.", onError);
  }
  if (storage !== undefined && typeof (storage as Partial<Storage> | null)?.open !== "function") {
    throw badArgument(
      "The option storage is what opfs(), file(), memory() or durableObject() gives.",
      storage,
    );
  }
  const handedOn = timers || durability !== "buffered" ? durability : "written";
  return { durability: handedOn, memory, spaceFactor, ordered, strictViews, readOnly, timers };
}

/** The names of the settings in which two opens differ. */
export function differences(a: Settings, b: Settings): (keyof Settings)[] {
  const names = [
    "durability",
    "memory",
    "spaceFactor",
    "ordered",
    "strictViews",
    "readOnly",
  ] as const;
  return names.filter((name) => a[name] !== b[name]);
}

function boolean(name: string, given: unknown): void {
  if (typeof given !== "boolean") throw badArgument(`The option ${name} is true or false.`, given);
}
