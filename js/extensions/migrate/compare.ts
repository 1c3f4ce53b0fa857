/** Comparison of a value with what a collection returns for it. */

import { isTooDeep } from "../../struct/plain-json.js";

/** The first part of a value that differs. */
export interface Difference {
  /** Such as `.tags[2]`; empty for the value itself. */
  readonly path: string;
  /** What it is, and what it would become. */
  readonly text: string;
}

/**
 * Compares a value with what became of it. Fields that are `undefined` count as missing. With `byType`, as for the records
 * of a schema, values of other types that mean the same are equal: a date and its milliseconds, bytes in an `ArrayBuffer`
 * and in a `Uint8Array`, a typed array and an array of its numbers, `null` and nothing.
 */
export function differenceOf(from: unknown, to: unknown, byType: boolean): Difference | undefined {
  try {
    return new Comparison(byType).of(from, to, "");
  } catch (error) {
    if (isTooDeep(error)) return { path: "", text: "is nested too deeply" };
    throw error;
  }
}

/** The built-in tag of an object, which is the same in all realms. */
function tagOf(value: unknown): string {
  return Object.prototype.toString.call(value).slice(8, -1);
}

/** The kinds of objects that can be compared, and so moved. All others are refused. */
const KNOWN =
  /^(Object|Array|Date|RegExp|Map|Set|Error|Boolean|Number|String|BigInt|ArrayBuffer|DataView|.*Array)$/;

/** Bytes of a buffer or of a view; `undefined` for anything else. */
export function bytesIn(value: unknown): Uint8Array | undefined {
  if (ArrayBuffer.isView(value)) {
    return new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
  }
  return tagOf(value) === "ArrayBuffer" ? new Uint8Array(value as ArrayBuffer) : undefined;
}

function areSameBytes(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && a.every((byte, i) => byte === b[i]);
}

/** The path of an item or field. */
function member(of: object, path: string, name: string): string {
  if (Array.isArray(of) && /^\d+$/.test(name)) return `${path}[${name}]`;
  return /^[A-Za-z_$][\w$]*$/.test(name) ? `${path}.${name}` : `${path}[${JSON.stringify(name)}]`;
}

function namesOf(value: object): string[] {
  const names = Object.keys(value);
  if (Array.isArray(value)) return names;
  return names.filter((name) => (value as Record<string, unknown>)[name] !== undefined);
}

class Comparison {
  private readonly byType: boolean;
  /** The objects that were met, each with what it was compared with: values may contain themselves. */
  private readonly met = new Map<unknown, unknown>();

  constructor(byType: boolean) {
    this.byType = byType;
  }

  of(from: unknown, to: unknown, path: string): Difference | undefined {
    if (Object.is(from, to)) return undefined;
    const isObject = typeof from === "object" && from !== null;
    if (this.byType && to == null && from == null) return undefined;
    if (!isObject) return this.becomes(from, to, path);
    const tag = tagOf(from);
    if (!KNOWN.test(tag)) {
      return { path, text: `is ${article(tag)}, which no collection stores` };
    }
    if (this.met.get(from) === to) return undefined;
    this.met.set(from, to);
    if (this.byType) {
      if (tag === "Date" && +(from as Date) === to) return undefined;
      const bytes = bytesIn(from);
      const others = bytesIn(to);
      if (tag === "ArrayBuffer" && bytes && others && areSameBytes(bytes, others)) return undefined;
      const isList = ArrayBuffer.isView(from) || Array.isArray(from);
      if (isList && (ArrayBuffer.isView(to) || Array.isArray(to)) && tagOf(to) !== tag) {
        return this.items([...(from as unknown[])], [...(to as unknown[])], path);
      }
    }
    if (typeof to !== "object" || to === null || tagOf(to) !== tag) {
      return this.becomes(from, to, path);
    }
    return this.ofObjects(tag, from as object, to, path);
  }

