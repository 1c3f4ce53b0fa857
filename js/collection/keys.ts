/** Key codecs of collections: encoding, decoding and the bounds of ranges. */

import type { Engine } from "../engine/engine.js";
import { badArgument } from "../errors/index.js";
import {
  type Bound,
  type Bounds,
  bounded,
  boundKey,
  boundsOf,
  endOfPrefix,
  type Range,
} from "../session/key-range.js";
import { refuseUnknown } from "../session/options.js";
import {
  kindOf,
  type Leading,
  type PartCodec,
  type PartKind,
  partCodec,
  TupleCodec,
} from "../struct/key.js";
import { MAX_KEY, TOO_LONG_KEY } from "../util/bytes.js";
import { decoder } from "../util/text-coders.js";

/** A bound of a range: a key or, for tuples, its first parts. */
export type BoundOf<K> = K extends readonly unknown[] ? Leading<K> : K;

/** A prefix of keys: text, bytes, or the first parts of a tuple. Numbers have no prefixes. */
export type PrefixOf<K> = K extends readonly unknown[]
  ? Leading<K>
  : K extends string | Uint8Array
    ? K
    : undefined;

/**
 * Selects keys of a collection, and the order in which they come. All that is given applies together. If keys
 * are tuples, a bound may be their first parts only: all keys that start with these are then on the same side
 * of it.
 */
export interface KeyRange<K, Bound = BoundOf<K>, Prefix = PrefixOf<K>> {
  /** Only keys after this one. Not together with `gte`. */
  gt?: Bound | undefined;
  /** Only this key and those after it. Not together with `gt`. */
  gte?: Bound | undefined;
  /** Only keys before this one. Not together with `lte`. */
  lt?: Bound | undefined;
  /** Only this key and those before it. Not together with `lt`. */
  lte?: Bound | undefined;
  /** Only keys that start with this text, these bytes, or these parts of a tuple. */
  prefix?: Prefix | undefined;
  /** Continues after this key, in the direction of the walk: the last key of the page before. */
  after?: K | undefined;
  /** From the last key to the first. `false` by default. */
  reverse?: boolean | undefined;
  /** At most this many keys: the first ones or, with `reverse`, the last ones. Unlimited by default. */
  limit?: number | undefined;
}

/** The codec of a collection's keys. */
export interface Keys<K, KeyInput = K> {
  /** The kind, as stored in the descriptor. */
  readonly kind: string | readonly PartKind[];
  /** Whether the keys are assigned by `push`. */
  readonly isAuto: boolean;
  /** Whether keys are of a kind that `push` may have assigned. */
  readonly areIds: boolean;
  /** Whether a key is a single value and not an array of parts. */
  readonly hasOnePart: boolean;
  /** Encodes a key into the engine's scratch area and returns its length. */
  encode(engine: Engine, key: KeyInput): number;
  /** Converts a key from the form in which a cursor gives it. */
  given(key: string | Uint8Array<ArrayBuffer>): K;
  /** Decodes a key. */
  decode(bytes: Uint8Array<ArrayBuffer>): K;
  bounds(call: string, range: AnyRange | undefined): Bounds;
}

/** A range of any key type. The types of the callers ensure that it fits. */
export type AnyRange = KeyRange<unknown, unknown, unknown>;

/** String keys, stored as their UTF-8. */
export const stringKeys: Keys<string> = {
  kind: "string",
  isAuto: false,
  areIds: false,
  hasOnePart: true,
  encode(engine, key) {
    if (typeof key !== "string")
      throw badArgument(
        "The keys of this collection are strings. Others are declared by the option key.",
        key,
      );
    return engine.encodeKey(key);
  },
  given: (key) => key as string,
  decode: (bytes) => decoder.decode(bytes),
  bounds: (call, range = {}) => rawBounds(call, range, false),
};

/** Byte keys, stored unchanged. */
const byteKeys: Keys<Uint8Array<ArrayBuffer>> = {
  kind: "bytes",
  isAuto: false,
  areIds: false,
  hasOnePart: true,
  encode(engine, key) {
    if (typeof key === "string")
      throw badArgument("The keys of this collection are bytes, not text.", key);
    return engine.encodeKey(key);
  },
  given: (key) => key as Uint8Array<ArrayBuffer>,
  decode: (bytes) => bytes,
  bounds: (call, range = {}) => rawBounds(call, range, true),
};

