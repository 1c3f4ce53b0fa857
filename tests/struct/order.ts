/** A struct with a field of most kinds, a value of it, and a memory that contains the value. */

import {
  array,
  blob,
  bool,
  bytes,
  enum8,
  fixedStr,
  type Memory,
  option,
  optNonZero,
  str,
  struct,
  u8,
  u16,
  u32,
  union,
  vec,
} from "varve/struct";

export const Size = struct("Size", { width: u16, height: u16 });

export const Line = struct("Line", { title: str, count: u8 });

export const Order = struct("Order", {
  id: u32,
  note: str,
  paid: bool,
  state: enum8("open", "sent"),
  size: Size,
  tags: vec(str),
  marks: vec(u16),
  grid: array(u8, 3),
  key: bytes(4),
  data: blob,
  code: fixedStr(6),
  gift: option(str),
  rank: optNonZero(u32),
  by: union({ Cash: u32, Card: str, Box: Size, Free: null }),
  lines: vec(Line),
});

export const order = {
  id: 7,
  note: "first",
  paid: true,
  state: "sent",
  size: { width: 3, height: 4 },
  tags: ["a", "grün"],
  marks: [1, 2, 3],
  grid: [9, 8, 7],
  key: Uint8Array.of(1, 2, 3, 4),
  data: Uint8Array.of(5, 6),
  code: "abc",
  gift: "yes",
  rank: undefined,
  by: { type: "Card", value: "1234" },
  lines: [{ title: "one", count: 1 }],
} as const;

/** A memory like that of a database, with the value's bytes between others. */
export function memoryOf(value: Uint8Array): Memory {
  const u8 = new Uint8Array(value.length + 128).fill(0xee);
  u8.set(value, 64);
  return { u8, data: new DataView(u8.buffer), epoch: 5 };
}

export function written(memory: Memory, length: number): Uint8Array {
  return memory.u8.slice(64, 64 + length);
}
