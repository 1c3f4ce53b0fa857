// Installs the rivals from npm. They are native: if a prebuilt binary cannot be downloaded, the package is
// built from source against this Node's own headers, and the table reports those that cannot be built.

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

/**
 * Firewalls often block the downloads of prebuilt binaries and headers; the packages themselves are
 * installed.
 */
async function buildFromSource() {
  const headers = dirname(dirname(realpathSync(process.execPath)));
  const here = existsSync(join(headers, "include/node/node.h"));
  // npm passed on the first name until version 11; node-gyp reads the second since then.
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

/** Packages that fail to load, or whose native part does. */
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