/** The kinds of keys that `push` assigns: here `u53`, in the native crate also `u64`. */
const ID_KINDS = ["u53", "u64"];

/** Keys that are a single encoded value. */
class SingleKeys implements Keys<unknown> {
  readonly kind: readonly PartKind[];
  readonly isAuto: boolean;
  readonly areIds: boolean;
  readonly hasOnePart = true;
  private readonly part: PartCodec;

  constructor(part: PartCodec, isAuto: boolean) {
    this.kind = [part.kind];
    this.isAuto = isAuto;
    this.areIds = "kind" in part.kind && ID_KINDS.includes(part.kind.kind);
    this.part = part;
  }

  encode(engine: Engine, key: unknown): number {
    return engine.encodeBy(this, key);
  }

  write(area: Uint8Array, key: unknown, isBound = false): number {
    return this.part.write(area, 0, key, isBound);
  }

  given(key: string | Uint8Array<ArrayBuffer>): unknown {
    return this.part.read(key as Uint8Array<ArrayBuffer>, 0);
  }

  decode(bytes: Uint8Array<ArrayBuffer>): unknown {
    return this.part.read(bytes, 0);
  }

  bounds(call: string, range: AnyRange | undefined): Bounds {
    return orderedBounds(call, range, this, this.part);
  }
}

/** Tuple keys. */
class TupleKeys extends TupleCodec implements Keys<readonly unknown[]> {
  readonly kind: readonly PartKind[];
  readonly isAuto = false;
  readonly areIds = false;
  readonly hasOnePart = false;

  constructor(what: string, parts: readonly PartCodec[]) {
    super(what, parts);
    this.kind = parts.map((part) => part.kind);
  }

  encode(engine: Engine, key: readonly unknown[]): number {
    return engine.encodeBy(this, key);
  }

  /** Also encodes bounds. Checks for an array, because any other value would count as an empty tuple and match all. */
  override write(area: Uint8Array, values: readonly unknown[], leading = false): number {
    if (!Array.isArray(values)) {
      throw badArgument(`${this.what} must be an array of ${this.parts.length} parts.`, values);
    }
    return super.write(area, values, leading);
  }

  given(key: string | Uint8Array<ArrayBuffer>): unknown[] {
    return this.read(key as Uint8Array<ArrayBuffer>, 0);
  }

  decode(bytes: Uint8Array<ArrayBuffer>): unknown[] {
    return this.read(bytes, 0);
  }

  bounds(call: string, range: AnyRange | undefined): Bounds {
    return orderedBounds(call, range, this);
  }
}

/** The key codec for the option `key`. */
export function keyKindOf(spec: unknown): Keys<unknown> {
  const what = "The key";
  if (spec === undefined) return stringKeys as Keys<unknown>;
  if (Array.isArray(spec)) {
    if (spec.length === 0) throw badArgument("A key tuple needs at least one part.", spec);
    const parts = spec.map((part, i) => {
      const name = `Part ${i} of the key`;
      return partCodec(kindOf(part, name), name);
    });
    return new TupleKeys(what, parts) as Keys<unknown>;
  }
  if ((spec as { auto?: unknown } | null)?.auto === true) {
    return new SingleKeys(partCodec({ kind: "u53" }, what), true);
  }
  const kind = kindOf(spec, what);
  if ("kind" in kind && kind.kind === "str") return stringKeys as Keys<unknown>;
  if ("kind" in kind && kind.kind === "blob") return byteKeys as Keys<unknown>;
  return new SingleKeys(partCodec(kind, what), false);
}

/** The key codec for a stored kind. A single part is not a tuple. */
export function storedKeys(kind: string | readonly unknown[]): Keys<unknown> {
  if (kind === "string") return stringKeys as Keys<unknown>;
  if (kind === "bytes") return byteKeys as Keys<unknown>;
  const parts = Array.from(kind, (part, i) => partCodec(part as PartKind, `Part ${i} of the key`));
  const [part] = parts;
  if (part !== undefined && parts.length === 1) return new SingleKeys(part, false);
  return new TupleKeys("The key", parts) as Keys<unknown>;
}

