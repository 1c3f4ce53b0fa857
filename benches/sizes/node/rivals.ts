import { createRequire } from "node:module";
import { join } from "node:path";

/** The rivals are installed apart, so that nobody who builds varve has to build them. */
export function rival(root: string, name: string): unknown {
  return createRequire(join(root, "benches/rivals/package.json"))(name);
}

/** Counts up the four bytes of a value that an update changes. */
export function increase(value: Buffer, at: number): void {
  value.writeUInt32LE((value.readUInt32LE(at) + 1) >>> 0, at);
}
