// Builds the documentation site: the repository's documents, the reference of the API from the doc comments, and
// the page of the race, as files that any static host can serve, without special headers.

import { copyFile, mkdir, readFile, rm } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { Application } from "typedoc";
import { MemberRouter } from "typedoc-plugin-markdown";
import { build } from "vitepress";
import { buildPage } from "../demo/build.mjs";
import { DOCUMENT_AT } from "./pages.mjs";

const root = join(dirname(fileURLToPath(import.meta.url)), "..");

/** Where the pages are put together, which VitePress reads. */
const SOURCES = join(root, ".build/site");

/** The folder of the race's page in the site. */
export const RACE = "race";

/**
 * Builds the site into `outdir`, which is replaced. The package must have been built before.
 *
 * @param {string} outdir
 * @param {object} [options]
 * @param {string} [options.base] the path under which a host serves the site; begins and ends with "/"
 */
export async function buildSite(outdir, { base = "/" } = {}) {
  await rm(SOURCES, { recursive: true, force: true });
  for (const [address, document] of DOCUMENT_AT) {
    const target = join(SOURCES, address);
    await mkdir(dirname(target), { recursive: true });
    await copyFile(join(root, document), target);
  }
  await writeReference(join(SOURCES, "reference"));
  await build(join(root, "site"), { outDir: outdir, base });
  await buildPage(join(outdir, RACE));
}

/** The reference of each entry point of the package, from the doc comments of its types. */
async function writeReference(out) {
  const { exports } = JSON.parse(await readFile(join(root, "package.json"), "utf8"));
  const types = Object.entries(exports).flatMap(([path, { types = "" }]) =>
    types.endsWith(".d.ts") ? [[`varve${path.slice(1)}`, types.slice("./dist/".length)]] : [],
  );
  /** What TypeDoc calls the entry points, by their files, and what they are imported as. */
  const names = new Map(
    types.map(([name, file]) => [file.replace(/(\/index)?\.d\.ts$/, ""), name]),
  );
  const app = await Application.bootstrapWithPlugins({
    entryPoints: types.map(([, file]) => join(root, "js", file.replace(/\.d\.ts$/, ".ts"))),
    tsconfig: join(root, "tsconfig.json"),
    plugin: ["typedoc-plugin-markdown", "typedoc-vitepress-theme"],
    out,
    docsRoot: SOURCES,
    name: "Reference",
    readme: "none",
    sortEntryPoints: false,
    groupOrder: ["Functions", "Variables", "Classes", "Interfaces", "*"],
    navigation: { includeFolders: false },
    membersWithOwnFile: ["Class", "Interface"],
    // The compiler of the project checks the types.
    skipErrorChecking: true,
    excludeInternal: true,
    excludePrivate: true,
    excludeExternals: true,
    disableSources: true,
    hidePageHeader: true,
    hideBreadcrumbs: true,
    parametersFormat: "table",
    logLevel: "Error",
  });
  app.renderer.defineRouter("site", Router);
  app.options.setValue("router", "site");
  const project = await app.convert();
  if (project === undefined) throw new Error("TypeDoc cannot read the package.");
  // Named as they are imported, rather than by their files.
  for (const module of project.children) module.name = names.get(module.name);
  await app.generateOutputs(project);
}

/** Not "Index.md", which means the folder. */
class Router extends MemberRouter {
  getReflectionFileName(reflection) {
    const name = super.getReflectionFileName(reflection);
    return name === "Index" ? "CollectionIndex" : name;
  }
}
