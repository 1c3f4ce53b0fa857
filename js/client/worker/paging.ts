/**
 * Pages of rows for a client's `for await`. Each page is as of one moment, and the next one begins behind the
 * last key, as with a local iteration during writes.
 */

import { badArgument } from "../../errors/index.js";
import type { Range } from "../../session/key-range.js";
import type { Cursor, PlainRows } from "../protocol/packed-rows.js";

/** The size of the first page, which is small for loops that read a few rows only. */
const FIRST_ROWS = 64;
const MAX_PAGE_ROWS = 1_024;

/** The size of a page's values at which it ends. */
const MAX_PAGE_BYTES = 262_144;

/** Reads the keys and values of a range. */
type Rows = (range: object) => Iterable<readonly [key: unknown, value: unknown]>;

/** Reads one page of a range. `behind` returns the part of a range behind a key. */
export function pageOf(
  range: Range = {},
  cursor: Cursor | null,
  behind: (range: Range, key: unknown) => object,
  rows: Rows,
  pick: (key: unknown, value: unknown) => unknown,
): PlainRows {
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
