/**
 * Import markers: written in place of the first superblock while a file is being filled or replaced, so that it is
 * not a database at that time (`database/import.ts`; FORMAT.md, 10a).
 */

import type { StorageFile } from "./storage.js";

export type Mark = Uint8Array<ArrayBuffer>;

/** The markers. No superblock starts with the first bytes of one. */
export const IMPORTING: Mark = mark("filling varve\r\n\x1a");
export const CHANGING: Mark = mark("changes varve\r\n\x1a");

function mark(text: string): Mark {
  return Uint8Array.from({ length: 16 }, (_, i) => text.charCodeAt(i));
}

/** The marker of a file, if it has one. A marker that a crash has cut off counts, too. */
export function markOf(file: StorageFile): Mark | undefined {
  const found = new Uint8Array(16);
  const count = file.read(found, { at: 0 });
  const isStartOf = (one: Mark) => found.subarray(0, count).every((byte, i) => byte === one[i]);
  return count === 0 ? undefined : [IMPORTING, CHANGING].find(isStartOf);
}
