/**
 * Moving the records of another store, in three walks over it: the first checks that each can be stored, the second copies
 * them, the third compares both sides. Each commit of copies contains the mark of how far it has come, so a program that
 * is killed goes on there, and nothing is copied twice.
 */

import { keyName } from "../../client/protocol/messages.js";
import {
  badArgument,
  badCall,
  ConflictError,
  describe,
  UniqueViolationError,
} from "../../errors/index.js";
import { refuseUnknown } from "../../session/options.js";
import { nextTask, timeSlice } from "../../util/clock.js";
import { type Difference, shown, sizeOf } from "./compare.js";
import { MigrationError } from "./errors.js";
import {
  type AnyCollection,
  type AnyDatabase,
  type Place,
  type Row,
  type StoredMark,
  type Target,
  targetOf,
} from "./target.js";

/** How the records of a store become those of a collection. */
export interface Mapping {
  /**
   * The collection that they go into, of the database or client that the option `to` names; or that itself, for its raw
   * keys, whose values are bytes or text.
   */
  into: AnyCollection;
  /**
   * Returns the new key of a record. Without it, the key stays: bytes become a `Uint8Array`, and an array is a tuple. It
   * is called several times for each record and must always return the same.
   */
  key?: ((key: never, value: never) => unknown) | undefined;
  /**
   * Returns the new value of a record, or a promise of it; `undefined` leaves the record out. Without it, the value stays
   * as it is. It is called several times for each record and must always return the same.
   */
  value?: ((value: never, key: never) => unknown) | undefined;
}

/** The progress of a migration. */
export interface MigrationProgress {
  /** What is being done: every record is checked, then copied, then both sides are compared. */
  readonly phase: "checking" | "copying" | "comparing";
  /** The object store; of other sources, what is read. */
  readonly store: string;
  /** Number of records of this store that this phase has done. */
  readonly records: number;
  /** Number of records of this store, if it is known. */
  readonly total: number | undefined;
}

/** The options of every migration. */
export interface MigrationOptions {
  /** The database or client that the records go into. */
  to: AnyDatabase;
  /**
   * The raw key of that database under which the mark is kept: how far this migration has come, and afterwards that it is
   * done. By default `varve/migrate/` and the source. Delete it to be able to move the same data again.
   */
  mark?: string | undefined;
  /** Replaces records that are there already. By default they end the migration, before anything is written. */
  replace?: boolean | undefined;
  /** Called after every slice of records. If it throws, the migration ends; the next call goes on. */
  onProgress?: ((progress: MigrationProgress) => void) | undefined;
  /** Ends the migration when it is aborted, which then rejects with the reason; the next call goes on. */
  signal?: AbortSignal | undefined;
}

/** What was moved of one store. */
export interface MovedStore {
  /** Number of records that were copied and compared. */
  readonly records: number;
  /** Number of records that were left out, because `value` returned `undefined`. */
  readonly skipped: number;
}

/** What a migration has done. */
export interface Migrated {
  /** Whether an earlier call had done everything, so that this one read nothing. */
  readonly before: boolean;
  /** What was moved, by the names of the stores. */
  readonly stores: Readonly<Record<string, MovedStore>>;
}

/** A record of the old store. */
export interface Found {
  readonly key: unknown;
  readonly value: unknown;
  /** Where to go on after it, as JSON. */
  readonly at: unknown;
}

/** A store to be moved. */
export interface Part {
  readonly name: string;
  readonly mapping: Mapping;
  /** The number of its records, if it is known. */
  total(): Promise<number | undefined>;
  /** Its records in an order that stays, from the beginning or after a record. */
  walk(after: unknown): AsyncIterable<readonly Found[]>;
}

/** How far a store has come, as kept in the mark. */
interface State {
  readonly records: number;
  readonly skipped: number;
  /** The last record that was copied. */
  readonly after?: unknown;
  /** What is done: all are copied, and compared. */
  readonly done?: "copied" | "compared";
}

type States = Readonly<Record<string, State>>;

/** A record and what becomes of it. */
interface Mapped extends Found {
  /** `undefined` if it is left out. */
  readonly row: Row | undefined;
}

/** Bytes and records of a commit, at most, roughly. */
const COMMIT_BYTES = 1 << 20;
const COMMIT_ROWS = 1_000;

/** Other tasks run after each slice of this length, or of so many records, in case the clock stands still. */
const SLICE_MS = 12;
const SLICE_READS = 65_536;

/** Options that every function of this kind takes. */
export const COMMON = ["to", "mark", "replace", "onProgress", "signal"];

