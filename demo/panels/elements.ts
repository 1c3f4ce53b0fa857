/** The element with this id. A panel's HTML is part of its program, so a missing element is a bug. */
export function element<E extends HTMLElement>(id: string, kind: new () => E): E {
  const found = document.getElementById(id);
  if (!(found instanceof kind)) throw new Error(`the panel has no ${kind.name} #${id}`);
  return found;
}

const integers = new Intl.NumberFormat("en");

export function figure(value: number): string {
  return integers.format(value);
}

/** "1 commit", "2 commits". */
export function counted(count: number, noun: string): string {
  return `${figure(count)} ${noun}${count === 1 ? "" : "s"}`;
}

export function milliseconds(ms: number): string {
  return ms < 10 ? `${ms.toFixed(1)} ms` : `${figure(Math.round(ms))} ms`;
}

/** Changes a text only if it differs, so that screen readers do not read it again. */
export function say(target: HTMLElement, text: string): void {
  if (target.textContent !== text) target.textContent = text;
}

export type CheckState = "open" | "ok" | "failed";

/** What each state is called, because colour alone does not say it. */
const WORDS: Readonly<Record<CheckState, string>> = {
  open: "not checked",
  ok: "holds",
  failed: "does not hold",
};

/** A list of what is checked, each with its result. */
export class CheckList {
  readonly #items: { item: HTMLLIElement; state: HTMLSpanElement; detail: HTMLSpanElement }[];

  constructor(list: HTMLUListElement, claims: readonly string[]) {
    this.#items = claims.map((claim) => {
      const item = document.createElement("li");
      const [state, text, detail] = ["state", "claim", "detail"].map((name) => {
        const span = document.createElement("span");
        span.className = name;
        return span;
      }) as [HTMLSpanElement, HTMLSpanElement, HTMLSpanElement];
      text.textContent = claim;
      item.append(state, text, detail);
      return { item, state, detail };
    });
    list.replaceChildren(...this.#items.map(({ item }) => item));
    this.reset();
  }

  set(index: number, state: CheckState, detail: string): void {
    const check = this.#items[index];
    if (check === undefined) throw new RangeError(`there is no check ${index}`);
    check.item.setAttribute("data-state", state);
    say(check.state, WORDS[state]);
    say(check.detail, detail);
  }

  reset(): void {
    for (const index of this.#items.keys()) this.set(index, "open", "");
  }
}
