import { spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { type BuildOptions, build } from "esbuild";
import { assert, describe, expect, test } from "vitest";
import { command, compile, manifest, pack, project, root, runs, written } from "./project.js";

async function bundle(source: string, options: BuildOptions = {}) {
  const result = await build({
    stdin: { contents: source, resolveDir: project(), loader: "js" },
    bundle: true,
    write: false,
    outdir: join(project(), "out"),
    format: "esm",
    platform: "browser",
    logLevel: "silent",
    metafile: true,
    minify: true,
    ...options,
  });
  const { inputs = {}, outputs = {} } = result.metafile ?? {};
  return { outputFiles: result.outputFiles ?? [], inputs, outputs };
}

describe("the published package", () => {
  test("it contains the built modules, the wasm and the licences, and no development files", () => {
    const wanted = [
      /^dist\/[a-z0-9/-]+\.(js|d\.ts)$/,
      /^dist\/(node|web)\/chunk-[A-Z0-9]+\.js$/,
      /^dist\/varve(\.wasm|\.d\.wasm\.ts)$/,
      /^(package\.json|README\.md|CHANGELOG\.md|LICENSE-MIT|LICENSE-APACHE)$/,
    ];
    const paths = pack().details.files.map(({ path }) => path);
    expect(paths.filter((path) => !wanted.some((pattern) => pattern.test(path)))).toStrictEqual([]);
    for (const path of ["dist/index.js", "dist/index.d.ts", "dist/varve.wasm", "LICENSE-MIT"]) {
      assert(paths.includes(path), `${path} is there`);
    }
  });

  test("its archive is smaller than 1,240 KB", () => {
    assert(pack().details.size < 1_240_000, `it takes ${pack().details.size} bytes`);
  });

  test("each exported path leads to a file, types first", () => {
    const paths = new Set(pack().details.files.map(({ path }) => `./${path}`));
    for (const [name, target] of Object.entries(manifest().exports)) {
      const targets = typeof target === "string" ? { default: target } : target;
      for (const path of Object.values(targets)) assert(paths.has(path), `${name}: ${path}`);
      if (name !== "./package.json") expect(Object.keys(targets)[0], name).toBe("types");
      expect(Object.keys(targets).at(-1), name).toBe("default");
    }
  });

  test("where the conditions of workerd and of Node are both set, all paths share one instance", async () => {
    const names = Object.keys(manifest().exports).filter((name) => !/\.(wasm|json)$/.test(name));
    const all = names.map((name, i) => `export * as e${i} from "varve${name.slice(1)}";`);
    const conditions = ["workerd", "node"];
    const external = [
      "node:*",
      "*.wasm",
      "abstract-level",
      "yjs",
      "tinybase",
      "react",
      "vue",
      "solid-js",
    ];
    const { inputs } = await bundle(all.join("\n"), { conditions, external });
    const paths = Object.keys(inputs);
    assert(paths.length > names.length, paths.join());
    expect(paths.filter((path) => path.includes("varve/dist/node/"))).toStrictEqual([]);
  });

  test("npx runs its command in a project that has installed it", () => {
    runs(`
      import { file, open } from "varve";
      const db = await open("from a program", { storage: file("data") });
      db.set("key", "value");
      await db.close();
    `);
    const npx = (...args: string[]) => command(["npx", "--offline", "varve", ...args]);
    expect(npx("--version")).toBe(`varve ${manifest().version}\n`);
    expect(npx("get", "data/from%20a%20program.varve", "key")).toBe("value");
  });

  test("it depends on no other package and runs no script when installed", () => {
    const { dependencies, optionalDependencies, scripts, ...others } = manifest();
    expect([dependencies, optionalDependencies]).toStrictEqual([undefined, undefined]);
    // The libraries that its adapters are for: programs that use one of these have installed it.
    const { peerDependencies, peerDependenciesMeta } = others;
    const peers = Object.keys(peerDependencies as object).map((name) => [name, { optional: true }]);
    expect(peerDependenciesMeta).toStrictEqual(Object.fromEntries(peers));
    const names = Object.keys(scripts as Record<string, string>);
    expect(names.filter((name) => /install|prepare|prepublish/.test(name))).toStrictEqual([]);
  });

  test("its development dependencies have exact versions, and no registry is named", () => {
    for (const folder of [
      ".",
      "tests/runtimes",
      "tests/fixtures",
      "tests/fixtures/heavy",
      "tests/oldest-frameworks",
    ]) {
      const { devDependencies, dependencies, optionalDependencies } = JSON.parse(
        readFileSync(root(folder, "package.json"), "utf8"),
      );
      const all = { ...devDependencies, ...dependencies, ...optionalDependencies };
      assert(Object.keys(all).length > 3, folder);
      for (const [name, version] of Object.entries(all)) {
        assert(
          /^(npm:[\w-]+@)?\d[\w.-]+$/.test(String(version)),
          `${folder}: ${name} ${version} is exact`,
        );
      }
      const lock = readFileSync(root(folder, "package-lock.json"), "utf8");
      assert(!lock.includes('"resolved"'), folder);
    }
  });

  test("it installs from its archive and stores, reads and closes", () => {
    const output = runs(`
      import { memory, open } from "varve";
      const db = await open("shop", { storage: memory() });
      db.set("key", "value");
      console.log(db.getText("key"), db.getText("other"));
      await db.close();
    `);
    expect(output.trim()).toBe("value undefined");
  });

  test("its wasm is available as a file, which open accepts", () => {
    const output = runs(`
      import { readFileSync } from "node:fs";
      import { fileURLToPath } from "node:url";
      import { memory, open } from "varve";
      const path = fileURLToPath(import.meta.resolve("varve/varve.wasm"));
      for (const wasm of [
        readFileSync(path),
        new WebAssembly.Module(readFileSync(path)),
        Promise.resolve(new Uint8Array(readFileSync(path)).buffer),
        new Response(readFileSync(path)),
      ]) {
        const db = await open("shop", { storage: memory(), wasm });
        db.set("key", "value");
        console.log(db.getText("key"));
        await db.close();
      }
    `);
    expect(output.trim()).toBe(Array(4).fill("value").join("\n"));
  });

  test("importing it has no effect: no global, listener, timer, wasm or file", () => {
    const output = runs(`
      import fs, { readdirSync } from "node:fs";
      const events = ["exit", "beforeExit", "unhandledRejection", "SIGTERM", "SIGINT"];
      const count = () => events.map((event) => process.listenerCount(event)).join();
      const before = { globals: Reflect.ownKeys(globalThis).length, count: count(), files: readdirSync(".").join() };
      const refuse = (name) => () => { throw new Error(name + " was called"); };
      for (const name of ["setTimeout", "setInterval", "queueMicrotask", "fetch", "atob"]) globalThis[name] = refuse(name);
      WebAssembly.compile = WebAssembly.instantiate = refuse("wasm");
      process.getBuiltinModule = refuse("getBuiltinModule");
      for (const name of ["openSync", "writeFileSync", "mkdirSync"]) fs[name] = refuse(name);
      const names = Object.keys(await import("varve"));
      const after = { globals: Reflect.ownKeys(globalThis).length, count: count(), files: readdirSync(".").join() };
      console.log(JSON.stringify(before) === JSON.stringify(after), names.includes("open"));
    `);
    expect(output.trim()).toBe("true true");
  });

  test("it can be imported without process, document, navigator and wasm", () => {
    const output = runs(`
      const log = console.log;
      for (const name of ["process", "navigator", "WebAssembly", "Buffer", "fetch", "performance"]) {
        delete globalThis[name];
      }
      const { open } = await import("varve");
      const error = await open("shop").catch((error) => error);
      log(error.code);
    `);
    expect(output.trim()).toBe("VARVE_STORAGE_UNAVAILABLE");
  });

  test("it works where only Node and not the realm has a TextEncoder, as in Jest with jsdom", () => {
    const output = runs(`
      delete globalThis.TextEncoder;
      delete globalThis.TextDecoder;
      const { memory, open } = await import("varve");
      const { str, struct, u16 } = await import("varve/struct");
      const { fromJson, toJson } = await import("varve/json");
      const db = await open("shop", { storage: memory() });
      const Product = struct("Product", { stock: u16, name: str });
      const products = db.collection("products", Product);
      products.set("yeezy", { stock: 1, name: "Größe 36" });
      db.set("ä".repeat(50), "ö");
      const json = toJson(Product, fromJson(Product, '{"stock":2,"name":"é"}'));
      console.log(products.get("yeezy").name, db.getText("ä".repeat(50)), json);
      await db.close();
    `);
    expect(output.trim()).toBe('Größe 36 ö {"stock":2,"name":"é"}');
  });

  test("without any TextEncoder it says what to do", () => {
    const output = runs(`
      delete globalThis.TextEncoder;
      delete globalThis.TextDecoder;
      const { log } = console;
      process.getBuiltinModule = undefined;
      const { memory, open } = await import("varve");
      const { str, struct } = await import("varve/struct");
      const db = await open("shop", { storage: memory() });
      try {
        db.set("ä".repeat(50), "value");
      } catch (error) {
        log(error.code, /globalThis/.test(error.message));
      }
    `);
    expect(output.trim()).toBe("VARVE_TEXT_ENCODER true");
  });

  test("it keeps a program running only while its databases are open", () => {
    const output = runs(`
      import { file, open } from "varve";
      const db = await open("running", { storage: file("data") });
      db.set("key", "value");
      console.log("the end");
    `);
    expect(output.trim()).toBe("the end");
    assert(!existsSync(join(project(), "data/running.varve.lock")), "its lock was removed");
  });

  test("an error that nothing catches is printed without the package's code around it", () => {
    const program = `
      import { memory, open } from "varve";
      const db = await open("uncaught", { storage: memory() });
      db.set("key", 6);
    `;
    const { status, stderr } = spawnSync(process.execPath, [written("uncaught.mjs", program)], {
      encoding: "utf8",
    });
    expect(status).toBe(1);
    assert(/A value must be a string/.test(stderr), stderr);
    const longest = Math.max(...stderr.split("\n").map((line) => line.length));
    assert(longest < 300, `its longest line has ${longest} characters`);
  });
});

describe("required browsers", () => {
  test("they are the same wherever they are named", () => {
    const readme = readFileSync(root("README.md"), "utf8");
    const [, ...wanted] =
      /Chrome (\d+), Firefox (\d+), Safari ([\d.]+) or newer/.exec(readme) ?? [];
    expect(wanted.length, "the README names them").toBe(3);
    const code = pack().details.files.filter(({ path }) => /\.(js|d\.ts)$/.test(path));
    const paths = [...code.map(({ path }) => path), "README.md", "docs/places.md"];
    let named = 0;
    for (const path of paths) {
      // Comments mention single features of newer browsers.
      const text = readFileSync(root(path), "utf8").replace(/\/\*[\s\S]*?\*\/|^\s*\/\/.*$/gm, "");
      const found = text.matchAll(
        /Chrome (\d+),\s+Firefox (\d+),?\s+(?:and )?Safari (\d+(?:\.\d+)?)/g,
      );
      for (const [, ...there] of found) {
        expect(there, path).toStrictEqual(wanted);
        named += 1;
      }
    }
    assert(named >= 3, "they are named where they are missing");
  });
});

describe("the package in a browser bundle", () => {
  test("the bundle imports no module of Node", async () => {
    const { outputFiles, inputs } = await bundle('export * from "varve";');
    const paths = Object.keys(inputs).filter((path) => path !== "<stdin>");
    assert(
      paths.length > 5 && paths.every((path) => path.includes("node_modules/varve/dist/")),
      paths.join(),
    );
    for (const { imports } of Object.values(inputs)) {
      expect(imports.filter(({ external }) => external)).toStrictEqual([]);
    }
    const code = outputFiles.map((one) => one.text).join("\n");
    assert(
      !/(?:\bfrom|\bimport|\brequire)\s*\(?\s*["'`]node:/.test(code),
      "no import of node: is left",
    );
  });

  test("the wasm is loaded lazily, in a separate chunk", async () => {
    const { outputFiles, outputs } = await bundle('export { open } from "varve";', {
      splitting: true,
    });
    const wasm = outputFiles.filter((one) => /"[A-Za-z0-9+/=]{100000,}"/.test(one.text));
    expect(wasm.length, "one chunk has it").toBe(1);
    assert(!wasm[0]?.path.endsWith("stdin.js"), "and not the one that is loaded first");
    // The first chunk needs its static imports; dynamic imports are loaded later.
    const needed = new Set(Object.keys(outputs).filter((path) => path.endsWith("stdin.js")));
    expect(needed.size).toBe(1);
    for (const path of needed) {
      for (const { path: other, kind } of outputs[path]?.imports ?? []) {
        if (kind === "import-statement") needed.add(other);
      }
    }
    const bytes = [...needed].reduce((sum, path) => sum + (outputs[path]?.bytes ?? 1e9), 0);
    assert(bytes < 180_000, `what is loaded first takes ${bytes} bytes`);
    assert(needed.size <= 3, `what is loaded first is ${needed.size} files`);
  });

  test("unused code is left out", async () => {
    const { outputFiles } = await bundle('import { memory } from "varve"; console.log(memory());');
    const size = outputFiles[0]?.text.length ?? 1e9;
    assert(size < 6200, `memory() alone takes ${size} bytes`);
  });
});

describe("types of the package", () => {
  const program = `
    import { type Database, memory, open } from "varve";
    const db: Database = await open("shop", { storage: memory() });
    const view: Uint8Array | undefined = db.get("key");
    const text: string | undefined = db.getText("key");
    console.log(view, text);
    await db.close();
  `;

  test("they compile without the types of Node, with skipLibCheck off", () => {
    const lib = ["ES2022", "DOM"];
    expect(compile(program, { module: "ESNext", moduleResolution: "Bundler", lib })).toBe("");
    expect(compile(program, { module: "NodeNext", moduleResolution: "NodeNext", lib })).toBe("");
  });

  test("they compile with the library of types for workers", () => {
    const lib = ["ES2022", "WebWorker"];
    expect(compile(program, { module: "ESNext", moduleResolution: "Bundler", lib })).toBe("");
  });

  test("they compile with other types of the platform than a page's, or none", () => {
    // Those of abstract-level (they need those of Node), Yjs, TanStack DB, TinyBase and Vue: adapters.test.ts and hooks.test.ts compile with them.
    const names = Object.keys(manifest().exports).filter(
      (name) => !/\.(wasm|json)$|^\.\/(level|yjs|tanstack-db|tinybase|vue)$/.test(name),
    );
    const all = names
      .map((name, i) => `export * as e${i} from "varve${name.slice(1)}";`)
      .join("\n");
    const silent = program.replace("console.log(view, text)", "export { view, text }");
    const typeRoots = [root("node_modules/@types")];
    for (const types of [["node"], []]) {
      for (const [module, moduleResolution] of [
        ["Node16", "Node16"],
        ["ESNext", "Bundler"],
      ]) {
        const options = { module, moduleResolution, typeRoots, types, lib: ["ES2023"] };
        expect(compile(all, options), `${moduleResolution}, ${types}`).toBe("");
        expect(compile(silent, options), `${moduleResolution}, ${types}`).toBe("");
      }
    }
  });

  test("they contain no any", () => {
    const declarations = pack().details.files.filter(({ path }) => path.endsWith(".d.ts"));
    for (const { path } of declarations) {
      const code = readFileSync(root(path), "utf8").replace(/\/\*[\s\S]*?\*\/|\/\/.*$/gm, "");
      assert(!/[:<|&,(]\s*any\b/.test(code), `${path} has none`);
    }
  });
});