const NOTHING: State = { records: 0, skipped: 0 };

/** @throws TypeError for a wrong mapping */
export function mappingOf(what: string, given: unknown): Mapping {
  const isAlone = typeof (given as Partial<AnyCollection> | null)?.getMany === "function";
  const mapping = isAlone ? { into: given } : given;
  refuseUnknown(what, mapping, ["into", "key", "value"]);
  const { into, key, value } = mapping as Partial<Mapping>;
  if (typeof into?.getMany !== "function") {
    throw badArgument(`${what} needs a collection, or { into: collection, key, value }.`, into);
  }
  for (const [name, one] of Object.entries({ key, value })) {
    if (one !== undefined && typeof one !== "function") {
      throw badArgument(`The option ${name} of ${what} must be a function.`, one);
    }
  }
  return { into, key, value };
}

/** @throws TypeError for wrong options */
export function checkCommon(call: string, options: MigrationOptions, own: readonly string[]): void {
  refuseUnknown(call, options, [...COMMON, ...own]);
  const { mark, replace } = options;
  if (mark !== undefined && (typeof mark !== "string" || mark === "")) {
    throw badArgument(`The option mark of ${call} must be a key: some text.`, mark);
  }
  if (replace !== undefined && typeof replace !== "boolean") {
    throw badArgument(`The option replace of ${call} must be true or false.`, replace);
  }
}

/** What moves a source: its name in messages, and how to open it, which gives its parts. */
export interface Source {
  /** Such as `the IndexedDB database "shop"`. */
  readonly name: string;
  /** The names of its parts, as far as they are to be moved. */
  readonly stores: readonly string[];
  /** Opens it for the work, and then closes it. `isBegun`: an earlier call may have copied some of it. */
  use(work: (parts: readonly Part[]) => Promise<void>, isBegun: boolean): Promise<void>;
}

/** Moves the records of a source. */
export async function migrate(
  source: Source,
  markKey: string,
  { to, replace = false, onProgress, signal }: MigrationOptions,
): Promise<Migrated> {
  signal?.throwIfAborted();
  const target = targetOf(to, markKey, signal);
  return alone(`varve/migrate ${target.name} ${markKey}`, signal, async () => {
    const mark = await target.mark();
    const states = statesOf(mark, markKey, source);
    const moving = new Moving(source, target, replace, onProgress, signal, mark, states);
    const isDone = moving.isDone();
    if (!isDone) await source.use((parts) => moving.all(parts), moving.isBegun());
    return { before: isDone, stores: moving.moved() };
  });
}

/** Runs one migration at a time in all tabs, where there are locks. */
async function alone<T>(
  name: string,
  signal: AbortSignal | undefined,
  work: () => Promise<T>,
): Promise<T> {
  const { locks } = (globalThis as { navigator?: Partial<Navigator> }).navigator ?? {};
  if (locks === undefined) return work();
  return (await locks.request(name, signal === undefined ? {} : { signal }, work)) as T;
}

function statesOf(mark: StoredMark | undefined, key: string, { name }: Source): States {
  if (mark === undefined) return {};
  let kept: { source?: unknown; stores?: States } = {};
  try {
    kept = Object(JSON.parse(mark.text)) as typeof kept;
  } catch {
    // Reported below.
  }
  const { source, stores } = kept;
  if (typeof source === "string" && Object(stores) === stores) {
    if (source === name) return stores as States;
    throw new MigrationError(
      `The key ${describe(key)} is the mark of moving ${source}, and this is ${name}. Choose another key by the option mark.`,
    );
  }
  throw new MigrationError(
    `The key ${describe(key)}, where the migration keeps its mark, has another value. Choose another key by the option mark.`,
  );
}

class Moving {
  private readonly source: Source;
  private readonly target: Target;
  private readonly replaces: boolean;
  private readonly onProgress: ((progress: MigrationProgress) => void) | undefined;
  private readonly signal: AbortSignal | undefined;
  private states: States;
  private version: number;
  private isOver = timeSlice(SLICE_MS, SLICE_READS);

  constructor(
    source: Source,
    target: Target,
    replaces: boolean,
    onProgress: ((progress: MigrationProgress) => void) | undefined,
    signal: AbortSignal | undefined,
    mark: StoredMark | undefined,
    states: States,
  ) {
    this.source = source;
    this.target = target;
    this.replaces = replaces;
    this.onProgress = onProgress;
    this.signal = signal;
    this.states = states;
    this.version = mark?.version ?? 0;
  }

