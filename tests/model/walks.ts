/** Iterators that stay open while their program writes, and the items that they have to yield. */

import { BAD_ARGUMENT, codeOf, head, Mismatch } from "./checks.js";
import type { Model } from "./model.js";
import type { Of, RankRange } from "./program.js";
import { same } from "./values.js";

/** An iterator. */
export class Walk {
  readonly range: RankRange;
  readonly of: Of;
  private readonly model: Model;
  private readonly iterator: Iterator<unknown, undefined>;
  /** Keys that were present throughout and lie before it: each has to be yielded. */
  private readonly there: Set<number>;
  /** Keys that were present at some time. */
  private readonly sometimes: Set<number>;
  /** Keys deleted since the last step; a rollback may have restored them. */
  private readonly suspects: Set<number>;
  /** Its possible positions: several, where values do not identify their keys. */
  private positions: Set<number>;
  private count: number;
  private ended: boolean;

  constructor(model: Model, iterator: Iterator<unknown, undefined>, range: RankRange, of: Of) {
    this.model = model;
    this.iterator = iterator;
    this.range = range;
    this.of = of;
    const { limit: _, ...all } = range;
    this.there = new Set(model.within(all));
    this.sometimes = new Set(this.there);
    this.suspects = new Set();
    this.positions = new Set([range.reverse === true ? model.keys.length : -1]);
    this.count = 0;
    this.ended = false;
  }

  /** Whether it has not ended. */
  get goesOn(): boolean {
    return !this.ended;
  }

  /** Records that a key was written. */
  written(rank: number): void {
    if (this.model.includes(this.range, rank)) this.sometimes.add(rank);
  }

  /** Records that a key was deleted. */
  deleted(rank: number): void {
    if (this.there.has(rank)) this.suspects.add(rank);
  }

  /** Records that writes were undone. */
  restored(): void {
    const { model, range } = this;
    for (const rank of this.there) if (!model.has(rank)) this.suspects.add(rank);
    for (let rank = 0; rank < model.keys.length; rank++) {
      if (model.has(rank) && model.includes(range, rank)) this.sometimes.add(rank);
    }
  }

  /** Takes the next item and checks it. Returns the view of the value, if there is one, and its key. */
  step(): { view: Uint8Array; rank: number } | undefined {
    for (const rank of this.suspects) if (!this.model.has(rank)) this.there.delete(rank);
    this.suspects.clear();
    let result: IteratorResult<unknown, undefined>;
    try {
      result = this.iterator.next();
    } catch (error) {
      this.checkRefusal(error);
      return undefined;
    }
    if (result.done === true) {
      this.checkEnd();
      return undefined;
    }
    return this.checkStep(result.value);
  }

  /** Checks a step after the database was closed. */
  stepAfterClose(): IteratorResult<unknown, undefined> {
    return this.iterator.next();
  }

  leave(): void {
    this.iterator.return?.();
  }

  private checkStep(given: unknown): { view: Uint8Array; rank: number } | undefined {
    const { limit } = this.range;
    this.count += 1;
    if (this.ended) throw new Mismatch(`${this.of} go on after their end`);
    if (limit !== undefined && this.count > limit)
      throw new Mismatch(`${this.of} exceed the limit`);
    const [key, value] = this.partsOf(given);
    const next = new Set<number>();
    for (const place of this.positions) {
      for (const rank of this.after(place)) {
        if (this.fits(rank, key, value)) next.add(rank);
        if (this.there.has(rank)) break;
      }
    }
    if (next.size === 0) throw new Mismatch(`${this.of} ${this.where()} give ${shown(key, value)}`);
    this.positions = next;
    const [rank] = next;
    return value === undefined || next.size > 1 ? undefined : { view: value, rank: rank as number };
  }

  /** The keys behind a position, in the order of the iteration. */
  private *after(place: number): Generator<number> {
    const { length } = this.model.keys;
    const by = this.range.reverse === true ? -1 : 1;
    for (let rank = place + by; rank >= 0 && rank < length; rank += by) yield rank;
  }

  private fits(rank: number, key: unknown, value: Uint8Array | undefined): boolean {
    if (!this.sometimes.has(rank)) return false;
    if (value !== undefined && !same(value, this.model.get(rank)?.bytes)) return false;
    if (key === undefined) return true;
    const { text, bytes } = this.model.keys[rank] as { text?: string; bytes: Uint8Array };
    return typeof key === "string" ? key === text : same(key as Uint8Array, bytes);
  }

  private partsOf(given: unknown): [key: unknown, value: Uint8Array | undefined] {
    if (this.of === "values") return [undefined, given as Uint8Array];
    if (this.of === "keys" || this.of === "keys as bytes") return [given, undefined];
    return given as [unknown, Uint8Array];
  }

  private checkEnd(): void {
    const full = this.range.limit !== undefined && this.count >= this.range.limit;
    this.ended = true;
    if (full) return;
    const complete = [...this.positions].some((place) => this.missing(place) === undefined);
    if (complete) return;
    const [place] = this.positions;
    const missing = this.missing(place as number) as number;
    throw new Mismatch(
      `${this.of} end ${this.where()}, and ${this.model.keys[missing]?.shown} never came`,
    );
  }

  /** The first key behind a position that was present throughout. */
  private missing(place: number): number | undefined {
    for (const rank of this.after(place)) if (this.there.has(rank)) return rank;
    return undefined;
  }

  /** Checks that a key that is not UTF-8 ends an iteration of texts. */
  private checkRefusal(error: unknown): void {
    const wantsText = this.of === "keys" || this.of === "entries";
    if (!wantsText || codeOf(error) !== BAD_ARGUMENT || this.ended) throw error;
    for (const place of this.positions) {
      for (const rank of this.after(place)) {
        if (this.sometimes.has(rank) && this.model.keys[rank]?.text === undefined) {
          this.ended = true;
          return;
        }
        if (this.there.has(rank)) break;
      }
    }
    throw error;
  }

  private where(): string {
    const [place] = this.positions;
    const key = this.model.keys[place as number];
    return key === undefined ? "at their beginning" : `behind ${key.shown}`;
  }
}

function shown(key: unknown, value: Uint8Array | undefined): string {
  const name = key instanceof Uint8Array ? head(key) : JSON.stringify(key);
  return `${name ?? ""} ${value === undefined ? "" : head(value)}`.trim();
}
