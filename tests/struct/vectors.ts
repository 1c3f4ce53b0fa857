import text from "../vectors/structs.json" with { type: "json" };
import type { StructKind } from "./kinds.js";

/** A type with values of it, as Rust has them. */
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

/** crate/tests/structs makes them. */
export const vectors = text as unknown as Vector[];

export function unhex(digits: string): Uint8Array {
  return Uint8Array.from(digits.match(/../g) ?? [], (pair) => Number.parseInt(pair, 16));
}