  /** Whether everything was moved by earlier calls. */
  isDone(): boolean {
    const { stores } = this.source;
    return stores.length > 0 && stores.every((name) => this.state(name).done === "compared");
  }

  /** Whether earlier calls have copied a part of some store, or all of it without having compared it. */
  isBegun(): boolean {
    return this.source.stores.some((name) => {
      const state = this.state(name);
      return state !== NOTHING && state.done !== "compared";
    });
  }

  moved(): Record<string, MovedStore> {
    const entries = this.source.stores.map((name) => {
      const { records, skipped } = this.state(name);
      return [name, { records, skipped }] as const;
    });
    return Object.fromEntries(entries);
  }

  private state(name: string): State {
    return (Object.hasOwn(this.states, name) ? this.states[name] : undefined) ?? NOTHING;
  }

  async all(parts: readonly Part[]): Promise<void> {
    const left = parts
      .filter(({ name }) => this.state(name).done !== "compared")
      .map((part) => ({ part, place: this.target.place(part.mapping.into) }));
    const taken = new Set<string>();
    const names = left.map(({ place }) => place.name);
    const checked = new Map<Part, number>();
    for (const { part, place } of left) {
      const isAlone = names.filter((name) => name === place.name).length === 1;
      checked.set(part, await this.check(part, place, taken, isAlone));
    }
    for (const { part, place } of left) await this.copy(part, place, checked.get(part));
    for (const { part, place } of left) await this.compare(part, place);
    // The program may delete the old data next.
    await this.target.flush();
    for (const { part, place } of left) {
      await this.commit(part, place, [], { ...this.state(part.name), done: "compared" });
    }
    await this.target.flush();
  }

  /** Refuses what could not be stored, before anything is written. Returns how many records are to be copied. */
  private async check(
    part: Part,
    place: Place,
    taken: Set<string>,
    isAlone: boolean,
  ): Promise<number> {
    const state = this.state(part.name);
    let records = 0;
    if (state.done !== undefined) return records;
    for await (const { all, report } of this.slices("checking", part, state)) {
      const rows = all.flatMap(({ row }) => row ?? []);
      for (const one of all) {
        if (one.row !== undefined) checkValue(part, place, one, one.row.value);
        if (this.isOver()) await this.pause();
      }
      // This also refuses keys that the collection cannot have.
      const there = await this.read(part, place, all, rows);
      const at = this.replaces ? -1 : there.findIndex((value) => value !== undefined);
      if (at >= 0) throw alreadyThere(part, all, rows[at] as Row, place);
      for (const one of all) {
        if (one.row !== undefined) checkKey(part, place, one, one.row, taken, isAlone);
      }
      records += rows.length;
      report();
    }
    return records;
  }

  private async read(
    part: Part,
    place: Place,
    all: readonly Mapped[],
    rows: readonly Row[],
  ): Promise<unknown[]> {
    const keys = rows.map(({ key }) => key);
    try {
      return await place.read(keys);
    } catch (error) {
      if (!isBadArgument(error)) throw error;
      // Find which key it was.
      for (const found of all) {
        try {
          if (found.row !== undefined) await place.read([found.row.key]);
        } catch (cause) {
          throw refused(part, found, cause, "key");
        }
      }
      throw error;
    }
  }

  private async copy(part: Part, place: Place, checked: number | undefined): Promise<void> {
    const state = this.state(part.name);
    if (state.done !== undefined) return;
    for await (const { all, report } of this.slices("copying", part, state)) {
      let from = 0;
      let size = 0;
      for (let i = 0; i < all.length; i++) {
        size += sizeOf((all[i] as Mapped).row?.value, COMMIT_BYTES);
        const isLast = i === all.length - 1;
        if (size < COMMIT_BYTES && i - from < COMMIT_ROWS && !isLast) continue;
        await this.store(part, place, all.slice(from, i + 1));
        await this.pause();
        [from, size] = [i + 1, 0];
      }
      report();
    }
    const { records } = this.state(part.name);
    // Rows that can be read only once are gone now, and the comparison would find none either.
    const copied = records - state.records;
    if (copied !== checked) {
      throw new MigrationError(
        `${JSON.stringify(part.name)} had ${checked} records to copy when it was checked, and ${copied} when it was copied: ` +
          "it has changed meanwhile, or it can be read only once. Let nothing write to it, delete the mark, and move it again " +
          "with replace: true.",
        { store: part.name },
      );
    }
    await this.commit(part, place, [], { ...this.state(part.name), done: "copied" });
  }

