/** The commands, their arguments, and their help texts. */

import { parseArgs } from "node:util";
import { table } from "./format.js";
import { EXIT, Failure } from "./output.js";

/** An option of a command: the name of its value, if it takes one, and its description. */
interface OptionSpec {
  readonly takes?: string;
  readonly about: string;
}

interface CommandSpec {
  readonly about: string;
  readonly words: readonly string[];
  /** What may follow these words. */
  readonly also?: string;
  readonly more: string;
  readonly options: Readonly<Record<string, OptionSpec>>;
}

const JSON_DOCUMENT = { about: "print one JSON document" };
const BASE64 = { about: "keys are given in base64, for those that are not text" };

const COLLECTION = { takes: "NAME", about: "look in this collection, not in the raw keys" };

/** The options of `list`, which `at` has too. */
const LIST_OPTIONS = {
  prefix: { takes: "P", about: "only keys that start with P" },
  start: { takes: "KEY", about: "only this key and those after it" },
  end: { takes: "KEY", about: "only keys before this one" },
  limit: { takes: "N", about: "at most N keys" },
  reverse: { about: "from last to first" },
  values: { about: "print values too" },
  collection: COLLECTION,
  base64: BASE64,
  json: { about: "print one JSON document per line" },
};

export const COMMANDS = {
  stat: {
    about: "show sizes, counts, and how the file was closed",
    words: ["FILE"],
    more: "",
    options: { collection: COLLECTION, json: JSON_DOCUMENT },
  },
  get: {
    about: "print the value of a key",
    words: ["FILE", "KEY"],
    more:
      "Only the bytes of the value go to standard output.\n" +
      "Structs and JSON of a collection are printed as JSON. Its keys that are numbers, dates\n" +
      "or tuples are given as JSON.\n",
    options: {
      collection: COLLECTION,
      base64: BASE64,
      json: { about: "print one JSON document with key, value, size and version" },
    },
  },
  list: {
    about: "print the keys in order, one per line",
    words: ["FILE"],
    more:
      "Control characters and what is not UTF-8 are escaped: \\n, \\x1b, \\u{202e}, \\xff.\n" +
      "With --values, a tab and the value follow the key; of a long one, the first 200 bytes.\n" +
      "JSON lines have whole values; what is not UTF-8 is in keyBase64 and valueBase64.\n" +
      "Keys of a collection that are numbers, dates or tuples are printed as JSON.\n",
    options: LIST_OPTIONS,
  },
  log: {
    about: "print what was written, transaction by transaction",
    words: ["FILE"],
    more:
      "The oldest first, as far as compaction left them. Numbers of transactions are versions.\n" +
      "Times are given as in 2026-11-27T03:00:00Z. Damage is shown in its place.\n",
    options: {
      since: { takes: "N", about: "only transactions after this number or time" },
      until: { takes: "N", about: "only transactions up to this number or time" },
      limit: { takes: "N", about: "at most N transactions" },
      reverse: { about: "the newest first; --since and --until are numbers then" },
      values: { about: "print values too" },
      flat: { about: "print lines of parts with tabs between them" },
      json: { about: "print one JSON document per line" },
    },
  },
  diff: {
    about: "print what changed since a commit: each key once, as it is now",
    words: ["FILE"],
    more:
      "--since is needed: a version, or the number of a transaction. Deletions come last.\n" +
      "Exit code 1 if compaction has removed a part of what happened since.\n",
    options: {
      since: { takes: "N", about: "what changed after this number" },
      until: { takes: "N", about: "only keys whose last change is at most this number" },
      collection: COLLECTION,
      values: { about: "print values too" },
      json: { about: "print one JSON document per line" },
    },
  },
  at: {
    about: "print keys, or the value of one, as of a past commit",
    words: ["FILE", "NUMBER"],
    also: "[get KEY | list]",
    more:
      "For files that keep their history. NUMBER is that of a transaction, a version, or a time\n" +
      "as in 2026-11-27T03:00:00Z; only transactions with a note have one. See varve get and\n" +
      "list.\n" +
      "Exit code 1 if that commit is not known any more.\n",
    options: LIST_OPTIONS,
  },
  schema: {
    about: "print the declarations of the collections",
    words: ["FILE"],
    more: "As TypeScript, unless an option says otherwise.\n",
    options: {
      ts: { about: "as TypeScript, for varve/struct" },
      rust: { about: "as Rust, for the crates varve and musli-zerocopy" },
      json: { about: "print one JSON document: the stored descriptors" },
    },
  },
  verify: {
    about: "read the whole file and report damage",
    words: ["FILE"],
    more: "Exit code 1 for any damage, even where a copy or the log makes up for it.\n",
    options: { json: JSON_DOCUMENT },
  },
  salvage: {
    about: "copy everything intact into a new file",
    words: ["FILE", "NEWFILE"],
    more:
      "FILE is not changed, and NEWFILE must not exist. Versions start over in it.\n" +
      "Only an earlier value of some keys may be intact, and lost writes may have changed or\n" +
      "deleted them: they are copied, counted as uncertain, and named with --json.\n" +
      "Exit code 1 if anything was or may have been lost.\n",
    options: { json: JSON_DOCUMENT },
  },
  export: {
    about: "copy only the live data into a new file",
    words: ["FILE", "NEWFILE"],
    more:
      "For programs that read it from bytes: open(name, { from: bytes, readOnly: true }). NEWFILE\n" +
      "must not exist. Versions start over in it. A damaged file is refused: see salvage.\n",
    options: { json: JSON_DOCUMENT },
  },
} as const satisfies Record<string, CommandSpec>;

