// Everything that can be checked without running a test.

import { build } from "./build.mjs";
import { wrongImports } from "./imports.mjs";
import { entry, execute, filesBelow, isMain, Problem, parseArguments, say, tool } from "./lib.mjs";
import { setup } from "./setup.mjs";

const USAGE = `npm run check [-- --fix]
  --fix   let the formatters put right what they can`;

const WASM = ["--target", "wasm32-unknown-unknown"];

/** Each check gives `true` when all is well, and has said so if not. */
export const CHECKS = [
  { name: "rustfmt", run: () => passes("cargo", ["fmt", "--all", "--check"]) },
  {
    name: "clippy",
    run: () =>
      passes("cargo", [
        "clippy",
        "--workspace",
        "--all-targets",
        "--quiet",
        "--",
        "-D",
        "warnings",
      ]),
  },
  {
    name: "clippy for wasm",
    run: () =>
      passes("cargo", [
        "clippy",
        "-p",
        "varve",
        "--lib",
        ...WASM,
        "--quiet",
        "--",
        "-D",
        "warnings",
      ]),
  },
  {
    name: "biome",
    run: () => passesNode("@biomejs/biome/bin/biome", ["check", "--error-on-warnings"]),
  },
  { name: "types", run: () => passesNode("typescript/bin/tsc", ["-p", "tsconfig.json"]) },
  { name: "imports fall one way", run: checkImports },
  { name: "nothing is left out", run: checkShortcuts },
];

async function passes(command, args) {
  return (await execute(command, args)).code === 0;
}

function passesNode(program, args) {
  return passes(process.execPath, [tool(program), ...args]);
}

async function checkImports() {
  const wrong = wrongImports();
  for (const line of wrong) say(`  ${line}`);
  return wrong.length === 0;
}

/** Ways of telling a tool to look away. */
const SHORTCUTS =
  /@ts-ignore|@ts-nocheck|as any\b|: any\b|biome-ignore|#\[ignore|todo!\(|unimplemented!\(/;

async function checkShortcuts() {
  const { readFileSync } = await import("node:fs");
  const { join } = await import("node:path");
  const { root } = await import("./lib.mjs");
  const sources = ["js", "tests", "demo", "benches", "crate"].flatMap((folder) =>
    filesBelow(
      folder,
      (file) => /\.(ts|mjs|rs)$/.test(file) && !/node_modules|\/target\//.test(file),
    ),
  );
  let clean = true;
  for (const path of sources) {
    const lines = readFileSync(join(root, path), "utf8").split("\n");
    for (const [index, line] of lines.entries()) {
      const code = line.replace(/\/\/.*$|^\s*\*.*$/g, (comment) =>
        /@ts-|biome-ignore/.test(comment) ? comment : "",
      );
      if (!SHORTCUTS.test(code)) continue;
      say(`  ${path}:${index + 1}: ${line.trim()}`);
      clean = false;
    }
  }
  return clean;
}

if (isMain(import.meta.url)) {
  entry(async () => {
    const { values } = parseArguments(process.argv.slice(2), { "--fix": "flag" }, USAGE);
    await setup();
    if (values["--fix"]) {
      await execute("cargo", ["fmt", "--all"]);
      await execute(process.execPath, [tool("@biomejs/biome/bin/biome"), "check", "--write"]);
    }
    // The types of tests and demo are checked against what users get, so that has to be there.
    await build();
    const failed = [];
    for (const { name, run } of CHECKS) {
      say(`· ${name}`);
      if (!(await run())) failed.push(name);
    }
    if (failed.length > 0) throw new Problem(`not as it should be: ${failed.join(", ")}.`);
    say("All is as it should be.");
  });
}
