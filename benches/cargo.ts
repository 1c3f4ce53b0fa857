import { spawnSync } from "node:child_process";
import { join } from "node:path";

const WASM = "wasm32-unknown-unknown";
/** The flags of the package's wasm: with SIMD. */
const WASM_ENV = { CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS: "-C target-feature=+simd128" };

/** Builds a program of benches/ in release mode and returns the target folder. */
export function cargoBuild(root: string, name: string, ...more: string[]): string {
  const target = join(root, "target", name);
  const manifest = join(root, "benches", name, "Cargo.toml");
  const { status, error } = spawnSync(
    "cargo",
    [
      "build",
      "--release",
      "--locked",
      "--manifest-path",
      manifest,
      "--target-dir",
      target,
      ...more,
    ],
    { stdio: ["ignore", "inherit", "inherit"], env: { ...process.env, ...WASM_ENV } },
  );
  if (error !== undefined) throw error;
  if (status !== 0) throw new Error(`cargo could not build benches/${name}`);
  return target;
}

/** Builds a library of benches/ as wasm and returns the module's path. */
export function cargoBuildWasm(root: string, name: string): string {
  const target = cargoBuild(root, name, "--lib", "--target", WASM);
  return join(target, WASM, "release", `${name}_bench.wasm`);
}
