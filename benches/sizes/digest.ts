import { createXXHash3 } from "hash-wasm";
import type { Digest } from "./workload.js";

const BLOCK = 1 << 18;

/** XXH3-64 over all keys and values in order. */
export async function newDigest(): Promise<Digest> {
  const hasher = await createXXHash3();
  hasher.init();
  const block = new Uint8Array(BLOCK);
  let filled = 0;
  let pairs = 0;
  return {
    add(key, value) {
      if (filled + key.length + value.length > BLOCK) {
        hasher.update(block.subarray(0, filled));
        filled = 0;
      }
      block.set(key, filled);
      block.set(value, filled + key.length);
      filled += key.length + value.length;
      pairs += 1;
    },
    end() {
      hasher.update(block.subarray(0, filled));
      return `${hasher.digest("hex")} of ${pairs.toLocaleString("en")} pairs`;
    },
  };
}
