/** Random JSON forms of random schemas, and what they make of JSON without forms. */

import { inJson, type Spelling, type TypeForm } from "varve/json";
import * as t from "varve/struct";
import type { Kind, StructKind } from "./kinds.js";
import { type AnySchema, typeOf } from "./ours.js";
import { pick } from "./random.js";

type Random = (below: number) => number;
type Json = unknown;

/** A type with forms in it. */
export interface Formed<T = t.Type> {
  readonly type: T;
  /** The JSON in these forms of what is this JSON without forms. */
  readonly to: (plain: Json) => Json;
}

const SPELLINGS: readonly (Spelling | undefined)[] = [
  "camelCase",
  "snake_case",
  "kebab-case",
  "PascalCase",
  "SCREAMING_SNAKE_CASE",
  undefined,
];

/** A name in another spelling, one character after the other. */
export function spelledSlowly(name: string, spelling: Spelling | undefined): string {
  const letters = [...name];
  const isIn = (at: number, from: string, to: string) =>
    (letters[at] ?? "") >= from && (letters[at] ?? "") <= to && letters[at]?.length === 1;
  let start = "";
  while (letters[0] === "_") start += letters.shift();
  const words = [""];
  for (const [at, letter] of letters.entries()) {
    if ("-_ ".includes(letter)) words.push("");
    else {
      const isCapital = isIn(at, "A", "Z");
      const isBehindSmall = isIn(at - 1, "a", "z") || isIn(at - 1, "0", "9");
      const isBeforeSmall = isIn(at - 1, "A", "Z") && isIn(at + 1, "a", "z");
      if (isCapital && (isBehindSmall || isBeforeSmall)) words.push("");
      words.push(words.pop() + letter);
    }
  }
  const known = words.filter((word) => word !== "");
  if (spelling === undefined || known.length === 0) return name;
  const small = (text: string) => text.replace(/[A-Z]/g, (one) => one.toLowerCase());
  const big = (text: string) => text.replace(/[a-z]/g, (one) => one.toUpperCase());
  const title = (text: string) => big(text[0] ?? "") + small(text.slice(1));
  const [first = "", ...more] = known;
  switch (spelling) {
    case "camelCase":
      return start + small(first) + more.map(title).join("");
    case "PascalCase":
      return start + known.map(title).join("");
    case "snake_case":
      return start + small(known.join("_"));
    case "kebab-case":
      return start + small(known.join("-"));
    default:
      return start + big(known.join("_"));
  }
}

/** The type in this form, or without it if it is refused, as for a name that two fields would have. */
function inForm<T>(type: T, form: object): [T, boolean] {
  try {
    return [inJson(type as t.Type, form as TypeForm) as T, true];
  } catch (error) {
    if (!/cannot both have|is also a field|not a struct/.test(String(error))) throw error;
    return [type, false];
  }
}

const entries = (value: Json) => Object.entries(value as object) as [string, Json][];

/** A struct with random forms. */
export function formedStruct(
  random: Random,
  { name, fields, versioned }: StructKind,
): Formed<AnySchema> {
  const made = fields.map(([field, kind]) => {
    if (kind.kind !== "flatten") return [field, formed(random, kind), undefined] as const;
    const flat = formedStruct(random, kind.of);
    return [field, flat as Formed, flat] as const;
  });
  const types = Object.fromEntries(
    made.map(([field, { type }, flat]) => [field, flat ? t.flatten(flat.type) : type]),
  ) as t.Fields;
  const plain = (versioned
    ? t.versioned(name, types)
    : t.struct(name, types)) as unknown as AnySchema;
  const own = made.filter(([, , flat]) => flat === undefined).map(([field]) => field);
  const renamed = new Map(
    own.filter(() => random(4) === 0).map((field) => [field, `n${random(2 ** 30)}-"é"`]),
  );
  const renameAll = pick(random, SPELLINGS);
  const forms = own.map((field) => {
    const rename = renamed.get(field);
    return [field, { ...(rename && { rename }), alias: `${field} as well` }] as const;
  });
  const form = { ...(renameAll && { renameAll }), fields: Object.fromEntries(forms) };
  // Names that flattened structs make equal are found when the plan is made.
  const [type, has] = inForm(plain, form);
  return {
    type,
    to: (given) => {
      const values = new Map(entries(given));
      return Object.fromEntries(
        made.flatMap(([field, { to }, flat]): [string, Json][] => {
          if (flat !== undefined)
            return entries(to(given)).filter(([, value]) => value !== undefined);
          if (!values.has(field)) return [];
          const name = has ? (renamed.get(field) ?? spelledSlowly(field, renameAll)) : field;
          return [[name, to(values.get(field))]];
        }),
      );
    },
  };
}

function formed(random: Random, kind: Kind): Formed {
  switch (kind.kind) {
    case "struct":
      return formedStruct(random, kind) as Formed;
    case "array": {
      const { type, to } = formed(random, kind.of);
      const list = t.array(type, kind.length) as t.Type;
      return { type: list, to: (items) => (items as Json[]).map(to) };
    }
    case "vec": {
      const { type, to } = formed(random, kind.of);
      return { type: t.vec(type) as t.Type, to: (items) => (items as Json[]).map(to) };
    }
    case "option": {
      const { type, to } = formed(random, kind.of);
      return { type: t.option(type) as t.Type, to: (one) => (one === null ? null : to(one)) };
    }
    case "enum8":
    case "enum16": {
      const renameAll = pick(random, SPELLINGS);
      const [type, has] = inForm(typeOf(kind), { renameAll });
      return { type, to: (one) => spelledSlowly(one as string, has ? renameAll : undefined) };
    }
    case "union":
      return formedUnion(random, kind.variants);
    default:
      return { type: typeOf(kind), to: (one) => one };
  }
}

function formedUnion(
  random: Random,
  variants: readonly (readonly [string, Kind | null])[],
): Formed {
  const made = new Map(variants.map(([name, kind]) => [name, kind && formed(random, kind)]));
  const types = Object.fromEntries([...made].map(([name, one]) => [name, one?.type ?? null]));
  const plain = t.union(types as t.Variants) as t.Type;
  const renameAll = pick(random, SPELLINGS);
  const tag = pick(random, ["type", "kind", "", "a1", "__proto__", undefined]);
  const content =
    tag !== undefined && random(2) === 0 ? pick(random, ["value", "type2", "é"]) : undefined;
  const form = { renameAll, ...(tag !== undefined && { tag }), ...(content && { content }) };
  const [type, has] = inForm(plain, form);
  return {
    type,
    to: (given) => {
      const [[variant, payload]] = (typeof given === "string" ? [[given]] : entries(given)) as [
        [string, Json?],
      ];
      const value = made.get(variant)?.to(payload);
      if (!has) return value === undefined ? variant : Object.fromEntries([[variant, value]]);
      const name = spelledSlowly(variant, renameAll);
      if (tag === undefined)
        return value === undefined ? name : Object.fromEntries([[name, value]]);
      const more =
        value === undefined ? [] : content ? [[content, value] as const] : entries(value);
      return Object.fromEntries([[tag, name], ...more]);
    },
  };
}
