import { copyFile, mkdir, rm } from "node:fs/promises";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const require = createRequire(import.meta.url);

/**
 * Bundles the page into `outdir`: plain files for any static server, no special headers needed.
 * The package itself must have been built, since the page imports it by its name.
 *
 * @param {string} outdir
 */
export async function buildPage(outdir) {
  await rm(outdir, { recursive: true, force: true });
  await mkdir(outdir, { recursive: true });
  await bundleWorkers([join(here, "main.ts"), join(here, "worker.ts")], outdir);
  for (const name of ["index.html", "page.css"]) {
    await copyFile(join(here, name), join(outdir, name));
  }
}

/**
 * Bundles browser scripts that run SQLite, whose wasm is put beside them: its module looks for it there
 * and nowhere else.
 *
 * @param {string[]} entryPoints
 * @param {string} outdir
 * @param {string[]} [nodePaths] where else packages are
 */
export async function bundleWorkers(entryPoints, outdir, nodePaths = []) {
  await build({
    entryPoints,
    outdir,
    bundle: true,
    format: "esm",
    target: "es2022",
    // Keeps what is imported lazily, varve's inlined wasm, in a file of its own.
    splitting: true,
    sourcemap: "linked",
    logLevel: "warning",
    nodePaths,
  });
  const wasm = require.resolve("@sqlite.org/sqlite-wasm/sqlite3.wasm");
  await copyFile(wasm, join(outdir, "sqlite3.wasm"));
}
