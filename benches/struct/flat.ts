/** A struct with flattened structs compared with one that has the same fields directly. */

import { codecOf } from "varve/codec";
import { fromJson, jsonReader, jsonWriter, toJson } from "varve/json";
import { bool, f64, flatten, str, struct, u8, u16, u32, type View } from "varve/struct";
import { type Measured, measure, type Variant } from "./measure.js";

const Page = struct("Page", { offset: u32, limit: u16, total: u32 });
const Sort = struct("Sort", { by: u8, descending: bool, weight: f64 });

const Flattened = struct("Search", {
  id: u32,
  page: flatten(Page),
  query: str,
  sort: flatten(Sort),
  exact: bool,
});
const Plainly = struct("Search", {
  id: u32,
  offset: u32,
  limit: u16,
  total: u32,
  query: str,
  by: u8,
  descending: bool,
  weight: f64,
  exact: bool,
});

const VALUES = 1_000;
const inputs = Array.from({ length: VALUES }, (_, index) => ({
  id: index,
  offset: index * 20,
  limit: 20,
  total: 12_345,
  query: `what was asked, number ${index}`,
  by: index & 7,
  descending: (index & 1) === 0,
  weight: index / 8,
  exact: (index & 2) === 0,
}));

/**
 * A program has several schemas, which share the code of their getters. Without these, the schema measured
 * first would have that code to itself for a while, and it would be compiled for that schema alone.
 */
function readOthers(): number {
  let sum = 0;
  for (let i = 0; i < 6; i++) {
    const fields = {
      id: u32,
      limit: u16,
      by: u8,
      descending: bool,
      weight: f64,
      [`text${i}`]: str,
    };
    const Other = struct(`Other${i}`, fields);
    const input = { id: 1, limit: 2, by: 3, descending: true, weight: 4, [`text${i}`]: "" };
    const bytes = Other.encode(input as Parameters<typeof Other.encode>[0]);
    for (let time = 0; time < 1_000; time++) {
      const view = Other.view(bytes);
      sum += view.id + view.limit + view.by + view.weight + (view.descending ? 1 : 0);
    }
  }
  return sum;
}

/** The order of compilation matters, so every other process compiles the flattened struct first. */
export function measureFlat(samples: number, turn: number): Promise<Measured[]> {
  if (readOthers() !== 66_000) throw new Error("the other schemas are read wrongly");
  const both = [
    () => readVariant("plain fields", Plainly as unknown as typeof Flattened, PLAIN),
    () => readVariant("flattened", Flattened, FLAT),
  ];
  if (turn % 2 === 1) both.reverse();
  const variants = [
    ...both.map((make) => make()),
    ...codeVariants("plain fields", Plainly as unknown as typeof Flattened),
    ...codeVariants("flattened", Flattened),
    ...objectVariants(),
  ];
  return measure(variants, samples);
}

const about = "the same fields";

/** All values side by side in one memory. */
function stored(Search: typeof Flattened) {
  const sizes = inputs.map((input) => codecOf(Search).size(input));
  const starts = sizes.map((_, index) => index * 128);
  const u8 = new Uint8Array(VALUES * 128);
  const memory = { data: new DataView(u8.buffer), u8, epoch: 0 };
  const put = (index: number) =>
    codecOf(Search).write(memory, starts[index]!, inputs[index]!, sizes[index]!);
  for (let i = 0; i < VALUES; i++) put(i);
  return { memory, sizes, starts, put };
}

const READS = 20;

type Loop = (views: readonly View<typeof Flattened>[]) => number;

/**
 * Written out twice, because code for both would check the type of each view. The views are kept, and read in
 * three loops: where views are created during the loop, engines optimize their allocation away in some runs
 * only, and nine getters are too many to be inlined into one loop; each of the two took 44 ns or 56 at
 * random. Each call reads all views once: a long loop is replaced while it runs by code that is less
 * optimized, and some workers keep that code (7.5 ns instead of 4.3 for the second loop).
 */
const PLAIN: Loop[] = [
  (views) => {
    let sum = 0;
    for (const view of views) {
      sum += view.offset + view.limit + view.total;
    }
    return sum;
  },
  (views) => {
    let sum = 0;
    for (const view of views) {
      sum += view.by + view.weight + (view.descending ? 1 : 0);
    }
    return sum;
  },
  (views) => {
    let sum = 0;
    for (const view of views) {
      sum += view.id + (view.exact ? 1 : 0);
    }
    return sum;
  },
];

const FLAT: Loop[] = [
  (views) => {
    let sum = 0;
    for (const view of views) {
      sum += view.offset + view.limit + view.total;
    }
    return sum;
  },
  (views) => {
    let sum = 0;
    for (const view of views) {
      sum += view.by + view.weight + (view.descending ? 1 : 0);
    }
    return sum;
  },
  (views) => {
    let sum = 0;
    for (const view of views) {
      sum += view.id + (view.exact ? 1 : 0);
    }
    return sum;
  },
];

function readVariant(store: string, of: typeof Flattened, loops: Loop[]): Variant {
  const { memory, starts, sizes } = stored(of);
  const views = starts.map((at, index) => of.view(memory, at, sizes[index]!));
  return {
    work: "read all nine fields but the string",
    about,
    count: VALUES * READS,
    store,
    run() {
      let sum = 0;
      for (const loop of loops) for (let i = 0; i < READS; i++) sum += loop(views);
      return sum;
    },
  };
}

function codeVariants(store: string, Search: typeof Flattened): Variant[] {
  const { memory, sizes, starts, put } = stored(Search);
  const values = inputs.map((input) => Search.encode(input));
  const lines = values.map((bytes) => new TextEncoder().encode(toJson(Search, bytes)));
  if (fromJson(Search, lines[7]!).join() !== values[7]!.join()) throw new Error("JSON is wrong");
  const read = jsonReader(Search);
  const write = jsonWriter(Search);
  const each = (run: (index: number) => number) => () => {
    let sum = 0;
    for (let i = 0; i < VALUES; i++) sum += run(i);
    return sum;
  };
  const variant = (work: string, run: (index: number) => number): Variant => ({
    work,
    store,
    about,
    count: VALUES,
    run: each(run),
  });
  return [
    variant("write a value", (index) => {
      put(index);
      return index;
    }),
    variant("JSON out", (index) => write(memory, starts[index]!, sizes[index]!).length),
    variant("JSON in", (index) => read(lines[index]!, 0, lines[index]!.length).length),
  ];
}

/** The same JSON through objects, as programs write it without varve. */
function objectVariants(): Variant[] {
  const values = inputs.map((input) => Flattened.encode(input));
  const lines = values.map((bytes) => toJson(Flattened, bytes));
  const variant = (work: string, run: (index: number) => number): Variant => ({
    work,
    store: "through objects",
    about: "the platform's JSON",
    count: VALUES,
    run() {
      let sum = 0;
      for (let i = 0; i < VALUES; i++) sum += run(i);
      return sum;
    },
  });
  return [
    variant("JSON out", (index) => JSON.stringify(Flattened.view(values[index]!)).length),
    variant("JSON in", (index) => Flattened.encode(JSON.parse(lines[index]!)).length),
  ];
}
