// Installs what the project needs, and prints the command for what it cannot install itself.

import { existsSync, readFileSync } from "node:fs";
import { delimiter, join } from "node:path";
import { aptInstall, installPackages } from "./install.mjs";
import { ask, entry, isMain, must, Problem, root, say } from "./lib.mjs";
import { findProgram, PROGRAM_NAMES } from "./programs.mjs";

const WASM_TARGET = "wasm32-unknown-unknown";

/** Installs everything that building needs, and the given programs. */
export async function setup({ programs = [], tests = false } = {}) {
  // Building needs what the package needs; Vitest needs a later Node.
  requireNode(tests ? 19 : 16);
  addCargoToPath();
  requireRustup();
  await installPackages();
  await installCompiler();
  await installToolchain();
  for (const name of programs) await findProgram(name);
}

function requireNode(leastMinor) {
  const [major, minor] = process.versions.node.split(".").map(Number);
  if (major > 20 || (major === 20 && minor >= leastMinor)) return;
  throw new Problem(
    `this is Node ${process.versions.node}; this needs 20.${leastMinor} or later. ` +
      "Get it from https://nodejs.org, or with a version manager: nvm install 20",
  );
}

/** A newly installed rustup is on the PATH only after the next login. */
function addCargoToPath() {
  const home = process.env.CARGO_HOME ?? join(process.env.HOME ?? "", ".cargo");
  const bin = join(home, "bin");
  const paths = (process.env.PATH ?? "").split(delimiter);
  if (existsSync(bin) && !paths.includes(bin)) process.env.PATH = [...paths, bin].join(delimiter);
}

function requireRustup() {
  // Run outside the repository: inside, the toolchain file would make rustup install a toolchain.
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

/** Rust links build scripts and macros with the system's C compiler. */
async function installCompiler() {
  if (process.platform !== "linux") return;
  if (ask("cc", ["--version"]) !== undefined) return;
  say("· a C compiler is missing (Rust links with it)");
  await aptInstall(["gcc", "libc6-dev"], "a C compiler");
}

/** rustup would install the toolchain at its first use, for minutes and without output. */
async function installToolchain() {
  if (ask("rustup", ["--version"], { cwd: "/" }) === undefined) return;
  const wanted = toolchain();
  const args = ["--no-self-update", "--profile", "minimal", "--target", WASM_TARGET];
  for (const component of COMPONENTS) args.push("--component", component);
  if (!isInstalled(wanted)) {
    say(`· rustup toolchain install ${wanted}`);
    await must("rustup", ["toolchain", "install", wanted, ...args], { cwd: "/" });
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

/** The environment's toolchain, or the one in the toolchain file. */
function toolchain() {
  const file = readFileSync(join(root, "rust-toolchain.toml"), "utf8");
  const named = /^channel\s*=\s*"([^"]+)"/m.exec(file)?.[1];
  return process.env.RUSTUP_TOOLCHAIN ?? named ?? "stable";
}

function isInstalled(wanted) {
  const names = (ask("rustup", ["toolchain", "list"], { cwd: "/" }) ?? "").split("\n");
  return names.some((name) => name.split(" ")[0].startsWith(wanted));
}

if (isMain(import.meta.url)) {
  entry(async () => {
    await setup({ programs: PROGRAM_NAMES });
    say("Everything is installed.");
  });
}