  /** Stores some records and the mark in one commit. */
  private async store(part: Part, place: Place, all: readonly Mapped[]): Promise<void> {
    const rows = all.flatMap(({ row }) => row ?? []);
    const { records, skipped } = this.state(part.name);
    const state: State = {
      records: records + rows.length,
      skipped: skipped + all.length - rows.length,
      after: all.at(-1)?.at,
    };
    try {
      await this.commit(part, place, rows, state);
    } catch (error) {
      if (error instanceof ConflictError) {
        const there = await this.read(part, place, all, rows);
        const at = there.findIndex((value) => value !== undefined);
        throw at < 0 ? ambiguous(part, error) : alreadyThere(part, all, rows[at] as Row, place);
      }
      if (!isOfRecord(error)) throw error;
      // Halves are tried until it is known which record it is: what only the owner or an index knows was not checked before.
      if (all.length === 1) throw refused(part, all[0] as Found, error);
      const half = Math.ceil(all.length / 2);
      await this.store(part, place, all.slice(0, half));
      await this.store(part, place, all.slice(half));
    }
  }

  private async commit(
    { name }: Part,
    place: Place,
    rows: readonly Row[],
    state: State,
  ): Promise<void> {
    const states = { ...this.states, [name]: state };
    const text = JSON.stringify({ source: this.source.name, stores: states });
    const mark = { text, version: this.version };
    this.version = await this.target.commit(mark, place, rows, this.replaces);
    this.states = states;
  }

  /** Compares every record with what is stored for it. */
  private async compare(part: Part, place: Place): Promise<void> {
    let records = 0;
    for await (const { all, report } of this.slices("comparing", part, NOTHING)) {
      const found = all.filter(({ row }) => row !== undefined);
      const rows = found.flatMap(({ row }) => row ?? []);
      const stored = await this.read(part, place, all, rows);
      for (const [i, { value }] of rows.entries()) {
        const difference =
          stored[i] === undefined
            ? { path: "", text: "is missing" }
            : place.compare(value, stored[i]);
        if (difference !== undefined) throw differs(part, found[i] as Found, difference);
        if (this.isOver()) await this.pause();
      }
      records += rows.length;
      report();
    }
    const copied = this.state(part.name).records;
    if (records === copied) return;
    throw new MigrationError(
      `${JSON.stringify(part.name)} has ${records} records, but ${copied} were copied: it has changed ` +
        "meanwhile. Let nothing write to it, delete the mark, and move it again with replace: true.",
      { store: part.name },
    );
  }

  /** The records of a store, mapped, in slices. */
  private async *slices(phase: MigrationProgress["phase"], part: Part, state: State) {
    const total = await part.total();
    let records = state.records + state.skipped;
    const report = () => this.onProgress?.({ phase, store: part.name, records, total });
    for await (const found of part.walk(state.after)) {
      this.signal?.throwIfAborted();
      const all: Mapped[] = [];
      for (const one of found) {
        const row = rowOf(part, one);
        all.push({ ...one, row: isPromise(row) ? await row : row });
        if (this.isOver()) await this.pause();
      }
      records += all.length;
      yield { all, report };
    }
  }

  private async pause(): Promise<void> {
    this.signal?.throwIfAborted();
    if (this.isOver()) {
      await nextTask();
      this.signal?.throwIfAborted();
      this.isOver = timeSlice(SLICE_MS, SLICE_READS);
    }
  }
}

/** What becomes of a record; a promise only if the program's function returns one, as waiting for each takes time. */
function rowOf(part: Part, found: Found): Row | undefined | PromiseLike<Row | undefined> {
  const { key: toKey, value: toValue } = part.mapping;
  const [key, value] = [found.key as never, found.value as never];
  const made = (stored: unknown): Row | undefined =>
    stored === undefined && toValue !== undefined
      ? undefined
      : { key: toKey === undefined ? plainKey(key) : toKey(key, value), value: stored };
  const failed = (error: unknown): never => {
    throw refused(part, found, error);
  };
  try {
    const given: unknown = toValue === undefined ? value : toValue(value, key);
    return isPromise(given) ? Promise.resolve(given).then(made).catch(failed) : made(given);
  } catch (error) {
    return failed(error);
  }
}

function isPromise<T>(given: T | PromiseLike<T>): given is PromiseLike<T> {
  return typeof (given as Partial<PromiseLike<T>> | null | undefined)?.then === "function";
}

