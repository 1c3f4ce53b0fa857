// Installs the rivals that come as packages. They are native: a package that cannot be had is built
// from source against this Node's own headers, and one that cannot be built is told in the table.

import { existsSync, readFileSync, realpathSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { execute, fresh, hashOf, root, say, stamp } from "../../scripts/lib.mjs";

const folder = join(root, "benches/rivals");

export async function installRivals() {
  const lock = readFileSync(join(folder, "package-lock.json"));
  const key = hashOf(lock, process.version, process.platform, process.arch);
  if (existsSync(join(folder, "node_modules")) && fresh("rivals", key)) return;
  say("· npm ci (in benches/rivals)");
  const all = await npm(["ci", "--no-fund", "--no-audit"]);
  if (all !== 0 || broken().length > 0) await buildFromSource();
  for (const name of broken()) say(`! ${name} could not be installed; the table will say so.`);
  if (broken().length === 0) stamp("rivals", key);
}

/** Downloads of built files or of headers fail behind many a wall; the packages themselves are here. */
async function buildFromSource() {
  const headers = dirname(dirname(realpathSync(process.execPath)));
  const here = existsSync(join(headers, "include/node/node.h"));
  // The first is what npm passed on until version 11, the second what node-gyp reads since.
  const names = ["npm_config_nodedir", "npm_package_config_node_gyp_nodedir"];
  const env = here ? Object.fromEntries(names.map((name) => [name, headers])) : {};
  say(`· again without downloads${here ? `, with the headers in ${headers}` : ""}`);
  await npm(["ci", "--ignore-scripts", "--no-fund", "--no-audit"]);
  for (const name of rivals()) await npm(["rebuild", name], env);
}

function npm(args, env = {}) {
  return execute("npm", args, { cwd: folder, env }).then(({ code }) => code);
}

function rivals() {
  return Object.keys(JSON.parse(readFileSync(join(folder, "package.json"), "utf8")).dependencies);
}

/** Those that do not load, or whose native part does not. */
function broken() {
  const require = createRequire(join(folder, "package.json"));
  return rivals().filter((name) => {
    try {
      const loaded = require(name);
      if (name === "better-sqlite3") new loaded(":memory:").close();
      return false;
    } catch {
      return true;
    }
  });
}
