/**
 * Export and import of collections as JSON lines: each record is a line `{"key":…,"value":…}`. This module is a
 * separate chunk, loaded on first use.
 */

import { allocated, noMoreMemory } from "../engine/error-codes.js";
import {
  badArgument,
  isNoMemory,
  MalformedValueError,
  UniqueViolationError,
} from "../errors/index.js";
import type { Scan } from "../session/cursor.js";
import { refuseUnknown } from "../session/options.js";
import type { Session } from "../session/session.js";
import { type JsonOptions, jsonReader, jsonWriter } from "../struct/json/index.js";
import type { PartKind } from "../struct/key.js";
import { refuseLost } from "../util/bytes.js";
import { nextTask, timeSlice } from "../util/clock.js";
import { decoder, encoder } from "../util/text-coders.js";
import type { CollectionContext } from "./catalog.js";
import type { Keys } from "./keys.js";
import { storeBytes } from "./writes.js";

/**
 * A source of JSON lines: the body of a `Response`, the stream of a file, chunks of either, or a string. Chunks may
 * end anywhere, also within a character.
 */
export type LinesSource =
  | string
  | Uint8Array
  | ReadableStream<Uint8Array>
  | ReadableStream<string>
  | AsyncIterable<string | Uint8Array>
  | Iterable<string | Uint8Array>;

/** The options of a collection's `fromJsonLines`. */
export interface LinesOptions extends JsonOptions {
  /** Called every few milliseconds with the progress so far, and at the end. If it throws, reading ends. */
  onProgress?: ((progress: LinesProgress) => void) | undefined;
  /** Aborts reading, also while it waits for the source. The records that were stored until then stay. */
  signal?: AbortSignal | undefined;
}

/** The options of a collection's `toJsonLines`. */
export interface ToLinesOptions {
  /** Called with each chunk of about 64 KiB that the stream gives. If it throws, the stream ends with that error. */
  onProgress?: ((progress: LinesProgress) => void) | undefined;
  /** Aborts the stream, which then ends with the signal's reason. */
  signal?: AbortSignal | undefined;
}

/** The progress of JSON lines. */
export interface LinesProgress {
  /** Number of records stored, or written, so far. */
  readonly records: number;
}

/** Approximate size of the chunks of the stream. */
const CHUNK = 64 * 1024;

/** Other tasks run after each slice of this length. */
const SLICE_MS = 4;

/** Maximum number of lines of a slice, in case the clock stands still. */
const SLICE_LINES = 16_384;

const NEWLINE = 0x0a;

/** The byte order mark that some programs write at the start of a UTF-8 file. */
const BYTE_ORDER_MARK = [0xef, 0xbb, 0xbf];

type AnyContext<K> = CollectionContext<K, unknown, unknown, never, K>;

/**
 * Returns a function that gives the lines of the next records; `undefined` at the end, or if the signal is aborted while
 * other tasks run.
 */
export function lineWriter<K>(
  context: AnyContext<K>,
  keys: Scan<K>,
  { onProgress, signal }: ToLinesOptions,
): () => Promise<Uint8Array<ArrayBuffer> | undefined> {
  const { source, space, codec } = context;
  const write = jsonWriter(codec);
  const walk = keys[Symbol.iterator]();
  let records = 0;
  const next = () => {
    const parts: Uint8Array[] = [];
    let size = 0;
    while (size < CHUNK) {
      const { done, value: key } = walk.next();
      if (done === true) break;
      const { engine } = source();
      const at = engine.find(context.keys.encode(engine, key), space.keyspace);
      if (at === 0) continue;
      const head = encoder.encode(`{"key":${JSON.stringify(plainKey(key))},"value":`);
      const line = [head, write(engine.memory, at, engine.foundLength()).slice(), END];
      for (const part of line) size += part.length;
      parts.push(...line);
      records += 1;
    }
    if (size === 0) return undefined;
    onProgress?.({ records });
    return joined(parts, size);
  };
  let isOver = timeSlice(SLICE_MS);
  return async () => {
    // A consumer that never waits, such as `new Response(stream)`, would keep all other tasks from running.
    if (isOver()) {
      await nextTask();
      if (signal?.aborted) return undefined;
      isOver = timeSlice(SLICE_MS);
    }
    return allocated(source().engine.name, next);
  };
}

