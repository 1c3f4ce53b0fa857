// The benchmarks. Wants a release build in dist/ (npm run bench makes one first).
//   node benches/run.mjs [node] [keys] [browser] [--quick]
// Tables go to stdout; all samples go to benches/results/latest.json.

import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { bundleForNode } from "../scripts/bundle.mjs";
import { entry, parseArguments, root } from "../scripts/lib.mjs";

const USAGE = `npm run bench [-- node keys browser] [-- --quick]
  node      the product drop in files, beside GrausDB
  keys      the ordered key set beside one of vectors, natively and in wasm
  browser   single calls and the product drop in Chromium on OPFS, beside SQLite and IndexedDB
  --quick   few samples: shows that it works, says little`;

entry(async () => {
  const { values, words } = parseArguments(process.argv.slice(2), { "--quick": "flag" }, USAGE);
  const entries = [
    { in: "benches/main.ts", out: "main" },
    { in: "benches/node/first.ts", out: "first" },
  ];
  await bundleForNode(entries, ".build/bench");
  const { main } = await import(pathToFileURL(join(root, ".build/bench/main.mjs")).href);
  await main({ root, sections: words, quick: values["--quick"] === true });
});
