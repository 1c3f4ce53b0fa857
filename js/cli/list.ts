/** `varve list` */

import type { ByteRange, Database } from "../index.js";
import { look } from "./database.js";
import { EXIT, type ExitCode } from "./failure.js";
import { keyOf } from "./get.js";
import { collectionOf, entriesOf as entriesIn } from "./keyspaces.js";
import type { Output } from "./output.js";
import { type Showing, showing } from "./records.js";
import { beginning, field, oneLine } from "./text.js";
import { type Call, misused } from "./usage.js";

/** Bytes of a value that a line shows. */
const SHOWN = 200;

export async function list(call: Call, output: Output): Promise<ExitCode> {
  const range = rangeOf(call);
  const show = call.flags.has("json") ? asJson : asText;
  const { collection } = call.texts;
  return look(call.words[0] ?? "", { ordered: true }, async (db) => {
    const told = collection === undefined ? undefined : collectionOf(db, collection);
    const shown = told && showing(told);
    for (const [key, value] of entriesOf(db, told?.keyspace, range, call.flags.has("values"))) {
      // Before anything is waited for: the value is good until then.
      const line = show(key, value, shown);
      const passed = output.print(line);
      if (passed !== undefined) await passed;
    }
    return EXIT.well;
  });
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

function asText(key: Uint8Array, value: Uint8Array | undefined, shown?: Showing): string {
  const text = value && (shown === undefined ? beginning(value, SHOWN) : shown.line(value));
  return `${oneLine(key)}${text === undefined ? "" : `\t${text}`}\n`;
}

function asJson(key: Uint8Array, value: Uint8Array | undefined, shown?: Showing): string {
  const bytes = (one: Uint8Array) => ({ bytes: one.length, ...field("value", one) });
  const fields = value && (shown === undefined ? bytes(value) : shown.fields(value));
  return `${JSON.stringify({ ...field("key", key), ...fields })}\n`;
}

function rangeOf(call: Call): ByteRange {
  const { prefix, start, end, limit } = call.texts;
  if (limit !== undefined && !/^\d{1,15}$/.test(limit)) {
    throw misused(call.command, `--limit is a whole number: ${limit}.`);
  }
  return {
    keyAs: "bytes",
    prefix: prefix === undefined ? undefined : keyOf(call, "--prefix", prefix),
    gte: start === undefined ? undefined : keyOf(call, "--start", start),
    lt: end === undefined ? undefined : keyOf(call, "--end", end),
    limit: limit === undefined ? undefined : Number(limit),
    reverse: call.flags.has("reverse"),
  };
}
