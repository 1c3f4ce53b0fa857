/**
 * Random programs against a `Map`: whatever a program does, the database and the map agree. Each
 * program follows from its seed alone; a failure names seed and step, so that it can be repeated by
 * putting that seed into `SEEDS`.
 */

import type { BatchOperation, Database, OpenOptions, Pin, Range, Storage } from "varve";
import { bytes, random, suite, test } from "../harness.js";
import { FakeStorage } from "./fake.js";
import { everywhere, freshName, opened, places, reopened } from "./places.js";

const SEEDS = [1, 2, 3, 4, 5, 6];
const STEPS = 1_000;

const OPTIONS: OpenOptions[] = [
  {},
  { durability: "buffered" },
  { durability: "flushed" },
  { strictViews: true },
  { ordered: false },
  { memory: 1_048_576 },
];

/** Short, long, alike, not ASCII: the kinds that take different ways through the code. */
const KEYS = [
  ...Array.from({ length: 24 }, (_, i) => `key ${i}`),
  ...Array.from({ length: 6 }, (_, i) => `${"long key ".repeat(30)}${i}`),
  "é",
  "日本",
  "\u0000",
  "\u0000\u0000",
  "x".repeat(64),
  "x".repeat(65),
];

/** All of them in the order of their bytes. */
const ORDERED = [...KEYS].sort((a, b) => {
  const [left, right] = [latin(a), latin(b)];
  return left < right ? -1 : left > right ? 1 : 0;
});

/** One character for each byte, so that text is compared as bytes are. */
function latin(key: string): string {
  return String.fromCharCode(...bytes(key));
}

class Undone extends Error {}

/** One program on one database. */
class Program {
  private readonly below: (limit: number) => number;
  private readonly seed: number;
  private readonly storage: Storage;
  private readonly options: OpenOptions;
  private readonly name = freshName();
  private db!: Database;
  private model = new Map<string, Uint8Array>();
  /** What had been handed to the file when that was last known. */
  private handedOn = new Map<string, Uint8Array>();
  /** Pinned values, and what they were when that was done. */
  private readonly pins: { pin: Pin; value: Uint8Array }[] = [];
  private step = 0;
  private doing = "";

  constructor(seed: number, storage: Storage) {
    this.seed = seed;
    this.storage = storage;
    this.below = random(seed);
    this.options = OPTIONS[seed % OPTIONS.length] as OpenOptions;
  }

  async run(): Promise<void> {
    this.db = await opened(this.storage, this.options, this.name);
    for (this.step = 0; this.step < STEPS; this.step++) {
      try {
        // Not every step yields: several make up a turn.
        const waiting = this.act();
        if (waiting !== undefined) await waiting;
        if (this.db.stats().pendingBytes === 0) this.handedOn = new Map(this.model);
        if (this.storage instanceof FakeStorage && this.below(40) === 0)
          await this.crash(this.storage);
      } catch (cause) {
        throw this.failure("threw", cause);
      }
    }
    await this.reopen();
    await this.db.close();
  }

  private act(): Promise<void> | undefined {
    const choice = this.below(100);
    if (choice >= 99) return this.reopen();
    if (choice >= 91) return this.yields();
    if (choice < 70) this.write(0);
    else if (choice < 74) this.compareRange();
    else if (choice < 78) this.iterate();
    else if (choice < 80) this.pinOrUnpin();
    else if (choice < 83) this.commit();
    else if (choice < 90) this.compareOne(this.key());
    else this.compareAll();
    return undefined;
  }

  private async yields(): Promise<void> {
    const kind = this.below(6);
    this.doing = `yield ${kind}`;
    if (kind === 0) await this.db.committed;
    else if (kind === 1) await this.db.flushed;
    else await null;
    // Strict views die at a yield; the data does not.
    this.compareOne(this.key());
  }

  private commit(): void {
    this.doing = "commit";
    if (this.below(3) === 0) this.db.flush();
    else this.db.commit();
  }

  private async reopen(): Promise<void> {
    this.doing = "reopen";
    this.compareAll();
    this.pins.length = 0;
    this.db = await reopened(this.db, this.storage, this.name, this.options);
    if (!this.db.recovery.wasClean) throw this.failure("not clean");
    this.compareAll();
  }

