// Import rules that no library checks: the layers of the crate's modules, and what a worker's bundle must
// contain. dependency-cruiser checks the files in js/ (`.dependency-cruiser.mjs`).

import { readFileSync } from "node:fs";
import { dirname, join, posix } from "node:path";
import { filesBelow, root } from "./lib.mjs";

/** Rust: the crate's modules in layers, lowest first. A module never uses a higher layer. */
const RUST_LAYERS = [
  ["aligned_buf", "error", "file", "radix_sort", "wasm_allocator"],
  ["format"],
  ["schema"],
  ["index"],
  ["log"],
  ["store"],
  ["native", "web", "wasm", "engine"],
];
const rankOf = (module) => RUST_LAYERS.findIndex((layer) => layer.includes(module));

/** A sentence for each import that breaks a rule. */
export function wrongImports() {
  return [...wrongInRust(), ...missingInWorkers()];
}

/**
 * Modules that are loaded on demand, and not included in a serving worker's bundle, which is one file. And dynamic
 * imports elsewhere than where programs begin: a worker's bundle would contain them.
 */
function missingInWorkers() {
  const eager = "js/client/worker/eager-imports.ts";
  const included = importsOf(eager).map((specifier) => targetOf(eager, specifier));
  const registered = readFileSync(join(root, eager), "utf8");
  return filesBelow("js", (file) => file.endsWith(".ts") && !PROGRAMS.test(file)).flatMap(
    (path) => {
      const source = readFileSync(join(root, path), "utf8");
      return importsOf(path, /(?<!typeof )\bimport\s*\(\s*(["'])(\.[^"'\n]+)\1/g).flatMap(
        (specifier) => {
          const target = targetOf(path, specifier);
          const name = target.replace(/^js\/|\.ts$/g, "");
          const loader = new RegExp(`"${name}": \\(\\) => import\\("${specifier}"\\)`);
          return [
            !included.includes(target) &&
              target !== FILES_OF_NODE &&
              `${path} loads ${target} on demand; import it in ${eager}`,
            !LOADERS.includes(path) && `${path} loads ${target}; only ${LOADERS.join(" and ")} may`,
            !loader.test(source) && `${path} loads ${target}, but not as "${name}"`,
            !new RegExp(`^ {2}"?${name}"?[:,]`, "m").test(registered) &&
              target !== FILES_OF_NODE &&
              `${eager} does not register "${name}"`,
          ].filter(Boolean);
        },
      );
    },
  );
}

/** What no worker that serves contains: the command line, and what opens a database in the place of a program. */
const PROGRAMS = /^js\/(cli|extensions)/;

/** A worker of a page needs no files of Node. The bundles for Node include them. */
const FILES_OF_NODE = "js/storage/node/file.ts";

/** The files that load modules on demand. */
const LOADERS = ["js/database/lazy-imports.ts", "js/database/open.ts"];

const IMPORTS = /(?:\bfrom\s*|\bimport\s*\(?\s*)(["'])([^"'\n]+)\1/g;

/** The specifiers that a file imports. */
export function importsOf(path, pattern = IMPORTS) {
  const source = readFileSync(join(root, path), "utf8").replace(
    /\/\*[\s\S]*?\*\/|^\s*\/\/.*$/gm,
    "",
  );
  return [...source.matchAll(pattern)].map((match) => match[2]);
}

function targetOf(path, specifier) {
  return posix
    .join(dirname(path), specifier)
    .replace(/\.js$/, ".ts")
    .replace(/\.wasm$/, ".d.wasm.ts");
}

function wrongInRust() {
  const wrong = [];
  for (const path of filesBelow("crate/src", (file) => file.endsWith(".rs"))) {
    const module = path.slice("crate/src/".length).split(/[/.]/)[0];
    if (module === "lib") continue;
    const rank = rankOf(module);
    if (rank < 0) {
      wrong.push(`${path} is a module that scripts/imports.mjs does not know`);
      continue;
    }
    const source = withoutTests(readFileSync(join(root, path), "utf8"));
    for (const other of usedModules(source)) {
      if (rankOf(other) > rank) wrong.push(`${path} must not use crate::${other}`);
    }
  }
  return wrong;
}

/** Tests inside a module may use any layer. */
function withoutTests(source) {
  const at = source.search(/^#\[cfg\(test\)\]\s*(pub )?mod \w+ \{/m);
  return (at < 0 ? source : source.slice(0, at)).replace(/^\s*\/\/.*$/gm, "");
}

function usedModules(source) {
  const found = new Set();
  for (const match of source.matchAll(/\bcrate::(?:\{([^;]*)\}|(\w+))/g)) {
    const names = match[2] === undefined ? match[1].split(/[\s,{}:]+/) : [match[2]];
    for (const name of names) if (rankOf(name) >= 0) found.add(name);
  }
  return found;
}
