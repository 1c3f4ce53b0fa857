/** The struct tests of every runtime, run in workerd: the vectors of Rust, random schemas and bytes, JSON. */

import { mkdirSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { assert, describe, expect, test } from "vitest";
import { root } from "../packaging/project.js";
import { context } from "../support/context.js";
import type { Report } from "../support/vitest-stand-in.js";
import { bundledWorker, serving } from "./workerd.js";

/** The same tests as a Worker, which runs them on request. */
function program(files: readonly string[]): string {
  const imports = files.map((file) => `await import("./tests/struct/${file}");`);
  return `
    import { run } from "./tests/support/vitest-stand-in.ts";
    export default {
      async fetch() {
        globalThis.varveTests = { runtime: "worker", build: "release", thorough: false, long: false, root: "" };
        ${imports.join("\n")}
        return Response.json(await run());
      },
    };`;
}

const CONFIG = `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [(name = "main", worker = (
    modules = [(name = "program.js", esModule = embed "program.js")],
    compatibilityDate = "2025-01-01",
  ))],
  sockets = [(name = "http", address = "127.0.0.1:0", http = (), service = "main")],
);
`;

describe("schemas in workerd", () => {
  test("schemas read and write Rust's values byte for byte, and pass all other struct tests", async () => {
    const files = readdirSync(root("tests/struct")).filter((file) => file.endsWith(".test.ts"));
    assert(files.includes("vectors.test.ts") && files.includes("random.test.ts"));
    const folder = join(context().directory ?? ".", "edge-struct");
    mkdirSync(folder, { recursive: true });
    await bundledWorker(program(files), folder);
    const { url } = await serving(folder, CONFIG);
    const { passed, failures } = (await (await fetch(url)).json()) as Report;
    expect(failures.map(({ name, message }) => `${name}: ${message}`).join("\n")).toBe("");
    assert(passed > 100, `${passed} tests`);
  });
});
