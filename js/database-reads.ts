/** The calls of a database that read. */

import type { Key } from "./bytes.js";
import { decoder } from "./coders.js";
import { Handle } from "./database-handle.js";
import { badArgument } from "./errors.js";
import { Pin } from "./pin.js";
import { type Bounds, type ByteRange, boundsOf, type Range, type TextRange } from "./range.js";
import { entriesOf, keysOf, type Scan, valuesOf } from "./scan.js";
import type { Entry } from "./session.js";

/** The calls of a database that read. */
export class Reads extends Handle {
  /**
   * Returns a view of the value in the database's memory, or `undefined` if the key is missing.
   *
   * The view is valid until your code yields. When the views of one turn show all of the database's memory
   * (the option `memory`), the next ones are copies, in buffers of their own, and a call that needs more than
   * as much memory again throws `OutOfMemoryError`, so that no view ends. To keep the bytes, copy them with
   * `.slice()`. After a write to its key it may show the old bytes or the new ones. It is for reading only.
   *
   * @throws TypeError for a bad key
   * @throws StaleViewError if the key is a dead view
   */
  get(key: Key): Uint8Array<ArrayBuffer> | undefined {
    const { session } = this;
    if (session.gate !== 0) return session.carefulGet(key);
    const { engine } = session;
    const view = engine.get(key);
    if (!engine.viewsHeld && view !== undefined) session.holdViews();
    return view;
  }

  /**
   * Returns the value as a string, or `undefined` if the key is missing. The string is a copy, so it stays
   * valid.
   *
   * @throws TypeError for a bad key, and if the value is not UTF-8
   * @throws StaleViewError if the key is a dead view
   */
  getText(key: Key): string | undefined {
    const { session } = this;
    if (session.gate !== 0) session.admitRead();
    const view = session.engine.get(key);
    return view === undefined ? undefined : decode(view);
  }

  /**
   * Returns whether the key has a value.
   *
   * @throws TypeError for a bad key
   * @throws StaleViewError if the key is a dead view
   */
  has(key: Key): boolean {
    const { session } = this;
    if (session.gate !== 0) session.admitRead();
    return session.engine.has(key);
  }

  /**
   * Returns the values of several keys, as `get` does, in the order of the keys. All views are alive when it
   * returns, and valid until your code yields. In a large database this takes half the time of as many calls
   * of `get`: those wait for memory one after the other, this waits for many records at once.
   *
   * @throws TypeError if `keys` is not iterable, or for a bad key
   * @throws StaleViewError if a key is a dead view
   * @throws OutOfMemoryError if all values together are larger than the database's memory
   */
  getMany(keys: Iterable<Key>): (Uint8Array<ArrayBuffer> | undefined)[] {
    const { session } = this;
    if (session.gate !== 0) session.admitRead();
    return session.getMany(keys);
  }

  /**
   * Returns the value of a key with its version, or `undefined` if the key is missing. With the version,
   * `set` can make sure that nobody has written to the key since (see `SetOptions.ifVersion`). The value is a
   * view, like that of `get`.
   *
   * @throws TypeError for a bad key
   * @throws StaleViewError if the key is a dead view
   */
  getEntry(key: Key): Entry | undefined {
    return this.session.getEntry(key);
  }

  /**
   * Returns the number of keys, in total or in a range. Without a range it takes no time; with one, as long
   * as going over its keys. Like all calls for keys, it does not see collections: `stats().records` is the
   * number of all records.
   *
   * @throws TypeError for a bad range, or if the database was opened with `ordered: false`
   * @throws StaleViewError if a bound is a dead view
   */
  count(range?: Range): number {
    const { session } = this;
    if (session.gate !== 0) session.admitRead();
    if (range === undefined) return session.engine.count();
    const bounds = this.bounds("count()", range, false);
    if (bounds.limit === 0) return 0;
    return Math.min(bounds.limit, session.engine.countRange(bounds));
  }

