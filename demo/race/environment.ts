/** What is known of the browser and the device, and what may disturb a race. */

import type { Machine } from "./results.js";

/** Members of `navigator` that TypeScript's types lack. */
interface MoreNavigator {
  deviceMemory?: number;
  userAgentData?: { brands: { brand: string; version: string }[]; platform: string };
}

/** The clock's step in milliseconds, as seen: browsers make it coarse. */
export function clockStep(): number {
  let least = Number.POSITIVE_INFINITY;
  for (let i = 0; i < 5; i++) {
    const start = performance.now();
    let now = start;
    while (now === start) now = performance.now();
    least = Math.min(least, now - start);
  }
  return Number(least.toPrecision(2));
}

const BROWSERS: readonly [RegExp, string][] = [
  [/Edg\/(\d+)/, "Edge"],
  [/OPR\/(\d+)/, "Opera"],
  [/Firefox\/(\d+)/, "Firefox"],
  [/(?:Headless)?Chrome\/(\d+)/, "Chromium"],
  [/Version\/(\d+(?:\.\d+)?).*Safari/, "Safari"],
];

const SYSTEMS: readonly [RegExp, string][] = [
  [/Android/, "Android"],
  [/iPhone|iPad/, "iOS"],
  [/Mac OS X/, "macOS"],
  [/Windows/, "Windows"],
  [/CrOS/, "ChromeOS"],
  [/Linux/, "Linux"],
];

export function thisMachine(): Machine {
  const { userAgent, hardwareConcurrency } = navigator;
  const { deviceMemory = 0 } = navigator as MoreNavigator;
  let browser = "unknown browser";
  for (const [pattern, name] of BROWSERS) {
    const found = pattern.exec(userAgent);
    if (found === null) continue;
    browser = `${name} ${found[1]}`;
    break;
  }
  const system = SYSTEMS.find(([pattern]) => pattern.test(userAgent))?.[1] ?? "unknown system";
  return { browser, system, cores: hardwareConcurrency, memory: deviceMemory, clock: clockStep() };
}

/** Why no race can be run here, or `undefined`. Checked before anything starts. */
export async function missingSupport(): Promise<string | undefined> {
  if (!self.isSecureContext) {
    return "This page was not loaded securely, so the browser offers no file storage. Open it by https or as http://localhost.";
  }
  if (typeof navigator.storage?.getDirectory !== "function") {
    return "This browser has no private file system (OPFS), or has disabled it. Some browsers disable it in private windows; try an ordinary window.";
  }
  try {
    await navigator.storage.getDirectory();
  } catch (error) {
    return `This browser refuses its private file system (OPFS): ${String(error)}. In a private window it may be disabled; try an ordinary window.`;
  }
  return undefined;
}

/** Milliseconds of a write of 4 KiB to a private file and of a flush. */
export interface FileTimes {
  write: number;
  flush: number;
}

/** Sentences about what makes the figures of this window unlike those of others. */
export function disturbances({ write, flush }: FileTimes, step: number): string[] {
  const notes: string[] = [];
  // On a disk, a flush takes longer than a write. Browsers hide from pages whether a window is private.
  if (flush < write / 4) {
    notes.push(
      "This looks like a private window: flushing a file takes no time here, so that storage is in memory. Figures are unlike those of an ordinary window.",
    );
  }
  if (step > 2) {
    notes.push(
      `This browser's clock has steps of ${step} ms, so that slices are long and percentiles rough.`,
    );
  }
  return notes;
}
