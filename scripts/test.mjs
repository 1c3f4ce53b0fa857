// Everything: gets what is missing, builds, checks, and runs every suite, some of them side by side.
// The last line is the sum over all of them, and the exit code says the same.

import { availableParallelism } from "node:os";
import { build } from "./build.mjs";
import { CHECKS } from "./check.mjs";
import { entry, execute, Problem, parseArguments, say } from "./lib.mjs";
import { PROGRAM_NAMES } from "./programs.mjs";
import { setup } from "./setup.mjs";

const USAGE = `npm test [-- part of a suite's name …] [--list]
  --list   name the suites and run none`;

const MINUTE = 60_000;

/** Suites of one core each, which wait a lot, for disks, locks and clocks: so one more than there are cores. */
const SIDE_BY_SIDE = Math.min(availableParallelism() + 1, 4);

/** What only reads files and runs code: it is the same in every runtime, and is run in each. */
const LOCAL = ["contract", "node", "vectors", "struct", "client"];

/** Where Vitest runs the tests, what stands in for it elsewhere is compared with it. */
const BY_VITEST = [...LOCAL, "support"];

/**
 * Each gives { passed, failed, skipped }; a suite that comes to no test at all has failed. `programs`
 * are those that it needs beside this Node. What is `alone` is over soon, or builds what others use.
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
    suite({ runtime, build: "debug", folders: ["contract"] }),
  ]),
  ...["chromium", "firefox"].flatMap((runtime) => [
    suite({ runtime, build: "release", folders: ["contract", "browser", "struct", "client"] }),
    suite({ runtime, build: "debug", folders: ["contract"] }),
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
  suite({ name: "demo", folders: ["demo"], programs: ["chromium"] }),
  suite({ name: "edge", folders: ["edge"], programs: ["workerd"] }),
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

async function counted(check) {
  const passed = await check();
  return { passed: passed ? 1 : 0, failed: passed ? 0 : 1, skipped: 0 };
}

async function cargoTests() {
  const { code, output } = await execute("cargo", ["test", "--workspace", "--quiet"], {
    capture: true,
    timeout: 90 * MINUTE,
  });
  const sum = { passed: 0, failed: 0, skipped: 0 };
  const results = /^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored/gm;
  for (const [, passed, failed, ignored] of output.matchAll(results)) {
    sum.passed += Number(passed);
    sum.failed += Number(failed);
    sum.skipped += Number(ignored);
  }
  return conclude(sum, code);
}

async function script(args, echo) {
  const options = { capture: true, echo, timeout: 60 * MINUTE };
  const { code, output } = await execute(process.execPath, args, options);
  if (!echo) say(output.trimEnd());
  // The runner prints it once, at its end; what goes to stderr may be read after it.
  const found = /^(\d+) passed, (\d+) failed, (\d+) skipped$/m.exec(output);
  const [passed = 0, failed = 0, skipped = 0] = (found ?? []).slice(1).map(Number);
  return conclude({ passed, failed, skipped }, code);
}

/** A suite that broke off, or that ran nothing, has failed even if no test of it says so. */
function conclude(sum, code) {
  const broken = (code !== 0 && sum.failed === 0) || sum.passed + sum.failed === 0;
  return broken ? { ...sum, failed: sum.failed + 1 } : sum;
}

entry(async () => {
  const { values, words } = parseArguments(process.argv.slice(2), { "--list": "flag" }, USAGE);
  const chosen = SUITES.filter(
    ({ name }) => words.length === 0 || words.some((word) => name.includes(word)),
  );
  if (chosen.length === 0) throw new Problem(`no suite is called ${words.join(", ")}.`);
  if (values["--list"]) return process.stdout.write(`${chosen.map((s) => s.name).join("\n")}\n`);

  const programs = new Set(chosen.flatMap(({ programs = [] }) => programs));
  await setup({ programs, tests: true });
  await build({ debug: true });

  const results = new Map();
  for (const stage of stagesOf(chosen)) {
    const waiting = [...stage];
    const lane = async () => {
      for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) {
        results.set(next.name, await runOne(next, stage.length === 1));
      }
    };
    await Promise.all(Array.from({ length: SIDE_BY_SIDE }, lane));
  }
  report(chosen.map(({ name }) => results.get(name)));
});

/** Suites that may run side by side are one stage, and what runs alone is one by itself. */
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

function report(results) {
  say(`\n${results.map(({ line }) => line).join("\n")}`);
  const sum = (key) => results.reduce((all, result) => all + result[key], 0);
  if (sum("failed") > 0) process.exitCode = 1;
  process.stdout.write(
    `${sum("passed")} passed, ${sum("failed")} failed, ${sum("skipped")} skipped\n`,
  );
}
