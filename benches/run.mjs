// The benchmarks. Needs a release build in dist/ (npm run bench makes one first).
//   node benches/run.mjs [parts] [--quick] [--sizes 1000,1000000] [--stores varve,lmdb]
// Tables go to stdout; all samples go to benches/results/latest.json.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { bundleForNode } from "../scripts/bundle.mjs";
import { entry, parseArguments, root } from "../scripts/lib.mjs";
import * as recording from "../scripts/record.mjs";
import { installRivals } from "./rivals/install.mjs";

const USAGE = `npm run bench [-- parts] [-- --quick]
  node      the product drop in files, beside GrausDB
  keys      the ordered key set beside one of vectors, natively and in wasm
  browser   single calls and the product drop in Chromium on OPFS, beside SQLite and IndexedDB
  struct    typed views of structs in Node and in Chromium, compared with raw bytes, JSON, msgpackr, FlatBuffers
  client    pages and tabs in Chromium and Firefox: round trips, writes of several tabs, change of owner,
            first visit, beside PGlite, IndexedDB and bare messages
  page      a page's start in Chromium and Firefox: until the first write and the first list, on the first visit and
            the next, beside Dexie, idb-keyval and a bare worker with a bare file
  lists     lists of 1,000 and 10,000 records on a page in Chromium, beside Dexie and bare messages
  native    native Rust, beside redb and fjall; JSON beside serde_json; owned slices beside vectors
  history   the log as history: walks over 169 MB in Node, Chromium and Rust, beside ZODB, sum and cksum; notes
  past      past commits in a file that keeps a million, 1,000 to 1,000,000 commits back
  sizes     1,000 to 5 million keys in files, beside lmdb, better-sqlite3, classic-level, GrausDB
  sizes-browser   the same in Chromium on OPFS, beside sqlite-wasm and IndexedDB
  large     a database four times its memory, large values, a bulk load, beside bare reads and writes
  large-browser   the same in Chromium on OPFS
  long      opening after a close and after a crash, a million overwrites, beside lmdb and classic-level
  long-browser    the same in Chromium on OPFS, beside sqlite-wasm
  --quick   few samples: a smoke test
  --sizes   only these sizes, separated by commas
  --tables  only prints the tables of docs/benchmarks.md from the results in this file
  --stores  only these stores: varve, lmdb, sqlite, level, graus, indexeddb, map, floor`;

const FLAGS = { "--quick": "flag", "--sizes": "text", "--stores": "text", "--tables": "text" };

entry(async () => {
  const { values, words } = parseArguments(process.argv.slice(2), FLAGS, USAGE);
  if (values["--tables"] !== undefined) return printTables(values["--tables"]);
  if (
    words.length === 0 ||
    words.some((word) => ["sizes", "long", "struct", "client", "page", "lists"].includes(word))
  )
    await installRivals();
  const entries = [
    { in: "benches/main.ts", out: "main" },
    { in: "benches/node/first.ts", out: "first" },
    { in: "benches/sizes/node/child.ts", out: "sizes" },
    { in: "benches/large/child.ts", out: "large" },
    { in: "benches/struct/child.ts", out: "struct" },
    { in: "benches/long/child.ts", out: "long" },
  ];
  await bundleForNode(entries, ".build/bench");
  const { main } = await import(pathToFileURL(join(root, ".build/bench/main.mjs")).href);
  const options = {
    root,
    sections: words,
    quick: values["--quick"] === true,
    sizes: values["--sizes"]?.split(",").map(Number),
    stores: values["--stores"]?.split(","),
  };
  await main(options, recording);
});

async function printTables(path) {
  await bundleForNode([{ in: "benches/tables.ts", out: "tables" }], ".build/bench-tables");
  const { tables } = await import(pathToFileURL(join(root, ".build/bench-tables/tables.mjs")).href);
  process.stdout.write(`${tables(JSON.parse(readFileSync(path, "utf8")))}\n`);
}