/** The bounds of keys that are stored unencoded. */
function rawBounds(call: string, given: AnyRange, asBytes: boolean): Bounds {
  refuseUnknown(call, given, OPTIONS);
  const { after, ...range } = given;
  const bounds = boundsOf(call, range as Range);
  const { lower, upper, reverse } = bounds;
  const last =
    after === undefined ? after : { key: boundKey(call, "after", after), included: false };
  return bounded(
    call,
    range,
    [lower && { key: lower, included: !bounds.lowerExcluded }, reverse ? undefined : last],
    [upper && { key: upper, included: bounds.upperIncluded }, reverse ? last : undefined],
    asBytes,
  );
}

const OPTIONS = ["gt", "gte", "lt", "lte", "prefix", "after", "reverse", "limit"];

/** Encodes values, or the leading parts of one, so that the order of the bytes is that of the values. */
interface Ordered {
  write(area: Uint8Array, value: never, leading?: boolean): number;
}

let spare: Uint8Array<ArrayBuffer> | undefined;

/** Encodes a value, or the leading parts of one. */
export function bytesOf(ordered: Ordered, value: unknown): Uint8Array<ArrayBuffer> {
  const area = spare ?? new Uint8Array(MAX_KEY + 2);
  // Code of the value itself, such as a getter, may call this function again meanwhile.
  spare = undefined;
  const length = ordered.write(area, value as never, true);
  spare = area;
  if (length > MAX_KEY) throw badArgument(TOO_LONG_KEY);
  return area.slice(0, length);
}

/** Options of `orderedBounds`. */
interface Order {
  /** Encodes the option `after`, if it is not a single value. */
  readonly encodeAfter?: (after: unknown) => Uint8Array<ArrayBuffer>;
  /** Whether a value is text or bytes, so that the option `prefix` is a prefix of it. */
  readonly isRun?: boolean | undefined;
  /** Whether the option `eq` is allowed. */
  readonly withEq?: boolean;
}

/**
 * The bounds of keys whose parts mark their own ends, so that all keys that start with the bytes of a bound are on
 * the same side of it.
 */
export function orderedBounds(
  call: string,
  range: (AnyRange & { readonly eq?: unknown }) | undefined,
  ordered: Ordered,
  order: Order = {},
): Bounds {
  if (range === undefined) return bounded(call, {}, [], [], true);
  refuseUnknown(call, range, order.withEq === true ? [...OPTIONS, "eq"] : OPTIONS);
  const { gt, gte, lt, lte, prefix, eq, after, reverse } = range;
  if (gt !== undefined && gte !== undefined)
    throw badArgument(`${call} takes gt or gte, not both.`);
  if (lt !== undefined && lte !== undefined)
    throw badArgument(`${call} takes lt or lte, not both.`);
  const lower: (Bound | undefined)[] = [];
  const upper: (Bound | undefined)[] = [];
  const bytes = (value: unknown) => bytesOf(ordered, value);
  const within = (first: Uint8Array<ArrayBuffer>) => {
    lower.push({ key: first, included: true });
    upper.push(endOfPrefix(first));
  };
  if (gte !== undefined) lower.push({ key: bytes(gte), included: true });
  if (gt !== undefined) lower.push(beyond(bytes(gt)));
  if (lt !== undefined) upper.push({ key: bytes(lt), included: false });
  if (lte !== undefined) upper.push(endOfPrefix(bytes(lte)));
  if (eq !== undefined) within(bytes(eq));
  // Without the end mark, of two bytes, longer texts match too.
  if (prefix !== undefined) {
    within(bytes(prefix).subarray(0, order.isRun === true ? -2 : undefined));
  }
  if (after !== undefined) {
    const key = order.encodeAfter === undefined ? bytes(after) : order.encodeAfter(after);
    (reverse === true ? upper : lower).push({ key, included: false });
  }
  return bounded(call, range, lower, upper, true);
}

/** The lower bound after all keys with this prefix. */
function beyond(prefix: Uint8Array<ArrayBuffer>): Bound {
  const bound = endOfPrefix(prefix);
  // If the prefix cannot be raised, no key follows: this bound is longer than any key.
  if (bound === undefined) return { key: new Uint8Array(MAX_KEY + 1).fill(0xff), included: false };
  return { key: bound.key, included: true };
}
