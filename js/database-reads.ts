/** The calls of a database that read. */

import type { Key } from "./bytes.js";
import { Handle } from "./database-handle.js";
import { badArgument } from "./errors.js";
import { Pin } from "./pin.js";
import { type Bounds, type ByteRange, boundsOf, type Range, type TextRange } from "./range.js";
import { entriesOf, keysOf, type Scan, valuesOf } from "./scan.js";
import type { Entry } from "./session.js";

/** A handle by which records are read. */
export class Reads extends Handle {
  /**
   * The value of a key as a view of the database's memory, or `undefined` when there is none.
   *
   * The view is good until your code yields; then copy it with `.slice()`. After a write to its key
   * it may show the old bytes or the new. It is for reading only.
   *
   * @throws TypeError for a key that is none
   * @throws StaleViewError for a key that is a dead view
   */
  get(key: Key): Uint8Array<ArrayBuffer> | undefined {
    const { session } = this;
    if (session.gate !== 0) return session.carefulGet(key);
    return session.engine.get(key);
  }

  /**
   * The value of a key as a string, or `undefined` when there is none. It is a copy and lives on.
   *
   * @throws TypeError for a key that is none, and for a value that is not UTF-8
   * @throws StaleViewError for a key that is a dead view
   */
  getText(key: Key): string | undefined {
    const { session } = this;
    if (session.gate !== 0) session.admitRead();
    const view = session.engine.get(key);
    return view === undefined ? undefined : decode(view);
  }

  /**
   * Whether there is a value for this key.
   *
   * @throws TypeError for a key that is none
   * @throws StaleViewError for a key that is a dead view
   */
  has(key: Key): boolean {
    const { session } = this;
    if (session.gate !== 0) session.admitRead();
    return session.engine.has(key);
  }

  /**
   * The values of several keys, as `get` gives them, in the order of the keys. All views are alive
   * when it returns, and good until your code yields. In a large database this takes half of what as
   * many calls of `get` take: they wait for memory one after the other, this for many records at once.
   *
   * @throws TypeError for what is no list of keys, and for a key that is none
   * @throws StaleViewError for a key that is a dead view
   * @throws OutOfMemoryError when the values are larger than the database's memory all together
   */
  getMany(keys: Iterable<Key>): (Uint8Array<ArrayBuffer> | undefined)[] {
    const { session } = this;
    if (session.gate !== 0) session.admitRead();
    return session.getMany(keys);
  }

  /**
   * The value of a key and its version, or `undefined` when there is none. With the version, `set`
   * can make sure that nobody has written to the key since (see `SetOptions.ifVersion`). The value is
   * a view, like that of `get`.
   *
   * @throws TypeError for a key that is none
   * @throws StaleViewError for a key that is a dead view
   */
  getEntry(key: Key): Entry | undefined {
    return this.session.getEntry(key);
  }

  /**
   * How many keys there are, or how many of them lie in a range. Without a range it takes no time;
   * with one, as long as going over its keys.
   *
   * @throws TypeError for a range that is none, or when the database was opened with `ordered: false`
   * @throws StaleViewError for a bound that is a dead view
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
   * The keys of a range, or all, in order, to go over with `for…of`. Nothing is read before that,
   * and each `for…of` begins anew. Leaving early leaves nothing behind.
   *
   * ```ts
   * for (const key of db.keys({ prefix: "user/", limit: 10 })) console.log(key);
   * ```
   *
   * **Writing meanwhile** is legal, also between two steps that are turns apart. Every key that is
   * there throughout is seen exactly once; one that is written or deleted meanwhile may be seen or
   * not, and never twice.
   *
   * Keys are strings, or with `keyAs: "bytes"` bytes: copies that are yours.
   *
   * @throws TypeError for a range that is none, or when the database was opened with
   * `ordered: false`; while going over it, for a key that is not UTF-8, unless keys are bytes
   * @throws StaleViewError for a bound that is a dead view
   * @throws DatabaseClosedError while going over it, after `close`
   * @throws StorageError while going over it, when the file cannot be read; `next` may be called again
   */
  keys(range?: TextRange): Scan<string>;
  keys(range: ByteRange): Scan<Uint8Array<ArrayBuffer>>;
  keys(range?: TextRange | ByteRange): Scan<string | Uint8Array<ArrayBuffer>>;
  keys(range?: TextRange | ByteRange): Scan<string | Uint8Array<ArrayBuffer>> {
    return keysOf(this.source, this.bounds("keys()", range, true));
  }

  /**
   * The values of the keys of a range, or of all, in the order of their keys; see `keys` for going
   * over them and for writing meanwhile. Each is the value of its key as it is at that step.
   *
   * **A value is a view that is good until the next step**, so that a scan may be larger than the
   * database's memory. It is for reading only; to keep it, copy it with `.slice()`.
   *
   * @throws as `keys`
   */
  values(range?: Range): Scan<Uint8Array<ArrayBuffer>> {
    return valuesOf(this.source, this.bounds("values()", range, false));
  }

  /**
   * Pairs of key and value of a range, or of all, in the order of their keys; see `keys` for the keys
   * and for writing meanwhile, and `values` for how long a value is good.
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
   * Pins the value of a key: its bytes stay in memory, as they are now, until the pin is disposed,
   * whatever is written meanwhile. `undefined` when there is no such key. What was written so far is
   * handed to the file first, as by `commit`.
   *
   * ```ts
   * using lease = db.pin("picture"); // lease.bytes gives a living view, also after an await
   * ```
   *
   * @throws TypeError for a key that is none
   * @throws StaleViewError for a key that is a dead view
   * @throws ReentrancyError inside a transaction or a callback
   * @throws QuotaExceededError, StorageError when handing on fails; all writes since the last commit are undone
   */
  pin(key: Key): Pin | undefined {
    const handle = this.session.pin(key);
    if (handle === 0) return undefined;
    const pin = new Pin(this.source, handle, (gone) => this.pins.delete(gone));
    this.pins.add(pin);
    return pin;
  }
}

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

function decode(view: Uint8Array<ArrayBuffer>): string {
  try {
    return utf8.decode(view);
  } catch (cause) {
    throw Object.assign(
      badArgument("The value is not UTF-8, so that it has no text. Use get() for its bytes."),
      { cause },
    );
  }
}
