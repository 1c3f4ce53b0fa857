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
  return [...wrongInRust(), ...circlesInRust(), ...missingInWorkers()];
}

/**
 * Modules that are loaded on demand, and not included in a serving worker's bundle, which is one file. And dynamic
 * imports elsewhere than where programs begin: a worker's bundle would contain them.
 */
function missingInWorkers() {
  return filesBelow("js", (file) => file.endsWith(".ts") && !PROGRAMS.test(file)).flatMap(
    (path) => [
      ...importsOf(path, /(?<!typeof )\bimport\s*\(\s*(["'])(\.[^"'\n]+)\1/g)
        .map((specifier) => targetOf(path, specifier))
        .filter((target) => LOADERS[path] !== target)
        .map((target) => `${path} loads ${target}; only ${Object.keys(LOADERS).join(" and ")} may`),
      ...loadedBy(path).flatMap(({ target, name }) => {
        const list = LISTS.find(({ modules }) => modules.includes(target))?.list ?? ON_DEMAND;
        const imports = importsOf(list).map((specifier) => targetOf(list, specifier));
        const isNamed = new RegExp(`^ {2}"${name}"[:,]`, "m").test(
          readFileSync(join(root, list), "utf8"),
        );
        return [
          target !== `js/${name}.ts` && `${path} loads ${target}, but not as "${name}"`,
          !imports.includes(target) && `${path} loads ${target} on demand; import it in ${list}`,
          !isNamed && `${list} does not name "${name}"`,
        ].filter(Boolean);
      }),
    ],
  );
}

/** The modules that a file loads on demand, each with the name by which it asks for it. */
function loadedBy(path) {
  const source = readFileSync(join(root, path), "utf8");
  const calls = /\bmoduleAt<typeof import\(\s*"([^"]+)",?\s*\)>\(\s*"([^"]+)"/g;
  return [...source.matchAll(calls)].map(([, specifier, name]) => ({
    target: targetOf(path, specifier),
    name,
  }));
}

/** What no worker that serves contains: the command line, and what opens a database in the place of a program. */
const PROGRAMS = /^js\/(cli|extensions)/;

/** The modules that are loaded on demand, and are in every worker that serves. */
const ON_DEMAND = "js/database/on-demand.ts";

/** Those that are listed elsewhere. A worker of a page needs no files of Node; the bundles for Node include them. */
const LISTS = [
  { modules: ["js/storage/node/file.ts"], list: "js/database/on-demand-everywhere.ts" },
  // A file of its own in every bundle.
  { modules: ["js/engine/wasm-inline.ts"], list: "js/client/worker/eager-imports.ts" },
];

/** The files that load modules on demand, and which. */
const LOADERS = {
  "js/database/lazy-imports.ts": "js/database/on-demand-everywhere.ts",
  "js/database/open.ts": "js/engine/wasm-inline.ts",
};

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

/**
 * Files and folders of one folder of the crate that use each other, so that neither can be understood first. A module and
 * its own parts may: `mod.rs` is not looked at, and neither are tests inside modules.
 */
function circlesInRust() {
  const files = filesBelow("crate/src", (file) => file.endsWith(".rs"));
  const moduleOf = (path) =>
    path
      .replace(/^crate\/src\/|\.rs$/g, "")
      .split("/")
      .filter((part) => part !== "mod" && part !== "lib");
  const known = new Set(files.map((path) => moduleOf(path).join("/")));
  /** By folder: which of its entries use which others. */
  const folders = new Map();
  for (const path of files.filter((file) => !/(^|\/)(mod|lib)\.rs$/.test(file))) {
    const from = moduleOf(path);
    for (const to of usedPaths(withoutTests(readFileSync(join(root, path), "utf8")), from, known)) {
      const shared = from.findIndex((part, at) => part !== to[at]);
      if (shared < 0 || shared >= to.length) continue;
      const folder = from.slice(0, shared).join("/");
      const uses = folders.get(folder) ?? folders.set(folder, new Map()).get(folder);
      const others = uses.get(from[shared]) ?? uses.set(from[shared], new Set()).get(from[shared]);
      others.add(to[shared]);
    }
  }
  return [...folders].flatMap(([folder, uses]) =>
    [...uses.keys()]
      .filter((entry) => reaches(uses, entry, entry))
      .map((entry) => `crate/src/${folder}: ${entry} uses a module that uses ${entry}`),
  );
}

/** The modules of the crate that a source uses, each as the parts of its path. */
function usedPaths(source, from, known) {
  const found = [];
  for (const match of source.matchAll(/\b(crate::|(?:super::)+)((?:\w+::)*)(\{[^;]*|\w+)/g)) {
    const [, start, middle, last] = match;
    const supers = start.split("super").length - 1;
    const base = start === "crate::" ? [] : from.slice(0, from.length - supers);
    const names = last.startsWith("{") ? last.split(/[\s,{}:]+/) : [last];
    for (const name of names) {
      const path = [...base, ...middle.split("::"), name].filter((part) => part !== "");
      while (path.length > 0 && !known.has(path.join("/"))) path.pop();
      if (path.length > 0) found.push(path);
    }
  }
  return found;
}

/** Whether one entry uses the other, directly or through others. */
function reaches(uses, from, to) {
  const seen = new Set([from]);
  for (const entry of seen) {
    for (const next of uses.get(entry) ?? []) {
      if (next === to) return true;
      seen.add(next);
    }
  }
  return false;
}
