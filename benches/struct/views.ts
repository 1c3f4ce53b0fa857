/** One record of a number and a string, in every form that it may have in memory. */

import type * as FlatBuffers from "flatbuffers";
import type * as MessagePack from "msgpackr";
import { codecOf } from "varve/codec";
import { str, struct, u16 } from "varve/struct";
import { type Measured, measure, type Variant } from "./measure.js";

const Product = struct("Product", { stock: u16, name: str });
const codec = codecOf(Product);
const NAME = "Yeezy Boost 350 V2";
/** More records than a compiler keeps in registers. A power of two. */
const RECORDS = 256;
const MASK = RECORDS - 1;
/** Operations of a sample: whole passes over the records, each with its reverse. */
const MANY = 392 * 2 * RECORDS;
const FEW = 10 * 2 * RECORDS;
/** Bytes between two records, enough for the string. */
const STRIDE = 32;

export interface Rivals {
  msgpackr: typeof MessagePack;
  flatbuffers: typeof FlatBuffers;
}

interface Plain {
  stock: number;
  name: string;
}

/** All records side by side, as in a database's memory. */
function records() {
  const u8 = new Uint8Array(RECORDS * STRIDE);
  const data = new DataView(u8.buffer);
  const memory = { data, u8, epoch: 0 };
  const starts = Array.from({ length: RECORDS }, (_, index) => index * STRIDE);
  const input = { stock: 1, name: NAME };
  const size = codec.size(input);
  for (const at of starts) codec.write(memory, at, input, size);
  return { u8, data, memory, starts, size };
}

type Read<T> = (record: T) => number;

/** Reads the records again and again. */
function over<T>(list: readonly T[], count: number, read: Read<T>): () => number {
  return () => {
    let sum = 0;
    for (let i = 0; i < count; i++) sum += read(list[i & MASK] as T);
    return sum;
  };
}

/** What a generated class of FlatBuffers does, for a table of `stock` and `name`. */
class FlatProduct {
  bb: FlatBuffers.ByteBuffer;
  at: number;

  constructor(bb: FlatBuffers.ByteBuffer) {
    this.bb = bb;
    this.at = bb.readInt32(bb.position()) + bb.position();
  }

  stock(): number {
    const offset = this.bb.__offset(this.at, 4);
    return offset ? this.bb.readUint16(this.at + offset) : 0;
  }

  mutateStock(value: number): boolean {
    const offset = this.bb.__offset(this.at, 4);
    if (offset === 0) return false;
    this.bb.writeUint16(this.at + offset, value);
    return true;
  }

  name(): string {
    const offset = this.bb.__offset(this.at, 6);
    return offset ? this.bb.__string(this.at + offset) : "";
  }
}

function flatBuffer({ Builder }: typeof FlatBuffers): Uint8Array {
  const builder = new Builder(64);
  const name = builder.createString(NAME);
  builder.startObject(2);
  builder.addFieldInt16(0, 1, 0);
  builder.addFieldOffset(1, name, 0);
  builder.finish(builder.endObject());
  return builder.asUint8Array().slice();
}

/** The other forms of the same record. */
function otherForms({ msgpackr, flatbuffers }: Rivals) {
  const packr = new msgpackr.Packr({ structures: [] });
  const make = <T>(one: () => T): T[] => Array.from({ length: RECORDS }, one);
  const input = { stock: 1, name: NAME };
  return {
    objects: make(() => ({ ...input })),
    json: make(() => JSON.stringify(input)),
    packr,
    packed: make(() => packr.pack(input).slice()),
    flat: make(() => flatBuffer(flatbuffers)),
    ByteBuffer: flatbuffers.ByteBuffer,
  };
}

/** Checks that every form has the same contents, also after adding to the number. */
function checkEqual({ data, memory, starts, size }: Records, forms: OtherForms): void {
  const { objects, json, packr, packed, flat, ByteBuffer } = forms;
  const at = starts[0]!;
  const view = codec.writable(memory, at, size);
  const table = new FlatProduct(new ByteBuffer(flat[0]!));
  const decoded = [packr.unpack(packed[0]!), JSON.parse(json[0]!), structuredClone(objects[0])];
  const all = [view, { stock: table.stock(), name: table.name() }, ...(decoded as Plain[])];
  const isSame = all.every(({ stock, name }) => stock === 1 && name === NAME);
  view.stock += 1;
  table.mutateStock(table.stock() + 1);
  const added = decoded.map((one) => ({ ...(one as Plain), stock: 2 }));
  const again = [
    Product.view(Product.encode(added[0]!)),
    packr.unpack(packr.pack(added[1]!)),
    JSON.parse(JSON.stringify(added[2]!)),
  ] as Plain[];
  const numbers = [data.getUint16(at, true), table.stock(), ...again.map(({ stock }) => stock)];
  if (!isSame || numbers.some((stock) => stock !== 2)) throw new Error("the forms disagree");
}

