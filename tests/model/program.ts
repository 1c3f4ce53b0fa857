/**
 * Programs, as data: a setting and a list of operations. They exist before anything runs, so that one
 * can be printed, and made smaller: each operation means something whichever others are left out.
 */

import type { Durability } from "varve";
import type { Fault } from "./faulty.js";
import type { Key } from "./keys.js";
import type { Value } from "./values.js";

/** How a key or a value is handed over. */
export type Form = "text" | "bytes" | "buffer" | "part";

/** A range; its keys are ranks, places of keys in the order of all keys of the program. */
export interface RankRange {
  readonly gt?: number;
  readonly gte?: number;
  readonly lt?: number;
  readonly lte?: number;
  /** The first bytes of this key, so many. */
  readonly prefix?: readonly [rank: number, length: number];
  readonly reverse?: boolean;
  readonly limit?: number;
}

/** What a walk gives, and in which form its keys are. */
export type Of = "keys" | "values" | "entries" | "keys as bytes" | "entries as bytes";

/** What a callback of `updateIf` does. */
export type Change =
  | { readonly how: "poke"; readonly at: number; readonly byte: number }
  | { readonly how: "rewrite"; readonly number: number }
  | { readonly how: "return"; readonly value: Value; readonly form: Form }
  | { readonly how: "return a part of the view"; readonly part: number }
  | { readonly how: "throw" }
  | { readonly how: "return a promise" }
  | { readonly how: "return a number" }
  | { readonly how: "set inside" };

/** What a predicate answers. All see whether they are shown the right bytes. */
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
  /** Where the callback's view is kept. */
  readonly keep?: number;
}

/** One step of a batch. */
export type Step =
  | { readonly type: "set"; readonly key: number; readonly value: Value; readonly form: Form }
  | { readonly type: "delete"; readonly key: number; readonly form: Form };

/** One call, or a few that belong together. Slots (views, pins, walks) are small numbers. */
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

/** What a program runs in. */
export interface Setting {
  readonly durability: Durability;
  readonly strictViews: boolean;
  readonly ordered: boolean;
  readonly memory: number;
  /** Binary logarithm of the size of a segment; 20 is what databases have. */
  readonly segmentLog2: number;
  /** Whether its file fails at times, where that can be. */
  readonly faults: boolean;
  /** All keys, in the order of their bytes. */
  readonly keys: readonly Key[];
}

export interface Program {
  readonly seed: number;
  readonly setting: Setting;
  readonly operations: readonly Operation[];
}

/** What the place can do in which programs run. */
export interface Abilities {
  /** Whether there are crashes and failures: the storage copies what it holds, and fails on demand. */
  readonly fails: boolean;
  /** Whether a flush takes milliseconds. */
  readonly slowFlush: boolean;
}

/** Slots for views, pins and walks. */
export const VIEWS = 6;
export const PINS = 3;
export const WALKS = 3;
