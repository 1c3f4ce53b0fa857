/** Generates random programs. */

import type { Durability } from "varve";
import { random } from "../support/values.js";
import type { Fault, Harm } from "./faulty.js";
import { keysFor } from "./keys.js";
import {
  type Abilities,
  type Change,
  type Form,
  type Of,
  type Operation,
  PINS,
  type Predicate,
  type Program,
  type RankRange,
  type Setting,
  type Step,
  type Update,
  VIEWS,
  WALKS,
} from "./program.js";
import type { Kind, Value } from "./values.js";

const MIB = 1_048_576;

/** The number of keys from which a program counts as having many. */
const MANY = 500;

/** The sizes of values that a program prefers. */
type Taste = "small" | "mixed" | "bulky" | "extents";

/** The number of operations of a program of this seed, such that all programs take about as long. */
export function lengthOf(seed: number): number {
  const { taste } = characterOf(seed);
  return { small: 4_000, mixed: 3_000, bulky: 1_200, extents: 300 }[taste];
}

/** The program of a seed. The same seed and abilities give the same program. */
export function programOf(seed: number, abilities: Abilities, length = lengthOf(seed)): Program {
  const { below, taste, setting } = characterOf(seed);
  const durability =
    setting.durability === "flushed" && abilities.slowFlush ? "written" : setting.durability;
  const author = new Author(below, taste, setting, abilities);
  return {
    seed,
    setting: { ...setting, durability },
    operations: [...author.filling(), ...Array.from({ length }, () => author.next(0))],
  };
}

function characterOf(seed: number): {
  below: (limit: number) => number;
  taste: Taste;
  setting: Setting;
} {
  const below = random(seed);
  const pick = <T>(...of: T[]): T => of[below(of.length)] as T;
  const segmentLog2 = pick(20, 20, 20, 16, 14, 12, 12);
  const durability = pick<Durability>("written", "written", "written", "buffered", "flushed");
  return {
    below,
    taste: pick<Taste>("small", "small", "mixed", "mixed", "mixed", "bulky", "extents"),
    setting: {
      durability,
      strictViews: below(6) === 0,
      ordered: below(8) !== 0,
      memory: below(20) === 0 ? 64 * MIB : pick(MIB, MIB, 3 * MIB, 16 * MIB),
      segmentLog2,
      faults: below(2) === 0,
      keys: keysFor(below, segmentLog2),
    },
  };
}

/** Generates operations, one after the other. */
class Author {
  private readonly below: (limit: number) => number;
  private readonly taste: Taste;
  private readonly setting: Setting;
  private readonly abilities: Abilities;
  private values: number;
  private readonly makers: readonly (readonly [weight: number, make: () => Operation])[];
  private readonly total: number;
  private depth: number;

  constructor(
    below: (limit: number) => number,
    taste: Taste,
    setting: Setting,
    abilities: Abilities,
  ) {
    this.below = below;
    this.taste = taste;
    this.setting = setting;
    this.abilities = abilities;
    this.values = 0;
    this.depth = 0;
    this.makers = this.weigh();
    this.total = this.makers.reduce((sum, [weight]) => sum + weight, 0);
  }

  /** Programs with many keys begin with all of them, so that iterations span many pages. */
  filling(): Operation[] {
    const { length } = this.setting.keys;
    if (length < MANY) return [];
    const steps = Array.from({ length }, (_, key): Step => {
      this.values += 1;
      const value: Value = { number: this.values, size: this.below(40), kind: "bytes" };
      return { type: "set", key, value, form: "bytes" };
    });
    const batches = Array.from({ length: Math.ceil(length / 250) }, (_, i) =>
      steps.slice(i * 250, (i + 1) * 250),
    );
    return batches.map((some) => ({ do: "batch", steps: some, bad: false }));
  }

  next(depth: number): Operation {
    this.depth = depth;
    let left = this.below(this.total);
    for (const [weight, make] of this.makers) {
      left -= weight;
      if (left < 0) return make();
    }
    throw new Error("the weights do not add up");
  }

