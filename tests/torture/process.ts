/** A life in a process of its own: `process.mjs '<folder>' '<order>'`, and news as lines of JSON. */

import { writeSync } from "node:fs";
import { file } from "varve";
import { live, type Order } from "./life.js";

const [folder, order] = process.argv.slice(2) as [string, string];

await live(JSON.parse(order) as Order, file(folder), async (news) => {
  // Not by `process.stdout`, which may keep it for a while: the process is about to be killed.
  writeSync(1, `${JSON.stringify(news)}\n`);
});
// Nothing that it forgot to end keeps it alive unnoticed.
process.exit();
