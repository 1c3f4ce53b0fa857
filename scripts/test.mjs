// Installs what is missing, builds, checks, and runs every suite, some of them in parallel. The last line has
// the totals, and the exit code says whether all passed.

import { availableParallelism } from "node:os";
import { stripVTControlCharacters } from "node:util";
import { build } from "./build.mjs";
import { CHECKS } from "./check.mjs";
import { entry, execute, Problem, parseArguments, say } from "./lib.mjs";
import { PROGRAM_NAMES } from "./programs.mjs";
import { setup } from "./setup.mjs";

const USAGE = `npm test [-- part of a suite's name …] [--list]
  --list   list the suites and run none

Some suites run only by name, or with VARVE_LONG=1, as every night.`;

const MINUTE = 60_000;

/**
 * The suites that run in parallel use one core each and wait for disks, locks and clocks: one more than there
 * are cores.
 */
const SIDE_BY_SIDE = Math.min(availableParallelism() + 1, 4);

/** Tests that only read files and run code: they are the same in every runtime, and run in each. */
const LOCAL = ["contract", "node", "vectors", "struct", "client"];

/** Only in Vitest can the tests compare vitest-stand-in.ts with Vitest itself, and the suites of other libraries run. */
const BY_VITEST = [...LOCAL, "adapters", "hooks", "support"];

/**
 * The debug wasm adds assertions of the engine, which is the same bytes in every runtime. Whether they hold depends on
 * the calls and on the files: once those of Node, and once those of a browser. The others run every night.
 */
const DEBUG = ["node24", "chromium"];

/**
 * Each returns { passed, failed, skipped }; a suite without tests counts as failed. `programs` are those that
 * it needs besides this Node. `alone`: it is short, or builds what other suites use. `nightly`: see USAGE.
 */
const SUITES = [
  ...CHECKS.map(({ name, run }) => ({
    name: `check: ${name}`,
    alone: true,
    run: () => counted(run),
  })),
  { name: "crate", run: cargoTests },
  ...["node", "node24", "deno", "bun"].flatMap((runtime) => [
    suite({ runtime, build: "release", folders: runtime.startsWith("node") ? BY_VITEST : LOCAL }),
    debugSuite(runtime),
  ]),
  ...["chromium", "firefox"].flatMap((runtime) => [
    suite({
      runtime,
      build: "release",
      folders: ["contract", "browser", "struct", "client", "hooks"],
    }),
    debugSuite(runtime),
  ]),
  suite({ name: "model", folders: ["model"] }),
  {
    name: "kills",
    programs: ["chromium", "firefox"],
    run: (echo) => script(["tests/torture/kills.mjs", "--rounds", "3"], echo),
  },
  {
    name: "tabs",
    programs: ["chromium", "firefox"],
    run: (echo) =>
      script(["tests/torture/tabs.mjs", "--tabs", "3", "--rounds", "4", "--each", "0"], echo),
  },
  suite({ name: "tab lifecycles", folders: ["tab-lifecycles"], programs: ["chromium", "firefox"] }),
  suite({
    name: "command line",
    folders: ["cli"],
    programs: ["node24", "deno", "bun", "chromium"],
  }),
  {
    name: "Rust in browsers",
    programs: ["chromium", "firefox"],
    run: (echo) => script(["tests/run-rust-web.mjs"], echo),
  },
  // Both build with the same tools: one after the other.
  suite({
    name: "Rust beside the package in browsers",
    alone: true,
    folders: ["rust-web"],
    programs: ["chromium", "firefox"],
  }),
  suite({ name: "site", folders: ["site"], programs: ["chromium"] }),
  suite({ name: "demo", folders: ["demo"], programs: ["chromium"] }),
  suite({ name: "edge", folders: ["edge"], programs: ["workerd"] }),
  suite({ name: "speed", alone: true, folders: ["speed"] }),
  suite({ name: "packaging", alone: true, folders: ["packaging"], programs: PROGRAM_NAMES }),
];

/** Folders of tests/ in one runtime, with one build of the wasm. */
function suite({
  runtime = "node",
  build = "release",
  folders,
  name,
  alone = false,
  programs = [],
}) {
  const runner = ["chromium", "firefox"].includes(runtime) ? "browser" : "node";
  const args = ["--in", runtime, "--build", build, "--folders", folders.join(",")];
  return {
    name: name ?? `${runtime}, ${build} wasm`,
    alone,
    programs: [runtime, ...programs],
    run: (echo) => script([`tests/run-${runner}.mjs`, ...args], echo),
  };
}

function debugSuite(runtime) {
  const nightly = !DEBUG.includes(runtime);
  return { ...suite({ runtime, build: "debug", folders: ["contract"] }), nightly };
}

