// Runs bundled tests in this runtime, without Vitest. run-node.mjs starts it with a file that names the tests and
// the path of the report. If the program ends early, there is no report.

import { mkdirSync, readFileSync, writeFileSync } from "node:fs";

const task = JSON.parse(readFileSync(process.argv[2], "utf8"));
mkdirSync(task.context.directory, { recursive: true });

const here = "Deno" in globalThis ? "deno" : "Bun" in globalThis ? "bun" : "node";
if (here !== task.context.runtime) {
  throw new Error(`expected to run in ${task.context.runtime}, not in ${here}`);
}
globalThis.varveTests = {
  ...task.context,
  wasm: task.wasm === undefined ? undefined : await WebAssembly.compile(readFileSync(task.wasm)),
  limitStorage: undefined,
  startWorker: undefined,
};
// Imported before the tests load the package, which keeps the timers that exist then.
const { run } = await import(task.standIn);
for (const module of task.modules) await import(module);
const report = await run({ filter: task.filter, log: console.error });
writeFileSync(task.report, JSON.stringify(report));
