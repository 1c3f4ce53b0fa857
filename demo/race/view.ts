/** The tables of results. All rows are there from the start, so that nothing moves when times arrive. */

import {
  REFERENCE,
  STORES,
  type StoreId,
  type StoreInfo,
  WORKLOADS,
  type WorkloadId,
  type WorkloadInfo,
} from "./plan.js";
import { type Outcome, type Rows, spreadOf } from "./results.js";
import { comparison, percent, time, timeInWords } from "./words.js";

function made<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Record<string, string> = {},
  ...children: (Node | string)[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

type Column = "store" | "p50" | "p95" | "p99" | "spread" | "words";

const COLUMNS: readonly { id: Column; title: string; label: string }[] = [
  { id: "store", title: "Store", label: "the order of the stores" },
  { id: "p50", title: "p50", label: "the median" },
  { id: "p95", title: "p95", label: "the 95th percentile" },
  { id: "p99", title: "p99", label: "the 99th percentile" },
  { id: "spread", title: "Spread", label: "the spread" },
  { id: "words", title: "Against varve", label: "the comparison" },
];

/** Fewer slices have a median, but no percentiles worth the name. */
const LEAST_SLICES = 3;

/** A time whose unit has a column of its own, so that the figures of a table are aligned. */
function setTime(cell: HTMLElement, ns: number): void {
  const { figure, unit } = time(ns);
  cell.replaceChildren(figure, made("span", { class: "unit" }, ` ${unit}`));
}

/** Powers of ten in nanoseconds around the times of a table. */
function axisOf(times: readonly number[]): { from: number; decades: number } {
  const from = Math.floor(Math.log10(Math.min(...times)) - 0.15);
  const to = Math.ceil(Math.log10(Math.max(...times)));
  return { from, decades: Math.max(1, to - from) };
}

class Row {
  readonly element: HTMLTableRowElement;
  readonly #bar = made("div", { class: "bar" });
  readonly #cells: Record<Exclude<Column, "store">, HTMLTableCellElement>;
  outcome: Outcome | undefined;

  constructor(
    readonly store: StoreInfo,
    readonly order: number,
  ) {
    const cell = (name: string) => made("td", { class: name, role: "cell" }, "–");
    this.#cells = {
      p50: cell("p50"),
      p95: cell("p95"),
      p99: cell("p99"),
      spread: cell("spread"),
      words: cell("words"),
    };
    const { p50, p95, p99, spread, words } = this.#cells;
    this.element = made(
      "tr",
      { "data-store": store.id, role: "row", class: store.id.startsWith("varve") ? "own" : "" },
      made("th", { scope: "row", role: "rowheader", title: store.settings }, store.name),
      made("td", { class: "survives", role: "cell", title: store.durability }, store.survives),
      made("td", { class: "chart", role: "cell", "aria-hidden": "true" }, this.#bar),
      p50,
      p95,
      p99,
      spread,
      words,
    );
  }

  value(column: Column): number {
    if (column === "store") return this.order;
    if (this.outcome?.kind !== "measured") return Number.POSITIVE_INFINITY;
    if (column === "spread") return spreadOf(this.outcome);
    return this.outcome[column === "words" ? "p50" : column];
  }

  show(reference: Outcome | undefined): void {
    const { outcome } = this;
    const { p50, p95, p99, spread, words } = this.#cells;
    this.element.setAttribute("data-outcome", outcome?.kind ?? "none");
    if (outcome?.kind === "measured") {
      setTime(p50, outcome.p50);
      if (outcome.slices >= LEAST_SLICES) {
        setTime(p95, outcome.p95);
        setTime(p99, outcome.p99);
        spread.textContent = percent(spreadOf(outcome));
      } else for (const cell of [p95, p99, spread]) cell.textContent = "–";
      const middle = `${timeInWords(outcome.q1)} to ${timeInWords(outcome.q3)}`;
      spread.title = `${outcome.slices} slices, the middle half of them ${middle}`;
      words.textContent =
        this.store.id === REFERENCE
          ? "the reference"
          : reference?.kind === "measured"
            ? comparison(outcome.p50, reference.p50)
            : "–";
      return;
    }
    for (const cell of [p50, p95, p99, spread]) cell.textContent = "–";
    words.textContent = outcome === undefined ? "–" : WORDS[outcome.kind](outcome.reason);
    words.title = words.textContent;
  }

  draw(axis: { from: number; decades: number }, compared: Outcome | undefined): void {
    const at = (ns: number) =>
      `${Math.max(0, Math.min(100, ((Math.log10(ns) - axis.from) / axis.decades) * 100)).toFixed(2)}%`;
    this.#bar.replaceChildren();
    if (this.outcome?.kind === "measured") {
      const { p50, p95 } = this.outcome;
      const fill = made("i", { class: "fill" });
      fill.style.inlineSize = at(p50);
      const tail = made("i", { class: "tail" });
      tail.style.insetInlineStart = at(p50);
      tail.style.insetInlineEnd = `calc(100% - ${at(p95)})`;
      this.#bar.append(fill, tail);
    }
    if (compared?.kind === "measured") {
      const mark = made("i", { class: "mark" });
      mark.style.insetInlineStart = at(compared.p50);
      this.#bar.append(mark);
    }
  }
}

const WORDS: Record<"void" | "failed" | "absent", (reason: string) => string> = {
  void: (reason) => `void: ${reason}`,
  failed: (reason) => `failed: ${reason}`,
  absent: (reason) => reason,
};

/** One workload: what it measures, and its table. */
class Panel {
  readonly element: HTMLElement;
  readonly #rows: Row[];
  readonly #body = made("tbody", { role: "rowgroup" });
  readonly #axis = made("div", { class: "axis" });
  readonly #heads = new Map<Column, HTMLTableCellElement>();
  #sorted: { column: Column; descending: boolean } = { column: "store", descending: false };
  #compared: Partial<Record<StoreId, Outcome>> = {};

  constructor(readonly workload: WorkloadInfo) {
    const { id, title, measures, unit, commits } = workload;
    this.#rows = STORES.map((store, order) => new Row(store, order));
    this.#body.append(...this.#rows.map((row) => row.element));
    const table = made(
      "table",
      { "aria-labelledby": `${id}-title`, role: "table" },
      made("thead", { role: "rowgroup" }, made("tr", { role: "row" }, ...this.#headers())),
      this.#body,
    );
    this.element = made(
      "section",
      { class: "panel", "data-workload": id, "aria-labelledby": `${id}-title` },
      made("h4", { id: `${id}-title` }, title),
      made("p", {}, measures),
      made("p", { class: "unit-line" }, `Time of ${unit} · ${commits}`),
      table,
    );
    this.#mark();
  }

  #headers(): HTMLTableCellElement[] {
    const heads = COLUMNS.map(({ id, title, label }) => {
      const button = made("button", { type: "button", title: `Sort by ${label}` }, title);
      button.addEventListener("click", () => this.#sortBy(id));
      const head = made("th", { scope: "col", role: "columnheader", class: id }, button);
      this.#heads.set(id, head);
      return head;
    });
    const chart = made(
      "th",
      { class: "chart", role: "columnheader", scope: "col", "aria-hidden": "true" },
      this.#axis,
    );
    const survives = made(
      "th",
      { class: "survives", role: "columnheader", scope: "col" },
      "Survives",
    );
    return [heads[0]!, survives, chart, ...heads.slice(1)];
  }

  #sortBy(column: Column): void {
    const descending = this.#sorted.column === column && !this.#sorted.descending;
    this.#sorted = { column, descending };
    this.#sort();
    this.#mark();
  }

  #sort(): void {
    const { column, descending } = this.#sorted;
    const sign = descending ? -1 : 1;
    const sorted = [...this.#rows].sort((a, b) => {
      const [x, y] = [a.value(column), b.value(column)];
      // What has no time is last in either order.
      if (x === y || !(Number.isFinite(x) || Number.isFinite(y))) return a.order - b.order;
      if (!Number.isFinite(x)) return 1;
      if (!Number.isFinite(y)) return -1;
      return sign * (x - y);
    });
    this.#body.append(...sorted.map((row) => row.element));
  }

  #mark(): void {
    for (const [column, head] of this.#heads) {
      const { descending } = this.#sorted;
      const isSorted = column === this.#sorted.column;
      head.setAttribute("aria-sort", isSorted ? (descending ? "descending" : "ascending") : "none");
    }
  }

  show(outcomes: Partial<Record<StoreId, Outcome>>): void {
    for (const row of this.#rows) row.outcome = outcomes[row.store.id];
    for (const row of this.#rows) row.show(outcomes[REFERENCE]);
    if (this.#sorted.column !== "store") this.#sort();
    this.#draw();
  }

  compare(outcomes: Partial<Record<StoreId, Outcome>>): void {
    this.#compared = outcomes;
    this.#draw();
  }

  #draw(): void {
    const all = [...this.#rows.map((row) => row.outcome), ...Object.values(this.#compared)];
    const times = all.flatMap((one) => (one?.kind === "measured" ? [one.p50, one.p95] : []));
    const axis = axisOf(times.length > 0 ? times : [100, 1e6]);
    this.element.style.setProperty("--decades", String(axis.decades));
    const labels: HTMLElement[] = [];
    const step = Math.ceil(axis.decades / 3);
    for (let decade = 0; decade < axis.decades; decade += step) {
      const { figure, unit } = time(10 ** (axis.from + decade));
      const label = made("span", {}, `${Number(figure.replaceAll(",", ""))} ${unit}`);
      label.style.insetInlineStart = `${(decade / axis.decades) * 100}%`;
      labels.push(label);
    }
    this.#axis.replaceChildren(...labels);
    for (const row of this.#rows) row.draw(axis, this.#compared[row.store.id]);
  }
}

/** All tables, by groups of workloads. */
export class View {
  readonly #panels = new Map<WorkloadId, Panel>();
  readonly #groups: { head: HTMLElement; panels: HTMLElement }[] = [];

  constructor(root: HTMLElement) {
    for (const workload of WORKLOADS) {
      const panel = new Panel(workload);
      this.#panels.set(workload.id, panel);
      let group = this.#groups.find(({ head }) => head.textContent === workload.group);
      if (group === undefined) {
        const panels = made("div", { class: "panels" });
        group = { head: made("h3", { class: "group" }, workload.group), panels };
        this.#groups.push(group);
        root.append(group.head, panels);
      }
      group.panels.append(panel.element);
    }
  }

  /** Shows these results, and of the tables only those of these workloads. */
  show(rows: Rows, workloads: readonly WorkloadId[]): void {
    for (const [id, panel] of this.#panels) {
      panel.element.hidden = !workloads.includes(id);
      panel.show(rows[id] ?? {});
    }
    for (const { head, panels } of this.#groups) {
      head.hidden = [...panels.children].every((panel) => (panel as HTMLElement).hidden);
      panels.hidden = head.hidden;
    }
  }

  showOne(id: WorkloadId, outcomes: Partial<Record<StoreId, Outcome>>): void {
    this.#panels.get(id)?.show(outcomes);
  }

  compare(rows: Rows): void {
    for (const [id, panel] of this.#panels) panel.compare(rows[id] ?? {});
  }
}
