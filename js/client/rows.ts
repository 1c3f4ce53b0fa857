/** Decodes the rows of an answer. */

import { badArgument } from "../errors/index.js";
import type { Memory, StructDescriptor } from "../struct/codec.js";
import { monotonicNow } from "../util/clock.js";
import { decoder } from "../util/text-coders.js";
import { nextPageTask } from "./page-task.js";
import type { PackedRows, RowsAnswer } from "./protocol/packed-rows.js";

/** The part of a schema that lists need. */
export interface RowSchema {
  readonly kind: StructDescriptor;
  view(memory: Memory, at: number, length: number): { snapshot(): unknown };
}

/** How rows are decoded. */
export interface RowDecoder {
  /** What a row is. */
  readonly row: "keys" | "values" | "entries";
  /** The schema of values that are structs. */
  readonly schema?: RowSchema | undefined;
  /** Whether values that are structs become views, and not plain objects. */
  readonly areViews?: boolean;
}

/** Milliseconds after which decoding lets the page do other work. */
const SLICE_MS = 5;

/** The rows of an answer. The rows of many buffers are decoded in several tasks. */
export async function allRows(answer: RowsAnswer, decoder: RowDecoder): Promise<unknown[]> {
  if ("rows" in answer) return answer.rows as unknown[];
  const { parts } = answer;
  if (parts.length === 0) return [];
  const rows = rowsOfPart(answer, 0, 0, decoder);
  let began = monotonicNow();
  for (let i = 1; i < parts.length; i += 1) {
    if (monotonicNow() > began + SLICE_MS) {
      await nextPageTask();
      began = monotonicNow();
    }
    for (const row of rowsOfPart(answer, i, rows.length, decoder)) rows.push(row);
  }
  return rows;
}

/** The rows in one buffer. `first`: the index of its first row in the answer. */
function rowsOfPart(
  answer: PackedRows,
  part: number,
  first: number,
  { row, schema, areViews }: RowDecoder,
): unknown[] {
  const buffer = answer.parts[part] as ArrayBuffer;
  const u8 = new Uint8Array(buffer);
  const count = new Uint32Array(buffer, 0, 1)[0] as number;
  const { form, keys: keyForm, missing } = answer;
  const areKeysHere = typeof keyForm === "string";
  const keyEnds = new Uint32Array(buffer, 4, areKeysHere ? count : 0);
  const valueEnds = new Uint32Array(buffer, 4 + keyEnds.byteLength, form ? count : 0);
  const keysAt = valueEnds.byteOffset + valueEnds.byteLength;
  const valuesAt = keysAt + (keyEnds[count - 1] ?? 0);
  let keys: readonly unknown[] = [];
  if (row !== "values") {
    keys = areKeysHere
      ? keyForm === "text"
        ? textsOf(u8.subarray(keysAt, valuesAt), keyEnds, NOT_UTF8)
        : copiesOf(u8.subarray(keysAt), keyEnds)
      : (keyForm ?? []).slice(first, first + count);
    if (row === "keys") return keys as unknown[];
  }
  const area = u8.subarray(valuesAt);
  let values: unknown[];
  if (form === "json") values = jsonOf(area, valueEnds);
  else if (form === "text") values = textsOf(area, valueEnds);
  else if (form === "bytes") values = copiesOf(area, valueEnds);
  else values = structsOf(u8, valuesAt, valueEnds, schema as RowSchema, areViews);
  for (const index of missing) {
    if (index >= first && index < first + count) values[index - first] = undefined;
  }
  if (row === "values") return values;
  return keys.map((key, i) => [key, values[i]]);
}

const NOT_UTF8 =
  "A key in this range is not UTF-8, so it is not a string. Get keys as bytes with the " +
  'option keyAs: "bytes".';

/** The key whose bytes are the characters of this string. */
export function keyFrom(order: string, form: "text" | "bytes"): string | Uint8Array {
  if (form === "text" && /^[\0-\x7f]*$/.test(order)) return order;
  const bytes = Uint8Array.from(order, (character) => character.charCodeAt(0));
  return form === "text" ? textOf(bytes, NOT_UTF8) : bytes;
}

/** Texts that lie one after the other. If all are ASCII, they are decoded together. */
function textsOf(area: Uint8Array, ends: Uint32Array, otherwise?: string): string[] {
  const texts: string[] = [];
  const all = asciiOf(area);
  let start = 0;
  for (const end of ends) {
    if (all === undefined) texts.push(textOf(area.subarray(start, end), otherwise));
    else texts.push(all.substring(start, end));
    start = end;
  }
  return texts;
}

/** The text of these bytes if it has a character for each; `undefined` if not. */
function asciiOf(bytes: Uint8Array): string | undefined {
  try {
    const text = decoder.decode(bytes);
    return text.length === bytes.length ? text : undefined;
  } catch {
    return undefined;
  }
}

function textOf(bytes: Uint8Array, otherwise?: string): string {
  try {
    return decoder.decode(bytes);
  } catch (cause) {
    if (otherwise === undefined) throw cause;
    throw Object.assign(badArgument(otherwise), { cause });
  }
}

function copiesOf(area: Uint8Array, ends: Uint32Array): Uint8Array[] {
  const copies: Uint8Array[] = [];
  let start = 0;
  for (const end of ends) {
    copies.push(area.slice(start, end));
    start = end;
  }
  return copies;
}

/** The values of JSON texts with commas between them: parsed together, which takes half the time. */
function jsonOf(area: Uint8Array, ends: Uint32Array): unknown[] {
  try {
    const values: unknown[] = JSON.parse(`[${decoder.decode(area)}]`);
    if (values.length === ends.length) return values;
  } catch {
    // Below, the error is that of the one value.
  }
  let start = 0;
  return Array.from(ends, (end) => {
    const text = decoder.decode(area.subarray(start, end));
    start = end + 1;
    return JSON.parse(text);
  });
}

/** The memory of the views of a buffer. They end only if the program transfers the buffer away. */
class BufferMemory implements Memory {
  readonly data: DataView;
  readonly u8: Uint8Array;

  constructor(u8: Uint8Array) {
    this.data = new DataView(u8.buffer);
    this.u8 = u8;
  }

  get epoch(): number {
    return this.u8.length === 0 ? -1 : 0;
  }
}

function structsOf(
  u8: Uint8Array,
  from: number,
  ends: Uint32Array,
  schema: RowSchema,
  areViews = false,
): unknown[] {
  const memory = new BufferMemory(u8);
  const values: unknown[] = [];
  let start = 0;
  for (const end of ends) {
    // A missing value has no bytes.
    if (end > start) {
      const view = schema.view(memory, from + start, end - start);
      values.push(areViews ? view : view.snapshot());
    } else values.push(undefined);
    start = end;
  }
  return values;
}
