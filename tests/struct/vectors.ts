import text from "../vectors/structs.json" with { type: "json" };
import turned from "../vectors/structs-reversed.json" with { type: "json" };
import type { StructKind } from "./kinds.js";

/** A type with values of it, in the form of Rust. */
export interface Vector {
  name: string;
  about: string;
  size: number;
  align: number;
  fields: [name: string, offset: number, size: number][];
  layout: string;
  fingerprint: string;
  schema: StructKind;
  values: { bytes: string; value: Record<string, unknown> }[];
  malformed: { about: string; at: string; why: string; bytes: string }[];
}

/** The files are made by crate/tests/structs. */
export const vectors = text as unknown as Vector[];

/** The bytes that `fromJson` makes of each value with the fields in reverse order; Rust loads them. */
export const reversed = new Map(turned as [name: string, bytes: string][]);

export function unhex(digits: string): Uint8Array {
  return Uint8Array.from(digits.match(/../g) ?? [], (pair) => Number.parseInt(pair, 16));
}

export function hex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
