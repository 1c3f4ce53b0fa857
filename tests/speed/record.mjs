// Measures the calls of calls.ts in five processes, and records the median of each ratio in ratios.json.

import { execFileSync } from "node:child_process";
import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { bundleForNode } from "../../scripts/bundle.mjs";
import { root } from "../../scripts/lib.mjs";

const PROCESSES = 5;
const out = `.build/speed-${process.pid}`;
try {
  await bundleForNode(["tests/speed/calls.ts"], out);
  const module = pathToFileURL(join(root, out, "calls.mjs")).href;
  const program = `import { measure } from ${JSON.stringify(module)};
    console.log(JSON.stringify(await measure()));`;
  const runs = Array.from({ length: PROCESSES }, () =>
    JSON.parse(execFileSync(process.execPath, ["--input-type=module", "--eval", program])),
  );
  const ratios = Object.fromEntries(
    Object.keys(runs[0]).map((name) => {
      const all = runs.map((run) => run[name]).sort((a, b) => a - b);
      return [name, Number(all[PROCESSES >> 1].toFixed(1))];
    }),
  );
  writeFileSync(join(root, "tests/speed/ratios.json"), `${JSON.stringify(ratios, null, 2)}\n`);
  console.log(ratios);
} finally {
  rmSync(join(root, out), { recursive: true, force: true });
}
