import type { Database } from "varve";

/*
 * The product drop: everybody wants the same pair of shoes. One record, many buyers; each reads the
 * product where it lies and takes one from the stock, if there is one.
 *
 * The record is musli-zerocopy's `struct Product { stock: u16, name: Ref<str> }`, so that a Rust
 * program reads the same bytes:
 *
 *   0  u16  stock
 *   2  two zero bytes, because the next field is 4-aligned
 *   4  u32  offset of the name from the record's start
 *   8  u32  length of the name in bytes
 *  12  the name, UTF-8
 */
const STOCK = 0;
const NAME_OFFSET = 4;
const NAME_LENGTH = 8;
const HEADER = 12;

export const PRODUCT_KEY = "yeezy";
export const PRODUCT_NAME = "Yeezy Boost 350 V2";

/** The stock is a u16 and one pair is left at the end, so one drop sells at most this many. */
export const MAX_CYCLES = 65_534;

export interface Product {
  stock: number;
  name: string;
}

export interface DropOptions {
  /** How many buyers come. The stock starts one above it. */
  cycles: number;
  /** Commit every purchase by its own write, instead of all of them by one at the end. */
  commitEach?: boolean;
}

export interface DropResult extends Product {
  cycles: number;
  ms: number;
  opsPerSecond: number;
}

const utf8 = new TextEncoder();
const text = new TextDecoder("utf-8", { fatal: true });

/** One product in musli-zerocopy's layout. */
export function encodeProduct({ stock, name }: Product): Uint8Array {
  const bytes = utf8.encode(name);
  const record = new Uint8Array(HEADER + bytes.length);
  const header = new DataView(record.buffer);
  header.setUint16(STOCK, stock, true);
  header.setUint32(NAME_OFFSET, HEADER, true);
  header.setUint32(NAME_LENGTH, bytes.length, true);
  record.set(bytes, HEADER);
  return record;
}

/** The stock, read from two bytes of the record. */
export function stockOf(record: Uint8Array): number {
  return record[STOCK]! | (record[STOCK + 1]! << 8);
}

function u32At(record: Uint8Array, at: number): number {
  return (
    (record[at]! | (record[at + 1]! << 8) | (record[at + 2]! << 16) | (record[at + 3]! << 24)) >>> 0
  );
}

/** The name as a string. The bytes are decoded where they lie. */
export function nameOf(record: Uint8Array): string {
  const start = u32At(record, NAME_OFFSET);
  const end = start + u32At(record, NAME_LENGTH);
  if (end > record.length) throw new RangeError("the record is too short for its name");
  return text.decode(record.subarray(start, end));
}

/** Whether the record carries this name: its bytes are read in place and no string is made. */
export function nameIs(record: Uint8Array, name: Uint8Array): boolean {
  const start = u32At(record, NAME_OFFSET);
  const length = u32At(record, NAME_LENGTH);
  if (length !== name.length || start + length > record.length) return false;
  for (let i = 0; i < length; i++) {
    if (record[start + i] !== name[i]) return false;
  }
  return true;
}

function inStock(record: Uint8Array): boolean {
  return stockOf(record) > 0;
}

/** Lowers the stock, which must not be empty, by one. */
export function takeOne(record: Uint8Array): void {
  const stock = stockOf(record) - 1;
  record[STOCK] = stock & 0xff;
  record[STOCK + 1] = stock >>> 8;
}

/** What a shopper would see now. Also the check after closing and opening again. */
export function readProduct(db: Database): Product {
  const record = db.get(PRODUCT_KEY);
  if (record === undefined) throw new Error(`the database holds no product "${PRODUCT_KEY}"`);
  return { stock: stockOf(record), name: nameOf(record) };
}

/** Fills the shelf for a drop and commits it, so that a drop measures the purchases alone. */
export function restock(db: Database, cycles: number): void {
  if (!Number.isInteger(cycles) || cycles < 1 || cycles > MAX_CYCLES) {
    throw new RangeError(`a drop has 1 to ${MAX_CYCLES} cycles, not ${cycles}`);
  }
  db.set(PRODUCT_KEY, encodeProduct({ stock: cycles + 1, name: PRODUCT_NAME }));
  db.commit();
}

/** Serves the buyers and commits. The stock must suffice for all of them. */
export function serveBuyers(db: Database, { cycles, commitEach = false }: DropOptions): void {
  const expected = utf8.encode(PRODUCT_NAME);
  const guarded = { predicate: inStock };
  for (let cycle = 0; cycle < cycles; cycle++) {
    const record = db.get(PRODUCT_KEY);
    if (record === undefined || stockOf(record) === 0 || !nameIs(record, expected)) {
      throw new Error(`buyer ${cycle + 1} of ${cycles} found no product to buy`);
    }
    if (!db.updateIf(PRODUCT_KEY, takeOne, guarded)) {
      throw new Error(`buyer ${cycle + 1} of ${cycles} was refused`);
    }
    if (commitEach) db.commit();
  }
  db.commit();
}

/**
 * Runs one drop. All of it is one synchronous turn; when it returns, everything is written to the file.
 * The time is that of the purchases and of their commits, not of filling the shelf before them.
 */
export function productDrop(db: Database, options: DropOptions): DropResult {
  restock(db, options.cycles);
  const start = performance.now();
  serveBuyers(db, options);
  const ms = performance.now() - start;
  return {
    ...readProduct(db),
    cycles: options.cycles,
    ms,
    opsPerSecond: Math.round((options.cycles / ms) * 1000),
  };
}
