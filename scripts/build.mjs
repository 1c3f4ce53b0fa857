// Builds the package into dist/: the wasm, the same wasm inlined, deflated, JavaScript and types.

import { existsSync, mkdirSync, readFileSync, rmSync } from "node:fs";
import { homedir } from "node:os";
import { dirname, join, posix } from "node:path";
import { pathToFileURL } from "node:url";
import { brotliCompressSync, constants, gzipSync, inflateSync } from "node:zlib";
import { importsOf } from "./imports.mjs";
import {
  entry,
  filesBelow,
  fresh,
  hashOf,
  isMain,
  must,
  Problem,
  parseArguments,
  root,
  say,
  stamp,
  tool,
  writeIfChanged,
} from "./lib.mjs";
import { FOLDER as FOR_NODE, packageForNode } from "./package-for-node.mjs";
import { FOLDER as FOR_WEB, packageForWeb } from "./package-for-web.mjs";
import { setup } from "./setup.mjs";

const USAGE = `npm run build [-- --debug]
  --debug   build dist/varve.debug.wasm as well, which the tests use`;

const TARGET = "wasm32-unknown-unknown";
const BROTLI_LIMIT = 116 * 1024;
/** For a page that only calls connect(): the engine is loaded in its worker. */
const CLIENT_LIMIT = 15.4 * 1024;
const STRUCT_LIMIT = 4.5 * 1024;
const EVERY_TYPE_LIMIT = 6.3 * 1024;
/** A program's bundle contains only what it imports. */
const ALL_STRUCT_LIMIT = 6.65 * 1024;
/** For a page that moves its old data; it imports this only then. */
const MIGRATE_LIMIT = 11 * 1024;
/** For a program that has a database already. */
const ADAPTER_LIMIT = 1.5 * 1024;
/** Its own code takes 1.6 KB. The rest is errors and what adapters share, which a program that has a database has. */
const YJS_LIMIT = 2.2 * 1024;
/** Besides the functions, it has the order of IndexedDB's keys, and values as structured clone keeps them. */
const IDB_KEYVAL_LIMIT = 3.25 * 1024;
/** For an application that has a client or database already; its own library is not counted. */
const HOOKS_LIMIT = 1024;
/** For programs that store values as structured clone keeps them. */
const STRUCTURED_LIMIT = 7.5 * 1024;
const BLOBS_LIMIT = 6.25 * 1024;
/** Half of it are errors and options, which clients and databases have. */
const KEEP_LIMIT = 2.5 * 1024;
/** For the inspector of files, which pages load when it is looked at. */
const INSPECT_LIMIT = 25 * 1024;
/** For programs whose values a schema of zod and others checks. */
const STANDARD_LIMIT = 3.5 * 1024;
/**
 * What a page that opens a database loads before the wasm: minified, not compressed. Indexes are in it, because every write
 * has to keep those of the file, whether the program declares them or not.
 */
const FIRST_LIMIT = 180_000;
/** What a page without a bundler loads until its first write: client, worker and wasm. */
const WEB_LIMIT = 216 * 1024;
/** The wasm features available since Chrome 91, Firefox 89, Safari 16.4 and Node 20. */
const FEATURES = [
  "--enable-simd",
  "--enable-bulk-memory",
  "--enable-bulk-memory-opt",
  "--enable-mutable-globals",
  "--enable-nontrapping-float-to-int",
  "--enable-sign-ext",
  "--enable-reference-types",
  "--enable-multivalue",
  "--enable-call-indirect-overlong",
];

/** Generated files; every other file in dist/ has its source in js/. */
const GENERATED = new Set([
  "dist/varve.wasm",
  "dist/varve.debug.wasm",
  "dist/varve.d.wasm.ts",
  "dist/engine/wasm-inline.js",
]);

export async function build({ debug = false } = {}) {
  await buildWasm();
  if (debug) await buildDebugWasm();
  await buildTypeScript();
}

/** Panics contain the source paths of other crates, so the path of cargo's home is replaced. */
const CARGO_HOME = process.env.CARGO_HOME ?? join(homedir(), ".cargo");