const END = new Uint8Array([0x7d, NEWLINE]);

function joined(parts: readonly Uint8Array[], size: number): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(size);
  let at = 0;
  for (const part of parts) {
    bytes.set(part, at);
    at += part.length;
  }
  return bytes;
}

/** Stores the records of JSON lines, and returns how many there were. */
export async function readLines<K>(
  context: AnyContext<K>,
  writableSession: () => Session,
  source: LinesSource,
  options: LinesOptions,
): Promise<number> {
  try {
    return await storeLines(context, writableSession, source, options);
  } catch (error) {
    throw isNoMemory(error) ? noMoreMemory(context.source().engine.name, error) : error;
  }
}

async function storeLines<K>(
  context: AnyContext<K>,
  writableSession: () => Session,
  source: LinesSource,
  options: LinesOptions,
): Promise<number> {
  refuseUnknown("fromJsonLines()", options, ["ignoreUnknown", "onProgress", "signal"]);
  const { onProgress, signal, ignoreUnknown = false } = options;
  const read = jsonReader(context.codec, { ignoreUnknown });
  let line = 0;
  let records = 0;
  let isOver = timeSlice(SLICE_MS, SLICE_LINES);
  let rest: Uint8Array = new Uint8Array(0);
  const store = (given: Uint8Array) => {
    line += 1;
    const bytes =
      line === 1 && BYTE_ORDER_MARK.every((byte, i) => byte === given[i])
        ? given.subarray(3)
        : given;
    if (isBlank(bytes)) return;
    const session = writableSession();
    const { engine } = session;
    try {
      const { key, from, to } = membersOf(bytes);
      const name = keyOf(context.keys, key);
      const value = read(bytes.subarray(from, to), 0, to - from);
      storeBytes(session, context, context.keys.encode(engine, name), value);
    } catch (error) {
      throw ofLine(error, line);
    }
    records += 1;
  };
  for await (const chunk of gathered(byteChunksOf(source, signal), signal)) {
    const bytes = rest.length === 0 ? chunk : joined([rest, chunk], rest.length + chunk.length);
    let start = 0;
    for (let end = bytes.indexOf(NEWLINE); end >= 0; end = bytes.indexOf(NEWLINE, start)) {
      store(bytes.subarray(start, end));
      start = end + 1;
      if (!isOver()) continue;
      onProgress?.({ records });
      await nextTask();
      signal?.throwIfAborted();
      isOver = timeSlice(SLICE_MS, SLICE_LINES);
    }
    rest = bytes.slice(start);
  }
  store(rest);
  onProgress?.({ records });
  return records;
}

/**
 * Forwards the bytes, and ends as soon as the signal is aborted, even while waiting for more. Chunks that arrive
 * without a pause are joined, up to 64 KiB, because lines that arrive one by one should not be one commit each.
 */
async function* gathered(
  chunks: AsyncGenerator<Uint8Array>,
  signal: AbortSignal | undefined,
): AsyncGenerator<Uint8Array> {
  let held: Uint8Array[] = [];
  let size = 0;
  let task: Promise<undefined> | undefined;
  let stop = () => {};
  const abort = () => stop();
  signal?.addEventListener("abort", abort);
  try {
    for (;;) {
      signal?.throwIfAborted();
      const aborted = new Promise<never>((_, reject) => {
        stop = () => reject(signal?.reason);
      });
      const next = chunks.next();
      next.catch(() => undefined);
      let result = await Promise.race(task === undefined ? [next, aborted] : [next, task, aborted]);
      if (result === undefined || result.done === true || size >= CHUNK) {
        if (size > 0) yield joined(held, size);
        [held, size, task] = [[], 0, undefined];
        result ??= await Promise.race([next, aborted]);
      }
      signal?.throwIfAborted();
      if (result.done === true) return;
      const { value } = result;
      held.push(value);
      size += value.length;
      task ??= nextTask().then(() => undefined);
    }
  } finally {
    signal?.removeEventListener("abort", abort);
    // Not awaited, because the source may never deliver its next chunk.
    chunks.return(undefined).catch(() => undefined);
  }
}

