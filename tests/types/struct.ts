/**
 * Tests of the types of schemas. They are compiled and never run: `npm run check` fails if a line does not compile,
 * or if a line marked as an error does.
 */

import { inJson } from "varve/json";
import {
  added,
  array,
  blob,
  bool,
  bytes,
  enum8,
  enum16,
  eq,
  f64,
  fixedStr,
  flatten,
  type Infer,
  type Input,
  type List,
  option,
  optNonZero,
  str,
  struct,
  timestamp,
  u8,
  u16,
  u32,
  u53,
  u64,
  union,
  type View,
  vec,
  versioned,
  type Writable,
  type WritableList,
} from "varve/struct";

/** Compiles only if both types are the same. */
type Same<A, B> =
  (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
function same<A, B>(_: Same<A, B>): void {}

const Size = struct("Size", { width: u16, height: u16 });
const Page = struct("Page", { offset: u32, limit: u8 });
const Order = struct("Order", {
  id: u53,
  big: u64,
  at: timestamp,
  paid: bool,
  state: enum8("open", "sent"),
  level: enum16("low", "high"),
  note: str,
  code: fixedStr(4),
  key: bytes(8),
  data: blob,
  size: Size,
  page: flatten(Page),
  grid: array(u8, 3),
  sizes: vec(Size),
  gift: option(str),
  box: option(Size),
  rank: optNonZero(u32),
  by: union({ Cash: u32, Box: Size, Free: null }),
});
type Order = Infer<typeof Order>;

const order: Order = {
  id: 1,
  big: 1n,
  at: 0,
  paid: true,
  state: "open",
  level: "low",
  note: "",
  code: "",
  key: new Uint8Array(8),
  data: new Uint8Array(),
  size: { width: 1, height: 2 },
  offset: 0,
  limit: 10,
  grid: [1, 2, 3],
  sizes: [{ width: 1, height: 2 }],
  gift: undefined,
  box: undefined,
  rank: 3,
  by: { type: "Free" },
};

export function plain(value: Order): void {
  same<Order["id"], number>(true);
  same<Order["big"], bigint>(true);
  same<Order["state"], "open" | "sent">(true);
  same<Order["offset"], number>(true);
  same<Order["size"], { width: number; height: number }>(true);
  same<Order["sizes"], { width: number; height: number }[]>(true);
  same<Order["gift"], string | undefined>(true);
  same<Infer<typeof Page>, { offset: number; limit: number }>(true);
  if (value.by.type === "Cash") same<typeof value.by.value, number>(true);
  if (value.by.type === "Box") same<typeof value.by.value.width, number>(true);

  // @ts-expect-error a flattened struct has no name of its own
  value.page;
  // @ts-expect-error not a field
  value.nothing;
  // @ts-expect-error not a name of the enum
  value.state === "lost";
}

export function storing(view: View<typeof Order>): void {
  same<ReturnType<typeof Order.encode>, Uint8Array<ArrayBuffer>>(true);
  Order.encode(order);
  Order.encode(view);
  const { gift: _, box: __, rank: ___, ...rest } = order;
  Order.encode(rest);
  Order.encode({ ...order, at: new Date(), gift: null, grid: Uint8Array.of(1, 2, 3) });
  Order.encode({ ...order, by: { type: "Box", value: { width: 1, height: 2 } } });
  const input: Input<typeof Page> = { offset: 1, limit: 2 };
  Page.encode(input);

  // @ts-expect-error a field is missing
  Page.encode({ offset: 1 });
  // @ts-expect-error not a field
  Page.encode({ offset: 1, limit: 2, other: 3 });
  // @ts-expect-error a number is not text
  Order.encode({ ...order, note: 1 });
  // @ts-expect-error a bigint is not a number
  Order.encode({ ...order, id: 1n });
  // @ts-expect-error a number is not a bigint
  Order.encode({ ...order, big: 1 });
  // @ts-expect-error not a name of the enum
  Order.encode({ ...order, state: "lost" });
  // @ts-expect-error a value of another variant's type
  Order.encode({ ...order, by: { type: "Cash", value: "1" } });
  // @ts-expect-error not a variant
  Order.encode({ ...order, by: { type: "Cheque" } });
  // @ts-expect-error text is not a number
  Order.encode({ ...order, grid: ["1"] });
}

export function reading(view: View<typeof Order>): void {
  same<typeof view, ReturnType<typeof Order.view>>(true);
  same<typeof view.note, string>(true);
  same<typeof view.limit, number>(true);
  same<typeof view.key, Uint8Array>(true);
  same<typeof view.size.width, number>(true);
  same<typeof view.grid, List<number, number>>(true);
  same<ReturnType<typeof view.sizes.at>, View<typeof Size> | undefined>(true);
  same<typeof view.box, View<typeof Size> | undefined>(true);
  same<ReturnType<typeof view.snapshot>, Order>(true);
  for (const { width } of view.sizes) same<typeof width, number>(true);
  same<ReturnType<typeof eq>, boolean>(true);
  eq(view, "note", "text");
  eq(view, "data", new Uint8Array());

  // @ts-expect-error a view for reading is read-only
  view.id = 1;
  // @ts-expect-error a flattened field is read-only too
  view.limit = 1;
  // @ts-expect-error a part of a view is read-only too
  view.size.width = 1;
  // @ts-expect-error a list for reading has no set
  view.grid.set(0, 1);
  // @ts-expect-error an option may be undefined
  view.box.width;
  // @ts-expect-error eq only compares text and bytes
  eq(view, "id", "1");
  // @ts-expect-error not a field
  eq(view, "nothing", "1");
}

export function updating(view: Writable<typeof Order>): void {
  view.id -= 1;
  view.limit = 5;
  view.note = "other";
  view.size.width += 1;
  view.gift = undefined;
  view.state = "sent";
  same<typeof view.grid, WritableList<number, number, number>>(true);
  view.grid.set(0, 1);
  view.sizes.at(0)!.width = 1;
  view.sizes.set(0, { width: 1, height: 2 });
  view.assign({ size: { width: 1, height: 2 }, sizes: [], at: new Date() });
  if (view.by.type === "Box") view.by.value.width = 1;
  view.by = { type: "Cash", value: 1 };

  // @ts-expect-error text is not a number
  view.id = "1";
  // @ts-expect-error not a field
  view.nothing = 1;
  // @ts-expect-error not a name of the enum
  view.state = "lost";
  // @ts-expect-error a field of another type
  view.assign({ size: { width: "1", height: 2 } });
  // @ts-expect-error items are numbers
  view.grid.set(0, "1");
}

export function defining(): void {
  const Old = versioned("Old", { stock: u16, price: added(f64, 1.5) });
  Old.encode({ stock: 1 });
  Old.encode({ stock: 1, price: 2 });
  same<Infer<typeof Old>, { stock: number; price: number }>(true);
  same<View<typeof Old>["price"], number>(true);

  // A JSON form changes no type.
  const by = union({ Box: Size, Free: null });
  const tagged = inJson(by, { tag: "kind", renameAll: "camelCase" });
  same<typeof tagged, typeof by>(true);
  const Tagged = struct("Tagged", { by: tagged });
  same<Infer<typeof Tagged>["by"], Infer<typeof by>>(true);
  // @ts-expect-error a tag is a name
  inJson(by, { tag: 1 });
  // @ts-expect-error no such option
  inJson(by, { tags: "kind" });

  const Names = inJson(struct("Names", { aB: u8, at: option(Size), flat: flatten(Size) }), {
    renameAll: "snake_case",
    fields: {
      aB: { rename: "b", alias: ["c"], default: 1 },
      at: { skip: true, default: { width: 1, height: 2 } },
      width: { alias: "w" },
    },
  });
  same<Infer<typeof Names>["aB"], number>(true);
  same<keyof Infer<typeof Names>, "aB" | "at" | "width" | "height">(true);
  // @ts-expect-error a default of another type
  inJson(Size, { fields: { width: { default: "1" } } });
  // @ts-expect-error no such field
  inJson(Size, { fields: { length: { rename: "l" } } });
  // @ts-expect-error no such spelling
  inJson(Size, { renameAll: "lowercase" });

  // @ts-expect-error only added fields may be missing
  Old.encode({ price: 2 });
  // @ts-expect-error a default of another type
  added(f64, "1");
  // @ts-expect-error a field needs a type
  struct("A", { a: 1 });
  // @ts-expect-error bytes needs a length
  struct("A", { a: bytes });
  // @ts-expect-error only structs can be flattened
  flatten(u8);
  // @ts-expect-error optNonZero only takes numbers
  optNonZero(str);
  // @ts-expect-error a struct needs a name
  struct({ a: u8 });
}
