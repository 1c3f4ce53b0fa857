/** A writer in a process: `writer-process.mjs '<folder>' '<order>'`. It prints its reports as lines of JSON. */

import { writeSync } from "node:fs";
import { file } from "varve";
import { type Order, runWriter } from "./writer.js";

const [folder, order] = process.argv.slice(2) as [string, string];

await runWriter(JSON.parse(order) as Order, file(folder), async (report) => {
  // `process.stdout` may buffer the line, and the process is about to be killed.
  writeSync(1, `${JSON.stringify(report)}\n`);
});
// Without this, a leaked handle would keep the process running unnoticed.
process.exit();
