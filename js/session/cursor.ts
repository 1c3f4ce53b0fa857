/**
 * Walks over keys in order. Keys come in pages, each one call into the engine and copied out of its
 * memory, so that a walk that is left early leaves nothing behind, and one that goes on while the
 * program writes is a matter of going on behind the last key.
 */

import type { Engine } from "../engine/engine.js";
import { type Page, RAW } from "../engine/wasm-memory.js";
import { badArgument } from "../errors/index.js";
import type { Codec } from "../struct/codec.js";
import { dispose } from "../util/dispose.js";
import { decoder } from "../util/text-coders.js";
import type { Bounds } from "./key-range.js";
import type { Session } from "./session.js";

/** The session of the handle that a walk belongs to, asked for at every step: it may have closed. */
export type Source = () => Session;

/** What is walked over. Asked at every page: a collection that was migrated lies elsewhere. */
export interface Space {
  readonly keyspace: number;
}

const RAW_SPACE: Space = { keyspace: RAW };

/** A key in the form that was asked for. */
type KeyForm = string | Uint8Array<ArrayBuffer>;

/** The first page is small, for those who look at a few keys and leave; the last ones are not. */
const FIRST_PAGE = 64;
const LARGEST_PAGE = 1_024;

/** What a walk has when it has no page. */
const NOTHING: Page = {
  count: 0,
  numbers: new Uint32Array(0),
  values: 0,
  bytes: new Uint8Array(0),
  changes: 0,
};

