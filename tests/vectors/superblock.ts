/** Reads the superblock (section 3, and section 9, step 1). */

import {
  CORRUPTION,
  checksum,
  DATA_START,
  FormatError,
  KNOWN_INCOMPATIBLE,
  NOT_A_DATABASE,
  SLOT_STRIDE,
  SUPERBLOCK,
  SUPERBLOCK_MAGIC,
  SUPERBLOCK_SEED,
  type Superblock,
  seedAt,
  UNSUPPORTED_FORMAT,
  u64,
  viewOf,
} from "./layout.js";

type Found = "damaged" | "empty" | "unfinished" | "foreign";

/** Section 9, step 1. `undefined` for an unfinished creation. */
export async function readSuperblock(file: Uint8Array): Promise<Superblock | undefined> {
  const valid: Superblock[] = [];
  const found: Found[] = [];
  for (const slot of [0, 1]) {
    const bytes = file.subarray(slot * SLOT_STRIDE, slot * SLOT_STRIDE + SUPERBLOCK);
    const result = await readSlot(bytes, slot);
    if (typeof result === "string") found.push(result);
    else valid.push(result);
  }
  const counts = valid.sort((a, b) => b.generation - a.generation)[0];
  if (counts !== undefined) {
    if (counts.generation === 1 && file.length <= DATA_START) return undefined;
    if (counts.generation > 2 && file.length < SLOT_STRIDE + SUPERBLOCK) throw lostSuperblocks();
    return { ...counts, hasCopy: valid.length === 2 };
  }
  const elsewhere = file.some((byte, at) => byte !== 0 && at % SLOT_STRIDE >= SUPERBLOCK);
  if (file.length <= DATA_START && !found.includes("foreign") && !elsewhere) return undefined;
  if (found.includes("damaged")) throw lostSuperblocks();
  throw new FormatError(NOT_A_DATABASE);
}

function lostSuperblocks(): FormatError {
  return corruption({ position: 0, expectedFrame: 0, flushedFrames: 0 });
}

export function corruption(damage: {
  position: number;
  expectedFrame: number;
  flushedFrames: number;
  intactFrames?: number;
  intactBytes?: number;
}): FormatError {
  return new FormatError(CORRUPTION, { intactFrames: 0, intactBytes: 0, ...damage });
}

async function readSlot(bytes: Uint8Array, slot: number): Promise<Superblock | Found> {
  if (bytes.every((byte) => byte === 0)) return "empty";
  const magic = [...bytes.subarray(0, 8)];
  const wrong = magic.findIndex((byte, i) => byte !== SUPERBLOCK_MAGIC[i]);
  if (wrong >= 0 || magic.length < 8) {
    const torn = wrong !== 0 && magic.slice(wrong < 0 ? 8 : wrong).every((byte) => byte === 0);
    return torn ? "unfinished" : "foreign";
  }
  if (bytes.length < SUPERBLOCK) return "damaged";
  const view = viewOf(bytes);
  const check = await checksum(bytes.subarray(16), seedAt(SUPERBLOCK_SEED, slot * SLOT_STRIDE));
  if (check !== view.getBigUint64(8, true)) return "damaged";
  refuseUnsupported(view);
  const segmentLog2 = view.getUint8(20);
  const counts = [u64(view, 72), u64(view, 88), u64(view, 96), u64(view, 136)];
  const sane = counts.every((count) => count > 0 && count < 2 ** 56);
  if (segmentLog2 < 12 || segmentLog2 > 24 || !sane) throw lostSuperblocks();
  return {
    segmentLog2,
    clean: (view.getUint16(22, true) & 1) !== 0,
    fileId: view.getBigUint64(40, true),
    generation: u64(view, 72),
    nextFrame: u64(view, 96),
    firstSequence: u64(view, 128),
    firstFrame: u64(view, 136),
    checkpointSequence: u64(view, 144),
    checkpointFrame: u64(view, 152),
    checkpointSlot: u64(view, 168),
    hasCopy: false,
  };
}

/** The log is history; what is current follows from it as always. */
const KEEPS_HISTORY = 1;

function refuseUnsupported(view: DataView): void {
  const major = view.getUint16(16, true);
  const features = Number(view.getBigUint64(24, true) & ~KNOWN_INCOMPATIBLE);
  const newer = major !== 1 || features !== 0 || (view.getUint8(21) & ~KEEPS_HISTORY) !== 0;
  if (newer) throw new FormatError(UNSUPPORTED_FORMAT, { major, features });
}
