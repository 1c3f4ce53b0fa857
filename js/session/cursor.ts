/**
 * Cursors: iteration over keys in order. Keys are read in pages, each by one call into the engine, and copied out of
 * its memory. So a cursor that is abandoned leaves nothing behind, and one that goes on while the program writes
 * simply continues after the last key.
 */

import type { Engine } from "../engine/engine.js";
import { type Page, RAW } from "../engine/wasm-memory.js";
import { badArgument } from "../errors/index.js";
import type { Codec } from "../struct/codec.js";
import { dispose } from "../util/dispose.js";
import { decoder } from "../util/text-coders.js";
import type { Bounds } from "./key-range.js";
import type { Session } from "./session.js";

/** Gives the session of a cursor's handle. Called at every step, because the handle may have been closed. */
export type Source = () => Session;

/** The keyspace to iterate over. Read for every page, because a migration moves a collection to another one. */
export interface Space {
  readonly keyspace: number;
}

const RAW_SPACE: Space = { keyspace: RAW };

/** A key in the requested form. */
type KeyForm = string | Uint8Array<ArrayBuffer>;

/** Page sizes: the first page is small, because many loops read only a few keys; later pages grow. */
const FIRST_PAGE = 64;
const MAX_PAGE_LENGTH = 1_024;

/** The page of a cursor that has read none. */
const EMPTY_PAGE: Page = {
  count: 0,
  numbers: new Uint32Array(0),
  values: 0,
  bytes: new Uint8Array(0),
  changes: 0,
};

/** A position in a range of keys, and the page that contains it. */
class Walk {
  private lower: Uint8Array<ArrayBuffer> | undefined;
  private upper: Uint8Array<ArrayBuffer> | undefined;
  private lowerExcluded: boolean;
  private upperIncluded: boolean;
  private readonly reverse: boolean;
  private readonly asBytes: boolean;
  /** Whether values are read too. */
  private readonly withValues: boolean;
  private readonly space: Space;
  /** Number of keys that may still be returned. */
  private left: number;
  private pageSize: number;
  private page: Page;
  /** Fields of the page, copied here for the hot path. */
  private numbers: Uint32Array;
  private values: number;
  private size: number;
  private changes: number;
  /**
   * All keys of the page in one string, if they are ASCII, so that its indexes are those of the bytes; `undefined`
   * if not, `null` if not decoded yet.
   */
  private text: string | undefined | null;
  /** Number of keys of the page that were passed, including the current one. */
  private index: number;

  constructor(bounds: Bounds, withValues: boolean, space: Space) {
    this.withValues = withValues;
    this.space = space;
    this.lower = bounds.lower;
    this.upper = bounds.upper;
    this.lowerExcluded = bounds.lowerExcluded;
    this.upperIncluded = bounds.upperIncluded;
    this.reverse = bounds.reverse;
    this.asBytes = bounds.asBytes;
    this.left = bounds.limit;
    this.pageSize = FIRST_PAGE;
    this.page = EMPTY_PAGE;
    this.numbers = EMPTY_PAGE.numbers;
    this.values = 0;
    this.size = 0;
    this.changes = 0;
    this.text = undefined;
    this.index = 0;
  }

  /**
   * The fast path to the next key: returns a view of its value if the key is on the page and the value has not
   * moved, and counts the key. Returns `undefined` if nothing was done; then use `advance` and `find`.
   */
  step(engine: Engine): Uint8Array<ArrayBuffer> | undefined {
    const { index, numbers } = this;
    if (index >= this.size || this.changes !== engine.changes) return undefined;
    const value = this.values + 2 * index;
    const at = numbers[value] as number;
    if (at === 0) return undefined;
    this.index = index + 1;
    this.left -= 1;
    return engine.viewAt(at, numbers[value + 1] as number);
  }

  /** Moves to the next key. Returns `false` if there is none. */
  advance(session: Session): boolean {
    if (this.index >= this.size) return this.left !== 0 && this.loadPage(session);
    this.index += 1;
    return true;
  }

  /** Counts the current key towards the limit. */
  count(): void {
    this.left -= 1;
  }

