/**
 * A descriptor compiled for JSON: the operation at each offset. Fields of flattened structs are merged into their
 * parent, so that they cost no more than others.
 */

import { encoder } from "../../util/text-coders.js";
import type { Descriptor, StructDescriptor } from "../codec.js";
import { alignUp, badValue } from "../type.js";
import { type FieldForm, type Form, formOf, type Spelling } from "./form.js";

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
  /** A union with a tag. */
  tagged: 28,
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
  /** Of a struct: all of its fields, those of flattened structs and skipped ones among them. */
  readonly fields: readonly Field[];
  /** Of a struct: how many of its fields are in JSON, or more if others need a value; fewer in a text are completed. */
  readonly complete: number;
}

/** A field of a struct. */
export interface Field {
  /** The name in the schema. */
  readonly own: string;
  /** The name in JSON. */
  readonly name: string;
  readonly node: Node;
  readonly start: number;
  readonly form: FieldForm | undefined;
}

/** Names as bytes, which are looked up without making strings. */
export class Names {
  readonly list: readonly string[];
  private readonly bytes: readonly (Uint8Array | undefined)[];
  /** For each index behind the list: the one in the list whose other name it is. */
  private readonly targets: readonly number[];
  private readonly table: Int32Array;

  /** `others` are more names for some of those in the list. */
  constructor(list: readonly string[], others: readonly OtherName[] = []) {
    this.list = list;
    this.bytes = list.map((name) => encoder.encode(name));
    this.targets = [-1, ...others.map(([, index]) => index)];
    const otherBytes = others.map(([name]) => encoder.encode(name));
    // Nothing is at the index that follows the list, because the field after the last one is looked up there first.
    if (others.length > 0) this.bytes = [...this.bytes, undefined, ...otherBytes];
    let size = 4;
    while (size < 2 * this.bytes.length) size *= 2;
    this.table = new Int32Array(size).fill(-1);
    for (const [index, bytes] of this.bytes.entries()) {
      if (bytes === undefined) continue;
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
      if (index < 0) return index;
      if (same(this.bytes[index], bytes, from, to)) {
        return index < this.list.length
          ? index
          : (this.targets[index - this.list.length] as number);
      }
    }
  }
}

type OtherName = readonly [name: string, index: number];

/** What has a name in a schema and one in JSON: a field, a variant, or a name of an enum. */
export interface Named {
  readonly own: string;
  readonly name: string;
  readonly form?: FieldForm | undefined;
}

/** The names in JSON. The own name of what is renamed is read, too, because the JSON of a `snapshot()` has it. */
function namesOf(all: readonly Named[], what: string): Names {
  planning.checkNames?.(all, what);
  const others = all.flatMap(({ own, name, form }, index) =>
    [own, ...(form?.aliases ?? [])]
      .filter((other) => other !== name)
      .map((other): OtherName => [other, index]),
  );
  return new Names(
    all.map(({ name }) => name),
    others,
  );
}

function spelled(own: string, spelling: Spelling | undefined): string {
  return planning.spelled?.(own, spelling) ?? own;
}

/** The names of variants or of an enum. */
export function spelledNames(owns: readonly string[], { renameAll }: Form, what: string): Names {
  return namesOf(
    owns.map((own) => ({ own, name: spelled(own, renameAll) })),
    what,
  );
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

/** The parts of plans that forms need. `inJson` adds them, so that programs without forms do not load them. */
export const planning: {
  /** Throws if two have the same name. */
  checkNames?: (all: readonly Named[], what: string) => void;
  /** A name in another spelling. */
  spelled?: (name: string, spelling: Spelling | undefined) => string;
  /** The objects that the variants of a union are in JSON if a field of them names the variant. */
  objects?: (
    form: Form,
    payloads: Node["nodes"],
    owns: readonly string[],
  ) => Pick<Node, "tag" | "tagged"> | undefined;
} = {};

const planned = new WeakMap<Descriptor, Node>();

export function planOf(kind: Descriptor): Node {
  let node = planned.get(kind);
  if (node === undefined) {
    node = plan(kind);
    planned.set(kind, node);
  }
  return node;
}

type Rest = Partial<Omit<Node, "op" | "kind" | "heads" | "seen">>;

export function made(kind: string, size: number, align: number, rest: Rest = {}): Node {
  const op = OP[(rest.tag ? "tagged" : kind) as keyof typeof OP];
  if (op === undefined) throw badValue(`Values of kind ${kind} have no JSON form.`);
  const { count = 0, parts = false, names = NO_NAMES, nodes = [], starts = [], root = 0 } = rest;
  const { tag = NO_NAMES, tagged = [], fields = [], complete = nodes.length } = rest;
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
    fields,
    complete,
  };
}

function plan(kind: Descriptor): Node {
  switch (kind.kind) {
    case "struct":
      return planStruct(kind, formOf(kind));
    case "flatten":
      return plan(kind.of);
    case "union": {
      const nodes = kind.variants.map(([, payload]) => (payload ? plan(payload) : undefined));
      const owns = kind.variants.map(([name]) => name);
      const form = formOf(kind);
      const names = spelledNames(owns, form, "variants");
      return tagged(kind.kind, nodes, names, planning.objects?.(form, nodes, owns));
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
      const names =
        "variants" in kind ? spelledNames(kind.variants, formOf(kind), "names") : NO_NAMES;
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

function planStruct({ fields, versioned }: StructDescriptor, form: Form): Node {
  let [size, align] = versioned ? [2, 2] : [0, 1];
  let parts = false;
  const all: Field[] = [];
  for (const [own, kind] of fields) {
    const node = plan(kind);
    const start = alignUp(size, node.align);
    size = start + node.size;
    align = Math.max(align, node.align);
    parts ||= node.parts;
    const name = spelled(own, form.renameAll);
    const inside =
      kind.kind === "flatten" ? node.fields : [{ own, name, node, start: 0, form: undefined }];
    for (const field of inside) {
      const given = form.fields?.get(field.own);
      all.push({
        ...field,
        name: given?.rename ?? field.name,
        start: start + field.start,
        form: given ?? field.form,
      });
    }
  }
  const root = versioned ? alignUp(size, align) : 0;
  return structOf(all, { size: alignUp(size, align), align, parts, root });
}

/** The node of an object with these fields. */
export function structOf(
  fields: readonly Field[],
  rest: Pick<Partial<Node>, "size" | "align" | "parts" | "root"> = {},
): Node {
  const kept = fields.filter(({ form }) => !form?.skip);
  if (kept.length === 0) throw badValue("A struct needs a field that is not skipped in JSON.");
  const isFilled = kept.length < fields.length;
  return made("struct", rest.size ?? 0, rest.align ?? 1, {
    ...rest,
    names: namesOf(kept, "fields"),
    nodes: kept.map(({ node }) => node),
    starts: kept.map(({ start }) => start),
    fields,
    complete: kept.length + (isFilled ? 1 : 0),
  });
}