  /**
   * The keys of a range, or all keys, in order, for use in `for…of`. Nothing is read before that, and each
   * `for…of` starts again. A loop may be left early.
   *
   * ```ts
   * for (const key of db.keys({ prefix: "user/", limit: 10 })) console.log(key);
   * ```
   *
   * **Writing during the loop** is allowed, also between two steps in different turns. A key that is there
   * throughout is seen exactly once. A key that is written or deleted meanwhile may be seen or not, but never
   * twice.
   *
   * Keys are strings or, with `keyAs: "bytes"`, bytes: copies that you may keep.
   *
   * @throws TypeError for a bad range, or if the database was opened with `ordered: false`; during the loop,
   * for a key that is not UTF-8, unless keys are bytes
   * @throws StaleViewError if a bound is a dead view
   * @throws DatabaseClosedError during the loop, after `close`
   * @throws StorageError during the loop, if the file cannot be read; `next` may be called again
   */
  keys(range?: TextRange): Scan<string>;
  keys(range: ByteRange): Scan<Uint8Array<ArrayBuffer>>;
  keys(range?: TextRange | ByteRange): Scan<string | Uint8Array<ArrayBuffer>>;
  keys(range?: TextRange | ByteRange): Scan<string | Uint8Array<ArrayBuffer>> {
    return keysOf(this.source, this.bounds("keys()", range, true));
  }

  /**
   * The values of a range, or all values, in the order of their keys. See `keys` for the loop and for writing
   * during it. Each value is that of its key at that step.
   *
   * **A value is a view that is valid until the next step**, so a scan may be larger than the database's
   * memory. It is for reading only; to keep it, copy it with `.slice()`.
   *
   * @throws as `keys`
   */
  values(range?: Range): Scan<Uint8Array<ArrayBuffer>> {
    return valuesOf(this.source, this.bounds("values()", range, false));
  }

  /**
   * The keys and values of a range, or all of them, as pairs in the order of the keys. See `keys` for the
   * keys and for writing during the loop, and `values` for how long a value is valid.
   *
   * ```ts
   * for (const [key, value] of db.entries({ gte: "a", lt: "b" })) total += value.length;
   * ```
   *
   * @throws as `keys`
   */
  entries(range?: TextRange): Scan<[string, Uint8Array<ArrayBuffer>]>;
  entries(range: ByteRange): Scan<[Uint8Array<ArrayBuffer>, Uint8Array<ArrayBuffer>]>;
  entries(
    range?: TextRange | ByteRange,
  ): Scan<[string | Uint8Array<ArrayBuffer>, Uint8Array<ArrayBuffer>]>;
  entries(
    range?: TextRange | ByteRange,
  ): Scan<[string | Uint8Array<ArrayBuffer>, Uint8Array<ArrayBuffer>]> {
    return entriesOf(this.source, this.bounds("entries()", range, true));
  }

  protected bounds(call: string, range: Range | undefined, keyed: boolean): Bounds {
    this.session.admitRange(call);
    return boundsOf(call, range, keyed);
  }

  /**
   * Pins the value of a key: its bytes stay in memory, unchanged, until the pin is disposed, whatever is
   * written meanwhile. Returns `undefined` if the key is missing. All writes so far are committed first, as
   * by `commit`.
   *
   * ```ts
   * using lease = db.pin("picture"); // lease.bytes gives a live view, also after an await
   * ```
   *
   * @throws TypeError for a bad key
   * @throws StaleViewError if the key is a dead view
   * @throws ReentrancyError inside a transaction or a callback
   * @throws QuotaExceededError, StorageError if that commit fails; all writes since the last commit are
   * undone
   */
  pin(key: Key): Pin | undefined {
    const handle = this.session.pin(key);
    if (handle === 0) return undefined;
    const pin = new Pin(this.source, handle, (gone) => this.pins.delete(gone));
    this.pins.add(pin);
    return pin;
  }
}

function decode(view: Uint8Array<ArrayBuffer>): string {
  try {
    return decoder.decode(view);
  } catch (cause) {
    throw Object.assign(badArgument("The value is not UTF-8 text. Use get() for its bytes."), {
      cause,
    });
  }
}
