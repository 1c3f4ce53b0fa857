/** Declares the JSON form of a type. */

import { decoder } from "../../util/text-coders.js";
import type { Schema } from "../infer.js";
import type { Layout } from "../layout.js";
import { StructSchema } from "../struct.js";
import {
  assertAttached,
  badValue,
  encodeScratch,
  noMore,
  release,
  type Type,
  type ViewedList,
  withField,
} from "../type.js";
import { textOf } from "../utf8.js";
import { Copied, type Shape } from "../view.js";
import { type FieldForm, type Fill, formOf, hasForm, type Spelling, setForm } from "./form.js";
import { ALL_SPELLINGS, checkNames, spelled, taggedObjects } from "./form-plan.js";
import { planning, planOf } from "./plan.js";
import { writePart } from "./stringify.js";

/** The JSON form of a union or an enum. */
export interface TypeForm {
  /**
   * Of a union: the field that names the variant. Without `content`, the fields of the variant's struct are beside it:
   * `{"type":"Card","number":"1234"}`. It is quickest to read if it comes first.
   */
  readonly tag?: string;
  /** Of a union with a `tag`: the field that has the variant's value: `{"type":"Cash","value":100}`. */
  readonly content?: string;
  /** How the names of its variants are spelled. */
  readonly renameAll?: Spelling;
}

/** The JSON form of a struct with these fields. */
export interface StructForm<L> {
  /** How the names of its fields are spelled, except those of flattened structs. */
  readonly renameAll?: Spelling;
  /** The forms of its fields, also of those of flattened structs. */
  readonly fields?: { readonly [K in keyof L]?: FieldOptions<L[K]> };
}

/** The JSON form of a field. */
export interface FieldOptions<T> {
  /** Its name in JSON, instead of what `renameAll` makes of its name. */
  readonly rename?: string;
  /** More names by which it is read, one or several. */
  readonly alias?: string | readonly string[];
  /**
   * Whether it is not in JSON: not written, and unknown when it is read. It then has the `default`, which it needs unless it
   * is an `option`, `optNonZero` or `added`. `false` by default.
   */
  readonly skip?: boolean;
  /** Its value if the JSON does not have it, which is an error otherwise. */
  readonly default?: T extends Type<infer _V, infer _W, infer I, infer _P> ? I : never;
}

/** All forms, as they may be given at run time. */
interface AnyForm extends TypeForm {
  readonly fields?: object;
}

const OPTIONS = ["tag", "content", "renameAll", "fields"];
const FIELD_OPTIONS = ["rename", "alias", "skip", "default"];
const SPELLED = ["struct", "union", "enum8", "enum16"];

/**
 * Returns the type with another JSON form, for `toJson`, `fromJson`, JSON lines and `JSON.stringify` of views. Its
 * values, their bytes and its fingerprint stay the same. The form belongs to the program and is not stored: the
 * command line, which knows only the file, uses the form that types have without it.
 *
 * ```ts
 * const Card = struct("Card", { number: str });
 * const Payment = inJson(union({ Card, Free: null }), { tag: "type" });
 * // {"type":"Card","number":"1234"} or {"type":"Free"}, and not {"Card":{"number":"1234"}} or "Free"
 * const Order = inJson(struct("Order", { orderId: u32, by: Payment, seen: u32 }), {
 *   renameAll: "snake_case",
 *   fields: { by: { rename: "payment", alias: "paid_by" }, seen: { skip: true, default: 0 } },
 * });
 * // {"order_id":7,"payment":{"type":"Free"}}
 * ```
 *
 * What is renamed is also read by its own name, as it is in the JSON of a `snapshot()`.
 *
 * @throws TypeError for a form that the type cannot have, such as a tag that is also a field of a variant, two fields
 * with one name, or a default of another type
 */
