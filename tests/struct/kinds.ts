/** Types by their descriptors: sizes, offsets of fields, layout strings. */

/** A type by its descriptor. */
export type Kind =
  | { kind: Simple }
  | { kind: "enum8" | "enum16"; variants: readonly string[] }
  | { kind: "bytes" | "fixedStr"; length: number }
  | { kind: "array"; of: Kind; length: number }
  | { kind: "vec" | "option" | "optNonZero"; of: Kind }
  | { kind: "flatten"; of: StructKind }
  | { kind: "union"; variants: readonly (readonly [string, Kind | null])[] }
  | StructKind;

export interface StructKind {
  kind: "struct";
  name: string;
  fields: readonly (readonly [string, Kind])[];
  versioned?: true;
}

export type Simple = keyof typeof NUMBERS | "u53" | "timestamp" | "bool" | "str" | "blob";

/** Byte sizes, and the names of the DataView methods. */
export const NUMBERS = {
  u8: [1, "Uint8"],
  u16: [2, "Uint16"],
  u32: [4, "Uint32"],
  u64: [8, "BigUint64"],
  i8: [1, "Int8"],
  i16: [2, "Int16"],
  i32: [4, "Int32"],
  i64: [8, "BigInt64"],
  f32: [4, "Float32"],
  f64: [8, "Float64"],
} as const;

const WIDTHS: Record<string, number> = { bool: 1, enum8: 1, enum16: 2, u53: 8, timestamp: 8 };

export interface Shape {
  size: number;
  align: number;
}

export function up(at: number, align: number): number {
  return Math.ceil(at / align) * align;
}

interface StructShape extends Shape {
  /** The offsets of fields. */
  starts: number[];
}

/** The size and the alignment of a type, and for a struct the offsets of its fields. */
export function shapeOf(kind: Kind): StructShape {
  if (kind.kind === "struct") return inOrder(kind);
  return { ...shapeOfOther(kind), starts: [] };
}

function inOrder({ fields, versioned }: StructKind): StructShape {
  let [end, align] = versioned ? [2, 2] : [0, 1];
  const starts = fields.map(([, kind]) => {
    const shape = shapeOf(kind);
    const start = up(end, shape.align);
    end = start + shape.size;
    align = Math.max(align, shape.align);
    return start;
  });
  return { size: up(end, align), align, starts };
}

function shapeOfOther(kind: Exclude<Kind, StructKind>): Shape {
  switch (kind.kind) {
    case "bytes":
    case "fixedStr":
      return { size: kind.length, align: 1 };
    case "str":
    case "blob":
    case "vec":
      return { size: 8, align: 4 };
    case "array": {
      const { size, align } = shapeOf(kind.of);
      return { size: size * kind.length, align };
    }
    case "flatten":
    case "optNonZero":
      return shapeOf(kind.of);
    case "option":
      return tagged([kind.of]);
    case "union":
      return tagged(kind.variants.flatMap(([, payload]) => (payload === null ? [] : [payload])));
    default: {
      const size = WIDTHS[kind.kind] ?? NUMBERS[kind.kind as keyof typeof NUMBERS][0];
      return { size, align: size };
    }
  }
}

/** One byte, followed by the payload at its own alignment. */
function tagged(payloads: readonly Kind[]): Shape {
  const shapes = payloads.map(shapeOf);
  const align = Math.max(1, ...shapes.map((shape) => shape.align));
  const ends = shapes.map((shape) => up(1, shape.align) + shape.size);
  return { size: up(Math.max(1, ...ends), align), align };
}

/** A struct's fields including those of flattened structs: name, offset, kind. */
export function flatFields(kind: StructKind, base = 0): [string, number, Kind][] {
  const { starts } = shapeOf(kind);
  return kind.fields.flatMap(([name, of], index): [string, number, Kind][] => {
    const at = base + (starts[index] ?? 0);
    return of.kind === "flatten" ? flatFields(of.of, at) : [[name, at, of]];
  });
}

/** The layout as one line of text. */
export function layoutOf(kind: Kind): string {
  const name = (text: string) => text.replace(/[\\,:;()[\]{}|&.]/g, "\\$&");
  switch (kind.kind) {
    case "u53":
      return "u64";
    case "timestamp":
      return "i64";
    case "enum8":
    case "enum16":
      return `e${kind.kind.slice(4)}(${kind.variants.map(name).join(",")})`;
    case "bytes":
      return `[u8;${kind.length}]`;
    case "fixedStr":
      return `str;${kind.length}`;
    case "str":
      return "&str";
    case "blob":
      return "&[u8]";
    case "array":
      return `[${layoutOf(kind.of)};${kind.length}]`;
    case "vec":
      return `&[${layoutOf(kind.of)}]`;
    case "option":
      return `opt(${layoutOf(kind.of)})`;
    case "optNonZero":
      return `nz(${layoutOf(kind.of)})`;
    case "flatten":
      return layoutOf(kind.of);
    case "union": {
      const variants = kind.variants.map(([one, of]) =>
        of === null ? name(one) : `${name(one)}:${layoutOf(of)}`,
      );
      return `{|${variants.join(",")}|}`;
    }
    case "struct": {
      const fields = kind.fields.map(
        ([one, of]) => `${of.kind === "flatten" ? ".." : ""}${name(one)}:${layoutOf(of)}`,
      );
      return `${kind.versioned ? "v" : ""}{${fields.join(",")}}`;
    }
    default:
      return kind.kind;
  }
}

/** FNV-1a of 64 bits over UTF-8, in 16 digits. */
export function fingerprintOf(layout: string): string {
  let hash = 0xcbf29ce484222325n;
  for (const byte of new TextEncoder().encode(layout)) {
    hash = BigInt.asUintN(64, (hash ^ BigInt(byte)) * 0x100000001b3n);
  }
  return hash.toString(16).padStart(16, "0");
}