/** A place in a range of keys, and the page that it lies in. */
class Walk {
  private lower: Uint8Array<ArrayBuffer> | undefined;
  private upper: Uint8Array<ArrayBuffer> | undefined;
  private lowerExcluded: boolean;
  private upperIncluded: boolean;
  private readonly reverse: boolean;
  private readonly asBytes: boolean;
  /** Whether the values are wanted too. */
  private readonly withValues: boolean;
  private readonly space: Space;
  /** How many keys may still come. */
  private left: number;
  private pageSize: number;
  private page: Page;
  /** As the page has them. */
  private numbers: Uint32Array;
  private values: number;
  private size: number;
  private changes: number;
  /**
   * All keys of the page in one string, if that is ASCII and places in it are places in the bytes;
   * `undefined` if not, `null` if nobody has asked.
   */
  private text: string | undefined | null;
  /** How many of its keys were passed, the one that it is at included. */
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
    this.page = NOTHING;
    this.numbers = NOTHING.numbers;
    this.values = 0;
    this.size = 0;
    this.changes = 0;
    this.text = undefined;
    this.index = 0;
  }

  /**
   * The shortest way to the next key and a view of its value: it is on the page, and the value where it
   * was. It counts. `undefined`: nothing was done, and it takes `advance` and `find`.
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

  /** Goes to the next key. `false`: there is none. */
  advance(session: Session): boolean {
    if (this.index >= this.size) return this.left !== 0 && this.turnPage(session);
    this.index += 1;
    return true;
  }

  /** The key that it is at counts: it was seen. */
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
   * The address of the current value of the key that it is at, whose length is `foundLength()`; 0 if
   * that was deleted meanwhile.
   */
  find(session: Session): number {
    try {
      return session.engine.findOnPage(this.page, this.index - 1, this.space.keyspace);
    } catch (error) {
      // It was not seen: the next step is to try it again.
      this.index -= 1;
      throw error;
    }
  }

  /** Ends it, wherever it is. */
  stop(): void {
    this.left = 0;
    this.size = 0;
    this.page = NOTHING;
    this.text = undefined;
  }

  private turnPage(session: Session): boolean {
    this.passPage();
    const wanted = Math.min(this.pageSize, this.left);
    this.pageSize = Math.min(this.pageSize * 4, LARGEST_PAGE);
    const { lower, upper, lowerExcluded, upperIncluded, reverse } = this;
    const page = session.engine.scan(
      { lower, upper, lowerExcluded, upperIncluded, reverse },
      wanted,
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

  /** What is left of the range lies behind the last key of the page. */
  private passPage(): void {
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

/** The bytes as text, if each of them is one character of it. */
function asciiOf(bytes: Uint8Array<ArrayBuffer>): string | undefined {
  try {
    const text = decoder.decode(bytes);
    return text.length === bytes.length ? text : undefined;
  } catch {
    // Keys that are not UTF-8: each is looked at when its turn comes.
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

/** Each has its own place. */
export abstract class Steps<T> implements Walker<T> {
  protected readonly walk: Walk;
  protected readonly source: Source;
  /** In strict mode the bytes of the value that was shown last: it dies with the next step. */
  private tracked: Uint8Array<ArrayBuffer> | undefined;
  /** The engine's `turn` when a view was given that has to live until the next step; -1 if none was. */
  protected heldIn: number;

  constructor(source: Source, bounds: Bounds, withValues = false, space = RAW_SPACE) {
    this.walk = new Walk(bounds, withValues, space);
    this.source = source;
    this.tracked = undefined;
    this.heldIn = -1;
  }

  /** A view that is to be given has to live until the next step. */
  protected hold(engine: Engine): void {
    engine.rowsHeld += 1;
    this.heldIn = engine.turn;
  }

  /** That next step: it need not live any more. */
  protected letGo(engine: Engine): void {
    if (this.heldIn === engine.turn && engine.rowsHeld > 0) engine.rowsHeld -= 1;
    this.heldIn = -1;
  }

  abstract next(): IteratorResult<T, undefined>;

  /** The value at this address, as its codec shows it: good until the next step. */
  typed<View>(
    session: Session,
    codec: Pick<Codec<View, unknown, unknown>, "view">,
    at: number,
  ): View {
    const { engine } = session;
    this.hold(engine);
    if (!session.strict) {
      if (engine.copies) return engine.copied(codec, at);
      return codec.view(engine.memory, at, engine.foundLength());
    }
    const bytes = this.bytes(session, at);
    return codec.view(session.trackedMemory(bytes), 0, bytes.length);
  }

  /** The same, undecoded. */
  protected bytes(session: Session, at: number): Uint8Array<ArrayBuffer> {
    const value = session.shown(at);
    if (session.strict) this.tracked = value;
    return value;
  }

  return(): IteratorReturnResult<undefined> {
    if (this.heldIn >= 0) this.letGo(this.source().engine);
    this.takeBack();
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
    if (this.heldIn >= 0) this.letGo(session.engine);
    if (session.gate !== 0) {
      session.assertReadable();
      this.takeBack();
    }
    return session;
  }

  private takeBack(): void {
    const { tracked } = this;
    if (tracked === undefined) return;
    this.tracked = undefined;
    this.source().takeBack(tracked);
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

/** Steps that show a value's bytes. */
abstract class ByteSteps<T> extends Steps<T> {
  constructor(source: Source, bounds: Bounds) {
    super(source, bounds, true);
  }

  /** The value of the next key that still has one. */
  protected nextValue(): Uint8Array<ArrayBuffer> | undefined {
    const { gate, engine } = this.source();
    // Where nothing stands in the way, nothing is watched either. What the page tells is in memory.
    const value = gate === 0 ? this.walk.step(engine) : undefined;
    if (value === undefined) return this.slowly();
    if (this.heldIn !== engine.turn) this.hold(engine);
    return value;
  }

  private slowly(): Uint8Array<ArrayBuffer> | undefined {
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
export function keysOf<K extends KeyForm>(source: Source, bounds: Bounds): Scan<K> {
  return new Scan<K>(() => new KeySteps<K>(source, bounds));
}

export function valuesOf(source: Source, bounds: Bounds): Scan<Uint8Array<ArrayBuffer>> {
  return new Scan(() => new ValueSteps(source, bounds));
}

/** The entries of a range, their keys in the form that its bounds ask for. */
export function entriesOf<K extends KeyForm>(
  source: Source,
  bounds: Bounds,
): Scan<[K, Uint8Array<ArrayBuffer>]> {
  return new Scan<[K, Uint8Array<ArrayBuffer>]>(() => new EntrySteps<K>(source, bounds));
}
