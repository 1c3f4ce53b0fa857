/**
 * Which record of each key counts: hash tables in typed arrays, of 31 bytes for each slot, because a `Map` of millions of keys
 * would take several times as much. Keys are known by 64 bits of a hash.
 */

import { pad8, type RecordHeader } from "./format.js";

const EMPTY = 0;
/** Tables grow one by one, so that none takes long. */
const TABLES = 1024;

/** What is known of the record that counts for a key. */
export type Visit = (
  position: number,
  size: number,
  kind: number,
  keyspace: number,
  version: number,
) => void;

export class KeyTable {
  readonly #tables = new Array<Table | undefined>(TABLES);
  #lo = 0;
  #hi = 0;

  /**
   * Notes a record at a position, in eights from the first slot on. It counts unless an earlier one has a larger version.
   * Returns the position of the record that does not count any more, its own or another, or -1.
   */
  put(data: DataView, record: RecordHeader, position: number): number {
    this.#hash(data, record);
    const index = this.#hi % TABLES;
    const table = this.#tables[index] ?? new Table();
    this.#tables[index] = table;
    return table.put(this.#lo, this.#hi, record, position);
  }

  /** Passes on the record that counts for each key, of one table after another. */
  *visits(visit: Visit): Generator<void> {
    for (const table of this.#tables) {
      table?.forEach(visit);
      yield;
    }
  }

  /** Keys are followed by zeros up to a multiple of 8, so that whole words are read. */
  #hash(data: DataView, { keyAt, keyLength, keyspace }: RecordHeader): void {
    let [a, b] = [0x9e37_79b1 ^ keyLength, 0x85eb_ca77 ^ keyspace];
    const end = keyAt + pad8(keyLength);
    for (let at = keyAt; at < end; at += 4) {
      const word = data.getUint32(at, true);
      a = Math.imul(a ^ word, 0x9e37_79b1);
      a = (a << 13) | (a >>> 19);
      b = Math.imul(b ^ word, 0xc2b2_ae3d);
      b = (b << 17) | (b >>> 15);
    }
    a = Math.imul(a ^ (b >>> 15) ^ keyspace, 0x85eb_ca77);
    b = Math.imul(b ^ (a >>> 13) ^ keyLength, 0x27d4_eb2f);
    this.#lo = (a ^ (a >>> 16)) >>> 0;
    this.#hi = (b ^ (b >>> 15)) >>> 0;
  }
}

/** An open table of the keys with some hashes. */
class Table {
  #capacity = 8;
  #count = 0;
  #hashes = new Uint32Array(2 * this.#capacity);
  /** Position of the record, less that of the first slot, divided by 8, plus 1; 0 in an unused slot. */
  #positions = new Uint32Array(this.#capacity);
  #sizes = new Uint32Array(this.#capacity);
  #versions = new Float64Array(this.#capacity);
  #kinds = new Uint8Array(this.#capacity);
  #keyspaces = new Uint16Array(this.#capacity);

  put(lo: number, hi: number, record: RecordHeader, position: number): number {
    if (this.#count * 4 >= this.#capacity * 3) this.#grow();
    const slot = this.#find(lo, hi);
    const known = this.#positions[slot]!;
    if (known !== EMPTY && this.#versions[slot]! > record.version) return position;
    if (known === EMPTY) this.#count += 1;
    this.#hashes[2 * slot] = lo;
    this.#hashes[2 * slot + 1] = hi;
    this.#positions[slot] = position + 1;
    this.#sizes[slot] = record.size;
    this.#versions[slot] = record.version;
    this.#kinds[slot] = record.kind;
    this.#keyspaces[slot] = record.keyspace;
    return known - 1;
  }

  forEach(visit: Visit): void {
    for (let slot = 0; slot < this.#capacity; slot += 1) {
      const position = this.#positions[slot]!;
      if (position === EMPTY) continue;
      visit(
        position - 1,
        this.#sizes[slot]!,
        this.#kinds[slot]!,
        this.#keyspaces[slot]!,
        this.#versions[slot]!,
      );
    }
  }

  #find(lo: number, hi: number): number {
    const mask = this.#capacity - 1;
    for (let slot = lo & mask; ; slot = (slot + 1) & mask) {
      if (this.#positions[slot] === EMPTY) return slot;
      if (this.#hashes[2 * slot] === lo && this.#hashes[2 * slot + 1] === hi) return slot;
    }
  }

  #grow(): void {
    const [hashes, positions, sizes] = [this.#hashes, this.#positions, this.#sizes];
    const [versions, kinds, keyspaces] = [this.#versions, this.#kinds, this.#keyspaces];
    const before = this.#capacity;
    this.#capacity *= 2;
    this.#hashes = new Uint32Array(2 * this.#capacity);
    this.#positions = new Uint32Array(this.#capacity);
    this.#sizes = new Uint32Array(this.#capacity);
    this.#versions = new Float64Array(this.#capacity);
    this.#kinds = new Uint8Array(this.#capacity);
    this.#keyspaces = new Uint16Array(this.#capacity);
    for (let from = 0; from < before; from += 1) {
      if (positions[from] === EMPTY) continue;
      const [lo, hi] = [hashes[2 * from]!, hashes[2 * from + 1]!];
      const slot = this.#find(lo, hi);
      this.#hashes[2 * slot] = lo;
      this.#hashes[2 * slot + 1] = hi;
      this.#positions[slot] = positions[from]!;
      this.#sizes[slot] = sizes[from]!;
      this.#versions[slot] = versions[from]!;
      this.#kinds[slot] = kinds[from]!;
      this.#keyspaces[slot] = keyspaces[from]!;
    }
  }
}