  /** The approximate number of operations of each kind, per 1,000. */
  private weigh(): (readonly [number, () => Operation])[] {
    const { fails, slowFlush } = this.abilities;
    const many = this.setting.keys.length >= MANY;
    return [
      [150, () => this.get()],
      [25, () => ({ do: "getText", ...this.target() })],
      [35, () => ({ do: "has", ...this.target() })],
      [35, () => ({ do: "getEntry", ...this.target() })],
      [15, () => this.getMany()],
      [170, () => this.set()],
      [25, () => this.conditionalSet()],
      [20, () => this.copy()],
      [55, () => ({ do: "delete", ...this.target() })],
      [150, () => this.update()],
      [25, () => this.batch()],
      [this.depth < 3 ? 25 : 0, () => this.transaction()],
      [15, () => ({ do: "count", ...this.maybe(4, { range: this.range() }) })],
      [4, () => this.clear()],
      [many ? 2 : 12, () => ({ do: "scan", range: this.range(), of: this.form() })],
      [20, () => ({ do: "walk", slot: this.below(WALKS), range: this.range(), of: this.form() })],
      [90, () => this.step()],
      [5, () => ({ do: "leave", slot: this.below(WALKS) })],
      [12, () => ({ do: "pin", slot: this.below(PINS), ...this.target() })],
      [8, () => ({ do: "unpin", slot: this.below(PINS) })],
      [12, () => ({ do: "commit" })],
      [slowFlush ? 1 : 6, () => ({ do: "flush" })],
      [1, () => ({ do: "compare" })],
      [90, () => this.yields()],
      [2, () => ({ do: "reopen" })],
      [fails ? 5 : 0, () => this.crash()],
      [fails && this.setting.faults ? 8 : 0, () => this.fault()],
    ];
  }

  private maybe<T extends object>(chance: number, what: T): T | object {
    return this.below(chance) !== 0 ? what : {};
  }

  private key(): number {
    const { length } = this.setting.keys;
    // Some keys are more frequent, so that they have a history.
    return this.below(3) === 0 ? this.below(Math.min(length, 5)) : this.below(length);
  }

  private keyForm(): Form {
    const form = this.below(6);
    return form < 4 ? "text" : form === 4 ? "bytes" : this.below(2) === 0 ? "buffer" : "part";
  }

  private target(): { key: number; form: Form } {
    return { key: this.key(), form: this.keyForm() };
  }

  private value(): Value {
    this.values += 1;
    const number = this.values;
    const kind: Kind = this.below(5) !== 0 ? "bytes" : this.below(3) === 0 ? "unicode" : "ascii";
    return { number, size: kind === "unicode" ? this.below(90) : this.size(), kind };
  }

  private size(): number {
    const { below } = this;
    const segment = 1 << this.setting.segmentLog2;
    const limit = segment / 2 - 1024;
    switch (this.taste) {
      case "small":
        return below(80);
      case "mixed":
        return below(60) === 0 ? below(5_000) : below(8) === 0 ? below(1_000) : below(80);
      case "bulky":
        return below(3) === 0 ? below(60_000) : below(6_000);
      case "extents": {
        const kind = below(40);
        if (kind < 16) return below(100);
        if (kind < 26) return below(limit);
        if (kind < 32) return limit - 4 + below(9);
        if (kind < 38) return limit + below(segment);
        // Values of the largest size, rarely, because they take long.
        return kind === 38 ? below(Math.min(16 * segment, 6 * MIB)) : segment - 130 + below(9);
      }
    }
  }

  private get(): Operation {
    return { do: "get", ...this.target(), ...this.maybe(2, { keep: this.below(VIEWS) }) };
  }

  private getMany(): Operation {
    const keys = Array.from({ length: this.below(12) }, () => this.key());
    return { do: "getMany", keys, ...this.maybe(2, { keep: this.below(VIEWS) }) };
  }

  private set(): Operation {
    const value = this.value();
    return { do: "set", ...this.target(), value, as: this.valueForm(value) };
  }

  private valueForm({ kind }: Value): Form {
    const form = this.below(4);
    if (kind !== "bytes" && form < 3) return "text";
    return form < 2 ? "bytes" : form === 2 ? "buffer" : "part";
  }

  private conditionalSet(): Operation {
    const ifVersion = (["its", "its", "another", "missing"] as const)[this.below(4)] as "its";
    return { ...this.set(), ifVersion } as Operation;
  }

  private copy(): Operation {
    const pinned = this.below(4) === 0 ? { pinned: this.below(PINS) } : {};
    return { do: "copy", from: this.key(), to: this.key(), ...pinned };
  }

  private update(): Update {
    const predicates: Predicate[] = [
      "true",
      "true",
      "true",
      "false",
      "false",
      "throw",
      "a promise",
    ];
    predicates.push("nothing");
    const predicate = predicates[this.below(predicates.length)] as Predicate;
    const predicateKey = this.below(4) === 0 ? { predicateKey: this.key() } : {};
    const reads =
      this.below(3) === 0 ? Array.from({ length: this.below(4) }, () => this.key()) : [];
    return {
      do: "updateIf",
      ...this.target(),
      change: this.change(),
      ...(this.below(3) === 0 ? { predicate, ...predicateKey } : {}),
      ...(this.below(3) === 0 ? { valueIfMissing: this.value() } : {}),
      reads,
      ...(this.below(4) === 0 ? { keep: this.below(VIEWS) } : {}),
    };
  }

