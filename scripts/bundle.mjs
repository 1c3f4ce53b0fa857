// Bundles TypeScript to run it: for Node with varve as an external import, for browsers with everything.

import { readFileSync, rmSync } from "node:fs";
import { basename, join } from "node:path";
import { pathToFileURL } from "node:url";
import { root, tool } from "./lib.mjs";

/** Everything imports dist/ by the package's own name, as users do. */
const TSCONFIG = { compilerOptions: { target: "ES2022", useDefineForClassFields: true } };

/** Vitest runs in Node only. In other runtimes this module replaces it. */
export const VITEST_STAND_IN = { vitest: join(root, "tests/support/vitest-stand-in.ts") };

async function esbuild() {
  return import(pathToFileURL(tool("esbuild/lib/main.js")).href);
}

/** Bundles modules for Node into a folder inside the repository, so that "varve" resolves to this package. */
export async function bundleForNode(entryPoints, outdir) {
  const { build } = await esbuild();
  rmSync(join(root, outdir), { recursive: true, force: true });
  await build({
    absWorkingDir: root,
    entryPoints,
    outdir,
    bundle: true,
    splitting: true,
    format: "esm",
    platform: "node",
    target: "node20",
    packages: "external",
    alias: VITEST_STAND_IN,
    sourcemap: "inline",
    outExtension: { ".js": ".mjs" },
    logLevel: "warning",
    tsconfigRaw: TSCONFIG,
  });
}

/**
 * Bundles modules for browsers. `virtual` maps names of entry points without a file to their source text,
 * which is resolved as if it were in the repository's root. `packages` is a folder whose packages replace others of their
 * names.
 */
export async function bundleForBrowser(
  entryPoints,
  outdir,
  { virtual = {}, packages, ...more } = {},
) {
  const { build } = await esbuild();
  const fromText = {
    name: "virtual",
    setup(plugin) {
      plugin.onResolve({ filter: /^virtual:/ }, ({ path }) => ({ path, namespace: "virtual" }));
      plugin.onLoad({ filter: /.*/, namespace: "virtual" }, ({ path }) => ({
        contents: virtual[path],
        resolveDir: root,
        loader: "ts",
      }));
    },
  };
  return build({
    absWorkingDir: root,
    entryPoints,
    outdir,
    bundle: true,
    format: "esm",
    platform: "browser",
    alias: VITEST_STAND_IN,
    target: "es2022",
    sourcemap: "inline",
    logLevel: "warning",
    tsconfigRaw: TSCONFIG,
    plugins: [
      fromText,
      { name: "svelte", setup: compileSvelte },
      ...(packages === undefined ? [] : [packagesOf(join(root, packages))]),
    ],
    ...more,
  });
}

/** Resolves the dependencies of a folder there, whichever module imports them. */
function packagesOf(folder) {
  const { dependencies } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  const filter = new RegExp(`^(${Object.keys(dependencies).join("|")})(/|$)`);
  return {
    name: "packages",
    setup(plugin) {
      plugin.onResolve({ filter }, ({ path, kind, resolveDir }) =>
        resolveDir.startsWith(folder)
          ? undefined
          : plugin.resolve(path, { kind, resolveDir: folder }),
      );
    },
  };
}

/** Compiles components of Svelte. */
function compileSvelte(plugin) {
  plugin.onLoad({ filter: /\.svelte$/ }, async ({ path }) => {
    const { compile } = await import(pathToFileURL(tool("svelte/src/compiler/index.js")).href);
    const { js } = compile(readFileSync(path, "utf8"), {
      filename: basename(path),
      generate: "client",
    });
    return { contents: js.code };
  });
}
