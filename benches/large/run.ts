import { bulkLoad } from "./bulk.js";
import { coldReads } from "./cold.js";
import { memoryPerKey } from "./memory.js";
import type { Amounts, LargeResult, Platform } from "./platform.js";
import { largeValues } from "./values.js";

const MIB = 1_048_576;

export function amountsFor(quick: boolean): Amounts {
  return quick
    ? {
        samples: 3,
        coldMemory: 16 * MIB,
        coldReads: 8_192,
        valueBytes: 16 * MIB,
        bulkBytes: 100e6,
        bulkSamples: 1,
        memoryKeys: 100_000,
      }
    : {
        samples: 9,
        coldMemory: 64 * MIB,
        coldReads: 16_384,
        valueBytes: 64 * MIB,
        bulkBytes: 1e9,
        bulkSamples: 3,
        memoryKeys: 1_000_000,
      };
}

export async function runLarge(platform: Platform, amounts: Amounts): Promise<LargeResult> {
  const parts = [
    await coldReads(platform, amounts),
    await largeValues(platform, amounts),
    await bulkLoad(platform, amounts),
    await memoryPerKey(platform, amounts),
  ];
  return {
    lines: parts.flatMap(({ lines }) => lines),
    notes: parts.flatMap(({ notes }) => notes),
  };
}
