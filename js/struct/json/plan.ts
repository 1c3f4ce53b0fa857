/**
 * A descriptor compiled for JSON: the operation at each offset. Fields of flattened structs are merged into their
 * parent, so that they cost no more than others.
 */

import { encoder } from "../../util/text-coders.js";
import type { Descriptor, StructDescriptor } from "../codec.js";
import { alignUp, badValue } from "../type.js";
import { type Form, formOf } from "./form.js";

/** The kinds of nodes; numbers, because a switch over them compiles to a jump table. */
export const OP = {
  u8: 0,
  u16: 1,
  u32: 2,
  i8: 3,
  i16: 4,
  i32: 5,
  f32: 6,
  f64: 7,
  u64: 8,
  i64: 9,
  u53: 10,
  timestamp: 11,
  bool: 12,
  enum8: 13,
  enum16: 14,
  bytes: 15,
  fixedStr: 16,
  str: 17,
  blob: 18,
  array: 19,
  vec: 20,
  option: 21,
  optNonZero: 22,
  union: 23,
  struct: 24,
  json: 25,
  text: 26,
  /** The field that names a union's variant. It takes no bytes. */
  tag: 27,
} as const;

/** A node of the plan, for one type. All nodes have the same members, which keeps the code that reads them fast. */
export interface Node {
  readonly op: number;
  readonly kind: string;
  readonly size: number;
  readonly align: number;
  /** Number of bytes or items, if fixed. */
  readonly count: number;
  /** Of items, or of what is optional. */
  readonly of: Node;
  /** Whether it refers to parts behind the root. */
  readonly parts: boolean;
  /** Of fields or variants. */
  readonly names: Names;
  /** Of each field or variant: its type, none for a variant without payload. */
  readonly nodes: readonly (Node | undefined)[];
  /** Of each field or payload: where it begins, counted from the struct's or the union's start. */
  readonly starts: readonly number[];
  /** Of a versioned struct: its size, which is written in front of its fields; else 0. */
  readonly root: number;
  /** The JSON that comes in front of each field, or that a variant's name is. */
  readonly heads: readonly Uint8Array[];
  /** Of a union with a tag: the name of that field, alone in a list; else an empty list. */
  readonly tag: Names;
  /** Of a union with a tag: the object that each variant is in JSON, with the tag as its first field. */
  readonly tagged: readonly Node[];
  /** Of each field: in which object it was last read. */
  readonly seen: Uint32Array;
}

/** Names as bytes, which are looked up without making strings. */
export class Names {
  readonly list: readonly string[];
  readonly bytes: readonly Uint8Array[];
  private readonly table: Int32Array;

  constructor(list: readonly string[]) {
    this.list = list;
    this.bytes = list.map((name) => encoder.encode(name));
    let size = 4;
    while (size < 2 * list.length) size *= 2;
    this.table = new Int32Array(size).fill(-1);
    for (const [index, bytes] of this.bytes.entries()) {
      let slot = hash(bytes, 0, bytes.length);
      while (this.table[slot & (size - 1)] !== -1) slot++;
      this.table[slot & (size - 1)] = index;
    }
  }

  /** The index of a name, or -1. */
  indexOf(name: string): number {
    const bytes = encoder.encode(name);
    return this.find(bytes, 0, bytes.length, 0);
  }

  /** The index of the name with these bytes, or -1. `likely` is tried first. */
  find(bytes: Uint8Array, from: number, to: number, likely: number): number {
    if (same(this.bytes[likely], bytes, from, to)) return likely;
    const mask = this.table.length - 1;
    for (let slot = hash(bytes, from, to); ; slot++) {
      const index = this.table[slot & mask] as number;
      if (index < 0 || same(this.bytes[index], bytes, from, to)) return index;
    }
  }
}

function hash(bytes: Uint8Array, from: number, to: number): number {
  let mixed = to - from;
  for (let at = from; at < to; at++) {
    mixed = Math.imul(mixed ^ (bytes[at] as number), 0x01000193) ^ (mixed >>> 15);
  }
  return (mixed ^ (mixed >>> 9)) & 0x7fffffff;
}

function same(name: Uint8Array | undefined, bytes: Uint8Array, from: number, to: number): boolean {
  if (name === undefined || name.length !== to - from) return false;
  for (let at = 0; at < name.length; at++) if (name[at] !== bytes[from + at]) return false;
  return true;
}

const NO_NAMES = new Names([]);
const WIDTHS: Record<string, number> = {
  u16: 2,
  i16: 2,
  enum16: 2,
  u32: 4,
  i32: 4,
  f32: 4,
  f64: 8,
  u64: 8,
  i64: 8,
  u53: 8,
  timestamp: 8,
};

const planned = new WeakMap<Descriptor, Node>();

export function planOf(kind: Descriptor): Node {
  let node = planned.get(kind);
  if (node === undefined) {
    node = plan(kind);
    planned.set(kind, node);
  }
  return node;
}

type Rest = Partial<Omit<Node, "op" | "kind" | "size" | "align" | "heads" | "seen">>;

