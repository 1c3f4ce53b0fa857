// Imports fall one way. Each layer may import itself where noted and the layers named after it.

import { readFileSync } from "node:fs";
import { dirname, join, posix } from "node:path";
import { filesBelow, root } from "./lib.mjs";

/** TypeScript: the rooms of js/, lowest first. A room imports itself and those before it. */
const JS_ROOMS = [
  {
    room: "errors",
    files: /^js\/(clock|coders|errors(-base)?|dispose|inspect|modules|platform)\.ts$/,
  },
  { room: "bytes", files: /^js\/bytes\.ts$/ },
  { room: "struct", files: /^js\/(codec|json|rust|struct(\/[a-z0-9-]+)?)\.ts$/ },
  { room: "storage", files: /^js\/storage\// },
  { room: "wasm", files: /^js\/(wasm\/.*|wasm-inline(\.d)?|varve\.d\.wasm)\.ts$/ },
  { room: "options", files: /^js\/(options|range)\.ts$/ },
  { room: "engine", files: /^js\/(host|failures|engine(-[a-z]+)?)\.ts$/ },
  { room: "session", files: /^js\/(callback|strict|session(-[a-z]+)?|scan|pin)\.ts$/ },
  { room: "collection", files: /^js\/collection\// },
  {
    room: "database",
    files: /^js\/(database(-[a-z]+)?|registry|places|open|fill|export|verify)\.ts$/,
  },
  { room: "client", files: /^js\/client\// },
  { room: "index", files: /^js\/(index|workerd)\.ts$/ },
  // The command line is for Node, Deno and Bun, and no part of what a browser gets.
  { room: "cli", files: /^js\/cli(\/[a-z-]+)?\.ts$/ },
];

/** Rooms that stay apart although one lies above the other. */
const APART = [
  ["storage", "bytes"],
  ["storage", "struct"],
  ["struct", "bytes"],
  ["wasm", "storage"],
  ["engine", "wasm"],
  ["engine", "options"],
];

/** Rust: the crate's modules in layers, lowest first. A module never uses one of a higher layer. */
const RUST_LAYERS = [
  ["error", "file", "heap", "memory", "sort"],
  ["format"],
  ["schema"],
  ["index"],
  ["log"],
  ["store"],
  ["native", "wasm"],
];
const rankOf = (module) => RUST_LAYERS.findIndex((layer) => layer.includes(module));

/** Every import that goes the wrong way, as a sentence. */
export function wrongImports() {
  return [...wrongInJs(), ...wrongOutside(), ...wrongInRust(), ...leftOutOfWorkers()];
}

/**
 * What is loaded on demand and does not come with a worker that serves, which is to be one file; and what
 * is loaded without `moduleAt`, by which a service worker finds what it has imported statically.
 */
function leftOutOfWorkers() {
  const whole = "js/client/whole.ts";
  const there = importsOf(whole).map((specifier) => targetOf(whole, specifier));
  const registered = readFileSync(join(root, whole), "utf8");
  return filesBelow("js", (file) => file.endsWith(".ts") && !/^js\/cli/.test(file)).flatMap(
    (path) => {
      const source = readFileSync(join(root, path), "utf8");
      return importsOf(path, /\bimport\s*\(\s*(["'])(\.[^"'\n]+)\1/g).flatMap((specifier) => {
        const target = targetOf(path, specifier);
        const name = target.replace(/^js\/|\.ts$/g, "");
        const call = new RegExp(
          `moduleAt\\(\\s*"${name}",\\s*\\(\\) => import\\("${specifier}"\\)`,
        );
        return [
          !there.includes(target) && `${path} loads ${target} on demand; import it in ${whole}`,
          !call.test(source) && `${path} loads ${target} without moduleAt("${name}", …)`,
          !new RegExp(`^ {2}"?${name}"?[:,]`, "m").test(registered) &&
            `${whole} does not register "${name}"`,
        ].filter(Boolean);
      });
    },
  );
}

const IMPORTS = /(?:\bfrom\s*|\bimport\s*\(?\s*)(["'])([^"'\n]+)\1/g;

/** What a file imports, as it is written there. */
export function importsOf(path, pattern = IMPORTS) {
  const source = readFileSync(join(root, path), "utf8").replace(
    /\/\*[\s\S]*?\*\/|^\s*\/\/.*$/gm,
    "",
  );
  return [...source.matchAll(pattern)].map((match) => match[2]);
}

function roomOf(path) {
  const rank = JS_ROOMS.findIndex(({ files }) => files.test(path));
  return rank < 0 ? undefined : { rank, name: JS_ROOMS[rank].room };
}

function wrongInJs() {
  const wrong = [];
  const graph = new Map();
  for (const path of filesBelow("js", (file) => file.endsWith(".ts"))) {
    const room = roomOf(path);
    if (room === undefined) {
      wrong.push(`${path} belongs to no room that scripts/imports.mjs knows`);
      continue;
    }
    const specifiers = importsOf(path);
    graph.set(
      path,
      specifiers.filter((one) => one.startsWith(".")).map((one) => targetOf(path, one)),
    );
    for (const specifier of specifiers) {
      const problem = specifier.startsWith(".")
        ? wrongRelative(path, room, specifier)
        : wrongPackage(path, specifier);
      if (problem !== undefined) wrong.push(problem);
    }
  }
  return [...wrong, ...circles(graph)];
}

function targetOf(path, specifier) {
  return posix
    .join(dirname(path), specifier)
    .replace(/\.js$/, ".ts")
    .replace(/\.wasm$/, ".d.wasm.ts");
}

function wrongRelative(path, room, specifier) {
  if (!/\.(js|wasm)$/.test(specifier)) return `${path} imports ${specifier} without its ending .js`;
  const target = targetOf(path, specifier);
  const other = roomOf(target);
  if (other === undefined) return `${path} imports ${target}, which belongs to no room`;
  const apart = APART.some(([from, to]) => from === room.name && to === other.name);
  if (other.rank <= room.rank && !apart) return undefined;
  return `${path} (${room.name}) must not import ${target} (${other.name})`;
}

/** Circles inside a room, which the order of the rooms does not see. */
function circles(graph) {
  const found = [];
  const done = new Set();
  const walk = (path, above) => {
    if (above.includes(path)) {
      found.push(
        `a circle of imports: ${[...above.slice(above.indexOf(path)), path].join(" -> ")}`,
      );
    } else if (!done.has(path)) {
      for (const next of graph.get(path) ?? []) walk(next, [...above, path]);
      done.add(path);
    }
  };
  for (const path of graph.keys()) walk(path, []);
  return found;
}

/** The types of Node's modules are erased; its modules and other packages never enter the graph. */
function wrongPackage(path, specifier) {
  if (specifier.startsWith("node:") && roomOf(path)?.name === "cli") return undefined;
  const source = readFileSync(join(root, path), "utf8");
  const typesOnly = new RegExp(`import type [^;]*from "${specifier}"`).test(source);
  if (specifier.startsWith("node:") && typesOnly && path.startsWith("js/storage/"))
    return undefined;
  return `${path} imports ${specifier}: the package has no dependencies and no node: imports`;
}

/** What is not the package uses it as everyone does, by its name. */
function wrongOutside() {
  const wrong = [];
  for (const folder of ["demo", "tests", "benches"]) {
    for (const path of filesBelow(folder, (file) => /\.m?[jt]s$/.test(file))) {
      if (path.includes("/node_modules/") || path.includes("/target/")) continue;
      for (const specifier of importsOf(path).filter((one) => one.startsWith("."))) {
        const target = posix.join(dirname(path), specifier);
        if (/^(js|dist)\//.test(target)) {
          wrong.push(`${path} imports ${target}: import "varve" instead`);
        }
      }
    }
  }
  return wrong;
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

/** Tests inside a module may use whatever shows that it works. */
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
