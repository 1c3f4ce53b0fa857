// What all runners share: their arguments, the test files that these choose, and how a run ends.
// The last line of a run is the sum, and its exit code says the same.

import { entry, filesBelow, Problem, parseArguments, say } from "../scripts/lib.mjs";

const BUILDS = ["release", "debug"];

/**
 * Runs `run` with what the arguments say: `{ place, build, rooms, filter, files }`, of which `place` is one
 * of `places`, a name that scripts/programs.mjs knows, and `files` are those of its rooms. `run`
 * gives a report as tests/support/vitest-stand-in.ts does.
 */
export function runner({ program, places, rooms }, run) {
  entry(async () => {
    const usage = `node ${program} [--in ${places.join("|")}] [--build ${BUILDS.join("|")}] [--rooms ${rooms.join(",")}] [part of a test's name]`;
    const known = { "--in": "text", "--build": "text", "--rooms": "text" };
    const { values, words } = parseArguments(process.argv.slice(2), known, usage);
    if (words.length > 1) throw new Problem(`one part of a name at a time.\n\n${usage}`);
    const place = oneOf(places, values["--in"], usage);
    const build = oneOf(BUILDS, values["--build"], usage);
    const chosen = values["--rooms"]?.split(",") ?? rooms;
    const files = chosen.flatMap((room) => testsOf(room, place));
    conclude(
      `${place}, ${build} wasm`,
      await run({ place, build, rooms: chosen, files, filter: words[0] }),
    );
  });
}

function oneOf(choices, given = choices[0], usage) {
  if (choices.includes(given)) return given;
  throw new Problem(`${given} is none of ${choices.join(", ")}.\n\n${usage}`);
}

/**
 * The tests of a room. Those named *.deno.test.ts are about what only Deno has. A room without tests is a mistake in its
 * name, or in what was deleted.
 */
function testsOf(room, place) {
  const isMeant = (file) => place === "deno" || !file.endsWith(".deno.test.ts");
  const files = filesBelow(`tests/${room}`, (file) => file.endsWith(".test.ts") && isMeant(file));
  if (files.length === 0) throw new Problem(`there are no tests in tests/${room}.`);
  return files;
}

function conclude(what, { passed, failed, skipped, ms }) {
  say(`  ${what}: ${ms} ms`);
  process.stdout.write(`${passed} passed, ${failed} failed, ${skipped} skipped\n`);
  if (failed > 0 || skipped > 0 || passed === 0) process.exitCode = 1;
}
