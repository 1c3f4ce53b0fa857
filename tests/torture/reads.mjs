// Random reads of a database sixteen times its memory: checks that memory does not grow. All samples are written
// to benches/results/reads.json.
//   npm run reads [-- --minutes n]

import { entry, Problem, parseArguments, say } from "../../scripts/lib.mjs";
import { begin } from "../../scripts/record.mjs";
import { bounded, conclude, median, mib, samplesOf } from "./samples.mjs";

const USAGE = `npm run reads [-- --minutes n]
  --minutes   60 when left out`;

/** The memory of the process also depends on Node, so it may vary by this factor. */
const RSS_TOLERANCE = 1.1;

entry(async () => {
  const { values } = parseArguments(process.argv.slice(2), { "--minutes": "count" }, USAGE);
  const { "--minutes": minutes = 60 } = values;
  const begun = begin();
  const samples = await samplesOf("reads", minutes, print);
  conclude("reads", begun, { minutes, verdict: checks(samples), samples });
});

function print(samples) {
  const { when, reads, rssBytes, stats } = samples.at(-1);
  if (samples.length % 5 !== 1 && stats !== undefined) return;
  const held =
    stats === undefined ? "" : `, wasm ${mib(stats.wasmBytes)}, records ${mib(stats.memoryBytes)}`;
  say(`  ${when}: ${reads} reads, process ${mib(rssBytes)}${held}`);
}

/** The limits while it reads, once its memory is full, and after it has closed. */
function checks(samples) {
  const reading = samples.filter(({ stats }) => stats?.evictions > 0);
  if (reading.length < 6)
    throw new Problem("memory was not full before the end: give it more minutes.");
  const third = Math.floor(reading.length / 3);
  const most = (key) => Math.max(...reading.map(({ stats }) => stats[key]));
  const rss = (some) => median(some.map(({ rssBytes }) => rssBytes));
  const { wasmBytes, budgetBytes } = reading[0].stats;
  const closed = samples.find(({ when }) => when === "closed");
  return [
    bounded("wasm memory, once it is full", most("wasmBytes"), wasmBytes),
    bounded("bytes of records in memory", most("memoryBytes"), budgetBytes * 1.25),
    bounded(
      "memory of the process",
      rss(reading.slice(-third)),
      rss(reading.slice(0, third)) * RSS_TOLERANCE,
    ),
    bounded(
      "memory of the process when it has closed",
      closed.rssBytes,
      rss(reading) - budgetBytes * 0.75,
    ),
  ];
}
