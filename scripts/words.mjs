// Terms that this project does not use, and the standard term for each.

import { readFileSync } from "node:fs";
import { basename, join } from "node:path";
import { filesBelow, root } from "./lib.mjs";

/** Where sources are checked. */
const FOLDERS = ["js", "crate", "benches", "demo", "scripts", "tests"];

/** Words that no name and no comment may contain, and what to say instead. */
const WORDS = {
  grave: "tombstone",
  graves: "tombstones",
  bury: "append a tombstone, or markDetached",
  buried: "deleted, or detached",
  unburied: "tombstone removed",
  born: "record added",
  doom: "retire",
  doomed: "retired, or pending free",
  tend: "maintain",
  tends: "maintains",
  tending: "maintenance",
  housekeeping: "maintenance",
  lift: "relocate",
  lifted: "relocated",
  deed: "operation",
  mending: "recovery",
  blotted: "needs zeroing",
  foresee: "prefetch",
  lend: "expose, or track",
  lent: "exposed, or tracked",
  heed: "check (a signal)",
  unheard: "raw, or not answered",
  hearers: "listeners",
  judge: "classify, or check",
  judged: "checked",
  bow: "resign",
  courier: "relay",
  deaf: "unresponsive",
  hesitate: "wait",
  sleeper: "listener of the page's lifecycle",
  ledger: "request log",
  catalogue: "catalog",
  drafted: "encoded",
  tell: "report, or state",
  tells: "reports, or states",
  told: "reported, or stated",
  hear: "receive",
  hears: "receives",
  heard: "received",
  anew: "again",
  lends: "exposes",
  lender: "owner",
  patience: "timeout",
  patiently: "with retries",
  silence: "timeout",
  somebody: "the caller, a client, or a process",
  nobody: "no caller, client, or process",
  whoever: "the caller, a client, or a process",
  he: "the caller, a client, or a process",
};

/** Further words that names and comments in Rust may not contain. */
const RUST_WORDS = {
  ...WORDS,
  tended: "maintained",
  heeds: "checks, or respects",
  foreseen: "prefetched",
  peek: "read",
  beat: "heartbeat",
  beats: "heartbeats",
  room: "space, or capacity",
  rooms: "slots",
  group: "batch, or commit",
  groups: "batches, or commits",
  ways: "transitions",
  sender: "client",
  who: "the caller, a client, or a process",
};

/** Words that names in Rust may not contain, but comments may: there they are plain English. */
const RUST_NAMES = {
  ...RUST_WORDS,
  place: "address, position, or offset",
  places: "addresses, positions, or offsets",
  piece: "chunk",
  pieces: "chunks",
};

/** Words that names in TypeScript and JavaScript may not contain, but comments may. */
const SCRIPT_NAMES = {
  ...WORDS,
  who: "the caller, a client, or a process",
  whose: "the owner",
  ways: "variants, or modes",
  places: "platforms, addresses, or offsets",
  surroundings: "environment",
};

/** Phrases that no comment may contain. */
const PHRASES =
  /\b(hand(s|ed|ing)? on|g[ai]ves? back|given back|giving back|c[ao]mes? to nothing|lets? go|letting go|stands? for)\b/i;

/** Phrases and stems of words that documents and texts of programs may not contain. */
const PROSE =
  /\b(giv(es?|en|ing) back|gave back|liv(ed|es) again|sp[eo]aks? of|whoever|nobody|somebody|housekeep\w*|foresee\w*|doomed|graves?|ledgers?|couriers?|catalogues?|heed\w*|anew|buried|still stands?|stands? behind|given out|gave out|giv(es?|ing) out|comes? to nothing|lets? go|letting go|hand(s|ed|ing)? on)\b/i;

/** Further phrases that comments in Rust may not contain. */
const RUST_PHRASES = /\b(hand(s|ed|ing)? over|makes? good)\b/i;

/** Allowed names: of the file format, of exports, of libraries, and of tests. */
const EXCEPTIONS = new Set([
  ...["PiecesRef", "KIND_PIECES", "KEY_PIECE", "PIECE_KEY", "MAX_PIECES", "INCOMPATIBLE_PIECES"],
  ...["piece", "pieces", "piece_limit"].map((name) => `crate/src/format ${name}`),
  ...["piece_limit", "queue_room", "Sender", "peek", "ranges_iterate_both_ways_between_any_bounds"],
]);

/** The ordered index is a tree whose nodes are groups of blocks. */
const GROUPS = "crate/src/index/ordered_index.rs";

/** This list, and a file that TypeScript prints. */
const SKIPPED = ["scripts/words.mjs", "crate/tests/schema/printed.rs"];

