/**
 * XXH3-64 of more than 16 bytes with a seed, the checksum of the file (crate/FORMAT.md, section 1). Numbers of 64 bits are
 * two of 32, because a `bigint` for each step would take fifty times as long.
 */

/** A number of 64 bits: its lower and its upper half, each from 0 to 2^32 - 1. */
export interface Word {
  readonly lo: number;
  readonly hi: number;
}

const SECRET = Uint8Array.of(
  ...[0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad],
  ...[0x1c, 0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3],
  ...[0x67, 0x1f, 0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc],
  ...[0xff, 0x72, 0x21, 0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6],
  ...[0x81, 0x3a, 0x26, 0x4c, 0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65],
  ...[0x8b, 0x1b, 0x53, 0x2e, 0xa3, 0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19],
  ...[0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8, 0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9],
  ...[0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d, 0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31],
  ...[0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64, 0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb],
  ...[0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb, 0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0],
  ...[0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e, 0x2b, 0x16, 0xbe, 0x58, 0x7d],
  ...[0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce, 0x45, 0xcb, 0x3a, 0x8f],
  ...[0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e],
);

const TWO_32 = 0x1_0000_0000;
const STRIPE = 64;
/** The secret for each stripe of a block starts eight bytes after that for the one before it. */
const STRIPES = (SECRET.length - STRIPE) / 8;

const plain = new DataView(SECRET.buffer);
/** The secret with the seed added, for inputs of more than 240 bytes. */
const seeded = new DataView(new ArrayBuffer(SECRET.length));
let seededLo = 0;
let seededHi = 0;

/** The eight lanes of the long form, each as two halves. */
const lanes = new Uint32Array(16);
const START = Uint32Array.of(
  ...[0xc2b2_ae3d, 0, 0x85eb_ca87, 0x9e37_79b1, 0x27d4_eb4f, 0xc2b2_ae3d, 0x9e37_79f9, 0x1656_67b1],
  ...[0xc2b2_ae63, 0x85eb_ca77, 0x85eb_ca77, 0, 0x1656_67c5, 0x27d4_eb2f, 0x9e37_79b1, 0],
);

/** The upper half of the latest product; the sum of products, as two halves. */
let high = 0;
let sumLo = 0;
let sumHi = 0;

/** The lower half of a product of two numbers of 32 bits. */
function multiply(a: number, b: number): number {
  const a0 = a & 0xffff;
  const a1 = a >>> 16;
  const b0 = b & 0xffff;
  const b1 = b >>> 16;
  const middle = a1 * b0 + a0 * b1 + ((a0 * b0) >>> 16);
  high = a1 * b1 + Math.floor(middle / 0x1_0000);
  return Math.imul(a, b) >>> 0;
}

function add(lo: number, hi: number): void {
  const sum = sumLo + lo;
  sumLo = sum >>> 0;
  sumHi = (sumHi + hi + (sum >= TWO_32 ? 1 : 0)) >>> 0;
}

/** Adds the halves of the product of two numbers of 64 bits, combined by exclusive or, to the sum. */
function addFolded(aLo: number, aHi: number, bLo: number, bHi: number): void {
  const w0 = multiply(aLo, bLo);
  const carry0 = high;
  const crossA = multiply(aLo, bHi);
  const crossAHigh = high;
  const crossB = multiply(aHi, bLo);
  const crossBHigh = high;
  const top = multiply(aHi, bHi);
  const second = carry0 + crossA + crossB;
  const third = crossAHigh + crossBHigh + top + Math.floor(second / TWO_32);
  const w3 = high + Math.floor(third / TWO_32);
  add((w0 ^ third) >>> 0, (second ^ w3) >>> 0);
}

/** Mixes 16 bytes with 16 bytes of the secret, to which the seed is added, and adds them to the sum. */
function addPair(data: DataView, at: number, secret: number, seed: Word): void {
  const { lo, hi } = seed;
  const low = plain.getUint32(secret, true) + lo;
  const lowHigh = plain.getUint32(secret + 4, true) + hi + Math.floor(low / TWO_32);
  const up = plain.getUint32(secret + 8, true) - lo;
  const upHigh = plain.getUint32(secret + 12, true) - hi + Math.floor(up / TWO_32);
  addFolded(
    (data.getUint32(at, true) ^ low) >>> 0,
    (data.getUint32(at + 4, true) ^ lowHigh) >>> 0,
    (data.getUint32(at + 8, true) ^ up) >>> 0,
    (data.getUint32(at + 12, true) ^ upHigh) >>> 0,
  );
}

/** The sum, mixed so that each bit of the input changes about half of its bits. */
function avalanche(): void {
  // By 37 bits to the right.
  sumLo = (sumLo ^ (sumHi >>> 5)) >>> 0;
  const lo = multiply(sumLo, 0x9e37_79f9);
  const hi = high + Math.imul(sumLo, 0x1656_6791) + Math.imul(sumHi, 0x9e37_79f9);
  sumHi = hi >>> 0;
  sumLo = (lo ^ sumHi) >>> 0;
}

/** Starts the sum with the length times the first prime. */
function begin(length: number): void {
  sumLo = multiply(length, 0x85eb_ca87);
  sumHi = (high + Math.imul(length, 0x9e37_79b1)) >>> 0;
}

