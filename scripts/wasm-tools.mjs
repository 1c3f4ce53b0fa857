// The tools that build and test Rust programs for browsers. Only the suites of such programs need them: nothing else
// installs them.

import { readFileSync } from "node:fs";
import { delimiter, join } from "node:path";
import { ask, execute, must, root, say } from "./lib.mjs";

const FOLDER = ".build/wasm-tools";
const EXAMPLE = "crate/examples/web-drop";

/** The folder of the tests that are in Rust. */
export const TESTS = "crate/tests/web";

/** Built by cargo, because their other installers download programs. */
const TOOLS = {
  // The program and the crate that it serves must have the same version.
  "wasm-bindgen": {
    crate: "wasm-bindgen-cli",
    version: lockedVersion("wasm-bindgen"),
    // Without TLS, which it needs only for drivers of browsers on other machines.
    args: ["--no-default-features", "--bin", "wasm-bindgen", "--bin", "wasm-bindgen-test-runner"],
  },
  "wasm-pack": { crate: "wasm-pack", version: "0.15.1", args: [] },
};

/** The version of a crate that the tests in Rust are compiled with. */
function lockedVersion(name) {
  const lock = readFileSync(join(root, TESTS, "Cargo.lock"), "utf8");
  return new RegExp(`^name = "${name}"\nversion = "([^"]+)"`, "m").exec(lock)?.[1];
}

/** Installs those of these tools that are missing, for minutes the first time. */
export async function installWasmTools(names = Object.keys(TOOLS)) {
  for (const name of names) {
    const { crate, version, args } = TOOLS[name];
    if (ask(wasmTool(name), ["--version"])?.split(/\s/)[1] === version) continue;
    // Built without optimization: that takes a third of the time, and they have little to do.
    const install = ["install", "--debug", "--quiet", "--force", "--root", FOLDER];
    const command = [...install, `${crate}@${version}`, ...args];
    const env = {
      CARGO_PROFILE_DEV_DEBUG: "0",
      CARGO_TARGET_DIR: join(root, "target/wasm-tools"),
    };
    say(`· cargo ${command.join(" ")} --locked`);
    const { code } = await execute("cargo", [...command, "--locked"], { env });
    if (code === 0) continue;
    // A registry that lags behind may lack the newest of the crates in its lock file.
    say("· again, with the crates that the registry has");
    await must("cargo", command, { env });
  }
}

/** The path of an installed tool. */
export function wasmTool(name) {
  return join(root, FOLDER, "bin", name);
}

/** The environment in which wasm-pack finds the tools, and binaryen's optimizer. */
export function wasmToolsEnv() {
  const folders = [join(root, FOLDER, "bin"), join(root, "node_modules/.bin")];
  return {
    PATH: [...folders, process.env.PATH].join(delimiter),
    CARGO_TARGET_DIR: join(root, "target/web"),
  };
}

/** Builds the example, and returns its folder. */
export async function buildWebDrop() {
  await installWasmTools();
  await must("wasm-pack", ["build", "--target", "web", EXAMPLE, "--locked"], {
    env: wasmToolsEnv(),
  });
  return join(root, EXAMPLE);
}
