// `npx vitest` runs the tests that need nothing but Node, with watch, filters and an editor's support:
// `npx vitest contract/entries`. They test dist/, so build before: `npm run build -- --debug`.
// tests/run-node.mjs runs them by this configuration too, and sets the variables VARVE_….

import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";
import { WITHOUT_WAITING } from "./scripts/programs.mjs";

const root = fileURLToPath(new URL(".", import.meta.url));
const { exports } = JSON.parse(readFileSync(`${root}package.json`, "utf8")) as {
  exports: Readonly<Record<string, { readonly node?: string; readonly default: string } | string>>;
};

/** The package by its own name, as its users import it in Node. */
const alias = Object.entries(exports).map(([path, target]) => {
  const file = typeof target === "string" ? target : (target.node ?? target.default);
  return { find: new RegExp(`^varve${path.slice(1)}$`), replacement: `${root}${file.slice(2)}` };
});

const { VARVE_FOLDERS = "contract,node,vectors,struct,client,adapters,hooks,support" } =
  process.env;

export default defineConfig({
  resolve: { alias },
  test: {
    include: VARVE_FOLDERS.split(",").map((folder) => `tests/${folder}/**/*.test.ts`),
    exclude: ["**/node_modules/**", "**/*.page.test.ts", "**/*.deno.test.ts"],
    globalSetup: ["tests/support/vitest-global-setup.ts"],
    setupFiles: ["tests/support/vitest-setup.ts"],
    // All files run in one process, one after the other: they share what is packed and built once, and many start
    // processes of their own.
    pool: "forks",
    isolate: false,
    fileParallelism: false,
    execArgv: WITHOUT_WAITING,
    // What a test prints is printed as everywhere else.
    disableConsoleIntercept: true,
    allowOnly: false,
    hideSkippedTests: true,
    testTimeout: 300_000,
    hookTimeout: 300_000,
    // A test that takes longer is named, so that it is known who makes everyone wait.
    slowTestThreshold: 5_000,
    server: { deps: { external: [/\/dist\//, /\.mjs$/] } },
  },
});
