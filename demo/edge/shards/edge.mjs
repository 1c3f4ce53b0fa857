// Serves the example in workerd, as the program that sells the stock and the tests do.

import { spawn } from "node:child_process";
import { copyFileSync, mkdirSync } from "node:fs";
import { Agent, request } from "node:http";
import { join } from "node:path";
import { build } from "esbuild";
import { root } from "../../../scripts/lib.mjs";
import { findProgram } from "../../../scripts/programs.mjs";

const HERE = "demo/edge/shards";

/** Bundles the Workers into a folder as they are deployed, with the wasm beside them as a module. */
export async function bundle(folder) {
  await build({
    absWorkingDir: root,
    entryPoints: ["worker", "reader", "bucket"].map((name) => `${HERE}/${name}.ts`),
    outdir: folder,
    bundle: true,
    format: "esm",
    target: "es2022",
    conditions: ["workerd"],
    loader: { ".wasm": "copy" },
    assetNames: "[name]",
    logLevel: "warning",
  });
  copyFileSync(join(root, HERE, "config.capnp"), join(folder, "config.capnp"));
  for (const name of ["disk", "folder"]) mkdirSync(join(folder, name), { recursive: true });
}

/** Starts workerd. Resolves to the addresses of both Workers, and `kill`, which sends SIGKILL. */
export async function startWorkerd(folder) {
  const child = spawn(await findProgram("workerd"), ["serve", "config.capnp", "--control-fd=3"], {
    cwd: folder,
    stdio: ["ignore", "ignore", "inherit", "pipe"],
  });
  const ended = new Promise((resolve) => child.on("exit", resolve));
  const ports = await new Promise((resolve, reject) => {
    let reported = "";
    child.stdio[3].on("data", (chunk) => {
      reported += chunk;
      const found = [...reported.matchAll(/"socket":"(\w+)","port":(\d+)\D/g)];
      if (found.length === 2)
        resolve(Object.fromEntries(found.map(([, name, port]) => [name, port])));
    });
    child.on("error", reject);
    child.on("exit", () => reject(new Error("workerd ended.")));
  });
  const kill = () => {
    child.kill("SIGKILL");
    return ended;
  };
  return {
    url: `http://127.0.0.1:${ports.main}`,
    reader: `http://127.0.0.1:${ports.reader}`,
    kill,
  };
}

/**
 * The example, which can be killed and started again while clients send requests. `send` repeats a request that
 * was not answered, or for which an object was not there (503), and rejects if the answer is another error.
 */
export async function startEdge(folder) {
  await bundle(folder);
  const agent = new Agent({ keepAlive: true });
  let running = startWorkerd(folder);
  await running;
  const send = async (method, path, body = "", { to = "url" } = {}) => {
    for (;;) {
      const address = (await running)[to];
      const answer = await exchanged(agent, address + path, method, body).catch(() => undefined);
      if (answer?.status === 200) return JSON.parse(answer.text);
      if (answer !== undefined && answer.status !== 503) {
        throw new Error(`${method} ${path}: ${answer.status} ${answer.text}`);
      }
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  };
  return {
    send,
    addresses: () => running,
    /** Kills workerd and with it all objects, and starts it again. */
    async restart() {
      const before = running;
      running = before.then(async ({ kill }) => {
        await kill();
        return startWorkerd(folder);
      });
      await running;
    },
    async stop() {
      agent.destroy();
      await (await running).kill();
    },
  };
}

/** One exchange over HTTP. (`fetch` would take most of the measured time.) */
function exchanged(agent, url, method, body) {
  return new Promise((resolve, reject) => {
    const outgoing = request(url, { method, agent }, (response) => {
      response.setEncoding("utf8");
      let text = "";
      response.on("error", reject);
      response.on("data", (chunk) => {
        text += chunk;
      });
      response.on("end", () => resolve({ status: response.statusCode, text }));
    });
    outgoing.on("error", reject);
    outgoing.end(body);
  });
}
