/** Workers in workerd, the runtime of Cloudflare Workers. */

import { type ChildProcess, spawn } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { build } from "esbuild";
import { onTestFinished } from "vitest";
import { root, runtime } from "../packaging/project.js";

/** A running workerd. */
export interface Serving {
  readonly url: string;
  /** Kills it by `kill -9`. */
  kill(): Promise<void>;
}

/** Serves a configuration that has a socket called "http", until the test ends. */
export async function serving(folder: string, configuration: string): Promise<Serving> {
  const config = join(folder, "config.capnp");
  writeFileSync(config, configuration);
  const [workerd = ""] = await runtime("workerd");
  const child = spawn(workerd, ["serve", config, "--control-fd=3"], {
    stdio: ["ignore", "ignore", "pipe", "pipe"],
  });
  const ended = new Promise<void>((resolve) => child.on("exit", () => resolve()));
  onTestFinished(() => {
    child.kill("SIGKILL");
  });
  return {
    url: `http://127.0.0.1:${await portOf(child)}/`,
    kill() {
      child.kill("SIGKILL");
      return ended;
    },
  };
}

function portOf(child: ChildProcess): Promise<number> {
  return new Promise((resolve, reject) => {
    let errors = "";
    child.stderr?.on("data", (chunk) => {
      errors += chunk;
    });
    let reported = "";
    child.stdio[3]?.on("data", (chunk) => {
      reported += chunk;
      const found = /"port":(\d+)\D/.exec(reported);
      if (found !== null) resolve(Number(found[1]));
    });
    child.on("error", reject);
    child.on("exit", (code) => reject(new Error(`workerd ended with ${code}: ${errors}`)));
  });
}

/**
 * Bundles a Worker's program as its deployment would: what is imported from the package, and the wasm
 * beside it.
 */
export async function bundledWorker(contents: string, folder: string): Promise<void> {
  mkdirSync(folder, { recursive: true });
  await build({
    absWorkingDir: root(),
    stdin: { contents, resolveDir: root(), loader: "ts" },
    outfile: join(folder, "program.js"),
    external: ["cloudflare:workers", "*.varve"],
    alias: { vitest: root("tests/support/vitest-stand-in.ts") },
    bundle: true,
    format: "esm",
    target: "es2022",
    conditions: ["workerd", "worker", "browser"],
    loader: { ".wasm": "copy" },
    assetNames: "[name]",
    logLevel: "silent",
  });
}

/** A Worker with one class of Durable Objects, kept in the folder "disk" beside it. */
export function withObjects(folder: string, className: string): string {
  const disk = join(folder, "disk");
  mkdirSync(disk, { recursive: true });
  return `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [
    (name = "main", worker = .objects),
    (name = "disk", disk = (path = ${JSON.stringify(disk)}, writable = true)),
  ],
  sockets = [(name = "http", address = "127.0.0.1:0", http = (), service = "main")],
);
const objects :Workerd.Worker = (
  modules = [
    (name = "program.js", esModule = embed "program.js"),
    (name = "varve.wasm", wasm = embed "varve.wasm"),
  ],
  compatibilityDate = "2025-01-01",
  durableObjectNamespaces = [(className = "${className}", uniqueKey = "${className}", enableSql = true)],
  durableObjectStorage = (localDisk = "disk"),
  bindings = [(name = "OBJECTS", durableObjectNamespace = "${className}")],
);
`;
}
