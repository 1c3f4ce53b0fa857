/**
 * The work that every store does, and the contents it must lead to. Keys are numbers in 16 characters, so
 * that they sort as the numbers do: even ones exist from the start, odd ones are new keys between them, and
 * those above are new keys at the end.
 */

export const KEY_BYTES = 16;
export const VALUE_BYTES = 100;
/** Different values in a sample; few enough to stay in the processor's cache. */
const POOL = 1_024;
const WORDS = VALUE_BYTES / 4;
/** Offset of the four-byte counter that an update increments. */
export const COUNTER_AT = 4;

export type Pattern = "sequential" | "random" | "zipfian";
export const PATTERNS: readonly Pattern[] = ["sequential", "random", "zipfian"];

/** The amounts of work, the same for all stores that can do it in time. */
export interface Plan {
  /** Keys in the store. */
  size: number;
  /** Reads of a sample. */
  ops: number;
  /** Writes of a sample. */
  writes: number;
  /** New keys of a sample, which are deleted again. */
  fresh: number;
  /** Writes per commit. */
  batch: number;
  /** Writes of a sample that are committed one by one. */
  singles: number;
  /** Samples that are not counted, because code is still being compiled. */
  warmup: number;
  samples: number;
  /** Whether contents are compared after each kind of work, or only at the start and at the end. */
  compareOften: boolean;
}

/** Marsaglia's xorshift: fast, seeded, the same in every runtime. */
export class Random {
  constructor(private state: number) {
    this.state = Math.imul(state, 0x9e37_79b1) | 1;
  }

  /** A whole number from 0 to below `bound`. */
  below(bound: number): number {
    let x = this.state;
    x ^= x << 13;
    x ^= x >>> 17;
    x ^= x << 5;
    this.state = x;
    return Math.floor(((x >>> 0) / 0x1_0000_0000) * bound);
  }

  unit(): number {
    return (this.below(0x1_0000_0000) + 0.5) / 0x1_0000_0000;
  }
}

/** A permutation of the numbers below `size`, which scatters the frequent ones. */
function scattered(rank: number, size: number): number {
  // The factor is a prime above every size, so different ranks never collide.
  return (rank * 15_485_863) % size;
}

const SKEW = 0.99;

/** Zipf's law with the exponent of YCSB, by the method of Gray et al. */
class Zipf {
  private readonly zeta: number;
  private readonly eta: number;

  constructor(private readonly size: number) {
    let zeta = 0;
    for (let rank = 1; rank <= size; rank++) zeta += rank ** -SKEW;
    this.zeta = zeta;
    const zeta2 = 1 + 2 ** -SKEW;
    this.eta = (1 - (2 / size) ** (1 - SKEW)) / (1 - zeta2 / zeta);
  }

  next(random: Random): number {
    const u = random.unit();
    const uz = u * this.zeta;
    if (uz < 1) return 0;
    if (uz < 1 + 2 ** -SKEW) return 1;
    const rank = Math.floor(this.size * (this.eta * u - this.eta + 1) ** (1 / (1 - SKEW)));
    return Math.min(rank, this.size - 1);
  }
}

/** Chooses the keys of each sample. */
export class Chooser {
  private readonly random: Random;
  private zipf: Zipf | undefined;
  private at = 0;

  constructor(
    private readonly size: number,
    seed: number,
  ) {
    this.random = new Random(seed);
  }

  /** Numbers of existing keys. */
  existing(pattern: Pattern, count: number): Uint32Array {
    const chosen = new Uint32Array(count);
    const { size, random } = this;
    if (pattern === "zipfian") this.zipf ??= new Zipf(size);
    for (let i = 0; i < count; i++) {
      let index: number;
      if (pattern === "sequential") index = this.at++ % size;
      else if (pattern === "random") index = random.below(size);
      else index = scattered(this.zipf!.next(random), size);
      chosen[i] = 2 * index;
    }
    return chosen;
  }

  /** Numbers of new keys: after all others in order, or at random between two others. */
  fresh(pattern: "sequential" | "random", count: number): Uint32Array {
    const { size, random } = this;
    if (pattern === "sequential")
      return Uint32Array.from({ length: count }, (_, i) => 2 * size + i);
    const start = random.below(size);
    return Uint32Array.from({ length: count }, (_, i) => 2 * scattered(start + i, size) + 1);
  }

  shuffled(numbers: Uint32Array): Uint32Array {
    const mixed = numbers.slice();
    for (let i = mixed.length - 1; i > 0; i--) {
      const j = this.random.below(i + 1);
      const held = mixed[i]!;
      mixed[i] = mixed[j]!;
      mixed[j] = held;
    }
    return mixed;
  }
}

/** Writes the bytes of keys, one after the other. */
export function writeKeys(numbers: Uint32Array, into: Uint8Array): void {
  let at = 0;
  for (const number of numbers) {
    into[at] = 0x75; // user
    into[at + 1] = 0x73;
    into[at + 2] = 0x65;
    into[at + 3] = 0x72;
    let rest = number;
    for (let digit = KEY_BYTES - 1; digit >= 4; digit--) {
      const next = Math.floor(rest / 10);
      into[at + digit] = 0x30 + rest - next * 10;
      rest = next;
    }
    at += KEY_BYTES;
  }
}

