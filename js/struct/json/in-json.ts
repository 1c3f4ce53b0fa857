/** Declares the JSON form of a type. */

import { decoder } from "../../util/text-coders.js";
import type { Layout } from "../layout.js";
import { StructSchema } from "../struct.js";
import {
  assertAttached,
  badValue,
  noMore,
  type Type,
  type ViewedList,
  withField,
} from "../type.js";
import { textOf } from "../utf8.js";
import { Copied } from "../view.js";
import { formOf, hasForm, setForm } from "./form.js";
import { planOf } from "./plan.js";
import { writePart } from "./stringify.js";

/** The JSON form of a type. */
export interface JsonForm {
  /**
   * Of a union: the field that names the variant. Without `content`, the fields of the variant's struct are beside it:
   * `{"type":"Card","number":"1234"}`. It is quickest to read if it comes first.
   */
  readonly tag?: string;
  /** Of a union with a `tag`: the field that has the variant's value: `{"type":"Cash","value":100}`. */
  readonly content?: string;
}

const OPTIONS = ["tag", "content"];

/**
 * Returns the type with another JSON form, for `toJson`, `fromJson`, JSON lines and `JSON.stringify` of views. Its
 * values, their bytes and its fingerprint stay the same. The form belongs to the program and is not stored: the
 * command line, which knows only the file, uses the form that types have without it.
 *
 * ```ts
 * const Card = struct("Card", { number: str });
 * const Payment = inJson(union({ Card, Free: null }), { tag: "type" });
 * // {"type":"Card","number":"1234"} or {"type":"Free"}, and not {"Card":{"number":"1234"}} or "Free"
 * ```
 *
 * @throws TypeError for a form that the type cannot have, such as a tag that is also a field of a variant
 */
export function inJson<T extends Type>(type: T, form: JsonForm): T;
export function inJson(type: Type, form: JsonForm, ...more: unknown[]): Type {
  noMore("inJson()", more);
  if (type?.kind === undefined || type.put === undefined) {
    throw badValue("inJson() needs a type of varve/struct.", type);
  }
  for (const option in Object(form)) {
    if (!OPTIONS.includes(option)) {
      throw badValue(`inJson() has no option but ${OPTIONS.join(", ")}.`, option);
    }
  }
  if (Object(form) !== form) throw badValue("The form must be an object.", form);
  const { tag, content } = form;
  for (const [option, name] of Object.entries({ tag, content })) {
    if (name === undefined) continue;
    withField(option, () => textOf(name));
    if (type.kind.kind !== "union") {
      throw badValue(`Only a union can have a ${option}, not ${type.kind.kind}.`);
    }
  }
  // The form is kept by the descriptor's object, so this type gets its own.
  const kind = { ...type.kind };
  setForm(kind, { ...formOf(type.kind), ...form });
  Copied.prototype.toJSON = toJsonInForm;
  // Throws if the type cannot have this form.
  planOf(kind);
  return type instanceof StructSchema
    ? new StructSchema({ ...type, kind } as unknown as Layout)
    : { ...type, kind };
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
