/** `varve get` */

import { Database } from "../database/database.js";
import { RAW } from "../engine/wasm-memory.js";
import type { Entry } from "../index.js";
import { type Call, misused } from "./args.js";
import { collectionOf, elsewhere, valueFormatOf } from "./collections.js";
import { field, fromBase64 } from "./format.js";
import { keyJsonOf } from "./key-json.js";
import { inspectFile } from "./open-file.js";
import { EXIT, type ExitCode, Failure, type Output } from "./output.js";

export async function get(call: Call, output: Output): Promise<ExitCode> {
  const [path = "", word = ""] = call.positionals;
  const { collection } = call.texts;
  // Refuse an invalid key before opening the file, if possible.
  if (collection === undefined) keyOf(call, "KEY", word);
  // Key order is only built if the key is not found.
  return inspectFile(path, { ordered: true }, (db) => printValue(call, db, word, output));
}

/** Prints the value of a key, now or as of a past commit, as its number selects it. */
export async function printValue(
  call: Call,
  db: Database,
  word: string,
  output: Output,
  past = 0,
): Promise<ExitCode> {
  const { positionals, flags } = call;
  const [path = ""] = positionals;
  const { collection } = call.texts;
  const described = collection === undefined ? undefined : collectionOf(db, collection, past);
  const keyJson = described && keyJsonOf(described.key);
  const key = keyJson === undefined ? keyOf(call, "KEY", word) : keyJson.fromJson(word, false);
  const format = described && valueFormatOf(described);
  const entry = entryIn(db, described?.keyspace ?? past + RAW, key);
  // Copy the value, because writing it takes longer than a view is valid.
  const value = entry?.value.slice();
  if (flags.has("json")) {
    const name = keyJson === undefined ? field("key", key) : { key: keyJson.toJson(key) };
    const found = { found: value !== undefined, ...name };
    const about = { ...found, ...(value && { bytes: value.length, version: entry?.version }) };
    const document =
      value === undefined || format === undefined
        ? JSON.stringify({ ...about, ...(value && field("value", value)) })
        : format.document(about, value);
    await output.print(`${document}\n`);
    return value === undefined ? EXIT.negative : EXIT.ok;
  }
  if (value === undefined) {
    const where = collection === undefined ? path : `the collection ${collection} of ${path}`;
    const more = collection === undefined ? elsewhere(db, past) : "";
    throw new Failure(EXIT.negative, `There is no key ${word} in ${where}.${more}`);
  }
  if (format === undefined) await output.write(value);
  else await output.print(`${format.line(value)}\n`);
  return EXIT.ok;
}

function entryIn(
  db: Database,
  keyspace: number,
  key: Uint8Array,
): Pick<Entry, "value" | "version"> | undefined {
  const { engine } = Database.sessionOf(db);
  const value = engine.get(key, keyspace);
  return value && { value, version: engine.version(engine.encodeKey(key), keyspace) };
}

/** The bytes of a key that was given on the command line. */
export function keyOf({ command, flags }: Call, what: string, word: string): Uint8Array {
  if (!flags.has("base64")) return new TextEncoder().encode(word);
  const bytes = fromBase64(word);
  if (bytes === undefined) throw misused(command, `${what} is not base64: ${word}.`);
  return bytes;
}
