// The product drop in Node, on a file, and then the page that runs it in the browser beside other stores.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { build } from "./build.mjs";
import { bundleForNode } from "./bundle.mjs";
import { entry, Problem, parseArguments, root, say } from "./lib.mjs";
import { serve } from "./serve.mjs";
import { setup } from "./setup.mjs";

const USAGE = `npm start [-- options]
  --once        end after the drop; serve no page
  --json        the last line of the drop is one JSON object
  --cycles N    number of buyers, 1 to 65534 (20000)
  --port N      port of the page (8080, or a free one if that is taken)
  --help        this text`;

const FLAGS = { "--once": "flag", "--json": "flag", "--cycles": "count", "--port": "count" };
const CYCLES = 20_000;
const REPEATS = 9;
const PORT = 8080;

entry(async () => {
  const { values, words } = parseArguments(process.argv.slice(2), FLAGS, USAGE);
  if (words.length > 0) throw new Problem(`unknown argument ${words.join(" ")}.\n\n${USAGE}`);
  const cycles = values["--cycles"] ?? CYCLES;
  if (cycles < 1 || cycles > 65_534)
    throw new Problem(`--cycles must be from 1 to 65534.\n\n${USAGE}`);
  const port = values["--port"];
  if (port !== undefined && port > 65_535)
    throw new Problem(`--port must be at most 65535.\n\n${USAGE}`);

  await setup();
  await build();
  report(await runDrop(cycles), values["--json"] === true);
  if (values["--once"]) return;

  say("· the page");
  const { buildPage } = await import("../demo/build.mjs");
  await buildPage(join(root, "dist-demo"));
  const server = await servePage(port);
  process.stdout.write(`\nThe page is at ${server.url}/ (end with Ctrl+C)\n`);
});

/** One drop in a new file, which is then opened again to check that everything was stored. */
async function runDrop(cycles) {
  await bundleForNode(["demo/drop.ts"], ".build/start");
  const drop = await import(pathToFileURL(join(root, ".build/start/drop.mjs")).href);
  const { file, open } = await import("varve");
  const directory = mkdtempSync(join(tmpdir(), "varve-drop-"));
  try {
    const storage = file(directory);
    const db = await open("drop", { storage });
    const { durability } = db;
    const result = drop.productDrop(db, { cycles });
    check(result, "at the end of the drop");
    // The first drop includes compilation; a running program has the speed of the later ones.
    const repeats = Array.from({ length: REPEATS }, () => drop.productDrop(db, { cycles }).ms);
    const warmMs = repeats.sort((a, b) => a - b)[REPEATS >> 1];
    await db.close();
    const again = await open("drop", { storage });
    const kept = drop.readProduct(again);
    await again.close();
    check(kept, "after closing and opening again");
    return { ...result, storage: storage.kind, durability, warmMs, reopened: kept };
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

function check({ stock, name }, when) {
  if (stock !== 1 || name !== "Yeezy Boost 350 V2") {
    throw new Error(`${when} the stock is ${stock} of "${name}", and should be 1`);
  }
}

function report(result, json) {
  const rounded = { ...result, ms: round(result.ms), warmMs: round(result.warmMs) };
  const { name, cycles, stock, storage, durability, ms, warmMs, reopened } = rounded;
  process.stdout.write(
    `${name}: ${cycles} sold in ${ms} ms (${result.opsPerSecond.toLocaleString("en")} a second), ` +
      `${stock} left; after closing and opening again ${reopened.stock} left\n` +
      `  once more, now that the code is warm: ${warmMs} ms (median of ${REPEATS})\n` +
      `  storage "${storage}", durability "${durability}"\n`,
  );
  if (json) process.stdout.write(`${JSON.stringify(rounded)}\n`);
}

function round(ms) {
  return Math.round(ms * 1000) / 1000;
}

async function servePage(port) {
  const folder = join(root, "dist-demo");
  if (port !== undefined) return serve([folder], { port });
  return serve([folder], { port: PORT }).catch((error) => {
    if (error instanceof Problem) return serve([folder]);
    throw error;
  });
}
