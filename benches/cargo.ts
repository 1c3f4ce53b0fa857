import { spawnSync } from "node:child_process";
import { join } from "node:path";

/** Builds a program of benches/ in release mode and gives the folder that it was built into. */
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
    { stdio: ["ignore", "inherit", "inherit"] },
  );
  if (error !== undefined) throw error;
  if (status !== 0) throw new Error(`cargo could not build benches/${name}`);
  return target;
}
