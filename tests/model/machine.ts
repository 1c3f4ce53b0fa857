/** A database with its model, and the state that all operations need. */

import type { Database, Key as KeyArgument, OpenOptions, Pin, Storage } from "varve";
import { equal, head, Mismatch } from "./checks.js";
import { FaultyStorage } from "./faulty.js";
import type { Key } from "./keys.js";
import { type Entry, Model, type State } from "./model.js";
import { type Form, PINS, type Setting, VIEWS, WALKS } from "./program.js";
import { partOf, same } from "./values.js";
import { type Turn, Views } from "./views.js";
import type { Walk } from "./walks.js";

/** The place in which programs run. */
export interface Environment {
  readonly storage: Storage;
  readonly open: (name: string, options: OpenOptions) => Promise<Database>;
  /** Wraps the database, to check that a planted fault is found. */
  readonly wrap?: (db: Database) => Database;
}

/** A pin, and the bytes that it has to show. */
interface Pinned {
  readonly pin: Pin;
  readonly bytes: Uint8Array;
}

let names = 0;

export class Machine {
  readonly setting: Setting;
  readonly model: Model;
  readonly views: Views;
  readonly pins: (Pinned | undefined)[];
  readonly walks: (Walk | undefined)[];
  readonly name: string;
  /** The errors passed to `onError`. */
  readonly reported: Error[];
  db!: Database;
  storage: Storage;
  /** The number of open transactions. */
  depth: number;
  /** The state that a crash would leave: everything written to the file. */
  written: State;
  /** The largest version seen. */
  private version: number;
  private readonly environment: Environment;
  private turnNumber: number;
  /** Whether the views of this turn have expired. */
  private viewsExpired: boolean;

  constructor(setting: Setting, environment: Environment) {
    this.setting = setting;
    this.environment = environment;
    this.storage = environment.storage;
    names += 1;
    this.name = `model-${names}`;
    this.model = new Model(setting.keys);
    this.views = new Views(VIEWS);
    this.pins = new Array<Pinned | undefined>(PINS).fill(undefined);
    this.walks = new Array<Walk | undefined>(WALKS).fill(undefined);
    this.reported = [];
    this.depth = 0;
    this.written = this.model.state();
    this.version = 0;
    this.turnNumber = 0;
    this.viewsExpired = false;
  }

  async open(): Promise<Database> {
    const { durability, strictViews, ordered, memory } = this.setting;
    const onError = (error: Error) => this.reported.push(error);
    const options = { durability, strictViews, ordered, memory, onError, storage: this.storage };
    const db = await this.environment.open(this.name, options);
    return this.environment.wrap?.(db) ?? db;
  }

  /** The storage, if it fails on demand. */
  get faulty(): FaultyStorage | undefined {
    return this.storage instanceof FaultyStorage ? this.storage : undefined;
  }

  // ---------------------------------------------------------------- keys

  /** A key in the form in which the program passes it. */
  key({ key: rank, form }: { key: number; form: Form }): KeyArgument {
    const { bytes, text } = this.keyAt(rank);
    if (form === "text" && text !== undefined) return text;
    if (form === "buffer") return bytes.buffer;
    return form === "part" ? partOf(bytes) : bytes;
  }

  keyAt(rank: number): Key {
    return this.model.keys[rank] as Key;
  }

  // ---------------------------------------------------------------- reads and writes

  /** Checks that a view shows the value of a key. */
  shows(rank: number, view: Uint8Array | undefined, call: string): void {
    const bytes = this.model.get(rank)?.bytes;
    if (same(view, bytes)) return;
    const { shown } = this.keyAt(rank);
    throw new Mismatch(`${call} of ${shown} shows ${head(view)}, not ${head(bytes)}`);
  }

  agree(call: string, found: unknown, expected: unknown): void {
    equal(call, found, expected);
  }

  /** Checks that a version grows with each write, and is constant until the next. */
  sees(entry: Entry, version: number): void {
    if (entry.version === undefined && version <= entry.above) {
      throw new Mismatch(`version ${version} was given after version ${entry.above}`);
    }
    entry.version ??= version;
    equal("the version", version, entry.version);
    this.version = Math.max(this.version, version);
  }

  /** After reopening, versions of undone writes may be reused, and those of kept writes may not. */
  forgetVersions(): void {
    this.version = 0;
    for (const { version } of this.model.all()) this.version = Math.max(this.version, version ?? 0);
  }

  /** Records that a key has these bytes from now on. */
  wrote(rank: number, bytes: Uint8Array<ArrayBuffer>): void {
    this.model.set(rank, { bytes, above: this.version, version: undefined });
    this.views.written(rank, bytes);
    for (const walk of this.walks) walk?.written(rank);
  }

  deleted(rank: number): void {
    if (!this.model.delete(rank)) return;
    for (const walk of this.walks) walk?.deleted(rank);
  }

  /** Records that writes were undone. */
  restore(state: State): void {
    this.model.restore(state);
    for (const walk of this.walks) walk?.restored();
  }

  // ---------------------------------------------------------------- turns and views

  /** Keeps a view of a key's value. */
  keep(slot: number, view: Uint8Array, rank: number, call: string): void {
    const bytes = this.model.get(rank)?.bytes;
    const from = `${call} of ${this.keyAt(rank).shown}`;
    this.views.keep(slot, view, rank, bytes === undefined ? [] : [bytes], this.turn, from);
  }

  /** The turn before this one, for views that are kept too long from the beginning. */
  get past(): Turn {
    return { number: this.turnNumber - 1, areValid: false };
  }

  /** This turn, and whether its views are guaranteed to be valid. */
  get turn(): Turn {
    const areValid = !this.viewsExpired;
    return { number: this.turnNumber, areValid };
  }

  /** Records that all views of this turn have expired as specified. */
  expireViews(): void {
    this.viewsExpired = true;
  }

  endTurn(): void {
    this.turnNumber += 1;
    this.viewsExpired = false;
  }

  checkPins(): void {
    for (const pinned of this.pins) {
      if (pinned === undefined) continue;
      const { bytes } = pinned.pin;
      if (same(bytes, pinned.bytes)) continue;
      throw new Mismatch(`a pin shows ${head(bytes)} instead of ${head(pinned.bytes)}`);
    }
  }

  /** Checks the invariants that hold after every operation. */
  checkAfter(): void {
    const { records, pendingBytes, poisoned } = this.db.stats();
    equal("stats().records", records, this.model.size);
    // Maintenance after a write may have failed. The write is kept, and a flush throws the deferred error.
    if (poisoned && this.faulty?.struck === true) this.db.flush();
    equal("stats().poisoned", poisoned, false);
    if (pendingBytes === 0 && this.storage instanceof FaultyStorage) {
      this.written = this.model.state();
    }
    this.views.checkSome(this.turn);
    const [error] = this.reported;
    if (error !== undefined) throw new Mismatch(`onError was called: ${String(error)}`);
  }
}
