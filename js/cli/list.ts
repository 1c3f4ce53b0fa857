/** `varve list` */

import { RAW } from "../engine/wasm-memory.js";
import type { ByteRange, Database } from "../index.js";
import { type Call, limitOf } from "./args.js";
import {
  collectionOf,
  elsewhere,
  entriesOf as entriesIn,
  type ValueFormat,
  valueFormatOf,
} from "./collections.js";
import { beginning, field, oneLine } from "./format.js";
import { keyOf } from "./get.js";
import { type KeyJson, keyJsonOf } from "./key-json.js";
import { inspectFile } from "./open-file.js";
import { EXIT, type ExitCode, Failure, type Output } from "./output.js";

/** Maximum bytes of a value in a line. */
const SHOWN = 200;

export async function list(call: Call, output: Output): Promise<ExitCode> {
  const { collection } = call.texts;
  // Refuse a wrong range before opening the file, if possible.
  if (collection === undefined) rangeOf(call, undefined);
  const [path = ""] = call.positionals;
  return inspectFile(path, { ordered: true }, (db) => printKeys(call, db, output));
}

/** Prints keys in order, as they are now or as of a past commit, as its number selects it. */
export async function printKeys(
  call: Call,
  db: Database,
  output: Output,
  past = 0,
): Promise<ExitCode> {
  const { collection } = call.texts;
  const show = call.flags.has("json") ? asJson : asText;
  const described = collection === undefined ? undefined : collectionOf(db, collection, past);
  const keyJson = described && keyJsonOf(described.key);
  const range = rangeOf(call, keyJson);
  const shown: Formatters = { keyJson, values: described && valueFormatOf(described) };
  const keyspace = described?.keyspace ?? (past === 0 ? undefined : past + RAW);
  let count = 0;
  for (const [key, value] of entriesOf(db, keyspace, range, call.flags.has("values"))) {
    count += 1;
    // Copy the value before any await, because it is valid only until then.
    const line = show(key, value, shown);
    const passed = output.print(line);
    if (passed !== undefined) await passed;
  }
  if (described === undefined && (past === 0 ? db.count() : count) === 0) {
    const more = elsewhere(db, past);
    if (more !== "") {
      throw new Failure(EXIT.negative, `The file has no keys outside of collections.${more}`);
    }
  }
  return EXIT.ok;
}

type Pair = [key: Uint8Array, value: Uint8Array | undefined];

function* entriesOf(
  db: Database,
  keyspace: number | undefined,
  range: ByteRange,
  withValues: boolean,
): Generator<Pair> {
  if (keyspace !== undefined) {
    for (const [key, value] of entriesIn(db, keyspace, range)) {
      yield [key, withValues ? value : undefined];
    }
  } else if (withValues) yield* db.entries(range);
  else for (const key of db.keys(range)) yield [key, undefined];
}

/** The output form of the keys and values of a collection; raw ones are printed unchanged. */
interface Formatters {
  readonly keyJson: KeyJson | undefined;
  readonly values: ValueFormat | undefined;
}

function asText(
  key: Uint8Array,
  value: Uint8Array | undefined,
  { keyJson, values }: Formatters,
): string {
  const name = keyJson === undefined ? oneLine(key) : inLine(keyJson.toJson(key));
  const text = value && (values === undefined ? beginning(value, SHOWN) : values.line(value));
  return `${name}${text === undefined ? "" : `\t${text}`}\n`;
}

function inLine(key: unknown): string {
  return oneLine(new TextEncoder().encode(JSON.stringify(key)));
}

function asJson(
  key: Uint8Array,
  value: Uint8Array | undefined,
  { keyJson, values }: Formatters,
): string {
  const name = keyJson === undefined ? field("key", key) : { key: keyJson.toJson(key) };
  const bytes = (one: Uint8Array) => ({ bytes: one.length, ...field("value", one) });
  if (value === undefined || values === undefined) {
    return `${JSON.stringify({ ...name, ...(value && bytes(value)) })}\n`;
  }
  return `${values.document({ ...name, bytes: value.length }, value)}\n`;
}

function rangeOf(call: Call, keyJson: KeyJson | undefined): ByteRange {
  const { prefix, start, end } = call.texts;
  const bound = (what: string, word: string | undefined) => {
    if (word === undefined) return undefined;
    return keyJson === undefined ? keyOf(call, what, word) : keyJson.fromJson(word, true);
  };
  return {
    keyAs: "bytes",
    prefix: bound("--prefix", prefix),
    gte: bound("--start", start),
    lt: bound("--end", end),
    limit: limitOf(call),
    reverse: call.flags.has("reverse"),
  };
}
