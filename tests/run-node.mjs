// Runs suites in a runtime that has files: this Node, Node 24, Deno or Bun.
//   node tests/run-node.mjs [--in node|node24|deno|bun] [--build release|debug] [--rooms contract,node,vectors,struct,client] [text in the name]

import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { bundleForNode } from "../scripts/bundle.mjs";
import { installPackages } from "../scripts/install.mjs";
import { execute, must, Problem, root } from "../scripts/lib.mjs";
import { runtimeCommand } from "../scripts/programs.mjs";
import { runner } from "./runner.mjs";

const MINUTE = 60_000;

/** By room: what its tests use, and what takes longer to make or to fetch than a test has. */
const NEEDED = {
  cli: () => example("shop"),
  packaging: async () => {
    await example("records");
    await installPackages("tests/fixtures", { scripts: false });
  },
};

/** A program in Rust, built as `cargo test` builds it. */
function example(name) {
  const what = ["--quiet", "--package", "varve", "--example", name, "--profile", "test"];
  return must("cargo", ["build", ...what]);
}

runner(
  {
    program: "tests/run-node.mjs",
    places: ["node", "node24", "deno", "bun"],
    rooms: ["contract", "node", "vectors", "struct", "client"],
  },
  async ({ place, build, rooms, files, filter }) => {
    for (const room of rooms) await NEEDED[room]?.();
    const [program, ...flags] = await runtimeCommand(place);
    const runtime = place === "node24" ? "node" : place;
    const directory = mkdtempSync(join(tmpdir(), "varve-tests-"));
    const out = `.build/tests/${place}-${build}-${process.pid}`;
    const [task, report] = [join(directory, "task.json"), join(directory, "report.json")];
    try {
      await bundleForNode(["tests/harness.ts", ...files], out);
      const urlOf = (file) =>
        pathToFileURL(join(root, out, file.slice("tests/".length).replace(/\.ts$/, ".mjs"))).href;
      const thorough = place === "node" && build === "release";
      const context = { runtime, build, thorough, directory: join(directory, "files"), root };
      const wasm = build === "debug" ? join(root, "dist/varve.debug.wasm") : undefined;
      const modules = files.map(urlOf);
      const harness = urlOf("tests/harness.ts");
      writeFileSync(task, JSON.stringify({ harness, modules, context, wasm, filter, report }));
      const allowed = runtime === "deno" ? ["--allow-all"] : [];
      const words = [...flags, ...allowed, "tests/run-here.mjs", task];
      const { code, signal } = await execute(program, words, { timeout: 59 * MINUTE });
      if (code !== 0 || !existsSync(report)) {
        throw new Problem(`the tests in ${place} broke off (${signal ?? `exit code ${code}`}).`);
      }
      return JSON.parse(readFileSync(report, "utf8"));
    } finally {
      rmSync(join(root, out), { recursive: true, force: true });
      rmSync(directory, { recursive: true, force: true });
    }
  },
);
