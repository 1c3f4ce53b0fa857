/** The JSON forms that programs have declared, beside the descriptors, which are stored and have none. */

import type { Descriptor } from "../codec.js";
import type { Writer } from "../type.js";

/** How the JSON of a type differs from that of its descriptor. */
export interface Form {
  /** Of a union: the name of the field that names the variant. */
  readonly tag?: string | undefined;
  /** Of a union with a tag: the name of the field that has the variant's value; none if its fields are beside the tag. */
  readonly content?: string | undefined;
  /** How fields, variants or names of an enum are spelled. */
  readonly renameAll?: Spelling | undefined;
  /** Of a struct: the forms of its fields, by their names, including those of flattened structs. */
  readonly fields?: ReadonlyMap<string, FieldForm> | undefined;
}

/** The form of a field. */
export interface FieldForm {
  readonly rename?: string | undefined;
  readonly aliases: readonly string[];
  readonly skip: boolean;
  /** Writes the value of the field where the text has none; absent if it must have one, or if that is all zeros. */
  readonly fill?: Fill | undefined;
}

/** Writes a value over zeros. */
export type Fill = (to: Writer, at: number) => void;

const forms = new WeakMap<Descriptor, Form>();
const NONE: Form = {};

/** The form that was declared for a descriptor; an empty one if none was. */
export function formOf(kind: Descriptor): Form {
  return forms.get(kind) ?? NONE;
}

/** Declares the form of a descriptor, which must be of this type alone: the forms are kept by the object. */
export function setForm(kind: Descriptor, form: Form): void {
  forms.set(kind, form);
}

const found = new WeakMap<Descriptor, boolean>();

/** Whether a form was declared for a descriptor or for a part of it. */
export function hasForm(kind: Descriptor): boolean {
  let has = found.get(kind);
  if (has === undefined) {
    has = forms.has(kind) || partsOf(kind).some(hasForm);
    found.set(kind, has);
  }
  return has;
}

function partsOf(kind: Descriptor): readonly Descriptor[] {
  if ("of" in kind) return [kind.of];
  const named = kind.kind === "struct" ? kind.fields : kind.kind === "union" ? kind.variants : [];
  return named.flatMap(([, part]) => part ?? []);
}

/** How names are spelled in JSON. */
export type Spelling =
  | "camelCase"
  | "snake_case"
  | "kebab-case"
  | "PascalCase"
  | "SCREAMING_SNAKE_CASE";