/** For wasm only: with other flags for native code, cargo would rebuild it. */
// Less inlining than by default, no unrolling and no vectorized loops: hot functions have attributes for
// that, and this saves 6 KB of brotli.
const WASM_ENV = {
  CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS: [
    "-C target-feature=+simd128 -C link-arg=--stack-first -C no-vectorize-loops",
    "-C llvm-args=-inline-threshold=33 -C llvm-args=-unroll-max-count=1",
    "-C llvm-args=-unroll-peel-max-count=0",
    // Flags are split at spaces.
    ...(CARGO_HOME.includes(" ") ? [] : [`--remap-path-prefix=${CARGO_HOME}=cargo`]),
  ].join(" "),
};

/**
 * Passes are repeated until nothing gets smaller. A large function with one caller is not inlined. The stack
 * lies first (`--stack-first`), so no address is below 1,024, and constant offsets can become part of load
 * instructions (`--low-memory-unused`). Alignment hints are removed: no engine with SIMD uses them, and equal
 * hints compress better.
 */
const OPTIMIZE = ["-O3", "--converge", "--low-memory-unused", "-ocimfs", "25", "--dealign"];

async function cargo(profile) {
  // The crate is a library; only this build makes a wasm module of it.
  const args = ["rustc", "--package", "varve", "--lib", "--crate-type", "cdylib"];
  args.push("--features", "module", "--target", TARGET);
  if (profile === "release") args.push("--release");
  await must("cargo", args, { env: WASM_ENV });
  const target = process.env.CARGO_TARGET_DIR ?? join(root, "target");
  const built = join(target, TARGET, profile, "varve.wasm");
  if (!existsSync(built)) {
    throw new Problem(`cargo did not build ${built}.`);
  }
  return built;
}

async function buildWasm() {
  say("· cargo build --release (wasm)");
  const built = await cargo("release");
  const key = hashOf(readFileSync(built), FEATURES.join(" "), OPTIMIZE.join(" "));
  const out = join(root, "dist/varve.wasm");
  if (!existsSync(out) || !fresh("wasm-opt", key)) {
    say(`· wasm-opt ${OPTIMIZE.join(" ")}`);
    mkdirSync(dirname(out), { recursive: true });
    await must(process.execPath, [
      tool("binaryen/bin/wasm-opt"),
      built,
      ...OPTIMIZE,
      ...FEATURES,
      "--strip-producers",
      "--strip-target-features",
      "-o",
      out,
    ]);
    stamp("wasm-opt", key);
  }
  const bytes = readFileSync(out);
  writeIfChanged("dist/varve.d.wasm.ts", readFileSync(join(root, "js/varve.d.wasm.ts")));
  await buildInlined(bytes);
  checkSize(bytes);
}

/** Base64 of what is deflated compresses well with any server's settings; base64 of the wasm takes a fifth more. */
async function buildInlined(bytes) {
  const out = "dist/engine/wasm-inline.js";
  const key = hashOf(bytes, readFileSync(tool("@gfx/zopfli/package.json")));
  if (existsSync(join(root, out)) && fresh("wasm-inline", key)) return;
  const { zlibAsync } = await import("@gfx/zopfli");
  const deflated = Buffer.from(await zlibAsync(bytes, {}));
  if (!inflateSync(deflated).equals(bytes)) throw new Problem("the inlined wasm is not the wasm.");
  writeIfChanged(
    out,
    "// Built from varve.wasm. Imported only by an open() without the option `wasm`.\n" +
      `export const deflatedWasm = "${deflated.toString("base64")}";\n`,
  );
  stamp("wasm-inline", key);
}

function brotliSize(bytes) {
  return brotliCompressSync(bytes, {
    params: {
      [constants.BROTLI_PARAM_QUALITY]: 11,
      [constants.BROTLI_PARAM_SIZE_HINT]: bytes.length,
    },
  }).length;
}

function checkSize(bytes) {
  const brotli = brotliSize(bytes);
  const gzip = gzipSync(bytes, { level: 9 }).length;
  say(
    `  varve.wasm: ${bytes.length} bytes, gzip ${gzip}, brotli ${brotli} (limit ${BROTLI_LIMIT})`,
  );
  if (brotli > BROTLI_LIMIT) {
    throw new Problem(`the wasm is ${brotli} bytes in brotli, above the limit of ${BROTLI_LIMIT}.`);
  }
}