function useSeed({ lo, hi }: Word): void {
  if (seededLo === lo && seededHi === hi && seeded.getUint32(0, true) !== 0) return;
  for (let at = 0; at < SECRET.length; at += 16) {
    const low = plain.getUint32(at, true) + lo;
    seeded.setUint32(at, low, true);
    const lowHigh = plain.getUint32(at + 4, true) + hi + Math.floor(low / TWO_32);
    seeded.setUint32(at + 4, lowHigh, true);
    const up = plain.getUint32(at + 8, true) - lo;
    seeded.setUint32(at + 8, up, true);
    const upHigh = plain.getUint32(at + 12, true) - hi + Math.floor(up / TWO_32);
    seeded.setUint32(at + 12, upHigh, true);
  }
  [seededLo, seededHi] = [lo, hi];
}

function mixStripe(data: DataView, at: number, secret: number): void {
  for (let lane = 0; lane < 16; lane += 2) {
    const lo = data.getUint32(at + 4 * lane, true);
    const hi = data.getUint32(at + 4 * lane + 4, true);
    const other = lane ^ 2;
    const crossed = lanes[other]! + lo;
    lanes[other] = crossed;
    lanes[other + 1] = lanes[other + 1]! + hi + (crossed >= TWO_32 ? 1 : 0);
    const product = multiply(
      (lo ^ seeded.getUint32(secret + 4 * lane, true)) >>> 0,
      (hi ^ seeded.getUint32(secret + 4 * lane + 4, true)) >>> 0,
    );
    const sum = lanes[lane]! + product;
    lanes[lane] = sum;
    lanes[lane + 1] = lanes[lane + 1]! + high + (sum >= TWO_32 ? 1 : 0);
  }
}

function scramble(): void {
  const secret = SECRET.length - STRIPE;
  for (let lane = 0; lane < 16; lane += 2) {
    const [lo, hi] = [lanes[lane]!, lanes[lane + 1]!];
    // By 47 bits to the right.
    const mixedLo = (lo ^ (hi >>> 15) ^ seeded.getUint32(secret + 4 * lane, true)) >>> 0;
    const mixedHi = (hi ^ seeded.getUint32(secret + 4 * lane + 4, true)) >>> 0;
    lanes[lane] = multiply(mixedLo, 0x9e37_79b1);
    lanes[lane + 1] = high + Math.imul(mixedHi, 0x9e37_79b1);
  }
}

function long(data: DataView, from: number, length: number, seed: Word): void {
  useSeed(seed);
  lanes.set(START);
  // The bytes of the last stripe are left out here, so that no block is the last.
  const stripes = Math.floor((length - 1) / STRIPE);
  for (let i = 0; i < stripes; i += 1) {
    const inBlock = i % STRIPES;
    mixStripe(data, from + STRIPE * i, 8 * inBlock);
    if (inBlock === STRIPES - 1) scramble();
  }
  mixStripe(data, from + length - STRIPE, SECRET.length - STRIPE - 7);
  begin(length);
  for (let lane = 0; lane < 16; lane += 4) {
    const secret = 11 + 4 * lane;
    addFolded(
      (lanes[lane]! ^ seeded.getUint32(secret, true)) >>> 0,
      (lanes[lane + 1]! ^ seeded.getUint32(secret + 4, true)) >>> 0,
      (lanes[lane + 2]! ^ seeded.getUint32(secret + 8, true)) >>> 0,
      (lanes[lane + 3]! ^ seeded.getUint32(secret + 12, true)) >>> 0,
    );
  }
  avalanche();
}

/** The checksum of the bytes from `from` up to `to`, at least 17 of them. */
export function checksum(data: DataView, from: number, to: number, seed: Word): Word {
  const length = to - from;
  if (length < 17) throw new RangeError(`a checksum of ${length} bytes`);
  if (length > 240) {
    long(data, from, length, seed);
    return { lo: sumLo, hi: sumHi };
  }
  begin(length);
  if (length <= 128) {
    for (let i = (length - 1) >> 5; i >= 0; i -= 1) {
      addPair(data, from + 16 * i, 32 * i, seed);
      addPair(data, to - 16 * (i + 1), 32 * i + 16, seed);
    }
  } else {
    for (let i = 0; i < 8; i += 1) addPair(data, from + 16 * i, 16 * i, seed);
    avalanche();
    const parts = length >> 4;
    for (let i = 8; i < parts; i += 1) addPair(data, from + 16 * i, 16 * (i - 8) + 3, seed);
    addPair(data, to - 16, 119, seed);
  }
  avalanche();
  return { lo: sumLo, hi: sumHi };
}

/** The seed that binds bytes to their position in the file. */
export function seedAt(salt: Word, position: number): Word {
  const [below, above] = [position >>> 0, Math.floor(position / TWO_32)];
  const lo = multiply(below, 0x7f4a_7c15);
  const hi = (high + Math.imul(below, 0x9e37_79b9) + Math.imul(above, 0x7f4a_7c15)) >>> 0;
  return { lo: (salt.lo ^ lo) >>> 0, hi: (salt.hi ^ hi) >>> 0 };
}
