/** The calls for many keys: ranges, a page at a time, and keys that are looked for together. */

import type { Key } from "./bytes.js";
import { type KeyRange, type Page, RAW } from "./engine-memory.js";
import { EnginePoints } from "./engine-points.js";

const LOWER_EXCLUDED = 1;
const UPPER_INCLUDED = 2;
const BACKWARDS = 4;
const WITH_VALUES = 8;

function flagsOf({ lowerExcluded, upperIncluded, reverse }: KeyRange): number {
  return (
    (lowerExcluded ? LOWER_EXCLUDED : 0) |
    (upperIncluded ? UPPER_INCLUDED : 0) |
    (reverse ? BACKWARDS : 0)
  );
}

/** An instance whose keys can be asked for in order. */
export class EngineRanges extends EnginePoints {
  private onSorting: ((count: number) => void) | undefined = undefined;

  /**
   * Views of the values of several keys. What is in memory is looked for together: the processor fetches
   * it all at once. Looking for the others may kill the views of these.
   */
  getMany(keys: readonly Key[], keyspace = RAW): (Uint8Array<ArrayBuffer> | undefined)[] {
    const views: (Uint8Array<ArrayBuffer> | undefined)[] = [];
    while (views.length < keys.length) {
      const count = this.encodeMany(keys, views.length);
      this.call(() => this.wasm.find_many(keyspace, count));
      for (const index of this.viewsOfMany(count, views)) {
        views[index] = this.get(keys[index] as Key, keyspace);
      }
    }
    return views;
  }

  count(keyspace = RAW): number {
    return this.call(() => this.wasm.count(keyspace));
  }

  countRange(range: KeyRange, keyspace = RAW): number {
    this.sort();
    const [lower, upper] = this.encodeBounds(range);
    const flags = flagsOf(range);
    return this.counted(() => this.wasm.count_range(keyspace, lower, upper, flags));
  }

  /** Sorts a part of the keys, of which the first range sorts all at once. Says whether there are more. */
  sortPart(): boolean {
    const more = this.counted(() => this.wasm.sort_part()) > 0;
    if (!more) this.onSorting = undefined;
    return more;
  }

  /** Deletes the first keys of a range, at most so many: all of them or, if it throws, none. Says how many. */
  clear(range: KeyRange, limit: number, keyspace = RAW): number {
    if (range.lower !== undefined || range.upper !== undefined) this.sort();
    const [lower, upper] = this.encodeBounds(range);
    const flags = flagsOf(range);
    const before = this.call(() => this.wasm.pending());
    this.changes += 1;
    this.tellCleared(keyspace);
    const count = this.call(() => this.wasm.clear(keyspace, lower, upper, flags, limit));
    if (count >= 0) return count;
    const code = this.u32[this.codeAt] as number;
    // Where there was no group, none is lost.
    throw before === 0 ? this.failure(code) : this.writeFailure(code);
  }

  private counted(wasmCall: () => number): number {
    const count = this.call(wasmCall);
    if (count < 0) throw this.failure(this.u32[this.codeAt] as number);
    return count;
  }

  /** The first keys of a range, at most so many. */
  scan(range: KeyRange, maxKeys: number, withValues = false, keyspace = RAW): Page {
    this.sort();
    const [lower, upper] = this.encodeBounds(range);
    const flags = flagsOf(range) | (withValues ? WITH_VALUES : 0);
    const at = this.call(() => this.wasm.scan(keyspace, lower, upper, flags, maxKeys)) >>> 0;
    if (at === 0) throw this.failure(this.u32[this.codeAt] as number);
    return this.pageAt(at, maxKeys, withValues);
  }

  /**
   * The address of the value of the key with this number on a page; 0 when there is none. Its length is
   * `foundLength()`.
   */
  findOnPage(page: Page, index: number, keyspace: number): number {
    const { numbers, values } = page;
    if (page.changes === this.changes) {
      const at = numbers[values + 2 * index] as number;
      this.u32[this.lengthAt] = numbers[values + 2 * index + 1] as number;
      if (at !== 0) return at;
    }
    const start = numbers[index] as number;
    const end = numbers[index + 1] as number;
    this.encodeFromPage(page.bytes, start, end);
    return this.find(end - start, keyspace);
  }

  /**
   * Hears how many bytes each part brings that the first range reads to sort the keys. What it throws ends
   * that range.
   */
  hearSorting(onBytes: (count: number) => void): void {
    this.onSorting = onBytes;
  }

  /**
   * Sorts the keys for somebody who hears of it. He may call anything, another range too, and so hears of it
   * between calls and never within one.
   */
  private sort(): void {
    const { host, onSorting } = this;
    for (let more = onSorting !== undefined; more; ) {
      const before = host.readBytes;
      more = this.sortPart();
      if (host.readBytes > before) onSorting?.(host.readBytes - before);
    }
  }
}