  key(): KeyForm {
    const { numbers, index } = this;
    const start = numbers[index - 1] as number;
    const end = numbers[index] as number;
    if (this.text === null) this.text = asciiOf(this.page.bytes);
    if (this.text !== undefined) return this.text.substring(start, end);
    const bytes = this.page.bytes.slice(start, end);
    if (this.asBytes) return bytes;
    try {
      return decoder.decode(bytes);
    } catch (cause) {
      this.stop();
      throw Object.assign(
        badArgument(
          "A key in this range is not UTF-8, so it is not a string. Get keys as bytes with the " +
            'option keyAs: "bytes".',
        ),
        { cause },
      );
    }
  }

  /**
   * The address of the current value of the current key, or 0 if the key was deleted meanwhile. Its length is
   * `foundLength()`.
   */
  find(session: Session): number {
    try {
      return session.engine.findOnPage(this.page, this.index - 1, this.space.keyspace);
    } catch (error) {
      this.stepBack();
      throw error;
    }
  }

  /** Lets the next step try the current key again, because reading it failed. */
  stepBack(): void {
    this.index -= 1;
  }

  /** Ends the iteration. */
  stop(): void {
    this.left = 0;
    this.size = 0;
    this.page = EMPTY_PAGE;
    this.text = undefined;
  }

  private loadPage(session: Session): boolean {
    this.moveBound();
    const maxKeys = Math.min(this.pageSize, this.left);
    this.pageSize = Math.min(this.pageSize * 4, MAX_PAGE_LENGTH);
    const { lower, upper, lowerExcluded, upperIncluded, reverse } = this;
    const page = session.engine.scan(
      { lower, upper, lowerExcluded, upperIncluded, reverse },
      maxKeys,
      this.withValues,
      this.space.keyspace,
    );
    if (page.count === 0) {
      this.stop();
      return false;
    }
    this.page = page;
    this.numbers = page.numbers;
    this.values = page.values;
    this.size = page.count;
    this.changes = page.changes;
    this.text = this.asBytes ? undefined : null;
    this.index = 1;
    return true;
  }

  /** Moves the bound of the range to the last key of the page. */
  private moveBound(): void {
    const { size, numbers } = this;
    if (size === 0) return;
    const last = this.page.bytes.slice(numbers[size - 1], numbers[size]);
    if (this.reverse) {
      this.upper = last;
      this.upperIncluded = false;
    } else {
      this.lower = last;
      this.lowerExcluded = true;
    }
    this.size = 0;
  }
}

/** Decodes bytes if they are ASCII; `undefined` if not. */
function asciiOf(bytes: Uint8Array<ArrayBuffer>): string | undefined {
  try {
    const text = decoder.decode(bytes);
    return text.length === bytes.length ? text : undefined;
  } catch {
    // Some keys are not UTF-8: each is decoded on its own when it is reached.
    return undefined;
  }
}

/**
 * A walk over a range: the iterator that `for…of` uses, or that you call `next()` on yourself. `return()`
 * ends it, and so does the end of a `using` block.
 */
export interface Walker<T> extends IterableIterator<T, undefined>, Disposable {
  /** Goes to the next step. A view from the step before ends. */
  next(): IteratorResult<T, undefined>;
  /** Ends the walk. */
  return(): IteratorReturnResult<undefined>;
  [Symbol.iterator](): this;
}

/** Base class of the iterators, each with its own position. */
export abstract class Steps<T> implements Walker<T> {
  protected readonly walk: Walk;
  protected readonly source: Source;
  /** In strict mode, the copy of the latest value, which is detached at the next step. */
  private tracked: Uint8Array<ArrayBuffer> | undefined;
  /** The engine's `turn` when a view was given out that has to stay valid until the next step; -1 if none. */
  protected heldIn: number;

  constructor(source: Source, bounds: Bounds, withValues: boolean, space: Space) {
    this.walk = new Walk(bounds, withValues, space);
    this.source = source;
    this.tracked = undefined;
    this.heldIn = -1;
  }

  /** Keeps a view that is about to be given out valid until the next step. */
  protected hold(engine: Engine): void {
    engine.rowsHeld += 1;
    this.heldIn = engine.turn;
  }

  /** Releases that view at the next step. */
  protected releaseRow(engine: Engine): void {
    if (this.heldIn === engine.turn && engine.rowsHeld > 0) engine.rowsHeld -= 1;
    this.heldIn = -1;
  }

  abstract next(): IteratorResult<T, undefined>;

  /** The typed view of the value at this address, valid until the next step. */
  typed<View>(
    session: Session,
    codec: Pick<Codec<View, unknown, unknown>, "view">,
    at: number,
  ): View {
    const { engine } = session;
    this.hold(engine);
    if (!session.strict) {
      if (engine.mustCopy) return engine.copied(codec, at);
      return codec.view(engine.memory, at, engine.foundLength());
    }
    const bytes = this.bytes(session, at);
    return codec.view(session.trackedMemory(bytes), 0, bytes.length);
  }