  /** The program dies here: another one opens what the file holds at this moment. */
  private async crash(file: FakeStorage): Promise<void> {
    this.doing = "crash";
    const survivor = await opened(file.crashed(), this.options);
    const [db, model] = [this.db, this.model];
    [this.db, this.model] = [survivor, this.handedOn];
    this.compareAll();
    [this.db, this.model] = [db, model];
    await survivor.close();
    // Opening the other one yielded, so that this one's turn has ended meanwhile.
    if (this.db.stats().pendingBytes === 0) this.handedOn = new Map(this.model);
  }

  // ---------------------------------------------------------------- writes

  private write(depth: number): void {
    const writes: ((depth: number) => void)[] = [
      this.set,
      this.set,
      this.set,
      this.remove,
      this.update,
      this.update,
    ];
    writes.push(this.resize, this.refuse, this.throwing, this.insert, this.batch);
    writes.push(this.setIf);
    if (this.ordered) writes.push(this.clear);
    if (depth < 3) writes.push(this.transaction);
    (writes[this.below(writes.length)] ?? this.set).call(this, depth);
  }

  private set(): void {
    const key = this.key();
    const value = this.value();
    this.doing = `set ${key} to ${value.length} bytes`;
    this.db.set(this.anyForm(key), this.anyValue(value));
    this.model.set(key, value);
  }

  private setIf(): void {
    const key = this.key();
    const value = this.value();
    const version = this.db.getEntry(key)?.version ?? 0;
    this.agree("getEntry", version !== 0, this.model.has(key));
    const fits = this.below(2) === 0;
    this.doing = `set ${key} if ${fits ? "unchanged" : "of another version"}`;
    try {
      this.db.set(key, value, { ifVersion: fits ? version : version + 1 });
      this.agree("set", fits, true);
      this.model.set(key, value);
    } catch (error) {
      if (fits || (error as { code?: unknown }).code !== "VARVE_CONFLICT") throw error;
    }
  }

  private clear(): void {
    // Few at a time, and seldom all, or there would be nothing left for the other calls.
    const range = this.below(40) === 0 ? {} : { ...this.range(), limit: this.below(4) };
    this.doing = `clear ${JSON.stringify(range)}`;
    const gone = this.within(range);
    this.agree("clear", this.db.clear(range), gone.length);
    for (const key of gone) this.model.delete(key);
  }

  private remove(): void {
    const key = this.key();
    this.doing = `delete ${key}`;
    this.agree("delete", this.db.delete(this.anyForm(key)), this.model.delete(key));
  }

  private update(): void {
    const key = this.key();
    this.doing = `update ${key}`;
    const old = this.model.get(key);
    const [at, byte] = [this.below(1 << 20), this.below(256)];
    const change = (view: Uint8Array) => {
      if (view.length > 0) view[at % view.length] = byte;
    };
    const predicate = (view: Uint8Array) => view.length === old?.length;
    const applied = this.db.updateIf(key, change, this.below(2) === 0 ? { predicate } : undefined);
    this.agree("updateIf", applied, old !== undefined);
    if (old === undefined) return;
    const next = old.slice();
    change(next);
    this.model.set(key, next);
  }

  private resize(): void {
    const key = this.key();
    const value = this.value();
    this.doing = `resize ${key} to ${value.length} bytes`;
    const applied = this.db.updateIf(key, (view) => {
      view.fill(1);
      return value;
    });
    this.agree("updateIf", applied, this.model.has(key));
    if (applied) this.model.set(key, value);
  }

  private refuse(): void {
    const key = this.key();
    this.doing = `refuse ${key}`;
    const change = (view: Uint8Array) => {
      view.fill(0);
    };
    const predicate = (view: Uint8Array) => {
      view.fill(0);
      return false;
    };
    this.agree("updateIf", this.db.updateIf(key, change, { predicate }), false);
    this.compareOne(key);
  }

  private throwing(): void {
    const key = this.key();
    this.doing = `throw in ${key}`;
    try {
      this.db.updateIf(
        key,
        (view) => {
          view.fill(0);
          throw new Undone();
        },
        this.below(2) === 0 ? { valueIfMissing: this.value() } : {},
      );
    } catch (error) {
      if (!(error instanceof Undone)) throw error;
    }
    this.compareOne(key);
  }

