/** `varve list` */

import type { ByteRange, Database } from "../index.js";
import { look } from "./database.js";
import { EXIT, type ExitCode } from "./failure.js";
import { keyOf } from "./get.js";
import type { Output } from "./output.js";
import { beginning, field, oneLine } from "./text.js";
import { type Call, misused } from "./usage.js";

/** Bytes of a value that a line shows. */
const SHOWN = 200;

export async function list(call: Call, output: Output): Promise<ExitCode> {
  const range = rangeOf(call);
  const show = call.flags.has("json") ? asJson : asText;
  return look(call.words[0] ?? "", { ordered: true }, async (db) => {
    for (const [key, value] of entriesOf(db, range, call.flags.has("values"))) {
      // Before anything is waited for: the value is good until then.
      const line = show(key, value);
      const passed = output.print(line);
      if (passed !== undefined) await passed;
    }
    return EXIT.well;
  });
}

type Pair = [key: Uint8Array, value: Uint8Array | undefined];

function* entriesOf(db: Database, range: ByteRange, withValues: boolean): Generator<Pair> {
  if (withValues) yield* db.entries(range);
  else for (const key of db.keys(range)) yield [key, undefined];
}

function asText(key: Uint8Array, value: Uint8Array | undefined): string {
  return `${oneLine(key)}${value === undefined ? "" : `\t${beginning(value, SHOWN)}`}\n`;
}

function asJson(key: Uint8Array, value: Uint8Array | undefined): string {
  const shown = value === undefined ? {} : { bytes: value.length, ...field("value", value) };
  return `${JSON.stringify({ ...field("key", key), ...shown })}\n`;
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