export type CommandName = keyof typeof COMMANDS;

/** A parsed call. */
export interface Call {
  readonly command: CommandName;
  readonly positionals: readonly string[];
  /** The options with a text value. */
  readonly texts: Readonly<Record<string, string | undefined>>;
  /** The options without a value. */
  readonly flags: ReadonlySet<string>;
}

const EXIT_CODES = `Exit codes:
  0  success
  1  the answer is no: there is no such key, or verify, log or salvage found damage
  2  the command was not understood
  3  the file cannot be read: it is missing, not a database, damaged, open in another
     process, or the system refuses
`;

function isCommand(word: string | undefined): word is CommandName {
  return word !== undefined && Object.hasOwn(COMMANDS, word);
}

function commandOf(name: CommandName): CommandSpec {
  return COMMANDS[name];
}

/** The result of parsing: a help text, or a call. */
export function parseCommandLine(
  args: readonly string[],
): { help: string } | { version: true } | Call {
  const [first, ...rest] = args;
  if (first === "--version" || first === "-v") return { version: true };
  if (first === "--help" || first === "-h") return { help: helpOfAll() };
  if (first === "help") {
    return { help: isCommand(rest[0]) ? helpOf(rest[0]) : helpOfAll() };
  }
  if (first === undefined) throw new Failure(EXIT.usage, `No command given.\n\n${helpOfAll()}`);
  if (!isCommand(first)) {
    const what = first.startsWith("-") ? "option" : "command";
    const names = Object.keys(COMMANDS).join(", ");
    const known = what === "command" ? `The commands are ${names}. ` : "Give a command first. ";
    throw new Failure(EXIT.usage, `Unknown ${what} ${first}. ${known}See varve --help.`);
  }
  return parse(first, rest);
}

