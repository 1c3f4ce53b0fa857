/** `varve get` */

import { look } from "./database.js";
import { EXIT, type ExitCode, Failure } from "./failure.js";
import type { Output } from "./output.js";
import { field, fromBase64 } from "./text.js";
import { type Call, misused } from "./usage.js";

export async function get(call: Call, output: Output): Promise<ExitCode> {
  const { words, flags } = call;
  const [path = "", word = ""] = words;
  const key = keyOf(call, "KEY", word);
  return look(path, { ordered: false }, async (db) => {
    const entry = db.getEntry(key);
    // A copy: writing it takes longer than a view lives.
    const value = entry?.value.slice();
    if (flags.has("json")) {
      const found = { found: value !== undefined, ...field("key", key) };
      const about = value && {
        bytes: value.length,
        version: entry?.version,
        ...field("value", value),
      };
      await output.print(`${JSON.stringify({ ...found, ...about })}\n`);
      return value === undefined ? EXIT.no : EXIT.well;
    }
    if (value === undefined) throw new Failure(EXIT.no, `There is no key ${word} in ${path}.`);
    await output.write(value);
    return EXIT.well;
  });
}

/** A key as it was given on the command line. */
export function keyOf({ command, flags }: Call, what: string, word: string): Uint8Array {
  if (!flags.has("base64")) return new TextEncoder().encode(word);
  const bytes = fromBase64(word);
  if (bytes === undefined) throw misused(command, `${what} is no base64: ${word}.`);
  return bytes;
}
