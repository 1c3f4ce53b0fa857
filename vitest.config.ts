// `npx vitest` runs the tests that need no browser in this Node, with watch, filters and an editor's support:
// `npx vitest contract/get`. It tests dist/, so build before: `npm run build -- --debug`.

import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

const root = fileURLToPath(new URL(".", import.meta.url));
const { exports } = JSON.parse(readFileSync(`${root}package.json`, "utf8")) as {
  exports: Readonly<Record<string, { readonly default: string } | string>>;
};

/** The package by its own name, as its users import it. */
const alias = Object.entries(exports).map(([path, target]) => ({
  find: new RegExp(`^varve${path.slice(1)}$`),
  replacement: `${root}${(typeof target === "string" ? target : target.default).slice(2)}`,
}));

const rooms = (process.env.VARVE_ROOMS ?? "contract,node,vectors,struct,client").split(",");

export default defineConfig({
  resolve: { alias },
  test: {
    include: rooms.map((room) => `tests/${room}/**/*.test.ts`),
    setupFiles: ["tests/vitest-setup.ts"],
    // Tests end processes, send signals and take locks of files: each file of tests has a process of its own.
    pool: "forks",
    testTimeout: 300_000,
    hookTimeout: 300_000,
    server: { deps: { external: [/\/dist\//] } },
  },
});
