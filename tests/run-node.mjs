// Runs the suites that belong to Node. The last line is the sum; the exit code says the same.
//   node tests/run-node.mjs [--build release|debug] [--rooms contract,node,vectors] [text in the test's name]

import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { bundleForNode } from "../scripts/bundle.mjs";
import { entry, filesBelow, Problem, parseArguments, root, say } from "../scripts/lib.mjs";

const USAGE =
  "node tests/run-node.mjs [--build release|debug] [--rooms contract,node,vectors] [filter]";

entry(async () => {
  const { values, words } = parseArguments(
    process.argv.slice(2),
    { "--build": "text", "--rooms": "text" },
    USAGE,
  );
  const build = values["--build"] ?? "release";
  const rooms = (values["--rooms"] ?? "contract,node,vectors").split(",");
  const files = rooms.flatMap((room) =>
    filesBelow(`tests/${room}`, (file) => file.endsWith(".test.ts")),
  );
  if (files.length === 0) throw new Problem(`there are no tests in ${rooms.join(", ")}.`);

  const out = `.build/tests/node-${rooms.join("-")}-${build}-${process.pid}`;
  const directory = mkdtempSync(join(tmpdir(), "varve-tests-"));
  try {
    await bundleForNode(["tests/harness.ts", ...files], out);
    const modules = files.map((file) => join(root, out, file.slice(6).replace(/\.ts$/, ".mjs")));
    const harness = await import(pathToFileURL(join(root, out, "harness.mjs")).href);
    globalThis.varveTests = {
      runtime: "Deno" in globalThis ? "deno" : "Bun" in globalThis ? "bun" : "node",
      build,
      wasm: build === "debug" ? await debugWasm() : undefined,
      directory,
      root,
      limitStorage: undefined,
    };
    for (const module of modules) await import(pathToFileURL(module).href);
    const report = await harness.run(globalThis.varveTests, { filter: words[0], log: say });
    say(`  ${globalThis.varveTests.runtime}, ${build} wasm: ${report.ms} ms`);
    process.stdout.write(
      `${report.passed} passed, ${report.failed} failed, ${report.skipped} skipped\n`,
    );
    if (report.failed > 0 || report.passed === 0) process.exitCode = 1;
  } finally {
    rmSync(join(root, out), { recursive: true, force: true });
    rmSync(directory, { recursive: true, force: true });
  }
});

function debugWasm() {
  return WebAssembly.compile(readFileSync(join(root, "dist/varve.debug.wasm")));
}