  private change(): Change {
    const kind = this.below(20);
    if (kind < 7) return { how: "poke", at: this.below(1 << 20), byte: this.below(256) };
    if (kind < 11) {
      this.values += 1;
      return { how: "rewrite", number: this.values };
    }
    if (kind < 15) {
      const value = this.value();
      return { how: "return", value, form: this.valueForm(value) };
    }
    if (kind === 15) return { how: "return a part of the view", part: this.below(5) };
    if (kind < 18) return { how: "throw" };
    const last: Change[] = [
      { how: "return a promise" },
      { how: "return a number" },
      { how: "set inside" },
    ];
    return last[this.below(3)] as Change;
  }

  private batch(): Operation {
    const steps = Array.from({ length: 1 + this.below(8) }, (): Step => {
      if (this.below(3) === 0) return { type: "delete", ...this.target() };
      const value = this.value();
      return { type: "set", key: this.key(), value, form: this.valueForm(value) };
    });
    return { do: "batch", steps, bad: this.below(5) === 0 };
  }

  private transaction(): Operation {
    const { depth } = this;
    const ends = ["return", "return", "return", "throw", "throw", "return a promise"] as const;
    const body = Array.from({ length: this.below(12) }, () => this.inside(depth + 1));
    this.depth = depth;
    return { do: "transaction", body, end: ends[this.below(ends.length)] as "return" };
  }

  /** The operations allowed within a transaction: all that do not yield. */
  private inside(depth: number): Operation {
    for (;;) {
      const operation = this.next(depth);
      const deep = operation.do === "transaction" && depth > 2;
      if (!deep && !["yield", "reopen", "crash"].includes(operation.do)) return operation;
    }
  }

  private range(): RankRange {
    const { below } = this;
    const lower = below(3) === 0 ? (below(2) === 0 ? "gt" : "gte") : undefined;
    const upper = below(3) === 0 ? (below(2) === 0 ? "lt" : "lte") : undefined;
    return {
      ...(lower === undefined ? {} : { [lower]: this.anyKey() }),
      ...(upper === undefined ? {} : { [upper]: this.anyKey() }),
      ...(below(5) === 0 ? { prefix: [this.anyKey(), below(6)] as const } : {}),
      ...(below(2) === 0 ? { reverse: true } : {}),
      ...(below(4) === 0 ? { limit: below(20) } : {}),
    };
  }

  private anyKey(): number {
    return this.below(this.setting.keys.length);
  }

  private form(): Of {
    const forms: Of[] = ["keys", "values", "entries", "keys as bytes", "entries as bytes"];
    return forms[this.below(forms.length)] as Of;
  }

  private clear(): Operation {
    // Few keys at a time, and rarely all of them, or little would be left for the other calls.
    if (this.below(10) === 0) return { do: "clear", ...this.maybe(2, { range: this.range() }) };
    return { do: "clear", range: { ...this.range(), limit: this.below(6) } };
  }

  private step(): Operation {
    const times = this.below(30) === 0 ? 200 : 1 + this.below(4);
    const keep = this.below(4) === 0 ? { keep: this.below(VIEWS) } : {};
    return { do: "step", slot: this.below(WALKS), times, ...keep };
  }

  private yields(): Operation {
    const kind = this.below(100);
    if (kind < 90) return { do: "yield", to: "a microtask" };
    if (kind < 96) return { do: "yield", to: "committed" };
    if (kind < 98 && !this.abilities.slowFlush) return { do: "yield", to: "flushed" };
    if (kind < 99 && !this.abilities.slowFlush) return { do: "yield", to: "compacted" };
    return { do: "yield", to: "a task" };
  }

  private crash(): Operation {
    return { do: "crash", on: this.below(3) === 0 ? "the survivor" : "the old one" };
  }

  private fault(): Operation {
    const { below } = this;
    const calls: Fault["call"][] = ["read", "write", "write", "flush", "any"];
    const harms: Harm[] = ["quota", "enospc", "io", "a short count", "a count of nothing"];
    return {
      do: "fault",
      call: calls[below(calls.length)] as Fault["call"],
      harm: harms[below(harms.length)] as Harm,
      after: below(4) === 0 ? below(6) : 0,
      times: below(4) === 0 ? 1 + below(8) : 1,
    };
  }
}
