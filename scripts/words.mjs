// Terms that this project does not use, and the standard term for each. Names, comments, strings and documents are
// checked, and before them samples that contain such terms, so that a check that finds nothing is noticed.

import { readFileSync } from "node:fs";
import { basename, join } from "node:path";
import { filesBelow, root } from "./lib.mjs";

/** Where sources are checked. */
const FOLDERS = ["js", "crate", "benches", "demo", "scripts", "site", "tests", "examples"];

/** Words that no name and no comment may contain, and what to say instead. */
const WORDS = {
  grave: "tombstone",
  graves: "tombstones",
  bury: "append a tombstone, or markDetached",
  buried: "deleted, or detached",
  unburied: "tombstone removed",
  born: "record added",
  doom: "retire",
  doomed: "retired, or reclaimable",
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
  crowded: "must copy",
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
  piece: "chunk",
  pieces: "chunks",
};

/**
 * Words that documents and strings may contain, although names may not. In prose they are ordinary English, as in "no
 * room to write", "in both ways", "a file whose end is missing" and "a group of tabs". "Sender" is what extensions
 * call an argument of theirs.
 */
const ORDINARY = new Set([
  ...["who", "whose", "room", "rooms", "place", "places", "piece", "pieces", "ways"],
  ...["group", "groups", "sender"],
]);

/** Words that documents and strings may not contain. */
const PROSE_WORDS = Object.fromEntries(
  Object.entries({ ...SCRIPT_NAMES, ...RUST_NAMES }).filter(([word]) => !ORDINARY.has(word)),
);

/** Phrases that no comment may contain. */
const PHRASES =
  /\b(hand(s|ed|ing)? on|g[ai]ves? back|given back|giving back|c[ao]mes? to nothing|lets? go|letting go|stands? for)\b/i;

/** Phrases and stems of words that documents and strings may not contain. */
const PROSE =
  /\b(giv(es?|en|ing) back|gave back|liv(ed|es) again|sp[eo]aks? of|housekeep\w*|foresee\w*|couriers?|catalogues?|ledgers?|heed\w*|still stands?|stands? behind|given out|gave out|giv(es?|ing) out|comes? to nothing|lets? go|letting go|hand(s|ed|ing)? on)\b/i;

/** Further phrases that comments in Rust may not contain. */
const RUST_PHRASES = /\b(hand(s|ed|ing)? over|makes? good)\b/i;

/** Allowed names and words: of the file format, of exports, of libraries, and of tests. */
const EXCEPTIONS = new Set([...["Sender", "peek", "ranges_iterate_both_ways_between_any_bounds"]]);

/** The ordered index is a tree whose nodes are groups of blocks. */
const GROUPS = "crate/src/index/ordered_index.rs";

/** This list, and a file that TypeScript prints. */
const SKIPPED = ["scripts/words.mjs", "crate/tests/schema/printed.rs"];

/**
 * Samples of each kind of text that is checked, with what is to be found in it: a word or phrase, or `undefined` for
 * nothing.
 */
const SAMPLES = [
  ["js/sample.ts", "const ledger = 1;", "ledger"],
  ["js/sample.ts", "class RequestLedger {}", "ledger"],
  ["js/sample.ts", "const pieceCount = 1;", "piece"],
  ["js/ledger.ts", "", "ledger"],
  ["js/sample.ts", "// It hands on\n// the writes.", "hands on"],
  ["js/sample.ts", "/** The caller is told. */", "told"],
  ["js/sample.ts", 'fail("The catalogue is full.");', "catalogue"],
  ["tests/sample.test.ts", 'test("nobody waits", () => {});', "nobody"],
  ["tests/sample.test.ts", "test(`It is buried`, () => {});", "buried"],
  ["examples/sample.mjs", "let graves;", "graves"],
  ["crate/src/sample.rs", "fn peek_record() {}", "peek"],
  ["crate/src/sample.rs", "/// Makes good what the crash undid.", "Makes good"],
  ["crate/src/sample.rs", 'let text = "it is doomed";', "doomed"],
  ["docs/sample.md", "The heartbeat is heard\nby all tabs.", "heard"],
  ["docs/sample.md", "Memory is given\nback.", "given back"],
  [".github/sample.yml", "# What the housekeeping needs.", "housekeeping"],
  // Code in a document, words in other words, and ordinary English in prose.
  ["docs/sample.md", "Call `tell()`. Most people, whose room is small, intend to.", undefined],
  ["js/sample.ts", 'fail("There is no room in the file whose end is missing.");', undefined],
  ["js/sample.ts", "const updatedInPlace = intend;", undefined],
];

