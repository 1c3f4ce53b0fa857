/** `varve log` */

import {
  CorruptionError,
  type Database,
  type LogItem,
  type LogOptions,
  type LogRecord,
} from "../index.js";
import { type Call, limitOf, misused, numberIn } from "./args.js";
import { base64, beginning, counted, field, number, oneLine } from "./format.js";
import { inspectFile } from "./open-file.js";
import { EXIT, type ExitCode, type Output } from "./output.js";

/** Maximum bytes of a value in a line. */
const SHOWN = 200;

export async function log(call: Call, output: Output): Promise<ExitCode> {
  const options = optionsOf(call);
  const [path = ""] = call.positionals;
  let begun = false;
  const show = (db: Database) => {
    begun = true;
    return printed(db, options, call.flags, output);
  };
  try {
    return await inspectFile(path, { ordered: true }, show);
  } catch (error) {
    if (begun || !(error instanceof CorruptionError)) throw error;
  }
  // What is intact of a damaged file is shown, and the damage with it.
  await inspectFile(path, { ordered: true, recovery: "salvage" }, show);
  return EXIT.negative;
}

async function printed(
  db: Database,
  options: LogOptions,
  flags: ReadonlySet<string>,
  output: Output,
): Promise<ExitCode> {
  const withValues = flags.has("values");
  const show = flags.has("json") ? asJson : flags.has("flat") ? asLine : asTree;
  let damaged = false;
  for (const item of db.log({ ...options, flat: true })) {
    damaged ||= item.type === "error";
    // The value is valid only until the await.
    const passed = output.print(show(item, withValues));
    if (passed !== undefined) await passed;
  }
  return damaged ? EXIT.negative : EXIT.ok;
}

function asTree(item: LogItem, withValues: boolean): string {
  if (item.type === "transaction") {
    const { moved, time, note } = item;
    const what = moved ? "moved by compaction" : `transaction ${item.number}`;
    return `${[what, ...(time ? [time.toISOString()] : []), ...(note ? [inLine(note)] : [])].join("  ")}\n`;
  }
  const isRecord = item.type !== "gap" && item.type !== "error";
  return `${isRecord ? "  " : ""}${asLine(item, withValues).replaceAll("\t", " ")}`;
}

/** One line for each item, with tabs between its parts. */
export function asLine(item: LogItem, withValues: boolean): string {
  switch (item.type) {
    case "transaction": {
      const time = item.time?.toISOString() ?? "";
      const what = item.moved ? "moved" : "transaction";
      return `${what}\t${item.number}\t${time}\t${inLine(item.note ?? "")}\n`;
    }
    case "gap":
      return "gap\tcompaction removed what was here\n";
    case "error":
      return `error\t${counted(item.length, "damaged byte")} at ${number(item.offset)}\n`;
    default: {
      const { type, version, value } = item;
      const shown = withValues && value !== undefined ? `\t${beginning(value, SHOWN)}` : "";
      return `${type}\t${version}\t${placeOf(item)}${shown}\n`;
    }
  }
}

function placeOf({ collection, keyspace, key }: LogRecord): string {
  const place = keyspace === 0 ? [] : [inLine(collection ?? `#${keyspace}`)];
  if (key === undefined) return place.join("");
  const text = key instanceof Uint8Array ? oneLine(key) : textOf(key);
  return [...place, text].join("\t");
}

function textOf(key: unknown): string {
  return inLine(typeof key === "string" ? key : JSON.stringify(jsonOf(key)));
}

function inLine(text: string): string {
  return oneLine(new TextEncoder().encode(text));
}

/** A key as JSON, as `varve list` prints it. */
function jsonOf(key: unknown): unknown {
  if (Array.isArray(key)) return key.map(jsonOf);
  if (key instanceof Uint8Array) return base64(key);
  return typeof key === "bigint" ? String(key) : (key ?? null);
}

/** One JSON document for each item. */
export function asJson(item: LogItem, withValues: boolean): string {
  return `${JSON.stringify(documentOf(item, withValues))}\n`;
}

function documentOf(item: LogItem, withValues: boolean): object {
  switch (item.type) {
    case "transaction": {
      const { type, number, time, note, client, moved, afterGap } = item;
      return { type, number, time, note, client: client && String(client), moved, afterGap };
    }
    case "gap":
      return { type: "gap" };
    case "error":
      return {
        type: "error",
        offset: item.offset,
        length: item.length,
        message: item.error.message,
      };
    default: {
      const { type, collection, keyspace, key, version, value } = item;
      const named = key instanceof Uint8Array ? field("key", key) : { key: jsonOf(key) };
      const about = { type, collection, keyspace, ...(key !== undefined && named), version };
      if (value === undefined) return about;
      return { ...about, bytes: value.length, ...(withValues && field("value", value)) };
    }
  }
}

/** A number of a transaction, or a time, that was given on the command line. */
export function pointOf(call: Call, option: string, word: string): number | Date {
  const number = numberIn(word);
  if (number !== undefined) return number;
  const time = new Date(word);
  if (!Number.isNaN(time.getTime())) return time;
  throw misused(call.command, `${option} must be the number of a transaction, or a time: ${word}.`);
}

function optionsOf(call: Call): LogOptions {
  const { since, until } = call.texts;
  const bound = (option: string, word: string | undefined) =>
    word === undefined ? undefined : pointOf(call, option, word);
  const reverse = call.flags.has("reverse");
  const bounds = { since: bound("--since", since), until: bound("--until", until) };
  if (reverse && (bounds.since instanceof Date || bounds.until instanceof Date)) {
    throw misused(call.command, "With --reverse, --since and --until must be numbers.");
  }
  return {
    ...bounds,
    reverse,
    limit: limitOf(call),
  };
}