function made(kind: string, size: number, align: number, rest: Rest = {}): Node {
  const op = OP[kind as keyof typeof OP];
  if (op === undefined) throw badValue(`Values of kind ${kind} have no JSON form.`);
  const { count = 0, parts = false, names = NO_NAMES, nodes = [], starts = [], root = 0 } = rest;
  const { tag = NO_NAMES, tagged = [] } = rest;
  const of = rest.of as Node;
  const seen = new Uint32Array(names.list.length);
  const heads = names.list.map((name, index) => {
    const text = JSON.stringify(name);
    return encoder.encode(kind === "struct" ? `${index === 0 ? "{" : ","}${text}:` : text);
  });
  return {
    op,
    kind,
    size,
    align,
    count,
    of,
    parts,
    names,
    nodes,
    starts,
    root,
    heads,
    tag,
    tagged,
    seen,
  };
}

function plan(kind: Descriptor): Node {
  switch (kind.kind) {
    case "struct":
      return planStruct(kind);
    case "flatten":
      return plan(kind.of);
    case "union": {
      const nodes = kind.variants.map(([, payload]) => (payload ? plan(payload) : undefined));
      const names = new Names(kind.variants.map(([name]) => name));
      return tagged(kind.kind, nodes, names, taggedObjects(formOf(kind), nodes, names));
    }
    case "option":
      return tagged(kind.kind, [plan(kind.of)], NO_NAMES);
    case "optNonZero": {
      const of = plan(kind.of);
      return made(kind.kind, of.size, of.align, { of });
    }
    case "array": {
      const of = plan(kind.of);
      const { size, align, parts } = of;
      return made(kind.kind, size * kind.length, align, { of, parts, count: kind.length });
    }
    case "vec":
      return made(kind.kind, 8, 4, { of: plan(kind.of), parts: true });
    case "str":
    case "blob":
      return made(kind.kind, 8, 4, { parts: true });
    case "bytes":
    case "fixedStr":
      return made(kind.kind, kind.length, 1, { count: kind.length });
    default: {
      const size = WIDTHS[kind.kind] ?? 1;
      const names = "variants" in kind ? new Names(kind.variants) : NO_NAMES;
      return made(kind.kind, size, size, { names });
    }
  }
}

/** The node of a tagged union: a byte for the variant, then the payload at its alignment. */
function tagged(
  kind: string,
  nodes: readonly (Node | undefined)[],
  names: Names,
  form?: Pick<Node, "tag" | "tagged">,
): Node {
  let [size, align, parts] = [1, 1, false];
  const starts = nodes.map((node) => {
    if (node === undefined) return 1;
    const start = alignUp(1, node.align);
    size = Math.max(size, start + node.size);
    align = Math.max(align, node.align);
    parts ||= node.parts;
    return start;
  });
  const of = nodes[0] as Node;
  return made(kind, alignUp(size, align), align, { of, parts, names, nodes, starts, ...form });
}

/** The objects that the variants of a union are in JSON if a field of them names the variant. */
function taggedObjects(
  { tag, content }: Form,
  payloads: Node["nodes"],
  { list }: Names,
): Pick<Node, "tag" | "tagged"> | undefined {
  if (tag === undefined) {
    if (content === undefined) return undefined;
    throw badValue("A union with content needs a tag, too.");
  }
  if (tag === content) throw badValue("The tag and the content need different names.", tag);
  if (tag === "value") {
    throw badValue('The tag cannot be called "value": in a snapshot() that is not the tag.');
  }
  const objects = payloads.map((payload, index) => {
    const variant = list[index] as string;
    const tagNode = made("tag", 0, 1, { names: new Names([variant]) });
    if (payload === undefined || content !== undefined) {
      const fields = payload === undefined ? [] : [payload];
      const names = new Names(payload === undefined ? [tag] : [tag, content as string]);
      return made("struct", 0, 1, { names, nodes: [tagNode, ...fields], starts: [0, 0] });
    }
    const { op, names, nodes, starts } = payload;
    if (op !== OP.struct) {
      throw badValue(
        `The variant ${variant} is not a struct, whose fields could be beside the tag: give the union content, too.`,
        payload.kind,
      );
    }
    if (names.indexOf(tag) >= 0) {
      throw badValue(`The tag ${JSON.stringify(tag)} is also a field of the variant ${variant}.`);
    }
    return made("struct", 0, 1, {
      names: new Names([tag, ...names.list]),
      nodes: [tagNode, ...nodes],
      starts: [0, ...starts],
    });
  });
  return { tag: new Names([tag]), tagged: objects };
}

function planStruct({ fields, versioned }: StructDescriptor): Node {
  let [size, align] = versioned ? [2, 2] : [0, 1];
  let parts = false;
  const names: string[] = [];
  const nodes: (Node | undefined)[] = [];
  const starts: number[] = [];
  for (const [name, kind] of fields) {
    const node = plan(kind);
    const start = alignUp(size, node.align);
    size = start + node.size;
    align = Math.max(align, node.align);
    parts ||= node.parts;
    const flat = kind.kind === "flatten";
    names.push(...(flat ? node.names.list : [name]));
    nodes.push(...(flat ? node.nodes : [node]));
    starts.push(...(flat ? node.starts.map((at) => start + at) : [start]));
  }
  const root = versioned ? alignUp(size, align) : 0;
  const rest = { parts, names: new Names(names), nodes, starts, root };
  return made("struct", alignUp(size, align), align, rest);
}
