/** Figures and names as they are shown. */

import { KIND, SKIPPABLE } from "./format.js";
import type { Slot, Totals } from "./scan.js";

const integers = new Intl.NumberFormat("en");

export function number(value: number): string {
  return integers.format(value);
}

export function size(bytes: number): string {
  if (bytes < 10_000) return `${number(bytes)} ${bytes === 1 ? "byte" : "bytes"}`;
  const [unit, scale] =
    bytes < 999_500 ? ["KB", 1e3] : bytes < 999_500_000 ? ["MB", 1e6] : ["GB", 1e9];
  const value = bytes / (scale as number);
  return `${value < 99.95 ? value.toFixed(1) : number(Math.round(value))} ${unit}`;
}

export function share(part: number, whole: number): string {
  if (whole === 0 || part === 0) return "0 %";
  const percent = (100 * part) / whole;
  return percent < 0.1
    ? "< 0.1 %"
    : `${percent < 9.95 ? percent.toFixed(1) : Math.round(percent)} %`;
}

export function counted(count: number, one: string, many = `${one}s`): string {
  return `${number(count)} ${count === 1 ? one : many}`;
}

/** What bytes can be, in the order in which they are drawn. */
export const CATEGORIES = ["live", "dead", "structure", "damaged", "torn", "free"] as const;

export type Category = (typeof CATEGORIES)[number];

export const CATEGORY_NAMES: Readonly<Record<Category, string>> = {
  live: "live records",
  dead: "replaced or deleted",
  structure: "index, headers, notes",
  damaged: "damaged",
  torn: "never committed",
  free: "free",
};

export function slotName(slot: Slot): string {
  switch (slot.kind) {
    case "log":
      return slot.isAbandoned ? "log, not needed any more" : "log";
    case "extent":
      return "a large value";
    case "checkpoint":
      return "index (checkpoint)";
    case "run":
      return "order of keys";
    case "unknown":
      return "of a newer version";
    case "free":
      return "free";
  }
}

export function parts(totals: Omit<Totals, "free">, whole: number): string {
  return CATEGORIES.filter((one) => one !== "free")
    .map((one) => [one, totals[one as keyof typeof totals]] as const)
    .filter(([, bytes]) => bytes > 0)
    .map(([one, bytes]) => `${CATEGORY_NAMES[one]} ${share(bytes, whole)}`)
    .join(", ");
}

export function kindName(kind: number): string {
  switch (kind) {
    case KIND.set:
      return "set";
    case KIND.delete:
      return "delete";
    case KIND.extent:
      return "set, large value";
    case KIND.chunked:
      return "set, in chunks";
    case KIND.clear:
      return "clear";
    case KIND.void:
      return "unused space";
    case KIND.transaction:
      return "note";
    case KIND.pastSet:
    case KIND.pastChunked:
      return "kept past value";
    default:
      return kind >= SKIPPABLE ? `kind ${kind}, skipped` : `kind ${kind}, of a newer version`;
  }
}
