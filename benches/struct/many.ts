/** A record of a number and a string in a program with many schemas, all of them in use. */

import { type Database, memory, open } from "varve";
import { bool, str, struct, u16, u32 } from "varve/struct";
import { type Measured, measure, type Variant } from "./measure.js";

const Product = struct("Product", { stock: u16, name: str });
const NAME = "Yeezy Boost 350 V2";
/** Engines cache up to four classes at each place in the code. */
const OTHERS = 8;
const KEYS = 64;
const MASK = KEYS - 1;
const CALLS = 64 * KEYS;
const READS = 4_096 * KEYS;

const RAW = { store: "raw bytes", about: "offset known" };
const TYPED = { store: "typed view", about: "collection, schema" };

/** Each of the other schemas is read and changed often enough to appear in the compiler's type feedback. */
function readOthers(db: Database): number {
  let sum = 0;
  for (let i = 0; i < OTHERS; i++) {
    const Other = struct(`Other${i}`, { id: u32, stock: u16, on: bool, [`text${i}`]: str });
    const others = db.collection(`others${i}`, Other);
    others.set("one", { id: 1, stock: 2, on: true, [`text${i}`]: "" } as never);
    for (let time = 0; time < 5_000; time++) {
      const { id, stock } = others.get("one") as unknown as { id: number; stock: number };
      sum += id + stock;
      others.updateIf("one", (view) => {
        (view as unknown as { stock: number }).stock = 2;
      });
    }
  }
  db.commit();
  return sum;
}

export async function measureMany(samples: number): Promise<Measured[]> {
  const db = await open("many", { storage: memory() });
  try {
    if (readOthers(db) !== OTHERS * 15_000) throw new Error("the other schemas are read wrongly");
    const all = variants(db);
    const isSet = ({ work }: Variant) => work.startsWith("set");
    // The maintenance after sets would run during the next measurement.
    const first = await measure(
      all.filter((variant) => !isSet(variant)),
      samples,
    );
    return [...first, ...(await measure(all.filter(isSet), samples))];
  } finally {
    await db.close();
  }
}

/** The same records raw and in a collection, each with stock 1. */
function stored(db: Database) {
  const products = db.collection("products", Product);
  const keys = Array.from({ length: KEYS }, (_, index) => `product${index}`);
  const input = { stock: 1, name: NAME };
  const bytes = Product.encode(input);
  for (const key of keys) {
    db.set(key, bytes);
    products.set(key, input);
  }
  db.commit();
  return { products, keys, input, bytes };
}

function variants(db: Database): Variant[] {
  const { products, keys, input, bytes } = stored(db);
  return [
    ...keptVariants(bytes),
    ...pair("get a record, read a number", CALLS, {
      raw: (i) => db.get(keys[i & MASK]!)![0]!,
      typed: (i) => products.get(keys[i & MASK]!)!.stock,
    }),
    ...pair("updateIf with a predicate", CALLS, {
      raw: (i) => Number(db.updateIf(keys[i & MASK]!, flipBytes, { predicate: isStocked })),
      typed: (i) => Number(products.updateIf(keys[i & MASK]!, flip, { predicate: hasStock })),
      end: () => db.commit(),
    }),
    ...pair("set a record that is there", CALLS, {
      raw: (i) => {
        db.set(keys[i & MASK]!, bytes);
        return 1;
      },
      typed: (i) => {
        products.set(keys[i & MASK]!, input);
        return 1;
      },
      end: () => {
        db.commit();
        const isSame = keys.every((key) => products.get(key)?.name === NAME);
        if (!isSame) throw new Error("a record is not what was set");
      },
    }),
  ];
}

// 64 rounds over the records: each record is changed and restored equally often.
const isStocked = (view: Uint8Array): boolean => view[0]! > 0;
const hasStock = (view: { readonly stock: number }): boolean => view.stock > 0;
const flipBytes = (view: Uint8Array): void => {
  view[0]! ^= 2;
};
const flip = (view: { stock: number }): void => {
  view.stock ^= 2;
};

type Call = (i: number) => number;

/** The same work in both forms, each in a separate loop. The calls of one sample sum to their number. */
function pair(
  work: string,
  count: number,
  { raw, typed, end }: { raw: Call; typed: Call; end?: () => void },
): Variant[] {
  const variant = (about: typeof RAW, call: Call): Variant => ({
    work,
    ...about,
    count,
    sum: count,
    run() {
      let sum = 0;
      for (let i = 0; i < count; i++) sum += call(i);
      end?.();
      return sum;
    },
  });
  return [variant(RAW, raw), variant(TYPED, typed)];
}

/** Written out: a read is so short that a function call would dominate it. */
function keptVariants(bytes: Uint8Array): Variant[] {
  const u8 = new Uint8Array(KEYS * 32);
  const data = new DataView(u8.buffer);
  const starts = Array.from({ length: KEYS }, (_, index) => index * 32);
  for (const at of starts) u8.set(bytes, at);
  const views = starts.map((at) => Product.view({ data, u8, epoch: 0 }, at, bytes.length));
  const kept = { work: "read a number of a view that is kept", count: READS, sum: READS };
  return [
    {
      ...kept,
      ...RAW,
      run() {
        let sum = 0;
        for (let i = 0; i < READS; i++) sum += data.getUint16(starts[i & MASK]!, true);
        return sum;
      },
    },
    {
      ...kept,
      ...TYPED,
      run() {
        let sum = 0;
        for (let i = 0; i < READS; i++) sum += views[i & MASK]!.stock;
        return sum;
      },
    },
  ];
}