export function measureViews(rivals: Rivals, samples: number, scale: number): Promise<Measured[]> {
  checkEqual(records(), otherForms(rivals));
  const variants = [
    ...reads(records(), otherForms(rivals), scale),
    ...writes(records(), otherForms(rivals), scale),
    ...creations(records(), rivals, scale),
  ];
  return measure(variants, samples);
}

type Records = ReturnType<typeof records>;
type OtherForms = ReturnType<typeof otherForms>;

const RAW = { store: "raw DataView", about: "offset known" };
const VARVE = { store: "varve", about: "typed view" };
const OBJECT = { store: "object", about: "plain, in memory" };
const FLAT = { store: "FlatBuffers", about: "accessor" };
const PACK = { store: "msgpackr", about: "decode all" };
const JSONS = { store: "JSON", about: "decode all" };
const CLONE = { store: "structuredClone", about: "copy all" };

function reads(
  { u8, data, memory, starts, size }: Records,
  forms: OtherForms,
  scale: number,
): Variant[] {
  const views = starts.map((at) => Product.view(memory, at, size));
  const { objects, json, packr, packed, flat, ByteBuffer } = forms;
  const flats = flat.map((bytes) => new FlatProduct(new ByteBuffer(bytes)));
  const many = MANY * scale;
  const few = FEW * scale;
  const field = { work: "read a number of a view that is kept", count: many, sum: many };
  const got = { work: "make a view and read a number of it", count: many, sum: many };
  const decoded = { work: got.work, count: few, sum: few };
  const name = { work: "read a string of 18 letters", count: few * 5, sum: few * 5 * NAME.length };
  const decoder = new TextDecoder();
  // Each loop is written out: a call of a function parameter would dominate the measurement.
  return [
    {
      ...field,
      ...RAW,
      run() {
        let sum = 0;
        for (let i = 0; i < many; i++) sum += data.getUint16(starts[i & MASK]!, true);
        return sum;
      },
    },
    {
      ...field,
      ...VARVE,
      run() {
        let sum = 0;
        for (let i = 0; i < many; i++) sum += views[i & MASK]!.stock;
        return sum;
      },
    },
    {
      ...field,
      ...OBJECT,
      run() {
        let sum = 0;
        for (let i = 0; i < many; i++) sum += objects[i & MASK]!.stock;
        return sum;
      },
    },
    {
      ...field,
      ...FLAT,
      run() {
        let sum = 0;
        for (let i = 0; i < many; i++) sum += flats[i & MASK]!.stock();
        return sum;
      },
    },
    {
      ...got,
      ...VARVE,
      run() {
        let sum = 0;
        for (let i = 0; i < many; i++) sum += Product.view(memory, starts[i & MASK]!, size).stock;
        return sum;
      },
    },
    {
      ...got,
      ...FLAT,
      run() {
        let sum = 0;
        for (let i = 0; i < many; i++) {
          sum += new FlatProduct(new ByteBuffer(flat[i & MASK]!)).stock();
        }
        return sum;
      },
    },
    { ...decoded, ...PACK, run: over(packed, few, (one) => (packr.unpack(one) as Plain).stock) },
    { ...decoded, ...JSONS, run: over(json, few, (text) => (JSON.parse(text) as Plain).stock) },
    { ...decoded, ...CLONE, run: over(objects, few, (one) => structuredClone(one).stock) },
    {
      ...name,
      store: "raw DataView",
      about: "TextDecoder",
      run: over(starts, name.count, (at) => {
        const start = at + data.getUint32(at + 4, true);
        const end = start + data.getUint32(at + 8, true);
        return decoder.decode(u8.subarray(start, end)).length;
      }),
    },
    { ...name, ...VARVE, run: over(views, name.count, (view) => view.name.length) },
    { ...name, ...OBJECT, run: over(objects, name.count, (object) => object.name.length) },
    { ...name, ...FLAT, run: over(flats, name.count, (one) => one.name().length) },
  ];
}

