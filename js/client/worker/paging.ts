/**
 * What a client goes over with `for await`, a page at a time: each as of one moment, and the next one goes on
 * behind the last key, as an iteration does that is written beside.
 */

import { badArgument } from "../../errors/index.js";
import type { ByteRange, Range } from "../../session/key-range.js";

/** The first page is small, for those who look at a few and leave. */
const FIRST_ROWS = 64;
const MOST_ROWS = 1_024;

/** A page ends when its values are so large. */
const MOST_BYTES = 262_144;

/** Where a page ended: behind this key, and how many may still come. A client gives it back as it is. */
export type Cursor = readonly [key: unknown, left: number];

/** Some of what is wanted. No cursor: there is nothing behind it. */
export interface Page {
  readonly rows: readonly unknown[];
  readonly after?: Cursor;
}

/** What is paged: keys with what a row is made of. */
type Rows = (range: object) => Iterable<readonly [key: unknown, value: unknown]>;

/** One page of a range. `behind` has a range begin behind a key. */
export function pageOf(
  range: Range = {},
  cursor: Cursor | null,
  behind: (range: Range, key: unknown) => object,
  rows: Rows,
  pick: (key: unknown, value: unknown) => unknown,
): Page {
  if (Object(range) !== range) throw badArgument("A range must be an object.", range);
  const { limit = Number.POSITIVE_INFINITY } = range;
  let left = cursor === null ? limit : cursor[1];
  const most = cursor === null ? FIRST_ROWS : MOST_ROWS;
  const wanted = cursor === null ? range : { ...behind(range, cursor[0]), limit: undefined };
  const page: unknown[] = [];
  let bytes = 0;
  if (left === 0) return { rows: page };
  for (const [key, value] of rows(wanted)) {
    page.push(pick(key, value));
    left -= 1;
    bytes += (value as { byteLength?: number } | undefined)?.byteLength ?? 0;
    if (left === 0) break;
    if (page.length === most || bytes >= MOST_BYTES) return { rows: page, after: [key, left] };
  }
  return { rows: page };
}

/** The part of a range of raw keys that comes behind one of them. */
export function behindKey(range: Range, key: unknown): ByteRange {
  const { gt, gte, lt, lte, ...rest } = range as ByteRange;
  return range.reverse === true
    ? { ...rest, gt, gte, lt: key as string }
    : { ...rest, lt, lte, gt: key as string };
}

/** Keys as rows of which there is nothing else. */
export function* keysOf(keys: Iterable<unknown>): Generator<readonly [unknown, undefined]> {
  for (const key of keys) yield [key, undefined];
}