/** The chunks of a source as bytes. */
async function* byteChunksOf(
  source: LinesSource,
  signal?: AbortSignal,
): AsyncGenerator<Uint8Array> {
  // A string may end within a character: its high surrogate is kept for the next string.
  let high = "";
  for await (const chunk of chunksOf(source, signal)) {
    if (typeof chunk === "string") {
      const text = high + chunk;
      high = /[\ud800-\udbff]$/.exec(text)?.[0] ?? "";
      yield encoded(high === "" ? text : text.slice(0, -1));
    } else if (chunk instanceof Uint8Array) {
      refuseLost("chunk", chunk);
      // Bytes cannot complete the character.
      encoded(high);
      yield chunk;
    } else {
      throw badArgument("Chunks of JSON lines must be strings or Uint8Arrays.", chunk);
    }
  }
  encoded(high);
}

/** Encodes a string. Throws for a lone surrogate, which the encoder would silently replace. */
function encoded(text: string): Uint8Array {
  const at = text.search(/\p{Surrogate}/u);
  if (at < 0) return encoder.encode(text);
  throw badArgument(
    "JSON lines must not contain a lone surrogate: it has no UTF-8 form.",
    text.slice(Math.max(0, at - 30), at + 30),
  );
}

async function* chunksOf(
  source: LinesSource,
  signal?: AbortSignal,
): AsyncGenerator<string | Uint8Array> {
  if (typeof source === "string" || source instanceof Uint8Array) yield source;
  else if (typeof (source as Partial<ReadableStream>)?.getReader === "function") {
    // Not all browsers support iteration of streams.
    const reader = (source as ReadableStream<string | Uint8Array>).getReader();
    const cancel = () => void reader.cancel(signal?.reason).catch(() => undefined);
    signal?.addEventListener("abort", cancel);
    try {
      for (let next = await reader.read(); !next.done; next = await reader.read()) yield next.value;
    } finally {
      signal?.removeEventListener("abort", cancel);
      await reader.cancel().catch(() => undefined);
    }
  } else if (
    typeof source === "object" &&
    source !== null &&
    (Symbol.asyncIterator in source || Symbol.iterator in source)
  ) {
    yield* source as AsyncIterable<string | Uint8Array>;
  } else {
    throw badArgument(
      "JSON lines must be a string, bytes, a stream or another iterable: of a Blob its stream(), of a " +
        "Response its body.",
      source,
    );
  }
}

function isBlank(bytes: Uint8Array): boolean {
  return bytes.every((byte) => byte === 0x20 || byte === 0x09 || byte === 0x0d);
}

function ofLine(error: unknown, line: number): unknown {
  if (
    error instanceof TypeError ||
    error instanceof MalformedValueError ||
    error instanceof UniqueViolationError
  ) {
    error.message = `Line ${line}: ${error.message}`;
  }
  return error;
}

// ---------------------------------------------------------------- one line

/** Parses a line: its key, and the position of its value. */
function membersOf(line: Uint8Array): { key: unknown; from: number; to: number } {
  let key: unknown;
  let [from, to] = [-1, -1];
  let at = expect(line, skipSpace(line, 0), "{");
  for (let more = line[skipSpace(line, at)] !== 0x7d; more; ) {
    const nameAt = skipSpace(line, at);
    const nameEnd = skipValue(line, nameAt);
    const name: unknown = parsed(line, nameAt, nameEnd);
    const start = skipSpace(line, expect(line, skipSpace(line, nameEnd), ":"));
    const end = skipValue(line, start);
    if (name === "key" && key === undefined) key = parsed(line, start, end);
    else if (name === "value" && from < 0) [from, to] = [start, end];
    else
      throw malformed(`it must have one "key" and one "value", but has ${JSON.stringify(name)}.`);
    at = skipSpace(line, end);
    more = line[at] === 0x2c;
    if (more) at += 1;
  }
  at = skipSpace(line, expect(line, skipSpace(line, at), "}"));
  if (at !== line.length) throw malformed(`there is more text after its end, at ${at}.`);
  if (key === undefined || from < 0) throw malformed('it has no "key" or no "value".');
  return { key, from, to };
}

