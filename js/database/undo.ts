/**
 * `db.undo()`: takes back what a transaction changed. It works on the records of the log, entries of indexes among them:
 * if no record that the transaction wrote was written since, its entries were not either, so restoring the records of
 * both keeps them in accord.
 */

import { Catalog, decoded, indexKeyOf, isDropped, type Stored } from "../collection/catalog.js";
import { keepId } from "../collection/ids.js";
import { indexKeyspaces } from "../collection/index-counts.js";
import type { Engine } from "../engine/engine.js";
import { RAW, SYSTEM_KEYSPACE } from "../engine/wasm-memory.js";
import {
  badArgument,
  ConflictError,
  CursorExpiredError,
  UniqueViolationError,
} from "../errors/index.js";
import type { Source } from "../session/cursor.js";
import { refuseUnknown } from "../session/options.js";
import type { Session } from "../session/session.js";
import { KeyspaceNames } from "./keyspace-names.js";
import { CHUNKED, CONTINUATION, DELETE, PART, TWO_32 } from "./log-layout.js";
import { snapshotAt } from "./past.js";

/** The options of `undo`. */
export interface UndoOptions {
  /** A note for the transaction that takes the other one back, as for `transaction`. */
  note?: string | undefined;
}

type Bytes = Uint8Array<ArrayBuffer>;

/** The last record of a key in a transaction. */
interface Written {
  readonly keyspace: number;
  readonly key: Bytes;
  readonly version: number;
  readonly deleted: boolean;
}

const NEVER = Number.MAX_SAFE_INTEGER;
/** At most so many keys are named by an error. */
const NAMED = 10;

/** An undo between its checks and its transaction. */
export interface Undoing {
  /** Restores the values from before the transaction. To be called within a transaction. */
  apply(): void;
  /** Closes its snapshots. */
  end(): void;
}

export function undone(source: Source, number: number, options: UndoOptions): void {
  const undoing = beginUndo(source, number, options);
  try {
    source().transaction(() => undoing.apply(), options);
  } finally {
    undoing.end();
  }
}

/** Checks what can be checked before the transaction, which must follow in the same turn. */
export function beginUndo(source: Source, number: number, options: UndoOptions = {}): Undoing {
  refuseUnknown("undo()", options, ["note"]);
  const session = source();
  const { engine, guard } = session;
  guard.assertWritable("undo()");
  guard.assertOutsideCallback("undo()");
  // Without order, the names of collections cannot be listed.
  session.checkRange("undo()");
  if (!Number.isSafeInteger(number) || number <= 0) {
    throw badArgument("undo() needs the number of a transaction, as db.log() gives it.", number);
  }
  const snapshots: number[] = [];
  const take = (before: boolean) => {
    const snapshot = snapshotAt(session, "undo()", number, before);
    snapshots.push(snapshot);
    return snapshot;
  };
  const end = () => {
    for (const snapshot of snapshots) session.endSnapshot(snapshot);
  };
  try {
    const before = take(true);
    const written = writtenBy(engine, number, number);
    const indexes = indexKeyspaces(engine);
    // A commit that wrote only entries of indexes is a step of a migration and no transaction, as in `log`.
    if ([...written.values()].every(({ keyspace }) => indexes.has(keyspace))) {
      throw badArgument(`There is no transaction ${number} in the log that changed anything.`);
    }
    const names = new KeyspaceNames();
    assertUnchanged(session, number, written, names, indexes);
    const all = [...written.values()].map(
      ({ keyspace }) => names.of(keyspace, session)?.collection,
    );
    const collections = new Set(all.filter((name) => name !== undefined));
    const after = take(false);
    const apply = () => {
      ensureAll(engine, collections);
      assertNotMigrated(session, number, after, written, collections, indexes);
      for (const record of written.values()) restore(session, before, record, names);
      assertUnique(session, written, collections);
    };
    return { apply, end };
  } catch (error) {
    end();
    throw error;
  }
}

