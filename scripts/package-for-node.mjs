// Bundles the package into a few files for Node, Deno and Bun (dist/node, the condition "node" of its exports). Importing
// a hundred modules takes a process three times as long. Bundlers for pages get the modules: from these they keep only
// what a page uses.

import { readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { Problem, root, tool, writeIfChanged } from "./lib.mjs";

export const FOLDER = "dist/node";

/** Entry points by the bundle that has all of them, so that a program loads few files whichever it imports. */
const BUNDLES = {
  main: { index: "index", serve: "serve", client: "client/index" },
  // Programs call it once in their lives.
  moving: { migrate: "extensions/migrate/index" },
  adapters: {
    keyv: "extensions/adapters/keyv",
    unstorage: "extensions/adapters/unstorage",
    "idb-keyval": "extensions/adapters/idb-keyval",
    blobs: "extensions/blobs/index",
    keep: "extensions/keep",
    zustand: "extensions/adapters/zustand",
    query: "extensions/adapters/query",
    "tanstack-db": "extensions/adapters/tanstack-db",
    automerge: "extensions/adapters/automerge",
  },
  inspecting: { inspect: "extensions/inspect/index" },
  structured: { structured: "struct/structured/index" },
  standard: { standard: "struct/standard" },
  // Each of these imports the library that it is for.
  leveling: { level: "extensions/adapters/level" },
  documents: { yjs: "extensions/adapters/yjs" },
  stores: { tinybase: "extensions/adapters/tinybase" },
  "react-hooks": { react: "extensions/hooks/react" },
  "vue-hooks": { vue: "extensions/hooks/vue" },
  "svelte-hooks": { svelte: "extensions/hooks/svelte" },
  "solid-hooks": { solid: "extensions/hooks/solid" },
  schemas: {
    struct: "struct",
    codec: "codec",
    json: "json",
    rust: "rust",
    protocol: "client/protocol/index",
  },
};
/** Entry points that do something when they are imported. */
const PROGRAMS = { "worker/index": "dist/client/worker/index.js", cli: "dist/cli.js" };

export async function packageForNode() {
  rmSync(join(root, FOLDER), { recursive: true, force: true });
  const sources = {};
  for (const [bundle, entries] of Object.entries(BUNDLES)) {
    sources[bundle] = "";
    const exported = {};
    for (const [entry, module] of Object.entries(entries)) {
      const from = `../${module}.js`;
      const found = await import(pathToFileURL(join(root, `dist/${module}.js`)).href);
      const names = Object.keys(found);
      const clash = names.find((name) => (exported[name] ?? found[name]) !== found[name]);
      if (clash !== undefined) throw new Problem(`two modules of ${bundle} export a ${clash}.`);
      const added = names.filter((name) => !(name in exported));
      sources[bundle] += `export { ${added.join(", ")} } from "${from}";\n`;
      Object.assign(exported, found);
      writeIfChanged(
        `${FOLDER}/${entry}.js`,
        `export { ${names.join(", ")} } from "./${bundle}.js";\n`,
      );
    }
  }
  const { build } = await import(pathToFileURL(tool("esbuild/lib/main.js")).href);
  await build({
    absWorkingDir: root,
    entryPoints: {
      ...Object.fromEntries(Object.keys(sources).map((name) => [name, `bundle:${name}`])),
      ...PROGRAMS,
    },
    outdir: FOLDER,
    bundle: true,
    splitting: true,
    format: "esm",
    platform: "node",
    target: "node20",
    // Names stay, for stack traces.
    minifyWhitespace: true,
    minifySyntax: true,
    // Node prints the line of an uncaught error.
    lineLimit: 200,
    external: ["abstract-level", "yjs", "tinybase", "react", "vue", "solid-js"],
    legalComments: "none",
    logLevel: "warning",
    plugins: [{ name: "varve", setup: (plugin) => resolve(plugin, sources) }],
  });
}

function resolve(plugin, sources) {
  plugin.onResolve({ filter: /^bundle:/ }, ({ path }) => ({ path, namespace: "bundle" }));
  plugin.onLoad({ filter: /./, namespace: "bundle" }, ({ path }) => ({
    contents: sources[path.slice("bundle:".length)],
    resolveDir: join(root, FOLDER),
  }));
  // The wasm is in the package once.
  plugin.onResolve({ filter: /\/wasm-inline\.js$/ }, () => ({
    path: "../engine/wasm-inline.js",
    external: true,
  }));
  // An adapter that opens a database by its name loads what programs import.
  plugin.onResolve({ filter: /^(\.\.\/)+(client\/)?index\.js$/ }, ({ path, kind }) =>
    kind === "dynamic-import"
      ? { path: path.includes("client/") ? "./client.js" : "./index.js", external: true }
      : undefined,
  );
  // A worker that serves has the files of Node too.
  plugin.onLoad({ filter: /\/eager-imports\.js$/ }, ({ path }) => ({
    contents: `${readFileSync(path, "utf8")}
      import * as nodeFile from "../../storage/node/file.js";
      register({ "storage/node/file": nodeFile });`,
  }));
  // `serve` in the same bundle has these modules at once.
  plugin.onLoad({ filter: /\/lazy-imports\.js$/ }, () => ({
    contents: "export const loadOnDemand = async () => ({ MODULES: {} });",
  }));
}
