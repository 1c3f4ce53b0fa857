import { copyFile, mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { basename, dirname, join } from "node:path";
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
  const entryPoints = {
    main: join(here, "main.ts"),
    worker: join(here, "race/worker.ts"),
    serve: join(here, "race/serve.ts"),
    "drop-db": join(here, "panels/drop/drop-db.ts"),
    "plug-writer": join(here, "panels/plug/plug-writer.ts"),
    "plug-disk": join(here, "panels/plug/plug-disk.ts"),
  };
  await bundleWorkers(entryPoints, outdir, { minify: true });
  for (const name of ["index.html", "page.css", "panels/panels.css"]) {
    await copyFile(join(here, name), join(outdir, basename(name)));
  }
  await writeFile(join(outdir, "records.json"), JSON.stringify(await records()));
}

/** `import text from "./file.ts?raw"` gives the text of that file, so that the page shows the code that it runs. */
const rawText = {
  name: "raw text",
  setup(bundle) {
    bundle.onResolve({ filter: /\?raw$/ }, ({ path, resolveDir }) => ({
      path: join(resolveDir, path.slice(0, -"?raw".length)),
      namespace: "raw",
    }));
    bundle.onLoad({ filter: /./, namespace: "raw" }, async ({ path }) => ({
      contents: await readFile(path, "utf8"),
      loader: "text",
      watchFiles: [path],
    }));
  },
};

/** The results of other machines, the newest first. */
async function records() {
  const folder = join(here, "records");
  const names = (await readdir(folder)).filter((name) => name.endsWith(".json"));
  const read = async (name) => JSON.parse(await readFile(join(folder, name), "utf8"));
  // Names begin with the day, of ten characters.
  const newestFirst = (a, b) => b.slice(0, 10).localeCompare(a.slice(0, 10)) || a.localeCompare(b);
  return Promise.all(names.sort(newestFirst).map(read));
}

/**
 * Bundles browser scripts that run SQLite, whose wasm is put beside them: its module looks for it there
 * and nowhere else.
 *
 * @param {string[] | Record<string, string>} entryPoints
 * @param {string} outdir
 * @param {object} [more]
 * @param {string[]} [more.nodePaths] where else packages are
 * @param {boolean} [more.minify]
 */
export async function bundleWorkers(entryPoints, outdir, { nodePaths = [], minify = false } = {}) {
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
    minify,
    plugins: [rawText],
  });
  const wasm = require.resolve("@sqlite.org/sqlite-wasm/sqlite3.wasm");
  await copyFile(wasm, join(outdir, "sqlite3.wasm"));
}
