// The common parts of the runners: arguments, the choice of test files, and the summary in the last line.

import { entry, filesBelow, Problem, parseArguments, say } from "../scripts/lib.mjs";

const BUILDS = ["release", "debug"];

/**
 * Calls `run` with the parsed arguments: `{ runtime, build, folders, filter, files }`. `runtime` is one of
 * `runtimes`, which are names in scripts/programs.mjs, and `files` are the test files of the folders. `run` returns
 * a report like that of tests/support/vitest-stand-in.ts.
 */
export function runner({ program, runtimes, folders }, run) {
  entry(async () => {
    const usage = `node ${program} [--in ${runtimes.join("|")}] [--build ${BUILDS.join("|")}] [--folders ${folders.join(",")}] [part of a test's name]`;
    const known = { "--in": "text", "--build": "text", "--folders": "text" };
    const { values, words } = parseArguments(process.argv.slice(2), known, usage);
    if (words.length > 1) throw new Problem(`one part of a name at a time.\n\n${usage}`);
    const runtime = oneOf(runtimes, values["--in"], usage);
    const build = oneOf(BUILDS, values["--build"], usage);
    const chosen = values["--folders"]?.split(",") ?? folders;
    const files = chosen.flatMap((folder) => testsOf(folder, runtime));
    conclude(
      `${runtime}, ${build} wasm`,
      await run({ runtime, build, folders: chosen, files, filter: words[0] }),
    );
  });
}

function oneOf(choices, given = choices[0], usage) {
  if (choices.includes(given)) return given;
  throw new Problem(`${given} is none of ${choices.join(", ")}.\n\n${usage}`);
}

/**
 * The test files of a folder. Files named *.deno.test.ts only run in Deno. A folder without tests is an error: its
 * name is wrong, or its tests were lost.
 */
function testsOf(folder, runtime) {
  const isIncluded = (file) => runtime === "deno" || !file.endsWith(".deno.test.ts");
  const files = filesBelow(
    `tests/${folder}`,
    (file) => file.endsWith(".test.ts") && isIncluded(file),
  );
  if (files.length === 0) throw new Problem(`there are no tests in tests/${folder}.`);
  return files;
}

function conclude(what, { passed, failed, skipped, ms }) {
  say(`  ${what}: ${ms} ms`);
  process.stdout.write(`${passed} passed, ${failed} failed, ${skipped} skipped\n`);
  if (failed > 0 || skipped > 0 || passed === 0) process.exitCode = 1;
}