/** A sentence for each name and comment that contains such a word. */
export function privateWords() {
  const found = new Set();
  const check = (path, text, words, table) => {
    const word = words.find((one) => Object.hasOwn(table, one));
    if (word !== undefined && !(path === GROUPS && /^groups?$/.test(word))) {
      found.add(`${path}: "${word}" in: ${text} (say: ${table[word]})`);
    }
  };
  for (const path of FOLDERS.flatMap((folder) => filesBelow(folder, isSource))) {
    const isRust = path.endsWith(".rs");
    for (const name of [basename(path).replace(/\..*/, ""), ...namesIn(path)]) {
      if (isException(path, name)) continue;
      // "In place" is a fixed term.
      const words = wordsOf(name).join(" ").replaceAll("in place", "").split(" ");
      check(path, name, words, isRust ? RUST_NAMES : SCRIPT_NAMES);
    }
    for (const text of stringsIn(path)) {
      const phrase = PROSE.exec(text);
      if (phrase !== null) found.add(`${path}: "${phrase[0]}" in: ${text} (say what happens)`);
    }
    for (const comment of commentsIn(path)) {
      const words = comment.toLowerCase().match(/[a-z]+/g) ?? [];
      check(path, comment, words, isRust ? RUST_WORDS : WORDS);
      const phrase = PHRASES.exec(comment) ?? (isRust ? RUST_PHRASES.exec(comment) : null);
      if (phrase !== null) found.add(`${path}: "${phrase[0]}" in: ${comment} (say what happens)`);
    }
  }
  for (const path of documents()) {
    for (const text of paragraphsIn(path)) {
      const phrase = PROSE.exec(text);
      if (phrase !== null) found.add(`${path}: "${phrase[0]}" in: ${text} (say what happens)`);
    }
  }
  return [...found];
}

/** The documents, of which the prose is checked. */
function documents() {
  const isDocument = (path) => path.endsWith(".md");
  const top = ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md"];
  return [...top, "crate/FORMAT.md", "crate/DESIGN.md", ...filesBelow("docs", isDocument)];
}

/** The paragraphs of a document, each in one line, without code. */
function paragraphsIn(path) {
  const source = readFileSync(join(root, path), "utf8");
  return source
    .replace(/```[\s\S]*?```/g, "")
    .replace(/`[^`\n]*`/g, "")
    .split(/\n\s*\n|\n(?=[-|] )/)
    .map((text) => text.replace(/\s+/g, " ").trim());
}

/** The string literals of a script that are prose, such as the names of tests and the texts of errors. */
function stringsIn(path) {
  const source = readFileSync(join(root, path), "utf8");
  const literals = source.match(/"(?:[^"\\\n]|\\.)*"|`(?:[^`\\]|\\.)*`/g) ?? [];
  return literals.filter((text) => text.includes(" "));
}

function isSource(path) {
  return /\.(rs|ts|mjs)$/.test(path) && !SKIPPED.includes(path);
}

function isException(path, name) {
  const folder = path.split("/").slice(0, 3).join("/");
  return [name, `${path} ${name}`, `${folder} ${name}`].some((one) => EXCEPTIONS.has(one));
}

/** The comments of a source, each in one line, without quoted code. */
function commentsIn(path) {
  const source = readFileSync(join(root, path), "utf8");
  const blocks = source.match(/(?<=^|\s)\/\*[\s\S]*?\*\//g) ?? [];
  // Consecutive line comments are one comment, so that phrases across line breaks are found.
  const lines = source
    .replace(/"(?:[^"\\\n]|\\.)*"/g, '""')
    .match(/(?<=^|\s)\/\/[/!]?\s.*(?:\n[ \t]*\/\/[/!]?(?:\s.*)?(?=\n|$))*/g);
  return [...blocks, ...(lines ?? [])].map((comment) =>
    comment
      .replace(/```[\s\S]*?```/g, "")
      .replace(/^\s*(?:\/\/[/!]?|\/?\*+\/?)/gm, " ")
      .replace(/`[^`]*`/g, "")
      .replace(/\s+/g, " ")
      .replace(/\s*\*\/$/, "")
      .trim(),
  );
}

/** The identifiers of a source, without comments and literals. */
function namesIn(path) {
  const text = path.endsWith(".rs")
    ? /\/\*[\s\S]*?\*\/|\/\/.*|"(?:[^"\\]|\\[\s\S])*"/g
    : /\/\*[\s\S]*?\*\/|\/\/.*|"(?:[^"\\\n]|\\.)*"|`(?:[^`\\]|\\.)*`/g;
  const source = readFileSync(join(root, path), "utf8").replace(text, " ");
  return new Set(source.match(/[A-Za-z_$][\w$]*/g) ?? []);
}

/** Splits a name in any case: `readPage`, `read_page`, `READ_PAGE` and `read-page` are read, page. */
function wordsOf(name) {
  return name
    .replace(/([a-z0-9])([A-Z])/g, "$1 $2")
    .toLowerCase()
    .split(/[^a-z0-9]+/);
}
