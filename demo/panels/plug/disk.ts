/** A disk that can lose power: it records every sector that is written and every flush. */

import type { Storage, StorageFile } from "varve";

/** A disk writes a sector completely or not at all. */
export const SECTOR = 512;

type Step = { sector: number; content: Uint8Array } | "flush";

/** Which writes that were not flushed are on the disk when it loses power. */
export type Unflushed = "all" | "none" | "some";

/** Where a sector is after the power loss. */
export type SectorState = "empty" | "flushed" | "kept" | "lost";

/** A file in memory. */
export class MemoryFile implements StorageFile {
  constructor(protected bytes = new Uint8Array(0)) {}

  read(buffer: Uint8Array, { at }: { at: number }): number {
    const found = this.bytes.subarray(at, at + buffer.length);
    buffer.set(found);
    return found.length;
  }

  write(buffer: Uint8Array, { at }: { at: number }): number {
    if (at + buffer.length > this.bytes.length) this.truncate(at + buffer.length);
    this.bytes.set(buffer, at);
    return buffer.length;
  }

  truncate(size: number): void {
    const cut = new Uint8Array(size);
    cut.set(this.bytes.subarray(0, size));
    this.bytes = cut;
  }

  getSize(): number {
    return this.bytes.length;
  }

  flush(): void {}

  close(): void {}
}

/** A file whose writes and flushes are recorded, sector by sector. */
export class RecordedFile extends MemoryFile {
  readonly steps: Step[] = [];
  isRecording = true;

  override write(buffer: Uint8Array, { at }: { at: number }): number {
    const written = super.write(buffer, { at });
    if (!this.isRecording) return written;
    for (let sector = Math.floor(at / SECTOR); sector * SECTOR < at + written; sector++) {
      const content = new Uint8Array(SECTOR);
      content.set(this.bytes.subarray(sector * SECTOR, (sector + 1) * SECTOR));
      this.steps.push({ sector, content });
    }
    return written;
  }

  override flush(): void {
    if (this.isRecording) this.steps.push("flush");
  }

  /** All sectors that are ever written, in the order of the file. */
  sectors(): number[] {
    const all = this.steps.flatMap((step) => (step === "flush" ? [] : [step.sector]));
    return [...new Set(all)].sort((a, b) => a - b);
  }
}

/** A generator of numbers from 0 to 1, the same ones for the same seed (mulberry32). */
function random(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/**
 * What the disk holds if the power fails after so many steps. What was flushed is there. Of each sector that was written
 * since, any of its contents since then may be there, whatever the others are: disks write in an order of their own.
 */
export function afterPowerLoss(
  { steps }: RecordedFile,
  at: number,
  unflushed: Unflushed,
  seed: number,
): { image: Uint8Array<ArrayBuffer>; states: Map<number, SectorState> } {
  const next = random(seed * 1_000 + at);
  const done = steps.slice(0, at);
  const flushedSteps = done.lastIndexOf("flush") + 1;
  const versions = new Map<number, Uint8Array[]>();
  const disk = new Map<number, Uint8Array>();
  for (const [index, step] of done.entries()) {
    if (step === "flush") continue;
    if (index < flushedSteps) disk.set(step.sector, step.content);
    else versions.set(step.sector, [...(versions.get(step.sector) ?? []), step.content]);
  }
  const states = new Map<number, SectorState>([...disk.keys()].map((one) => [one, "flushed"]));
  for (const [sector, contents] of versions) {
    const last = contents.length;
    const chosen =
      unflushed === "all" ? last : unflushed === "none" ? 0 : Math.floor(next() * (last + 1));
    states.set(sector, chosen === last ? "kept" : "lost");
    const content = contents[chosen - 1];
    if (content !== undefined) disk.set(sector, content);
  }
  const image = new Uint8Array((Math.max(-1, ...disk.keys()) + 1) * SECTOR);
  for (const [sector, content] of disk) image.set(content, sector * SECTOR);
  return { image, states };
}

/** A storage with this file in it. */
export function storageOf(file: StorageFile): Storage {
  return { kind: "simulated disk", identity: () => file, open: async () => ({ file }) };
}
