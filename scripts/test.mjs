// Everything: gets what is missing, builds, checks, and runs every suite.
// The last line is the sum over all of them, and the exit code says the same.

import { build } from "./build.mjs";
import { CHECKS } from "./check.mjs";
import { entry, execute, Problem, parseArguments, say } from "./lib.mjs";
import { PROGRAM_NAMES } from "./programs.mjs";
import { setup } from "./setup.mjs";

const USAGE = `npm test [-- part of a suite's name …] [--list]
  --list   name the suites and run none`;

const MINUTE = 60_000;

/** What only reads files and runs code: it is the same in every runtime, and is run in each. */
const LOCAL = ["contract", "node", "vectors"];

/**
 * Each gives { passed, failed, skipped }; a suite that comes to no test at all has failed. `programs`
 * are those that it needs beside this Node.
 */
const SUITES = [
  ...CHECKS.map(({ name, run }) => ({ name: `check: ${name}`, run: () => counted(run) })),
  { name: "crate", run: cargoTests },
  ...["node", "node24", "deno", "bun"].flatMap((place) => [
    suite({ place, build: "release", rooms: LOCAL }),
    suite({ place, build: "debug", rooms: ["contract"] }),
  ]),
  ...["chromium", "firefox"].flatMap((place) => [
    suite({ place, build: "release", rooms: ["contract", "browser"] }),
    suite({ place, build: "debug", rooms: ["contract"] }),
  ]),
  suite({ name: "model", rooms: ["model"] }),
  suite({ name: "demo", rooms: ["demo"], programs: ["chromium"] }),
  suite({ name: "packaging", rooms: ["packaging"], programs: PROGRAM_NAMES }),
];

/** Rooms of tests/ in one runtime, with one build of the wasm. */
function suite({ place = "node", build = "release", rooms, name, programs = [] }) {
  const runner = ["chromium", "firefox"].includes(place) ? "browser" : "node";
  const args = ["--in", place, "--build", build, "--rooms", rooms.join(",")];
  return {
    name: name ?? `${place}, ${build} wasm`,
    programs: [place, ...programs],
    run: () => script(`tests/run-${runner}.mjs`, ...args),
  };
}

async function counted(check) {
  const passed = await check();
  return { passed: passed ? 1 : 0, failed: passed ? 0 : 1, skipped: 0 };
}

async function cargoTests() {
  const { code, output } = await execute("cargo", ["test", "--workspace", "--quiet"], {
    capture: true,
    timeout: 30 * MINUTE,
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

async function script(path, ...args) {
  const { code, output } = await execute(process.execPath, [path, ...args], {
    capture: true,
    timeout: 15 * MINUTE,
  });
  const found = /(\d+) passed, (\d+) failed, (\d+) skipped\s*$/.exec(output);
  const [passed, failed, skipped] = (found ?? []).slice(1).map(Number);
  return conclude({ passed: passed ?? 0, failed: failed ?? 0, skipped: skipped ?? 0 }, code);
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

  await setup({ programs: new Set(chosen.flatMap(({ programs = [] }) => programs)) });
  await build({ debug: true });

  const total = { passed: 0, failed: 0, skipped: 0 };
  const lines = [];
  for (const { name, run } of chosen) {
    say(`· ${name}`);
    const start = Date.now();
    const result = await run().catch((error) => {
      say(String(error?.stack ?? error));
      return { passed: 0, failed: 1, skipped: 0 };
    });
    for (const key of Object.keys(total)) total[key] += result[key];
    const seconds = ((Date.now() - start) / 1000).toFixed(1);
    lines.push(
      `${result.failed > 0 ? "FAILED" : "    ok"}  ${name}: ${result.passed} passed, ` +
        `${result.failed} failed, ${result.skipped} skipped (${seconds} s)`,
    );
    say(lines.at(-1));
  }
  say(`\n${lines.join("\n")}`);
  if (total.failed > 0) process.exitCode = 1;
  process.stdout.write(
    `${total.passed} passed, ${total.failed} failed, ${total.skipped} skipped\n`,
  );
});
