/** Segments and frames as tables: the drawing for those who cannot see it. */

import { button, element, PAGE, pager, row, scrolled, table } from "./dom.js";
import { type Frame, frameName } from "./models.js";
import type { Slot } from "./scan.js";
import { number, slotName } from "./words.js";

/** What is shown now. */
interface Shown {
  readonly slots: readonly Slot[];
  /** The segment that is open, and its frames. */
  readonly slot: Slot | undefined;
  readonly frames: readonly Frame[];
}

/** Opens a segment and then calls `then`, or opens a frame of the one that is open, by their indexes. */
interface Open {
  slot(index: number, then: () => void): void;
  frame(index: number): void;
}

export class TablesView {
  readonly element = element("details", { class: "part", "data-part": "tables" });
  readonly #content = element("div");
  readonly #shown: () => Shown;
  readonly #open: Open;

  constructor(shown: () => Shown, open: Open) {
    this.#shown = shown;
    this.#open = open;
    this.element.append(element("summary", {}, "Segments and frames as tables"), this.#content);
    this.element.addEventListener("toggle", () => {
      if (this.element.open && this.#content.childElementCount === 0) this.#fill();
    });
  }

  /** Shows what is shown now, once the element is open. */
  show(): void {
    this.#content.replaceChildren();
    if (this.element.open) this.#fill();
  }

  #fill(): void {
    const slots = element("div");
    const frames = element("div");
    this.#content.append(slots, frames);
    this.#showSlotTable(slots, frames, 0);
    this.#showFrameTable(frames, 0);
  }

  #showSlotTable(into: HTMLElement, frames: HTMLElement, page: number): void {
    const { slots } = this.#shown();
    const heads = ["Segment", "What", "#Frames", "#Live", "#Dead", "#Damaged"];
    const { table: made, body } = table("Segments of the file", heads);
    for (const slot of slots.slice(page * PAGE, (page + 1) * PAGE)) {
      const open = button(String(slot.index), () =>
        this.#open.slot(slot.index, () => this.#showFrameTable(frames, 0)),
      );
      const figures = [slot.frames, slot.live, slot.dead, slot.damaged].map(number);
      body.append(row(heads, [open, slotName(slot), ...figures]));
    }
    into.replaceChildren(
      scrolled("Table of segments", made),
      ...pager(slots.length, page, (to) => this.#showSlotTable(into, frames, to)),
    );
  }

  #showFrameTable(into: HTMLElement, page: number): void {
    const heads = ["Frame", "State", "#Position", "#Records", "#Bytes", "#Live", "#Dead"];
    const { slot, frames: all } = this.#shown();
    const title = `Frames of segment ${slot?.index ?? 0}`;
    const { table: made, body } = table(title, heads);
    for (const [i, one] of all.slice(page * PAGE, (page + 1) * PAGE).entries()) {
      const { state, header, at, length, live, dead } = one;
      const open = button(frameName(one), () => this.#open.frame(page * PAGE + i));
      const figures = [(slot?.start ?? 0) + at, header?.records ?? 0, length, live, dead];
      body.append(row(heads, [open, state, ...figures.map(number)]));
    }
    into.replaceChildren(
      element("h4", {}, title),
      scrolled(title, made),
      ...pager(all.length, page, (to) => this.#showFrameTable(into, to)),
    );
  }
}
