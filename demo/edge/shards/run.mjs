// One stock, split over 64 Durable Objects, is sold to many clients at once over HTTP, and workerd is killed
// with SIGKILL twice meanwhile, and single objects are ended. Then the orders of all objects are counted.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { entry, Problem, parseArguments, say } from "../../../scripts/lib.mjs";
import { startEdge } from "./edge.mjs";

const USAGE = "npm run example:shards [-- --json] [--clients N] [--stock N]";

/** All clients buy until the stock is empty. Returns which shard sold to whom, and how many objects were ended. */
async function sellOut(edge, clients, stock) {
  await edge.send("POST", "/stock", String(stock));
  const kills = [Math.floor(stock / 3), Math.floor((stock * 2) / 3)];
  const ends = Math.ceil(stock / 20);
  const sold = new Map();
  const interruptions = [];
  const client = async (_, number) => {
    for (let n = 0; ; n++) {
      const buyer = `client ${number}, purchase ${n}`;
      const answer = await edge.send("POST", "/buy", buyer);
      if (!answer.sold) return;
      sold.set(buyer, answer.shard);
      if (kills.includes(sold.size)) interruptions.push(edge.restart());
      else if (sold.size % ends === 0) {
        interruptions.push(edge.send("POST", "/abort", String(answer.shard)));
      }
    }
  };
  await Promise.all(Array.from({ length: clients }, client));
  await Promise.all(interruptions);
  return { sold, ended: interruptions.length - kills.length };
}

/** The buyers of all objects, in one order. */
async function buyersOf(edge) {
  const buyers = [];
  for (let after = ""; after !== undefined; ) {
    const start = after === "" ? "" : `&after=${encodeURIComponent(after)}`;
    const page = await edge.send("GET", `/orders?limit=5000${start}`);
    buyers.push(...page.entries.map(([buyer]) => buyer));
    after = page.after;
  }
  return buyers;
}

entry(async () => {
  const known = { "--json": "flag", "--clients": "count", "--stock": "count" };
  const { values } = parseArguments(process.argv.slice(2), known, USAGE);
  const clients = values["--clients"] ?? 1_000;
  const stock = values["--stock"] ?? 5_001;
  if (!(clients >= 1 && stock >= 3)) throw new Problem(`At least 1 client and 3 units: ${USAGE}`);
  const folder = mkdtempSync(join(tmpdir(), "varve-shards-"));
  const edge = await startEdge(folder);
  try {
    const start = Date.now();
    const { sold, ended } = await sellOut(edge, clients, stock);
    const seconds = (Date.now() - start) / 1000;
    const buyers = await buyersOf(edge);
    const { left } = await edge.send("GET", "/stock");
    // Requests that were answered are repeated, as by a client that lost the answer.
    let repeated = 0;
    for (const [buyer, shard] of [...sold].slice(0, 100)) {
      const answer = await edge.send("POST", "/buy", buyer);
      if (answer.sold && answer.shard === shard) repeated += 1;
    }
    const result = {
      clients,
      stock,
      ended,
      answered: sold.size,
      orders: buyers.length,
      buyers: new Set(buyers).size,
      left: left.reduce((sum, units) => sum + units, 0),
      ordersAfterRepeating: (await buyersOf(edge)).length,
      repeated,
      seconds,
    };
    if (values["--json"]) process.stdout.write(`${JSON.stringify(result)}\n`);
    else {
      const rate = Math.round(stock / seconds);
      say(
        `${clients} clients bought at once from ${left.length} objects. Meanwhile one of these was ended ` +
          `${ended} times, and workerd was killed with all of them twice.`,
      );
      say(
        `Sold: ${sold.size} of ${stock} in ${seconds.toFixed(1)} s (${rate} a second); ${result.left} left.`,
      );
      say(`Orders: ${buyers.length}, of ${result.buyers} buyers.`);
      say(
        `${repeated} requests were sent again: same answers, ${result.ordersAfterRepeating} orders.`,
      );
    }
    const counts = [sold.size, buyers.length, result.buyers, result.ordersAfterRepeating];
    const isExact = counts.every((count) => count === stock) && result.left === 0;
    if (!isExact || repeated !== Math.min(100, stock)) process.exitCode = 1;
  } finally {
    await edge.stop();
    rmSync(folder, { recursive: true, force: true });
  }
});
