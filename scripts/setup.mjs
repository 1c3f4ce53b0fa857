// Gets what the project needs and is missing, and names the command for what it cannot get itself.

import { existsSync, readFileSync, statSync } from "node:fs";
import { delimiter, join } from "node:path";
import { ask, entry, fresh, hashOf, isMain, must, Problem, root, say, stamp } from "./lib.mjs";

const WASM_TARGET = "wasm32-unknown-unknown";

/** Everything that building needs; with `chromium` also what the browser tests need. */
export async function setup({ chromium = false } = {}) {
  requireNode();
  addCargoToPath();
  requireRustup();
  await installPackages();
  await installCompiler();
  await installToolchain();
  return { chromium: chromium ? await findChromium() : undefined };
}

function requireNode() {
  const [major, minor] = process.versions.node.split(".").map(Number);
  if (major > 20 || (major === 20 && minor >= 16)) return;
  throw new Problem(
    `this is Node ${process.versions.node}; varve needs 20.16 or later. ` +
      "Get it from https://nodejs.org, or with a version manager: nvm install 20",
  );
}

/** A fresh rustup is on the PATH of the next login only. */
function addCargoToPath() {
  const home = process.env.CARGO_HOME ?? join(process.env.HOME ?? "", ".cargo");
  const bin = join(home, "bin");
  const paths = (process.env.PATH ?? "").split(delimiter);
  if (existsSync(bin) && !paths.includes(bin)) process.env.PATH = [...paths, bin].join(delimiter);
}

function requireRustup() {
  // Asked outside the repository: inside, the toolchain file would make the question an installation.
  if (ask("rustup", ["--version"], { cwd: "/" }) !== undefined) return;
  if (ask("cargo", ["--version"]) !== undefined && hasTargetWithoutRustup()) return;
  throw new Problem(
    "Rust is missing. Get it with:\n  curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y --profile minimal",
  );
}

function hasTargetWithoutRustup() {
  const sysroot = ask("rustc", ["--print", "sysroot"]);
  return sysroot !== undefined && existsSync(join(sysroot, "lib", "rustlib", WASM_TARGET));
}

async function installPackages() {
  const key = hashOf(readFileSync(join(root, "package-lock.json")), process.version);
  // npm notes what it installed in this file, so a folder that npm was not done with does not count.
  const done = join(root, "node_modules", ".package-lock.json");
  if (existsSync(done)) {
    if (fresh("npm", key)) return;
    const lock = statSync(join(root, "package-lock.json"));
    if (statSync(done).mtimeMs >= lock.mtimeMs) return stamp("npm", key);
  }
  say("· npm ci");
  await must("npm", ["ci", "--no-fund", "--no-audit"]);
  stamp("npm", key);
}

/** Rust links its build scripts and macros with the system's C compiler. */
async function installCompiler() {
  if (process.platform !== "linux") return;
  if (ask("cc", ["--version"]) !== undefined) return;
  say("· a C compiler is missing (Rust links with it)");
  await aptInstall(["gcc", "libc6-dev"], "a C compiler");
}

/** rustup would fetch the toolchain by itself when it is first used, in silence and for minutes. */
async function installToolchain() {
  if (ask("rustup", ["--version"], { cwd: "/" }) === undefined) return;
  const wanted = toolchain();
  const parts = ["--no-self-update", "--profile", "minimal", "--target", WASM_TARGET];
  for (const component of COMPONENTS) parts.push("--component", component);
  if (!isInstalled(wanted)) {
    say(`· rustup toolchain install ${wanted}`);
    await must("rustup", ["toolchain", "install", wanted, ...parts], { cwd: "/" });
    return;
  }
  const present = ask("rustup", ["component", "list", "--installed", "--toolchain", wanted]) ?? "";
  const missing = COMPONENTS.filter((component) => !present.includes(component));
  if (missing.length > 0) {
    say(`· rustup component add ${missing.join(" ")}`);
    await must("rustup", ["component", "add", "--toolchain", wanted, ...missing], { cwd: "/" });
  }
  if (!present.includes(`rust-std-${WASM_TARGET}`)) {
    say(`· rustup target add ${WASM_TARGET}`);
    await must("rustup", ["target", "add", "--toolchain", wanted, WASM_TARGET], { cwd: "/" });
  }
}

const COMPONENTS = ["rustfmt", "clippy"];

/** What the toolchain file names, or whoever calls has chosen in its place. */
function toolchain() {
  const file = readFileSync(join(root, "rust-toolchain.toml"), "utf8");
  const named = /^channel\s*=\s*"([^"]+)"/m.exec(file)?.[1];
  return process.env.RUSTUP_TOOLCHAIN ?? named ?? "stable";
}

function isInstalled(wanted) {
  const names = (ask("rustup", ["toolchain", "list"], { cwd: "/" }) ?? "").split("\n");
  return names.some((name) => name.split(" ")[0].startsWith(wanted));
}

const CHROMIUM_NAMES = ["chromium", "chromium-browser", "google-chrome-stable", "google-chrome"];

/** The path of a Chromium: CHROME_BIN, else an installed one, else one from apt. */
export async function findChromium() {
  const wanted = process.env.CHROME_BIN;
  if (wanted) {
    if (existsSync(wanted)) return wanted;
    throw new Problem(`CHROME_BIN names ${wanted}, which is not there.`);
  }
  const found = installedChromium();
  if (found !== undefined) return found;
  say("· Chromium is missing");
  await aptInstall(["chromium"], "Chromium (or name one in the environment variable CHROME_BIN)");
  const installed = installedChromium();
  if (installed !== undefined) return installed;
  throw new Problem("Chromium was installed and is not found. Name it in CHROME_BIN.");
}

function installedChromium() {
  const places = (process.env.PATH ?? "").split(delimiter);
  const candidates = places.flatMap((place) => CHROMIUM_NAMES.map((name) => join(place, name)));
  candidates.push("/Applications/Google Chrome.app/Contents/MacOS/Google Chrome");
  candidates.push("/Applications/Chromium.app/Contents/MacOS/Chromium");
  return candidates.find((path) => existsSync(path));
}

async function aptInstall(packages, what) {
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

if (isMain(import.meta.url)) {
  entry(async () => {
    await setup({ chromium: true });
    say("Everything is there.");
  });
}
