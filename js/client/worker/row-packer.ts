/** Packs rows for an answer: the bytes of keys and values are copied, and decoded by the page only. */

import type { Engine } from "../../engine/engine.js";
import type { CopiedRows, KeyRange } from "../../engine/wasm-memory.js";
import { type Bounds, moveBehind, type Rest } from "../../session/key-range.js";
import type { Session } from "../../session/session.js";
import {
  type Cursor,
  PackedRows,
  type RowsAnswer,
  type ValueForm,
} from "../protocol/packed-rows.js";

/** The number of rows of the first page, which is small for loops that read a few rows only. */
const FIRST_ROWS = 64;

/** The number of rows of a page at most. */
const PAGE_ROWS = 1_024;

/** The number of rows of a buffer at most: a page decodes it in one task. */
const PART_ROWS = 512;

/** The size of a buffer's values at which it ends. */
const MAX_PART_BYTES = 262_144;

/** The size up to which the area below is kept. */
const MAX_KEPT = 1_048_576;

const COMMA = 0x2c;
const ZERO = 0x30;

const NONE = new Uint8Array(0);
const NO_ENDS: readonly number[] = [];

/** Values that are collected one by one. The area is kept for the next answer. */
let area = NONE;
let length = 0;

function add(from: Uint8Array, start: number, size: number): void {
  if (length + size > area.length) {
    const larger = new Uint8Array(Math.max(65_536, length + size, 2 * area.length));
    larger.set(area.subarray(0, length));
    area = larger;
  }
  area.set(from.subarray(start, start + size), length);
  length += size;
}

function reset(): void {
  length = 0;
  if (area.length > MAX_KEPT) area = NONE;
}

/** Makes a buffer of rows (`packed-rows.ts`). */
function bufferOf(
  count: number,
  keyEnds: ArrayLike<number>,
  valueEnds: ArrayLike<number>,
  keys: Uint8Array,
  values: Uint8Array,
): ArrayBuffer {
  const numbers = 1 + keyEnds.length + valueEnds.length;
  const buffer = new ArrayBuffer(4 * numbers + keys.length + values.length);
  const head = new Uint32Array(buffer, 0, numbers);
  head[0] = count;
  head.set(keyEnds, 1);
  head.set(valueEnds, 1 + keyEnds.length);
  const u8 = new Uint8Array(buffer);
  u8.set(keys, 4 * numbers);
  u8.set(values, 4 * numbers + keys.length);
  return buffer;
}

/** Collects values that are found one by one. Only one packer collects at a time. */
export class ValuePacker {
  readonly parts: ArrayBuffer[] = [];
  readonly missing: number[] = [];
  private readonly form: ValueForm;
  private ends: number[] = [];
  private rows = 0;

  constructor(form: ValueForm) {
    this.form = form;
    reset();
  }

  /** Adds the value at this address of a memory. */
  add(u8: Uint8Array, at: number, size: number): void {
    this.separate();
    add(u8, at, size);
    this.endRow();
    if (length >= MAX_PART_BYTES) this.endPart();
  }

  /** Adds a row whose key is missing. */
  addMissing(): void {
    this.missing.push(this.rows);
    this.separate();
    // A JSON text, because those of a buffer are parsed together.
    if (this.form === "json") add(Uint8Array.of(ZERO), 0, 1);
    this.endRow();
  }

  /** The answer of these rows, whose keys are given if they are wanted. */
  answer(keys?: readonly unknown[]): PackedRows {
    this.endPart();
    return new PackedRows(this.parts, this.form, keys, this.missing);
  }

  private separate(): void {
    if (this.form === "json" && this.ends.length > 0) add(Uint8Array.of(COMMA), 0, 1);
  }

  private endRow(): void {
    this.ends.push(length);
    this.rows += 1;
  }

  private endPart(): void {
    const { ends } = this;
    if (ends.length === 0) return;
    this.parts.push(bufferOf(ends.length, NO_ENDS, ends, NONE, area.subarray(0, length)));
    this.ends = [];
    reset();
  }
}

/** A range of keys that is to be packed. */
export interface PackedRange {
  readonly session: Session;
  readonly keyspace: number;
  readonly bounds: Bounds;
  /** The form of the values, if they are wanted. */
  readonly form: ValueForm | undefined;
  /** The form of the keys, if they are to be in the buffers. */
  readonly keyForm: "text" | "bytes" | undefined;
  /** Decodes keys that are wanted, but not in the buffers. */
  readonly keyOf?: ((bytes: Uint8Array<ArrayBuffer>) => unknown) | undefined;
}

/** Packs the whole range, or for a cursor (`null` at the beginning) the page behind it. */
export function packRange(range: PackedRange, cursor: Cursor | null | undefined): RowsAnswer {
  const { session, keyspace, bounds, form, keyForm, keyOf } = range;
  const { engine } = session;
  const rest: Rest = { ...bounds };
  if (cursor) moveBehind(rest, cursor[0] as Uint8Array<ArrayBuffer>);
  let left = cursor ? cursor[1] : bounds.limit;
  const isPage = cursor !== undefined;
  const most = cursor === null ? FIRST_ROWS : isPage ? PAGE_ROWS : PART_ROWS;
  const parts: ArrayBuffer[] = [];
  const keys: unknown[] | undefined = keyOf && [];
  let after: Cursor | undefined;
  while (left > 0) {
    const rows = rowsOf(engine, keyspace, rest, Math.min(most, left), form);
    const { count, keyEnds, valueEnds } = rows;
    if (count === 0) break;
    if (keys === undefined || form !== undefined) {
      const [ends, bytes] = keyForm === undefined ? [NO_ENDS, NONE] : [keyEnds, rows.keys];
      parts.push(bufferOf(count, ends, valueEnds, bytes, rows.values));
    }
    let start = 0;
    if (keyOf) {
      for (const end of keyEnds) {
        keys?.push(keyOf(rows.keys.slice(start, end)));
        start = end;
      }
    }
    left -= count;
    const last = rows.keys.slice(keyEnds[count - 2] ?? 0, keyEnds[count - 1]);
    moveBehind(rest, last);
    if (isPage) {
      if (left > 0 && engine.scan(rest, 1, false, keyspace).count > 0) after = [last, left];
      break;
    }
  }
  if (form === undefined && keys !== undefined) return { rows: keys, after };
  return new PackedRows(parts, form, keyForm ?? keys, [], after);
}

/** The first rows of a range. */
function rowsOf(
  engine: Engine,
  keyspace: number,
  range: KeyRange,
  most: number,
  form: ValueForm | undefined,
): Omit<CopiedRows, "valueEnds"> & { readonly valueEnds: ArrayLike<number> } {
  if (form !== undefined) {
    const rows = engine.copyRows(range, most, form === "json", keyspace);
    if (rows.count > 0) return rows;
  }
  // A large value is copied from where it is.
  const isLarge = form !== undefined;
  const page = engine.scan(range, isLarge ? 1 : most, isLarge, keyspace);
  const { count, numbers, bytes: keys } = page;
  const keyEnds = numbers.subarray(1, count + 1);
  if (!isLarge || count === 0) return { count, keyEnds, valueEnds: NO_ENDS, keys, values: NONE };
  const at = engine.findOnPage(page, 0, keyspace);
  const size = engine.foundLength();
  return { count, keyEnds, valueEnds: [size], keys, values: engine.u8.subarray(at, at + size) };
}
