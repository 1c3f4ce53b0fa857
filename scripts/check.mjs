// Everything that can be checked without running a test.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { build } from "./build.mjs";
import { wrongImports } from "./imports.mjs";
import {
  entry,
  execute,
  filesBelow,
  isMain,
  Problem,
  parseArguments,
  root,
  say,
  tool,
} from "./lib.mjs";
import { setup } from "./setup.mjs";
import { privateWords } from "./words.mjs";

const USAGE = `npm run check [-- --fix]
  --fix   let the formatters fix what they can`;

const WASM = ["--target", "wasm32-unknown-unknown"];
const WEB = ["--features", "web"];
const STRICT = ["--quiet", "--", "-D", "warnings"];
const DOCUMENTATION = ["doc", "-p", "varve", "--no-deps", "--quiet"];

/** Each check returns `true` when it passes, and prints the problems otherwise. */
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
        "--features",
        "module",
        ...WASM,
        "--quiet",
        "--",
        "-D",
        "warnings",
      ]),
  },
  {
    name: "clippy for programs in wasm",
    // The tests and the example are no members of the workspace.
    run: async () =>
      (await passes("cargo", ["clippy", "-p", "varve", "--lib", ...WEB, ...WASM, ...STRICT])) &&
      (await passesInWasm("crate/tests/web", "--tests")) &&
      (await passesInWasm("crate/examples/web-drop", "--lib")),
  },
  {
    name: "rustdoc",
    // The docs are built twice: as published, where links to private items are errors, and with private
    // items.
    run: async () =>
      (await passes("cargo", DOCUMENTATION)) &&
      (await passes("cargo", [...DOCUMENTATION, "--document-private-items"])) &&
      (await passes("cargo", [...DOCUMENTATION, ...WEB, ...WASM])),
  },
  {
    name: "clippy for the benches",
    // These packages are not members of the workspace, so no other check compiles them.
    run: async () =>
      (await passesBench("graus")) &&
      (await passesBench("keys")) &&
      (await passesBench("native")) &&
      (await passesBench("keys", "--lib", ...WASM)) &&
      (await passesBench("tail", "--lib", ...WASM)),
  },
  {
    name: "biome",
    run: () => passesNode("@biomejs/biome/bin/biome", ["check", "--error-on-warnings"]),
  },
  { name: "types", run: () => passesNode("typescript/bin/tsc", ["-p", "tsconfig.json"]) },
  { name: "imports follow the layers", run: checkImports },
  { name: "names, comments and documents use the field's terms", run: checkWords },
  { name: "no findings are suppressed", run: checkShortcuts },
];

async function passes(command, args) {
  return (await execute(command, args)).code === 0;
}

function passesInWasm(folder, what) {
  const folders = ["--manifest-path", `${folder}/Cargo.toml`, "--target-dir", "target/web"];
  return passes("cargo", ["clippy", "--locked", ...folders, what, ...WASM, ...STRICT]);
}

function passesBench(name, ...more) {
  const folder = [
    "--manifest-path",
    `benches/${name}/Cargo.toml`,
    "--target-dir",
    `target/${name}`,
  ];
  return passes("cargo", [
    "clippy",
    "--locked",
    ...folder,
    ...more,
    "--quiet",
    "--",
    "-D",
    "warnings",
  ]);
}

function passesNode(program, args) {
  return passes(process.execPath, [tool(program), ...args]);
}

async function checkImports() {
  const wrong = wrongImports();
  for (const line of wrong) say(`  ${line}`);
  const args = ["--config", ".dependency-cruiser.mjs", "js", "demo", "benches", "scripts"];
  return (
    (await passesNode("dependency-cruiser/bin/dependency-cruise.mjs", args)) && wrong.length === 0
  );
}

function checkWords() {
  const found = privateWords();
  for (const line of found) say(`  ${line}`);
  return found.length === 0;
}

/** Directives that suppress a tool's finding, and marks for unfinished work. (biome itself requires a reason.) */
const SHORTCUTS =
  /@ts-(ignore|nocheck|expect-error(?! \w))|\bas any\b|[:<|&,(] *any\b(?!\()|#\[ignore|\b(todo|unimplemented)!\(/;

function checkShortcuts() {
  const sources = ["js", "tests", "demo", "benches", "crate"].flatMap((folder) =>
    filesBelow(
      folder,
      (file) => /\.(ts|mjs|rs)$/.test(file) && !/node_modules|\/(target|\.build|pkg)\//.test(file),
    ),
  );
  const found = sources.flatMap((path) => {
    const language = path.endsWith(".rs") ? "rs" : "ts";
    const lines = withoutProse(readFileSync(join(root, path), "utf8"), language).split("\n");
    return lines.flatMap((line, index) =>
      SHORTCUTS.test(line) ? [`  ${path}:${index + 1}: ${line.trim()}`] : [],
    );
  });
  for (const line of found) say(line);
  return found.length === 0;
}

/** The source without comments and string literals, except directives; line numbers stay the same. */
function withoutProse(source, language) {
  const blank = (text) => (/@ts-/.test(text) ? text : text.replace(/[^\n]/g, " "));
  const pattern =
    language === "rs"
      ? /\/\*[\s\S]*?\*\/|\/\/.*|"(?:[^"\\]|\\[\s\S])*"/g
      : /\/\*[\s\S]*?\*\/|\/\/.*|"(?:[^"\\\n]|\\.)*"/g;
  return source.replace(pattern, blank);
}

if (isMain(import.meta.url)) {
  entry(async () => {
    const { values } = parseArguments(process.argv.slice(2), { "--fix": "flag" }, USAGE);
    await setup();
    if (values["--fix"]) {
      await execute("cargo", ["fmt", "--all"]);
      await execute(process.execPath, [tool("@biomejs/biome/bin/biome"), "check", "--write"]);
    }
    // Tests and demo are type-checked against the built package, so that must exist first.
    await build();
    const failed = [];
    for (const { name, run } of CHECKS) {
      say(`· ${name}`);
      if (!(await run())) failed.push(name);
    }
    if (failed.length > 0) throw new Problem(`failed: ${failed.join(", ")}.`);
    say("All checks passed.");
  });
}
