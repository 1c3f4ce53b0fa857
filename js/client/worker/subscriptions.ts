/**
 * The owner's side of `watch` and `live`: the changes in watched ranges, sent after each commit. The values for `live`
 * are read in the same synchronous step in which the changes are found, so that each message is of one moment.
 */

import { plain } from "../../collection/live.js";
import { Database } from "../../database/database.js";
import { RAW } from "../../engine/wasm-memory.js";
import { boundsOf, type TextRange } from "../../session/key-range.js";
import type { Session } from "../../session/session.js";
import { keyText } from "../../session/value-text.js";
import {
  type Collect,
  type Collector,
  KeyNotes,
  RangeState,
  textOf,
  type WatchedRange,
  type WrittenKeys,
} from "../../session/watched-ranges.js";
import { monotonicNow, setTimeout } from "../../util/clock.js";
import { toWire } from "../protocol/errors.js";
import type { Watch, WatchUpdate } from "../protocol/messages.js";
import { type Subscription, Subscriptions } from "../protocol/owner-subscriptions.js";
import type { ValueForm } from "../protocol/packed-rows.js";
import { keyFormOf, type ServedCollections } from "./collection-handlers.js";
import { packRange, ValuePacker } from "./row-packer.js";

/** A watched range of keys, and the conversion of its keys for the client. */
interface ServedRange extends WatchedRange {
  readonly keyOf: (bytes: Uint8Array<ArrayBuffer>) => unknown;
  /** How rows are sent, if the watch is for rows. */
  readonly rows?: RowForm | undefined;
}

/** How the rows of a watch are sent. */
interface RowForm {
  /** How the client decodes the keys; `undefined` if only the worker can. */
  readonly keys: "text" | "bytes" | undefined;
  /** The form of the packed values; `undefined` if only the worker can decode them. */
  readonly values: ValueForm | undefined;
  /** The decoded value of a key. */
  readonly get: (key: unknown) => unknown;
}

/** The state of a watch. */
interface WatchState {
  readonly range: ServedRange;
  readonly state: RangeState;
}

/** What a message says. */
type Contents = Pick<WatchUpdate, "changes" | "rows">;

/** All watches of one owner. */
export class Watches {
  private readonly owner: string;
  private readonly db: Database;
  private readonly collections: ServedCollections;
  private readonly all: Subscriptions<WatchState>;
  private readonly notes: KeyNotes;

  constructor(owner: string, db: Database, collections: ServedCollections) {
    this.owner = owner;
    this.db = db;
    this.collections = collections;
    const { engine } = Database.sessionOf(db);
    this.all = new Subscriptions(owner, undefined, engine.isNew ? Math.random() : undefined);
    this.notes = new KeyNotes(
      Database.sessionOf(db),
      (written) => this.notifyAll(written),
      // The changes of several commits in a short time are one message.
      (task) => setTimeout(task),
    );
  }

  /** Begins a watch with a full answer, or renews it if its client has missed no message. */
  add(watch: Watch, respond: (message: WatchUpdate) => void): void {
    const now = monotonicNow();
    if (this.all.renew(watch, respond, now)) return;
    const range = this.watchedRangeOf(watch);
    const state = new RangeState(Database.sessionOf(this.db), range);
    const { changes, rows } = state.readAll(this.collectorOf(range), true).contents();
    this.all.begin(watch, respond, now, { range, state }, changes, rows);
    this.notes.follow(state);
  }

  /** The message for a watch that cannot begin. */
  refusal({ id }: Watch, error: unknown, wire = toWire(error)): WatchUpdate {
    const { owner } = this;
    const none = { epoch: 0, number: -1, isAll: false, changes: [] };
    return { type: "changes", owner, id, ...none, error: wire };
  }

  remove(watch: { client: number; id: number }): void {
    this.all.remove(watch);
    if (this.all.size === 0) this.stop();
  }

  stop(): void {
    this.all.clear();
    this.notes.stop();
  }

  private notifyAll(written: WrittenKeys): void {
    const { all, notes } = this;
    all.endLapsed(monotonicNow());
    for (const subscription of all) {
      const { range, state } = subscription.state;
      try {
        const changes = state.changes(written, this.collectorOf(range));
        if (changes !== undefined) {
          const { changes: keys, rows } = changes.contents();
          all.notify(subscription, keys, rows);
        }
        notes.follow(state);
      } catch (error) {
        this.end(subscription, error);
      }
    }
    if (all.size === 0) this.stop();
  }

  /**
   * Ends a watch whose range is bad. After any other error, the client begins it again, with this owner or
   * the next.
   */
  private end(subscription: Subscription<WatchState>, error: unknown): void {
    if (isBadArgument(error)) {
      this.all.remove(subscription.watch);
      subscription.respond(this.refusal(subscription.watch, error));
    } else {
      this.all.endForRestart(subscription);
    }
  }

