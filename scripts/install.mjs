// Installs what is missing: npm packages as their lock says, and packages of the system.

import { existsSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { ask, fresh, hashOf, must, Problem, root, say, stamp } from "./lib.mjs";

/**
 * Installs the npm packages of a folder of the repository, unless that has been done. With `scripts`
 * as `false` none of them runs a program of its own while it is installed. With `complete` as `false` the
 * lock may lack what other systems would install, which `npm ci` refuses: a registry that does not have
 * those packages cannot write them down.
 */
export async function installPackages(folder = ".", { scripts = true, complete = true } = {}) {
  const lock = join(root, folder, "package-lock.json");
  const name = folder === "." ? "npm" : `npm-${folder.replaceAll("/", "-")}`;
  const key = hashOf(readFileSync(lock), process.version);
  // npm notes what it installed in this file, so a folder that npm was not done with does not count.
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

/** Installs packages with apt, as root or through sudo, or says what there is to be done. */
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