  private insert(): void {
    const key = this.key();
    const value = this.value();
    this.doing = `insert ${key}`;
    const change = (view: Uint8Array) => {
      if (view.length > 0) view[0] = 7;
    };
    this.agree("updateIf", this.db.updateIf(key, change, { valueIfMissing: value }), true);
    const next = (this.model.get(key) ?? value).slice();
    change(next);
    this.model.set(key, next);
  }

  private batch(): void {
    const operations: BatchOperation[] = [];
    const next = new Map(this.model);
    for (let i = this.below(8); i >= 0; i--) {
      const key = this.key();
      if (this.below(3) === 0) {
        operations.push({ type: "delete", key });
        next.delete(key);
      } else {
        const value = this.value();
        operations.push({ type: "set", key, value });
        next.set(key, value);
      }
    }
    const bad = this.below(4) === 0;
    if (bad) operations.push({ type: "set", key: "", value: "refused" });
    this.doing = `batch of ${operations.length}`;
    try {
      this.db.batch(operations);
      this.model = next;
    } catch (error) {
      if (!bad) throw error;
    }
  }

  private transaction(depth: number): void {
    const before = new Map(this.model);
    const undo = this.below(3) === 0;
    try {
      this.db.transaction(() => {
        for (let i = this.below(10); i >= 0; i--) this.write(depth + 1);
        if (undo) throw new Undone();
      });
    } catch (error) {
      if (!(error instanceof Undone)) throw error;
      this.model = before;
      this.doing = "undo a transaction";
      if (depth === 0) this.compareAll();
    }
  }

  // ---------------------------------------------------------------- order

  private get ordered(): boolean {
    return this.options.ordered !== false;
  }

  private range(): Range {
    const range: Range = {};
    if (this.below(3) === 0) range[this.below(2) === 0 ? "gt" : "gte"] = this.anyForm(this.key());
    if (this.below(3) === 0) range[this.below(2) === 0 ? "lt" : "lte"] = this.anyForm(this.key());
    if (this.below(3) === 0) range.prefix = this.key().slice(0, 1 + this.below(5));
    if (this.below(3) === 0) range.limit = this.below(20);
    range.reverse = this.below(2) === 0;
    return range;
  }

  /** The keys of the model that a range means, in its order. */
  private within({ gt, gte, lt, lte, prefix, reverse, limit }: Range): string[] {
    const raw = (key: Range["gt"]) =>
      typeof key === "string" ? latin(key) : String.fromCharCode(...(key as Uint8Array));
    const found = ORDERED.filter((name) => {
      const key = latin(name);
      return (
        this.model.has(name) &&
        (gt === undefined || key > raw(gt)) &&
        (gte === undefined || key >= raw(gte)) &&
        (lt === undefined || key < raw(lt)) &&
        (lte === undefined || key <= raw(lte)) &&
        (prefix === undefined || key.startsWith(raw(prefix)))
      );
    });
    if (reverse === true) found.reverse();
    return found.slice(0, limit);
  }

  private compareRange(): void {
    if (!this.ordered) return;
    const range = this.range();
    this.doing = `compare ${JSON.stringify(range)}`;
    const wanted = this.within(range);
    this.agree("count", this.db.count(range), wanted.length);
    this.agree("keys", [...this.db.keys(range)].join(), wanted.join());
    const seen: string[] = [];
    for (const [key, value] of this.db.entries(range)) {
      seen.push(key);
      if (!same(value, this.model.get(key))) throw this.failure(`${key} has other bytes`);
    }
    this.agree("entries", seen.join(), wanted.join());
  }

  /** Goes over a range and writes meanwhile. */
  private iterate(): void {
    if (!this.ordered) return;
    const range = { ...this.range(), limit: undefined };
    const doing = `iterate ${JSON.stringify(range)}`;
    const before = new Set(this.within(range));
    const gone = new Set<string>();
    const seen = new Set<string>();
    for (const [key, value] of this.db.entries(range)) {
      this.doing = doing;
      if (seen.has(key)) throw this.failure(`${key} came twice`);
      seen.add(key);
      if (!same(value, this.model.get(key))) throw this.failure(`${key} has other bytes`);
      if (this.below(3) === 0) this.write(1);
      // A group that grew large was handed on by the write that made it so.
      if (this.db.stats().pendingBytes === 0) this.handedOn = new Map(this.model);
      for (const one of before) if (!this.model.has(one)) gone.add(one);
      if (this.below(50) === 0) return;
    }
    this.doing = doing;
    for (const key of before) {
      if (!seen.has(key) && !gone.has(key)) throw this.failure(`${key} never came`);
    }
  }

