/** What is done with a copy of a file by the package itself: its history, a changed field, compaction. */

import { type Database, open, type VarveError } from "../../index.js";
import type { Keyspace } from "./descriptors.js";
import { type Field, parsedText, type Range } from "./fields.js";
import { MemoryImage } from "./memory-image.js";
import { keyOptionOf, schemaOf } from "./schema.js";

type Bytes = Uint8Array<ArrayBuffer>;

/** A transaction of the log, in words. */
export interface HistoryItem {
  /** The version of its first change. */
  readonly number: number;
  readonly time: Date | undefined;
  readonly note: string | undefined;
  readonly moved: boolean;
  readonly afterGap: boolean;
  readonly count: number;
  /** Its first records. */
  readonly records: readonly { type: string; collection: string | undefined; key: string }[];
}

/** What opening says of a file, and its newest transactions. */
export interface History {
  /** `undefined` if the package does not open the file. */
  readonly stats: { liveBytes: number; keys: number; records: number } | undefined;
  readonly items: readonly HistoryItem[];
  /** Why there is less than everything, in words. */
  readonly problem: string | undefined;
}

const SHOWN_RECORDS = 3;

/** The newest `limit` transactions of a file, and those before `until`. */
export async function historyOf(bytes: Bytes, limit: number): Promise<History> {
  let db: Database;
  let problem: string | undefined;
  try {
    db = await open("inspected", { from: bytes, readOnly: true });
  } catch (error) {
    problem = messageOf(error);
    try {
      db = await open("inspected", { from: bytes, readOnly: true, recovery: "salvage" });
    } catch {
      // Ignored: the first error says more.
      return { stats: undefined, items: [], problem };
    }
  }
  try {
    const { liveBytes, keys, records } = db.stats();
    const items: HistoryItem[] = [];
    for (const item of db.log({ reverse: true, limit })) {
      const { number, time, note, moved, afterGap } = item;
      let count = 0;
      const records = [];
      for (const { type, collection, key } of item) {
        count += 1;
        if (records.length < SHOWN_RECORDS) records.push({ type, collection, key: inWords(key) });
      }
      items.push({ number, time, note, moved, afterGap, count, records });
    }
    return { stats: { liveBytes, keys, records }, items, problem };
  } catch (error) {
    return { stats: undefined, items: [], problem: messageOf(error) };
  } finally {
    await db.close();
  }
}

function inWords(key: unknown): string {
  if (key instanceof Uint8Array) return `${key.length} bytes`;
  if (Array.isArray(key)) return `[${key.map(inWords).join(", ")}]`;
  return typeof key === "string" ? key : String(key);
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? (error as VarveError).message : String(error);
}

/** A change of one field, or of the whole text of a value. */
export interface Edit {
  readonly keyspace: Keyspace | undefined;
  readonly key: Uint8Array;
  readonly version: number;
  readonly field: Field | undefined;
  readonly text: string;
}

/** The file before and after a change, and all bytes in which they differ. */
export interface Edited {
  readonly before: Bytes;
  readonly after: Bytes;
  readonly changed: readonly Range[];
}

/**
 * Changes a copy of a file as a program would: opens it, changes the record, and closes it.
 *
 * @throws TypeError for a value that the field cannot hold; the errors of the package
 */
export async function edited(before: Bytes, edit: Edit): Promise<Edited> {
  const image = new MemoryImage(before.slice());
  const db = await open("inspected", { storage: image });
  try {
    change(db, edit);
  } finally {
    await db.close();
  }
  const after = image.copy();
  return { before, after, changed: differences(before, after, image.writes) };
}

function change(db: Database, { keyspace, key, version, field, text }: Edit): void {
  if (keyspace === undefined) {
    db.set(key, text);
    return;
  }
  const { struct, name } = keyspace;
  if (struct === undefined || field === undefined) {
    throw new TypeError("Only fields of structs, and text outside of collections, can be changed.");
  }
  const schema = schemaOf(struct);
  const option = keyOptionOf(keyspace.key);
  // The types of a schema that was made at run time are not known to the compiler.
  const collection = db.collection(name, schema, (option && { key: option }) as object);
  const typed = keyOf(db, name, version);
  const value = parsedText(field, text);
  const isChanged = (
    collection as { updateIf(key: unknown, change: (view: object) => void): boolean }
  ).updateIf(typed, (view) => {
    let inner = view as Record<string, unknown>;
    for (const step of field.path.slice(0, -1)) inner = inner[step] as Record<string, unknown>;
    inner[field.path.at(-1) ?? ""] = value;
  });
  if (!isChanged) throw new Error("The record is not there any more.");
}

/** The key of the record with this version, in the form that its collection gives it. */
function keyOf(db: Database, collection: string, version: number): unknown {
  for (const item of db.changes({ since: version - 1, collection })) {
    if (item.version === version) return item.key;
  }
  throw new Error("The record is not current any more, so that it cannot be changed.");
}

/** The bytes in which two files differ, which can only be where something was written. */
export function differences(before: Bytes, after: Bytes, writes: readonly Range[]): Range[] {
  const written = [...writes].sort((a, b) => a.at - b.at);
  const found: Range[] = [];
  let at = 0;
  for (const write of written) {
    const end = Math.min(write.at + write.length, after.length);
    for (at = Math.max(at, write.at); at < end; at += 1) {
      if (after[at] === (before[at] ?? 0)) continue;
      const last = found.at(-1);
      if (last !== undefined && last.at + last.length === at) {
        found[found.length - 1] = { at: last.at, length: last.length + 1 };
      } else {
        found.push({ at, length: 1 });
      }
    }
  }
  return found;
}

/** The file of a new database that `fill` has filled. It may hold three times its live data, so that there is something to compact. */
export async function filled(fill: (db: Database) => void | Promise<void>): Promise<Bytes> {
  const image = new MemoryImage();
  const db = await open("example", { storage: image, spaceFactor: 3 });
  try {
    await fill(db);
  } finally {
    await db.close();
  }
  return image.copy();
}

/** No more copies of the file than this are kept as steps, and no larger ones. */
const MAX_STEPS = 40;
const MAX_STEP_BYTES = 256 * 1_048_576;

/**
 * Compacts a copy of a file. Returns the file after each step in which it changed, the last one as it was closed.
 */
export async function compacted(before: Bytes): Promise<Bytes[]> {
  const image = new MemoryImage(before.slice());
  const steps: Bytes[] = [];
  const db = await open("inspected", { storage: image });
  try {
    await db.compact({
      onProgress() {
        const isRoom = steps.length < MAX_STEPS && steps.length * before.length < MAX_STEP_BYTES;
        if (image.writes.length === 0 || !isRoom) return;
        image.writes = [];
        steps.push(image.copy());
      },
    });
  } finally {
    await db.close();
  }
  return [...steps, image.copy()];
}