/** Not optimized and with all checks: it panics where the release build would go on. */
async function buildDebugWasm() {
  say("· cargo build (debug wasm)");
  writeIfChanged("dist/varve.debug.wasm", readFileSync(await cargo("debug")));
}

async function buildTypeScript() {
  say("· tsc");
  await must(process.execPath, [tool("typescript/bin/tsc"), "-p", "tsconfig.build.json"]);
  const isBuilt = (file) =>
    !GENERATED.has(file) && ![FOR_NODE, FOR_WEB].some((folder) => file.startsWith(`${folder}/`));
  for (const path of filesBelow("dist", isBuilt)) {
    const source = path.replace(/^dist\//, "js/").replace(/(\.d)?\.[jt]s$/, ".ts");
    if (!existsSync(join(root, source))) rmSync(join(root, path));
  }
  dropDeclarations();
  await checkBundleSizes();
  say("· bundles for Node");
  await packageForNode();
  say("· bundles for pages without a bundler");
  await packageForWeb();
  checkWebSizes();
}

/** Removes declarations that no public one imports: they were 5 % of the archive. */
function dropDeclarations() {
  const { exports } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
  const targets = Object.values(exports).flatMap((one) => Object.values(Object(one)));
  const read = new Set(targets.map((one) => one.replace(/^\.\//, "")));
  for (const path of read) {
    if (!path.endsWith(".ts")) continue;
    for (const one of importsOf(path).filter((specifier) => specifier.startsWith("."))) {
      read.add(posix.join(dirname(path), one).replace(/\.js$/, ".d.ts"));
    }
  }
  for (const path of filesBelow("dist", (file) => file.endsWith(".ts") && !read.has(file))) {
    rmSync(join(root, path));
  }
}

/** Bundles with these exports only, and the limit of each in bytes of brotli. */
const BUNDLES = [
  {
    name: "connect",
    source: 'export { connect } from "./dist/index.js";',
    limit: CLIENT_LIMIT,
  },
  {
    name: "schemas of numbers and text",
    source: `export { bool, f64, flatten, i32, str, struct, u8, u16, u32, u53 } from "./dist/struct.js";`,
    limit: STRUCT_LIMIT,
  },
  {
    name: "schemas with every type",
    source: `export { added, array, blob, bool, bytes, enum8, enum16, f32, f64, fixedStr, flatten, i8, i16,
      i32, i64, option, optNonZero, str, struct, timestamp, u8, u16, u32, u53, u64, union, vec,
      versioned } from "./dist/struct.js";`,
    limit: EVERY_TYPE_LIMIT,
  },
  {
    name: "all of varve/struct",
    source: 'export * from "./dist/struct.js";',
    limit: ALL_STRUCT_LIMIT,
  },
  {
    name: "varve/migrate",
    source: 'export * from "./dist/extensions/migrate/index.js";',
    limit: MIGRATE_LIMIT,
  },
  ...["keyv", "unstorage", "level", "zustand", "query", "automerge", "tinybase"].map((name) => ({
    name: `varve/${name}`,
    external: ["abstract-level", "tinybase"],
    source: `export * from "./dist/extensions/adapters/${name}.js";`,
    limit: ADAPTER_LIMIT,
  })),
  {
    name: "varve/tanstack-db",
    // Clients and databases have the clock.
    external: ["*/util/clock.js"],
    source: 'export * from "./dist/extensions/adapters/tanstack-db.js";',
    limit: ADAPTER_LIMIT,
  },
  {
    name: "varve/yjs",
    external: ["yjs"],
    source: 'export * from "./dist/extensions/adapters/yjs.js";',
    limit: YJS_LIMIT,
  },
  {
    name: "varve/idb-keyval",
    source: 'export * from "./dist/extensions/adapters/idb-keyval.js";',
    // Imported when a database is opened by its name.
    external: ["*/client/index.js", "*/../index.js"],
    limit: IDB_KEYVAL_LIMIT,
  },
  ...["react", "vue", "svelte", "solid"].map((name) => ({
    name: `varve/${name}`,
    // Clients and databases have the clock.
    external: ["react", "vue", "solid-js", "*/util/clock.js"],
    source: `export * from "./dist/extensions/hooks/${name}.js";`,
    limit: HOOKS_LIMIT,
  })),
  {
    name: "varve/blobs",
    source: 'export * from "./dist/extensions/blobs/index.js";',
    limit: BLOBS_LIMIT,
  },
  {
    name: "varve/keep",
    // Clients and databases have the clock.
    external: ["*/util/clock.js"],
    source: 'export * from "./dist/extensions/keep.js";',
    limit: KEEP_LIMIT,
  },
  {
    name: "varve/inspect",
    source: 'export * from "./dist/extensions/inspect/index.js";',
    // Programs that open databases have these already.
    external: ["*/../index.js", "*/../struct.js", "*/util/clock.js"],
    limit: INSPECT_LIMIT,
  },
  {
    name: "varve/structured",
    source: 'export * from "./dist/struct/structured/index.js";',
    limit: STRUCTURED_LIMIT,
  },
  {
    name: "varve/standard",
    source: 'export * from "./dist/struct/standard.js";',
    limit: STANDARD_LIMIT,
  },
];

async function checkBundleSizes() {
  const { build: esbuild } = await import(pathToFileURL(tool("esbuild/lib/main.js")).href);
  const bundle = (source, more) =>
    esbuild({
      absWorkingDir: root,
      stdin: { contents: source, resolveDir: root },
      bundle: true,
      minify: true,
      format: "esm",
      target: "es2022",
      write: false,
      ...more,
    });
  for (const { name, source, limit, external = [] } of BUNDLES) {
    const { outputFiles } = await bundle(source, { external });
    const bytes = outputFiles[0].contents;
    const brotli = brotliSize(bytes);
    say(`  ${name}, bundled: ${bytes.length} bytes, brotli ${brotli} (limit ${limit})`);
    if (brotli > limit) {
      throw new Problem(`${name} is ${brotli} bytes in brotli, above the limit of ${limit}.`);
    }
  }
  const { metafile } = await bundle('export { open } from "./dist/index.js";', {
    splitting: true,
    metafile: true,
    outdir: ".build/first",
  });
  const first = sizeOfFirst(metafile.outputs);
  say(`  loaded first by a page that opens: ${first} bytes (limit ${FIRST_LIMIT})`);
  if (first > FIRST_LIMIT) {
    throw new Problem(`a page loads ${first} bytes first, above the limit of ${FIRST_LIMIT}.`);
  }
}

/** What a page without a bundler loads until its first write. */
function checkWebSizes() {
  const files = filesBelow(FOR_WEB, (file) => !file.endsWith("/struct.js"));
  const sizes = [...files, "dist/varve.wasm"].map((file) => [
    file,
    brotliSize(readFileSync(join(root, file))),
  ]);
  for (const [file, brotli] of sizes) say(`  ${file}: brotli ${brotli}`);
  const sum = sizes.reduce((all, [, brotli]) => all + brotli, 0);
  say(`  loaded before the first write: brotli ${sum} (limit ${WEB_LIMIT})`);
  if (sum > WEB_LIMIT) {
    throw new Problem(`a page without a bundler loads ${sum} bytes in brotli, above ${WEB_LIMIT}.`);
  }
}

/** Bytes of the entry point and its static imports; dynamic imports load later. */
function sizeOfFirst(outputs) {
  const paths = Object.keys(outputs).filter((path) => outputs[path].entryPoint !== undefined);
  const needed = new Set(paths.filter((path) => path.endsWith("stdin.js")));
  let size = 0;
  for (const path of needed) {
    size += outputs[path].bytes;
    for (const { path: next, kind } of outputs[path].imports) {
      if (kind === "import-statement") needed.add(next);
    }
  }
  return size;
}

if (isMain(import.meta.url)) {
  entry(async () => {
    const { values } = parseArguments(process.argv.slice(2), { "--debug": "flag" }, USAGE);
    await setup();
    await build({ debug: values["--debug"] === true });
  });
}
