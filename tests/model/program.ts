/**
 * Programs as data: a setting and a list of operations. They exist before anything runs, so that they can be
 * printed and shrunk: each operation is valid whichever others are left out.
 */

import type { Durability } from "varve";
import type { Fault } from "./faulty.js";
import type { Key } from "./keys.js";
import type { Value } from "./values.js";

/** The form in which a key or a value is passed. */
export type Form = "text" | "bytes" | "buffer" | "part";

/** A range. Its keys are ranks: positions in the order of all keys of the program. */
export interface RankRange {
  readonly gt?: number;
  readonly gte?: number;
  readonly lt?: number;
  readonly lte?: number;
  /** A prefix: the number of first bytes of this key. */
  readonly prefix?: readonly [rank: number, length: number];
  readonly reverse?: boolean;
  readonly limit?: number;
}

/** The items of an iteration, and the form of its keys. */
export type Of = "keys" | "values" | "entries" | "keys as bytes" | "entries as bytes";

/** The action of a callback of `updateIf`. */
export type Change =
  | { readonly how: "poke"; readonly at: number; readonly byte: number }
  | { readonly how: "rewrite"; readonly number: number }
  | { readonly how: "return"; readonly value: Value; readonly form: Form }
  | { readonly how: "return a part of the view"; readonly part: number }
  | { readonly how: "throw" }
  | { readonly how: "return a promise" }
  | { readonly how: "return a number" }
  | { readonly how: "set inside" };

/** The answer of a predicate. Every predicate checks that it is given the right bytes. */
export type Predicate = "true" | "false" | "throw" | "a promise" | "nothing";

export interface Update {
  readonly do: "updateIf";
  readonly key: number;
  readonly form: Form;
  readonly change: Change;
  readonly predicate?: Predicate;
  readonly predicateKey?: number;
  readonly valueIfMissing?: Value;
  /** Keys that the callback reads before it does anything. */
  readonly reads: readonly number[];
  /** The slot that keeps the callback's view. */
  readonly keep?: number;
}

/** An operation of a batch. */
export type Step =
  | { readonly type: "set"; readonly key: number; readonly value: Value; readonly form: Form }
  | { readonly type: "delete"; readonly key: number; readonly form: Form };

/** A call, or several that belong together. Slots (views, pins, iterators) are small numbers. */
export type Operation =
  | { readonly do: "get"; readonly key: number; readonly form: Form; readonly keep?: number }
  | { readonly do: "getText" | "has" | "getEntry"; readonly key: number; readonly form: Form }
  | { readonly do: "getMany"; readonly keys: readonly number[]; readonly keep?: number }
  | {
      readonly do: "set";
      readonly key: number;
      readonly form: Form;
      readonly value: Value;
      readonly as: Form;
      readonly ifVersion?: "its" | "another" | "missing";
    }
  | { readonly do: "copy"; readonly from: number; readonly to: number; readonly pinned?: number }
  | { readonly do: "delete"; readonly key: number; readonly form: Form }
  | Update
  | { readonly do: "batch"; readonly steps: readonly Step[]; readonly bad: boolean }
  | {
      readonly do: "transaction";
      readonly body: readonly Operation[];
      readonly end: "return" | "throw" | "return a promise";
    }
  | { readonly do: "count" | "clear"; readonly range?: RankRange }
  | { readonly do: "scan"; readonly range: RankRange; readonly of: Of }
  | { readonly do: "walk"; readonly slot: number; readonly range: RankRange; readonly of: Of }
  | {
      readonly do: "step";
      readonly slot: number;
      readonly times: number;
      readonly keep?: number;
    }
  | { readonly do: "leave"; readonly slot: number }
  | { readonly do: "pin"; readonly slot: number; readonly key: number; readonly form: Form }
  | { readonly do: "unpin"; readonly slot: number }
  | { readonly do: "commit" | "flush" | "compare" }
  | {
      readonly do: "yield";
      readonly to: "a microtask" | "committed" | "flushed" | "compacted" | "a task";
    }
  | { readonly do: "reopen" }
  | ({ readonly do: "fault" } & Fault)
  | { readonly do: "crash"; readonly on: "the survivor" | "the old one" };

/** The setting of a program. */
export interface Setting {
  readonly durability: Durability;
  readonly strictViews: boolean;
  readonly ordered: boolean;
  readonly memory: number;
  /** Binary logarithm of the segment size; 20 by default in databases. */
  readonly segmentLog2: number;
  /** Whether its file fails at times, where that is possible. */
  readonly faults: boolean;
  /** All keys, in byte order. */
  readonly keys: readonly Key[];
}

export interface Program {
  readonly seed: number;
  readonly setting: Setting;
  readonly operations: readonly Operation[];
}

/** The abilities of the place in which programs run. */
export interface Abilities {
  /** Whether crashes and failures are possible: the storage copies its contents, and fails on demand. */
  readonly fails: boolean;
  /** Whether a flush takes milliseconds. */
  readonly slowFlush: boolean;
}

/** Slots for views, pins and iterators. */
export const VIEWS = 6;
export const PINS = 3;
export const WALKS = 3;