  /** The bytes of the value at this address, valid until the next step. */
  protected bytes(session: Session, at: number): Uint8Array<ArrayBuffer> {
    const value = session.shown(at);
    if (session.strict) this.tracked = value;
    return value;
  }

  return(): IteratorReturnResult<undefined> {
    if (this.heldIn >= 0) this.releaseRow(this.source().engine);
    this.untrack();
    this.walk.stop();
    return { done: true, value: undefined };
  }

  [dispose](): void {
    this.return();
  }

  [Symbol.iterator](): this {
    return this;
  }

  protected session(): Session {
    const session = this.source();
    if (this.heldIn >= 0) this.releaseRow(session.engine);
    if (session.guard.gate !== 0) {
      session.guard.assertReadable();
      this.untrack();
    }
    return session;
  }

  private untrack(): void {
    const { tracked } = this;
    if (tracked === undefined) return;
    this.tracked = undefined;
    this.source().untrack(tracked);
  }
}

class KeySteps<K> extends Steps<K> {
  next(): IteratorResult<K, undefined> {
    const { walk } = this;
    if (!walk.advance(this.session())) return { done: true, value: undefined };
    walk.count();
    return { done: false, value: walk.key() as K };
  }
}

/** Base class of iterators that give the bytes of values. */
abstract class ByteSteps<T> extends Steps<T> {
  constructor(source: Source, bounds: Bounds, space: Space) {
    super(source, bounds, true, space);
  }

  /** The value of the next key that still exists. */
  protected nextValue(): Uint8Array<ArrayBuffer> | undefined {
    const { guard, engine } = this.source();
    // An open gate also means that views are not tracked. Values with an address on the page are in memory.
    const value = guard.gate === 0 ? this.walk.step(engine) : undefined;
    if (value === undefined) return this.nextSlow();
    if (this.heldIn !== engine.turn) this.hold(engine);
    return value;
  }

  private nextSlow(): Uint8Array<ArrayBuffer> | undefined {
    const { walk } = this;
    const session = this.session();
    while (walk.advance(session)) {
      const at = walk.find(session);
      if (at === 0) continue;
      walk.count();
      this.hold(session.engine);
      return this.bytes(session, at);
    }
    return undefined;
  }
}

class ValueSteps extends ByteSteps<Uint8Array<ArrayBuffer>> {
  next(): IteratorResult<Uint8Array<ArrayBuffer>, undefined> {
    const value = this.nextValue();
    return value === undefined ? { done: true, value } : { done: false, value };
  }
}

class EntrySteps<K> extends ByteSteps<[K, Uint8Array<ArrayBuffer>]> {
  next(): IteratorResult<[K, Uint8Array<ArrayBuffer>], undefined> {
    const value = this.nextValue();
    if (value === undefined) return { done: true, value };
    return { done: false, value: [this.walk.key() as K, value] };
  }
}

/** The keys, values or entries of a range. Each `for…of` over it starts again. */
export class Scan<T> implements Iterable<T, undefined> {
  private readonly begin: () => Walker<T>;

  /** @internal */
  constructor(begin: () => Walker<T>) {
    this.begin = begin;
  }

  /** Starts a walk at the start of the range. */
  [Symbol.iterator](): Walker<T> {
    return this.begin();
  }
}

/** The keys of a range, in the form that its bounds ask for. */
export function keysOf<K extends KeyForm>(
  source: Source,
  bounds: Bounds,
  space = RAW_SPACE,
): Scan<K> {
  return new Scan<K>(() => new KeySteps<K>(source, bounds, false, space));
}

export function valuesOf(
  source: Source,
  bounds: Bounds,
  space = RAW_SPACE,
): Scan<Uint8Array<ArrayBuffer>> {
  return new Scan(() => new ValueSteps(source, bounds, space));
}

/** The entries of a range, their keys in the form that its bounds ask for. */
export function entriesOf<K extends KeyForm>(
  source: Source,
  bounds: Bounds,
  space = RAW_SPACE,
): Scan<[K, Uint8Array<ArrayBuffer>]> {
  return new Scan<[K, Uint8Array<ArrayBuffer>]>(() => new EntrySteps<K>(source, bounds, space));
}
