/**
 * New databases with small segments. No option of `open` creates them, but every file that has them can be
 * opened. In them, a short program reaches states that otherwise take megabytes: commits of several frames,
 * extents, cold records, reused memory.
 */

import type { Storage } from "varve";

/** The checksums of both superblocks (FORMAT.md, section 3), by segment size. */
const CHECKS: Readonly<Record<number, readonly [bigint, bigint]>> = {
  12: [0x8afd_95fc_37f2_77cen, 0xe41c_5eef_9d73_dcaan],
  14: [0xfe27_1bfe_7925_146dn, 0x3dbb_1532_c86c_77e8n],
  16: [0xb832_ef07_c79d_da71n, 0x8c10_9545_d358_8e04n],
};

const MAGIC = 0x1a0a_0d65_7672_6176n;
const FILE_ID = [0x0123_4567_89ab_cdefn, 0xfedc_ba98_7654_3210n] as const;
const HASH_SEED = [0x5eed_0000_0000_0001n, 0x5eed_0000_0000_0002n] as const;
const SUPERBLOCK = 256;
const STRIDE = 4_096;
const DATA_START = 8_192;

/** Creates a database under this name whose segments have `1 << segmentLog2` bytes. */
export async function createWithSegments(
  storage: Storage,
  name: string,
  segmentLog2: number,
): Promise<void> {
  const { file } = await storage.open(name);
  try {
    const image = new Uint8Array(STRIDE + SUPERBLOCK);
    for (const slot of [0, 1]) image.set(superblock(segmentLog2, slot), slot * STRIDE);
    file.write(image, { at: 0 });
    file.flush();
  } finally {
    file.close();
  }
}

function superblock(segmentLog2: number, slot: number): Uint8Array {
  const checks = CHECKS[segmentLog2];
  if (checks === undefined) throw new Error(`there are no segments of 2^${segmentLog2} bytes here`);
  const view = new DataView(new ArrayBuffer(SUPERBLOCK));
  const words: [at: number, value: bigint][] = [
    [0, MAGIC],
    [8, checks[slot as 0 | 1]],
    [40, FILE_ID[0]],
    [48, FILE_ID[1]],
    [56, HASH_SEED[0]],
    [64, HASH_SEED[1]],
    [72, BigInt(slot + 1)],
    [112, BigInt(DATA_START)],
  ];
  // next_version, next_frame, next_sequence, first_sequence, first_frame
  for (const at of [88, 96, 120, 128, 136]) words.push([at, 1n]);
  for (const [at, value] of words) view.setBigUint64(at, value, true);
  view.setUint16(16, 1, true);
  view.setUint8(20, segmentLog2);
  view.setUint16(22, 1, true);
  return new Uint8Array(view.buffer);
}
