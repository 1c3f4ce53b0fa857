import { createRequire } from "node:module";
import { join } from "node:path";

/** The rivals are installed separately, so that building varve does not require building them. */
export function rival(root: string, name: string): unknown {
  return createRequire(join(root, "benches/rivals/package.json"))(name);
}

/** Increments the counter in a value. */
export function increase(value: Buffer, at: number): void {
  value.writeUInt32LE((value.readUInt32LE(at) + 1) >>> 0, at);
}