export function inJson<T extends Type>(type: T, form: TypeForm): T;
export function inJson<L>(type: Schema<L>, form: StructForm<L>): Schema<L>;
export function inJson(type: Type, form: AnyForm, ...more: unknown[]): Type {
  noMore("inJson()", more);
  if (type?.kind === undefined || type.put === undefined) {
    throw badValue("inJson() needs a type of varve/struct.", type);
  }
  checkOptions("inJson()", form, OPTIONS);
  const of = type.kind.kind;
  const { tag, content, renameAll, fields } = form;
  for (const [option, name] of Object.entries({ tag, content })) {
    if (name === undefined) continue;
    withField(option, () => textOf(name));
    if (of !== "union") throw badValue(`Only a union can have a ${option}, not ${of}.`);
  }
  if (renameAll !== undefined) {
    if (!SPELLED.includes(of)) throw badValue("renameAll is for structs, unions and enums.", of);
    if (!ALL_SPELLINGS.includes(renameAll)) {
      throw badValue(`renameAll must be one of ${ALL_SPELLINGS.join(", ")}.`, renameAll);
    }
  }
  if (fields !== undefined && of !== "struct") throw badValue("Only a struct has fields.", of);
  // The form is kept by the descriptor's object, so this type gets its own.
  const kind = { ...type.kind };
  const before = formOf(type.kind);
  const formsOfFields = fieldForms(type as unknown as Shape, fields);
  setForm(kind, {
    ...before,
    ...form,
    fields: new Map([...(before.fields ?? []), ...formsOfFields]),
  });
  Object.assign(planning, {
    checkNames,
    spelled,
    objects: taggedObjects,
  } satisfies typeof planning);
  Copied.prototype.toJSON = toJsonInForm;
  // Throws if the type cannot have this form.
  planOf(kind);
  return type instanceof StructSchema
    ? new StructSchema({ ...type, kind } as unknown as Layout)
    : { ...type, kind };
}

function checkOptions(of: string, given: object, known: readonly string[]): void {
  if (Object(given) !== given) throw badValue(`The form for ${of} must be an object.`, given);
  for (const option in given) {
    if (!known.includes(option))
      throw badValue(`${of} has no option but ${known.join(", ")}.`, option);
  }
}

/** The forms of fields, checked. */
function fieldForms({ name: struct, leaves }: Shape, given: object = {}): [string, FieldForm][] {
  if (Object(given) !== given) throw badValue("The fields must be an object of forms.", given);
  return Object.entries(given).map(([field, options]: [string, FieldOptions<Type>]) => {
    const path = `${struct}.${field}`;
    const type = leaves.find(({ name }) => name === field)?.type;
    if (type === undefined) throw badValue(`${struct} has no field ${field}.`);
    checkOptions(path, options, FIELD_OPTIONS);
    const { rename, alias, skip = false } = options;
    const aliases = alias === undefined ? [] : [alias].flat();
    withField(path, () => [rename ?? "", ...aliases].map(textOf));
    if (typeof skip !== "boolean") throw badValue(`skip of ${path} must be true or false.`, skip);
    return [field, { rename, aliases, skip, fill: fillOf(type, path, options) }];
  });
}

/** Writes the default of a field. Throws if it is of another type, or if a field is skipped that needs one. */
function fillOf(type: Type, path: string, options: FieldOptions<Type>): Fill | undefined {
  const value: unknown = options.default;
  const canBeMissing = type.fallback !== undefined || /^opt/.test(type.kind.kind);
  if (value === undefined && !canBeMissing) {
    if (options.skip) throw badValue(`${path} needs a default to be skipped.`);
    return undefined;
  }
  if (value === undefined && !options.skip) return undefined;
  withField(path, () => release(encodeScratch(type, value)));
  return (to, at) => type.put(to, at, value);
}

const toPlainJson = Copied.prototype.toJSON;

/** The `toJSON` of views once a program has declared a form, so that others do not load the code. */
function toJsonInForm(this: Copied): unknown {
  const { $v, $s } = this;
  const { $t, length } = this as unknown as ViewedList;
  const kind = $s?.kind ?? $t.kind;
  if (!hasForm(kind)) return toPlainJson.call(this);
  const what = { name: $s?.name ?? "", node: planOf(kind), leaves: $s?.leaves ?? [] };
  return JSON.parse(decoder.decode(writePart(what, assertAttached($v), $s ? undefined : length)));
}
