import { encoder } from "../util/text-coders.js";

/** The fingerprint of a layout: FNV-1a-64 (Fowler, Noll, Vo) of a text's UTF-8. */
export function fingerprint(layout: string): string {
  let hash = 0xcbf2_9ce4_8422_2325n;
  for (const byte of encoder.encode(layout)) {
    hash = BigInt.asUintN(64, (hash ^ BigInt(byte)) * 0x100_0000_01b3n);
  }
  return hash.toString(16).padStart(16, "0");
}