/** The last record of each key that transactions with numbers from `first` to `last` have written. */
function writtenBy(engine: Engine, first: number, last: number): Map<string, Written> {
  const { log } = engine;
  const written = new Map<string, Written>();
  const handle = log.begin(first - 1, last, false);
  try {
    let isMoved = false;
    for (;;) {
      const next = log.next(handle);
      if (next === undefined) return written;
      const { parts, base } = next;
      for (let at = 0; at < parts.length; at += PART) {
        const kind = parts[at] as number;
        if (kind > CONTINUATION) {
          throw new CursorExpiredError(
            `A part of the log since the transaction ${first} of the database "${engine.name}" is damaged or gone, so it ` +
              "cannot be undone. Nothing was changed. Write the values that are wanted.",
          );
        }
        if (kind !== CONTINUATION) isMoved = kind !== 0;
        if (isMoved) continue;
        collect(
          engine,
          base + (parts[at + 1] as number),
          base + (parts[at + 2] as number),
          written,
        );
      }
    }
  } finally {
    log.end(handle);
  }
}

function collect(engine: Engine, from: number, end: number, written: Map<string, Written>): void {
  const { data } = engine.memory;
  for (let at = from; at < end; ) {
    const kind = data.getUint8(at + 4);
    const keyLength = data.getUint16(at + 8, true);
    const keyspace = data.getUint16(at + 10, true);
    const version = data.getUint32(at + 24, true) + data.getUint32(at + 28, true) * TWO_32;
    const key = engine.u8.slice(at + 40, at + 40 + keyLength);
    at += 40 + ((keyLength + 7) & ~7) + data.getUint32(at + 16, true);
    if (kind === 0 || kind > CHUNKED || keyspace === SYSTEM_KEYSPACE) continue;
    written.set(`${keyspace} ${key}`, { keyspace, key, version, deleted: kind === DELETE });
  }
}

/** Throws if a later transaction has written any of the records, or what they belong to is not there any more. */
function assertUnchanged(
  session: Session,
  number: number,
  written: Map<string, Written>,
  names: KeyspaceNames,
  indexes: ReadonlySet<number>,
): void {
  const { engine } = session;
  let later: Map<string, Written> | undefined;
  const changed: string[] = [];
  for (const [identity, { keyspace, key, version, deleted }] of written) {
    if (indexes.has(keyspace)) continue;
    let now = engine.version(engine.encodeKey(key), keyspace);
    if (deleted && now === 0) {
      // It may have been set and deleted again.
      later ??= writtenBy(engine, number + 1, NEVER);
      if (!later.has(identity)) now = version;
    }
    const name = names.of(keyspace, session);
    const isThere = keyspace === RAW || name?.collection !== undefined;
    if (now === version && isThere) continue;
    const place = name?.collection === undefined ? "" : `${name.collection}: `;
    const text =
      name?.keys === undefined ? textOf(key) : JSON.stringify(name.keys.decode(key), plain);
    changed.push(isThere ? `${place}${text}` : "a collection that is not there any more");
  }
  if (changed.length === 0) return;
  const more = changed.length > NAMED ? ` and ${changed.length - NAMED} more` : "";
  throw new ConflictError(
    `The transaction ${number} of the database "${session.name}" cannot be undone, because later ones have changed ` +
      `what it wrote: ${[...new Set(changed)].slice(0, NAMED).join(", ")}${more}. Nothing was changed. ` +
      "Write the values that are wanted; at() shows the earlier ones.",
  );
}

function plain(_: string, value: unknown): unknown {
  return typeof value === "bigint" ? String(value) : value;
}

function textOf(key: Bytes): string {
  return JSON.stringify(new TextDecoder().decode(key));
}

/** What every write to these collections does first: it is refused during a conversion, and discards an unfinished one. */
function ensureAll(engine: Engine, collections: Iterable<string>): void {
  const catalog = Catalog.of(engine);
  for (const name of collections) {
    const declaration = catalog.known(name);
    if (declaration !== undefined) catalog.space(name, declaration).ensure();
  }
}

/**
 * Throws if a collection that the transaction wrote to was migrated since: if it was stored in another keyspace then, had
 * other indexes, or had one that was being built. `after`: the snapshot of the commit with the transaction.
 */
