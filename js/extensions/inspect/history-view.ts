/** The log as history: the newest transactions, as the package reads them. */

import { button, element, row, scrolled, table } from "./dom.js";
import { bytesOf, MAX_LOADED, type Source } from "./source.js";
import { counted, number } from "./words.js";
import { type HistoryItem, historyOf } from "./workbench.js";

/** The most transactions that are shown. */
const HISTORY = 200;

export class HistoryView {
  readonly element = element("details", { class: "part", "data-part": "history" });
  readonly #content = element("div");
  readonly #onOpen: (version: number) => void;
  #source: Source | undefined;
  #live = 0;

  /** `onOpen` is called for a transaction that is chosen, with its number. */
  constructor(onOpen: (version: number) => void, run: (act: () => Promise<void>) => void) {
    this.#onOpen = onOpen;
    this.element.append(element("summary", {}, "The log as history"), this.#content);
    this.element.addEventListener("toggle", () => {
      const source = this.#source;
      if (this.element.open && source !== undefined) run(() => this.#fill(source, this.#live));
    });
  }

  /** Shows the history of a file, once the element is open. `live`: how many bytes the drawing says are live. */
  async show(source: Source, live: number): Promise<void> {
    this.#source = source;
    this.#live = live;
    this.#content.replaceChildren();
    if (this.element.open) await this.#fill(source, live);
  }

  async #fill(source: Source, live: number): Promise<void> {
    const content = this.#content;
    if (content.childElementCount > 0) return;
    if (source.size > MAX_LOADED) {
      content.replaceChildren(
        element(
          "p",
          {},
          "Files above 256 MB are not opened here. varve log FILE lists their transactions.",
        ),
      );
      return;
    }
    content.replaceChildren(element("p", { class: "facts" }, "Opening the file."));
    const { items, stats, problem } = await historyOf(await bytesOf(source), HISTORY);
    if (this.#source !== source) return;
    const shown: HTMLElement[] = [];
    if (problem !== undefined) shown.push(element("p", { class: "error" }, problem));
    if (stats !== undefined) {
      const same =
        stats.liveBytes === live
          ? "the same that the drawing has"
          : `while the drawing has ${number(live)}`;
      shown.push(
        element(
          "p",
          { class: "facts", "data-live": stats.liveBytes },
          `db.stats() says ${number(stats.liveBytes)} live bytes, ${same}. The newest ${counted(items.length, "transaction")}, as db.log() gives them:`,
        ),
      );
    }
    if (items.length > 0) shown.push(this.#table(items));
    content.replaceChildren(...shown);
  }

  #table(items: readonly HistoryItem[]): HTMLElement {
    const heads = ["#Number", "-Time", "Note", "Records"];
    const { table: made, body } = table("Transactions, the newest first", heads);
    for (const item of items) {
      const { number: of, time, note, moved, count, records, afterGap } = item;
      const what = records.map(
        ({ type, collection, key }) =>
          `${type} ${collection === undefined ? "" : `${collection}/`}${key}`,
      );
      const more = count > records.length ? `, and ${number(count - records.length)} more` : "";
      body.append(
        row(heads, [
          moved ? number(of) : button(number(of), () => this.#onOpen(of)),
          time === undefined ? "" : time.toISOString().slice(0, 19).replace("T", " "),
          moved ? "moved by compaction" : (note ?? ""),
          `${what.join(", ")}${more}`,
        ]),
      );
      if (!afterGap) continue;
      const gap = element(
        "tr",
        { class: "gap" },
        element("td", { colspan: heads.length }, "Compaction removed what was before."),
      );
      body.append(gap);
    }
    return scrolled("Transactions", made);
  }
}