const latin1 = new TextDecoder("latin1");

/** The keys as separate flat strings, as a program gets them from its input. */
export function keysOf(numbers: Uint32Array): string[] {
  const bytes = new Uint8Array(KEY_BYTES * numbers.length);
  writeKeys(numbers, bytes);
  const keys: string[] = new Array(numbers.length);
  for (let i = 0; i < numbers.length; i++) {
    keys[i] = latin1.decode(bytes.subarray(i * KEY_BYTES, (i + 1) * KEY_BYTES));
  }
  return keys;
}

function mix(x: number): number {
  let h = Math.imul(x ^ (x >>> 16), 0x85eb_ca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2_ae35);
  return h ^ (h >>> 16);
}

/** Writes the words of the value with this number. The second word is the counter. */
function fillValue(id: number, counter: number, words: Uint32Array, at: number): void {
  for (let word = 0; word < WORDS; word++) {
    words[at + word] = mix(id + Math.imul(word + 1, 0x9e37_79b9));
  }
  words[at + 1] = counter;
}

/** What a read sums up, so that it touches the value: its first byte and its last. */
export function looked(view: Uint8Array): number {
  return view[0]! + view[VALUE_BYTES - 1]!;
}

/** The values of one sample: operation `i` writes value `i % POOL`, and each value has a unique id. */
export class Values {
  readonly all: Uint8Array[];
  private readonly words: Uint32Array;
  private first = 1;

  /** `wrap` turns a part of a buffer into the store's type for values. */
  constructor(wrap: (buffer: ArrayBuffer, offset: number, length: number) => Uint8Array) {
    const buffer = new ArrayBuffer(POOL * VALUE_BYTES);
    this.words = new Uint32Array(buffer);
    this.all = Array.from({ length: POOL }, (_, i) => wrap(buffer, i * VALUE_BYTES, VALUE_BYTES));
    this.renew();
  }

  /** Replaces all values. The store must have copied the earlier ones by then. */
  renew(): void {
    this.first += POOL;
    for (let i = 0; i < POOL; i++) fillValue(this.first + i, 0, this.words, i * WORDS);
  }

  idOf(op: number): number {
    return this.first + (op % POOL);
  }
}

/** A checksum over pairs in order. */
export interface Digest {
  add(key: Uint8Array, value: Uint8Array): void;
  /** The checksum and the number of pairs. */
  end(): string;
}

/** The expected contents of a store: for every key number the id of its value, 0 for none, and its counter. */
export class Model {
  private readonly ids: Uint32Array;
  private readonly counters: Uint32Array;
  /** Which keys ever existed: a store that fails to delete one still has it. */
  private readonly ever: Uint8Array;

  constructor({ size, fresh }: Plan) {
    this.ids = new Uint32Array(2 * size + fresh);
    this.counters = new Uint32Array(2 * size + fresh);
    this.ever = new Uint8Array(2 * size + fresh);
  }

  /** All keys that ever existed, in order. */
  *everStored(): Generator<string> {
    const step = 4_096;
    const found = new Uint32Array(step);
    let count = 0;
    for (let number = 0; number < this.ever.length; number++) {
      if (this.ever[number] === 0) continue;
      found[count++] = number;
      if (count < step) continue;
      yield* keysOf(found);
      count = 0;
    }
    yield* keysOf(found.subarray(0, count));
  }

  set(numbers: Uint32Array, values: Values): void {
    for (let op = 0; op < numbers.length; op++) {
      this.ids[numbers[op]!] = values.idOf(op);
      this.counters[numbers[op]!] = 0;
      this.ever[numbers[op]!] = 1;
    }
  }

  update(numbers: Uint32Array): void {
    for (const number of numbers) this.counters[number]! += 1;
  }

  delete(numbers: Uint32Array): void {
    for (const number of numbers) this.ids[number] = 0;
  }

  /** The sum of `looked` over these keys. */
  looked(numbers: Uint32Array): number {
    const words = new Uint32Array(WORDS);
    const bytes = new Uint8Array(words.buffer);
    let sum = 0;
    for (const number of numbers) {
      fillValue(this.ids[number]!, 0, words, 0);
      sum += looked(bytes);
    }
    return sum;
  }

  /** The expected sum and number of pairs of a scan. */
  scanned(from: number, limit: number): { sum: number; count: number } {
    const found: number[] = [];
    for (let number = from; number < this.ids.length && found.length < limit; number++) {
      if (this.ids[number] !== 0) found.push(number);
    }
    const sum = this.looked(Uint32Array.from(found));
    return { sum: sum + found.length * KEY_BYTES, count: found.length };
  }

  digest(into: Digest): string {
    const words = new Uint32Array(WORDS);
    const value = new Uint8Array(words.buffer);
    const one = new Uint32Array(1);
    const key = new Uint8Array(KEY_BYTES);
    for (let number = 0; number < this.ids.length; number++) {
      const id = this.ids[number]!;
      if (id === 0) continue;
      one[0] = number;
      writeKeys(one, key);
      fillValue(id, this.counters[number]!, words, 0);
      into.add(key, value);
    }
    return into.end();
  }
}
