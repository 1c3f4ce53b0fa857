/**
 * Pages of rows for a client's `for await`. Each page is as of one moment, and the next one begins behind the
 * last key, as with a local iteration during writes.
 */

import { badArgument } from "../../errors/index.js";
import type { ByteRange, Range } from "../../session/key-range.js";

/** The size of the first page, which is small for loops that read a few rows only. */
const FIRST_ROWS = 64;
const MAX_PAGE_ROWS = 1_024;

/** The size of a page's values at which it ends. */
const MAX_PAGE_BYTES = 262_144;

/** The end of a page: its last key, and the number of rows that may follow. The client returns it unchanged. */
export type Cursor = readonly [key: unknown, left: number];

/** A page of rows. `after` is missing on the last page. */
export interface Page {
  readonly rows: readonly unknown[];
  readonly after?: Cursor;
}

/** Reads the keys and values of a range. */
type Rows = (range: object) => Iterable<readonly [key: unknown, value: unknown]>;

/** Reads one page of a range. `behind` returns the part of a range behind a key. */
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
  const most = cursor === null ? FIRST_ROWS : MAX_PAGE_ROWS;
  const rest = cursor === null ? range : { ...behind(range, cursor[0]), limit: undefined };
  const page: unknown[] = [];
  let bytes = 0;
  if (left === 0) return { rows: page };
  for (const [key, value] of rows(rest)) {
    page.push(pick(key, value));
    left -= 1;
    bytes += (value as { byteLength?: number } | undefined)?.byteLength ?? 0;
    if (left === 0) break;
    if (page.length === most || bytes >= MAX_PAGE_BYTES) return { rows: page, after: [key, left] };
  }
  return { rows: page };
}

/** The part of a range of raw keys behind a key. */
export function rangeAfterKey(range: Range, key: unknown): ByteRange {
  const { gt, gte, lt, lte, ...rest } = range as ByteRange;
  return range.reverse === true
    ? { ...rest, gt, gte, lt: key as string }
    : { ...rest, lt, lte, gt: key as string };
}

/** Keys as rows without values. */
export function* keysOf(keys: Iterable<unknown>): Generator<readonly [unknown, undefined]> {
  for (const key of keys) yield [key, undefined];
}