  private ofObjects(tag: string, from: object, to: object, path: string): Difference | undefined {
    const bytes = bytesIn(from);
    if (bytes !== undefined) {
      const others = bytesIn(to);
      const isSame = others !== undefined && areSameBytes(bytes, others);
      return isSame ? undefined : { path, text: "has other bytes" };
    }
    switch (tag) {
      case "Map":
        return this.items(
          [...(from as Map<unknown, unknown>)],
          [...(to as Map<unknown, unknown>)],
          path,
        );
      case "Set":
        return this.items([...(from as Set<unknown>)], [...(to as Set<unknown>)], path);
      case "Date":
      case "Boolean":
      case "Number":
      case "String":
      case "BigInt": {
        const isSame = Object.is(from.valueOf(), to.valueOf());
        return isSame ? undefined : this.becomes(from, to, path);
      }
      case "RegExp":
        return String(from) === String(to) ? undefined : this.becomes(from, to, path);
      case "Error": {
        const names = ["name", "message", "cause", "errors"] as const;
        return this.fields(from, to, names, path);
      }
    }
    if (Array.isArray(from) && from.length !== (to as unknown[]).length) {
      return { path, text: `has ${from.length} items, and would have ${(to as unknown[]).length}` };
    }
    const names = namesOf(from);
    const isField = (name: string) =>
      Object.hasOwn(from, name) && (Array.isArray(from) || Reflect.get(from, name) !== undefined);
    const more = namesOf(to).find((name) => !isField(name));
    // A schema may have fields of its own, which have a default.
    if (more !== undefined && !this.byType) {
      return {
        path: member(from, path, more),
        text: `is missing, and would be ${shown(Reflect.get(to, more))}`,
      };
    }
    return this.fields(from, to, names, path);
  }

  private fields(
    from: object,
    to: object,
    names: readonly string[],
    path: string,
  ): Difference | undefined {
    for (const name of names) {
      const found = this.of(Reflect.get(from, name), Reflect.get(to, name), "");
      if (found !== undefined) return { ...found, path: member(from, path, name) + found.path };
    }
    return undefined;
  }

  private items(from: unknown[], to: unknown[], path: string): Difference | undefined {
    if (from.length !== to.length) {
      return { path, text: `has ${from.length} items, and would have ${to.length}` };
    }
    return this.fields(from, to, Object.keys(from), path);
  }

  private becomes(from: unknown, to: unknown, path: string): Difference {
    return { path, text: `is ${shown(from)}, and would become ${shown(to)}` };
  }
}

function article(what: string): string {
  return `a${/^[AEIO]/.test(what) ? "n" : ""} ${what}`;
}

/** A short description of a value. */
export function shown(value: unknown): string {
  if (typeof value === "string")
    return JSON.stringify(value.length > 40 ? `${value.slice(0, 40)}…` : value);
  if (typeof value === "bigint") return `${value}n`;
  if (Object.is(value, -0)) return "-0";
  if (typeof value !== "object" || value === null) return String(value);
  if (Array.isArray(value))
    return `[${value.slice(0, 8).map(shown).join(", ")}${value.length > 8 ? ", …" : ""}]`;
  return article(tagOf(value));
}

/** Bytes that a value takes, roughly, at most about `limit`. */
export function sizeOf(value: unknown, limit: number): number {
  const left: unknown[] = [value];
  /** The objects that were met, since values may contain themselves. */
  const met = new Set<unknown>();
  let size = 0;
  while (left.length > 0 && size < limit) {
    const part = left.pop();
    size += 8;
    if (typeof part === "string") size += part.length * 2;
    else if (typeof part === "object" && part !== null && !met.has(part)) {
      met.add(part);
      const bytes = bytesIn(part);
      if (bytes !== undefined) size += bytes.length;
      else if (part instanceof Map) for (const pair of part) left.push(...pair);
      else if (part instanceof Set) for (const item of part) left.push(item);
      else for (const name of Object.keys(part)) left.push(Reflect.get(part, name));
    }
  }
  return size;
}