function checkValue(part: Part, place: Place, found: Found, value: unknown): void {
  let difference: Difference | undefined;
  if (value === undefined) {
    // A collection gives `undefined` for a missing record.
    difference = { path: "", text: "is undefined, which reads like no record" };
    throw changed(part, found, difference);
  }
  try {
    difference = place.check(value);
  } catch (error) {
    throw refused(part, found, error);
  }
  if (difference !== undefined) throw changed(part, found, difference);
}

/** Refuses a new key that two records have. `isAlone`: no other store goes into the same place. */
function checkKey(
  part: Part,
  place: Place,
  found: Found,
  row: Row,
  taken: Set<string>,
  isAlone: boolean,
): void {
  // Keys that are text stay different.
  if (isAlone && part.mapping.key === undefined && typeof row.key === "string") return;
  const name = `${place.name === undefined ? "" : JSON.stringify(place.name)}${keyName(row.key)}`;
  if (taken.has(name)) {
    throw new MigrationError(
      `Two records have the same new key, ${shown(row.key)}; the second is the one of ${JSON.stringify(part.name)} with the ` +
        `key ${shown(found.key)}. Give each a key of its own, by the option key.`,
      { store: part.name, key: found.key },
    );
  }
  taken.add(name);
}

/** A key as collections take it. */
function plainKey(key: unknown): unknown {
  if (Array.isArray(key)) return key.map(plainKey);
  const isBuffer = Object.prototype.toString.call(key) === "[object ArrayBuffer]";
  return isBuffer ? new Uint8Array(key as ArrayBuffer) : key;
}

/** Whether one of the records was refused, and not all of them for another reason. */
function isOfRecord(error: unknown): boolean {
  return isBadArgument(error) || error instanceof UniqueViolationError;
}

function isBadArgument(error: unknown): boolean {
  return (error as { code?: unknown } | null)?.code === "VARVE_BAD_ARGUMENT";
}

function ofStore({ name }: Part): string {
  return ` of ${JSON.stringify(name)}`;
}

function record(part: Part, { key }: Found): string {
  return `The record ${shown(key)}${ofStore(part)}`;
}

/** The error for a record that the program's own function or the collection refuses. */
function refused(part: Part, found: Found, cause: unknown, what = "value"): Error {
  if (cause instanceof MigrationError) return cause;
  const { message = String(cause), field } = Object(cause) as { message?: string; field?: string };
  const name = part.mapping[what as "key" | "value"] === undefined ? "Map it" : "Map it otherwise";
  return new MigrationError(
    `${record(part, found)} cannot be moved: ${message}${/\.$/.test(message) ? "" : "."} ${name}, by the option ${what}.`,
    { cause, store: part.name, key: found.key, ...(what === "value" && { path: field ?? "" }) },
  );
}

/** The error for a value that would not arrive as it is. */
function changed(part: Part, found: Found, { path, text }: Difference): MigrationError {
  const what = path === "" ? "it" : path;
  return new MigrationError(
    `${record(part, found)} cannot be moved as it is: ${what} ${text}. Map it by the option value, or give the ` +
      "collection a codec that keeps it.",
    { store: part.name, key: found.key, path },
  );
}

function differs(part: Part, found: Found, { path, text }: Difference): MigrationError {
  const what = path === "" ? "it" : path;
  return new MigrationError(
    `${record(part, found)} is not what was stored: ${what} ${text}. Either side was written meanwhile, or the ` +
      "functions key and value do not always return the same. Let nothing write, delete the mark, and move it again with " +
      "replace: true.",
    { store: part.name, key: found.key, path },
  );
}

function alreadyThere(
  part: Part,
  all: readonly Mapped[],
  row: Row,
  { name }: Place,
): MigrationError {
  const found = all.find((one) => one.row === row) as Found;
  const where = name === undefined ? "The database" : `The collection ${JSON.stringify(name)}`;
  return new MigrationError(
    `${where} has a record with the key ${shown(row.key)} already, and ${record(part, found)} would replace it. Give it ` +
      "another key, by the option key, or set replace: true.",
    { store: part.name, key: found.key },
  );
}

/** The error for a conflict with no record that was there. */
function ambiguous({ name }: Part, cause: ConflictError): MigrationError {
  return new MigrationError(
    `Records of ${JSON.stringify(name)} were not copied, as another call has changed the mark meanwhile, or two of them have ` +
      "new keys of the same bytes, or one has the key of the mark. In the first case, call this again, to go on; otherwise give " +
      "each a key of its own, by the option key.",
    { cause, store: name },
  );
}

/** @throws TypeError if a database of a source has no name */
export function checkName(call: string, name: unknown): asserts name is string {
  if (typeof name !== "string") throw badCall(`${call} needs the name of a database, as text.`);
}
