/** Schemas where code generation from strings is forbidden, and their size in a bundle. */

import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { brotliCompressSync } from "node:zlib";
import { build } from "esbuild";
import { assert, describe, expect, onTestFinished, test } from "vitest";
import { serving } from "../edge/workerd.js";
import { command, load, project, runs, runtime, written } from "./project.js";

/** Defines `tried`, which returns the result for a schema with a field of every kind, and whether code generation was refused. */
const PROGRAM = `
  import { codecOf } from "varve/codec";
  import * as t from "varve/struct";

  function tried() {
    let refused = false;
    try {
      new Function("return 1")();
    } catch {
      refused = true;
    }
    const Size = t.struct("Size", { width: t.u16, height: t.i16 });
    const Page = t.struct("Page", { offset: t.u32, limit: t.u8 });
    const Order = t.versioned("Order", {
      a: t.u8, b: t.u16, c: t.u32, d: t.u64, e: t.u53, f: t.i8, g: t.i16, h: t.i32, i: t.i64,
      j: t.f32, k: t.f64, l: t.bool, m: t.timestamp, n: t.enum8("x", "y"), o: t.enum16("x", "y"),
      p: t.bytes(3), q: t.fixedStr(5), name: t.str, s: t.blob, u: t.array(t.u8, 2), v: t.vec(t.str),
      size: Size, page: t.flatten(Page), w: t.option(t.str), x: t.optNonZero(t.u8),
      y: t.union({ Cash: t.u32, Card: t.str, Free: null }), z: t.added(t.f64, 1.5),
    });
    const order = {
      a: 1, b: 2, c: 3, d: 4n, e: 5, f: -6, g: -7, h: -8, i: -9n, j: 0.5, k: 0.1, l: true, m: 11,
      n: "y", o: "x", p: Uint8Array.of(1, 2, 3), q: "é", name: "Yeezy Boost 350 V2",
      s: Uint8Array.of(4), u: [5, 6], v: ["seven", "eight"], size: { width: 9, height: -9 },
      offset: 10, limit: 11, w: "twelve", x: 13, y: { type: "Card", value: "14" }, z: 1.5,
    };
    const bytes = Order.encode(order);
    Order.check(bytes);
    const memory = { u8: bytes, data: new DataView(bytes.buffer), epoch: 0 };
    const codec = codecOf(Order);
    const view = codec.writable(memory, 0, bytes.length);
    view.b -= 1;
    view.name = "longer than it was before";
    const updated = Order.view(codec.finish(view));
    const same = JSON.stringify(Order.view(Order.encode(order))) === JSON.stringify(Order.view(Order.encode(Order.view(Order.encode(order)))));
    return [refused, updated.b, updated.name, updated.y.value, updated.size.height, t.eq(updated, "q", "é"), same].join();
  }
`;
const EXPECTED = "true,1,longer than it was before,14,-9,true,true";

/** Bundles such a program, with code that handles its result, and returns the folder. */
async function bundled(name: string, ending: string): Promise<string> {
  const folder = join(project(), name);
  mkdirSync(folder, { recursive: true });
  const entry = written(`${name}.ts`, PROGRAM + ending);
  await build({
    absWorkingDir: project(),
    entryPoints: [entry],
    outfile: join(folder, "program.js"),
    bundle: true,
    minify: true,
    format: "esm",
    target: "es2022",
    logLevel: "silent",
  });
  return folder;
}

describe("schemas where code generation from strings is forbidden", () => {
  test("they work in a Node that forbids it", () => {
    const node = [process.execPath, "--disallow-code-generation-from-strings"];
    expect(runs(`${PROGRAM} console.log(tried());`, "forbidden.mjs", node).trim()).toBe(EXPECTED);
  });

  test("they work in workerd", async () => {
    const handler = "export default { fetch() { return new Response(tried()); } };";
    const folder = await bundled("workerd", handler);
    expect(await resultInWorkerd(folder)).toBe(EXPECTED);
  });

  test("they work on a page with a strict content security policy, in Chromium", async () => {
    const folder = await bundled("strict", "globalThis.result = tried();");
    expect(await resultOnPage(folder)).toBe(EXPECTED);
  });
});

