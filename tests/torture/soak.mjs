// Writes and reads for minutes, with live data of nine tenths of the memory: checks that memory does not grow and
// that the file stays within its bound. Prints a table; all samples are written to benches/results/soak.json.
//   npm run soak [-- --minutes n]

import { entry, parseArguments, say } from "../../scripts/lib.mjs";
import { begin } from "../../scripts/record.mjs";
import { bounded, conclude, median, samplesOf } from "./samples.mjs";

const USAGE = `npm run soak [-- --minutes n]
  --minutes   10 when left out`;

const MIB = 1_048_576;

/** The first samples are not compared, because buffers are still being allocated. */
const WARM_UP = 12;

/** The memory of the process also depends on Node, so it may vary by this factor. */
const RSS_TOLERANCE = 1.1;

entry(async () => {
  const { values } = parseArguments(process.argv.slice(2), { "--minutes": "count" }, USAGE);
  const { "--minutes": minutes = 10 } = values;
  const begun = begin();
  say(HEAD);
  const samples = await samplesOf("soak", minutes, (all) => {
    if (all.length % 5 === 0) say(row(all.at(-1)));
  });
  conclude("soak", begun, { minutes, verdict: checks(samples), samples });
});

/** The limits for all samples after the warm-up. */
function checks(samples) {
  const warm = samples.slice(WARM_UP);
  const third = Math.floor(warm.length / 3);
  const of = (some, key) => median(some.map((one) => one[key]));
  const first = (key) => of(warm.slice(0, third), key);
  const last = (key) => of(warm.slice(-third), key);
  const most = (key) => Math.max(...warm.map((one) => one[key]));
  const { budgetBytes } = warm[0];
  const tightest = samples.reduce((a, b) =>
    a.fileBytes - a.boundBytes > b.fileBytes - b.boundBytes ? a : b,
  );
  return [
    bounded("wasm memory after the warm-up", most("wasmBytes"), warm[0].wasmBytes),
    bounded("bytes of records in memory", most("memoryBytes"), budgetBytes * 1.25),
    bounded("memory of the process", last("rssBytes"), first("rssBytes") * RSS_TOLERANCE),
    bounded("the file where it was closest to its bound", tightest.fileBytes, tightest.boundBytes),
  ];
}

const HEAD =
  "seconds   writes    reads  wasm MiB  records MiB  RSS MiB  live MiB  file MiB  at most  cold reads  slices  p50 ms  p99 ms  max ms";

function row(sample) {
  const cells = [
    [sample.seconds.toFixed(0), 7],
    [sample.writes, 9],
    [sample.reads, 9],
    ...["wasmBytes", "memoryBytes", "rssBytes", "liveBytes", "fileBytes", "boundBytes"].map(
      (key, index) => [(sample[key] / MIB).toFixed(1), [10, 13, 9, 10, 10, 9][index]],
    ),
    [sample.coldReads, 12],
    [sample.slices, 8],
    [sample.sliceP50.toFixed(2), 8],
    [sample.sliceP99.toFixed(2), 8],
    [sample.sliceMax.toFixed(2), 8],
  ];
  return cells.map(([cell, width]) => String(cell).padStart(width)).join("");
}
