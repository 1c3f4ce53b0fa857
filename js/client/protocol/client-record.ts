/**
 * A client's record in the engine's own keyspace: the answers that the client may still ask for again. The
 * layout is defined in FORMAT.md, section 8.
 */

import type { Outcome, WireError } from "./messages.js";
import { pack, unpack } from "./serialize.js";

/** The outcome of a write, by its number. */
export interface Result {
  readonly request: number;
  readonly outcome: Outcome;
}

/** The record of a client. */
export interface ClientRecord {
  /** The number up to which the client needs no more answers. */
  readonly acknowledged: number;
  /** The time after which the record is removed. */
  readonly lease: number;
  /** The results above `acknowledged`, in ascending order. */
  readonly results: readonly Result[];
}

const HEAD = 24;
const RESULT_HEAD = 16;

const SUCCESS = 0;
const FAILURE = 1;
/** The write was applied, and its answer is not kept. */
const FORGOTTEN = 2;

const NOTHING = new Uint8Array(0);

/** The longest answer that is kept: it is written again with every write until the client acknowledges it. */
const MAX_RESULT_BYTES = 65_536;

const PREFIX = Uint8Array.from("client/", (letter) => letter.charCodeAt(0));

/** The key of a client's record: the prefix, and the client's number in big-endian order. */
export function recordKey(client: number): Uint8Array<ArrayBuffer> {
  const key = new Uint8Array(PREFIX.length + 8);
  setNumber(key, 0, client);
  key.reverse();
  key.set(PREFIX);
  return key;
}

/** The prefix of all keys of client records. */
export const RECORD_PREFIX: Uint8Array<ArrayBuffer> = PREFIX;

/** The client whose record has this key. */
export function clientOfKey(key: Uint8Array): number {
  const view = new DataView(key.buffer, key.byteOffset, key.byteLength);
  return Number(view.getBigUint64(PREFIX.length));
}

interface Encoded {
  readonly request: number;
  readonly status: number;
  readonly bytes: Uint8Array;
}

export function encodeRecord({ acknowledged, lease, results }: ClientRecord): Uint8Array {
  const list = results.map(encodeResult);
  const length = list.reduce((sum, one) => sum + RESULT_HEAD + padded(one.bytes.length), HEAD);
  const record = new Uint8Array(length);
  setNumber(record, 0, acknowledged);
  setNumber(record, 8, lease);
  setUint32(record, 16, list.length);
  let at = HEAD;
  for (const { request, status, bytes } of list) {
    setNumber(record, at, request);
    setUint32(record, at + 8, status);
    setUint32(record, at + 12, bytes.length);
    record.set(bytes, at + RESULT_HEAD);
    at += RESULT_HEAD + padded(bytes.length);
  }
  return record;
}

export function decodeRecord(record: Uint8Array): ClientRecord {
  const view = new DataView(record.buffer, record.byteOffset, record.byteLength);
  const results: Result[] = [];
  let at = HEAD;
  for (let left = view.getUint32(16, true); left > 0; left -= 1) {
    const length = view.getUint32(at + 12, true);
    const bytes = record.subarray(at + RESULT_HEAD, at + RESULT_HEAD + length);
    const outcome = decodeResult(view.getUint32(at + 8, true), bytes);
    results.push({ request: getNumber(view, at), outcome });
    at += RESULT_HEAD + padded(length);
  }
  return { acknowledged: getNumber(view, 0), lease: getNumber(view, 8), results };
}

function encodeResult({ request, outcome }: Result): Encoded {
  const forgotten = { request, status: FORGOTTEN, bytes: NOTHING };
  if ("forgotten" in outcome) return forgotten;
  const failed = "error" in outcome;
  const bytes = pack(failed ? outcome.error : outcome.value, MAX_RESULT_BYTES);
  // A failure is always kept: the write would otherwise be taken for applied.
  if (failed) return { request, status: FAILURE, bytes: bytes ?? pack({ name: "Error" }, 64)! };
  return bytes === undefined ? forgotten : { request, status: SUCCESS, bytes };
}

function decodeResult(status: number, bytes: Uint8Array): Outcome {
  if (status === SUCCESS) return { value: unpack(bytes) };
  if (status === FAILURE) return { error: unpack(bytes) as WireError };
  return { forgotten: true };
}

function padded(length: number): number {
  return (length + 7) & ~7;
}

function setNumber(bytes: Uint8Array, at: number, value: number): void {
  setUint32(bytes, at, value);
  setUint32(bytes, at + 4, value / 0x1_0000_0000);
}

/** Writes byte by byte: for a view, the platform would have to give the small array a buffer of its own. */
function setUint32(bytes: Uint8Array, at: number, value: number): void {
  bytes[at] = value;
  bytes[at + 1] = value >>> 8;
  bytes[at + 2] = value >>> 16;
  bytes[at + 3] = value >>> 24;
}

function getNumber(view: DataView, at: number): number {
  return Number(view.getBigUint64(at, true));
}
