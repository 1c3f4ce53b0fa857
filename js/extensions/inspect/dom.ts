/** Making elements. All text is set as text, since names and values come from files of strangers. */

import { number } from "./words.js";

type Children = readonly (Node | string)[];

/** An element with attributes and children. Attributes that are `undefined` or `false` are left out. */
export function element<Name extends keyof HTMLElementTagNameMap>(
  name: Name,
  attributes: Record<string, string | number | boolean | undefined> = {},
  ...children: Children
): HTMLElementTagNameMap[Name] {
  const made = document.createElement(name);
  for (const [attribute, value] of Object.entries(attributes)) {
    if (value === undefined || value === false) continue;
    made.setAttribute(attribute, value === true ? "" : String(value));
  }
  made.append(...children);
  return made;
}

/** A button that does something. */
export function button(text: string, act: () => void): HTMLButtonElement {
  const made = element("button", { type: "button" }, text);
  made.addEventListener("click", act);
  return made;
}

/** A table with these heads; those that begin with `#` are of figures, those with `-` are left out where it is narrow. */
export function table(
  label: string,
  heads: readonly string[],
): { table: HTMLTableElement; body: HTMLTableSectionElement } {
  const body = element("tbody");
  const row = element(
    "tr",
    {},
    ...heads.map((head) =>
      element("th", { scope: "col", class: classOf(head) }, head.replace(/^[#-]+/, "")),
    ),
  );
  const made = element("table", { "aria-label": label }, element("thead", {}, row), body);
  return { table: made, body };
}

function classOf(head: string): string | undefined {
  const [marks = ""] = /^[#-]*/.exec(head) ?? [];
  const names = [marks.includes("#") ? "figure" : "", marks.includes("-") ? "wide" : ""];
  return names.join(" ").trim() || undefined;
}

/** A row whose first cell names it. */
export function row(
  heads: readonly string[],
  cells: readonly (Node | string)[],
): HTMLTableRowElement {
  return element(
    "tr",
    {},
    ...cells.map((cell, i) =>
      i === 0
        ? element("th", { scope: "row", class: classOf(heads[i] ?? "") }, cell)
        : element("td", { class: classOf(heads[i] ?? "") }, cell),
    ),
  );
}

/** How many rows a page of a table has. */
export const PAGE = 50;

/** Buttons to the pages before and after, if there are several. */
export function pager(count: number, page: number, go: (page: number) => void): HTMLElement[] {
  const pages = Math.ceil(count / PAGE);
  if (pages < 2) return [];
  const before = button("Before", () => go(page - 1));
  const next = button("Next", () => go(page + 1));
  before.disabled = page === 0;
  next.disabled = page === pages - 1;
  const end = Math.min(count, (page + 1) * PAGE);
  const text = `${number(page * PAGE + 1)} to ${number(end)} of ${number(count)}`;
  return [element("div", { class: "pages" }, before, next, text)];
}

/** A table in a region that scrolls, which the keyboard reaches. */
export function scrolled(label: string, made: HTMLElement): HTMLElement {
  return element(
    "div",
    { class: "scroll", tabindex: 0, role: "region", "aria-label": label },
    made,
  );
}
