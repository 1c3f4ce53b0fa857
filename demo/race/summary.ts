import {
  REFERENCE,
  STORES,
  type StoreId,
  storeInfo,
  WORKLOADS,
  type WorkloadInfo,
} from "./plan.js";
import type { Results } from "./results.js";
import { factor, SAME } from "./words.js";

/** The stores that are not varve, and store something. */
const RIVALS: readonly StoreId[] = STORES.map(({ id }) => id).filter(
  (id) => !id.startsWith("varve") && id !== "map",
);

interface Met {
  workload: WorkloadInfo;
  /** The fastest of the others, and how many times its time is that of varve. */
  rival: StoreId;
  ratio: number;
}

/** One sentence about where varve is ahead and where it is behind, or `undefined` if nothing can be compared. */
export function summaryOf({ rows }: Results): string | undefined {
  const met = WORKLOADS.flatMap((workload): Met[] => {
    const row = rows[workload.id];
    const own = row?.[REFERENCE];
    if (own?.kind !== "measured") return [];
    const others = RIVALS.flatMap((rival) => {
      const outcome = row?.[rival];
      return outcome?.kind === "measured"
        ? [{ workload, rival, ratio: outcome.p50 / own.p50 }]
        : [];
    });
    return others.sort((a, b) => a.ratio - b.ratio).slice(0, 1);
  });
  if (met.length === 0) return undefined;
  const behind = met.filter(({ ratio }) => 1 / ratio >= SAME);
  const ahead = met.length - behind.length;
  const losses = behind.map(
    ({ workload, rival, ratio }) =>
      `${workload.title} (${storeInfo(rival).name} is ${factor(1 / ratio)} as fast)`,
  );
  const begin = `varve, written, has the shortest median of the stores, or one within 5 % of it, in ${ahead} of ${met.length} workloads`;
  return losses.length === 0 ? `${begin}.` : `${begin}. It is behind in ${losses.join(", ")}.`;
}