function parse(command: CommandName, args: string[]): { help: string } | Call {
  const { words, options, also } = commandOf(command);
  const known = Object.entries(options).map(([name, { takes }]) => {
    const type = takes === undefined ? ("boolean" as const) : ("string" as const);
    return [name, { type }] as const;
  });
  const help = { type: "boolean", short: "h" } as const;
  let parsed: ReturnType<typeof parseArgs>;
  try {
    parsed = parseArgs({
      args: tied(command, args),
      options: { ...Object.fromEntries(known), help },
      allowPositionals: true,
    });
  } catch (error) {
    // Keep only the first sentence of the runtime's message; the rest is about its own options.
    const reason = error instanceof Error ? error.message : String(error);
    const sentence = reason.replace(/\. To specify a positional[\s\S]*/, "").replace(/\.?$/, ".");
    throw misused(command, `${sentence} Put -- before a word that begins with a dash.`);
  }
  const { values, positionals } = parsed;
  if (values.help === true) return { help: helpOf(command) };
  const { length } = positionals;
  if (also === undefined ? length !== words.length : length < words.length) {
    const needs = `varve ${command} needs ${words.join(" and ")}`;
    const given = positionals.length === 0 ? "nothing" : positionals.join(" ");
    throw misused(command, `${needs}; given: ${given}.`);
  }
  const texts: Record<string, string> = {};
  const flags = new Set<string>();
  for (const [name, value] of Object.entries(values)) {
    if (typeof value === "string") texts[name] = value;
    else if (value === true) flags.add(name);
  }
  return { command, positionals, texts, flags };
}

/**
 * Joins options and their values to one word, so that a value may begin with a dash. A value that is an option itself
 * is refused, because the value of the first option was probably forgotten.
 */
function tied(command: CommandName, args: readonly string[]): string[] {
  const { options } = commandOf(command);
  const known = { ...options, help: undefined };
  const words: string[] = [];
  for (let at = 0; at < args.length; at += 1) {
    const word = args[at] as string;
    if (word === "--") return [...words, ...args.slice(at)];
    const takes = word.startsWith("--") ? options[word.slice(2)]?.takes : undefined;
    const next = args[at + 1];
    if (takes === undefined || next === undefined) words.push(word);
    else if (next === "--" || (next.startsWith("--") && next.slice(2) in known)) {
      const meant = `write ${word}=${next} if you mean it`;
      throw misused(command, `${word} takes ${takes}, but ${next} is an option: ${meant}.`);
    } else {
      words.push(`${word}=${next}`);
      at += 1;
    }
  }
  return words;
}

/** Digits that a number represents exactly. */
const WHOLE = /^\d{1,15}$/;

/** The option `--limit`. */
export function limitOf(call: Call): number | undefined {
  const { limit } = call.texts;
  if (limit === undefined) return undefined;
  if (!WHOLE.test(limit)) {
    throw misused(call.command, `--limit must be a whole number: ${limit}.`);
  }
  return Number(limit);
}

/** A version or the number of a transaction; `undefined` if the word is no number. */
export function numberIn(word: string): number | undefined {
  return WHOLE.test(word) ? Number(word) : undefined;
}

/** The error for a command that was not understood. */
export function misused(command: CommandName, reason: string): Failure {
  return new Failure(EXIT.usage, `${reason} See varve ${command} --help.`);
}

function helpOfAll(): string {
  const names = Object.keys(COMMANDS).filter(isCommand);
  const rows = names.map((name) => {
    const { words, about } = commandOf(name);
    return [`  ${name} ${words.join(" ")}`, about] as const;
  });
  return `varve: inspects a database file without changing it.

Usage: varve COMMAND FILE …

${table(rows)}
  varve COMMAND --help  show the options of a command
  varve --version       show the version

${EXIT_CODES}`;
}

function helpOf(name: CommandName): string {
  const { about, words, also, more, options } = commandOf(name);
  const all = also === undefined ? words : [...words, also];
  const rows = Object.entries(options).map(([option, { takes, about }]) => {
    return [`  --${option}${takes === undefined ? "" : ` ${takes}`}`, about] as const;
  });
  const explained = more === "" ? "" : `${more}\n`;
  return `Usage: varve ${name} ${all.join(" ")} [options]

${about[0]?.toUpperCase()}${about.slice(1)}.

${explained}${table([...rows, ["  -h, --help", "show this help"]])}
${EXIT_CODES}`;
}
