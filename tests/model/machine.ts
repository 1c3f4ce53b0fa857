/** A database and the model of it, side by side, and what all operations need of both. */

import type { Database, Key as KeyArgument, OpenOptions, Pin, Storage } from "varve";
import { equal, head, Mismatch } from "./checks.js";
import { FaultyStorage } from "./faulty.js";
import type { Key } from "./keys.js";
import { type Entry, Model, type State } from "./model.js";
import { type Form, PINS, type Setting, VIEWS, WALKS } from "./program.js";
import { partOf, same } from "./values.js";
import { type Turn, Views } from "./views.js";
import type { Walk } from "./walks.js";

/** Where programs run. */
export interface Ground {
  readonly storage: Storage;
  readonly open: (name: string, options: OpenOptions) => Promise<Database>;
  /** Puts something between program and database: to see whether a planted fault is found. */
  readonly between?: (db: Database) => Database;
}

/** A pin, and what it has to show. */
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
  /** What `onError` has heard. */
  readonly reported: Error[];
  db!: Database;
  storage: Storage;
  /** How many transactions are open. */
  depth: number;
  /** What a crash would leave: all that was handed on. */
  handedOn: State;
  /** The largest version that was seen. */
  private version: number;
  private readonly ground: Ground;
  private turnNumber: number;
  /** Whether this turn had its views killed. */
  private viewsKilled: boolean;

  constructor(setting: Setting, ground: Ground) {
    this.setting = setting;
    this.ground = ground;
    this.storage = ground.storage;
    names += 1;
    this.name = `model-${names}`;
    this.model = new Model(setting.keys);
    this.views = new Views(VIEWS);
    this.pins = new Array<Pinned | undefined>(PINS).fill(undefined);
    this.walks = new Array<Walk | undefined>(WALKS).fill(undefined);
    this.reported = [];
    this.depth = 0;
    this.handedOn = this.model.state();
    this.version = 0;
    this.turnNumber = 0;
    this.viewsKilled = false;
  }

  async open(): Promise<Database> {
    const { durability, strictViews, ordered, memory } = this.setting;
    const onError = (error: Error) => this.reported.push(error);
    const options = { durability, strictViews, ordered, memory, onError, storage: this.storage };
    const db = await this.ground.open(this.name, options);
    return this.ground.between?.(db) ?? db;
  }

  /** The storage, where it fails on demand. */
  get faulty(): FaultyStorage | undefined {
    return this.storage instanceof FaultyStorage ? this.storage : undefined;
  }

  // ---------------------------------------------------------------- keys

  /** A key as the program hands it over. */
  key({ key: rank, form }: { key: number; form: Form }): KeyArgument {
    const { bytes, text } = this.keyAt(rank);
    if (form === "text" && text !== undefined) return text;
    if (form === "buffer") return bytes.buffer;
    return form === "part" ? partOf(bytes) : bytes;
  }

  keyAt(rank: number): Key {
    return this.model.keys[rank] as Key;
  }

  // ---------------------------------------------------------------- what is found and written

  /** Checks that a view shows what a key holds. */
  shows(rank: number, view: Uint8Array | undefined, call: string): void {
    const bytes = this.model.get(rank)?.bytes;
    if (same(view, bytes)) return;
    const { shown } = this.keyAt(rank);
    throw new Mismatch(`${call} of ${shown} shows ${head(view)}, not ${head(bytes)}`);
  }

  agree(call: string, found: unknown, expected: unknown): void {
    equal(call, found, expected);
  }

  /** A version grows with each write, and then stays. */
  sees(entry: Entry, version: number): void {
    if (entry.version === undefined && version <= entry.above) {
      throw new Mismatch(`version ${version} was given after version ${entry.above}`);
    }
    entry.version ??= version;
    equal("the version", version, entry.version);
    this.version = Math.max(this.version, version);
  }

  /** Opened again: versions of what was undone may be given a second time, those that stand never. */
  forgetVersions(): void {
    this.version = 0;
    for (const { version } of this.model.all()) this.version = Math.max(this.version, version ?? 0);
  }

  /** A key holds these bytes from now on. */
  wrote(rank: number, bytes: Uint8Array<ArrayBuffer>): void {
    this.model.set(rank, { bytes, above: this.version, version: undefined });
    this.views.written(rank, bytes);
    for (const walk of this.walks) walk?.written(rank);
  }

  deleted(rank: number): void {
    if (!this.model.delete(rank)) return;
    for (const walk of this.walks) walk?.deleted(rank);
  }

  /** Writes were undone. */
  restore(state: State): void {
    this.model.restore(state);
    for (const walk of this.walks) walk?.restored();
  }

  // ---------------------------------------------------------------- turns and views

  /** Keeps a view of what a key holds. */
  keep(slot: number, view: Uint8Array, rank: number, call: string): void {
    const bytes = this.model.get(rank)?.bytes;
    const from = `${call} of ${this.keyAt(rank).shown}`;
    this.views.keep(slot, view, rank, bytes === undefined ? [] : [bytes], this.turn, from);
  }

  /** The turn before this one, for views that are kept too long from the beginning. */
  get past(): Turn {
    return { number: this.turnNumber - 1, lives: false };
  }

  /** This turn, and whether its views are promised to live. */
  get turn(): Turn {
    const lives = !this.viewsKilled;
    return { number: this.turnNumber, lives };
  }

  /** All views of this turn have died lawfully. */
  killedViews(): void {
    this.viewsKilled = true;
  }

  endTurn(): void {
    this.turnNumber += 1;
    this.viewsKilled = false;
  }

  checkPins(): void {
    for (const pinned of this.pins) {
      if (pinned === undefined) continue;
      const { bytes } = pinned.pin;
      if (same(bytes, pinned.bytes)) continue;
      throw new Mismatch(`a pin shows ${head(bytes)} instead of ${head(pinned.bytes)}`);
    }
  }

  /** What holds after every operation. */
  checkAfter(): void {
    const { records, pendingBytes, poisoned } = this.db.stats();
    equal("stats().records", records, this.model.size);
    // A write may have given rise to housekeeping, which failed: the write stands, and who wants
    // more than that is told.
    if (poisoned && this.faulty?.struck === true) this.db.flush();
    equal("stats().poisoned", poisoned, false);
    if (pendingBytes === 0 && this.storage instanceof FaultyStorage) {
      this.handedOn = this.model.state();
    }
    this.views.checkSome(this.turn);
    const [error] = this.reported;
    if (error !== undefined) throw new Mismatch(`onError heard: ${String(error)}`);
  }
}
