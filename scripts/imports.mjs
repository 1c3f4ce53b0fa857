// Imports fall one way. Each layer may import itself where noted and the layers named after it.

import { readFileSync } from "node:fs";
import { dirname, join, posix } from "node:path";
import { filesBelow, root } from "./lib.mjs";

/** TypeScript: which room a file of js/ belongs to, and what that room may import. */
const JS_ROOMS = [
  { room: "errors", files: /^js\/errors\.ts$/, may: [] },
  { room: "bytes", files: /^js\/bytes\.ts$/, may: ["errors"] },
  { room: "wasm-inline", files: /^js\/wasm-inline(\.d)?\.ts$/, may: [] },
  { room: "struct", files: /^js\/struct\//, may: ["struct", "errors"] },
  { room: "options", files: /^js\/options\.ts$/, may: ["errors", "bytes", "storage", "wasm"] },
  { room: "storage", files: /^js\/storage\//, may: ["storage", "errors"] },
  { room: "wasm", files: /^js\/wasm\//, may: ["wasm", "wasm-inline", "errors"] },
  {
    room: "engine",
    files: /^js\/engine\.ts$/,
    may: ["errors", "bytes", "struct", "storage", "wasm"],
  },
  {
    room: "database",
    files: /^js\/database\.ts$/,
    may: ["errors", "bytes", "struct", "storage", "wasm", "options", "engine"],
  },
  {
    room: "client",
    files: /^js\/client\//,
    may: [
      "client",
      "errors",
      "bytes",
      "struct",
      "storage",
      "wasm",
      "options",
      "engine",
      "database",
    ],
  },
  {
    room: "index",
    files: /^js\/index\.ts$/,
    may: [
      "errors",
      "bytes",
      "struct",
      "storage",
      "wasm",
      "options",
      "engine",
      "database",
      "client",
    ],
  },
];

/** Rust: the crate's modules in layers, lowest first. A module never uses one of a higher layer. */
const RUST_LAYERS = [
  ["error", "file"],
  ["format"],
  ["memory"],
  ["index"],
  ["log"],
  ["store"],
  ["wasm"],
];
const rankOf = (module) => RUST_LAYERS.findIndex((layer) => layer.includes(module));

/** Every import that goes the wrong way, as a sentence. */
export function wrongImports() {
  return [...wrongInJs(), ...wrongOutside(), ...wrongInRust()];
}

function importsOf(path) {
  const source = readFileSync(join(root, path), "utf8").replace(
    /\/\*[\s\S]*?\*\/|^\s*\/\/.*$/gm,
    "",
  );
  const found = source.matchAll(/(?:\bfrom\s*|\bimport\s*\(?\s*)(["'])([^"'\n]+)\1/g);
  return [...found].map((match) => match[2]);
}

function roomOf(path) {
  return JS_ROOMS.find(({ files }) => files.test(path));
}

function wrongInJs() {
  const wrong = [];
  for (const path of filesBelow("js", (file) => file.endsWith(".ts"))) {
    const room = roomOf(path);
    if (room === undefined) {
      wrong.push(`${path} belongs to no room that scripts/imports.mjs knows`);
      continue;
    }
    for (const specifier of importsOf(path)) {
      const problem = specifier.startsWith(".")
        ? wrongRelative(path, room, specifier)
        : wrongPackage(path, specifier);
      if (problem !== undefined) wrong.push(problem);
    }
  }
  return wrong;
}

function wrongRelative(path, room, specifier) {
  if (!specifier.endsWith(".js")) return `${path} imports ${specifier} without its ending .js`;
  const target = posix.join(dirname(path), specifier).replace(/\.js$/, ".ts");
  const other = roomOf(target);
  if (other === undefined) return `${path} imports ${target}, which belongs to no room`;
  if (room.may.includes(other.room)) return undefined;
  return `${path} (${room.room}) must not import ${target} (${other.room})`;
}

/** The types of Node's modules are erased; its modules and other packages never enter the graph. */
function wrongPackage(path, specifier) {
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
