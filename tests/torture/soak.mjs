// A database in use for minutes at nine tenths of its memory: whether memory stays flat, and the file
// within its bound. Prints a table; all samples go to benches/results/soak.json.
//   npm run soak [-- --minutes n]

import { entry, parseArguments, say } from "../../scripts/lib.mjs";
import { begin } from "../../scripts/record.mjs";
import { bounded, conclude, middle, samplesOf } from "./samples.mjs";

const USAGE = `npm run soak [-- --minutes n]
  --minutes   10 when left out`;

const MIB = 1_048_576;

/** Of the samples so many come before anything is compared: buffers are taken for the first time. */
const WARM_UP = 12;

/** The process' own memory is Node's affair too. */
const RSS_TOLERANCE = 1.1;

entry(async () => {
  const { values } = parseArguments(process.argv.slice(2), { "--minutes": "count" }, USAGE);
  const { "--minutes": minutes = 10 } = values;
  const begun = begin();
  say(HEAD);
  const samples = await samplesOf("soak", minutes, (all) => {
    if (all.length % 5 === 0) say(row(all.at(-1)));
  });
  conclude("soak", begun, { minutes, verdict: judge(samples), samples });
});

/** What has to hold, over all samples after the warm-up. */
function judge(samples) {
  const warm = samples.slice(WARM_UP);
  const third = Math.floor(warm.length / 3);
  const of = (some, key) => middle(some.map((one) => one[key]));
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
