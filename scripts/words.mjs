// Private vocabulary that the code once had. None of these words may come back in a name, nor in the crate in a
// comment: use the field's term.

import { readFileSync } from "node:fs";
import { basename, join } from "node:path";
import { filesBelow, root } from "./lib.mjs";

/** What is not to be said, and what to say instead. */
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
};

/** Further words that are gone from the crate, in names and in comments. */
const CRATE_WORDS = {
  ...WORDS,
  tended: "maintained",
  heeds: "checks, or respects",
  hear: "receive",
  heard: "received",
  tell: "report, or state",
  tells: "reports, or states",
  told: "reported, or stated",
  foreseen: "prefetched",
  lends: "exposes",
  peek: "read",
  beat: "heartbeat",
  beats: "heartbeats",
  silence: "timeout",
  patience: "timeout",
  room: "space, or capacity",
  rooms: "slots",
  group: "batch, or commit",
  groups: "batches, or commits",
  ways: "transitions",
  sender: "client",
  somebody: "the caller, a client, or a process",
  nobody: "no caller, client, or process",
  whoever: "the caller, a client, or a process",
  who: "the caller, a client, or a process",
  he: "the caller, a client, or a process",
  anew: "again",
};

/** And words that only its names may not have: as others they are plain English. */
const CRATE_NAMES = {
  ...CRATE_WORDS,
  place: "address, position, or offset",
  places: "addresses, positions, or offsets",
  piece: "chunk",
  pieces: "chunks",
};

/** Phrases that its comments may not have. */
const CRATE_PHRASES =
  /\b(hand(ed|s|ing)? (on|over)|g[ai]ven? back|gives back|comes? to nothing|makes? good|stands? for|lets? go)\b/i;

/** Names that are right all the same: of the format, of an export, of libraries, and of tests. */
const CRATE_EXCEPTIONS = new Set([
  ...["PiecesRef", "KIND_PIECES", "KEY_PIECE", "PIECE_KEY", "MAX_PIECES", "INCOMPATIBLE_PIECES"],
  ...["piece", "pieces", "piece_limit"].map((name) => `crate/src/format ${name}`),
  ...["piece_limit", "queue_room", "Sender", "peek", "ranges_iterate_both_ways_between_any_bounds"],
]);

/** Its ordered index is a tree whose nodes are groups of blocks; and TypeScript prints one of its files. */
const GROUPS = "crate/src/index/ordered_index.rs";
const PRINTED = "crate/tests/schema/printed.rs";

/** Names and comments that contain such a word, as sentences. */
export function privateWords() {
  const found = new Map();
  const check = (path, text, words, table) => {
    const word = words.find((one) => Object.hasOwn(table, one));
    if (word !== undefined && !(path === GROUPS && /^groups?$/.test(word))) {
      found.set(`${path} ${text}`, `${path}: ${text} (say: ${table[word]})`);
    }
  };
  const crate = filesBelow("crate", (file) => file.endsWith(".rs") && file !== PRINTED);
  for (const path of [...filesBelow("js", (file) => file.endsWith(".ts")), ...crate]) {
    const isCrate = path.startsWith("crate/");
    for (const name of [basename(path).replace(/\..*/, ""), ...namesIn(path)]) {
      if (isCrate && isException(path, name)) continue;
      // What is changed in place is changed where it is: no other word says that.
      const words = wordsOf(name).join(" ").replaceAll("in place", "").split(" ");
      check(path, name, words, isCrate ? CRATE_NAMES : WORDS);
    }
    if (!isCrate) continue;
    for (const comment of commentsIn(path)) {
      check(path, comment, comment.toLowerCase().match(/[a-z]+/g) ?? [], CRATE_WORDS);
      if (CRATE_PHRASES.test(comment)) {
        found.set(`${path} ${comment}`, `${path}: ${comment} (say what happens)`);
      }
    }
  }
  return [...found.values()];
}

function isException(path, name) {
  return (
    CRATE_EXCEPTIONS.has(name) ||
    CRATE_EXCEPTIONS.has(`${path.split("/").slice(0, 3).join("/")} ${name}`)
  );
}

/** The comments of a source in Rust, a line each, without what is quoted as code. */
function commentsIn(path) {
  const lines = readFileSync(join(root, path), "utf8").split("\n");
  return lines.flatMap((line) => {
    const comment = /(?:^|\s)\/\/[/!]?\s(.*)$/.exec(line.replace(/"(?:[^"\\]|\\.)*"/g, '""'));
    return comment ? [comment[1].replace(/`[^`]*`/g, "")] : [];
  });
}

/** The identifiers of a source, without comments and literals. */
function namesIn(path) {
  const text = path.endsWith(".rs")
    ? /\/\*[\s\S]*?\*\/|\/\/.*|"(?:[^"\\]|\\[\s\S])*"/g
    : /\/\*[\s\S]*?\*\/|\/\/.*|"(?:[^"\\\n]|\\.)*"|`(?:[^`\\]|\\.)*`/g;
  const source = readFileSync(join(root, path), "utf8").replace(text, " ");
  return new Set(source.match(/[A-Za-z_$][\w$]*/g) ?? []);
}

/** `handOver`, `hand_over`, `HAND_OVER` and `hand-over`: hand, over. */
function wordsOf(name) {
  return name
    .replace(/([a-z0-9])([A-Z])/g, "$1 $2")
    .toLowerCase()
    .split(/[^a-z0-9]+/);
}
