/**
 * The form of answers with many rows: keys and values back to back in buffers, which are transferred and not cloned,
 * and decoded by the page. A buffer begins with unsigned 32-bit numbers: the count of its rows, the ends of their keys
 * if it has keys, and the ends of their values if it has values. The keys follow, and then the values.
 */

/**
 * The form of packed values: those of raw keys, the texts of `json()`, which are separated by commas, the UTF-8 of
 * `text()`, and structs.
 */
export type ValueForm = "bytes" | "json" | "text" | "struct";

/** The end of a page: its last key, and the number of rows that may follow. The client returns it unchanged. */
export type Cursor = readonly [key: unknown, left: number];

/** Rows in buffers. */
export class PackedRows {
  readonly parts: readonly ArrayBuffer[];
  /** The form of the values; `undefined` if there are only keys. */
  readonly form: ValueForm | undefined;
  /** The form of the keys in the buffers, or all keys as they are; `undefined` if there are only values. */
  readonly keys: "text" | "bytes" | readonly unknown[] | undefined;
  /** The indexes of rows without a value, in ascending order. */
  readonly missing: readonly number[];
  /** Where the next page begins, if there is one. */
  readonly after: Cursor | undefined;

  constructor(
    parts: readonly ArrayBuffer[],
    form: PackedRows["form"],
    keys: PackedRows["keys"],
    missing: readonly number[] = [],
    after?: Cursor,
  ) {
    this.parts = parts;
    this.form = form;
    this.keys = keys;
    this.missing = missing;
    this.after = after;
  }
}

/** Rows as they are: those that only the worker can decode. */
export interface PlainRows {
  readonly rows: readonly unknown[];
  readonly after?: Cursor | undefined;
}

/** The answer of a call that reads many rows. */
export type RowsAnswer = PackedRows | PlainRows;

/** A smaller buffer is cloned, which takes less time than its transfer. */
const LEAST_TRANSFER = 4_096;

/** The part of a message that may have packed rows: answers, or the changed rows of a watch. */
interface WithRows {
  readonly type: string;
  readonly answers?: readonly { readonly outcome: object }[];
  readonly rows?: { readonly values: RowsAnswer };
}

/** The buffers of a message that are to be transferred. They cannot be used here afterwards. */
export function buffersOf(message: { readonly type: string }): ArrayBuffer[] {
  const { type, answers, rows } = message as WithRows;
  const buffers: ArrayBuffer[] = [];
  const add = (value: unknown) => {
    if (!(value instanceof PackedRows)) return;
    for (const part of value.parts) if (part.byteLength >= LEAST_TRANSFER) buffers.push(part);
  };
  if (type === "responses" && answers !== undefined) {
    for (const { outcome } of answers) if ("value" in outcome) add(outcome.value);
  }
  if (type === "changes") add(rows?.values);
  return buffers;
}