function assertNotMigrated(
  session: Session,
  number: number,
  after: number,
  written: Map<string, Written>,
  collections: Iterable<string>,
  indexes: ReadonlySet<number>,
): void {
  const { engine } = session;
  const known = new Set<number>();
  const migrated: string[] = [];
  for (const name of collections) {
    const then = keyspacesOf(engine, name, after);
    const now = keyspacesOf(engine, name, 0);
    if (then === undefined || String(then) !== String(now)) migrated.push(name);
    for (const keyspace of now ?? []) known.add(keyspace);
  }
  // The entries of an index that was being built come without their records.
  const isOfBuild = ({ keyspace }: Written) => indexes.has(keyspace) && !known.has(keyspace);
  if (migrated.length === 0 && ![...written.values()].some(isOfBuild)) return;
  throw new ConflictError(
    `The transaction ${number} of the database "${session.name}" cannot be undone, because a collection was migrated ` +
      `during or after it${migrated.length === 0 ? "" : `: ${migrated.join(", ")}`}. Nothing was changed. ` +
      "Write the values that are wanted; at() shows the earlier ones.",
  );
}

/** The keyspaces of a collection and its indexes; `undefined` if it does not exist, or an index is being built. */
function keyspacesOf(engine: Engine, name: string, snapshot: number): number[] | undefined {
  const stored = storedIn(engine, `collection/${name}`, snapshot);
  if (stored === undefined || stored.json.building !== undefined) return undefined;
  const { keyspace, json } = stored;
  const numbers = (json.indexes ?? []).map(
    (one) => storedIn(engine, indexKeyOf(keyspace, one), snapshot)?.keyspace ?? 0,
  );
  return [keyspace, ...numbers.sort()];
}

function storedIn(engine: Engine, key: string | Bytes, snapshot = 0): Stored | undefined {
  const bytes = engine.get(key, snapshot + SYSTEM_KEYSPACE);
  const stored = bytes && decoded(key, bytes);
  return stored === undefined || isDropped(stored) ? undefined : stored;
}

/** Sets a key to the value that it had before the transaction, with its expiry, or deletes it if there was none. */
function restore(
  session: Session,
  before: number,
  { keyspace, key }: Written,
  names: KeyspaceNames,
): void {
  const { engine } = session;
  const then = before + keyspace;
  const isThere = engine.version(engine.encodeKey(key), then) !== 0;
  const expiry = engine.foundExpiry();
  const value = isThere ? engine.get(key, then)?.slice() : undefined;
  if (value !== undefined) {
    engine.setExpiring(key, value, expiry, keyspace);
    return;
  }
  const { collection, keys } = names.of(keyspace, session) ?? {};
  const catalog = Catalog.of(engine);
  const declaration =
    keys?.areIds && collection !== undefined ? catalog.known(collection) : undefined;
  if (declaration !== undefined) {
    // No id is assigned twice.
    const space = catalog.space(collection as string, declaration);
    keepId(session, { space, keys } as never, keys?.decode(key) as never);
  }
  engine.remove(key, keyspace);
}

/** Throws if a restored entry of a unique index has the same values as that of another record. */
function assertUnique(
  { engine, name }: Session,
  written: Map<string, Written>,
  collections: Iterable<string>,
): void {
  for (const collection of collections) {
    const stored = storedIn(engine, `collection/${collection}`);
    for (const index of stored?.json.indexes ?? []) {
      const found = storedIn(engine, indexKeyOf(stored?.keyspace as number, index));
      if (found === undefined || found.json.unique !== true) continue;
      for (const { keyspace, key } of written.values()) {
        if (keyspace !== found.keyspace || !isTaken(engine, keyspace, key)) continue;
        throw new UniqueViolationError(
          `This cannot be undone in the database "${name}": another record of "${collection}" has the values now that ` +
            `would come back in the unique index "${index}". Nothing was changed. Change that record first.`,
          { collection, index },
        );
      }
    }
  }
}

/** Whether two entries of an index have the same values. */
function isTaken(engine: Engine, keyspace: number, key: Bytes): boolean {
  const entry = engine.get(key, keyspace);
  if (entry === undefined) return false;
  const lower = key.subarray(0, new DataView(entry.buffer, entry.byteOffset).getUint32(0, true));
  const bounds = {
    lower,
    upper: undefined,
    lowerExcluded: false,
    upperIncluded: false,
    reverse: false,
  };
  const { bytes, numbers, count } = engine.scan(bounds, 2, false, keyspace);
  if (count < 2) return false;
  const from = numbers[1] as number;
  return lower.every((byte, i) => byte === bytes[from + i]);
}
