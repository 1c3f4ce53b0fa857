// Runs bundled tests in the runtime that runs this, without Vitest. run-node.mjs starts it, with a file that names
// them and where the report shall go: a program that ends before its tests do leaves none.

import { mkdirSync, readFileSync, writeFileSync } from "node:fs";

const task = JSON.parse(readFileSync(process.argv[2], "utf8"));
mkdirSync(task.context.directory, { recursive: true });

const here = "Deno" in globalThis ? "deno" : "Bun" in globalThis ? "bun" : "node";
if (here !== task.context.runtime) {
  throw new Error(`This is ${here}, and ${task.context.runtime} was meant.`);
}
globalThis.varveTests = {
  ...task.context,
  wasm: task.wasm === undefined ? undefined : await WebAssembly.compile(readFileSync(task.wasm)),
  limitStorage: undefined,
  startWorker: undefined,
};
// Before the tests load the package, which takes the timers that it finds.
const { run } = await import(task.standIn);
for (const module of task.modules) await import(module);
const report = await run({ filter: task.filter, log: console.error });
writeFileSync(task.report, JSON.stringify(report));
