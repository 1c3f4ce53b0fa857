// What all runners share: their arguments, the test files that these choose, and how a run ends.
// The last line of a run is the sum, and its exit code says the same.

import { entry, filesBelow, Problem, parseArguments, say } from "../scripts/lib.mjs";

const BUILDS = ["release", "debug"];

/**
 * Runs `run` with what the arguments say: `{ runtime, build, folders, filter, files }`, of which `runtime` is one
 * of `runtimes`, a name that scripts/programs.mjs knows, and `files` are those of its folders. `run`
 * gives a report as tests/support/vitest-stand-in.ts does.
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
 * The tests of a folder. Those named *.deno.test.ts are about what only Deno has. A folder without tests is a mistake in its
 * name, or in what was deleted.
 */
function testsOf(folder, runtime) {
  const isMeant = (file) => runtime === "deno" || !file.endsWith(".deno.test.ts");
  const files = filesBelow(`tests/${folder}`, (file) => file.endsWith(".test.ts") && isMeant(file));
  if (files.length === 0) throw new Problem(`there are no tests in tests/${folder}.`);
  return files;
}

function conclude(what, { passed, failed, skipped, ms }) {
  say(`  ${what}: ${ms} ms`);
  process.stdout.write(`${passed} passed, ${failed} failed, ${skipped} skipped\n`);
  if (failed > 0 || skipped > 0 || passed === 0) process.exitCode = 1;
}