  private pinOrUnpin(): void {
    for (const { pin, value } of this.pins) {
      if (!same(pin.bytes, value)) throw this.failure("a pinned value changed");
    }
    if (this.pins.length > this.below(5)) {
      this.pins.splice(this.below(this.pins.length), 1)[0]?.pin.dispose();
      return;
    }
    const key = this.key();
    this.doing = `pin ${key}`;
    const pin = this.db.pin(key);
    const value = this.model.get(key);
    this.agree("pin", pin !== undefined, value !== undefined);
    if (pin !== undefined && value !== undefined) this.pins.push({ pin, value });
  }

  // ---------------------------------------------------------------- choices

  private key(): string {
    return KEYS[this.below(KEYS.length)] as string;
  }

  private anyForm(key: string): string | Uint8Array {
    return this.below(3) === 0 ? bytes(key) : key;
  }

  private value(): Uint8Array<ArrayBuffer> {
    const kind = this.below(200);
    const size = kind < 120 ? this.below(80) : kind < 199 ? this.below(5_000) : this.below(400_000);
    return new Uint8Array(size).fill(this.below(256));
  }

  /** The same bytes as they are, as a view of the database itself, or as text. */
  private anyValue(value: Uint8Array<ArrayBuffer>): Uint8Array | string {
    const kind = this.below(4);
    if (kind === 0 && value.every((byte) => byte < 0x80)) return new TextDecoder().decode(value);
    if (kind !== 1) return value;
    const key = [...this.model.keys()].find((one) => same(this.model.get(one), value));
    return (key === undefined ? undefined : this.db.get(key)) ?? value;
  }

  // ---------------------------------------------------------------- comparisons

  private compareOne(key: string): void {
    const expected = this.model.get(key);
    this.agree(`has ${key}`, this.db.has(key), expected !== undefined);
    const found = this.db.get(this.anyForm(key));
    if (!same(found, expected)) {
      throw this.failure(
        `get ${key}: ${found?.length} bytes instead of ${expected?.length}, or other bytes`,
      );
    }
  }

  private compareAll(): void {
    this.agree("count", this.db.count(), this.model.size);
    for (const key of KEYS) this.compareOne(key);
    const many = this.db.getMany(KEYS);
    for (const [i, key] of KEYS.entries()) {
      if (!same(many[i], this.model.get(key))) throw this.failure(`getMany: ${key}`);
    }
    if (!this.ordered) return;
    const present = ORDERED.filter((key) => this.model.has(key));
    this.agree("keys", [...this.db.keys()].join(), present.join());
  }

  private agree(what: string, found: unknown, expected: unknown): void {
    if (found !== expected) throw this.failure(`${what}: ${found} instead of ${expected}`);
  }

  private failure(what: string, cause?: unknown): Error {
    if (cause instanceof Error && cause.message.startsWith("seed ")) return cause;
    return new Error(`seed ${this.seed}, step ${this.step}, ${this.doing}: ${what}`, { cause });
  }
}

function same(a: Uint8Array | undefined, b: Uint8Array | undefined): boolean {
  if (a === undefined || b === undefined) return a === b;
  return a.length === b.length && a.every((byte, i) => byte === b[i]);
}

everywhere("a model of random programs", ({ storage, name }) => {
  // Every storage gets programs of its own: the offset keeps them apart.
  const offset = places().findIndex((place) => place.name === name) * 1_000;
  for (const seed of SEEDS) {
    test(`program ${offset + seed} agrees with a Map at every step`, () => {
      return new Program(offset + seed, storage).run();
    });
  }
});

suite("a model of random programs that crash", () => {
  for (const seed of SEEDS) {
    test(`a crash of program ${9_000 + seed} leaves exactly what was handed on`, () => {
      return new Program(9_000 + seed, new FakeStorage()).run();
    });
  }
});
