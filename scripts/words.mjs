// Private vocabulary that the code once had. None of these words may come back in a name: use the field's term.

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

/** Names that contain such a word, as sentences. */
export function privateWords() {
  const found = new Map();
  const sources = [
    ...filesBelow("js", (file) => file.endsWith(".ts")),
    ...filesBelow("crate/src", (file) => file.endsWith(".rs")),
  ];
  for (const path of sources) {
    for (const name of [basename(path).replace(/\..*/, ""), ...namesIn(path)]) {
      const word = wordsOf(name).find((one) => Object.hasOwn(WORDS, one));
      if (word !== undefined && !found.has(`${path} ${name}`)) {
        found.set(`${path} ${name}`, `${path}: ${name} (say: ${WORDS[word]})`);
      }
    }
  }
  return [...found.values()];
}

/** The identifiers of a source, without comments and literals. */
function namesIn(path) {
  const source = readFileSync(join(root, path), "utf8").replace(
    /\/\*[\s\S]*?\*\/|\/\/.*|"(?:[^"\\\n]|\\.)*"|`(?:[^`\\]|\\.)*`/g,
    " ",
  );
  return new Set(source.match(/[A-Za-z_$][\w$]*/g) ?? []);
}

/** `handOver`, `hand_over`, `HAND_OVER` and `hand-over`: hand, over. */
function wordsOf(name) {
  return name
    .replace(/([a-z0-9])([A-Z])/g, "$1 $2")
    .toLowerCase()
    .split(/[^a-z0-9]+/);
}