async function counted(check) {
  const passed = await check();
  return { passed: passed ? 1 : 0, failed: passed ? 0 : 1, skipped: 0 };
}

async function cargoTests() {
  const { code, output } = await execute(
    "cargo",
    ["test", "--workspace", "--quiet", "--no-fail-fast"],
    {
      capture: true,
      timeout: 90 * MINUTE,
    },
  );
  const sum = { passed: 0, failed: 0, skipped: 0 };
  const results = /^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored/gm;
  for (const [, passed, failed, ignored] of output.matchAll(results)) {
    sum.passed += Number(passed);
    sum.failed += Number(failed);
    sum.skipped += Number(ignored);
  }
  return conclude(sum, code, output);
}

async function script(args, echo) {
  const options = { capture: true, echo, timeout: 60 * MINUTE };
  const { code, output } = await execute(process.execPath, args, options);
  if (!echo) say(output.trimEnd());
  // The runner prints this line once, at its end; stderr may arrive after it.
  const found = /^(\d+) passed, (\d+) failed, (\d+) skipped$/m.exec(output);
  const [passed = 0, failed = 0, skipped = 0] = (found ?? []).slice(1).map(Number);
  return conclude({ passed, failed, skipped }, code, output);
}

/** Lines by which the runners say what failed and why. */
const FAILURE = /^\s*(FAILED|FAIL|✗|×|not ok)\s|\bError: |panicked at|--- FAILED|^error:/;
const MOST_FAILURE_LINES = 12;

/** A suite that crashed, or that ran nothing, has failed even if it reports no failure. */
function conclude(sum, code, output) {
  const broken = (code !== 0 && sum.failed === 0) || sum.passed + sum.failed === 0;
  const failed = broken ? sum.failed + 1 : sum.failed;
  if (failed === 0) return sum;
  const lines = output.split("\n");
  const failures = lines.filter((line) => FAILURE.test(stripVTControlCharacters(line)));
  const reasons =
    failures.length > 0 ? failures : lines.filter((line) => line.trim() !== "").slice(-5);
  return { ...sum, failed, reasons: reasons.slice(0, MOST_FAILURE_LINES) };
}

entry(async () => {
  const { values, words } = parseArguments(process.argv.slice(2), { "--list": "flag" }, USAGE);
  const isLong = process.env.VARVE_LONG === "1";
  const chosen = SUITES.filter(({ name, nightly }) =>
    words.length === 0 ? isLong || !nightly : words.some((word) => name.includes(word)),
  );
  if (chosen.length === 0) throw new Problem(`there is no suite ${words.join(", ")}.`);
  if (values["--list"]) return process.stdout.write(`${chosen.map((s) => s.name).join("\n")}\n`);

  const programs = new Set(chosen.flatMap(({ programs = [] }) => programs));
  await setup({ programs, tests: true });
  await build({ debug: true });

  const results = new Map();
  for (const stage of stagesOf(chosen)) {
    const waiting = [...stage];
    const runner = async () => {
      for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) {
        results.set(next.name, await runOne(next, stage.length === 1));
      }
    };
    await Promise.all(Array.from({ length: SIDE_BY_SIDE }, runner));
  }
  report(chosen.map(({ name }) => results.get(name)));
});

/** Suites that may run in parallel are one stage; a suite that runs alone is a stage of its own. */
function stagesOf(suites) {
  const stages = [];
  let together;
  for (const one of suites) {
    if (one.alone) together = undefined;
    if (together !== undefined) {
      together.push(one);
      continue;
    }
    stages.push([one]);
    if (!one.alone) together = stages.at(-1);
  }
  return stages;
}

async function runOne({ name, run }, echo) {
  say(`· ${name}`);
  const start = Date.now();
  const result = await run(echo).catch((error) => {
    say(String(error?.stack ?? error));
    return { passed: 0, failed: 1, skipped: 0 };
  });
  const seconds = ((Date.now() - start) / 1000).toFixed(1);
  const line =
    `${result.failed > 0 ? "FAILED" : "    ok"}  ${name}: ${result.passed} passed, ` +
    `${result.failed} failed, ${result.skipped} skipped (${seconds} s)`;
  say(line);
  return { ...result, line };
}

/** The reasons of failures come last, so that the end of the output is enough to find them. */
function report(results) {
  say(`\n${results.map(({ line }) => line).join("\n")}`);
  for (const { line, reasons = [] } of results) {
    if (reasons.length > 0) say(`\n${line}\n${reasons.map((reason) => `  ${reason}`).join("\n")}`);
  }
  const sum = (key) => results.reduce((all, result) => all + result[key], 0);
  if (sum("failed") > 0) process.exitCode = 1;
  process.stdout.write(
    `${sum("passed")} passed, ${sum("failed")} failed, ${sum("skipped")} skipped\n`,
  );
}
