// The product drop in a Durable Object: many clients buy at once over HTTP until the stock is empty, and
// workerd is killed with SIGKILL halfway.

import { spawn } from "node:child_process";
import { copyFileSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { Agent, request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { build } from "esbuild";
import { entry, parseArguments, root, say } from "../../scripts/lib.mjs";
import { findProgram } from "../../scripts/programs.mjs";

const USAGE = "npm run example:edge [-- --json]";
const CLIENTS = 100;
const STOCK = 20_001;

/** The Worker as it is deployed: bundled, with the wasm beside it as a module. */
async function bundle(folder) {
  await build({
    absWorkingDir: root,
    entryPoints: ["demo/edge/worker.ts"],
    outdir: folder,
    bundle: true,
    format: "esm",
    target: "es2022",
    conditions: ["workerd"],
    loader: { ".wasm": "copy" },
    assetNames: "[name]",
    logLevel: "warning",
  });
  copyFileSync(join(root, "demo/edge/config.capnp"), join(folder, "config.capnp"));
  mkdirSync(join(folder, "disk"));
}

async function startWorkerd(folder) {
  const child = spawn(await findProgram("workerd"), ["serve", "config.capnp", "--control-fd=3"], {
    cwd: folder,
    stdio: ["ignore", "ignore", "inherit", "pipe"],
  });
  const ended = new Promise((resolve) => child.on("exit", resolve));
  const port = await new Promise((resolve, reject) => {
    child.stdio[3].on("data", (chunk) => resolve(/"port":(\d+)/.exec(String(chunk))?.[1]));
    child.on("error", reject);
    child.on("exit", () => reject(new Error("workerd ended.")));
  });
  const kill = () => {
    child.kill("SIGKILL");
    return ended;
  };
  return { url: `http://127.0.0.1:${port}/`, kill };
}

const agent = new Agent({ keepAlive: true });

/** Sends one purchase and returns the answer. (`fetch` would take most of the measured time.) */
function buy(url, buyer) {
  return new Promise((resolve, reject) => {
    const outgoing = request(url, { method: "POST", agent }, (response) => {
      let answer = "";
      response.on("error", reject);
      response.on("data", (chunk) => {
        answer += chunk;
      });
      response.on("end", () => {
        if (response.statusCode === 200) resolve(JSON.parse(answer));
        else reject(new Error(answer));
      });
    });
    outgoing.on("error", reject);
    outgoing.end(buyer);
  });
}

/** All clients buy until the stock is empty, and retry requests that were not answered. Returns the answers. */
async function sellOut(folder) {
  let answered = 0;
  let edge = await startWorkerd(folder);
  let restarted = Promise.resolve();
  const restart = async () => {
    await edge.kill();
    edge = await startWorkerd(folder);
  };
  const bought = async (buyer) => {
    for (;;) {
      const { url } = edge;
      try {
        return await buy(url, buyer);
      } catch {
        await restarted;
        if (edge.url === url) await new Promise((resolve) => setTimeout(resolve, 10));
      }
    }
  };
  const client = async (_, number) => {
    for (let n = 0; await bought(`${number}-${n}`); n++) {
      answered += 1;
      if (answered === Math.floor(STOCK / 2)) restarted = restart();
    }
  };
  try {
    await Promise.all(Array.from({ length: CLIENTS }, client));
    const { stock, orders } = await (await fetch(edge.url)).json();
    return { stock, orders, answered };
  } finally {
    agent.destroy();
    await edge.kill();
  }
}

entry(async () => {
  const { values } = parseArguments(process.argv.slice(2), { "--json": "flag" }, USAGE);
  const folder = mkdtempSync(join(tmpdir(), "varve-edge-"));
  try {
    await bundle(folder);
    const start = Date.now();
    const { stock, orders, answered } = await sellOut(folder);
    const seconds = (Date.now() - start) / 1000;
    const result = { clients: CLIENTS, answered, orders, stock, seconds };
    if (values["--json"]) process.stdout.write(`${JSON.stringify(result)}\n`);
    else {
      say(
        `${CLIENTS} clients bought ${answered} in ${seconds.toFixed(1)} s, and workerd was killed ` +
          `once: ${orders} orders, ${stock} left.`,
      );
    }
    if (answered !== STOCK || orders !== STOCK || stock !== 0) process.exitCode = 1;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});