  private collectorOf(range: ServedRange): Collect<Collected> {
    const session = Database.sessionOf(this.db);
    return (keyspace, isAll) => new Collected(session, range, keyspace, isAll);
  }

  /** @throws TypeError for an invalid range, or a database without an order of keys */
  private watchedRangeOf(watch: Watch): ServedRange {
    const { collection, index, range, call = "watch()", rows } = watch;
    Database.sessionOf(this.db).checkRange(call);
    if (collection !== undefined) {
      const of = this.collections.get(collection);
      if (index !== undefined) {
        const { keyspace, bounds, keyOf, records } = this.collections.reachOfIndex(
          collection,
          index,
          call,
          range,
        );
        const values = rows && this.collections.formOf(collection, rows);
        const get = (key: unknown) => plain(of.get(key));
        const form = rows && { keys: undefined, values, get };
        return { keyspace, bounds, keyOf, records, rows: form };
      }
      const { keyKind, ...reach } = of.reach(call, range as object);
      if (rows === undefined) return reach;
      const keys = keyFormOf(keyKind);
      const values = this.collections.formOf(collection, rows);
      return { ...reach, rows: { keys, values, get: (key) => plain(of.get(key)) } };
    }
    const bounds = boundsOf(call, range as TextRange, true);
    const keyOf = (key: Uint8Array) => (bounds.asBytes ? key : keyText(key));
    const keys = bounds.asBytes ? "bytes" : "text";
    const form = rows && ({ keys, values: "bytes", get: keyOf } as const);
    return { keyspace: () => RAW, bounds, keyOf, rows: form } as ServedRange;
  }
}

/** Changes that are found one after the other, for one message. */
class Collected implements Collector {
  private readonly session: Session;
  private readonly range: ServedRange;
  private readonly keyspace: number;
  /** Whether all rows of the range are added, in its order. */
  private readonly isAll: boolean;
  /** Where the changes of records are, by the keys of the records, if the range is one of an index. */
  private readonly moved: Map<string, number> = new Map();
  private readonly changes: [key: unknown, version: number][] = [];
  private readonly keys: unknown[] = [];
  private readonly values: unknown[] = [];
  private readonly packer: ValuePacker | undefined;

  constructor(session: Session, range: ServedRange, keyspace: number, isAll: boolean) {
    this.session = session;
    this.isAll = isAll;
    this.range = range;
    this.keyspace = keyspace;
    const form = range.rows?.values;
    this.packer = form && new ValuePacker(form);
  }

  add(text: string, key: Uint8Array<ArrayBuffer>, version: number): void {
    const { changes, keys, keyspace, packer, range, session, values } = this;
    const { engine } = session;
    const { keyOf, rows } = range;
    if (rows === undefined) {
      this.addKey(keyOf(key), key, version);
      return;
    }
    changes.push([text, version]);
    if (version === 0) return;
    if (rows.keys === undefined) keys.push(keyOf(key));
    if (packer === undefined) values.push(rows.get(keyOf(key)));
    else if (!this.arePackedTogether) {
      const { records } = range;
      const at = records
        ? engine.find(engine.encodeKey(records.keyOf(key)), records.keyspace())
        : engine.find(engine.encodeKey(key), keyspace);
      packer.add(engine.u8, at, engine.foundLength());
    }
  }

  /** A record whose entry in an index has moved is one key. */
  private addKey(key: unknown, bytes: Uint8Array<ArrayBuffer>, version: number): void {
    const { changes, moved, range } = this;
    if (range.records !== undefined) {
      const record = textOf(range.records.keyOf(bytes));
      const index = moved.get(record);
      if (index !== undefined) {
        if (version !== 0) changes[index] = [key, version];
        return;
      }
      moved.set(record, changes.length);
    }
    changes.push([key, version]);
  }

  /** All rows of a range of keys are packed together, which takes less time. */
  private get arePackedTogether(): boolean {
    return this.isAll && this.range.records === undefined;
  }

  contents(): Contents {
    const { changes, keyspace, packer, range, session } = this;
    const { bounds, rows } = range;
    if (rows === undefined) return { changes };
    const values =
      packer === undefined
        ? { rows: this.values }
        : this.arePackedTogether
          ? packRange(
              { session, keyspace, bounds, form: rows.values, keyForm: undefined },
              undefined,
            )
          : packer.answer();
    return { changes, rows: { keys: rows.keys ?? this.keys, values } };
  }
}

function isBadArgument(error: unknown): boolean {
  return (error as { code?: unknown }).code === "VARVE_BAD_ARGUMENT";
}
