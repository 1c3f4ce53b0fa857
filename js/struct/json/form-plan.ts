/** The parts of plans that only JSON forms need. */

import { badValue } from "../type.js";
import type { Form, Spelling } from "./form.js";
import { made, type Named, Names, type Node, OP, spelledNames, structOf } from "./plan.js";

const lower = (word: string) => word.replace(/[A-Z]+/g, (letters) => letters.toLowerCase());
const upper = (word: string) => word.replace(/[a-z]+/g, (letters) => letters.toUpperCase());
const capitalized = (word: string) => upper(word.slice(0, 1)) + lower(word.slice(1));

/** Joins the words of a name. Letters other than those of ASCII stay as they are, so that Rust can do the same. */
const SPELLINGS: Record<Spelling, (words: string[]) => string> = {
  camelCase: ([first = "", ...more]: string[]) => lower(first) + more.map(capitalized).join(""),
  snake_case: (words: string[]) => lower(words.join("_")),
  "kebab-case": (words: string[]) => lower(words.join("-")),
  PascalCase: (words: string[]) => words.map(capitalized).join(""),
  SCREAMING_SNAKE_CASE: (words: string[]) => upper(words.join("_")),
};

export const ALL_SPELLINGS: readonly string[] = Object.keys(SPELLINGS);

/**
 * A name in another spelling. A word begins behind `_`, `-` or a space, and at a capital behind a small letter or a digit,
 * or before a small letter: `HTTPStatus_code` has three. Underscores at the start stay.
 */
export function spelled(name: string, spelling: Spelling | undefined): string {
  const [start = "", rest = ""] = /^(_*)(.*)$/s.exec(name)?.slice(1) ?? [];
  const words = rest
    .replace(/([a-z\d])(?=[A-Z])|([A-Z])(?=[A-Z][a-z])/g, "$&_")
    .split(/[-_ ]+/)
    .filter((word) => word !== "");
  return spelling && words.length > 0 ? start + SPELLINGS[spelling](words) : name;
}

/** Throws if one is called in JSON like another, or like the own name or an alias of another. */
export function checkNames(all: readonly Named[], what: string): void {
  const seen = new Map<string, string>();
  for (const { own, name, form } of all) {
    for (const one of new Set([name, own, ...(form?.aliases ?? [])])) {
      const other = seen.get(one);
      if (other !== undefined) {
        throw badValue(
          `The ${what} ${other} and ${own} cannot both have the name ${JSON.stringify(one)} in JSON.`,
        );
      }
      seen.set(one, own);
    }
  }
}

/** The objects that the variants of a union are in JSON if a field of them names the variant. */
export function taggedObjects(
  form: Form,
  payloads: Node["nodes"],
  owns: readonly string[],
): Pick<Node, "tag" | "tagged"> | undefined {
  const { tag, content } = form;
  if (tag === undefined) {
    if (content === undefined) return undefined;
    throw badValue("A union with content needs a tag, too.");
  }
  if (tag === content) throw badValue("The tag and the content need different names.", tag);
  if (tag === "value") {
    throw badValue('The tag cannot be called "value": in a snapshot() that is not the tag.');
  }
  const objects = payloads.map((payload, index) => {
    const variant = owns[index] as string;
    const node = made("tag", 0, 1, { names: spelledNames([variant], form, "variants") });
    const first = { own: tag, name: tag, node, start: 0, form: undefined };
    if (payload === undefined) return structOf([first]);
    if (content !== undefined) {
      return structOf([first, { ...first, own: content, name: content, node: payload }]);
    }
    if (payload.op !== OP.struct) {
      throw badValue(
        `The variant ${variant} is not a struct, whose fields could be beside the tag: give the union content, too.`,
        payload.kind,
      );
    }
    if (payload.names.indexOf(tag) >= 0) {
      throw badValue(`The tag ${JSON.stringify(tag)} is also a field of the variant ${variant}.`);
    }
    return structOf([first, ...payload.fields]);
  });
  return { tag: new Names([tag]), tagged: objects };
}