function writes(
  { data, memory, starts, size }: Records,
  forms: OtherForms,
  scale: number,
): Variant[] {
  const views = starts.map((at) => codec.writable(memory, at, size));
  const { objects, json, packr, packed, flat, ByteBuffer } = forms;
  const flats = flat.map((bytes) => new FlatProduct(new ByteBuffer(bytes)));
  const many = MANY * scale;
  const few = FEW * scale;
  // Every record is incremented and decremented, so that each sample starts with the same contents.
  const there = (i: number) => ((i & RECORDS) === 0 ? 1 : -1);
  const passes =
    <T>(list: readonly T[], count: number, add: (one: T, by: number) => void) =>
    () => {
      for (let i = 0; i < count; i++) add(list[i & MASK] as T, there(i));
      return count;
    };
  const kept = { work: "add to a number of a view that is kept", count: many };
  const made = { work: "make a view, add to a number, end the view", count: many / 2 };
  const coded = { work: "decode, add to a number, encode", count: few };
  const input = { stock: 1, name: NAME };
  return [
    {
      ...kept,
      ...RAW,
      run() {
        for (let i = 0; i < many; i++) {
          const at = starts[i & MASK]!;
          data.setUint16(at, data.getUint16(at, true) + there(i), true);
        }
        return many;
      },
    },
    {
      ...kept,
      ...VARVE,
      run() {
        for (let i = 0; i < many; i++) views[i & MASK]!.stock += there(i);
        return many;
      },
    },
    {
      ...kept,
      ...OBJECT,
      run() {
        for (let i = 0; i < many; i++) objects[i & MASK]!.stock += there(i);
        return many;
      },
    },
    {
      ...kept,
      ...FLAT,
      run() {
        for (let i = 0; i < many; i++) {
          const one = flats[i & MASK]!;
          one.mutateStock(one.stock() + there(i));
        }
        return many;
      },
    },
    {
      ...made,
      ...VARVE,
      run() {
        for (let i = 0; i < made.count; i++) {
          const view = codec.writable(memory, starts[i & MASK]!, size);
          view.stock += there(i);
          codec.finish(view);
          codec.revoke(view);
        }
        return many;
      },
    },
    {
      ...made,
      ...FLAT,
      run() {
        for (let i = 0; i < made.count; i++) {
          const one = new FlatProduct(new ByteBuffer(flat[i & MASK]!));
          one.mutateStock(one.stock() + there(i));
        }
        return many;
      },
    },
    {
      ...coded,
      ...PACK,
      run: passes(packed, few, (bytes, by) => {
        const one = packr.unpack(bytes) as Plain;
        one.stock += by;
        packr.pack(one);
      }),
    },
    {
      ...coded,
      ...JSONS,
      run: passes(json, few, (text, by) => {
        const one = JSON.parse(text) as Plain;
        one.stock += by;
        JSON.stringify(one);
      }),
    },
    {
      ...coded,
      ...CLONE,
      run: passes(objects, few, (object, by) => {
        const one = structuredClone(object);
        one.stock += by;
      }),
    },
    {
      work: "encode a record",
      ...VARVE,
      about: "encode to bytes",
      count: few,
      run: passes(objects, few, () => Product.encode(input)),
    },
    {
      work: "encode a record",
      ...PACK,
      about: "encode to bytes",
      count: few,
      run: passes(objects, few, () => packr.pack(input)),
    },
    {
      work: "encode a record",
      ...JSONS,
      about: "encode to a string",
      count: few,
      run: passes(objects, few, () => JSON.stringify(input)),
    },
  ];
}

/** Creates a record, adds to its number, and leaves it as bytes ready to store. */
function creations(
  { data, memory, starts, size }: Records,
  rivals: Rivals,
  scale: number,
): Variant[] {
  const { packr } = otherForms(rivals);
  const { ByteBuffer } = rivals.flatbuffers;
  const count = FEW * scale;
  const variant = (form: typeof RAW, create: (input: Plain, at: number) => number): Variant => ({
    work: "create a record and add to its number",
    ...form,
    count,
    sum: 2 * count,
    run: over(starts, count, (at) => create({ stock: 1, name: NAME }, at)),
  });
  return [
    variant(VARVE, (input, at) => {
      codec.write(memory, at, input, codec.size(input));
      const view = codec.writable(memory, at, size);
      view.stock += 1;
      codec.finish(view);
      codec.revoke(view);
      return data.getUint16(at, true);
    }),
    variant(OBJECT, (input) => {
      const one = { ...input };
      one.stock += 1;
      return one.stock;
    }),
    variant(FLAT, () => {
      const one = new FlatProduct(new ByteBuffer(flatBuffer(rivals.flatbuffers)));
      one.mutateStock(one.stock() + 1);
      return one.stock();
    }),
    variant(PACK, (input) => {
      const one = packr.unpack(packr.pack(input)) as Plain;
      one.stock += 1;
      return packr.pack(one).length && one.stock;
    }),
    variant(JSONS, (input) => {
      const one = JSON.parse(JSON.stringify(input)) as Plain;
      one.stock += 1;
      return JSON.stringify(one).length && one.stock;
    }),
    variant(CLONE, (input) => {
      const one = structuredClone(input);
      one.stock += 1;
      return one.stock;
    }),
  ];
}
