// Runs suites in a runtime that has files: this Node and Node 24 by Vitest, Deno and Bun by its stand-in.
//   node tests/run-node.mjs [--in node|node24|deno|bun] [--build release|debug] [--folders contract,node,vectors,struct,client] [text in the name]

import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { bundleForNode, VITEST_STAND_IN } from "../scripts/bundle.mjs";
import { installPackages } from "../scripts/install.mjs";
import { execute, must, Problem, root, tool } from "../scripts/lib.mjs";
import { runtimeCommand } from "../scripts/programs.mjs";
import { buildWebDrop } from "../scripts/wasm-tools.mjs";
import { runner } from "./runner.mjs";

const MINUTE = 60_000;

/** Preparations by folder, which would take longer than the timeout of a test. */
const PREPARATIONS = {
  cli: () => example("shop"),
  packaging: async () => {
    await example("records");
    await installPackages("tests/fixtures", { scripts: false });
  },
  "rust-web": () => buildWebDrop(),
  site: () => installPackages("site", { scripts: false }),
};

/** A program in Rust, built as `cargo test` builds it. */
function example(name) {
  const what = ["--quiet", "--package", "varve", "--example", name, "--profile", "test"];
  return must("cargo", ["build", ...what]);
}

runner(
  {
    program: "tests/run-node.mjs",
    runtimes: ["node", "node24", "deno", "bun"],
    folders: ["contract", "node", "vectors", "struct", "client"],
  },
  async (task) => {
    for (const folder of task.folders) await PREPARATIONS[folder]?.();
    const directory = mkdtempSync(join(tmpdir(), "varve-tests-"));
    try {
      const run = ["node", "node24"].includes(task.runtime) ? runByVitest : runBundled;
      return await run(task, directory);
    } finally {
      rmSync(directory, { recursive: true, force: true });
    }
  },
);

async function runByVitest({ runtime, build, folders, filter }, directory) {
  const report = join(directory, "report.json");
  const words = ["run", "--reporter=default", "--reporter=json", `--outputFile.json=${report}`];
  const pattern = filter === undefined ? undefined : new RegExp(namePattern(filter));
  if (pattern !== undefined) words.push("--testNamePattern", pattern.source);
  const env = {
    ...(process.stdout.isTTY ? {} : { NO_COLOR: "1" }),
    VARVE_FOLDERS: folders.join(","),
    VARVE_BUILD: build,
    VARVE_THOROUGH: runtime === "node" && build === "release" ? "1" : "0",
  };
  const command = [...(await runtimeCommand(runtime)), tool("vitest/vitest.mjs"), ...words];
  const start = Date.now();
  const { code, signal } = await execute(command[0], command.slice(1), {
    env,
    timeout: 59 * MINUTE,
  });
  const ms = Date.now() - start;
  if (!existsSync(report)) throw endedEarly(runtime, code, signal);
  const sum = summary(JSON.parse(readFileSync(report, "utf8")), pattern);
  // An error outside of all tests is not in the results of any test.
  if (code !== 0 && sum.failed === 0) throw endedEarly(runtime, code, signal);
  return { ...sum, ms };
}

/** Vitest matches names of suites and tests joined by a space, and prints them joined by " > ". */
function namePattern(text) {
  return text.replaceAll(" > ", " ").replace(/[.*+?^${}()|[\]\\/]/g, "\\$&");
}

/** The counts of a JSON report. A test that did not run counts as skipped, unless the pattern excludes it. */
function summary({ testResults }, pattern = /^/) {
  const sum = { passed: 0, failed: 0, skipped: 0 };
  const names = new Set();
  for (const { assertionResults, status } of testResults) {
    // A file that could not be imported has no tests, and counts as one failure.
    if (status === "failed" && assertionResults.every((one) => one.status !== "failed")) {
      sum.failed += 1;
    }
    for (const { status, fullName } of assertionResults) {
      if (names.has(fullName)) throw new Problem(`two tests have the same name: ${fullName}`);
      names.add(fullName);
      if (!pattern.test(fullName)) continue;
      sum[status === "passed" || status === "failed" ? status : "skipped"] += 1;
    }
  }
  return sum;
}

async function runBundled({ runtime, build, files, filter }, directory) {
  const out = `.build/tests/${runtime}-${build}-${process.pid}`;
  const [task, report] = [join(directory, "task.json"), join(directory, "report.json")];
  const urlOf = (file) =>
    pathToFileURL(join(root, out, file.slice("tests/".length).replace(/\.ts$/, ".mjs"))).href;
  const standIn = VITEST_STAND_IN.vitest.slice(root.length + 1);
  const context = {
    runtime,
    build,
    thorough: false,
    long: false,
    directory: join(directory, "files"),
    root,
  };
  const wasm = build === "debug" ? join(root, "dist/varve.debug.wasm") : undefined;
  const modules = files.map(urlOf);
  writeFileSync(
    task,
    JSON.stringify({ standIn: urlOf(standIn), modules, context, wasm, filter, report }),
  );
  try {
    await bundleForNode([standIn, ...files], out);
    const [program, ...flags] = await runtimeCommand(runtime);
    const allowed = runtime === "deno" ? ["--allow-all"] : [];
    const words = [...flags, ...allowed, "tests/run-here.mjs", task];
    const { code, signal } = await execute(program, words, { timeout: 59 * MINUTE });
    if (code !== 0 || !existsSync(report)) throw endedEarly(runtime, code, signal);
    return JSON.parse(readFileSync(report, "utf8"));
  } finally {
    rmSync(join(root, out), { recursive: true, force: true });
  }
}

function endedEarly(runtime, code, signal) {
  return new Problem(`the tests in ${runtime} ended early (${signal ?? `exit code ${code}`}).`);
}
