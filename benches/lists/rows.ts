/** The records of the lists: 130 bytes each as JSON. */

import { bool, f64, str, struct, u32 } from "varve/struct";

export const Note = struct("Note", {
  updated: f64,
  amount: u32,
  done: bool,
  title: str,
  author: str,
});

/** A record. */
export interface Row {
  updated: number;
  amount: number;
  done: boolean;
  title: string;
  author: string;
}

/** The numbers of records in a list. */
export const SIZES = [1_000, 10_000] as const;

export function keyOf(i: number): string {
  return `note/${String(i).padStart(6, "0")}`;
}

export function rowOf(i: number): Row {
  return {
    updated: 1_700_000_000_000 + i * 977,
    amount: (i * 7_919) % 100_000,
    done: i % 3 === 0,
    title: `What is to be done about number ${String(i).padStart(6, "0")}`,
    author: `author ${i % 50}`,
  };
}
