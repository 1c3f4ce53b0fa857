/**
 * What stands where the first superblock of a database should be, in a file that is none yet or no
 * more: it is being filled, or changed for another (`database/import.ts`; FORMAT.md, 10a).
 */

import type { StorageFile } from "./storage.js";

export type Mark = Uint8Array<ArrayBuffer>;

/** Not a beginning of what a superblock has there. */
export const IMPORTING: Mark = mark("filling varve\r\n\x1a");
export const CHANGING: Mark = mark("changes varve\r\n\x1a");

function mark(text: string): Mark {
  return Uint8Array.from({ length: 16 }, (_, i) => text.charCodeAt(i));
}

/** Which mark a file has. One that a crash has cut off is one, too. */
export function markOf(file: StorageFile): Mark | undefined {
  const found = new Uint8Array(16);
  const count = file.read(found, { at: 0 });
  const isStartOf = (one: Mark) => found.subarray(0, count).every((byte, i) => byte === one[i]);
  return count === 0 ? undefined : [IMPORTING, CHANGING].find(isStartOf);
}