function malformed(text: string): MalformedValueError {
  return new MalformedValueError(text);
}

function parsed(line: Uint8Array, from: number, to: number): unknown {
  try {
    return JSON.parse(decoder.decode(line.subarray(from, to)));
  } catch (cause) {
    throw new MalformedValueError(`invalid JSON at ${from}.`, { cause });
  }
}

function expect(line: Uint8Array, at: number, sign: string): number {
  if (line[at] === sign.charCodeAt(0)) return at + 1;
  throw malformed(`${sign} is missing at ${at}.`);
}

function skipSpace(line: Uint8Array, from: number): number {
  let at = from;
  while (line[at] === 0x20 || line[at] === 0x09 || line[at] === 0x0d) at += 1;
  return at;
}

/** The end of the value that starts here. Its syntax is checked later, when it is parsed. */
function skipValue(line: Uint8Array, from: number): number {
  let depth = 0;
  for (let at = from; at < line.length; at++) {
    const byte = line[at] as number;
    if (byte === 0x22) at = endOfString(line, at) - 1;
    else if (byte === 0x7b || byte === 0x5b) depth += 1;
    else if (depth > 0 && (byte === 0x7d || byte === 0x5d)) depth -= 1;
    else if (depth === 0 && !isPlain(byte)) return at;
    else continue;
    if (depth === 0) return at + 1;
  }
  return line.length;
}

/** Whether a byte may belong to a number, or to true, false or null. */
function isPlain(byte: number): boolean {
  return byte > 0x20 && byte !== 0x2c && byte !== 0x3a && byte !== 0x7d && byte !== 0x5d;
}

function endOfString(line: Uint8Array, from: number): number {
  for (let at = from + 1; at < line.length; at++) {
    if (line[at] === 0x5c) at += 1;
    else if (line[at] === 0x22) return at + 1;
  }
  return line.length;
}

// ---------------------------------------------------------------- keys

/** Converts a key to a JSON value. */
function plainKey(key: unknown): unknown {
  if (key instanceof Uint8Array) return base64(key);
  if (Array.isArray(key)) return key.map(plainPart);
  return plainPart(key);
}

function plainPart(part: unknown): unknown {
  if (typeof part === "bigint") return String(part);
  if (typeof part === "number" && !Number.isFinite(part)) return String(part);
  if (part instanceof Uint8Array) return base64(part);
  return part === undefined ? null : part;
}

function keyOf<K>({ kind, hasOnePart }: Keys<K, K>, key: unknown): K {
  if (kind === "string") return key as K;
  if (kind === "bytes") return unbase64(key) as K;
  const kinds = kind as readonly PartKind[];
  if (hasOnePart) return partOf(kinds[0] as PartKind, key) as K;
  if (!Array.isArray(key)) throw malformed(`its key must be an array of ${kinds.length} parts.`);
  return key.map((part, i) => (kinds[i] === undefined ? part : partOf(kinds[i], part))) as K;
}

function partOf(kind: PartKind, part: unknown): unknown {
  if ("desc" in kind) return partOf(kind.desc, part);
  switch (kind.kind) {
    case "u64":
    case "i64":
      if (typeof part === "string" && /^-?\d+$/.test(part)) return BigInt(part);
      return typeof part === "number" && Number.isSafeInteger(part) ? BigInt(part) : part;
    case "f32":
    case "f64":
      return typeof part === "string" && /^-?Infinity$/.test(part) ? Number(part) : part;
    case "blob":
      return unbase64(part);
    case "option":
      return part === null ? undefined : partOf(kind.of, part);
    default:
      return part;
  }
}

function base64(bytes: Uint8Array): string {
  return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
}

function unbase64(text: unknown): Uint8Array {
  try {
    if (typeof text === "string") return Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));
  } catch {
    // Invalid base64 is reported below, like any other value.
  }
  throw malformed("bytes in its key must be base64.");
}