const CONFIG = `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [(name = "main", worker = (
    modules = [(name = "program.js", esModule = embed "program.js")],
    compatibilityDate = "2025-01-01",
  ))],
  sockets = [(name = "http", address = "127.0.0.1:0", http = (), service = "main")],
);
`;

async function resultInWorkerd(folder: string): Promise<string> {
  const { url } = await serving(folder, CONFIG);
  return (await fetch(url)).text();
}

interface Page {
  goto(url: string): Promise<unknown>;
  evaluate(expression: string): Promise<unknown>;
}

const STRICT = `<!doctype html><title>strict</title><link rel="icon" href="data:,">
<meta http-equiv="content-security-policy" content="default-src 'self'; img-src data:">
<script type="module" src="/program.js"></script>`;

async function resultOnPage(folder: string): Promise<unknown> {
  const { serve } = await load<{
    serve(
      folders: string[],
      options: { pages: Record<string, string> },
    ): Promise<{ url: string; close(): Promise<void> }>;
  }>("scripts/serve.mjs");
  const { withPage } = await load<{
    withPage(place: "chromium", use: (page: Page) => Promise<unknown>): Promise<unknown>;
  }>("tests/browsers.mjs");
  const server = await serve([folder], { pages: { "/": STRICT } });
  onTestFinished(() => server.close());
  return withPage("chromium", async (page) => {
    await page.goto(server.url);
    // The module has stored its result, because the policy does not apply to scripts of the driver.
    return page.evaluate("globalThis.result");
  });
}

/** The content of a bundle of this program, as a page would load it. */
async function bundle(source: string): Promise<string> {
  const { outputFiles } = await build({
    absWorkingDir: project(),
    stdin: { contents: source, resolveDir: project() },
    bundle: true,
    minify: true,
    format: "esm",
    target: "es2022",
    write: false,
    logLevel: "silent",
  });
  return outputFiles[0]?.text ?? "";
}

describe("schemas in a bundle", () => {
  /** A text by which a kind of type is recognized in a bundle. */
  const MARKS = {
    union: "{ type, value }",
    enum: "enum${",
    text: "charCodeAt",
    bytes: "must be a Uint8Array",
    list: "must be an array",
    option: 'kind:"option"',
    bool: "must be true or false",
    bigint: "getBigUint64",
    versioned: "isZero:",
    eq: "eq()",
    json: 'kind:"json"',
  };

  test("the bundle contains only the types that are used", async () => {
    const numbers = await bundle(`
      import { f64, struct, u16 } from "varve/struct";
      export const Point = struct("Point", { x: f64, n: u16 });`);
    for (const [kind, mark] of Object.entries(MARKS)) {
      assert(!numbers.includes(mark), `a schema of numbers has no need of ${kind}`);
    }
    assert(numbers.includes("getUint16") && !numbers.includes("getInt16"));
    const all = await bundle('export * from "varve/struct";');
    for (const [kind, mark] of Object.entries(MARKS)) {
      assert(all.includes(mark), `${kind} is known by this mark`);
    }
  });

  test("the bundle contains nothing if nothing is used, and nothing of the engine", async () => {
    expect((await bundle('import "varve/struct";')).trim()).toBe("");
    const all = await bundle('export * from "varve/struct";');
    assert(!all.includes("WebAssembly") && !all.includes("node:"), "no engine, no files");
  });

  test("all types together take at most 6.65 KB", async () => {
    const { length } = brotliCompressSync(await bundle('export * from "varve/struct";'));
    assert(length <= 6.65 * 1024, `${length} bytes of brotli`);
  });
});

describe("the entry varve/struct", () => {
  test("it works without a bundler in every runtime", async () => {
    const source = `${PROGRAM.replace("let refused = false", "let refused = true")} console.log(tried());`;
    for (const place of ["node24", "deno", "bun"]) {
      expect(runs(source, "struct.mjs", await runtime(place, [])).trim(), place).toBe(EXPECTED);
    }
    assert(command([process.execPath, "-e", 'import("varve/struct")']).length === 0);
  });
});
