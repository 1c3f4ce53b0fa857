// Runs random programs until it is stopped, or repeats one of them.
//   node tests/model/soak.mjs [--seed n] [--count n] [--length n] [--place memory|file|faulty] [--build release|debug]

import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { bundleForNode } from "../../scripts/bundle.mjs";
import { entry, parseArguments, root, say } from "../../scripts/lib.mjs";

const USAGE =
  "node tests/model/soak.mjs [--seed n] [--count n] [--length n] [--place memory|file|faulty] [--build release|debug]";

entry(async () => {
  const { values } = parseArguments(
    process.argv.slice(2),
    {
      "--seed": "count",
      "--count": "count",
      "--length": "count",
      "--place": "text",
      "--build": "text",
    },
    USAGE,
  );
  const { "--seed": seed = 1, "--count": count = 1, "--length": length } = values;
  const { "--place": place = "memory", "--build": build = "release" } = values;
  const out = `.build/tests/soak-${process.pid}`;
  const directory = mkdtempSync(join(tmpdir(), "varve-soak-"));
  try {
    await bundleForNode(["tests/model/soak.ts"], out);
    const { soak } = await import(pathToFileURL(join(root, out, "soak.mjs")).href);
    const wasm =
      build === "debug"
        ? await WebAssembly.compile(readFileSync(join(root, "dist/varve.debug.wasm")))
        : undefined;
    const failed = await soak({ seed, count, length, place, build, wasm, directory, say });
    if (failed > 0) process.exitCode = 1;
  } finally {
    rmSync(join(root, out), { recursive: true, force: true });
    rmSync(directory, { recursive: true, force: true });
  }
});