/** A sentence for each text that contains such a word, and for each sample in which the wrong ones are found. */
export function privateWords() {
  const sources = FOLDERS.flatMap((folder) => filesBelow(folder, isSource));
  const found = [...sources, ...documents()].flatMap((path) => [
    ...findings(path, readFileSync(join(root, path), "utf8")),
  ]);
  return [...wrongSamples(), ...found];
}

function wrongSamples() {
  return SAMPLES.flatMap(([path, text, expected]) => {
    const found = [...findings(path, text)];
    const isRight =
      expected === undefined ? found.length === 0 : found.join().includes(`: "${expected}" in: `);
    if (isRight) return [];
    const what = expected === undefined ? "nothing" : `"${expected}"`;
    return [`scripts/words.mjs should find ${what} in ${JSON.stringify(text)}, not: ${found}`];
  });
}

/** A sentence for each name, comment, string or paragraph of a file that contains such a word. */
function findings(path, source) {
  const found = new Set();
  const check = (text, words, table) => {
    const word = words.find(
      (one) =>
        Object.hasOwn(table, one) &&
        !EXCEPTIONS.has(`${path} ${one}`) &&
        !(path === GROUPS && /^groups?$/.test(one)),
    );
    if (word !== undefined) found.add(`${path}: "${word}" in: ${text} (say: ${table[word]})`);
  };
  const checkPhrase = (text, phrases) => {
    const phrase = phrases.exec(text);
    if (phrase !== null) found.add(`${path}: "${phrase[0]}" in: ${text} (say what happens)`);
  };
  const checkProse = (text) => {
    check(text, plainWordsOf(text), PROSE_WORDS);
    checkPhrase(text, PROSE);
  };
  if (!isSource(path)) {
    for (const text of paragraphsIn(source)) checkProse(text);
    return found;
  }
  const isRust = path.endsWith(".rs");
  for (const name of [basename(path).replace(/\..*/, ""), ...namesIn(source, isRust)]) {
    if (isException(path, name)) continue;
    // "In place" is a fixed term.
    const words = wordsOf(name).join(" ").replaceAll("in place", "").split(" ");
    check(name, words, isRust ? RUST_NAMES : SCRIPT_NAMES);
  }
  for (const text of stringsIn(source)) checkProse(text);
  for (const comment of commentsIn(source)) {
    check(comment, plainWordsOf(comment), isRust ? RUST_WORDS : WORDS);
    checkPhrase(comment, PHRASES);
    if (isRust) checkPhrase(comment, RUST_PHRASES);
  }
  return found;
}

/** The documents, and the texts of the repository's page on GitHub. */
function documents() {
  const isDocument = (path) => path.endsWith(".md");
  const top = ["README", "ARCHITECTURE", "CHANGELOG", "CONTRIBUTING", "SECURITY"];
  const folders = ["crate", "docs", "examples"].flatMap((folder) => filesBelow(folder, isDocument));
  return [...top.map((name) => `${name}.md`), ...folders, ...filesBelow(".github")];
}

/** The paragraphs of a document, each in one line, without code. */
function paragraphsIn(source) {
  return source
    .replace(/```[\s\S]*?```/g, "")
    .replace(/`[^`\n]*`/g, "")
    .replace(/\]\([^)]*\)/g, "]")
    .split(/\n\s*\n|\n(?=[-|] )/)
    .map((text) => text.replace(/\s+/g, " ").trim());
}

/** The string literals of a source that are prose, such as the names of tests and the texts of errors. */
function stringsIn(source) {
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
function commentsIn(source) {
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
function namesIn(source, isRust) {
  const text = isRust
    ? /\/\*[\s\S]*?\*\/|\/\/.*|"(?:[^"\\]|\\[\s\S])*"/g
    : /\/\*[\s\S]*?\*\/|\/\/.*|"(?:[^"\\\n]|\\.)*"|`(?:[^`\\]|\\.)*`/g;
  return new Set(source.replace(text, " ").match(/[A-Za-z_$][\w$]*/g) ?? []);
}

/** The words of a text. */
function plainWordsOf(text) {
  return text.toLowerCase().match(/[a-z]+/g) ?? [];
}

/** Splits a name in any case: `readPage`, `read_page`, `READ_PAGE` and `read-page` are read, page. */
function wordsOf(name) {
  return name
    .replace(/([a-z0-9])([A-Z])/g, "$1 $2")
    .toLowerCase()
    .split(/[^a-z0-9]+/);
}
