// Installs what is missing: npm packages by their lock file, and system packages.

import { existsSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { ask, fresh, hashOf, must, Problem, root, say, stamp } from "./lib.mjs";

/**
 * Installs the npm packages of a folder of the repository, unless they are installed. `scripts: false` runs
 * no install scripts. `complete: false` accepts a lock file without the optional packages of other systems,
 * which `npm ci` refuses: a registry that lacks those packages cannot list them.
 */
export async function installPackages(folder = ".", { scripts = true, complete = true } = {}) {
  const lock = join(root, folder, "package-lock.json");
  const name = folder === "." ? "npm" : `npm-${folder.replaceAll("/", "-")}`;
  const key = hashOf(readFileSync(lock), process.version);
  // npm writes this file last, so an interrupted installation does not count.
  const done = join(root, folder, "node_modules", ".package-lock.json");
  if (existsSync(done)) {
    if (fresh(name, key)) return;
    if (statSync(done).mtimeMs >= statSync(lock).mtimeMs) return stamp(name, key);
  }
  const command = complete ? ["ci"] : ["install", "--no-save"];
  const args = [...command, "--no-fund", "--no-audit", ...(scripts ? [] : ["--ignore-scripts"])];
  say(`· npm ${command.join(" ")}${folder === "." ? "" : ` in ${folder}`}`);
  await must("npm", args, { cwd: join(root, folder) });
  stamp(name, key);
}

/** Installs packages with apt, as root or through sudo, or throws an error with the command to run. */
export async function aptInstall(packages, what) {
  const command = `apt-get update && apt-get install -y ${packages.join(" ")}`;
  if (ask("apt-get", ["--version"]) === undefined) {
    throw new Problem(`${what} is missing. Install it; on Debian: ${command}`);
  }
  const isRoot = process.getuid?.() === 0;
  if (!isRoot && ask("sudo", ["-n", "true"]) === undefined) {
    throw new Problem(`${what} is missing. As root: ${command}`);
  }
  const apt = (...args) =>
    isRoot
      ? must("apt-get", args, { env: { DEBIAN_FRONTEND: "noninteractive" } })
      : must("sudo", ["-n", "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", ...args]);
  say(`· ${command}`);
  await apt("update", "-q");
  await apt("install", "-y", "-q", "--no-install-recommends", ...packages);
}
