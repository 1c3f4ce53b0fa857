// Bundles the package into a few files for pages without a bundler (dist/web), which may come from another origin, such
// as a CDN: without them a page makes more than a hundred requests.

import { existsSync, rmSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { root, tool } from "./lib.mjs";

export const FOLDER = "dist/web";

const ENTRIES = {
  client: "dist/client/index.js",
  struct: "dist/struct.js",
  worker: "dist/client/worker/index.js",
};

export async function packageForWeb() {
  rmSync(join(root, FOLDER), { recursive: true, force: true });
  const { build } = await import(pathToFileURL(tool("esbuild/lib/main.js")).href);
  const bundle = (entryPoints, splitting) =>
    build({
      absWorkingDir: root,
      entryPoints,
      outdir: FOLDER,
      bundle: true,
      splitting,
      minify: true,
      format: "esm",
      target: "es2022",
      legalComments: "none",
      logLevel: "warning",
      // Built for Node only, and never loaded in a page.
      external: ["node:*"],
      plugins: [{ name: "varve", setup: resolve }],
    });
  const { worker, ...pages } = ENTRIES;
  await bundle(pages, true);
  // A single file, so that it starts after one request.
  await bundle({ worker }, false);
}

/** Takes `NAME.web.js` in place of `NAME.js` where there is one. */
function resolve(plugin) {
  plugin.onResolve({ filter: /^\..*\.js$/ }, ({ path, resolveDir }) => {
    const other = join(resolveDir, path.replace(/\.js$/, ".web.js"));
    return existsSync(other) ? { path: other } : undefined;
  });
}
